/* images.c — the images of records: which files they are, what stands for them among tokens, and
 * their values as the model wants them. Files are read when a batch is made, by the thread that
 * works ahead; that each is an image is looked at when records are read. */
#include "images.h"

#include <math.h>

enum { CHANNELS = 3 };

/* ---- preprocessor_config.json */

static bool read_numbers(const MxJson *json, const char *key, double out[CHANNELS], MxWhere where,
                         MxError *err) {
    const MxJson *list = mx_json_get(json, key);
    if (!list) return true;
    for (int c = 0; c < CHANNELS; c++)
        if (mx_json_length(list) != CHANNELS ||
            !mx_json_number(mx_json_at(list, (size_t)c), &out[c]))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: wanted three numbers", key);
    return true;
}

/* What would make other pixels. */
static bool check_steps(const MxJson *json, const MxVision *v, MxWhere where, MxError *err) {
    const int64_t bilinear = 2; /* PIL.Image.Resampling */
    const MxJson *size = mx_json_get(json, "size"), *resample = mx_json_get(json, "resample");
    int64_t height = v->size, width = v->size, filter = bilinear, tiles = v->tiles;
    if (resample) mx_json_int(resample, &filter);
    if (size) mx_json_int(mx_json_get(size, "height"), &height);
    if (size) mx_json_int(mx_json_get(size, "width"), &width);
    if (v->tiles > 1) mx_json_int(mx_json_get(json, "max_patches"), &tiles);
    if (filter != bilinear)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "resample: wanted 2 (bilinear), found %lld",
                       (long long)filter);
    if (height != v->size || width != v->size)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "size: found %lld x %lld, image_size_for_vit is %lld", (long long)height,
                       (long long)width, (long long)v->size);
    if (tiles != v->tiles)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "max_patches: found %lld, max_num_tiles_for_vit is %lld", (long long)tiles,
                       (long long)v->tiles);
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

/* Beside the tokenizer, if there is one; else bytes become -1 … 1. */
static bool read_preprocessor(MxArena *arena, const MxDataConfig *config, Seer *seer,
                              MxError *err) {
    enum { LARGEST = 1 << 20 };
    double rescale = 1.0 / UINT8_MAX, mean[CHANNELS] = {0.5, 0.5, 0.5}, std[CHANNELS];
    memcpy(std, mean, sizeof std);
    const char *dir = config->tokenizer_dir;
    const char *path = dir ? mx_path_join(arena, dir, "preprocessor_config.json") : NULL;
    if (path && mx_file_exists(path)) {
        MxBytes bytes;
        MxWhere where = {.file = path};
        if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
        const MxJson *json = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
        if (!json || !check_steps(json, &seer->vision, where, err) ||
            !read_numbers(json, "image_mean", mean, where, err) ||
            !read_numbers(json, "image_std", std, where, err))
            return false;
        const MxJson *factor = mx_json_get(json, "rescale_factor");
        if (factor) mx_json_number(factor, &rescale);
    }
    fill_values(seer, rescale, mean, std);
    return true;
}

/* ---- what stands for an image */

static bool find_token(MxArena *arena, Seer *seer, MxWhere where, MxError *err) {
    const char *text = seer->encoder->token;
    MxTokens ids;
    MxEncoding what = {text, strlen(text), false, where};
    if (!mx_tokenizer_encode(arena, seer->tokenizer, what, &ids, err)) return false;
    if (ids.n != 1)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "use_multimodal: the tokenizer has no token \"%s\", which images become",
                       text);
    seer->token = ids.ids[0];
    return true;
}

static MxImageTiles tiles_of(const Seer *seer, MxImageSize size) {
    const MxVision *v = &seer->vision;
    return seer->encoder->has_tiles ? mx_image_tiles(size, v->size, v->tiles)
                                    : mx_image_whole(v->size);
}

