/* sequences.c — copies what is kept of a sequence to another one. */
#include <mx/program.h>

#include "internal.h"

void mx_generation_copy(MxTrainState *s, int64_t from, int64_t to, int64_t n) {
    MX_ASSERT(from < s->generation.rows && to < s->generation.rows);
    for (int i = 0; i < s->n_caches; i++) {
        MxArena arena = {.name = "sequence"};
        MxBox box = mx_run_box(s->run, s->caches[i]);
        box.start[0] = from;
        box.count[0] = 1;
        if (box.count[1] > n) box.count[1] = n;
        MxDtype dtype = s->vars.item[s->caches[i]].type.dtype;
        void *values = mx_arena_alloc(&arena, (size_t)mx_box_count(&box) * mx_dtype_bytes(dtype));
        mx_run_read(s->run, s->caches[i], box, values);
        box.start[0] = to;
        mx_run_write(s->run, s->caches[i], box, values);
        mx_arena_release(&arena);
    }
}
