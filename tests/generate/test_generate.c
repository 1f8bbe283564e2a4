/* test_generate.c — replies against those of transformers, logits against its, and pieces of
 * sequences against whole ones, for all families. */
#include "common/families.h"
#include "common/goldens.h"
#include "generate_test.h"

#include <mx/family.h>
#include <mx/model.h>

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* ---- Hugging Face's models */

/* Continuations are known of all but the last. */
static const char *const models[] = {"llama",  "mistral", "qwen2",       "qwen3",
                                     "gemma2", "gemma",   "gemma3_turns"};
enum { N_CONTINUED = MX_COUNT(models) - 1 };

static char *golden(const char *model, const char *file) {
    return goldens_find(&arena, mx_arena_printf(&arena, "hf/models/%s/%s", model, file));
}

static void *read_array(MxH5 *file, const char *path, MxDtype dtype, MxShape *shape) {
    MxError err = {0};
    MxH5Array array;
    ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
    void *data =
        mx_arena_alloc(&arena, (size_t)mx_shape_count(array.shape) * mx_dtype_bytes(dtype));
    ck_assert_msg(mx_h5_read(file, path, dtype, array.shape, data, &err), "%s", err.text.data);
    *shape = array.shape;
    return data;
}

MxTrainState *open_source(MxArena *in, const char *dir, MxGeneration what) {
    MxError err = {0};
    MxSource source;
    MxTrainState *state;
    ck_assert_msg(mx_source_find(in, dir, true, (MxWeights){0}, &source, &err) &&
                      mx_source_open(in, &source, what, &state, &err),
                  "%s", err.text.data);
    return state;
}

const MxSampling greedy = {.top_p = 1, .repetition_penalty = 1};

static void generate(const char *dir, MxGeneration what, const MxPrompt *prompts, int64_t n,
                     int64_t max_tokens, MxReply *out) {
    MxError err = {0};
    const MxGenerate how = {.sampling = greedy, .max_tokens = max_tokens};
    ck_assert_msg(mx_generate(&arena, open_source(&arena, dir, what), &how, prompts, n, out, &err),
                  "%s", err.text.data);
}

static void same_replies(const char *what, const MxReply *a, const MxReply *b) {
    ck_assert_int_eq(a->tokens.n, b->tokens.n);
    for (int64_t i = 0; i < a->tokens.n; i++) {
        ck_assert_msg(a->tokens.ids[i] == b->tokens.ids[i], "%s: token %d", what, (int)i);
        ck_assert_float_eq_tol(a->logprobs[i], b->logprobs[i], 2e-5f);
    }
}

/* Greedy continuations, prompts in pieces of several lengths, together and alone. */
START_TEST(continuations_are_those_of_transformers) {
    MxError err = {0};
    MxH5 *file;
    MxShape shape, all;
    const char *name = models[_i], *path = golden(name, "expected.h5");
    if (!path) return;
    const char *dir = mx_path_dir(&arena, path);
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    int32_t *prompt = read_array(file, "generate/prompt", MX_I32, &shape);
    int32_t *wanted = read_array(file, "generate/tokens", MX_I32, &all);
    int64_t T = shape.dim[1], more = all.dim[1];
    const MxPrompt prompts[] = {{.tokens = {prompt, T}}, {.tokens = {prompt + T, T}}};
    for (int64_t chunk = 2; chunk <= T; chunk += chunk == 2 ? 1 : T - 3) {
        MxReply together[2], alone;
        generate(dir, (MxGeneration){.rows = 2, .capacity = T + more, .chunk = chunk}, prompts, 2,
                 more, together);
        for (int b = 0; b < 2; b++) {
            for (int64_t i = 0; i < more; i++)
                ck_assert_msg(together[b].tokens.ids[i] == wanted[b * more + i],
                              "%s, pieces of %d: row %d, token %d", name, (int)chunk, b, (int)i);
            generate(dir, (MxGeneration){.rows = 1, .capacity = T + more, .chunk = chunk},
                     &prompts[b], 1, more, &alone);
            same_replies(name, &together[b], &alone);
        }
    }
}
END_TEST

