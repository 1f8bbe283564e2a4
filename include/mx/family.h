/* family.h — families of decoders, as data: which blocks a layer is made of, where its norms stand,
 * what it sees, how its layers take turns and are stacked, and what others call it. What the blocks
 * compute is in the model room; how files hold them in ckpt. Nothing here depends on a config: a
 * family says what no key says.
 *
 * Adding a family: docs/adding/family.md.
 */
#ifndef MX_FAMILY_H
#define MX_FAMILY_H

#include <mx/family_hf.h>
#include <mx/tree.h>

/* ---- one layer */

/* What mixes tokens, and what works on each alone; rows of src/model. */
typedef enum MxBlockKind {
    MX_BLOCK_NONE, /* the layer has no more */
    MX_BLOCK_ATTENTION,
    MX_BLOCK_MLA,
    MX_BLOCK_COMPRESSED,
    MX_BLOCK_DELTA,
    MX_BLOCK_GLU,
    MX_BLOCK_MOE,
    MX_BLOCK_LINEAR,
    MX_BLOCK_COUNT
} MxBlockKind;

/* How wide what a block reads or gives is. */
typedef enum MxWidth {
    MX_WIDTH_STREAM, /* emb_dim */
    MX_WIDTH_MLP,    /* mlp_dim */
    MX_WIDTH_LATENT, /* attention_output_dim */
} MxWidth;

/* What becomes of what a block gives. */
typedef enum MxJoin {
    MX_JOIN_ADDS,     /* it is added to the stream */
    MX_JOIN_GOES_ON,  /* the next block reads it instead of the stream */
    MX_JOIN_BESIDE,   /* it is added together with what the next block gives, which reads the same,
                         behind the norm before this one */
    MX_JOIN_REPLACES, /* it is the stream from there on */
} MxJoin;

/* A block of a layer, and what it and its norms are called in MaxText's trees. */
typedef struct MxBlockSpec {
    MxBlockKind kind;
    const char *name;        /* "self_attention" */
    const char *norm_before; /* of what the block reads; NULL = none */
    const char *norm_after;  /* of what it gives, before it is added to the stream; NULL = none */
    MxJoin join;
    MxWidth reads, gives;
    const char *back; /* the matrix that makes what it gives as wide as the stream, if the two are
                         not anyway; NULL = none */
    /* Of experts: what holds those that are chosen, where another stands beside them, which all
     * tokens go to, "MoeBlock_0" and "shared_experts"; NULL = the block itself, and there is no
     * other. What that one is multiplied with the sigmoid of, NULL = nothing. The logical axis of
     * what the router reads; NULL = "embed". */
    const char *routed, *shared, *shared_gate, *router_axis;
    bool shared_is_mlp; /* that one is as wide as a feed-forward block, not as an expert */
    /* Of experts that read the stream as it was before the block's norm: their own norm, and the
     * scale of the router's, whose product is divided by sqrt(emb_dim); norms of what they give and
     * of what the unit for all tokens gives. NULL = they read what that one reads. */
    const char *routed_norm, *router_scale, *routed_after, *shared_after;
} MxBlockSpec;

/* What a token sees of those before it. */
typedef enum MxSees {
    MX_SEES_AS_SAID,    /* by attention_type */
    MX_SEES_ALL_BEFORE, /* whatever attention_type says, which must be global */
    MX_SEES_WINDOW,     /* the same; sliding_window_size tokens, itself among them */
    MX_SEES_CHUNK,      /* the same; those in its chunk of chunk_attn_window_size tokens */
} MxSees;

/* How queries and keys are rotated. */
typedef enum MxRopeKind {
    MX_ROPE_AS_SAID,       /* by rope_type and its keys */
    MX_ROPE_LOCAL,         /* plainly, with local_rope_max_timescale if it is above 0 */
    MX_ROPE_LOCAL_IF_SAID, /* the same if it is above 0, else by rope_type */
    MX_ROPE_LOCAL_PART,    /* plainly, with local_rope_max_timescale if it is above 0; of the pairs
                              of a head the first, a share of local_rope_proportion, turn */
    MX_ROPE_GLOBAL_PART,   /* the same with global_rope_… */
    MX_ROPE_COMPRESSED, /* plainly, neighbours; with compressed_rope_max_timescale, and as rope_type
                           says, plainly or by yarn, in layers whose keys include rows of windows */
    MX_ROPE_NONE,       /* not at all */
} MxRopeKind;

