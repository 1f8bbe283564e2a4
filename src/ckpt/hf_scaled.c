/* hf_scaled.c — tensors that a folder has in few bits, with the scales of their blocks beside them:
 * floats of 8 bits (e4m3), or pairs of floats of 4 bits (e2m1) in a byte, the lower half first.
 * They are read as the float32 tensors that they stand for, any elements of them. Blocks are of the
 * last two dims. Source: github.com/deepseek-ai/DeepSeek-V3 inference/fp8_cast_bf16.py; OCP
 * Microscaling Formats v1.0; transformers 5.24 integrations/finegrained_fp8.py (Fp8Dequantize) and
 * mxfp4.py. */
#include "hf.h"

#include <math.h>

/* What a tensor's scales are called: its name less some end, with another end. */
static const struct {
    const char *less, *more;
} scale_names[] = {
    {"", "_scale_inv"}, {"", "_scale"}, {".weight", ".scale"}, {"_blocks", "_scales"}};

/* Ends of tensors beside those in few bits that say how products with them were rounded. */
static const char *const idle[] = {".input_scale", ".activation_scale", "_activation_scale"};

bool hf_scaled_is_idle(const char *name) {
    bool is = false;
    for (int i = 0; i < MX_COUNT(idle); i++) is = is || mx_text_has_suffix(name, idle[i]);
    return is;
}

/* ---- which tensors they are */

const MxTensor *hf_find(const HfShards *shards, const char *name, const MxTensors **file) {
    const MxTensor *tensor = NULL;
    for (int i = 0; i < shards->n && !tensor; i++) {
        *file = shards->file[i];
        tensor = mx_tensors_find(*file, name);
    }
    return tensor;
}

static bool find_scales(const HfShards *shards, HfScaled *s) {
    const char *name = s->codes->name;
    for (int i = 0; i < MX_COUNT(scale_names) && !s->scales; i++) {
        if (!mx_text_has_suffix(name, scale_names[i].less)) continue;
        int kept = (int)(strlen(name) - strlen(scale_names[i].less));
        const char *theirs =
            mx_arena_printf(shards->arena, "%.*s%s", kept, name, scale_names[i].more);
        s->scales = hf_find(shards, theirs, &s->scale_file);
    }
    return s->scales != NULL;
}

/* Whether a tensor holds floats, or exponents. */
static bool are_scales(const MxTensor *t) {
    bool is_float = t->dtype == MX_F32 || t->dtype == MX_BF16 || t->dtype == MX_F16;
    return is_float || (t->stored && (!strcmp(t->stored, "F8_E8M0") || !strcmp(t->stored, "U8")));
}

/* Elements of a dim that share a scale; 0 = the scales' number is none for it. */
static int64_t block_of(int64_t n, int64_t n_scales, int64_t said) {
    if (said > 0 && (n + said - 1) / said == n_scales) return said;
    return n_scales > 0 && n % n_scales == 0 ? n / n_scales : 0;
}

/* One for all, one for each row, or one for each block of every matrix. */
static bool find_blocks(HfScaled *s, const int64_t said[2]) {
    MxShape of = s->scales->shape, all = s->decoded.shape;
    int last = all.rank - 1, n = of.rank;
    bool is_one = mx_shape_count(of) == 1, are_rows = n == 1 && all.rank == 2;
    if (!is_one && !are_rows && n != all.rank) return false;
    for (int d = 0; !is_one && d < last - 1; d++)
        if (of.dim[d] != all.dim[d]) return false;
    s->scale_rows = is_one ? 1 : are_rows ? of.dim[0] : of.dim[last - 1];
    s->scale_columns = is_one || are_rows ? 1 : of.dim[last];
    s->is_one = is_one;
    s->block[0] = block_of(all.dim[last - 1], s->scale_rows, said[0]);
    s->block[1] = block_of(all.dim[last], s->scale_columns, said[1]);
    return s->block[0] && s->block[1];
}

/* Blocks of bytes, which are a row's dim more, as one row. */
static void unpack_shape(HfScaled *s) {
    MxShape *shape = &s->decoded.shape;
    if (mx_text_has_suffix(s->codes->name, "_blocks") && shape->rank > 2) {
        shape->rank--;
        shape->dim[shape->rank - 1] *= shape->dim[shape->rank];
    }
    if (s->are_pairs) shape->dim[shape->rank - 1] *= 2;
}

