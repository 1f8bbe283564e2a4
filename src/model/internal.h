/* internal.h — the structs of a decoder, shared by the files of this room. A layer is norms and
 * residuals around two blocks; a block is a row: its parameters, its trace, its cost. Shape
 * letters: B batch, T time, D model width, N query heads, K key/value heads, H head width, M width
 * of the feed-forward block, V vocab. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include <mx/family.h>
#include <mx/model.h>

#define AXES(...) ((const char *const[]){__VA_ARGS__})

typedef struct Block Block;

enum { MOST_ACTIVATIONS = 3 };
/* What a router makes of its products, by routed_score_func. */
typedef enum Score { SCORE_PLAIN, SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRT_SOFTPLUS } Score;

/* A row of the family's layers with what this config makes of it. */
typedef struct Spec {
    const MxLayerSpec *row;
    const char *norm_after[MX_LAYER_BLOCKS];  /* NULL = none */
    double epsilon;                           /* of its norms */
    bool norms_heads, has_bias, has_out_bias; /* of attention */
    int64_t head_dim, n_kv_heads;             /* of attention with keys and values */
    bool shares_kv;                           /* keys are values too */
    MxAttentionAttr attention;
    MxChunksAttr chunks;   /* n_best above 0: heads choose chunks of keys */
    MxCacheCodesAttr kept; /* how caches have keys and values; a type of 0: as numbers */
    MxRopeFreqs rope;
    MxRopeAttr rope_layout;
    MxRopeFreqs window_rope; /* of compressed attention: of windows' numbers, not of positions */
    MxRopeFreqs tuning;      /* n above 0 = queries are longer at later positions, and not turned */
    MxActivation activations[MOST_ACTIVATIONS]; /* of feed-forward blocks, one a branch */
    int n_activations;
    MxGluAttr expert; /* of experts' units */
    Score score;
} Spec;

/* A norm: indices into the parameter tree. */
typedef struct Norm {
    MxNormKind kind;
    int scale, bias; /* -1 = there is none */
} Norm;

/* What a kind of norm does. */
typedef struct NormForm {
    bool is_less_1; /* the scale is kept less 1 */
    bool centers;   /* the mean is taken away first, and a bias added */
} NormForm;
extern const NormForm model_norms[]; /* [MxNormKind] */

typedef struct Hyper Hyper;       /* what reads and writes a stream of several rows a token */
typedef struct Collapse Collapse; /* what weighs a token's rows behind the last layer */
typedef struct Recall Recall;     /* n-gram memories of a layer */

typedef struct BlockLeaves {
    const Block *block;
    const Hyper *hyper; /* NULL = the stream is one row a token */
    const void *own;    /* the block's indices into the parameter tree */
    Norm norm_before, norm_after;
    const MxBlockSpec *row;
    int back; /* -1 = none */
} BlockLeaves;

/* What a layer makes of its own input. */
typedef struct Input {
    int gate, projection; /* -1 = it has none */
    Norm norm;
} Input;

/* Where the inputs of all layers come from. */
typedef struct Inputs {
    int table, projection; /* -1 = there are none */
    Norm norm;
    int64_t width; /* of one */
} Inputs;

typedef struct Layer {
    const char *scope;
    int spec;  /* of the model's */
    int giver; /* the layer whose keys and values it takes, -1 = none */
    Input input;
    const Recall *recall; /* NULL = it has none */
    int n_blocks;
    BlockLeaves block[MX_LAYER_BLOCKS];
    int scalar; /* -1 = none */
} Layer;

typedef struct Adapter Adapter; /* of a parameter (adapter.h) */

/* A module that predicts further ahead. */
typedef struct Ahead {
    const char *scope;
    Norm embedding_norm, hidden_norm;
    int projection;
    Layer *layers; /* [mx_family_a_name] */
} Ahead;

typedef struct Eye Eye;
typedef struct Ear Ear;
typedef struct Ties Ties; /* parameters that are others */

/* A kernel that learned maps make of a teacher's: indices into the parameter tree. */
typedef struct Mapped {
    int teacher, map[2]; /* map[1] -1 = one map does it */
} Mapped;

