/* check_vision.c — sizes of encoders of images that do not go together, and what is not built
 * beside one yet. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SIDE = 1 << 12 }; /* pixels */

static bool wants(ConfigLoad *load, MxKey key, int64_t wanted, int64_t found) {
    if (!GOOD(load, key) || found == wanted) return true;
    config_fail(load, key, "not available yet: wants %lld, found %lld", (long long)wanted,
                (long long)found);
    return false;
}

/* Pixels of a side; 0 = it was told that it is none. */
static int64_t read_side(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_image_size_for_vit;
    const MxYaml *node = c->image_size_for_vit;
    bool is_plain = node->kind < MX_YAML_LIST && node->text;
    const char *text = is_plain ? node->text : "";
    int64_t side = *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 9
                       ? strtoll(text, NULL, 10)
                       : 0;
    if (!GOOD(load, key)) return 0;
    if (side < 1 || side > MOST_SIDE || side % c->patch_size_for_vit) {
        config_fail(load, key,
                    "wants a multiple of patch_size_for_vit (%lld) of at most %d pixels, found %s",
                    (long long)c->patch_size_for_vit, MOST_SIDE, is_plain ? text : "a list");
        return 0;
    }
    return side;
}

/* ---- squares of patches become tokens */

static int64_t length_of(const MxConfig *c, const MxEncoder *encoder) {
    return c->vision_output_length > 0 ? c->vision_output_length : encoder->default_tokens;
}

/* Patches of a side over tokens of a side. */
static int64_t pool_to_length(const MxConfig *c, const MxEncoder *encoder, int64_t across) {
    int64_t length = length_of(c, encoder), tokens = llround(sqrt((double)length));
    return tokens * tokens == length && across % tokens == 0 ? across / tokens : 0;
}

/* Tokens of a side over patches of a side. */
static int64_t pool_by_ratio(const MxConfig *c, const MxEncoder *encoder, int64_t across) {
    (void)encoder;
    int64_t pool = llround(1 / fmax(c->pixel_shuffle_ratio_for_vit, 1e-6));
    bool fits = fabs(c->pixel_shuffle_ratio_for_vit * (double)pool - 1) < 1e-6;
    return fits && across % pool == 0 ? pool : 0;
}

static void tell_ratio(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                       int64_t across) {
    (void)encoder;
    config_fail(load, MX_KEY_pixel_shuffle_ratio_for_vit,
                "%g of %lld x %lld patches; wants 1 over a number that divides %lld",
                c->pixel_shuffle_ratio_for_vit, (long long)across, (long long)across,
                (long long)across);
}

static void tell_length(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                        int64_t across) {
    config_fail(load, MX_KEY_vision_output_length,
                "%lld tokens of an image of %lld x %lld patches; wants the square of a number "
                "that divides %lld",
                (long long)length_of(c, encoder), (long long)across, (long long)across,
                (long long)across);
}

static const struct {
    MxKey key;
    /* Patches of a side of a square; 0 = the key does not go with so many across. */
    int64_t (*pool)(const MxConfig *c, const MxEncoder *encoder, int64_t across);
    void (*tell)(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder, int64_t across);
} pools[] = {
    [MX_POOLS_TO_LENGTH] = {MX_KEY_vision_output_length, pool_to_length, tell_length},
    [MX_POOLS_BY_RATIO] = {MX_KEY_pixel_shuffle_ratio_for_vit, pool_by_ratio, tell_ratio},
};

int64_t mx_config_vision_pool(const MxConfig *c, const MxEncoder *encoder, int64_t across) {
    return pools[encoder->pools].pool(c, encoder, across);
}

static void check_tokens(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                         int64_t side) {
    int64_t across = side / c->patch_size_for_vit;
    if (GOOD(load, pools[encoder->pools].key) && !mx_config_vision_pool(c, encoder, across))
        pools[encoder->pools].tell(load, c, encoder, across);
}

