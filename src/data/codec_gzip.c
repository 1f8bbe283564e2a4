/* codec_gzip.c — gzip; the only file that uses zlib. A file consists of one or several members;
 * zeros may follow. Source: RFC 1952. */
#include "codec.h"

#include <zlib.h>

typedef struct Gzip {
    z_stream z;
    bool is_between; /* a member has ended */
} Gzip;

enum { GZIP_ONLY = 16 }; /* added to the window's bits */

static void end(void *data) {
    inflateEnd(&((Gzip *)data)->z);
}

static void *gzip_open(MxArena *arena) {
    Gzip *gzip = mx_new(arena, Gzip);
    int failed = inflateInit2(&gzip->z, MAX_WBITS + GZIP_ONLY);
    MX_ASSERT(!failed);
    mx_arena_on_release(arena, end, gzip);
    return gzip;
}

static unsigned at_most(size_t n) {
    return n < UINT32_MAX ? (unsigned)n : UINT32_MAX;
}

static const char *gzip_step(void *state, CodecStep *step, bool *is_whole) {
    Gzip *gzip = state;
    z_stream *z = &gzip->z;
    int code = Z_OK;
    while (step->n_out && code == Z_OK && (step->n_in || !gzip->is_between)) {
        if (gzip->is_between && !*step->in) { /* what pads the file */
            step->in++;
            step->n_in--;
            continue;
        }
        if (gzip->is_between) inflateReset(z);
        gzip->is_between = false; /* without input too: the library may hold some back */
        unsigned in = at_most(step->n_in), out = at_most(step->n_out);
        z->next_in = (z_const Bytef *)step->in;
        z->avail_in = in;
        z->next_out = step->out;
        z->avail_out = out;
        code = inflate(z, Z_NO_FLUSH);
        step->in += in - z->avail_in;
        step->n_in -= in - z->avail_in;
        step->out += out - z->avail_out;
        step->n_out -= out - z->avail_out;
        gzip->is_between = code == Z_STREAM_END;
        if (gzip->is_between) code = Z_OK;
    }
    *is_whole = gzip->is_between;
    if (code == Z_OK || code == Z_BUF_ERROR) return NULL;
    return z->msg ? z->msg : "it is damaged";
}

/* One member. */
static bool gzip_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    z_stream z = {0};
    if (n_in > UINT32_MAX || n_out > UINT32_MAX || inflateInit2(&z, MAX_WBITS + GZIP_ONLY))
        return false;
    z.next_in = (z_const Bytef *)in;
    z.avail_in = (unsigned)n_in;
    z.next_out = out;
    z.avail_out = (unsigned)n_out;
    int code = inflate(&z, Z_FINISH);
    bool ok = code == Z_STREAM_END && !z.avail_out && !z.avail_in;
    inflateEnd(&z);
    return ok;
}

const Codec codec_gzip = {
    .name = "gzip",
    .magic = "\x1f\x8b\x08",
    .n_magic = 3,
    .open = gzip_open,
    .step = gzip_step,
    .unpack = gzip_unpack,
};
