/* stacked.c — leaves that have a dim before those of their variable: one for each of several ranks,
 * of which this rank has its own. Their keeper leaves the dim out. */
#include "internal.h"

static MxBox without_first(MxBox box) {
    box.rank--;
    for (int d = 0; d < box.rank; d++) {
        box.start[d] = box.start[d + 1];
        box.count[d] = box.count[d + 1];
    }
    return box;
}

static void read_one(void *run, int var, MxBox box, void *host) {
    if (mx_box_count(&box)) mx_run_read(run, var, without_first(box), host);
}
static void write_one(void *run, int var, MxBox box, const void *host) {
    if (mx_box_count(&box)) mx_run_write(run, var, without_first(box), host);
}
static void *map_one(void *run, int var) {
    return mx_run_map(run, var);
}

MxKeeper program_stacked(MxTrainState *s) {
    return (MxKeeper){.data = s->run, .read = read_one, .write = write_one, .map = map_one};
}
