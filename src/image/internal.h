/* internal.h — shared by the files of this room: what a decoder is, and how it ends. */
#ifndef IMAGE_INTERNAL_H
#define IMAGE_INTERNAL_H

#include <mx/image.h>

/* A kind of file, by its first bytes. */
typedef struct ImageFormat {
    const char *name;
    /* Pixels of a file, rows of red, green and blue in the arena; rgb NULL = its size alone. Comes
     * back only if it is good. */
    void (*decode)(MxArena *arena, MxBytes file, MxImageSize *size, uint8_t **rgb);
} ImageFormat;

extern const ImageFormat image_png, image_jpeg;

/* image_fail — in the child: says what is wrong with the file, and ends the process. */
_Noreturn void image_fail(const char *fmt, ...) MX_PRINTF(1, 2);
/* image_check_size — fails if it is none, or too large. */
void image_check_size(int64_t width, int64_t height);

#endif