/* Of all families, further than the goldens of each model go; but gemma3, whose golden's layers
 * take turns as none of ours do. */
static const char *const continued[] = {"deepseek_v2", "deepseek_v3", "gemma",       "gemma2",
                                        "gpt_oss",     "llama",       "llama4_text", "llama_rope3",
                                        "mistral",     "mixtral",     "olmo3",       "qwen2",
                                        "qwen3",       "qwen3_moe",   "qwen3_next"};

static MxTokens ids_of(const MxJson *list) {
    MxTokens out = {mx_new_n(&arena, int32_t, (int64_t)mx_json_length(list) + 1), 0};
    for (size_t i = 0; i < mx_json_length(list); i++) {
        int64_t id;
        ck_assert(mx_json_int(mx_json_at(list, i), &id));
        out.ids[out.n++] = (int32_t)id;
    }
    return out;
}

START_TEST(long_continuations) {
    enum { MORE = 64, ROWS = 2 };
    MxError err = {0};
    MxBytes bytes;
    const char *name = continued[_i], *config = golden(name, "config.json");
    const char *file = goldens_need(&arena, "hf/continuations.json");
    if (!config) return;
    ck_assert(mx_file_read(&arena, file, 1 << 20, &bytes, &err));
    const MxJson *all = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, file, &err);
    const MxJson *rows = mx_json_get(all, name);
    MxPrompt prompts[ROWS];
    MxReply replies[ROWS];
    ck_assert_uint_eq(mx_json_length(rows), ROWS);
    for (size_t i = 0; i < ROWS; i++)
        prompts[i] = (MxPrompt){.tokens = ids_of(mx_json_get(mx_json_at(rows, i), "prompt"))};
    const MxGeneration what = {
        .rows = ROWS, .capacity = prompts[0].tokens.n + MORE, .chunk = prompts[0].tokens.n};
    generate(mx_path_dir(&arena, config), what, prompts, ROWS, MORE, replies);
    for (size_t i = 0; i < ROWS; i++) {
        MxTokens wanted = ids_of(mx_json_get(mx_json_at(rows, i), "tokens"));
        ck_assert_int_eq(wanted.n, MORE);
        for (int64_t k = 0; k < MORE; k++)
            ck_assert_msg(replies[i].tokens.ids[k] == wanted.ids[k], "%s: row %zu, token %d", name,
                          i, (int)k);
    }
}
END_TEST

START_TEST(logits_are_those_of_transformers) {
    MxError err = {0};
    MxH5 *file;
    MxShape ids_shape, shape;
    const char *name = models[_i], *path = golden(name, "expected.h5");
    if (!path) return;
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    int32_t *ids = read_array(file, "input_ids", MX_I32, &ids_shape);
    float *wanted = read_array(file, "logits", MX_F32, &shape), *got;
    int64_t T = shape.dim[1], V = shape.dim[2];
    for (int64_t chunk = 5; chunk <= T; chunk += T - 5) {
        MxGeneration what = {.rows = 1, .capacity = T, .chunk = chunk, .all_logits = true};
        MxTrainState *state = open_source(&arena, mx_path_dir(&arena, path), what);
        for (int64_t b = 0; b < shape.dim[0]; b++) {
            const MxPrompt prompt = {.tokens = {ids + b * T, T}};
            ck_assert(mx_generate_logits(&arena, state, &prompt, &got, &err));
            for (int64_t i = 0; i < T * V; i++)
                ck_assert_msg(fabsf(got[i] - wanted[b * T * V + i]) < 2e-5f * 8,
                              "%s, pieces of %d: row %d, token %d: %g, wanted %g", name, (int)chunk,
                              (int)b, (int)(i / V), (double)got[i], (double)wanted[b * T * V + i]);
        }
    }
}
END_TEST

