/* hash.c — hashes; the only file that uses libxxhash. */
#include <mx/base.h>

#include <xxhash.h>

struct MxHash {
    XXH3_state_t *state;
};

uint64_t mx_hash64(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

static void drop(void *state) {
    XXH3_freeState(state);
}

MxHash *mx_hash_new(MxArena *arena) {
    MxHash *hash = mx_new(arena, MxHash);
    hash->state = XXH3_createState(); /* aligned beyond what an arena gives */
    MX_ASSERT(hash->state);
    mx_arena_on_release(arena, drop, hash->state);
    XXH3_64bits_reset(hash->state);
    return hash;
}

void mx_hash_add(MxHash *hash, const void *data, size_t bytes) {
    XXH3_64bits_update(hash->state, data, bytes);
}

uint64_t mx_hash_value(const MxHash *hash) {
    return XXH3_64bits_digest(hash->state);
}
