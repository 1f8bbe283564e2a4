/* test_images.c — records with images as rows: what stands for an image, what counts, whose pixels,
 * and what is said of records whose images are missing, none, too many or without a place. */
#include "data_test.h"

#include <mx/image.h>

#define SHARED "share/mxtrain/images/"

enum { SIZE = 28, PATCH = 7, TOKENS = 4, LENGTH = 96, PIXELS = SIZE * SIZE * 3 };

static MxDataConfig images_config(const char *path) {
    MxTokenizer *tokenizer;
    ck_assert_msg(mx_tokenizer_open(&arena, "huggingface", SHARED "tokenizer", &tokenizer, &err),
                  "%s", err.text.data);
    return (MxDataConfig){.kind = "hf",
                          .path = path,
                          .tokenizer = tokenizer,
                          .rows = 1,
                          .length = LENGTH,
                          .vocab = 264,
                          .n_epochs = 1,
                          .is_sft = true,
                          .completion_only = true,
                          .chat.named = "gemma",
                          .images = {.vision = {.encoder = mx_encoder_find("gemma3"),
                                                .images = 2,
                                                .size = SIZE,
                                                .patch = PATCH,
                                                .tiles = 1,
                                                .channels = 3,
                                                .patches = (SIZE / PATCH) * (SIZE / PATCH),
                                                .grid = {SIZE / PATCH, SIZE / PATCH},
                                                .pool = 2,
                                                .tokens = TOKENS},
                                     .placeholder = "[x]",
                                     .columns = {"image", "second"},
                                     .n_columns = 2}};
}

/* A picture that the recipe's data has, under a name of the test's folder. */
static void put_picture(const char *name, const char *from) {
    MxBytes file;
    ck_assert(mx_file_read(&arena, mx_path_join(&arena, SHARED, from), 1 << 16, &file, &err));
    ck_assert(mx_file_write(in_folder(name), file.data, file.size, &err));
}

