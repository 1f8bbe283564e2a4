/* test_lora_runs.c — what adapters cost, and runs with them from start to end: checkpoints without
 * a base, adapters from other runs, what does not fit. */
#include "common/saving.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <unistd.h>

/* ---- which modules */

#define EXPERTS     "decoder_block=mixtral num_experts=4 num_experts_per_tok=2 base_moe_mlp_dim=80 "
#define ALL_EXPERTS "decoder_block=mixtral num_experts=4 num_experts_per_tok=4 base_moe_mlp_dim=80 "

/* What a pattern adapts; paths below the layers, in the order of the tree. */
static const struct {
    const char *config, *modules;
} choices[] = {
    {"", "query key value out wi_0 wi_1 wo"},
    {"decoder_block=qwen3 use_qk_norm=true", "query key value out wi_0 wi_1 wo"}, /* no norms */
    {"model_name=mistral-7b", "query key value out wi_0 wi_1 wo"},
    {"lora.lora_module_path=decoder/layers/mlp/wo", "wo"},
    {"lora.lora_module_path=decoder/layers/mlp/wo scan_layers=false", "wo wo"},
    {"lora.lora_module_path=decoder/layers_1/mlp/wo scan_layers=false", "wo"},
    {"lora.lora_module_path=.*(query|logits_dense)", "query logits_dense"},
    {EXPERTS, "query key value out"}, /* unless they are asked for */
    {EXPERTS "lora.lora_module_path=decoder/layers/MoeBlock_0", "wi_0 wi_1 wo"},
    {EXPERTS "lora.lora_module_path=decoder/layers/MoeBlock_0/wo scan_layers=false", "wo wo"},
    {EXPERTS "lora.lora_module_path=.*/(query|wi_1)", "query wi_1"},
    /* no whole path is matched, so those that hold a match are */
    {"use_qk_norm=true lora.lora_module_path=attention/query", "query query_norm"},
    {"use_qk_norm=true lora.lora_module_path=.*attention/query", "query"},
    {"lora.lora_module_path=.*norm",
     "pre_self_attention_layer_norm post_self_attention_layer_norm decoder_norm"},
};

static const char *names_of(MxArena *arena, const MxLora *lora) {
    MxText names;
    mx_text_init(&names, arena);
    for (int i = 0; i < lora->n_modules; i++)
        mx_text_add(&names, "%s%s", i ? " " : "", strrchr(lora->modules[i], '/') + 1);
    return names.data;
}

static const char small[] = "base_emb_dim=48 base_num_decoder_layers=2 base_num_query_heads=2 "
                            "base_num_kv_heads=2 head_dim=16 base_mlp_dim=80 vocab_size=1000 "
                            "max_target_length=24 per_device_batch_size=2 dataset_type=synthetic "
                            "sliding_window_size=8 ";

static MxConfig *config_of(MxArena *arena, const char *more) {
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(golden_config(arena, small, more, &config, &err), "%s", err.text.data);
    return config;
}

static const char lora4[] = "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 ";

START_TEST(patterns_choose_modules) {
    MxArena arena = {.name = "modules"};
    MxError err = {0};
    MxModel *model;
    const char *more = mx_arena_printf(&arena, "%s%s", lora4, choices[_i].config);
    ck_assert_msg(mx_model_new(&arena, config_of(&arena, more), &model, &err), "%s", err.text.data);
    const MxLora *lora = mx_model_lora(model);
    ck_assert_str_eq(names_of(&arena, lora), choices[_i].modules);
    int n = 0; /* every layer of a stacked module has its own */
    const MxTree *params = mx_model_params(model);
    for (int i = 0; i < params->n; i++) n += mx_text_has_suffix(params->leaves[i].path, "_lora_a");
    ck_assert_int_ge(n, lora->n_modules);
    mx_arena_release(&arena);
}
END_TEST

/* ---- adapters of everything: kernels, norms, the output matrix */

typedef struct Everything {
    MxArena arena;
    MxConfig *config;
    MxTrainState *state;
    MxBatch batch;
} Everything;

