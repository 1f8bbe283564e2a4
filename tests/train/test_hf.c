/* test_hf.c — against transformers: mistral with its sliding window, from model.safetensors, and
 * qwen2, from MaxText's conversion of it. Logits, loss, every gradient, and five AdamW steps with
 * their final parameters. The names and transposes of Hugging Face's tensors stand here as a table
 * until there is a reader of such files. */
#include "golden.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

typedef struct HfCase {
    const char *name,
        *params; /* params: FILE.h5 of MaxText's tree; NULL = the model's own safetensors */
    const char *config;
} HfCase;

/* AdamW at a constant rate as in the golden's README; clipping there divides by norm + 1e-6.
 * Unscaled queries are scaled in the model. */
#define COMMON                                                                                     \
    "vocab_size=160 base_emb_dim=32 base_num_query_heads=4 base_num_kv_heads=2 head_dim=8 "        \
    "base_mlp_dim=64 "                                                                             \
    "base_num_decoder_layers=2 normalization_layer_epsilon=1e-6 rope_max_timescale=10000 "         \
    "max_target_length=20 "                                                                        \
    "per_device_batch_size=2 dataset_type=synthetic steps=100 learning_rate=1e-3 "                 \
    "lr_schedule_type=wsd "                                                                        \
    "wsd_decay_steps_fraction=0 warmup_steps_fraction=0 adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 "   \
    "adam_weight_decay=0.1 gradient_clipping_threshold=1.0 logits_via_embedding=false "

static const HfCase hf_cases[] = {
    {"mistral", NULL,
     COMMON "decoder_block=mistral attention_type=local_sliding sliding_window_size=8 "
            "query_pre_attn_scalar=0.35355339059327373"},
    {"qwen2", "hf/maxtext/qwen2_scanned.h5", COMMON "decoder_block=qwen2 attention_bias=true"},
};

/* Ours and theirs; %d is the layer. Matrices are stored the other way round. */
static const struct {
    const char *ours, *theirs;
    bool is_transposed;
} names[] = {
    {"model/token_embedder/embedding", "model.embed_tokens.weight", false},
    {"model/decoder/decoder_norm/scale", "model.norm.weight", false},
    {"model/decoder/logits_dense/kernel", "lm_head.weight", true},
    {"model/decoder/layers_%d/pre_self_attention_layer_norm/scale",
     "model.layers.%d.input_layernorm.weight", false},
    {"model/decoder/layers_%d/post_self_attention_layer_norm/scale",
     "model.layers.%d.post_attention_layernorm.weight", false},
    {"model/decoder/layers_%d/self_attention/query/kernel",
     "model.layers.%d.self_attn.q_proj.weight", true},
    {"model/decoder/layers_%d/self_attention/key/kernel", "model.layers.%d.self_attn.k_proj.weight",
     true},
    {"model/decoder/layers_%d/self_attention/value/kernel",
     "model.layers.%d.self_attn.v_proj.weight", true},
    {"model/decoder/layers_%d/self_attention/out/kernel", "model.layers.%d.self_attn.o_proj.weight",
     true},
    {"model/decoder/layers_%d/self_attention/query/bias", "model.layers.%d.self_attn.q_proj.bias",
     false},
    {"model/decoder/layers_%d/self_attention/key/bias", "model.layers.%d.self_attn.k_proj.bias",
     false},
    {"model/decoder/layers_%d/self_attention/value/bias", "model.layers.%d.self_attn.v_proj.bias",
     false},
    {"model/decoder/layers_%d/mlp/wi_0/kernel", "model.layers.%d.mlp.gate_proj.weight", true},
    {"model/decoder/layers_%d/mlp/wi_1/kernel", "model.layers.%d.mlp.up_proj.weight", true},
    {"model/decoder/layers_%d/mlp/wo/kernel", "model.layers.%d.mlp.down_proj.weight", true},
};

enum { LAYERS = 2 };

