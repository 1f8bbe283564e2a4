/* model.h — decoders. A model consists of sizes, a row of the family table and an abstract
 * parameter tree. Its forward pass is traced on the tree's values and does not depend on meshes,
 * devices or files.
 *
 * Families are data (mx/family.h); the code of their blocks is in src/model, one row per block. */
#ifndef MX_MODEL_H
#define MX_MODEL_H

#include <mx/config.h>
#include <mx/family_encoder.h>
#include <mx/family.h>
#include <mx/ops.h>
#include <mx/tree.h>

typedef struct MxModel MxModel;

/* mx_model_new — the decoder that a config describes; allocates nothing large. Errors: keys that
 * this family does not support, with their line. */
bool mx_model_new(MxArena *arena, const MxConfig *config, MxModel **out, MxError *err);

/* What n-gram memories know of a tokenizer's tokens. */
typedef struct MxModelTokens {
    const int32_t *canon; /* [n] the number by which a token counts, from 0 on, without gaps */
    int32_t n, padding;   /* padding: the token that stands before the first */
} MxModelTokens;

/* mx_model_wants_tokens — whether a model's layers have such memories. mx_model_read_tokens — is to
 * be called for these before anything is run. Borrows the numbers. */
bool mx_model_wants_tokens(const MxModel *model);
void mx_model_read_tokens(MxArena *arena, MxModel *model, MxModelTokens tokens);

/* mx_model_layers — the layers of a config's model. */
MxLayers mx_model_layers(const MxConfig *config);

/* mx_model_has_experts — whether some layers of a config's model have experts. */
bool mx_model_has_experts(const MxConfig *config);

/* mx_model_trains_indexer — whether a config's indexers have a loss of their own. */
bool mx_model_trains_indexer(const MxConfig *config);

/* mx_model_params — the parameters: paths, shapes, logical axes and initialisers are MaxText's. */
const MxTree *mx_model_params(const MxModel *model);
/* mx_model_aliases — the parameters that are not in the tree because others took their place
 * (distill_student_weights_share_map), as they would be without that; `of`: the index of that other
 * one, for each. */
const MxTree *mx_model_aliases(const MxModel *model, const int **of);
/* mx_model_kernels — the kernels that learned maps make of a teacher's (learn_to_init_mode), as an
 * ordinary model has them: leaves without values. mx_model_kernel — one of them, in the dtype of
 * weights. mx_model_taken — the parameter that is the teacher's. mx_model_is_in_map — whether a
 * parameter is the teacher's or a map. */
const MxTree *mx_model_kernels(const MxModel *model);
MxValue mx_model_kernel(MxTrace *t, const MxModel *model, const MxValue *params, int kernel);
int mx_model_taken(const MxModel *model, int kernel);
bool mx_model_is_in_map(const MxModel *model, int param);
/* mx_model_layer — the layer that a parameter belongs to; -1 = none. */
int mx_model_layer(const MxModel *model, const MxLeaf *leaf);
/* mx_model_trains — the kind of parameters that training changes; all others are frozen. */
MxKind mx_model_trains(const MxModel *model);

/* Parameters of a layer's router. The bias affects only which experts are chosen, so no gradient of
 * the loss reaches it; -1 = there is none of that kind. */
typedef struct MxRouter {
    int kernel, bias;
} MxRouter;

/* mx_model_routers — of all layers with experts, in order. */
const MxRouter *mx_model_routers(const MxModel *model, int *n);

/* Kernels f32 [.., heads, width] of the queries, and of the keys and values, of an attention layer
 * whose scores can grow without bound. The first elements of a query and a key head are multiplied
 * with each other. The rest of a query is multiplied with a part of the key that all heads share;
 * the rest of a key head is its value. */
typedef struct MxHeads {
    int query, key; /* parameters */
    int64_t first;  /* elements */
} MxHeads;

/* mx_model_heads — one for each layer with latent attention (mla), none for others. */
const MxHeads *mx_model_heads(const MxModel *model, int *n);

