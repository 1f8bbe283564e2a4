/* cache.c — caches of keys and values, and attention over them. */
#include "cases.h"

#include <math.h>

/* ---- rows in few bits */

static float rounded(float x, MxDtype dtype) {
    return dtype == MX_F32 ? x : mx_bf16_to_f32(mx_f32_to_bf16(x));
}

static int64_t code_bytes(MxQtype type, int64_t n) {
    return type == MX_INT4 ? (n + 1) / 2 : n;
}

/* Element i of n that a row of bytes stands for. */
static double kept_value(MxQtype type, MxDtype dtype, const double *row, int64_t n, int64_t i) {
    const double *behind = row + code_bytes(type, n);
    int half = (int)code_bytes(MX_INT4, n), code = (int)row[type == MX_INT4 ? i % half : i];
    uint32_t bits = 0;
    float scale;
    for (int b = 0; b < (dtype == MX_F32 ? 4 : 2); b++)
        bits |= (uint32_t)behind[b] << (8 * b + (dtype == MX_F32 ? 0 : 16));
    memcpy(&scale, &bits, sizeof scale);
    if (type == MX_INT4) code = i < half ? code & 15 : code >> 4;
    int most = type == MX_INT4 ? 7 : 127;
    return (double)(code > most ? code - 2 * (most + 1) : code) * (double)scale;
}

static void put_scale(float scale, MxDtype dtype, double *to) {
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    for (int b = 0; b < (dtype == MX_F32 ? 4 : 2); b++)
        to[b] = bits >> (8 * b + (dtype == MX_F32 ? 0 : 16)) & 255;
}

/* Rows of heads, of which as many as share a scale are given. */
static void ref_codes_of(const Reference *r, int64_t first, int64_t n_heads) {
    const MxCacheCodesAttr *attr = r->attr;
    MxDtype dtype = r->in_type[0].dtype;
    int64_t H = r->in_type[0].shape.dim[3], bytes = r->out_type[0].shape.dim[3];
    float bound = attr->type == MX_INT4 ? 7.5f : 127.5f, most = bound - 0.5f, largest = 0;
    const double *x = r->in[0] + first * H;
    for (int64_t i = 0; i < n_heads * H; i++) largest = fmaxf(largest, fabsf((float)x[i]));
    for (int64_t h = 0; h < n_heads; h++, x += H) {
        double *row = r->out[0] + (first + h) * bytes;
        int64_t half = code_bytes(MX_INT4, H);
        for (int64_t i = 0; i < bytes; i++) row[i] = 0;
        for (int64_t i = 0; i < H && largest > 0; i++) {
            float times = rounded(bound / largest, dtype);
            int code = (int)fminf(rintf(rounded((float)x[i] * times, dtype)), most);
            if (attr->type == MX_INT8)
                row[i] = code & 255;
            else
                row[i % half] += (code & 15) << (i < half ? 0 : 4);
        }
        put_scale(rounded(largest / bound, dtype), dtype, row + code_bytes(attr->type, H));
    }
}

static void ref_cache_codes(const Reference *r) {
    const MxCacheCodesAttr *attr = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t shared = attr->spans_heads ? x.dim[2] : 1;
    for (int64_t i = 0; i < x.dim[0] * x.dim[1] * x.dim[2]; i += shared) ref_codes_of(r, i, shared);
}

/* ---- rows of positions */

/* Copies the cache; rows of pieces then go to their slots. */
static void ref_cache_write(const Reference *r) {
    int64_t slots = r->in_type[0].shape.dim[1], T = r->in_type[1].shape.dim[1];
    int64_t rows = r->in_type[1].shape.dim[0] * T, n = element_count(r->out_type[0]);
    int64_t width = rows ? element_count(r->in_type[1]) / rows : 0;
    for (int64_t i = 0; i < n; i++) r->out[0][i] = r->in[0][i];
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = (int64_t)r->in[2][row], sequence = (int64_t)r->in[3][row / T];
        if (at < 0) continue;
        for (int64_t i = 0; i < width; i++)
            r->out[0][(sequence * slots + at % slots) * width + i] = r->in[1][row * width + i];
    }
}

static bool sees(const MxAttentionAttr *attr, int64_t t, int64_t s) {
    if (attr->mask == MX_MASK_SLIDING && s <= t - attr->window) return false;
    if (attr->mask == MX_MASK_CHUNK && s / attr->window != t / attr->window) return false;
    return attr->mask == MX_MASK_FULL || s <= t;
}

/* The position that a slot holds of n: the last one that was put there; -1 = none. */
static int64_t held(int64_t slot, int64_t slots, int64_t n) {
    int64_t position = -1;
    for (int64_t p = slot; p < n; p += slots) position = p;
    return position;
}

enum { Q, K, V, POSITIONS, SEQUENCES, COUNTS, SINKS, BLOCKS = SINKS, ROWS, SEEN };

