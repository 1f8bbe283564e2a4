/* image.h — pictures in files of PNG and JPEG, as rows of red, green and blue bytes of a wanted
 * size. Files may be hostile and the libraries that read them end at errors by not coming back, so
 * a child process reads them: its end is an error message here. */
#ifndef MX_IMAGE_H
#define MX_IMAGE_H

#include <mx/base.h>

typedef struct MxImageSize {
    int64_t width, height; /* pixels */
} MxImageSize;

/* Limits of one picture. */
enum { MX_IMAGE_MOST_BYTES = 64 << 20, MX_IMAGE_MOST_PIXELS = 1 << 27 };

/* Who reads pictures. */
typedef struct MxImages MxImages;

/* mx_images_open — a reader that makes pictures of one size. Its child process starts with the
 * first of them and ends with the arena. Two threads may use it; they wait for each other. Errors:
 * no memory to share. */
bool mx_images_open(MxArena *arena, MxImageSize size, MxImages **out, MxError *err);

/* mx_image_look — how large a picture is, by the head of its file. mx_image_read — the picture in
 * the reader's size.
 *   where  who names the file, for messages
 *   rgb    [height, width, 3]
 * Errors: no such file; no picture of PNG or JPEG; damaged, or cut off; too large; colours that are
 * neither grey nor red, green and blue (CMYK); the library crashes, or does not come to an end.
 * Alpha is dropped and of 16 bits the upper 8 are taken, as Pillow's convert("RGB") does; gamma and
 * orientation are not looked at. */
bool mx_image_look(MxImages *images, const char *path, MxWhere where, MxImageSize *out,
                   MxError *err);
bool mx_image_read(MxImages *images, const char *path, MxWhere where, uint8_t *rgb, MxError *err);

/* mx_image_resize — a picture in another size, bilinear; smaller, each pixel is the weighed mean of
 * all that it covers. Bit for bit as Pillow 11, Image.resize(BILINEAR): first rows, then columns,
 * in whole numbers. from  [size.height, size.width, 3]; to  [wanted.height, wanted.width, 3] */
void mx_image_resize(const uint8_t *from, MxImageSize size, uint8_t *to, MxImageSize wanted);

#endif
