/* cases.c — the descriptors of all ops, made into shots: text becomes types and fills, cases of
 * forward ops become cases of their gradients. */
#include "cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MX_OP(symbol) extern const OpTest test_##symbol;
#include <mx/ops.def>
#undef MX_OP

const OpTest *const op_tests[MX_OP_COUNT] = {
#define MX_OP(symbol) &test_##symbol,
#include <mx/ops.def>
#undef MX_OP
};

static MxArena arena = {.name = "cases"}; /* as long as the process */

/* A case that makes no sense: shots are made before any test runs, so the process ends. */
_Noreturn static void broken(const char *fmt, ...) MX_PRINTF(1, 2);
_Noreturn static void broken(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("tests/cases: ", stderr);
    vfprintf(stderr, fmt, args);
    fputs("\n", stderr);
    va_end(args);
    exit(EXIT_FAILURE);
}

/* ---- text */

static const char *const fill_names[FILL_COUNT] = {
    [FILL_NORMAL] = "normal", [FILL_IDS] = "ids",           [FILL_NONE] = "none",
    [FILL_AWAY] = "away",     [FILL_VALUE] = "value",       [FILL_SQUARE] = "square",
    [FILL_LOGP] = "logp",     [FILL_HYPER] = "hyper",       [FILL_TRIG] = "trig",
    [FILL_FLAGS] = "flags",   [FILL_SEGMENTS] = "segments", [FILL_POSITIONS] = "positions",
    [FILL_FROM] = "from",     [FILL_FORWARD] = "out",       [FILL_SLOTS] = "slots",
    [FILL_BITS] = "bits",     [FILL_CHUNKS] = "chunks",
};

static MxDtype dtype_of(char letter, MxDtype under_test) {
    switch (letter) {
    case 'f':
        return MX_F32;
    case 'b':
        return MX_BF16;
    case 'i':
        return MX_I32;
    case 'u':
        return MX_U8;
    case 'c':
        return MX_I8;
    case 'd':
        return MX_F64;
    case 'x':
        return under_test;
    default:
        broken("no dtype '%c'", letter);
    }
}

/* Reads a type; returns what follows it. */
static const char *parse_type(const char *text, MxDtype under_test, MxType *type) {
    *type = (MxType){.dtype = dtype_of(*text++, under_test)};
    while (*text && *text != ' ' && *text != ':') {
        char *end;
        type->shape.dim[type->shape.rank++] = strtoll(text, &end, 10);
        if (end == text) broken("\"%s\" is no number", text);
        text = *end == ',' ? end + 1 : end;
    }
    return text;
}

int parse_types(const char *text, MxType types[SHOT_INPUTS]) {
    int n = 0;
    while (*text) {
        MX_ASSERT(n < SHOT_INPUTS);
        text = parse_type(text, MX_F32, &types[n++]);
        while (*text == ' ') text++;
    }
    return n;
}

/* Reads ":ids23", if it is there. */
static const char *parse_fill(const char *text, MxDtype dtype, Fill *fill, double *a) {
    *fill = mx_dtype_is_float(dtype) ? FILL_NORMAL : FILL_IDS;
    *a = mx_dtype_is_float(dtype) ? 1 : dtype == MX_U8 || dtype == MX_I8 ? 256 : 2;
    if (*text != ':') return text;
    text++;
    for (int i = 0; i < FILL_COUNT; i++) {
        size_t length = strlen(fill_names[i]);
        if (strncmp(text, fill_names[i], length)) continue;
        char *end;
        *fill = (Fill)i;
        *a = strtod(text + length, &end);
        return end;
    }
    broken("\"%s\" is no fill", text);
}

/* ---- shots */

typedef struct Shots {
    Shot **item;
    int n, cap;
} Shots;

static Shot *new_shot(Shots *to, const OpCase *c, const MxOp *op, MxDtype dtype) {
    if (to->n == to->cap) {
        int cap = 2 * to->cap + 64;
        to->item = mx_arena_grow(&arena, to->item, (size_t)to->n, (size_t)cap, sizeof(*to->item));
        to->cap = cap;
    }
    Shot *shot = mx_new(&arena, Shot);
    const char *what = !c->label ? c->in : c->label;
    *shot = (Shot){
        .op = op,
        .test = op_tests[mx_op_index(op)],
        .c = c,
        .dtype = dtype,
        .attr = c->attr,
        .name = mx_arena_printf(&arena, "%s (%s), %s", op->name, what, mx_dtype_name(dtype))};
    to->item[to->n++] = shot;
    return shot;
}

/* A copy of the attributes, which start with a dtype. */
static const void *with_dtype(const MxOp *op, const void *attr, MxDtype dtype) {
    MX_ASSERT(op->attr_bytes >= sizeof dtype);
    void *own = mx_arena_grow(&arena, attr, 1, 1, op->attr_bytes);
    memcpy(own, &dtype, sizeof dtype);
    return own;
}

