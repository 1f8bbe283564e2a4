/* streams.h — streams of several rows a token (streams.c). Of one row a token these functions do
 * nothing, or add. */
#ifndef MODEL_STREAMS_H
#define MODEL_STREAMS_H

#include "internal.h"

/* What a block reads of the rows, and how it writes them. */
typedef struct Streams {
    const Hyper *hyper;
    MxValue reads, gives_BTS, mixes_BTSS;
} Streams;

/* model_n_streams — rows a token. model_add_hyper — the parameters of a layer's block, NULL = one
 * row. model_add_collapse — the parameters by which rows become one, of families that weigh them;
 * NULL = others. model_spread, model_gather — all rows are x [B, T, D]; all rows [B, T, S, D] in
 * one, their sum or weighed. model_hyper_flops — of a block's products with its alphas.
 * model_read_streams — what a block reads, [B, T, D]. model_write_streams — the rows behind it, of
 * what it gave. */
int64_t model_n_streams(const MxConfig *config);
const Hyper *model_add_hyper(const Place *place, const MxConfig *config, int block);
MxValue model_spread(const Pass *p, MxValue x_BTD);
MxValue model_gather(const Pass *p, MxValue x_BTSD);
const Collapse *model_add_collapse(const Place *place, const MxConfig *config);
double model_hyper_flops(const MxConfig *config, double tokens);
Streams model_read_streams(const Pass *p, const Hyper *hyper, MxValue x_BTSD, double epsilon);
MxValue model_write_streams(const Pass *p, const Streams *s, MxValue x_BTSD, MxValue y_BTD);

#endif
