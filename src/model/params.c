/* params.c — the parameter tree of a decoder: MaxText's paths, shapes, logical axes and
 * initialisers, layer by layer; the parameters of blocks come from their rows. Kernels are
 * initialised with variance 1/fan_in over their contracted dims: normal in attention, truncated
 * normal elsewhere. Source: MaxText layers/attentions.py, linears.py, embeddings.py @e591f30c. */
#include <mx/model.h>

#include "mapped.h"
#include "streams.h"

#include <math.h>

Place model_inside(const Place *place, const char *name) {
    Place in = *place;
    if (name) in.block = mx_path_join(in.arena, in.block, name);
    return in;
}

int model_add(const Place *p, const char *name, MxShape shape, int n_contract,
              const char *const *axes, MxInit init) {
    MxLeaf leaf = {.kind = p->kind, .dtype = p->dtype, .shape = shape, .init = init};
    leaf.n_contract = n_contract;
    const char *tail = mx_path_join(p->arena, p->block, name);
    leaf.path = mx_path_join(p->arena, p->dir, tail);
    for (int i = 0; i < shape.rank; i++) leaf.axes[i] = axes[i];
    if (p->place)
        leaf.stack = mx_stack_of(p->arena, "decoder/", p->place->how.outer, p->place->how,
                                 p->place->layer, p->place->n, tail);
    return p->ties ? model_add_tied(p->tree, p->ties, leaf.path) : mx_tree_add(p->tree, leaf);
}

int model_add_bare(const Place *p, const char *name, MxShape shape, MxInit init) {
    int leaf = model_add(p, name, shape, 0, AXES(NULL, NULL, NULL), init);
    p->tree->leaves[leaf].bare = MX_AXES_NONE;
    return leaf;
}

MxInit model_fan_in(MxInitKind kind, int64_t n) {
    return (MxInit){.kind = kind, .std = 1 / sqrt((double)n)};
}

const NormForm model_norms[] = {
    [MX_NORM_RMS] = {0},
    [MX_NORM_RMS_LESS_1] = {.is_less_1 = true},
    [MX_NORM_LAYER] = {.is_less_1 = true, .centers = true},
    [MX_NORM_LAYER_PLAIN] = {.centers = true},
};

Norm model_add_norm(const Place *p, const char *name, int64_t width) {
    Norm norm = {.kind = p->norm, .scale = -1, .bias = -1};
    if (!name) return norm;
    MxInit zeros = {.kind = MX_INIT_ZEROS}, ones = {.kind = MX_INIT_ONES};
    const char *const *axes = AXES(p->norms_are_whole && p->place ? NULL : "norm");
    norm.scale = model_add(p, mx_path_join(p->arena, name, "scale"), MX_SHAPE(width), 1, axes,
                           model_norms[p->norm].is_less_1 ? zeros : ones);
    if (model_norms[p->norm].centers)
        norm.bias =
            model_add(p, mx_path_join(p->arena, name, "bias"), MX_SHAPE(width), 0, axes, zeros);
    if (p->norms_are_whole) p->tree->leaves[norm.scale].bare = MX_AXES_OF_STACK;
    return norm;
}

/* What steps change besides what the optimizer does. */
static void note_leaves(MxModel *model, const BlockLeaves *b, int spec) {
    if (b->block->router)
        model->routers[model->n_routers++] = b->block->router(&model->specs[spec], b->own);
    if (b->block->heads) model->heads[model->n_heads++] = b->block->heads(model->config, b->own);
}

/* As wide as the stream again. */
static int add_back(const Place *place, const MxConfig *c, const MxBlockSpec *row) {
    int64_t width = model_width(c, row->gives);
    if (!row->back || width == c->emb_dim) return -1;
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    return model_add(place, mx_path_join(place->arena, row->back, "kernel"),
                     MX_SHAPE(width, c->emb_dim), 1,
                     is_whole ? AXES(NULL, NULL) : AXES("mlp", "embed"),
                     model_fan_in(MX_INIT_TRUNCATED_NORMAL, width));
}