/* The adapted modules (lora.* keys). An adapter of a kernel W [K.., N..] is A [K, rank] and B
 * [rank, N] beside it, with flattened dims; the module computes x W + (x A) B scale. An adapter of
 * a norm's scale [D] is A [D, rank] and B [rank]. With magnitudes m [N] (lora.use_dora) a module
 * computes (x W + (x A) B scale) m / |W + A B scale|, the norm over K... Source: qwix
 * _src/providers/lora.py as MaxText utils/lora_utils.py uses it. */
typedef struct MxLora {
    const char *pattern;  /* lora_module_path, or the family's default */
    double scale;         /* alpha / rank */
    const char **modules; /* paths as in checkpoints: stacked layers count once */
    const char **whole;   /* the same of parameters that are trained as they are */
    int n_modules, n_whole;
} MxLora;

/* mx_model_whole — the parameter that is trained in another's place (lora.modules_to_save), beside
 * adapters: a copy of it at first; -1 = none. Source: peft 0.21, utils/other.py
 * (ModulesToSaveWrapper). */
int mx_model_whole(const MxModel *model, int param);
/* mx_model_magnitude — the parameter [N] that has the magnitudes of another's outputs
 * (lora.use_dora); -1 = none. mx_model_norms — what they begin with, the norms of a kernel over its
 * inputs, f32 [N]; NaN where all of them are 0. */
int mx_model_magnitude(const MxModel *model, int param);
MxValue mx_model_norms(MxTrace *t, const MxModel *model, const MxValue *params, int kernel);
/* mx_model_factors — the magnitudes of a kernel divided by its norms with the adapter, f32 [N].
 * mx_model_with_factors — the same model, which reads these in place of its magnitudes. */
MxValue mx_model_factors(MxTrace *t, const MxModel *model, const MxValue *params, int kernel);
const MxModel *mx_model_with_factors(MxArena *arena, const MxModel *model);
/* mx_model_lora — NULL if nothing is adapted. */
const MxLora *mx_model_lora(const MxModel *model);
/* mx_model_without_adapters — the same model with the same parameters, traced without the adapters:
 * the reference model of preference losses. */
const MxModel *mx_model_without_adapters(MxArena *arena, const MxModel *model);

/* mx_model_keep — from now on stores the kernels of layers (those that are adapted by default) in
 * few bits, in blocks of 64 or of all of a shorter dim. Errors: shapes that do not allow it. */
bool mx_model_keep(MxArena *arena, MxModel *model, MxQtype type, MxError *err);

/* mx_model_head_form — the form of its query and key kernels. */
MxHeadForm mx_model_head_form(const MxModel *model);

/* A loss of layers: its sum, which is divided by n; 0, and MX_NONE, if no layer has it. */
typedef struct MxBalance {
    MxValue sum;
    int n;
} MxBalance;

/* Inputs of what is left to chance: the step, i32, and each row's position in the batch, i32 [B].
 * Each place in the model that drops or draws something uses the next stream. */
typedef struct MxDraws {
    MxValue step, rows;
    int n_streams;
} MxDraws;

/* mx_model_vision — the image encoder of a config's model; the config must have been checked. */
MxVision mx_model_vision(const MxConfig *config);
/* mx_model_drops_images — whether training drops values of its (projector_dropout_for_vit). */
bool mx_model_drops_images(const MxConfig *config);

/* mx_model_hearing — the encoder of sounds beside it. */
MxHearing mx_model_hearing(const MxConfig *config);

/* The sounds of a micro-batch, see MxAudioFacts: f32 [B, patches · taps], the others i32 [B, ..].
 */
typedef struct MxModelSounds {
    MxValue patches, window, place, ended[MX_AUDIO_CONVS - 1];
} MxModelSounds;

/* The images of a micro-batch: pixels, or rows that were computed from them before. */
typedef struct MxModelImages {
    MxValue pixels;                /* f32 [B, views · values of a view], see mx_vision_row */
    MxValue place[MX_PLACE_FACTS]; /* i32 [B, mx_vision_places], see mx_vision_place */
    /* If positions are mixed: i32 and f32 [B, mx_vision_places · MX_CORNERS], see mx_vision_mix. */
    MxValue corner, share;
    /* Result of mx_model_see, behind it that of mx_model_hear; MX_NONE = compute them. */
    MxValue rows;
    const MxModelSounds *sounds; /* NULL = there are none, or `rows` holds them */
    MxValue index; /* i32 [B, T] which token of the row's images is at this position, from 1 on,
                      behind all that images have at most which of its sounds; 0 =
                      a text token */
} MxModelImages;