/* Prompts of unequal lengths, more than there are rows. */
START_TEST(unequal_prompts_do_not_disturb_each_other) {
    enum { N = 7, MOST = 23, MORE = 12 };
    const char *dir = mx_path_dir(&arena, goldens_need(&arena, "hf/models/mistral/config.json"));
    int32_t ids[N][MOST];
    MxPrompt prompts[N];
    MxReply together[N], alone;
    for (int i = 0; i < N; i++) {
        prompts[i] = (MxPrompt){.tokens = {ids[i], 1 + (i * 11) % MOST}};
        for (int k = 0; k < MOST; k++) ids[i][k] = 3 + (i * 31 + k * 17) % 150;
    }
    generate(dir, (MxGeneration){.rows = 3, .capacity = MOST + MORE, .chunk = 4}, prompts, N, MORE,
             together);
    for (int i = 0; i < N; i++) {
        generate(dir, (MxGeneration){.rows = 1, .capacity = MOST + MORE, .chunk = 9}, &prompts[i],
                 1, MORE, &alone);
        same_replies("unequal", &together[i], &alone);
    }
}
END_TEST

/* ---- all families */

static MxConfig *load_config(char *words) {
    enum { MOST = 64 };
    const char *files[] = {"configs/base.yml"}, *overrides[MOST];
    MxConfigRequest request = {.files = files, .n_files = 1, .overrides = overrides};
    MxError err = {0};
    MxConfig *config = NULL;
    char *save, *w = strtok_r(words, " ", &save);
    for (; w; w = strtok_r(NULL, " ", &save)) overrides[request.n_overrides++] = w;
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

static MxConfig *config_of(const char *family) {
    return load_config(
        mx_arena_printf(&arena, "%s max_target_length=29", family_small(&arena, family)));
}

/* -log p of each next token, summed. */
static double nll_of(const float *logits, int64_t vocab, const int32_t *ids, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        double all = 0;
        for (int64_t v = 0; v < vocab; v++) all += exp((double)logits[i * vocab + v]);
        sum += log(all) - (double)logits[i * vocab + ids[i + 1]];
    }
    return sum;
}

static void copy_weights(MxTrainState *from, MxTrainState *to) {
    const MxTree *a = mx_train_state_tree(from), *b = mx_train_state_tree(to);
    for (int i = 0; i < a->n; i++) {
        MxKind kind = a->leaves[i].kind;
        if (kind != MX_KIND_PARAM && kind != MX_KIND_LORA_PARAM && kind != MX_KIND_FROZEN) continue;
        ck_assert_str_eq(a->leaves[i].path, b->leaves[i].path);
        mx_leaf_write(&b->leaves[i], mx_leaf_values(&arena, &a->leaves[i]));
    }
    mx_train_state_restored(to);
}

/* Adapters begin with zeros on one side, so that they change nothing. */
static void draw_adapters(MxTrainState *s) {
    MxTree *tree = mx_train_state_tree(s);
    for (int i = 0; i < tree->n; i++) {
        if (tree->leaves[i].kind != MX_KIND_LORA_PARAM) continue;
        float *x = mx_new_n(&arena, float, mx_shape_count(tree->leaves[i].shape));
        for (int64_t k = 0; k < mx_shape_count(tree->leaves[i].shape); k++)
            x[k] = 0.02f * (float)((k * 31 + i * 17) % 13 - 6);
        mx_leaf_write(&tree->leaves[i], x);
    }
}

/* With other weights, of which nothing may be left. */
static void reply_once(MxTrainState *s, int32_t *ids, int64_t n) {
    MxError err = {0};
    float *logits;
    const MxPrompt prompt = {.tokens = {ids, n}};
    mx_train_state_init(s);
    ck_assert_msg(mx_train_start_adapters(s, &err), "%s", err.text.data);
    mx_train_state_restored(s);
    ck_assert(mx_generate_logits(&arena, s, &prompt, &logits, &err));
}

/* A sequence in pieces, of which caches keep what is needed, and the same at once, as it is
 * trained: the same loss. */