static MxBatch batch_of_config(MxDataConfig config) {
    MxDataset *dataset = open_data(config);
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = LENGTH, .pixels = 2 * PIXELS};
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(dataset, 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

static MxBatch batch_of(const char *lines) {
    return batch_of_config(images_config(put("x.jsonl", lines)));
}

static const char *text_of(const MxBatch *batch) {
    MxTokenizer *tokenizer;
    int64_t n = 0;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", SHARED "tokenizer", &tokenizer, &err));
    while (n < batch->length && batch->field[MX_INPUTS_SEGMENTATION][n]) n++;
    return mx_tokenizer_decode(&arena, tokenizer, batch->field[MX_INPUTS], n, false, NULL);
}

#define SOFT   "<image_soft_token><image_soft_token><image_soft_token><image_soft_token>"
#define IMAGE  "\n\n<start_of_image>" SOFT "<end_of_image>\n\n"
#define BEFORE "<start_of_turn>user\n"
#define BEHIND "<end_of_turn>\n<start_of_turn>model\n"
#define TALK(content)                                                                              \
    "{\"messages\": [{\"role\": \"user\", \"content\": [" content "]}, "                           \
    "{\"role\": \"assistant\", \"content\": \"ok\"}]"
#define SAID(text)                                                                                 \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" text "\"}, "                            \
    "{\"role\": \"assistant\", \"content\": \"ok\"}]"
#define TEXT       "{\"type\": \"text\", \"text\": \"Which?\"}"
#define NAMED(key) "{\"type\": \"image\", \"" key "\": \"a.png\"}, "

/* Forms that users have; all of one picture, but for the last. */
static const struct {
    const char *line, *text;
    int n;
} forms[] = {
    {TALK(NAMED("path") TEXT) "}\n",
     "<bos><start_of_turn>user\n" IMAGE
     "Which?<end_of_turn>\n<start_of_turn>model\nok<end_of_turn>\n",
     1},
    {TALK(NAMED("image") TEXT) "}\n", NULL, 1},
    {TALK("{\"type\": \"image\"}, " TEXT) ", \"image\": \"a.png\"}\n", NULL, 1},
    {"{\"prompt\": \"Which? \", \"completion\": \"ok\", \"image\": \"a.png\"}\n",
     BEFORE IMAGE "Which? " BEHIND "ok<end_of_turn>", 1},
    {"{\"prompt\": \"See <start_of_image>. \", \"completion\": \"ok\", \"image\": [\"a.png\"]}\n",
     BEFORE "See " IMAGE ". " BEHIND "ok<end_of_turn>", 1},
    {"{\"prompt\": \"Which? \", \"completion\": \"ok\"}\n",
     BEFORE "Which? " BEHIND "ok<end_of_turn>", 0},
    {"{\"prompt\": \"P\", \"completion\": \"ok\", \"image\": \"a.png\", \"second\": \"b.jpg\"}\n",
     BEFORE IMAGE IMAGE "P" BEHIND "ok<end_of_turn>", 2},
    {SAID("Which?") ", \"image\": \"a.png\"}\n",
     "<bos><start_of_turn>user\n" IMAGE
     "Which?<end_of_turn>\n<start_of_turn>model\nok<end_of_turn>\n",
     1},
    {SAID("Which: [x]?") ", \"image\": \"a.png\"}\n",
     "<bos><start_of_turn>user\nWhich:" IMAGE
     "?<end_of_turn>\n<start_of_turn>model\nok<end_of_turn>\n",
     1},
    {SAID("<image> Which [x]?") ", \"image\": [\"a.png\", \"b.jpg\"]}\n", NULL, 2},
    {SAID("<image>?") "}\n",
     "<bos><start_of_turn>user\n<image>?<end_of_turn>\n<start_of_turn>model\nok<end_of_turn>\n", 0},
};

START_TEST(rows_have_images) {
    put_picture("a.png", "train_blue_circle_0.png");
    put_picture("b.jpg", "train_green_circle_1.jpg");
    MxBatch batch = batch_of(forms[_i].line);
    if (forms[_i].text) ck_assert_str_eq(text_of(&batch), forms[_i].text);
    int n = 0;
    for (int t = 0; t < LENGTH; t++) {
        if (batch.image[t]) ck_assert_int_eq(batch.image[t], ++n);
        ck_assert(!batch.image[t] || !t || !batch.field[MX_TARGETS_SEGMENTATION][t - 1]);
    }
    ck_assert_int_eq(n, forms[_i].n * TOKENS);
    int64_t n_zeros = 0;
    for (int i = 0; i < 2 * PIXELS; i++) n_zeros += batch.pixels[i] == 0;
    ck_assert_int_eq(n_zeros, (2 - forms[_i].n) * PIXELS); /* no byte is half of 255 */
}
END_TEST

/* Of pre-training, without turns. */
START_TEST(texts_have_marks) {
    static const char *const lines[] = {
        "{\"text\": \"See [x]. \", \"image\": \"a.png\"}\n",
        "{\"text\": \"See <start_of_image>. \", \"image\": \"a.png\"}\n"};
    put_picture("a.png", "train_blue_circle_0.png");
    MxDataConfig config = images_config(put("x.jsonl", lines[_i]));
    config.is_sft = config.completion_only = false;
    MxBatch batch = batch_of_config(config);
    ck_assert_str_eq(text_of(&batch), "<bos>See " IMAGE ". <eos>");
}
END_TEST

/* A patch after the other, rows of a patch, colours: against the picture itself. */
START_TEST(pixels_are_patches) {
    MxImages *images;
    static uint8_t rgb[PIXELS];
    put_picture("a.png", "train_blue_circle_0.png");
    MxBatch batch = batch_of(forms[0].line);
    MxImageTiles whole = mx_image_whole(SIZE);
    ck_assert(mx_images_open(&arena, SIZE * SIZE, &images, &err));
    ck_assert(mx_image_read(images, in_folder("a.png"), MX_NOWHERE, &whole, rgb, &err));
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++)
            for (int c = 0; c < 3; c++) {
                int patch = y / PATCH * (SIZE / PATCH) + x / PATCH;
                int at = ((patch * PATCH + y % PATCH) * PATCH + x % PATCH) * 3 + c;
                float want = (float)rgb[(y * SIZE + x) * 3 + c] / 127.5f - 1;
                float off = batch.pixels[at] - want;
                ck_assert_msg(off < 1e-6f && off > -1e-6f, "%d %d %d", y, x, c);
            }
}
END_TEST

/* ---- tiles, against transformers' processor of Llama 4 (scripts/golden_images.py) */

static const char *const tiled[] = {"rgb_large.png", "rgb_small.png", "rgba.png"};

