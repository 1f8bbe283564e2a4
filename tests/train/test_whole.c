/* test_whole.c — what is trained as it is beside adapters (lora.modules_to_save): of every family
 * it has the gradients of a run that trains everything, and it goes where adapters go. */
#include "common/families.h"
#include "common/saving.h"
#include "golden.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

enum { LENGTH = 24, VOCAB = 96 };

static const char suffix[] = "_lora_w";

typedef struct Own {
    MxArena arena;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
    MxBatch batch;
} Own;

static void open_own(Own *o, const char *words, const char *more) {
    MxError err = {0};
    *o = (Own){.arena = {.name = "own"}};
    ck_assert_msg(golden_config(&o->arena, words, more, &o->config, &err) &&
                      mx_train_state_open(&o->arena, o->config, &o->state, &err),
                  "%s: %s", more, err.text.data);
    o->tree = mx_train_state_tree(o->state);
    o->batch = mx_batch_new(&o->arena, 2, o->config->max_target_length);
    for (int64_t i = 0; i < o->batch.rows * o->batch.length; i++) {
        o->batch.field[MX_INPUTS][i] = (int32_t)(37 * i % VOCAB);
        o->batch.field[MX_TARGETS][i] = (int32_t)(37 * (i + 1) % VOCAB);
        o->batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % o->batch.length);
        o->batch.field[MX_INPUTS_SEGMENTATION][i] = o->batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    }
    mx_train_state_init(o->state);
    ck_assert_msg(mx_train_start_adapters(o->state, &err), "%s", err.text.data);
}

static void close_own(Own *o) {
    mx_arena_release(&o->arena);
}

static double loss_of(Own *o) {
    return mx_train_eval(o->state, &o->batch).loss;
}

static void step(Own *o) {
    mx_train_loss_and_grad(o->state, &o->batch);
    mx_train_update(o->state);
}

/* ---- all families */

#define REST                                                                                       \
    "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 "                                    \
    "lora.lora_module_path=decoder/decoder_norm "                                                  \
    "lora.modules_to_save=(?!decoder/decoder_norm(/scale)?$).* "

