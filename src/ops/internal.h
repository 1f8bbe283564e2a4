/* internal.h — shape rules and gradient helpers that several files of ops share. */
#ifndef OPS_INTERNAL_H
#define OPS_INTERNAL_H

#include <mx/ops.h>

/* ops_infer_same — out 0 has the type of input 0, f32 or bf16. */
bool ops_infer_same(MxInfer *infer);
/* ops_same_type — checks that inputs a and b have one type. */
bool ops_same_type(MxInfer *infer, int a, int b);
/* ops_is_real — checks that input i is f32 or bf16. */
bool ops_is_real(MxInfer *infer, int i);
/* ops_is — checks an input's dtype and rank (rank < 0 = any). */
bool ops_is(MxInfer *infer, int i, MxDtype dtype, int rank);

#endif