/* Of towers whose patches become rows of squares, and whose heads are rotated in quarters. */
static void check_squares(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                          int64_t side) {
    int64_t pool = mx_config_vision_pool(c, encoder, side / c->patch_size_for_vit);
    int64_t head = c->hidden_size_for_vit / c->num_attention_heads_for_vit;
    wants(load, MX_KEY_tile_size_for_vit, side, c->tile_size_for_vit);
    wants(load, MX_KEY_vision_output_dim_for_vit, c->projector_output_dim_for_vit,
          c->vision_output_dim_for_vit);
    if (pool)
        wants(load, MX_KEY_intermediate_size_for_vit, pool * pool * c->hidden_size_for_vit,
              c->intermediate_size_for_vit);
    if (GOOD(load, MX_KEY_num_attention_heads_for_vit, MX_KEY_hidden_size_for_vit) && head % 4)
        config_fail(load, MX_KEY_num_attention_heads_for_vit,
                    "%lld heads of %lld elements; a quarter of these is rotated at a time",
                    (long long)c->num_attention_heads_for_vit, (long long)head);
}

static void check_sizes(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder) {
    if (!GOOD(load, MX_KEY_patch_size_for_vit)) return;
    int64_t side = read_side(load, c);
    wants(load, MX_KEY_conv_stride_for_vit, c->patch_size_for_vit, c->conv_stride_for_vit);
    wants(load, MX_KEY_num_channels_for_vit, 3, c->num_channels_for_vit);
    if (side) check_tokens(load, c, encoder, side);
    if (GOOD(load, MX_KEY_hidden_size_for_vit, MX_KEY_num_attention_heads_for_vit) &&
        c->hidden_size_for_vit % c->num_attention_heads_for_vit)
        config_fail(
            load,
            config_culprit(load, MX_KEY_num_attention_heads_for_vit, MX_KEY_hidden_size_for_vit),
            "%lld heads do not divide hidden_size_for_vit %lld",
            (long long)c->num_attention_heads_for_vit, (long long)c->hidden_size_for_vit);
    if (side && encoder->keeps_squares) check_squares(load, c, encoder, side);
}

/* Names of columns: one, or a list. */
static void check_columns(ConfigLoad *load, MxKey key, const MxYaml *node) {
    enum { MOST = 32 }; /* MX_MOST_IMAGE_COLUMNS of the data room */
    bool is_list = node->kind == MX_YAML_LIST, fits = node->kind < MX_YAML_LIST || is_list;
    for (int i = 0; is_list && i < node->n; i++) fits &= node->item[i]->kind < MX_YAML_LIST;
    if (GOOD(load, key) && (!fits || (is_list && node->n > MOST)))
        config_fail(load, key, "wants the name of a column or a list of at most %d", MOST);
}

/* Losses of several responses, and modules that look ahead, read tokens alone. */
static void check_company(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {{MX_KEY_use_dpo, c->use_dpo},
                  {MX_KEY_use_grpo, c->use_grpo},
                  {MX_KEY_mtp_num_layers, c->mtp_num_layers > 0},
                  {MX_KEY_teacher_overrides, config_has_teacher(c)},
                  {MX_KEY_attention_sink, c->attention_sink},
                  {MX_KEY_token_cache, c->token_cache != NULL}};
    const ConfigFiles *files = config_files_of(c);
    if (c->packing && files && files->has_records && GOOD(load, MX_KEY_packing))
        config_fail(load, MX_KEY_packing,
                    "true: a row with images holds one record, so use_multimodal wants "
                    "packing=false");
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_set && GOOD(load, others[i].key))
            config_fail(load, others[i].key, "not available yet with use_multimodal");
}

void config_check_vision(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_multimodal) || !c->use_multimodal) return;
    if (!GOOD(load, MX_KEY_vision_encoder_block, MX_KEY_decoder_block)) return;
    const MxEncoder *encoder = mx_encoder_find(c->vision_encoder_block);
    if (!encoder) {
        config_fail(load, MX_KEY_use_multimodal,
                    "true, but no vision_encoder_block is named; these work now: %s",
                    mx_encoders_built);
        return;
    }
    if (!mx_encoder_goes_with(encoder, c->decoder_block))
        config_fail(load, MX_KEY_vision_encoder_block,
                    "\"%s\" goes with decoder_block \"%s\", found \"%s\"", encoder->name,
                    encoder->decoders, c->decoder_block);
    check_sizes(load, c, encoder);
    check_columns(load, MX_KEY_train_image_column, c->train_image_column);
    check_columns(load, MX_KEY_eval_image_column, c->eval_image_column);
    check_company(load, c);
}
