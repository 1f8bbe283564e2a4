/* hf_names.c — the table of Hugging Face's names: one row a parameter of any family; and how
 * elements lie in an array of the other side. A transposed matrix, dims taken together or apart and
 * rotated heads are all a matter of strides, so one walk over them serves both directions. Source:
 * MaxText checkpoint_conversion/utils/param_mapping.py @e591f30c (names, PARAM_MAPPING; transforms,
 * HOOK_FNS); transformers 5.23 models/<type>/modeling_<type>.py. */
#include "hf.h"

#include <math.h>

// clang-format off
const HfRow hf_rows[] = {
    {HF_MODEL, 0, "token_embedder/embedding", "model.embed_tokens.weight", "V D", "V D", HF_TABLE, HF_ALL, NULL, NULL},
    {HF_NORM,  0, "scale",            "weight",                  "D",     "D",    HF_SCALE, HF_ALL, NULL, NULL},
    {HF_MIXER, 0, "query/kernel",     "self_attn.q_proj.weight", "D N H", "NH D", HF_QUERY, HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "key/kernel",       "self_attn.k_proj.weight", "D K H", "KH D", HF_KEY,   HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "value/kernel",     "self_attn.v_proj.weight", "D K H", "KH D", HF_PLAIN, HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "qkv_proj/kernel",  "self_attn.q_proj.weight", "D N H", "NH D", HF_QUERY, HF_ONE_QKV, "D Q H", ""},
    {HF_MIXER, 0, "qkv_proj/kernel",  "self_attn.k_proj.weight", "D K H", "KH D", HF_KEY,   HF_ONE_QKV, "D Q H", "N"},
    {HF_MIXER, 0, "qkv_proj/kernel",  "self_attn.v_proj.weight", "D K H", "KH D", HF_PLAIN, HF_ONE_QKV, "D Q H", "N+K"},
    {HF_MIXER, 0, "out/kernel",       "self_attn.o_proj.weight", "N H D", "D NH", HF_PLAIN, HF_ALL, NULL, NULL},
    {HF_MIXER, 0, "query/bias",       "self_attn.q_proj.bias",   "N H",   "NH",   HF_QUERY, HF_BIAS | HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "key/bias",         "self_attn.k_proj.bias",   "K H",   "KH",   HF_KEY,   HF_BIAS | HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "value/bias",       "self_attn.v_proj.bias",   "K H",   "KH",   HF_PLAIN, HF_BIAS | HF_QKV, NULL, NULL},
    {HF_MIXER, 0, "qkv_proj/bias",    "self_attn.q_proj.bias",   "N H",   "NH",   HF_QUERY, HF_BIAS | HF_ONE_QKV, "Q H", ""},
    {HF_MIXER, 0, "qkv_proj/bias",    "self_attn.k_proj.bias",   "K H",   "KH",   HF_KEY,   HF_BIAS | HF_ONE_QKV, "Q H", "N"},
    {HF_MIXER, 0, "qkv_proj/bias",    "self_attn.v_proj.bias",   "K H",   "KH",   HF_PLAIN, HF_BIAS | HF_ONE_QKV, "Q H", "N+K"},
    {HF_MIXER, 0, "out/bias",         "self_attn.o_proj.bias",   "D",     "D",    HF_PLAIN, HF_OUT_BIAS, NULL, NULL},
    {HF_MIXER, 0, "query_norm/scale", "self_attn.q_norm.weight", "H",     "H",    HF_SCALE, HF_QK_NORM, NULL, NULL},
    {HF_MIXER, 0, "key_norm/scale",   "self_attn.k_norm.weight", "H",     "H",    HF_SCALE, HF_QK_NORM, NULL, NULL},
    {HF_NORM,  1, "scale",            "weight",                  "D",     "D",    HF_SCALE, HF_ALL, NULL, NULL},
    {HF_NORM,  2, "scale",            "weight",                  "D",     "D",    HF_SCALE, HF_ALL, NULL, NULL},
    {HF_FFN,   0, "wi_0/kernel",      "mlp.gate_proj.weight",    "D M",   "M D",  HF_PLAIN, HF_MLP, NULL, NULL},
    {HF_FFN,   0, "wi_1/kernel",      "mlp.up_proj.weight",      "D M",   "M D",  HF_PLAIN, HF_MLP, NULL, NULL},
    {HF_FFN,   0, "wi/kernel",        "mlp.gate_proj.weight",    "D 1 M", "M D",  HF_PLAIN, HF_ONE_MLP, "D 2 M", ""},
    {HF_FFN,   0, "wi/kernel",        "mlp.up_proj.weight",      "D 1 M", "M D",  HF_PLAIN, HF_ONE_MLP, "D 2 M", "1"},
    {HF_FFN,   0, "wo/kernel",        "mlp.down_proj.weight",    "M D",   "D M",  HF_PLAIN, HF_ALL, NULL, NULL},
    {HF_EXPERTS, 0, "gate/kernel", "block_sparse_moe.gate.weight",          "D X",   "X D", HF_PLAIN, HF_EXPERTS_W, NULL, NULL},
    {HF_EXPERTS, 0, "wi_0",        "block_sparse_moe.experts.%d.w1.weight", "1 D M", "M D", HF_PLAIN, HF_EXPERTS_W, "X D M", "%"},
    {HF_EXPERTS, 0, "wi_1",        "block_sparse_moe.experts.%d.w3.weight", "1 D M", "M D", HF_PLAIN, HF_EXPERTS_W, "X D M", "%"},
    {HF_EXPERTS, 0, "wo",          "block_sparse_moe.experts.%d.w2.weight", "1 M D", "D M", HF_PLAIN, HF_EXPERTS_W, "X M D", "%"},
    {HF_EXPERTS, 0, "gate/kernel", "mlp.gate.weight",                 "D X",   "X D", HF_PLAIN, HF_EXPERTS_PROJ, NULL, NULL},
    {HF_EXPERTS, 0, "wi_0",        "mlp.experts.%d.gate_proj.weight", "1 D M", "M D", HF_PLAIN, HF_EXPERTS_PROJ, "X D M", "%"},
    {HF_EXPERTS, 0, "wi_1",        "mlp.experts.%d.up_proj.weight",   "1 D M", "M D", HF_PLAIN, HF_EXPERTS_PROJ, "X D M", "%"},
    {HF_EXPERTS, 0, "wo",          "mlp.experts.%d.down_proj.weight", "1 M D", "D M", HF_PLAIN, HF_EXPERTS_PROJ, "X M D", "%"},
    {HF_NORM,  3, "scale",            "weight",                  "D",     "D",    HF_SCALE, HF_ALL, NULL, NULL},
    {HF_MODEL, 0, "decoder/decoder_norm/scale",  "model.norm.weight", "D",   "D",   HF_SCALE, HF_ALL, NULL, NULL},
    {HF_MODEL, 0, "decoder/logits_dense/kernel", "lm_head.weight",    "D V", "V D", HF_PLAIN, HF_UNTIED, NULL, NULL},
};
// clang-format on
const int hf_n_rows = MX_COUNT(hf_rows);

