/* draws.c — the part of a program for what training leaves to chance, which are columns and inputs
 * of adapters that are dropped, noise of embeddings, and experts that are drawn: random numbers
 * depend only on the step and on each row's position in the batch. */
#include <mx/program.h>

#include "internal.h"

typedef struct Draws {
    int step, rows; /* variables i32, scalar and [rows] */
    MxDraws draws;  /* of the pass that is being traced */
} Draws;

bool program_draws(const MxConfig *config) {
    return mx_config_drops(config) || mx_config_drops_lora(config) ||
           mx_model_drops_images(config) || config->neftune_noise_alpha > 0 ||
           config->use_random_routing;
}

static int64_t rows_of(const MxTrainState *s) {
    return mx_train_rows(s->config) * s->config->micro_batch_size_to_train_on;
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Draws *own = program_part(s, PART_draws);
    own->step = program_add_var(s, "in", "step", (MxType){MX_I32, MX_SCALAR});
    own->rows = program_add_var(s, "in", "rows", (MxType){MX_I32, MX_SHAPE(rows_of(s))});
    program_note_micro(s, own->rows);
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    Draws *own = program_part(s, PART_draws);
    own->draws = (MxDraws){.step = mx_variable(t, own->step), .rows = mx_variable(t, own->rows)};
    in->draws = &own->draws;
}

static void before_pass(MxTrainState *s, MicroBatch micro) {
    const Draws *own = program_part(s, PART_draws);
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

const Part part_draws = {
    .is_wanted = program_draws,
    .bytes = sizeof(Draws),
    .declare = declare,
    .ask = ask,
    .before_pass = before_pass,
};
