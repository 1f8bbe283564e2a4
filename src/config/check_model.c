/* check_model.c — combinations of sizes, heads, windows, experts and positions that are not
 * allowed. Source: MaxText types.py validators @e591f30c; ours where marked. */
#include "check.h"

#include <mx/family.h>

/* Ours: a family that says what its layers see leaves attention_type nothing to say. */
static void check_windows(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool says = false, has_window = false, has_chunk = false;
    for (int i = 0; i < family->n_specs; i++) {
        says |= family->specs[i].sees != MX_SEES_AS_SAID;
        has_window |= family->specs[i].sees == MX_SEES_WINDOW;
        has_chunk |= family->specs[i].sees == MX_SEES_CHUNK;
    }
    if (says && GOOD(load, MX_KEY_attention_type) && strcmp(c->attention_type, "global") != 0)
        config_fail(load, MX_KEY_attention_type,
                    "%s, but layers of %s see what their family says; wants global",
                    c->attention_type, c->decoder_block);
    if (has_window && GOOD(load, MX_KEY_sliding_window_size) && !c->sliding_window_size)
        config_fail(load, MX_KEY_sliding_window_size,
                    "layers of %s have a window; wants at least 1, found 0", c->decoder_block);
    if (has_chunk && GOOD(load, MX_KEY_chunk_attn_window_size) && !c->chunk_attn_window_size)
        config_fail(load, MX_KEY_chunk_attn_window_size,
                    "layers of %s see a chunk; wants at least 1, found 0", c->decoder_block);
}

static void check_heads(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_global_parameter_scale) &&
        (c->global_parameter_scale & (c->global_parameter_scale - 1)))
        config_fail(load, MX_KEY_global_parameter_scale, "%lld is not a power of two",
                    (long long)c->global_parameter_scale);
    if (GOOD(load, MX_KEY_base_num_query_heads, MX_KEY_base_num_kv_heads) &&
        c->base_num_query_heads % c->base_num_kv_heads)
        config_fail(load,
                    config_culprit(load, MX_KEY_base_num_kv_heads, MX_KEY_base_num_query_heads),
                    "base_num_kv_heads %lld does not divide base_num_query_heads %lld",
                    (long long)c->base_num_kv_heads, (long long)c->base_num_query_heads);
    if (GOOD(load, MX_KEY_head_dim) && c->head_dim % 2)
        config_fail(load, MX_KEY_head_dim, "%lld is odd; rotary position encoding turns pairs",
                    (long long)c->head_dim);
}

/* Heads of the family's own kind, which one of its specs has. */
static void check_own_heads(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool has = false;
    for (int i = 0; family && i < family->n_specs; i++) has |= family->specs[i].has_own_heads;
    if (!has) return;
    if (GOOD(load, MX_KEY_global_head_dim) && c->global_head_dim % 2)
        config_fail(load, MX_KEY_global_head_dim,
                    "%lld is odd; rotary position encoding turns pairs",
                    (long long)c->global_head_dim);
    if (GOOD(load, MX_KEY_global_num_kv_heads, MX_KEY_base_num_query_heads) &&
        c->global_num_kv_heads && c->num_query_heads % c->global_num_kv_heads)
        config_fail(load, MX_KEY_global_num_kv_heads,
                    "%lld does not divide base_num_query_heads %lld",
                    (long long)c->global_num_kv_heads, (long long)c->base_num_query_heads);
}

/* Source: MaxText models/gemma4_small.py @e591f30c; it wants scan_layers=false, which says nothing
 * here. */
