/* balance.h — how evenly routers choose experts. */
#ifndef MODEL_BALANCE_H
#define MODEL_BALANCE_H

#include "internal.h"

/* model_add_balance — adds a layer's loss to p->balance. `by` are the scores [B, T, X]
 * that experts were chosen by. The loss of layers is their mean, in which a token counts as often
 * as it chooses; as Megatron-LM has it, their sum, in which it counts once. model_add_counts — adds
 * to *sum, MX_NONE at first, how often each expert is among ids: layers may share a router. */
void model_add_balance(const Pass *p, const Spec *spec, MxValue scores_BTX, MxValue by_BTX,
                       MxValue ids_BTC);
void model_add_counts(const Pass *p, MxValue *sum, MxValue ids);

#endif
