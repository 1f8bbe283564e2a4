/* logits.c — compares logits of prompts: how similar the predictions of two models are. A file has
 * prompts/<i>/ids and prompts/<i>/logits, as written by mxdecode and scripts/hf_logits.py, or
 * input_ids [B, T] and logits [B, T, V], rows of one length. */
#include <mx/ckpt.h>

#include <math.h>
#include <stdio.h>

/* ---- files */

typedef struct Prompt {
    int32_t *ids;  /* [n] */
    float *logits; /* [n, vocab] */
    int64_t n, vocab;
} Prompt;

static bool stat_array(MxH5 *file, const char *path, int rank, MxShape *shape, MxError *err) {
    MxH5Array array;
    if (!mx_h5_stat(file, path, &array, err)) return false;
    *shape = array.shape;
    if (shape->rank == rank && mx_shape_count(*shape)) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                   "%s: found an array of %d dims, wanted %d, none of them 0", path, shape->rank,
                   rank);
}

/* A row of an array, or, -1, all of it. */
static MxBox part_of(MxShape shape, int64_t row) {
    MxBox box = {.rank = shape.rank};
    for (int d = 0; d < shape.rank; d++) box.count[d] = shape.dim[d];
    if (row >= 0) box.start[0] = row, box.count[0] = 1;
    return box;
}

static void *read_part(MxArena *arena, MxH5 *file, const char *path, MxDtype dtype, MxBox box,
                       MxError *err) {
    void *data = mx_arena_alloc(arena, (size_t)mx_box_count(&box) * mx_dtype_bytes(dtype));
    return mx_h5_read_box(file, path, dtype, box, data, err) ? data : NULL;
}

/* False without an error: there is no prompt i. */
static bool read_prompt(MxArena *arena, MxH5 *file, int64_t i, Prompt *out, MxError *err) {
    bool is_rows = !mx_h5_has_group(file, "prompts");
    const char *dir = mx_arena_printf(arena, "prompts/%06lld", (long long)i);
    const char *ids = is_rows ? "input_ids" : mx_path_join(arena, dir, "ids");
    const char *logits = is_rows ? "logits" : mx_path_join(arena, dir, "logits");
    int rank = is_rows ? 2 : 1; /* of ids */
    MxShape of_ids, of_logits;
    if ((!is_rows && !mx_h5_has_group(file, dir)) || !stat_array(file, ids, rank, &of_ids, err) ||
        !stat_array(file, logits, rank + 1, &of_logits, err))
        return false;
    for (int d = 0; d < rank; d++)
        if (of_ids.dim[d] != of_logits.dim[d])
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                           "%s: there are not as many as in %s", logits, ids);
    if (is_rows && i >= of_ids.dim[0]) return false;
    *out = (Prompt){.n = of_ids.dim[rank - 1], .vocab = of_logits.dim[rank]};
    int64_t row = is_rows ? i : -1;
    out->ids = read_part(arena, file, ids, MX_I32, part_of(of_ids, row), err);
    out->logits = read_part(arena, file, logits, MX_F32, part_of(of_logits, row), err);
    return out->ids && out->logits;
}

/* ---- figures */

/* KL(b || a); NaNs are as far away as can be. */
static double divergence(const float *a, const float *b, int64_t n) {
    double sum_a = mx_log_sum(a, n), sum_b = mx_log_sum(b, n), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double log_b = (double)b[i] - sum_b;
        sum += exp(log_b) * (log_b - ((double)a[i] - sum_a));
    }
    return isnan(sum) ? INFINITY : sum;
}

/* The k likeliest, ids; of equal ones the lower id first. */
static void find_top(const float *x, int64_t n, int64_t k, int64_t *top) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = kept;
        while (at > 0 && x[i] > x[top[at - 1]]) at--;
        if (at >= k) continue;
        if (kept < k) kept++;
        memmove(top + at + 1, top + at, (size_t)(kept - 1 - at) * sizeof *top);
        top[at] = i;
    }
}

/* Likeliest ids of a token in both files, k of each. */
typedef struct Top {
    int64_t k, *a, *b;
} Top;

static void add_token(const Top *top, const float *a, const float *b, int64_t vocab,
                      MxLogitsReport *r) {
    int64_t shared = 0;
    double kl = divergence(a, b, vocab);
    find_top(a, vocab, top->k, top->a);
    find_top(b, vocab, top->k, top->b);
    for (int64_t i = 0; i < top->k; i++)
        for (int64_t j = 0; j < top->k; j++) shared += top->a[i] == top->b[j];
    for (int64_t i = 0; i < vocab; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        bool is_nan = isnan(a[i]) != isnan(b[i]);
        if (is_nan || d > r->largest) r->largest = is_nan ? INFINITY : d;
    }
    r->n_tokens++;
    r->mean_kl += kl;
    if (kl > r->largest_kl) r->largest_kl = kl;
    r->same_top += top->a[0] == top->b[0];
    r->shared_top += (double)shared / (double)top->k;
}

static void add_prompt(MxArena *arena, const MxLogitsHow *how, const Prompt *a, const Prompt *b,
                       MxLogitsReport *r) {
    int64_t k = how->top_k < a->vocab ? how->top_k : a->vocab;
    const Top top = {k, mx_new_n(arena, int64_t, k), mx_new_n(arena, int64_t, k)};
    for (int64_t t = 0; t < a->n; t++)
        add_token(&top, a->logits + t * a->vocab, b->logits + t * a->vocab, a->vocab, r);
    r->n_prompts++;
}

static bool check_same(const Prompt *a, const Prompt *b, int64_t i, MxError *err) {
    if (a->n != b->n || a->vocab != b->vocab)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "prompt %lld: logits [%lld, %lld], and [%lld, %lld] in the second file",
                       (long long)i, (long long)a->n, (long long)a->vocab, (long long)b->n,
                       (long long)b->vocab);
    for (int64_t k = 0; k < a->n; k++)
        if (a->ids[k] != b->ids[k])
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "prompt %lld: token %lld is %d, and %d in the second file", (long long)i,
                           (long long)k, a->ids[k], b->ids[k]);
    return true;
}

bool mx_logits_compare(const char *a_path, const char *b_path, const MxLogitsHow *how,
                       MxLogitsReport *out, MxError *err) {
    MxArena arena = {.name = "logits"};
    MxH5 *a_file, *b_file;
    MX_ASSERT(how->top_k > 0);
    *out = (MxLogitsReport){0};
    bool goes_on =
        mx_h5_open(&arena, a_path, &a_file, err) && mx_h5_open(&arena, b_path, &b_file, err);
    while (goes_on) {
        MxArena scratch = {.name = "prompt"};
        Prompt a = {0}, b = {0};
        bool has_a = read_prompt(&scratch, a_file, out->n_prompts, &a, err);
        bool has_b = !err->count && read_prompt(&scratch, b_file, out->n_prompts, &b, err);
        if (has_a != has_b && !err->count)
            mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "only %s has a prompt %lld",
                    has_a ? a_path : b_path, (long long)out->n_prompts);
        goes_on = has_a && has_b && check_same(&a, &b, out->n_prompts, err);
        if (goes_on) add_prompt(&scratch, how, &a, &b, out);
        mx_arena_release(&scratch);
    }
    if (!err->count && !out->n_prompts)
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = a_path}, "holds no prompts");
    double n = (double)out->n_tokens;
    if (n > 0) out->mean_kl /= n, out->same_top /= n, out->shared_top /= n;
    mx_arena_release(&arena);
    return !err->count;
}