static int64_t count_views(const MxImageTiles *tiles) {
    return tiles->rows * tiles->columns + (tiles->n > 1);
}

/* The text that becomes the tokens of an image: of its tiles, if they are several, then of all of
 * it. */
static void add_views(const Seer *seer, const MxImageTiles *tiles, MxText *out) {
    const MxEncoder *encoder = seer->encoder;
    mx_text_add(out, "%s%s", encoder->around, encoder->begin);
    for (int64_t view = 1; view <= count_views(tiles); view++) {
        bool is_last = view == count_views(tiles);
        if (is_last) mx_text_add(out, "%s", encoder->whole);
        for (int64_t i = 0; i < seer->vision.tokens; i++) mx_text_add(out, "%s", encoder->token);
        if (!is_last)
            mx_text_add(out, "%s", view % tiles->columns ? encoder->beside : encoder->below);
    }
    mx_text_add(out, "%s%s", encoder->end, encoder->around);
}

bool seer_open(MxArena *arena, const MxDataConfig *config, Seer **out, MxError *err) {
    const MxDataImages *form = &config->images;
    *out = NULL;
    if (!form->vision.images) return true;
    Seer *seer = mx_new(arena, Seer);
    *seer = (Seer){.form = form, .vision = form->vision, .tokenizer = config->tokenizer};
    seer->encoder = form->vision.encoder;
    *out = seer;
    int64_t most = mx_vision_views(&seer->vision) * seer->vision.size * seer->vision.size;
    return find_token(arena, seer, config->where, err) &&
           read_preprocessor(arena, config, seer, err) &&
           mx_images_open(arena, most, &seer->files, err);
}

int pictures_marked(const Seer *seer, const char *text, size_t n) {
    int count = 0;
    size_t bytes = strlen(seer->encoder->mark);
    for (const char *at = text;
         (at = memmem(at, n - (size_t)(at - text), seer->encoder->mark, bytes)); at += bytes)
        count++;
    return count;
}

/* Places behind the one that grows. */
static void move_spans(MxRendered *text, size_t at, size_t more) {
    for (int i = 0; i < text->n_spans; i++) {
        if (text->spans[i].start > at) text->spans[i].start += more;
        if (text->spans[i].end > at) text->spans[i].end += more;
    }
}

/* The next image in the place of so many bytes of the text. That there is one is checked later. */
static void tell_next(const Seer *seer, Pictures *pictures, size_t bytes, MxRendered *text,
                      MxText *out) {
    int i = pictures->n_places++;
    size_t at = out->len;
    MxImageTiles tiles =
        i < pictures->n ? tiles_of(seer, pictures->size[i]) : mx_image_whole(seer->vision.size);
    add_views(seer, &tiles, out);
    move_spans(text, at, out->len - at - bytes);
}

void pictures_tell(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing,
                   MxRendered *text) {
    const char *mark = seer->encoder->mark, *at = text->text;
    size_t bytes = strlen(mark), n = text->n;
    MxText out;
    mx_text_init(&out, arena);
    for (int i = 0; i < n_missing; i++) tell_next(seer, pictures, 0, text, &out);
    for (const char *end = at + n, *next; (next = memmem(at, (size_t)(end - at), mark, bytes));
         at = next + bytes) {
        mx_text_addn(&out, at, (size_t)(next - at));
        tell_next(seer, pictures, bytes, text, &out);
    }
    mx_text_addn(&out, at, n - (size_t)(at - text->text));
    text->text = out.data;
    text->n = out.len;
}

int64_t pictures_tokens(const Seer *seer, const Pictures *pictures) {
    int64_t n = 0;
    for (int i = 0; i < pictures->n; i++) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[i]);
        n += count_views(&tiles) * seer->vision.tokens;
    }
    return n;
}

