/* mapped.h — kernels of a student's attention that learned maps make of a teacher's (mapped.c). */
#ifndef MODEL_MAPPED_H
#define MODEL_MAPPED_H

#include "internal.h"

enum { MOST_MAPPED = 4 }; /* of a layer: query, key, value, out */

/* A kernel as an ordinary model has it. */
typedef struct Kernel {
    const char *name; /* of its module: "query" */
    MxShape shape;
    int n_contract;
    const char *const *axes;
    MxInit init;
} Kernel;

/* model_has_maps — whether the kernels of a layer's attention are made so. model_add_mapped — the
 * teacher's kernel and its maps, in place of a kernel. model_mapped — what they make, in the dtype
 * of weights. */
bool model_has_maps(const MxConfig *config, int layer);
Dense model_add_mapped(const Place *place, const Kernel *kernel);
MxValue model_mapped(MxTrace *t, const MxModel *model, const MxValue *params, const Mapped *mapped);

#endif
