/* sample.c — choosing the next token. */
#include <mx/generate.h>

#include <math.h>
#include <stdlib.h>

bool mx_sampling_check(const MxSampling *how, MxError *err) {
    const struct {
        bool is_good;
        const char *name, *wanted;
        double found;
    } checks[] = {
        {isfinite(how->temperature) && how->temperature >= 0, "temperature", "0 or more",
         how->temperature},
        {how->top_k >= 0, "top-k", "0 or more", (double)how->top_k},
        {how->top_p > 0 && how->top_p <= 1, "top-p", "a number above 0, up to 1", how->top_p},
        {how->min_p >= 0 && how->min_p <= 1, "min-p", "a number from 0 to 1", how->min_p},
        {isfinite(how->repetition_penalty) && how->repetition_penalty > 0, "repetition-penalty",
         "a number above 0", how->repetition_penalty},
        {fabs(how->presence_penalty) <= 2, "presence-penalty", "a number from -2 to 2",
         how->presence_penalty},
        {fabs(how->frequency_penalty) <= 2, "frequency-penalty", "a number from -2 to 2",
         how->frequency_penalty},
    };
    for (int i = 0; i < MX_COUNT(checks); i++)
        if (!checks[i].is_good)
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s: found %.15g, wanted %s", checks[i].name,
                    checks[i].found, checks[i].wanted);
    return !err->count;
}

static int64_t find_most(const float *x, int64_t n) {
    int64_t most = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[most]) most = i;
    return most;
}

/* ---- logits as the settings change them */

static void add_biases(float *logits, const MxSampling *how) {
    for (int64_t i = 0; i < how->n_biases; i++) logits[how->biases[i].id] += how->biases[i].value;
}

/* Each token once, however often it was seen. */
static void penalize_repetition(float *logits, const int32_t *counts, int64_t vocab,
                                double penalty) {
    for (int64_t id = 0; penalty != 1 && id < vocab; id++)
        if (counts[id])
            logits[id] = (float)(logits[id] < 0 ? (double)logits[id] * penalty
                                                : (double)logits[id] / penalty);
}

static void penalize_made(float *logits, const int32_t *counts, int64_t vocab,
                          const MxSampling *how) {
    for (int64_t id = 0; id < vocab; id++)
        if (counts[id])
            logits[id] = (float)((double)logits[id] - counts[id] * how->frequency_penalty -
                                 how->presence_penalty);
}

static void add_counts(int32_t *counts, const MxTokens *seen, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) counts[seen->ids[i]]++;
}

/* A copy, or the logits themselves if nothing changes them. */
static const float *changed(MxArena *arena, const MxSampling *how, const float *logits,
                            int64_t vocab, const MxTokens *seen, int64_t n_prompt) {
    bool penalizes = how->presence_penalty != 0 || how->frequency_penalty != 0;
    if (!penalizes && !how->n_biases && how->repetition_penalty == 1) return logits;
    float *copy = mx_new_n(arena, float, vocab);
    int32_t *counts = mx_new_n(arena, int32_t, vocab), *made = mx_new_n(arena, int32_t, vocab);
    memcpy(copy, logits, (size_t)vocab * sizeof *copy);
    add_counts(counts, seen, 0, seen->n);
    add_counts(made, seen, n_prompt, seen->n);
    add_biases(copy, how);
    penalize_repetition(copy, counts, vocab, how->repetition_penalty);
    if (penalizes) penalize_made(copy, made, vocab, how);
    return copy;
}

/* ---- */

typedef struct Candidate {
    double p; /* relative to the likeliest */
    int32_t id;
} Candidate;

static int likelier_first(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* How many of the candidates, which are sorted, may be chosen. */
static int64_t cut(const MxSampling *how, const Candidate *all, int64_t n) {
    double sum = 0, so_far = 0;
    int64_t kept = 0;
    if (how->top_k && how->top_k < n) n = how->top_k;
    for (int64_t i = 0; i < n; i++) sum += all[i].p;
    for (; kept < n && (kept == 0 || so_far < how->top_p * sum); kept++) so_far += all[kept].p;
    while (kept > 1 && all[kept - 1].p < how->min_p) kept--;
    return kept;
}

static int32_t draw(const MxSampling *how, const float *logits, int64_t vocab, uint64_t stream,
                    uint64_t place) {
    MxArena arena = {.name = "candidates"};
    Candidate *all = mx_new_n(&arena, Candidate, vocab);
    uint32_t words[4];
    double most = (double)logits[find_most(logits, vocab)], sum = 0;
    double first = how->tempers_last ? 1 : how->temperature;
    int64_t n = 0, i = 0;
    for (int64_t id = 0; id < vocab; id++) {
        double p = exp(((double)logits[id] - most) / first);
        if (p > 0) all[n++] = (Candidate){p, (int32_t)id};
    }
    qsort(all, (size_t)n, sizeof *all, likelier_first);
    n = cut(how, all, n);
    for (int64_t k = 0; k < n && how->tempers_last; k++)
        all[k].p = pow(all[k].p, 1 / how->temperature);
    for (int64_t k = 0; k < n; k++) sum += all[k].p;
    mx_philox(how->seed, stream, place, words);
    double left = (double)mx_uniform(words[0]) * sum;
    while (i + 1 < n && (left -= all[i].p) >= 0) i++;
    int32_t id = all[i].id;
    mx_arena_release(&arena);
    return id;
}

/* Of a token, as the model has it, or at the temperature. */
static double logprob_of(const MxSampling *how, const float *logits, int64_t vocab, int32_t id) {
    double one = how->tempers && how->temperature > 0 ? how->temperature : 1;
    if (one == 1) return (double)logits[id] - mx_log_sum(logits, vocab);
    MxArena arena = {.name = "logits"};
    float *cooled = mx_new_n(&arena, float, vocab);
    for (int64_t i = 0; i < vocab; i++) cooled[i] = (float)((double)logits[i] / one);
    double logprob = (double)cooled[id] - mx_log_sum(cooled, vocab);
    mx_arena_release(&arena);
    return logprob;
}

void mx_likeliest(const float *logits, int64_t vocab, int64_t n, MxChoice *out) {
    int64_t found = 0;
    MX_ASSERT(n <= vocab);
    for (int64_t id = 0; n && id < vocab; id++) {
        if (found == n && logits[id] <= logits[out[n - 1].id]) continue;
        int64_t at = found < n ? found++ : n - 1;
        for (; at && logits[id] > logits[out[at - 1].id]; at--) out[at] = out[at - 1];
        out[at].id = (int32_t)id;
    }
    double sum = n ? mx_log_sum(logits, vocab) : 0;
    for (int64_t i = 0; i < n; i++) out[i].logprob = (double)logits[out[i].id] - sum;
}

MxChoice mx_sample(const MxSampling *how, const float *logits, int64_t vocab, const MxTokens *seen,
                   int64_t n_prompt, uint64_t stream) {
    MxArena arena = {.name = "logits"};
    const float *own = changed(&arena, how, logits, vocab, seen, n_prompt);
    int32_t id = how->temperature > 0 ? draw(how, own, vocab, stream, (uint64_t)seen->n)
                                      : (int32_t)find_most(own, vocab);
    MxChoice choice = {.id = id, .logprob = logprob_of(how, logits, vocab, id)};
    mx_arena_release(&arena);
    return choice;
}