/* Whether a token sees position p as one of its block, all of whose tokens between them are there.
 */
static bool is_of_block(const Reference *r, int64_t row, int64_t p) {
    const double *blocks = r->in[BLOCKS], *positions = r->in[POSITIONS];
    int64_t T = r->in_type[POSITIONS].shape.dim[1], first = row / T * T, own = row;
    int64_t size = ((const MxAttentionAttr *)r->attr)->block_size;
    int step = (double)p < positions[row] ? -1 : 1;
    if (blocks[row] <= 0) return false;
    while (positions[own] != (double)p) {
        int64_t next = own + step;
        if (next < first || next >= first + T || positions[next] != positions[own] + step ||
            blocks[next] <= 0 ||
            ((int64_t)blocks[next] - 1) / size != ((int64_t)blocks[row] - 1) / size)
            return false;
        own = next;
    }
    return true;
}

/* Element i of n of a row of a cache. */
static double element(const Reference *r, int input, int64_t row, int64_t n, int64_t i) {
    const MxAttentionAttr *attr = r->attr;
    const double *from = r->in[input] + row * r->in_type[input].shape.dim[3];
    return attr->kept ? kept_value(attr->kept, r->in_type[Q].dtype, from, n, i) : from[i];
}

static double score_of(const Reference *r, const double *query, int keys, int64_t at) {
    const MxAttentionAttr *attr = r->attr;
    int64_t H = r->in_type[Q].shape.dim[3];
    double score = 0;
    for (int64_t h = 0; h < H; h++) score += query[h] * element(r, keys, at, H, h);
    score *= attr->scale;
    return attr->softcap > 0 ? attr->softcap * tanh(score / attr->softcap) : score;
}

/* Rows of windows, of a query that is no padding; returns what the sum grows by. */
static double add_rows(const Reference *r, int64_t row, int64_t n, double *out) {
    MxShape q = r->in_type[Q].shape, k = r->in_type[ROWS].shape;
    int64_t sequence = (int64_t)r->in[SEQUENCES][row / q.dim[1]], H = q.dim[3];
    double sum = 0;
    for (int64_t p = 0; p < k.dim[1]; p++) {
        int64_t at = (sequence * k.dim[1] + p) * k.dim[2] + n / (q.dim[2] / k.dim[2]);
        const double *seen = r->in[SEEN] + row * ((k.dim[1] + 31) / 32);
        if (!((uint32_t)(int32_t)seen[p / 32] >> p % 32 & 1u)) continue;
        double weight = exp(score_of(r, r->in[Q] + (row * q.dim[2] + n) * H, ROWS, at));
        for (int64_t h = 0; h < H; h++) out[h] += weight * r->in[ROWS][at * H + h];
        sum += weight;
    }
    return sum;
}

static void attend(const Reference *r, int64_t row, int64_t n) {
    const MxAttentionAttr *attr = r->attr;
    MxShape q = r->in_type[Q].shape, k = r->in_type[K].shape;
    int64_t b = row / q.dim[1], H = q.dim[3];
    int64_t width = r->out_type[0].shape.dim[3], first = (int64_t)r->in[SEQUENCES][b] * k.dim[1];
    int64_t head = n / (q.dim[2] / k.dim[2]), own = (int64_t)r->in[POSITIONS][row];
    double *out = r->out[0] + (row * q.dim[2] + n) * width;
    bool has_sink = r->n_in > SINKS && !attr->is_chosen && !attr->block_size;
    double sum = has_sink ? exp(r->in[SINKS][n]) : 0;
    int64_t chunk = attr->chunk ? attr->chunk : 1;
    int64_t words = ((k.dim[1] + chunk - 1) / chunk + 31) / 32;
    int64_t chooser = attr->chunk ? row * q.dim[2] + n : row;
    const double *chosen = attr->is_chosen ? r->in[SINKS] + chooser * words : NULL;
    for (int64_t w = 0; w < width; w++) out[w] = 0;
    for (int64_t slot = 0; slot < k.dim[1] && own >= 0; slot++) {
        int64_t p = held(slot, k.dim[1], (int64_t)r->in[COUNTS][b]), at = (first + slot) * k.dim[2];
        if (p < 0 || (!sees(attr, own, p) && !(attr->block_size && is_of_block(r, row, p))))
            continue;
        int64_t bit = p / chunk;
        if (chosen && !((uint32_t)(int32_t)chosen[bit / 32] >> bit % 32 & 1u)) continue;
        double score = score_of(r, r->in[Q] + (row * q.dim[2] + n) * H, K, at + head);
        sum += exp(score);
        for (int64_t w = 0; w < width; w++)
            out[w] += exp(score) * element(r, V, at + head, width, w);
    }
    if (own >= 0 && r->n_in > SEEN) sum += add_rows(r, row, n, out);
    for (int64_t w = 0; w < width && sum > 0; w++) out[w] /= sum;
}

