/* test_data.c — runs the suites of the room, and holds what they share. */
#include "data_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;
char *folder;

void set_up(void) {
    folder = scratch_make(&arena);
}

void tear_down(void) {
    scratch_remove(folder);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

char *in_folder(const char *name) {
    return mx_path_join(&arena, folder, name);
}

char *put(const char *name, const char *text) {
    char *path = in_folder(name);
    ck_assert(mx_file_write(path, text, strlen(text), &err));
    return path;
}

MxDataConfig text_config(const char *path) {
    MxTokenizer *tokenizer;
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    return (MxDataConfig){.kind = "text",
                          .path = path,
                          .tokenizer = tokenizer,
                          .rows = 2,
                          .length = 4,
                          .vocab = 258,
                          .packing = true,
                          .n_epochs = 1};
}

MxDataset *open_data(MxDataConfig config) {
    MxDataset *dataset;
    bool ok = mx_data_open(&arena, &config, &dataset, &err);
    ck_assert_msg(ok, "%s", err.count ? err.text.data : "failed without a message");
    return dataset;
}

void ck_refused(MxDataConfig config, const char *words) {
    MxDataset *dataset;
    ck_assert_msg(!mx_data_open(&arena, &config, &dataset, &err), "no error, wanted \"%s\"", words);
    ck_assert_msg(strstr(err.text.data, words) != NULL, "\"%s\" lacks \"%s\"", err.text.data,
                  words);
    mx_error_release(&err);
}

MxBatch batch_at(MxDataset *dataset, int64_t step) {
    const char *text = mx_data_describe(dataset);
    ck_assert_ptr_nonnull(text);
    MxBatch batch = mx_batch_new(&arena, 2, 4);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) /* nothing may rely on zeroed arrays */
        memset(batch.field[f], 0x55, 8 * sizeof(int32_t));
    MxDataStatus status = mx_data_batch(dataset, step, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

void ck_same_rows(MxDataConfig a, MxDataConfig b) {
    MxDataset *of_a = open_data(a), *of_b = open_data(b);
    MxBatch x = mx_batch_new(&arena, a.rows, a.length), y = mx_batch_new(&arena, b.rows, b.length);
    ck_assert_int_eq(mx_data_steps(of_a), mx_data_steps(of_b));
    ck_assert_int_gt(mx_data_steps(of_a), 0);
    for (int64_t step = 0; step < mx_data_steps(of_a); step++) {
        ck_assert_int_eq(mx_data_batch(of_a, step, &x, &err), MX_DATA_OK);
        ck_assert_int_eq(mx_data_batch(of_b, step, &y, &err), MX_DATA_OK);
        for (int f = 0; f < MX_BATCH_FIELDS; f++)
            ck_values(x.field[f], y.field[f], (int)(a.rows * a.length));
    }
}

void ck_values(const int32_t *got, const int32_t *want, int n) {
    for (int i = 0; i < n; i++)
        ck_assert_msg(got[i] == want[i], "[%d] %d, wanted %d", i, got[i], want[i]);
}

int main(void) {
    return RUN_SUITES(text_suite(), hdf5_suite(), pairs_suite(), olmo_suite(), rows_suite(),
                      records_suite(), groups_suite(), threads_suite(), tables_suite(),
                      talks_suite(), cache_suite(), blocks_suite(), c4_suite(), formats_suite(),
                      parts_suite(), images_suite(), loader_suite(), ids_suite(),
                      golden_rows_suite(), pieces_suite(), questions_suite(), turns_suite());
}