static void compare_pieces(MxConfig *config) {
    enum { T = 29, VOCAB = 96, ROWS = 2 };
    MxError err = {0};
    MxTrainState *whole, *pieces;
    ck_assert_msg(mx_train_state_open_eval(&arena, config, NULL, &whole, &err), "%s",
                  err.text.data);
    mx_train_state_init(whole);
    draw_adapters(whole);
    MxBatch batch = mx_batch_new(&arena, ROWS, T);
    for (int i = 0; i < ROWS * T; i++) {
        batch.field[MX_INPUTS][i] = (i * 37 + i / T) % VOCAB;
        batch.field[MX_TARGETS][i] = ((i + 1) * 37 + i / T) % VOCAB;
        batch.field[MX_INPUTS_POSITION][i] = i % T;
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch.field[MX_TARGETS_SEGMENTATION][i] = i % T < T - 1;
    }
    double wanted = mx_train_eval(whole, &batch).loss * ROWS * (T - 1), got = 0;
    static const int64_t chunks[] = {4, 5, 20}; /* few queries; many, which meet caches in tiles */
    for (int i = 0; i < MX_COUNT(chunks); i++) {
        const int64_t chunk = chunks[i];
        MxGeneration what = {.rows = 1, .capacity = T, .chunk = chunk, .all_logits = true};
        ck_assert_msg(
            mx_train_state_open_generation(&arena, config, what, MX_NOT_QUANTIZED, &pieces, &err),
            "%s", err.text.data);
        if (config->enable_lora) reply_once(pieces, batch.field[MX_INPUTS], T);
        copy_weights(whole, pieces);
        got = 0;
        for (int b = 0; b < ROWS; b++) {
            const MxPrompt prompt = {.tokens = {batch.field[MX_INPUTS] + b * T, T}};
            float *logits;
            ck_assert(mx_generate_logits(&arena, pieces, &prompt, &logits, &err));
            got += nll_of(logits, VOCAB, prompt.tokens.ids, T);
        }
        ck_assert_msg(fabs(got - wanted) < 1e-5 * wanted, "%s, pieces of %d: %.9g, whole %.9g",
                      config->decoder_block, (int)chunk, got, wanted);
    }
}

START_TEST(pieces_make_what_the_whole_makes) {
    if (family_model(_i)) compare_pieces(config_of(family_model(_i)));
}
END_TEST

/* Those with windows among them: caches keep what is before a window, for the means of chunks. */
static const char *const choosers[] = {"llama2", "gemma3", "llama4", "gemma4_small", "deepseek"};

START_TEST(heads_choose_chunks) {
    MxConfig *config = config_of(choosers[_i]);
    config->moba = true;
    config->moba_chunk_size = 4;
    config->moba_topk = 3;
    config->use_indexer = false;
    compare_pieces(config);
}
END_TEST

/* Its keys and values are not made: the adapter of what would make them must be where that went.
 * With magnitudes, too. */
START_TEST(adapters_of_latent_attention_act) {
    MxConfig *config = config_of("deepseek");
    config->enable_lora = true;
    config->lora_rank = 3;
    config->lora_alpha = 24;
    config->lora_module_path = ".*self_attention/(wkv_a|wkv_b|wq_b|out)";
    config->lora_use_dora = _i == 1;
    compare_pieces(config);
}
END_TEST

/* Hugging Face's models as MaxText converts them, of families whose states are no keys and values.
 */
static const struct {
    const char *name, *words;
} converted[] = {
    {"qwen3_next",
     "decoder_block=qwen3_next base_num_decoder_layers=4 inhomogeneous_layer_cycle_interval=4 "
     "base_num_kv_heads=2 head_dim=16 base_mlp_dim=24 base_moe_mlp_dim=24 num_experts=4 "
     "num_experts_per_tok=2 shared_experts=1 gdn_num_key_heads=2 gdn_num_value_heads=4 "
     "gdn_key_head_dim=8 gdn_value_head_dim=8 partial_rotary_factor=0.25"},
    {"deepseek_v2",
     "decoder_block=deepseek attention_type=mla base_num_decoder_layers=2 "
     "first_num_dense_layers=1 base_num_kv_heads=4 base_mlp_dim=64 base_moe_mlp_dim=24 "
     "num_experts=4 num_experts_per_tok=2 shared_experts=2 routed_score_func=softmax "
     "norm_topk_prob=false kv_lora_rank=16 qk_nope_head_dim=8 qk_rope_head_dim=4 v_head_dim=8 "
     "rope_type=yarn max_position_embeddings=128 original_max_position_embeddings=32 "
     "rope_factor=4 mscale=0.707"},
    {"deepseek_v3",
     "decoder_block=deepseek attention_type=mla base_num_decoder_layers=2 "
     "first_num_dense_layers=1 base_num_kv_heads=4 base_mlp_dim=64 base_moe_mlp_dim=20 "
     "num_experts=8 num_experts_per_tok=3 shared_experts=1 routed_score_func=sigmoid "
     "routed_bias=true routed_scaling_factor=2.5 n_routing_groups=4 topk_routing_group=2 "
     "q_lora_rank=24 kv_lora_rank=16 qk_nope_head_dim=8 qk_rope_head_dim=4 v_head_dim=8 "
     "rope_type=yarn max_position_embeddings=128 original_max_position_embeddings=32 "
     "rope_factor=4 mscale=1"},
};

