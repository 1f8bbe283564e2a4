/* codec_lz4.c — lz4; the only file that uses liblz4: frames, of which files and buffers of Arrow
 * consist, and the blocks of Parquet, as they are or as Hadoop wrote them. Source:
 * lz4/doc/lz4_Frame_format.md 1.6.4; apache/parquet-format 2.10, Compression.md (LZ4, LZ4_RAW). */
#include "codec.h"

#include <lz4.h>
#include <lz4frame.h>

static void end(void *data) {
    LZ4F_freeDecompressionContext(data);
}

static void *frame_open(MxArena *arena) {
    LZ4F_dctx *context = NULL;
    LZ4F_errorCode_t code = LZ4F_createDecompressionContext(&context, LZ4F_VERSION);
    MX_ASSERT(!LZ4F_isError(code));
    mx_arena_on_release(arena, end, context);
    return context;
}

static const char *frame_step(void *state, CodecStep *step, bool *is_whole) {
    size_t left = 1;
    while (step->n_out) { /* also without input: the library may hold some back */
        size_t n_in = step->n_in, n_out = step->n_out;
        left = LZ4F_decompress(state, step->out, &n_out, step->in, &n_in, NULL);
        if (LZ4F_isError(left)) return LZ4F_getErrorName(left);
        if (!n_in && !n_out) break;
        step->in += n_in;
        step->n_in -= n_in;
        step->out += n_out;
        step->n_out -= n_out;
        *is_whole = !left;
        if (!left && !step->n_in) break;
    }
    return NULL;
}

static bool frame_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    MxArena arena = {.name = "lz4"};
    bool is_whole = false;
    void *context = frame_open(&arena);
    CodecStep step = {.in = in, .n_in = n_in, .out = out, .n_out = n_out};
    bool ok = !frame_step(context, &step, &is_whole) && !step.n_out;
    if (ok && !is_whole) { /* its end has no values */
        size_t none = 0, n = step.n_in;
        is_whole = !LZ4F_decompress(context, step.out, &none, step.in, &n, NULL);
        step.n_in -= n;
    }
    mx_arena_release(&arena);
    return ok && is_whole && !step.n_in;
}

static bool block_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    return n_in <= INT32_MAX && n_out <= INT32_MAX &&
           LZ4_decompress_safe((const char *)in, (char *)out, (int)n_in, (int)n_out) == (int)n_out;
}

static size_t get_size(const uint8_t *at) {
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* Blocks behind their sizes, unpacked and packed. */
static bool blocks_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    enum { SIZE = 4, HEAD = 2 * SIZE };
    while (n_in >= HEAD) {
        size_t n = get_size(in), n_packed = get_size(in + SIZE);
        if (n > n_out || n_packed > n_in - HEAD) return false;
        if (!block_unpack(in + HEAD, n_packed, out, n)) return false;
        in += HEAD + n_packed;
        n_in -= HEAD + n_packed;
        out += n;
        n_out -= n;
    }
    return !n_in && !n_out;
}

/* Writers disagree about which of the two this codec is. */
static bool hadoop_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    return blocks_unpack(in, n_in, out, n_out) || block_unpack(in, n_in, out, n_out);
}

const Codec codec_lz4 = {.name = "lz4",
                         .magic = "\x04\x22\x4d\x18",
                         .n_magic = 4,
                         .open = frame_open,
                         .step = frame_step,
                         .unpack = frame_unpack};
const Codec codec_lz4_block = {.name = "lz4", .unpack = block_unpack};
const Codec codec_lz4_hadoop = {.name = "lz4", .unpack = hadoop_unpack};