static void open_everything(Everything *e, const char *more) {
    MxError err = {0};
    *e = (Everything){.arena = {.name = "everything"}};
    e->config = config_of(&e->arena,
                          mx_arena_printf(&e->arena, "%slora.lora_module_path=.* %s", lora4, more));
    ck_assert_msg(mx_train_state_open(&e->arena, e->config, &e->state, &err), "%s", err.text.data);
    mx_train_state_init(e->state);
    MxTree *tree = mx_train_state_tree(e->state);
    for (int i = 0; i < tree->n; i++) { /* B is not 0, nor so large that little is left of W */
        const MxLeaf *leaf = &tree->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        float *x = golden_values(&e->arena, leaf);
        uint32_t draw[4];
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++) {
            mx_philox(3, (uint64_t)i, (uint64_t)k, draw);
            x[k] = 0.4f * mx_uniform(draw[0]) - 0.2f;
        }
        mx_leaf_write(leaf, x);
    }
    e->batch = mx_batch_new(&e->arena, 2, e->config->max_target_length);
    for (int64_t i = 0; i < e->batch.rows * e->batch.length; i++) {
        e->batch.field[MX_INPUTS][i] = (int32_t)(37 * i % 1000);
        e->batch.field[MX_TARGETS][i] = (int32_t)(37 * (i + 1) % 1000);
        e->batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % e->batch.length);
        e->batch.field[MX_INPUTS_SEGMENTATION][i] = e->batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    }
}

#define DROPS "lora.lora_dropout=0.3 lora.lora_module_path=.*(query|key|value|out|w[io](_.)?) "

static const char *const everything[] = {
    "",
    DROPS "attention_bias=true",
    DROPS "decoder_block=deepseek attention_type=mla first_num_dense_layers=2 q_lora_rank=24 "
          "kv_lora_rank=24 qk_nope_head_dim=16 qk_rope_head_dim=8 v_head_dim=12",
    "decoder_block=qwen3 use_qk_norm=true",
    "attention_bias=true scan_layers=false",
    ALL_EXPERTS,
    ALL_EXPERTS "sparse_matmul=false capacity_factor=1 scan_layers=false",
    EXPERTS,
    EXPERTS "sparse_matmul=false capacity_factor=1 scan_layers=false"};
enum { DIFFERENTIABLE = 7 }; /* of these; in the rest other experts are chosen after a step */

/* Merged weights without adapters compute the same; the model without adapters does not. */
START_TEST(all_adapters_merge) {
    Everything e;
    open_everything(&e, everything[_i]);
    MxTree *tree = mx_train_state_tree(e.state);
    double before = mx_train_eval(e.state, &e.batch).loss;
    MxError err = {0};
    MxText notes;
    mx_text_init(&notes, &e.arena);
    ck_assert_msg(merge_adapters(&e.arena,
                                 mx_arena_printf(&e.arena, "build/tests/everything.%d.h5", _i), 8,
                                 tree, &notes, &err),
                  "%s", err.text.data);
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind == MX_KIND_LORA_PARAM)
            mx_leaf_write(&tree->leaves[i],
                          mx_arena_alloc(&e.arena, mx_leaf_bytes(&tree->leaves[i])));
    double after = mx_train_eval(e.state, &e.batch).loss;
    ck_assert_double_eq_tol(after, before, 1e-5 * before);
    mx_arena_release(&e.arena);
}
END_TEST

/* Base weights keep their bytes however long adapters are trained. */
START_TEST(the_base_keeps_its_bytes) {
    enum { LONG = 50 };
    Everything e;
    open_everything(&e, "");
    const MxTree *tree = mx_train_state_tree(e.state);
    void **before = mx_new_n(&e.arena, void *, tree->n);
    for (int i = 0; i < tree->n; i++) {
        if (mx_text_has_prefix(tree->leaves[i].path, "model/"))
            before[i] = golden_values(&e.arena, &tree->leaves[i]);
    }
    for (int step = 0; step < LONG; step++) {
        mx_train_loss_and_grad(e.state, &e.batch);
        mx_train_update(e.state);
    }
    for (int i = 0; i < tree->n; i++) {
        if (!before[i]) continue;
        const MxLeaf *leaf = &tree->leaves[i];
        bool is_same = !memcmp(before[i], mx_leaf_values(&e.arena, leaf), mx_leaf_bytes(leaf));
        ck_assert_msg(is_same == (leaf->kind == MX_KIND_PARAM), "%s: %s", leaf->path,
                      is_same ? "was not trained" : "has changed");
    }
    mx_arena_release(&e.arena);
}
END_TEST

