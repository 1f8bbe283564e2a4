/* run.h — a program on a device: buffers of variables, one arena for all entries, and running
 * entries. */
#ifndef MX_RUN_H
#define MX_RUN_H

#include <mx/device.h>
#include <mx/lower.h>

typedef struct MxRun MxRun;

typedef struct MxRunBytes {
    size_t vars, arena;
    size_t disk; /* variables on disk, not included in these */
} MxRunBytes;

/* A lowered program with its memory layout, without allocated memory. */
typedef struct MxRunLayout {
    MxLowered *lowered; /* [entries] */
    size_t *var_offset; /* [variables] */
    MxRunBytes bytes;
} MxRunLayout;

/* mx_run_layout — lowers the entries and places every variable and value; the device only tells the
 * scratch memory of its kernels. */
MxRunLayout mx_run_layout(MxArena *arena, const MxDevice *device, const MxVars *vars,
                          MxGraph *const *entries, int n_entries, MxRemat remat);

/* mx_run_open — lowers the entries (graphs over one MxVars) and lays out memory: all variables and
 * one arena, as large as the largest entry's, in one piece, variables on disk in another. Variables
 * are initially zero. Everything lives as long as the arena. */
bool mx_run_open(MxArena *arena, MxDevice *device, const MxVars *vars, MxGraph *const *entries,
                 int n_entries, MxRemat remat, MxRun **out, MxError *err);

/* mx_run_entry — runs entry i once: submits its nodes to the device, which may still be working
 * when this returns. Allocates nothing. */
void mx_run_entry(MxRun *run, int entry);

/* Variables are on the device. mx_run_read — copies a part of a variable to the host, dense, after
 * all entries run before have finished. mx_run_write — copies a part from the host, for entries run
 * later; `host` may be changed when it returns. mx_run_box — the box of a whole variable. */
void mx_run_read(const MxRun *run, int var, MxBox box, void *host);
void mx_run_write(MxRun *run, int var, MxBox box, const void *host);
MxBox mx_run_box(const MxRun *run, int var);
/* mx_run_map — a variable in place, row-major, if device memory is host memory; otherwise NULL,
 * which callers must handle. Valid until the next entry runs. */
void *mx_run_map(const MxRun *run, int var);

MxRunBytes mx_run_bytes(const MxRun *run);

/* mx_run_measure — from now on waits for every node, so that the profile shows the time of kernels
 * instead of the time of submitting them. No effect on a CPU. */
void mx_run_measure(MxRun *run);
/* mx_run_trace — from now on spans of nodes include the types of their results. mx_run_entry
 * records spans of entries and nodes in any case, while spans are recorded (mx_spans_begin). */
void mx_run_trace(MxRun *run);
/* Rates of a device, as measured: operations of matrix products in each dtype, bytes of memory that
 * kernels read and write. */
typedef struct MxRunRates {
    double f32_per_s, bf16_per_s, touched_per_s;
} MxRunRates;
/* mx_run_rates — measures them in a third of a second. Errors: no memory on the device. */
bool mx_run_rates(MxDevice *device, MxRunRates *out, MxError *err);

/* mx_run_profile — a table of seconds, calls and rates by op since the start, the most expensive
 * first. Beside them is the share of the device's rates (measured now), of products or of memory,
 * whichever takes an op longer. Errors: those of mx_run_rates. Test: tests/watching. */
bool mx_run_profile(const MxRun *run, MxText *text, MxError *err);

#endif
