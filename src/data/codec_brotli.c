/* codec_brotli.c — brotli; the only file that uses libbrotli. Source: RFC 7932. */
#include "codec.h"

#include <brotli/decode.h>

static bool brotli_unpack(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out) {
    size_t n = n_out;
    return BrotliDecoderDecompress(n_in, in, &n, out) == BROTLI_DECODER_RESULT_SUCCESS &&
           n == n_out;
}

const Codec codec_brotli = {
    .name = "brotli",
    .unpack = brotli_unpack,
};
