/* crc32c.c — CRC-32C (Castagnoli), the checksum of records in TFRecord files. Eight bytes are
 * processed per iteration: the tables hold the effect of a byte on the checksum, depending on the
 * number of bytes after it. */
#include <mx/base.h>

enum { LANES = 8 };

static uint32_t table[LANES][256];

static void make_table(void) {
    const uint32_t polynomial = 0x82f63b78; /* of RFC 3720, lowest bit first */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? polynomial : 0);
        table[0][byte] = sum;
    }
    for (int lane = 1; lane < LANES; lane++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = table[lane - 1][byte];
            table[lane][byte] = before >> 8 ^ table[0][before & 0xff];
        }
}

uint32_t mx_crc32c(const void *data, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    const uint8_t *p = data, *end = p + bytes;
    uint32_t sum = UINT32_MAX;
    for (; end - p >= LANES; p += LANES) {
        uint32_t low = sum ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
              table[0][p[7]];
    }
    for (; p < end; p++) sum = sum >> 8 ^ table[0][(sum ^ *p) & 0xff];
    return ~sum;
}

uint32_t mx_crc32c_masked(const void *data, size_t bytes) {
    uint32_t sum = mx_crc32c(data, bytes);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}
