/* test_sample.c — which tokens can be chosen, and how often. Expected sets are those of the
 * definitions, computed by hand. */
#include "generate_test.h"

#include <math.h>
#include <stdlib.h>

enum { VOCAB = 6 };

/* Probabilities 0.4, 0.3, 0.15, 0.1, 0.04, 0.01, not in this order. */
static const double p[VOCAB] = {0.1, 0.4, 0.01, 0.3, 0.04, 0.15};

static void fill(float *logits) {
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)(log(p[i]) + 3);
}

static const struct {
    MxSampling how;
    int seen;             /* a token that was there before; -1 = none */
    double wanted[VOCAB]; /* probabilities */
} draws[] = {
    {{.temperature = 1, .top_p = 1, .repetition_penalty = 1},
     -1,
     {0.1, 0.4, 0.01, 0.3, 0.04, 0.15}},
    {{.temperature = 0.5, .top_p = 1, .repetition_penalty = 1},
     -1,
     {0.034855, 0.557681, 0.000349, 0.313695, 0.005577, 0.078424}}, /* squares, divided by 0.2869 */
    {{.temperature = 1, .top_k = 2, .top_p = 1, .repetition_penalty = 1},
     -1,
     {0, 4 / 7., 0, 3 / 7.}},
    {{.temperature = 1, .top_p = 0.71, .repetition_penalty = 1},
     -1,
     {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0, 0.15 / 0.85}},
    {{.temperature = 1, .top_p = 0.39, .repetition_penalty = 1}, -1, {0, 1}},
    {{.temperature = 1, .top_p = 1, .min_p = 0.3, .repetition_penalty = 1},
     -1,
     {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0, 0.15 / 0.85}},
    {{.temperature = 1, .top_k = 3, .top_p = 0.8, .repetition_penalty = 1},
     -1,
     {0, 4 / 7., 0, 3 / 7.}}, /* of 0.85, 0.7 is more than 0.8 */
    {{.temperature = 0.5, .top_p = 0.71, .tempers_last = true, .repetition_penalty = 1},
     -1,
     {0, 0.16 / 0.2725, 0, 0.09 / 0.2725, 0, 0.0225 / 0.2725}}, /* at 0.5, two were enough */
    {{.temperature = 2, .top_k = 4, .top_p = 0.7, .tempers_last = true, .repetition_penalty = 1},
     -1,
     {0, 0.535898, 0, 0.464102}}, /* square roots; at 2, three were wanted */
    {{.top_p = 1, .repetition_penalty = 1}, -1, {0, 1}},
    {{.top_p = 1, .repetition_penalty = 2}, 1, {0, 0, 0, 1}}, /* 2.08 / 2 < 1.80 */
};

START_TEST(tokens_are_drawn_as_often_as_they_should) {
    enum { TIMES = 20000 };
    float logits[VOCAB];
    int count[VOCAB] = {0};
    int32_t seen[] = {draws[_i].seen};
    fill(logits);
    for (int i = 0; i < TIMES; i++) {
        MxTokens before = {seen, draws[_i].seen >= 0};
        MxChoice choice = mx_sample(&draws[_i].how, logits, VOCAB, &before, 0, (uint64_t)i);
        ck_assert(choice.id >= 0 && choice.id < VOCAB);
        ck_assert_double_eq_tol(choice.logprob, log(p[choice.id]), 1e-6);
        count[choice.id]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        double wanted = draws[_i].wanted[i], far = 4.5 * sqrt(wanted * (1 - wanted) / TIMES);
        ck_assert_msg(fabs(count[i] / (double)TIMES - wanted) <= far,
                      "token %d: %d of %d, wanted %g", i, count[i], TIMES, wanted);
    }
}
END_TEST

/* ---- what may be chosen, beside all candidates in order */

enum { MANY = 64 };

static const float *ordered;

static int likelier_first(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return ordered[x] != ordered[y] ? (ordered[x] > ordered[y] ? -1 : 1) : x - y;
}

static void find_allowed(const MxSampling *how, const float *logits, bool *allowed) {
    int32_t ids[MANY];
    double sum = 0, so_far = 0, most;
    int n = how->top_k && how->top_k < MANY ? (int)how->top_k : MANY;
    for (int32_t i = 0; i < MANY; i++) ids[i] = i, allowed[i] = false;
    ordered = logits;
    qsort(ids, MANY, sizeof *ids, likelier_first);
    most = (double)logits[ids[0]];
    for (int i = 0; i < n; i++) sum += exp(((double)logits[ids[i]] - most) / how->temperature);
    for (int i = 0; i < n && (!i || so_far < how->top_p * sum); i++) {
        double p_of_id = exp(((double)logits[ids[i]] - most) / how->temperature);
        so_far += p_of_id;
        allowed[ids[i]] = p_of_id >= how->min_p;
    }
}

