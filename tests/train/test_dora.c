/* test_dora.c — adapters with magnitudes (lora.use_dora): what peft computes with them, from a
 * folder of its own and back into one, and runs that train them. */
#include "close.h"
#include "common/saving.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <mx/ckpt_hf.h>
#include <mx/ckpt_peft.h>

#include <check.h>
#include <math.h>

/* ---- a folder of peft's */

static const char folder[] = "train/peft_dora";

/* Its modules, and ours. */
static const struct {
    const char *theirs, *ours;
} modules[] = {{"q_proj", "self_attention/query"},
               {"v_proj", "self_attention/value"},
               {"o_proj", "self_attention/out"},
               {"down_proj", "mlp/wo"}};

static const char config[] =
    "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=3 lora.use_dora=true "
    "lora.lora_module_path=.*(query|value|attention/out|wo) dataset_type=synthetic "
    "per_device_batch_size=2 max_target_length=9 query_pre_attn_scalar=4";

typedef struct Dora {
    MxArena arena;
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
    MxHfModel model;
    const char *dir, *base;
    MxError err;
} Dora;

/* With what peft made of it in a file, and more words. */
static void open_with(Dora *d, const char *file, const char *more) {
    *d = (Dora){.arena = {.name = "dora"}};
    MxCkptRef from;
    d->file = golden_open(&d->arena, file);
    ck_assert_ptr_nonnull(d->file);
    d->dir = goldens_need(&d->arena, folder);
    d->base = mx_path_join(&d->arena, d->dir, "base");
    const char *json = mx_path_join(&d->arena, d->base, "config.json");
    ck_assert_msg(mx_hf_read_config(&d->arena, json, &d->model, &d->err), "%s", d->err.text.data);
    d->config = golden_text_config(&d->arena, mx_hf_yaml(&d->arena, &d->model),
                                   mx_arena_printf(&d->arena, "%s %s", config, more));
    ck_assert_msg(mx_train_state_open(&d->arena, d->config, &d->state, &d->err), "%s",
                  d->err.text.data);
    d->tree = mx_train_state_tree(d->state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(d->state));
    ck_assert(mx_ckpt_find(&d->arena, d->base, NULL, &from, &d->err));
    from.heads = &heads;
    MxHfModel theirs;
    ck_assert_msg(mx_hf_load(&d->arena, &from, d->tree, &theirs, &d->err) &&
                      mx_train_start_adapters(d->state, &d->err),
                  "%s", d->err.text.data);
    d->model = mx_hf_of_config(d->config, heads);
}

static void open_dora(Dora *d) {
    open_with(d, "train/peft_dora/expected.h5", "");
}

static void load_dora(Dora *d) {
    double scale = mx_model_lora(mx_train_state_model(d->state))->scale;
    ck_assert_msg(mx_peft_load(d->dir, &d->model, scale, d->tree, &d->err), "%s", d->err.text.data);
}

static void close_dora(Dora *d) {
    mx_error_release(&d->err);
    mx_arena_release(&d->arena);
}

/* Every token is predicted from those before it. */
static MxBatch next_tokens(Dora *d) {
    int64_t n, length = d->config->max_target_length;
    const float *ids = golden_read(&d->arena, d->file, "input_ids", &n);
    MxBatch batch = mx_batch_new(&d->arena, n / length, length);
    for (int64_t i = 0; i < n; i++) {
        bool is_last = i % length == length - 1;
        batch.field[MX_INPUTS][i] = (int32_t)ids[i];
        batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % length);
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch.field[MX_TARGETS][i] = is_last ? 0 : (int32_t)ids[i + 1];
        batch.field[MX_TARGETS_SEGMENTATION][i] = !is_last;
    }
    return batch;
}

static const MxLeaf *leaf_of(Dora *d, int module, const char *suffix, int *at) {
    *at = mx_tree_find(d->tree, mx_arena_printf(&d->arena, "model/decoder/layers_0/%s/kernel%s",
                                                modules[module].ours, suffix));
    ck_assert_int_ge(*at, 0);
    return &d->tree->leaves[*at];
}

/* Their array of a module in our layout: what has two dims is transposed. */
static const float *want_of(Dora *d, const char *group, int module, const char *which,
                            const MxLeaf *leaf) {
    int64_t n, size = mx_shape_count(leaf->shape), rows = leaf->shape.dim[0];
    const char *path = mx_arena_printf(&d->arena, "%s%s.%s", group, modules[module].theirs, which);
    const float *theirs = golden_read(&d->arena, d->file, path, &n);
    ck_assert_msg(theirs && n == size, "no %s", path);
    if (strstr(leaf->path, "attention/out/kernel") && leaf->shape.rank == 3)
        rows *= leaf->shape.dim[1];
    float *ours = mx_new_n(&d->arena, float, n);
    for (int64_t i = 0; i < n; i++) ours[i] = theirs[i % (n / rows) * rows + i / (n / rows)];
    return ours;
}