enum { TILE = 8, TILES = 6, SPLIT = 2, TILED_LENGTH = 160 };

/* Its row, with the words that the test's tokenizer has. */
static MxEncoder tiles_encoder(void) {
    MxEncoder encoder = *mx_encoder_find("llama4");
    encoder.mark = "<start_of_image>";
    encoder.begin = "[";
    encoder.token = "<image_soft_token>";
    encoder.end = "]";
    encoder.beside = "|";
    encoder.below = "/";
    encoder.whole = "=";
    return encoder;
}

/* A value of the golden's tiles [tiles, 3, TILE, TILE], by its place in ours: squares of two by two
 * patches, of each all of a colour. */
static float value_at(const MxBf16 *tiles, int64_t i) {
    enum { ACROSS = TILE / SPLIT, AREA = SPLIT * SPLIT, A_TILE = TILE * TILE * 3 };
    int64_t tile = i / A_TILE, patch = i % A_TILE / (AREA * 3), c = i % (AREA * 3) / AREA;
    int64_t square = patch / 4, pixel = i % AREA;
    int64_t row = square / (ACROSS / 2) * 2 + patch % 4 / 2, column = square % (ACROSS / 2) * 2;
    int64_t y = row * SPLIT + pixel / SPLIT;
    int64_t x = (column + patch % 2) * SPLIT + pixel % SPLIT;
    return mx_bf16_to_f32(tiles[((tile * 3 + c) * TILE + y) * TILE + x]);
}

/* What stands for a picture of so many tiles. */
static const char *tiles_text(int rows, int columns) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add(&text, "%s[", mx_encoder_find("llama4")->turns.before);
    for (int i = 1; rows * columns > 1 && i <= rows * columns; i++)
        mx_text_add(&text, SOFT "%s", i % columns ? "|" : "/");
    mx_text_add(&text, "=" SOFT "]P %sok<|eot|>", mx_encoder_find("llama4")->turns.behind);
    return text.data;
}

START_TEST(tiles_are_those_of_transformers) {
    MxBytes picture, golden;
    MxEncoder encoder = tiles_encoder();
    const char *name = mx_arena_printf(&arena, "images/%s", tiled[_i]);
    const char *tiles = goldens_need(&arena, mx_arena_printf(&arena, "%s.tiles", name));
    ck_assert(mx_file_read(&arena, goldens_need(&arena, name), 1 << 16, &picture, &err));
    ck_assert(mx_file_read(&arena, tiles, 1 << 16, &golden, &err));
    ck_assert(mx_file_write(in_folder("a.png"), picture.data, picture.size, &err));
    const int32_t *grid = (const int32_t *)(const void *)golden.data;
    const MxBf16 *values = (const MxBf16 *)(const void *)(grid + 2);
    const char *line = "{\"prompt\": \"P \", \"completion\": \"ok\", \"image\": \"a.png\"}\n";
    MxDataConfig config = images_config(put("x.jsonl", line));
    config.length = TILED_LENGTH;
    config.images.vision = (MxVision){.encoder = &encoder,
                                      .images = 1,
                                      .tiles = TILES,
                                      .size = TILE,
                                      .patch = SPLIT,
                                      .patches = (TILE / SPLIT) * (TILE / SPLIT),
                                      .grid = {TILE / SPLIT, TILE / SPLIT},
                                      .channels = 3,
                                      .pool = 2,
                                      .tokens = TOKENS};
    int64_t all = mx_vision_row(&config.images.vision);
    int64_t n = (int64_t)(golden.size - 2 * sizeof *grid) / (int64_t)sizeof *values;
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = TILED_LENGTH, .pixels = all};
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    ck_assert_str_eq(text_of(&batch), tiles_text(grid[0], grid[1]));
    for (int64_t i = 0; i < all; i++) {
        float want = i < n ? value_at(values, i) : 0;
        ck_assert_msg(batch.pixels[i] == want, "%s: value %lld is %g, not %g", name, (long long)i,
                      (double)batch.pixels[i], (double)want);
    }
}
END_TEST

/* ---- pictures that keep their form, against transformers' processor of Gemma 4 */

static const char *const formed[] = {"rgb_large.png", "rgb_small.png"};

