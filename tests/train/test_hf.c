/* test_hf.c — against transformers: folders of models, read as a run reads them. Logits, loss,
 * every gradient, and five AdamW steps with their final parameters. The names and transposes of
 * Hugging Face's tensors stand here as a table of their own, for the tests of adapters and
 * gradients. */
#include "close.h"
#include "common/saving.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* AdamW at a constant rate as in the golden's README; clipping there divides by norm + 1e-6. */
#define TRAINING                                                                                   \
    "max_target_length=20 per_device_batch_size=2 dataset_type=synthetic steps=100 "               \
    "learning_rate=1e-3 lr_schedule_type=wsd wsd_decay_steps_fraction=0 "                          \
    "warmup_steps_fraction=0 adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0.1 "        \
    "gradient_clipping_threshold=1.0 "
/* Kernels as theirs are: queries are scaled in the model, pairs are halves. */
#define AS_THEIRS "query_pre_attn_scalar=8 rope_type=default "

/* Folders of models, and what makes our kernels like theirs. */
static const struct {
    const char *name, *more;
} trained[] = {{"llama", AS_THEIRS}, {"mistral", AS_THEIRS}, {"qwen2", ""}, {"qwen3", ""}};

/* Models as MaxText would hold them, and with several of their arrays in one of ours. That shards
 * make the same tree as one file is tested in tests/ckpt. */
#define IN_ONE "fused_qkv=true fused_mlp=true"
static const struct {
    const char *name, *more;
} started[] = {
    // clang-format off
    {"llama", ""}, {"mistral", ""}, {"qwen2", ""}, {"qwen3", ""}, {"gemma", ""}, {"gemma2", ""},
    {"gemma3_turns", ""}, {"gemma3_images", ""}, {"mixtral", ""}, {"qwen3_moe", ""},
    {"llama4_text", ""}, {"gpt_oss", ""}, {"deepseek_v2", ""}, {"deepseek_v3", ""},
    {"qwen3_next", ""}, {"olmo3", ""}, {"llama_stretched", ""}, {"llama_linear", ""}, {"mistral_short", ""}, {"llama4_stretched", ""},
    {"gpt_oss_tiny", ""}, {"deepseek_v2_tiny", ""}, {"deepseek_v3_halves", ""},
    {"deepseek_v32_tiny", ""}, {"deepseek_v4_tiny", ""}, {"llama_fp8", ""}, {"deepseek_v3_fp8", ""},
    {"gpt_oss_mxfp4", ""}, {"deepseek_v4_fp4", ""}, {"llama_gptq", ""}, {"qwen2_gptq8", ""},
    {"llama_awq", ""}, {"llama_w4a16", ""}, {"llama_w8a8", ""}, {"llama_nvfp4", ""}, {"llama_mxfp4", ""}, {"llama_mxfp8", ""},
    {"llama_bnb4", ""}, {"llama_bnb8", ""}, {"qwen3_next_tiny", ""}, {"qwen3_5_tiny", ""},
    {"gemma4_tiny", ""}, {"gemma4_experts", ""}, {"gemma4_small", ""}, {"gemma4_odd", ""}, {"olmo3_tiny", ""}, {"llama", IN_ONE},
    {"qwen2", IN_ONE}, {"gemma2", IN_ONE},
    // clang-format on
};

/* In the spelling of transformers 5 and 4. */
static const char *const spellings[] = {"config.json", "config_v4.json"};

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
    {"model/decoder/layers_%d/self_attention/query_norm/scale",
     "model.layers.%d.self_attn.q_norm.weight", false},
    {"model/decoder/layers_%d/self_attention/key_norm/scale",
     "model.layers.%d.self_attn.k_norm.weight", false},
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
        if (!mx_text_has_prefix(leaf->path, "model/") || leaf->kind != MX_KIND_PARAM) continue;
        const MxJson *entry = mx_json_get(json, their_name(arena, leaf->path, &is_transposed));
        ck_assert_msg(entry &&
                          mx_json_int(mx_json_at(mx_json_get(entry, "data_offsets"), 0), &start),
                      "%s", leaf->path);
        int64_t n = mx_shape_count(leaf->shape);
        float *theirs = mx_new_n(arena, float, n);
        memcpy(theirs, file.data + sizeof header + header + start, (size_t)n * sizeof *theirs);
        mx_leaf_write(leaf, in_our_layout(arena, leaf, theirs, is_transposed));
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

