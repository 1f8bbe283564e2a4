/* preprocessor.c — how pixels become values: preprocessor_config.json beside the tokenizer, as
 * transformers writes it. It defines the conversion of a byte to a value; its sizes are compared
 * with the config's. */
#include "images.h"

enum { CHANNELS = 3 };

/* A member; NULL = it is missing or null, which transformers takes for the same. */
static const MxJson *get(const MxJson *json, const char *key) {
    const MxJson *value = mx_json_get(json, key);
    return value && strcmp(mx_json_kind(value), "null") ? value : NULL;
}

static bool read_numbers(const MxJson *json, const char *key, double out[CHANNELS], MxWhere where,
                         MxError *err) {
    const MxJson *list = get(json, key);
    if (!list) return true;
    for (int c = 0; c < CHANNELS; c++)
        if (mx_json_length(list) != CHANNELS ||
            !mx_json_number(mx_json_at(list, (size_t)c), &out[c]))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: wanted three numbers", key);
    return true;
}

/* A whole number of the file that a key of ours says too. */
typedef struct Step {
    const char *theirs, *ours;
    int64_t wanted;
    bool counts;
} Step;

static bool check_step(const MxJson *json, const Step *step, MxWhere where, MxError *err) {
    const MxJson *value = step->counts ? mx_json_get(json, step->theirs) : NULL;
    int64_t found = step->wanted;
    if (value) mx_json_int(value, &found);
    return found == step->wanted ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: found %lld, %s is %lld", step->theirs,
                   (long long)found, step->ours, (long long)step->wanted);
}

/* As PIL.Image.Resampling has them. */
static bool check_filter(const MxJson *json, bool is_cubic, MxWhere where, MxError *err) {
    const int64_t wanted = is_cubic ? 3 : 2;
    const MxJson *resample = mx_json_get(json, "resample");
    int64_t filter = wanted;
    if (resample) mx_json_int(resample, &filter);
    return filter == wanted ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "resample: wanted %lld (%s), found %lld",
                   (long long)wanted, is_cubic ? "bicubic" : "bilinear", (long long)filter);
}

/* Of a picture that keeps its size: "size" or, in older files, members of their own. A largest one
 * above the room that a row has makes no difference. */
static bool read_limits(const MxJson *json, Seer *seer, MxWhere where, MxError *err) {
    const struct {
        const char *edge, *older;
        int64_t *at;
    } limits[] = {{"shortest_edge", "min_pixels", &seer->least},
                  {"longest_edge", "max_pixels", &seer->most}};
    const int64_t room = seer->most;
    for (int i = 0; i < MX_COUNT(limits); i++) {
        const MxJson *older = get(json, limits[i].older);
        const MxJson *value = older ? older : get(mx_json_get(json, "size"), limits[i].edge);
        if (value && (!mx_json_int(value, limits[i].at) || *limits[i].at < 1))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: wanted a number of pixels",
                           older ? limits[i].older : limits[i].edge);
    }
    if (seer->most > room) seer->most = room;
    if (seer->least > seer->most) seer->least = seer->most;
    return true;
}

static bool check_size(const MxJson *json, const MxVision *v, MxWhere where, MxError *err) {
    const MxJson *size = mx_json_get(json, "size");
    int64_t height = v->size, width = v->size;
    if (size && v->size) mx_json_int(mx_json_get(size, "height"), &height);
    if (size && v->size) mx_json_int(mx_json_get(size, "width"), &width);
    return (height == v->size && width == v->size) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "size: found %lld x %lld, image_size_for_vit is %lld", (long long)height,
                   (long long)width, (long long)v->size);
}

