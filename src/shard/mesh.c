/* mesh.c — the grid of devices: from parallelism keys to effective sizes, and coordinates of ranks.
 * Ranks are row-major over the mesh axes; which device a rank uses is decided elsewhere. */
#include <mx/shard.h>

const char *const mx_mesh_default_axes[MX_MESH_DEFAULT_COUNT] = {
    "diloco",
    "data",
    "stage",
    "fsdp",
    "fsdp_transpose",
    "context",
    "context_usp_ulysses",
    "context_autoregressive",
    "tensor",
    "tensor_sequence",
    "expert",
    "autoregressive",
};

/* One of the two lists of sizes, while its -1 is being filled. */
typedef struct Factors {
    const char *kind, *unit; /* "ici", "devices per slice" */
    const MxParallelism *keys;
    int64_t *sizes;
    int n;
    int open;        /* position of the -1, or -1 */
    int64_t product; /* of the others */
} Factors;

static bool mesh_product(const MxMeshInput *in, int64_t *product, int64_t size, MxError *err) {
    if (!__builtin_mul_overflow(*product, size, product)) return true;
    return mx_fail(err, MX_EXIT_CONFIG, in->where, "mesh_axes: the mesh has more than %lld devices",
                   (long long)INT64_MAX);
}

bool mx_mesh_new(MxArena *arena, const char *const *axes, const int64_t *sizes, int n, MxMesh *out,
                 MxError *err) {
    MxMap seen;
    mx_map_init(&seen, arena);
    int64_t *copy = mx_new_n(arena, int64_t, n);
    *out = (MxMesh){.n = n, .axes = axes, .sizes = copy, .n_ranks = 1};
    for (int i = 0; i < n; i++) {
        if (mx_map_get(&seen, axes[i], -1) >= 0)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                           "mesh_axes: \"%s\" occurs more than once", axes[i]);
        mx_map_set(&seen, axes[i], i);
        if (sizes[i] < 1)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                           "mesh axis \"%s\" has size %lld; wanted at least 1", axes[i],
                           (long long)sizes[i]);
        copy[i] = sizes[i];
        MxMeshInput nowhere = {0};
        if (!mesh_product(&nowhere, &out->n_ranks, sizes[i], err)) return false;
    }
    return true;
}

/* "ici_data_parallelism=2 x ici_tensor_parallelism=3", factors of one left out. */
static const char *factors_text(MxArena *arena, const Factors *f) {
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < f->n; i++)
        if (i != f->open && f->sizes[i] != 1)
            mx_text_add(&text, "%s%s=%lld", text.len ? " x " : "", f->keys[i].key,
                        (long long)f->sizes[i]);
    if (!text.len) mx_text_add(&text, "all sizes 1");
    return text.data;
}

/* Checks each size, finds the -1 and multiplies the others. */
static bool read_factors(const MxMeshInput *in, Factors *f, MxError *err) {
    f->open = -1;
    f->product = 1;
    for (int i = 0; i < f->n; i++) {
        const MxParallelism *key = &f->keys[i];
        f->sizes[i] = key->size;
        if (key->size == 0 || key->size < -1)
            return mx_fail(err, MX_EXIT_CONFIG, key->where,
                           "%s is %lld; wanted a size of at least 1, or -1 for all that is left",
                           key->key, (long long)key->size);
        if (key->size > 0) {
            if (!mesh_product(in, &f->product, key->size, err)) return false;
        } else if (f->open >= 0) {
            return mx_fail(err, MX_EXIT_CONFIG, key->where,
                           "%s parallelism has more than one -1: %s and %s; at most one axis can "
                           "take what is left",
                           f->kind, f->keys[f->open].key, key->key);
        } else
            f->open = i;
    }
    return true;
}

/* Whose line a wrong product is reported at: the last key that was set to something. */
static MxWhere blame(const MxMeshInput *in, const Factors *f) {
    for (int i = f->n - 1; i >= 0; i--)
        if (f->keys[i].where.file && f->sizes[i] != 1) return f->keys[i].where;
    return in->where;
}

/* Gives the -1 what is missing to `target`; without a -1 the product must be the target already. */
static bool fill_factors(MxArena *arena, const MxMeshInput *in, Factors *f, int64_t target,
                         MxError *err) {
    if (f->open >= 0 && target % f->product == 0) {
        f->sizes[f->open] = target / f->product;
        return true;
    }
    if (f->open >= 0)
        return mx_fail(err, MX_EXIT_CONFIG, f->keys[f->open].where,
                       "%s=-1 cannot be filled in: %lld %s do not divide by %lld (%s)",
                       f->keys[f->open].key, (long long)target, f->unit, (long long)f->product,
                       factors_text(arena, f));
    if (f->product == target) return true;
    return mx_fail(err, MX_EXIT_CONFIG, blame(in, f),
                   "%s parallelism makes %lld (%s), but there are %lld %s", f->kind,
                   (long long)f->product, factors_text(arena, f), (long long)target, f->unit);
}

/* How many slices there are when nobody says: dcn's product, or what ici leaves over for its -1. */
static int64_t count_slices(const MxMeshInput *in, const Factors *ici, const Factors *dcn) {
    if (in->n_slices) return in->n_slices;
    if (dcn->open < 0 || ici->open >= 0) return dcn->product;
    int64_t left = in->n_devices / ici->product;
    return left < dcn->product ? dcn->product : left - left % dcn->product;
}