static MxTrainState *open_converted(const char *tree, const char *words, MxGeneration what) {
    MxError err = {0};
    MxTrainState *state;
    MxConfig *config = load_config(mx_arena_printf(
        &arena,
        "override_model_config=true base_emb_dim=32 base_num_query_heads=4 vocab_size=160 "
        "dataset_type=synthetic per_device_batch_size=1 normalization_layer_epsilon=1e-06 "
        "mlp_activations=[silu,linear] attention=dot_product %s",
        words));
    ck_assert_msg(
        mx_train_state_open_generation(&arena, config, what, MX_NOT_QUANTIZED, &state, &err) &&
            mx_ckpt_load_params(tree, NULL, 1, mx_train_state_tree(state), &err),
        "%s", err.text.data);
    mx_train_state_restored(state);
    return state;
}

/* Output kernels of gated heads, which MaxText's converter writes as [N, H, D] and its model, like
 * ours, has as [N H, D]: a copy of the file for the model. */
static const char *flatten_heads(const char *tree) {
    MxError err = {0};
    MxH5 *from, *to;
    MxH5Array *arrays;
    int n;
    char *copy = mx_arena_printf(&arena, "/tmp/flat_heads.XXXXXX");
    int descriptor = mkstemp(copy);
    ck_assert(descriptor >= 0 && close(descriptor) == 0);
    ck_assert(mx_h5_open(&arena, tree, &from, &err) && mx_h5_create(&arena, copy, &to, &err) &&
              mx_h5_list(&arena, from, "", &arrays, &n, &err));
    for (int i = 0; i < n; i++) {
        const char *path = arrays[i].path;
        MxShape shape;
        float *data = read_array(from, path, MX_F32, &shape);
        if (strstr(path, "attention/attention/out/kernel") && shape.dim[1] == 1)
            shape = MX_SHAPE(shape.dim[0] * shape.dim[2], 1, shape.dim[3]);
        ck_assert_msg(mx_h5_write(to, path, MX_F32, shape, data, &err), "%s", err.text.data);
    }
    ck_assert(mx_h5_close(to, &err));
    return copy;
}

START_TEST(converted_models_continue_as_transformers) {
    MxError err = {0};
    MxH5 *file;
    MxShape shape, all;
    const char *name = converted[_i].name, *path = golden(name, "expected.h5");
    const char *tree =
        goldens_find(&arena, mx_arena_printf(&arena, "hf/maxtext/%s_scanned.h5", name));
    if (!path || !tree) return;
    const char *flat = flatten_heads(tree);
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    int32_t *prompt = read_array(file, "generate/prompt", MX_I32, &shape);
    int32_t *wanted = read_array(file, "generate/tokens", MX_I32, &all);
    int64_t T = shape.dim[1], more = all.dim[1];
    const MxPrompt prompts[] = {{.tokens = {prompt, T}}, {.tokens = {prompt + T, T}}};
    const MxGenerate how = {.sampling = greedy, .max_tokens = more};
    for (int64_t chunk = 2; chunk <= T; chunk += T - 2) {
        MxReply replies[2];
        MxGeneration what = {.rows = 2, .capacity = T + more, .chunk = chunk};
        MxTrainState *state = open_converted(flat, converted[_i].words, what);
        ck_assert_msg(mx_generate(&arena, state, &how, prompts, 2, replies, &err), "%s",
                      err.text.data);
        for (int64_t i = 0; i < 2 * more; i++)
            ck_assert_msg(replies[i / more].tokens.ids[i % more] == wanted[i],
                          "%s, pieces of %d: row %d, token %d", name, (int)chunk, (int)(i / more),
                          (int)(i % more));
    }
    unlink(flat);
}
END_TEST