/* What would make other pixels. */
static bool check_steps(const MxJson *json, const MxVision *v, MxWhere where, MxError *err) {
    const bool keeps_form = v->encoder->keeps_form, keeps_size = v->encoder->keeps_size;
    const Step steps[] = {
        {"max_patches", "max_num_tiles_for_vit", v->tiles, v->tiles > 1},
        {"max_soft_tokens", "vision_output_length", v->tokens, keeps_form && !keeps_size},
        {"merge_size", "spatial_merge_size_for_vit", v->pool, keeps_size},
        {"patch_size", "patch_size_for_vit", v->patch, keeps_form},
        {"pooling_kernel_size", "the root of patches over tokens", v->pool,
         keeps_form && !keeps_size}};
    if (!check_filter(json, v->encoder->is_cubic, where, err) || !check_size(json, v, where, err))
        return false;
    for (int i = 0; i < MX_COUNT(steps); i++)
        if (!check_step(json, &steps[i], where, err)) return false;
    static const char *const others[] = {"do_pan_and_scan", "resize_to_max_canvas"};
    for (int i = 0; i < MX_COUNT(others); i++) {
        bool is_set = false;
        mx_json_bool(mx_json_get(json, others[i]), &is_set);
        if (is_set)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: not available yet", others[i]);
    }
    return true;
}

/* ---- values of bytes */

static float in_bf16(double value) {
    return mx_bf16_to_f32(mx_f32_to_bf16((float)value));
}

/* Of torch each step is rounded by itself. */
static void fill_values(Seer *seer, double rescale, const double *mean, const double *std) {
    for (int c = 0; c < CHANNELS; c++)
        for (int byte = 0; byte <= UINT8_MAX; byte++) {
            double value = byte * (rescale / std[c]) - mean[c] / std[c];
            float rounded = in_bf16((float)byte * (float)rescale);
            rounded = in_bf16(rounded - in_bf16(mean[c]));
            rounded = in_bf16(rounded / in_bf16(std[c]));
            seer->value[c][byte] = seer->encoder->rounds ? rounded : (float)value;
        }
}

/* How a byte becomes a value: (byte · rescale - mean) / std. */
typedef struct Values {
    double rescale, mean[CHANNELS], std[CHANNELS];
} Values;

static void set_all(double out[CHANNELS], double value) {
    for (int c = 0; c < CHANNELS; c++) out[c] = value;
}

static bool read_values(const MxJson *json, MxWhere where, Values *out, MxError *err) {
    const MxJson *factor = mx_json_get(json, "rescale_factor");
    bool normalizes = true;
    if (factor) mx_json_number(factor, &out->rescale);
    mx_json_bool(mx_json_get(json, "do_normalize"), &normalizes);
    if (normalizes)
        return read_numbers(json, "image_mean", out->mean, where, err) &&
               read_numbers(json, "image_std", out->std, where, err);
    set_all(out->mean, 0);
    set_all(out->std, 1);
    return true;
}

/* Beside the tokenizer, in a file of its own or in that of all processors; NULL = there is none. */
static bool find_preprocessor(MxArena *arena, const char *dir, const MxJson **out, MxWhere *where,
                              MxError *err) {
    enum { LARGEST = 1 << 20 };
    static const struct {
        const char *file, *member;
    } places[] = {{"preprocessor_config.json", NULL}, {"processor_config.json", "image_processor"}};
    *out = NULL;
    for (int i = 0; dir && !*out && i < MX_COUNT(places); i++) {
        MxBytes bytes;
        const char *path = mx_path_join(arena, dir, places[i].file);
        if (!mx_file_exists(path)) continue;
        if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
        const MxJson *json = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
        if (!json) return false;
        *where = (MxWhere){.file = path};
        *out = places[i].member ? mx_json_get(json, places[i].member) : json;
    }
    return true;
}

bool preprocessor_read(MxArena *arena, const MxDataConfig *config, Seer *seer, MxError *err) {
    const bool is_plain = seer->encoder->is_plain;
    const MxJson *json;
    MxWhere where = {0};
    Values values = {.rescale = 1.0 / UINT8_MAX};
    set_all(values.mean, is_plain ? 0 : 0.5);
    set_all(values.std, is_plain ? 1 : 0.5);
    seer->least = seer->encoder->least_pixels;
    seer->most = mx_vision_pixels(&seer->vision);
    if (!find_preprocessor(arena, config->tokenizer_dir, &json, &where, err)) return false;
    if (json &&
        (!check_steps(json, &seer->vision, where, err) || !read_values(json, where, &values, err)))
        return false;
    if (seer->encoder->keeps_size && !read_limits(json, seer, where, err)) return false;
    fill_values(seer, values.rescale, values.mean, values.std);
    return true;
}
