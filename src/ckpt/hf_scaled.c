/* hf_scaled.c — tensors that a folder has in few bits, with scales of rows or blocks beside them:
 * which they are, and how they lie. Values are read in hf_codes.c. Each way to publish weights so
 * has its own names. Source: github.com/deepseek-ai/DeepSeek-V3 inference/fp8_cast_bf16.py; OCP
 * Microscaling Formats v1.0; transformers 5.24 integrations/finegrained_fp8.py (Fp8Dequantize),
 * mxfp4.py and quantizer_bnb_4bit.py; compressed-tensors 0.20 compressors; AutoAWQ 0.2.9
 * utils/packing_utils.py; GPTQModel 7.7 nn_modules/qlinear; bitsandbytes 0.50 functional.py. */
#include "hf.h"

/* Places of neighbours in a byte or word, where they are not in their order. */
static const uint8_t high_first[] = {1, 0}, by_awq[] = {0, 4, 1, 5, 2, 6, 3, 7};

/* How a tensor lies in a folder of some methods: ends of names in place of the end `less` of the
 * wanted one. */
typedef struct Layout {
    const char *methods, *less;
    const char *codes, *stored; /* … which are of this type */
    HfNumber number;
    const char *scales, *zeros, *groups; /* NULL = there are none */
    const char *scaled;                  /* the type of scales; NULL = any */
    const char *divisor;                 /* of all scales, in one element */
    const char *state;                   /* how the name of bitsandbytes' quant_state starts */
    const char *idle;                    /* a tensor that is not needed */
    bool wants_zeros;                    /* none would be a fault */
    bool is_turned, packs_rows;          /* as HfPlane has them */
    const uint8_t *order;
    float factor; /* of all scales; 0 = 1 */
} Layout;

#define FLOATS     "fp8 fbgemm_fp8 compressed-tensors"
#define COMPRESSED "compressed-tensors"
#define BNB        "bitsandbytes"

// clang-format off
static const Layout layouts[] = {
    {FLOATS, "", "", "F8_E4M3", HF_E4M3, .scales = "_scale_inv"},
    {FLOATS, "", "", "F8_E4M3", HF_E4M3, .scales = "_scale"},
    {"fp8", ".weight", ".weight", "F8_E4M3", HF_E4M3, .scales = ".scale"},
    {"fp8", ".weight", ".weight", "I8", HF_E2M1, .scales = ".scale"},
    {"mxfp4", "_blocks", "_blocks", "U8", HF_E2M1, .scales = "_scales"},
    {COMPRESSED, ".weight", ".weight", "I8", HF_SIGNED, .scales = ".weight_scale", .zeros = ".weight_zero_point"},
    {COMPRESSED, ".weight", ".weight_packed", "I32", HF_WHOLE, .scales = ".weight_scale", .zeros = ".weight_zero_point", .groups = ".weight_g_idx", .idle = ".weight_shape"},
    {COMPRESSED, ".weight", ".weight_packed", "U8", HF_E2M1, .scales = ".weight_scale", .scaled = "F8_E4M3", .divisor = ".weight_global_scale"},
    {COMPRESSED, ".weight", ".weight_packed", "U8", HF_E2M1, .scales = ".weight_scale", .scaled = "U8"},
    {"gptq", ".weight", ".qweight", "I32", HF_WHOLE, .scales = ".scales", .zeros = ".qzeros", .wants_zeros = true, .groups = ".g_idx", .is_turned = true, .packs_rows = true},
    {"awq", ".weight", ".qweight", "I32", HF_WHOLE, .scales = ".scales", .zeros = ".qzeros", .wants_zeros = true, .is_turned = true, .order = by_awq},
    {BNB, ".weight", ".weight", "I8", HF_SIGNED, .scales = ".SCB", .idle = ".weight_format", .factor = 1 / 127.0f},
    {BNB, ".weight", ".weight", "U8", HF_WHOLE, .scales = ".weight.absmax", .state = ".weight.quant_state.bitsandbytes__", .order = high_first},
};
// clang-format on

