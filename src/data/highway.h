/* highway.h — private to the room: HighwayHash. */
#ifndef DATA_HIGHWAY_H
#define DATA_HIGHWAY_H

#include <mx/base.h>

/* highway_hash — HighwayHash-64 of n bytes. Source: Alakuijala, Cox, Wassenberg, Fast keyed
 * hash/pseudo-random function using SIMD multiply and permute, 2016. */
uint64_t highway_hash(const uint64_t key[4], const uint8_t *bytes, size_t n);

#endif