const float *hf_array(MxArena *arena, MxH5 *file, const char *group, const MxLeaf *leaf) {
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

/* How far the original's float32 run is from its float64 run, where the file says it. */
static double own_noise(MxArena *arena, MxH5 *file, const char *path) {
    char *text = NULL;
    MxError err = {0};
    ck_assert_msg(mx_h5_attr(arena, file, path, "f64_maxdiff", &text, &err), "%s", err.text.data);
    return text ? strtod(text, NULL) : 0;
}

/* A model of a folder, its parameters in a state, and what transformers says of it. */
typedef struct Hf {
    MxArena arena;
    MxError err;
    const char *name, *golden; /* golden: the folder's name among golden files, for bounds */
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
} Hf;

static Close figure(const Hf *hf, CloseKind kind, const char *what) {
    return (Close){.golden = hf->golden, .kind = kind, .what = what};
}

/* False if the golden folder lacks it. */
static bool open_hf(Hf *hf, const char *name, const char *config, const char *more) {
    *hf = (Hf){.arena = {.name = "hf"}, .name = name};
    hf->golden = mx_arena_printf(&hf->arena, "hf/models/%s", name);
    MxHfModel model;
    hf->file =
        golden_open(&hf->arena, mx_arena_printf(&hf->arena, "hf/models/%s/expected.h5", name));
    if (!hf->file) return false;
    const char *dir = goldens_need(&hf->arena, hf->golden);
    const char *json = mx_path_join(&hf->arena, dir, config);
    ck_assert_msg(mx_file_exists(json), "no %s", json);
    ck_assert_msg(mx_hf_read_config(&hf->arena, json, &model, &hf->err), "%s", hf->err.text.data);
    ck_assert_str_eq(model.lacks, "");
    const char *yaml = mx_hf_yaml(&hf->arena, &model);
    hf->config = golden_text_config(&hf->arena, yaml, more);
    ck_assert(mx_train_state_open(&hf->arena, hf->config, &hf->state, &hf->err));
    mx_train_state_init(hf->state);
    hf->tree = mx_train_state_tree(hf->state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(hf->state));
    MxCkptRef from;
    ck_assert(mx_ckpt_find(&hf->arena, dir, NULL, &from, &hf->err));
    from.heads = &heads;
    ck_assert_msg(mx_hf_load(&hf->arena, &from, hf->tree, &model, &hf->err), "%s",
                  hf->err.text.data);
    close_nudge(hf->tree);
    return true;
}

/* form: what makes the kernels differ from those of another test of the same file */
static void check_logits(Hf *hf, const char *form) {
    int64_t n;
    MxBatch batch = hf_batch(&hf->arena, hf->file, "", 0, hf->config);
    const float *want = golden_read(&hf->arena, hf->file, "logits", &n);
    const float *got =
        golden_logits(golden_program(&hf->arena, hf->config, false), hf->tree, &batch);
    Close c = figure(hf, CLOSE_LOGITS, form);
    close_array(&c, got, want, n);
}

/* A figure of a step, and the same of the file, where it stands for all steps in one array. */
static void check_step(Hf *hf, CloseKind kind, const char *name, int64_t step, double got) {
    const char *path = mx_path_join(&hf->arena, "train", name);
    Close c = figure(hf, kind, mx_arena_printf(&hf->arena, "%s at step %d", name, (int)step));
    double want = hf_scalar(&hf->arena, hf->file, path, step);
    c.original = own_noise(&hf->arena, hf->file, path) / want;
    close_number(&c, got, want);
}

static void check_final(Hf *hf, const MxLeaf *leaf) {
    bool is_transposed;
    const char *theirs = their_name(&hf->arena, leaf->path, &is_transposed);
    Close c = figure(hf, CLOSE_FINAL, leaf->path);
    c.original = own_noise(&hf->arena, hf->file, mx_path_join(&hf->arena, "train/final", theirs));
    close_final(&c, mx_leaf_values(&hf->arena, leaf),
                hf_array(&hf->arena, hf->file, "train/final", leaf), mx_shape_count(leaf->shape));
}

static void check_training(Hf *hf) {
    enum { STEPS = 5 };
    MxTree gradients = {0};
    for (int64_t step = 0; step < STEPS; step++) {
        MxBatch batch = hf_batch(&hf->arena, hf->file, "train/", step, hf->config);
        MxLoss loss = mx_train_loss_and_grad(hf->state, &batch);
        if (step == 0) gradients = golden_gradient_tree(&hf->arena, hf->state);
        check_step(hf, step ? CLOSE_LATER_LOSS : CLOSE_LOSS, "loss", step, loss.loss);
        for (int i = 0; step == 0 && i < gradients.n; i++) {
            const MxLeaf *leaf = &gradients.leaves[i];
            Close c = figure(hf, CLOSE_GRADIENT, leaf->path);
            close_array(&c, leaf->data, hf_array(&hf->arena, hf->file, "grads", leaf),
                        mx_shape_count(leaf->shape));
        }
        check_step(hf, step ? CLOSE_LATER_NORM : CLOSE_NORM, "grad_norm", step,
                   mx_train_update(hf->state).raw_grad_norm);
    }
    for (int i = 0; i < gradients.n; i++) check_final(hf, &hf->tree->leaves[i]);
}

START_TEST(hugging_face_training) {
    Hf hf;
    char more[1024];
    snprintf(more, sizeof more, "%s%s", TRAINING, trained[_i].more);
    if (!open_hf(&hf, trained[_i].name, "config.json", more)) return;
    check_logits(&hf, "trained");
    check_training(&hf);
    mx_arena_release(&hf.arena);
}
END_TEST

/* As a user starts: with the config that mxconvert writes. */
START_TEST(hugging_face_start) {
    Hf hf;
    char more[1024];
    const char *name = started[_i / MX_COUNT(spellings)].name;
    const char *spelling = spellings[_i % MX_COUNT(spellings)];
    snprintf(more, sizeof more, "%s%s", TRAINING, started[_i / MX_COUNT(spellings)].more);
    if (!open_hf(&hf, name, spelling, more)) return;
    check_logits(&hf, spelling);
    MxBatch batch = hf_batch(&hf.arena, hf.file, "", 0, hf.config);
    double want = hf_scalar(&hf.arena, hf.file, "loss", 0);
    Close c = figure(&hf, CLOSE_LOSS, spelling);
    close_number(&c, mx_train_loss_and_grad(hf.state, &batch).loss, want);
    mx_arena_release(&hf.arena);
}
END_TEST

/* ---- peft: adapters of another trainer over a Hugging Face llama */

#define PEFT                                                                                       \
    "vocab_size=128 base_emb_dim=32 base_num_query_heads=4 base_num_kv_heads=2 head_dim=8 "        \
    "base_mlp_dim=64 base_num_decoder_layers=2 normalization_layer_epsilon=1e-5 "                  \
    "rope_max_timescale=10000 max_target_length=20 per_device_batch_size=3 "                       \
    "dataset_type=synthetic query_pre_attn_scalar=8 lora.enable_lora=true "

static const struct {
    const char *name, *config;
} peft_cases[] = {
    {"peft_all", PEFT "lora.lora_rank=4 lora.lora_alpha=8"},
    {"peft_qv_rslora", /* alpha / sqrt(rank): our alpha is theirs, 5, times sqrt(rank) */
     PEFT "lora.lora_rank=2 lora.lora_alpha=7.0710678118654755 "
          "lora.lora_module_path=.*self_attention/(query|value)"},
};

/* One case: the adapters loaded over the base. */
typedef struct Peft {
    MxArena arena;
    const char *name, *dir; /* name: below the golden folder */
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxHfModel model;
    double scale, alpha;
    MxError err;
} Peft;

static bool open_peft(Peft *p, int i, const char *more) {
    *p = (Peft){.arena = {.name = "peft"}};
    const char *name = p->name = mx_path_join(&p->arena, "train", peft_cases[i].name);
    p->dir = mx_path_join(&p->arena, goldens_dir(), name);
    p->file = golden_open(&p->arena, mx_path_join(&p->arena, name, "expected.h5"));
    if (!p->file) return false;
    ck_assert_msg(golden_config(&p->arena, peft_cases[i].config, more, &p->config, &p->err) &&
                      mx_train_state_open(&p->arena, p->config, &p->state, &p->err),
                  "%s", p->err.text.data);
    const MxModel *model = mx_train_state_model(p->state);
    p->model = mx_hf_of_config(p->config, mx_model_head_form(model));
    p->scale = mx_model_lora(model)->scale;
    p->alpha = p->scale * (double)p->config->lora_rank;
    MxTree *tree = mx_train_state_tree(p->state);
    load_safetensors(&p->arena, mx_path_join(&p->arena, p->dir, "base/model.safetensors"), tree);
    return true;
}

static void load_peft(Peft *p) {
    ck_assert_msg(mx_peft_load(p->dir, &p->model, p->scale, mx_train_state_tree(p->state), &p->err),
                  "%s", p->err.text.data);
}

static void close_peft(Peft *p) {
    mx_error_release(&p->err);
    mx_arena_release(&p->arena);
}

/* Every token is predicted from those before it. */
static MxBatch next_tokens(Peft *p) {
    int64_t n, rows = 3, length = p->config->max_target_length;
    const int64_t *ids = read_ids(&p->arena, p->file, "input_ids", &n);
    MxBatch batch = mx_batch_new(&p->arena, rows, length);
    for (int64_t i = 0; i < rows * length; i++) {
        bool is_last = i % length == length - 1;
        batch.field[MX_INPUTS][i] = (int32_t)ids[i];
        batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % length);
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch.field[MX_TARGETS][i] = is_last ? 0 : (int32_t)ids[i + 1];
        batch.field[MX_TARGETS_SEGMENTATION][i] = !is_last;
    }
    return batch;
}

