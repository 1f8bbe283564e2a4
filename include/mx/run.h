/* run.h — a program on a device: buffers of variables, one arena for the entries, and running them.
 */
#ifndef MX_RUN_H
#define MX_RUN_H

#include <mx/device.h>
#include <mx/lower.h>

typedef struct MxRun MxRun;

typedef struct MxRunBytes {
    size_t vars, arena;
    size_t disk; /* variables on disk, in neither of them */
} MxRunBytes;

/* A program lowered and laid out, nothing of it allocated. */
typedef struct MxRunLayout {
    MxLowered *lowered; /* [entries] */
    size_t *var_offset; /* [variables] */
    MxRunBytes bytes;
} MxRunLayout;

/* mx_run_layout — lowers the entries and gives every variable and value its place; the device only
 * says how much scratch its kernels want. */
MxRunLayout mx_run_layout(MxArena *arena, const MxDevice *device, const MxVars *vars,
                          MxGraph *const *entries, int n_entries, MxRemat remat);

/* mx_run_open — lowers the entries (graphs over one MxVars) and lays out memory: every variable and
 * one arena, as large as the hungriest entry's, in one piece, those on disk in another. Variables
 * start as zeros. Everything lives as long as the arena. */
bool mx_run_open(MxArena *arena, MxDevice *device, const MxVars *vars, MxGraph *const *entries,
                 int n_entries, MxRemat remat, MxRun **out, MxError *err);

/* mx_run_entry — runs entry i once: hands its nodes to the device, which may still be at work when
 * this returns. Allocates nothing. */
void mx_run_entry(MxRun *run, int entry);

/* Variables are on the device. mx_run_read — a part of one to the host, dense, when all entries run
 * before have ended. mx_run_write — a part of one from the host, for entries run later; `host` may
 * be changed when it returns. mx_run_box — all of a variable. */
void mx_run_read(const MxRun *run, int var, MxBox box, void *host);
void mx_run_write(MxRun *run, int var, MxBox box, const void *host);
MxBox mx_run_box(const MxRun *run, int var);
/* mx_run_map — a variable where it is, row-major, if the device's memory is the host's; NULL
 * elsewhere: who asks must be able to do without. Good until the next entry runs. */
void *mx_run_map(const MxRun *run, int var);

MxRunBytes mx_run_bytes(const MxRun *run);

/* mx_run_measure — from now on every node is waited for, so that the profile tells what it took
 * rather than what it took to hand it over. Changes nothing on a CPU. */
void mx_run_measure(MxRun *run);
/* mx_run_trace — from now on spans of nodes say what their results are; mx_run_entry keeps spans of
 * entries and nodes in any case, while spans are kept (mx_spans_begin). */
void mx_run_trace(MxRun *run);
/* mx_run_profile — seconds, calls and rates by op since the start, the dearest first. */
void mx_run_profile(const MxRun *run, MxText *text);

#endif
