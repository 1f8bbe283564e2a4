/* test_blackbox.c — the trainer as its user meets it: golden files through the command line, exact
 * resume after an end, a signal and a kill, what is refused, and what a finished run says. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

/* ---- golden files through the command line */

/* Files whose model is built. */
static const char *const goldens[] = {
    "models/llama2.h5",
    "models/variants/deepseek4.h5",
    "models/variants/default.h5",
    "models/qwen3.h5",
    "models/olmo3.h5",
    "models/gpt3.h5",
    "models/variants/dense_mla.h5",
    "models/variants/z_loss.h5",
    "models/variants/bf16_llama2.h5",
};

static const struct {
    const char *name;
    CloseKind first, later;
} compared[] = {
    {"loss", CLOSE_LOSS, CLOSE_LATER_LOSS},      {"lm_loss", CLOSE_LOSS, CLOSE_LATER_LOSS},
    {"total_weights", CLOSE_COUNT, CLOSE_COUNT}, {"raw_grad_norm", CLOSE_NORM, CLOSE_LATER_NORM},
    {"grad_norm", CLOSE_NORM, CLOSE_LATER_NORM}, {"param_norm", CLOSE_NORM, CLOSE_LATER_NORM},
};

static void compare_metric(MxArena *arena, MxH5 *file, const MetricsLine *lines, int n,
                           const char *golden, int metric) {
    int64_t n_want;
    const char *name = compared[metric].name;
    const char *path = mx_arena_printf(arena, "train/metrics/%s", name);
    float *want = golden_read(arena, file, path, &n_want);
    ck_assert(want != NULL);
    ck_assert_int_eq(n, n_want);
    for (int i = 0; i < n; i++) {
        double got = NAN;
        mx_json_number(mx_json_get(lines[i].json, mx_arena_printf(arena, "learning/%s", name)),
                       &got);
        Close c = {.golden = golden,
                   .kind = i ? compared[metric].later : compared[metric].first,
                   .what = mx_arena_printf(arena, "%s at step %d", name, i)};
        close_number(&c, got, (double)want[i]);
    }
}

START_TEST(golden_through_command_line) {
    MxArena arena = {0};
    MxError err = {0};
    MxH5 *file;
    char *cli;
    const char *path = goldens_need(&arena, goldens[_i]);
    ck_assert_msg(mx_h5_open(&arena, path, &file, &err), "%s", err.text.data);
    ck_assert(mx_h5_attr(&arena, file, "", "config_cli", &cli, &err));
    const char *dir = process_dir(&arena, "golden");
    const char *words = mx_arena_printf(
        &arena,
        "--config configs/base.yml %s override_model_config=true dataset_type=hdf5 "
        "hdf5_train_files=%s:train/batches enable_data_shuffling=false eval_interval=-1 "
        "enable_checkpointing=false load_parameters_path=%s:linen base_output_directory=%s "
        "run_name=x "
        "metrics_file=%s/m.jsonl",
        cli, path, path, dir, dir);
    int code = process_run(&arena, dir, words);
    ck_assert_msg(code == 0, "exit %d: %s", code, process_file(&arena, dir, "log", NULL));
    int n;
    MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", &n);
    const char *golden = mx_arena_printf(&arena, "%s:run", goldens[_i]);
    for (int m = 0; m < MX_COUNT(compared); m++) compare_metric(&arena, file, lines, n, golden, m);
    mx_arena_release(&arena);
}
END_TEST

/* ---- resuming */

static void check_same_file(MxArena *arena, const char *a, const char *b, const char *name) {
    size_t n_a, n_b;
    const char *x = process_file(arena, a, name, &n_a), *y = process_file(arena, b, name, &n_b);
    ck_assert_msg(n_a == n_b && !memcmp(x, y, n_a), "%s differs between %s and %s", name, a, b);
}

/* All metrics but times, in the same order. */
static void check_same_metrics(MxArena *arena, const char *a, const char *b) {
    int n_a, n_b;
    MetricsLine *x = process_metrics(arena, a, "step", &n_a),
                *y = process_metrics(arena, b, "step", &n_b);
    ck_assert_int_eq(n_a, n_b);
    for (int i = 0; i < n_a; i++)
        for (size_t k = 0; k < mx_json_length(x[i].json); k++) {
            const char *key;
            MxJson *value;
            ck_assert(mx_json_member(x[i].json, k, &key, &value));
            if (mx_text_has_prefix(key, "perf/") || !strcmp(key, "run_name")) continue;
            double p = NAN, q = NAN;
            ck_assert(mx_json_number(value, &p) && mx_json_number(mx_json_get(y[i].json, key), &q));
            ck_assert_msg(p == q, "%s at step %g: %.17g and %.17g", key, x[i].step, p, q);
        }
}

