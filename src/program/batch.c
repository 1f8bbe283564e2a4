/* batch.c — the part of every batch that a rank needs: the rows, and the columns of those, that its
 * micro-batches contain. It follows from the config and the mesh alone, so it is known, or refused,
 * before any data is opened. */
#include <mx/program.h>

#include "internal.h"

int64_t program_row_of(const MicroBatch *micro, int64_t row) {
    int64_t side = row / micro->examples, example = row % micro->examples;
    return side * micro->of_examples + micro->first + micro->i + micro->n * example;
}

int64_t program_replica(const MxMesh *mesh, int64_t rank) {
    int axis = mx_mesh_find(mesh, "diloco");
    return axis < 0 ? 0 : mx_mesh_coord(mesh, rank, axis);
}

int64_t program_first_of(const MxMesh *mesh, int64_t rank, int64_t of_examples) {
    return of_examples / mx_mesh_size(mesh, "diloco") * program_replica(mesh, rank);
}

static int64_t examples_of_micro(const MxConfig *c, bool is_eval) {
    return is_eval ? c->micro_batch_size_to_eval_on : c->micro_batch_size_to_train_on;
}

bool program_shard_batch(MxArena *arena, const MxTrainMesh *mesh, bool is_eval, MxSharding *out,
                         MxError *err) {
    const MxConfig *c = mesh->config;
    const MxStrs *axes = &c->input_data_sharding_logical_axes;
    int64_t rows = mx_train_rows(c) * examples_of_micro(c, is_eval);
    if (axes->n != 2)
        return mx_config_fail(err, c, MX_KEY_input_data_sharding_logical_axes,
                              "%d axes; a batch has 2 dims", axes->n);
    if (!mx_sharding_of_axes(arena, &mesh->mesh, &mesh->rules, axes->item, 2, out, err))
        return mx_context(err, "input_data_sharding_logical_axes");
    MxSpec spec = mx_sharding_spec(arena, &mesh->mesh, *out, 2);
    int64_t row_parts = mx_shard_parts(&mesh->mesh, &spec.dim[0]);
    if (rows % row_parts)
        return mx_config_fail(
            err, c, is_eval ? MX_KEY_eval_per_device_batch_size : MX_KEY_per_device_batch_size,
            "a micro-batch of %lld rows does not divide among the %lld ranks along %s",
            (long long)rows, (long long)row_parts,
            mx_spec_text(arena, (MxSpec){.rank = 1, .dim = spec.dim}));
    if (c->max_target_length % mx_shard_parts(&mesh->mesh, &spec.dim[1])) out->dim[1] = 0;
    return true;
}

/* Marks the rows of a batch that the rows of a box are in all its micro-batches. */
static void mark_rows(const MxBox *box, MicroBatch micro, bool *is_mine) {
    for (micro.i = 0; micro.i < micro.n; micro.i++)
        for (int64_t k = 0; k < box->count[0]; k++)
            is_mine[program_row_of(&micro, box->start[0] + k)] = true;
}

MxBatchPart mx_train_batch_whole(const MxConfig *c, int64_t rows) {
    const MxVision vision = mx_model_vision(c);
    const MxHearing hearing = mx_model_hearing(c);
    return (MxBatchPart){.rows = rows,
                         .of_rows = rows,
                         .length = c->max_target_length,
                         .pixels = mx_vision_row(&vision),
                         .grids = mx_vision_grids(&vision),
                         .frames = mx_audio_row(&hearing),
                         .chunks = hearing.chunks,
                         .has_mrope = vision.has_mrope};
}

bool mx_train_batch_part(MxArena *arena, const MxTrainMesh *mesh, int64_t rank, bool is_eval,
                         MxBatchPart *out, MxError *err) {
    const MxConfig *c = mesh->config;
    MxSharding sharding = {0};
    MicroBatch micro = {.n = is_eval ? 1 : c->micro_batches_at_once,
                        .examples = examples_of_micro(c, is_eval),
                        .of_examples =
                            is_eval ? c->global_batch_size_to_load_eval : c->rows_at_once};
    micro.first = program_first_of(&mesh->mesh, rank, micro.of_examples);
    int64_t sides = mx_train_rows(c), all = sides * micro.of_examples;
    *out = mx_train_batch_whole(c, all);
    if (mesh->mesh.n_ranks == 1) return true;
    if (!program_shard_batch(arena, mesh, is_eval, &sharding, err)) return false;
    if (mx_config_writes(c)) return true; /* completions of all ranks come to its prompts */
    MxLayout layout = {&mesh->mesh, mx_sharding_spec(arena, &mesh->mesh, sharding, 2)};
    MxBox box = mx_shard_box(layout, MX_SHAPE(sides * micro.examples, c->max_target_length), rank);
    bool *is_mine = mx_new_n(arena, bool, all);
    int64_t *row = mx_new_n(arena, int64_t, all), n = 0;
    mark_rows(&box, micro, is_mine);
    for (int64_t r = 0; r < all; r++)
        if (is_mine[r]) row[n++] = r;
    out->row = row;
    out->rows = n;
    if (program_takes_rows(c)) return true;
    out->column = box.start[1];
    out->length = box.count[1];
    return true;
}
