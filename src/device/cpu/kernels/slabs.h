/* slabs.h — a product whose weight or result passes through scratch memory: columns of the result
 * are computed a slab at a time; the last slab may have fewer. */
#ifndef CPU_SLABS_H
#define CPU_SLABS_H

#include "kernel.h"

typedef struct Slabs {
    CpuMatmulSpec spec; /* of the product as a whole */
    int64_t columns, last;
    size_t bytes; /* of a slab */
    const CpuMatmul *product, *last_product;
} Slabs;

/* slabs_of — of a product, slabs of at most so many elements, `each` a column, of so many bytes. */
Slabs slabs_of(CpuMatmulSpec spec, int64_t most, int64_t each, size_t bytes);
/* slabs_scratch — a slab, then what the products want. */
size_t slabs_scratch(const MxDevice *device, const Slabs *s);
bool slabs_prepare(MxDevice *device, Slabs *s, MxError *err);
/* slabs_product — that of a slab of n columns. */
const CpuMatmul *slabs_product(const Slabs *s, int64_t n);

#endif
