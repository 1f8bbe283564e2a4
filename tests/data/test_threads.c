/* test_threads.c — several threads make tokens of records and files: rows, counts and messages are
 * those of one thread. */
#include "data_test.h"

#include <stdlib.h>

static const int64_t n_threads[] = {1, 2, 3, 16, 0};

/* Words, numbers and characters of several bytes; some records are empty, some are long. */
static const char *text_of(int i) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int k = 0; k < i * 7919 % 40 + (i % 100 ? 0 : 400); k++)
        mx_text_add(&text, "%s%d ", k % 3 ? "word" : "\xc3\xa9t\xc3\xa9", i * k % 10007);
    return text.data ? text.data : "";
}

static MxDataConfig config_of(const char *kind, const char *path) {
    MxDataConfig config = text_config(path);
    MxTokenizer *tokenizer;
    const char *file = goldens_need(&arena, "hf/tokenizers/qwen/tokenizer.json");
    ck_assert(
        mx_tokenizer_open(&arena, "huggingface", mx_path_dir(&arena, file), &tokenizer, &err));
    config.kind = kind;
    config.tokenizer = tokenizer;
    config.vocab = 1100;
    config.rows = 3;
    config.length = 64;
    return config;
}

static void ck_same(MxDataConfig config) {
    config.n_threads = 1;
    MxDataset *one = open_data(config);
    int64_t steps = mx_data_steps(one);
    MxBatch x = mx_batch_new(&arena, config.rows, config.length);
    MxBatch y = mx_batch_new(&arena, config.rows, config.length);
    ck_assert_int_gt(steps, 20);
    for (int i = 1; i < MX_COUNT(n_threads); i++) {
        config.n_threads = n_threads[i];
        MxDataset *many = open_data(config);
        int n_one, n_many;
        ck_assert_str_eq(mx_data_describe(one), mx_data_describe(many));
        ck_assert_pstr_eq(mx_data_warning(one), mx_data_warning(many));
        const MxDataFile *a = mx_data_files(one, &n_one), *b = mx_data_files(many, &n_many);
        ck_assert_int_eq(n_one, n_many);
        for (int f = 0; f < n_one; f++) ck_assert_str_eq(a[f].path, b[f].path);
        for (int64_t step = 0; step < steps; step++) {
            ck_assert_int_eq(mx_data_batch(one, step, &x, &err), MX_DATA_OK);
            ck_assert_int_eq(mx_data_batch(many, step, &y, &err), MX_DATA_OK);
            for (int f = 0; f < MX_BATCH_FIELDS; f++)
                ck_values(x.field[f], y.field[f], (int)(config.rows * config.length));
        }
    }
}

START_TEST(records) {
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 2500; i++)
        mx_text_add(&lines, i % 50 == 7 ? "{\"id\": 1}\n" : "{\"text\": \"%s\"}\n", text_of(i));
    ck_same(config_of("hf", put("a.jsonl", lines.data)));
}
END_TEST

START_TEST(conversations) {
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 300; i++)
        mx_text_add(&lines,
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"%d\"}, {\"role\": "
                    "\"assistant\", \"content\": \"%s\"}]}\n",
                    i, text_of(i + 1));
    MxDataConfig config = config_of("hf", put("a.jsonl", lines.data));
    config.is_sft = config.completion_only = true;
    config.chat.named = "chatml";
    ck_same(config);
}
END_TEST

START_TEST(files) {
    for (int i = 0; i < 150; i++)
        put(mx_arena_printf(&arena, "%03d.txt", i), i % 20 == 3 ? "" : text_of(i));
    ck_same(config_of("text", folder));
}
END_TEST

/* Of bad lines the first ten are told, in their order; of bad files the first. */
START_TEST(messages) {
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 2000; i++)
        mx_text_add(&lines, i % 30 == 29 ? "{\"text\": %d}\n" : "{\"text\": \"%d\"}\n", i);
    MxDataConfig config = config_of("hf", put("a.jsonl", lines.data)), of_files = config;
    const char *said = NULL;
    put("b.txt", "a\xff");
    put("c.txt", "\xff");
    of_files.kind = "text";
    of_files.path = folder;
    for (int i = 0; i < MX_COUNT(n_threads); i++) {
        MxDataset *dataset;
        config.n_threads = of_files.n_threads = n_threads[i];
        ck_assert(!mx_data_open(&arena, &config, &dataset, &err));
        ck_assert_int_eq(err.count, 10);
        ck_assert_ptr_nonnull(strstr(err.text.data, "a.jsonl:30: column \"text\" holds a number"));
        ck_assert_ptr_nonnull(strstr(err.text.data, "a.jsonl:300: "));
        ck_assert_ptr_nonnull(strstr(err.text.data, "10 bad lines; the rest was not read"));
        if (said) ck_assert_str_eq(said, err.text.data);
        said = mx_arena_strdup(&arena, err.text.data);
        mx_error_release(&err);
        ck_refused(of_files, "b.txt: is not UTF-8: byte 0xff at offset 1");
    }
}
END_TEST

Suite *threads_suite(void) {
    Suite *suite = suite_create("data: threads");
    TCase *tests = tcase_create("threads");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, records);
    tcase_add_test(tests, conversations);
    tcase_add_test(tests, files);
    tcase_add_test(tests, messages);
    suite_add_tcase(suite, tests);
    return suite;
}