const HfScaled *hf_scaled_find(HfShards *shards, const MxHfModel *model, const MxTensors *file,
                               const MxTensor *codes) {
    bool is_float = codes->stored && !strcmp(codes->stored, "F8_E4M3");
    bool are_pairs = codes->dtype == MX_I8 || (codes->stored && !strcmp(codes->stored, "U8"));
    int64_t known = mx_map_get(&shards->by_name, codes->name, -1);
    if (known >= 0) return shards->scaled[known];
    if ((!is_float && !are_pairs) || codes->shape.rank < 2) return NULL;
    HfScaled *s = mx_new(shards->arena, HfScaled);
    *s = (HfScaled){.file = file,
                    .codes = codes,
                    .are_pairs = are_pairs,
                    .decoded = {.name = codes->name, .dtype = MX_F32, .shape = codes->shape}};
    unpack_shape(s);
    s->fits = find_scales(shards, s) && are_scales(s->scales) && find_blocks(s, model->scale_block);
    if (!s->scales && !is_float) return NULL; /* whole numbers may be no codes */
    if (shards->n_scaled == shards->cap) {
        shards->cap = shards->cap ? 2 * shards->cap : 64;
        shards->scaled = mx_arena_grow(shards->arena, shards->scaled, (size_t)shards->n_scaled,
                                       (size_t)shards->cap, sizeof s);
    }
    mx_map_set(&shards->by_name, codes->name, shards->n_scaled);
    return shards->scaled[shards->n_scaled++] = s;
}

const char *hf_scaled_fault(MxArena *arena, const HfScaled *s) {
    const char *codes =
        mx_arena_printf(arena, "\"%s\" %s", s->codes->name, mx_shape_text(arena, s->codes->shape));
    if (!s->scales)
        return mx_arena_printf(arena, "%s is of 8 bits a number, and no scales are beside it",
                               codes);
    return mx_arena_printf(arena, "\"%s\" %s is of no type or shape that scales of %s have",
                           s->scales->name, mx_shape_text(arena, s->scales->shape), codes);
}

/* ---- values */

static float e4m3(unsigned code) {
    const int bias = 7, bits = 3;
    unsigned exponent = code >> bits & 15u, fraction = code & 7u;
    bool is_nan = exponent == 15 && fraction == 7;
    float size = exponent ? ldexpf((float)(8 + fraction), (int)exponent - bias - bits)
                          : ldexpf((float)fraction, 1 - bias - bits);
    return is_nan ? NAN : code >> 7 ? -size : size;
}

static float e2m1(unsigned code) {
    static const float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8u ? -sizes[code & 7u] : sizes[code & 7u];
}

/* A power of two; all bits set are no number. */
static float e8m0(uint8_t exponent) {
    return exponent == UINT8_MAX ? NAN : ldexpf(1, exponent - 127);
}

/* Scales first .. last of all. */
static float *read_scales(MxArena *scratch, const HfScaled *s, int64_t first, int64_t last,
                          MxError *err) {
    int64_t n = last - first + 1;
    void *raw = mx_arena_alloc(scratch, (size_t)n * mx_dtype_bytes(s->scales->dtype) + 1);
    float *scales = mx_new_n(scratch, float, n);
    if (!mx_tensors_read_part(s->scale_file, s->scales, first, n, raw, err)) return NULL;
    if (s->scales->dtype != MX_U8)
        mx_tensor_widen(raw, s->scales->dtype, 0, n, scales);
    else
        for (int64_t i = 0; i < n; i++) scales[i] = e8m0(((const uint8_t *)raw)[i]);
    return scales;
}

/* Where the scale of an element lies. */
static int64_t scale_of(const HfScaled *s, int64_t row, int64_t column) {
    int64_t rows = s->decoded.shape.dim[s->decoded.shape.rank - 2];
    int64_t at = row / rows * s->scale_rows + row % rows / s->block[0];
    return s->is_one ? 0 : at * s->scale_columns + column / s->block[1];
}

/* The code of an element, from bytes of which the first is the tensor's byte `first`. */
static unsigned code_at(const HfScaled *s, const uint8_t *codes, int64_t i, int64_t first) {
    if (!s->are_pairs) return codes[i - first];
    unsigned pair = codes[i / 2 - first];
    return i % 2 ? pair >> 4 : pair & 15u;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

bool hf_scaled_read(const HfScaled *s, int64_t from, int64_t n, float *out, MxError *err) {
    MxArena scratch = {.name = "codes"};
    float value[256];
    int64_t columns = s->decoded.shape.dim[s->decoded.shape.rank - 1];
    int64_t pack = s->are_pairs ? 2 : 1, first = from / pack, last = (from + n - 1) / pack;
    int64_t row = from / columns, end_row = (from + n - 1) / columns;
    int64_t low = scale_of(s, row, 0), high = scale_of(s, end_row, columns - 1);
    for (unsigned i = 0; i < MX_COUNT(value); i++) value[i] = s->are_pairs ? e2m1(i) : e4m3(i);
    uint8_t *codes = mx_arena_alloc(&scratch, (size_t)(last - first) + 1);
    const float *scales = read_scales(&scratch, s, low, high, err);
    bool ok =
        scales && mx_tensors_read_part(s->file, s->codes, first, last - first + 1, codes, err);
    for (int64_t at = from, end; ok && at < from + n; at = end) {
        int64_t column = at % columns, left = s->block[1] - column % s->block[1];
        float scale = scales[scale_of(s, at / columns, column) - low];
        end = at + least(left, columns - column);
        if (end > from + n) end = from + n;
        for (int64_t i = at; i < end; i++)
            out[i - from] = scale * value[code_at(s, codes, i, first)];
    }
    mx_arena_release(&scratch);
    return ok;
}
