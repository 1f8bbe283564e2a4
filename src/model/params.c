/* params.c — the parameter tree of a decoder: MaxText's paths, shapes, logical axes and
 * initialisers, layer by layer. Kernels are drawn with variance 1/fan_in over their contracted
 * dims: normal in attention, truncated normal elsewhere. Source: MaxText layers/attentions.py,
 * linears.py, embeddings.py @e591f30c. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

/* Where leaves are being added. */
typedef struct Place {
    MxArena *arena;
    MxTree *tree;
    const char *dir;       /* "decoder/layers_3", no layer: "decoder" */
    const char *stack_dir; /* "decoder/layers", NULL outside a stack */
    int index, count;
} Place;

static int add(const Place *p, const char *name, MxShape shape, int n_contract,
               const char *const *axes, MxInit init) {
    MxLeaf leaf = {.kind = MX_KIND_PARAM, .dtype = MX_F32, .shape = shape, .init = init};
    leaf.n_contract = n_contract;
    leaf.path = mx_path_join(p->arena, p->dir, name);
    for (int i = 0; i < shape.rank; i++) leaf.axes[i] = axes[i];
    if (p->stack_dir)
        leaf.stack = (MxStack){.path = mx_path_join(p->arena, p->stack_dir, name),
                               .axis = "layers",
                               .index = p->index,
                               .count = p->count};
    return mx_tree_add(p->tree, leaf);
}

#define AXES(...) ((const char *const[]){__VA_ARGS__})

static MxInit fan_in(MxInitKind kind, int64_t n) {
    return (MxInit){.kind = kind, .std = 1 / sqrt((double)n)};
}

static int add_norm(const Place *p, const char *name, int64_t width) {
    return add(p, name, MX_SHAPE(width), 1, AXES("norm"), (MxInit){.kind = MX_INIT_ONES});
}

static void add_attention(const Place *p, const MxModel *model, Layer *l) {
    const MxConfig *c = model->config;
    int64_t D = c->emb_dim, N = c->num_query_heads, K = c->num_kv_heads, H = c->head_dim;
    MxInit init = fan_in(MX_INIT_NORMAL, D), query = init, zeros = {.kind = MX_INIT_ZEROS};
    if (model->attention.scale == 1) query.std /= sqrt((double)H);
    /* MaxText leaves these kernels whole where decoding cuts the context (attentions.py). */
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    const char *const *no_axes = AXES(NULL, NULL, NULL);
    const char *const *q_axes = is_whole ? no_axes : AXES("embed", "q_heads", "kv");
    const char *const *kv_axes = is_whole ? no_axes : AXES("embed", "kv_heads", "kv_head_dim");
    const char *const *out_axes = is_whole ? no_axes : AXES("heads", "kv", "embed");
    l->query = add(p, "self_attention/query/kernel", MX_SHAPE(D, N, H), 1, q_axes, query);
    l->key = add(p, "self_attention/key/kernel", MX_SHAPE(D, K, H), 1, kv_axes, init);
    l->value = add(p, "self_attention/value/kernel", MX_SHAPE(D, K, H), 1, kv_axes, init);
    l->out = add(p, "self_attention/out/kernel", MX_SHAPE(N, H, D), 2, out_axes,
                 fan_in(MX_INIT_NORMAL, N * H));
    if (c->attention_bias) {
        l->query_bias = add(p, "self_attention/query/bias", MX_SHAPE(N, H), 0, q_axes + 1, zeros);
        l->key_bias = add(p, "self_attention/key/bias", MX_SHAPE(K, H), 0, kv_axes + 1, zeros);
        l->value_bias = add(p, "self_attention/value/bias", MX_SHAPE(K, H), 0, kv_axes + 1, zeros);
        if (model->family->has_out_bias)
            l->out_bias = add(p, "self_attention/out/bias", MX_SHAPE(D), 0, out_axes + 2, zeros);
    }
    if (c->use_qk_norm) {
        l->query_norm = add_norm(p, "self_attention/query_norm/scale", H);
        l->key_norm = add_norm(p, "self_attention/key_norm/scale", H);
    }
}

