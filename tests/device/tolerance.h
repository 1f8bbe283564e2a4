/* tolerance.h — how far kernels may be from a reference in f64: |a - b| / |b| over a whole array,
 * and element by element relative to the larger of the element and a part of the largest one. */
#ifndef TOLERANCE_H
#define TOLERANCE_H

typedef struct Tolerance {
    double norm, element;
    double floor; /* elements smaller than this part of the largest are measured against it */
} Tolerance;

/* Forward kernels are sums and products of one pass: a few roundings. Gradients pass through
 * differences of nearly equal numbers. */
static const Tolerance tolerance_forward_f32 = {1e-6, 1e-4, 1e-2};
static const Tolerance tolerance_gradient_f32 = {2e-5, 2e-3, 1e-2};
static const Tolerance tolerance_bf16 = {1e-2, 1e-1, 5e-2};
/* Matrix units multiply what gradients make on their way, such as those of scores, as bf16: an
 * element that is a difference of larger ones keeps their rounding. */
static const Tolerance tolerance_gradient_bf16 = {1e-2, 1e-1, 1e-1};

/* Arrays smaller than this (root of the mean square) are measured against it: test inputs are of
 * size 1, and a result that is nothing but cancellation has no digits of its own. */
static const double tolerance_smallest = 1e-2;

#endif
