/* codec_snappy.c — snappy; the only file that uses libsnappy, through its C interface. */
#include "codec.h"

#include <snappy-c.h>

static bool snappy_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    size_t n;
    return !snappy_uncompressed_length((const char *)in, n_in, &n) && n == n_out &&
           !snappy_uncompress((const char *)in, n_in, (char *)out, &n) && n == n_out;
}

const Codec codec_snappy = {
    .name = "snappy",
    .unpack = snappy_unpack,
};
