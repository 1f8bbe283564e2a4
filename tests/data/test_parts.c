/* test_parts.c — sets in the layout of TensorFlow Datasets, and mixtures: which files they name,
 * what is missing, whose turn it is. */
#include "data_test.h"

#define FIXTURES "tests/data/fixtures/"

static MxDataConfig set_config(const char *set, const char *split) {
    MxDataConfig config = text_config(FIXTURES "sets");
    config.kind = "tfds";
    config.set = set;
    config.split = split;
    config.rows = 1;
    config.length = 64;
    config.packing = false;
    return config;
}

static MxDataConfig mixture_config(const char *path) {
    MxDataConfig config = set_config(NULL, NULL);
    config.kind = "grain";
    config.format = "tfrecord";
    config.path = path;
    return config;
}

static void ck_describes(MxDataset *dataset, const char *words) {
    const char *text = mx_data_describe(dataset);
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" lacks \"%s\"", text, words);
}

/* The first letter of the document in row r. */
static int letter_of(MxDataset *dataset, const MxDataConfig *config, int64_t r) {
    MxBatch batch = mx_batch_new(&arena, 1, config->length);
    ck_assert_int_eq(mx_data_batch(dataset, r, &batch, &err), MX_DATA_OK);
    return batch.field[MX_INPUTS][1];
}

/* ---- sets */

START_TEST(splits_of_sets) {
    MxDataConfig config = set_config("texts/en:1.0.0", "train");
    MxDataset *dataset = open_data(config);
    int n;
    mx_data_files(dataset, &n);
    ck_assert_int_eq(n, 2);
    ck_describes(dataset, "tfds: " FIXTURES "sets/texts/en/1.0.0/texts-train.tfrecord-00000-of-"
                          "00002 …, 6 documents (text)");
    ck_assert_int_eq(letter_of(dataset, &config, 3), 'T');
    ck_describes(open_data(set_config("texts/en", "train")), "/1.0.0/"); /* the highest */
    ck_describes(open_data(set_config("texts/en:0.9.10", "train")), "1 documents");
    ck_describes(open_data(set_config("texts/en", "validation")), "3 documents");
    ck_describes(open_data(set_config("other", "train")), "40 documents");
    ck_assert(mx_data_find(&config, &err));
}
END_TEST

static const struct {
    const char *path, *set, *split, *words;
} bad_sets[] = {
    {FIXTURES "none", "texts/en", "train", "no folder \"" FIXTURES "none/texts/en\""},
    {FIXTURES "sets", "c4/en", "train",
     "no folder \"" FIXTURES "sets/c4/en\"; \"" FIXTURES "sets\" has other, texts"},
    {FIXTURES "sets", "texts", "train",
     "\"" FIXTURES
     "sets/texts\" has no version (a folder as 1.0.0); it has en\nhint: dataset_name"},
    {FIXTURES "sets", "texts/en:1.0.1", "train", "has no version 1.0.1; it has 0.9.10, 1.0.0"},
    {FIXTURES "sets", "texts/en", "test",
     "has no split \"test\"; it has \"train\", \"validation\"\nhint: the files of one are named "
     "texts-SPLIT.tfrecord-00000-of-00001"},
    {FIXTURES "sets", "texts/en", "train[:10%]", "has no split \"train[:10%]\""},
};

START_TEST(refuses_sets) {
    MxDataConfig config = set_config(bad_sets[_i].set, bad_sets[_i].split);
    config.path = bad_sets[_i].path;
    ck_refused(config, bad_sets[_i].words);
    ck_assert(!mx_data_find(&config, &err));
}
END_TEST

/* A download that is not complete. */
START_TEST(missing_shards) {
    static const char *const names[] = {"a-train.tfrecord-00000-of-00003",
                                        "a-train.tfrecord-00002-of-00003"};
    MxDataConfig config = set_config("a", "train");
    config.path = folder;
    ck_assert(mx_dir_make(in_folder("a/1.0.0"), &err));
    for (int i = 0; i < 2; i++) put(mx_arena_printf(&arena, "a/1.0.0/%s", names[i]), "");
    ck_refused(config, "lacks shard 1 of split \"train\", which has 3, numbered from 0");
    put("a/1.0.0/a-train.tfrecord-00001-of-00003", "");
    ck_refused(config, "no records in ");
    put("a/1.0.0/a-train.tfrecord-00003-of-00004", "");
    ck_refused(config, "has shards of 3 and shards of 4 of split \"train\"");
    put("a/1.0.0/a-valid.tfrecord-00000-of-00001", "{\"text\": \"a\"}\n");
    config.split = "valid";
    ck_refused(config, "is no TFRecord or ArrayRecord: it does not begin as such files do");
}
END_TEST

/* A shard that was cut between two records; the set tells how many it has. */
START_TEST(missing_records) {
    MxDataConfig config = set_config("a", "train");
    MxBytes bytes;
    config.path = folder;
    ck_assert(mx_dir_make(in_folder("a/1.0.0"), &err));
    ck_assert(mx_file_read(&arena, FIXTURES "texts.tfrecord", 1 << 20, &bytes, &err));
    ck_assert(mx_file_write(in_folder("a/1.0.0/a-train.tfrecord-00000-of-00001"), bytes.data,
                            bytes.size, &err));
    open_data(config);
    put("a/1.0.0/dataset_info.json",
        "{\"splits\": [{\"name\": \"train\", \"shardLengths\": [\"6\"]}, {\"name\": \"x\"}, 5]}");
    open_data(config);
    put("a/1.0.0/dataset_info.json",
        "{\"splits\": [{\"name\": \"train\", \"shardLengths\": [3, \"4\"]}]}");
    ck_refused(config,
               "a/1.0.0/dataset_info.json: says that split \"train\" has 7 records, but its "
               "files have 6");
    put("a/1.0.0/dataset_info.json", "{");
    ck_refused(config, "a/1.0.0/dataset_info.json:1:1: not valid JSON");
}
END_TEST

