/* picture.c — pictures in files: which library decodes one, and canvases of it. */
#include "internal.h"

enum { CHANNELS = 3 };

struct MxImages {
    Reader *reader;
    size_t most_bytes; /* of canvases */
};

/* ---- in the child */

void image_check_size(int64_t width, int64_t height) {
    if (width < 1 || height < 1)
        image_fail("%lld x %lld pixels, wanted at least one", (long long)width, (long long)height);
    if (width > MX_IMAGE_MOST_PIXELS / height)
        image_fail("%lld x %lld pixels, wanted at most %d in all", (long long)width,
                   (long long)height, MX_IMAGE_MOST_PIXELS);
}

/* Kinds of files by their first bytes; format NULL = known, and not read. */
static const struct {
    const char *magic;
    size_t n;
    const ImageFormat *format;
    const char *name;
} kinds[] = {{"\x89PNG\r\n\x1a\n", 8, &image_png, "PNG"},
             {"\xff\xd8\xff", 3, &image_jpeg, "JPEG"},
             {"GIF8", 4, NULL, "GIF"},
             {"RIFF", 4, NULL, "WebP"},
             {"BM", 2, NULL, "BMP"},
             {"II*\0", 4, NULL, "TIFF"},
             {"MM\0*", 4, NULL, "TIFF"}};

static const ImageFormat *format_of(MxBytes file) {
    for (int i = 0; i < MX_COUNT(kinds); i++) {
        if (file.size < kinds[i].n || memcmp(file.data, kinds[i].magic, kinds[i].n)) continue;
        if (kinds[i].format) return kinds[i].format;
        image_fail("found a file of %s, wanted PNG or JPEG", kinds[i].name);
    }
    image_fail("is no picture of PNG or JPEG");
}

static size_t bytes_of(MxImageSize size) {
    return (size_t)(size.width * size.height * CHANNELS);
}

static void read_picture(MxArena *arena, MxBytes file, const ReaderWish *wish, void *room,
                         size_t room_bytes, ReaderFacts *out) {
    const MxImageTiles *wanted = &wish->tiles;
    uint8_t *rgb = NULL, *to = room;
    (void)room_bytes; /* the parent has looked */
    format_of(file)->decode(arena, file, &out->size, wanted->n ? &rgb : NULL);
    for (int i = 0; i < wanted->n; to += bytes_of(wanted->canvas[i++].canvas))
        mx_image_resize(rgb, out->size, to, wanted->canvas[i]);
}

static const ReaderKind pictures = {
    .name = "image", .most_bytes = MX_IMAGE_MOST_BYTES, .read = read_picture};

/* ---- in the parent */

bool mx_images_open(MxArena *arena, int64_t most_pixels, MxImages **out, MxError *err) {
    MX_ASSERT(most_pixels > 0);
    MxImages *images = mx_new(arena, MxImages);
    images->most_bytes = (size_t)most_pixels * CHANNELS;
    *out = images;
    return image_reader_open(arena, &pictures, images->most_bytes, &images->reader, err);
}

bool mx_image_look(MxImages *images, const char *path, MxWhere where, MxImageSize *out,
                   MxError *err) {
    ReaderFacts facts;
    if (!image_reader_ask(images->reader, path, where, &(ReaderWish){0}, &facts, NULL, 0, err))
        return false;
    *out = facts.size;
    return true;
}

bool mx_image_read(MxImages *images, const char *path, MxWhere where, const MxImageTiles *tiles,
                   uint8_t *rgb, MxError *err) {
    ReaderFacts facts;
    size_t bytes = 0;
    for (int i = 0; i < tiles->n; i++) bytes += bytes_of(tiles->canvas[i].canvas);
    MX_ASSERT(tiles->n && bytes <= images->most_bytes);
    return image_reader_ask(images->reader, path, where, &(ReaderWish){.tiles = *tiles}, &facts,
                            rgb, bytes, err);
}
