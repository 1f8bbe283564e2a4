/* test_hdf5_data.c — prepared batches in HDF5: shapes, missing fields, rows in order, values that
 * no model could use. */
#include "data_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* 6 rows of 4 tokens: row r is 10r, 10r+1, …; targets one more. */
static void write_tokens(MxH5 *file, const char *group, MxShape shape, MxDtype dtype) {
    for (int f = MX_INPUTS; f <= MX_TARGETS; f++) {
        int64_t wide[24];
        int32_t narrow[24];
        uint8_t bytes[24];
        for (int i = 0; i < 24; i++) {
            wide[i] = i / 4 * 10 + i % 4 + f;
            narrow[i] = (int32_t)wide[i];
            bytes[i] = (uint8_t)wide[i];
        }
        const void *data = dtype == MX_I64   ? (void *)wide
                           : dtype == MX_I32 ? (void *)narrow
                                             : bytes;
        char *path = mx_path_join(&arena, group, mx_batch_field_name((MxBatchField)f));
        ck_assert(mx_h5_write(file, path, dtype, shape, data, &err));
    }
}

static MxH5 *create(void) {
    MxH5 *file;
    ck_assert(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    return file;
}

static void write_field(MxH5 *file, MxBatchField field, const int32_t *values) {
    ck_assert(mx_h5_write(file, mx_batch_field_name(field), MX_I32, MX_SHAPE(6, 4), values, &err));
}

static MxDataConfig config_of(MxH5 *file, const char *group) {
    ck_assert(mx_h5_close(file, &err));
    char *path = mx_arena_printf(&arena, "%s:%s", mx_h5_path(file), group);
    return (MxDataConfig){
        .kind = "hdf5", .path = path, .rows = 2, .length = 4, .vocab = 60, .n_epochs = 1};
}

static const struct {
    MxShape shape;
    MxDtype dtype;
} stored[] = {
    {{2, {6, 4}}, MX_I32},
    {{3, {2, 3, 4}}, MX_I64},
    {{3, {3, 2, 4}}, MX_U8},
    {{3, {6, 1, 4}}, MX_I32},
};

/* However they are stored, the rows come in order; positions and segments are made up. */
START_TEST(rows_in_order) {
    MxH5 *file = create();
    write_tokens(file, "train/batches", stored[_i].shape, stored[_i].dtype);
    MxDataset *dataset = open_data(config_of(file, "train/batches"));
    ck_assert_int_eq(mx_data_steps(dataset), 3);
    for (int step = 2; step >= 0; step--) {
        MxBatch batch = batch_at(dataset, step);
        for (int r = 0; r < 2; r++) {
            int32_t first = (2 * step + r) * 10;
            ck_row(batch, MX_INPUTS, r, first, first + 1, first + 2, first + 3);
            ck_row(batch, MX_TARGETS, r, first + 1, first + 2, first + 3, first + 4);
            ck_row(batch, MX_INPUTS_POSITION, r, 0, 1, 2, 3);
            ck_row(batch, MX_TARGETS_SEGMENTATION, r, 1, 1, 1, 1);
        }
    }
    MxBatch none = mx_batch_new(&arena, 2, 4);
    ck_assert_int_eq(mx_data_batch(dataset, 3, &none, &err), MX_DATA_END);
}
END_TEST

/* 6 rows are one batch of 4; the 2 left over are dropped, once, at the end of the last epoch. */
START_TEST(drops_the_remainder) {
    MxH5 *file = create();
    write_tokens(file, "", MX_SHAPE(6, 4), MX_I32);
    MxDataConfig config = config_of(file, "");
    config.rows = 4;
    ck_assert_int_eq(mx_data_steps(open_data(config)), 1);
    config.n_epochs = 3;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 4);
    MxBatch batch = mx_batch_new(&arena, 4, 4);
    ck_assert_int_eq(mx_data_batch(dataset, 1, &batch, &err), MX_DATA_OK);
    ck_assert(batch.field[MX_INPUTS][0] == 40 && batch.field[MX_INPUTS][8] == 0);
    ck_assert_str_eq(mx_data_end_reason(dataset),
                     "the data ends after 4 batches of 4 rows: 3 epochs of 6 rows");
}
END_TEST

/* One segmentation serves for both; where it says padding, made-up positions are 0, and a token of
 * -1 is what pipelines without a padding token write. */
