/* reference.h — every op once more, in plain loops over doubles: what kernels are measured against.
 * Gradients are central differences of the forward references. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <mx/ops.h>

typedef struct Reference {
    const void *attr;
    const MxType *in_type, *out_type;
    double *const *in;
    double **out;
    int n_in;
} Reference;

typedef void ReferenceFn(const Reference *r);

/* reference_of — the function of an op, NULL where only differences define it. */
ReferenceFn *reference_of(const MxOp *op);

/* A gradient op in terms of its forward op. */
typedef struct GradientOf {
    const MxOp *gradient, *forward;
    int n_in;   /* of the forward op; they come first */
    int dy;     /* input that is the cotangent of the forward op's output 0: the last */
    int wrt[4]; /* for each output the forward input that it is the gradient of; -1 - i = the
                   forward op's output i itself */
    int n_out;
} GradientOf;

/* reference_gradient — how an op with so many inputs is a gradient, or NULL. */
const GradientOf *reference_gradient(const MxOp *op, int n_in);

#endif
