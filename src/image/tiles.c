/* tiles.c — pictures as tiles of one size. The canvas is the one of so many tiles at most on which
 * the picture, undistorted, is largest without growing, or, if it fits on none, shrinks least; of
 * several the smallest. On it the picture is no larger than it was, a picture smaller than a tile
 * aside. Beside more than one tile stands a small picture of all of it. Source: transformers 5.23,
 * models/llama4/image_processing_llama4.py (get_best_fit, get_max_res_without_distortion), whose
 * scales are of float; gemma4/image_processing_gemma4.py (get_aspect_ratio_preserving_size);
 * qwen2_vl/image_processing_qwen2_vl.py (smart_resize). */
#include <mx/image.h>

#include <math.h>

static float smaller(float a, float b) {
    return a < b ? a : b;
}

/* By how much a picture grows that fills a canvas of so many tiles. */
static float scale_on(MxImageSize picture, int64_t size, int64_t rows, int64_t columns) {
    float width = (float)(columns * size) / (float)picture.width;
    float height = (float)(rows * size) / (float)picture.height;
    return smaller(width, height);
}

/* Whether a scale is nearer to what is wanted. */
static bool is_better(float scale, float than) {
    if (scale >= 1) return than < 1 || scale < than;
    return than < 1 && scale > than;
}

static void choose_canvas(MxImageSize picture, int64_t size, int64_t most, MxImageTiles *out) {
    float best = scale_on(picture, size, out->rows = 1, out->columns = 1);
    for (int64_t rows = 1; rows <= most; rows++)
        for (int64_t columns = 1; rows * columns <= most; columns++) {
            float scale = scale_on(picture, size, rows, columns);
            bool is_same = scale == best && rows * columns < out->rows * out->columns;
            if (!is_better(scale, best) && !is_same) continue;
            best = scale;
            out->rows = rows;
            out->columns = columns;
        }
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The largest picture of that form within a box. */
static MxImageSize fit(MxImageSize picture, MxImageSize box) {
    double across = (double)box.width / (double)picture.width;
    double down = (double)box.height / (double)picture.height;
    if (across < down)
        box.height = least((int64_t)floor((double)picture.height * across), box.height);
    else
        box.width = least((int64_t)floor((double)picture.width * down), box.width);
    return (MxImageSize){larger(box.width, 1), larger(box.height, 1)};
}

MxImageTiles mx_image_tiles(MxImageSize picture, int64_t size, int64_t most) {
    MxImageTiles tiles = {.n = 1};
    choose_canvas(picture, size, most, &tiles);
    MxImageSize canvas = {tiles.columns * size, tiles.rows * size};
    MxImageSize box = {least(larger(picture.width, size), canvas.width),
                       least(larger(picture.height, size), canvas.height)};
    tiles.canvas[0] = (MxImageCanvas){fit(picture, box), canvas, MX_IMAGE_WEIGHTS_16, false};
    if (tiles.rows * tiles.columns == 1) return tiles;
    const MxImageSize tile = {size, size};
    tiles.canvas[tiles.n++] = (MxImageCanvas){tile, tile, MX_IMAGE_WEIGHTS_16, false};
    return tiles;
}

MxImageTiles mx_image_fit(MxImageSize picture, int64_t side, int64_t squares) {
    double height = (double)picture.height, width = (double)picture.width;
    double grows = sqrt((double)(squares * side * side) / (height * width));
    int64_t rows = (int64_t)floor(grows * height / (double)side);
    int64_t columns = (int64_t)floor(grows * width / (double)side);
    if (rows < 1)
        columns = least(larger(picture.width / picture.height, 1), squares);
    else if (columns < 1)
        rows = least(larger(picture.height / picture.width, 1), squares);
    MxImageSize all = {larger(columns, 1) * side, larger(rows, 1) * side};
    return (MxImageTiles){1, 1, 1, {{all, all, MX_IMAGE_WEIGHTS_16, false}}};
}

/* Half a multiple becomes the even one, as Python rounds it. */
MxImageTiles mx_image_near(MxImageSize picture, int64_t side, int64_t least, int64_t most) {
    double height = (double)picture.height, width = (double)picture.width, unit = (double)side;
    int64_t rows = (int64_t)nearbyint(height / unit), columns = (int64_t)nearbyint(width / unit);
    if (rows * columns * side * side > most) {
        double shrinks = sqrt(height * width / (double)most);
        rows = larger((int64_t)floor(height / shrinks / unit), 1);
        columns = larger((int64_t)floor(width / shrinks / unit), 1);
    } else if (rows * columns * side * side < least) {
        double grows = sqrt((double)least / (height * width));
        rows = (int64_t)ceil(height * grows / unit);
        columns = (int64_t)ceil(width * grows / unit);
    }
    MxImageSize all = {columns * side, rows * side};
    return (MxImageTiles){1, 1, 1, {{all, all, MX_IMAGE_WEIGHTS_16, false}}};
}
