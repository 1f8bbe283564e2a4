/* test_turns.c — prompts and completions of records with images as turns of each encoder's format,
 * against MaxText (scripts/golden_turns.py): the text with its images, the tokens, and which of
 * them count; and what becomes no turn. */
#include "data_test.h"

#define PICTURE   "share/mxtrain/images/train_blue_circle_0.png"
#define TOKENIZER "hf/tokenizers/gemma/tokenizer.json"
#define TOKEN     "<unused0>"

enum { SIZE = 28, PATCH = 7, POOL = 2, TOKENS = 4, LENGTH = 256, MOST = 2 };

static const char *const columns[] = {"query", "label"};

/* An encoder's row with a token that the tokenizer has; all pictures are TOKENS of it. */
static MxEncoder *encoder_of(const char *name) {
    MxEncoder *encoder = mx_new(&arena, MxEncoder);
    ck_assert_ptr_nonnull(mx_encoder_find(name));
    *encoder = *mx_encoder_find(name);
    encoder->token = TOKEN;
    encoder->least_pixels = 1;
    return encoder;
}

static MxDataConfig turns_config(const char *path, const MxEncoder *encoder) {
    MxTokenizer *tokenizer;
    int side = SIZE / PATCH;
    const char *from = goldens_need(&arena, TOKENIZER);
    ck_assert_msg(mx_tokenizer_open(&arena, "huggingface", from, &tokenizer, &err), "%s",
                  err.text.data);
    MxDataConfig config = {.kind = "hf",
                           .path = path,
                           .tokenizer = tokenizer,
                           .rows = 1,
                           .length = LENGTH,
                           .vocab = 1100,
                           .n_epochs = 1,
                           .is_sft = true,
                           .completion_only = true,
                           .columns = columns,
                           .n_columns = MX_COUNT(columns),
                           .images = {.vision = {.encoder = encoder,
                                                 .images = MOST,
                                                 .tiles = 1,
                                                 .patch = PATCH,
                                                 .patches = side * side,
                                                 .channels = 3,
                                                 .pool = POOL,
                                                 .tokens = TOKENS},
                                      .columns = {"image"},
                                      .n_columns = 1}};
    if (encoder->keeps_form) return config;
    config.images.vision.size = SIZE;
    config.images.vision.grid = (MxVisionGrid){side, side};
    return config;
}

static MxBatch batch_of(MxDataConfig config) {
    MxBatchPart part = {.rows = 1, .of_rows = 1, .length = LENGTH};
    part.pixels = mx_vision_row(&config.images.vision);
    if (config.images.vision.encoder->keeps_form) part.grids = MOST;
    MxBatch batch = mx_batch_new_part(&arena, &part);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

static int64_t count_tokens(const MxBatch *batch) {
    int64_t n = 0;
    while (n < batch->length && batch->field[MX_INPUTS_SEGMENTATION][n]) n++;
    return n;
}

static const char *text_of(const MxDataConfig *config, const MxBatch *batch) {
    return mx_tokenizer_decode(&arena, config->tokenizer, batch->field[MX_INPUTS],
                               count_tokens(batch), false, NULL);
}

/* The golden's text with what images become in the place of marks. */
static const char *told(const MxEncoder *encoder, const char *prompt, const char *completion) {
    MxText text;
    mx_text_init(&text, &arena);
    for (const char *next; (next = strstr(prompt, encoder->mark));
         prompt = next + strlen(encoder->mark)) {
        mx_text_addn(&text, prompt, (size_t)(next - prompt));
        mx_text_add(&text, "%s%s%s", encoder->around, encoder->begin, encoder->whole);
        for (int i = 0; i < TOKENS; i++) mx_text_add(&text, TOKEN);
        mx_text_add(&text, "%s%s", encoder->end, encoder->around);
    }
    mx_text_add(&text, "%s%s", prompt, completion);
    return text.data;
}

static const char *put_record(const MxJson *golden, int64_t n_images, bool has_list) {
    MxBytes picture;
    MxJson *record = mx_json_object(&arena);
    ck_assert(mx_file_read(&arena, PICTURE, 1 << 16, &picture, &err));
    ck_assert(mx_file_write(in_folder("a.png"), picture.data, picture.size, &err));
    const char *label = mx_json_string(mx_json_get(golden, "label"));
    mx_json_set_string(record, "query", mx_json_string(mx_json_get(golden, "query")));
    if (has_list) {
        MxJson *list = mx_json_put_array(record, "label");
        mx_json_push_string(list, label);
        mx_json_push_string(list, "another");
    } else {
        mx_json_set_string(record, "label", label);
    }
    MxJson *images = mx_json_put_array(record, "image");
    for (int64_t i = 0; i < n_images; i++) mx_json_push_string(images, "a.png");
    return put("x.jsonl", mx_arena_printf(&arena, "%s\n", mx_json_dump(&arena, record, false)));
}

static int32_t value_at(const MxJson *golden, const char *name, size_t i) {
    int64_t value;
    ck_assert(mx_json_int(mx_json_at(mx_json_get(golden, name), i), &value));
    return (int32_t)value;
}

/* Targets that count are the golden's, the last of the row; without images all tokens are. */
static void ck_tokens(const MxBatch *batch, const MxJson *golden, int64_t n_images) {
    size_t n = mx_json_length(mx_json_get(golden, "inputs"));
    int64_t more = count_tokens(batch) - (int64_t)n;
    if (!n_images) ck_assert_int_eq(more, 0);
    for (size_t i = 0; !n_images && i < n; i++)
        ck_assert_int_eq(batch->field[MX_INPUTS][i], value_at(golden, "inputs", i));
    for (int64_t t = 0; t < batch->length; t++) {
        int64_t i = t + 1 - more;
        int32_t want = i > 0 && i < (int64_t)n ? value_at(golden, "targets", (size_t)i) : 0;
        ck_assert_int_eq(batch->field[MX_TARGETS_SEGMENTATION][t] != 0, want != 0);
        if (want) ck_assert_int_eq(batch->field[MX_TARGETS][t], want);
    }
}

static const char *text_in(const MxJson *golden, const char *name) {
    return mx_json_string(mx_json_get(golden, name));
}

static void ck_case(const MxJson *golden, int i) {
    int64_t n_images;
    MxEncoder *encoder = encoder_of(text_in(golden, "encoder"));
    ck_assert(mx_json_int(mx_json_get(golden, "images"), &n_images));
    MxDataConfig config = turns_config(put_record(golden, n_images, i % 2 == 1), encoder);
    config.images.placeholder = text_in(golden, "placeholder");
    MxBatch batch = batch_of(config);
    ck_assert_str_eq(text_of(&config, &batch),
                     told(encoder, text_in(golden, "prompt"), text_in(golden, "completion")));
    ck_tokens(&batch, golden, n_images);
}

START_TEST(turns_are_maxtexts) {
    MxBytes bytes;
    int n = 0;
    ck_assert(
        mx_file_read(&arena, goldens_need(&arena, "rows/turns.jsonl"), 1 << 20, &bytes, &err));
    char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size), *line;
    for (; (line = strsep(&text, "\n")) && *line; n++) {
        MxJson *golden = mx_json_parse(&arena, line, strlen(line), "turns.jsonl", &err);
        ck_assert_ptr_nonnull(golden);
        ck_case(golden, n);
    }
    ck_assert_int_eq(n, 54);
}
END_TEST