/* All of them. */
typedef struct Maps {
    const MxConfig *config; /* of the student */
    Mapped *item;           /* [kernels.n] */
    MxTree kernels;         /* as ordinary models have them */
} Maps;

/* How operands of products are rounded: x, kernel, and cotangents in the gradients of both. */
typedef struct Rounding {
    MxCoding x, kernel, to_x, to_kernel;
} Rounding;

struct MxModel {
    const MxConfig *config;
    const MxFamily *family;
    MxDtype dtype;            /* of activations */
    const Rounding *rounding; /* NULL = none */
    Spec specs[MX_MOST_SPECS];
    MxTree params;
    Layer *layers;
    int n_layers;
    Ahead *ahead;
    int n_ahead;
    MxNgrams *ngrams; /* [engram_layers] */
    MxRouter *routers;
    MxHeads *heads;
    int n_routers, n_heads;
    Inputs inputs;
    int embedding, positions, logits; /* positions -1 = none; logits -1 = tied to the embedding */
    MxRopeFreqs waves;                /* of positions, added to embeddings; n = 0: none */
    int score;                        /* a head of one number in place of logits; -1 = none */
    const Collapse *collapse;         /* NULL = rows of a token are added up */
    Norm final_norm;
    const Eye *eye;         /* the encoder of images, NULL = none, and … */
    const void *eye_params; /* … its indices into the parameter tree */
    const Ear *ear;         /* the encoder of sounds, NULL = none */
    MxLora lora;
    Adapter *adapters; /* [parameter] that of an adapter is none; NULL = none is applied */
    bool has_factors;  /* parameters of magnitudes hold quotients of them and norms */
    const Ties *ties;  /* NULL = every parameter is an array of its own */
    MxTree aliases;    /* the places that others have taken, and … */
    int *alias_of;     /* [aliases.n] … these parameters */
    Maps maps;
};

/* ---- blocks */

/* Where leaves are being added. */
typedef struct Place {
    MxArena *arena;
    MxTree *tree;
    MxDtype dtype; /* of weights */
    MxKind kind;
    const char *dir;           /* "decoder/layers_3", outside layers: "" */
    const char *block;         /* "self_attention", outside blocks: "" */
    const MxBlockSpec *row;    /* of the block */
    const MxLayerPlace *place; /* in its stack, below "decoder/"; NULL = leaves stay alone */
    MxNormKind norm;
    bool norms_are_whole; /* as of MxFamily */
    const Ties *ties;     /* of the model's, NULL = none */
    Maps *maps;           /* kernels of attention are made of a teacher's, NULL = they are not */
} Place;

/* What every layer of a forward pass needs. */
typedef struct Pass {
    MxTrace *t;
    const MxModel *model;
    const MxValue *params;
    MxValue tokens_BT, segments_BT, positions_BT;
    MxValue images_BT; /* MxModelImages.index, whose tokens see each other; MX_NONE = none do */
    MxCachePlace place;
    const int *caches; /* variables of this layer's; NULL = there are none */
    MxValue rope_table[MX_MOST_SPECS], tuning_table[MX_MOST_SPECS]; /* [spec] */
    MxDraws *draws;                                                 /* of MxModelInputs, as … */
    MxBalance *balance, *index;                                     /* … these */
    MxValue *loads, *kept, *tops;
    MxValue (*kv)[2];         /* [layer] keys and values, of this one and … */
    int layer, giver;         /* … the one that it takes them of, -1 = none */
    MxValue input;            /* the layer's own, MX_NONE = it has none */
    MxValue stream;           /* before the norm of the block that is traced */
    const BlockLeaves *mixer; /* of this layer, whose output goes … */
    MxValue *feature;         /* … here; NULL = nobody asks */
} Pass;

enum {
    MODEL_MOST_CACHES = 8,
    MODEL_INDEX_CACHE = 1 /* of an indexer, behind latent attention's */
};

/* What a block's forward pass costs, as MaxText counts it: multiplications and additions of
 * products with weights, and of attention's own. */
