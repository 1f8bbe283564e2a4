/* test_h5.c — HDF5 files: round trips over every dtype and rank, boxes, equal bytes, attributes,
 * files by others (fixtures/make.py), refusals, and a disk that is full. */
#include "store_test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static MxH5 *create(const char *name) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder(name), &file, &err));
    return file;
}

static MxH5 *open_path(const char *path) {
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    return file;
}

static MxH5 *reopen(MxH5 *file) {
    ck_ok(mx_h5_close(file, &err));
    return open_path(mx_h5_path(file));
}

static MxBytes bytes_of(const char *path) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, path, 1 << 24, &bytes, &err));
    return bytes;
}

/* Every dtype × rank 0 … 6: index i = dtype * 7 + rank. */
START_TEST(round_trip) {
    MxDtype dtype = (MxDtype)(_i / 7);
    MxShape shape = {.rank = _i % 7, .dim = {2, 3, 1, 2, 3, 2}};
    size_t n = (size_t)mx_shape_count(shape) * mx_dtype_bytes(dtype);
    uint8_t *in = mx_arena_alloc(&arena, n), *out = mx_arena_alloc(&arena, n);
    for (size_t i = 0; i < n; i++) in[i] = (uint8_t)(i * 37 % 96); /* no NaN in any dtype */
    MxH5 *file = create("a.h5");
    ck_ok(mx_h5_write(file, "deep/er/x", dtype, shape, in, &err));
    file = reopen(file);
    MxH5Array array;
    ck_ok(mx_h5_stat(file, "deep/er/x", &array, &err));
    ck_assert_msg(array.dtype == dtype, "%s became %s", mx_dtype_name(dtype),
                  mx_dtype_name(array.dtype));
    ck_assert(mx_shape_equal(array.shape, shape) && !array.is_text);
    ck_ok(mx_h5_read(file, "deep/er/x", dtype, shape, out, &err));
    ck_assert_mem_eq(in, out, n);
}
END_TEST

START_TEST(converts) {
    const float in[] = {1.0f, -2.5f, 3.14159274f, 1e30f};
    MxH5 *file = create("a.h5");
    ck_ok(mx_h5_write(file, "f32", MX_F32, MX_SHAPE(4), in, &err));
    MxBf16 half[4];
    for (int i = 0; i < 4; i++) half[i] = mx_f32_to_bf16(in[i]);
    ck_ok(mx_h5_write(file, "bf16", MX_BF16, MX_SHAPE(4), half, &err));
    const int64_t wide[] = {-1, INT64_C(1) << 40};
    ck_ok(mx_h5_write(file, "i64", MX_I64, MX_SHAPE(2), wide, &err));
    file = reopen(file);
    double f64[4];
    ck_ok(mx_h5_read(file, "f32", MX_F64, MX_SHAPE(4), f64, &err));
    float f32[4];
    ck_ok(mx_h5_read(file, "bf16", MX_F32, MX_SHAPE(4), f32, &err));
    MxBf16 bf16[4], raw[4];
    ck_ok(mx_h5_read(file, "f32", MX_BF16, MX_SHAPE(4), bf16, &err));
    ck_ok(mx_h5_read(file, "bf16", MX_BF16, MX_SHAPE(4), raw, &err));
    for (int i = 0; i < 4; i++) {
        ck_assert(f64[i] == (double)in[i]);
        ck_assert(f32[i] == mx_bf16_to_f32(half[i]));
        ck_assert_uint_eq(bf16[i], half[i]);
        ck_assert_uint_eq(raw[i], half[i]);
    }
    int32_t narrow[2];
    ck_failed(mx_h5_read(file, "i64", MX_I32, MX_SHAPE(2), narrow, &err), "\"i64\"");
    ck_ok(mx_h5_read(file, "i64", MX_F64, MX_SHAPE(2), f64, &err));
    ck_assert(f64[1] == 1099511627776.0);
    ck_failed(mx_h5_read(file, "f32", MX_I32, MX_SHAPE(4), narrow, &err),
              "holds float32, wanted int32");
}
END_TEST

