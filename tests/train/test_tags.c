/* test_tags.c — rewards of a completion's form and answer, against MaxText's own functions. */
#include "common/goldens.h"
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

START_TEST(rewards_are_maxtexts) {
    MxError err = {0};
    MxBytes bytes;
    MxText wrong;
    int n_lines = 0;
    mx_text_init(&wrong, &arena);
    mx_text_add(&wrong, "%s", "");
    const char *path = goldens_need(&arena, "train/rewards.jsonl");
    if (!path) return;
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    for (const char *at = (const char *)bytes.data; *at; n_lines++) {
        size_t n = strcspn(at, "\n");
        const MxJson *line = mx_json_parse(&arena, at, n, "line", &err);
        ck_assert_msg(line != NULL, "%s", err.text.data);
        const RewardTags tags = tags_of(mx_json_get(line, "settings"));
        const MxJson *text = mx_json_get(line, "completion"), *answer = mx_json_get(line, "answer");
        double got = reward_tags(&arena, &tags, mx_json_string(text), mx_json_string_bytes(text),
                                 mx_json_string(answer), mx_json_string_bytes(answer));
        double want = number_in(line, "reward", NAN);
        if (!(fabs(got - want) < 1e-12)) mx_text_add(&wrong, "%.*s: found %g\n", (int)n, at, got);
        at += n + (at[n] == '\n');
    }
    ck_assert_int_ge(n_lines, 100);
    ck_assert_msg(!wrong.len, "%s", wrong.data);
    mx_arena_release(&arena);
}
END_TEST

Suite *tags_suite(void) {
    Suite *suite = suite_create("tags");
    TCase *tcase = tcase_create("tags");
    tcase_add_test(tcase, rewards_are_maxtexts);
    suite_add_tcase(suite, tcase);
    return suite;
}
