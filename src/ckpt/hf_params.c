/* hf_params.c — the parameters of a model: which rows of the table of names it has, how often, and
 * what each is called on both sides. */
#include "hf.h"

int hf_each(const MxHfModel *model, const HfRow *row) {
    return row->each ? (int)hf_size(model, NULL, row->each) : 1;
}

static const MxBlockKind kinds[HF_EYE_DEEP + 1] = {[HF_ATTENTION] = MX_BLOCK_ATTENTION,
                                                   [HF_MLA] = MX_BLOCK_MLA,
                                                   [HF_COMPRESSED] = MX_BLOCK_COMPRESSED,
                                                   [HF_DELTA] = MX_BLOCK_DELTA,
                                                   [HF_GLU] = MX_BLOCK_GLU,
                                                   [HF_MOE] = MX_BLOCK_MOE,
                                                   [HF_ROUTED] = MX_BLOCK_MOE,
                                                   [HF_SHARED] = MX_BLOCK_MOE,
                                                   [HF_SHARED_GATE] = MX_BLOCK_MOE};

/* Our name of what a row is in: a block, a part of one, or a norm around it; NULL = this layer has
 * none. */
static const char *part_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int layer) {
    MxLayers layers = hf_model_layers(model);
    const MxLayerSpec *spec = mx_layer_spec(&layers, layer);
    if (row->holder == HF_LAYER) return "";
    if (row->holder == HF_NORM) {
        const MxBlockSpec *block = &spec->block[row->norm / 2];
        return row->norm % 2 ? block->norm_after : block->norm_before;
    }
    int b = 0;
    while (b < MX_LAYER_BLOCKS && spec->block[b].kind != kinds[row->holder]) b++;
    if (b == MX_LAYER_BLOCKS) return NULL;
    const MxBlockSpec *block = &spec->block[b];
    const char *const inner[] = {[HF_ROUTED] = block->routed,
                                 [HF_SHARED] = model->n_shared ? block->shared : NULL,
                                 [HF_SHARED_GATE] = model->n_shared ? block->shared_gate : NULL};
    if (row->holder < HF_ROUTED || (row->holder == HF_ROUTED && !block->routed)) return block->name;
    return inner[row->holder] ? mx_path_join(arena, block->name, inner[row->holder]) : NULL;
}

MxLayers hf_model_layers(const MxHfModel *model) {
    MxLayerKeys keys = {.n = model->n_layers,
                        .n_dense = model->n_dense,
                        .n_hash = model->n_hash,
                        .nope_interval = model->nope_interval,
                        .moe_step = model->moe_step,
                        .cycle = model->cycle,
                        .last_ends_cycle = model->last_ends_cycle,
                        .n_experts = model->n_experts,
                        .n_takers = model->n_takers,
                        .ratios = model->ratios};
    return mx_layers(hf_family_of(model), keys);
}

int64_t hf_layers(const MxHfModel *model) {
    return hf_model_layers(model).n;
}

/* Bits of what a model has. */
static int bits_of(const MxHfModel *model) {
    const MxHfNames *names = model->names;
    bool has_out_bias = false, has_gates = false, has_together = false;
    const MxFamily *family = hf_family_of(model);
    for (int s = 0; s < family->n_specs; s++) {
        has_out_bias |= family->specs[s].has_out_bias;
        has_gates |= family->specs[s].gates_heads;
        has_together |= family->specs[s].norms_together;
    }
    return (model->has_score ? HF_SCORE
            : model->is_tied ? 0
                             : HF_UNTIED) |
           (model->has_bias ? HF_BIAS : 0) | (model->has_bias && has_out_bias ? HF_OUT_BIAS : 0) |
           (names->has_qk_norm ? HF_QK_NORM : 0) | (has_together ? HF_TOGETHER : HF_APART) |
           (model->heads.fuses_qkv ? HF_ONE_QKV : HF_QKV) |
           (model->heads.fuses_mlp ? HF_ONE_MLP : HF_MLP) | (has_gates ? HF_GATED : HF_PLAIN_Q) |
           (names->has_sinks ? HF_SINKS : 0) | (names->has_score_bias ? HF_SCORE_BIAS : 0) |
           (model->q_rank ? HF_NARROW_Q : HF_WIDE_Q) | (names->has_indexer ? HF_INDEXER : 0) |
           (names->has_delta_apart ? HF_DELTA_APART : HF_DELTA_ONE) |
           (model->input_dim ? HF_INPUTS : 0) | (model->n_streams > 1 ? HF_STREAMS : 0);
}

/* In no layer of the decoder. */
static bool is_apart(const HfRow *row) {
    return row->holder == HF_MODEL || hf_is_eye(row);
}

int64_t hf_count(const MxHfModel *model, const HfRow *row) {
    if (row->wants & ~bits_of(model) & ~HF_OF_LAYERS) return 0;
    if (row->experts && (int)row->experts != model->experts) return 0;
    if (row->encoder && (!model->sees || !mx_text_has_word(row->encoder, model->encoder->name)))
        return 0;
    if (hf_is_ear(row) && !model->hears) return 0;
    if (row->holder == HF_EAR_LAYER) return model->hear_layers;
    if (row->holder == HF_EYE_LAYER) return model->see_layers;
    if (row->holder == HF_EYE_DEEP) return model->n_see_deep;
    return is_apart(row) ? 1 : hf_layers(model) * hf_each(model, row);
}

int64_t hf_most_names(const MxHfModel *model) {
    int64_t n = 0;
    for (int r = 0; r < hf_n_rows; r++) n += hf_count(model, &hf_rows[r]);
    return n;
}

