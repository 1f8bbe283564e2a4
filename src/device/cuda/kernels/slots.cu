/* slots.cu — rows to the slots of experts and back. First the place of every choice among those of
 * its expert is found, then rows are copied, a block a row. */
#include "places.cuh"

namespace gpu_slots {

typedef struct Slots {
    Places places;
    const void *from;
    void *to;
    int32_t *expert;                    /* [batch, n_experts, n_slots], NULL = not wanted */
    int32_t *chosen;                    /* likewise: 1 + the choice that has a slot, 0 = none */
    int64_t n_slots, capacity, choices; /* choices: of a token */
    int64_t share;                      /* of choices that one row of x is for */
    int64_t width;                      /* of rows */
} Slots;

static Slots slots_of(const MxKernelCall *call) {
    const MxSlotsAttr *attr = (const MxSlotsAttr *)call->attr;
    MxShape x = call->in_type[0].shape, ids = call->in_type[1].shape;
    Slots s = {};
    s.places = places_of(ids.dim[0], ids.dim[1] * ids.dim[2], attr->n_experts, 0);
    s.capacity = attr->capacity;
    s.n_slots = gpu_max(1, attr->capacity);
    s.choices = ids.dim[2];
    s.share = x.rank == ids.rank ? s.choices : 1;
    s.width = x.dim[x.rank - 1];
    return s;
}

static int64_t count_slots(const Slots &s) {
    return s.places.rows * s.places.n_keys * s.n_slots;
}

static size_t carve(Slots *s, void *scratch) {
    char *begin = (char *)scratch;
    places_carve(&s->places, &scratch);
    s->chosen = (int32_t *)gpu_carve(&scratch, sizeof(int32_t) * (size_t)count_slots(*s));
    return (size_t)((char *)scratch - begin);
}

static size_t slots_scratch(const MxDevice *, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    Slots s = slots_of(call);
    return carve(&s, origin);
}

/* Choice i's row among the slots of all rows of the batch, -1 = it has none. */
__device__ static inline int64_t slot_of(const Slots &s, int64_t i) {
    int32_t expert = s.places.ids[i], place = s.places.place[i];
    GPU_ASSERT(expert >= -1 && expert < s.places.n_keys);
    if (expert < 0 || place >= s.capacity) return -1;
    return (i / s.places.n * s.places.n_keys + expert) * s.n_slots + place;
}

/* Ready to copy. */
static Slots start(const MxDevice *device, const MxKernelCall *call) {
    Slots s = slots_of(call);
    carve(&s, call->scratch);
    s.from = call->in[0];
    s.to = call->out[0];
    s.places.ids = (const int32_t *)call->in[1];
    places_run(device, s.places);
    return s;
}

/* A block copies a row, or clears it if there is none to copy. */
template <class V>
__device__ static inline void copy_row(const Slots &s, int64_t from, int64_t to, int64_t width) {
    V *row = (V *)s.to + to * width;
    const V *x = (const V *)s.from + from * width;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) row[i] = from < 0 ? V{} : x[i];
}

/* launch_copy — starts a kernel of rows for the widest elements that rows consist of. */
template <class F>
static void launch_copy(const MxDevice *device, const Slots &s, MxDtype dtype, int64_t rows,
                        const F &kernel_of) {
    int64_t bytes = s.width * (int64_t)mx_dtype_bytes(dtype);
    auto launch = [&](auto element) {
        int64_t width = bytes / (int64_t)sizeof element;
        unsigned block = gpu_blocks(gpu_max(1, gpu_min(width, GPU_BLOCK)), GPU_WARP) * GPU_WARP;
        gpu_launch(device, kernel_of(element), (unsigned)rows, block, 0, s, width);
    };
    if (bytes % (int64_t)sizeof(uint4) == 0)
        launch(uint4{});
    else if (dtype == MX_BF16)
        launch(MxBf16{});
    else
        launch(uint32_t{});
}

/* ---- to slots: a block a slot */

__global__ void __launch_bounds__(GPU_BLOCK) note_choices(Slots s) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= s.places.rows * s.places.n) return;
    int64_t slot = slot_of(s, i);
    if (slot >= 0) s.chosen[slot] = (int32_t)(i + 1);
}

template <class V> __global__ void __launch_bounds__(GPU_BLOCK) put_rows(Slots s, int64_t width) {
    int64_t slot = blockIdx.x, choice = (int64_t)s.chosen[slot] - 1;
    if (s.expert && threadIdx.x == 0) s.expert[slot] = choice < 0 ? -1 : s.places.ids[choice];
    if (s.to) copy_row<V>(s, choice < 0 ? -1 : choice / s.share, slot, width);
}

static void to_slots_run(const MxDevice *device, const MxKernelCall *call) {
    Slots s = start(device, call);
    int64_t n = s.places.rows * s.places.n;
    MX_ASSERT(n < INT32_MAX);
    s.expert = (int32_t *)call->out[1];
    gpu_runtime_zero(gpu_of(device), s.chosen, sizeof *s.chosen * (size_t)count_slots(s));
    gpu_launch(device, note_choices, gpu_blocks(n), GPU_BLOCK, 0, s);
    launch_copy(device, s, call->in_type[0].dtype, count_slots(s),
                [](auto element) { return put_rows<decltype(element)>; });
}

GPU_KERNEL(to_slots, .scratch = slots_scratch, .run = to_slots_run);

/* ---- from slots: a block a choice, or a token whose choices are summed up */

template <class V> __global__ void __launch_bounds__(GPU_BLOCK) take_rows(Slots s, int64_t width) {
    copy_row<V>(s, slot_of(s, blockIdx.x), blockIdx.x, width);
}

/* N elements a thread at a time. Sums are made in f32 and rounded once. */
template <int N>
__global__ void __launch_bounds__(GPU_BLOCK) sum_rows(Slots s, GpuArray from, GpuArray to) {
    int64_t token = blockIdx.x;
    for (int64_t at = (int64_t)threadIdx.x * N; at < s.width; at += GPU_BLOCK * N) {
        float sum[N] = {}, x[N];
        for (int64_t i = token * s.choices; i < (token + 1) * s.choices; i++) {
            int64_t slot = slot_of(s, i);
            if (slot < 0) continue;
            if constexpr (N == GPU_PACK)
                gpu_get_pack(from, slot * s.width + at, x);
            else
                x[0] = gpu_get(from, slot * s.width + at);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += x[j];
        }
        if constexpr (N == GPU_PACK)
            gpu_put_pack(to, token * s.width + at, sum);
        else
            gpu_put(to, token * s.width + at, sum[0]);
    }
}

static void from_slots_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Slots s = start(device, call);
    int64_t n = s.places.rows * s.places.n;
    if (!((const MxSlotsAttr *)call->attr)->sums)
        launch_copy(device, s, call->in_type[0].dtype, n,
                    [](auto element) { return take_rows<decltype(element)>; });
    else if (s.choices)
        gpu_launch(device, s.width % GPU_PACK ? sum_rows<1> : sum_rows<GPU_PACK>,
                   (unsigned)(n / s.choices), GPU_BLOCK, 0, s, gpu_in(call, 0), gpu_out(call, 0));
}

GPU_KERNEL(from_slots, .scratch = slots_scratch, .run = from_slots_run);

} // namespace gpu_slots
