/* model.h — decoders. A model is sizes, a row of the family table and an abstract parameter tree;
 * its forward pass is traced against the tree's values and knows nothing of meshes, devices or
 * files.
 *
 * Families are data (mx/family.h); what their blocks compute is here, a row of src/model each. */
#ifndef MX_MODEL_H
#define MX_MODEL_H

#include <mx/config.h>
#include <mx/family_encoder.h>
#include <mx/family.h>
#include <mx/ops.h>
#include <mx/tree.h>

typedef struct MxModel MxModel;

/* mx_model_new — the decoder that a config describes; nothing large is allocated. Errors: keys that
 * this family cannot honour, with their line. */
bool mx_model_new(MxArena *arena, const MxConfig *config, MxModel **out, MxError *err);

/* mx_model_layers — the layers of a config's model. */
MxLayers mx_model_layers(const MxConfig *config);

/* mx_model_has_experts — whether some layers of a config's model have experts. */
bool mx_model_has_experts(const MxConfig *config);

/* mx_model_trains_indexer — whether a config's indexers have a loss of their own. */
bool mx_model_trains_indexer(const MxConfig *config);

/* mx_model_params — the parameters: paths, shapes, logical axes and initialisers as MaxText's. */
const MxTree *mx_model_params(const MxModel *model);
/* mx_model_layer — the layer that a parameter belongs to; -1 = none. */
int mx_model_layer(const MxModel *model, const MxLeaf *leaf);
/* mx_model_trains — the kind of parameters that training changes; all others are frozen. */
MxKind mx_model_trains(const MxModel *model);

/* mx_model_routers — biases that have a say in which experts are chosen, and in nothing else, so
 * that no gradient of next tokens reaches them: their parameters. */
const int *mx_model_routers(const MxModel *model, int *n);

/* Kernels f32 [.., heads, width] that make the queries, and the keys and values, of a layer's
 * attention, whose scores can grow without bound. The first elements of a head are multiplied with
 * each other alone; the rest of a query is multiplied with what all heads share, the rest of a key
 * is its value. */
typedef struct MxHeads {
    int query, key; /* parameters */
    int64_t first;  /* elements */
} MxHeads;

/* mx_model_heads — those of layers with latent attention (mla), none of others. */
const MxHeads *mx_model_heads(const MxModel *model, int *n);

/* What is adapted (lora.* keys). An adapter of a kernel W [K.., N..] is A [K, rank] and B [rank, N]
 * beside it, dims flattened; the module computes x W + (x A) B scale. One of a norm's scale [D] is
 * A [D, rank] and B [rank]. Source: qwix _src/providers/lora.py as MaxText utils/lora_utils.py uses
 * it. */
typedef struct MxLora {
    const char *pattern;  /* lora_module_path, or the family's own */
    double scale;         /* alpha / rank */
    const char **modules; /* paths as checkpoints have them: stacked layers count once */
    int n_modules;
} MxLora;

/* mx_model_lora — NULL if nothing is adapted. */
const MxLora *mx_model_lora(const MxModel *model);
/* mx_model_without_adapters — the same model over the same parameters, which traces the base
 * weights alone: the reference of preferences. */
const MxModel *mx_model_without_adapters(MxArena *arena, const MxModel *model);

/* mx_model_keep — from now on the kernels of layers, those that adapters are for by default, are
 * kept in few bits, in blocks of 64 or of all of a shorter dim. Errors: shapes that do not allow
 * it. */
bool mx_model_keep(MxArena *arena, MxModel *model, MxQtype type, MxError *err);

/* mx_model_head_form — how its query and key kernels are held. */
MxHeadForm mx_model_head_form(const MxModel *model);

/* What layers add to the loss: its sum over n of them, MX_NONE of none. */
typedef struct MxBalance {
    MxValue sum;
    int n;
} MxBalance;

/* What is left out by chance (dropout): the step, i32, and each row's place in the batch, i32 [B].
 * Each place in the model that leaves something out takes the next stream. */
typedef struct MxDraws {
    MxValue step, rows;
    int n_streams;
} MxDraws;

/* mx_model_vision — how a config's model sees images, of one that was checked. */
MxVision mx_model_vision(const MxConfig *config);

/* The images of a micro-batch: pixels, or rows that were made of them before. */
typedef struct MxModelImages {
    MxValue pixels;                /* f32 [B, views · values of a view], see mx_vision_row */
    MxValue place[MX_PLACE_FACTS]; /* i32 [B, mx_vision_places] as mx_vision_place says */
    MxValue rows;                  /* of mx_model_see; MX_NONE = they are to be made of pixels */
    MxValue index; /* i32 [B, T] which token of the row's images stands there, from 1 on; 0 = a
                      text's */
} MxModelImages;