enum { SQUARE = 3, MOST_TOKENS = 70, MOST_PATCHES = MOST_TOKENS * SQUARE * SQUARE, A_PATCH = 12 };

/* Patches of a square of three by three stand together. */
START_TEST(forms_are_those_of_transformers) {
    MxBytes picture, golden;
    MxEncoder encoder = *mx_encoder_find("gemma4");
    encoder.mark = encoder.token = "<image_soft_token>";
    const char *name = mx_arena_printf(&arena, "images/%s", formed[_i]);
    const char *form = goldens_need(&arena, mx_arena_printf(&arena, "%s.form", name));
    ck_assert(mx_file_read(&arena, goldens_need(&arena, name), 1 << 16, &picture, &err));
    ck_assert(mx_file_read(&arena, form, 1 << 16, &golden, &err));
    ck_assert(mx_file_write(in_folder("a.png"), picture.data, picture.size, &err));
    const int32_t *grid = (const int32_t *)(const void *)golden.data;
    const uint8_t *bytes = (const uint8_t *)(grid + 2);
    const char *line = "{\"prompt\": \"P \", \"completion\": \"ok\", \"image\": \"a.png\"}\n";
    MxDataConfig config = images_config(put("x.jsonl", line));
    config.length = TILED_LENGTH;
    config.images.vision = (MxVision){.encoder = &encoder,
                                      .images = 2,
                                      .tiles = 1,
                                      .patch = 2,
                                      .patches = MOST_PATCHES,
                                      .channels = 3,
                                      .pool = SQUARE,
                                      .tokens = MOST_TOKENS};
    int64_t all = mx_vision_row(&config.images.vision);
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = TILED_LENGTH, .pixels = all, .grids = 2};
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    ck_assert_int_eq(batch.grids[0].rows, grid[0]);
    ck_assert_int_eq(batch.grids[0].columns, grid[1]);
    ck_assert_int_eq(batch.grids[1].rows, 0);
    int64_t n = (int64_t)(golden.size - 2 * sizeof *grid), tokens = 0;
    for (int t = 0; t < TILED_LENGTH; t++) tokens += batch.image[t] > 0;
    ck_assert_int_eq(tokens, n / A_PATCH / (SQUARE * SQUARE));
    for (int64_t i = 0; i < all; i++) {
        int64_t place = i / A_PATCH, square = place / (SQUARE * SQUARE),
                in = place % (SQUARE * SQUARE);
        int64_t across = grid[1] / SQUARE, y = square / across * SQUARE + in / SQUARE;
        int64_t x = square % across * SQUARE + in % SQUARE;
        float want = i < n ? (float)bytes[(y * grid[1] + x) * A_PATCH + i % A_PATCH] / 255 : 0;
        float off = batch.pixels[i] - want;
        ck_assert_msg(off < 1e-6f && off > -1e-6f, "%s: value %lld is %g, not %g", name,
                      (long long)i, (double)batch.pixels[i], (double)want);
    }
}
END_TEST

/* ---- pictures that keep their size as far as they can, against that of Qwen 3-VL */

static const char *const near[] = {"rgb_large.png", "rgb_small.png", "rgba.png"};

enum { NEAR_TOKENS = 70, NEAR_PATCHES = NEAR_TOKENS * 4 };

static MxDataConfig near_config(const MxEncoder *encoder) {
    const char *line = "{\"prompt\": \"P \", \"completion\": \"ok\", \"image\": \"a.png\"}\n";
    MxDataConfig config = images_config(put("x.jsonl", line));
    config.length = TILED_LENGTH;
    config.images.vision = (MxVision){.encoder = encoder,
                                      .images = 2,
                                      .tiles = 1,
                                      .patch = 2,
                                      .patches = NEAR_PATCHES,
                                      .channels = 3,
                                      .pool = 2,
                                      .has_mrope = true,
                                      .tokens = NEAR_TOKENS};
    return config;
}

/* Tokens of a text count on; those of an image share a time, and the next word stands behind the
 * image's longer side. */
