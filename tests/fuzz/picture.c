/* picture.c — fuzz target for files of pictures. Bytes are a picture, of which head and pixels tell
 * one size, or an error; whatever becomes of the child process that reads them, the next picture is
 * read. */
#include <mx/image.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 4, CHANNELS = 3 };

static void need(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MxArena kept = {.name = "reader"};
    static MxImages *images;
    const MxImageTiles whole = mx_image_whole(SIDE);
    uint8_t rgb[SIDE * SIDE * CHANNELS];
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxImageSize found;
    const MxWhere where = {.file = "fuzz"};
    if (!images) need(mx_images_open(&kept, SIDE * SIDE, &images, &err));
    const char *path = mx_arena_printf(&arena, "/tmp/mx_fuzz_%d.image", (int)getpid());
    FILE *file = fopen(path, "wb");
    need(file && fwrite(data, 1, size, file) == size);
    need(!fclose(file));
    if (mx_image_look(images, path, where, &found, &err))
        need(found.width > 0 && found.height > 0 &&
             found.width <= MX_IMAGE_MOST_PIXELS / found.height);
    else
        need(err.count == 1);
    bool is_seen = !err.count;
    mx_error_release(&err);
    bool is_read = mx_image_read(images, path, where, &whole, rgb, &err);
    need(is_read ? is_seen : err.count == 1);
    remove(path);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