/* Logits are eighths, so that many are equal; the least likely of 64 comes once in 300. */
START_TEST(any_cut_allows_what_an_order_of_all_would) {
    enum { TIMES = 8000 };
    uint32_t words[4];
    float logits[MANY];
    bool allowed[MANY], drawn[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        mx_philox(9, (uint64_t)_i, (uint64_t)i, words);
        logits[i] = (float)(words[0] % 12) / 8;
    }
    mx_philox(10, (uint64_t)_i, 0, words);
    const MxSampling how = {.temperature = 1 + words[0] % 3,
                            .top_k = words[1] % 2 ? words[1] % MANY : 0,
                            .top_p = words[2] % 2 ? (double)mx_uniform(words[2]) : 1,
                            .min_p = words[3] % 2 ? (double)mx_uniform(words[3]) : 0,
                            .repetition_penalty = 1};
    find_allowed(&how, logits, allowed);
    for (int i = 0; i < TIMES; i++)
        drawn[mx_sample(&how, logits, MANY, &(MxTokens){0}, 0, (uint64_t)i).id] = true;
    for (int i = 0; i < MANY; i++)
        ck_assert_msg(drawn[i] == allowed[i], "token %d, top_k %d, top_p %g, min_p %g", i,
                      (int)how.top_k, how.top_p, how.min_p);
}
END_TEST

/* Below 0 a penalty multiplies; a token that came often counts once. */
START_TEST(a_penalty_always_lowers) {
    const float logits[] = {-1, -1.5f, 2, 1.1f};
    int32_t both[] = {0, 2, 2, 2};
    const MxSampling how = {.top_p = 1, .repetition_penalty = 2};
    ck_assert_int_eq(mx_sample(&how, logits, 2, &(MxTokens){both, 1}, 0, 0).id, 1);
    ck_assert_int_eq(mx_sample(&how, logits, 4, &(MxTokens){both, 4}, 0, 0).id, 3);
    ck_assert_int_eq(mx_sample(&how, logits, 4, &(MxTokens){both, 0}, 0, 0).id, 2);
}
END_TEST

/* Logits as changed by what was seen, prompt first, of which the largest is chosen: vLLM's order,
 * by hand. */
static const struct {
    double repetition, presence, frequency;
    MxBias bias;
    float logits[3];
    int32_t seen[4];
    int n_seen, n_prompt;
    int32_t wanted;
} changes[] = {
    {1, 1, 0, {0, 0}, {2, 1.5f, 0}, {0}, 1, 0, 1},            /* 1, 1.5 */
    {1, 1, 0, {0, 0}, {2, 1.5f, 0}, {0}, 1, 1, 0},            /* of the prompt: nothing */
    {1, 0.4, 0, {0, 0}, {2, 1.5f, 0}, {0, 0, 0}, 3, 0, 0},    /* once: 1.6 */
    {1, 0, 0.4, {0, 0}, {2, 1.5f, 0}, {0, 0, 0}, 3, 0, 1},    /* for each: 0.8 */
    {1, 0, 0.2, {0, 0}, {2, 1.5f, 0}, {0, 0, 0, 0}, 4, 2, 0}, /* two of the reply: 1.6 */
    {1, 0, 0.2, {0, 0}, {2, 1.5f, 0}, {0, 0, 0, 0}, 4, 1, 1}, /* three: 1.4 */
    {1, 0.3, 0.2, {0, 0}, {2, 1.5f, 0}, {0, 2}, 2, 0, 0},     /* 1.5 and 1.5: the lower id */
    {1, 0.3, 0.21, {0, 0}, {2, 1.5f, 0}, {0, 2}, 2, 0, 1},    /* 1.49 */
    {1, -1, 0, {0, 0}, {2, 1.5f, 0}, {1}, 1, 0, 1},           /* 2.5 */
    {1, 0, 0, {2, 2.5f}, {2, 1.5f, 0}, {0}, 0, 0, 2},         /* 2.5 */
    {1, 0, 0, {0, -100}, {2, 1.5f, 0}, {0}, 0, 0, 1},         /* -98 */
    {2, 0, 0, {0, 1.4f}, {2, 1.8f, 0}, {0}, 1, 0, 1},         /* (2 + 1.4) / 2 = 1.7 */
    {2, 0.5, 0, {0, 2.4f}, {2, 1.8f, 0}, {0}, 1, 0, 1},       /* (2 + 2.4) / 2 - 0.5 = 1.7 */
    {2, 0.5, 0, {0, 2.4f}, {2, 1.8f, 0}, {0}, 1, 1, 0},       /* of the prompt: 2.2 */
};