/* Ends of tensors beside those in few bits that say how other numbers were rounded: operands of
 * products, cached keys and values. */
static const char *const idle[] = {
    ".input_scale",        ".activation_scale", "_activation_scale", ".input_zero_point",
    ".input_global_scale", ".k_scale",          ".v_scale",          ".q_scale",
    ".output_scale"};

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

/* A tensor in the making, and where it is looked for. */
typedef struct Search {
    HfShards *shards;
    const MxHfModel *model;
    const Layout *layout;
    const char *stem; /* of names */
    HfScaled *s;
    MxError *err;
} Search;

static bool is_stored(const MxTensor *t, const char *type) {
    return t->stored && !strcmp(t->stored, type);
}

static bool are_floats(const MxTensor *t) {
    return t->dtype == MX_F32 || t->dtype == MX_BF16 || t->dtype == MX_F16;
}

/* A tensor beside the codes, by the end of its name; NULL = there is none. */
static const MxTensor *find_part(const Search *at, const char *end, const MxTensors **file) {
    const char *name = mx_arena_printf(at->shards->arena, "%s%s", at->stem, end ? end : "");
    const MxTensor *t = end ? hf_find(at->shards, name, file) : NULL;
    if (!t) return NULL;
    MX_ASSERT(at->s->n_parts < HF_MOST_PARTS);
    return at->s->part[at->s->n_parts++] = t;
}

static const char *told(const Search *at, const MxTensor *t) {
    return mx_arena_printf(at->shards->arena, "\"%s\" %s", t->name,
                           mx_shape_text(at->shards->arena, t->shape));
}

/* A part that is missing, or of no use for these codes.
 *   what  parts of its kind are */
static bool refuse_part(const Search *at, const char *end, const MxTensor *t, const char *what) {
    MxArena *arena = at->shards->arena;
    const char *codes = told(at, at->s->codes.tensor);
    at->s->fault =
        t ? mx_arena_printf(arena, "%s is of no type or shape that %s of %s have", told(at, t),
                            what, codes)
          : mx_arena_printf(arena, "%s holds codes, and no %s are beside it, such as \"%s%s\"",
                            codes, what, at->stem, end);
    return false;
}

/* All of a small tensor of floats; NULL = it is no such one, which is told. */
static float *find_floats(const Search *at, const char *end, int64_t n) {
    const MxTensors *file;
    const MxTensor *t = find_part(at, end, &file);
    float *out = mx_new_n(at->shards->arena, float, n);
    if (t && are_floats(t) && mx_shape_count(t->shape) == n)
        return mx_tensors_read(file, t, out, at->err) ? out : NULL;
    refuse_part(at, end, t, "numbers");
    return NULL;
}

/* ---- how they lie */

/* Elements of a dim that share a number; 0 = their number is none for it. */
static int64_t block_of(int64_t n, int64_t n_numbers, int64_t said) {
    if (said > 0 && (n + said - 1) / said == n_numbers) return said;
    return n_numbers > 0 && n % n_numbers == 0 ? n / n_numbers : 0;
}

/* The plane of a tensor in which there is one number for all, one for each row, or one for each
 * block of every matrix. */
