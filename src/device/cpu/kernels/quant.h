/* quant.h — private to kernels of weights in few bits. */
#ifndef CPU_QUANT_H
#define CPU_QUANT_H

#include "kernel.h"

/* An array [rows, width] in few bits. */
typedef struct QuantArray {
    MxQuant quant;
    const uint8_t *codes;
    const float *scales;
    int64_t width;
} QuantArray;

/* quant_decode — n columns of a row, from `column` on, as floats; what has two columns in a byte
 * begins and ends with whole bytes. */
void quant_decode(const QuantArray *x, int64_t row, int64_t column, int64_t n, float *y);

/* ---- quant_few.c */

/* quant_is_few — whether a product with such an array is one of few rows, which reads codes once
 * and makes no floats of them in memory. */
bool quant_is_few(const MxDevice *device, const CpuMatmulSpec *spec);
/* quant_multiply_few — it; scratch  as much as cpu_few_products wants */
void quant_multiply_few(const MxDevice *device, const CpuMatmulSpec *spec, const void *a,
                        const QuantArray *b, void *c, void *scratch);

#endif
