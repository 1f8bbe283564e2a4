/* dora.h — magnitudes of adapters (lora.use_dora). */
#ifndef MODEL_DORA_H
#define MODEL_DORA_H

#include "internal.h"

/* model_magnify — y [.., N] of an adapted kernel with N outputs, times m / |W + A B scale| of each;
 * y itself if its adapter has no magnitudes. */
MxValue model_magnify(const Pass *p, int kernel, MxValue y_N);

#endif
