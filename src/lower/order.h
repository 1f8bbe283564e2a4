/* order.h — private to the room: nodes in another order. */
#ifndef LOWER_ORDER_H
#define LOWER_ORDER_H

#include <mx/lower.h>

/* lower_is_of_variables — whether a value is a variable's, cast or seen as another shape, or
 * several of these packed, and is not stored in another variable. No node writes a variable before
 * the last that reads it, so such a value may be computed at any earlier time. */
bool lower_is_of_variables(const MxGraph *graph, MxValue value);
/* lower_have_at — moves the nodes that compute such a value to a time, unless they are earlier. */
void lower_have_at(const MxGraph *graph, MxValue value, int64_t *time, int64_t at);

typedef struct LowerPlace {
    int64_t time;
    int node; /* in the old order */
} LowerPlace;

/* lower_reorder — sorts nodes by time [node]; nodes of one time keep their order. Returns, for each
 * node of the new order, which it was. */
const LowerPlace *lower_reorder(MxArena *arena, MxGraph *graph, const int64_t *time);

#endif
