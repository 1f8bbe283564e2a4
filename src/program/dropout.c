/* dropout.c — the part of a program for dropout in training: its random numbers depend only on the
 * step and on each row's position in the batch. */
#include <mx/program.h>

#include "internal.h"

typedef struct Dropout {
    int step, rows; /* variables i32, scalar and [rows] */
    MxDraws draws;  /* of the pass that is being traced */
} Dropout;

bool program_drops(const MxConfig *config) {
    return config->enable_dropout && config->dropout_rate > 0;
}

static int64_t rows_of(const MxTrainState *s) {
    return mx_train_rows(s->config) * s->config->micro_batch_size_to_train_on;
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Dropout *own = program_part(s, PART_dropout);
    own->step = program_add_var(s, "in", "step", (MxType){MX_I32, MX_SCALAR});
    own->rows = program_add_var(s, "in", "rows", (MxType){MX_I32, MX_SHAPE(rows_of(s))});
    program_note_micro(s, own->rows);
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    Dropout *own = program_part(s, PART_dropout);
    own->draws = (MxDraws){.step = mx_variable(t, own->step), .rows = mx_variable(t, own->rows)};
    in->draws = &own->draws;
}

static void before_pass(MxTrainState *s, MicroBatch micro) {
    const Dropout *own = program_part(s, PART_dropout);
    MxArena arena = {.name = "rows"};
    int64_t n = rows_of(s);
    int32_t *rows = mx_new_n(&arena, int32_t, n);
    micro.examples = n / mx_train_rows(s->config);
    micro.of_examples = micro.n * micro.examples * program_replicas(s);
    micro.first = program_first_of(&s->mesh.mesh, s->rank, micro.of_examples);
    for (int64_t i = 0; i < n; i++) rows[i] = (int32_t)program_row_of(&micro, i);
    program_write_all(s, program_own(s, own->rows, micro.lane), rows);
    program_write_all(s, own->step, s->step);
    mx_arena_release(&arena);
}

const Part part_dropout = {
    .is_wanted = program_drops,
    .bytes = sizeof(Dropout),
    .declare = declare,
    .ask = ask,
    .before_pass = before_pass,
};