/* Loss and gradients of a training pass over the batch; `groups` of the file has theirs. */
static void compare_training(Dora *d, const MxBatch *batch, const char *golden, const char *group) {
    static const char *const halves[][2] = {{"A", "_lora_a"}, {"B", "_lora_b"}, {"M", "_lora_m"}};
    int64_t n;
    int at;
    Close c = {.golden = golden, .kind = CLOSE_LOSS, .what = "loss"};
    const char *path = mx_arena_printf(&d->arena, "%sloss", group);
    close_number(&c, mx_train_loss_and_grad(d->state, batch).loss,
                 (double)*golden_read(&d->arena, d->file, path, &n));
    for (int i = 0; i < MX_COUNT(modules); i++)
        for (int k = 0; k < MX_COUNT(halves) - !d->config->lora_use_dora; k++) {
            const MxLeaf *leaf = leaf_of(d, i, halves[k][1], &at);
            c = (Close){.golden = golden, .kind = CLOSE_GRADIENT, .what = leaf->path};
            close_array(&c, mx_train_gradient(&d->arena, d->state, at),
                        want_of(d, group, i, halves[k][0], leaf), mx_shape_count(leaf->shape));
        }
}

START_TEST(peft_computes_the_same) {
    Dora d;
    int64_t n;
    open_dora(&d);
    load_dora(&d);
    close_nudge(d.tree);
    MxBatch batch = next_tokens(&d);
    const float *want = golden_read(&d.arena, d.file, "logits", &n);
    Close c = {.golden = folder, .kind = CLOSE_LOGITS, .what = "logits"};
    close_array(&c, golden_logits(golden_program(&d.arena, d.config, false), d.tree, &batch), want,
                n);
    compare_training(&d, &batch, folder, "");
    close_dora(&d);
}
END_TEST

static void copy_adapters(const MxTree *from, const MxTree *to, MxArena *arena) {
    for (int i = 0; i < to->n; i++)
        if (to->leaves[i].kind == MX_KIND_LORA_PARAM)
            mx_leaf_write(
                &to->leaves[i],
                mx_leaf_values(arena, &from->leaves[mx_tree_find(from, to->leaves[i].path)]));
}

/* peft drops what we drop: its dropouts have our masks. Without magnitudes, and with them; with
 * transformers' noise, of our numbers. */
START_TEST(peft_drops_the_same) {
    static const char file[] = "train/peft_dropout.h5";
    static const struct {
        const char *group, *golden, *more;
    } cases[] = {
        {"lora/", "train/peft_dropout.h5:lora", "lora.use_dora=false"},
        {"dora/", "train/peft_dropout.h5:dora", ""},
        {"noise/", "train/peft_dropout.h5:noise", "lora.use_dora=false neftune_noise_alpha=5"}};
    Dora whole, d;
    MxArena words = {.name = "words"};
    open_dora(&whole);
    load_dora(&whole);
    MxBatch batch = next_tokens(&whole);
    open_with(&d, file, mx_arena_printf(&words, "lora.lora_dropout=0.3 %s", cases[_i].more));
    copy_adapters(whole.tree, d.tree, &d.arena);
    close_nudge(d.tree);
    compare_training(&d, &batch, cases[_i].golden, cases[_i].group);
    mx_arena_release(&words);
    close_dora(&whole);
    close_dora(&d);
}
END_TEST

