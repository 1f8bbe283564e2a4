/* internal.h — what a decoder is, shared by the files of this room. Shape letters: B batch, T time,
 * D model width, N query heads, K key/value heads, H head width, M width of the feed-forward block,
 * V vocab. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include <mx/model.h>

/* What distinguishes decoder families beyond sizes and keys. */
typedef struct Family {
    const char *decoder_block;
    bool scales_query; /* q · k is scaled by 1/sqrt(H) at run time; else the query kernel starts
                          that much smaller */
    bool has_out_bias; /* attention_bias covers the output projection too */
} Family;

/* Indices into the parameter tree; -1 = the family or config has none. */
typedef struct Layer {
    const char *scope;
    int attention_norm, mlp_norm;
    int query, key, value, out;
    int query_bias, key_bias, value_bias, out_bias;
    int query_norm, key_norm;
    int wi_0, wi_1, wo;
} Layer;

/* The adapter of a parameter: indices of A and B, -1 = none. */
typedef struct Adapter {
    int a, b;
} Adapter;

/* A module that predicts further ahead. */
typedef struct Ahead {
    const char *scope;
    int embedding_norm, hidden_norm, projection;
    Layer layer;
} Ahead;

struct MxModel {
    const MxConfig *config;
    const Family *family;
    MxDtype dtype; /* of activations */
    MxActivation activation;
    MxAttentionAttr attention;
    MxRopeFreqs rope;
    MxRopeAttr rope_layout;
    MxTree params;
    Layer *layers;
    int n_layers;
    Ahead *ahead;
    int n_ahead;
    int embedding, final_norm, logits; /* logits -1 = tied to the embedding */
    MxLora lora;
    Adapter *adapters; /* [parameter] NULL = none is applied */
};

/* model_rope — frequencies and layout that the config asks for; head width H. */
bool model_rope(MxArena *arena, const MxConfig *config, MxModel *model, MxError *err);
/* model_add_params — fills the tree and the indices. */
void model_add_params(MxArena *arena, MxModel *model);
/* model_add_adapters — adds the adapters that lora.* ask for behind all other parameters. Errors:
 * the module path matches nothing. */
bool model_add_adapters(MxArena *arena, MxModel *model, MxError *err);

#endif