/* Their gradient of A or B, which is the transpose of ours. */
static const float *peft_gradient(Peft *p, const MxLeaf *leaf) {
    bool transposed;
    int64_t n, rows = leaf->shape.dim[0], columns = leaf->shape.dim[1];
    const char *kernel = mx_arena_strndup(&p->arena, leaf->path, strlen(leaf->path) - 7);
    const char *theirs = their_name(&p->arena, kernel, &transposed);
    char *path = mx_arena_printf(&p->arena, "grads/base_model/model/%.*s/lora_%c/default/weight",
                                 (int)(strlen(theirs) - strlen(".weight")), theirs,
                                 mx_text_has_suffix(leaf->path, "_b") ? 'B' : 'A');
    for (char *c = path; *c; c++)
        if (*c == '.') *c = '/';
    const float *values = golden_read(&p->arena, p->file, path, &n);
    ck_assert_msg(values && n == rows * columns, "no %s", path);
    float *ours = mx_new_n(&p->arena, float, n);
    for (int64_t i = 0; i < n; i++) ours[i] = values[i % columns * rows + i / columns];
    return ours;
}

START_TEST(peft_adapters) {
    Peft p;
    int64_t n;
    if (!open_peft(&p, _i, "")) return;
    MxTree *tree = mx_train_state_tree(p.state);
    GoldenProgram *program = golden_program(&p.arena, p.config, false);
    MxBatch batch = next_tokens(&p);
    const float *base = golden_read(&p.arena, p.file, "base_logits", &n);
    Close c = {.golden = p.name, .kind = CLOSE_LOGITS, .what = "base logits"};
    close_array(&c, golden_logits(program, tree, &batch), base, n);
    load_peft(&p);
    close_nudge(tree);
    const float *want = golden_read(&p.arena, p.file, "logits", &n);
    c.what = "logits";
    close_array(&c, golden_logits(program, tree, &batch), want, n);
    c = (Close){.golden = p.name, .kind = CLOSE_LOSS, .what = "loss"};
    close_number(&c, mx_train_loss_and_grad(p.state, &batch).loss,
                 hf_scalar(&p.arena, p.file, "loss", 0));
    const MxTree *params = mx_model_params(mx_train_state_model(p.state));
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        c = (Close){.golden = p.name, .kind = CLOSE_GRADIENT, .what = leaf->path};
        close_array(&c, mx_train_gradient(&p.arena, p.state, i),
                    peft_gradient(&p, &tree->leaves[i]), mx_shape_count(leaf->shape));
    }
    close_peft(&p);
}
END_TEST