/* Three steps of LoRA+ with AdamW: A learns at one rate, B and magnitudes at another. */
START_TEST(peft_learns_at_the_same_rates) {
    static const char *const halves[][2] = {{"A", "_lora_a"}, {"B", "_lora_b"}, {"M", "_lora_m"}};
    static const char golden[] = "train/peft_plus.h5";
    enum { STEPS = 3 };
    Dora whole, d;
    int64_t n;
    int at;
    open_dora(&whole);
    MxBatch batch = next_tokens(&whole);
    open_with(&d, golden,
              "lora.loraplus_lr_ratio=8 learning_rate=0.01 adam_weight_decay=0.1 steps=3 "
              "gradient_clipping_threshold=0 warmup_steps_fraction=0 "
              "learning_rate_final_fraction=1");
    load_dora(&d);
    close_nudge(d.tree);
    const float *loss = golden_read(&d.arena, d.file, "loss", &n);
    for (int step = 0; step < STEPS; step++) {
        Close c = {.golden = golden,
                   .kind = step ? CLOSE_LATER_LOSS : CLOSE_LOSS,
                   .what = mx_arena_printf(&d.arena, "loss %d", step)};
        close_number(&c, mx_train_loss_and_grad(d.state, &batch).loss, (double)loss[step]);
        mx_train_update(d.state);
    }
    for (int i = 0; i < MX_COUNT(modules); i++)
        for (int k = 0; k < MX_COUNT(halves); k++) {
            const MxLeaf *leaf = leaf_of(&d, i, halves[k][1], &at);
            Close c = {.golden = golden, .what = leaf->path};
            close_final(&c, mx_leaf_values(&d.arena, leaf), want_of(&d, "", i, halves[k][0], leaf),
                        mx_shape_count(leaf->shape));
        }
    close_dora(&whole);
    close_dora(&d);
}
END_TEST

START_TEST(peft_merges_the_same) {
    Dora d;
    MxText notes;
    int at;
    open_dora(&d);
    load_dora(&d);
    mx_text_init(&notes, &d.arena);
    ck_assert_msg(merge_adapters(&d.arena, "build/tests/dora.h5", 3, d.tree, &notes, &d.err), "%s",
                  d.err.text.data);
    for (int i = 0; i < MX_COUNT(modules); i++) {
        const MxLeaf *leaf = leaf_of(&d, i, "", &at);
        double off = golden_max_abs(mx_leaf_values(&d.arena, leaf), want_of(&d, "", i, "W", leaf),
                                    mx_shape_count(leaf->shape));
        ck_assert_msg(off <= 1e-6, "%s is off by %g", leaf->path, off);
    }
    close_dora(&d);
}
END_TEST

/* Every tensor of their folder with its bits. */
START_TEST(peft_gets_its_own_back) {
    static const char dir[] = "build/tests/peft_dora", tensors[] = "adapter_model.safetensors";
    Dora d;
    MxCkptRef ref;
    MxText notes;
    MxTensors *ours, *theirs;
    MxBytes text;
    open_dora(&d);
    load_dora(&d);
    MxPeftConvert how = {.model = &d.model, .alpha = 3, .dropout = 0.25, .base = "base"};
    mx_text_init(&notes, &d.arena);
    ck_assert_msg(mx_dir_make(dir, &d.err) &&
                      save_file(&d.arena, "build/tests/peft_dora.h5", d.tree, &ref, &d.err) &&
                      mx_peft_convert(&ref, &how, dir, &notes, &d.err),
                  "%s", d.err.text.data);
    ck_assert(mx_tensors_open(&d.arena, mx_path_join(&d.arena, dir, tensors), &ours, &d.err) &&
              mx_tensors_open(&d.arena, mx_path_join(&d.arena, d.dir, tensors), &theirs, &d.err) &&
              mx_file_read(&d.arena, "build/tests/peft_dora/adapter_config.json", 1 << 16, &text,
                           &d.err));
    ck_assert(strstr((const char *)text.data, "\"use_dora\": true") != NULL);
    ck_assert(strstr((const char *)text.data, "\"lora_dropout\": 0.25") != NULL);
    ck_assert_int_eq(mx_tensors_count(ours), mx_tensors_count(theirs));
    for (int i = 0; i < mx_tensors_count(theirs); i++) {
        const MxTensor *a = mx_tensors_at(theirs, i), *b = mx_tensors_find(ours, a->name);
        ck_assert_msg(b && mx_shape_equal(a->shape, b->shape), "%s", a->name);
        int64_t n = mx_shape_count(a->shape);
        float *x = mx_new_n(&d.arena, float, n), *y = mx_new_n(&d.arena, float, n);
        ck_assert(mx_tensors_read(theirs, a, x, &d.err) && mx_tensors_read(ours, b, y, &d.err));
        ck_assert_msg(!memcmp(x, y, (size_t)n * sizeof *x), "%s", a->name);
    }
    close_dora(&d);
}
END_TEST

/* ---- models of our own */

static const char small[] =
    "base_emb_dim=48 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2 "
    "head_dim=16 base_mlp_dim=80 vocab_size=1000 max_target_length=24 per_device_batch_size=2 "
    "dataset_type=synthetic lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 "
    "lora.use_dora=true ";

typedef struct Own {
    MxArena arena;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
    MxBatch batch;
} Own;

static bool has_end(const MxLeaf *leaf, const char *end) {
    return mx_text_has_suffix(leaf->path, end);
}