/* The gradient of every adapter in one direction, against a difference of losses. */
START_TEST(all_adapters_have_their_gradient) {
    Everything e;
    open_everything(&e, everything[_i]);
    mx_train_loss_and_grad(e.state, &e.batch);
    MxTree *tree = mx_train_state_tree(e.state);
    const MxTree *params = mx_model_params(mx_train_state_model(e.state));
    const float **gradient = mx_new_n(&e.arena, const float *, params->n);
    for (int i = 0; i < params->n; i++) gradient[i] = mx_train_gradient(&e.arena, e.state, i);
    for (int i = 0; i < params->n; i++) {
        const float *g = gradient[i];
        int64_t n = mx_shape_count(params->leaves[i].shape);
        const float *kept = golden_values(&e.arena, &tree->leaves[i]);
        float *x = mx_new_n(&e.arena, float, n);
        double slope = 0, loss[2], step;
        if (!g) continue;
        for (int64_t k = 0; k < n; k++) slope += (double)g[k] * (double)g[k];
        slope = sqrt(slope);
        step = 1e-2 / fmax(slope, 1);
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < n; k++)
                x[k] = kept[k] + (float)((side ? step : -step) * (double)g[k] / slope);
            mx_leaf_write(&tree->leaves[i], x);
            loss[side] = mx_train_loss_and_grad(e.state, &e.batch).loss;
        }
        mx_leaf_write(&tree->leaves[i], kept);
        double difference = (loss[1] - loss[0]) / (2 * step);
        ck_assert_msg(fabs(difference - slope) <= 0.02 * slope + 1e-4,
                      "%s: slope %g, difference %g", params->leaves[i].path, slope, difference);
    }
    mx_arena_release(&e.arena);
}
END_TEST

/* ---- what frozen weights cost */

static const MxGraph *grad_graph(const MxTrainProgram *program) {
    for (int i = 0; i < program->n_entries; i++)
        if (!strcmp(program->layout.lowered[i].graph->name, "grad"))
            return program->layout.lowered[i].graph;
    ck_abort_msg("no gradient");
    return NULL;
}

static bool is_shape_of_frozen(const MxTree *params, MxShape shape) {
    for (int i = 0; i < params->n; i++)
        if (params->leaves[i].kind == MX_KIND_PARAM && params->leaves[i].shape.rank > 1 &&
            mx_shape_equal(params->leaves[i].shape, shape))
            return true;
    return false;
}

static bool lower_program(MxArena *a, const char *more, MxTrainProgram *out, MxError *err) {
    MxTrainMesh mesh;
    return mx_train_mesh(a, config_of(a, more), &mesh, err) &&
           mx_train_program(a, &mesh, NULL, out, err);
}

static const char *const programs[] = {"", "dtype=bfloat16", "remat_policy=full"};

/* Nothing of a frozen weight's shape is made backwards; all sums, those of residuals and cotangents
 * too, are made by the products themselves. */
START_TEST(frozen_weights_cost_no_gradient) {
    MxArena arena = {.name = "frozen"};
    MxError err = {0};
    MxTrainProgram program;
    const char *more = mx_arena_printf(
        &arena, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 %s", programs[_i]);
    ck_assert_msg(lower_program(&arena, more, &program, &err), "%s", err.text.data);
    const MxTree *params = mx_model_params(program.model);
    const MxGraph *graph = grad_graph(&program);
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        ck_assert_msg(strcmp(node->op->name, "add") != 0, "a sum in %s", node->scope);
        for (int i = 0; node->backward && i < node->n_out; i++) {
            MxShape shape = graph->values[node->out[i]].type.shape;
            ck_assert_msg(node->unused >> i & 1 || !is_shape_of_frozen(params, shape),
                          "%s makes %s of %s", node->op->name, mx_shape_text(&arena, shape),
                          node->scope);
        }
    }
    mx_arena_release(&arena);
}
END_TEST

/* Adapters that read one x, those of query, key and value and of both branches of the feed-forward
 * block, are one product each way: of seven modules in a layer there are four A. Where each drops
 * elements of its x, there are seven. */
