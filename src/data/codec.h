/* codec.h — private to the room: compression formats, one file per library. */
#ifndef DATA_CODEC_H
#define DATA_CODEC_H

#include <mx/base.h>

/* What an unpacker works on; it moves all four on. */
typedef struct CodecStep {
    const uint8_t *in;
    size_t n_in;
    uint8_t *out;
    size_t n_out;
} CodecStep;

typedef struct Codec {
    const char *name;
    const char *magic; /* what a file of it begins with; NULL = it is found only inside others */
    size_t n_magic;
    /* An unpacker of files, closed with the arena. */
    void *(*open)(MxArena *arena);
    /* Unpacks what there is room for. *is_whole: what was unpacked so far may be all of the file.
     * Gives NULL, or why it cannot go on. */
    const char *(*step)(void *state, CodecStep *step, bool *is_whole);
    /* Unpacks all of `in`, which must give exactly n_out bytes; NULL = the format is only for
     * files. */
    bool (*unpack)(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out);
} Codec;

extern const Codec codec_gzip, codec_zstd, codec_brotli, codec_snappy;
extern const Codec codec_lz4, codec_lz4_block, codec_lz4_hadoop; /* frames; Parquet's */

#endif
