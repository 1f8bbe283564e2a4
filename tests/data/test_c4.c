/* test_c4.c — C4 as MLPerf's benchmark reads it: rows as MaxText's own pipeline makes them
 * (scripts/golden_c4.py), the same whatever a rank keeps of them, and what is refused. */
#include "data_test.h"

enum { LENGTH = 64, ROWS = 4 };

static MxDataConfig c4_config(const char *type, const char *tokenizer) {
    MxTokenizer *opened;
    const char *sets = mx_path_dir(&arena, goldens_need(&arena, "rows/c4/cases.jsonl"));
    MxDataConfig config = text_config(mx_path_join(&arena, sets, "sets"));
    bool is_file = mx_text_has_suffix(tokenizer, ".model");
    const char *path = goldens_need(&arena, mx_arena_printf(&arena, "hf/tokenizers/%s%s", tokenizer,
                                                            is_file ? "" : "/tokenizer.json"));
    ck_assert_msg(mx_tokenizer_open(&arena, type, path, &opened, &err), "%s", err.text.data);
    config.kind = "c4_mlperf";
    config.set = "c4/en:3.0.4";
    config.tokenizer = opened;
    config.rows = ROWS;
    config.length = LENGTH;
    config.vocab = 2048;
    return config;
}

/* The benchmark's own tokenizer has this form: padding is 0, the end of a document 1. */
static MxDataConfig usual_config(const char *evaluated) {
    MxDataConfig config = c4_config("sentencepiece", "t5/tokenizer.model");
    config.omits_bos = true;
    config.evaluates = evaluated != NULL;
    if (evaluated) config.set = evaluated;
    return config;
}

static MxBatch rows_at(MxDataset *dataset, int64_t step, int64_t rows) {
    MxBatch batch = mx_batch_new(&arena, rows, LENGTH);
    ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    return batch;
}

/* ---- MaxText's rows */

/* The value of a word of a case; NULL = it has no such word. */
static const char *word_of(const char *words, const char *key) {
    const char *at = strstr(words, key);
    size_t n = strlen(key);
    return at ? mx_arena_strndup(&arena, at + n, strcspn(at + n, " ")) : NULL;
}

static MxDataConfig config_of(const char *words) {
    MxDataConfig config =
        c4_config(word_of(words, "tokenizer_type="), word_of(words, "tokenizer_path="));
    const char *evaluated = word_of(words, "eval_dataset_name=");
    config.omits_bos = strstr(words, "add_bos=false") != NULL;
    config.omits_eos = strstr(words, "add_eos=false") != NULL;
    config.evaluates = evaluated != NULL;
    if (evaluated) config.set = evaluated;
    return config;
}

/* A row of MaxText's, of which -1 is 0 here: padding of tokenizers that have none. */
static void ck_field(const MxBatch *batch, MxBatchField field, int64_t r, const int32_t *want) {
    const int32_t *got = batch->field[field] + r * LENGTH;
    for (int t = 0; t < LENGTH; t++)
        ck_assert_msg(got[t] == (want[t] < 0 ? 0 : want[t]), "%s, row %lld, token %d: %d, not %d",
                      mx_batch_field_name(field), (long long)r, t, got[t], want[t]);
}

/* The rows of a case, which begin at row `at` of all; gives where the next ones do. */
static int64_t ck_case(const MxJson *json, const int32_t *all, int64_t n_all, int64_t at) {
    static const MxBatchField fields[] = {MX_INPUTS, MX_TARGETS, MX_INPUTS_POSITION,
                                          MX_INPUTS_SEGMENTATION, MX_TARGETS_SEGMENTATION};
    int64_t first, rows;
    ck_assert(mx_json_int(mx_json_get(json, "first"), &first));
    ck_assert(mx_json_int(mx_json_get(json, "rows"), &rows));
    MxDataset *dataset = open_data(config_of(mx_json_string(mx_json_get(json, "words"))));
    ck_assert_int_eq(mx_data_steps(dataset), (first + rows) / ROWS);
    for (int64_t r = 0; r < rows; r++) {
        MxBatch batch = rows_at(dataset, (first + r) / ROWS, ROWS);
        for (int f = 0; f < MX_COUNT(fields); f++)
            ck_field(&batch, fields[f], r % ROWS, all + (f * n_all + at + r) * LENGTH);
        ck_values(batch.field[MX_TARGETS_POSITION], batch.field[MX_INPUTS_POSITION], LENGTH);
    }
    return at + rows;
}