/* ---- what is no turn, or no completion */

#define BEFORE "<start_of_turn>user\n"
#define BEHIND "<end_of_turn>\n<start_of_turn>model\n"

static const struct {
    const char *line, *text;
    bool names_columns;
} others[] = {
    {"{\"prompt\": \"a\", \"completion\": \"b\"}", BEFORE "a" BEHIND "b<end_of_turn>", false},
    {"{\"instruction\": \"a\", \"output\": \"b\"}", BEFORE "a\n" BEHIND "b<end_of_turn>", false},
    {"{\"label\": \"b\"}", BEFORE "Describe [x]" BEHIND "b<end_of_turn>", true},
    {"{\"text\": \"a\"}", "<bos>a<eos>", false},
};

START_TEST(other_columns) {
    const char *path = put("x.jsonl", mx_arena_printf(&arena, "%s\n", others[_i].line));
    MxDataConfig config = turns_config(path, encoder_of("gemma3"));
    config.n_columns = others[_i].names_columns ? MX_COUNT(columns) : 0;
    config.default_prompt = "Describe [x]";
    MxBatch batch = batch_of(config);
    ck_assert_str_eq(text_of(&config, &batch), others[_i].text);
}
END_TEST

static const struct {
    const char *line, *words;
} bad[] = {
    {"{\"query\": [\"a\"], \"label\": \"b\"}", "column \"query\" holds a list, wanted a text"},
    {"{\"query\": \"a\", \"label\": []}", "column \"label\" holds a list, wanted a text"},
    {"{\"query\": \"a\", \"label\": [7]}", "column \"label\" holds a list, wanted a text"},
    {"{\"query\": \"[x]\", \"label\": \"b\"}", "0 images, but its text has 1 places for one"},
};

START_TEST(other_values_are_refused) {
    const char *first = "{\"query\": \"a\", \"label\": [\"b\"]}";
    const char *path = put("x.jsonl", mx_arena_printf(&arena, "%s\n%s\n", first, bad[_i].line));
    MxDataConfig config = turns_config(path, encoder_of("gemma3"));
    config.images.placeholder = "[x]";
    ck_refused(config, bad[_i].words);
    ck_refused(config, "x.jsonl:2");
}
END_TEST

Suite *turns_suite(void) {
    Suite *suite = suite_create("data: turns");
    TCase *cases = tcase_create("turns");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, turns_are_maxtexts);
    tcase_add_loop_test(cases, other_columns, 0, MX_COUNT(others));
    tcase_add_loop_test(cases, other_values_are_refused, 0, MX_COUNT(bad));
    suite_add_tcase(suite, cases);
    return suite;
}
