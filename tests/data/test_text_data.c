/* test_text_data.c — text and synthetic data: exact values on tiny inputs, packing, order, ends,
 * and every refusal. */
#include "data_test.h"

enum { BOS = 256, EOS = 257 };

/* One document "abcdefg": stream bos a b c d e f g eos, rows of 4 share their border token. */
START_TEST(one_document) {
    MxDataset *dataset = open_data(text_config(put("a.txt", "abcdefg")));
    ck_assert_int_eq(mx_data_steps(dataset), 1);
    MxBatch batch = batch_at(dataset, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c');
    ck_row(batch, MX_TARGETS, 0, 'a', 'b', 'c', 'd');
    ck_row(batch, MX_INPUTS, 1, 'd', 'e', 'f', 'g');
    ck_row(batch, MX_TARGETS, 1, 'e', 'f', 'g', EOS);
    for (int r = 0; r < 2; r++)
        for (int f = MX_INPUTS_POSITION; f <= MX_TARGETS_POSITION; f++) {
            ck_row(batch, f, r, 0, 1, 2, 3);
            ck_row(batch, f + 2, r, 1, 1, 1, 1);
        }
    MxBatch none = mx_batch_new(&arena, 2, 4);
    ck_assert_int_eq(mx_data_batch(dataset, 1, &none, &err), MX_DATA_END);
    ck_assert_str_eq(mx_data_end_reason(dataset),
                     "the data ends after 1 batches of 2 rows: 1 epoch of 2 rows");
}
END_TEST

/* Documents "ab", "" and "cdef": bos a b eos bos c d e f eos. */
START_TEST(packed_documents) {
    put("1.txt", "ab");
    put("2.txt", "");
    put("3.txt", "cdef");
    put("skipped.md", "no text");
    put(".4.txt", "hidden");
    MxDataConfig config = text_config(folder);
    config.n_epochs = 2;
    MxDataset *dataset = open_data(config);
    MxBatch batch = batch_at(dataset, 0); /* 3 rows an epoch */
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', EOS);
    ck_row(batch, MX_TARGETS, 0, 'a', 'b', EOS, 0); /* bos of the next document is no target */
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0);
    ck_row(batch, MX_TARGETS_POSITION, 0, 0, 1, 2, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 1);
    ck_row(batch, MX_INPUTS, 1, BOS, 'c', 'd', 'e');
    ck_row(batch, MX_INPUTS_SEGMENTATION, 1, 1, 1, 1, 1);
    batch = batch_at(dataset, 1); /* the last row of epoch 0, padded, and the first of epoch 1 */
    ck_row(batch, MX_INPUTS, 0, 'f', 0, 0, 0);
    ck_row(batch, MX_TARGETS, 0, EOS, 0, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 0, 0, 0);
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'a', 'b', EOS);
    ck_assert_int_eq(mx_data_steps(dataset), 3);
}
END_TEST

/* The same text without bos and eos: a b c d e f g. */
START_TEST(bare_documents) {
    MxDataConfig config = text_config(put("a.txt", "abcdefg"));
    config.omits_bos = config.omits_eos = true;
    MxBatch batch = batch_at(open_data(config), 0);
    ck_row(batch, MX_INPUTS, 0, 'a', 'b', 'c', 'd');
    ck_row(batch, MX_TARGETS, 0, 'b', 'c', 'd', 'e');
}
END_TEST

/* Borders inside rows: bos a eos bos | b eos bos c | eos. */
START_TEST(borders_inside_rows) {
    put("1.txt", "a");
    put("2.txt", "b");
    put("3.txt", "c");
    MxBatch batch = batch_at(open_data(text_config(folder)), 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', EOS, BOS);
    ck_row(batch, MX_TARGETS, 0, 'a', EOS, 0, 'b');
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 2);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 0, 2);
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 1, 2, 0);
    ck_row(batch, MX_INPUTS, 1, 'b', EOS, BOS, 'c');
    ck_row(batch, MX_TARGETS, 1, EOS, 0, 'c', EOS);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 1, 1, 1, 2, 2);
    ck_row(batch, MX_INPUTS_POSITION, 1, 0, 1, 0, 1);
    ck_row(batch, MX_TARGETS_POSITION, 1, 0, 0, 0, 1);
}
END_TEST