START_TEST(boxes) {
    int32_t in[4][6], out[2][3];
    for (int i = 0; i < 24; i++) in[i / 6][i % 6] = i;
    MxH5 *file = create("a.h5");
    ck_ok(mx_h5_make(file, "x", MX_I32, MX_SHAPE(4, 6), &err));
    for (int half = 0; half < 2; half++) { /* upper half, lower half */
        MxBox part = {.rank = 2, .start = {2 * half, 0}, .count = {2, 6}};
        ck_ok(mx_h5_write_box(file, "x", part, in[2 * half], &err));
    }
    ck_ok(mx_h5_make(file, "zero", MX_F32, MX_SHAPE(3), &err));
    ck_ok(mx_h5_make(file, "none", MX_F32, MX_SHAPE(0, 3), &err));
    file = reopen(file);
    MxBox box = {.rank = 2, .start = {1, 2}, .count = {2, 3}};
    ck_ok(mx_h5_read_box(file, "x", MX_I32, box, out, &err));
    for (int i = 0; i < 6; i++) ck_assert_int_eq(out[i / 3][i % 3], in[1 + i / 3][2 + i % 3]);
    float zero[3] = {1, 1, 1};
    ck_ok(mx_h5_read(file, "zero", MX_F32, MX_SHAPE(3), zero, &err));
    ck_assert(zero[0] == 0 && zero[1] == 0 && zero[2] == 0);
    ck_ok(mx_h5_read(file, "none", MX_F32, MX_SHAPE(0, 3), zero, &err));
    box.start[1] = 4;
    ck_failed(mx_h5_read_box(file, "x", MX_I32, box, out, &err),
              "dataset \"x\" is [4, 6]: no part [2, 3] from [1, 4] in it");
    box.rank = 1;
    ck_failed(mx_h5_read_box(file, "x", MX_I32, box, out, &err), "no part [2]");
    box = (MxBox){.rank = 2, .start = {-1, 0}, .count = {1, 1}};
    ck_failed(mx_h5_read_box(file, "x", MX_I32, box, out, &err), "no part");
    ck_failed(mx_h5_read(file, "x", MX_I32, MX_SHAPE(6, 4), out, &err),
              "has shape [4, 6], wanted [6, 4]");
}
END_TEST

/* HDF5 keeps time stamps of files, groups and datasets unless told otherwise: each of them once
 * made files differ from one second to the next. */
START_TEST(equal_contents_equal_bytes) {
    const float x[] = {1, 2, 3};
    for (int i = 0; i < 2; i++) {
        MxH5 *file = create(i ? "b.h5" : "a.h5");
        ck_ok(mx_h5_write(file, "a/b/x", MX_F32, MX_SHAPE(3), x, &err));
        ck_ok(mx_h5_write(file, "a/c", MX_BF16, MX_SHAPE(2, 1), x, &err));
        ck_ok(mx_h5_write_text(file, "t", "text", &err));
        ck_ok(mx_h5_set_attr(file, "a", "key", "value", &err));
        ck_ok(mx_h5_set_attr(file, "made/here", "key", "", &err));
        ck_ok(mx_h5_close(file, &err));
        if (!i) sleep(1);
    }
    MxBytes a = bytes_of(in_folder("a.h5")), b = bytes_of(in_folder("b.h5"));
    ck_assert_uint_eq(a.size, b.size);
    ck_assert_mem_eq(a.data, b.data, a.size);
    /* Superblock 3: only this form marks a file as open for writing, so that one whose writer was
     * killed refuses to open instead of lacking datasets. */
    ck_assert_uint_eq(a.data[8], 3);
}
END_TEST

START_TEST(texts_and_attributes) {
    MxH5 *file = create("a.h5");
    char *large = mx_arena_alloc(&arena, 200001), *value;
    memset(large, 'y', 200000);
    ck_ok(mx_h5_write_text(file, "config", large, &err));
    ck_ok(mx_h5_write_text(file, "empty", "", &err));
    ck_ok(mx_h5_set_attr(file, "", "name", "first", &err));
    ck_ok(mx_h5_set_attr(file, "", "name", "grüße", &err)); /* replaces */
    ck_ok(mx_h5_set_attr(file, "config", "kind", "yaml", &err));
    file = reopen(file);
    ck_ok(mx_h5_read_text(&arena, file, "config", &value, &err));
    ck_assert_str_eq(value, large);
    ck_ok(mx_h5_read_text(&arena, file, "empty", &value, &err));
    ck_assert_str_eq(value, "");
    ck_ok(mx_h5_attr(&arena, file, "", "name", &value, &err));
    ck_assert_str_eq(value, "grüße");
    ck_ok(mx_h5_attr(&arena, file, "config", "kind", &value, &err));
    ck_assert_str_eq(value, "yaml");
    ck_ok(mx_h5_attr(&arena, file, "config", "none", &value, &err));
    ck_assert_ptr_null(value);
    ck_failed(mx_h5_attr(&arena, file, "gone", "kind", &value, &err),
              "no group or dataset \"gone\"");
    MxH5Array array;
    ck_ok(mx_h5_stat(file, "config", &array, &err));
    ck_assert(array.is_text && array.shape.rank == 0);
}
END_TEST

