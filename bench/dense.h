/* dense.h — what a product with a matrix an expert is held against. */
#ifndef BENCH_DENSE_H
#define BENCH_DENSE_H

#include "product.h"

#include <mx/device.h>

/* product_best_s — seconds of a product by the better library. */
double product_best_s(const Product *product, const Operands *operands);

/* dense_s — seconds of one dense product of as many FLOPs as a node of op expert_dot or expert_dw
 * has, of all rows with one matrix, or of all rows with all rows; 0 = it is another op. */
double dense_s(const MxKernelCall *call);

#endif