START_TEST(files_of_other_formats) {
    MxDataConfig config = mixture_config(FIXTURES "texts.array_record");
    ck_refused(config, "is ArrayRecord, wanted TFRecord\nhint: dataset_type=grain "
                       "grain_file_type=arrayrecord reads it");
    config.format = "arrayrecord";
    config.path = FIXTURES "texts.tfrecord";
    ck_refused(config, "is TFRecord, wanted ArrayRecord\nhint: dataset_type=grain "
                       "grain_file_type=tfrecord reads it");
    config.path = FIXTURES "texts.jsonl.gz";
    ck_refused(config, "is gzip, wanted ArrayRecord\nhint: unpack it first");
    config.path = FIXTURES "texts.json";
    ck_refused(config, "is a list in JSON, wanted ArrayRecord\nhint: dataset_type=hf reads it");
    config.path = FIXTURES "texts_transposed.array_record";
    ck_refused(config, "chunk at byte 64: its records are transposed, wanted files written with "
                       "transpose:false");
    config.path = FIXTURES "texts_snappy.array_record";
    ck_refused(config, "chunk at byte 64: its records are packed by snappy");
    config.kind = "hf";
    config.format = NULL;
    ck_refused(config,
               "is ArrayRecord, wanted JSON Lines, Parquet or Arrow\nhint: dataset_type=grain");
}
END_TEST

/* ---- mixtures */

/* By their first letters: 6 documents of one part, 40 of another. */
START_TEST(mixtures) {
    MxDataConfig config =
        mixture_config(FIXTURES "texts_plain.array_record,1;" FIXTURES "long.array_record,3");
    config.format = "arrayrecord";
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "; mixture: 6 of 6 of \"" FIXTURES "texts_plain.array_record\" (weight "
                          "1), 19 of 40 of \"" FIXTURES "long.array_record\" (weight 3)");
    ck_assert_int_eq(mx_data_steps(dataset), 25);
    int n_long = 0;
    for (int64_t r = 0; r < 25; r++) {
        int letter = letter_of(dataset, &config, r);
        n_long += letter >= '0' && letter <= '9';
        ck_assert_msg(n_long >= 3 * r / 4 && n_long <= 3 * (r + 1) / 4 + 1, "row %d: %d", (int)r,
                      n_long);
    }
    config.shuffle = true;
    ck_describes(open_data(config), "19 of 40");
    config.mixture = put("m.json", "{\"a\": {\"path\": \"" FIXTURES "texts.array_record\", "
                                   "\"weight\": 0.5},\n \"b\": {\"weight\": 1.5, \"path\": "
                                   "\"" FIXTURES "long.array_rec*\"}}");
    config.path = NULL;
    ck_describes(open_data(config), "6 of 6 of \"" FIXTURES "texts.array_record\" (weight 0.5), "
                                    "19 of 40 of \"" FIXTURES "long.array_rec*\" (weight 1.5)");
}
END_TEST

static const struct {
    const char *path, *mixture, *words;
} bad_mixtures[] = {
    {"a;b", NULL, "\"a\": wanted \"PATH,WEIGHT\" between semicolons, with a weight above 0"},
    {FIXTURES "texts.tfrecord,1;", NULL, "\"\": wanted \"PATH,WEIGHT\""},
    {"a,0;b,1", NULL, "\"a,0\": wanted"},
    {"a,x;b,1", NULL, "\"a,x\": wanted"},
    {"a,inf;b,1", NULL, "\"a,inf\": wanted"},
    {"none,0.5;b,1", NULL, "no files at \"none\""},
    {NULL, "[]", "m.json: has no parts, wanted {\"name\""},
    {NULL, "{", "m.json:1:1: not valid JSON"},
    {NULL, "{\"a\": {\"path\": \"x\"}}", "m.json: \"a\" lacks a \"weight\" above 0"},
    {NULL, "{\"a\": {\"weight\": 1}}", "m.json: \"a\" lacks a \"path\""},
    {NULL, "{\"a\": 5}", "m.json: \"a\" lacks a \"path\""},
};

START_TEST(refuses_mixtures) {
    MxDataConfig config = mixture_config(bad_mixtures[_i].path);
    if (bad_mixtures[_i].mixture) config.mixture = put("m.json", bad_mixtures[_i].mixture);
    ck_refused(config, bad_mixtures[_i].words);
}
END_TEST

START_TEST(empty_parts) {
    const char *empty = put("empty.tfrecord", "");
    ck_refused(mixture_config(mx_arena_printf(&arena, FIXTURES "texts.tfrecord,1;%s,1", empty)),
               "empty.tfrecord\", a part of the mixture");
}
END_TEST

Suite *parts_suite(void) {
    Suite *suite = suite_create("data: parts");
    TCase *tests = tcase_create("parts");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, splits_of_sets);
    tcase_add_loop_test(tests, refuses_sets, 0, MX_COUNT(bad_sets));
    tcase_add_test(tests, missing_shards);
    tcase_add_test(tests, missing_records);
    tcase_add_test(tests, files_of_other_formats);
    tcase_add_test(tests, mixtures);
    tcase_add_loop_test(tests, refuses_mixtures, 0, MX_COUNT(bad_mixtures));
    tcase_add_test(tests, empty_parts);
    suite_add_tcase(suite, tests);
    return suite;
}