START_TEST(without_packing) {
    put("1.txt", "abcd");
    put("2.txt", "e");
    MxDataConfig config = text_config(in_folder("[12].txt"));
    config.packing = false;
    config.n_epochs = 2;
    MxDataset *dataset = open_data(config);
    MxBatch batch = batch_at(dataset, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c');
    ck_row(batch, MX_INPUTS, 1, 'd', 0, 0, 0);
    ck_row(batch, MX_TARGETS, 1, EOS, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 1, 0, 0, 0);
    batch = batch_at(dataset, 1);
    ck_row(batch, MX_INPUTS, 0, BOS, 'e', 0, 0);
    ck_row(batch, MX_TARGETS, 0, 'e', EOS, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'a', 'b', 'c');
}
END_TEST

/* Text of n bytes whose rows of 4 begin with different tokens. */
static char *numbered(int n) {
    char *text = mx_arena_alloc(&arena, (size_t)n + 1);
    for (int i = 0; i < n; i++) text[i] = (char)('0' + i / 4);
    return put("numbered.txt", text);
}

/* First tokens of all rows of an epoch: which rows were taken, in order. */
static void order_of(MxDataset *dataset, int epoch, int n_rows, int32_t *out) {
    for (int i = 0; i < n_rows; i += 2) {
        MxBatch batch = batch_at(dataset, ((int64_t)epoch * n_rows + i) / 2);
        for (int r = 0; r < 2; r++) out[i + r] = batch.field[MX_INPUTS][r * 4 + 1];
    }
}

START_TEST(shuffles) {
    enum { ROWS = 32 };
    MxDataConfig config = text_config(numbered(4 * ROWS - 1));
    config.shuffle = true;
    config.n_epochs = -1;
    int32_t order[4][ROWS];
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), -1);
    order_of(dataset, 1, ROWS, order[1]); /* any order of asking */
    order_of(dataset, 0, ROWS, order[0]);
    order_of(open_data(config), 0, ROWS, order[3]);
    config.seed = 1;
    order_of(open_data(config), 0, ROWS, order[2]);
    for (int k = 0; k < 3; k++) {
        int seen[ROWS] = {0}, in_place = 0;
        for (int i = 0; i < ROWS; i++) {
            int row = order[k][i] - '0';
            ck_assert(row >= 0 && row < ROWS && !seen[row]++);
            in_place += row == i;
        }
        ck_assert_int_lt(in_place, 8);
    }
    ck_assert_mem_eq(order[0], order[3], sizeof order[0]);
    ck_assert_mem_ne(order[0], order[1], sizeof order[0]);
    ck_assert_mem_ne(order[0], order[2], sizeof order[0]);
    ck_assert_mem_ne(order[1], order[2], sizeof order[0]);
}
END_TEST

/* Every size of an epoch from 2 rows on is a permutation. Index i = rows. */
START_TEST(shuffles_any_size) {
    MxDataConfig config = text_config(numbered(4 * _i - 1));
    config.shuffle = true;
    config.n_epochs = 2;
    MxDataset *dataset = open_data(config);
    int counts[80] = {0};
    for (int64_t step = 0; step < _i; step++) {
        MxBatch batch = batch_at(dataset, step);
        for (int r = 0; r < 2; r++) counts[batch.field[MX_INPUTS][r * 4 + 1] - '0']++;
    }
    for (int i = 0; i < _i; i++) ck_assert_int_eq(counts[i], 2);
}
END_TEST

START_TEST(refuses) {
    char *path = put("a.txt", "abcdefgh");
    MxDataConfig good = text_config(path), config = good;
    config.where = (MxWhere){.file = "x.yml", .line = 3};
    config.path = in_folder("none.txt");
    ck_refused(config, "x.yml:3: no files at \"");
    config.path = in_folder("*.md");
    ck_refused(config, "no files at \"");
    config.path = NULL;
    ck_refused(config, "no files at \"\"");
    ck_assert(mx_dir_make(in_folder("empty"), &err));
    config.path = in_folder("empty");
    ck_refused(config, "has no *.txt");
    config.path = put("zero.txt", "");
    ck_refused(config, "no tokens in ");
    config.path = put("bad.txt", "fine\xff");
    ck_refused(config, "bad.txt: is not UTF-8: byte 0xff at offset 4");
    config = good;
    config.rows = 4;
    ck_refused(config, "3 rows of 4; a batch needs 4 rows");
    config = good;
    config.vocab = 256;
    ck_refused(config, "tokenizer \"byte\" has 258 tokens, vocab_size is 256");
    config = good;
    config.max_segments = 3;
    ck_refused(config, "max_segments_per_seq=3");
    config = good;
    config.kind = "txet";
    ck_refused(config, "unrecognized kind of dataset \"txet\"\nhint: did you mean \"text\"");
}
END_TEST

START_TEST(bundled_corpus) {
    MxDataConfig config = text_config("corpus/shakespeare_train.txt");
    config.length = 128;
    MxDataset *dataset = open_data(config);
    const char *said = mx_data_describe(dataset);
    ck_assert_msg(mx_text_has_suffix(said, "/share/mxtrain/corpus/shakespeare_train.txt, 1003859 "
                                           "tokens, 7843 rows of 128"),
                  "%s", said);
}
END_TEST