START_TEST(rows_are_maxtexts) {
    enum { FIELDS = 5, ALL = 140 };
    MxBytes bytes;
    MxH5 *file;
    int64_t at = 0;
    int32_t *all = mx_new_n(&arena, int32_t, FIELDS * ALL * LENGTH);
    const char *path = goldens_need(&arena, "rows/c4/cases.jsonl");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    ck_assert(mx_h5_open(&arena, goldens_need(&arena, "rows/c4/rows.h5"), &file, &err));
    ck_assert(mx_h5_read(file, "rows", MX_I32, MX_SHAPE(FIELDS, ALL, LENGTH), all, &err));
    char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    for (char *line; (line = strsep(&text, "\n")) && *line;)
        at = ck_case(mx_json_parse(&arena, line, strlen(line), path, &err), all, ALL, at);
    ck_assert_int_eq(at, ALL);
}
END_TEST

/* ---- what else is asked of data */

/* Tokens of a batch that count. */
static int n_counted(const MxBatch *batch, int64_t r) {
    int n = 0;
    for (int t = 0; t < LENGTH; t++)
        n += batch->field[MX_TARGETS_SEGMENTATION][r * LENGTH + t] != 0;
    return n;
}

/* The last batch of evaluation is filled up with the first row, which does not count. */
START_TEST(the_last_batch_is_whole) {
    MxDataConfig config = usual_config("c4/en:3.0.4");
    config.rows = 3;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 3);
    ck_assert_ptr_nonnull(strstr(mx_data_describe(dataset),
                                 "40 documents joined and cut into pieces of at most 64, 7 rows, "
                                 "and 2 that do not count fill up"));
    MxBatch first = rows_at(dataset, 0, 3), last = rows_at(dataset, 2, 3);
    ck_assert_int_gt(n_counted(&first, 0), 0);
    ck_assert_int_gt(n_counted(&last, 0), 0);
    for (int r = 1; r < 3; r++) {
        ck_values(last.field[MX_INPUTS] + r * LENGTH, first.field[MX_INPUTS], LENGTH);
        ck_values(last.field[MX_INPUTS_SEGMENTATION] + r * LENGTH,
                  first.field[MX_INPUTS_SEGMENTATION], LENGTH);
        ck_assert_int_eq(n_counted(&last, r), 0);
    }
    config.rows = 7;
    ck_assert_ptr_null(strstr(mx_data_describe(open_data(config)), "do not count"));
}
END_TEST

/* Every epoch has the same rows in another order; in training they are not filled up. */
START_TEST(rows_are_shuffled) {
    MxDataConfig config = usual_config(NULL);
    config.rows = 1;
    MxDataset *plain = open_data(config);
    config.shuffle = true;
    MxDataset *shuffled = open_data(config);
    int64_t n = mx_data_steps(plain), n_moved = 0, sums[2] = {0};
    ck_assert_int_eq(mx_data_steps(shuffled), n);
    for (int64_t step = 0; step < n; step++) {
        MxBatch a = rows_at(plain, step, 1), b = rows_at(shuffled, step, 1);
        n_moved += memcmp(a.field[MX_INPUTS], b.field[MX_INPUTS], LENGTH * sizeof(int32_t)) != 0;
        sums[0] += n_counted(&a, 0);
        sums[1] += n_counted(&b, 0);
    }
    ck_assert_int_gt(n_moved, n / 2);
    ck_assert_int_eq(sums[0], sums[1]);
}
END_TEST

/* A rank makes its rows and columns alone. */
START_TEST(a_part_is_of_the_whole) {
    const int64_t row[] = {1, 3};
    const MxBatchPart part = {.row = row, .rows = 2, .of_rows = ROWS, .column = 16, .length = 32};
    MxDataset *dataset = open_data(usual_config("c4/en:3.0.5"));
    MxBatch whole = rows_at(dataset, 1, ROWS), some = mx_batch_new_part(&arena, &part);
    ck_assert_int_eq(mx_data_batch(dataset, 1, &some, &err), MX_DATA_OK);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int r = 0; r < 2; r++)
            ck_values(some.field[f] + r * 32, whole.field[f] + row[r] * LENGTH + 16, 32);
}
END_TEST

/* Tokens that were kept make the same rows as those that are read; documents of one token, which
 * other kinds of data leave out, among them. */