static void check_mrope(const MxBatch *batch, int rows, int columns) {
    int next = 0, k = 0;
    for (int t = 0; t < batch->length; t++) {
        if (!batch->field[MX_INPUTS_SEGMENTATION][t]) return;
        bool is_image = batch->image[t] > 0;
        int row = is_image ? k / columns : 0, column = is_image ? k % columns : 0;
        if (!is_image && k == rows * columns) {
            next += rows > columns ? rows : columns;
            k = 0;
        }
        ck_assert_int_eq(batch->mrope[MX_MROPE_TIME][t], next);
        ck_assert_int_eq(batch->mrope[MX_MROPE_ROW][t], next + row);
        ck_assert_int_eq(batch->mrope[MX_MROPE_COLUMN][t], next + column);
        next += !is_image;
        k += is_image;
    }
}

START_TEST(sizes_are_those_of_transformers) {
    MxBytes picture, golden;
    MxEncoder encoder = *mx_encoder_find("qwen3_vl");
    encoder.begin = encoder.end = "";
    encoder.mark = encoder.token = "<image_soft_token>";
    encoder.least_pixels = 256;
    const char *name = mx_arena_printf(&arena, "images/%s", near[_i]);
    const char *path = goldens_need(&arena, mx_arena_printf(&arena, "%s.near", name));
    ck_assert(mx_file_read(&arena, goldens_need(&arena, name), 1 << 16, &picture, &err));
    ck_assert(mx_file_read(&arena, path, 1 << 16, &golden, &err));
    ck_assert(mx_file_write(in_folder("a.png"), picture.data, picture.size, &err));
    const int32_t *grid = (const int32_t *)(const void *)golden.data;
    const uint8_t *bytes = (const uint8_t *)(grid + 2);
    MxDataConfig config = near_config(&encoder);
    int64_t all = mx_vision_row(&config.images.vision);
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = TILED_LENGTH, .pixels = all, .grids = 2};
    part.has_mrope = true;
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    ck_assert_int_eq(batch.grids[0].rows, grid[0]);
    ck_assert_int_eq(batch.grids[0].columns, grid[1]);
    ck_assert_int_eq(batch.grids[1].rows, 0);
    int64_t n = (int64_t)(golden.size - 2 * sizeof *grid), tokens = 0;
    for (int t = 0; t < TILED_LENGTH; t++) tokens += batch.image[t] > 0;
    ck_assert_int_eq(tokens, n / A_PATCH / 4);
    for (int64_t i = 0; i < all; i++) {
        float want = i < n ? (float)bytes[i] / 127.5f - 1 : 0, off = batch.pixels[i] - want;
        ck_assert_msg(off < 1e-6f && off > -1e-6f, "%s: value %lld is %g, not %g", name,
                      (long long)i, (double)batch.pixels[i], (double)want);
    }
    check_mrope(&batch, grid[0] / 2, grid[1] / 2);
}
END_TEST

/* No size of whole squares is narrow enough for the room. */
START_TEST(pictures_may_be_too_narrow) {
    static const uint8_t head[] =
        "\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\017\377\0\0\0\003\010\002\0\0\0"
        "\100\302\272\071\0\0\0\012IDAT";
    MxEncoder encoder = *mx_encoder_find("qwen3_vl");
    encoder.mark = encoder.token = "<image_soft_token>";
    ck_assert(mx_file_write(in_folder("a.png"), head, sizeof head - 1, &err));
    ck_refused(near_config(&encoder), "a picture of 4095 x 3 pixels is too narrow");
}
END_TEST

/* preprocessor_config.json: what stands there as null, or is of no use to the encoder, is not read.
 * Files of Qwen have "max_pixels": null beside "size". */
static const struct {
    const char *encoder, *json;
    int64_t most;      /* pixels of the picture */
    const char *words; /* it is refused with; NULL = it is not */
} files_beside[] = {
    {"qwen3_vl", "{\"size\": {\"longest_edge\": 400}}", 400, NULL},
    {"qwen3_vl", "{\"min_pixels\": null, \"max_pixels\": null, \"size\": {\"longest_edge\": 400}}",
     400, NULL},
    {"qwen3_vl", "{\"max_pixels\": 400, \"size\": null}", 400, NULL},
    {"qwen3_vl", "{\"size\": {\"shortest_edge\": null, \"longest_edge\": null}}", 1120, NULL},
    {"qwen3_vl", "{\"image_mean\": null, \"image_std\": null}", 1120, NULL},
    {"qwen3_vl", "{\"max_pixels\": \"many\"}", 0, "max_pixels: wanted a number of pixels"},
    {"qwen3_vl", "{\"size\": {\"longest_edge\": 0}}", 0, "longest_edge: wanted a number of pixels"},
    {"gemma3", "{\"size\": {\"shortest_edge\": \"any\"}, \"max_pixels\": 0}", SIZE *SIZE, NULL},
};

