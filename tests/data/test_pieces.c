/* test_pieces.c — documents that are split into pieces of a row's length instead of truncated; that
 * MaxText makes the same pieces is in test_golden_rows.c. */
#include "data_test.h"

enum { BOS = 256, EOS = 257 };

static MxDataConfig pieces_config(const char *lines) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = 4;
    config.packing = false;
    config.splits = true;
    return config;
}

static MxBatch batch_of(MxDataset *dataset, const MxDataConfig *config, int64_t step) {
    MxBatch batch = mx_batch_new(&arena, config->rows, config->length);
    ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    return batch;
}

static const char lines[] = "{\"text\": \"abcdefg\"}\n{\"text\": \"h\"}\n{\"text\": \"ijk\"}\n";

/* A last piece of one token, which nothing predicts, is left out without a warning. */
START_TEST(pieces) {
    MxDataConfig config = pieces_config(lines);
    MxDataset *dataset = open_data(config);
    const char *told = mx_data_describe(dataset);
    ck_assert_ptr_null(mx_data_warning(dataset));
    ck_assert_msg(strstr(told, "4 pieces (text), 15 tokens, 2 documents split into pieces of at "
                               "most 4, 4 rows"),
                  "%s", told);
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c');
    ck_row(batch, MX_TARGETS, 0, 'a', 'b', 'c', 0);
    batch = batch_of(dataset, &config, 1); /* a document of its own */
    ck_row(batch, MX_INPUTS, 0, 'd', 'e', 'f', 'g');
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 1, 2, 3);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0);
    batch = batch_of(dataset, &config, 2);
    ck_row(batch, MX_INPUTS, 0, BOS, 'h', EOS, 0);
    batch = batch_of(dataset, &config, 3);
    ck_row(batch, MX_INPUTS, 0, BOS, 'i', 'j', 'k');
}
END_TEST

START_TEST(packed_pieces) {
    MxDataConfig config = pieces_config(lines);
    config.packing = true;
    config.length = 6;
    MxDataset *dataset = open_data(config);
    MxBatch batch = batch_of(dataset, &config, 1); /* "fg", eos; bos, "h", eos */
    ck_row(batch, MX_INPUTS, 0, 'f', 'g', EOS, BOS, 'h', EOS);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 2, 2, 2);
}
END_TEST

/* Kept tokens are those of whole documents, so another length finds them all. */
START_TEST(kept_whole) {
    MxDataConfig config = pieces_config(lines);
    config.memory = mx_data_memory_new(&arena);
    config.remembers = true;
    open_data(config);
    config.length = 3;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 6);
    MxBatch batch = batch_of(dataset, &config, 2);
    ck_row(batch, MX_INPUTS, 0, 'f', 'g', EOS);
    config.splits = false;
    ck_assert_int_eq(mx_data_steps(open_data(config)), 3);
}
END_TEST

/* Weights of a mixture count documents, not their pieces. */
START_TEST(mixed) {
    MxDataConfig config = pieces_config(lines);
    MxDataset *dataset;
    config.kind = "grain";
    config.format = "tfrecord";
    config.length = 12;
    config.path = "tests/golden/rows/long.tfrecord,1;tests/golden/rows/long.tfrecord,1";
    ck_assert_msg(mx_data_open(&arena, &config, &dataset, &err), "%s", err.text.data);
    const char *told = mx_data_describe(dataset);
    ck_assert_msg(strstr(told, "14 of 14 of \"tests/golden/rows/long.tfrecord\" (weight 1)"), "%s",
                  told);
}
END_TEST

Suite *pieces_suite(void) {
    Suite *suite = suite_create("data: pieces");
    TCase *cases = tcase_create("pieces");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, pieces);
    tcase_add_test(cases, packed_pieces);
    tcase_add_test(cases, kept_whole);
    tcase_add_test(cases, mixed);
    suite_add_tcase(suite, cases);
    return suite;
}
