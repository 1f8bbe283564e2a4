/* test_tensors.c — safetensors files: what is written is read, every float is widened, and damaged
 * headers are refused; files of torch.save, whole and damaged. */
#include "store_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A file of a header and bytes behind it. */
static const char *write_file(const char *header, const void *data, size_t bytes) {
    size_t length = strlen(header);
    char *file = mx_arena_alloc(&arena, 8 + length + bytes);
    for (int i = 0; i < 8; i++) file[i] = (char)(length >> 8 * i & 255);
    memcpy(file + 8, header, length);
    if (bytes) memcpy(file + 8 + length, data, bytes);
    const char *path = in_folder("x.safetensors");
    ck_ok(mx_file_write(path, file, 8 + length + bytes, &err));
    return path;
}

START_TEST(writes_and_reads) {
    const float a[] = {1, -2.5f, 3e-40f, 1e30f, 0, 7}, b = 9;
    const MxTensorData data[] = {
        {"z.weight", MX_SHAPE(2, 3), a}, {"a", MX_SCALAR, &b}, {"none", MX_SHAPE(0, 4), a}};
    float x[6], y;
    MxTensors *file;
    ck_ok(mx_tensors_write(in_folder("x"), data, 3, &err));
    ck_ok(mx_tensors_open(&arena, in_folder("x"), &file, &err));
    ck_assert_int_eq(mx_tensors_count(file), 3);
    ck_assert_str_eq(mx_tensors_at(file, 0)->name, "z.weight");
    ck_assert_ptr_null(mx_tensors_find(file, "b"));
    const MxTensor *z = mx_tensors_find(file, "z.weight");
    ck_assert(mx_shape_equal(z->shape, MX_SHAPE(2, 3)) && z->offset % 8 == 0);
    ck_ok(mx_tensors_read(file, z, x, &err));
    ck_ok(mx_tensors_read(file, mx_tensors_find(file, "a"), &y, &err));
    ck_assert(!memcmp(a, x, sizeof a) && !memcmp(&b, &y, sizeof b));
    ck_assert_int_eq(mx_tensors_find(file, "none")->shape.dim[0], 0);
}
END_TEST

START_TEST(floats_are_widened) {
    const uint16_t half[] = {0x3c00, 0xc100, 0x0001, 0x7c00, 0x8000}, brain[] = {0x3f80, 0xc020};
    const double wide[] = {0.1};
    const float half_want[] = {1, -2.5f, 5.9604644775390625e-8f, INFINITY, -0.0f};
    const float brain_want[] = {1, -2.5f};
    char data[24] = {0};
    float x[5];
    MxTensors *file;
    memcpy(data, half, 10);
    memcpy(data + 10, brain, 4);
    memcpy(data + 14, wide, 8);
    ck_ok(mx_tensors_open(
        &arena,
        write_file("{\"h\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[0,10]},"
                   "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[10,14]},"
                   "\"d\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[14,22]},"
                   "\"i\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[22,24]}}",
                   data, sizeof data),
        &file, &err));
    ck_ok(mx_tensors_read(file, mx_tensors_find(file, "h"), x, &err));
    ck_assert(!memcmp(x, half_want, sizeof half_want));
    ck_ok(mx_tensors_read(file, mx_tensors_find(file, "b"), x, &err));
    ck_assert(!memcmp(x, brain_want, sizeof brain_want));
    ck_ok(mx_tensors_read(file, mx_tensors_find(file, "d"), x, &err));
    ck_assert_float_eq(x[0], 0.1f);
    ck_failed(mx_tensors_read(file, mx_tensors_find(file, "i"), x, &err), "wanted floats");
}
END_TEST

static const struct {
    const char *header, *words;
} damaged[] = {
    {"{\"x\":{\"dtype\":\"F8\",\"shape\":[1],\"data_offsets\":[0,4]}}", "\"x\": a dtype"},
    {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "\"x\": no shape"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "\"x\": no shape"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
     "\"x\": no shape"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
     "\"x\": no shape"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "do not agree"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "do not agree"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "do not agree"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", "do not agree"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", "do not agree"},
    {"{\"x\":7}", "\"x\": a dtype"},
    {"{\"x\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[2,4]}}", "do not begin where"},
    {"{\"x\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[0,2]}}", "2 bytes behind the last"},
    {"{\"x\":", "x.safetensors"},
};

START_TEST(damaged_headers_are_refused) {
    MxTensors *file;
    const char *path = write_file(damaged[_i].header, "1234", 4);
    ck_failed(mx_tensors_open(&arena, path, &file, &err), damaged[_i].words);
}
END_TEST

START_TEST(what_is_no_such_file_is_refused) {
    MxTensors *file;
    ck_failed(mx_tensors_open(&arena, in_folder("nowhere"), &file, &err), "could not open");
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    ck_failed(mx_tensors_open(&arena, in_folder("pipe"), &file, &err), "is not a regular file");
    ck_ok(mx_file_write(in_folder("short"), "1234", 4, &err));
    ck_failed(mx_tensors_open(&arena, in_folder("short"), &file, &err), "cut short");
    ck_ok(mx_file_write(in_folder("text"), "a text of some length", 21, &err));
    ck_failed(mx_tensors_open(&arena, in_folder("text"), &file, &err), "cut short");
}
END_TEST