static void ref_cache_attention(const Reference *r) {
    MxShape q = r->in_type[Q].shape;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++)
        for (int64_t n = 0; n < q.dim[2]; n++) attend(r, row, n);
}

static void ref_cache_conv(const Reference *r) {
    MxShape x = r->in_type[0].shape, out = r->out_type[0].shape;
    int64_t taps = r->in_type[1].shape.dim[0], D = x.dim[2];
    int64_t apart = ((const MxDeltaAttr *)r->attr)->apart;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t d = i % D, token = i / D, position = (int64_t)r->in[2][token];
        int64_t sequence = (int64_t)r->in[3][token / out.dim[1]];
        r->out[0][i] = 0;
        for (int64_t j = 0; j < taps; j++) {
            int64_t from = position - (taps - 1 - j) * (apart ? apart : 1);
            if (from >= 0)
                r->out[0][i] +=
                    r->in[1][j * D + d] * r->in[0][(sequence * x.dim[1] + from % x.dim[1]) * D + d];
        }
    }
}

/* A token of a head: its memory S [H, W] and what is read of it. */
static void remember(const Reference *r, int64_t token, int64_t head, double *S) {
    MxShape q = r->in_type[1].shape, v = r->in_type[3].shape;
    int64_t H = q.dim[3], W = v.dim[3], at = token * v.dim[2] + head;
    int64_t key = token * q.dim[2] + head / (v.dim[2] / q.dim[2]);
    for (int64_t w = 0; w < W; w++) {
        double known = 0, *read = r->out[1] + at * W + w;
        for (int64_t h = 0; h < H; h++) {
            S[h * W + w] *= exp(r->in[4][at]);
            known += S[h * W + w] * r->in[2][key * H + h];
        }
        *read = 0;
        for (int64_t h = 0; h < H; h++) {
            S[h * W + w] += r->in[2][key * H + h] * r->in[5][at] * (r->in[3][at * W + w] - known);
            *read += S[h * W + w] * r->in[1][key * H + h];
        }
    }
}