/* Kernels that are kept in few bits, and floats of the same values: the same replies, of several
 * sequences together and of one, in fewer bytes. */
static void compare_kept(MxConfig *config, MxQtype kept) {
    enum { N = 2, LENGTH = 11, MORE = 12 };
    MxError err = {0};
    MxTrainState *few, *floats;
    int32_t ids[N][LENGTH];
    MxPrompt prompts[N];
    for (int i = 0; i < N; i++) {
        prompts[i] = (MxPrompt){.tokens = {ids[i], LENGTH}};
        for (int k = 0; k < LENGTH; k++) ids[i][k] = (3 + i * 31 + k * 17) % 96;
    }
    for (int64_t rows = 1; rows <= N; rows++) {
        const MxGeneration what = {.rows = rows, .capacity = LENGTH + MORE, .chunk = 4};
        const MxGenerate how = {.sampling = greedy, .max_tokens = MORE};
        MxReply got[N], wanted[N];
        ck_assert_msg(mx_train_state_open_generation(&arena, config, what, kept, &few, &err) &&
                          mx_train_state_open_generation(&arena, config, what, MX_NOT_QUANTIZED,
                                                         &floats, &err),
                      "%s", err.text.data);
        mx_train_state_init(few);
        mx_train_state_restored(few);
        copy_weights(few, floats);
        ck_assert(mx_generate(&arena, few, &how, prompts, N, got, &err) &&
                  mx_generate(&arena, floats, &how, prompts, N, wanted, &err));
        for (int i = 0; i < N; i++) same_replies(mx_qtype_name(kept), &got[i], &wanted[i]);
        size_t bytes = mx_train_state_bytes(few).parameters;
        ck_assert_uint_lt(bytes, mx_train_state_bytes(floats).parameters);
    }
}

START_TEST(kernels_in_few_bits_reply_as_their_values) {
    if (!family_model(_i)) return;
    MxConfig *config = config_of(family_model(_i));
    if (config->use_double_wide_mlp) config->mlp_dim = 64; /* blocks of 64 divide twice as many */
    compare_kept(config, MX_NF4);
    compare_kept(config, MX_INT8);
    compare_kept(config, MX_INT4);
    compare_kept(config, MX_E4M3);
    compare_kept(config, MX_E5M2);
}
END_TEST

enum { ROWS = 4, LENGTH = 11, MORE = 9, WAITS = 2 };

/* Equal prompts that are others in memory, in another order by their numbers; then with less room
 * for replies, which end earlier. */
static void same_in_a_row(MxTrainState *state, MxGenerate how, const MxPrompt *prompts,
                          const MxReply *wanted, const char *name) {
    MxError err = {0};
    MxPrompt each[ROWS];
    int64_t numbers[ROWS];
    MxReply got[ROWS];
    how.stream = 0;
    how.numbers = numbers;
    for (int i = 0; i < ROWS; i++) {
        numbers[i] = ROWS - 1 - i;
        each[i] = prompts[numbers[i] == WAITS];
    }
    for (int less = 0; less < 3; less += 2) {
        how.longest = less ? LENGTH + MORE - less : 0;
        ck_assert(mx_generate(&arena, state, &how, each, ROWS, got, &err));
        for (int i = 0; i < ROWS; i++) {
            MxReply want = wanted[numbers[i]];
            want.tokens.n -= less;
            ck_assert(got[i].is_cut);
            if (how.echoes)
                got[i].logprobs[0] = want.logprobs[0] = 0; /* of what nothing foretells */
            same_replies(name, &got[i], &want);
        }
    }
}

