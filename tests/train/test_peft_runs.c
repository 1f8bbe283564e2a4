/* test_peft_runs.c — runs that begin with a folder of peft's, from outside: what is the same, and
 * what is told or refused. */
#include "process.h"
#include "train_test.h"

#include <check.h>

static int run_tiny(MxArena *arena, const char *dir, const char *name, const char *more) {
    const char *words = mx_arena_printf(
        arena, "run_name=%s metrics_file=%s/%s.jsonl dataset_type=synthetic eval_interval=-1 %s",
        name, dir, name, more);
    return process_run(arena, dir, process_tiny(arena, dir, words));
}

static void check_log(MxArena *arena, const char *dir, const char *words) {
    const char *log = process_file(arena, dir, "log", NULL);
    ck_assert_msg(strstr(log, words) != NULL, "the log lacks \"%s\":\n%s", words, log);
}

/* A folder of peft's is a source like others. */
START_TEST(adapters_of_peft_start_a_run) {
    MxArena arena = {.name = "peft"};
    const char *dir = process_dir(&arena, "lora_peft"), *peft = "tests/golden/train/peft_qv_rslora";
    const char *more = "steps=1 vocab_size=128 head_dim=8 base_num_query_heads=4 "
                       "lora.enable_lora=true lora.lora_module_path=.*self_attention/(query|value) "
                       "lora.lora_rank=2 lora.lora_alpha=";
    const char *restore = mx_arena_printf(&arena, "lora.lora_restore_path=%s", peft);
    const char *words = mx_arena_printf(&arena, "%s7.0710678 %s", more, restore);
    ck_assert_int_eq(run_tiny(&arena, dir, "a", words), 0);
    check_log(&arena, dir, "LoRA restore complete from ");
    words = mx_arena_printf(&arena, "%s7.0710678 lora.lora_dropout=0.25 %s", more, restore);
    ck_assert_int_eq(run_tiny(&arena, dir, "c", words), 0);
    check_log(&arena, dir,
              "were trained with lora_dropout 0; this run's lora.lora_dropout is 0.25");
    words = mx_arena_printf(&arena, "%s5 %s", more, restore);
    ck_assert_int_eq(run_tiny(&arena, dir, "b", words), MX_EXIT_BAD_INPUT);
    check_log(&arena, dir,
              "adapter_config.json: its adapters count 3.53553391 (lora_alpha 5, r 2, "
              "use_rslora), those of this run lora_alpha / lora_rank = 2.5");
    check_log(&arena, dir, "hint: lora.lora_rank=2 lora.lora_alpha=7.07106781");
    mx_arena_release(&arena);
}
END_TEST

/* What peft would change below the adapters, and what it computes otherwise. */
static const struct {
    const char *member, *instead, *says;
} foreign[] = {
    {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"",
     "adapter_config.json: init_lora_weights is \"pissa_niter_4\", which changes the weights"},
    {"\"use_dora\": false", "\"use_dora\": true",
     "adapter_config.json: its adapters have magnitudes (use_dora is true), those of this run have "
     "none"},
    {"\"alora_invocation_tokens\": null", "\"alora_invocation_tokens\": [1]",
     "alora_invocation_tokens is not available here"},
    {"\"lora_dropout\": 0.0", "\"lora_dropout\": \"much\"",
     "lora_dropout is no number from 0 to 1"},
    {"\"rank_pattern\": {}", "\"rank_pattern\": {\"layers.1.*q_proj\": 4}",
     "r of \"model.layers.1.self_attn.q_proj\" is 4; its tensors have 2"},
    {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"(\": 5}",
     "\"(\" is no pattern with a number: "},
};

START_TEST(adapters_that_peft_computes_otherwise) {
    MxArena arena = {.name = "foreign"};
    MxError ignored = {0};
    MxBytes bytes;
    const char *dir = process_dir(&arena, "lora_foreign");
    const char *golden = "tests/golden/train/peft_qv_rslora";
    const char *peft = mx_path_join(&arena, dir, "peft");
    ck_assert(mx_dir_make(peft, &ignored));
    const char *from = mx_path_join(&arena, golden, "adapter_config.json");
    ck_assert(mx_file_read(&arena, from, 1 << 20, &bytes, &ignored));
    const char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    const char *at = strstr(text, foreign[_i].member);
    ck_assert_ptr_nonnull(at);
    text = mx_arena_printf(&arena, "%.*s%s%s", (int)(at - text), text, foreign[_i].instead,
                           at + strlen(foreign[_i].member));
    const char *to = mx_path_join(&arena, peft, "adapter_config.json");
    ck_assert(mx_file_write(to, text, strlen(text), &ignored));
    from = mx_path_join(&arena, golden, "adapter_model.safetensors");
    to = mx_path_join(&arena, peft, "adapter_model.safetensors");
    ck_assert(mx_file_read(&arena, from, 1 << 20, &bytes, &ignored));
    ck_assert(mx_file_write(to, bytes.data, bytes.size, &ignored));
    const char *words = mx_arena_printf(
        &arena,
        "steps=1 vocab_size=128 head_dim=8 base_num_query_heads=4 lora.enable_lora=true "
        "lora.lora_module_path=.*self_attention/(query|value) lora.lora_rank=2 "
        "lora.lora_alpha=7.0710678 lora.lora_restore_path=%s",
        peft);
    ck_assert_int_eq(run_tiny(&arena, dir, "a", words), MX_EXIT_BAD_INPUT);
    check_log(&arena, dir, foreign[_i].says);
    mx_arena_release(&arena);
}
END_TEST

Suite *peft_runs_suite(void) {
    Suite *suite = suite_create("peft runs");
    TCase *tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, adapters_of_peft_start_a_run);
    tcase_add_loop_test(tcase, adapters_that_peft_computes_otherwise, 0, MX_COUNT(foreign));
    suite_add_tcase(suite, tcase);
    return suite;
}
