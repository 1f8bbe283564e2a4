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
                          .chat_template = "gemma",
                          .images = {.n = 2,
                                     .size = SIZE,
                                     .patch = PATCH,
                                     .tokens = TOKENS,
                                     .begin = "<start_of_image>",
                                     .token = "<image_soft_token>",
                                     .end = "<end_of_image>",
                                     .around = "\n\n",
                                     .columns = {"image", "second"},
                                     .n_columns = 2}};
}

/* A picture that the recipe's data has, under a name of the test's folder. */
static void put_picture(const char *name, const char *from) {
    MxBytes file;
    ck_assert(mx_file_read(&arena, mx_path_join(&arena, SHARED, from), 1 << 16, &file, &err));
    ck_assert(mx_file_write(in_folder(name), file.data, file.size, &err));
}

static MxBatch batch_of(const char *lines) {
    MxDataset *dataset = open_data(images_config(put("x.jsonl", lines)));
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = LENGTH, .pixels = 2 * PIXELS};
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(dataset, 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

static const char *text_of(const MxBatch *batch) {
    MxTokenizer *tokenizer;
    int64_t n = 0;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", SHARED "tokenizer", &tokenizer, &err));
    while (n < LENGTH && batch->field[MX_INPUTS_SEGMENTATION][n]) n++;
    return mx_tokenizer_decode(&arena, tokenizer, batch->field[MX_INPUTS], n, false, NULL);
}

#define SOFT  "<image_soft_token><image_soft_token><image_soft_token><image_soft_token>"
#define IMAGE "\n\n<start_of_image>" SOFT "<end_of_image>\n\n"
#define TALK(content)                                                                              \
    "{\"messages\": [{\"role\": \"user\", \"content\": [" content "]}, "                           \
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
     "<bos>" IMAGE "Which? ok<eos>", 1},
    {"{\"prompt\": \"See <start_of_image>. \", \"completion\": \"ok\", \"image\": [\"a.png\"]}\n",
     "<bos>See " IMAGE ". ok<eos>", 1},
    {"{\"prompt\": \"Which? \", \"completion\": \"ok\"}\n", "<bos>Which? ok<eos>", 0},
    {"{\"prompt\": \"P\", \"completion\": \"ok\", \"image\": \"a.png\", \"second\": \"b.jpg\"}\n",
     "<bos>" IMAGE IMAGE "Pok<eos>", 2},
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

/* A patch after the other, rows of a patch, colours: against the picture itself. */
START_TEST(pixels_are_patches) {
    MxImages *images;
    static uint8_t rgb[PIXELS];
    put_picture("a.png", "train_blue_circle_0.png");
    MxBatch batch = batch_of(forms[0].line);
    ck_assert(mx_images_open(&arena, (MxImageSize){SIZE, SIZE}, &images, &err));
    ck_assert(mx_image_read(images, in_folder("a.png"), MX_NOWHERE, rgb, &err));
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
    tcase_add_test(tcase, pixels_are_patches);
    tcase_add_loop_test(tcase, wrong_images_are_told, 0, MX_COUNT(bad));
    suite_add_tcase(suite, tcase);
    return suite;
}