START_TEST(kept_tokens_make_the_same_rows) {
    MxDataConfig plain = usual_config(NULL), kept = plain;
    kept.token_cache = in_folder("tokens");
    MxDataConfig apart = kept;
    apart.kind = "tfds";
    apart.split = "train2";
    apart.columns = (const char *const[]){"text"};
    apart.n_columns = 1;
    apart.splits = true;
    open_data(apart);
    ck_same_rows(plain, kept);
    ck_same_rows(plain, kept);
}
END_TEST

/* How many rows a set of such files begins with that are those of the first file. */
static int64_t rows_of_first(const char *set, int n_files, const char *info) {
    MxBytes bytes;
    MxDataConfig config = text_config(folder);
    const char *dir = mx_arena_printf(&arena, "%s/1.0.0", set);
    ck_assert(mx_dir_make(in_folder(dir), &err));
    ck_assert(mx_file_read(
        &arena, "tests/data/fixtures/sets/other/2.0.0/other-train.tfrecord-00000-of-00001", 1 << 20,
        &bytes, &err));
    for (int i = 0; i < n_files; i++) {
        char *name =
            mx_arena_printf(&arena, "%s/%s-train2.tfrecord-%05d-of-%05d", dir, set, i, n_files);
        ck_assert(mx_file_write(in_folder(name), bytes.data, bytes.size, &err));
    }
    put(mx_arena_printf(&arena, "%s/dataset_info.json", dir), info);
    config.kind = "c4_mlperf";
    config.set = set;
    config.rows = 1;
    config.length = LENGTH;
    MxDataset *all = open_data(config);
    config.set = "one";
    MxDataset *one = n_files > 1 ? open_data(config) : all;
    int64_t n = 0, most = mx_data_steps(one) - 1;
    while (n < most && !memcmp(rows_at(one, n, 1).field[MX_INPUTS],
                               rows_at(all, n, 1).field[MX_INPUTS], LENGTH * sizeof(int32_t)))
        n++;
    return n;
}

/* Sixteen documents of each file in turn, but of a set whose documents have an order all of one. */
START_TEST(files_take_turns) {
    int64_t whole = rows_of_first("one", 1, "{}");
    ck_assert_int_gt(whole, 5);
    ck_assert_int_lt(rows_of_first("mixed", 2, "{\"disableShuffling\": false}"), whole);
    ck_assert_int_eq(rows_of_first("ordered", 2, "{\"disableShuffling\": true}"), whole);
}
END_TEST

static const struct {
    const char *set; /* NULL = training */
    const char *words;
} refused[] = {
    {"c4/en:3.1.0",
     "\"c4/en:3.1.0\" is no set that c4_mlperf evaluates; wanted one of c4/en:3.0.1, "
     "c4/en:3.0.4, c4/en:3.0.5, c4/en:3.0.8, c4/en:3.0.9\nhint: dataset_type=tfds"},
    {"c4/en:3.0.1", "has no version 3.0.1; it has 3.0.4, 3.0.5, 3.0.9"},
};

START_TEST(other_sets_are_refused) {
    MxDataConfig config = usual_config(refused[_i].set);
    ck_refused(config, refused[_i].words);
    ck_assert(!mx_data_find(&config, &err));
}
END_TEST

START_TEST(what_it_is_not_for_is_refused) {
    MxDataConfig config = usual_config(NULL);
    ck_assert(mx_data_find(&config, &err));
    config.set = "c4/en:3.0.5";
    ck_refused(config, "has no split \"train2\"; it has \"validation_tokenized_5662seqs\"");
    config = usual_config("c4/en:3.0.5");
    config.vocab = 1010;
    ck_assert_int_eq(mx_data_steps(open_data(config)), 8);
    config = usual_config(NULL);
    config.pairs = MX_DATA_PAIRS_STANDARD;
    ck_refused(config, "pairs of responses are wanted; data of kind \"c4_mlperf\" has none");
}
END_TEST

Suite *c4_suite(void) {
    Suite *suite = suite_create("data: c4");
    TCase *cases = tcase_create("rows");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, rows_are_maxtexts);
    tcase_add_test(cases, the_last_batch_is_whole);
    tcase_add_test(cases, rows_are_shuffled);
    tcase_add_test(cases, files_take_turns);
    tcase_add_test(cases, a_part_is_of_the_whole);
    tcase_add_test(cases, kept_tokens_make_the_same_rows);
    tcase_add_loop_test(cases, other_sets_are_refused, 0, MX_COUNT(refused));
    tcase_add_test(cases, what_it_is_not_for_is_refused);
    suite_add_tcase(suite, cases);
    return suite;
}