/* How the first half of a run ends. */
typedef enum Ending { BY_STEPS, BY_SIGTERM, BY_SIGINT, BY_SIGHUP, BY_KILL } Ending;
static const int codes[] = {
    [BY_STEPS] = 0, [BY_SIGTERM] = 143, [BY_SIGINT] = 130, [BY_SIGHUP] = 129, [BY_KILL] = 137};
static const int signals[] = {0, SIGTERM, SIGINT, SIGHUP, SIGKILL};

static const struct {
    Ending ending;
    const char *more;
} resumes[] = {
    {BY_STEPS, ""},
    {BY_SIGTERM, ""},
    {BY_SIGINT, ""},
    {BY_SIGHUP, ""},
    {BY_KILL, ""},
    {BY_STEPS, "dtype=bfloat16 mu_dtype=bfloat16"},
    {BY_STEPS, "pure_nnx=false scan_layers=false opt_type=sgd"},
    {BY_STEPS, "opt_type=lion learning_rate=0.0003"},
    {BY_STEPS,
     "enable_rampup_batch_size=true per_device_batch_size=6 per_device_batch_size_start=2 "
     "per_device_batch_size_increment=2 global_rampup_samples=100 dropout_rate=0.1"},
    {BY_STEPS, "opt_type=muon mu_dtype=bfloat16 pure_nnx=false"},
    {BY_STEPS, "opt_type=muon decoder_block=mixtral num_experts=4 num_experts_per_tok=2"},
    {BY_STEPS, "opt_type=adafactor adafactor_min_dim_size_to_factor=8 adafactor_momentum=0.9 "
               "mu_dtype=bfloat16"},
    {BY_STEPS, "optimizer_state_dtype=int8 skip_step_on_spikes=true skip_step_interval=4"},
    {BY_STEPS, "opt_type=muon optimizer_state_dtype=int8 pure_nnx=false scan_layers=false"},
    {BY_STEPS, "opt_type=schedule_free_adamw dtype=bfloat16 scan_layers=false"},
    {BY_STEPS, "opt_type=adam_pax skip_step_on_spikes=true skip_step_interval=4 "
               "skip_step_scaling_factor=0.3 trainable_parameters_mask=[mlp] scan_layers=false"},
    {BY_STEPS, "dtype=bfloat16 lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8"},
    {BY_STEPS, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 lora.use_dora=true"},
    {BY_STEPS, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 lora.use_dora=true "
               "dtype=bfloat16 pure_nnx=false scan_layers=false"},
    {BY_STEPS, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 "
               "lora.modules_to_save=token_embedder|.*norm|.*logits_dense"},
    {BY_STEPS, "decoder_block=mixtral num_experts=4 num_experts_per_tok=2 lora.enable_lora=true "
               "lora.lora_rank=4 lora.lora_alpha=8 lora.modules_to_save=.*(MoeBlock_0|embedder) "
               "dtype=bfloat16 opt_type=muon pure_nnx=false scan_layers=false"},
    {BY_STEPS, "decoder_block=mixtral num_experts=4 num_experts_per_tok=2 lora.enable_lora=true "
               "lora.lora_rank=4 lora.lora_alpha=8 lora.lora_module_path=.*MoeBlock_0"},
    {BY_STEPS, "decoder_block=mixtral num_experts=4 num_experts_per_tok=2 lora.enable_lora=true "
               "lora.lora_rank=4 lora.lora_alpha=8 lora.lora_module_path=.*MoeBlock_0 "
               "sparse_matmul=false capacity_factor=1.5 pure_nnx=false scan_layers=false"},
    {BY_STEPS, "use_grpo=true rl.num_generations=4 packing=false dataset_type=hf hf_path=json "
               "hf_train_files=posttrain/rewards_train.jsonl "
               "hf_eval_files=posttrain/rewards_eval.jsonl max_target_length=64 "
               "per_device_batch_size=2"},
    {BY_STEPS, "use_grpo=true rl.reward=length rl.reward_length=6 rl.recorded_logprobs=true "
               "rl.num_generations=4 packing=false dataset_type=hf hf_path=json "
               "hf_train_files=posttrain/sft_train.jsonl hf_eval_files=posttrain/sft_eval.jsonl "
               "max_prefill_predict_length=24 per_device_batch_size=2"},
    {BY_STEPS, "use_grpo=true rl.reward=length rl.reward_length=6 rl.num_iterations=4 "
               "rl.num_generations=4 packing=false dataset_type=hf hf_path=json "
               "hf_train_files=posttrain/sft_train.jsonl hf_eval_files=posttrain/sft_eval.jsonl "
               "max_prefill_predict_length=24 per_device_batch_size=2"}, /* stopped after 1 of 4 */
    {BY_STEPS, "use_kto=true packing=false dataset_type=hf hf_path=json "
               "hf_train_files=posttrain/labels_train.jsonl "
               "hf_eval_files=posttrain/labels_eval.jsonl max_target_length=64"},
};

static const char *const optimizers[] = {
#define MX_OPTIMIZER(name, keys) "opt_type=" #name,
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
};

/* The i-th of the rows and, behind them, of the optimizers that no row has; NULL = there is none.
 */
static const char *resumed(int i) {
    if (i < MX_COUNT(resumes)) return resumes[i].more;
    for (int k = 0, at = MX_COUNT(resumes); k < MX_COUNT(optimizers); k++) {
        bool is_there = !strcmp(optimizers[k], "opt_type=adamw"); /* what most rows have */
        for (int r = 0; r < MX_COUNT(resumes); r++)
            is_there = is_there || strstr(resumes[r].more, optimizers[k]);
        if (!is_there && at++ == i) return optimizers[k];
    }
    return NULL;
}

START_TEST(resume_is_exact) {
    MxArena arena = {0};
    Ending ending = _i < MX_COUNT(resumes) ? resumes[_i].ending : BY_STEPS;
    const char *straight = process_dir(&arena, "straight"), *broken = process_dir(&arena, "broken");
    const char *more = resumed(_i), *last = "x/checkpoints/39/state.h5";
    int code =
        process_run(&arena, straight,
                    process_tiny(&arena, straight, mx_arena_printf(&arena, "%s steps=40", more)));
    ck_assert_msg(code == 0, "%s", process_file(&arena, straight, "log", NULL));
    if (ending == BY_STEPS)
        code = process_run(/* to a step that is evaluated anyway, and saved at no other occasion */
                           &arena, broken,
                           process_tiny(
                               &arena, broken,
                               mx_arena_printf(&arena, "%s steps=21 checkpoint_period=6", more)));
    else {
        pid_t pid = process_start(
            &arena, broken,
            process_tiny(&arena, broken, mx_arena_printf(&arena, "%s steps=40", more)));
        process_wait_for(&arena, broken, "completed step: 12,");
        ck_assert(!kill(pid, signals[ending]));
        code = process_wait(pid);
    }
    ck_assert_msg(code == codes[ending], "exit %d: %s", code,
                  process_file(&arena, broken, "log", NULL));
    code = process_run(&arena, broken,
                       process_tiny(&arena, broken, mx_arena_printf(&arena, "%s steps=40", more)));
    ck_assert_msg(code == 0, "%s", process_file(&arena, broken, "log", NULL));
    check_same_file(&arena, straight, broken, last);
    check_same_metrics(&arena, straight, broken);
    mx_arena_release(&arena);
}
END_TEST

/* The loss of the last step of a run. */
static double last_loss(MxArena *arena, const char *more) {
    const char *dir = process_dir(arena, "moments");
    int n, code = process_run(arena, dir, process_tiny(arena, dir, more));
    ck_assert_msg(code == 0, "%s", process_file(arena, dir, "log", NULL));
    MetricsLine *lines = process_metrics(arena, dir, "learning/loss", &n);
    double loss = NAN;
    ck_assert(n == 40 && mx_json_number(mx_json_get(lines[n - 1].json, "learning/loss"), &loss));
    ck_assert(mx_dir_remove(dir, &(MxError){0}));
    return loss;
}

/* Moments as bytes: within half a percent of floats. */
START_TEST(bytes_learn_as_floats_do) {
    static const char *const types[] = {"adamw", "muon", "lion learning_rate=0.0003"};
    MxArena arena = {0};
    const char *words = mx_arena_printf(&arena, "steps=40 opt_type=%s", types[_i]);
    double floats = last_loss(&arena, words);
    double bytes =
        last_loss(&arena, mx_arena_printf(&arena, "%s optimizer_state_dtype=int8", words));
    ck_assert_msg(bytes != floats && fabs(bytes / floats - 1) < 0.005, "%s: %g and %g", types[_i],
                  bytes, floats);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(finished_run_says_so) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "finished");
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, "steps=3")), 0);
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, "steps=3")), 0);
    ck_assert(
        strstr(process_file(&arena, dir, "log", NULL), "nothing to do: step 3 of 3; raise steps="));
    mx_arena_release(&arena);
}
END_TEST

