/* ckpt_hf.h — Hugging Face's models in folders: what config.json tells of them, their parameters
 * read into trees, and trees written as such folders (docs/HUGGING_FACE.md). Part of ckpt.h. */
#ifndef MX_CKPT_HF_H
#define MX_CKPT_HF_H

#include <mx/ckpt.h>

#define MX_HF_CONFIG "config.json"

/* A model that both sides know. */
typedef struct MxHfModel {
    const char *decoder_block;     /* our name of its family */
    const struct MxHfNames *names; /* mx/family.h; NULL = Hugging Face has no such model */
    int64_t emb_dim, n_query_heads, n_kv_heads, head_dim, mlp_dim, vocab_size;
    int64_t n_layers;            /* as MaxText counts them */
    int64_t n_experts, n_chosen; /* of a layer; by a token. 1 = there are none */
    int64_t moe_dim, n_shared;   /* width of an expert, and how many such are for all tokens */
    bool sums_to_1;              /* weights of these, where a key of ours says it */
    int64_t n_groups, n_best;    /* of experts, and those that are taken; -1 = there are none */
    double routing_factor, gate_limit; /* of what experts count; of their gates, 0 = none */
    /* Of families some of whose layers come first or whose keys say how they take turns, as of
     * MxLayerKeys. */
    int64_t n_dense, nope_interval, moe_step, cycle;
    bool last_ends_cycle;      /* as of MxLayerKeys */
    int64_t n_takers, n_ahead; /* with keys of earlier layers; behind the last one, not taken */
    int64_t chunk;             /* tokens that see each other; 0 = no layer has one */
    /* Of layers with heads of their own: shares_kv, their keys are values; the share that turns. */
    int64_t own_head_dim, own_kv_heads;
    bool shares_kv, is_double_wide; /* double: feed-forward units of layers that take keys */
    double own_rotated;
    int64_t input_dim, input_vocab; /* of what layers read beside the stream; 0 = nothing */
    int experts; /* MxHfExperts: what tensors of experts are called, in the folder */
    /* Of latent attention: what queries, keys and values are made of, and parts of heads. */
    int64_t q_rank, kv_rank, nope_dim, rope_dim, value_dim;
    bool has_indexer; /* of latent attention */
    int64_t index_heads, index_dim, index_topk;
    /* Of compressed attention and streams: as keys o_groups, o_lora_rank, mhc_expansion_rate,
     * sinkhorn_iterations, first_num_hash_layers, compressed_rope_max_timescale, and [n_layers]
     * compress_ratios; 0 and NULL = there are none. */
    int64_t o_groups, o_rank, n_streams, stream_turns, n_hash, pooled_theta;
    const int64_t *ratios;
    /* Of gated delta nets; taps of the convolution. */
    int64_t delta_keys, delta_values, delta_key_dim, delta_value_dim, delta_taps;
    int64_t length; /* longest row, tokens */
    int64_t window; /* tokens that a token of layers with a window sees; 0 = no layer has one */
    bool is_tied, has_bias, has_qk_norm;
    bool unties;       /* its folder's output matrix is the embedding, of which ours is a copy */
    bool has_score;    /* a head of one number in place of logits */
    bool norms_turned; /* of queries and keys, where those norms have no scales */
    double epsilon;
    int64_t rope_theta;
    int64_t local_theta;        /* of layers with a window; 0 = the family has no other there */
    double query_scalar;        /* scores are divided by its square root; 0 = by head_dim's */
    double attn_cap, final_cap; /* of scores and logits; 0 = none */
    double rope_factor;         /* positions are divided by it */
    bool is_stretched;          /* as of rope_type llama3.1, with: */
    double stretch_factor, stretch_low, stretch_high;
    int64_t stretch_length;
    double rotated; /* share of a head */
    bool are_pairs; /* rotated ones are neighbours, on both sides; latent attention */
    bool is_yarn, yarn_truncates;
    int64_t yarn_length; /* that the weights were trained on */
    double yarn_factor, yarn_fast, yarn_slow;
    double yarn_amplitude, yarn_scale; /* on cos and sin, 0 = 1; of scores, as key mscale */
    bool tunes;                        /* queries of layers that rotate nothing … */
    double tuning_scale;               /* … as keys temperature_tuning_… */
    int64_t tuning_period;
    MxHeadForm heads;             /* of our kernels */
    bool makes_pairs, makes_ones; /* of what is made, in place of what its kind says: rotated ones
                                     are neighbours; norms hold 1 + w */
    MxDtype dtype;                /* of its tensors, as config.json has it: MX_F32 or MX_BF16 */
    bool is_meta;                 /* its folder is one of Meta's */
    const char *few_bits;     /* how tensors in few bits lie (hf_scaled.c); NULL = there are none */
    bool zeros_are_less;      /* their zeros are one more than is stored */
    int64_t code_bits;        /* of those in words */
    int64_t scale_block[2];   /* rows and columns with one scale; 0 = as their number says */
    bool is_within, sees;     /* the text model of one that also sees images; with its encoder: */
    const MxEncoder *encoder; /* NULL = it has none that is available */
    int64_t see_layers, see_dim, see_mlp, see_heads, see_size, see_patch, see_tokens;
    int64_t see_pool, see_positions, see_theta, see_head, see_kv_heads;
    int64_t see_wide, see_made,
        see_out;        /* of what makes tokens of patches, and what is read of it */
    double see_epsilon; /* of its norms */
    int64_t see_frames; /* of a patch */
    int64_t see_deep[MX_MOST_DEEP], n_see_deep; /* layers that add to the decoder's */
    int64_t mrope[MX_MROPE_KINDS];              /* pairs by time, row and column; 0 = none */
    bool hears;                                 /* also with the encoder of sounds beside it: */
    const MxAudioEncoder *audio;                /* NULL = it has none that is available */
    int64_t hear_layers, hear_dim, hear_mlp, hear_heads, hear_bins, hear_channels;
    int64_t hear_window, hear_infer, hear_out;
    MxJson *config, *outer; /* config.json, or the text model's part of all of it; NULL = none */
    const char *lacks;      /* members of it that mxtrain does not do, for messages; "" = none */
} MxHfModel;

