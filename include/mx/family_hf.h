/* family_hf.h — what Hugging Face's files call a family's models, and what no member of config.json
 * says of them. How files hold tensors is in the ckpt room. */
#ifndef MX_FAMILY_HF_H
#define MX_FAMILY_HF_H

#include <mx/base.h>

enum { MX_LAYER_BLOCKS = 2 }; /* of a layer: a mixer of tokens, then a feed-forward block */

/* Whether queries, keys and values have biases. */
typedef enum MxHfBias {
    MX_HF_BIAS_NEVER,
    MX_HF_BIAS_SAID, /* by attention_bias */
    MX_HF_BIAS_ALWAYS
} MxHfBias;

/* Whether layers see a window of tokens. */
typedef enum MxHfWindow {
    MX_HF_WINDOW_NEVER,
    MX_HF_WINDOW_SAID,   /* by use_sliding_window */
    MX_HF_WINDOW_ALWAYS, /* unless sliding_window is null */
    MX_HF_WINDOW_TURNS,  /* in the layers that the family says */
} MxHfWindow;

/* What tensors of experts are called, and whether there is one for each or for all. */
typedef enum MxHfExperts {
    MX_HF_EXPERTS_NONE,
    MX_HF_EXPERTS_W,      /* experts.7.w1 */
    MX_HF_EXPERTS_PROJ,   /* experts.7.gate_proj */
    MX_HF_EXPERTS_HALVES, /* experts.gate_up_proj: of all, gates before the linear branch */
    MX_HF_EXPERTS_TURNED, /* the same as halves, each matrix transposed */
    MX_HF_EXPERTS_PAIRS,  /* as halves: a gate beside its element of the linear branch; biases */
    MX_HF_EXPERTS_GATED,  /* as halves, with the router's name of PROJ */
    MX_HF_EXPERTS_PACKED, /* as pairs, each matrix transposed and in four bits */
} MxHfExperts;

/* A kind of model under their names, and what no member of config.json says. */
typedef struct MxHfNames {
    const char *model_type, *architecture;
    const char *outer_type; /* of models that have it as their text_config, a blank between them;
                               NULL = none */
    const char *norms[2 * MX_LAYER_BLOCKS]; /* before and after each block; NULL = none */
    bool interleaves;         /* in MaxText's trees rotated pairs are neighbours … */
    bool are_neighbours;      /* … and so they are in theirs */
    const char *ffn, *shared; /* their blocks: NULL = "mlp"; of the unit for all tokens */
    const char *held_ffn;     /* … as transformers' modules are called; NULL = as ffn says */
    MxHfBias bias;
    bool has_qk_norm;             /* always */
    bool has_sinks;               /* always */
    MxHfExperts also_experts;     /* a folder may have them so instead; NONE = it may not */
    MxHfExperts outer_experts[2]; /* so in the model of outer_type, as published, and as
                                     transformers saves it; NONE = no other way */
    const char *routed; /* what holds router and experts, "" = the layer; NULL = what ffn says */
    const char
        *nothing_in;      /* the next family of this model_type has those where this member of
                             config.json says something, or is missing; NULL = there is no other */
    bool has_delta_apart; /* delta nets have in_proj_qkv, _z, _b and _a, not _qkvz and _ba */
    bool has_indexer;     /* always: index_n_heads, index_head_dim, index_topk, mlp_layer_types */
    MxHfWindow window;
    MxHfExperts experts;
    const char *score;   /* routed_score_func of these, where the family has others too */
    bool has_score_bias; /* routed_bias */
    /* Members of config.json that not all models have. */
    bool limits_gates;   /* of experts: swiglu_limit, swiglu_alpha */
    bool tells_layers;   /* layer_types */
    bool tells_turns;    /* no_rope_layer_interval, no_rope_layers, interleave_moe_layer_step,
                            moe_layers */
    bool tells_pairs;    /* rope_interleave, of latent attention; without it they are neighbours */
    bool tells_norm;     /* norm_topk_prob … */
    bool norms_anyway;   /* … which is true where it is missing … */
    bool norms_within;   /* … or where it is missing in the models of outer_type */
    bool sees_chunks;    /* attention_chunk_size */
    bool tunes_queries;  /* attn_temperature_tuning, attn_scale, floor_scale */
    bool norms_turned;   /* use_qk_norm, of norms without a scale */
    bool has_own_mlp;    /* intermediate_size_mlp; intermediate_size is the experts' */
    bool like_deepseek;  /* n_routed_experts, n_shared_experts, routed_scaling_factor,
                            first_k_dense_replace … */
    bool has_groups;     /* … n_group and topk_group; without them topk_method */
    bool like_gemma4;    /* global_head_dim, num_global_key_value_heads, attention_k_eq_v,
                            rope_parameters of each kind of layer … */
    bool has_inputs;     /* … hidden_size_per_layer_input, num_kv_shared_layers */
    bool like_deepseek4; /* no first_k_dense_replace, topk_method or n_group */
    bool has_own_rope;   /* rope_parameters are read by rows of their own */
    bool is_bare; /* names of tensors have no "model." before them, and are those of HfRow.bare */
    bool asks_experts;   /* enable_moe_block, top_k_experts */
    bool looks_ahead;    /* num_nextn_predict_layers */
    bool sizes_shared;   /* shared_expert_intermediate_size */
    bool has_one_shared; /* there is one unit for all tokens, and no member for it */
    const char *ahead;   /* of tensors that look ahead, how names begin; NULL = as layers' */
    const char *activation, *our_activation; /* NULL = silu */
    bool adds_one;                           /* their norms hold w where ours hold 1 + w */
    bool scales_embedding; /* ours is multiplied with sqrt(emb_dim), tied logits divided by it */
    bool is_tied;          /* where tie_word_embeddings is missing */
    bool ties_within;      /* in models of outer_type, as text_config says, not as these do */
    bool is_biased;        /* where attention_bias is missing */
    bool has_caps;         /* attn_logit_softcapping, final_logit_softcapping */
    bool has_query_scalar; /* query_pre_attn_scalar */
    bool has_local_rope;   /* layers with a window are rotated plainly … */
    bool has_own_theta;    /* … by rope_local_base_freq, not rope_theta */
    /* What members count that config.json lacks; 0 = nothing, or as num_attention_heads says. */
    int64_t default_window, default_head_dim, default_kv_heads;
    int64_t default_heads, default_vocab, default_theta, default_chosen;
    int64_t default_dense, default_shared, default_cycle;
    int64_t default_groups, default_best; /* n_group, topk_group */
    double default_epsilon;               /* rms_norm_eps; 0 = 1e-6 */
    const char *default_rope;             /* rope_parameters; NULL = rotations are plain */
    double default_rotated;               /* partial_rotary_factor */
    double default_limit;                 /* swiglu_limit */
    double default_routing;               /* routed_scaling_factor */
    double default_attn_cap, default_final_cap;
} MxHfNames;

#endif
