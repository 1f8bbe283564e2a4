/* test_olmo.c — files of token ids that an index names: rows as MaxText's own pipeline makes them
 * (scripts/golden_olmo.py), headers of NumPy, paths that moved, and what is wrong with an index. */
#include "data_test.h"

static MxDataConfig config_of(const char *index) {
    return (MxDataConfig){
        .kind = "olmo_grain", .path = index, .rows = 1, .length = 4, .vocab = 60, .n_epochs = 1};
}

static MxBatch row_at(MxDataset *dataset, int64_t step, int64_t length) {
    MxBatch batch = mx_batch_new(&arena, 1, length);
    ck_assert_msg(mx_data_batch(dataset, step, &batch, &err) == MX_DATA_OK, "%s",
                  err.count ? err.text.data : "");
    return batch;
}

/* ---- MaxText's rows */

START_TEST(equals_maxtext) {
    enum { ROWS = 13, LENGTH = 128 };
    static const MxBatchField fields[] = {MX_INPUTS, MX_TARGETS, MX_INPUTS_POSITION,
                                          MX_INPUTS_SEGMENTATION, MX_TARGETS_SEGMENTATION};
    MxDataConfig config = config_of(goldens_need(&arena, "rows/olmo/index.json"));
    MxH5 *file;
    config.length = LENGTH;
    config.masks_repeats = true;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), ROWS);
    ck_assert(mx_h5_open(&arena, goldens_need(&arena, "rows/olmo/expected.h5"), &file, &err));
    for (int f = 0; f < MX_COUNT(fields); f++) {
        int32_t *want = mx_new_n(&arena, int32_t, ROWS * LENGTH);
        ck_assert(mx_h5_read(file, mx_batch_field_name(fields[f]), MX_I32, MX_SHAPE(ROWS, LENGTH),
                             want, &err));
        for (int step = 0; step < ROWS; step++)
            ck_values(row_at(dataset, step, LENGTH).field[fields[f]], want + step * LENGTH, LENGTH);
    }
}
END_TEST

/* ---- how tokens are stored */

static char *put_bytes(const char *name, const void *bytes, size_t n) {
    char *path = in_folder(name);
    ck_assert(mx_file_write(path, bytes, n, &err));
    return path;
}

/* Tokens 0, 1, … in little-endian order. */
static void put_tokens(const char *name, int n, int bytes) {
    uint8_t *stored = mx_new_n(&arena, uint8_t, n * bytes);
    for (int i = 0; i < n; i++) stored[i * bytes] = (uint8_t)i;
    put_bytes(name, stored, (size_t)(n * bytes));
}

static const struct {
    const char *dtype;
    int bytes;
} stored[] = {{"uint8", 1}, {"uint16", 2}, {"uint32", 4},
              {"int32", 4}, {"int64", 8},  {"uint64", 8}};

/* Files lie beside the index; what is left of one makes no row with the next one's tokens. */
START_TEST(all_types) {
    put_tokens("a.bin", 9, stored[_i].bytes);
    put_tokens("b.bin", 3, stored[_i].bytes);
    put_tokens("c.bin", 4, stored[_i].bytes);
    MxDataset *dataset = open_data(config_of(
        put("i.json", mx_arena_printf(&arena,
                                      "{\"dtype\": \"%s\", \"files\": [{\"path\": \"a.bin\"}, "
                                      "{\"path\": \"b.bin\"}, {\"path\": \"c.bin\"}]}",
                                      stored[_i].dtype))));
    ck_assert_int_eq(mx_data_steps(dataset), 3);
    MxBatch batch = row_at(dataset, 1, 4);
    ck_row(batch, MX_INPUTS, 0, 4, 5, 6, 7);
    ck_row(batch, MX_TARGETS, 0, 5, 6, 7, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0);
    batch = row_at(dataset, 2, 4);
    ck_row(batch, MX_INPUTS, 0, 0, 1, 2, 3);
}
END_TEST

/* A header as numpy.save writes it, of version 1, with uint16 tokens 7, 8, 9, 10 behind it. */
static char *with_header(const char *descr, const char *shape) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    while ((10 + text.len) % 64 != 63) mx_text_add(&text, " ");
    mx_text_add(&text, "\n");
    const uint8_t tokens[] = {7, 0, 8, 0, 9, 0, 10, 0};
    uint8_t *bytes = mx_new_n(&arena, uint8_t, 10 + (int64_t)text.len + (int64_t)sizeof tokens);
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (uint8_t)text.len;
    memcpy(bytes + 10, text.data, text.len);
    memcpy(bytes + 10 + text.len, tokens, sizeof tokens);
    return put_bytes("a.npy", bytes, 10 + text.len + sizeof tokens);
}

static char *index_of(const char *members) {
    return put("i.json", mx_arena_printf(&arena, "{\"dtype\": \"uint16\", %s}", members));
}

#define A_NPY "\"files\": [{\"path\": \"a.npy\"}]"

