/* check_vision.c — combinations of sizes of image encoders that are not allowed, and features that
 * do not work with an encoder yet. */
#include "check.h"

#include <math.h>

enum { MOST_SIDE = 1 << 12 }; /* pixels */

static bool wants(ConfigLoad *load, MxKey key, int64_t wanted, int64_t found) {
    if (!GOOD(load, key) || found == wanted) return true;
    config_fail(load, key, "not available yet: wants %lld, found %lld", (long long)wanted,
                (long long)found);
    return false;
}

/* A whole number of pixels; 0 = it is none. */
static int64_t read_pixels(const MxYaml *node) {
    int64_t pixels = config_whole(node);
    return pixels > 0 && pixels <= MOST_SIDE ? pixels : 0;
}

MxVisionGrid mx_config_vision_grid(const MxConfig *c) {
    const MxYaml *node = c->image_size_for_vit;
    bool is_pair = node->kind == MX_YAML_LIST && node->n == 2;
    int64_t height = read_pixels(is_pair ? node->item[0] : node);
    int64_t width = read_pixels(is_pair ? node->item[1] : node), patch = c->patch_size_for_vit;
    if (!height || !width || height % patch || width % patch) return (MxVisionGrid){0};
    return (MxVisionGrid){(int32_t)(height / patch), (int32_t)(width / patch)};
}

/* Patches; 0 x 0 = it was told that there are none. */
static MxVisionGrid read_grid(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder) {
    const MxKey key = MX_KEY_image_size_for_vit;
    const MxYaml *node = c->image_size_for_vit;
    bool is_plain = node->kind < MX_YAML_LIST;
    MxVisionGrid grid = mx_config_vision_grid(c);
    if (!GOOD(load, key)) return (MxVisionGrid){0};
    if (grid.rows && (is_plain || encoder->keeps_form)) return grid;
    config_fail(load, key,
                "wants a multiple of patch_size_for_vit (%lld) of at most %d pixels%s, found %s",
                (long long)c->patch_size_for_vit, MOST_SIDE,
                encoder->keeps_form ? ", or a height and a width" : "",
                is_plain && node->text ? node->text : "a list");
    return (MxVisionGrid){0};
}

/* ---- squares of patches become tokens */

static int64_t length_of(const MxConfig *c, const MxEncoder *encoder) {
    return c->vision_output_length > 0 ? c->vision_output_length : encoder->default_tokens;
}

/* The root of patches over tokens. */
static int64_t pool_to_length(const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid) {
    int64_t length = length_of(c, encoder), patches = (int64_t)grid.rows * grid.columns;
    int64_t pool = llround(sqrt((double)patches / (double)length));
    bool fits = pool > 0 && pool * pool * length == patches && grid.rows % pool == 0;
    return fits && grid.columns % pool == 0 ? pool : 0;
}

/* Tokens of a side over patches of a side. */
static int64_t pool_by_ratio(const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid) {
    (void)encoder;
    int64_t pool = llround(1 / fmax(c->pixel_shuffle_ratio_for_vit, 1e-6));
    bool fits = fabs(c->pixel_shuffle_ratio_for_vit * (double)pool - 1) < 1e-6;
    return fits && grid.rows % pool == 0 && grid.columns % pool == 0 ? pool : 0;
}

static int64_t pool_by_merge(const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid) {
    (void)encoder;
    int64_t pool = c->spatial_merge_size_for_vit;
    return grid.rows % pool == 0 && grid.columns % pool == 0 ? pool : 0;
}

static void tell_merge(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                       MxVisionGrid grid) {
    (void)encoder;
    config_fail(load, MX_KEY_spatial_merge_size_for_vit,
                "%lld does not divide the %d x %d patches of image_size_for_vit",
                (long long)c->spatial_merge_size_for_vit, grid.rows, grid.columns);
}

static void tell_ratio(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                       MxVisionGrid grid) {
    (void)encoder;
    config_fail(load, MX_KEY_pixel_shuffle_ratio_for_vit,
                "%g of %d x %d patches; wants 1 over a number that divides %d",
                c->pixel_shuffle_ratio_for_vit, grid.rows, grid.columns, grid.rows);
}

static void tell_length(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                        MxVisionGrid grid) {
    config_fail(
        load, MX_KEY_vision_output_length, "%lld tokens of an image of %d x %d patches; wants %s",
        (long long)length_of(c, encoder), grid.rows, grid.columns,
        grid.rows == grid.columns
            ? mx_arena_printf(load->arena, "the square of a number that divides %d", grid.rows)
            : "as many as squares of patches fill it");
}

