/* rope.c — frequencies of rotary position embeddings: a table of kinds. Pair i of n rotates by
 * position * frequency[i]. Source: MaxText layers/embeddings.py @e591f30c (RotaryEmbedding,
 * LLaMARotaryEmbedding, YarnRotaryEmbedding). */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

/* min * (max/min)^(2i/H), as a frequency. */
static double frequency(const MxConfig *c, const Spec *spec, double max, int i) {
    double min = (double)c->rope_min_timescale;
    return 1 / (min * pow(max / min, (double)i / spec->rope.n));
}

static double base_frequency(const MxConfig *c, const Spec *spec, int i) {
    return frequency(c, spec, (double)c->rope_max_timescale, i);
}

/* Source: MaxText layers/attentions.py, init_rotary_embedding. */
static void local_rope(const MxConfig *c, Spec *spec) {
    int64_t local = c->local_rope_max_timescale;
    double max = (double)(local > 0 ? local : c->rope_max_timescale);
    for (int i = 0; i < spec->rope.n; i++) spec->rope.frequency[i] = frequency(c, spec, max, i);
}

/* Pairs beyond the share stand still. Source: MaxText layers/embeddings.py
 * (Gemma4PartialRotaryEmbedding) @e591f30c, which its models/gemma4.py has for any part of a head.
 */
static void part_rope(const MxConfig *c, Spec *spec) {
    bool is_local = spec->row->rope == MX_ROPE_LOCAL_PART;
    int64_t said = is_local ? c->local_rope_max_timescale : c->global_rope_max_timescale;
    double share = is_local ? c->local_rope_proportion : c->global_rope_proportion;
    double max = (double)(said > 0 ? said : c->rope_max_timescale);
    int n = (int)(2 * spec->rope.n * share) / 2;
    for (int i = 0; i < n; i++)
        spec->rope.frequency[i] = frequency(c, spec, max, i) / c->rope_linear_scaling_factor;
}

static void default_rope(const MxConfig *c, Spec *spec) {
    for (int i = 0; i < spec->rope.n; i++)
        spec->rope.frequency[i] = base_frequency(c, spec, i) / c->rope_linear_scaling_factor;
}

/* Long wavelengths are slowed down, short ones kept, those between mixed. Source: Llama 3.1 (2024);
 * transformers modeling_rope_utils.py. */
static void llama3_rope(const MxConfig *c, Spec *spec) {
    const double factor = c->rope_stretch_factor, length = (double)c->rope_stretch_length;
    const double low = c->rope_stretch_low, high = c->rope_stretch_high;
    for (int i = 0; i < spec->rope.n; i++) {
        double f = base_frequency(c, spec, i), wavelength = 2 * PI / f;
        double turns = length / wavelength, smooth = turns < low ? 0 : 1;
        if (high > low) smooth = fmin(fmax((turns - low) / (high - low), 0), 1);
        if (c->rope_use_scale) f = (1 - smooth) * f / factor + smooth * f;
        spec->rope.frequency[i] = f / c->rope_linear_scaling_factor;
    }
    spec->rope_layout = (MxRopeAttr){.interleaved_in = true, .interleaved_out = true};
}

/* The pair that makes `rotations` turns over the original context. */
static double yarn_pair(const MxConfig *c, const Spec *spec, double max, double rotations) {
    double length = (double)c->original_max_position_embeddings;
    return spec->rope.n * log(length / (rotations * 2 * PI)) / log(max);
}

/* Frequencies above the ramp are kept, those below divided by the factor. Source: Peng et al. 2023.
 */
static void yarn_frequencies(const MxConfig *c, Spec *spec, double max) {
    double low = yarn_pair(c, spec, max, (double)c->beta_fast);
    double high = yarn_pair(c, spec, max, (double)c->beta_slow);
    if (c->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, 2 * spec->rope.n - 1);
    double width = high == low ? 0.001 : high - low; /* no width: a step; negative: as it is */
    for (int i = 0; i < spec->rope.n; i++) {
        double f = 1 / pow(max, (double)i / spec->rope.n);
        double keep = 1 - fmin(fmax((i - low) / width, 0), 1);
        spec->rope.frequency[i] = f / c->rope_factor * (1 - keep) + f * keep;
    }
    if (c->rope_attention_scaling && c->rope_factor > 1)
        spec->rope.amplitude = 0.1 * log(c->rope_factor) + 1;
    if (c->rope_attention_factor > 0) spec->rope.amplitude = c->rope_attention_factor;
}

static void yarn_rope(const MxConfig *c, Spec *spec) {
    yarn_frequencies(c, spec, (double)c->rope_max_timescale);
    for (int i = 0; i < spec->rope.n; i++) spec->rope.frequency[i] /= c->rope_linear_scaling_factor;
    spec->rope_layout = (MxRopeAttr){.interleaved_in = c->rope_interleave};
}

/* Source: MaxText layers/embeddings.py (DeepSeekV4RotaryEmbedding) @e591f30c; of yarn, which
 * MaxText has not here, transformers 5.24 models/deepseek_v4. */