/* Merged weights are theirs; what rounding loses is told. */
START_TEST(peft_merge) {
    Peft p;
    if (!open_peft(&p, _i, "")) return;
    load_peft(&p);
    MxTree *tree = mx_train_state_tree(p.state);
    MxText notes;
    double delta, lost;
    int n_merged;
    mx_text_init(&notes, &p.arena);
    ck_assert_msg(merge_adapters(&p.arena, mx_arena_printf(&p.arena, "build/tests/merge.%d.h5", _i),
                                 p.alpha, tree, &notes, &p.err),
                  "%s", p.err.text.data);
    ck_assert_int_eq(sscanf(strstr(notes.data, "drift: "),
                            "drift: %d weights changed by %lf in all (L2 norm), of which rounding "
                            "to float32 took away %lf",
                            &n_merged, &delta, &lost),
                     3);
    ck_assert(n_merged > 0 && delta > 1e-3 && lost > 0 && lost < 1e-6 * delta);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        bool transposed;
        if (mx_tree_find(tree, mx_arena_printf(&p.arena, "%s_lora_a", leaf->path)) < 0) continue;
        int64_t n = mx_shape_count(leaf->shape), n_theirs;
        const char *name = their_name(&p.arena, leaf->path, &transposed);
        const float *theirs =
            golden_read(&p.arena, p.file, mx_path_join(&p.arena, "merged", name), &n_theirs);
        ck_assert_msg(theirs && n == n_theirs, "no merged/%s", name);
        check_near(p.dir, leaf->path,
                   golden_max_abs(mx_leaf_values(&p.arena, leaf),
                                  in_our_layout(&p.arena, leaf, theirs, transposed), n),
                   1e-6);
    }
    close_peft(&p);
}
END_TEST