static const struct {
    const char *more;
    int inputs, not_in_first; /* no gradient of the first layer's input */
} products[] = {{"", 4, 4}, {"lora.lora_dropout=0.3", 7, 6}};

START_TEST(adapters_of_one_input_share_a_product) {
    enum { MODULES = 7, LAYERS = 2 };
    MxArena arena = {.name = "shared"};
    MxError err = {0};
    MxTrainProgram program;
    const char *more = mx_arena_printf(&arena, "%s%s", lora4, products[_i].more);
    ck_assert_msg(lower_program(&arena, more, &program, &err), "%s", err.text.data);
    const MxGraph *graph = grad_graph(&program);
    /* A, B and kernels; what reaches them */
    int n = 0, want = LAYERS * (3 * products[_i].inputs + 5 * MODULES);
    for (int i = 0; i < graph->n_nodes; i++) n += graph->nodes[i].op == &op_dot;
    ck_assert_int_eq(n, want - products[_i].not_in_first);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(memory_is_that_of_the_adapters) {
    MxArena arena = {.name = "memory"};
    MxError err = {0};
    MxTrainState *full, *lora;
    bool ok = mx_train_state_open(&arena, config_of(&arena, "dtype=bfloat16"), &full, &err) &&
              mx_train_state_open(&arena,
                                  config_of(&arena, "dtype=bfloat16 lora.enable_lora=true "
                                                    "lora.lora_rank=4 lora.lora_alpha=8"),
                                  &lora, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    MxTrainBytes a = mx_train_state_bytes(full), b = mx_train_state_bytes(lora);
    const MxTree *params = mx_model_params(mx_train_state_model(lora));
    size_t n = (size_t)mx_tree_count(params, MX_KIND_LORA_PARAM) * sizeof(float);
    ck_assert_uint_eq(b.gradients, n);
    ck_assert_uint_eq(b.moments, 2 * n);
    ck_assert_uint_eq(b.parameters, a.parameters + n);
    ck_assert_uint_le(b.activations, a.activations + a.activations / 50); /* x A of each module */
    mx_arena_release(&arena);
}
END_TEST

/* ---- casts of what is frozen */

static const char *const with_casts[] = {"", "logits_via_embedding=true remat_policy=full",
                                         "attention_bias=true gradient_accumulation_steps=2"};

/* No entry of a step casts a frozen weight; the entry that does makes the only copies. */
START_TEST(frozen_weights_are_cast_once) {
    MxArena arena = {.name = "casts"};
    MxError err = {0};
    MxTrainProgram program;
    const char *more = mx_arena_printf(&arena, "%sdtype=bfloat16 %s", lora4, with_casts[_i]);
    ck_assert_msg(lower_program(&arena, more, &program, &err), "%s", err.text.data);
    const MxTree *params = mx_model_params(program.model);
    int64_t bytes = 0;
    for (int e = 0; e < program.n_entries; e++) {
        const MxGraph *graph = program.layout.lowered[e].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const MxNode *node = &graph->nodes[n];
            if (node->op != &op_cast) continue;
            MxShape shape = graph->values[node->out[0]].type.shape;
            bool is_own = !strcmp(graph->name, "frozen");
            ck_assert_msg(is_shape_of_frozen(params, shape) == is_own || shape.rank == 1,
                          "%s casts %s", graph->name, mx_shape_text(&arena, shape));
            if (is_own) bytes += mx_shape_count(shape) * 2;
        }
    }
    ck_assert_int_gt(bytes, 0);
    ck_assert_int_eq(bytes, (int64_t)program.bytes.casts);
    mx_arena_release(&arena);
}
END_TEST

static double eval_loss(Everything *e) {
    return mx_train_eval(e->state, &e->batch).loss;
}

static void change_base(const Everything *e) {
    MxTree *tree = mx_train_state_tree(e->state);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (leaf->kind != MX_KIND_PARAM) continue;
        float *x = golden_values(tree->arena, leaf);
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++) x[k] *= 1.25f;
        mx_leaf_write(leaf, x);
    }
    mx_train_state_restored(e->state);
}

/* Other weights, wherever they come from, are what the next entry sees: losses are those of states
 * that never had any others. */