bool pictures_check(const Seer *seer, const Pictures *pictures, int64_t n_tokens, MxWhere where,
                    MxError *err) {
    const MxEncoder *encoder = seer->encoder;
    if (pictures->n != pictures->n_places)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "%d images, but its text has %d places for one (\"%s\"); does the chat "
                       "template tell images?",
                       pictures->n, pictures->n_places, encoder->mark);
    return n_tokens == pictures_tokens(seer, pictures) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "its text has \"%s\" itself, which only images become", encoder->token);
}

/* ---- the files of a record */

static bool add_picture(MxArena *arena, const Seer *seer, const char *name, MxWhere where,
                        Pictures *out, MxError *err) {
    const char *path = name;
    bool is_data = !strncmp(name, MX_IMAGE_DATA, strlen(MX_IMAGE_DATA));
    if (seer->form->only_data && !is_data)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "an image is \"%.60s\", wanted a data: URL; no others are read", name);
    if (out->n == seer->vision.images)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "more images than %lld, as max_num_images_per_example says",
                       (long long)seer->vision.images);
    if (!is_data && where.file && name[0] != '/')
        path = mx_path_join(arena, mx_path_dir(arena, where.file), name);
    if (out->n == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 4;
        out->path =
            mx_arena_grow(arena, out->path, (size_t)out->n, (size_t)out->cap, sizeof *out->path);
    }
    out->path[out->n++] = path;
    return true;
}

bool pictures_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where,
                   MxError *err) {
    pictures->size = mx_new_n(arena, MxImageSize, pictures->n + 1);
    for (int i = 0; i < pictures->n; i++)
        if (!mx_image_look(seer->files, pictures->path[i], where, &pictures->size[i], err))
            return false;
    return true;
}

/* A name, or an object with one. NULL = it says none. */
static const char *name_of(const MxJson *item) {
    static const char *const keys[] = {"path", "image", "url"};
    const char *name = mx_json_string(item);
    for (int i = 0; i < MX_COUNT(keys) && !name; i++)
        name = mx_json_string(mx_json_get(item, keys[i]));
    return name && *name ? name : NULL;
}

/* The image column: a name, a list of them, or nothing. */
typedef struct Column {
    const MxJson *list;
    size_t n, used;
} Column;

static bool find_column(MxArena *arena, const Seer *seer, const Fields *record, MxWhere where,
                        Column *out, MxError *err) {
    *out = (Column){0};
    MxJson *all = mx_json_put_array(mx_json_object(arena), "images");
    for (int c = 0; c < seer->form->n_columns; c++) {
        Field field = {.kind = "null"};
        const char *name = seer->form->columns[c];
        if (!record->get(record->record, name, &field) || !strcmp(field.kind, "null")) continue;
        bool is_list = field.json && !strcmp(field.kind, "a list");
        if (field.text)
            mx_json_push_string(all, mx_arena_strndup(arena, field.text, field.bytes));
        else if (!is_list && field.json && name_of(field.json))
            mx_json_push(all, field.json);
        else if (!is_list)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "column \"%s\" holds %s, wanted the name of a file", name, field.kind);
        for (size_t i = 0; is_list && i < mx_json_length(field.json); i++)
            mx_json_push(all, mx_json_at(field.json, i));
    }
    out->list = all;
    out->n = mx_json_length(all);
    return true;
}

static bool take_next(MxArena *arena, const Seer *seer, Column *column, MxWhere where,
                      Pictures *out, MxError *err) {
    if (column->used == column->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "an image of the conversation names no file (\"path\"), and the image "
                       "column has no more");
    const MxJson *item = mx_json_at(column->list, column->used++);
    const char *name = name_of(item);
    return name ? add_picture(arena, seer, name, where, out, err)
                : mx_fail(err, MX_EXIT_BAD_INPUT, where,
                          "an image is %s, wanted the name of a file", mx_json_kind(item));
}