static bool lay(const Search *at, HfPlane *p) {
    MxShape of = p->tensor->shape, all = at->s->read;
    int last = all.rank - 1, n = of.rank, pack = hf_pack(p);
    bool is_one = mx_shape_count(of) == 1 && pack == 1, is_line = n == 1 && all.rank == 2;
    bool are_rows = is_line && all.dim[0] > 1;
    if (!is_one && !is_line && n != all.rank) return false;
    for (int d = 0; !is_one && d < last - 1; d++)
        if (of.dim[d] != all.dim[d]) return false;
    p->rows = is_one ? 1 : is_line ? (are_rows ? of.dim[0] : 1) : of.dim[n - 2];
    p->columns = is_one || are_rows ? 1 : of.dim[n - 1];
    p->each = all.dim[last - 1];
    p->count[p->is_turned] = p->rows * (p->packs_rows ? pack : 1);
    p->count[!p->is_turned] = p->columns * (p->packs_rows ? 1 : pack);
    for (int d = 0; d < 2; d++) {
        int64_t most = all.dim[last - 1 + d], spare = p->count[d] - most;
        if (spare > 0 && spare < pack) p->count[d] = most; /* a last element that is not full */
        p->block[d] = block_of(most, p->count[d], at->model->scale_block[d]);
        if (d && at->s->groups && p->count[d] <= most) p->block[d] = 1; /* groups say which */
    }
    if (is_one) p->each = p->block[0] = INT64_MAX;
    return p->block[0] && p->block[1];
}

/* What elements of scales stand for, if they are codes too. */
static const float *values_of_scales(const Search *at, const MxTensor *t) {
    return are_floats(t)             ? NULL
           : is_stored(t, "F8_E4M3") ? hf_values_of(at->shards, HF_E4M3)
                                     : hf_values_of(at->shards, HF_E8M0);
}

static bool lay_scales(const Search *at) {
    HfPlane *p = &at->s->scales;
    const MxTensor *t = p->tensor = find_part(at, at->layout->scales, &p->file);
    if (!t) return refuse_part(at, at->layout->scales, NULL, "scales");
    bool is_power = is_stored(t, "F8_E8M0") || is_stored(t, "U8");
    p->is_turned = at->layout->is_turned;
    p->values = values_of_scales(at, t);
    bool fits = are_floats(t) || is_power || is_stored(t, "F8_E4M3");
    if (at->layout->scaled) fits = is_stored(t, at->layout->scaled);
    return (fits && lay(at, p)) || refuse_part(at, NULL, t, "scales");
}

/* Codes that stand for 0: beside the scales, or else in the middle of all that there are. */
static bool lay_zeros(const Search *at) {
    HfScaled *s = at->s;
    HfPlane *p = &s->zeros;
    s->zero = at->layout->number == HF_WHOLE ? (float)(1 << (s->codes.bits - 1)) : 0;
    const MxTensor *t = p->tensor = find_part(at, at->layout->zeros, &p->file);
    if (!t) return !at->layout->wants_zeros || refuse_part(at, at->layout->zeros, NULL, "zeros");
    s->zero = at->model->zeros_are_less ? 1 : 0;
    p->bits = s->codes.bits;
    p->is_turned = at->layout->is_turned;
    p->packs_rows = !p->is_turned;
    p->order = at->layout->order;
    p->values = s->codes.values;
    bool fits = t->dtype == s->codes.tensor->dtype && lay(at, p) &&
                p->count[0] == s->scales.count[0] && p->count[1] == s->scales.count[1];
    return fits || refuse_part(at, NULL, t, "zeros");
}

/* Which scale each column has. */
static bool find_groups(const Search *at) {
    HfScaled *s = at->s;
    const MxTensor *t = s->groups = find_part(at, at->layout->groups, &s->group_file);
    bool fits = !t || (t->dtype == MX_I32 && mx_shape_count(t->shape) == s->read.dim[1]);
    return fits || refuse_part(at, NULL, t, "groups of columns");
}

static bool refuse_bits(const Search *at) {
    at->s->fault = mx_arena_printf(at->shards->arena, "%s holds codes of %d bits; wanted 2, 4 or 8",
                                   told(at, at->s->codes.tensor), at->s->codes.bits);
    return false;
}