static void add_layer(const Place *p, const MxModel *model, Layer *l) {
    const MxConfig *c = model->config;
    int64_t D = c->emb_dim, M = c->mlp_dim;
    *l = (Layer){.scope = p->dir,
                 .query_bias = -1,
                 .key_bias = -1,
                 .value_bias = -1,
                 .out_bias = -1,
                 .query_norm = -1,
                 .key_norm = -1};
    l->attention_norm = add_norm(p, "pre_self_attention_layer_norm/scale", D);
    add_attention(p, model, l);
    l->mlp_norm = add_norm(p, "post_self_attention_layer_norm/scale", D);
    MxInit in = fan_in(MX_INIT_TRUNCATED_NORMAL, D);
    l->wi_0 = add(p, "mlp/wi_0/kernel", MX_SHAPE(D, M), 1, AXES("embed", "mlp"), in);
    l->wi_1 = add(p, "mlp/wi_1/kernel", MX_SHAPE(D, M), 1, AXES("embed", "mlp"), in);
    l->wo = add(p, "mlp/wo/kernel", MX_SHAPE(M, D), 1, AXES("mlp", "embed"),
                fan_in(MX_INIT_TRUNCATED_NORMAL, M));
}

/* Not stacked. */
static void add_ahead(MxArena *arena, MxModel *model, int k) {
    int64_t D = model->config->emb_dim;
    Ahead *module = &model->ahead[k - 1];
    Place p = {.arena = arena, .tree = &model->params};
    p.dir = mx_arena_printf(arena, "mtp_block/mtp_layer_%d", k);
    module->scope = p.dir;
    const char *const names[] = {mx_arena_printf(arena, "mtp_%d_embedding_norm/scale", k),
                                 mx_arena_printf(arena, "mtp_%d_hidden_state_norm/scale", k),
                                 mx_arena_printf(arena, "mtp_%d_projection/kernel", k)};
    module->embedding_norm = add_norm(&p, names[0], D);
    module->hidden_norm = add_norm(&p, names[1], D);
    module->projection = add(&p, names[2], MX_SHAPE(2 * D, D), 1, AXES("embed", NULL),
                             fan_in(MX_INIT_TRUNCATED_NORMAL, 2 * D));
    p.dir = mx_arena_printf(arena, "%s/mtp_%d_transformer_layer", p.dir, k);
    add_layer(&p, model, &module->layer);
}

void model_add_params(MxArena *arena, MxModel *model) {
    const MxConfig *c = model->config;
    int64_t D = c->emb_dim, V = c->vocab_size;
    mx_tree_init(&model->params, arena);
    model->n_layers = (int)c->num_decoder_layers;
    model->layers = mx_new_n(arena, Layer, model->n_layers);
    Place root = {.arena = arena, .tree = &model->params, .dir = ""};
    model->embedding =
        add(&root, "token_embedder/embedding", MX_SHAPE(V, D), 0, AXES("vocab", "embed_vocab"),
            (MxInit){.kind = MX_INIT_NORMAL, .std = 1});
    for (int i = 0; i < model->n_layers; i++) {
        Place p = {.arena = arena, .tree = &model->params, .stack_dir = "decoder/layers"};
        p.dir = mx_arena_printf(arena, "decoder/layers_%d", i);
        p.index = i;
        p.count = model->n_layers;
        add_layer(&p, model, &model->layers[i]);
    }
    model->final_norm = add_norm(&root, "decoder/decoder_norm/scale", D);
    model->logits = -1;
    if (!c->logits_via_embedding)
        model->logits = add(&root, "decoder/logits_dense/kernel", MX_SHAPE(D, V), 1,
                            AXES("embed_vocab", "vocab"), fan_in(MX_INIT_TRUNCATED_NORMAL, D));
    model->n_ahead = (int)c->mtp_num_layers;
    model->ahead = mx_new_n(arena, Ahead, model->n_ahead);
    for (int k = 1; k <= model->n_ahead; k++) add_ahead(arena, model, k);
}