static void add_block(const Place *place, MxModel *model, int spec, int i, BlockLeaves *b) {
    const MxConfig *c = model->config;
    const MxBlockSpec *row = &model->specs[spec].row->block[i];
    Place inside = *place;
    inside.block = row->name;
    inside.row = row;
    *b = (BlockLeaves){.block = model_block(row->kind), .row = row};
    b->hyper = model_add_hyper(place, c, i);
    b->norm_before = model_add_norm(place, row->norm_before, model_width(c, row->reads));
    b->own = b->block->params(&inside, c, &model->specs[spec]);
    b->norm_after =
        model_add_norm(place, model->specs[spec].norm_after[i], model_width(c, row->gives));
    b->back = add_back(place, c, row);
    note_leaves(model, b, spec);
}

static void add_layer(const Place *place, MxModel *model, int spec, Layer *l) {
    const MxLayerSpec *row = model->specs[spec].row;
    *l = (Layer){.scope = place->dir, .spec = spec, .n_blocks = model_n_blocks(row), .scalar = -1};
    for (int i = 0; i < l->n_blocks; i++) add_block(place, model, spec, i, &l->block[i]);
    l->giver = -1;
    l->input = model_add_input(place, model);
    model_add_norm(place, row->idle_norm, model->config->emb_dim);
    if (row->scalar)
        l->scalar = model_add(place, row->scalar, MX_SHAPE(1), 0, AXES(NULL),
                              (MxInit){.kind = MX_INIT_ONES});
}

static MxDtype weight_dtype(const MxModel *model) {
    MxDtype dtype;
    bool known = mx_dtype_parse(model->config->weight_dtype, &dtype);
    MX_ASSERT(known);
    return dtype;
}

/* Not stacked. */
static void add_ahead(MxArena *arena, MxModel *model, int k) {
    int64_t D = model->config->emb_dim;
    Ahead *module = &model->ahead[k - 1];
    Place p = {.arena = arena, .tree = &model->params, .dtype = weight_dtype(model), .block = ""};
    p.dir = mx_arena_printf(arena, "mtp_block/mtp_layer_%d", k);
    p.norm = model->family->norm;
    p.norms_are_whole = model->family->norms_are_whole;
    module->scope = p.dir;
    const char *const names[] = {mx_arena_printf(arena, "mtp_%d_embedding_norm", k),
                                 mx_arena_printf(arena, "mtp_%d_hidden_state_norm", k),
                                 mx_arena_printf(arena, "mtp_%d_projection/kernel", k)};
    module->embedding_norm = model_add_norm(&p, names[0], D);
    module->hidden_norm = model_add_norm(&p, names[1], D);
    module->projection = model_add(&p, names[2], MX_SHAPE(2 * D, D), 1, AXES("embed", NULL),
                                   model_fan_in(MX_INIT_TRUNCATED_NORMAL, 2 * D));
    p.dir = mx_arena_printf(arena, "%s/mtp_%d_transformer_layer", p.dir, k);
    int n = mx_family_a_name(model->family);
    module->layers = mx_new_n(arena, Layer, n);
    for (int i = 0; i < n; i++) {
        const MxLayerSpec *spec = mx_layer_ahead(mx_model_layers(model->config), i);
        add_layer(&p, model, (int)(spec - model->family->specs), &module->layers[i]);
    }
}