static void infer(Shot *shot) {
    MxText message;
    mx_text_init(&message, &arena);
    MxInfer rule = {
        .in = shot->in, .n_in = shot->n_in, .attr = shot->attr, .n_out = 1, .message = &message};
    if (!shot->op->infer(&rule)) broken("%s: %s", shot->name, message.data);
    shot->n_out = rule.n_out;
    for (int i = 0; i < rule.n_out; i++) shot->out[i] = rule.out[i];
}

void shot_parse(Shot *shot) {
    for (const char *text = shot->c->in; *text;) {
        int i = shot->n_in++;
        MX_ASSERT(i < SHOT_INPUTS);
        text = parse_type(text, shot->dtype, &shot->in[i]);
        text = parse_fill(text, shot->in[i].dtype, &shot->fill[i], &shot->a[i]);
        while (*text == ' ') text++;
    }
}

static const Shot *add_own(Shots *to, const OpCase *c, const MxOp *op, MxDtype dtype) {
    Shot *shot = new_shot(to, c, op, dtype);
    shot_parse(shot);
    if (c->use & CASE_FOLLOWS) shot->attr = with_dtype(op, c->attr, dtype);
    infer(shot);
    return shot;
}

/* The gradient op where its forward op was used. */
static void add_gradient(Shots *to, const MxOp *op, const Shot *forward, const void *attr) {
    Shot *shot = new_shot(to, forward->c, op, forward->dtype);
    shot->forward = forward;
    shot->attr = attr;
    for (; shot->n_in < forward->n_in; shot->n_in++) {
        shot->in[shot->n_in] = forward->in[shot->n_in];
        shot->fill[shot->n_in] = forward->fill[shot->n_in];
        shot->a[shot->n_in] = forward->a[shot->n_in];
    }
    for (int i = 0; i < forward->n_out; i++) {
        if (!(shot->test->saved >> i & 1)) continue;
        shot->in[shot->n_in] = forward->out[i];
        shot->fill[shot->n_in] = FILL_FORWARD;
        shot->a[shot->n_in++] = i;
    }
    for (int i = 0; i < forward->n_out; i++) {
        if (forward->op->no_gradient >> i & 1) continue;
        shot->in[shot->n_in] = forward->out[i];
        shot->a[shot->n_in++] = 1;
    }
    infer(shot);
}

static void add_gradients(Shots *to, const Shot *forward) {
    for (int i = 0; i < MX_OP_COUNT; i++) {
        const MxOp *op = mx_ops[i];
        if (op_tests[i]->forward != forward->op || forward->c->use & (CASE_TYPES | CASE_DETACHED))
            continue;
        add_gradient(to, op, forward, forward->attr);
        /* a weight's gradient can be made in float32 at once */
        if (op->flags & MX_OP_CAST_FOLDS && *(const MxDtype *)forward->attr == MX_BF16)
            add_gradient(to, op, forward, with_dtype(op, forward->attr, MX_F32));
    }
}

static Shots *all_shots(void) {
    static Shots all;
    if (all.n) return &all;
    for (int i = 0; i < MX_OP_COUNT; i++)
        for (int k = 0; k < op_tests[i]->n_cases; k++) {
            const OpCase *c = &op_tests[i]->cases[k];
            bool both = strchr(c->in, 'x') || c->use & CASE_FOLLOWS;
            add_gradients(&all, add_own(&all, c, mx_ops[i], MX_F32));
            if (both) add_gradients(&all, add_own(&all, c, mx_ops[i], MX_BF16));
        }
    return &all;
}

const Shot *const *op_shots(bool (*wants)(const Shot *shot), int *n) {
    const Shots *all = all_shots();
    const Shot **some = mx_new_n(&arena, const Shot *, all->n);
    *n = 0;
    for (int i = 0; i < all->n; i++)
        if (!wants || wants(all->item[i])) some[(*n)++] = all->item[i];
    return some;
}

/* ---- contents */

uint32_t case_word(uint64_t seed, uint64_t index) {
    uint32_t words[4];
    mx_philox(seed, 77, index, words);
    return words[0];
}

void case_put(void *array, MxDtype dtype, int64_t at, double x) {
    if (dtype == MX_F32)
        ((float *)array)[at] = (float)x;
    else if (dtype == MX_BF16)
        ((MxBf16 *)array)[at] = mx_f32_to_bf16((float)x);
    else if (dtype == MX_U8)
        ((uint8_t *)array)[at] = (uint8_t)x;
    else if (dtype == MX_I8)
        ((int8_t *)array)[at] = (int8_t)x;
    else
        ((int32_t *)array)[at] = (int32_t)x;
}

double case_get(const void *array, MxDtype dtype, int64_t at) {
    if (dtype == MX_F32) return (double)((const float *)array)[at];
    if (dtype == MX_BF16) return (double)mx_bf16_to_f32(((const MxBf16 *)array)[at]);
    if (dtype == MX_U8) return ((const uint8_t *)array)[at];
    if (dtype == MX_I8) return ((const int8_t *)array)[at];
    return ((const int32_t *)array)[at];
}