static const struct {
    MxKey key;
    /* Patches of a side of a square; 0 = the key does not go with so many. */
    int64_t (*pool)(const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid);
    void (*tell)(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid);
} pools[] = {
    [MX_POOLS_TO_LENGTH] = {MX_KEY_vision_output_length, pool_to_length, tell_length},
    [MX_POOLS_BY_RATIO] = {MX_KEY_pixel_shuffle_ratio_for_vit, pool_by_ratio, tell_ratio},
    [MX_POOLS_BY_MERGE] = {MX_KEY_spatial_merge_size_for_vit, pool_by_merge, tell_merge},
};

int64_t mx_config_vision_pool(const MxConfig *c, const MxEncoder *encoder, MxVisionGrid grid) {
    return pools[encoder->pools].pool(c, encoder, grid);
}

static void check_tokens(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                         MxVisionGrid grid) {
    if (GOOD(load, pools[encoder->pools].key) && !mx_config_vision_pool(c, encoder, grid))
        pools[encoder->pools].tell(load, c, encoder, grid);
}

/* Of towers that make tiles of a picture, and rows of squares of their patches. */
static void check_tiles(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                        MxVisionGrid grid) {
    int64_t pool = mx_config_vision_pool(c, encoder, grid);
    wants(load, MX_KEY_tile_size_for_vit, grid.rows * c->patch_size_for_vit, c->tile_size_for_vit);
    wants(load, MX_KEY_vision_output_dim_for_vit, c->projector_output_dim_for_vit,
          c->vision_output_dim_for_vit);
    if (pool)
        wants(load, MX_KEY_intermediate_size_for_vit, pool * pool * c->hidden_size_for_vit,
              c->intermediate_size_for_vit);
}

/* Heads that are rotated in quarters. */
static void check_quarters(ConfigLoad *load, const MxConfig *c) {
    int64_t head = c->hidden_size_for_vit / c->num_attention_heads_for_vit;
    if (GOOD(load, MX_KEY_num_attention_heads_for_vit, MX_KEY_hidden_size_for_vit) && head % 4)
        config_fail(load, MX_KEY_num_attention_heads_for_vit,
                    "%lld heads of %lld elements; a quarter of these is rotated at a time",
                    (long long)c->num_attention_heads_for_vit, (long long)head);
}

/* Pictures that keep their form may be one row of squares; tokens of one that see each other, in
 * layers that see a window, are in it. */
static void check_form(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder,
                       MxVisionGrid grid) {
    int64_t pool = mx_config_vision_pool(c, encoder, grid);
    int64_t tokens = pool ? (int64_t)grid.rows * grid.columns / (pool * pool) : 0;
    if (GOOD(load, MX_KEY_num_position_embeddings_for_vit) && !encoder->mixes_places &&
        c->num_position_embeddings_for_vit < tokens * pool)
        config_fail(load, MX_KEY_num_position_embeddings_for_vit,
                    "%lld, but a picture may be %lld patches wide",
                    (long long)c->num_position_embeddings_for_vit, (long long)(tokens * pool));
    if (GOOD(load, MX_KEY_sliding_window_size) && encoder->in_windows &&
        c->sliding_window_size < tokens)
        config_fail(load, MX_KEY_sliding_window_size,
                    "%lld: a window below the %lld tokens of an image is not available yet",
                    (long long)c->sliding_window_size, (long long)tokens);
}

/* Of towers whose positions are those of a square, and of what they give to the decoder's layers.
 */
static void check_mixed(ConfigLoad *load, const MxConfig *c) {
    const int64_t learned = c->num_position_embeddings_for_vit,
                  side = llround(sqrt((double)learned));
    if (GOOD(load, MX_KEY_num_position_embeddings_for_vit) && side * side != learned)
        config_fail(load, MX_KEY_num_position_embeddings_for_vit,
                    "%lld positions; wants the square of a number, of patches of a side",
                    (long long)learned);
    if (GOOD(load, MX_KEY_out_hidden_size_for_vit) && c->out_hidden_size_for_vit != c->emb_dim)
        config_fail(load, MX_KEY_out_hidden_size_for_vit,
                    "found %lld, wanted the width of the decoder (base_emb_dim), %lld",
                    (long long)c->out_hidden_size_for_vit, (long long)c->emb_dim);
}