START_TEST(stored_segments) {
    MxH5 *file = create();
    int32_t inputs[24], segments[24];
    for (int i = 0; i < 24; i++) {
        inputs[i] = i % 4 == 3 ? -1 : i;
        segments[i] = i % 4 == 3 ? 0 : 1 + i % 4 / 2;
    }
    write_field(file, MX_INPUTS, inputs);
    write_field(file, MX_TARGETS, inputs);
    write_field(file, MX_TARGETS_SEGMENTATION, segments);
    MxBatch batch = batch_at(open_data(config_of(file, "")), 0);
    ck_row(batch, MX_INPUTS, 1, 4, 5, 6, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 1, 1, 1, 2, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 1, 1, 2, 0);
    ck_row(batch, MX_INPUTS_POSITION, 1, 0, 1, 2, 0);
}
END_TEST

static const struct {
    MxBatchField field;
    int32_t value;
    const char *words;
} bad_values[] = {
    {MX_INPUTS, 60, "\"inputs\", row 5, column 2: token 60, wanted 0 … 59"},
    {MX_TARGETS, -1, "\"targets\", row 5, column 2: token -1, wanted 0 … 59"},
    {MX_INPUTS_POSITION, -3, "\"inputs_position\", row 5, column 2: position -3"},
    {MX_TARGETS_SEGMENTATION, -1, "\"targets_segmentation\", row 5, column 2: segment -1"},
};

START_TEST(bad_value) {
    MxH5 *file = create();
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        int32_t values[24];
        for (int i = 0; i < 24; i++) values[i] = 1;
        if (f == (int)bad_values[_i].field) values[22] = bad_values[_i].value;
        write_field(file, (MxBatchField)f, values);
    }
    MxDataset *dataset = open_data(config_of(file, ""));
    batch_at(dataset, 1);
    MxBatch batch = mx_batch_new(&arena, 2, 4);
    ck_assert_int_eq(mx_data_batch(dataset, 2, &batch, &err), MX_DATA_ERROR);
    ck_assert_msg(strstr(err.text.data, bad_values[_i].words) != NULL, "%s", err.text.data);
    ck_assert_ptr_nonnull(strstr(err.text.data, "a.h5: "));
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
}
END_TEST

START_TEST(refuses) {
    MxH5 *file = create();
    float x[24] = {0};
    write_tokens(file, "good", MX_SHAPE(6, 4), MX_I32);
    write_tokens(file, "flat", MX_SHAPE(24), MX_I32);
    write_tokens(file, "uneven", MX_SHAPE(6, 4), MX_I32);
    ck_assert(mx_h5_write(file, "uneven/inputs_position", MX_I32, MX_SHAPE(5, 4), x, &err));
    ck_assert(mx_h5_write(file, "float/inputs", MX_F32, MX_SHAPE(6, 4), x, &err));
    ck_assert(mx_h5_write(file, "lonely/inputs", MX_I32, MX_SHAPE(6, 4), x, &err));
    MxDataConfig config = config_of(file, "good"), other;
    open_data(config);
    static const struct {
        const char *group, *words;
    } cases[] = {
        {"none", "no group \"none\""},
        {"flat", "\"flat/inputs\" has shape [24], wanted [rows, length] or [steps, batch, length]"},
        {"uneven", "\"uneven/inputs_position\" has shape [5, 4], wanted [6, 4]"},
        {"float", "\"float/inputs\" holds float32, wanted integers"},
        {"lonely", "\"lonely/targets\": there is none"},
    };
    for (int i = 0; i < MX_COUNT(cases); i++) {
        other = config;
        other.path = mx_arena_printf(&arena, "%s:%s", in_folder("a.h5"), cases[i].group);
        ck_refused(other, cases[i].words);
    }
    other = config;
    other.length = 5;
    ck_refused(other, "has shape [6, 4], rows of 4; max_target_length is 5");
    other = config;
    other.rows = 7;
    ck_refused(other, "6 rows; a batch needs 7 rows");
    other.path = in_folder("none.h5");
    ck_refused(other, "no such file: ");
    other.path = NULL;
    ck_refused(other, "no file given, wanted FILE.h5[:group]");
}
END_TEST

