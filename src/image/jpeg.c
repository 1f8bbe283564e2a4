/* jpeg.c — files of JPEG, by libjpeg-turbo: grey or coloured, as red, green and blue bytes. */
#include "internal.h"

#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

enum { MOST_SCANS = 500 }; /* of a progressive file: each costs as much as the whole picture */

static _Noreturn void on_error(j_common_ptr info) {
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    image_fail("damaged: %s", text);
}

/* Pixels behind the end of a file would be grey. */
static void on_message(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) image_fail("the file is cut off");
}

static void on_progress(j_common_ptr info) {
    if (((j_decompress_ptr)info)->input_scan_number > MOST_SCANS)
        image_fail("more than %d scans", MOST_SCANS);
}

static void read_rows(MxArena *arena, struct jpeg_decompress_struct *info, MxImageSize size,
                      uint8_t **rgb) {
    info->out_color_space = JCS_RGB;
    jpeg_start_decompress(info);
    size_t row = 3 * (size_t)size.width;
    MX_ASSERT(info->output_components == 3);
    *rgb = mx_arena_alloc(arena, row * (size_t)size.height);
    while (info->output_scanline < info->output_height) {
        JSAMPROW at = *rgb + info->output_scanline * row;
        jpeg_read_scanlines(info, &at, 1);
    }
    jpeg_finish_decompress(info);
}

static void decode(MxArena *arena, MxBytes file, MxImageSize *size, uint8_t **rgb) {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress = {.progress_monitor = on_progress};
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, file.data, file.size);
    jpeg_read_header(&info, TRUE);
    *size = (MxImageSize){info.image_width, info.image_height};
    image_check_size(size->width, size->height);
    if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK)
        image_fail("its colours are CMYK, wanted grey or red, green and blue");
    if (rgb) read_rows(arena, &info, *size, rgb);
    jpeg_destroy_decompress(&info);
}

const ImageFormat image_jpeg = {.name = "JPEG", .decode = decode};
