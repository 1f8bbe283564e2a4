/* test_golden_rows.c — rows as MaxText's own pipelines make them of the same files and keys
 * (scripts/golden_rows.py). Two things differ, as docs/DIFFERENCES.md says: what follows a document
 * in its row is no target of it, and padding is segment 0. */
#include "data_test.h"

static MxJson *next_case(char **text) {
    char *line = strsep(text, "\n");
    if (!line || !*line) return NULL;
    MxJson *json = mx_json_parse(&arena, line, strlen(line), "rows.jsonl", &err);
    ck_assert_msg(json != NULL, "%s", err.count ? err.text.data : "");
    return json;
}

static char *read_cases(void) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, "rows/rows.jsonl");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    return mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
}

/* ---- a case's words as what this room wants */

static void set_files(MxDataConfig *config, const char *value) {
    config->path = goldens_need(&arena, mx_arena_printf(&arena, "rows/%s", value));
}

static void set_columns(MxDataConfig *config, const char *value) {
    const char **name = mx_new(&arena, const char *);
    *name = mx_arena_strndup(&arena, value + 1, strlen(value) - 2); /* "[ids]" */
    config->columns = name;
    config->n_columns = 1;
}

static void set_kind(MxDataConfig *config, const char *value) {
    config->kind = value;
}

static void set_format(MxDataConfig *config, const char *value) {
    config->format = value;
}

static void set_tokenizes(MxDataConfig *config, const char *value) {
    config->has_ids = !strcmp(value, "false");
}

static void set_packing(MxDataConfig *config, const char *value) {
    config->packing = !strcmp(value, "true");
}

static void set_pads(MxDataConfig *config, const char *value) {
    config->pads = !strcmp(value, "true");
}

static void set_truncates(MxDataConfig *config, const char *value) {
    config->splits = !strcmp(value, "false");
}

static const struct {
    const char *name;
    void (*set)(MxDataConfig *config, const char *value);
} words[] = {
    {"dataset_type", set_kind},
    {"hf_path", set_format},
    {"grain_file_type", set_format},
    {"hf_train_files", set_files},
    {"grain_train_files", set_files},
    {"train_data_columns", set_columns},
    {"tokenize_train_data", set_tokenizes},
    {"packing", set_packing},
    {"use_truncation", set_truncates},
    {"generate_padding_batch_train", set_pads},
};

static void set_word(MxDataConfig *config, char *word) {
    char *name = strsep(&word, "=");
    for (int i = 0; i < MX_COUNT(words); i++)
        if (!strcmp(words[i].name, name)) {
            words[i].set(config, word);
            return;
        }
    ck_abort_msg("%s: no word that this test knows", name);
}

static MxDataConfig config_of(const MxJson *json) {
    const char *name = "hf/tokenizers/gemma/tokenizer.json";
    MxTokenizer *tokenizer;
    MxDataConfig config = text_config(NULL);
    const char *dir = mx_path_dir(&arena, goldens_need(&arena, name));
    ck_assert(mx_tokenizer_open(&arena, "huggingface", dir, &tokenizer, &err));
    config.tokenizer = tokenizer;
    config.vocab = mx_tokenizer_vocab(tokenizer);
    ck_assert(mx_json_int(mx_json_get(json, "rows"), &config.rows));
    ck_assert(mx_json_int(mx_json_get(json, "length"), &config.length));
    char *all = mx_arena_strdup(&arena, mx_json_string(mx_json_get(json, "words")));
    for (char *word; (word = strsep(&all, " "));) set_word(&config, word);
    return config;
}

/* ---- a row of both */

static int64_t theirs(const MxJson *batch, const char *field, int64_t r, int64_t t) {
    int64_t value;
    const MxJson *row = mx_json_at(mx_json_get(batch, field), (size_t)r);
    ck_assert(mx_json_int(mx_json_at(row, (size_t)t), &value));
    return value;
}

static int32_t ours(const MxBatch *batch, MxBatchField field, int64_t r, int64_t t) {
    return batch->field[field][r * batch->length + t];
}

/* Row r of ours that holds the tokens of row `like` of theirs: Grain shuffles the packed rows of a
 * batch. */
static int64_t row_like(const MxBatch *got, const MxJson *want, int64_t like) {
    for (int64_t r = 0; r < got->rows; r++) {
        int64_t t = 0;
        while (t < got->length && ours(got, MX_INPUTS, r, t) == theirs(want, "inputs", like, t))
            t++;
        if (t == got->length) return r;
    }
    ck_abort_msg("no row with the tokens of row %lld", (long long)like);
    return -1;
}

static void ck_token(const MxBatch *got, int64_t r, const MxJson *want, int64_t like, int64_t t) {
    int32_t segment = ours(got, MX_INPUTS_SEGMENTATION, r, t);
    bool is_last = t + 1 == got->length || ours(got, MX_INPUTS_SEGMENTATION, r, t + 1) != segment;
    bool counts = !is_last && theirs(want, "targets_segmentation", like, t) != 0;
    ck_assert_int_eq(ours(got, MX_TARGETS_SEGMENTATION, r, t) != 0, counts);
    if (counts) ck_assert_int_eq(ours(got, MX_TARGETS, r, t), theirs(want, "targets", like, t));
    if (!segment) return;
    ck_assert_int_eq(ours(got, MX_INPUTS_POSITION, r, t), theirs(want, "inputs_position", like, t));
}

static void ck_batch(const MxBatch *got, const MxJson *want, bool is_packed) {
    for (int64_t like = 0; like < got->rows; like++) {
        int64_t r = row_like(got, want, like);
        for (int64_t t = 0; t < got->length; t++) {
            ck_token(got, r, want, like, t);
            if (is_packed)
                ck_assert_int_eq(ours(got, MX_INPUTS_SEGMENTATION, r, t),
                                 theirs(want, "inputs_segmentation", like, t));
        }
    }
}

START_TEST(rows_are_maxtexts) {
    int n = 0;
    char *text = read_cases();
    for (MxJson *json; (json = next_case(&text)); n++) {
        MxDataConfig config = config_of(json);
        MxDataset *dataset = open_data(config);
        const MxJson *batches = mx_json_get(json, "batches");
        ck_assert_uint_ge(mx_json_length(batches), 2);
        for (size_t i = 0; i < mx_json_length(batches); i++) {
            MxBatch batch = mx_batch_new(&arena, config.rows, config.length);
            MxDataStatus status = mx_data_batch(dataset, (int64_t)i, &batch, &err);
            ck_assert_int_eq(status, MX_DATA_OK);
            ck_batch(&batch, mx_json_at(batches, i), config.packing);
        }
    }
    ck_assert_int_ge(n, 6);
}
END_TEST

Suite *golden_rows_suite(void) {
    Suite *suite = suite_create("data: golden rows");
    TCase *cases = tcase_create("rows");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, rows_are_maxtexts);
    suite_add_tcase(suite, cases);
    return suite;
}