static void open_own(Own *o, const char *more) {
    MxError err = {0};
    *o = (Own){.arena = {.name = "own"}};
    ck_assert_msg(golden_config(&o->arena, small, more, &o->config, &err) &&
                      mx_train_state_open(&o->arena, o->config, &o->state, &err),
                  "%s", err.text.data);
    o->tree = mx_train_state_tree(o->state);
    o->batch = mx_batch_new(&o->arena, 2, o->config->max_target_length);
    for (int64_t i = 0; i < o->batch.rows * o->batch.length; i++) {
        o->batch.field[MX_INPUTS][i] = (int32_t)(37 * i % 1000);
        o->batch.field[MX_TARGETS][i] = (int32_t)(37 * (i + 1) % 1000);
        o->batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % o->batch.length);
        o->batch.field[MX_INPUTS_SEGMENTATION][i] = o->batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    }
}

static void start_own(Own *o) {
    MxError err = {0};
    mx_train_state_init(o->state);
    ck_assert_msg(mx_train_start_adapters(o->state, &err), "%s", err.text.data);
}

static double loss_of(Own *o) {
    return mx_train_eval(o->state, &o->batch).loss;
}

/* As training begins. */
static double first_loss(Own *o) {
    mx_train_state_begin(o->state);
    return mx_train_loss_and_grad(o->state, &o->batch).loss;
}

/* B is not 0, and magnitudes are no norms. */
static void move_adapters(Own *o) {
    for (int i = 0; i < o->tree->n; i++) {
        const MxLeaf *leaf = &o->tree->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        float *x = golden_values(&o->arena, leaf);
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++) {
            uint32_t draw[4];
            mx_philox(3, (uint64_t)i, (uint64_t)k, draw);
            float u = mx_uniform(draw[0]);
            x[k] = has_end(leaf, "_lora_m") ? x[k] * (0.6f + 0.8f * u) : 0.4f * u - 0.2f;
        }
        mx_leaf_write(leaf, x);
    }
}

static void clear_adapters(Own *o) {
    for (int i = 0; i < o->tree->n; i++)
        if (o->tree->leaves[i].kind == MX_KIND_LORA_PARAM)
            mx_leaf_write(&o->tree->leaves[i],
                          mx_arena_alloc(&o->arena, mx_leaf_bytes(&o->tree->leaves[i])));
}

#define MATRICES "lora.lora_module_path=(?!.*(norm|MoeBlock_0$|MoeBlock_0/w)).* "

static const char *const own_models[] = {
    MATRICES, /* the output matrix too */
    MATRICES "attention_bias=true scan_layers=false pure_nnx=false",
    MATRICES "fused_qkv=true fused_mlp=true remat_policy=full",
    MATRICES "decoder_block=mixtral num_experts=4 num_experts_per_tok=4 base_moe_mlp_dim=80",
    MATRICES "decoder_block=deepseek attention_type=mla first_num_dense_layers=2 q_lora_rank=24 "
             "kv_lora_rank=48 qk_nope_head_dim=16 qk_rope_head_dim=8 v_head_dim=12",
    "dtype=bfloat16",
    "weight_dtype=bfloat16",
    "lora.lora_weight_qtype=nf4 lora.lora_tile_size=16",
    "enable_diloco=true",
};
enum { EXACT = 5 }; /* of these; the rest are rounded, or have more than one of a parameter */

/* At first a model is what its weights are. */
START_TEST(magnitudes_begin_as_norms) {
    Own o;
    open_own(&o, own_models[_i]);
    start_own(&o);
    double with = first_loss(&o), bound = _i < EXACT ? 1e-6 : 1e-3;
    for (int i = 0; i < o.tree->n; i++) {
        const MxLeaf *leaf = &o.tree->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM || !has_end(leaf, "_lora_m")) continue;
        const float *m = golden_values(&o.arena, leaf);
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++)
            ck_assert_msg(m[k] > 0, "%s", leaf->path);
    }
    Own plain;
    open_own(&plain, mx_arena_printf(&o.arena, "%s lora.use_dora=false", own_models[_i]));
    start_own(&plain);
    double without = first_loss(&plain);
    ck_assert_msg(fabs(with - without) <= bound * without, "%.9g and %.9g", with, without);
    mx_arena_release(&plain.arena);
    mx_arena_release(&o.arena);
}
END_TEST

