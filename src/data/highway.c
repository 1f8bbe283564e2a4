/* highway.c — HighwayHash-64, one 64-bit lane after the other. Little-endian, like all of mxtrain.
 */
#include "highway.h"

enum { LANES = 4, PACKET_BYTES = 32 };

typedef struct Highway {
    uint64_t v0[LANES], v1[LANES], mul0[LANES], mul1[LANES];
} Highway;

static uint64_t swap_halves(uint64_t x) {
    return x >> 32 | x << 32;
}

/* Byte `from` of x at the place `to`. */
static inline uint64_t move(uint64_t x, int from, int to) {
    return (x >> 8 * from & 0xff) << 8 * to;
}

/* Adds the bytes of two lanes to two others, in an order that spreads the high ones. */
static inline void add_zipped(const uint64_t from[2], uint64_t to[2]) {
    uint64_t a = from[0], b = from[1];
    to[0] += move(a, 3, 0) | move(b, 4, 1) | move(a, 2, 2) | move(a, 5, 3) | move(b, 6, 4) |
             move(a, 1, 5) | move(b, 7, 6) | move(a, 0, 7);
    to[1] += move(b, 3, 0) | move(a, 4, 1) | move(b, 2, 2) | move(b, 5, 3) | move(b, 1, 4) |
             move(a, 6, 5) | move(b, 0, 6) | move(a, 7, 7);
}

static void update(Highway *h, const uint64_t packet[LANES]) {
    for (int i = 0; i < LANES; i++) {
        h->v1[i] += h->mul0[i] + packet[i];
        h->mul0[i] ^= (h->v1[i] & UINT32_MAX) * (h->v0[i] >> 32);
        h->v0[i] += h->mul1[i];
        h->mul1[i] ^= (h->v0[i] & UINT32_MAX) * (h->v1[i] >> 32);
    }
    add_zipped(h->v1, h->v0);
    add_zipped(h->v1 + 2, h->v0 + 2);
    add_zipped(h->v0, h->v1);
    add_zipped(h->v0 + 2, h->v1 + 2);
}

static void update_bytes(Highway *h, const uint8_t bytes[PACKET_BYTES]) {
    uint64_t packet[LANES];
    memcpy(packet, bytes, sizeof packet);
    update(h, packet);
}

static uint64_t rotate_halves(uint64_t x, unsigned by) {
    uint32_t low = (uint32_t)x, high = (uint32_t)(x >> 32);
    if (!by) return x;
    low = low << by | low >> (32 - by);
    high = high << by | high >> (32 - by);
    return low | (uint64_t)high << 32;
}

/* The last n bytes, 1 to 31. */
static void update_rest(Highway *h, const uint8_t *bytes, size_t n) {
    uint8_t packet[PACKET_BYTES] = {0};
    size_t whole = n & ~(size_t)3, left = n & 3;
    for (int i = 0; i < LANES; i++) {
        h->v0[i] += ((uint64_t)n << 32) + n;
        h->v1[i] = rotate_halves(h->v1[i], (unsigned)n);
    }
    memcpy(packet, bytes, whole);
    if (n & 16) {
        memcpy(packet + 28, bytes + n - 4, 4);
    } else if (left) {
        packet[16] = bytes[whole];
        packet[17] = bytes[whole + (left >> 1)];
        packet[18] = bytes[n - 1];
    }
    update_bytes(h, packet);
}

uint64_t highway_hash(const uint64_t key[4], const uint8_t *bytes, size_t n) {
    enum { LAST_ROUNDS = 4 };
    /* digits of pi */
    Highway h = {
        .mul0 = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344, 0x243f6a8885a308d3},
        .mul1 = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c, 0x452821e638d01377}};
    for (int i = 0; i < LANES; i++) {
        h.v0[i] = h.mul0[i] ^ key[i];
        h.v1[i] = h.mul1[i] ^ swap_halves(key[i]);
    }
    for (; n >= PACKET_BYTES; n -= PACKET_BYTES, bytes += PACKET_BYTES) update_bytes(&h, bytes);
    if (n) update_rest(&h, bytes, n);
    for (int round = 0; round < LAST_ROUNDS; round++) {
        uint64_t packet[LANES];
        for (int i = 0; i < LANES; i++) packet[i] = swap_halves(h.v0[(i + 2) % LANES]);
        update(&h, packet);
    }
    return h.v0[0] + h.v1[0] + h.mul0[0] + h.mul1[0];
}
