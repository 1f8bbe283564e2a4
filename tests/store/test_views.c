/* test_views.c — arrays whose parts are in several files; many parts read at once; hashes of single
 * arrays in a manifest, and their verification by several processes. */
#include "store_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 6, COLUMNS = 10, DEPTH = 4, PARTS = 4 };

static const MxShape whole = {.rank = 3, .dim = {ROWS, COLUMNS, DEPTH}};

/* A quarter of the array: rows and columns halved, unevenly. */
static MxBox quarter(int i) {
    MxBox box = mx_box_of(whole);
    box.start[0] = i / 2 ? 2 : 0;
    box.count[0] = i / 2 ? ROWS - 2 : 2;
    box.start[1] = i % 2 ? 7 : 0;
    box.count[1] = i % 2 ? COLUMNS - 7 : 7;
    return box;
}

static float *numbers(void) {
    float *x = mx_new_n(&arena, float, mx_shape_count(whole));
    for (int i = 0; i < mx_shape_count(whole); i++) x[i] = (float)i * 0.5f;
    return x;
}

static const char *part_name(int i) {
    return mx_arena_printf(&arena, "part%d.h5", i);
}

static MxH5 *create(const char *path) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, path, &file, &err));
    return file;
}

static MxH5 *open_file(const char *path) {
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    return file;
}

/* The array of `dtype` in n of its four parts, and a view of them. */
static const char *write_view(const char *dir, MxDtype dtype, int n) {
    float *x = numbers();
    MxBox all = mx_box_of(whole);
    MxH5Source sources[PARTS];
    ck_ok(mx_dir_make(dir, &err));
    for (int i = 0; i < n; i++) {
        MxBox box = sources[i].box = quarter(i);
        float *values = mx_new_n(&arena, float, mx_box_count(&box));
        MxShape shape = {.rank = 3, .dim = {box.count[0], box.count[1], box.count[2]}};
        mx_box_copy(&box, &all, x, &box, values, sizeof(float));
        MxBf16 *narrow = mx_new_n(&arena, MxBf16, mx_box_count(&box));
        for (int64_t k = 0; k < mx_box_count(&box); k++) narrow[k] = mx_f32_to_bf16(values[k]);
        MxH5 *file = create(mx_path_join(&arena, dir, part_name(i)));
        ck_ok(mx_h5_write(file, "a/x", dtype, shape,
                          dtype == MX_BF16 ? (const void *)narrow : values, &err));
        ck_ok(mx_h5_close(file, &err));
        sources[i].file = part_name(i);
    }
    const char *path = mx_path_join(&arena, dir, "view.h5");
    MxH5 *view = create(path);
    ck_ok(mx_h5_make_virtual(view, "a/x", dtype, whole, sources, n, &err));
    ck_ok(mx_h5_close(view, &err));
    return path;
}

static void ck_box(MxH5 *file, MxBox box, MxDtype stored, MxDtype want) {
    float *x = numbers(), *expected = mx_new_n(&arena, float, mx_box_count(&box));
    MxBox all = mx_box_of(whole);
    mx_box_copy(&box, &all, x, &box, expected, sizeof(float));
    void *got = mx_arena_alloc(&arena, (size_t)mx_box_count(&box) * 8);
    ck_ok(mx_h5_read_box(file, "a/x", want, box, got, &err));
    for (int64_t i = 0; i < mx_box_count(&box); i++) {
        double value = want == MX_F32   ? (double)((float *)got)[i]
                       : want == MX_F64 ? ((double *)got)[i]
                                        : (double)mx_bf16_to_f32(((MxBf16 *)got)[i]);
        bool rounds = stored == MX_BF16 || want == MX_BF16;
        double wanted =
            (double)(rounds ? mx_bf16_to_f32(mx_f32_to_bf16(expected[i])) : expected[i]);
        ck_assert_msg(value == wanted, "element %d is %g, wanted %g", (int)i, value, wanted);
    }
}