static bool add_items(MxArena *arena, const Seer *seer, const MxJson *messages, Column *column,
                      MxWhere where, Pictures *out, MxError *err) {
    for (size_t m = 0; m < mx_json_length(messages); m++) {
        const MxJson *content = mx_json_get(mx_json_at(messages, m), "content");
        if (!content || strcmp(mx_json_kind(content), "a list")) continue;
        for (size_t i = 0; i < mx_json_length(content); i++) {
            const MxJson *item = mx_json_at(content, i);
            const char *type = mx_json_string(mx_json_get(item, "type")), *name = name_of(item);
            if (!type || strcmp(type, "image")) continue;
            if (!(name ? add_picture(arena, seer, name, where, out, err)
                       : take_next(arena, seer, column, where, out, err)))
                return false;
        }
    }
    return true;
}

bool pictures_of(MxArena *arena, const Seer *seer, const Fields *record,
                 const MxJson *const messages[], int n_messages, MxWhere where, Pictures *out,
                 MxError *err) {
    Column column;
    *out = (Pictures){0};
    if (!find_column(arena, seer, record, where, &column, err)) return false;
    for (int i = 0; i < n_messages; i++)
        if (!add_items(arena, seer, messages[i], &column, where, out, err)) return false;
    while (!n_messages && column.used < column.n)
        if (!take_next(arena, seer, &column, where, out, err)) return false;
    return column.used == column.n ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "%zu images in the image column, but the conversation has only %zu without a "
                   "file of its own",
                   column.n, column.used);
}

/* ---- values */

void seer_index(const Seer *seer, const int32_t *tokens, int64_t length, int32_t *index) {
    int32_t n = 0;
    for (int64_t t = 0; t < length; t++) index[t] = tokens[t] == seer->token ? ++n : 0;
}

/* Values of a patch, whose first pixel is given, of rows of so many bytes. */
static float *cut_patch(const Seer *seer, const uint8_t *rgb, int64_t row, float *out) {
    const int64_t patch = seer->vision.patch;
    const bool splits = seer->encoder->splits_colours;
    for (int64_t i = 0; i < patch * patch * CHANNELS; i++) {
        int64_t c = splits ? i / (patch * patch) : i % CHANNELS;
        int64_t pixel = splits ? i % (patch * patch) : i / CHANNELS;
        *out++ = seer->value[c][rgb[pixel / patch * row + pixel % patch * CHANNELS + c]];
    }
    return out;
}

/* A view as patches, one after the other. */
static float *cut(const Seer *seer, const uint8_t *rgb, int64_t row, float *out) {
    const MxVision *v = &seer->vision;
    int64_t across = v->size / v->patch;
    for (int64_t i = 0; i < v->patches; i++) {
        int64_t at = mx_vision_patch(v, i);
        const uint8_t *from =
            rgb + at / across * v->patch * row + at % across * v->patch * CHANNELS;
        out = cut_patch(seer, from, row, out);
    }
    return out;
}

float *seer_views(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
                  float *pixels, MxError *err) {
    const int64_t side = seer->vision.size;
    for (int i = 0; i < pictures->n; i++) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[i]);
        const uint8_t *at = rgb;
        if (!mx_image_read(seer->files, pictures->path[i], where, &tiles, rgb, err)) return NULL;
        for (int k = 0; k < tiles.n; k++) {
            MxImageSize canvas = tiles.canvas[k].canvas;
            int64_t row = canvas.width * CHANNELS;
            for (int64_t y = 0; y < canvas.height; y += side)
                for (int64_t x = 0; x < canvas.width; x += side)
                    pixels = cut(seer, at + y * row + x * CHANNELS, row, pixels);
            at += canvas.height * row;
        }
    }
    return pixels;
}

bool seer_row(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
              float *pixels, MxError *err) {
    const float *end = pixels + mx_vision_row(&seer->vision);
    float *at = seer_views(seer, pictures, where, rgb, pixels, err);
    if (at) memset(at, 0, (size_t)(end - at) * sizeof *at);
    return at != NULL;
}