/* Inputs of a forward pass, i32 [B, T] each, and requested outputs. */
typedef struct MxModelInputs {
    MxValue tokens, positions, segments;
    const MxModelImages *images; /* NULL = only text */
    /* [MX_MROPE_KINDS] the positions that rotate a token if use_mrope is set, see mx_vision_mrope;
     * NULL = `positions` for all kinds. */
    const MxValue *mrope;
    MxDraws *draws;     /* NULL = no dropout, and experts are chosen by scores */
    MxBalance *balance; /* receives the load-balancing loss of experts; NULL = not requested */
    MxBalance *index;   /* receives the loss of indexers; likewise */
    /* Receive by the kernel of a router how often each expert was chosen, f32 [X], and, with a
     * capacity, how many of these choices it had room for, from MX_NONE on, over all layers that
     * have the router; NULL = not requested. */
    MxValue *loads, *kept;
    /* Receives the largest score of each row and head, f32 [B, N], by parameter (the `query` of
     * mx_model_heads); NULL = not requested. */
    MxValue *tops;
    /* Receives mx_moments of what every layer gives, [num_decoder_layers]; NULL = not requested. */
    MxValue *moments;
    /* Receives the output of every layer's mixer before norms and residual, [B, T, D] each,
     * [num_decoder_layers]; NULL = not requested. */
    MxValue *features;
    /* For a piece of sequences that are processed in pieces: the variables of the model's caches,
     * in their order, and the position of the tokens in them. Segments are ignored. caches NULL =
     * whole sequences. */
    const int *caches;
    MxCachePlace place;
} MxModelInputs;

/* A cache of a layer for the tokens of a sequence: an array with a row per position
 * (mx_cache_write), in the model's dtype, of ids or of codes, or one state for all positions in f32
 * (mx_cache_delta). */
typedef struct MxModelCache {
    const char *name;
    MxShape row;
    int64_t window; /* number of positions that are read, including the token's own; 0 = all */
    int64_t ratio;  /* above 0: a row for each window of so many positions, of which all are read */
    bool is_memory;
    bool are_ids;   /* i32 */
    bool are_codes; /* u8, of mx_cache_codes */
} MxModelCache;

/* mx_model_caches — all caches of a model; `n` receives their number. Errors: models in which
 * tokens attend to later ones; quantize_kvcache with caches that are no keys and values. */
bool mx_model_caches(MxArena *arena, const MxModel *model, const MxModelCache **out, int *n,
                     MxError *err);

/* mx_model_see — encodes pixels: [B, views · tokens of a view, (1 + deep) D]; pixels determine the
 * number of views. The first D of a row replace a token. Each further D (MxVision.deep) is added to
 * the stream at that token: the first after the first layer, the second after the second, … */
MxValue mx_model_see(MxTrace *t, const MxModel *model, const MxValue *params,
                     const MxModelImages *images);
/* mx_model_hear — the same of sounds: [B, chunks · tokens of a chunk, (1 + deep) D]. */
MxValue mx_model_hear(MxTrace *t, const MxModel *model, const MxValue *params,
                      const MxModelSounds *sounds);
/* mx_model_stream — hidden states after the last layer, [B, T, D]. params holds a value for each
 * leaf of the tree, in order. */
MxValue mx_model_stream(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in);
/* mx_model_last_norm — hidden states as the output head reads them; of the inputs only `draws` is
 * used. */
MxValue mx_model_last_norm(MxTrace *t, const MxModel *model, const MxValue *params,
                           MxModelInputs in, MxValue stream);
/* mx_model_hidden — mx_model_last_norm of mx_model_stream. */
MxValue mx_model_hidden(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in);

/* A module of multi-token prediction. Module k reads the hidden states of the previous module (the
 * first one those of the last layer) and the token k positions ahead, and predicts the target k
 * positions further. A token or target k positions ahead is 0 if a segment ends between k - 1 and
 * k. As in MaxText, segment ends nearer than that are not checked, so at the end of a document
 * modules from the second on read into the next document. */
