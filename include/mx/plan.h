/* plan.h — describes a run without starting it: the mesh, the sharding of every parameter, the
 * memory of each rank, the amount of computation, and findings. Nothing large is allocated, so any
 * mesh and any model can be planned on any machine.
 *
 * The numbers are read off the lowered program of rank 0, as a run would use it. For a mesh that no
 * run accepts they are estimates, from a similar mesh. docs/SHARDING.md has the details. */
#ifndef MX_PLAN_H
#define MX_PLAN_H

#include <mx/config.h>
#include <mx/device.h>

typedef struct MxPlan MxPlan;

/* ---- devices that times are planned for */

typedef struct MxLink {
    double bytes_per_s, latency_s; /* in each direction; per exchange */
} MxLink;

/* One row per kind of device. Rates are those of one device, that is, of one rank. */
typedef struct MxPlanDevice {
    const char *name, *doc;
    double f32_per_s, bf16_per_s; /* operations of matrix products */
    double product_share;         /* share of these that large products reach */
    double touched_per_s;         /* bytes of memory that kernels read and write */
    double kernel_s;              /* minimum time of a kernel */
    int64_t memory_bytes;         /* 0 = that of the machine that plans */
    int64_t host_devices;   /* devices per host, joined by the inner link; 0 = all of a slice */
    MxLink inside, between; /* hosts; slices (dcn_*) are different hosts */
    double hidden_share;    /* share of an exchange that overlaps with kernels */
    bool is_measured;       /* rates are measured on the machine that plans */
} MxPlanDevice;

/* mx_plan_device — the row with this name, with measured rates if is_measured (a third of a
 * second).
 *   links  NULL, or what replaces its links: "GBIT[:MICROSECONDS][,GBIT[:MICROSECONDS]]", inside
 *          hosts, between them
 *   gib    of memory instead of the row's; 0 = the row's
 * Errors (exit 2): no such row, with a list of rows; malformed links. */
bool mx_plan_device(MxArena *arena, const char *name, const char *links, double gib,
                    MxPlanDevice *out, MxError *err);
extern const char mx_plan_device_names[];

/* mx_plan_new — plans the run that a config describes.
 *   device  the device whose times and memory are planned; NULL = this machine's memory, and no
 *           times
 * Errors (exit 2): an unrecognized mesh axis, sizes that give no mesh (two -1, a product that is
 * not the number of devices), a key of an axis that the mesh lacks, a pipeline that does not divide
 * the layers, sizes that would overflow; with sharding_strict every finding that would be refused.
 * Test: tests/plan. */
bool mx_plan_new(MxArena *arena, const MxConfig *config, const MxPlanDevice *device, MxPlan **out,
                 MxError *err);

/* ---- search */

/* A plan that runs and fits. */
typedef struct MxPlanFound {
    double seconds, bubble, tokens_per_s; /* time of a step; share of the step; */
    int64_t bytes;                        /* of a rank */
    const char *words; /* "key=value key=value": the settings that give this plan */
} MxPlanFound;

enum { MX_PLAN_BEST = 10 };
typedef struct MxPlanSearch {
    const MxPlanDevice *device;
    int64_t n_devices, rows, tokens; /* of a step, the same in all plans */
    int n_candidates, n_planned, n_refused, n_too_large;
    int n;
    MxPlanFound found[MX_PLAN_BEST]; /* [n] the fastest first */
    MxPlanFound nearest;             /* the smallest that does not fit; words NULL = none */
} MxPlanSearch;

/* mx_plan_search — searches meshes, micro-batches and remat policies for a config's batch on its
 * devices. Errors: those of a plan; (2) the request sets what the search chooses, several slices;
 * (71) no plan fits, with the smallest that does not. Test: tests/plan/search.c. */
bool mx_plan_search(MxArena *arena, const MxConfigRequest *request, const MxPlanDevice *device,
                    MxPlanSearch *out, MxError *err);
void mx_plan_search_print(const MxPlanSearch *search, MxText *out);
char *mx_plan_search_json(MxArena *arena, const MxPlanSearch *search);

/* mx_plan_check — only the errors of sharding_strict, for runs. */
bool mx_plan_check(const MxConfig *config, MxError *err);

/* mx_plan_fits — checks that the run has the memory that its plan needs, before any is allocated:
 * memory of the machine (which ranks share), of its control groups, and the shell's limits. If it
 * is close, there is a warning. All ranks call it. Errors (exit 71): not enough memory, with
 * suggestions. Other errors of the plan are left to the run. */
bool mx_plan_fits(const MxConfig *config, bool only_evaluates, MxComm *comm, MxError *err);

/* mx_plan_print — the plan as text. mx_plan_json — the same as JSON, with every array. */
void mx_plan_print(const MxPlan *plan, MxText *out);
char *mx_plan_json(MxArena *arena, const MxPlan *plan);

/* mx_plan_dump_sharding — one line per parameter, as stored in a checkpoint of this config: header
 * `path shape dtype logical spec_raw spec shard_shape`, tab separated, in the notation of
 * tests/golden/sharding. */
bool mx_plan_dump_sharding(MxArena *arena, const MxConfig *config, MxText *out, MxError *err);

/* mx_plan_dump_graph — an entry of the program that rank 0 would run, one line per node.
 *   what  ENTRY or ENTRY:PASS ("grad", "update:fuse"): as the pass leaves it; without one as it
 *         runs, "ENTRY:trace" as it was traced
 * Errors: no such entry or pass, with a list; those of the model. */
bool mx_plan_dump_graph(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                        MxError *err);

/* mx_plan_explain — explains the sharding of an array, dim by dim.
 *   what  a path (of a parameter or of its moments, in NNX or Linen form, with or without its first
 *         folder), or logical names with commas between them ("embed,mlp"; None = not a name)
 * Errors: those of the mesh; no such parameter. */
bool mx_plan_explain(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                     MxError *err);

#endif