START_TEST(headers) {
    with_header("<u2", "4,");
    MxBatch batch = row_at(open_data(config_of(index_of(A_NPY))), 0, 4);
    ck_row(batch, MX_INPUTS, 0, 7, 8, 9, 10);
    with_header("<i8", "1,");
    ck_refused(config_of(index_of(A_NPY)), "a.npy: holds <i8, wanted <u2 (uint16)");
    with_header("<u2", "2, 2");
    ck_refused(config_of(index_of(A_NPY)), "a.npy: has the shape (2, 2), wanted one dim");
    put_bytes("a.npy", "\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
    ck_refused(config_of(index_of(A_NPY)),
               "a.npy: has a header of 2147483647 bytes, wanted at most 0");
}
END_TEST

/* ---- paths and rows */

START_TEST(moved_files) {
    put_tokens("a.npy", 8, 2);
    MxDataConfig config = config_of(index_of("\"files\": [{\"path\": \"gs://there/a.npy\"}]"));
    ck_refused(config, "hint: olmo_path_remap_from and olmo_path_remap_to replace how paths begin");
    config.moved_from = "gs://there";
    config.moved_to = folder;
    ck_assert_int_eq(mx_data_steps(open_data(config)), 2);
}
END_TEST

START_TEST(a_token_that_is_none) {
    put_tokens("a.npy", 8, 2);
    MxDataConfig config = config_of(index_of(A_NPY));
    config.vocab = 6;
    MxDataset *dataset = open_data(config);
    MxBatch batch = mx_batch_new(&arena, 1, 4);
    ck_assert_int_eq(mx_data_batch(dataset, 0, &batch, &err), MX_DATA_OK);
    ck_assert_int_eq(mx_data_batch(dataset, 1, &batch, &err), MX_DATA_ERROR);
    const char *words = "a.npy: token 6 is 6, wanted 0 to 5 (vocab_size=6)";
    ck_assert_msg(strstr(err.text.data, words) != NULL, "%s", err.text.data);
    mx_error_release(&err);
}
END_TEST

/* A file that becomes shorter while it is used loses nothing else. */
START_TEST(a_file_that_is_cut) {
    put_tokens("a.npy", 8, 2);
    MxDataset *dataset = open_data(config_of(index_of(A_NPY)));
    MxBatch batch = mx_batch_new(&arena, 1, 4);
    put_tokens("a.npy", 5, 2);
    ck_assert_int_eq(mx_data_batch(dataset, 1, &batch, &err), MX_DATA_ERROR);
    const char *words = "a.npy: ends at byte 10, wanted tokens up to byte 16";
    ck_assert_msg(strstr(err.text.data, words) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    ck_assert_int_eq(mx_data_batch(dataset, 0, &batch, &err), MX_DATA_OK);
}
END_TEST

static const struct {
    const char *text, *words;
} wrong[] = {
    {"{\"dtype\": \"float32\", " A_NPY "}",
     "i.json: dtype: found float32, wanted uint8, uint16, uint32, uint64, int32 or int64"},
    {"{" A_NPY "}", "i.json: dtype: found nothing, wanted uint8"},
    {"{\"dtype\": \"uint16\"}", "i.json: files: found nothing, wanted a list of files"},
    {"{\"dtype\": \"uint16\", \"files\": [{\"path\": 1}]}", "files[0] has no \"path\", a text"},
    {"{\"dtype\": \"uint16\", \"files\": [{\"path\": \"a.npy\", \"n_tokens\": 7}]}",
     "a.npy: has 8 tokens, the index says 7"},
    {"{\"dtype\": \"uint16\", \"files\": [{\"path\": \"a.npy\", \"n_tokens\": \"8\"}]}",
     "files[0]: n_tokens is a text, wanted a number of tokens"},
    {"{\"dtype\": \"uint64\", \"files\": [{\"path\": \"odd.npy\"}]}",
     "odd.npy: has 12 bytes of tokens, wanted a multiple of 8 (uint64)"},
    {"{\"dtype\": \"uint16\", \"sequence_length\": 8, " A_NPY "}",
     "sequence_length is 8, max_target_length is 4"},
    {"{\"dtype\": \"uint16\", \"format_version\": \"2\", " A_NPY "}",
     "format_version: found \"2\", wanted \"1\""},
    {"{\"dtype\": \"uint16\", \"files\": [{\"path\": \"b.npy\"}]}", "cannot open \"b.npy\""},
    {"[]", "i.json"},
    {"{\"dtype\"", "i.json:1"},
};

START_TEST(wrong_indices) {
    put_tokens("a.npy", 8, 2);
    put_tokens("odd.npy", 6, 2);
    ck_refused(config_of(put("i.json", wrong[_i].text)), wrong[_i].words);
}
END_TEST

Suite *olmo_suite(void) {
    Suite *suite = suite_create("olmo");
    TCase *tests = tcase_create("files of tokens");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, equals_maxtext);
    tcase_add_loop_test(tests, all_types, 0, MX_COUNT(stored));
    tcase_add_test(tests, headers);
    tcase_add_test(tests, moved_files);
    tcase_add_test(tests, a_token_that_is_none);
    tcase_add_test(tests, a_file_that_is_cut);
    tcase_add_loop_test(tests, wrong_indices, 0, MX_COUNT(wrong));
    suite_add_tcase(suite, tests);
    return suite;
}