double case_normal(uint64_t seed, uint64_t index) {
    uint32_t words[4];
    mx_philox(seed, 78, index, words);
    double u = (double)mx_uniform(words[0]), v = (double)mx_uniform(words[1]);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Segments and positions count along rows, dim 1 of arrays that have one. */
static double along_row(Fill fill, double a, MxShape shape, int64_t i) {
    double row = (double)shape.dim[shape.rank > 1 ? 1 : 0], t = fmod((double)i, row);
    if (fill == FILL_POSITIONS) return fmod(761.0 * (double)i, a);
    bool is_padding = row > 9 && t >= 0.9 * row; /* the last tenth of a row */
    if (fill == FILL_FROM) return is_padding ? -1 : a + t;
    return is_padding ? 0 : 1 + floor((t + 2.0 * floor((double)i / row)) / a);
}

static double element(Fill fill, double a, MxShape shape, int input, int64_t i) {
    static const double hyper[] = {0.01, 0.9, 0.1, 0.95, 0.05, 0.3, 0.1, 0.4};
    uint64_t seed = (uint64_t)input + 1, at = (uint64_t)i;
    double normal = case_normal(seed, at);
    switch (fill) {
    case FILL_IDS:
        return case_word(seed, at) % 4 ? (double)(case_word(seed + 9, at) % (uint32_t)a) : 1;
    case FILL_NONE:
        return (double)(case_word(seed, at) % ((uint32_t)a + 1)) - 1;
    case FILL_BITS: {
        int64_t words = shape.dim[2], token = (int64_t)a + i / words % shape.dim[1];
        uint32_t own = token / 32 == i % words ? 1u << token % 32 : 0;
        return (double)(int32_t)(case_word(seed, at) | own);
    }
    case FILL_CHUNKS: {
        int64_t words = shape.dim[3], chunk = i / words / shape.dim[2] % shape.dim[1] / (int64_t)a;
        uint32_t own = chunk / 32 == i % words ? 1u << chunk % 32 : 0;
        return (double)(int32_t)((case_word(seed, at) & case_word(seed + 5, at)) | own);
    }
    case FILL_SLOTS:
        return case_word(seed, at) % 5 ? (double)(i / shape.dim[2] % shape.dim[1]) : -1;
    case FILL_AWAY:
        return normal + (normal < 0 ? -a : a);
    case FILL_VALUE:
        return a;
    case FILL_SQUARE:
        return a * normal * normal;
    case FILL_LOGP:
        return -a * (0.05 + normal * normal);
    case FILL_HYPER:
        return hyper[i];
    case FILL_TRIG: {
        double angle = 6.2831853 * (double)mx_uniform(case_word(seed, at / 2));
        return i % 2 ? sin(angle) : cos(angle);
    }
    case FILL_FLAGS:
        return (double)mx_uniform(case_word(seed, at)) < a ? 0 : 1 + (double)(i % 3);
    case FILL_SEGMENTS:
    case FILL_POSITIONS:
    case FILL_FROM:
        return along_row(fill, a, shape, i);
    default:
        return a * normal;
    }
}

/* The nearest value that the dtype has, so that references and kernels see the same numbers. */
static double rounded(double x, MxDtype dtype) {
    if (dtype == MX_F32) return (double)(float)x;
    if (dtype == MX_BF16) return (double)mx_bf16_to_f32(mx_f32_to_bf16((float)x));
    return dtype == MX_I8 ? (double)(int8_t)(int32_t)x : (double)(int32_t)x;
}

void shot_inputs(const Shot *shot, MxArena *scratch, double *in[SHOT_INPUTS]) {
    double *forward[MX_MAX_OUT] = {0};
    for (int i = 0; i < shot->n_in; i++) {
        int64_t n = element_count(shot->in[i]);
        in[i] = mx_new_n(scratch, double, n + 1);
        bool is_saved = shot->fill[i] == FILL_FORWARD;
        if (is_saved && !forward[0]) shot_reference(shot->forward, scratch, in, forward);
        for (int64_t j = 0; j < n; j++) {
            double x = is_saved ? forward[(int)shot->a[i]][j]
                                : element(shot->fill[i], shot->a[i], shot->in[i].shape, i, j);
            in[i][j] = rounded(x, shot->in[i].dtype);
        }
    }
}

void shot_reference(const Shot *shot, MxArena *scratch, double *const *in, double **out) {
    for (int i = 0; i < shot->n_out; i++)
        if (!out[i]) out[i] = mx_new_n(scratch, double, element_count(shot->out[i]) + 1);
    Reference r = {shot->attr, shot->in, shot->out, in, out, shot->n_in};
    if (!shot->test->reference) broken("%s has no reference", shot->op->name);
    shot->test->reference(&r);
}