static void ref_cache_delta(const Reference *r) {
    MxShape memory = r->in_type[0].shape, v = r->in_type[3].shape;
    int64_t size = memory.dim[3] * memory.dim[4], N = v.dim[2], T = v.dim[1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = r->in[0][i];
    for (int64_t i = 0; i < element_count(r->out_type[1]); i++) r->out[1][i] = 0;
    for (int64_t row = 0; row < v.dim[0] * N; row++) {
        const double *positions = r->in[6] + row / N * T;
        double *S = r->out[0] + ((int64_t)r->in[7][row / N] * N + row % N) * size;
        if (positions[0] == 0) memset(S, 0, (size_t)size * sizeof *S);
        for (int64_t t = 0; t < T && positions[t] >= 0; t++)
            remember(r, row / N * T + t, row % N, S);
    }
}

static void ref_head_dot(const Reference *r) {
    const MxHeadDotAttr *attr = r->attr;
    MxShape w = r->in_type[1].shape, out = r->out_type[0].shape;
    int64_t n_in = attr->transposed ? attr->width : w.dim[0], n_out = out.dim[out.rank - 1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t row = i / n_out, head = row % w.dim[1], o = i % n_out;
        r->out[0][i] = 0;
        for (int64_t k = 0; k < n_in; k++) {
            int64_t c = attr->transposed ? o : k, e = attr->first + (attr->transposed ? k : o);
            r->out[0][i] +=
                r->in[0][row * n_in + k] * r->in[1][(c * w.dim[1] + head) * w.dim[2] + e];
        }
    }
}

// clang-format off
const OpTest test_cache_codes = {
    CASES(
        {"int8", ATTR(MxCacheCodesAttr, MX_INT8, false), "x3,4,2,16", NULL, 0},
        {"int8 of all heads", ATTR(MxCacheCodesAttr, MX_INT8, true), "x3,4,3,7:normal30", NULL, 0},
        {"int4, an odd width", ATTR(MxCacheCodesAttr, MX_INT4, false), "x3,4,2,7:normal0.01", NULL, 0},
        {"int4 of all heads", ATTR(MxCacheCodesAttr, MX_INT4, true), "x3,4,2,16", NULL, 0},
        {"zeros", ATTR(MxCacheCodesAttr, MX_INT8, false), "x3,4,2,5:value0", NULL, 0},
        {"for threads", ATTR(MxCacheCodesAttr, MX_INT4, false), "x5,200,3,64", NULL, 0},
        {NULL, ATTR(MxCacheCodesAttr, MX_INT4, false), "b2,3,4,7", "u2,3,4,6", 0},
        {NULL, ATTR(MxCacheCodesAttr, MX_INT8, false), "f2,3,4,7", "u2,3,4,11", 0},
        {NULL, ATTR(MxCacheCodesAttr, MX_INT8, false), "f8,8,8,4", NULL, CASE_RANKS},
        {NULL, ATTR(MxCacheCodesAttr, MX_INT8, true), "f8,8,8,4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxCacheCodesAttr, MX_INT8, false), "f2,3,4", "rows of heads must be [B, T, K, H]"},
        {ATTR(MxCacheCodesAttr, MX_NF4, false), "f2,3,4,5", "codes of caches are int8 or int4"},
        {ATTR(MxCacheCodesAttr, MX_INT8, false), "i2,3,4,5", "input 0 must be float32 or bfloat16"}),
    .reference = ref_cache_codes,
};

const OpTest test_cache_write = {
    CASES(
        {"rows", NULL, "x3,7,2,5 x3,4,2,5 i3,4:positions100 i3:positions3", NULL, 0},
        {"some left out, slots used again", NULL, "x3,7,5 x3,9,5 i3,9:none30 i3:positions3", NULL, 0},
        {"ids", NULL, "i3,7:ids99 i3,4:ids99 i3,4:positions100 i3:positions3", NULL, 0},
        {"one position of all", NULL, "x5,3 x5,1 i5,1:value8 i5:positions5", NULL, 0},
        {"one sequence of many", NULL, "x5,6,3 x1,4,3 i1,4:positions9 i1:value3", NULL, 0},
        {"codes", NULL, "u3,7,2,5:ids256 u3,4,2,5:ids256 i3,4:positions100 i3:positions3", NULL, 0},
        {"large", NULL, "x4,300,2,64 x4,200,2,64 i4,200:positions1000 i4:positions4", NULL, 0},
        {NULL, NULL, "b2,5,4,6 b2,3,4,6 i2,3 i2:positions2", "b2,5,4,6", 0},
        {NULL, NULL, "f8,5,8,4 f8,3,8,4 i8,3:none9 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "d2,5,4 d2,3,4 i2,3 i2", "input 0 must be float32 or bfloat16"},
        {NULL, "f2,5,4 b2,3,4 i2,3 i2", "input 1 must be float32 of rank 3"},
        {NULL, "f2,5,4 f2,3,5 i2,3 i2", "rows must be those of the cache"},
        {NULL, "f2 f2 i2,3 i2", "a cache is [S, C, ..]"},
        {NULL, "f2,0,4 f2,3,4 i2,3 i2", "a cache is [S, C, ..]"},
        {NULL, "f2,5,4 f2,3,4 i2,4 i2", "positions must be [B, T], sequences [B]"},
        {NULL, "f2,5,4 f2,3,4 i2,3 i3", "positions must be [B, T], sequences [B]"},
        {NULL, "f2,5,4 f2,3,4 i2,3 f2", "input 3 must be int32 of rank 1"},
        {NULL, "f2,5,4 f2,3,4 f2,3 i2", "input 2 must be int32 of rank 2"}),
    .reference = ref_cache_write,
};

const OpTest test_cache_pooled_attention = {
    CASES(
        {"a token", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5), "x3,1,4,6 x3,8,1,6 x3,8,1,6 i3,1:value19 i3:positions3 i3:value20 f4 x3,5,1,6 i3,1,1:bits", NULL, 0},
        {"padding, groups, many rows", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 4), "x5,6,4,5 x5,12,2,5 x5,12,2,5 i5,6:none9 i5:positions5 i5:ids9 f4:normal2 x5,70,2,5 i5,6,3:bits", NULL, 0},
        {"a long piece", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 10), "x2,40,4,8 x3,60,1,8 x3,60,1,8 i2,40:from20 i2:positions3 i2:value60 f4:normal2 x3,15,1,8 i2,40,1:bits", NULL, 0},
        {"of ranks", ATTR(MxAttentionAttr, .scale = 0.5), "f8,4,8,4 f8,16,8,4 f8,16,8,4 i8,4:positions9 i8:positions8 i8:value4 f8 f8,8,8,4 i8,4,1:bits", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 f4 f2,3,2,5 i2,5,1", "rows must be a cache like that of keys"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 f4 f2,3,2,6 i2,5,2", "seen must be int32"}),
    .reference = ref_cache_attention,
};

