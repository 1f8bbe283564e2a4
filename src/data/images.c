/* images.c — the images of records (their sounds: sounds.c): their files, the tokens that stand for
 * them, and their values in the form that the model reads. The prefetching thread reads the files
 * when a batch is made; that each file is an image is checked when records are read. */
#include "images.h"

enum { CHANNELS = 3 };

/* ---- what stands for an image */

bool seer_find_token(MxArena *arena, const Seer *seer, const char *text, const char *what,
                     MxWhere where, int32_t *token, MxError *err) {
    MxTokens ids;
    MxEncoding encoding = {.text = text, .n = strlen(text), .where = where};
    if (!mx_tokenizer_encode(arena, seer->tokenizer, encoding, &ids, err)) return false;
    if (ids.n != 1)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "use_multimodal: the tokenizer has no token \"%s\", which %s become", text,
                       what);
    *token = ids.ids[0];
    return true;
}

static MxImageTiles tiles_of(const Seer *seer, MxImageSize size) {
    const MxVision *v = &seer->vision;
    const MxEncoder *encoder = seer->encoder;
    int64_t square = v->pool * v->patch;
    MxImageTiles tiles = encoder->keeps_size ? mx_image_near(size, square, seer->least, seer->most)
                         : encoder->keeps_form ? mx_image_fit(size, square, v->tokens)
                         : encoder->has_tiles  ? mx_image_tiles(size, v->size, v->tiles)
                                               : mx_image_whole(v->size);
    for (int k = 0; k < tiles.n; k++) tiles.canvas[k].is_cubic = encoder->is_cubic;
    return tiles;
}

static int64_t count_views(const MxImageTiles *tiles) {
    return tiles->rows * tiles->columns + (tiles->n > 1);
}

/* Of a view. */
static MxVisionGrid grid_of(const Seer *seer, const MxImageTiles *tiles) {
    const MxVision *v = &seer->vision;
    const MxImageSize all = tiles->canvas[0].canvas;
    if (!seer->encoder->keeps_form) return v->grid;
    return (MxVisionGrid){(int32_t)(all.height / v->patch), (int32_t)(all.width / v->patch)};
}

static int64_t count_tokens(const Seer *seer, const MxImageTiles *tiles) {
    MxVisionGrid grid = grid_of(seer, tiles);
    return (int64_t)grid.rows * grid.columns / (seer->vision.pool * seer->vision.pool);
}

/* Of its tiles, if they are several, then of all of it. That there is one is checked later. */
void pictures_add_views(const Seer *seer, const Pictures *pictures, int i, MxText *out) {
    const MxEncoder *encoder = seer->encoder;
    MxImageTiles none = {.rows = 0},
                 all = i < pictures->n ? tiles_of(seer, pictures->size[i]) : none;
    const MxImageTiles *tiles = &all;
    mx_text_add(out, "%s%s", encoder->around, encoder->begin);
    for (int64_t view = 1; view <= count_views(tiles); view++) {
        bool is_last = view == count_views(tiles);
        if (is_last) mx_text_add(out, "%s", encoder->whole);
        for (int64_t k = 0; k < count_tokens(seer, tiles); k++)
            mx_text_add(out, "%s", encoder->token);
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
    *seer = (Seer){.form = form,
                   .vision = form->vision,
                   .tokenizer = config->tokenizer,
                   .hearing = form->hearing,
                   .sound_token = -1};
    seer->encoder = form->vision.encoder;
    *out = seer;
    int64_t most = mx_vision_views(&seer->vision) * mx_vision_pixels(&seer->vision);
    return seer_find_token(arena, seer, seer->encoder->token, "images", config->where, &seer->token,
                           err) &&
           sounds_open(arena, config->where, seer, err) &&
           preprocessor_read(arena, config, seer, err) &&
           mx_images_open(arena, most, &seer->files, err);
}

int64_t pictures_tokens(const Seer *seer, const Pictures *pictures) {
    int64_t n = 0;
    for (int i = 0; i < pictures->n; i++) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[i]);
        n += count_views(&tiles) * count_tokens(seer, &tiles);
    }
    return n + sounds_tokens(seer, pictures);
}