/* Sequences with one prompt, which goes through the model once for all that wait, and others: each
 * as alone. Steps before they wait leave caches full of something else. */
START_TEST(sequences_with_one_prompt) {
    if (!family_model(_i)) return;
    MxError err = {0};
    MxTrainState *state;
    int32_t ids[2][LENGTH];
    MxPrompt prompts[2];
    MxReply together[ROWS], alone;
    const MxGeneration what = {
        .rows = ROWS, .capacity = LENGTH + MORE, .chunk = 4, .all_logits = true};
    MxGenerate how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                      .max_tokens = MORE};
    ck_assert(mx_train_state_open_generation(&arena, config_of(family_model(_i)), what,
                                             MX_NOT_QUANTIZED, &state, &err));
    mx_train_state_init(state);
    mx_train_state_restored(state);
    for (int i = 0; i < 2; i++) {
        prompts[i] = (MxPrompt){.tokens = {ids[i], LENGTH}};
        for (int k = 0; k < LENGTH; k++) ids[i][k] = (3 + i * 31 + k * 17) % 96;
    }
    for (int echoes = 0; echoes < 2; echoes++) {
        MxSequences *s = mx_sequences_new(&arena, state);
        how.echoes = echoes;
        for (uint64_t i = 0; i < ROWS; i++)
            ck_assert_int_eq(mx_sequences_join(s, &arena, &how, &prompts[i == WAITS], i), (int)i);
        while (mx_sequences_step(s)) {
        }
        for (int i = 0; i < ROWS; i++) together[i] = mx_sequences_leave(s, i);
        same_in_a_row(state, how, prompts, together, family_model(_i));
        for (int i = 0; i < ROWS; i++) {
            how.stream = (uint64_t)i;
            ck_assert(mx_generate(&arena, state, &how, &prompts[i == WAITS], 1, &alone, &err));
            ck_assert_int_eq(alone.n_echoed, echoes ? LENGTH : 0);
            ck_assert(isnan(alone.logprobs[0]) == echoes &&
                      alone.tokens.n == alone.n_echoed + MORE);
            alone.logprobs[0] = together[i].logprobs[0] = 0;
            same_replies(family_model(_i), &together[i], &alone);
        }
    }
}
END_TEST

START_TEST(those_that_see_ahead_do_not_generate) {
    MxError err = {0};
    MxTrainState *state;
    MxConfig *config = config_of("llama2");
    config->attention_type = "full";
    ck_assert(!mx_train_state_open_generation(&arena, config,
                                              (MxGeneration){.rows = 1, .capacity = 8, .chunk = 4},
                                              MX_NOT_QUANTIZED, &state, &err));
    ck_assert_msg(strstr(err.text.data, "attention_type: full: tokens see those behind them"), "%s",
                  err.text.data);
    mx_error_release(&err);
}
END_TEST

Suite *generate_suite(void) {
    Suite *suite = suite_create("generate");
    TCase *tcase = tcase_create("replies");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, continuations_are_those_of_transformers, 0, N_CONTINUED);
    tcase_add_loop_test(tcase, long_continuations, 0, MX_COUNT(continued));
    tcase_add_loop_test(tcase, logits_are_those_of_transformers, 0, MX_COUNT(models));
    tcase_add_test(tcase, unequal_prompts_do_not_disturb_each_other);
    tcase_add_test(tcase, those_that_see_ahead_do_not_generate);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("families");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    int n = family_models();
    tcase_add_loop_test(tcase, pieces_make_what_the_whole_makes, 0, n);
    tcase_add_loop_test(tcase, kernels_in_few_bits_reply_as_their_values, 0, n);
    tcase_add_loop_test(tcase, sequences_with_one_prompt, 0, n);
    tcase_add_loop_test(tcase, heads_choose_chunks, 0, MX_COUNT(choosers));
    tcase_add_loop_test(tcase, adapters_of_latent_attention_act, 0, 2);
    tcase_add_loop_test(tcase, converted_models_continue_as_transformers, 0, MX_COUNT(converted));
    suite_add_tcase(suite, tcase);
    return suite;
}
