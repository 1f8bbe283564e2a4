/* plan.h — what a run would be, without running it: the mesh, how every parameter is cut, what
 * each rank needs in memory, how much there is to compute, and what is wrong or worth knowing.
 * Nothing large is allocated, so any mesh and any model can be planned on any machine.
 *
 * For one device everything is what a run will use, read off the lowered program. For more,
 * weights, gradients and moments follow from the shards and are exact; activations are estimated:
 * the program of one rank's rows, each value divided by the parts of its activation constraint.
 * docs/SHARDING.md tells the rest. */
#ifndef MX_PLAN_H
#define MX_PLAN_H

#include <mx/config.h>
#include <mx/device.h>

typedef struct MxPlan MxPlan;

/* mx_plan_new — plans the run that a config describes.
 * Errors (exit 2): an unrecognized mesh axis, sizes that make no mesh (two -1, a product that is
 * not the number of devices), a key of an axis that the mesh lacks, a pipeline that does not divide
 * the layers, sizes that no model has; under sharding_strict every finding that would be refused.
 * Test: tests/plan. */
bool mx_plan_new(MxArena *arena, const MxConfig *config, MxPlan **out, MxError *err);

/* mx_plan_check — what sharding_strict refuses, without the rest of a plan; for runs. */
bool mx_plan_check(const MxConfig *config, MxError *err);

/* mx_plan_fits — whether the run has the memory that its plan needs, before any of it is taken: of
 * the machine (which ranks share), of its control groups, of the shell's limits. Where it is close
 * there is a warning. All ranks call it. Errors (exit 71): it has not; with what would need less.
 * What else is wrong with a plan the run tells. */
bool mx_plan_fits(const MxConfig *config, bool only_evaluates, MxComm *comm, MxError *err);

/* mx_plan_print — the plan as text. mx_plan_json — the same and every array, as JSON. */
void mx_plan_print(const MxPlan *plan, MxText *out);
char *mx_plan_json(MxArena *arena, const MxPlan *plan);

/* mx_plan_dump_sharding — one line a parameter, as a checkpoint of this config stores it: header
 * `path shape dtype logical spec_raw spec shard_shape`, tab separated, in the notation of
 * tests/golden/sharding. */
bool mx_plan_dump_sharding(MxArena *arena, const MxConfig *config, MxText *out, MxError *err);

/* mx_plan_dump_graph — an entry of the program that rank 0 would run, one line a node.
 *   what  ENTRY or ENTRY:PASS ("grad", "update:fuse"): as the pass leaves it; without one as it
 *         runs, "ENTRY:trace" as it was traced
 * Errors: no such entry or pass, with those that there are; those of the model. */
bool mx_plan_dump_graph(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                        MxError *err);

/* mx_plan_explain — why an array is cut as it is, dim by dim.
 *   what  a path (of a parameter or of its moments, in NNX or Linen form, with or without its first
 *         folder), or logical names with commas between them ("embed,mlp"; None = not a name)
 * Errors: those of the mesh; no such parameter. */
bool mx_plan_explain(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                     MxError *err);

#endif