START_TEST(casts_follow_the_weights) {
    enum { DRAWN, CHANGED, BOTH };
    double want[BOTH];
    Everything e;
    for (int i = 0; i < BOTH; i++) {
        open_everything(&e, "dtype=bfloat16");
        mx_train_state_init(e.state);
        if (i == CHANGED) change_base(&e);
        want[i] = eval_loss(&e);
        mx_arena_release(&e.arena);
    }
    ck_assert_double_ne(want[DRAWN], want[CHANGED]);
    open_everything(&e, "dtype=bfloat16");
    for (int i = 0; i < 2; i++) {
        mx_train_state_init(e.state);
        ck_assert_double_eq(eval_loss(&e), want[DRAWN]);
        change_base(&e);
        ck_assert_double_eq(eval_loss(&e), want[CHANGED]);
    }
    mx_arena_release(&e.arena);
}
END_TEST

/* ---- runs */

static const char tiny[] =
    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 "
    "base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=2 "
    "dataset_type=synthetic vocab_size=300 eval_interval=-1 warmup_steps_fraction=0 "
    "log_config=false ";

static const char adapted[] = "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 ";

/* Runs in dir/name; returns the exit code. The log grows from run to run, the file of metrics is
 * the last run's. */
static int run_tiny(MxArena *arena, const char *dir, const char *name, const char *more) {
    if (!mx_dir_exists(mx_path_join(arena, dir, name))) unlink(mx_path_join(arena, dir, "m.jsonl"));
    return process_run(
        arena, dir,
        mx_arena_printf(arena, "%s run_name=%s base_output_directory=%s metrics_file=%s/m.jsonl %s",
                        tiny, name, dir, dir, more));
}

static void check_log(MxArena *arena, const char *dir, const char *words) {
    enum { SHOWN = 2000 };
    size_t size;
    const char *log = process_file(arena, dir, "log", &size);
    ck_assert_msg(strstr(log, words) != NULL, "the log lacks \"%s\":\n%s", words,
                  log + (size > SHOWN ? size - SHOWN : 0));
}

static double first_loss(MxArena *arena, const char *dir) {
    int n;
    double loss = NAN;
    MetricsLine *lines = process_metrics(arena, dir, "learning/loss", &n);
    ck_assert_int_gt(n, 0);
    mx_json_number(mx_json_get(lines[0].json, "learning/loss"), &loss);
    return loss;
}

/* B is 0, so the first loss is that of the weights alone; a checkpoint holds no base, and is
 * refused over another one. */