/* The other side's name of one of our leaves. */
static const char *their_name(MxArena *arena, const char *path, bool *is_transposed) {
    for (int i = 0; i < MX_COUNT(names); i++)
        for (int layer = 0; layer < LAYERS; layer++) {
            const char *slot = strstr(names[i].ours, "%d"),
                       *their_slot = strstr(names[i].theirs, "%d");
            const char *ours = names[i].ours, *theirs = names[i].theirs;
            if (slot) {
                ours =
                    mx_arena_printf(arena, "%.*s%d%s", (int)(slot - ours), ours, layer, slot + 2);
                theirs = mx_arena_printf(arena, "%.*s%d%s", (int)(their_slot - theirs), theirs,
                                         layer, their_slot + 2);
            }
            *is_transposed = names[i].is_transposed;
            if (!strcmp(ours, path)) return theirs;
        }
    ck_abort_msg("no name for %s", path);
    return NULL;
}

/* Their array in our layout: of a matrix the transpose, whatever dims ours is grouped into. */
static float *in_our_layout(MxArena *arena, const MxLeaf *leaf, const float *theirs,
                            bool is_transposed) {
    int64_t n = mx_shape_count(leaf->shape);
    float *ours = mx_new_n(arena, float, n);
    bool is_out = strstr(leaf->path, "/out/") || strstr(leaf->path, "/wo/");
    int64_t rows = is_out ? n / leaf->shape.dim[leaf->shape.rank - 1] : leaf->shape.dim[0],
            columns = n / rows;
    for (int64_t i = 0; i < n; i++)
        ours[i] = is_transposed ? theirs[i % columns * rows + i / columns] : theirs[i];
    return ours;
}

/* ---- safetensors: 8 bytes of header length, JSON, bytes */

static void load_safetensors(MxArena *arena, const char *path, MxTree *state) {
    enum { MAX_BYTES = 1 << 24 };
    MxBytes file;
    MxError err = {0};
    ck_assert_msg(mx_file_read(arena, path, MAX_BYTES, &file, &err), "%s", err.text.data);
    uint64_t header;
    memcpy(&header, file.data, sizeof header);
    MxJson *json =
        mx_json_parse(arena, (const char *)file.data + sizeof header, header, path, &err);
    ck_assert_msg(json != NULL, "%s", err.text.data);
    for (int i = 0; i < state->n; i++) {
        MxLeaf *leaf = &state->leaves[i];
        bool is_transposed;
        int64_t start;
        if (!mx_text_has_prefix(leaf->path, "model/")) continue;
        const MxJson *entry = mx_json_get(json, their_name(arena, leaf->path, &is_transposed));
        ck_assert_msg(entry &&
                          mx_json_int(mx_json_at(mx_json_get(entry, "data_offsets"), 0), &start),
                      "%s", leaf->path);
        int64_t n = mx_shape_count(leaf->shape);
        float *theirs = mx_new_n(arena, float, n);
        memcpy(theirs, file.data + sizeof header + header + start, (size_t)n * sizeof *theirs);
        memcpy(leaf->data, in_our_layout(arena, leaf, theirs, is_transposed),
               (size_t)n * sizeof *theirs);
    }
}

/* ---- the comparison */

static int64_t *read_ids(MxArena *arena, MxH5 *file, const char *path, int64_t *n) {
    MxError err = {0};
    MxH5Array array;
    ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
    *n = mx_shape_count(array.shape);
    int64_t *ids = mx_new_n(arena, int64_t, *n);
    ck_assert_msg(mx_h5_read(file, path, MX_I64, array.shape, ids, &err), "%s", err.text.data);
    return ids;
}

/* Labels name the token itself; position t is to predict the label of t + 1, unless that is -100.
 */
static MxBatch hf_batch(MxArena *arena, MxH5 *file, const char *group, int64_t step,
                        const MxConfig *config) {
    int64_t rows = config->micro_batch_size_to_train_on, length = config->max_target_length, n;
    MxBatch batch = mx_batch_new(arena, rows, length);
    const int64_t *ids = read_ids(arena, file, mx_arena_printf(arena, "%sinput_ids", group), &n);
    const int64_t *labels = read_ids(arena, file, mx_arena_printf(arena, "%slabels", group), &n);
    for (int64_t i = 0; i < rows * length; i++) {
        int64_t t = i % length, at = step * rows * length + i;
        int64_t label = t + 1 < length ? labels[at + 1] : -100;
        batch.field[MX_INPUTS][i] = (int32_t)ids[at];
        batch.field[MX_INPUTS_POSITION][i] = batch.field[MX_TARGETS_POSITION][i] = (int32_t)t;
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch.field[MX_TARGETS][i] = label < 0 ? 0 : (int32_t)label;
        batch.field[MX_TARGETS_SEGMENTATION][i] = label >= 0;
    }
    return batch;
}