/* Of float32 and bfloat16, read as they are and converted, from a folder that was moved. */
START_TEST(views_show_whole_arrays) {
    static const MxDtype cases[][2] = {{MX_F32, MX_F32},
                                       {MX_F32, MX_BF16},
                                       {MX_F32, MX_F64},
                                       {MX_BF16, MX_BF16},
                                       {MX_BF16, MX_F32}};
    const MxDtype *dtypes = cases[_i];
    write_view(in_folder("made"), dtypes[0], PARTS);
    ck_assert_int_eq(rename(in_folder("made"), in_folder("moved")), 0);
    MxH5 *file = open_file(in_folder("moved/view.h5"));
    MxH5Array *arrays;
    int n;
    ck_ok(mx_h5_list(&arena, file, "", &arrays, &n, &err));
    ck_assert(n == 1 && arrays[0].dtype == dtypes[0] && mx_shape_equal(arrays[0].shape, whole));
    ck_box(file, mx_box_of(whole), dtypes[0], dtypes[1]);
    ck_box(file, (MxBox){3, {1, 5, 1}, {3, 4, 2}}, dtypes[0], dtypes[1]); /* meets all four */
    ck_box(file, (MxBox){3, {3, 0, 0}, {1, 7, DEPTH}}, dtypes[0], dtypes[1]);
    for (int i = 0; i < PARTS; i++) ck_box(file, quarter(i), dtypes[0], dtypes[1]);
}
END_TEST

START_TEST(views_want_their_files) {
    MxH5 *file;
    float x[ROWS * COLUMNS * DEPTH];
    const char *path = write_view(in_folder("a"), MX_F32, PARTS);
    ck_assert_int_eq(unlink(in_folder("a/part2.h5")), 0);
    file = open_file(path);
    ck_failed(mx_h5_read(file, "a/x", MX_F32, whole, x, &err), "part2.h5");
    file = open_file(write_view(in_folder("b"), MX_F32, PARTS - 1)); /* a part that nobody has */
    ck_failed(mx_h5_read(file, "a/x", MX_F32, whole, x, &err), "hold 192 of 240 elements");
    ck_box(file, quarter(1), MX_F32, MX_F32);
    write_view(in_folder("c"), MX_F32, PARTS);
    file = create(in_folder("elsewhere.h5"));
    MxH5Source there = {.file = "c/part0.h5", .box = quarter(0)};
    ck_ok(mx_h5_make_virtual(file, "a/x", MX_F32, whole, &there, 1, &err));
    ck_ok(mx_h5_close(file, &err));
    file = open_file(in_folder("elsewhere.h5"));
    ck_failed(mx_h5_read_box(file, "a/x", MX_F32, quarter(0), x, &err), "kept in other files");
}
END_TEST

/* Parts that overlap hold as many elements as the array has, but not all of them: what nobody holds
 * was read as whatever memory had, and verified. */
START_TEST(parts_do_not_overlap) {
    enum { N = 6 };
    static const struct {
        MxBox box[3];
        int n;
        bool overlaps;
    } cases[] = {
        {{{2, {0, 0}, {4, N}}, {2, {2, 0}, {2, N}}}, 2, true}, /* 36 elements, rows 4 and 5 lack */
        {{{2, {0, 0}, {N, 3}}, {2, {0, 2}, {N, 3}}}, 2, true},
        {{{2, {0, 0}, {N, N}}, {2, {5, 5}, {1, 1}}}, 2, true},
        {{{2, {0, 0}, {N, 3}}, {2, {0, 3}, {2, 3}}, {2, {2, 3}, {4, 3}}}, 3, false},
    };
    float x[N * N] = {0};
    MxH5Source sources[3];
    MxShape all = MX_SHAPE(N, N);
    for (int i = 0; i < cases[_i].n; i++) {
        MxBox box = cases[_i].box[i];
        sources[i] = (MxH5Source){.file = part_name(i), .box = box};
        MxH5 *file = create(in_folder(part_name(i)));
        ck_ok(mx_h5_write(file, "x", MX_F32, MX_SHAPE(box.count[0], box.count[1]), x, &err));
        ck_ok(mx_h5_close(file, &err));
    }
    MxH5 *file = create(in_folder("view.h5"));
    ck_ok(mx_h5_make_virtual(file, "x", MX_F32, all, sources, cases[_i].n, &err));
    ck_ok(mx_h5_close(file, &err));
    file = open_file(in_folder("view.h5"));
    if (cases[_i].overlaps)
        ck_failed(mx_h5_read(file, "x", MX_F32, all, x, &err), "part1.h5\" both hold");
    else
        ck_ok(mx_h5_read(file, "x", MX_F32, all, x, &err));
}
END_TEST