const MxLayerSpec *hf_spec(const MxHfModel *model, const HfRow *row, int i) {
    MxLayers layers = hf_model_layers(model);
    return is_apart(row) ? NULL : mx_layer_spec(&layers, i / hf_each(model, row));
}

/* Bits of what a layer has. */
static int bits_of_layer(const MxHfModel *model, const MxLayerSpec *spec) {
    bool shares = spec->has_own_heads && model->shares_kv;
    return (spec->takes_kv ? 0 : HF_KEYS) | (spec->takes_kv || shares ? 0 : HF_VALUES) |
           (spec->block[1].router_scale ? HF_OWN_ROUTER : HF_PLAIN_ROUTER) |
           (spec->scalar ? HF_SCALAR : 0) | (spec->hashes ? HF_HASHES : HF_CHOOSES) |
           (spec->windows == MX_WINDOWS_ALL ? HF_POOLS_ALL : 0) |
           (spec->windows == MX_WINDOWS_CHOSEN ? HF_POOLS_CHOSEN : 0);
}

bool hf_has(const MxHfModel *model, const HfRow *row, int i) {
    if (is_apart(row)) return true;
    MxArena arena = {.name = "name"};
    bool has = !(row->wants & HF_OF_LAYERS & ~bits_of_layer(model, hf_spec(model, row, i))) &&
               part_name(&arena, model, row, i / hf_each(model, row)) != NULL;
    mx_arena_release(&arena);
    return has;
}

static const char *our_eye_name(MxArena *arena, const MxEncoder *encoder, const HfRow *row, int i) {
    const char dir[] = "model/vision_encoder", *below = encoder->tower, *part = NULL;
    if (row->holder == HF_EYE) return mx_arena_printf(arena, "%s/%s", dir, row->ours);
    if (row->holder == HF_EYE_EXIT) below = encoder->projector;
    if (row->holder == HF_EYE_LAYER) part = encoder->layer;
    if (row->holder == HF_EYE_DEEP) part = encoder->deep;
    return part ? mx_arena_printf(arena, "%s/%s/%s%d/%s", dir, below, part, i, row->ours)
                : mx_arena_printf(arena, "%s/%s/%s", dir, below, row->ours);
}

static const char *our_ear_name(MxArena *arena, const MxAudioEncoder *audio, const HfRow *row,
                                int i) {
    const char *below = row->holder == HF_EAR_EXIT ? audio->projector : audio->tower;
    const char *dir = mx_path_join(arena, "model/audio_encoder", below);
    return row->holder == HF_EAR_LAYER
               ? mx_arena_printf(arena, "%s/%s%d/%s", dir, audio->layer, i, row->ours)
               : mx_path_join(arena, dir, row->ours);
}

const char *hf_our_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (row->holder == HF_MODEL) return mx_arena_printf(arena, "model/%s", row->ours);
    if (hf_is_ear(row)) return our_ear_name(arena, model->encoder->audio, row, i);
    if (hf_is_eye(row)) return our_eye_name(arena, model->encoder, row, i);
    MxLayers layers = hf_model_layers(model);
    i /= hf_each(model, row);
    const char *layer = mx_layer_name(arena, &layers, i), *part = part_name(arena, model, row, i);
    return mx_arena_printf(arena, "model/%s%s%s/%s", layer, *part ? "/" : "", part, row->ours);
}

const char *hf_block_name(MxArena *arena, const MxHfNames *names, const HfRow *row) {
    const char *ffn = names->ffn ? names->ffn : "mlp";
    if (row->holder == HF_NORM) return names->norms[row->norm];
    if (row->holder == HF_LAYER) return "";
    if (names->routed && (row->holder == HF_MOE || row->holder == HF_ROUTED)) return names->routed;
    if (row->holder == HF_DELTA) return "linear_attn";
    if (row->holder == HF_COMPRESSED && names->is_bare) return "attn";
    if (row->holder == HF_ATTENTION || row->holder == HF_MLA || row->holder == HF_COMPRESSED)
        return "self_attn";
    return row->holder == HF_SHARED && names->shared
               ? mx_arena_printf(arena, "%s.%s", ffn, names->shared)
               : ffn;
}

const char *hf_their_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (model->unties && row->wants & HF_UNTIED) row = &hf_rows[HF_EMBEDDING];
    if (row->holder == HF_EYE_LAYER)
        return mx_arena_printf(arena, "%s%d.%s", model->encoder->hf.layers, i, row->theirs);
    if (row->holder == HF_EYE_DEEP)
        return mx_arena_printf(arena, "%s%d.%s", model->encoder->hf.deep, i, row->theirs);
    const MxAudioEncoder *audio = hf_is_ear(row) ? model->encoder->audio : NULL;
    if (row->holder == HF_EAR_LAYER)
        return mx_arena_printf(arena, "%s%d.%s", audio->hf_layers, i, row->theirs);
    if (audio) return mx_arena_printf(arena, "%s%s", audio->hf_tower, row->theirs);
    if (hf_is_eye(row) && model->encoder->hf.tower)
        return mx_arena_printf(arena, "%s%s", model->encoder->hf.tower, row->theirs);
    bool is_bare = model->names->is_bare;
    const char *name = is_bare && row->bare ? row->bare : row->theirs;
    if (is_apart(row) || !name) return name;
    const char *slot = strchr(name, '%');
    int each = hf_each(model, row);
    if (slot)
        name = mx_arena_printf(arena, "%.*s%d%s", (int)(slot - name), name, i % each, slot + 2);
    const char *block = hf_block_name(arena, model->names, row);
    return mx_arena_printf(arena, "%slayers.%d.%s%s%s", is_bare ? "" : "model.", i / each, block,
                           *block ? "." : "", name);
}