/* What norms are. */
typedef enum MxNormKind {
    MX_NORM_RMS,
    MX_NORM_RMS_LESS_1, /* the scale is kept less 1 */
    MX_NORM_LAYER,      /* the mean is taken away first; the scale is kept less 1; a bias */
    MX_NORM_LAYER_PLAIN /* the same with the scale as it is */
} MxNormKind;

/* What the experts of a token count. */
typedef enum MxWeighs {
    /* The softmax of the chosen scores. A bias of the router is part of a score. */
    MX_WEIGHS_CHOSEN,
    /* The chosen scores themselves times routed_scaling_factor, sigmoids divided by their sum. A
     * bias has a say in who is chosen, and in nothing else. Source: DeepSeek-V3 (2024) 2.1.2. */
    MX_WEIGHS_SCORES,
    /* The sigmoid of the chosen score, of one expert a token: it multiplies what the expert reads,
     * and what the expert makes counts 1. Source: MaxText layers/moe.py (LLAMA4) @e591f30c. */
    MX_WEIGHS_READ,
    /* The softmax of all scores, with norm_topk_prob that of the chosen ones divided by their sum,
     * times a number that each expert learns. Source: MaxText layers/moe.py (GEMMA4) @e591f30c. */
    MX_WEIGHS_ALL,
} MxWeighs;

/* What the keys of compressed attention include besides the tokens of a sliding window. */
typedef enum MxWindows {
    MX_WINDOWS_NONE,
    MX_WINDOWS_ALL,    /* a row for each earlier window of compress_ratios tokens, more than 4 */
    MX_WINDOWS_CHOSEN, /* the indexer_topk of windows of 4 tokens that an indexer chooses, each row
                        of which also has something of the window before */
} MxWindows;
enum { MX_WINDOWS_CHOSEN_RATIO = 4 };

typedef struct MxLayerSpec {
    MxBlockSpec block[MX_LAYER_BLOCKS];
    bool asks_norms_after; /* norm_after stand only where use_post_attn_norm and use_post_ffw_norm
                              say so */
    MxSees sees;
    MxRopeKind rope;
    MxWindows windows;
    bool bias_apart;     /* a router's bias is no parameter: no gradient, and no optimizer */
    bool hashes;         /* a table chooses experts by the token's number; the router weighs them */
    bool norms_heads;    /* norms of queries and keys, whatever use_qk_norm says */
    bool norms_together; /* one over all heads, where others have one a head */
    bool norms_turned;   /* of what was rotated, without a scale; layers that rotate nothing have
                            none */
    bool tunes_queries;  /* temperature_tuning acts: queries at later positions are longer */
    bool counts_all;     /* MaxText counts operations as if all before were seen */
    bool scales_query;   /* q · k is scaled by 1/sqrt(head_dim) at run time; else the query kernel
                            starts, and is kept in MaxText's trees, that much smaller */
    bool has_out_bias;   /* attention_bias covers the output projection too */
    bool has_biases;     /* projections of all blocks, whatever attention_bias says */
    bool gates_heads;    /* what attention gives is multiplied with the sigmoid of a second half of
                            the queries' product */
    bool has_own_heads;  /* global_head_dim and global_num_kv_heads, where they are above 0, and
                            share_kv_projections act */
    bool takes_kv;       /* keys and values are those of the last earlier layer of its kind that has
                            its own; use_double_wide_mlp acts */
    bool norms_values;   /* by v_norm_with_scale with a scale or without */
    const char *idle_norm; /* a norm of the stream's width that nothing reads; NULL = none */
    const char *scalar;    /* what the layer's result is multiplied with; NULL = nothing */
    bool heads_alike;      /* a key and a value for each query head, under the same axes; fused, the
                              three stand in a dim of their own */
    MxWeighs weighs;
    bool gates_themselves; /* experts multiply x sigmoid(1.702 x) with the linear branch plus 1,
                              where mlp_activations say [sigmoid, linear]. Source: OpenAI gpt-oss */
} MxLayerSpec;

/* ---- families */

enum { MX_MOST_SPECS = 6, MX_MOST_PERIOD = 16, MX_MOST_HF = 4, MX_MOST_RUNS = 2 };

/* What keys say of a layer where they say how layers take turns: it has experts, is not turned, is
 * the last of a cycle, takes keys and values of an earlier one; is one of first_num_hash_layers,
 * pools all windows, pools chosen ones. */