START_TEST(files_beside_have_nulls) {
    MxEncoder encoder = *mx_encoder_find(files_beside[_i].encoder);
    encoder.begin = encoder.end = "";
    encoder.mark = encoder.token = "<image_soft_token>";
    encoder.least_pixels = 256;
    put_picture("a.png", "train_blue_circle_0.png");
    put("preprocessor_config.json", files_beside[_i].json);
    MxDataConfig config = near_config(&encoder);
    if (!encoder.keeps_size) config.images.vision = images_config(config.path).images.vision;
    config.tokenizer_dir = folder;
    if (files_beside[_i].words) {
        ck_refused(config, files_beside[_i].words);
        return;
    }
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = TILED_LENGTH, .grids = 2};
    part.pixels = mx_vision_row(&config.images.vision);
    part.has_mrope = encoder.keeps_size;
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    int64_t area = config.images.vision.patch * config.images.vision.patch;
    int64_t pixels = batch.grids[0].rows * batch.grids[0].columns * area;
    ck_assert_msg(pixels <= files_beside[_i].most && 2 * pixels > files_beside[_i].most,
                  "%lld pixels of %s", (long long)pixels, files_beside[_i].json);
}
END_TEST

static const struct {
    const char *line, *words;
} bad[] = {
    {TALK("{\"type\": \"image\", \"path\": \"none.png\"}, " TEXT) "}\n", "none.png\": "},
    {TALK("{\"type\": \"image\", \"path\": \"text.png\"}, " TEXT) "}\n",
     "text.png\": is no picture of PNG or JPEG"},
    {TALK("{\"type\": \"image\"}, " TEXT) "}\n", "names no file"},
    {TALK(TEXT) ", \"image\": \"a.png\"}\n", "has only 0 without a file of its own"},
    {TALK(NAMED("path") NAMED("path") NAMED("path") TEXT) "}\n", "more images than 2"},
    {"{\"prompt\": \"<start_of_image> \", \"completion\": \"ok\"}\n",
     "0 images, but its text has 1 places"},
    {"{\"prompt\": \"0123456789012345678901234567890123456789012345678901234567890123456789"
     "01234567890123456789 <start_of_image>\", \"completion\": \"ok\", \"image\": \"a.png\"}\n",
     "do not fit into max_target_length (96)"},
    {"{\"prompt\": \"P\", \"completion\": \"ok\", \"image\": 7}\n", "wanted the name of a file"},
};

/* The second line of the file is the one that is wrong. */
START_TEST(wrong_images_are_told) {
    put_picture("a.png", "train_blue_circle_0.png");
    put("text.png", "{\"not\": \"a picture\"}");
    bool talks = strstr(bad[_i].line, "messages") != NULL;
    const char *first = talks ? forms[0].line : forms[3].line;
    const char *lines = mx_arena_printf(&arena, "%s%s", first, bad[_i].line);
    MxDataConfig config = images_config(put("x.jsonl", lines));
    ck_refused(config, mx_arena_printf(&arena, "%s:2", in_folder("x.jsonl")));
    ck_refused(config, bad[_i].words);
}
END_TEST

Suite *images_suite(void) {
    Suite *suite = suite_create("images");
    TCase *tcase = tcase_create("images");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, rows_have_images, 0, MX_COUNT(forms));
    tcase_add_loop_test(tcase, texts_have_marks, 0, 2);
    tcase_add_test(tcase, pixels_are_patches);
    tcase_add_loop_test(tcase, tiles_are_those_of_transformers, 0, MX_COUNT(tiled));
    tcase_add_loop_test(tcase, forms_are_those_of_transformers, 0, MX_COUNT(formed));
    tcase_add_loop_test(tcase, sizes_are_those_of_transformers, 0, MX_COUNT(near));
    tcase_add_test(tcase, pictures_may_be_too_narrow);
    tcase_add_loop_test(tcase, files_beside_have_nulls, 0, MX_COUNT(files_beside));
    tcase_add_loop_test(tcase, wrong_images_are_told, 0, MX_COUNT(bad));
    suite_add_tcase(suite, tcase);
    return suite;
}