static void check_inputs(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    const MxKey cycle = MX_KEY_inhomogeneous_layer_cycle_interval;
    if (!family || !family->has_inputs) return;
    if (GOOD(load, cycle) && c->inhomogeneous_layer_cycle_interval == 1)
        config_fail(load, cycle,
                    "not available yet (got 1; %s wants after how many layers one sees all: E2B 5, "
                    "E4B 6)",
                    c->decoder_block);
    if (!GOOD(load, MX_KEY_hidden_size_per_layer_input, MX_KEY_vocab_size_per_layer_input)) return;
    int64_t rows = c->hidden_size_per_layer_input ? c->vocab_size : 0;
    if (c->vocab_size_per_layer_input < rows || (!rows && c->vocab_size_per_layer_input))
        config_fail(load,
                    config_culprit(load, MX_KEY_vocab_size_per_layer_input,
                                   MX_KEY_hidden_size_per_layer_input),
                    "vocab_size_per_layer_input %lld, hidden_size_per_layer_input %lld: wants at "
                    "least vocab_size (%lld) rows, or neither",
                    (long long)c->vocab_size_per_layer_input,
                    (long long)c->hidden_size_per_layer_input, (long long)c->vocab_size);
}

/* What one block gives another. Source: MaxText models/qwen3_custom.py @e591f30c. */
static void check_latent_width(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!family || !family->n_specs || family->specs[0].block[0].gives != MX_WIDTH_LATENT) return;
    if (!GOOD(load, MX_KEY_attention_output_dim, MX_KEY_moe_expert_input_dim)) return;
    if (c->attention_output_dim < 1 || c->attention_output_dim != c->moe_expert_input_dim)
        config_fail(load,
                    config_culprit(load, MX_KEY_attention_output_dim, MX_KEY_moe_expert_input_dim),
                    "attention_output_dim %lld, moe_expert_input_dim %lld; %s wants both, and the "
                    "same",
                    (long long)c->attention_output_dim, (long long)c->moe_expert_input_dim,
                    c->decoder_block);
}

/* Of what is rotated there are pairs. */
static void check_rotated(ConfigLoad *load, const MxConfig *c) {
    double width = (double)c->head_dim * c->partial_rotary_factor;
    if (!GOOD(load, MX_KEY_partial_rotary_factor, MX_KEY_head_dim) || c->partial_rotary_factor == 1)
        return;
    if ((int64_t)width % 2)
        config_fail(load, MX_KEY_partial_rotary_factor,
                    "%lld elements of a head are rotated, which are no pairs", (long long)width);
}

/* Where keys say how layers take turns, places of a stack are alike. */
static void check_turns(ConfigLoad *load, const MxConfig *c) {
    const MxKey cycle = MX_KEY_inhomogeneous_layer_cycle_interval;
    const struct {
        MxKey key;
        int64_t interval;
    } turns[] = {{MX_KEY_nope_layer_interval, c->nope_layer_interval},
                 {MX_KEY_interleave_moe_layer_step, c->interleave_moe_layer_step}};
    for (int i = 0; i < MX_COUNT(turns); i++)
        if (GOOD(load, turns[i].key, cycle) && turns[i].interval > 0 &&
            c->inhomogeneous_layer_cycle_interval % turns[i].interval)
            config_fail(load, config_culprit(load, cycle, turns[i].key),
                        "inhomogeneous_layer_cycle_interval %lld is not a multiple of %s %lld",
                        (long long)c->inhomogeneous_layer_cycle_interval, mx_key_name(turns[i].key),
                        (long long)turns[i].interval);
    if (GOOD(load, cycle) && c->inhomogeneous_layer_cycle_interval > MX_MOST_PERIOD)
        config_fail(load, cycle, "not available yet: wants at most %d, found %lld", MX_MOST_PERIOD,
                    (long long)c->inhomogeneous_layer_cycle_interval);
}

/* Where the family says how layers take turns, a config can only say the same. */
static void check_cycle(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block, MX_KEY_inhomogeneous_layer_cycle_interval)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    int64_t said = c->inhomogeneous_layer_cycle_interval;
    if (family->keys_say_turns) {
        check_turns(load, c);
        return;
    }
    bool is_read = mx_family_reads(family, "inhomogeneous_layer_cycle_interval");
    if (is_read && said != 1 && said != family->period)
        config_fail(load, MX_KEY_inhomogeneous_layer_cycle_interval,
                    "not available yet: %s wants %d here, found %lld", c->decoder_block,
                    family->period, (long long)said);
}

