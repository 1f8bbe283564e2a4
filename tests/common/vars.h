/* vars.h — variables of a run, wherever its device has them. */
#ifndef TESTS_COMMON_VARS_H
#define TESTS_COMMON_VARS_H

#include <mx/run.h>

/* var_values — a copy of all of a variable in the arena. */
static inline void *var_values(MxArena *arena, const MxRun *run, int var) {
    enum { MOST_BYTES = 8 }; /* of an element */
    MxBox box = mx_run_box(run, var);
    void *copy = mx_arena_alloc(arena, (size_t)(mx_box_count(&box) + 1) * MOST_BYTES);
    mx_run_read(run, var, box, copy);
    return copy;
}

/* var_fill — writes all of it. */
static inline void var_fill(MxRun *run, int var, const void *host) {
    mx_run_write(run, var, mx_run_box(run, var), host);
}

#endif