/* Out again and in again, in every form that kernels of heads have. */
static const char *const forms[] = {"", "query_pre_attn_scalar=0 rope_type=llama3.1"};

static void check_dropout(Peft *p, const char *dir, const char *notes) {
    const char *json = process_file(&p->arena, dir, "adapter_config.json", NULL);
    bool has_none = strstr(json, "\"target_parameters\"") != NULL;
    ck_assert(strstr(json, has_none ? "\"lora_dropout\": 0," : "\"lora_dropout\": 0.25,"));
    ck_assert(has_none == !!strstr(notes, "lora_dropout 0.25 is left out"));
}

START_TEST(peft_round_trip) {
    Peft p;
    if (!open_peft(&p, _i / MX_COUNT(forms), forms[_i % MX_COUNT(forms)])) return;
    load_peft(&p);
    MxTree *tree = mx_train_state_tree(p.state);
    uint64_t before = 0, after = 0;
    bool is_exact = p.model.heads.query_scale == 1; /* nothing is rounded */
    const char *dir = mx_arena_printf(&p.arena, "build/tests/peft.%d", _i);
    ck_assert(mx_dir_make(dir, &p.err));
    MxCkptRef ref;
    MxText notes;
    MxPeftConvert how = {.model = &p.model, .alpha = p.alpha, .dropout = 0.25, .base = "base"};
    mx_text_init(&notes, &p.arena);
    ck_assert_msg(
        save_file(&p.arena, mx_arena_printf(&p.arena, "%s.h5", dir), tree, &ref, &p.err) &&
            mx_peft_convert(&ref, &how, dir, &notes, &p.err),
        "%s", p.err.text.data);
    check_dropout(&p, dir, notes.data);
    MxTensors *ours, *theirs;
    ck_assert(mx_tensors_open(&p.arena, mx_path_join(&p.arena, dir, "adapter_model.safetensors"),
                              &ours, &p.err) &&
              mx_tensors_open(&p.arena, mx_path_join(&p.arena, p.dir, "adapter_model.safetensors"),
                              &theirs, &p.err));
    ck_assert_int_eq(mx_tensors_count(ours), mx_tensors_count(theirs));
    for (int i = 0; i < mx_tensors_count(theirs); i++) {
        const MxTensor *a = mx_tensors_at(theirs, i), *b = mx_tensors_find(ours, a->name);
        ck_assert_msg(b && mx_shape_equal(a->shape, b->shape), "%s", a->name);
        int64_t n = mx_shape_count(a->shape);
        float *x = mx_new_n(&p.arena, float, n), *y = mx_new_n(&p.arena, float, n);
        ck_assert(mx_tensors_read(theirs, a, x, &p.err) && mx_tensors_read(ours, b, y, &p.err));
        check_near(p.dir, a->name, golden_error(y, x, n), is_exact ? 0 : 2e-7);
    }
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        size_t bytes = (size_t)mx_shape_count(leaf->shape) * sizeof(float);
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        before = before * 31 + mx_hash64(mx_leaf_values(&p.arena, leaf), bytes);
        mx_leaf_write(leaf, mx_arena_alloc(&p.arena, bytes));
    }
    p.dir = dir;
    load_peft(&p);
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind == MX_KIND_LORA_PARAM)
            after = after * 31 + mx_hash64(mx_leaf_values(&p.arena, &tree->leaves[i]),
                                           (size_t)mx_shape_count(tree->leaves[i].shape) * 4);
    ck_assert(!is_exact || before == after);
    close_peft(&p);
}
END_TEST