/* The matrices that codes are of. */
static bool lay_codes(const Search *at) {
    HfScaled *s = at->s;
    HfPlane *p = &s->codes;
    MxShape shape = p->tensor->shape;
    bool is_word = p->tensor->dtype == MX_I32;
    p->is_turned = at->layout->is_turned;
    p->packs_rows = at->layout->packs_rows;
    p->order = at->layout->order;
    p->values = hf_values_of(at->shards, at->layout->number);
    p->bits = is_word ? (int)at->model->code_bits : at->layout->number == HF_E2M1 ? 4 : 8;
    if (is_word && p->bits != 2 && p->bits != 4 && p->bits != 8) return refuse_bits(at);
    if (mx_text_has_suffix(at->layout->codes, "_blocks") && shape.rank > 2) {
        shape.rank--; /* bytes of a block are a dim of their own */
        shape.dim[shape.rank - 1] *= shape.dim[shape.rank];
    }
    p->columns = shape.dim[shape.rank - 1];
    p->rows = shape.dim[shape.rank - 2];
    shape.dim[shape.rank - (p->packs_rows ? 2 : 1)] *= hf_pack(p);
    p->block[0] = p->block[1] = 1;
    if (p->is_turned) shape = (MxShape)MX_SHAPE(shape.dim[1], shape.dim[0]);
    s->decoded.shape = s->read = shape;
    p->each = shape.dim[shape.rank - 2];
    return true;
}

/* bitsandbytes' state of a matrix. */
typedef struct State {
    int64_t rows, columns, block, nested_block; /* 0 = scales are floats */
    double nested_term;
} State;

static bool read_state(const Search *at, State *state) {
    enum { LARGEST = 1 << 16, LARGEST_BLOCK = 1 << 20 };
    static const char *const types[] = {"nf4", "fp4"};
    MxArena *arena = at->shards->arena;
    const MxTensors *file;
    const MxTensor *t = NULL;
    const char *end = NULL;
    for (int i = 0; i < MX_COUNT(types) && !t; i++) {
        end = mx_arena_printf(arena, "%s%s", at->layout->state, types[i]);
        t = find_part(at, end, &file);
    }
    if (!t || mx_tensor_bytes(t) > LARGEST) return refuse_part(at, end, t, "states");
    size_t size = (size_t)mx_tensor_bytes(t);
    char *text = mx_arena_alloc(arena, size + 1);
    if (!mx_tensors_read_part(file, t, 0, mx_shape_count(t->shape), text, at->err)) return false;
    const MxJson *json = mx_json_parse(arena, text, size, t->name, at->err);
    const MxJson *shape = json ? mx_json_get(json, "shape") : NULL;
    if (!json) return false;
    mx_json_int(mx_json_at(shape, 0), &state->rows);
    mx_json_int(mx_json_at(shape, 1), &state->columns);
    mx_json_int(mx_json_get(json, "blocksize"), &state->block);
    mx_json_int(mx_json_get(json, "nested_blocksize"), &state->nested_block);
    mx_json_number(mx_json_get(json, "nested_offset"), &state->nested_term);
    int64_t n = 2 * mx_shape_count(at->s->codes.tensor->shape);
    bool fits = mx_json_length(shape) == 2 && state->columns > 0 && n % state->columns == 0 &&
                n / state->columns == state->rows && state->block > 0 &&
                state->block <= LARGEST_BLOCK && state->nested_block >= 0 &&
                state->nested_block <= LARGEST_BLOCK;
    return fits || refuse_part(at, NULL, t, "states");
}

/* The plane of a row of numbers, one for each block of elements. */
static bool lay_row(const Search *at, HfPlane *p, const char *end, int64_t block) {
    const MxTensor *t = p->tensor = find_part(at, end, &p->file);
    if (!t) return refuse_part(at, end, NULL, "scales");
    p->rows = p->each = p->block[0] = p->count[0] = 1;
    p->columns = p->count[1] = mx_shape_count(t->shape);
    p->block[1] = block;
    bool fits = are_floats(t) || (t->dtype == MX_U8 && p->values);
    return (fits && p->columns == (at->s->read.dim[1] + block - 1) / block) ||
           refuse_part(at, NULL, t, "scales");
}

