/* test_image.c — files of pictures against the pixels that transformers' image processor of Gemma 3
 * makes of them (scripts/golden_images.py), and files that are none. */
#include "image_test.h"

#include <mx/image.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/goldens.h"
#include "common/suite.h"

static const MxImageTiles golden_size = {
    1, 1, 1, {{{24, 16}, {24, 16}, MX_IMAGE_WEIGHTS_22, false}}};
enum { GOLDEN_PIXELS = 24 * 16, GOLDEN_BYTES = GOLDEN_PIXELS * 3 };

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

static MxBytes file_of(const char *path) {
    MxBytes bytes;
    ck_assert_msg(mx_file_read(&arena, path, 1 << 20, &bytes, &err), "%s", path);
    return bytes;
}

static MxImages *reader(void) {
    MxImages *images;
    ck_assert(mx_images_open(&arena, GOLDEN_PIXELS, &images, &err));
    return images;
}

/* JPEG's own transform may be rounded otherwise by another release of its library. */
static const struct {
    const char *name;
    MxImageSize size;
    int most; /* levels of 255 */
} goldens[] = {
    {"rgb_large.png", {47, 61}, 0},   {"rgb_small.png", {5, 7}, 0},
    {"rgba.png", {33, 20}, 0},        {"grey.png", {47, 61}, 0},
    {"palette.png", {47, 61}, 0},     {"same_size.png", {24, 16}, 0},
    {"rgb16.png", {29, 31}, 0},       {"grey16.png", {29, 31}, 0},
    {"rgb.jpg", {47, 61}, 2},         {"grey.jpg", {47, 61}, 2},
    {"progressive.jpg", {47, 61}, 2},
};

START_TEST(pixels_are_those_of_transformers) {
    const char *name = mx_arena_printf(&arena, "images/%s", goldens[_i].name);
    const char *path = goldens_need(&arena, name);
    MxBytes wanted = file_of(goldens_need(&arena, mx_arena_printf(&arena, "%s.rgb", name)));
    uint8_t found[GOLDEN_BYTES];
    MxImageSize size;
    MxImages *images = reader();
    ck_assert_uint_eq(wanted.size, GOLDEN_BYTES);
    ck_assert_msg(mx_image_look(images, path, MX_NOWHERE, &size, &err), "%s", err.text.data);
    ck_assert_int_eq(size.width, goldens[_i].size.width);
    ck_assert_int_eq(size.height, goldens[_i].size.height);
    ck_assert_msg(mx_image_read(images, path, MX_NOWHERE, &golden_size, found, &err), "%s",
                  err.text.data);
    for (int i = 0; i < GOLDEN_BYTES; i++)
        ck_assert_msg(abs(found[i] - wanted.data[i]) <= goldens[_i].most,
                      "%s: byte %d is %d, not %d", name, i, found[i], wanted.data[i]);
}
END_TEST

static const char *url_of(const char *head, MxBytes file) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add(&text, "%s", head);
    for (size_t i = 0; i < file.size; i += 3) {
        unsigned bits = (unsigned)file.data[i] << 16;
        for (size_t k = 1; k < 3; k++)
            if (i + k < file.size) bits |= (unsigned)file.data[i + k] << (16 - 8 * k);
        for (size_t k = 0; k < 4; k++)
            mx_text_add(&text, "%c", i + k > file.size ? '=' : digits[bits >> (18 - 6 * k) & 63]);
    }
    return text.data;
}

START_TEST(urls_hold_what_files_do) {
    const char *name = mx_arena_printf(&arena, "images/%s", goldens[_i].name);
    const char *path = goldens_need(&arena, name);
    const char *url = url_of("data:image/x;base64,", file_of(path));
    uint8_t file[GOLDEN_BYTES], found[GOLDEN_BYTES];
    MxImages *images = reader();
    ck_assert(mx_image_read(images, path, MX_NOWHERE, &golden_size, file, &err));
    ck_assert_msg(mx_image_read(images, url, MX_NOWHERE, &golden_size, found, &err), "%s",
                  err.text.data);
    ck_assert(!memcmp(file, found, sizeof file));
}
END_TEST

/* ---- files that are none */