START_TEST(checkpoints_know_their_base) {
    MxArena arena = {.name = "base"};
    MxError err = {0};
    MxH5 *file;
    MxH5Array *arrays;
    int n;
    const char *dir = process_dir(&arena, "lora_base");
    const char *more =
        mx_arena_printf(&arena, "%s load_parameters_path=%s/base steps=2", adapted, dir);
    ck_assert_int_eq(run_tiny(&arena, dir, "base", "steps=3"), 0);
    ck_assert_int_eq(run_tiny(&arena, dir, "full",
                              mx_arena_printf(&arena, "load_parameters_path=%s/base steps=1", dir)),
                     0);
    double loss = first_loss(&arena, dir);
    ck_assert_int_eq(run_tiny(&arena, dir, "lora", more), 0);
    ck_assert_double_eq(first_loss(&arena, dir), loss);
    check_log(&arena, dir, "successfully matched 7 target submodules.");
    bool ok =
        mx_h5_open(&arena, mx_path_join(&arena, dir, "lora/checkpoints/1/state.h5"), &file, &err) &&
        mx_h5_list(&arena, file, "", &arrays, &n, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    for (int i = 0; i < n; i++)
        ck_assert_msg(strstr(arrays[i].path, "_lora_") || !strstr(arrays[i].path, "decoder"), "%s",
                      arrays[i].path);
    more = mx_arena_printf(&arena, "%s init_weights_seed=3 steps=4", adapted);
    ck_assert_int_eq(run_tiny(&arena, dir, "lora", more), MX_EXIT_BAD_INPUT);
    check_log(&arena, dir, "/lora/checkpoints/1: its adapters belong to other weights: ");
    check_log(&arena, dir,
              mx_arena_printf(&arena,
                              "hint: they were trained with load_parameters_path=%s/base and "
                              "init_weights_seed=0; this run has load_parameters_path=\"\"",
                              dir));
    mx_arena_release(&arena);
}
END_TEST

/* Adapters start another run, and only a new one. */
START_TEST(adapters_start_another_run) {
    MxArena arena = {.name = "restore"};
    const char *dir = process_dir(&arena, "lora_restore");
    ck_assert_int_eq(
        run_tiny(&arena, dir, "a", mx_arena_printf(&arena, "%s steps=3 learning_rate=0", adapted)),
        0);
    double cold = first_loss(&arena, dir);
    ck_assert_int_eq(
        run_tiny(&arena, dir, "b",
                 mx_arena_printf(&arena, "%s steps=3 learning_rate=0.1 opt_type=sgd", adapted)),
        0);
    ck_assert_double_eq(first_loss(&arena, dir), cold);
    const char *more =
        mx_arena_printf(&arena, "%s lora.lora_restore_path=%s/b steps=", adapted, dir);
    ck_assert_int_eq(run_tiny(&arena, dir, "c", mx_arena_printf(&arena, "%s2", more)), 0);
    ck_assert_double_ne(first_loss(&arena, dir), cold);
    check_log(&arena, dir, "LoRA restore complete from ");
    ck_assert_int_eq(run_tiny(&arena, dir, "c", mx_arena_printf(&arena, "%s3", more)), 0);
    check_log(&arena, dir, "restoring from this run's directory step 1");
    mx_arena_release(&arena);
}
END_TEST

static const struct {
    const char *config, *words;
    int code;
} misfits[] = {
    {"lora.enable_lora=true lora.lora_rank=5 lora.lora_alpha=8",
     "\"model/decoder/layers/mlp/wi_0/kernel_lora_a\" has shape [32, 2, 4]; the model wants "
     "[32, 2, 5]",
     MX_EXIT_BAD_INPUT},
    {"lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 base_mlp_dim=48",
     "\"model/decoder/layers/mlp/wi_0/kernel_lora_b\" has shape [4, 2, 64]; the model wants "
     "[4, 2, 48]",
     MX_EXIT_BAD_INPUT},
    {"lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 lora.lora_module_path=.*norm",
     "pre_self_attention_layer_norm/scale_lora_a\" is missing; the model wants float32 [32, 4]",
     MX_EXIT_BAD_INPUT},
    {"lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=16",
     "lora.lora_alpha: 16 is not the lora_alpha of the adapters in ", MX_EXIT_CONFIG},
};

START_TEST(adapters_that_do_not_fit_are_told) {
    MxArena arena = {.name = "misfit"};
    const char *dir = process_dir(&arena, "lora_misfit");
    ck_assert_int_eq(run_tiny(&arena, dir, "a", mx_arena_printf(&arena, "%s steps=1", adapted)), 0);
    const char *more =
        mx_arena_printf(&arena, "%s lora.lora_restore_path=%s/a steps=1", misfits[_i].config, dir);
    ck_assert_int_eq(run_tiny(&arena, dir, "b", more), misfits[_i].code);
    check_log(&arena, dir, misfits[_i].words);
    mx_arena_release(&arena);
}
END_TEST

Suite *lora_runs_suite(void) {
    Suite *suite = suite_create("lora runs");
    TCase *tcase = tcase_create("modules");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, patterns_choose_modules, 0, MX_COUNT(choices));
    tcase_add_loop_test(tcase, all_adapters_merge, 0, MX_COUNT(everything));
    tcase_add_test(tcase, the_base_keeps_its_bytes);
    tcase_add_loop_test(tcase, all_adapters_have_their_gradient, 0, DIFFERENTIABLE);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("cost");
    tcase_add_loop_test(tcase, frozen_weights_cost_no_gradient, 0, MX_COUNT(programs));
    tcase_add_loop_test(tcase, adapters_of_one_input_share_a_product, 0, MX_COUNT(products));
    tcase_add_test(tcase, memory_is_that_of_the_adapters);
    tcase_add_loop_test(tcase, frozen_weights_are_cast_once, 0, MX_COUNT(with_casts));
    tcase_add_test(tcase, casts_follow_the_weights);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, checkpoints_know_their_base);
    tcase_add_test(tcase, adapters_start_another_run);
    tcase_add_loop_test(tcase, adapters_that_do_not_fit_are_told, 0, MX_COUNT(misfits));
    suite_add_tcase(suite, tcase);
    return suite;
}