/* Merged weights compute the same, with adapters that begin again over them. */
START_TEST(merged_weights_compute_the_same) {
    Own o;
    MxError err = {0};
    MxText notes;
    open_own(&o, own_models[_i]);
    start_own(&o);
    double start = loss_of(&o);
    move_adapters(&o);
    double before = loss_of(&o);
    ck_assert_double_gt(fabs(before - start), 1e-3);
    mx_text_init(&notes, &o.arena);
    const char *path = mx_arena_printf(&o.arena, "build/tests/own.%d.h5", _i);
    ck_assert_msg(merge_adapters(&o.arena, path, 8, o.tree, &notes, &err), "%s", err.text.data);
    clear_adapters(&o);
    ck_assert_msg(mx_train_start_adapters(o.state, &err), "%s", err.text.data);
    ck_assert_double_eq_tol(loss_of(&o), before, 1e-5 * before);
    mx_arena_release(&o.arena);
}
END_TEST

/* Weights that come with adapters keep the magnitudes of these. */
START_TEST(magnitudes_are_read_with_weights) {
    static const char *const forms[] = {"", "scan_layers=false pure_nnx=false"};
    static const char path[] = "build/tests/own_read.h5";
    Own o, again;
    MxError err = {0};
    MxCkptRef ref;
    open_own(&o, forms[_i]);
    start_own(&o);
    move_adapters(&o);
    double before = loss_of(&o);
    ck_assert_msg(save_file(&o.arena, path, o.tree, &ref, &err), "%s", err.text.data);
    open_own(&again, forms[_i]);
    mx_train_state_init(again.state);
    ck_assert_msg(mx_ckpt_load_params(path, NULL, 1, again.tree, &err) &&
                      mx_train_start_adapters(again.state, &err),
                  "%s", err.text.data);
    ck_assert_double_eq(loss_of(&again), before);
    mx_arena_release(&again.arena);
    open_own(&again, "lora.use_dora=false");
    ck_assert(!mx_ckpt_load_params(path, NULL, 1, again.tree, &err));
    ck_assert_msg(strstr(err.text.data, "kernel_lora_m\""), "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&again.arena);
    mx_arena_release(&o.arena);
}
END_TEST

/* The reference without adapters is what a copy of the model was at its start. */
START_TEST(a_reference_has_no_magnitudes) {
    static const char *const references[] = {"lora_off", "copy"};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        Own o;
        const char *reference = references[i];
        MxArena arena = {.name = "words"};
        open_own(&o,
                 mx_arena_printf(&arena, "use_dpo=true per_device_batch_size=1 dpo.reference=%s",
                                 reference));
        start_own(&o);
        mx_train_state_begin(o.state);
        double start = loss_of(&o);
        ck_assert_double_eq_tol(start, log(2), 1e-5);
        move_adapters(&o);
        loss[i] = loss_of(&o);
        ck_assert_double_gt(fabs(loss[i] - start), 1e-3);
        mx_arena_release(&o.arena);
        mx_arena_release(&arena);
    }
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-5 * loss[1]);
}
END_TEST

/* An output whose weights are all 0 has no direction. */
START_TEST(zeros_have_no_direction) {
    Own o;
    MxError err = {0};
    open_own(&o, "");
    mx_train_state_init(o.state);
    int at = mx_tree_find(o.tree, "model/decoder/layers_1/mlp/wo/kernel");
    const MxLeaf *leaf = &o.tree->leaves[at];
    float *w = golden_values(&o.arena, leaf);
    for (int64_t k = 0; k < leaf->shape.dim[0]; k++) w[k * leaf->shape.dim[1] + 7] = 0;
    mx_leaf_write(leaf, w);
    ck_assert(!mx_train_start_adapters(o.state, &err));
    ck_assert_msg(strstr(err.text.data, "lora.use_dora: the weights of output 7 of "
                                        "\"decoder/layers_1/mlp/wo/kernel\" have no direction"),
                  "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&o.arena);
}
END_TEST

Suite *dora_suite(void) {
    Suite *suite = suite_create("dora");
    TCase *tcase = tcase_create("peft");
    tcase_add_test(tcase, peft_computes_the_same);
    tcase_add_loop_test(tcase, peft_drops_the_same, 0, 3);
    tcase_add_test(tcase, peft_learns_at_the_same_rates);
    tcase_add_test(tcase, peft_merges_the_same);
    tcase_add_test(tcase, peft_gets_its_own_back);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("own");
    tcase_add_loop_test(tcase, magnitudes_begin_as_norms, 0, MX_COUNT(own_models));
    tcase_add_loop_test(tcase, merged_weights_compute_the_same, 0, EXACT);
    tcase_add_loop_test(tcase, magnitudes_are_read_with_weights, 0, 2);
    tcase_add_test(tcase, a_reference_has_no_magnitudes);
    tcase_add_test(tcase, zeros_have_no_direction);
    suite_add_tcase(suite, tcase);
    return suite;
}