typedef struct BlockFlops {
    double weights, attention;
} BlockFlops;

struct Block {
    /* Adds the parameters; returns the block's indices, in the arena. */
    const void *(*params)(const Place *place, const MxConfig *config, const Spec *spec);
    /* x [B, T, D], normed -> [B, T, D]. */
    MxValue (*trace)(const Pass *pass, const Spec *spec, const void *own, MxValue x);
    /* Caches, names without the layer's; returns how many. NULL = it looks at no other tokens. */
    int (*caches)(const MxConfig *config, const Spec *spec, MxModelCache out[MODEL_MOST_CACHES]);
    const char *keeps_numbers; /* in caches, never in few bits: for a message; NULL = nothing */
    BlockFlops (*flops)(const MxConfig *config, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length);
    /* The widest value of a token. */
    double (*width)(const MxConfig *config, const MxLayerSpec *spec, const MxBlockSpec *row);
    /* Of attention, NULL = it is none: elements of a head that are rotated; what products of
     * queries and keys are multiplied by. */
    int64_t (*rope_width)(const MxConfig *config, const MxLayerSpec *spec);
    double (*scale)(const MxConfig *config, const MxLayerSpec *spec);
    /* Of experts: the leaves that have a say in who is chosen. */
    MxRouter (*router)(const Spec *spec, const void *own);
    /* Of latent attention: its kernels. */
    MxHeads (*heads)(const MxConfig *config, const void *own);
};

extern const Block block_attention, block_mla, block_compressed, block_delta, block_glu, block_moe,
    block_linear;
/* model_block — the row of a kind. model_n_blocks — of a layer. */
const Block *model_block(MxBlockKind kind);
int model_n_blocks(const MxLayerSpec *row);
/* model_width — how wide that is. */
int64_t model_width(const MxConfig *config, MxWidth width);

/* ---- parameters (params.c) */

/* model_inside — the place below it; name NULL = itself. */
Place model_inside(const Place *place, const char *name);
/* model_add — a leaf "<place>/<name>"; its index. */
int model_add(const Place *place, const char *name, MxShape shape, int n_contract,
              const char *const *axes, MxInit init);
/* model_add_bare — a leaf without logical axes, that of its stack among them. */
int model_add_bare(const Place *place, const char *name, MxShape shape, MxInit init);
/* model_add_norm — of the place's kind; name NULL = there is none. */
Norm model_add_norm(const Place *place, const char *name, int64_t width);
/* model_fan_in — variance 1/n. */
MxInit model_fan_in(MxInitKind kind, int64_t n);
/* model_add_params — fills the tree and the indices. model_tie_params — does so again where some
 * parameters are others. Errors: they cannot be. model_add_tied — model_add then: the parameter in
 * the place of the one with this path. */
void model_add_params(MxArena *arena, MxModel *model);
bool model_tie_params(MxArena *arena, MxModel *model, MxError *err);
int model_add_tied(MxTree *tree, const Ties *ties, const char *path);
/* model_add_adapters — adds the adapters that lora.* ask for behind all other parameters. Errors:
 * the module path matches nothing. */
bool model_add_adapters(MxArena *arena, MxModel *model, MxError *err);

/* ---- products with weights (dense.c) */

/* model_read_rounding — what the keys of quantisation say, NULL = nothing is rounded. */
const Rounding *model_read_rounding(MxArena *arena, const MxConfig *config);

/* Kernels that read one x, with their biases, -1 = none. */
typedef struct Dense {
    int kernel, bias;
    const Mapped *mapped; /* maps make the kernel of that parameter; NULL = it is the parameter */
} Dense;

/* model_flatten_last — the same values with the last n dims as one. */
MxValue model_flatten_last(MxTrace *t, MxValue x, int n);
/* model_param — a parameter, or the one that is trained in its place (lora.modules_to_save).
 * model_weight — the same in the dtype of computation. */
