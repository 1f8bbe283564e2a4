/* attention.c — attention. */
#include "cases.h"

#include <math.h>

static bool sees(const MxAttentionAttr *attr, int64_t t, int64_t s) {
    switch (attr->mask) {
    case MX_MASK_CAUSAL:
        return s <= t;
    case MX_MASK_SLIDING:
        return t - attr->window < s && s <= t;
    case MX_MASK_CHUNK:
        return s <= t && s / attr->window == t / attr->window;
    case MX_MASK_BLOCKS:
        return s / attr->window <= t / attr->window;
    default:
        return true;
    }
}

/* Whether both tokens, and all between, are in one block. */
static bool is_one_block(const double *blocks, int64_t size, int64_t t, int64_t s) {
    int64_t step = s < t ? 1 : -1;
    for (int64_t i = s; i != t; i += step)
        if (blocks[i] == 0 || ((int64_t)blocks[i] - 1) / size != ((int64_t)blocks[t] - 1) / size)
            return false;
    return blocks[t] != 0;
}

static bool is_bit(const double *words, int64_t s) {
    return (uint32_t)(int32_t)words[s / 32] >> s % 32 & 1u;
}

/* What was chosen of so many tokens for row b T + t, or for a head of it. */
static bool is_chosen(const Reference *r, int64_t row, int64_t n, int64_t tokens, int64_t s) {
    int64_t chunk = ((const MxAttentionAttr *)r->attr)->chunk, N = r->in_type[0].shape.dim[2];
    if (!chunk) return is_bit(r->in[4] + row * ((tokens + 31) / 32), s);
    int64_t words = ((tokens + chunk - 1) / chunk + 31) / 32;
    return is_bit(r->in[4] + (row * N + n) * words, s / chunk);
}

/* One query t of sequence b and head n. */
static void attend(const Reference *r, int64_t b, int64_t n, int64_t t) {
    const MxAttentionAttr *attr = r->attr;
    MxShape q = r->in_type[0].shape, k = r->in_type[1].shape;
    int64_t T = q.dim[1], S = k.dim[1], H = q.dim[3], head = n / (q.dim[2] / k.dim[2]);
    int64_t W = r->in_type[2].shape.dim[3], tokens = r->in_type[3].shape.dim[1];
    bool is_first = !attr->is_swapped || t < T / 2;
    int64_t own = is_first ? attr->first_query + t : attr->second_query + t - T / 2; /* its token */
    const double *query = r->in[0] + ((b * T + t) * q.dim[2] + n) * H;
    double *out = r->out[0] + ((b * T + t) * q.dim[2] + n) * W;
    bool has_sink = r->n_in > op_attention.arity && !attr->block_size && !attr->is_chosen;
    double top = -INFINITY, sum = has_sink ? exp(r->in[4][n]) : 0;
    for (int64_t h = 0; h < W; h++) out[h] = 0;
    for (int64_t row = 0; row < S; row++) {
        int64_t s = attr->first_key + row;
        bool is_seen =
            sees(attr, own, s) ||
            (attr->block_size && is_one_block(r->in[4] + b * tokens, attr->block_size, own, s));
        if (attr->is_chosen && !is_chosen(r, b * T + t, n, tokens, s)) continue;
        if (!is_seen || r->in[3][b * tokens + s] != r->in[3][b * tokens + own]) continue;
        const double *key = r->in[1] + ((b * S + row) * k.dim[2] + head) * H;
        const double *value = r->in[2] + ((b * S + row) * k.dim[2] + head) * W;
        double score = 0;
        for (int64_t h = 0; h < H; h++) score += query[h] * key[h];
        score *= attr->scale;
        if (attr->softcap > 0) score = attr->softcap * tanh(score / attr->softcap);
        top = fmax(top, score);
        double p = exp(score); /* test scores are small: no maximum is needed */
        sum += p;
        for (int64_t h = 0; h < W; h++) out[h] += p * value[h];
    }
    for (int64_t h = 0; h < W && sum > 0; h++) out[h] /= sum;
    r->out[1][(b * q.dim[2] + n) * T + t] = log(sum);
    r->out[2][(b * q.dim[2] + n) * T + t] = top;
}