static const char fixtures[] = "tests/store/fixtures/";

static char *fixture(const char *name) {
    return mx_arena_printf(&arena, "%s%s", fixtures, name);
}

START_TEST(foreign_files) {
    MxH5 *file = open_path(fixture("foreign.h5"));
    static const struct {
        const char *name, *value;
    } attrs[] = {{"config_cli", "steps=5 model_name=llama2"},
                 {"seed", "7"},
                 {"scale", "0.5"},
                 {"flag", "1"}};
    char *value;
    for (int i = 0; i < MX_COUNT(attrs); i++) {
        ck_ok(mx_h5_attr(&arena, file, "", attrs[i].name, &value, &err));
        ck_assert_str_eq(value, attrs[i].value);
    }
    ck_failed(mx_h5_attr(&arena, file, "", "shape", &value, &err), "neither one string nor one");
    int8_t flags[3];
    ck_ok(mx_h5_read(file, "g/bool", MX_I8, MX_SHAPE(3), flags, &err));
    ck_assert(flags[0] == 1 && flags[1] == 0 && flags[2] == 1);
    int32_t i32[2];
    ck_ok(mx_h5_read(file, "g/int16", MX_I32, MX_SHAPE(2), i32, &err));
    ck_assert(i32[0] == -2 && i32[1] == 300);
    int64_t i64[2];
    ck_failed(mx_h5_read(file, "g/uint64", MX_I64, MX_SHAPE(2), i64, &err), "\"g/uint64\"");
    float f32[3];
    ck_ok(mx_h5_read(file, "g/big_endian", MX_F32, MX_SHAPE(2), f32, &err));
    ck_assert(f32[0] == 1.5f && f32[1] == -2.0f);
    ck_ok(mx_h5_read(file, "g/float16", MX_F32, MX_SHAPE(3), f32, &err));
    ck_assert(f32[0] == 1.5f && f32[1] == 65504.0f && fabsf(f32[2] - 5.96e-8f) < 1e-9f);
    int32_t packed[2][2];
    MxBox box = {.rank = 2, .start = {18, 28}, .count = {2, 2}};
    ck_ok(mx_h5_read_box(file, "g/gzip", MX_I32, box, packed, &err));
    ck_assert(packed[0][0] == 568 && packed[1][1] == 599);
    ck_ok(mx_h5_read_text(&arena, file, "g/text", &value, &err));
    ck_assert_str_eq(value, "grüße");
}
END_TEST

START_TEST(lists) {
    static const struct {
        const char *path;
        MxDtype dtype;
    } want[] = {{"again", MX_I8}, {"big_endian", MX_F32}, {"bool", MX_I8}, {"float16", MX_F16},
                {"gzip", MX_I32}, {"int16", MX_I32},      {"text", MX_U8}, {"uint64", MX_I64}};
    MxH5 *file = open_path(fixture("foreign.h5"));
    MxH5Array *arrays;
    int n;
    ck_ok(mx_h5_list(&arena, file, "g", &arrays, &n, &err));
    ck_assert_int_eq(n, MX_COUNT(want));
    for (int i = 0; i < n; i++) {
        ck_assert_str_eq(arrays[i].path, want[i].path);
        ck_assert_int_eq(arrays[i].dtype, want[i].dtype);
    }
    ck_assert(mx_shape_equal(arrays[4].shape, MX_SHAPE(20, 30)));
    ck_ok(mx_h5_list(&arena, file, "", &arrays, &n, &err));
    ck_assert_int_eq(n, MX_COUNT(want));
    ck_assert_str_eq(arrays[0].path, "g/again");
    ck_failed(mx_h5_list(&arena, file, "g/bool", &arrays, &n, &err), "no group \"g/bool\"");
    ck_assert(mx_h5_has_group(file, "") && mx_h5_has_group(file, "g"));
    ck_assert(!mx_h5_has_group(file, "g/bool") && mx_h5_has_array(file, "g/bool"));
    ck_assert(!mx_h5_has_array(file, "g/none") && !mx_h5_has_array(file, "no/ne"));
}
END_TEST

