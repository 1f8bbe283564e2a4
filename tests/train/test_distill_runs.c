/* test_distill_runs.c — distillation in runs from start to end: students resume, know their
 * teacher, take its weights, and learn from its logits that were made before. */
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

static MxArena arena = {.name = "distill runs"};

#define TEACH(key) "teacher_overrides." key " "

static const char teach[] =
    TEACH("base_emb_dim=32") TEACH("base_num_decoder_layers=2") TEACH("base_num_query_heads=2")
        TEACH("base_num_kv_heads=2") TEACH("head_dim=16") TEACH("base_mlp_dim=64");

static int run(const char *dir, const char *name, const char *more) {
    const char *words = mx_arena_printf(&arena, "run_name=%s metrics_file= %s", name, more);
    return process_run(&arena, dir, process_tiny(&arena, dir, words));
}

static const char *log_of(const char *dir) {
    size_t size;
    return process_file(&arena, dir, "log", &size);
}

static void check_run(const char *dir, const char *name, const char *more, int code) {
    int got = run(dir, name, more);
    ck_assert_msg(got == code, "exit %d: %s", got, log_of(dir));
}

/* A teacher, trained by itself; words that name it. */
static const char *train_teacher(const char *dir) {
    check_run(dir, "teacher", "steps=4 checkpoint_period=4", 0);
    return mx_arena_printf(&arena, "%steacher_overrides.load_parameters_path=%s/teacher", teach,
                           dir);
}

static const char *state_of(const char *dir, const char *name, size_t *size) {
    return process_file(&arena, dir, mx_arena_printf(&arena, "%s/checkpoints/5/state.h5", name),
                        size);
}

static const char *const students[] = {
    "base_num_decoder_layers=1 distill_temperature=2 distill_temperature_end=1 "
    "distill_temperature_schedule=cosine",
    "distill_beta=0.5 distill_beta_end=0.1 distill_beta_schedule=linear "
    "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4",
    "dtype=bfloat16 base_emb_dim=16 opt_type=muon",
    "student_params_to_update=['mlp','^decoder/logits']",
};

/* A run that stops and goes on makes the bits of one that does not. */
START_TEST(students_resume_exactly) {
    const char *dir = process_dir(&arena, "distill"), *teacher = train_teacher(dir);
    const char *more = mx_arena_printf(&arena,
                                       "%s %s steps=6 learning_rate_schedule_steps=6 "
                                       "checkpoint_period=3 ",
                                       teacher, students[_i]);
    size_t size[2];
    check_run(dir, "whole", more, 0);
    const char *whole = state_of(dir, "whole", &size[0]);
    check_run(dir, "parts", mx_arena_printf(&arena, "%s steps=3", more), 0);
    check_run(dir, "parts", more, 0);
    const char *parts = state_of(dir, "parts", &size[1]);
    ck_assert(size[0] == size[1] && !memcmp(whole, parts, size[0]));
    mx_arena_release(&arena);
}
END_TEST

/* The dumped config describes the same teacher without the command line, and another teacher is
 * refused. */
START_TEST(a_run_knows_its_teacher) {
    const char *dir = process_dir(&arena, "distill"), *teacher = train_teacher(dir);
    check_run(dir, "x", mx_arena_printf(&arena, "%s base_mlp_dim=32 steps=2", teacher), 0);
    const char *again = mx_arena_printf(&arena, "--config %s/x/config.yml steps=3", dir);
    ck_assert_msg(!process_run(&arena, dir, again), "%s", log_of(dir));
    check_run(dir, "other", "steps=2 init_weights_seed=5", 0);
    const char *other = mx_arena_printf(
        &arena, "--config %s/x/config.yml steps=4 teacher_overrides.load_parameters_path=%s/other",
        dir, dir);
    ck_assert_int_eq(process_run(&arena, dir, other), MX_EXIT_BAD_INPUT);
    ck_assert_msg(strstr(log_of(dir), "its student learned from another teacher") != NULL, "%s",
                  log_of(dir));
    mx_arena_release(&arena);
}
END_TEST

