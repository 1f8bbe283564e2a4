/* internal.h — shared by the files of this room: the child process that reads files, what it makes
 * of a kind of file, and how it ends. */
#ifndef IMAGE_INTERNAL_H
#define IMAGE_INTERNAL_H

#include <mx/image.h>
#include <mx/image_sound.h>

/* ---- in the child */

/* What is wanted of a file. */
typedef union ReaderWish {
    MxImageTiles tiles; /* canvases of a picture; none = its size alone */
    bool samples;       /* of a sound; else their number alone */
} ReaderWish;

/* What is told of it. */
typedef union ReaderFacts {
    MxImageSize size;
    int64_t samples;
} ReaderFacts;

/* What files a reader reads. */
typedef struct ReaderKind {
    const char *name;   /* "image", for messages */
    int64_t most_bytes; /* of a file */
    /* Comes back only if the file is good. room  [room_bytes] memory that both processes see */
    void (*read)(MxArena *arena, MxBytes file, const ReaderWish *wish, void *room,
                 size_t room_bytes, ReaderFacts *out);
} ReaderKind;

/* A kind of picture, by its first bytes. */
typedef struct ImageFormat {
    const char *name;
    /* Pixels of a file, rows of red, green and blue in the arena; rgb NULL = its size alone. Comes
     * back only if it is good. */
    void (*decode)(MxArena *arena, MxBytes file, MxImageSize *size, uint8_t **rgb);
} ImageFormat;

extern const ImageFormat image_png, image_jpeg;

/* image_fail — says what is wrong with the file, and ends the process. */
_Noreturn void image_fail(const char *fmt, ...) MX_PRINTF(1, 2);
/* image_check_size — fails if it is none, or too large. */
void image_check_size(int64_t width, int64_t height);

/* ---- in the parent */

typedef struct Reader Reader;

/* image_reader_open — with memory for so many bytes that the child returns; see mx_images_open.
 * image_reader_ask — of a file, or a data: URL; out receives bytes of that memory. */
bool image_reader_open(MxArena *arena, const ReaderKind *kind, size_t room_bytes, Reader **out,
                       MxError *err);
bool image_reader_ask(Reader *reader, const char *path, MxWhere where, const ReaderWish *wish,
                      ReaderFacts *facts, void *out, size_t bytes, MxError *err);

#endif
