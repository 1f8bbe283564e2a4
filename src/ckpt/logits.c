/* logits.c — logits of prompts compared: how far two models are from saying the same. A file holds
 * prompts/<i>/ids and prompts/<i>/logits, as mxdecode and scripts/hf_logits.py write them, or
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

static void *read_array(MxArena *arena, MxH5 *file, const char *path, MxDtype dtype, int rank,
                        MxShape *shape, MxError *err) {
    MxH5Array array;
    if (!mx_h5_stat(file, path, &array, err)) return NULL;
    if (array.shape.rank != rank || mx_shape_count(array.shape) == 0) {
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                "%s: found an array of %d dims, wanted %d, none of them 0", path, array.shape.rank,
                rank);
        return NULL;
    }
    *shape = array.shape;
    void *data = mx_arena_alloc(arena, (size_t)mx_shape_count(*shape) * mx_dtype_bytes(dtype) + 1);
    return mx_h5_read(file, path, dtype, *shape, data, err) ? data : NULL;
}

/* `rank` counts the dims of ids. */
static bool read_pair(MxArena *arena, MxH5 *file, const char *const path[2], int rank,
                      MxShape shape[2], Prompt *out, MxError *err) {
    out->ids = read_array(arena, file, path[0], MX_I32, rank, &shape[0], err);
    out->logits =
        out->ids ? read_array(arena, file, path[1], MX_F32, rank + 1, &shape[1], err) : NULL;
    if (!out->logits) return false;
    for (int d = 0; d < rank; d++)
        if (shape[0].dim[d] != shape[1].dim[d])
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                           "%s: there are not as many as in %s", path[1], path[0]);
    out->n = shape[0].dim[rank - 1];
    out->vocab = shape[1].dim[rank];
    return true;
}

static bool is_rows(MxH5 *file) {
    return !mx_h5_has_group(file, "prompts");
}

/* Of rows of one length all are read at once. False without an error: there is no prompt i. */
static bool read_prompt(MxArena *arena, MxH5 *file, int64_t i, Prompt *out, MxError *err) {
    MxShape shape[2];
    if (is_rows(file)) {
        if (!read_pair(arena, file, (const char *const[]){"input_ids", "logits"}, 2, shape, out,
                       err) ||
            i >= shape[0].dim[0])
            return false;
        out->ids += i * out->n;
        out->logits += i * out->n * out->vocab;
        return true;
    }
    const char *dir = mx_arena_printf(arena, "prompts/%06lld", (long long)i);
    const char *const path[] = {mx_path_join(arena, dir, "ids"),
                                mx_path_join(arena, dir, "logits")};
    return mx_h5_has_group(file, dir) && read_pair(arena, file, path, 1, shape, out, err);
}

/* ---- figures */

static double log_sum(const float *x, int64_t n) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

/* KL(b || a); NaNs are as far away as can be. */
static double divergence(const float *a, const float *b, int64_t n) {
    double sum_a = log_sum(a, n), sum_b = log_sum(b, n), sum = 0;
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

static void add_token(MxArena *arena, const MxLogitsHow *how, const float *a, const float *b,
                      int64_t vocab, MxLogitsReport *r) {
    int64_t k = how->top_k < vocab ? how->top_k : vocab, shared = 0;
    int64_t *top_a = mx_new_n(arena, int64_t, k + 1), *top_b = mx_new_n(arena, int64_t, k + 1);
    double kl = divergence(a, b, vocab);
    find_top(a, vocab, k, top_a);
    find_top(b, vocab, k, top_b);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) shared += top_a[i] == top_b[j];
    for (int64_t i = 0; i < vocab; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        bool is_nan = isnan(a[i]) != isnan(b[i]);
        if (is_nan || d > r->largest) r->largest = is_nan ? INFINITY : d;
    }
    r->n_tokens++;
    r->mean_kl += kl;
    if (kl > r->largest_kl) r->largest_kl = kl;
    r->same_top += top_a[0] == top_b[0];
    r->shared_top += (double)shared / (double)k;
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
        for (int64_t t = 0; goes_on && t < a.n; t++)
            add_token(&scratch, how, a.logits + t * a.vocab, b.logits + t * a.vocab, a.vocab, out);
        if (goes_on) out->n_prompts++;
        mx_arena_release(&scratch);
    }
    if (!err->count && !out->n_prompts)
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = a_path}, "holds no prompts");
    double n = (double)out->n_tokens;
    if (n > 0) out->mean_kl /= n, out->same_top /= n, out->shared_top /= n;
    mx_arena_release(&arena);
    return !err->count;
}