/* Layers whose kinds come again after another number of them are not built. */
static void check_delta(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!mx_family_has(family, MX_BLOCK_DELTA)) return;
    if (GOOD(load, MX_KEY_gdn_num_value_heads, MX_KEY_gdn_num_key_heads) &&
        c->gdn_num_value_heads % c->gdn_num_key_heads)
        config_fail(load, MX_KEY_gdn_num_value_heads,
                    "%lld is not a multiple of gdn_num_key_heads (%lld)",
                    (long long)c->gdn_num_value_heads, (long long)c->gdn_num_key_heads);
    if (GOOD(load, MX_KEY_inhomogeneous_layer_cycle_interval) &&
        c->inhomogeneous_layer_cycle_interval == 1)
        config_fail(load, MX_KEY_inhomogeneous_layer_cycle_interval,
                    "not available yet: %s wants %d here, found 1", c->decoder_block,
                    family->period);
    if (GOOD(load, MX_KEY_fused_qkv) && c->fused_qkv)
        config_fail(load, MX_KEY_fused_qkv, "%s has gates beside queries; wants false",
                    c->decoder_block);
}

/* Ours: no size may overflow an index when two of them are multiplied. */
static void check_sizes(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        int64_t value;
    } sizes[] = {
        {MX_KEY_base_emb_dim, c->emb_dim},
        {MX_KEY_base_mlp_dim, c->mlp_dim},
        {MX_KEY_base_moe_mlp_dim, c->base_moe_mlp_dim == -1 ? 1 : c->moe_mlp_dim},
        {MX_KEY_num_experts, c->num_experts},
        {MX_KEY_base_num_query_heads, c->num_query_heads},
        {MX_KEY_base_num_kv_heads, c->num_kv_heads},
        {MX_KEY_base_num_decoder_layers, c->num_decoder_layers},
        {MX_KEY_head_dim, c->head_dim},
        {MX_KEY_global_head_dim, c->global_head_dim},
        {MX_KEY_global_num_kv_heads, c->global_num_kv_heads},
        {MX_KEY_attention_output_dim, c->attention_output_dim},
        {MX_KEY_hidden_size_per_layer_input, c->hidden_size_per_layer_input},
        {MX_KEY_vocab_size_per_layer_input, c->vocab_size_per_layer_input},
        {MX_KEY_vocab_size, c->vocab_size},
        {MX_KEY_gdn_num_value_heads, c->gdn_num_value_heads},
        {MX_KEY_gdn_num_key_heads, c->gdn_num_key_heads},
        {MX_KEY_gdn_key_head_dim, c->gdn_key_head_dim},
        {MX_KEY_gdn_value_head_dim, c->gdn_value_head_dim},
        {MX_KEY_gdn_conv_kernel_dim, c->gdn_conv_kernel_dim},
        {MX_KEY_trainable_position_size, c->trainable_position_size},
        {MX_KEY_max_target_length, c->max_target_length},
        {MX_KEY_steps, c->steps},
    };
    for (int i = 0; i < MX_COUNT(sizes); i++)
        if (GOOD(load, sizes[i].key) && sizes[i].value > CONFIG_LARGEST_SIZE)
            config_fail(load, sizes[i].key, "%lld is more than the largest size, %d",
                        (long long)sizes[i].value, CONFIG_LARGEST_SIZE);
}

static void check_attention(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_attention_type)) return;
    bool is_sliding = !strcmp(c->attention_type, "local_sliding");
    bool is_chunked = !strcmp(c->attention_type, "chunk");
    if (is_sliding && GOOD(load, MX_KEY_sliding_window_size) && !c->sliding_window_size)
        config_fail(load, MX_KEY_attention_type,
                    "local_sliding wants sliding_window_size of at least 1, found 0");
    bool has_blocks = !strcmp(c->attention_type, "block_diffusion");
    bool is_diffusion = !strcmp(c->training_objective, "block_diffusion");
    if (GOOD(load, MX_KEY_training_objective) && has_blocks != is_diffusion)
        config_fail(load, config_culprit(load, MX_KEY_attention_type, MX_KEY_training_objective),
                    "%s attention does not go with the objective %s: tokens of a block see one "
                    "another, so none of them may be told by the one before",
                    c->attention_type, c->training_objective);
    if (is_chunked && GOOD(load, MX_KEY_chunk_attn_window_size) && !c->chunk_attn_window_size)
        config_fail(load, MX_KEY_attention_type,
                    "chunk wants chunk_attn_window_size of at least 1, found 0");
}

