/* shuffle.c — a random order that is computed, not stored: a Feistel network over the smallest even
 * number of bits that holds n, applied until the result is below n. Any row of any epoch is found
 * in constant time and memory. Source: Black and Rogaway, "Ciphers with arbitrary finite domains",
 * CT-RSA 2002, method 3. */
#include "source.h"

int64_t data_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i) {
    enum { ROUNDS = 6 }; /* four are pseudo-random for large halves; ours may be one bit */
    MX_ASSERT(i >= 0 && i < n);
    int half_bits = 1;
    while ((int64_t)1 << (2 * half_bits) < n) half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, x = (uint64_t)i;
    do { /* at most four values a row of the domain, so four walks in the mean */
        uint64_t left = x >> half_bits, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t random[4];
            mx_philox(seed, DATA_STREAM_SHUFFLE + (uint64_t)epoch, round << 32 | right, random);
            uint64_t mixed = left ^ (random[0] & mask);
            left = right;
            right = mixed;
        }
        x = left << half_bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
