/* codec_zstd.c — zstd; the only file that uses libzstd. A file consists of one or several frames;
 * windows are at most 128 MiB, the library's own limit. Source: RFC 8878. */
#include "codec.h"

#include <zstd.h>

static void end(void *data) {
    ZSTD_freeDCtx(data);
}

static void *zstd_open(MxArena *arena) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    MX_ASSERT(context);
    mx_arena_on_release(arena, end, context);
    return context;
}

static const char *zstd_step(void *state, CodecStep *step, bool *is_whole) {
    ZSTD_inBuffer in = {.src = step->in, .size = step->n_in};
    ZSTD_outBuffer out = {.dst = step->out, .size = step->n_out};
    size_t left = 1;
    while (out.pos < out.size) { /* also without input: the library may hold some back */
        size_t before_in = in.pos, before_out = out.pos;
        left = ZSTD_decompressStream(state, &out, &in);
        if (ZSTD_isError(left)) return ZSTD_getErrorName(left);
        if (in.pos == before_in && out.pos == before_out) break;
        *is_whole = !left;
        if (!left && in.pos == in.size) break;
    }
    step->in += in.pos;
    step->n_in -= in.pos;
    step->out += out.pos;
    step->n_out -= out.pos;
    return NULL;
}

static bool zstd_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    return ZSTD_decompress(out, n_out, in, n_in) == n_out;
}

const Codec codec_zstd = {
    .name = "zstd",
    .magic = "\x28\xb5\x2f\xfd",
    .n_magic = 4,
    .open = zstd_open,
    .step = zstd_step,
    .unpack = zstd_unpack,
};