/* bitsandbytes': blocks of a matrix's elements, in whatever rows they are; what codes stand for is
 * beside them, and scales may be codes themselves, of blocks of scales. */
static bool lay_blocks(const Search *at) {
    State state = {0};
    HfScaled *s = at->s;
    if (!read_state(at, &state)) return false;
    s->decoded.shape = (MxShape)MX_SHAPE(state.rows, state.columns);
    s->read = (MxShape)MX_SHAPE(1, state.rows * state.columns);
    s->codes.bits = 4;
    s->codes.order = at->layout->order;
    s->codes.rows = s->codes.each = s->codes.block[0] = s->codes.block[1] = 1;
    s->codes.columns = s->read.dim[1] / 2;
    s->codes.values = find_floats(at, ".weight.quant_map", 16);
    if (!s->codes.values) return false;
    if (!state.nested_block) return lay_row(at, &s->scales, at->layout->scales, state.block);
    s->nested_term = (float)state.nested_term;
    s->scales.values = find_floats(at, ".weight.nested_quant_map", 256);
    return s->scales.values && lay_row(at, &s->scales, at->layout->scales, state.block) &&
           lay_row(at, &s->nested, ".weight.nested_absmax", state.block * state.nested_block);
}

static bool lay_all(const Search *at) {
    HfScaled *s = at->s;
    if (at->layout->state) return lay_blocks(at);
    if (!lay_codes(at) || !find_groups(at) || !lay_scales(at) || !lay_zeros(at)) return false;
    const float *divisor = at->layout->divisor ? find_floats(at, at->layout->divisor, 1) : NULL;
    if (at->layout->divisor && !divisor) return false;
    if (divisor) s->divisor = *divisor;
    const MxTensors *file;
    find_part(at, at->layout->idle, &file);
    return true;
}

/* ---- looking for them */

/* The codes of a wanted tensor that lie so; false = there are none. */
static bool find_codes(Search *at, const char *name) {
    const Layout *l = at->layout;
    HfPlane *p = &at->s->codes;
    if (!mx_text_has_word(l->methods, at->model->few_bits) || !mx_text_has_suffix(name, l->less))
        return false;
    at->stem =
        mx_arena_printf(at->shards->arena, "%.*s", (int)(strlen(name) - strlen(l->less)), name);
    at->s->n_parts = 0;
    p->tensor = find_part(at, l->codes, &p->file);
    return p->tensor && is_stored(p->tensor, l->stored) && p->tensor->shape.rank > 1;
}

static void keep(HfShards *shards, const char *name, const HfScaled *s) {
    if (shards->n_scaled == shards->cap) {
        shards->cap = shards->cap ? 2 * shards->cap : 64;
        shards->scaled = mx_arena_grow(shards->arena, shards->scaled, (size_t)shards->n_scaled,
                                       (size_t)shards->cap, sizeof s);
    }
    mx_map_set(&shards->by_name, name, shards->n_scaled);
    shards->scaled[shards->n_scaled++] = s;
}

const HfScaled *hf_scaled_find(HfShards *shards, const MxHfModel *model, const char *name,
                               MxError *err) {
    int64_t known = mx_map_get(&shards->by_name, name, -1);
    HfScaled *found = NULL;
    if (known >= 0) return shards->scaled[known];
    for (int i = 0; i < MX_COUNT(layouts) && (!found || !found->fits); i++) {
        HfScaled *s = mx_new(shards->arena, HfScaled);
        Search at = {shards, model, &layouts[i], NULL, s, err};
        float factor = layouts[i].factor != 0 ? layouts[i].factor : 1;
        *s = (HfScaled){.decoded = {.name = name, .dtype = MX_F32}, .factor = factor, .divisor = 1};
        if (!find_codes(&at, name)) continue;
        s->fits = lay_all(&at);
        if (s->fits || !found || s->n_parts > found->n_parts) found = s;
    }
    if (found) keep(shards, found->decoded.name, found);
    return found;
}
