/* table.c — the kernels of a level as one table, the only part of a level that is visible from
 * outside. CPU_LEVEL is the level's name. */
#include "pairs.h"

#define MX_OP(symbol) extern const MxKernel cpu_##symbol;
#include <mx/ops.def>
#undef MX_OP

/* Ops that run nothing. */
const MxKernel cpu_variable = {0};
const MxKernel cpu_reshape = {0};
const MxKernel cpu_detach = {0};

static const MxKernel *const ops[MX_OP_COUNT] = {
#define MX_OP(symbol) [MX_OP_##symbol] = &cpu_##symbol,
#include <mx/ops.def>
#undef MX_OP
};

static const SmallParts small = {
    .kinds = small_kinds,
    .kind = small_kind,
    .pack_left = small_pack_left,
    .pack_right = small_pack_right,
    .pack_turned = small_pack_turned,
    .pack_across = small_pack_across,
    .pairs_words = pairs_words,
    .pairs_rows = pairs_rows,
};

#define NAME_OF(level) NAME(level)
#define NAME(level)    cpu_kernels_##level

extern const CpuKernels NAME_OF(CPU_LEVEL);
const CpuKernels NAME_OF(CPU_LEVEL) = {
    .ops = ops,
    .describe = cpu_matmul_describe,
    .prepare = cpu_matmul_prepare,
    .scratch = cpu_matmul_scratch,
    .multiply = cpu_matmul,
    .widen = cpu_widen,
    .narrow = cpu_narrow,
    .add_to = cpu_add_to,
    .small = &small,
};