bool hf_is_outer(const MxFamily *family, const char *model_type) {
    return family->hf.outer_type && !strcmp(family->hf.outer_type, model_type);
}

const MxFamily *hf_family(const char *model_type) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int i = 0; i < n; i++)
        if (families[i]->hf.model_type && (!strcmp(families[i]->hf.model_type, model_type) ||
                                           hf_is_outer(families[i], model_type)))
            return families[i];
    return NULL;
}

const MxFamily *hf_family_of(const MxHfModel *model) {
    const MxFamily *family = mx_family_find(model->decoder_block);
    return family && family->hf.model_type ? family : NULL;
}

const char *hf_families(MxArena *arena) {
    MxText text;
    int n;
    const MxFamily *const *families = mx_families(&n);
    mx_text_init(&text, arena);
    for (int i = 0; i < n; i++)
        if (families[i]->hf.model_type)
            mx_text_add(&text, "%s%s", text.len ? ", " : "", families[i]->hf.model_type);
    return text.data;
}

/* How many tensors a layer has of a row. */
static int in_a_layer(const MxHfModel *model, const HfRow *row) {
    return strchr(row->theirs, '%') ? (int)model->n_experts : 1;
}

/* Our name of what a row is in: a block, or a norm around it; NULL = this layer has none. */
static const char *part_name(const MxHfModel *model, const HfRow *row, int layer) {
    MxLayers layers = hf_model_layers(model);
    const MxLayerSpec *spec = mx_layer_spec(&layers, layer);
    const MxBlockSpec *ffn = &spec->block[1];
    if (row->part == HF_MIXER) return spec->block[0].name;
    if (row->part != HF_NORM)
        return (ffn->kind == MX_BLOCK_MOE) == (row->part == HF_EXPERTS) ? ffn->name : NULL;
    const MxBlockSpec *block = &spec->block[row->norm / 2];
    return row->norm % 2 ? block->norm_after : block->norm_before;
}