static const char *write_file(const char *data, size_t n) {
    char name[] = "/tmp/mx_image_XXXXXX";
    int fd = mkstemp(name);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "wb");
    ck_assert_uint_eq(fwrite(data, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    return mx_arena_strdup(&arena, name);
}

static void refuse(MxImages *images, const char *path, const char *message) {
    uint8_t rgb[GOLDEN_BYTES];
    MxWhere where = {.file = "data.jsonl", .line = 7};
    ck_assert(!mx_image_read(images, path, where, &golden_size, rgb, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    ck_assert_msg(strstr(err.text.data, "data.jsonl:7: image \"") != NULL, "%s", err.text.data);
    ck_assert_msg(strstr(err.text.data, message) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    err = (MxError){0};
}

/* A reader goes on after each. */
START_TEST(what_is_no_picture_is_told) {
    MxImages *images = reader();
    static const char bomb[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\x01\0\0\0\x01\0\0\x08\x02\0\0\0";
    const char *text = write_file("{\"a\": 1}\n", 9), *empty = write_file("", 0);
    refuse(images, "/tmp/mx_there_is_no_such_image.png", "mx_there_is_no_such_image.png");
    refuse(images, text, "is no picture of PNG or JPEG");
    refuse(images, empty, "is no picture of PNG or JPEG");
    refuse(images, goldens_need(&arena, "images/small.gif"), "found a file of GIF, wanted PNG");
    refuse(images, goldens_need(&arena, "images/cmyk.jpg"), "its colours are CMYK");
    refuse(images, write_file(bomb, sizeof bomb), "");
    refuse(images, "data:image/png,abc", "is no data: URL in base64");
    refuse(images, "data:,;base64,QUJD", "is no data: URL in base64");
    refuse(images, "data:image/png;base64,QU_D", "is no base64");
    refuse(images, "data:image/png;base64,", "is no picture of PNG or JPEG");
    MxImageSize size;
    const char *good = goldens_need(&arena, "images/grey.png");
    ck_assert(mx_image_look(images, good, MX_NOWHERE, &size, &err));
    remove(text);
    remove(empty);
}
END_TEST

/* Every length of a file that is cut off, and bytes changed one by one: a message or a picture. */
START_TEST(damage_is_told) {
    static const char *const names[] = {"images/grey.png", "images/rgb.jpg"};
    MxImages *images = reader();
    for (int f = 0; f < MX_COUNT(names); f++) {
        MxBytes file = file_of(goldens_need(&arena, names[f]));
        size_t cuts[] = {3, 9, 40, file.size / 2, file.size - 200};
        for (int i = 0; i < MX_COUNT(cuts); i++) {
            const char *path = write_file((const char *)file.data, cuts[i]);
            refuse(images, path, "");
            remove(path);
        }
        for (size_t at = 0; at < file.size; at += file.size / 40 + 1) {
            uint8_t rgb[GOLDEN_BYTES];
            file.data[at] ^= 0x5a;
            const char *path = write_file((const char *)file.data, file.size);
            if (!mx_image_read(images, path, MX_NOWHERE, &golden_size, rgb, &err))
                ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
            mx_error_release(&err);
            err = (MxError){0};
            file.data[at] ^= 0x5a;
            remove(path);
        }
    }
}
END_TEST

/* ---- resizing against its definition, in doubles */

START_TEST(means_are_weighed) {
    uint8_t from[5 * 4 * 3], to[3 * 2 * 3];
    for (int i = 0; i < MX_COUNT(from); i++) from[i] = 200;
    mx_image_resize(from, (MxImageSize){5, 4}, to, (MxImageCanvas){{3, 2}, {3, 2}, 0, false});
    for (int i = 0; i < MX_COUNT(to); i++) ck_assert_int_eq(to[i], 200);
}
END_TEST

/* Of one colour each: all of it lies on the canvas, and the rest is black. */
static const MxImageSize odd[] = {{1, 1}, {5000, 1}, {1, 5000}, {3, 400}};

START_TEST(odd_forms_fill_what_they_may) {
    enum { SIDE = 12, MOST = 4 };
    static uint8_t from[5000 * 3], to[MOST * SIDE * SIDE * 3];
    const MxImageTiles forms[] = {mx_image_whole(SIDE), mx_image_tiles(odd[_i], SIDE, MOST)};
    memset(from, 77, sizeof from);
    for (int f = 0; f < MX_COUNT(forms); f++)
        for (int k = 0; k < forms[f].n; k++) {
            MxImageCanvas c = forms[f].canvas[k];
            ck_assert(c.picture.width >= 1 && c.picture.height >= 1);
            ck_assert(c.picture.width <= c.canvas.width && c.picture.height <= c.canvas.height);
            mx_image_resize(from, odd[_i], to, c);
            for (int64_t i = 0; i < c.canvas.width * c.canvas.height * 3; i++) {
                int64_t x = i / 3 % c.canvas.width, y = i / 3 / c.canvas.width;
                bool is_picture = x < c.picture.width && y < c.picture.height;
                ck_assert_int_eq(to[i], is_picture ? 77 : 0);
            }
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("image");
    TCase *tcase = tcase_create("image");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, pixels_are_those_of_transformers, 0, MX_COUNT(goldens));
    tcase_add_loop_test(tcase, urls_hold_what_files_do, 0, MX_COUNT(goldens));
    tcase_add_loop_test(tcase, odd_forms_fill_what_they_may, 0, MX_COUNT(odd));
    tcase_add_test(tcase, what_is_no_picture_is_told);
    tcase_add_test(tcase, damage_is_told);
    tcase_add_test(tcase, means_are_weighed);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, sound_case());
    return RUN_SUITES(suite);
}