static const struct {
    const char *group, *words;
} refusals[] = {
    {"rank7", "\"rank7/x\": its rank is above 6"},
    {"compound", "\"compound/x\": its element type"},
    {"empty", "\"empty/x\": it has no shape"},
    {"soft", "\"soft\": \"x\" is a soft or external link"},
    {"external", "\"external\": \"x\" is a soft or external link"},
    {"elsewhere", "\"elsewhere/x\": its values are kept in another file"},
    {"cycle", "lies deeper than 64"},
    {"gone", "no group \"gone\""},
};

START_TEST(refuses) {
    MxH5 *file = open_path(fixture("refused.h5"));
    MxH5Array *arrays;
    int n;
    ck_failed(mx_h5_list(&arena, file, refusals[_i].group, &arrays, &n, &err), refusals[_i].words);
    ck_assert(!mx_h5_has_array(file, "external/x"));
}
END_TEST

START_TEST(bad_files) {
    MxH5 *file;
    ck_failed(mx_h5_open(&arena, in_folder("none.h5"), &file, &err), "No such file");
    ck_failed(mx_h5_open(&arena, folder, &file, &err), "is not a regular file");
    ck_assert_int_eq(mkfifo(in_folder("pipe.h5"), 0600), 0);
    ck_failed(mx_h5_open(&arena, in_folder("pipe.h5"), &file, &err), "is not a regular file");
    char *path = in_folder("text.h5");
    ck_ok(mx_file_write(path, "not hdf5 at all", 15, &err));
    ck_failed(mx_h5_open(&arena, path, &file, &err), "is not an HDF5 file");
    file = create("a.h5");
    float *x = mx_new_n(&arena, float, 5000);
    ck_ok(mx_h5_write(file, "x", MX_F32, MX_SHAPE(5000), x, &err));
    ck_ok(mx_h5_close(file, &err));
    ck_assert_int_eq(truncate(mx_h5_path(file), 15000), 0);
    ck_failed(mx_h5_open(&arena, mx_h5_path(file), &file, &err), "truncated");
    ck_failed(mx_h5_create(&arena, in_folder("no/such/a.h5"), &file, &err), "could not create");
    file = create("b.h5");
    ck_ok(mx_h5_write(file, "x", MX_F32, MX_SHAPE(2), x, &err));
    ck_failed(mx_h5_write(file, "x", MX_F32, MX_SHAPE(2), x, &err), "could not write \"x\"");
    ck_failed(mx_h5_close(file, &err), "could not write \"x\"");
    ck_ok(mx_h5_close(file, &err)); /* the second time there is nothing to do */
    file = open_path(in_folder("b.h5"));
    ck_failed(mx_h5_read(file, "y", MX_F32, MX_SHAPE(2), x, &err), "\"y\": there is none");
    ck_failed(mx_h5_read(file, "", MX_F32, MX_SHAPE(2), x, &err), "it is a group");
}
END_TEST

/* A limit on the file size stands in for a full disk; at any limit some call must fail, since the
 * library's close does not. Index i = the limit in units of 512 bytes. */
START_TEST(full_disk) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = (rlim_t)_i * 512, .rlim_max = RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    float *x = mx_new_n(&arena, float, 2000);
    MxH5 *file = NULL;
    MxError failed = {0};
    bool ok = mx_h5_create(&arena, in_folder("a.h5"), &file, &failed);
    ok = ok && mx_h5_write(file, "a/x", MX_F32, MX_SHAPE(1000), x, &failed);
    ok = ok && mx_h5_write(file, "b/y", MX_F32, MX_SHAPE(1000), x, &failed);
    if (file) ok = mx_h5_close(file, &failed) && ok;
    limit.rlim_cur = RLIM_INFINITY;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(ok == !failed.count);
    if (ok) {
        file = open_path(in_folder("a.h5"));
        ck_ok(mx_h5_read(file, "b/y", MX_F32, MX_SHAPE(1000), x, &err));
    }
    float y = 2; /* the library still works after a failure */
    MxH5 *next = create("b.h5");
    ck_ok(mx_h5_write(next, "y", MX_F32, MX_SCALAR, &y, &err));
    next = reopen(next);
    ck_ok(mx_h5_read(next, "y", MX_F32, MX_SCALAR, x, &err));
    ck_assert(x[0] == 2);
    ck_assert(_i < 16 ? !ok : _i > 24 ? ok : true); /* the contents alone are 16 units */
    mx_error_release(&failed);
}
END_TEST