static double norm_of(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Everything but one norm is trained as it is: a use of a weight that read what is frozen would be
 * missing in its gradient. */
static void compare_gradients(Own *o, Own *plain, const char *family) {
    const MxTree *params = mx_model_params(mx_train_state_model(o->state));
    const MxTree *all = mx_model_params(mx_train_state_model(plain->state));
    int n_compared = 0, n_trained = 0;
    for (int i = 0; i < all->n; i++) {
        const MxLeaf *leaf = &all->leaves[i];
        int64_t n = mx_shape_count(leaf->shape);
        const float *want = mx_train_gradient(&plain->arena, plain->state, i);
        n_trained += want && norm_of(want, NULL, n) > 0;
        int at = mx_tree_find(params, mx_arena_printf(&o->arena, "%s%s", leaf->path, suffix));
        if (at < 0) continue;
        const float *got = mx_train_gradient(&o->arena, o->state, at);
        ck_assert_str_eq(params->leaves[at].stands_for, leaf->path);
        ck_assert_msg(norm_of(got, want, n) <= 1e-6 * norm_of(want, NULL, n), "%s: gradient of %s",
                      family, leaf->path);
        n_compared += norm_of(want, NULL, n) > 0;
    }
    ck_assert_int_eq(n_compared, n_trained - 1); /* the norm */
}

START_TEST(gradients_are_those_of_training_everything) {
    const char *family = family_model(_i);
    if (!family) return;
    MxArena arena = {.name = "words"};
    Own o, plain;
    const char *words =
        mx_arena_printf(&arena, "%s max_target_length=%d", family_small(&arena, family), LENGTH);
    open_own(&o, words, REST);
    open_own(&plain, words, "");
    double got = mx_train_loss_and_grad(o.state, &o.batch).loss;
    ck_assert_double_eq(got, mx_train_loss_and_grad(plain.state, &plain.batch).loss);
    compare_gradients(&o, &plain, family);
    close_own(&plain);
    close_own(&o);
    mx_arena_release(&arena);
}
END_TEST

/* ---- runs of our own */

static const char small[] =
    "base_emb_dim=48 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2 "
    "head_dim=16 base_mlp_dim=80 vocab_size=96 max_target_length=24 per_device_batch_size=2 "
    "learning_rate=0.1 warmup_steps_fraction=0 steps=10 dataset_type=synthetic "
    "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 ";

#define ENDS "lora.modules_to_save=token_embedder|.*norm|.*logits_dense "

static const char *const own_models[] = {
    ENDS,
    ENDS "logits_via_embedding=true scan_layers=false pure_nnx=false",
    "lora.modules_to_save=.*/bias attention_bias=true lora.use_dora=true",
    "lora.modules_to_save=.*MoeBlock_0 decoder_block=mixtral num_experts=4 num_experts_per_tok=2 "
    "base_moe_mlp_dim=80 remat_policy=full",
    ENDS "lora.lora_weight_qtype=nf4 lora.lora_tile_size=16",
    ENDS "weight_dtype=bfloat16",
    ENDS "enable_diloco=true",
};
enum { MERGED = 4 }; /* of these; others are rounded, or there is more than one of a parameter */

static bool is_whole(const MxLeaf *leaf) {
    return leaf->kind == MX_KIND_LORA_PARAM && mx_text_has_suffix(leaf->path, suffix);
}

static int base_of(const Own *o, const MxLeaf *leaf) {
    MxArena arena = {.name = "base"};
    int at = mx_tree_find(o->tree, mx_path_join(&arena, "model", leaf->stands_for));
    mx_arena_release(&arena);
    return at;
}

static void *bytes_of(Own *o, int at) {
    const MxLeaf *leaf = &o->tree->leaves[at];
    void *bytes = mx_arena_alloc(&o->arena, mx_leaf_bytes(leaf));
    mx_leaf_read(leaf, bytes);
    return bytes;
}

/* At first it is what it stands for; then that stays, and it does not, but for parameters that are
 * apart from those which steps make. */
START_TEST(the_base_stays) {
    Own o;
    open_own(&o, small, own_models[_i]);
    int n = 0;
    void **base = mx_new_n(&o.arena, void *, o.tree->n);
    for (int i = 0; i < o.tree->n; i++) {
        const MxLeaf *leaf = &o.tree->leaves[i];
        if (!is_whole(leaf)) continue;
        base[i] = bytes_of(&o, base_of(&o, leaf));
        ck_assert_msg(!memcmp(mx_leaf_values(&o.arena, leaf), base[i], mx_leaf_bytes(leaf)),
                      "%s is another", leaf->path);
        n++;
    }
    ck_assert_int_gt(n, 0);
    mx_train_state_begin(o.state);
    for (int k = 0; k < 2; k++) step(&o);
    for (int i = 0; i < o.tree->n; i++) {
        const MxLeaf *leaf = &o.tree->leaves[i];
        if (!base[i]) continue;
        ck_assert(!memcmp(base[i], bytes_of(&o, base_of(&o, leaf)), mx_leaf_bytes(leaf)));
        bool is_same = !memcmp(base[i], mx_leaf_values(&o.arena, leaf), mx_leaf_bytes(leaf));
        ck_assert_msg(is_same == o.config->enable_diloco, "%s stays", leaf->path);
    }
    close_own(&o);
}
END_TEST

static void clear_adapters(Own *o) {
    for (int i = 0; i < o->tree->n; i++)
        if (o->tree->leaves[i].kind == MX_KIND_LORA_PARAM)
            mx_leaf_write(&o->tree->leaves[i],
                          mx_arena_alloc(&o->arena, mx_leaf_bytes(&o->tree->leaves[i])));
}

/* Merged weights compute the same, with adapters that begin again over them. */
START_TEST(merged_weights_compute_the_same) {
    Own o;
    MxError err = {0};
    MxText notes;
    open_own(&o, small, own_models[_i]);
    double start = loss_of(&o);
    for (int k = 0; k < 2; k++) step(&o);
    double before = loss_of(&o);
    ck_assert_double_gt(fabs(before - start), 1e-3);
    mx_text_init(&notes, &o.arena);
    const char *path = mx_arena_printf(&o.arena, "build/tests/whole.%d.h5", _i);
    ck_assert_msg(merge_adapters(&o.arena, path, 8, o.tree, &notes, &err), "%s", err.text.data);
    ck_assert_ptr_nonnull(strstr(notes.data, "weights by what was trained in their place"));
    clear_adapters(&o);
    ck_assert_msg(mx_train_start_adapters(o.state, &err), "%s", err.text.data);
    ck_assert_double_eq_tol(loss_of(&o), before, 1e-5 * before);
    close_own(&o);
}
END_TEST

/* Weights that come with adapters keep what was trained; a run that trains less of it, or more,
 * cannot take it. */
START_TEST(it_is_read_with_weights) {
    static const char *const forms[] = {ENDS, ENDS "scan_layers=false pure_nnx=false"};
    static const char path[] = "build/tests/whole_read.h5";
    Own o, again;
    MxError err = {0};
    MxCkptRef ref;
    open_own(&o, small, forms[_i]);
    step(&o);
    double before = loss_of(&o);
    ck_assert_msg(save_file(&o.arena, path, o.tree, &ref, &err), "%s", err.text.data);
    open_own(&again, small, forms[_i]);
    ck_assert_msg(mx_ckpt_load_params(path, NULL, 1, again.tree, &err) &&
                      mx_train_start_adapters(again.state, &err),
                  "%s", err.text.data);
    ck_assert_double_eq(loss_of(&again), before);
    close_own(&again);
    open_own(&again, small, "");
    ck_assert(!mx_ckpt_load_params(path, NULL, 1, again.tree, &err));
    ck_assert_msg(strstr(err.text.data, "embedding_lora_w\""), "%s", err.text.data);
    mx_error_release(&err);
    close_own(&again);
    close_own(&o);
}
END_TEST

/* The reference without adapters is what a copy of the model was at its start. */
START_TEST(a_reference_reads_the_base) {
    static const char *const references[] = {"lora_off", "copy"};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        Own o;
        MxArena arena = {.name = "words"};
        open_own(&o, small,
                 mx_arena_printf(&arena,
                                 ENDS "use_dpo=true per_device_batch_size=1 dpo.reference=%s",
                                 references[i]));
        mx_train_state_begin(o.state);
        ck_assert_double_eq_tol(loss_of(&o), log(2), 1e-5);
        for (int k = 0; k < 2; k++) step(&o);
        loss[i] = loss_of(&o);
        ck_assert_double_gt(fabs(loss[i] - log(2)), 1e-3);
        close_own(&o);
        mx_arena_release(&arena);
    }
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-5 * loss[1]);
}
END_TEST