/* MaxText's own batches. */
START_TEST(golden) {
    char *path = goldens_need(&arena, "models/llama2.h5");
    MxDataConfig config = {.kind = "hdf5", .rows = 3, .length = 24, .vocab = 96, .n_epochs = 1};
    config.path = mx_arena_printf(&arena, "%s:train/batches", path);
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 5);
    MxH5 *file;
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    MxBatch batch = mx_batch_new(&arena, 3, 24);
    ck_assert_int_eq(mx_data_batch(dataset, 4, &batch, &err), MX_DATA_OK);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        int32_t want[5][3][24];
        char *name = mx_path_join(&arena, "train/batches", mx_batch_field_name((MxBatchField)f));
        ck_assert(mx_h5_read(file, name, MX_I32, MX_SHAPE(5, 3, 24), want, &err));
        ck_assert_mem_eq(batch.field[f], want[4], sizeof want[4]);
    }
}
END_TEST

/* A row of such a file once unpacked all of it. */
START_TEST(packed_in_one_piece) {
    MxDataConfig config = {.kind = "hdf5",
                           .path = "tests/data/fixtures/packed.h5",
                           .rows = 2,
                           .length = 4,
                           .vocab = 60,
                           .n_epochs = 1};
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 35000);
    clock_t start = clock();
    for (int step = 0; step < 35000; step += 7) {
        MxBatch batch = batch_at(dataset, step);
        int first = 8 * step % 50;
        ck_row(batch, MX_INPUTS, 0, first, (first + 1) % 50, (first + 2) % 50, (first + 3) % 50);
        ck_assert_int_eq(batch.field[MX_TARGETS][0], first + 1);
    }
    ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, 20); /* unpacked each time: a minute */
    config.path = "tests/data/fixtures/huge.h5";
    ck_refused(config, "huge.h5: dataset \"inputs\" is compressed in chunks of 536870912 bytes");
}
END_TEST

/* What is wrong with a file is told by who reads it, not by the child that tries it. */
START_TEST(tried_in_a_child) {
    MxH5 *file = create();
    write_tokens(file, "", MX_SHAPE(6, 4), MX_I32);
    MxDataConfig config = config_of(file, "");
    ck_assert(mx_data_try(&config, &err));
    config.path = put("no.h5", "nothing of the kind");
    ck_assert(mx_data_try(&config, &err));
    ck_assert_int_eq(err.count, 0);
    ck_refused(config, "is not an HDF5 file");
}
END_TEST

/* The same bytes, the same fingerprint; one other byte, another. */
START_TEST(fingerprints) {
    uint64_t hash[3];
    const char *texts[] = {"one file", "one file", "one filf"};
    int n;
    for (int i = 0; i < 3; i++) {
        char *path = put(mx_arena_printf(&arena, "%d.txt", i), texts[i]);
        const MxDataFile *files = mx_data_files(open_data(text_config(path)), &n);
        ck_assert_int_eq(n, 1);
        ck_assert_str_eq(files[0].path, path);
        ck_assert_int_eq(files[0].bytes, 8);
        hash[i] = files[0].hash;
    }
    ck_assert(hash[0] == hash[1] && hash[0] != hash[2]);
    MxH5 *file = create();
    write_tokens(file, "", MX_SHAPE(6, 4), MX_I32);
    MxDataConfig config = config_of(file, "");
    MxBytes bytes;
    const MxDataFile *files = mx_data_files(open_data(config), &n);
    ck_assert(mx_file_read(&arena, in_folder("a.h5"), 1 << 20, &bytes, &err));
    ck_assert(n == 1 && files[0].hash == mx_hash64(bytes.data, bytes.size));
}
END_TEST

Suite *hdf5_suite(void) {
    Suite *suite = suite_create("data: hdf5");
    TCase *tests = tcase_create("hdf5");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, rows_in_order, 0, MX_COUNT(stored));
    tcase_add_test(tests, drops_the_remainder);
    tcase_add_test(tests, stored_segments);
    tcase_add_loop_test(tests, bad_value, 0, MX_COUNT(bad_values));
    tcase_add_test(tests, refuses);
    tcase_add_test(tests, golden);
    tcase_add_test(tests, packed_in_one_piece);
    tcase_add_test(tests, tried_in_a_child);
    tcase_add_test(tests, fingerprints);
    suite_add_tcase(suite, tests);
    return suite;
}