static void ref_attention(const Reference *r) {
    MxShape q = r->in_type[0].shape;
    for (int64_t b = 0; b < q.dim[0]; b++)
        for (int64_t n = 0; n < q.dim[2]; n++)
            for (int64_t t = 0; t < q.dim[1]; t++) attend(r, b, n, t);
}

static void ref_join_attention(const Reference *r) {
    MxShape o = r->in_type[0].shape;
    for (int64_t i = 0; i < mx_shape_count(o); i++) {
        int64_t n = i / o.dim[3] % o.dim[2], t = i / (o.dim[3] * o.dim[2]) % o.dim[1];
        int64_t b = i / (o.dim[3] * o.dim[2] * o.dim[1]);
        int64_t row = (b * o.dim[2] + n) * o.dim[1] + t;
        double most = fmax(r->in[1][row], r->in[4][row]);
        double one = exp(r->in[1][row] - most), other = exp(r->in[4][row] - most);
        r->out[0][i] = (one * r->in[0][i] + other * r->in[3][i]) / (one + other);
        r->out[1][row] = most + log(one + other);
        r->out[2][row] = fmax(r->in[2][row], r->in[5][row]);
    }
}

// clang-format off
const OpTest test_attention = {
    CASES(
        {"causal", ATTR(MxAttentionAttr, .scale = 0.37), "x2,9,2,4 x2,9,2,4 x2,9,2,4 i2,9:segments100", NULL, 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.088), "x1,150,4,128 x1,150,2,128 x1,150,2,128 i1,150:segments90", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.1, .mask = MX_MASK_FULL), "x1,135,2,96 x1,135,2,96 x1,135,2,96 i1,135:segments900", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.072), "x1,140,2,192 x1,140,1,192 x1,140,1,128 i1,140:segments100", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.0625, .softcap = 4, .mask = MX_MASK_SLIDING, .window = 60), "x1,100,3,256 x1,100,1,256 x1,100,1,256 i1,100:segments900", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.056), "x1,70,2,320 x1,70,1,320 x1,70,1,320 i1,70:segments50", NULL, CASE_NO_SLOPE},
        {"one token", ATTR(MxAttentionAttr, .scale = 0.37), "x3,1,2,3 x3,1,1,3 x3,1,1,3 i3,1:segments1", NULL, CASE_NO_SLOPE},
        {"groups of 2, segments", ATTR(MxAttentionAttr, .scale = 0.37), "x2,13,4,5 x2,13,2,5 x2,13,2,5 i2,13:segments4", NULL, 0},
        {"groups of 4, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 3), "x1,12,4,3 x1,12,1,3 x1,12,1,3 i1,12:segments7", NULL, 0},
        {"chunks, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 1.5, .mask = MX_MASK_CHUNK, .window = 5), "x1,14,2,3 x1,14,1,3 x1,14,1,3 i1,14:segments9", NULL, 0},
        {"masked blocks", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_BLOCKS, .window = 4), "x2,14,4,3 x2,14,2,3 x2,14,2,3 i2,14:segments9", NULL, 0},
        {"full, segments", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x2,11,2,3 x2,11,2,3 x2,11,2,3 i2,11:segments4", NULL, 0},
        {"full, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 2.0, .mask = MX_MASK_FULL), "x1,10,1,4 x1,10,1,4 x1,10,1,4 i1,10:segments100", NULL, 0},
        {"blocks, causal", ATTR(MxAttentionAttr, .scale = 0.37), "x2,300,2,16 x2,300,1,16 x2,300,1,16 i2,300:segments1000", NULL, 0},
        {"blocks, segments, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 4.0), "x1,290,4,8 x1,290,2,8 x1,290,2,8 i1,290:segments77", NULL, 0},
        {"blocks, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 70), "x1,401,2,8 x1,401,2,8 x1,401,2,8 i1,401:segments1000", NULL, 0},
        {"blocks, chunks", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_CHUNK, .window = 150), "x1,401,1,8 x1,401,1,8 x1,401,1,8 i1,401:segments333", NULL, 0},
        {"blocks, wide", ATTR(MxAttentionAttr, .scale = 0.37), "x1,203,2,72 x1,203,1,72 x1,203,1,72 i1,203:segments150", NULL, 0},
        {"blocks, far apart", ATTR(MxAttentionAttr, .scale = 3.0), "x1,300,2,16 x1,300,2,16 x1,300,2,16 i1,300:segments1000", NULL, 0},
        {"spans that take turns", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x1,1100,1,16 x1,1100,1,16 x1,1100,1,16 i1,1100:segments2000", NULL, 0},
        {"blocks, groups, heads of whole tiles", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 150), "x1,269,4,64 x1,269,2,64 x1,269,2,64 i1,269:segments190", NULL, 0},
        {"blocks, masked blocks", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_BLOCKS, .window = 150), "x1,401,2,8 x1,401,2,8 x1,401,2,8 i1,401:segments333", NULL, 0},
        {"blocks, full", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x1,257,2,8 x1,257,2,8 x1,257,2,8 i1,257:segments90", NULL, 0},
        {"causal, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 5), "x2,4,4,5 x2,16,2,5 x2,16,2,5 i2,16:segments9", NULL, 0},
        {"causal, first queries", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true), "x2,4,4,5 x2,11,2,5 x2,11,2,5 i2,11:segments4", NULL, 0},
        {"sliding, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 4, .is_part = true, .first_query = 5), "x2,6,4,5 x2,18,2,5 x2,18,2,5 i2,18:segments11", NULL, 0},
        {"chunks, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_CHUNK, .window = 4, .is_part = true, .first_query = 6), "x2,5,4,5 x2,18,2,5 x2,18,2,5 i2,18:segments11", NULL, 0},
        {"masked blocks, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_BLOCKS, .window = 4, .is_part = true, .first_query = 6), "x2,5,4,5 x2,18,2,5 x2,18,2,5 i2,18:segments11", NULL, 0},
        {"full, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL, .is_part = true, .first_query = 5), "x2,6,4,5 x2,18,2,5 x2,18,2,5 i2,18:segments11", NULL, 0},
        {"blocks, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 130), "x2,150,4,5 x2,287,2,5 x2,287,2,5 i2,287:segments280", NULL, 0},
        {"blocks sliding, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 70, .is_part = true, .first_query = 210), "x2,150,4,5 x2,367,2,5 x2,367,2,5 i2,367:segments360", NULL, 0},
        {"causal, halves", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 4, .is_swapped = true, .second_query = 14), "x2,6,4,5 x2,20,2,5 x2,20,2,5 i2,20:segments9", NULL, 0},
        {"sliding, halves the other way", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 4, .is_part = true, .first_query = 15, .is_swapped = true, .second_query = 3), "x2,10,4,5 x2,20,2,5 x2,20,2,5 i2,20:segments9", NULL, 0},
        {"masked blocks, cap, halves", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 1.5, .mask = MX_MASK_BLOCKS, .window = 4, .is_part = true, .first_query = 10, .is_swapped = true, .second_query = 5), "x2,10,4,5 x2,20,2,5 x2,20,2,5 i2,20:segments9", NULL, 0},
        {"blocks, halves", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 40, .is_swapped = true, .second_query = 437), "x1,300,4,5 x1,600,2,5 x1,600,2,5 i1,600:segments280", NULL, 0},
        {"blocks, spans, halves", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .is_swapped = true, .second_query = 310), "x1,540,2,8 x1,600,1,8 x1,600,1,8 i1,600:segments400", NULL, 0},
        {"blocks, sinks, halves", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 170, .is_part = true, .first_query = 30, .is_swapped = true, .second_query = 200), "x2,140,4,8 x2,287,2,8 x2,287,2,16 i2,287:segments150 f4:normal2", NULL, 0},
        {"images, halves", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 2, .is_swapped = true, .second_query = 12, .block_size = 1), "x2,8,4,5 x2,16,2,5 x2,16,2,5 i2,16:segments9 i2,16:segments4", NULL, 0},
        {"sinks, narrow values", ATTR(MxAttentionAttr, .scale = 0.37), "x2,13,4,9 x2,13,2,9 x2,13,2,3 i2,13:segments5 f4:normal2", NULL, 0},
        {"sinks, wide values", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 3), "x3,11,4,3 x3,11,1,3 x3,11,1,21 i3,11:segments100 f4:normal2", NULL, 0},
        {"sinks far away", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x1,10,2,4 x1,10,2,4 x1,10,2,4 i1,10:segments6 f2:normal90", NULL, CASE_NO_SLOPE},
        {"blocks, sinks, narrow values", ATTR(MxAttentionAttr, .scale = 0.37), "x1,300,4,24 x1,300,2,24 x1,300,2,16 i1,300:segments170 f4:normal2", NULL, 0},
        {"blocks, sinks, wide values", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 70), "x2,201,2,40 x2,201,2,40 x2,201,2,72 i2,201:segments170 f2:normal2", NULL, 0},
        {"sinks of ranks", ATTR(MxAttentionAttr, .scale = 0.5), "f8,16,8,4 f8,16,8,4 f8,16,8,2 i8,16:segments5 f8", "f8,16,8,2 f8,8,16 f8,8,16", CASE_RANKS},
        {"images", ATTR(MxAttentionAttr, .scale = 0.37, .block_size = 1), "x2,13,4,5 x2,13,2,5 x2,13,2,5 i2,13:segments9 i2,13:ids2", NULL, 0},
        {"images, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 3, .block_size = 2), "x2,40,2,3 x2,40,1,3 x2,40,1,3 i2,40:segments100 i2,40:segments7", NULL, 0},
        {"images, blocks, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 20, .block_size = 1), "x1,401,2,8 x1,401,2,8 x1,401,2,8 i1,401:segments300 i1,401:segments90", NULL, 0},
        {"images, blocks, causal", ATTR(MxAttentionAttr, .scale = 0.37, .block_size = 1), "x2,300,2,16 x2,300,1,16 x2,300,1,16 i2,300:segments1000 i2,300:segments90", NULL, 0},
        {"images, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 5, .block_size = 1), "x2,4,4,5 x2,16,2,5 x2,16,2,5 i2,16:segments9 i2,16:segments4", NULL, 0},
        {"earlier keys", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 10, .has_key_part = true, .first_key = 5), "x2,6,4,5 x2,5,2,5 x2,5,2,3 i2,20:value1", NULL, 0},
        {"own keys, halves", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 5, .is_swapped = true, .second_query = 15, .has_key_part = true, .first_key = 5), "x2,10,4,5 x2,5,2,5 x2,5,2,5 i2,20:value1", NULL, 0},
        {"later keys, masked blocks", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 2, .mask = MX_MASK_BLOCKS, .window = 12, .is_part = true, .has_key_part = true, .first_key = 8), "x1,6,4,5 x1,4,2,5 x1,4,2,5 i1,16:value1", NULL, 0},
        {"blocks, earlier keys, sinks", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 310, .has_key_part = true, .first_key = 155), "x2,150,4,8 x2,155,2,8 x2,155,2,8 i2,465:value1 f4:normal2", NULL, 0},
        {"blocks, sliding, keys of spans", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 500, .is_part = true, .first_query = 600, .has_key_part = true, .first_key = 300), "x1,180,2,8 x1,300,1,8 x1,300,1,8 i1,900:value1", NULL, 0},
        {"images of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .block_size = 1), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16:segments9 i8,16:ids2", NULL, CASE_RANKS},
        {"chosen", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true), "x2,13,4,5 x2,13,2,5 x2,13,2,3 i2,13:segments9 i2,13,1:bits", NULL, 0},
        {"chosen, blocks", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true), "x1,300,2,16 x1,300,2,16 x1,300,2,24 i1,300:segments170 i1,300,10:bits", NULL, 0},
        {"chosen, later queries", ATTR(MxAttentionAttr, .scale = 0.37, .is_part = true, .first_query = 130, .is_chosen = true), "x2,150,4,5 x2,287,2,5 x2,287,2,5 i2,287:segments280 i2,150,9:bits130", NULL, 0},
        {"chunks that heads choose", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true, .chunk = 3), "x2,17,4,5 x2,17,2,5 x2,17,2,3 i2,17:segments9 i2,17,4,1:chunks3", NULL, 0},
        {"chunks that heads choose, blocks", ATTR(MxAttentionAttr, .scale = 0.37, .is_chosen = true, .chunk = 50), "x1,400,4,16 x1,400,2,16 x1,400,2,24 i1,400:segments270 i1,400,4,1:chunks50", NULL, 0},
        {"small chunks, blocks", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 2, .is_chosen = true, .chunk = 7), "x1,300,2,16 x1,300,1,16 x1,300,1,16 i1,300:segments1000 i1,300,2,2:chunks7", NULL, 0},
        {"chunks of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .is_chosen = true, .chunk = 3), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16:segments9 i8,16,8,1:chunks3", NULL, CASE_RANKS},
        {"chosen of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .is_chosen = true), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16:segments9 i8,16,1:bits", NULL, CASE_RANKS},
        {"halves of ranks", ATTR(MxAttentionAttr, .scale = 0.5), "x3,32,1,4 x3,32,1,4 x3,32,1,4 i3,32:segments9", NULL, CASE_RANKS | CASE_SWAPPED},
        {"sinks, halves of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_SLIDING, .window = 20), "f1,32,3,4 f1,32,1,4 f1,32,1,2 i1,32:segments100 f3", NULL, CASE_RANKS | CASE_SWAPPED},
        {"masked blocks, halves of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_BLOCKS, .window = 4), "f1,32,1,4 f1,32,1,4 f1,32,1,4 i1,32:segments20", NULL, CASE_RANKS | CASE_SWAPPED},
        {"chosen, halves of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .is_chosen = true), "f1,32,1,4 f1,32,1,4 f1,32,1,4 i1,32:segments20 i1,32,1:bits", NULL, CASE_RANKS | CASE_SWAPPED},
        {NULL, ATTR(MxAttentionAttr, .scale = 1), "b2,5,4,6 b2,5,2,6 b2,5,2,6 i2,5", "b2,5,4,6 f2,4,5 f2,4,5", 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,4,6 f2,5,4,6 i2,5", "f2,5,4,6 f2,4,5 f2,4,5", 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 1, .is_part = true, .first_query = 2), "f2,3,4,6 f2,5,2,6 f2,5,2,6 i2,5", "f2,3,4,6 f2,4,3 f2,4,3", 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16:segments5", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_SLIDING, .window = 3), "b2,16,8,4 b2,16,4,4 b2,16,4,4 i2,16:segments5", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_BLOCKS, .window = 4), "f2,16,8,4 f2,16,4,4 f2,16,4,4 i2,16:segments9", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_CHUNK, .window = 5), "f2,16,8,4 f2,16,4,4 f2,16,4,4 i2,16:segments5", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,3,6 f2,5,3,6 i2,5", "fewer heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,0,6 f2,5,0,6 i2,5", "fewer heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,4,2,6 f2,4,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f1,5,2,6 f1,5,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,8 f2,5,2,8 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,1,6 i2,5", "v must be k's shape but for its own width"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2", "sinks must be float32 [N]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 b4", "sinks must be float32 [N]"},
        {ATTR(MxAttentionAttr, .scale = 1, .block_size = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5", "blocks must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .block_size = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 i2,4", "blocks must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .is_chosen = true), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5", "chosen must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .is_chosen = true), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 i2,5,2", "chosen must be int32"},
        {ATTR(MxAttentionAttr, .scale = 1, .is_chosen = true, .chunk = 3), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 i2,5,1", "chosen must be int32 [B, T, N, chunks / 32]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 b2,5,2,6 b2,5,2,6 i2,5", "of one dtype"},
        {ATTR(MxAttentionAttr, .scale = 1), "f5,4,6 f5,2,6 f5,2,6 i2,5", "must be [B, T, heads, H]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,4", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i5", "input 3 must be int32 of rank 2"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 f2,5", "input 3 must be int32 of rank 2"},
        {ATTR(MxAttentionAttr, .scale = 1), "i2,5,4,6 i2,5,2,6 i2,5,2,6 i2,5", "input 0 must be float32 or bfloat16"},
        {ATTR(MxAttentionAttr, .is_part = true, .first_query = 2), "f2,4,4,6 f2,5,2,6 f2,5,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .is_part = true, .is_swapped = true, .second_query = 1), "f2,3,4,6 f2,5,2,6 f2,5,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .is_part = true, .is_swapped = true, .second_query = 4), "f2,4,4,6 f2,5,2,6 f2,5,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .is_part = true, .first_query = 4, .is_swapped = true), "f2,4,4,6 f2,5,2,6 f2,5,2,6 i2,5", "k and v must be q's shape"},
        {ATTR(MxAttentionAttr, .is_part = true, .first_query = 2), "f2,3,4,6 f2,5,2,6 f2,5,2,6 i2,3", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .is_part = true), "f2,3,4,6 f2,3,2,6 f2,3,2,6 i2,6", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .is_part = true, .has_key_part = true, .first_key = 2), "f2,3,4,6 f2,3,2,6 f2,3,2,6 i2,6", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .is_part = true, .has_key_part = true, .first_key = 6), "f2,3,4,6 f2,3,2,6 f2,3,2,6 i2,6", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .is_part = true, .first_query = 4, .has_key_part = true), "f2,3,4,6 f2,3,2,6 f2,3,2,6 i2,6", "k and v must be q's shape"}),
    .reference = ref_attention,
    .flows = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4,
};