/* mx_hf_is_dir — whether a folder holds config.json, and is no checkpoint of ours; one of Meta's,
 * with params.json and consolidated.00.pth, stands for that of Hugging Face's. mx_hf_config_path —
 * where it tells its model. */
bool mx_hf_is_dir(const char *dir);
const char *mx_hf_config_path(MxArena *arena, const char *dir);
/* mx_hf_read_config — config.json, as transformers 4 or 5 spells it, or Meta's params.json; heads
 * are those of MaxText's trees. Errors: no such family; members that are missing or stand for other
 * parameters. */
bool mx_hf_read_config(MxArena *arena, const char *path, MxHfModel *out, MxError *err);
/* mx_hf_of_config — the model of a config of ours. What transformers has no member for is passed
 * over. */
MxHfModel mx_hf_of_config(const MxConfig *config, MxHeadForm heads);
/* mx_hf_see — what a folder tells of the model around a text model, and of its encoder of images,
 * which our keys do not all have: to be added to a model of a config. Errors: as of
 * mx_hf_read_config. */
bool mx_hf_see(MxArena *arena, const char *dir, MxHfModel *model, MxError *err);
/* mx_ckpt_was_hf — what is recorded of the model of Hugging Face's that a checkpoint of ours was
 * before mxconvert: decoder_block, emb_dim and the form of heads; false where nothing is. */
bool mx_ckpt_was_hf(const MxCkptRef *ref, MxHfModel *out);
/* mx_hf_fits — that transformers has members for what a config of ours says. Errors: every key that
 * changes results in a way that it does not have. */
bool mx_hf_fits(const MxConfig *config, MxError *err);
/* mx_hf_load — the parameters of a folder, of adapters none; each tensor is read whole, so that all
 * of it and the largest are in memory at once.
 *   from    a folder that was found; with `heads`, how the model's kernels hold them
 *   theirs  receives what config.json tells, in the arena
 * Errors: as of mx_hf_read_config and mx_ckpt_read; what mxtrain does not do. */
bool mx_hf_load(MxArena *arena, const MxCkptRef *from, MxTree *state, MxHfModel *theirs,
                MxError *err);
/* mx_hf_load_for — the same for a model that a config of ours describes, from a folder by name; a
 * number that config.json says otherwise is a warning.
 *   heads  how the model's kernels hold them */
bool mx_hf_load_for(const char *dir, const MxTeam *team, const MxConfig *config, MxHeadForm heads,
                    MxTree *state, MxError *err);
/* mx_hf_yaml — the config with which mxtrain trains it. */
const char *mx_hf_yaml(MxArena *arena, const MxHfModel *model);
/* mx_hf_agree — that a config.json tells the model that a run of ours trained, shapes aside.
 * Errors: every member that says another number. */
bool mx_hf_agree(const MxHfModel *theirs, const MxHfModel *ours, MxWhere where, MxError *err);
/* mx_hf_adapt — a model's config.json, changed into that of a model of ours: only members that
 * differ are; the longest row stays if ours is shorter. False = it cannot be.
 *   changed  receives the members that differ, as "rope_theta, …"; "" = none */
bool mx_hf_adapt(MxArena *arena, const MxHfModel *theirs, const MxHfModel *ours, MxHfModel *out,
                 const char **changed);

/* mx_hf_other_shapes — what of two models shapes depend on and is not the same, as "base_emb_dim=32
 * (here 64), …"; "" = nothing. */
const char *mx_hf_other_shapes(MxArena *arena, const MxHfModel *theirs, const MxHfModel *ours);

/* mx_hf_carry — copies what else belongs to a model from one folder to another: the files of its
 * tokenizer and generation_config.json. notes  receives which, a line */
bool mx_hf_carry(const char *from, const char *to, MxText *notes, MxError *err);
/* mx_hf_special_tokens — adds what the config.json of a folder says of tokens (bos_token_id …) to
 * an object. A folder without config.json says nothing. */
bool mx_hf_special_tokens(MxArena *arena, const char *dir, MxJson *out, MxError *err);

/* How a checkpoint becomes a folder of Hugging Face's. */
typedef struct MxHfExport {
    MxHfModel model;
    const MxJson *special_tokens; /* for a config.json that is made; NULL = none are known */
    MxDtype dtype;                /* MX_F32 or MX_BF16 */
    int64_t shard_bytes;          /* most bytes of arrays in a file */
    bool verifies;                /* read the tensors back and compare */
} MxHfExport;

/* mx_hf_export — writes config.json and model.safetensors, or shards with their index, into a
 * folder, tensor by tensor; NULL = only tells what would be in it, one line a tensor.
 *   notes  receives what was found, in lines
 * Errors: every parameter that is missing, of another shape, or without a name there; I/O. */
bool mx_hf_export(const MxCkptRef *from, const MxHfExport *how, const char *dir, MxText *notes,
                  MxError *err);

#endif
