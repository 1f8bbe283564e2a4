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

static bool is_square(int64_t n, int64_t *side) {
    *side = llround(sqrt((double)n));
    return *side * *side == n;
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

/* Squares of patches become tokens. */
static void check_tokens(ConfigLoad *load, const MxConfig *c, int64_t side) {
    const MxKey key = MX_KEY_vision_output_length;
    int64_t patches = side / c->patch_size_for_vit, tokens;
    int64_t length = c->vision_output_length > 0 ? c->vision_output_length : 256;
    if (!GOOD(load, key)) return;
    if (!is_square(length, &tokens) || patches % tokens)
        config_fail(load, key,
                    "%lld tokens of an image of %lld x %lld patches; wants the square of a number "
                    "that divides %lld",
                    (long long)length, (long long)patches, (long long)patches, (long long)patches);
}

static void check_sizes(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_patch_size_for_vit)) return;
    int64_t side = read_side(load, c);
    wants(load, MX_KEY_conv_stride_for_vit, c->patch_size_for_vit, c->conv_stride_for_vit);
    wants(load, MX_KEY_num_channels_for_vit, 3, c->num_channels_for_vit);
    if (side) check_tokens(load, c, side);
    if (GOOD(load, MX_KEY_hidden_size_for_vit, MX_KEY_num_attention_heads_for_vit) &&
        c->hidden_size_for_vit % c->num_attention_heads_for_vit)
        config_fail(
            load,
            config_culprit(load, MX_KEY_num_attention_heads_for_vit, MX_KEY_hidden_size_for_vit),
            "%lld heads do not divide hidden_size_for_vit %lld",
            (long long)c->num_attention_heads_for_vit, (long long)c->hidden_size_for_vit);
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
    if (!c->vision_encoder_block || !*c->vision_encoder_block)
        config_fail(load, MX_KEY_use_multimodal,
                    "true, but no vision_encoder_block is named; \"gemma3\" works now");
    else if (strcmp(c->decoder_block, c->vision_encoder_block) != 0)
        config_fail(load, MX_KEY_vision_encoder_block,
                    "\"%s\" goes with decoder_block \"%s\", found \"%s\"", c->vision_encoder_block,
                    c->vision_encoder_block, c->decoder_block);
    check_sizes(load, c);
    check_columns(load, MX_KEY_train_image_column, c->train_image_column);
    check_columns(load, MX_KEY_eval_image_column, c->eval_image_column);
    check_company(load, c);
}