enum {
    MX_KIND_EXPERTS = 1,
    MX_KIND_UNTURNED = 2,
    MX_KIND_LAST = 4,
    MX_KIND_TAKES = 8,
    MX_KIND_HASHES = 16,
    MX_KIND_POOLS_ALL = 32,
    MX_KIND_POOLS_CHOSEN = 64
};

/* Places of a period that MaxText stacks together, inside of the stack of periods: "outer/name/…".
 */
typedef struct MxRuns {
    const char *outer;
    const char *axis; /* logical, of the stack of periods; NULL = what layers are called */
    struct {
        const char *name;
        int n; /* places; 1 = not stacked inside */
    } run[MX_MOST_RUNS];
} MxRuns;

typedef struct MxFamily {
    const char *decoder_block;
    MxLayerSpec specs[MX_MOST_SPECS];
    int n_specs; /* 0 = not built */
    /* Layers take turns: layer i has specs[turns[i % (period · n_a_name)]]. MaxText stacks a
     * period's places apart, below names that begin with `place`, "layers/layers_2/…"; period 1 =
     * all in one array. Where it takes several layers for one, they share its name, with blocks
     * of different names: n_a_name, 0 = 1. */
    bool keeps_stream; /* dropout leaves alone what goes from layer to layer */
    int period, n_a_name;
    int turns[MX_MOST_PERIOD];
    /* Keys say how layers take turns, MxLayerKeys: of what they do, MX_KIND_… . Specs stand by
     * these bits alone, the lowest of them counting 1, the next 2. The period is then that of files
     * of which nothing is known. 0 = none. */
    int keys_say_turns;
    bool ahead_is_first; /* modules that look ahead are of the first layer's kind, as MaxText's
                            class of layers is by default; else of the last one's */
    int expert_specs;    /* where num_experts is above 1, specs so much further on count; 0 = always
                            those of turns */
    MxNormKind norm;     /* of layers and behind the last */
    bool norms_are_whole; /* their scales have no logical axis */
    const char *layers;   /* what MaxText calls them, "moe_layers"; NULL = "layers" */
    /* The first first_num_dense_layers are all of one spec, and a stack of their own that is called
     * so, "dense_layers"; the others begin to count and to take turns behind them. NULL = none. */
    const char *first_layers;
    int first_spec;
    /* The first first_num_hash_layers are never stacked, and named as where nothing is; the others
     * go on counting. */
    bool first_hash;
    const char *place;
    const MxRuns *runs; /* NULL = places are stacked apart */
    /* The period is that of compress_ratios behind the first layers, and of stacks always that of
     * the family. */
    bool ratios_say_period;
    bool muon_settles;   /* its last iterations leave singular values at 1 */
    bool never_stacks;   /* layers stay one by one whatever scan_layers says */
    bool has_inputs;     /* layers read something of the tokens themselves, and of the embedding:
                            hidden_size_per_layer_input */
    bool has_streams;    /* the stream has several rows a token: mhc_expansion_rate; then layers may
                            have n-gram memories: engram_layers */
    bool weighs_streams; /* … and behind the last layer they are weighed, not added up */
    bool stages_hold_places; /* in MaxText's pipelines a stage has one layer of every place, as if
                                they were one layer */
    const char *mark;        /* part of a path that no other family's trees have; NULL = none */
    const char *keys; /* config keys that act in families that name them alone, or even here */
    const char *lora_modules; /* a regular expression, with "layers/" for any layer of a stack */
    MxHfNames hf[MX_MOST_HF]; /* model_type NULL = no such one */
} MxFamily;

/* mx_families — all of them; in the order of family.def. */
const MxFamily *const *mx_families(int *n);
/* mx_family_find — by the name of its decoder block; NULL = there is none. */
const MxFamily *mx_family_find(const char *decoder_block);
/* mx_family_a_name — how many layers one of MaxText's is, whose number num_decoder_layers is. */
static inline int mx_family_a_name(const MxFamily *family) {
    return family->n_a_name ? family->n_a_name : 1;
}
/* mx_family_has — whether some of its layers have a block of a kind. */
bool mx_family_has(const MxFamily *family, MxBlockKind kind);
/* mx_family_reads — whether its `keys` name a key. */
bool mx_family_reads(const MxFamily *family, const char *key);

/* The decoder blocks that are built, and the others, with blanks between. */
extern const char mx_families_built[], mx_families_later[];

/* ---- stacks */