/* Groups of experts hold two or more, as they are scored by two, and those that are taken hold as
 * many as a token goes to. */
static void check_groups(ConfigLoad *load, const MxConfig *c) {
    int64_t n = c->n_routing_groups, best = c->topk_routing_group;
    if (!GOOD(load, MX_KEY_n_routing_groups, MX_KEY_topk_routing_group) || n == -1) return;
    if (c->num_experts % n || c->num_experts / n < 2)
        config_fail(load, MX_KEY_n_routing_groups,
                    "%lld experts (num_experts) are not %lld groups of two or more",
                    (long long)c->num_experts, (long long)n);
    else if (best < 1 || best > n)
        config_fail(load, config_culprit(load, MX_KEY_topk_routing_group, MX_KEY_n_routing_groups),
                    "topk_routing_group %lld of %lld groups (n_routing_groups); wants at least 1 "
                    "and no more than there are",
                    (long long)best, (long long)n);
    else if (c->num_experts_per_tok > c->num_experts / n * best)
        config_fail(load,
                    config_culprit(load, MX_KEY_topk_routing_group, MX_KEY_num_experts_per_tok),
                    "%lld groups (topk_routing_group) have %lld experts, but a token goes to %lld "
                    "(num_experts_per_tok)",
                    (long long)best, (long long)(c->num_experts / n * best),
                    (long long)c->num_experts_per_tok);
}

/* Where every layer has experts, no other width of a feed-forward block means anything. */
static void check_experts(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block, MX_KEY_num_experts, MX_KEY_num_experts_per_tok)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!mx_family_has(family, MX_BLOCK_MOE)) return;
    if (c->num_experts_per_tok > c->num_experts)
        config_fail(load, MX_KEY_num_experts_per_tok,
                    "%lld, but there are %lld experts (num_experts)",
                    (long long)c->num_experts_per_tok, (long long)c->num_experts);
    bool weighs_read = false;
    for (int i = 0; i < family->n_specs; i++)
        weighs_read |= family->specs[i].weighs == MX_WEIGHS_READ;
    if (weighs_read && c->num_experts_per_tok > 1)
        config_fail(load, MX_KEY_num_experts_per_tok,
                    "not available yet: a token of %s goes to one expert; wants 1, found %lld",
                    c->decoder_block, (long long)c->num_experts_per_tok);
    check_groups(load, c);
    if (mx_family_has(family, MX_BLOCK_GLU)) return;
    if (GOOD(load, MX_KEY_base_mlp_dim, MX_KEY_base_moe_mlp_dim) && c->moe_mlp_dim != c->mlp_dim)
        config_fail(load, MX_KEY_base_moe_mlp_dim,
                    "%lld, but base_mlp_dim is %lld; wants the same in %s, all of whose layers "
                    "have experts",
                    (long long)c->base_moe_mlp_dim, (long long)c->base_mlp_dim, c->decoder_block);
}

static void check_rope(ConfigLoad *load, const MxConfig *c) {
    bool stretches = !strcmp(c->rope_type, "llama3.1") && c->rope_use_scale;
    if (GOOD(load, MX_KEY_rope_type, MX_KEY_rope_stretch_low, MX_KEY_rope_stretch_high) &&
        stretches && c->rope_stretch_high < c->rope_stretch_low)
        config_fail(load, config_culprit(load, MX_KEY_rope_stretch_high, MX_KEY_rope_stretch_low),
                    "rope_stretch_high %g is less than rope_stretch_low %g", c->rope_stretch_high,
                    c->rope_stretch_low);
    if (GOOD(load, MX_KEY_rope_min_timescale, MX_KEY_rope_max_timescale) &&
        c->rope_max_timescale < c->rope_min_timescale)
        config_fail(load,
                    config_culprit(load, MX_KEY_rope_max_timescale, MX_KEY_rope_min_timescale),
                    "rope_max_timescale %lld is less than rope_min_timescale %lld",
                    (long long)c->rope_max_timescale, (long long)c->rope_min_timescale);
}