MxValue model_param(const Pass *p, int leaf);
MxValue model_weight(const Pass *p, int leaf);
/* model_fold_adapter — W, or in float32 W with its adapter, where no activations are multiplied. */
MxValue model_fold_adapter(const Pass *p, int leaf);
/* model_project_each — x · kernel (+ bias) of each; at most three. */
void model_project_each(const Pass *p, MxValue x, int n, const Dense *dense, MxValue *y);
MxValue model_project(const Pass *p, MxValue x, int kernel, int bias);
/* model_project_apart — x · kernel (+ bias) of a kernel that is several in one: y[i] [..,
 * tails[i]], one behind the other. */
void model_project_apart(const Pass *p, MxValue x, Dense dense, int n, const MxShape *tails,
                         MxValue *y);
/* model_project_groups — y[b, t, g, :] = x[b, t, g, :] kernel[numbers[b, t, g]] (moe.c). */
MxValue model_project_groups(const Pass *p, MxValue x, MxValue numbers, Dense dense);
/* model_random — the next of the random sequences of p->draws, for elements of some x.
 * model_drop — x [B, .., D] without what is left out here by chance; dims between alike.
 * model_draw — mx_draw_ids, of p->draws. */
MxRandomAttr model_random(const Pass *p, double amount);
MxValue model_drop(const Pass *p, MxValue x);
MxValue model_draw(const Pass *p, MxValue x, int64_t k);
/* model_scaled — x times the one element of w, of x's dtype. model_times — of a leaf. */
MxValue model_scaled(MxTrace *t, MxValue x, MxValue w);
MxValue model_times(const Pass *p, MxValue x, int leaf);
/* model_norm — x itself if there is none. */
MxValue model_norm(const Pass *p, MxValue x, Norm norm, double epsilon);
/* model_norm_bare — the same without a parameter: factor x / sqrt(mean(x^2) + epsilon). */
MxValue model_norm_bare(MxTrace *t, MxValue x, double factor, double epsilon);

/* model_take_apart — the n parts of x [.., n width], by halves: what is copied grows with log n. */
void model_take_apart(MxTrace *t, MxValue x, int n, int64_t width, MxValue *out);

/* ---- images (vision.c), sounds (audio.c) */

/* model_add_vision, model_add_audio — an encoder's parameters, and what stands between it and the
 * decoder. model_see — rows [B, views of a row · tokens of one, (1 + deep) D] for the pixels of
 * `images`; model_hear — of sounds [B, tokens of a row's chunks, (1 + deep) D], 0 behind the D. */
void model_add_vision(MxArena *arena, MxModel *model);
void model_add_audio(MxArena *arena, MxModel *model);
MxValue model_see(const Pass *p, const MxModelImages *images);
MxValue model_hear(const Pass *p, const MxModelSounds *sounds);
/* model_vision_flops, model_audio_flops — of a forward pass over the images or sounds of so many
 * rows, and what of the weights' is the projector's, which is trained where the encoder is not. */
BlockFlops model_vision_flops(const MxConfig *config, double rows, double *projector);
BlockFlops model_audio_flops(const MxConfig *config, double rows, double *projector);

/* ---- the choice of tokens that latent attention sees (indexer.c) */

typedef struct Indexer Indexer;

/* model_add_indexer — its parameters; NULL = attention sees all. model_choose — what was chosen, as
 * of mx_attention_chosen, MX_NONE = all: by what the block reads and the narrow vectors of queries,
 * x_low; adds its loss with regard to attention's queries and keys. model_indexer_flops — of a
 * forward pass. model_indexer_share — of all pairs of tokens, how many see each other. */
const Indexer *model_add_indexer(const Place *place, const MxConfig *config);
MxValue model_choose(const Pass *pass, const Spec *spec, const Indexer *indexer,
                     const MxValue x_low[2], const MxValue qk[2]);
BlockFlops model_indexer_flops(const MxConfig *config, double tokens, double length);
double model_indexer_share(const MxConfig *config, double length);

/* ---- looking at other tokens (cache.c): those of the pass, or, where it has caches, also those
 * that the layer's cache number `cache` has, to which these are then added */

