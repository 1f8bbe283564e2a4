/* image.h — pictures in files of PNG and JPEG, as rows of red, green and blue bytes of wanted
 * sizes. Files may be hostile and the libraries that read them end at errors by not coming back, so
 * a child process reads them: its end is an error message here. */
#ifndef MX_IMAGE_H
#define MX_IMAGE_H

#include <mx/base.h>

typedef struct MxImageSize {
    int64_t width, height; /* pixels */
} MxImageSize;

/* Limits of one picture. */
enum { MX_IMAGE_MOST_BYTES = 64 << 20, MX_IMAGE_MOST_PIXELS = 1 << 27 };

/* How weights of resizing are rounded: to 22 bits, as Pillow has them, or to as many as 16-bit
 * numbers have room for, as torchvision has them for bytes. */
typedef enum MxImageWeights { MX_IMAGE_WEIGHTS_22, MX_IMAGE_WEIGHTS_16 } MxImageWeights;

/* What is made of a picture: it is resized, bilinear or bicubic, and stands in the upper left of a
 * canvas, the rest of which is black. */
typedef struct MxImageCanvas {
    MxImageSize picture, canvas;
    MxImageWeights weights;
    bool is_cubic;
} MxImageCanvas;

enum { MX_IMAGE_MOST_CANVASES = 2 };

/* A picture as tiles: a canvas of them and, if they are several, one of all of it as a tile. */
typedef struct MxImageTiles {
    int64_t rows, columns; /* of the first canvas */
    int n;
    MxImageCanvas canvas[MX_IMAGE_MOST_CANVASES];
} MxImageTiles;

/* mx_image_tiles — of a picture, in tiles of size x size, `most` of them at most, as Llama 4's
 * processor of transformers cuts it. mx_image_whole — as one tile, which it fills. */
MxImageTiles mx_image_tiles(MxImageSize picture, int64_t size, int64_t most);
static inline MxImageTiles mx_image_whole(int64_t size) {
    const MxImageSize all = {size, size};
    return (MxImageTiles){1, 1, 1, {{.picture = all, .canvas = all}}};
}
/* mx_image_fit — as one canvas of its form, as good as so many squares of side x side let it be:
 * their rows and columns are the picture's height and width times the number that would make them
 * as many, rounded down; of a narrow picture one row or column. As Gemma 4's processor of
 * transformers has it. */
MxImageTiles mx_image_fit(MxImageSize picture, int64_t side, int64_t squares);
/* mx_image_near — as one canvas of its form whose sides are multiples of `side`: those that are
 * nearest to its own or, if it has more pixels than `most` or fewer than `least`, to what has so
 * many, from below or above. As Qwen 2-VL's processor of transformers has it. */
MxImageTiles mx_image_near(MxImageSize picture, int64_t side, int64_t least, int64_t most);

/* Who reads pictures. */
typedef struct MxImages MxImages;

/* mx_images_open — a reader of pictures whose canvases have so many pixels at most in all. Its
 * child process starts with the first of them and ends with the arena. Threads may share it; they
 * wait for each other. Errors: no memory to share. */
bool mx_images_open(MxArena *arena, int64_t most_pixels, MxImages **out, MxError *err);

/* What the name of a picture begins with that is no file's: data:[TYPE];base64,DATA, of which the
 * type counts for nothing. */
#define MX_IMAGE_DATA "data:"

/* mx_image_look — how large a picture is, by the head of its file. mx_image_read — the canvases of
 * it.
 *   path   a file, or a data: URL
 *   where  who names the file, for messages
 *   rgb    [canvases] of [height, width, 3], one behind the other
 * Errors: no such file; no base64; no picture of PNG or JPEG; damaged, or cut off; too large;
 * colours that are neither grey nor red, green and blue (CMYK); the library crashes, or does not
 * come to an end. Alpha is dropped and of 16 bits the upper 8 are taken, as Pillow's convert("RGB")
 * does; gamma and orientation are not looked at. */
bool mx_image_look(MxImages *images, const char *path, MxWhere where, MxImageSize *out,
                   MxError *err);
bool mx_image_read(MxImages *images, const char *path, MxWhere where, const MxImageTiles *tiles,
                   uint8_t *rgb, MxError *err);

/* mx_image_resize — a picture in another size on a canvas; smaller, each pixel is the weighed mean
 * of all that it covers. Bit for bit as Pillow 11, Image.resize(BILINEAR or BICUBIC), or as
 * torchvision, resize(…, antialias) of bytes: first rows, then columns, in whole numbers.
 * from  [size.height, size.width, 3]; to  [how.canvas.height, how.canvas.width, 3] */
void mx_image_resize(const uint8_t *from, MxImageSize size, uint8_t *to, MxImageCanvas how);

#endif