MxLayers hf_model_layers(const MxHfModel *model) {
    return mx_layers(hf_family_of(model), (MxLayerKeys){.n = model->n_layers});
}

int64_t hf_layers(const MxHfModel *model) {
    return hf_model_layers(model).n;
}

int64_t hf_count(const MxHfModel *model, const HfRow *row) {
    const MxFamily *family = hf_family_of(model);
    int has = (model->is_tied ? 0 : HF_UNTIED) | (model->has_bias ? HF_BIAS : 0) |
              (model->has_bias && family->specs[0].has_out_bias ? HF_OUT_BIAS : 0) |
              (family->hf.has_qk_norm ? HF_QK_NORM : 0) |
              (model->heads.fuses_qkv ? HF_ONE_QKV : HF_QKV) |
              (model->heads.fuses_mlp ? HF_ONE_MLP : HF_MLP) |
              (family->hf.experts == MX_HF_EXPERTS_W ? HF_EXPERTS_W : 0) |
              (family->hf.experts == MX_HF_EXPERTS_PROJ ? HF_EXPERTS_PROJ : 0);
    if ((row->wants & has) != row->wants) return 0;
    if (row->part == HF_MODEL) return 1;
    return part_name(model, row, 0) ? hf_layers(model) * in_a_layer(model, row) : 0;
}

const char *hf_our_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (row->part == HF_MODEL) return mx_arena_printf(arena, "model/%s", row->ours);
    MxLayers layers = hf_model_layers(model);
    i /= in_a_layer(model, row);
    return mx_arena_printf(arena, "model/%s/%s/%s", mx_layer_name(arena, &layers, i),
                           part_name(model, row, i), row->ours);
}

const char *hf_their_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (row->part == HF_MODEL) return row->theirs;
    const char *slot = strchr(row->theirs, '%');
    int each = in_a_layer(model, row);
    if (slot)
        return mx_arena_printf(arena, "model.layers.%d.%.*s%d%s", i / each,
                               (int)(slot - row->theirs), row->theirs, i % each, slot + 2);
    if (row->part != HF_NORM) return mx_arena_printf(arena, "model.layers.%d.%s", i, row->theirs);
    return mx_arena_printf(arena, "model.layers.%d.%s.%s", i,
                           hf_family_of(model)->hf.norms[row->norm], row->theirs);
}

/* ---- how elements lie */

static int64_t size_of(const MxHfModel *m, char letter) {
    const struct {
        char letter;
        int64_t size;
    } sizes[] = {{'D', m->emb_dim},
                 {'V', m->vocab_size},
                 {'N', m->n_query_heads},
                 {'K', m->n_kv_heads},
                 {'H', m->head_dim},
                 {'M', m->mlp_dim},
                 {'X', m->n_experts},
                 {'1', 1},
                 {'2', 2},
                 {'Q', m->n_query_heads + 2 * m->n_kv_heads}};
    int i = 0;
    while (sizes[i].letter != letter) i++;
    return sizes[i].size;
}

