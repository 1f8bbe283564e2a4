/* pool.h — which segment windows of tokens belong to, shared by kernels that let tokens see them.
 */
#ifndef CPU_POOL_H
#define CPU_POOL_H

#include "kernel.h"

/* pool_segments — of each window of `ratio` tokens of rows [B, T] the segment that all its tokens
 * are of; -1, which no token has, if they are of several or padding. out i32 [B, T / ratio]. */
void pool_segments(const int32_t *segments, const int64_t rows_time[2], int64_t ratio,
                   int32_t *out);

#endif