int64_t pictures_views(const Seer *seer, const Pictures *pictures) {
    int64_t n = 0;
    for (int i = 0; i < pictures->n; i++) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[i]);
        n += count_views(&tiles);
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
    const SoundFiles *sounds = &pictures->sounds;
    const MxAudioEncoder *audio = seer->hearing.encoder;
    if (sounds->n != sounds->n_places)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "%d sounds, but its text has %d places for one (\"%s\"); does the chat "
                       "template tell sounds?",
                       sounds->n, sounds->n_places, audio ? audio->mark : "");
    return n_tokens == pictures_tokens(seer, pictures) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "its text has \"%s\"%s%s%s itself, which only images%s become", encoder->token,
                   audio ? " or \"" : "", audio ? audio->token : "", audio ? "\"" : "",
                   audio ? " and sounds" : "");
}

/* ---- the files of a record */

bool seer_path(MxArena *arena, const Seer *seer, const char *name, const char *what, MxWhere where,
               const char **path, MxError *err) {
    bool is_data = !strncmp(name, MX_IMAGE_DATA, strlen(MX_IMAGE_DATA));
    *path = name;
    if (seer->form->only_data && !is_data)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "%s is \"%.60s\", wanted a data: URL; no others are read", what, name);
    if (!is_data && where.file && name[0] != '/')
        *path = mx_path_join(arena, mx_path_dir(arena, where.file), name);
    return true;
}

static bool add_picture(MxArena *arena, const Seer *seer, const char *name, MxWhere where,
                        Pictures *out, MxError *err) {
    const char *path;
    if (!seer_path(arena, seer, name, "an image", where, &path, err)) return false;
    if (out->n == seer->vision.images)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "more images than %lld, as max_num_images_per_example says",
                       (long long)seer->vision.images);
    if (out->n == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 4;
        out->path =
            mx_arena_grow(arena, out->path, (size_t)out->n, (size_t)out->cap, sizeof *out->path);
    }
    out->path[out->n++] = path;
    return true;
}

/* A picture that keeps its size may be too narrow for the room there is, whatever it is made. */
static bool check_form(const Seer *seer, const char *path, MxImageSize size, MxWhere where,
                       MxError *err) {
    enum { NARROWEST = 200 }; /* as transformers has it */
    int64_t longer = size.width > size.height ? size.width : size.height;
    int64_t shorter = size.width + size.height - longer;
    if (!seer->encoder->keeps_size) return true;
    MxImageTiles tiles = tiles_of(seer, size);
    if (longer <= NARROWEST * shorter && count_tokens(seer, &tiles) <= seer->vision.tokens)
        return true;
    return mx_fail(
        err, MX_EXIT_BAD_INPUT, where,
        "\"%.60s\": a picture of %lld x %lld pixels is too narrow; its squares would not "
        "fit into image_size_for_vit, or a side is above %d times the other",
        path, (long long)size.width, (long long)size.height, NARROWEST);
}

bool pictures_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where,
                   MxError *err) {
    pictures->size = mx_new_n(arena, MxImageSize, pictures->n + 1);
    for (int i = 0; i < pictures->n; i++)
        if (!mx_image_look(seer->files, pictures->path[i], where, &pictures->size[i], err) ||
            !check_form(seer, pictures->path[i], pictures->size[i], where, err))
            return false;
    return sounds_look(arena, seer, pictures, where, err);
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
            bool is_sound = type && !strcmp(type, "audio");
            if (is_sound && !sounds_add(arena, seer, item, where, out, err)) return false;
            if (!type || strcmp(type, "image")) continue;
            if (!(name ? add_picture(arena, seer, name, where, out, err)
                       : take_next(arena, seer, column, where, out, err)))
                return false;
        }
    }
    return true;
}