static double hf_scalar(MxArena *arena, MxH5 *file, const char *path, int64_t i) {
    int64_t n;
    const float *values = golden_read(arena, file, path, &n);
    ck_assert_msg(values && i < n, "no %s", path);
    return (double)values[i];
}

static const float *hf_array(MxArena *arena, MxH5 *file, const char *group, const MxLeaf *leaf) {
    int64_t n;
    bool is_transposed;
    const char *name = their_name(arena, leaf->path, &is_transposed);
    const float *theirs =
        golden_read(arena, file, mx_arena_printf(arena, "%s/%s", group, name), &n);
    ck_assert_msg(theirs && n == mx_shape_count(leaf->shape), "no %s/%s", group, name);
    return in_our_layout(arena, leaf, theirs, is_transposed);
}

static void check_near(const char *name, const char *what, double error, double bound) {
    ck_assert_msg(error <= bound, "%s: %s is off by %.3g (bound %.3g)", name, what, error, bound);
}

static void compare_with_hf(MxArena *arena, const HfCase *c, MxH5 *file, MxConfig *config,
                            MxTrainState *state) {
    enum { STEPS = 5 };
    const double close = 2e-5, losses = 1e-5, final = 1e-4;
    int64_t n;
    MxTree *tree = mx_train_state_tree(state);
    MxBatch batch = hf_batch(arena, file, "", 0, config);
    const float *want = golden_read(arena, file, "logits", &n);
    const float *got = golden_logits(golden_program(arena, config, false), tree, &batch);
    check_near(c->name, "logits", golden_error(got, want, n), close);
    MxTree gradients = golden_gradient_tree(arena, state);
    for (int64_t step = 0; step < STEPS; step++) {
        batch = hf_batch(arena, file, "train/", step, config);
        MxLoss loss = mx_train_loss_and_grad(state, &batch);
        double loss_want = hf_scalar(arena, file, "train/loss", step);
        check_near(c->name, "loss", fabs(loss.loss / loss_want - 1), losses);
        for (int i = 0; step == 0 && i < gradients.n; i++) {
            const MxLeaf *leaf = &gradients.leaves[i];
            double error = golden_error(leaf->data, hf_array(arena, file, "grads", leaf),
                                        mx_shape_count(leaf->shape));
            check_near(c->name, leaf->path, error, close);
        }
        double norm_want = hf_scalar(arena, file, "train/grad_norm", step);
        check_near(c->name, "gradient norm",
                   fabs(mx_train_update(state).raw_grad_norm / norm_want - 1), close);
    }
    for (int i = 0; i < gradients.n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        const float *theirs = hf_array(arena, file, "train/final", leaf);
        check_near(c->name, leaf->path,
                   golden_max_abs(leaf->data, theirs, mx_shape_count(leaf->shape)), final);
    }
}

START_TEST(hugging_face_model) {
    const HfCase *c = &hf_cases[_i];
    MxArena arena = {.name = "hf"};
    MxError err = {0};
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    const char *dir = mx_arena_printf(&arena, "%s/hf/models/%s", golden_dir(), c->name);
    bool ok = mx_h5_open(&arena, mx_path_join(&arena, dir, "expected.h5"), &file, &err) &&
              golden_config(&arena, c->config, "", &config, &err) &&
              mx_train_state_open(&arena, config, &state, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    mx_train_state_init(state);
    MxTree *tree = mx_train_state_tree(state);
    if (c->params) {
        const char *params = mx_path_join(&arena, golden_dir(), c->params);
        ck_assert_msg(mx_ckpt_load_params(params, 1, tree, &err), "%s", err.text.data);
    } else
        load_safetensors(&arena, mx_path_join(&arena, dir, "model.safetensors"), tree);
    compare_with_hf(&arena, c, file, config, state);
    mx_arena_release(&arena);
}
END_TEST

Suite *hf_suite(void) {
    Suite *suite = suite_create("hugging face");
    TCase *tcase = tcase_create("models");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, hugging_face_model, 0, MX_COUNT(hf_cases));
    suite_add_tcase(suite, tcase);
    return suite;
}