/* model_keep_both — keys and values put into caches 0 and 1, if there are caches: all they have.
 * model_attend — attention of queries over these [B, T, heads, width] as the layer's spec says.
 * sinks  MX_NONE = none */
void model_keep_both(const Pass *p, const Spec *spec, MxValue kv[2]);
MxValue model_attend(const Pass *p, const Spec *spec, const MxValue qkv[3], MxValue sinks);
/* model_keep — rows [B, T, ..] put into a cache: all of it. */
MxValue model_keep(const Pass *p, int cache, MxValue rows);
/* model_convolve — mx_conv of x [B, T, D]. model_remember — mx_delta. */
MxValue model_convolve(const Pass *p, MxValue x, MxValue w, MxDeltaAttr attr, int cache);
MxValue model_remember(const Pass *p, const MxValue qkv[3], const MxValue decay_beta[2],
                       MxDeltaAttr attr, int cache);
/* model_count_caches — of a layer; model_count_mixer_caches — without those of its memories. */
int model_count_caches(const MxModel *model, const Layer *layer);
int model_count_mixer_caches(const MxModel *model, const Layer *layer);

/* ---- units of branches (glu.c), of any width */

typedef struct Glu Glu;

/* model_add_glu — the parameters. model_glu — x [B, T, D] -> [B, T, D]. model_glu_flops — of a
 * forward pass. */
const Glu *model_add_glu(const Place *place, const MxConfig *config, const Spec *spec,
                         int64_t width);
MxValue model_glu(const Pass *pass, const Spec *spec, const Glu *glu, MxValue x);
double model_glu_flops(const MxConfig *config, double reads, double width, double tokens);

/* ---- compressed attention (compressed.c) */

/* model_window — tokens of a window of a spec's layers, 0 = there are none. */
int64_t model_window(const MxConfig *config, const MxLayerSpec *spec);

/* ---- inputs of layers (inputs.c) */

/* model_add_inputs, model_add_input — the parameters of all layers' and of one layer's.
 * model_make_inputs — out[layer] of tokens and their embedding. model_add_own_input — x and what a
 * layer makes of p->input. model_input_flops — of a forward pass. */
void model_add_inputs(const Place *place, MxModel *model);
Input model_add_input(const Place *place, const MxModel *model);
void model_make_inputs(const Pass *pass, MxValue tokens, MxValue x, MxValue *out);
MxValue model_add_own_input(const Pass *pass, const Spec *spec, const Input *input, MxValue x);
double model_input_flops(const MxConfig *config, double tokens, double n_layers);

/* ---- n-gram memories (recall.c) */

/* model_plan_recall — the tables of all layers. Errors: they have too many rows. model_add_recall —
 * the parameters of the `which`-th of those layers; NULL, of -1. model_recall — x [B, T, S, D] and
 * what is remembered of its n-grams. first_cache: of the layer's caches the first that
 * is not its mixer's. model_recall_caches — what is kept; returns how much. model_recall_flops — of
 * a layer's forward pass. model_recall_width — of a token's widest value. */
bool model_plan_recall(MxArena *arena, MxModel *model, MxError *err);
const Recall *model_add_recall(const Place *place, const MxModel *model, int which);
MxValue model_recall(const Pass *p, const Recall *recall, MxValue x_BTSD, double epsilon,
                     int first_cache);
int model_recall_caches(const MxModel *model, const Recall *recall, MxModelCache *out);
BlockFlops model_recall_flops(const MxConfig *config, double tokens);
double model_recall_width(const MxConfig *config);

/* ---- what configs make of specs (spec.c, rope.c) */

bool model_read_spec(MxArena *arena, const MxConfig *config, const MxLayerSpec *row, Spec *out,
                     MxError *err);
/* model_rope — frequencies and layout that the config asks for, and by how much queries grow. */
bool model_rope(MxArena *arena, const MxConfig *config, Spec *spec, MxError *err);
/* model_waves — frequencies of what positions add to embeddings. Source: MaxText
 * layers/embeddings.py (PositionalEmbedding) @e591f30c. */
MxRopeFreqs model_waves(MxArena *arena, const MxConfig *c);
#endif
