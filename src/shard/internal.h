/* internal.h — shared by the files of this room. */
#ifndef SHARD_INTERNAL_H
#define SHARD_INTERNAL_H

#include <mx/shard.h>

/* spec_is_unconstrained — the entry "*". */
bool spec_is_unconstrained(const MxSpecDim *dim);
/* spec_holds — the entry names this mesh axis. */
bool spec_holds(const MxSpecDim *dim, const char *mesh_axis);
/* spec_add — one entry as text ("None", "fsdp", "(a,b)"). */
void spec_add(MxText *text, const char *const *axes, int n);
/* spec_room — a spec's dims to be filled in. */
MxSpecDim *spec_room(MxArena *arena, int rank);
/* spec_filter — the entry's mesh axes for which keep(axis, data) holds; unconstrained stays. */
MxSpecDim spec_filter(MxArena *arena, const MxSpecDim *dim,
                      bool (*keep)(const char *axis, const void *data), const void *data);
/* rule_text — "embed -> (fsdp,expert)". */
const char *rule_text(MxArena *arena, const MxRule *rule);

#endif