/* A process that was started meanwhile has the file open too; HDF5's lock, which it then kept, let
 * nobody open it again, and a checkpoint failed. */
START_TEST(others_have_it_open) {
    int ends[2];
    MxH5 *file = create("a.h5");
    ck_ok(mx_h5_write(file, "x", MX_F32, MX_SHAPE(1), &(float){1}, &err));
    ck_assert(!pipe(ends));
    pid_t pid = fork();
    if (!pid) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    ck_ok(mx_h5_close(file, &err));
    close(ends[0]);
    close(ends[1]);
    ck_assert(waitpid(pid, NULL, 0) == pid);
}
END_TEST

START_TEST(references) {
    static const struct {
        const char *ref, *file, *group;
    } cases[] = {
        {"a.h5", "a.h5", ""},
        {"a.h5:", "a.h5", ""},
        {"a.h5:train/batches", "a.h5", "train/batches"},
        {"dir/a.h5:/linen/", "dir/a.h5", "linen"},
        {"12:30/a.h5", "12:30/a.h5", ""},
        {"12:30/a.h5:g:h", "12:30/a.h5", "g:h"},
        {"a.hdf5:g", "a.hdf5", "g"},
        {"a.hdf5:b.h5", "a.hdf5", "b.h5"},
        {"runs/x/checkpoints/5:params", "runs/x/checkpoints/5", "params"},
        {"runs/x", "runs/x", ""},
        {"", "", ""},
    };
    char *file, *group;
    for (int i = 0; i < MX_COUNT(cases); i++) {
        mx_store_ref_parse(&arena, cases[i].ref, &file, &group);
        ck_assert_str_eq(file, cases[i].file);
        ck_assert_str_eq(group, cases[i].group);
    }
}
END_TEST

/* A file of golden values, as h5py wrote it. */
START_TEST(golden) {
    char *path = goldens_need(&arena, "models/llama2.h5");
    MxH5 *file = open_path(path);
    MxH5Array *arrays;
    int n;
    ck_ok(mx_h5_list(&arena, file, "linen", &arrays, &n, &err));
    ck_assert_int_eq(n, 12);
    ck_assert_str_eq(arrays[0].path, "params/params/decoder/decoder_norm/scale");
    ck_assert(mx_shape_equal(arrays[0].shape, MX_SHAPE(32)) && arrays[0].dtype == MX_F32);
    char *config;
    ck_ok(mx_h5_attr(&arena, file, "", "config_cli", &config, &err));
    ck_assert_ptr_nonnull(config);
    ck_assert_ptr_nonnull(strstr(config, "="));
    int32_t row[24];
    MxBox box = {.rank = 2, .start = {1, 0}, .count = {1, 24}};
    ck_ok(mx_h5_read_box(file, "batch/inputs", MX_I32, box, row, &err));
    ck_assert(row[0] == 89 && row[20] == 86 && row[21] == 0);
}
END_TEST

Suite *h5_suite(void) {
    Suite *suite = suite_create("store: hdf5");
    TCase *tests = tcase_create("hdf5");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, round_trip, 0, 7 * MX_DTYPE_COUNT);
    tcase_add_test(tests, converts);
    tcase_add_test(tests, others_have_it_open);
    tcase_add_test(tests, boxes);
    tcase_add_test(tests, equal_contents_equal_bytes);
    tcase_add_test(tests, texts_and_attributes);
    tcase_add_test(tests, foreign_files);
    tcase_add_test(tests, lists);
    tcase_add_loop_test(tests, refuses, 0, MX_COUNT(refusals));
    tcase_add_test(tests, bad_files);
    tcase_add_loop_test(tests, full_disk, 0, 30);
    tcase_add_test(tests, references);
    tcase_add_test(tests, golden);
    suite_add_tcase(suite, tests);
    return suite;
}