typedef struct MxAhead {
    MxValue stream; /* [B, T, D] */
    /* i32 [B, T], those of the batch shifted left by k; positions only if embeddings have them */
    MxValue tokens, targets, weights, positions;
} MxAhead;

/* mx_model_ahead — module k (from 1 to mtp_num_layers) after `before`; for the first one this is
 * the last layer's stream and the batch's own targets and weights. Predictions are computed from
 * mx_model_last_norm of its stream. Source: DeepSeek-V3 (2024) 2.2; MaxText
 * layers/multi_token_prediction.py. */
MxAhead mx_model_ahead(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in,
                       int k, MxAhead before);

/* mx_model_logits — f32 [B, T, V] from hidden states; only for uses that need all logits at once.
 */
MxValue mx_model_logits(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden);

/* mx_model_xent — sum of cross-entropy over tokens whose weight is not 0 and, in the next value,
 * its z-loss part; see mx_xent. targets, weights i32 [B, T]. */
MxValue mx_model_xent(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                      MxValue targets, MxValue weights);

/* mx_model_score — output of the head with one output (score_head), f32 [B, T]. */
MxValue mx_model_score(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden);

/* mx_model_nll — the sum of cross-entropy without z-loss. */
MxValue mx_model_nll(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                     MxValue targets, MxValue weights);

/* mx_model_argmax — the likeliest token at positions whose weight is not 0, i32 [B, T]; see
 * mx_argmax. */
MxValue mx_model_argmax(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                        MxValue weights);

/* mx_model_logprob — log-probability of every target whose weight is not 0, f32 [B, T]; see
 * mx_logprob. *entropy becomes the entropy of what the model expects there, f32 [B, T]; NULL = not
 * wanted. */
MxValue mx_model_logprob(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                         MxValue targets, MxValue weights, MxValue *entropy);

/* What mx_model_alignment is computed from; logp is mx_model_logprob's of the rest. */
typedef struct MxTargets {
    MxValue hidden, targets, weights, logp;
} MxTargets;
/* mx_model_alignment — how likely every target whose weight is not 0 is beside what the model would
 * draw in its place: its log-probability less the log of the mean probability of what is drawn,
 * which is the sum of the squares of all probabilities; f32 [B, T], without a gradient. Source:
 * Zhou et al. 2024 (WPO). */
MxValue mx_model_alignment(MxTrace *t, const MxModel *model, const MxValue *params, MxTargets of);

/* One of two models that process the same tokens. */
typedef struct MxModelSide {
    const MxModel *model;
    const MxValue *params;
    MxValue hidden;
} MxModelSide;

/* mx_model_distill — the loss of a student against its teacher and, in the next value, its sums;
 * see mx_distill. */
MxValue mx_model_distill(MxTrace *t, MxModelSide student, MxModelSide teacher, MxValue targets,
                         MxValue weights, MxValue numbers);

/* mx_model_distill_top — the same beside a teacher's k largest logits, top and ids [B, T, k]; see
 * mx_distill_top. mx_model_top — these, and in the next value their ids; see mx_top_logits. */
MxValue mx_model_distill_top(MxTrace *t, MxModelSide student, MxValue top, MxValue ids,
                             MxValue targets, MxValue weights, MxValue numbers);
MxValue mx_model_top(MxTrace *t, MxModelSide side, MxValue weights, int64_t k);

/* mx_model_size — approximate number of parameters of a config, before any array has a shape: those
 * of its matrices, including two of vocab_size. mx_model_width — the maximum number of elements of
 * a layer's value per token. Both are doubles, so that any sizes fit. */
double mx_model_size(const MxConfig *config);
double mx_model_width(const MxConfig *config);

/* TFLOPs of one training step on one device, counted as MaxText counts them: matrix products, three
 * times the forward pass, no embedding lookup. Source: MaxText utils/maxtext_utils.py
 * calculate_tflops_training_per_device. */
typedef struct MxTflops {
    double total, learnable, attention;
    double reference; /* weights of a frozen copy, forward only; its attention is included above */
} MxTflops;
MxTflops mx_model_tflops(const MxModel *model);
/* mx_tflops_text — the same in MaxText's words, with the share of each of the three. */
const char *mx_tflops_text(MxArena *arena, MxTflops tflops);

#endif