/* What a forward pass reads; i32 [B, T] each. */
typedef struct MxModelInputs {
    MxValue tokens, positions, segments;
    const MxModelImages *images; /* NULL = text alone */
    MxDraws *draws;              /* NULL = nothing is left out */
    MxBalance *balance;          /* of experts that are chosen unevenly; NULL = nobody asks */
    MxBalance *index;            /* of indexers that score otherwise than attention; likewise */
    /* How often each expert was chosen, f32 [X], by parameter of mx_model_routers; NULL = nobody
     * asks. */
    MxValue *loads;
    /* The largest score of each row and head, f32 [B, N], by parameter: the `query` of
     * mx_model_heads; NULL = nobody asks. */
    MxValue *tops;
    /* What the mixer of every layer gives before anything is done with it, [B, T, D] each, goes
     * here, [num_decoder_layers]. NULL = nobody asks. */
    MxValue *features;
    /* Sequences that came here in pieces, of which this is one: the variables of the model's
     * caches, in their order, and where in them the tokens belong. Segments mean nothing.
     * caches NULL = sequences are here whole. */
    const int *caches;
    MxCachePlace place;
} MxModelInputs;

/* What a layer keeps of the tokens of a sequence: an array of a row a position (mx_cache_write), of
 * the model's dtype, or one memory of all of them in f32 (mx_cache_delta). */
typedef struct MxModelCache {
    const char *name;
    MxShape row;
    int64_t window; /* so many positions are looked at, the token's own included; 0 = all */
    bool is_memory;
} MxModelCache;

/* mx_model_caches — all of a model's; `n` receives how many. Errors: tokens that see later ones. */
bool mx_model_caches(MxArena *arena, const MxModel *model, const MxModelCache **out, int *n,
                     MxError *err);

/* mx_model_see — what becomes of pixels: [B, views · tokens of one, D], of as many views as there
 * are pixels. */
MxValue mx_model_see(MxTrace *t, const MxModel *model, const MxValue *params,
                     const MxModelImages *images);
/* mx_model_stream — hidden states after the last layer, [B, T, D]. params holds a value for each
 * leaf of the tree, in order. */
MxValue mx_model_stream(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in);
/* mx_model_last_norm — hidden states as the output head wants them; of what goes in `draws` alone
 * counts. */
MxValue mx_model_last_norm(MxTrace *t, const MxModel *model, const MxValue *params,
                           MxModelInputs in, MxValue stream);
/* mx_model_hidden — the two together. */
MxValue mx_model_hidden(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in);

/* A look ahead (multi-token prediction). Module k reads the hidden states of the module before it
 * (the first one those of the last layer) and the token k places on, and predicts the target that
 * is k places further on. What is k places on is 0 where a segment ends between k - 1 and k; as in
 * the original, ends that lie nearer are not looked at, so that at the end of a document modules
 * from the second on reach into the next one. */
typedef struct MxAhead {
    MxValue stream;                   /* [B, T, D] */
    MxValue tokens, targets, weights; /* i32 [B, T], k places to the left of the batch's */
} MxAhead;

/* mx_model_ahead — module k (from 1, mtp_num_layers of them) after `before`; the first one comes
 * after the last layer's stream and the batch's own targets and weights. Predictions are made from
 * mx_model_last_norm of its stream. Source: DeepSeek-V3 (2024) 2.2; MaxText
 * layers/multi_token_prediction.py. */
MxAhead mx_model_ahead(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in,
                       int k, MxAhead before);

/* mx_model_logits — f32 [B, T, V] from hidden states; only where logits are wanted whole. */
MxValue mx_model_logits(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden);

/* mx_model_xent — sum of cross-entropy over tokens whose weight is not 0, and (the value after it)
 * its z-loss part; see mx_xent. targets, weights i32 [B, T]. */
MxValue mx_model_xent(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                      MxValue targets, MxValue weights);

/* mx_model_score — what a head of one number gives (score_head), f32 [B, T]. */
MxValue mx_model_score(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden);

/* mx_model_nll — the sum of cross-entropy without z-loss. */
MxValue mx_model_nll(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                     MxValue targets, MxValue weights);

/* mx_model_argmax — the likeliest token where the weight is not 0, i32 [B, T]; see mx_argmax. */
MxValue mx_model_argmax(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                        MxValue weights);

/* mx_model_logprob — log-probability of every target whose weight is not 0, f32 [B, T]; see
 * mx_logprob. */
MxValue mx_model_logprob(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                         MxValue targets, MxValue weights);

/* One of two models on the same tokens. */
typedef struct MxModelSide {
    const MxModel *model;
    const MxValue *params;
    MxValue hidden;
} MxModelSide;

/* mx_model_distill — the loss of a student beside its teacher, and (the value after it) its sums;
 * see mx_distill. */
MxValue mx_model_distill(MxTrace *t, MxModelSide student, MxModelSide teacher, MxValue targets,
                         MxValue weights, MxValue numbers);

/* mx_model_size — about how many parameters a config asks for, before any array of theirs has a
 * shape: of matrices, two of vocab_size among them. mx_model_width — the most elements that a layer
 * keeps for a token in one value. Any sizes, as doubles. */
double mx_model_size(const MxConfig *config);
double mx_model_width(const MxConfig *config);

/* TFLOPs of one training step on one device, counted as MaxText counts them: matrix products, three
 * times the forward pass, no embedding lookup. Source: MaxText utils/maxtext_utils.py
 * calculate_tflops_training_per_device. */
typedef struct MxTflops {
    double total, learnable, attention;
    double reference; /* weights of a frozen copy, forward only; its attention counts above */
} MxTflops;
MxTflops mx_model_tflops(const MxModel *model);
/* mx_tflops_text — MaxText's words for them, shares of all three. */
const char *mx_tflops_text(MxArena *arena, MxTflops tflops);

#endif