static void compressed_rope(MxArena *arena, const MxConfig *c, Spec *spec) {
    bool pools = spec->row->windows != MX_WINDOWS_NONE;
    double max = (double)(pools ? c->compressed_rope_max_timescale : c->rope_max_timescale);
    for (int i = 0; i < spec->rope.n; i++)
        spec->rope.frequency[i] = 1 / pow(max, (double)i / spec->rope.n);
    if (pools && !strcmp(c->rope_type, "yarn")) yarn_frequencies(c, spec, max);
    spec->rope_layout = (MxRopeAttr){.interleaved_in = true, .interleaved_out = true};
    spec->window_rope = spec->rope;
    spec->window_rope.frequency = mx_new_n(arena, double, spec->rope.n);
    for (int i = 0; i < spec->rope.n; i++)
        spec->window_rope.frequency[i] =
            spec->rope.frequency[i] * (double)model_window(c, spec->row);
}

static const struct {
    const char *name;
    void (*fill)(const MxConfig *config, Spec *spec);
} kinds[] = {
    {"default", default_rope},
    {"llama3.1", llama3_rope},
    {"yarn", yarn_rope},
};

/* Of layers that rotate nothing. Source: MaxText models/llama4.py (Llama4DecoderLayer) @e591f30c.
 */
static void tuning(MxArena *arena, const MxConfig *c, Spec *spec) {
    if (!spec->row->tunes_queries || !c->temperature_tuning) return;
    spec->tuning = (MxRopeFreqs){.n = (int)c->head_dim / 2,
                                 .amplitude = 1,
                                 .growth = c->temperature_tuning_scale,
                                 .period = (double)c->temperature_tuning_floor_scale};
    spec->tuning.frequency = mx_new_n(arena, double, spec->tuning.n); /* zeros: nothing turns */
}

/* Pairs are turned by time, row and column in turn, rows and columns as long as their sections of
 * pairs last. Source: MaxText layers/embeddings.py (Qwen3OmniMoeThinkerTextRotaryEmbedding)
 * @e591f30c; transformers 5.23, models/qwen3_vl (apply_interleaved_mrope). */
static bool choose_kinds(MxArena *arena, const MxConfig *c, Spec *spec, MxError *err) {
    int64_t section[MX_MROPE_KINDS], sum = 0;
    if (!c->use_multimodal || !c->use_mrope || !spec->rope.n) return true;
    mx_config_numbers(c->mrope_section, MX_MROPE_KINDS, section);
    for (int k = 0; k < MX_MROPE_KINDS; k++) sum += section[k];
    if (sum != spec->rope.n)
        return mx_config_fail(err, c, MX_KEY_mrope_section,
                              "%lld pairs in all; a head of this model has %d that are rotated",
                              (long long)sum, spec->rope.n);
    uint8_t *kind = mx_new_n(arena, uint8_t, spec->rope.n);
    for (int i = 0; i < spec->rope.n; i++) {
        int k = i % MX_MROPE_KINDS;
        kind[i] = (uint8_t)(i < MX_MROPE_KINDS * section[k] ? k : MX_MROPE_TIME);
    }
    spec->rope.kind = kind;
    return true;
}

static bool fill_rope(MxArena *arena, const MxConfig *config, Spec *spec, MxError *err) {
    if (spec->row->rope == MX_ROPE_NONE) return true;
    int64_t width = model_block(spec->row->block[0].kind)->rope_width(config, spec->row);
    spec->rope = (MxRopeFreqs){.n = (int)width / 2, .amplitude = 1};
    spec->rope.frequency = mx_new_n(arena, double, spec->rope.n);
    if (spec->row->rope == MX_ROPE_LOCAL_PART || spec->row->rope == MX_ROPE_GLOBAL_PART) {
        part_rope(config, spec);
        return true;
    }
    if (spec->row->rope == MX_ROPE_COMPRESSED) {
        compressed_rope(arena, config, spec);
        return true;
    }
    bool is_said = config->local_rope_max_timescale > 0;
    if (spec->row->rope == MX_ROPE_LOCAL || (spec->row->rope == MX_ROPE_LOCAL_IF_SAID && is_said)) {
        local_rope(config, spec);
        return true;
    }
    for (int i = 0; i < MX_COUNT(kinds); i++)
        if (!strcmp(kinds[i].name, config->rope_type)) {
            kinds[i].fill(config, spec);
            return true;
        }
    return mx_config_fail(err, config, MX_KEY_rope_type, "no such rotary embedding: \"%s\"",
                          config->rope_type);
}

MxRopeFreqs model_waves(MxArena *arena, const MxConfig *c) {
    const double longest = 10000;
    MxRopeFreqs waves = {.amplitude = 1};
    if (!c->use_untrainable_positional_embedding) return waves;
    waves.n = (int)(c->emb_dim / 2);
    waves.frequency = mx_new_n(arena, double, waves.n);
    for (int i = 0; i < waves.n; i++)
        waves.frequency[i] = pow(longest, -(double)i / fmax(waves.n - 1, 1));
    return waves;
}

bool model_rope(MxArena *arena, const MxConfig *config, Spec *spec, MxError *err) {
    tuning(arena, config, spec);
    return fill_rope(arena, config, spec, err) && choose_kinds(arena, config, spec, err);
}