static MxShape shape_of(const MxHfModel *m, const char *words) {
    MxShape shape = {.rank = 1, .dim = {1}};
    for (; *words; words++) {
        if (*words == ' ')
            shape.dim[shape.rank++] = 1;
        else
            shape.dim[shape.rank - 1] *= size_of(m, *words);
    }
    return shape;
}

/* A sum of letters. */
static int64_t sum_of(const MxHfModel *m, const char *letters) {
    int64_t sum = 0;
    for (; *letters; letters++)
        if (*letters != '+') sum += size_of(m, *letters);
    return sum;
}

/* Elements between neighbours along a letter: the product of what follows it; 0 = there are none.
 */
static int64_t stride_of(const MxHfModel *m, const char *words, char letter) {
    int64_t stride = 1;
    const char *at = strchr(words, letter);
    for (const char *after = at ? at + 1 : (stride = 0, ""); *after; after++)
        if (*after != ' ') stride *= size_of(m, *after);
    return stride;
}

static float factor_of(const MxHfModel *model, HfRole role) {
    bool is_table = role == HF_TABLE && hf_family_of(model)->hf.scales_embedding;
    return is_table ? (float)sqrt((double)model->emb_dim) : hf_factor(&model->heads, role);
}

HfMap hf_values(const MxHfModel *model, HfRole role) {
    bool adds_one = role == HF_SCALE && hf_family_of(model)->hf.adds_one;
    return (HfMap){.factor = factor_of(model, role), .term = adds_one ? 1 : 0};
}

HfMap hf_map(const MxHfModel *model, const HfRow *row, int i) {
    bool has_heads = row->role == HF_QUERY || row->role == HF_KEY;
    MxShape part = shape_of(model, row->our_shape);
    HfMap map = hf_values(model, row->role);
    map.ours = row->whole ? shape_of(model, row->whole) : part;
    map.part = mx_box_of(part);
    map.theirs = shape_of(model, row->their_shape);
    map.inner = map.rotated = -1;
    int dim = 0;
    for (int d = 0; d < part.rank; d++)
        if (map.ours.dim[d] != part.dim[d])
            map.part.start[d] =
                row->first[0] == '%' ? i % in_a_layer(model, row) : sum_of(model, row->first);
    for (const char *word = row->our_shape; *word; dim++) {
        size_t n = strcspn(word, " ");
        char last = word[n - 1]; /* letters of one dim lie next to each other there too */
        map.stride[dim] = stride_of(model, row->their_shape, last);
        bool is_rotated = last == 'H' && has_heads && model->heads.interleaves;
        if (is_rotated) map.rotated = dim;
        if (map.stride[dim] == 1 && !is_rotated) map.inner = dim;
        word += n + (word[n] == ' ');
    }
    return map;
}

/* Positions of the run at `index`. */
static void settle(HfRun *run) {
    const HfMap *map = run->map;
    run->at = run->theirs = 0;
    run->step = 1;
    for (int d = 0; d < run->box.rank; d++) {
        int64_t i = run->box.start[d] + run->index[d] - map->part.start[d];
        int64_t in_dense = run->box.start[d] + run->index[d] - run->dense.start[d];
        run->at = run->at * run->dense.count[d] + in_dense;
        if (map->inner >= 0 && d > map->inner) run->step *= run->dense.count[d];
        if (d == map->rotated) i = hf_place_in_head(map->ours.dim[d], i);
        run->theirs += i * map->stride[d];
    }
}

bool hf_run_start(HfRun *run, const HfMap *map, const MxBox *box) {
    *run = (HfRun){.map = map, .dense = *box, .box = mx_box_meet(box, &map->part)};
    if (!mx_box_count(&run->box)) return false;
    run->n = map->inner < 0 ? 1 : run->box.count[map->inner];
    settle(run);
    return true;
}

bool hf_run_next(HfRun *run) {
    for (int d = run->box.rank - 1; d >= 0; d--) {
        if (d == run->map->inner) continue;
        if (++run->index[d] < run->box.count[d]) {
            settle(run);
            return true;
        }
        run->index[d] = 0;
    }
    return false;
}
