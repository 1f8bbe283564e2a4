/* test_cache.c — tokens that are kept: what is found is what would have been made, down to rows,
 * warnings and fingerprints; changed files and settings are not mistaken for others, damage is
 * noticed. */
#include "data_test.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char texts[] = "{\"text\":\"one\"}\n{\"other\":1}\n{\"text\":\"two and more\"}\n{}\n";
static const char answers[] =
    "{\"prompt\":\"a\",\"completion\":\"bcd\"}\n"
    "{\"prompt\":\"a prompt that fills all of a row\",\"completion\":\"b\"}\n"
    "{\"prompt\":\"\",\"completion\":\"x\"}\n";
static const char pairs[] = "{\"prompt\":\"p\",\"chosen\":\"good\",\"rejected\":\"bad\"}\n"
                            "{\"prompt\":\"p\",\"chosen\":\"same\",\"rejected\":\"same\"}\n"
                            "{\"prompt\":\"longer\",\"chosen\":\"fine\",\"rejected\":\"worse\"}\n";
static const char talks[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
    "\"b\"},{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\"}]}\n"
    "{\"messages\":[{\"role\":\"user\",\"content\":\"e\"}]}\n";
static const char alpaca[] = "{\"instruction\":\"do\",\"input\":\"it\",\"output\":\"done\"}\n"
                             "{\"instruction\":\"go\",\"output\":\"gone\"}\n";

static const struct {
    const char *kind, *text, *template;
    bool is_sft, has_pairs, packing;
    int64_t vocab; /* ids of 2 or 4 bytes */
} forms[] = {
    {"text", "a whole file of text", NULL, .packing = true, .vocab = 300},
    {"hf", texts, NULL, .packing = true, .vocab = 300},
    {"hf", texts, NULL, .packing = false, .vocab = 100000},
    {"hf", answers, NULL, .is_sft = true, .vocab = 300},
    {"hf", alpaca, NULL, .is_sft = true, .vocab = 100000},
    {"hf", pairs, NULL, .has_pairs = true, .vocab = 300},
    {"hf", talks, "chatml", .is_sft = true, .packing = true, .vocab = 300},
    {"hf", talks, "chatml", .is_sft = true, .vocab = 100000},
};

static MxDataConfig config_of(int form, const char *path) {
    MxDataConfig config = text_config(path);
    bool is_text = !strcmp(forms[form].kind, "text");
    config.kind = forms[form].kind;
    config.rows = 1;
    config.length = is_text ? 6 : forms[form].template ? 120 : 20;
    config.max_prompt_length = config.length / 2;
    config.is_sft = config.completion_only = forms[form].is_sft;
    config.pairs = forms[form].has_pairs ? MX_DATA_PAIRS_STANDARD : MX_DATA_NO_PAIRS;
    config.packing = forms[form].packing;
    config.chat.named = forms[form].template;
    config.vocab = forms[form].vocab;
    return config;
}

static const char *or_none(const char *text) {
    return text ? text : "(none)";
}

/* What the log tells, without what it tells of the cache. */
static const char *described(const MxDataset *dataset) {
    const char *text = mx_data_describe(dataset), *end = strstr(text, "; tokens of ");
    return end ? mx_arena_strndup(&arena, text, (size_t)(end - text)) : text;
}

/* All that can be seen of two datasets is the same. */
static void ck_same(MxDataset *a, MxDataset *b, const MxDataConfig *config) {
    int n, m;
    const MxDataFile *files = mx_data_files(a, &n), *others = mx_data_files(b, &m);
    ck_assert_str_eq(described(a), described(b));
    ck_assert_str_eq(or_none(mx_data_warning(a)), or_none(mx_data_warning(b)));
    ck_assert_int_eq(mx_data_steps(a), mx_data_steps(b));
    MxDataLongest one = mx_data_longest(a), two = mx_data_longest(b);
    ck_assert_int_eq(one.whole, two.whole);
    ck_assert_int_eq(one.prompt, two.prompt);
    ck_assert_int_eq(one.answer, two.answer);
    ck_assert_int_eq(n, m);
    for (int i = 0; i < n; i++) {
        ck_assert_str_eq(files[i].path, others[i].path);
        ck_assert(files[i].hash == others[i].hash && files[i].bytes == others[i].bytes);
    }
    int64_t rows = mx_data_batch_rows(config);
    MxBatch x = mx_batch_new(&arena, rows, config->length),
            y = mx_batch_new(&arena, rows, config->length);
    for (int64_t step = 0; step < mx_data_steps(a); step++) {
        ck_assert(mx_data_batch(a, step, &x, &err) == MX_DATA_OK);
        ck_assert(mx_data_batch(b, step, &y, &err) == MX_DATA_OK);
        for (int f = 0; f < MX_BATCH_FIELDS; f++)
            ck_values(x.field[f], y.field[f], (int)(rows * config->length));
    }
}

static bool tells(const MxDataset *dataset, const char *words) {
    return strstr(mx_data_describe(dataset), words) != NULL;
}

START_TEST(what_is_found_is_what_is_made) {
    MxDataConfig config = config_of(_i, put("data", forms[_i].text));
    MxDataset *plain = open_data(config);
    config.token_cache = in_folder("kept");
    MxDataset *made = open_data(config), *found = open_data(config);
    ck_assert(tells(made, "; tokens of 0 files were kept in ") &&
              tells(made, "those of 1 are now"));
    ck_assert(tells(found, "; tokens of 1 file were kept in ") && !tells(found, "are now"));
    ck_same(made, plain, &config);
    ck_same(found, plain, &config);
}
END_TEST

/* Columns that the first file chose hold for the second, wherever either comes from. */
START_TEST(several_files) {
    char *first = put("a.jsonl", answers);
    put("b.jsonl", "{\"prompt\":\"q\",\"completion\":\"r\",\"text\":\"s\"}\n");
    MxDataConfig config = config_of(3, first);
    config.path = folder;
    MxDataset *plain = open_data(config);
    config.token_cache = in_folder("kept");
    open_data(config);
    ck_same(open_data(config), plain, &config);
    put("a.jsonl", "{\"text\":\"now text\"}\n"); /* then the second is read as text, too */
    MxDataset *changed = open_data(config);
    ck_assert(tells(changed, "(text)") && tells(changed, "those of 2 are now"));
}
END_TEST

START_TEST(others_are_made) {
    MxDataConfig config = config_of(1, put("data", texts));
    config.token_cache = in_folder("kept");
    open_data(config);
    config.length--;
    ck_assert(tells(open_data(config), "of 0 files were kept"));
    config.omits_eos = true;
    ck_assert(tells(open_data(config), "of 0 files were kept"));
    put("data", "{\"text\":\"other\"}\n");
    ck_assert(tells(open_data(config), "of 0 files were kept"));
    put("moved", "{\"text\":\"other\"}\n");
    config.path = in_folder("moved");
    ck_assert(tells(open_data(config), "of 1 file were kept"));
}
END_TEST

/* Where in the only kept file; below 0 = cut there from the end. */
static const int damages[] = {0, 9, 17, 25, 33, 64, 100, -1};

START_TEST(damage_is_noticed) {
    char **names;
    int n;
    MxBytes bytes;
    MxDataConfig config = config_of(1, put("data", texts));
    MxDataset *plain = open_data(config);
    config.token_cache = in_folder("kept");
    open_data(config);
    ck_assert(mx_dir_list(&arena, config.token_cache, &names, &n, &err) && n == 1);
    const char *path = mx_path_join(&arena, config.token_cache, names[0]);
    ck_assert(mx_file_read(&arena, path, SIZE_MAX, &bytes, &err));
    if (damages[_i] >= 0)
        bytes.data[damages[_i]] ^= 1;
    else
        bytes.size--;
    ck_assert(mx_file_write(path, bytes.data, bytes.size, &err));
    MxDataset *again = open_data(config);
    ck_assert(tells(again, "those of 1 are now (1 damaged)"));
    ck_same(again, plain, &config);
    ck_assert(tells(open_data(config), "of 1 file were kept"));
}
END_TEST

/* A file with a bad line is an error every time. */
START_TEST(bad_files_are_not_kept) {
    MxDataConfig config = config_of(1, put("data", "{\"text\":\"a\"}\n{\"text\":1}\n"));
    config.token_cache = in_folder("kept");
    for (int i = 0; i < 2; i++) {
        ck_refused(config, "data:2: column \"text\" holds a number, wanted a text");
        mx_error_release(&err);
        err = (MxError){0};
    }
    config.token_cache = put("file", "");
    ck_refused(config, "could not create");
}
END_TEST

/* ---- in memory */

/* Other bytes in a file that looks as it did: who gives what was there has not read it again. */
static void replace_unseen(const char *path) {
    MxBytes bytes;
    struct stat st;
    ck_assert(!stat(path, &st) && mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    memset(bytes.data, '!', bytes.size);
    ck_assert(mx_file_write(path, bytes.data, bytes.size, &err));
    ck_assert(!utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0));
}

/* As rows are laid out that are to hold the longest record, whatever that is. */
static void remember(MxDataConfig *config) {
    config->memory = mx_data_memory_new(&arena);
    MxDataConfig first = *config;
    first.length = 512;
    first.max_prompt_length = 256;
    first.remembers = true;
    first.packing = false;
    open_data(first);
}

START_TEST(what_is_remembered_is_not_read_again) {
    char *path = put("data", forms[_i].text);
    MxDataConfig config = config_of(_i, path);
    if (strcmp(forms[_i].kind, "text") != 0) config.length = 100 + config.length;
    config.max_prompt_length = config.length / 2;
    MxDataset *plain = open_data(config);
    remember(&config);
    replace_unseen(path);
    ck_same(open_data(config), plain, &config);
}
END_TEST

/* What was found in a folder of kept tokens is remembered like what was read. */
START_TEST(what_is_found_is_remembered) {
    char *path = put("data", forms[_i].text);
    MxDataConfig config = config_of(_i, path);
    if (strcmp(forms[_i].kind, "text") != 0) config.length = 100 + config.length;
    config.max_prompt_length = config.length / 2;
    MxDataset *plain = open_data(config);
    config.token_cache = in_folder("kept");
    remember(&config); /* once it fills the folder, */
    remember(&config); /* then it finds all there */
    config.token_cache = NULL;
    replace_unseen(path);
    ck_same(open_data(config), plain, &config);
}
END_TEST

/* Another file, or rows that are too short for its records. */
START_TEST(what_may_differ_is_read_again) {
    char *path = put("data", answers);
    MxDataConfig config = config_of(3, path); /* a prompt that is cut */
    MxDataset *plain = open_data(config);
    remember(&config);
    ck_same(open_data(config), plain, &config);
    put("data", "{\"prompt\":\"another\",\"completion\":\"file\"}\n");
    ck_assert(tells(open_data(config), " 1 documents "));
    config.omits_eos = true;
    ck_assert(tells(open_data(config), " 1 documents "));
}
END_TEST

Suite *cache_suite(void) {
    Suite *suite = suite_create("data: kept tokens");
    TCase *tests = tcase_create("kept");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, what_is_found_is_what_is_made, 0, MX_COUNT(forms));
    tcase_add_test(tests, several_files);
    tcase_add_test(tests, others_are_made);
    tcase_add_loop_test(tests, damage_is_noticed, 0, MX_COUNT(damages));
    tcase_add_test(tests, bad_files_are_not_kept);
    tcase_add_loop_test(tests, what_is_remembered_is_not_read_again, 0, MX_COUNT(forms));
    tcase_add_loop_test(tests, what_is_found_is_remembered, 0, MX_COUNT(forms));
    tcase_add_test(tests, what_may_differ_is_read_again);
    suite_add_tcase(suite, tests);
    return suite;
}