/* What a pattern chooses, layers that are stacked once. */
static const struct {
    const char *config, *chosen;
} choices[] = {
    {"lora.modules_to_save=token_embedder", "token_embedder/embedding"},
    {"lora.modules_to_save=decoder/decoder_norm/scale", "decoder/decoder_norm/scale"},
    {"lora.modules_to_save=decoder/layers/.*norm",
     "decoder/layers/pre_self_attention_layer_norm/scale "
     "decoder/layers/post_self_attention_layer_norm/scale"},
    {"lora.modules_to_save=decoder/layers/pre.*norm scan_layers=false",
     "decoder/layers_0/pre_self_attention_layer_norm/scale "
     "decoder/layers_1/pre_self_attention_layer_norm/scale"},
    {"lora.modules_to_save=.*/bias attention_bias=true",
     "decoder/layers/self_attention/query/bias decoder/layers/self_attention/key/bias "
     "decoder/layers/self_attention/value/bias decoder/layers/self_attention/out/bias"},
    /* none of these is a whole path, so those that hold a match are */
    {"lora.modules_to_save=embedder|logits",
     "token_embedder/embedding decoder/logits_dense/kernel"},
    /* a bias that no gradient reaches */
    {"lora.modules_to_save=.*gate decoder_block=deepseek attention_type=mla num_experts=4 "
     "num_experts_per_tok=2 routed_bias=true first_num_dense_layers=1 base_moe_mlp_dim=16 "
     "routed_score_func=sigmoid",
     "decoder/moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/gate/kernel"},
};

START_TEST(patterns_choose_parameters) {
    Own o;
    MxText names;
    open_own(&o, small, choices[_i].config);
    mx_text_init(&names, &o.arena);
    const MxLora *lora = mx_model_lora(mx_train_state_model(o.state));
    for (int i = 0; i < lora->n_whole; i++)
        mx_text_add(&names, "%s%s", i ? " " : "", lora->whole[i]);
    ck_assert_str_eq(names.data, choices[_i].chosen);
    close_own(&o);
}
END_TEST

Suite *whole_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("whole");
    TCase *tcase = tcase_create("families");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, gradients_are_those_of_training_everything, 0, family_models());
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("own");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, the_base_stays, 0, MX_COUNT(own_models));
    tcase_add_loop_test(tcase, merged_weights_compute_the_same, 0, MERGED);
    tcase_add_loop_test(tcase, it_is_read_with_weights, 0, 2);
    tcase_add_test(tcase, a_reference_reads_the_base);
    tcase_add_loop_test(tcase, patterns_choose_parameters, 0, MX_COUNT(choices));
    suite_add_tcase(suite, tcase);
    return suite;
}
