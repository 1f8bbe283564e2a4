/* resume.c — what may change when a run goes on: frozen keys are refused with their place and both
 * values, those of the schedule are listed, the rest is nobody's business. */
#include "config_tests.h"

#include <stdlib.h>

/* Goes on with `more` (overrides) from a state of the default config with `before`. */
typedef struct Resumed {
    MxArena arena;
    MxError err;
    MxStrs changes;
    bool ok;
} Resumed;

static Resumed resume(const char *before, const char *more) {
    Resumed r = {.arena = {.name = "test"}};
    Loaded old = load_config("", before, NULL), now = load_config("", more, NULL);
    ck_assert_msg(old.ok, "%s", old.ok ? "" : old.err.text.data);
    ck_assert_msg(now.ok, "%s", now.ok ? "" : now.err.text.data);
    const char *text = mx_config_text(&r.arena, old.config);
    r.ok = mx_config_resume(&r.arena, now.config, text, "run/5", &r.changes, &r.err);
    unload(&old);
    unload(&now);
    return r;
}

static void drop(Resumed *r) {
    mx_error_release(&r->err);
    mx_arena_release(&r->arena);
}

START_TEST(an_equal_config_changes_nothing) {
    Resumed r = resume("base_emb_dim=64\nlearning_rate=1e-4\nrope_type=yarn",
                       "base_emb_dim=64\nlearning_rate=0.0001\nrope_type=yarn");
    ck_assert_msg(r.ok, "%s", r.ok ? "" : r.err.text.data);
    ck_assert_int_eq(r.changes.n, 0);
    drop(&r);
}
END_TEST

START_TEST(free_keys_are_nobodys_business) {
    Resumed r = resume("learning_rate_schedule_steps=9",
                       "learning_rate_schedule_steps=9\nsteps=7\nrun_name=other\nnum_threads=1\n"
                       "checkpoint_period=3\nremat_policy=full\npure_nnx=false\nscan_layers=false");
    ck_assert_msg(r.ok, "%s", r.ok ? "" : r.err.text.data);
    ck_assert_int_eq(r.changes.n, 0);
    drop(&r);
}
END_TEST

START_TEST(the_schedules_keys_are_listed) {
    Resumed r = resume("steps=10", "steps=20\nlearning_rate=0.5\nadamw_mask=[bias]");
    ck_assert_msg(r.ok, "%s", r.ok ? "" : r.err.text.data);
    ck_assert_int_eq(r.changes.n, 3);
    ck_assert_str_eq(r.changes.item[0], "adamw_mask: [] -> [bias]");
    ck_assert_str_eq(r.changes.item[1], "learning_rate: 0.001 -> 0.5");
    ck_assert_str_eq(r.changes.item[2], "learning_rate_schedule_steps: 10 -> 20"); /* derived */
    drop(&r);
}
END_TEST

START_TEST(frozen_keys_are_refused_all_at_once) {
    Resumed r = resume("", "base_emb_dim=64\nopt_type=sgd\nlearning_rate=0.5");
    ck_assert(!r.ok);
    ck_assert_int_eq(r.err.exit, MX_EXIT_CONFIG);
    ck_assert_int_eq(r.err.count, 2);
    static const char *const lines[] = {
        "<command line>: base_emb_dim: 64, but \"run/5\" was made with 256; it cannot resume",
        "<command line>: opt_type: \"sgd\", but \"run/5\" was made with \"adamw\"; it cannot "
        "resume",
    };
    for (int i = 0; i < MX_COUNT(lines); i++)
        ck_assert_msg(strstr(r.err.text.data, lines[i]) != NULL, "%s", r.err.text.data);
    drop(&r);
}
END_TEST

START_TEST(the_line_of_a_frozen_key_is_shown) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxStrs changes;
    Loaded now = load_config("\nbase_mlp_dim: 128\n", NULL, NULL);
    ck_assert(now.ok);
    ck_assert(!mx_config_resume(&arena, now.config, "base_mlp_dim: 96\n", "x", &changes, &err));
    ck_assert_msg(strstr(err.text.data, ":2:15: base_mlp_dim: 128, but \"x\" was made with 96"),
                  "%s", err.text.data);
    mx_error_release(&err);
    unload(&now);
    mx_arena_release(&arena);
}
END_TEST

/* A state of an older version lacks keys, one of a newer has more. */
START_TEST(keys_of_one_side_only_are_passed_over) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxStrs changes;
    Loaded now = load_config("base_emb_dim: 64", NULL, NULL);
    ck_assert(mx_config_resume(&arena, now.config, "no_such_key: 1\n", "x", &changes, &err));
    ck_assert_int_eq(changes.n, 0);
    ck_assert(!mx_config_resume(&arena, now.config, "- a\n", "x", &changes, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
    ck_assert(!mx_config_resume(&arena, now.config, "a: [", "x", &changes, &err));
    ck_assert_msg(strstr(err.text.data, "x: its config cannot be read: "), "%s", err.text.data);
    mx_error_release(&err);
    unload(&now);
    mx_arena_release(&arena);
}
END_TEST

/* One reader for all who ask: there were two, of which one kept quotes and the other cut values at
 * blanks. */
START_TEST(a_text_says_what_was_set) {
    MxArena arena = {.name = "test"};
    Loaded old =
        load_config("", "run_name='a  # b \"c\"'\nlora.lora_alpha=8\nadamw_mask=[bias, x]", NULL);
    ck_assert_msg(old.ok, "%s", old.ok ? "" : old.err.text.data);
    const char *text = mx_config_text(&arena, old.config);
    ck_assert_str_eq(mx_config_said(&arena, text, MX_KEY_run_name), "a  # b \"c\"");
    ck_assert_str_eq(mx_config_said(&arena, text, MX_KEY_lora_alpha), "8.0");
    ck_assert_str_eq(mx_config_said(&arena, text, MX_KEY_eval_split), "0");
    ck_assert_str_eq(mx_config_said(&arena, text, MX_KEY_adamw_mask), "[bias, x]");
    ck_assert_str_eq(mx_config_said(&arena, text, MX_KEY_decoder_block), "llama2");
    ck_assert_str_eq(mx_config_said(&arena, "run_name: x\n", MX_KEY_decoder_block), "");
    ck_assert_str_eq(mx_config_said(&arena, NULL, MX_KEY_run_name), "");
    ck_assert_str_eq(mx_config_said(&arena, "[", MX_KEY_run_name), "");
    unload(&old);
    mx_arena_release(&arena);
}
END_TEST

TCase *resume_cases(void) {
    TCase *tc = tcase_create("resume");
    tcase_add_test(tc, an_equal_config_changes_nothing);
    tcase_add_test(tc, free_keys_are_nobodys_business);
    tcase_add_test(tc, the_schedules_keys_are_listed);
    tcase_add_test(tc, frozen_keys_are_refused_all_at_once);
    tcase_add_test(tc, the_line_of_a_frozen_key_is_shown);
    tcase_add_test(tc, keys_of_one_side_only_are_passed_over);
    tcase_add_test(tc, a_text_says_what_was_set);
    return tc;
}