/* Source: MaxText types.py; of adapters ours. */
static void check_clip(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_qk_clip, MX_KEY_attention_type) || !c->use_qk_clip) return;
    if (strcmp(c->attention_type, "mla") != 0)
        config_fail(load, MX_KEY_use_qk_clip, "true, but attention_type is %s; wants mla",
                    c->attention_type);
    else if (GOOD(load, MX_KEY_enable_lora) && c->enable_lora)
        config_fail(load, MX_KEY_use_qk_clip,
                    "true, but adapters are trained (lora.enable_lora), not the kernels that it "
                    "clips");
    else if (GOOD(load, MX_KEY_attn_logits_soft_cap) && c->attn_logits_soft_cap > 0)
        config_fail(load, MX_KEY_use_qk_clip,
                    "true, but attn_logits_soft_cap is %g, which hides how large scores are; "
                    "wants 0",
                    c->attn_logits_soft_cap);
}

/* Source: MaxText types.py; of widths and adapters ours. */
static void check_indexer(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_indexer, MX_KEY_attention_type, MX_KEY_q_lora_rank) ||
        !c->use_indexer)
        return;
    if (strcmp(c->attention_type, "mla") != 0)
        config_fail(load, MX_KEY_use_indexer, "true, but attention_type is %s; wants mla",
                    c->attention_type);
    else if (!c->q_lora_rank)
        config_fail(load, config_culprit(load, MX_KEY_q_lora_rank, MX_KEY_use_indexer),
                    "q_lora_rank is 0, but an indexer (use_indexer) reads the narrow vectors of "
                    "queries; wants at least 1");
    if (GOOD(load, MX_KEY_indexer_head_dim, MX_KEY_qk_rope_head_dim) &&
        c->indexer_head_dim < c->qk_rope_head_dim)
        config_fail(load, config_culprit(load, MX_KEY_indexer_head_dim, MX_KEY_qk_rope_head_dim),
                    "%lld elements of a head, of which %lld (qk_rope_head_dim) are rotated",
                    (long long)c->indexer_head_dim, (long long)c->qk_rope_head_dim);
    if (!GOOD(load, MX_KEY_indexer_loss_scaling_factor) || c->indexer_loss_scaling_factor <= 0)
        return;
    if (GOOD(load, MX_KEY_enable_lora) && c->enable_lora)
        config_fail(load, MX_KEY_indexer_loss_scaling_factor,
                    "%g, but adapters are trained (lora.enable_lora), not the indexer",
                    c->indexer_loss_scaling_factor);
    else if (GOOD(load, MX_KEY_indexer_topk, MX_KEY_max_target_length) &&
             c->indexer_topk >= c->max_target_length)
        config_fail(load, config_culprit(load, MX_KEY_indexer_topk, MX_KEY_max_target_length),
                    "indexer_topk %lld, max_target_length %lld: every token is seen, so the "
                    "indexer has no loss (indexer_loss_scaling_factor)",
                    (long long)c->indexer_topk, (long long)c->max_target_length);
}

void config_check_model(ConfigLoad *load, const MxConfig *c) {
    check_windows(load, c);
    check_heads(load, c);
    check_own_heads(load, c);
    check_latent_width(load, c);
    check_inputs(load, c);
    check_sizes(load, c);
    check_rotated(load, c);
    check_cycle(load, c);
    check_delta(load, c);
    check_attention(load, c);
    check_experts(load, c);
    check_rope(load, c);
    check_clip(load, c);
    check_indexer(load, c);
}