START_TEST(synthetic) {
    MxDataConfig config = {.kind = "synthetic", .rows = 2, .length = 4, .vocab = 7, .n_epochs = 1};
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), -1);
    MxBatch first = batch_at(dataset, 0), later = batch_at(dataset, 1000);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        ck_assert_mem_eq(first.field[f], later.field[f], 8 * sizeof(int32_t));
    for (int r = 0; r < 2; r++) {
        for (int t = 0; t < 4; t++) {
            int32_t token = first.field[MX_INPUTS][r * 4 + t];
            ck_assert(token >= 0 && token < 7);
            if (t) ck_assert_int_eq(token, first.field[MX_TARGETS][r * 4 + t - 1]);
        }
        ck_row(first, MX_INPUTS_POSITION, r, 0, 1, 2, 3);
        ck_row(first, MX_TARGETS_SEGMENTATION, r, 1, 1, 1, 1);
    }
    ck_assert_mem_ne(first.field[MX_INPUTS], first.field[MX_INPUTS] + 4, 4 * sizeof(int32_t));
}
END_TEST

START_TEST(synthetic_segments) {
    enum { ROWS = 16, LENGTH = 64, MOST = 5 };
    MxDataConfig config = {.kind = "synthetic",
                           .rows = ROWS,
                           .length = LENGTH,
                           .vocab = 100,
                           .packing = true,
                           .max_segments = MOST};
    MxBatch batch = mx_batch_new(&arena, ROWS, LENGTH);
    ck_assert_int_eq(mx_data_batch(open_data(config), 3, &batch, &err), MX_DATA_OK);
    int most = 0, counts[4] = {0};
    for (int r = 0; r < ROWS; r++) {
        const int32_t *segment = batch.field[MX_INPUTS_SEGMENTATION] + r * LENGTH;
        const int32_t *position = batch.field[MX_INPUTS_POSITION] + r * LENGTH;
        ck_assert(segment[0] == 1 && position[0] == 0);
        for (int t = 1; t < LENGTH; t++) {
            bool same = segment[t] == segment[t - 1];
            ck_assert(same || segment[t] == segment[t - 1] + 1);
            ck_assert_int_eq(position[t], same ? position[t - 1] + 1 : 0);
        }
        if (segment[LENGTH - 1] > most) most = segment[LENGTH - 1];
        for (int t = 0; t < LENGTH; t++) counts[batch.field[MX_INPUTS][r * LENGTH + t] / 25]++;
    }
    ck_assert_int_eq(most, MOST);
    for (int i = 0; i < 4; i++) ck_assert(counts[i] > 200 && counts[i] < 312); /* 256 expected */
}
END_TEST

/* However many are allowed, a row has no more than tokens, and is made at once. */
START_TEST(synthetic_segments_without_end) {
    enum { LENGTH = 64 };
    MxDataConfig config = {.kind = "synthetic",
                           .rows = 1,
                           .length = LENGTH,
                           .vocab = 100,
                           .packing = true,
                           .max_segments = INT64_C(1) << 40};
    MxBatch batch = mx_batch_new(&arena, 1, LENGTH);
    ck_assert_int_eq(mx_data_batch(open_data(config), 0, &batch, &err), MX_DATA_OK);
    int32_t last = batch.field[MX_INPUTS_SEGMENTATION][LENGTH - 1];
    ck_assert(last > 16 && last <= LENGTH);
}
END_TEST

/* ---- rows that are held out */

/* n rows of 4 tokens, each its own. */
static MxDataset *numbered_rows(int n, int64_t rows, bool shuffle) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < n; i++) mx_text_add(&text, "%04d", i);
    mx_text_add(&text, "."); /* the last row's last target */
    MxDataConfig config = text_config(put("numbers.txt", text.data));
    config.omits_bos = config.omits_eos = true;
    config.rows = rows;
    config.shuffle = shuffle;
    return open_data(config);
}

/* Which row of numbered data a row of a batch is. */
static int number_of(const MxBatch *batch, int64_t row) {
    const int32_t *ids = batch->field[MX_INPUTS] + row * batch->length;
    return (ids[0] - '0') * 1000 + (ids[1] - '0') * 100 + (ids[2] - '0') * 10 + ids[3] - '0';
}

static const struct {
    int n;
    double share;
    int64_t rows, held;
} shares[] = {{100, 0.05, 1, 5}, {101, 0.05, 1, 5}, {97, 0.3, 1, 29},
              {40, 0.01, 4, 4},  {13, 0.5, 2, 6},   {2, 0.05, 1, 1}};