/* Layers of the tower, in order, that are not more than the decoder has. */
static void check_deep(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_deepstack_visual_indexes_for_vit;
    const MxYaml *list = c->deepstack_visual_indexes_for_vit;
    const ConfigNumbers layers = {.what = "layers of the encoder",
                                  .high = c->num_hidden_layers_for_vit - 1,
                                  .most = MX_MOST_DEEP};
    int64_t layer[MX_MOST_DEEP];
    if (!GOOD(load, key) || !config_check_numbers(load, key, list, layers)) return;
    int n = mx_config_numbers(list, MX_MOST_DEEP, layer);
    bool rises = true;
    for (int i = 1; i < n; i++) rises = rises && layer[i] > layer[i - 1];
    if (!rises)
        config_fail(load, key, "wants each layer later than the one before, found %s",
                    config_quote(load->arena, list));
    else if (n > c->num_decoder_layers)
        config_fail(load, key,
                    "%d layers of the encoder add to the decoder's first ones; it has %lld", n,
                    (long long)c->num_decoder_layers);
}

static void check_mrope(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder) {
    if (!GOOD(load, MX_KEY_use_mrope, MX_KEY_mrope_section) || !c->use_mrope) return;
    if (!encoder->has_mrope)
        config_fail(load, MX_KEY_use_mrope,
                    "true: images of vision_encoder_block \"%s\" have no rows and columns in the "
                    "decoder",
                    encoder->name);
    config_check_numbers(load, MX_KEY_mrope_section, c->mrope_section,
                         (ConfigNumbers){.what = "numbers of pairs (time, row, column)",
                                         .high = CONFIG_LARGEST_SIZE,
                                         .least = MX_MROPE_KINDS,
                                         .most = MX_MROPE_KINDS});
}

static void check_sizes(ConfigLoad *load, const MxConfig *c, const MxEncoder *encoder) {
    if (!GOOD(load, MX_KEY_patch_size_for_vit)) return;
    MxVisionGrid grid = read_grid(load, c, encoder);
    if (!encoder->has_own_stride)
        wants(load, MX_KEY_conv_stride_for_vit, c->patch_size_for_vit, c->conv_stride_for_vit);
    wants(load, MX_KEY_num_channels_for_vit, 3, c->num_channels_for_vit);
    if (grid.rows) check_tokens(load, c, encoder, grid);
    if (GOOD(load, MX_KEY_posemb_type_for_vit, MX_KEY_hidden_size_for_vit) &&
        !strcmp(c->posemb_type_for_vit, "sincos2d") &&
        (c->hidden_size_for_vit % 4 || c->hidden_size_for_vit < 8))
        config_fail(load, MX_KEY_posemb_type_for_vit,
                    "sincos2d has four parts of a width; hidden_size_for_vit wants a multiple of 4 "
                    "from 8 on, found %lld",
                    (long long)c->hidden_size_for_vit);
    if (GOOD(load, MX_KEY_hidden_size_for_vit, MX_KEY_num_attention_heads_for_vit) &&
        c->hidden_size_for_vit % c->num_attention_heads_for_vit)
        config_fail(
            load,
            config_culprit(load, MX_KEY_num_attention_heads_for_vit, MX_KEY_hidden_size_for_vit),
            "%lld heads do not divide hidden_size_for_vit %lld",
            (long long)c->num_attention_heads_for_vit, (long long)c->hidden_size_for_vit);
    if (grid.rows && encoder->has_tiles) check_tiles(load, c, encoder, grid);
    if (encoder->keeps_squares) check_quarters(load, c);
    if (encoder->mixes_places) check_mixed(load, c);
    if (encoder->deep) check_deep(load, c);
    if (grid.rows && encoder->keeps_form) check_form(load, c, encoder, grid);
}

/* Names of columns: one, or a list. */
static void check_columns(ConfigLoad *load, MxKey key, const MxYaml *node) {
    enum { MOST = 32 }; /* MX_MOST_IMAGE_COLUMNS of the data room */
    bool is_list = node->kind == MX_YAML_LIST, fits = node->kind < MX_YAML_LIST || is_list;
    for (int i = 0; is_list && i < node->n; i++) fits &= node->item[i]->kind < MX_YAML_LIST;
    if (GOOD(load, key) && (!fits || (is_list && node->n > MOST)))
        config_fail(load, key, "wants the name of a column or a list of at most %d", MOST);
}

/* Other losses of several responses and modules that look ahead read tokens alone. */
static void check_company(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {{MX_KEY_use_kto, c->use_kto},
                  {MX_KEY_mtp_num_layers, c->mtp_num_layers > 0},
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
    check_mrope(load, c, encoder);
    check_columns(load, MX_KEY_train_image_column, c->train_image_column);
    check_columns(load, MX_KEY_eval_image_column, c->eval_image_column);
    check_company(load, c);
}
