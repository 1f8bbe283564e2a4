/* png.c — files of PNG, by libpng: every kind of colour becomes red, green and blue bytes. */
#include "internal.h"

#include <png.h>

typedef struct Source {
    MxBytes file;
    size_t at;
} Source;

static void read_bytes(png_structp png, png_bytep out, size_t n) {
    Source *source = png_get_io_ptr(png);
    if (n > source->file.size - source->at) image_fail("the file is cut off");
    memcpy(out, source->file.data + source->at, n);
    source->at += n;
}

static _Noreturn void on_error(png_structp png, png_const_charp message) {
    (void)png;
    image_fail("damaged: %s", message);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png, (void)message; /* of chunks that say nothing about pixels */
}

static void read_rows(MxArena *arena, png_structp png, png_infop info, MxImageSize size,
                      uint8_t **rgb) {
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    size_t row = 3 * (size_t)size.width;
    MX_ASSERT(png_get_rowbytes(png, info) == row);
    *rgb = mx_arena_alloc(arena, row * (size_t)size.height);
    uint8_t **rows = mx_new_n(arena, uint8_t *, size.height);
    for (int64_t y = 0; y < size.height; y++) rows[y] = *rgb + (size_t)y * row;
    png_read_image(png, rows);
}

static void decode(MxArena *arena, MxBytes file, MxImageSize *size, uint8_t **rgb) {
    Source source = {.file = file};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) image_fail("libpng has no memory");
    png_set_read_fn(png, &source, read_bytes);
    png_read_info(png, info);
    *size = (MxImageSize){png_get_image_width(png, info), png_get_image_height(png, info)};
    image_check_size(size->width, size->height);
    if (rgb) read_rows(arena, png, info, *size, rgb);
    png_destroy_read_struct(&png, &info, NULL);
}

const ImageFormat image_png = {.name = "PNG", .decode = decode};
