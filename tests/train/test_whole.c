/* test_whole.c — what is trained as it is beside adapters (lora.modules_to_save): of every family
 * it has the gradients of a run that trains everything, and it goes where adapters go. */
#include "common/families.h"
#include "common/saving.h"
#include "golden.h"
#include "train_test.h"

#include <mx/ckpt_peft.h>

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

static void *bytes_of(Own *o, int at) {
    const MxLeaf *leaf = &o->tree->leaves[at];
    void *bytes = mx_arena_alloc(&o->arena, mx_leaf_bytes(leaf));
    mx_leaf_read(leaf, bytes);
    return bytes;
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

/* ---- beside peft */

typedef struct Peft {
    const char *folder, *config;
    int n_tensors;
    const char *said[3]; /* in adapter_config.json */
} Peft;

static const Peft pefts[] = {
    {"train/peft_whole/untied",
     "lora.lora_module_path=.*(query|wo) "
     "lora.modules_to_save=token_embedder|decoder/logits_dense|.*norm|.*query/bias",
     10,
     {"\"bias\": \"lora_only\"", "\"modules_to_save\": [\n  \"embed_tokens\",",
      "\"post_attention_layernorm\""}},
    {"train/peft_whole/tied",
     "lora.lora_module_path=.*(value|attention/out) lora.modules_to_save=token_embedder",
     6,
     {"\"bias\": \"none\"", "\"ensure_weight_tying\": true", "\"embed_tokens\""}},
    {"train/peft_whole/apart",
     "lora.lora_module_path=.*(key|wi_1) lora.modules_to_save=token_embedder|decoder/logits_dense "
     "logits_via_embedding=false",
     6,
     {"\"embed_tokens\",\n", "\"lm_head\"", "\"bias\": \"none\""}},
};

static const char steps_of_peft[] =
    "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=3 dataset_type=synthetic "
    "per_device_batch_size=2 max_target_length=9 learning_rate=0.02 warmup_steps_fraction=0 "
    "learning_rate_final_fraction=1 steps=100 adam_b2=0.95 adam_eps=0.001 adam_weight_decay=0.1 "
    "gradient_clipping_threshold=0 ";

typedef struct Beside {
    const Peft *peft;
    const char *dir;
    MxH5 *file;
    MxHfModel model;
    Own own;
} Beside;

/* A model of theirs with the adapters that training begins with. */
static void open_beside(Beside *b, const Peft *peft, const char *more) {
    MxError err = {0};
    Own *o = &b->own;
    *b = (Beside){.peft = peft, .own = {.arena = {.name = "peft"}}};
    MxCkptRef from;
    b->file = golden_open(&o->arena, mx_path_join(&o->arena, peft->folder, "expected.h5"));
    ck_assert_ptr_nonnull(b->file);
    b->dir = goldens_need(&o->arena, peft->folder);
    const char *base = mx_path_join(&o->arena, b->dir, "base");
    const char *json = mx_path_join(&o->arena, base, "config.json");
    ck_assert_msg(mx_hf_read_config(&o->arena, json, &b->model, &err), "%s", err.text.data);
    o->config =
        golden_text_config(&o->arena, mx_hf_yaml(&o->arena, &b->model),
                           mx_arena_printf(&o->arena, "%s%s%s", steps_of_peft, peft->config, more));
    ck_assert_msg(mx_train_state_open(&o->arena, o->config, &o->state, &err), "%s", err.text.data);
    mx_train_state_init(o->state);
    o->tree = mx_train_state_tree(o->state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(o->state));
    ck_assert(mx_ckpt_find(&o->arena, base, NULL, &from, &err));
    from.heads = &heads;
    from.unties = !o->config->logits_via_embedding;
    MxHfModel theirs;
    ck_assert_msg(mx_hf_load(&o->arena, &from, o->tree, &theirs, &err) &&
                      mx_train_start_adapters(o->state, &err),
                  "%s", err.text.data);
    b->model = mx_hf_of_config(o->config, heads);
}

static bool load_beside(Beside *b, MxError *err) {
    double scale = mx_model_lora(mx_train_state_model(b->own.state))->scale;
    bool ok = mx_peft_load(b->dir, &b->model, scale, b->own.tree, err);
    mx_train_state_restored(b->own.state);
    return ok;
}

/* Every token is predicted from those before it. */
static MxBatch next_tokens(Beside *b) {
    int64_t n, length = b->own.config->max_target_length;
    const float *ids = golden_read(&b->own.arena, b->file, "input_ids", &n);
    MxBatch batch = mx_batch_new(&b->own.arena, n / length, length);
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

/* What it would be for peft, beside a file of peft's. */
static void compare_tensors(Beside *b, const char *file, double bound) {
    static const char dir[] = "build/tests/peft_whole";
    MxArena *arena = &b->own.arena;
    MxError err = {0};
    MxCkptRef ref;
    MxText notes;
    MxTensors *ours, *theirs;
    MxBytes text;
    MxPeftConvert how = {.model = &b->model, .alpha = 3, .base = "base"};
    mx_text_init(&notes, arena);
    ck_assert_msg(mx_dir_make(dir, &err) &&
                      save_file(arena, "build/tests/peft_whole.h5", b->own.tree, &ref, &err) &&
                      mx_peft_convert(&ref, &how, dir, &notes, &err),
                  "%s", err.text.data);
    ck_assert(
        mx_tensors_open(arena, mx_path_join(arena, dir, "adapter_model.safetensors"), &ours,
                        &err) &&
        mx_tensors_open(arena, mx_path_join(arena, b->dir, file), &theirs, &err) &&
        mx_file_read(arena, mx_path_join(arena, dir, "adapter_config.json"), 1 << 16, &text, &err));
    for (int i = 0; i < MX_COUNT(b->peft->said); i++)
        ck_assert_msg(strstr((const char *)text.data, b->peft->said[i]) != NULL, "%.*s",
                      (int)text.size, (const char *)text.data);
    ck_assert_int_eq(mx_tensors_count(ours), mx_tensors_count(theirs));
    ck_assert_int_eq(mx_tensors_count(ours), b->peft->n_tensors);
    for (int i = 0; i < mx_tensors_count(theirs); i++) {
        const MxTensor *want = mx_tensors_at(theirs, i), *got = mx_tensors_find(ours, want->name);
        ck_assert_msg(got && mx_shape_equal(got->shape, want->shape), "%s", want->name);
        int64_t n = mx_shape_count(want->shape);
        float *x = mx_new_n(arena, float, n), *y = mx_new_n(arena, float, n);
        ck_assert(mx_tensors_read(theirs, want, x, &err) && mx_tensors_read(ours, got, y, &err));
        double off = golden_max_abs(y, x, n);
        ck_assert_msg(off <= bound, "%s is off by %g", want->name, off);
    }
}

START_TEST(peft_gets_its_own_back) {
    Beside b;
    MxError err = {0};
    open_beside(&b, &pefts[_i], "");
    ck_assert_msg(load_beside(&b, &err), "%s", err.text.data);
    compare_tensors(&b, "adapter_model.safetensors", 0);
    close_own(&b.own);
}
END_TEST

START_TEST(peft_trains_the_same) {
    Beside b;
    MxError err = {0};
    int64_t n;
    open_beside(&b, &pefts[_i], "");
    ck_assert_msg(load_beside(&b, &err), "%s", err.text.data);
    mx_train_state_begin(b.own.state);
    MxBatch batch = next_tokens(&b);
    const float *want = golden_read(&b.own.arena, b.file, "losses", &n);
    for (int64_t k = 0; k < n; k++) {
        double got = mx_train_loss_and_grad(b.own.state, &batch).loss;
        ck_assert_msg(fabs(got - (double)want[k]) <= 1e-6 * (double)want[k],
                      "step %d: %.9g, not %.9g", (int)k, got, (double)want[k]);
        mx_train_update(b.own.state);
    }
    compare_tensors(&b, "after.safetensors", 2e-6);
    close_own(&b.own);
}
END_TEST

/* What a folder has and the run does not ask for, and the other way. */
static const struct {
    int peft;
    const char *more, *words;
} misfits[] = {
    {0, " lora.modules_to_save=.*query/bias|decoder/logits_dense",
     "hint: lora.modules_to_save=token_embedder/embedding|decoder/.*/pre_self_attention_layer_norm/"
     "scale|decoder/.*/self_attention/query/bias|decoder/.*/post_self_attention_layer_norm/scale|"
     "decoder/decoder_norm/scale|decoder/logits_dense/kernel"},
    {0, " lora.modules_to_save=",
     "\"base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias\" is trained as it is "
     "there and not here"},
    {1, " lora.modules_to_save=token_embedder|.*norm",
     "\"base_model.model.model.norm.weight\" is missing; it is trained as it is here"},
    {2, " logits_via_embedding=true lora.modules_to_save=token_embedder",
     "hint: logits_via_embedding=false keeps them apart, with decoder/logits_dense in "
     "lora.modules_to_save"},
};

START_TEST(what_does_not_fit_is_told) {
    Beside b;
    MxError err = {0};
    open_beside(&b, &pefts[misfits[_i].peft], misfits[_i].more);
    ck_assert(!load_beside(&b, &err));
    ck_assert_msg(strstr(err.text.data, misfits[_i].words) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    close_own(&b.own);
}
END_TEST

/* What is no whole module of theirs. */
static const struct {
    const char *config, *words;
} unsaved[] = {
    {"lora.modules_to_save=.*query/bias|.*key/bias",
     "\"decoder/.*/self_attention/query/bias\" is trained as it is; peft trains whole modules, "
     "all biases or those of all adapted modules"},
    {"lora.modules_to_save=.*value/kernel",
     "\"decoder/.*/self_attention/value/kernel\" is trained as it is; peft trains whole "
     "modules, and not all of \"model.layers.0.self_attn.v_proj\" is"},
    {"fused_mlp=true lora.modules_to_save=.*mlp/wi", NULL},
};

START_TEST(parts_of_modules_are_refused) {
    Beside b;
    MxError err = {0};
    MxCkptRef ref;
    MxText notes;
    MxArena words = {.name = "words"};
    open_beside(&b, &pefts[0],
                mx_arena_printf(&words, " lora.lora_module_path=.*query %s", unsaved[_i].config));
    mx_text_init(&notes, &b.own.arena);
    MxPeftConvert how = {.model = &b.model, .alpha = 3, .base = "base"};
    ck_assert(mx_dir_make("build/tests/peft_part", &err) &&
              save_file(&b.own.arena, "build/tests/peft_part.h5", b.own.tree, &ref, &err));
    bool ok = mx_peft_convert(&ref, &how, "build/tests/peft_part", &notes, &err);
    ck_assert_msg(ok == !unsaved[_i].words, "%s", err.text.data);
    ck_assert_msg(ok || strstr(err.text.data, unsaved[_i].words), "%s", err.text.data);
    mx_error_release(&err);
    close_own(&b.own);
    mx_arena_release(&words);
}
END_TEST

/* A reward's head, which adapters train as it is without being asked. */
START_TEST(a_head_goes_to_peft_and_back) {
    static const char words[] =
        "base_emb_dim=32 base_num_decoder_layers=1 base_num_query_heads=2 base_num_kv_heads=2 "
        "head_dim=16 base_mlp_dim=48 vocab_size=258 max_target_length=24 per_device_batch_size=1 "
        "dataset_type=hf hf_train_files=x packing=false use_dpo=true dpo.algo=reward "
        "score_head=true lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=3 ";
    static const char dir[] = "build/tests/peft_head", file[] = "build/tests/peft_head.h5";
    Own from, to;
    MxError err = {0};
    MxCkptRef ref;
    MxText notes;
    MxBytes text;
    open_own(&from, words, "lora.modules_to_save=.*norm");
    open_own(&to, words, "lora.modules_to_save=.*norm init_weights_seed=5");
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(from.state));
    const MxHfModel model = mx_hf_of_config(from.config, heads);
    MxPeftConvert how = {.model = &model, .alpha = 3, .base = "base"};
    mx_text_init(&notes, &from.arena);
    ck_assert_msg(mx_dir_make(dir, &err) && save_file(&from.arena, file, from.tree, &ref, &err) &&
                      mx_peft_convert(&ref, &how, dir, &notes, &err) &&
                      mx_file_read(&from.arena, "build/tests/peft_head/adapter_config.json",
                                   1 << 16, &text, &err) &&
                      mx_peft_load(dir, &model, 1.5, to.tree, &err),
                  "%s", err.text.data);
    ck_assert_ptr_nonnull(strstr((const char *)text.data, "\"task_type\": \"SEQ_CLS\""));
    ck_assert_ptr_nonnull(strstr((const char *)text.data, "\"score\""));
    int at = mx_tree_find(from.tree, "model/decoder/score/kernel");
    ck_assert(!memcmp(bytes_of(&from, at), bytes_of(&to, at), mx_leaf_bytes(&to.tree->leaves[at])));
    close_own(&to);
    close_own(&from);
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
    tcase = tcase_create("peft");
    tcase_add_loop_test(tcase, peft_gets_its_own_back, 0, MX_COUNT(pefts));
    tcase_add_loop_test(tcase, peft_trains_the_same, 0, MX_COUNT(pefts));
    tcase_add_loop_test(tcase, what_does_not_fit_is_told, 0, MX_COUNT(misfits));
    tcase_add_loop_test(tcase, parts_of_modules_are_refused, 0, MX_COUNT(unsaved));
    tcase_add_test(tcase, a_head_goes_to_peft_and_back);
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
