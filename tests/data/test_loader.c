/* test_loader.c — the thread that works ahead: the same batches as a direct call, at any depth,
 * with nothing allocated on the way; ends, errors and shutdown at any moment. */
#include "data_test.h"

#include <unistd.h>

static MxDataConfig corpus(void) {
    MxDataConfig config = text_config("share/mxtrain/corpus/shakespeare_val.txt");
    config.rows = 3;
    config.length = 32;
    config.shuffle = true;
    config.n_epochs = -1;
    return config;
}

/* Index i = depth. */
START_TEST(equals_direct) {
    enum { STEPS = 50, FIRST = 7 };
    MxDataset *direct = open_data(corpus());
    MxBatch want = mx_batch_new(&arena, 3, 32), got;
    MxLoader *loader;
    ck_assert(mx_loader_open(
        &arena, &(MxLoaderConfig){.dataset = open_data(corpus()), .first_step = FIRST, .depth = _i},
        &loader, &err));
    uint64_t allocs = mx_host_alloc_count();
    for (int64_t step = FIRST; step < FIRST + STEPS; step++) {
        ck_assert_int_eq(mx_data_batch(direct, step, &want, &err), MX_DATA_OK);
        ck_assert_int_eq(mx_loader_next(loader, 1, &got, &err), MX_DATA_OK);
        if (step % 8 == 0) usleep(500); /* let the thread run ahead as far as it may */
        for (int f = 0; f < MX_BATCH_FIELDS; f++)
            ck_assert_mem_eq(got.field[f], want.field[f], 3 * 32 * sizeof(int32_t));
    }
    ck_assert_uint_eq(mx_host_alloc_count(), allocs);
    mx_loader_close(loader);
    mx_loader_close(loader);
}
END_TEST

/* As many as are asked for, one after the other, and valid until the next call. */
START_TEST(hands_several_over) {
    static const int64_t sizes[] = {1, 4, 2, 4, 4, 1, 3};
    MxDataset *direct = open_data(corpus());
    MxBatch want = mx_batch_new(&arena, 3, 32), got;
    MxLoader *loader;
    int64_t step = 0;
    ck_assert(mx_loader_open(
        &arena,
        &(MxLoaderConfig){
            .dataset = open_data(corpus()), .first_step = 0, .depth = 1 + _i, .most = 4},
        &loader, &err));
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        ck_assert_int_eq(mx_loader_next(loader, sizes[i], &got, &err), MX_DATA_OK);
        usleep(500);
        int64_t n = 0;
        for (const MxBatch *one = &got; one; one = one->next, n++) {
            ck_assert_int_eq(mx_data_batch(direct, step++, &want, &err), MX_DATA_OK);
            for (int f = 0; f < MX_BATCH_FIELDS; f++)
                ck_assert_mem_eq(one->field[f], want.field[f], 3 * 32 * sizeof(int32_t));
        }
        ck_assert_int_eq(n, sizes[i]);
    }
    mx_loader_close(loader);
}
END_TEST

START_TEST(ends) {
    MxDataConfig config = text_config(put("a.txt", "abcdefghijklmn")); /* 4 rows */
    MxLoader *loader;
    MxBatch batch;
    ck_assert(mx_loader_open(
        &arena, &(MxLoaderConfig){.dataset = open_data(config), .first_step = 0, .depth = 2},
        &loader, &err));
    ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_OK);
    ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_END);
    ck_assert_int_eq(err.count, 0);
}
END_TEST

/* An error comes in its turn, after the good batches before it. */
START_TEST(hands_errors_over) {
    MxH5 *file;
    int32_t tokens[6][4] = {{0}};
    tokens[4][1] = 99;
    ck_assert(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    ck_assert(mx_h5_write(file, "inputs", MX_I32, MX_SHAPE(6, 4), tokens, &err));
    ck_assert(mx_h5_write(file, "targets", MX_I32, MX_SHAPE(6, 4), tokens, &err));
    ck_assert(mx_h5_close(file, &err));
    MxDataConfig config = {.kind = "hdf5",
                           .path = in_folder("a.h5"),
                           .rows = 2,
                           .length = 4,
                           .vocab = 60,
                           .n_epochs = 1};
    MxLoader *loader;
    MxBatch batch;
    ck_assert(mx_loader_open(
        &arena, &(MxLoaderConfig){.dataset = open_data(config), .first_step = 0, .depth = 2},
        &loader, &err));
    ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_OK);
    ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_ERROR);
        ck_assert_ptr_nonnull(strstr(err.text.data, "row 4, column 1: token 99"));
        ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
        mx_error_release(&err);
    }
}
END_TEST

/* Closed with its arena, after i batches, at whatever the thread is doing. */
START_TEST(closes_at_any_moment) {
    for (int depth = 1; depth <= 3; depth++) {
        MxArena brief = {.name = "brief"};
        MxDataConfig config = corpus();
        MxDataset *dataset;
        MxLoader *loader;
        MxBatch batch;
        ck_assert(mx_data_open(&brief, &config, &dataset, &err));
        ck_assert(mx_loader_open(
            &brief, &(MxLoaderConfig){.dataset = dataset, .first_step = 0, .depth = depth}, &loader,
            &err));
        for (int i = 0; i < _i; i++)
            ck_assert_int_eq(mx_loader_next(loader, 1, &batch, &err), MX_DATA_OK);
        mx_arena_release(&brief);
    }
}
END_TEST

Suite *loader_suite(void) {
    Suite *suite = suite_create("data: loader");
    TCase *tests = tcase_create("loader");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, equals_direct, 1, 5);
    tcase_add_loop_test(tests, hands_several_over, 0, 3);
    tcase_add_test(tests, ends);
    tcase_add_test(tests, hands_errors_over);
    tcase_add_loop_test(tests, closes_at_any_moment, 0, 8);
    suite_add_tcase(suite, tests);
    return suite;
}
