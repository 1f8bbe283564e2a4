/* chunks.h — heads that choose chunks of keys (moba), for blocks that attend in a way of their own.
 */
#ifndef MODEL_CHUNKS_H
#define MODEL_CHUNKS_H

#include "internal.h"

/* model_choose_chunks — those that each query sees, of keys [B, T, heads, width] of the pass, or of
 * a whole cache; `attr` then says that attention reads them. */
MxValue model_choose_chunks(const Pass *p, const Spec *spec, MxValue q, MxValue k,
                            MxAttentionAttr *attr);
/* model_cache_window — how many tokens a cache of keys needs, 0 = all. */
int64_t model_cache_window(const Spec *spec);

#endif