const OpTest test_cache_attention = {
    CASES(
        {"causal", ATTR(MxAttentionAttr, .scale = 0.37), "x2,9,2,4 x2,12,2,4 x2,12,2,4 i2,9:positions100 i2:positions2 i2:value9", NULL, 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.088), "x2,1,8,128 x2,700,2,128 x2,700,2,128 i2,1:value690 i2:positions2 i2:value691", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.0625), "x2,3,8,256 x2,700,1,256 x2,700,1,256 i2,3:from1000 i2:positions2 i2:value1003 f8:normal2", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.02, .value_width = 512), "x1,1,16,576 x1,300,1,576 x1,300,1,576 i1,1:value299 i1:value0 i1:value300", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.02, .value_width = 512), "x1,5,16,576 x1,100,1,576 x1,100,1,576 i1,5:from80 i1:value0 i1:value85", NULL, CASE_NO_SLOPE},
        {"a token, groups of 4", ATTR(MxAttentionAttr, .scale = 0.37), "x3,1,4,5 x3,12,1,5 x3,12,1,5 i3,1:value6 i3:positions3 i3:value7", NULL, 0},
        {"lengths of their own, padding", ATTR(MxAttentionAttr, .scale = 0.37), "x5,6,2,5 x5,12,1,5 x5,12,1,5 i5,6:none9 i5:positions5 i5:ids9", NULL, 0},
        {"sliding, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5), "x3,4,4,3 x3,8,2,3 x3,8,2,3 i3,4:ids20 i3:positions3 i3:value20", NULL, 0},
        {"sliding, all of a window", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5), "x3,1,4,3 x3,5,2,3 x3,5,2,3 i3,1:value18 i3:positions3 i3:value19", NULL, 0},
        {"chunks, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 1.5, .mask = MX_MASK_CHUNK, .window = 5), "x2,9,2,3 x2,14,1,3 x2,14,1,3 i2,9:positions20 i2:positions2 i2:value9", NULL, 0},
        {"full", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x2,3,2,3 x2,9,2,3 x2,9,2,3 i2,3:positions9 i2:positions2 i2:value7", NULL, 0},
        {"sinks, narrow values", ATTR(MxAttentionAttr, .scale = 0.37), "x2,5,4,9 x2,13,2,9 x2,13,2,3 i2,5:none5 i2:positions2 i2:ids6 f4:normal2", NULL, 0},
        {"sinks far away, wide values", ATTR(MxAttentionAttr, .scale = 0.37), "x2,5,4,3 x2,13,2,3 x2,13,2,21 i2,5:positions9 i2:positions2 i2:value5 f4:normal20", NULL, 0},
        {"nothing there yet", ATTR(MxAttentionAttr, .scale = 0.37), "x2,2,2,3 x2,4,2,3 x2,4,2,3 i2,2:positions9 i2:positions2 i2:value0", NULL, 0},
        {"blocks", ATTR(MxAttentionAttr, .scale = 0.37), "x2,70,4,40 x2,300,2,40 x2,300,2,40 i2,70:ids300 i2:positions2 i2:value290", NULL, 0},
        {"blocks, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 150), "x2,33,4,16 x2,190,2,16 x2,190,2,16 i2,33:ids500 i2:positions2 i2:value500", NULL, 0},
        {"sequences of a larger cache", ATTR(MxAttentionAttr, .scale = 0.37), "x2,4,4,5 x5,9,2,5 x5,9,2,5 i2,4:positions9 i2:positions2 i2:value8", NULL, 0},
        {"the last sequence", ATTR(MxAttentionAttr, .scale = 0.37), "x1,4,4,5 x5,9,2,5 x5,9,2,5 i1,4:positions9 i1:value4 i1:value4", NULL, 0},
        {"values are part of the rows", ATTR(MxAttentionAttr, .scale = 0.37, .value_width = 3), "x2,5,4,9 x2,13,1,9 x2,13,1,9 i2,5:positions9 i2:positions2 i2:value9", NULL, 0},
        {"a stretch", ATTR(MxAttentionAttr, .scale = 0.37), "x2,40,4,5 x3,60,2,5 x3,60,2,5 i2,40:from20 i2:positions3 i2:value56", NULL, 0},
        {"a stretch from the beginning, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 1.5), "x1,160,3,16 x1,150,1,16 x1,150,1,7 i1,160:from0 i1:value0 i1:value144", NULL, 0},
        {"a stretch, full", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x1,20,2,8 x2,70,2,8 x2,70,2,8 i1,20:from50 i1:value1 i1:value68", NULL, 0},
        {"a stretch, sliding, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 70), "x1,100,4,16 x2,171,2,16 x2,171,2,16 i1,100:from900 i1:value1 i1:value990", NULL, 0},
        {"a stretch, chunks, odd slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_CHUNK, .window = 33), "x1,50,4,16 x1,83,2,16 x1,83,2,16 i1,50:from301 i1:value0 i1:value346", NULL, 0},
        {"a stretch, sinks, part of the rows", ATTR(MxAttentionAttr, .scale = 0.37, .value_width = 19), "x2,30,4,24 x2,90,1,24 x2,90,1,24 i2,30:from60 i2:positions2 i2:value87 f4:normal20", NULL, 0},
        {"a token, far apart", ATTR(MxAttentionAttr, .scale = 3.0), "x1,1,4,16 x1,300,2,16 x1,300,2,16 i1,1:value299 i1:positions1 i1:value300", NULL, 0},
        {"chosen, tokens", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true), "x2,5,4,9 x3,100,1,9 x3,100,1,9 i2,5:from70 i2:positions3 i2:value75 i2,5,4:bits70", NULL, 0},
        {"chosen, a stretch", ATTR(MxAttentionAttr, .scale = 0.37, .value_width = 5, .is_chosen = true), "x2,40,4,9 x3,100,1,9 x3,100,1,9 i2,40:from20 i2:positions3 i2:value56 i2,40,4:bits20", NULL, 0},
        {"images, tokens", ATTR(MxAttentionAttr, .scale = 0.37, .block_size = 4), "x2,9,4,5 x3,40,2,5 x3,40,2,5 i2,9:from20 i2:positions3 i2:value29 i2,9:segments100", NULL, 0},
        {"images, padding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 3, .block_size = 1), "x5,8,2,5 x5,12,1,5 x5,12,1,5 i5,8:none9 i5:positions5 i5:ids9 i5,8:ids2", NULL, 0},
        {"images, a stretch", ATTR(MxAttentionAttr, .scale = 0.37, .block_size = 5), "x2,40,4,5 x3,60,2,5 x3,60,2,5 i2,40:from20 i2:positions3 i2:value56 i2,40:segments7", NULL, 0},
        {"images, a stretch, sliding, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 10, .block_size = 1), "x2,100,4,16 x2,171,2,16 x2,171,2,16 i2,100:from900 i2:positions2 i2:value996 i2,100:segments30", NULL, 0},
        {"images of ranks in pieces", ATTR(MxAttentionAttr, .scale = 0.5, .block_size = 1), "f8,16,8,4 f8,24,8,4 f8,24,8,4 i8,16:from3 i8:positions8 i8:value19 i8,16:segments4", NULL, CASE_RANKS},
        {"int8", ATTR(MxAttentionAttr, .scale = 0.37, .kept = MX_INT8, .value_width = 7), "f2,9,4,5 u2,12,2,9:ids64 u2,12,2,11:ids64 i2,9:positions100 i2:positions2 i2:value9", NULL, 0},
        {"int8, bfloat16", ATTR(MxAttentionAttr, .scale = 0.37, .kept = MX_INT8, .value_width = 5), "b2,3,4,5 u2,12,2,7:ids64 u2,12,2,7:ids64 i2,3:positions100 i2:positions2 i2:value9", NULL, 0},
        {"int4, a token, sliding, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5, .kept = MX_INT4, .value_width = 3), "f3,1,4,3 u3,5,2,6:ids64 u3,5,2,6:ids64 i3,1:value18 i3:positions3 i3:value19", NULL, 0},
        {"int4, bfloat16, many keys, sinks", ATTR(MxAttentionAttr, .scale = 0.37, .kept = MX_INT4, .value_width = 64), "b2,1,6,64 u2,300,3,34:ids64 u2,300,3,34:ids64 i2,1:value290 i2:positions2 i2:value291 f6:normal2", NULL, 0},
        {"int8, a stretch, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 70, .kept = MX_INT8, .value_width = 16), "f1,100,4,16 u2,171,2,20:ids64 u2,171,2,20:ids64 i1,100:from900 i1:value1 i1:value990", NULL, 0},
        {"int4, a stretch, bfloat16", ATTR(MxAttentionAttr, .scale = 0.37, .kept = MX_INT4, .value_width = 19), "b2,40,4,16 u3,60,2,10:ids64 u3,60,2,12:ids64 i2,40:from20 i2:positions3 i2:value56", NULL, 0},
        {"int8 of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .kept = MX_INT8, .value_width = 4), "f8,4,8,4 u8,16,8,8:ids64 u8,16,8,8:ids64 i8,4:positions9 i8:positions8 i8:value4", NULL, CASE_RANKS},
        {"chunks that heads choose", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true, .chunk = 8), "x2,5,4,9 x3,100,2,9 x3,100,2,9 i2,5:from4 i2:positions3 i2:value9 i2,5,4,1:chunks8", NULL, 0},
        {"chunks that heads choose, a stretch", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true, .chunk = 8), "x2,40,4,9 x3,100,2,9 x3,100,2,9 i2,40:from0 i2:positions3 i2:value36 i2,40,4,1:chunks8", NULL, 0},
        {"chosen of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .is_chosen = true), "f8,4,8,4 f8,16,8,4 f8,16,8,4 i8,4:from3 i8:positions8 i8:value7 i8,4,1:bits3", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 1), "b2,5,4,6 b2,9,2,6 b2,9,2,7 i2,5 i2:positions2 i2", "b2,5,4,7", 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5), "f8,4,8,4 f8,16,8,4 f8,16,8,4 i8,4:positions9 i8:positions8 i8:value4", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5), "f8,4,8,4 f8,16,4,4 f8,16,4,2 i8,4:none9 i8:positions8 i8:ids9 f8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,3,6 f2,9,3,6 i2,5 i2 i2", "heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,0,2,6 f2,0,2,6 i2,5 i2 i2", "heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,5 f2,9,2,5 i2,5 i2 i2", "k must have q's width"},
        {ATTR(MxAttentionAttr, .scale = 1, .value_width = 7), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2", "v's rows must hold the values"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i3 i2", "positions must be [B, T], sequences [B]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,8,2,6 i2,5 i2 i2", "v must be k's shape but for its own width"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 b2,9,2,6 b2,9,2,6 i2,5 i2 i2", "of its dtype"},
        {ATTR(MxAttentionAttr, .scale = 1, .kept = MX_INT8, .value_width = 6), "f2,5,4,6 u2,9,2,10 u2,9,2,9 i2,5 i2 i2", "k and v must be rows of codes and a scale"},
        {ATTR(MxAttentionAttr, .scale = 1, .kept = MX_INT8, .value_width = 6), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2", "k and v [S, C, K, H] of its dtype"},
        {ATTR(MxAttentionAttr, .scale = 1), "f5,4,6 f5,2,6 f5,2,6 i2,5 i5 i2", "q must be [B, T, N, H]"},
        {ATTR(MxAttentionAttr, .scale = 1), "i2,5,4,6 i2,9,2,6 i2,9,2,6 i2,5 i2 i2", "input 0 must be float32 or bfloat16"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,4 i2 i2", "positions must be [B, T], sequences [B]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i3", "counts must be [B]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 f2,5 i2 i2", "input 3 must be int32 of rank 2"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2,1", "input 5 must be int32 of rank 1"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 f2", "sinks must be float32 [N]"},
        {ATTR(MxAttentionAttr, .scale = 1, .is_chosen = true), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 i2,5,2", "chosen must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .is_chosen = true, .chunk = 3), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 i2,5,1", "chosen must be int32 [B, T, N, chunks / 32]"},
        {ATTR(MxAttentionAttr, .scale = 1, .block_size = 2), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2 i2,4", "blocks must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .block_size = 2), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 i2", "blocks must be int32"}),
    .reference = ref_cache_attention,
};

const OpTest test_cache_conv = {
    CASES(
        {"four taps", ATTR(MxDeltaAttr, .carries = true), "x2,12,7 f4,7 i2,5:positions100 i2:positions2", NULL, 0},
        {"slots used again, many channels", ATTR(MxDeltaAttr, .carries = true), "x3,9,301 f3,301 i3,4:positions100 i3:positions3", NULL, 0},
        {"three apart", ATTR(MxDeltaAttr, .carries = true, .apart = 3), "x2,19,7 f4,7 i2,5:positions100 i2:positions2", NULL, 0},
        {"padding", ATTR(MxDeltaAttr, .carries = true), "x2,12,7 f4,7 i2,5:none12 i2:positions2", NULL, 0},
        {"a token of the last sequence", ATTR(MxDeltaAttr, .carries = true), "x4,4,33 f4,33 i1,1:value2 i1:value3", NULL, 0},
        {NULL, ATTR(MxDeltaAttr, .carries = true), "b2,9,3 f4,3 i2,5 i2", "b2,5,3", 0},
        {NULL, ATTR(MxDeltaAttr, .carries = true), "f8,8,16 f4,16 i8,4:positions99 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDeltaAttr, .carries = true), "f2,5,3 f4,2 i2,5 i2", "a cache must be [S, C, D] and w [W, D]"},
        {ATTR(MxDeltaAttr, .carries = true), "f2,0,3 f4,3 i2,5 i2", "a cache must be [S, C, D] and w [W, D]"},
        {ATTR(MxDeltaAttr, .carries = true), "f5,3 f4,3 i2,5 i2", "a cache must be [S, C, D] and w [W, D]"},
        {ATTR(MxDeltaAttr, .carries = true), "f2,5,3 b4,3 i2,5 i2", "input 1 must be float32 of rank 2"},
        {ATTR(MxDeltaAttr, .carries = true), "f2,5,3 f4,3 i2,5 i3", "positions must be [B, T], sequences [B]"},
        {ATTR(MxDeltaAttr, .carries = true), "i2,5,3 f4,3 i2,5 i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_cache_conv,
};

/* The first sequence begins with position 0, those behind it go on. */
const OpTest test_cache_delta = {
    CASES(
        {"begins, goes on", NULL, "f2,1,2,4,3 x2,9,2,4:normal0.5 x2,9,2,4:normal0.5 x2,9,2,3 f2,9,2:logp0.3 f2,9,2:square0.5 i2,9:positions100 i2:positions2", NULL, 0},
        {"a token, groups of 2", NULL, "f5,1,4,5,7 x3,1,2,5:normal0.4 x3,1,2,5:normal0.4 x3,1,4,7 f3,1,4:logp0.3 f3,1,4:square0.5 i3,1:positions3 i3:positions3", NULL, 0},
        {"chunks", NULL, "f2,1,2,18,20 x2,150,1,18:normal0.2 x2,150,1,18:normal0.2 x2,150,2,20 f2,150,2:logp0.2 f2,150,2:square0.5 i2,150:positions200 i2:positions2", NULL, 0},
        {"padding", NULL, "f4,1,2,4,3 x4,6,2,4:normal0.5 x4,6,2,4:normal0.5 x4,6,2,3 f4,6,2:logp0.3 f4,6,2:square0.5 i4,6:none3 i4:positions4", NULL, 0},
        {"nothing but padding", NULL, "f3,1,2,4,3 x1,6,2,4 x1,6,2,4 x1,6,2,3 f1,6,2:logp0.3 f1,6,2:square0.5 i1,6:value-1 i1:value2", NULL, 0},
        {NULL, NULL, "f3,1,4,4,6 b2,5,2,4 b2,5,2,4 b2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "f3,1,4,4,6 b2,5,4,6", 0},
        {NULL, NULL, "f8,1,8,4,2 f8,4,4,4:normal0.4 f8,4,4,4:normal0.4 f8,4,8,2 f8,4,8:logp0.3 f8,4,8:square0.5 i8,4:positions99 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,3 f2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "inputs 1 and 2 must have one type"},
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,4 b2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "of one dtype"},
        {NULL, "f3,1,4,4,6 f5,2,4 f5,2,4 f5,4,6 f2,5,4 f2,5,4 i2,5 i2", "must be [B, T, heads, width]"},
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,3,6 f2,5,3 f2,5,3 i2,5 i2", "a whole number of heads"},
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,2 f2,5,4 i2,5 i2", "decay and beta must be"},
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 b2,5,4 i2,5 i2", "input 5 must be float32 of rank 3"},
        {NULL, "f3,2,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "memories must be [S, 1, heads of v"},
        {NULL, "f3,1,4,6,4 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "memories must be [S, 1, heads of v"},
        {NULL, "b3,1,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "input 0 must be float32 of rank 5"},
        {NULL, "f3,1,4,4,6 f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,4 i2", "positions must be [B, T], sequences [B]"},
        {NULL, "f3,1,4,4,6 i2,5,2,4 i2,5,2,4 i2,5,4,6 f2,5,4 f2,5,4 i2,5 i2", "input 1 must be float32 or bfloat16"}),
    .reference = ref_cache_delta,
};

const OpTest test_head_dot = {
    CASES(
        {"from the latent", ATTR(MxHeadDotAttr, .first = 3, .width = 5), "x2,3,4,7 x7,4,8", NULL, 0},
        {"to the latent", ATTR(MxHeadDotAttr, .transposed = true, .width = 3), "x2,3,4,3 x7,4,8", NULL, 0},
        {"many rows", ATTR(MxHeadDotAttr, .first = 16, .width = 16), "x2,21,4,33 x33,4,32", NULL, 0},
        {"many rows, to the latent", ATTR(MxHeadDotAttr, .transposed = true, .first = 1, .width = 15), "x2,21,4,15 x33,4,32", NULL, 0},
        {"a row, wide", ATTR(MxHeadDotAttr, .first = 64, .width = 300), "x1,1,3,700 x700,3,364", NULL, 0},
        {NULL, ATTR(MxHeadDotAttr, .width = 6), "b5,4,3 b3,4,6", "b5,4,6", 0},
        {NULL, ATTR(MxHeadDotAttr, .first = 4, .width = 8), "f8,4,8,16 f16,8,12", NULL, CASE_RANKS},
        {NULL, ATTR(MxHeadDotAttr, .transposed = true, .width = 8), "f8,4,8,8 f16,8,12", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxHeadDotAttr, .width = 6), "f5,4,3 b3,4,6", "input 1 must be float32 of rank 3"},
        {ATTR(MxHeadDotAttr, .width = 6), "f5,4,3 f3,4,5", "E with all elements that take part"},
        {ATTR(MxHeadDotAttr, .first = -1, .width = 6), "f5,4,3 f3,4,6", "E with all elements that take part"},
        {ATTR(MxHeadDotAttr, .width = 6), "f5,3,3 f3,4,6", "x must have w's heads"},
        {ATTR(MxHeadDotAttr, .transposed = true, .width = 6), "f5,4,3 f3,4,6", "x must have w's heads, of its width"},
        {ATTR(MxHeadDotAttr, .width = 6), "i5,4,3 i3,4,6", "input 0 must be float32 or bfloat16"}),
    .reference = ref_head_dot,
};
// clang-format on
