/* hash.c — the one file that knows libxxhash. */
#include <mx/base.h>

#include <xxhash.h>

uint64_t mx_hash64(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}