#define MX_STACK_REST   "layers_remainder"
#define MX_STACK_BLOCKS "scanned_blocks" /* of families whose places stand in runs */
#define MX_STACK_PLACE  "layers_"        /* what most families call the places of a block */
/* Between the name of a stack and the number of a layer that stands alone in it. */
#define MX_STACK_RECALL "_engram_"

typedef enum MxDivide {
    MX_DIVIDE_NOT,
    MX_DIVIDE_PIECE, /* of a stack */
    MX_DIVIDE_ALONE, /* "<outer>_engram_<first>/…" */
} MxDivide;

/* How layers of one kind are stacked: all in "<outer>/…", or, where they take turns, those of one
 * place in "<outer>/<place>0/…", "<outer>/<place>1/…"; layers after the last whole period stay
 * alone in "layers_remainder/<place>0/…". Source: MaxText layers/nnx_decoders.py @e591f30c, read
 * off its trees. */
typedef struct MxStacking {
    const char *outer, *place;
    int period;         /* 0 = all in one array */
    const MxRuns *runs; /* NULL = places lie apart */
    /* Layers with n-gram memories stand alone and divide the stack that they are of: others are in
     * "<outer>_<first>_<last>/…", layers counted as the model counts them. In a stack that is not
     * divided, `first` layers stand before it. */
    MxDivide divides;
    int first, last;
} MxStacking;

/* mx_family_stacking — of the stack of its layers that are not first ones, which take turns with a
 * period. */
MxStacking mx_family_stacking(const MxFamily *family, int period);
/* mx_stack_of — where a leaf of a layer sits.
 *   prefix  "decoder/"; tail  the leaf's path in its layer
 *   axis    logical name of the stacked dim */
MxStack mx_stack_of(MxArena *arena, const char *prefix, const char *axis, MxStacking how, int layer,
                    int n_layers, const char *tail);

/* ---- the layers of a model */

/* What keys say of the layers of a model. */
typedef struct MxLayerKeys {
    int64_t n;       /* as MaxText counts them: num_decoder_layers */
    int64_t n_dense; /* first_num_dense_layers, of families that have such ones */
    int64_t n_hash;  /* first_num_hash_layers, the same */
    /* Of families with keys_say_turns: every so many a layer is not rotated, or has experts, 0 and
     * below = none is, and after so many their kinds come again: nope_layer_interval,
     * interleave_moe_layer_step, inhomogeneous_layer_cycle_interval. */
    int64_t nope_interval, moe_step, cycle;
    bool last_ends_cycle; /* last_layer_sees_all: the last layer is of the kind that ends cycles */
    int64_t n_experts;
    int64_t n_takers;      /* num_kv_shared_layers */
    const int64_t *ratios; /* [n] compress_ratios; NULL = all 0 */
    const int64_t *recall; /* layers with n-gram memories: engram_layers */
    int n_recall;
} MxLayerKeys;

typedef struct MxLayers {
    const MxFamily *family;
    MxLayerKeys keys;
    int n, n_first; /* all, and first ones, which are stacked alone or not at all */
    int period;     /* of the others, as MaxText counts them */
} MxLayers;

MxLayers mx_layers(const MxFamily *family, MxLayerKeys keys);
/* mx_layer_spec — of a layer, counted from 0. */
const MxLayerSpec *mx_layer_spec(const MxLayers *layers, int layer);
/* mx_layer_ahead — of layer i of a module that looks ahead, which has as many as one of MaxText's
 * layers is; never of the kind of first layers. Source: MaxText models/models.py @e591f30c, which
 * takes the class of layers. */
const MxLayerSpec *mx_layer_ahead(MxLayers layers, int i);

/* mx_layer_giver — whose keys and values a layer takes; -1 = nobody's. */
int mx_layer_giver(const MxLayers *layers, int layer);

/* mx_layer_recall — which of those with n-gram memories a layer is; -1 = it has none. */
int mx_layer_recall(const MxLayers *layers, int layer);

/* Where a layer is: the `layer`-th of n in a stack, as MaxText counts them; `number` is part of its
 * name where layers are not stacked. */
typedef struct MxLayerPlace {
    MxStacking how;
    int layer, n, number;
    bool is_alone; /* whatever is stacked */
} MxLayerPlace;
MxLayerPlace mx_layer_place(const MxLayers *layers, int layer);
/* mx_layer_name — the name of a layer on its own, "decoder/layers_7". */
const char *mx_layer_name(MxArena *arena, const MxLayers *layers, int layer);

#endif