/* A student `name` of a teacher without stacks, whose config has a line more. */
static int run_ranks_with(int n_ranks, const char *dir, const char *name, const char *line,
                          const char *more) {
    MxError err = {0};
    const char *text =
        mx_arena_printf(&arena, "base_config: ../../../configs/base.yml\n%s\n", line);
    ck_assert(mx_file_write(mx_path_join(&arena, dir, "line.yml"), text, strlen(text), &err));
    const char *tiny = strchr(process_tiny(&arena, dir, ""), ' ') + strlen(" configs/base.yml");
    const char *words =
        mx_arena_printf(&arena,
                        "--config %s/line.yml %s run_name=%s metrics_file= scan_layers=false "
                        "%s" TEACH("scan_layers=false")
                            TEACH("load_parameters_path=%s/teacher") "checkpoint_period=1 %s",
                        dir, tiny, name, teach, dir, more);
    return n_ranks == 1 ? process_run(&arena, dir, words)
                        : process_run_ranks(&arena, dir, n_ranks, words);
}

static int run_with(const char *dir, const char *name, const char *line, const char *more) {
    return run_ranks_with(1, dir, name, line, more);
}

/* A student of one layer with a map of weights to take, learning nothing. */
static int run_heir(const char *dir, const char *map) {
    MxError err = {0};
    if (mx_dir_exists(mx_path_join(&arena, dir, "heir")))
        ck_assert(mx_dir_remove(mx_path_join(&arena, dir, "heir"), &err));
    return run_with(dir, "heir", mx_arena_printf(&arena, "distill_weights_copy_map: %s", map),
                    "base_num_decoder_layers=1 steps=1 learning_rate=0");
}

static const float *weights_of(const char *dir, const char *checkpoint, const char *path,
                               int64_t *n) {
    MxH5 *state;
    MxError err = {0};
    const char *name = mx_arena_printf(&arena, "%s/%s/state.h5", dir, checkpoint);
    ck_assert_msg(mx_h5_open(&arena, name, &state, &err), "%s", err.text.data);
    const float *values = golden_read(&arena, state, path, n);
    ck_assert_msg(values != NULL, "%s", path);
    return values;
}

