/* adapter.h — adapters of kernels: in products (dense.c, moe.c), and their magnitudes (dora.c). */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include "internal.h"

/* Of a parameter: indices of A, B and magnitudes, or of what is trained in its place; -1 = none. */
struct Adapter {
    int a, b, m, whole;
};

/* model_adapter — that of a kernel, NULL = it has none. model_join_a — A of the adapters of kernels
 * that read one x, side by side [.., K, rank · adapters] in the dtype of computation; MX_NONE =
 * none has any. model_part_low — low[i] [.., rank] of kernel i's adapter, made of x with these: x A
 * scale; those of kernels without stay. */
enum { MODEL_MOST_BESIDE = 3 }; /* query, key, value */
const Adapter *model_adapter(const Pass *p, int leaf);
MxValue model_join_a(const Pass *p, int n, const Dense *dense);
void model_part_low(const Pass *p, MxValue all, int n, const Dense *dense, MxValue *low);

/* model_magnify — y [.., N] of an adapted kernel with N outputs, times m / |W + A B scale| of each;
 * y itself if its adapter has no magnitudes. */
MxValue model_magnify(const Pass *p, int kernel, MxValue y_N);

#endif