/* Layers out of a stack, from files that are one piece, at every place of the layers. */
START_TEST(many_boxes_at_once) {
    enum { N = 37, LAYERS = 5 };
    MxShape shape = MX_SHAPE(N, N, N);
    shape.dim[_i] = LAYERS;
    int64_t count = mx_shape_count(shape);
    float *x = mx_new_n(&arena, float, count), *out[LAYERS];
    for (int64_t i = 0; i < count; i++) x[i] = (float)i;
    MxH5 *file = create(in_folder("x.h5"));
    ck_ok(mx_h5_write(file, "x", MX_F32, shape, x, &err));
    ck_ok(mx_h5_close(file, &err));
    file = open_file(in_folder("x.h5"));
    MxH5Want wants[LAYERS];
    MxBox all = mx_box_of(shape);
    for (int i = 0; i < LAYERS; i++) {
        int layer = (i + 2) % LAYERS;
        MxBox box = all;
        box.start[_i] = layer;
        box.count[_i] = 1;
        out[i] = mx_new_n(&arena, float, mx_box_count(&box));
        wants[i] = (MxH5Want){"x", MX_F32, box, out[i]};
    }
    ck_ok(mx_h5_read_boxes(file, wants, LAYERS, &err));
    for (int i = 0; i < LAYERS; i++) {
        int64_t n = mx_box_count(&wants[i].box);
        float *expected = mx_new_n(&arena, float, n);
        mx_box_copy(&wants[i].box, &all, x, &wants[i].box, expected, sizeof(float));
        ck_assert_mem_eq(out[i], expected, (size_t)n * sizeof(float));
    }
}
END_TEST

/* ---- hashes */

/* A published folder with an HDF5 file of several arrays. */
static const char *publish_arrays(void) {
    MxPublish *publish;
    ck_ok(mx_store_publish_begin(&arena, in_folder("5"), &publish, &err));
    const char *dir = mx_store_publish_dir(publish);
    MxH5 *file = create(mx_path_join(&arena, dir, "state.h5"));
    float *x = numbers();
    ck_ok(mx_h5_write(file, "model/a", MX_F32, whole, x, &err));
    ck_ok(mx_h5_write(file, "model/b", MX_F32, MX_SHAPE(7), x, &err));
    ck_ok(mx_h5_write(file, "step", MX_I32, MX_SCALAR, &(int32_t){3}, &err));
    ck_ok(mx_h5_close(file, &err));
    ck_ok(mx_store_publish_commit(publish, &err));
    return in_folder("5");
}

static void flip(const char *path, int64_t at) {
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 16, file);
    fclose(file);
}

/* Which array of the manifest has a byte; NULL = none. */
static const char *array_at(const MxJson *tensors, int64_t byte) {
    for (size_t i = 0; i < mx_json_length(tensors); i++) {
        const MxJson *tensor = mx_json_at(tensors, i);
        int64_t at, bytes;
        ck_assert(mx_json_int(mx_json_get(tensor, "at"), &at));
        ck_assert(mx_json_int(mx_json_get(tensor, "bytes"), &bytes));
        if (byte >= at && byte < at + bytes) return mx_json_string(mx_json_get(tensor, "path"));
    }
    return NULL;
}