static void add_layers(MxArena *arena, MxModel *model, const MxLayers *layers) {
    Place p = {.arena = arena, .tree = &model->params, .dtype = weight_dtype(model), .block = ""};
    p.norm = model->family->norm;
    p.norms_are_whole = model->family->norms_are_whole;
    p.ties = model->ties;
    for (int i = 0; i < model->n_layers; i++) {
        MxLayerPlace place = mx_layer_place(layers, i);
        p.place = model->family->never_stacks || place.is_alone ? NULL : &place;
        p.dir = mx_layer_name(arena, layers, i);
        p.maps = model_has_maps(model->config, i) ? &model->maps : NULL;
        int spec = (int)(mx_layer_spec(layers, i) - model->family->specs);
        add_layer(&p, model, spec, &model->layers[i]);
        model->layers[i].giver = mx_layer_giver(layers, i);
        model->layers[i].recall = model_add_recall(&p, model, mx_layer_recall(layers, i));
    }
}

/* A reward's head, which adapters do not stand beside: with them it is trained as it is, as PEFT's
 * modules_to_save. Drawn as Hugging Face does. Source: transformers 5.23 modeling_layers.py,
 * GenericForSequenceClassification; initializer_range of its configs. */
static void add_score(const Place *root, MxModel *model) {
    const double initializer_range = 0.02;
    Place p = *root;
    if (model->config->enable_lora) p.kind = MX_KIND_LORA_PARAM;
    model->score =
        model_add(&p, "decoder/score/kernel", MX_SHAPE(model->config->emb_dim, 1), 1,
                  AXES("embed", NULL), (MxInit){.kind = MX_INIT_NORMAL, .std = initializer_range});
    model->params.leaves[model->score].instead_of = "decoder/logits_dense/kernel";
}

void model_add_params(MxArena *arena, MxModel *model) {
    const MxConfig *c = model->config;
    int64_t D = c->emb_dim, V = c->vocab_size;
    mx_tree_init(&model->params, arena);
    MxLayers layers = mx_model_layers(c);
    model->n_layers = layers.n;
    model->layers = mx_new_n(arena, Layer, model->n_layers);
    int n_all = model->n_layers + (int)c->mtp_num_layers * mx_family_a_name(model->family);
    model->routers = mx_new_n(arena, MxRouter, n_all);
    model->heads = mx_new_n(arena, MxHeads, n_all);
    model->maps =
        (Maps){.config = c, .item = mx_new_n(arena, Mapped, (int64_t)MOST_MAPPED * n_all)};
    mx_tree_init(&model->maps.kernels, arena);
    Place root = {.arena = arena, .tree = &model->params, .dtype = weight_dtype(model)};
    root.dir = root.block = "";
    root.norm = model->family->norm;
    root.norms_are_whole = model->family->norms_are_whole;
    root.ties = model->ties;
    model->embedding =
        model_add(&root, "token_embedder/embedding", MX_SHAPE(V, D), 0,
                  AXES("vocab", "embed_vocab"), (MxInit){.kind = MX_INIT_NORMAL, .std = 1});
    model->positions = -1;
    if (c->trainable_position_size > 0)
        model->positions = model_add(
            &root, "decoder/position_embedder/embedding", MX_SHAPE(c->trainable_position_size, D),
            0, AXES("vocab", "embed_vocab"), (MxInit){.kind = MX_INIT_NORMAL, .std = 1});
    model_add_inputs(&root, model);
    add_layers(arena, model, &layers);
    model->collapse = model_add_collapse(&root, c);
    model->final_norm = model_add_norm(&root, "decoder/decoder_norm", D);
    model->logits = model->score = -1;
    if (c->score_head) add_score(&root, model);
    if (!c->logits_via_embedding && !c->score_head)
        model->logits =
            model_add(&root, "decoder/logits_dense/kernel", MX_SHAPE(D, V), 1,
                      AXES("embed_vocab", "vocab"), model_fan_in(MX_INIT_TRUNCATED_NORMAL, D));
    if (c->use_multimodal) model_add_vision(arena, model);
    if (mx_model_hearing(c).encoder) model_add_audio(arena, model);
    model->n_ahead = (int)c->mtp_num_layers;
    model->ahead = mx_new_n(arena, Ahead, model->n_ahead);
    for (int k = 1; k <= model->n_ahead; k++) add_ahead(arena, model, k);
}