static const struct {
    int i;
    const char *more, *words;
} peft_misfits[] = {
    {0, "lora.lora_alpha=16",
     "adapter_config.json: its adapters count 2 (lora_alpha 8, r 4), those of this run lora_alpha "
     "/ lora_rank = 4"},
    {0, "base_mlp_dim=48",
     "\"base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight\" has shape [64, 4]; the model "
     "wants [48, 4]"},
    {0, "lora.lora_rank=2 lora.lora_alpha=4",
     "its adapters have rank 4 together in "
     "\"model/decoder/layers_0/self_attention/query/kernel_lora_a\"; the run's lora_rank is 2\n"
     "hint: lora.lora_rank=4 lora.lora_alpha=8"},
    {0, "lora.lora_module_path=.*mlp/wo",
     "\"base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight\" belongs to no module that is "
     "adapted here"},
    {1, "lora.lora_module_path=.*self_attention/.*",
     "\"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight\" is missing; the model "
     "wants "
     "[2, 32]"},
    {0, "lora.lora_module_path=.*norm", "layer_norm/scale\", \"decoder/decoder_norm/scale\""},
};

START_TEST(peft_that_does_not_fit) {
    Peft p;
    if (!open_peft(&p, peft_misfits[_i].i, peft_misfits[_i].more)) return;
    bool ok = mx_peft_load(p.dir, &p.model, p.scale, mx_train_state_tree(p.state), &p.err);
    ck_assert_msg(!ok && strstr(p.err.text.data, peft_misfits[_i].words), "%s",
                  ok ? "loaded" : p.err.text.data);
    close_peft(&p);
}
END_TEST

Suite *hf_suite(void) {
    Suite *suite = suite_create("hugging face");
    TCase *tcase = tcase_create("models");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, hugging_face_training, 0, MX_COUNT(trained));
    tcase_add_loop_test(tcase, hugging_face_start, 0, MX_COUNT(started) * MX_COUNT(spellings));
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("peft");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, peft_adapters, 0, MX_COUNT(peft_cases));
    tcase_add_loop_test(tcase, peft_merge, 0, MX_COUNT(peft_cases));
    tcase_add_loop_test(tcase, peft_round_trip, 0, MX_COUNT(forms) * MX_COUNT(peft_cases));
    tcase_add_loop_test(tcase, peft_that_does_not_fit, 0, MX_COUNT(peft_misfits));
    suite_add_tcase(suite, tcase);
    return suite;
}