/* Every row is in one of the two, in order, and those held out lie evenly. */
START_TEST(rows_are_held_out) {
    int n = shares[_i].n, seen[128] = {0};
    MxDataset *train = numbered_rows(n, 1, false), *eval;
    ck_assert(mx_data_hold_out(&arena, train, shares[_i].share, shares[_i].rows, &eval, &err));
    ck_assert_int_eq(mx_data_steps(train), n - shares[_i].held);
    ck_assert_int_eq(mx_data_steps(eval), shares[_i].held / shares[_i].rows);
    MxDataset *both[] = {train, eval};
    for (int side = 0; side < 2; side++) {
        int64_t rows = side ? shares[_i].rows : 1, last = -1, every = n / shares[_i].held;
        MxBatch batch = mx_batch_new(&arena, rows, 4);
        for (int64_t step = 0; step < mx_data_steps(both[side]); step++) {
            ck_assert_int_eq(mx_data_batch(both[side], step, &batch, &err), MX_DATA_OK);
            for (int64_t r = 0; r < rows; r++) {
                int number = number_of(&batch, r);
                ck_assert(number > last && !seen[number]++);
                int64_t apart = number - last;
                ck_assert(!side || last < 0 || apart == every || apart == every + 1);
                last = number;
            }
        }
    }
    for (int i = 0; i < n; i++) ck_assert_int_eq(seen[i], 1);
    ck_assert_ptr_nonnull(strstr(mx_data_describe(train), "are held out"));
}
END_TEST

START_TEST(too_few_to_hold_out) {
    MxDataset *train = numbered_rows(9, 4, false), *eval;
    ck_assert(!mx_data_hold_out(&arena, train, 0.05, 6, &eval, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "too little data to hold a share out"));
}
END_TEST

/* A shuffled epoch has every row that is left, and none that is held out. */
START_TEST(shuffled_rows_are_the_others) {
    MxDataset *train = numbered_rows(60, 1, true), *eval;
    ck_assert(mx_data_hold_out(&arena, train, 0.1, 1, &eval, &err));
    int seen[60] = {0};
    MxBatch batch = mx_batch_new(&arena, 1, 4);
    for (int64_t step = 0; step < 60; step++) {
        MxDataset *from = step < 54 ? train : eval;
        ck_assert_int_eq(mx_data_batch(from, step < 54 ? step : step - 54, &batch, &err),
                         MX_DATA_OK);
        ck_assert(!seen[number_of(&batch, 0)]++);
    }
}
END_TEST

/* ---- files of other formats */

static const struct {
    const char *name, *bytes;
    size_t n;
} others[] = {{"ORC", "ORC\x15\x04", 5},
              {"xz",
               "\xfd"
               "7zXZ",
               5},
              {"zip", "PK\x03\x04", 4},
              {"HDF5", "\x89HDF\r\n\x1a\n", 8},
              {"UTF-16", "\xff\xfe{\0", 4},
              {"SQLite", "SQLite format 3", 16},
              {"bzip2", "BZh9", 4}};

START_TEST(other_formats_have_a_name) {
    char *path = in_folder("a.jsonl");
    ck_assert(mx_file_write(path, others[_i].bytes, others[_i].n, &err));
    MxDataConfig config = text_config(path);
    ck_refused(config, mx_arena_printf(&arena, "is %s, wanted text in UTF-8", others[_i].name));
    config.kind = "hf";
    const char *words = mx_arena_printf(&arena, "is %s, wanted JSON Lines", others[_i].name);
    ck_refused(config, words);
    ck_assert(!mx_data_find(&config, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, words));
    ck_assert_int_eq(err.count, 1);
}
END_TEST

Suite *text_suite(void) {
    Suite *suite = suite_create("data: text and synthetic");
    TCase *tests = tcase_create("text");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, one_document);
    tcase_add_test(tests, packed_documents);
    tcase_add_test(tests, bare_documents);
    tcase_add_test(tests, borders_inside_rows);
    tcase_add_test(tests, without_packing);
    tcase_add_test(tests, shuffles);
    tcase_add_loop_test(tests, shuffles_any_size, 2, 70);
    tcase_add_test(tests, refuses);
    tcase_add_test(tests, bundled_corpus);
    tcase_add_test(tests, synthetic);
    tcase_add_test(tests, synthetic_segments);
    tcase_add_test(tests, synthetic_segments_without_end);
    tcase_add_loop_test(tests, rows_are_held_out, 0, MX_COUNT(shares));
    tcase_add_test(tests, too_few_to_hold_out);
    tcase_add_test(tests, shuffled_rows_are_the_others);
    tcase_add_loop_test(tests, other_formats_have_a_name, 0, MX_COUNT(others));
    suite_add_tcase(suite, tests);
    return suite;
}