/* ---- what goes wrong */

START_TEST(damaged_checkpoints_are_skipped_or_refused) {
    MxArena arena = {0};
    MxError err = {0};
    const char *dir = process_dir(&arena, "damaged");
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, "steps=7")), 0);
    ck_assert(mx_file_write(mx_path_join(&arena, dir, "x/checkpoints/6/state.h5"), "x", 1, &err));
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, "steps=8")), 0);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert(strstr(log, "skipped checkpoint") &&
              strstr(log, "restoring from this run's directory step 5"));
    const char *all[] = {"0", "5", "7"};
    for (int i = 0; i < MX_COUNT(all); i++) {
        const char *file = mx_arena_printf(&arena, "%s/x/checkpoints/%s/state.h5", dir, all[i]);
        ck_assert_msg(mx_file_write(file, "x", 1, &err), "%s", err.text.data);
    }
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, "steps=9")),
                     MX_EXIT_BAD_INPUT);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(nan_loss_aborts_and_saves_nothing) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "nan");
    const char *more = "steps=30 opt_type=sgd learning_rate=1e30 gradient_clipping_threshold=0 "
                       "warmup_steps_fraction=0";
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, more)), MX_EXIT_DIFFERENT);
    ck_assert(strstr(process_file(&arena, dir, "log", NULL), "Aborting training due to"));
    int n;
    MetricsLine *lines = process_metrics(&arena, dir, "learning/lm_loss", &n);
    ck_assert_int_ge(n, 1);
    const char *bad = mx_arena_printf(&arena, "%s/x/checkpoints/%.0f", dir, lines[n - 1].step);
    ck_assert_msg(!mx_dir_exists(bad), "%s was saved", bad);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(parameters_that_do_not_fit_are_all_listed) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "misfit");
    const char *more = mx_arena_printf(
        &arena, "steps=1 enable_checkpointing=false load_parameters_path=%s/models/llama2.h5:linen",
        goldens_dir());
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, more)), MX_EXIT_BAD_INPUT);
    const char *log = process_file(&arena, dir, "log", NULL);
    static const char *const parts[] = {"token_embedder/embedding", "mlp/wi_0/kernel",
                                        "logits_dense/kernel"};
    for (int i = 0; i < MX_COUNT(parts); i++)
        ck_assert_msg(strstr(log, parts[i]) != NULL, "%s", log);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(data_ends_with_a_reason) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "ends");
    const char *more =
        mx_arena_printf(&arena,
                        "steps=100 vocab_size=96 max_target_length=24 per_device_batch_size=3 "
                        "eval_interval=-1 dataset_type=hdf5 "
                        "hdf5_train_files=%s/models/llama2.h5:train/batches",
                        goldens_dir());
    ck_assert_int_eq(process_run(&arena, dir, process_tiny(&arena, dir, more)), 0);
    ck_assert(strstr(process_file(&arena, dir, "log", NULL), "Training stopped: "));
    ck_assert(mx_dir_exists(mx_path_join(&arena, dir, "x/checkpoints/4")));
    mx_arena_release(&arena);
}
END_TEST

Suite *blackbox_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("black box");
    TCase *tcase = tcase_create("golden by command line");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, golden_through_command_line, 0, MX_COUNT(goldens));
    suite_add_tcase(suite, tcase);
    int n_resumed = 0;
    while (resumed(n_resumed)) n_resumed++;
    for (int is_long = 0; is_long < 2; is_long++) { /* one of them always */
        tcase = tcase_create(is_long ? "other resumes" : "resume");
        tcase_set_timeout(tcase, SECONDS);
        tcase_add_loop_test(tcase, resume_is_exact, is_long, is_long ? n_resumed : 1);
        if (is_long) tcase_set_long(tcase);
        suite_add_tcase(suite, tcase);
    }
    tcase = tcase_create("trainer");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, bytes_learn_as_floats_do, 0, 3);
    tcase_add_test(tcase, finished_run_says_so);
    tcase_add_test(tcase, damaged_checkpoints_are_skipped_or_refused);
    tcase_add_test(tcase, nan_loss_aborts_and_saves_nothing);
    tcase_add_test(tcase, parameters_that_do_not_fit_are_all_listed);
    tcase_add_test(tcase, data_ends_with_a_reason);
    suite_add_tcase(suite, tcase);
    return suite;
}
