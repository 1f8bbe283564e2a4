/* test_tags.c — rewards of a completion's form and answer, and how right replies are in
 * evaluations, against MaxText's own functions. */
#include "common/goldens.h"
#include "train/reward.h"
#include "train/reward_tags.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

static MxArena arena = {.name = "tags"};

static const char *text_in(const MxJson *object, const char *key, const char *other) {
    const MxJson *value = mx_json_get(object, key);
    return value ? mx_json_string(value) : other;
}

static double number_in(const MxJson *object, const char *key, double other) {
    double number;
    const MxJson *value = mx_json_get(object, key);
    return value && mx_json_number(value, &number) ? number : other;
}

/* The defaults of the keys, but what a line says otherwise. */
static RewardTags tags_of(const MxJson *s) {
    RewardTags tags = {
        .reasoning_start = text_in(s, "reasoning_start_token", "<reasoning>"),
        .reasoning_end = text_in(s, "reasoning_end_token", "</reasoning>"),
        .solution_start = text_in(s, "solution_start_token", "<answer>"),
        .solution_end = text_in(s, "solution_end_token", "</answer>"),
        .exact_format = number_in(s, "reward_exact_format_match", 3),
        .partial_format = number_in(s, "reward_partial_format_match", 0.5),
        .incorrect_format = number_in(s, "penalty_incorrect_format", -0.5),
        .exact_answer = number_in(s, "reward_exact_answer", 5),
        .white_space = number_in(s, "reward_white_space_format_match", 1.5),
        .incorrect_answer = number_in(s, "penalty_incorrect_answer", -1),
    };
    const MxJson *starts = mx_json_get(s, "reasoning_start_token_in_prompt");
    if (starts) mx_json_bool(starts, &tags.starts_in_prompt);
    return tags;
}

/* The lines of a golden file. */
static const char *open_lines(const char *name) {
    MxError err = {0};
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, goldens_need(&arena, name), 1 << 20, &bytes, &err));
    return (const char *)bytes.data;
}

/* NULL behind the last. */
static const MxJson *next_line(const char **at) {
    MxError err = {0};
    size_t n = strcspn(*at, "\n");
    if (!n) return NULL;
    const MxJson *line = mx_json_parse(&arena, *at, n, "line", &err);
    ck_assert_msg(line != NULL, "%s", err.text.data);
    *at += n + ((*at)[n] == '\n');
    return line;
}

START_TEST(rewards_are_maxtexts) {
    MxText wrong;
    const MxJson *line;
    int n_lines = 0;
    mx_text_init(&wrong, &arena);
    const char *at = open_lines("train/rewards.jsonl");
    for (; (line = next_line(&at)); n_lines++) {
        const RewardTags tags = tags_of(mx_json_get(line, "settings"));
        const MxJson *text = mx_json_get(line, "completion"), *answer = mx_json_get(line, "answer");
        double got = reward_tags(&arena, &tags, mx_json_string(text), mx_json_string_bytes(text),
                                 mx_json_string(answer), mx_json_string_bytes(answer));
        double want = number_in(line, "reward", NAN);
        if (!(fabs(got - want) < 1e-12))
            mx_text_add(&wrong, "%s: found %g\n", mx_json_dump(&arena, line, false), got);
    }
    ck_assert_int_ge(n_lines, 100);
    ck_assert_msg(!wrong.len, "%s", wrong.data);
    mx_arena_release(&arena);
}
END_TEST

static Answers judge(const MxJson *line, const char *mode) {
    const RewardTags tags = tags_of(mx_json_get(line, "settings"));
    const MxJson *replies = mx_json_get(line, "replies"), *answer = mx_json_get(line, "answer");
    const size_t n = mx_json_length(replies);
    AnswersText *texts = mx_new_n(&arena, AnswersText, (int64_t)n);
    Answers got = {0};
    for (size_t i = 0; i < n; i++) {
        const MxJson *reply = mx_json_at(replies, i);
        texts[i] = (AnswersText){mx_json_string(reply), mx_json_string_bytes(reply)};
    }
    answers_judge(&arena, &tags, mode, texts, (int64_t)n,
                  (AnswersText){mx_json_string(answer), mx_json_string_bytes(answer)}, &got);
    return got;
}

START_TEST(answers_are_judged_as_maxtexts) {
    static const char *const modes[] = {"pass", "maj", "pass_at_1"};
    MxText wrong;
    const MxJson *line;
    int n_judged = 0;
    mx_text_init(&wrong, &arena);
    for (const char *at = open_lines("train/answers.jsonl"); (line = next_line(&at));)
        for (int i = 0; i < MX_COUNT(modes); i++) {
            const MxJson *want = mx_json_get(mx_json_get(line, "judged"), modes[i]);
            if (!want) continue;
            const Answers got = judge(line, modes[i]);
            const double is[] = {got.correct, got.partial, got.form};
            n_judged++;
            for (size_t k = 0; k < MX_COUNT(is); k++) {
                double wanted = NAN;
                mx_json_number(mx_json_at(want, k), &wanted);
                if (!(fabs(is[k] - wanted) < 1e-12))
                    mx_text_add(&wrong, "%s %zu: found %g, wanted %g: %s\n", modes[i], k, is[k],
                                wanted, mx_json_dump(&arena, line, false));
            }
        }
    ck_assert_int_ge(n_judged, 200);
    ck_assert_msg(!wrong.len, "%s", wrong.data);
    mx_arena_release(&arena);
}
END_TEST

/* Of gsm8k counts what is behind its mark; a dataset of another name has none. */
START_TEST(answers_behind_marks) {
    MxConfig config = {
        .rl_reward = "exact", .dataset_name = "openai/gsm8k", .eval_dataset_name = "own"};
    const MxJson *line;
    int n_marked = 0;
    for (const char *at = open_lines("train/answers.jsonl"); (line = next_line(&at));) {
        const MxJson *text = mx_json_get(line, "text"), *marked = mx_json_get(line, "marked");
        if (!text) continue;
        MxJson *record = mx_json_object(&arena);
        mx_json_set(record, "expected_answer", text);
        Completion said = {.record = mx_json_dump(&arena, record, false),
                           .text = mx_json_string(marked),
                           .bytes = mx_json_string_bytes(marked)},
                   all = said;
        all.text = mx_json_string(text), all.bytes = mx_json_string_bytes(text);
        all.is_eval = true;
        const Completion completions[] = {said, all};
        RewardAnswer answers[2];
        MxError err = {0};
        Reward *reward = reward_open(&arena, &config);
        ck_assert(reward_give(reward, &arena, completions, 2, answers, &err));
        ck_assert_msg(answers[0].reward == 1 && answers[1].reward == 1, "%s", said.record);
        n_marked++;
    }
    ck_assert_int_ge(n_marked, 3);
    mx_arena_release(&arena);
}
END_TEST

Suite *tags_suite(void) {
    Suite *suite = suite_create("tags");
    TCase *tcase = tcase_create("tags");
    tcase_add_test(tcase, rewards_are_maxtexts);
    tcase_add_test(tcase, answers_are_judged_as_maxtexts);
    tcase_add_test(tcase, answers_behind_marks);
    suite_add_tcase(suite, tcase);
    return suite;
}