START_TEST(what_was_seen_changes_logits) {
    int32_t seen[4];
    memcpy(seen, changes[_i].seen, sizeof seen);
    const MxSampling how = {.top_p = 1,
                            .repetition_penalty = changes[_i].repetition,
                            .presence_penalty = changes[_i].presence,
                            .frequency_penalty = changes[_i].frequency,
                            .biases = &changes[_i].bias,
                            .n_biases = changes[_i].bias.value != 0};
    const MxTokens all = {seen, changes[_i].n_seen};
    MxChoice choice = mx_sample(&how, changes[_i].logits, 3, &all, changes[_i].n_prompt, 0);
    ck_assert_int_eq(choice.id, changes[_i].wanted);
}
END_TEST

START_TEST(choices_follow_the_seed_and_the_place) {
    float logits[VOCAB];
    int32_t seen[64] = {0};
    int n_other_seed = 0, n_other_stream = 0;
    fill(logits);
    MxSampling how = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 5},
               other = how;
    other.seed = 6;
    for (int n = 0; n < 64; n++) {
        MxTokens before = {seen, n};
        int32_t id = mx_sample(&how, logits, VOCAB, &before, 0, 3).id;
        ck_assert_int_eq(id, mx_sample(&how, logits, VOCAB, &before, 0, 3).id);
        n_other_seed += id != mx_sample(&other, logits, VOCAB, &before, 0, 3).id;
        n_other_stream += id != mx_sample(&how, logits, VOCAB, &before, 0, 4).id;
    }
    ck_assert_int_gt(n_other_seed, 20);
    ck_assert_int_gt(n_other_stream, 20);
}
END_TEST

static const struct {
    MxSampling how;
    const char *message;
} wrong[] = {
    {{.temperature = -1, .top_p = 1, .repetition_penalty = 1}, "temperature: found -1"},
    {{.top_p = 0, .repetition_penalty = 1}, "top-p: found 0, wanted a number above 0, up to 1"},
    {{.top_p = 1.5, .repetition_penalty = 1}, "top-p: found 1.5"},
    {{.top_p = 1, .min_p = 2, .repetition_penalty = 1}, "min-p: found 2"},
    {{.top_p = 1, .top_k = -1, .repetition_penalty = 1}, "top-k: found -1"},
    {{.top_p = 1, .repetition_penalty = 1, .presence_penalty = 2.5},
     "presence-penalty: found 2.5, wanted a number from -2 to 2"},
    {{.top_p = 1, .repetition_penalty = 1, .frequency_penalty = -3}, "frequency-penalty: found -3"},
    {{.top_p = 1}, "repetition-penalty: found 0, wanted a number above 0"},
};

START_TEST(numbers_out_of_range_are_refused) {
    MxError err = {0};
    ck_assert(!mx_sampling_check(&wrong[_i].how, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    ck_assert_msg(strstr(err.text.data, wrong[_i].message), "%s", err.text.data);
    mx_error_release(&err);
}
END_TEST

START_TEST(the_likeliest_come_in_order) {
    const float logits[] = {1, 3, -2, 3, 0, 4, -9, 1};
    static const int32_t order[] = {5, 1, 3, 0, 7, 4, 2, 6};
    MxChoice top[MX_COUNT(order)];
    double sum = 0;
    for (int i = 0; i < MX_COUNT(logits); i++) sum += exp((double)logits[i]);
    for (int n = 0; n <= MX_COUNT(order); n++) {
        mx_likeliest(logits, MX_COUNT(logits), n, top);
        for (int i = 0; i < n; i++) {
            ck_assert_int_eq(top[i].id, order[i]);
            ck_assert_double_eq_tol(top[i].logprob, (double)logits[order[i]] - log(sum), 1e-6);
        }
    }
}
END_TEST

Suite *sample_suite(void) {
    Suite *suite = suite_create("sample");
    TCase *tcase = tcase_create("sample");
    tcase_add_loop_test(tcase, tokens_are_drawn_as_often_as_they_should, 0, MX_COUNT(draws));
    tcase_add_loop_test(tcase, any_cut_allows_what_an_order_of_all_would, 0, 24);
    tcase_add_test(tcase, a_penalty_always_lowers);
    tcase_add_loop_test(tcase, what_was_seen_changes_logits, 0, MX_COUNT(changes));
    tcase_add_test(tcase, choices_follow_the_seed_and_the_place);
    tcase_add_loop_test(tcase, numbers_out_of_range_are_refused, 0, MX_COUNT(wrong));
    tcase_add_test(tcase, the_likeliest_come_in_order);
    suite_add_tcase(suite, tcase);
    return suite;
}