START_TEST(students_take_weights_of_a_teacher) {
    static const struct {
        const char *map, *said;
    } wrong[] = {
        {"{decoder/layers_5/.*: decoder/layers_0}", "matches no parameter of the teacher"},
        {"{token_embedder/embedding: nothing}", "the student has no nothing to take"},
        {"{'decoder/layers_1/mlp/w[o]/kernel': 'decoder/layers_0/mlp/wi_0/kernel'}",
         "decoder/layers_1/mlp/wo/kernel float32[64, 32] does not fit the student's "
         "decoder/layers_0/mlp/wi_0/kernel float32[32, 64]"},
        {"{token_embedder/embedding: 'x\\3'}", "no such group: \\3"},
        {"{'x[': y}", "is not a regular expression"},
        {"{x: [y]}", "wants a path of the student, found"},
    };
    static const char *const taken[][2] = {
        {"decoder/layers_1/mlp/wo/kernel", "decoder/layers_0/mlp/wo/kernel"},
        {"decoder/layers_1/self_attention/query/kernel",
         "decoder/layers_0/self_attention/query/kernel"},
        {"token_embedder/embedding", "token_embedder/embedding"}};
    const char *dir = process_dir(&arena, "distill");
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 scan_layers=false", 0);
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        ck_assert_int_eq(run_heir(dir, wrong[i].map), MX_EXIT_CONFIG);
        ck_assert_msg(strstr(log_of(dir), wrong[i].said) != NULL, "%s: %s", wrong[i].said,
                      log_of(dir));
    }
    int code = run_heir(dir, "{'decoder/layers_1/(mlp/.*|self.*)': 'decoder/layers_0/\\1', "
                             "'(token_embedder)/(.*)': '\\1/\\2'}");
    ck_assert_msg(!code, "%s", log_of(dir));
    for (int i = 0; i < MX_COUNT(taken); i++) {
        int64_t n, n_own;
        const float *from = weights_of(dir, "teacher/checkpoints/3",
                                       mx_path_join(&arena, "model", taken[i][0]), &n);
        const float *own = weights_of(dir, "heir/checkpoints/0",
                                      mx_path_join(&arena, "model", taken[i][1]), &n_own);
        ck_assert(n == n_own && !memcmp(from, own, (size_t)n * sizeof *own));
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- parameters that are one array */

enum { LAYERS = 2 };

static const float *of_layer(const char *dir, const char *checkpoint, const char *tree, int layer,
                             int64_t *n) {
    const char *path = mx_arena_printf(&arena, "%s/decoder/layers_%d/mlp/wo/kernel", tree, layer);
    return weights_of(dir, checkpoint, path, n);
}

static bool has_array(const char *dir, const char *checkpoint, const char *path) {
    MxH5 *state;
    MxH5Array *arrays;
    int n;
    MxError err = {0};
    const char *name = mx_arena_printf(&arena, "%s/%s/state.h5", dir, checkpoint);
    ck_assert(mx_h5_open(&arena, name, &state, &err) &&
              mx_h5_list(&arena, state, "", &arrays, &n, &err));
    bool found = false;
    for (int i = 0; i < n; i++) found = found || strstr(arrays[i].path, path) != NULL;
    return found;
}

/* One array for both layers: it starts as the one that is named first, its gradient is the sum of
 * both uses', it has the only moments, and files have it twice. */
START_TEST(tied_parameters_learn_as_one) {
    const char *dir = process_dir(&arena, "distill");
    const char *tie = "distill_student_weights_share_map: {'decoder/layers_1/(mlp/wo/.*)': "
                      "'decoder/layers_0/\\1'}";
    const char *copy = "distill_weights_copy_map: {'(.*)': '\\1', "
                       "'decoder/layers_1/(mlp/wo/.*)': 'decoder/layers_0/\\1'}";
    const char *sgd = "opt_type=sgd learning_rate=0.5 warmup_steps_fraction=0 "
                      "gradient_clipping_threshold=0 steps=1 checkpoint_period=1";
    const char *start = mx_arena_printf(&arena, "%s load_parameters_path=%s/apart", sgd, dir);
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 scan_layers=false", 0);
    /* the same weights in both layers, in arrays of their own */
    ck_assert(
        !run_with(dir, "apart", copy, "learning_rate=0 steps=1 learning_rate_schedule_steps=1"));
    ck_assert_msg(!run_with(dir, "two", "distill_weights_copy_map: {}", start), "%s", log_of(dir));
    ck_assert_msg(!run_with(dir, "one", tie, start), "%s", log_of(dir));
    int64_t n;
    const float *was[LAYERS], *two[LAYERS], *one[LAYERS];
    double largest = 0;
    for (int i = 0; i < LAYERS; i++) {
        was[i] = of_layer(dir, "apart/checkpoints/0", "model", i, &n);
        two[i] = of_layer(dir, "two/checkpoints/0", "model", i, &n);
        one[i] = of_layer(dir, "one/checkpoints/0", "model", i, &n);
    }
    ck_assert(!memcmp(one[0], one[1], (size_t)n * sizeof **one));
    for (int64_t k = 0; k < n; k++) {
        double steps = (double)(two[0][k] - was[0][k]) + (double)(two[1][k] - was[1][k]);
        double step = (double)(one[0][k] - was[0][k]);
        largest = fmax(largest, fabs(steps));
        ck_assert_msg(fabs(step - steps) <= 1e-6, "%lld: %g, not %g", (long long)k, step, steps);
    }
    ck_assert(largest > 1e-4);
    tie = "distill_student_weights_share_map: {'decoder/layers_0/(mlp/wo/.*)': "
          "'decoder/layers_1/\\1'}";
    start = mx_arena_printf(&arena, "load_parameters_path=%s/teacher learning_rate=0 steps=1", dir);
    ck_assert_msg(!run_with(dir, "named", tie, start), "%s", log_of(dir));
    const float *first = of_layer(dir, "teacher/checkpoints/3", "model", 0, &n);
    const float *other = of_layer(dir, "named/checkpoints/0", "model", 1, &n);
    ck_assert(!memcmp(first, other, (size_t)n * sizeof *other));
    mx_arena_release(&arena);
}
END_TEST

/* A run that stops and goes on makes the bits of one that does not; a student without ties begins
 * with what it made. */
START_TEST(tied_parameters_are_in_files_twice) {
    const char *dir = process_dir(&arena, "distill");
    const char *tie = "distill_student_weights_share_map: {'decoder/layers_1/(mlp/w.*)': "
                      "'decoder/layers_0/\\1'}";
    const char *more = "steps=4 learning_rate_schedule_steps=4";
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 scan_layers=false", 0);
    ck_assert_msg(!run_with(dir, "whole", tie, more), "%s", log_of(dir));
    ck_assert(!run_with(dir, "parts", tie, "steps=2 learning_rate_schedule_steps=4"));
    ck_assert_msg(!run_with(dir, "parts", tie, more), "%s", log_of(dir));
    size_t size[2];
    const char *whole = process_file(&arena, dir, "whole/checkpoints/3/state.h5", &size[0]);
    const char *parts = process_file(&arena, dir, "parts/checkpoints/3/state.h5", &size[1]);
    ck_assert(size[0] == size[1] && !memcmp(whole, parts, size[0]));
    ck_assert(has_array(dir, "whole/checkpoints/3", "mu/decoder/layers_1/mlp/wo/kernel"));
    ck_assert(!has_array(dir, "whole/checkpoints/3", "mu/decoder/layers_0/mlp/wo/kernel"));
    ck_assert_msg(!run_with(dir, "free", "distill_weights_copy_map: {}",
                            mx_arena_printf(&arena, "load_parameters_path=%s/whole steps=1", dir)),
                  "%s", log_of(dir));
    mx_arena_release(&arena);
}
END_TEST

START_TEST(what_cannot_be_tied_is_refused) {
    static const struct {
        const char *map, *said;
    } wrong[] = {
        {"{'decoder/layers_5/.*': x}",
         "\"decoder/layers_5/.*\" matches no parameter of the student"},
        {"{'token_embedder/embedding': nothing}",
         "the student has no nothing that could be token_embedder/embedding"},
        {"{'decoder/layers_1/mlp/wo/kernel': 'decoder/layers_0/mlp/wi_0/kernel'}",
         "decoder/layers_0/mlp/wi_0/kernel [32, 64] cannot be decoder/layers_1/mlp/wo/kernel [64, "
         "32]: another shape"},
        {"{'decoder/layers_1/mlp/wi_[01]/kernel': 'decoder/layers_0/mlp/wi_0/kernel'}",
         "decoder/layers_0/mlp/wi_0/kernel cannot be both decoder/layers_1/mlp/wi_0/kernel and "
         "decoder/layers_1/mlp/wi_1/kernel"},
        {"{'decoder/layers_1/mlp/wi_0/kernel': 'decoder/layers_0/mlp/wi_0/kernel', "
         "'decoder/layers_0/mlp/wi_0/kernel': 'decoder/layers_0/mlp/wi_1/kernel'}",
         "decoder/layers_0/mlp/wi_0/kernel cannot be decoder/layers_1/mlp/wi_0/kernel and be "
         "another"},
        {"{token_embedder/embedding: 'x\\3'}", "no such group: \\3"},
        {"{'x[': y}", "is not a regular expression"},
    };
    const char *dir = process_dir(&arena, "distill");
    check_run(dir, "teacher", "steps=1 checkpoint_period=1 scan_layers=false", 0);
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        const char *line =
            mx_arena_printf(&arena, "distill_student_weights_share_map: %s", wrong[i].map);
        ck_assert_int_eq(run_with(dir, "wrong", line, "steps=1"), MX_EXIT_CONFIG);
        ck_assert_msg(strstr(log_of(dir), wrong[i].said) != NULL, "%s: %s", wrong[i].said,
                      log_of(dir));
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- attention made of the teacher's */

static const char maps[] =
    "learn_to_init_mode: true\nattn_module_name: self_attention\ndistill_weights_copy_map: "
    "{'(decoder/layers_[01]/self_attention/.*)/kernel': '\\1/C', '(.*/(mlp|.*norm)/.*|token.*)': "
    "'\\1'}";

/* A run that stops and goes on makes the bits of one that does not, and ends with a folder of
 * ordinary weights, which a plain run begins with and others read. */
START_TEST(maps_become_ordinary_weights) {
    const char *dir = process_dir(&arena, "distill");
    const char *student = "base_num_query_heads=1 base_num_kv_heads=1 head_dim=8 ";
    const char *more = mx_arena_printf(
        &arena, "%s steps=4 learning_rate_schedule_steps=4 learning_rate=0.01", student);
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 scan_layers=false", 0);
    ck_assert_msg(!run_with(dir, "whole", maps, more), "%s", log_of(dir));
    ck_assert(strstr(log_of(dir), "Saved the model in ordinary weights in") != NULL);
    ck_assert(!run_with(dir, "parts", maps, mx_arena_printf(&arena, "%s steps=2", more)));
    ck_assert_msg(!run_with(dir, "parts", maps, more), "%s", log_of(dir));
    static const char *const files[] = {"checkpoints/3/state.h5", "folded/state.h5"};
    for (int i = 0; i < MX_COUNT(files); i++) {
        size_t size[2];
        const char *path = mx_arena_printf(&arena, "whole/%s", files[i]);
        const char *whole = process_file(&arena, dir, path, &size[0]);
        path = mx_arena_printf(&arena, "parts/%s", files[i]);
        const char *parts = process_file(&arena, dir, path, &size[1]);
        ck_assert(size[0] == size[1] && !memcmp(whole, parts, size[0]));
    }
    ck_assert(has_array(dir, "whole/checkpoints/3", "mu/decoder/layers_0/self_attention/query/A"));
    ck_assert(!has_array(dir, "whole/checkpoints/3", "mu/decoder/layers_0/self_attention/query/C"));
    ck_assert(has_array(dir, "whole/checkpoints/3", "model/decoder/layers_0/self_attention/out/C"));
    ck_assert(has_array(dir, "whole/folded", "model/decoder/layers_0/self_attention/out/kernel"));
    ck_assert(!has_array(dir, "whole/folded", "self_attention/out/C"));
    check_run(
        dir, "after",
        mx_arena_printf(&arena, "%s load_parameters_path=%s/whole/folded steps=1", student, dir),
        0);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(maps_that_are_not_there_are_refused) {
    static const struct {
        const char *line, *more, *said;
    } wrong[] = {
        {"learn_to_init_mode: true", "", "wants attn_module_name=self_attention"},
        {"learn_to_init_mode: true", "attn_module_name=attention",
         "attn_module_name: wants attn_module_name=self_attention"},
        {"learn_to_init_mode: true\nattn_module_name: self_attention", "",
         "distill_weights_copy_map takes nothing of the teacher's for "
         "decoder/layers_0/self_attention/query/C"},
        {maps, "decoder_block=qwen3 use_qk_norm=true", "not available for decoder_block=qwen3"},
        {maps, "fused_qkv=true", "fused_qkv: not available yet with learn_to_init_mode"},
        {maps, "lora.enable_lora=true", "not available yet with learn_to_init_mode"},
        {maps, "quantization=int8", "quantization: not available yet with learn_to_init_mode"},
        {maps, "scan_layers=true lti_layer_indices=[0]", "single ones want scan_layers=false"},
        {maps, "lti_layer_indices=[2]", "lti_layer_indices: "},
        {maps, "base_emb_dim=48", "emb_dim is 48, the teacher's 32"},
        {maps, "offline_data_dir=x", "there is no teacher to begin with"},
        {"learn_to_init_mode: true\nattn_module_name: self_attention\ndistill_weights_copy_map: "
         "{'(decoder/.*)/wo/kernel': '\\1/query/C'}",
         "", "the student has no decoder/layers_0/mlp/query/C to take"},
    };
    const char *dir = process_dir(&arena, "distill");
    check_run(dir, "teacher", "steps=1 checkpoint_period=1 scan_layers=false", 0);
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        const char *more = mx_arena_printf(&arena, "%s steps=1", wrong[i].more);
        int code = run_with(dir, "wrong", wrong[i].line, more);
        ck_assert_msg(code == MX_EXIT_CONFIG && strstr(log_of(dir), wrong[i].said),
                      "exit %d, not %s: %s", code, wrong[i].said, log_of(dir));
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- logits that were made before */

static double *losses(const char *dir, int *n) {
    MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", n);
    double *values = mx_new_n(&arena, double, *n + 1);
    for (int i = 0; i < *n; i++) {
        bool is_there = mx_json_number(mx_json_get(lines[i].json, "learning/loss"), &values[i]);
        ck_assert(is_there);
    }
    ck_assert(!remove(mx_path_join(&arena, dir, "m.jsonl")));
    return values;
}

static const char student[] =
    "vocab_size=300 base_num_decoder_layers=1 base_emb_dim=16 distill_temperature=2 "
    "distill_alpha=0.7 steps=6 learning_rate_schedule_steps=6 ";

/* All logits are the largest ones: a student learns the same beside them as beside the teacher. */
START_TEST(logits_made_ahead_teach_alike) {
    const char *dir = process_dir(&arena, "distill");
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 vocab_size=300", 0);
    const char *more =
        mx_arena_printf(&arena, "%s%sload_parameters_path=%s/teacher %s metrics_file=%s/m.jsonl %s",
                        teach, TEACH("vocab_size=300") "teacher_overrides.", dir, student, dir,
                        _i ? "gradient_accumulation_steps=2" : "");
    const char *known =
        mx_arena_printf(&arena, "offline_data_dir=%s/logits distill.top_k=300 %s", dir, more);
    int n, n_known;
    check_run(dir, "beside", more, 0);
    const double *want = losses(dir, &n);
    check_run(dir, "behind", known, 0);
    const double *got = losses(dir, &n_known);
    ck_assert(n == 6 && n_known == n);
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= 1e-5 * want[i], "step %d: %.9g, not %.9g", i,
                      got[i], want[i]);
    mx_arena_release(&arena);
}
END_TEST

/* The folder alone is enough, a run goes on with it exactly, and what does not fit is refused. */
START_TEST(logits_are_of_a_teacher_and_its_data) {
    const char *dir = process_dir(&arena, "distill");
    check_run(dir, "teacher", "steps=4 checkpoint_period=4 vocab_size=300", 0);
    const char *alone = mx_arena_printf(
        &arena, "%s offline_data_dir=%s/logits distill.top_k=5 checkpoint_period=3", student, dir);
    const char *teacher = mx_arena_printf(
        &arena, "%s %s" TEACH("vocab_size=300") "teacher_overrides.load_parameters_path=%s/", alone,
        teach, dir);
    size_t size[2];
    check_run(dir, "whole", alone, MX_EXIT_CONFIG);
    ck_assert(strstr(log_of(dir), "teacher_overrides describes the teacher") != NULL);
    check_run(dir, "whole", mx_arena_printf(&arena, "%steacher", teacher), 0);
    const char *whole = state_of(dir, "whole", &size[0]);
    ck_assert(mx_dir_remove(mx_path_join(&arena, dir, "teacher"), &(MxError){0}));
    check_run(dir, "parts", mx_arena_printf(&arena, "%s steps=3", alone), 0);
    check_run(dir, "parts", alone, 0);
    const char *parts = state_of(dir, "parts", &size[1]);
    ck_assert(size[0] == size[1] && !memcmp(whole, parts, size[0]));
    const struct {
        const char *more, *said;
    } wrong[] = {{"distill.top_k=4", "it holds [24, 32, 5] for rows of train batches"},
                 {"steps=7", "this run wants [28, 32, 5]"},
                 {"data_shuffle_seed=1", "these logits are of other data: train batch 0"},
                 {"distill_beta=0.5", "has no features of the teacher, only logits"},
                 {"distill.top_k=301", "distill.top_k is 301, vocab_size only 300"}};
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        int code = i < 3 ? MX_EXIT_BAD_INPUT : MX_EXIT_CONFIG;
        check_run(dir, "wrong", mx_arena_printf(&arena, "%s %s", alone, wrong[i].more), code);
        ck_assert_msg(strstr(log_of(dir), wrong[i].said) != NULL, "%s: %s", wrong[i].said,
                      log_of(dir));
    }
    check_run(dir, "other", "steps=4 checkpoint_period=4 vocab_size=300 init_weights_seed=5", 0);
    ck_assert(mx_dir_remove(mx_path_join(&arena, dir, "logits"), &(MxError){0}));
    check_run(dir, "parts", mx_arena_printf(&arena, "%sother steps=7", teacher), MX_EXIT_BAD_INPUT);
    ck_assert_msg(strstr(log_of(dir), "these logits are of another teacher") != NULL, "%s",
                  log_of(dir));
    mx_arena_release(&arena);
}
END_TEST

Suite *distill_runs_suite(void) {
    Suite *suite = suite_create("distill runs");
    TCase *tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_run_knows_its_teacher);
    tcase_add_loop_test(tcase, logits_made_ahead_teach_alike, 0, 2);
    tcase_add_test(tcase, logits_are_of_a_teacher_and_its_data);
    tcase_add_test(tcase, students_take_weights_of_a_teacher);
    tcase_add_test(tcase, tied_parameters_learn_as_one);
    tcase_add_test(tcase, tied_parameters_are_in_files_twice);
    tcase_add_test(tcase, what_cannot_be_tied_is_refused);
    tcase_add_test(tcase, maps_become_ordinary_weights);
    tcase_add_test(tcase, maps_that_are_not_there_are_refused);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("resumes");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, students_resume_exactly, 0, MX_COUNT(students));
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