/* Every byte of the file: the array that has it is named, and no other. */
START_TEST(damage_names_the_array) {
    const char *dir = publish_arrays(), *path = in_folder("5/state.h5");
    MxJson *manifest;
    ck_ok(mx_store_verify(&arena, dir, NULL, &manifest, &err));
    const MxJson *entry = mx_json_get(mx_json_get(manifest, "files"), "state.h5");
    const MxJson *tensors = mx_json_get(entry, "tensors");
    ck_assert_uint_eq(mx_json_length(tensors), 3);
    int64_t bytes, named = 0;
    ck_assert(mx_json_int(mx_json_get(entry, "bytes"), &bytes));
    for (int64_t i = 0; i < bytes; i++) {
        const char *array = array_at(tensors, i);
        MxArena brief = {.name = "brief"};
        flip(path, i);
        ck_assert(!mx_store_verify(&brief, dir, NULL, NULL, &err));
        ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
        ck_assert_int_eq(err.count, 1);
        bool is_named = strstr(err.text.data, "hash of \"") != NULL;
        ck_assert(strstr(err.text.data, "state.h5: is damaged") && is_named == (array != NULL));
        if (array) ck_assert(strstr(err.text.data, mx_arena_printf(&brief, "\"%s\"", array)));
        named += is_named;
        mx_error_release(&err);
        mx_arena_release(&brief);
        flip(path, i);
    }
    ck_assert_int_eq(named, (ROWS * COLUMNS * DEPTH + 7 + 1) * 4);
    ck_ok(mx_store_verify(&arena, dir, NULL, NULL, &err));
}
END_TEST

static bool own_answer(void *data, bool is_fine, MxError *e) {
    (void)e;
    *(int *)data += 1;
    return is_fine;
}

/* One process of a team after the other: each byte is some process's, and only its. */
START_TEST(a_team_shares_the_work) {
    const char *dir = publish_arrays(), *path = in_folder("5/state.h5");
    int64_t bytes = 0;
    MxJson *manifest;
    ck_ok(mx_store_manifest(&arena, dir, &manifest, &err));
    mx_json_int(mx_json_get(mx_json_get(mx_json_get(manifest, "files"), "state.h5"), "bytes"),
                &bytes);
    int finders[3] = {0};
    for (int64_t i = 0; i < bytes; i += 13) {
        int n_found = 0;
        flip(path, i);
        for (int rank = 0; rank < 3; rank++) {
            int asked = 0;
            MxTeam team = {.rank = rank, .size = 3, .agree = own_answer, .data = &asked};
            bool ok = mx_store_verify(&arena, dir, &team, NULL, &err);
            ck_assert_int_eq(asked, 1);
            n_found += !ok;
            finders[rank] += !ok;
            mx_error_release(&err);
        }
        ck_assert_int_eq(n_found, 1);
        flip(path, i);
    }
    for (int rank = 0; rank < 3; rank++) ck_assert_int_gt(finders[rank], 0);
}
END_TEST

/* A file that another process wrote and sealed. */
START_TEST(sealed_files_are_taken_as_they_are) {
    MxPublish *publish;
    ck_ok(mx_store_publish_begin(&arena, in_folder("5"), &publish, &err));
    const char *path = mx_path_join(&arena, mx_store_publish_dir(publish), "rank1");
    MxJson *sealed = mx_json_object(&arena);
    ck_ok(mx_file_write(path, "something", 9, &err));
    ck_ok(mx_store_seal(path, NULL, mx_json_put_object(sealed, "rank1"), &err));
    mx_store_publish_sealed(publish, sealed);
    if (_i == 1) ck_assert_int_eq(truncate(path, 3), 0);
    if (_i == 2) ck_assert_int_eq(unlink(path), 0);
    if (_i == 1) ck_failed(mx_store_publish_commit(publish, &err), "has 3 bytes, 9 were written");
    if (_i == 2) ck_failed(mx_store_publish_commit(publish, &err), "is not to be seen from here");
    if (_i == 0) {
        ck_ok(mx_store_publish_commit(publish, &err));
        ck_ok(mx_store_verify(&arena, in_folder("5"), NULL, NULL, &err));
    }
    ck_assert(mx_dir_exists(in_folder("5")) == (_i == 0));
}
END_TEST

Suite *views_suite(void) {
    Suite *suite = suite_create("store: views");
    TCase *tests = tcase_create("views");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, views_show_whole_arrays, 0, 5);
    tcase_add_test(tests, views_want_their_files);
    tcase_add_loop_test(tests, parts_do_not_overlap, 0, 4);
    tcase_add_loop_test(tests, many_boxes_at_once, 0, 3);
    tcase_add_test(tests, damage_names_the_array);
    tcase_add_test(tests, a_team_shares_the_work);
    tcase_add_loop_test(tests, sealed_files_are_taken_as_they_are, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
