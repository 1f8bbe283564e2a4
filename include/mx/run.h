/* run.h — a program on a device: buffers of variables, one arena for the entries, and running them.
 */
#ifndef MX_RUN_H
#define MX_RUN_H

#include <mx/device.h>
#include <mx/lower.h>

typedef struct MxRun MxRun;

typedef struct MxRunBytes {
    size_t vars, arena;
} MxRunBytes;

/* A program lowered and laid out, nothing of it allocated. */
typedef struct MxRunLayout {
    MxPlan *plans;      /* [entries] */
    size_t *var_offset; /* [variables] */
    MxRunBytes bytes;
} MxRunLayout;

/* mx_run_layout — lowers the entries and gives every variable and value its place; the device only
 * says how much scratch its kernels want. */
MxRunLayout mx_run_layout(MxArena *arena, const MxDevice *device, const MxVars *vars,
                          MxGraph *const *entries, int n_entries, MxRemat remat);

/* mx_run_open — lowers the entries (graphs over one MxVars) and lays out memory: every variable and
 * one arena, as large as the hungriest entry's, in one piece. Variables start as zeros. Everything
 * lives as long as the arena. */
bool mx_run_open(MxArena *arena, MxDevice *device, const MxVars *vars, MxGraph *const *entries,
                 int n_entries, MxRemat remat, MxRun **out, MxError *err);

/* mx_run_entry — runs entry i once. Allocates nothing. */
void mx_run_entry(MxRun *run, int entry);

/* mx_run_var — a variable's buffer, row-major. */
void *mx_run_var(const MxRun *run, int var);

MxRunBytes mx_run_bytes(const MxRun *run);

/* mx_run_profile — seconds, calls and rates by op since the start, the dearest first. */
void mx_run_profile(const MxRun *run, MxText *text);

#endif
