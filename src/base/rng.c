/* rng.c — Philox4x32-10, a random function of a key and a counter rather than a random sequence. */
#include <mx/base.h>

void mx_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    enum { ROUNDS = 10 };
    const uint32_t multiplier0 = 0xD2511F53u,
                   multiplier1 = 0xCD9E8D57u; /* constants of the paper's table 2 */
    const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p0 = (uint64_t)multiplier0 * c0, p1 = (uint64_t)multiplier1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += weyl0;
        k1 += weyl1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
