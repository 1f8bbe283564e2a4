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

/* ---- devices that times are planned for */

typedef struct MxLink {
    double bytes_per_s, latency_s; /* each way; of an exchange */
} MxLink;

/* A row a kind of device. Rates are of one device, or of one rank. */
typedef struct MxPlanDevice {
    const char *name, *doc;
    double f32_per_s, bf16_per_s; /* operations of matrix products */
    double product_share;         /* of them that large products reach */
    double touched_per_s;         /* bytes of memory that kernels read and write */
    double kernel_s;              /* that a kernel takes at least */
    int64_t memory_bytes;         /* 0 = what the machine that plans has */
    int64_t host_devices;         /* joined by the inner link; 0 = all of a slice */
    MxLink inside, between;       /* hosts; slices (dcn_*) are different hosts */
    double hidden_share;          /* of an exchange that goes on beside kernels */
    bool is_measured;             /* rates are those of the machine that plans, found by trying */
} MxPlanDevice;

/* mx_plan_device — the row of a name, its rates measured where it says so (a third of a second).
 *   links  NULL, or what replaces its links: "GBIT[:MICROSECONDS][,GBIT[:MICROSECONDS]]", inside
 *          hosts, between them
 *   gib    of memory instead of the row's; 0 = the row's
 * Errors (exit 2): no such row, with those that there are; links that are no such text. */
bool mx_plan_device(MxArena *arena, const char *name, const char *links, double gib,
                    MxPlanDevice *out, MxError *err);
extern const char mx_plan_device_names[];

/* mx_plan_new — plans the run that a config describes.
 *   device  whose times and memory it tells; NULL = this machine's memory, and no times
 * Errors (exit 2): an unrecognized mesh axis, sizes that make no mesh (two -1, a product that is
 * not the number of devices), a key of an axis that the mesh lacks, a pipeline that does not divide
 * the layers, sizes that no model has; under sharding_strict every finding that would be refused.
 * Test: tests/plan. */
bool mx_plan_new(MxArena *arena, const MxConfig *config, const MxPlanDevice *device, MxPlan **out,
                 MxError *err);

/* ---- search */

/* A plan that runs and fits. */
typedef struct MxPlanFound {
    double seconds, bubble, tokens_per_s; /* of a step; share of it; */
    int64_t bytes;                        /* of a rank */
    const char *words;                    /* "key=value key=value": what makes the config it */
} MxPlanFound;

enum { MX_PLAN_BEST = 10 };
typedef struct MxPlanSearch {
    const MxPlanDevice *device;
    int64_t n_devices, rows, tokens; /* of a step, the same in all */
    int n_candidates, n_planned, n_refused, n_too_large;
    int n;
    MxPlanFound found[MX_PLAN_BEST]; /* [n] the fastest first */
    MxPlanFound nearest;             /* the smallest that does not fit; words NULL = none */
} MxPlanSearch;

/* mx_plan_search — meshes, micro-batches and remat policies for a config's batch on its devices.
 * Errors: those of a plan; (2) the request sets what the search chooses, several slices; (71) no
 * plan fits, with the smallest that does not. Test: tests/plan/search.c. */
bool mx_plan_search(MxArena *arena, const MxConfigRequest *request, const MxPlanDevice *device,
                    MxPlanSearch *out, MxError *err);
void mx_plan_search_print(const MxPlanSearch *search, MxText *out);
char *mx_plan_search_json(MxArena *arena, const MxPlanSearch *search);

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
