/* sample.c — choosing the next token. */
#include <mx/generate.h>

#include <math.h>

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
    double value; /* its logit, then its probability relative to the likeliest */
    int32_t id;
} Candidate;

static bool precedes(Candidate a, Candidate b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

/* Moves the candidates that precede the middle one to the front, that one behind them, and returns
 * its place. */
static int64_t partition(Candidate *all, int64_t n) {
    Candidate pivot = all[n / 2];
    int64_t at = 0;
    all[n / 2] = all[n - 1];
    for (int64_t i = 0; i + 1 < n; i++) {
        Candidate here = all[i];
        all[i] = all[at];
        all[at] = here;
        at += precedes(here, pivot);
    }
    all[n - 1] = all[at];
    all[at] = pivot;
    return at;
}

/* Of the fewest candidates, largest values first, of which there are `count` or whose values sum to
 * `sum`: the last one. The rest need no order, so that this takes a few passes, where sorting a
 * vocabulary would take longer than a small model. */
static Candidate find_last(Candidate *all, int64_t n, int64_t count, double sum) {
    Candidate last = {-INFINITY, INT32_MAX};
    while (n) {
        int64_t at = partition(all, n);
        double before = 0;
        for (int64_t i = 0; i < at; i++) before += all[i].value;
        if (at < count && before < sum) {
            last = all[at];
            if (at + 1 >= count || before + last.value >= sum) break;
            count -= at + 1;
            sum -= before + last.value;
            all += at + 1;
            n -= at + 1;
        } else {
            n = at;
        }
    }
    return last;
}

/* Keeps as many of the likeliest as find_last says, in their order, and returns how many. */
static int64_t keep_likeliest(MxArena *arena, Candidate *all, int64_t n, int64_t count,
                              double sum) {
    Candidate *copy = mx_new_n(arena, Candidate, n);
    memcpy(copy, all, (size_t)n * sizeof *copy);
    Candidate last = find_last(copy, n, count, sum);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (!precedes(last, all[i])) all[kept++] = all[i];
    return kept;
}

static double add_values(const Candidate *all, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += all[i].value;
    return sum;
}

/* Candidates stay in the order of their ids: a change of rounding, which may swap likelihoods that
 * are almost equal, hardly ever changes the choice. */
static int32_t draw(const MxSampling *how, const float *logits, int64_t vocab, uint64_t stream,
                    uint64_t place) {
    MxArena arena = {.name = "candidates"};
    Candidate *all = mx_new_n(&arena, Candidate, vocab);
    uint32_t words[4];
    double most = (double)logits[find_most(logits, vocab)];
    double first = how->tempers_last ? 1 : how->temperature;
    int64_t n = vocab, kept = 0, i = 0;
    for (int64_t id = 0; id < vocab; id++) all[id] = (Candidate){(double)logits[id], (int32_t)id};
    if (how->top_k && how->top_k < n) n = keep_likeliest(&arena, all, n, how->top_k, INFINITY);
    for (int64_t k = 0; k < n; k++) {
        double p = exp((all[k].value - most) / first);
        if (p > 0) all[kept++] = (Candidate){p, all[k].id};
    }
    n = kept;
    if (how->top_p < 1) n = keep_likeliest(&arena, all, n, n, how->top_p * add_values(all, n));
    kept = 0;
    for (int64_t k = 0; k < n; k++) {
        double p = how->tempers_last ? pow(all[k].value, 1 / how->temperature) : all[k].value;
        if (all[k].value >= how->min_p) all[kept++] = (Candidate){p, all[k].id};
    }
    n = kept;
    mx_philox(how->seed, stream, place, words);
    double left = (double)mx_uniform(words[0]) * add_values(all, n);
    while (i + 1 < n && (left -= all[i].value) >= 0) i++;
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