bool pictures_of(MxArena *arena, const Seer *seer, const Fields *record, const MxJson *messages[],
                 int n_messages, int n_places, MxWhere where, Pictures *out, MxError *err) {
    Column column;
    *out = (Pictures){0};
    if (!find_column(arena, seer, record, where, &column, err)) return false;
    for (int i = 0; column.n && i < n_places; i++)
        messages[i] = message_images(arena, seer, messages[i], column.n);
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

/* Tokens of the view that is counted, and of those of its picture that follow. */
typedef struct Count {
    int picture;
    int64_t view, views, tokens; /* views of all pictures before; that follow; tokens of one */
    int64_t left;                /* tokens of this one */
} Count;

/* False = there is none. */
static bool next_view(const Seer *seer, const Pictures *pictures, Count *count) {
    if (!count->views && count->picture < pictures->n) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[count->picture++]);
        count->views = count_views(&tiles);
        count->tokens = count_tokens(seer, &tiles);
    }
    if (!count->views) return false;
    count->views--;
    count->view++;
    count->left = count->tokens;
    return true;
}

void seer_index(const Seer *seer, const Pictures *pictures, const int32_t *tokens, int64_t length,
                int64_t rows, int32_t *index) {
    Count count = {.picture = 0};
    for (int64_t t = 0; t < length; t++) {
        index[t] = 0;
        if (tokens[t] != seer->token) continue;
        if (!count.left && !next_view(seer, pictures, &count)) continue;
        int64_t first = (count.view - 1) * seer->vision.tokens;
        index[t] = (int32_t)(first + count.tokens - --count.left);
    }
    sounds_index(seer, pictures, tokens, length, rows, index);
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

/* A view as patches, one after the other, in the place of view number `view`. */
static void cut(const Seer *seer, const uint8_t *rgb, int64_t row, MxVisionGrid grid, int64_t view,
                const DataSeen *to) {
    const MxVision *v = &seer->vision;
    float *out = to->pixels + view * mx_vision_pixels(v) * CHANNELS;
    for (int64_t i = 0; i < (int64_t)grid.rows * grid.columns; i++) {
        int64_t at = mx_vision_patch(v, grid, i), y = at / grid.columns, x = at % grid.columns;
        out = cut_patch(seer, rgb + y * v->patch * row + x * v->patch * CHANNELS, row, out);
    }
    if (to->grids) to->grids[view] = grid;
}

/* All views of a picture, the first being number `view`; returns the number behind them. */
static int64_t cut_all(const Seer *seer, const uint8_t *rgb, const MxImageTiles *tiles,
                       int64_t view, const DataSeen *out) {
    const MxVisionGrid grid = grid_of(seer, tiles);
    const int64_t height = grid.rows * seer->vision.patch,
                  width = grid.columns * seer->vision.patch;
    for (int k = 0; k < tiles->n; k++) {
        MxImageSize canvas = tiles->canvas[k].canvas;
        int64_t row = canvas.width * CHANNELS;
        for (int64_t y = 0; y < canvas.height; y += height)
            for (int64_t x = 0; x < canvas.width; x += width)
                cut(seer, rgb + y * row + x * CHANNELS, row, grid, view++, out);
        rgb += canvas.height * row;
    }
    return view;
}

bool seer_views(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
                const DataSeen *out, MxError *err) {
    int64_t view = 0;
    for (int i = 0; i < pictures->n; i++) {
        MxImageTiles tiles = tiles_of(seer, pictures->size[i]);
        if (!mx_image_read(seer->files, pictures->path[i], where, &tiles, rgb, err)) return false;
        view = cut_all(seer, rgb, &tiles, view, out);
    }
    return !out->left || sounds_read(seer, pictures, where, out->samples, out, err);
}