/* ---- files that the safetensors library made, and what it says of them */

static const char *golden_folder(const char *name) {
    return goldens_need(&arena, mx_path_join(&arena, "hf/safetensors", name));
}

static MxJson *golden_json(const char *name) {
    MxBytes bytes;
    const char *path = golden_folder(name);
    ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    MxJson *json = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    ck_ok(json != NULL);
    return json;
}

START_TEST(what_the_library_reads_is_read) {
    MxJson *files = golden_json("ok.json"), *wanted, *entry;
    const char *name, *tensor;
    for (size_t i = 0; mx_json_member(files, i, &name, &wanted); i++) {
        MxTensors *file;
        ck_ok(
            mx_tensors_open(&arena, mx_path_join(&arena, golden_folder("ok"), name), &file, &err));
        ck_assert_uint_eq((size_t)mx_tensors_count(file), mx_json_length(wanted));
        for (size_t k = 0; mx_json_member(wanted, k, &tensor, &entry); k++) {
            const MxTensor *found = mx_tensors_find(file, tensor);
            ck_assert_msg(found != NULL, "%s lacks %s", name, tensor);
            ck_assert_int_eq(found->shape.rank, (int)mx_json_length(mx_json_get(entry, "shape")));
        }
    }
}
END_TEST

START_TEST(what_the_library_refuses_is_refused) {
    static const char accepted[] = "accepted by the library";
    MxJson *files = golden_json("bad.json"), *says;
    const char *name;
    for (size_t i = 0; mx_json_member(files, i, &name, &says); i++) {
        MxTensors *file;
        const char *path = mx_arena_printf(&arena, "%s/%s.safetensors", golden_folder("bad"), name);
        bool ok = mx_tensors_open(&arena, path, &file, &err);
        ck_assert_msg(!ok || !strcmp(mx_json_string(says), accepted), "%s is read", name);
        mx_error_release(&err);
        err = (MxError){0};
    }
}
END_TEST

/* ---- files that torch.save wrote */

static MxBytes torch_file(void) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, "hf/meta/shards_1/consolidated.00.pth");
    ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    return bytes;
}

static bool opens(const void *data, size_t size, MxTensors **out) {
    FILE *stream = fopen(in_folder("x.pth"), "wb");
    ck_assert(stream && fwrite(data, 1, size, stream) == size && !fclose(stream));
    return mx_tensors_open(&arena, in_folder("x.pth"), out, &err);
}

START_TEST(files_of_torch_are_read) {
    enum { TENSORS = 3 + 9 };
    MxBytes bytes = torch_file();
    MxTensors *file;
    float x[16];
    ck_ok(opens(bytes.data, bytes.size, &file));
    ck_assert_int_eq(mx_tensors_count(file), TENSORS);
    const MxTensor *w2 = mx_tensors_find(file, "layers.0.feed_forward.w2.weight");
    ck_assert(w2 && w2->dtype == MX_BF16 && mx_shape_equal(w2->shape, MX_SHAPE(16, 56)));
    ck_ok(mx_tensors_read(file, mx_tensors_find(file, "norm.weight"), x, &err));
    for (int i = 0; i < 16; i++) ck_assert(x[i] > 0 && x[i] < 2);
}
END_TEST

START_TEST(files_of_torch_that_are_cut_are_refused) {
    enum { STEP = 97 };
    MxBytes bytes = torch_file();
    MxTensors *file;
    for (size_t size = 8; size < bytes.size; size += STEP)
        ck_failed(opens(bytes.data, size, &file), "");
}
END_TEST

/* Errors, or arrays that lie in the file. */
START_TEST(damaged_files_of_torch_do_no_harm) {
    enum { STEP = 31 };
    static const uint8_t damage[] = {0x01, 0x80, 0xff};
    MxBytes bytes = torch_file();
    MxTensors *file;
    for (size_t at = 0; at < bytes.size; at += STEP) {
        bytes.data[at] ^= damage[at % MX_COUNT(damage)];
        bool ok = opens(bytes.data, bytes.size, &file);
        bytes.data[at] ^= damage[at % MX_COUNT(damage)];
        ck_assert(ok == !err.count);
        for (int i = 0; ok && i < mx_tensors_count(file); i++) {
            const MxTensor *t = mx_tensors_at(file, i);
            ck_assert(t->offset >= 0 && t->offset + mx_tensor_bytes(t) <= (int64_t)bytes.size);
        }
        mx_error_release(&err);
        err = (MxError){0};
    }
}
END_TEST

Suite *tensors_suite(void) {
    Suite *suite = suite_create("store/tensors");
    TCase *tcase = tcase_create("tensors");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, writes_and_reads);
    tcase_add_test(tcase, floats_are_widened);
    tcase_add_loop_test(tcase, damaged_headers_are_refused, 0, MX_COUNT(damaged));
    tcase_add_test(tcase, what_is_no_such_file_is_refused);
    tcase_add_test(tcase, what_the_library_reads_is_read);
    tcase_add_test(tcase, what_the_library_refuses_is_refused);
    tcase_add_test(tcase, files_of_torch_are_read);
    tcase_add_test(tcase, files_of_torch_that_are_cut_are_refused);
    tcase_add_test(tcase, damaged_files_of_torch_do_no_harm);
    suite_add_tcase(suite, tcase);
    return suite;
}