static bool fill_both(MxArena *arena, const MxMeshInput *in, Factors *ici, Factors *dcn,
                      MxError *err) {
    int64_t n_slices = count_slices(in, ici, dcn);
    if (in->n_devices % n_slices)
        return mx_fail(err, MX_EXIT_CONFIG, blame(in, dcn),
                       "%lld devices do not divide into %lld slices (%s)", (long long)in->n_devices,
                       (long long)n_slices, factors_text(arena, dcn));
    return fill_factors(arena, in, dcn, n_slices, err) &&
           fill_factors(arena, in, ici, in->n_devices / n_slices, err);
}

bool mx_mesh_from_parallelism(MxArena *arena, const MxMeshInput *in, MxMesh *out, MxError *err) {
    int n = in->n;
    Factors ici = {.kind = "ici", .unit = "devices per slice", .keys = in->ici, .n = n};
    Factors dcn = {.kind = "dcn", .unit = "slices", .keys = in->dcn, .n = in->dcn ? n : 0};
    ici.sizes = mx_new_n(arena, int64_t, n);
    dcn.sizes = mx_new_n(arena, int64_t, n);
    if (in->n_devices < 0 || in->n_slices < 0)
        return mx_fail(err, MX_EXIT_CONFIG, in->where, "%s is %lld; wanted at least 1",
                       in->n_devices < 0 ? "num_devices" : "num_slices",
                       (long long)(in->n_devices < 0 ? in->n_devices : in->n_slices));
    if (!read_factors(in, &ici, err) || !read_factors(in, &dcn, err)) return false;
    if (in->n_devices && !fill_both(arena, in, &ici, &dcn, err)) return false;
    int64_t *sizes = mx_new_n(arena, int64_t, n), total = 1;
    int64_t *slices = mx_new_n(arena, int64_t, n), n_slices = 1;
    for (int i = 0; i < n; i++) {
        int64_t inner = ici.sizes[i] < 0 ? 1 : ici.sizes[i];
        int64_t outer = !in->dcn || dcn.sizes[i] < 0 ? 1 : dcn.sizes[i];
        if (!mesh_product(in, &total, inner, err) || !mesh_product(in, &total, outer, err))
            return false;
        sizes[i] = inner * outer;
        slices[i] = outer;
        n_slices *= outer;
    }
    if (!mx_mesh_new(arena, in->axes, sizes, n, out, err)) return false;
    if (n_slices > 1) out->slices = slices;
    return true;
}

int mx_mesh_find(const MxMesh *mesh, const char *axis) {
    for (int i = 0; axis && i < mesh->n; i++)
        if (!strcmp(mesh->axes[i], axis)) return i;
    return -1;
}

int64_t mx_mesh_size(const MxMesh *mesh, const char *axis) {
    int i = mx_mesh_find(mesh, axis);
    return i < 0 ? 1 : mesh->sizes[i];
}

int64_t mx_mesh_coord(const MxMesh *mesh, int64_t rank, int axis) {
    MX_ASSERT(0 <= rank && rank < mesh->n_ranks && 0 <= axis && axis < mesh->n);
    for (int i = mesh->n - 1; i > axis; i--) rank /= mesh->sizes[i];
    return rank % mesh->sizes[axis];
}

static uint32_t bit_of(const MxMesh *mesh, const char *name) {
    int axis = mx_mesh_find(mesh, name);
    return axis >= 0 && mesh->sizes[axis] > 1 ? 1u << axis : 0;
}

int64_t mx_mesh_slices(const MxMesh *mesh, uint32_t axes) {
    int64_t n = 1;
    for (int i = 0; mesh->slices && axes >> i; i++)
        if (axes >> i & 1) n *= mesh->slices[i];
    return n;
}

/* Devices of a slice along a mesh axis. */
static int64_t inside(const MxMesh *mesh, int axis) {
    int64_t n = mesh->slices ? mesh->sizes[axis] / mesh->slices[axis] : mesh->sizes[axis];
    return n ? n : 1;
}

/* Both numbers at once, from the last axis to the first: plans ask for those of many ranks. */
static int64_t slice_of(const MxMesh *mesh, int64_t rank, int64_t *place) {
    int64_t slice = 0, slices = 1, places = 1;
    *place = mesh->slices ? 0 : rank;
    for (int i = mesh->n - 1; mesh->slices && i >= 0; i--) {
        int64_t coord = rank % mesh->sizes[i];
        rank /= mesh->sizes[i];
        slice += coord / inside(mesh, i) * slices;
        *place += coord % inside(mesh, i) * places;
        slices *= mesh->slices[i];
        places *= inside(mesh, i);
    }
    return slice;
}

int64_t mx_mesh_slice(const MxMesh *mesh, int64_t rank) {
    int64_t place;
    return slice_of(mesh, rank, &place);
}

int64_t mx_mesh_place(const MxMesh *mesh, int64_t rank) {
    int64_t place;
    slice_of(mesh, rank, &place);
    return place;
}

uint32_t mx_mesh_fsdp(const MxMesh *mesh) {
    return bit_of(mesh, "fsdp") | bit_of(mesh, "fsdp_transpose");
}

uint32_t mx_mesh_stages(const MxMesh *mesh) {
    return bit_of(mesh, "stage");
}

uint32_t mx_mesh_replicas(const MxMesh *mesh) {
    return bit_of(mesh, "diloco");
}

const char *mx_mesh_text(MxArena *arena, const MxMesh *mesh) {
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < mesh->n; i++)
        if (mesh->sizes[i] > 1)
            mx_text_add(&text, "%s%s=%lld", text.len ? "," : "", mesh->axes[i],
                        (long long)mesh->sizes[i]);
    if (!text.len) mx_text_add(&text, "one device");
    return text.data;
}