const OpTest test_join_attention = {
    CASES(
        {"halves", ATTR(MxCastAttr, .dtype = MX_F32), "x2,5,3,7 f2,3,5 f2,3,5 x2,5,3,7 f2,3,5 f2,3,5", NULL, 0},
        {"far apart", ATTR(MxCastAttr, .dtype = MX_F32), "x2,5,3,40 f2,3,5:normal90 f2,3,5 x2,5,3,40 f2,3,5:normal90 f2,3,5", NULL, CASE_NO_SLOPE},
        {"wide", ATTR(MxCastAttr, .dtype = MX_BF16), "b1,9,2,1500 f1,2,9 f1,2,9 f1,9,2,1500 f1,2,9 f1,2,9", NULL, 0},
        {NULL, ATTR(MxCastAttr, .dtype = MX_BF16), "f2,5,4,6 f2,4,5 f2,4,5 b2,5,4,6 f2,4,5 f2,4,5", "b2,5,4,6 f2,4,5 f2,4,5", CASE_TYPES}),
    WRONG(
        {ATTR(MxCastAttr, .dtype = MX_F32), "f2,5,4,6 f2,4,5 f2,4,5 f2,5,4,5 f2,4,5 f2,4,5", "both results must be [B, T, N, W]"},
        {ATTR(MxCastAttr, .dtype = MX_F32), "f5,4,6 f2,4,5 f2,4,5 f5,4,6 f2,4,5 f2,4,5", "both results must be [B, T, N, W]"},
        {ATTR(MxCastAttr, .dtype = MX_F32), "f2,5,4,6 f2,4,5 f2,4,5 f2,5,4,6 f2,5,4 f2,4,5", "input 4 must be float32 [B, N, T]"},
        {ATTR(MxCastAttr, .dtype = MX_F32), "f2,5,4,6 f2,4,5 b2,4,5 f2,5,4,6 f2,4,5 f2,4,5", "input 2 must be float32 [B, N, T]"}),
    .reference = ref_join_attention,
};

const OpTest test_attention_grad = {
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,2,6 f2,4,5 f2,5,4,6", "o and do must be"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 f2,4,5 b2,5,4,6", "o and do must be"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 b2,4,5 f2,5,4,6", "log-sums must"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 f2,5,4 f2,5,4,6", "log-sums must"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,3,6 f2,5,3,6 i2,5 f2,5,4,6 f2,4,5 f2,5,4,6", "fewer heads that divide q's"}),
    .forward = &op_attention,
    .saved = 1 << 0 | 1 << 1,
    .wrt = {0, 1, 2, 4},
};
// clang-format on
