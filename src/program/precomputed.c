/* precomputed.c — making, checking and reading the folder. */
#include "precomputed.h"

#include "internal.h"

#include <mx/store.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What is stored of the batches of training, or of evaluation: a row of each array for a row of a
 * batch, and its hash. */
typedef struct Side {
    const char *name, *hash_path, *path[PRECOMPUTED_MOST];
    MxDataset *data;
    int64_t n, rows, length;       /* batches and their arrays */
    void *value[PRECOMPUTED_MOST]; /* of the batch at hand, or of its part */
    int64_t *hash;                 /* of its rows */
} Side;

struct Precomputed {
    MxTrainState *state;
    PrecomputedSetup setup;
    MxH5 *file;
    Side side[2]; /* training, evaluation */
};

/* Of row `row` of an array with rows of n numbers of 4 bytes; NULL: as it was. */
static uint64_t hash_on(uint64_t hash, const void *rows, int64_t row, int64_t n) {
    const size_t bytes = (size_t)n * sizeof(int32_t);
    if (!rows) return hash;
    const uint64_t own = mx_hash64((const char *)rows + (size_t)row * bytes, bytes);
    return mx_hash64((uint64_t[]){hash, own}, 2 * sizeof hash);
}

static int64_t hash_of(const MxBatch *batch, int64_t row) {
    uint64_t hash = 0;
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        hash = hash_on(hash, batch->field[f], row, batch->length);
    hash = hash_on(hash, batch->pixels, row, batch->part.pixels);
    return (int64_t)hash_on(hash, batch->frames, row, batch->part.frames);
}

static MxBox hash_box(int64_t row, int64_t n) {
    return (MxBox){.rank = 1, .start = {row}, .count = {n}};
}

static MxShape rows_of(const PrecomputedArray *array, int64_t n) {
    MxShape shape = MX_SHAPE(n);
    for (int d = 0; d < array->row.rank; d++) shape.dim[shape.rank++] = array->row.dim[d];
    return shape;
}

static MxBox value_box(const PrecomputedArray *array, int64_t row, int64_t n) {
    MxBox box = mx_box_of(rows_of(array, n));
    box.start[0] = row;
    return box;
}

static int64_t width_of(const PrecomputedArray *array) {
    return mx_shape_count(array->row);
}

/* ---- making */

/* How many batches a run may want, at most `wanted` (below 0 = all there are). */
static int64_t count_batches(MxDataset *data, int64_t wanted) {
    int64_t n = data ? mx_data_steps(data) : 0;
    return n < 0 || (wanted >= 0 && wanted < n) ? wanted : n;
}

/* A model that makes NaN would teach it without a word. */
static bool is_finite(const Precomputed *p, const Side *side) {
    bool ok = true;
    for (int k = 0; k < p->setup.n_arrays; k++) {
        const PrecomputedArray *array = &p->setup.array[k];
        const float *value = side->value[k];
        for (int64_t i = 0; array->dtype == MX_F32 && i < side->rows * width_of(array); i++)
            ok &= isfinite(value[i]) != 0;
    }
    return ok;
}

static bool write_batch(const Precomputed *p, const Side *side, int64_t i, MxH5 *file,
                        MxError *err) {
    int64_t row = i * side->rows;
    if (!is_finite(p, side))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s are not finite in %s batch %lld",
                       p->setup.noun, side->name, (long long)i);
    bool ok = mx_h5_write_box(file, side->hash_path, hash_box(row, side->rows), side->hash, err);
    for (int k = 0; ok && k < p->setup.n_arrays; k++)
        ok = mx_h5_write_box(file, side->path[k], value_box(&p->setup.array[k], row, side->rows),
                             side->value[k], err);
    return ok;
}

/* On the first rank all of a batch; elsewhere only that rank's, 0 in place of others. */
static void compute(Precomputed *p, const Side *side, const MxBatch *batch) {
    MxTrainState *s = p->state;
    bool is_eval = side == &p->side[true];
    int inputs[PRECOMPUTED_MOST];
    program_see(s, batch);
    for (int k = 0; k < p->setup.n_arrays; k++) inputs[k] = p->setup.array[k].input;
    program_make_inputs(s, p->setup.entry[is_eval], inputs, p->setup.n_arrays, is_eval, batch,
                        side->value);
    for (int k = 0; k < p->setup.n_arrays; k++)
        program_add_parts(s, s->var.batch[is_eval][inputs[k]], side->value[k],
                          side->rows * width_of(&p->setup.array[k]));
}

static bool make_batch(Precomputed *p, Side *side, int64_t i, MxH5 *file, MxBatch *batch,
                       MxError *err) {
    if (mx_data_batch(side->data, i, batch, err) != MX_DATA_OK) return false;
    for (int64_t row = 0; row < side->rows; row++) side->hash[row] = hash_of(batch, row);
    compute(p, side, batch);
    return !file || write_batch(p, side, i, file, err);
}

static bool make_arrays(const Precomputed *p, const Side *side, MxH5 *file, MxError *err) {
    int64_t rows = side->n * side->rows;
    bool ok = mx_h5_make(file, side->hash_path, MX_I64, MX_SHAPE(rows), err);
    for (int k = 0; ok && k < p->setup.n_arrays; k++) {
        const PrecomputedArray *array = &p->setup.array[k];
        ok = mx_h5_make(file, side->path[k], array->dtype, rows_of(array, rows), err);
    }
    return ok;
}

/* file: NULL on ranks that do not write. */
static bool make_side(Precomputed *p, Side *side, MxH5 *file, MxError *err) {
    if (!side->n) return true;
    MxArena arena = {.name = "precomputed"};
    const MxBatchPart whole = mx_train_batch_whole(p->state->config, side->rows);
    MxBatch batch = mx_batch_new_part(&arena, &whole);
    bool ok = !file || make_arrays(p, side, file, err);
    double start = mx_clock_s();
    for (int64_t i = 0; ok && i < side->n; i++) {
        double done = (double)(i + 1);
        ok = make_batch(p, side, i, file, &batch, err);
        mx_progress(done / (double)side->n,
                    (mx_clock_s() - start) / done * (double)(side->n - i - 1),
                    "%s, %s batch %lld of %lld", p->setup.noun, side->name, (long long)i + 1,
                    (long long)side->n);
    }
    mx_progress_end();
    mx_arena_release(&arena);
    return ok;
}

static bool make_sides(Precomputed *p, MxH5 *file, MxError *err) {
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) ok = make_side(p, &p->side[i], file, err);
    return ok;
}

static bool make_folder(Precomputed *p, MxError *err) {
    MxArena arena = {.name = "precomputed"};
    const PrecomputedSetup *setup = &p->setup;
    MxPublish *publish;
    MxH5 *file;
    bool ok = mx_store_publish_begin(&arena, setup->dir, &publish, err);
    if (ok) {
        mx_log("making %s in %s", setup->what, setup->dir);
        mx_json_set_string(
            mx_store_publish_manifest(publish), setup->maker,
            mx_arena_printf(&arena, "%016llx", (unsigned long long)*setup->fingerprint));
        const char *path = mx_path_join(&arena, mx_store_publish_dir(publish), setup->file_name);
        ok = mx_h5_create(&arena, path, &file, err) && make_sides(p, file, err) &&
             mx_h5_close(file, err) && mx_store_publish_commit(publish, err);
    }
    mx_arena_release(&arena);
    return ok;
}

/* The ranks that do not write go on when the folder is there. */
static bool make(Precomputed *p, MxError *err) {
    bool ok = p->state->rank ? make_sides(p, NULL, err) : make_folder(p, err);
    if (!ok) return mx_context(err, "could not make %s", p->setup.what);
    if (p->state->comm) mx_comm_max(p->state->comm, 0);
    return true;
}

/* ---- reading */

static bool advise(const Precomputed *p, MxError *err) {
    mx_note(err, "hint: remove the folder, or choose another with %s", mx_key_name(p->setup.key));
    return false;
}

static bool check_maker(const Precomputed *p, const MxJson *manifest, MxError *err) {
    const PrecomputedSetup *setup = &p->setup;
    char here[32];
    const char *maker = mx_json_string(mx_json_get(manifest, setup->maker));
    if (maker && !*setup->fingerprint) *setup->fingerprint = (int64_t)strtoull(maker, NULL, 16);
    snprintf(here, sizeof here, "%016llx", (unsigned long long)*setup->fingerprint);
    if (maker && !strcmp(maker, here)) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = setup->dir},
            "these %s are of another %s: fingerprint %s, this run started from %s", setup->noun,
            setup->maker, maker ? maker : "none", here);
    return advise(p, err);
}

static bool check_array(const Precomputed *p, const Side *side, int k, MxError *err) {
    MxArena arena = {.name = "precomputed"};
    MxShape want = rows_of(&p->setup.array[k], side->n * side->rows);
    MxH5Array array = {.shape = rows_of(&p->setup.array[k], 0)};
    bool ok =
        !mx_h5_has_array(p->file, side->path[k]) || mx_h5_stat(p->file, side->path[k], &array, err);
    MxShape shape = array.shape, alike = want;
    alike.dim[0] = shape.dim[0];
    if (ok && (shape.dim[0] < want.dim[0] || !mx_shape_equal(shape, alike))) {
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = p->setup.dir},
                     "it holds %s for rows of %s batches, this run wants %s",
                     mx_shape_text(&arena, shape), side->name, mx_shape_text(&arena, want));
        ok = advise(p, err);
    }
    mx_arena_release(&arena);
    return ok;
}

static bool open_folder(MxArena *arena, Precomputed *p, MxError *err) {
    const PrecomputedSetup *setup = &p->setup;
    MxJson *manifest;
    if (!mx_store_verify(arena, setup->dir, NULL, &manifest, err) ||
        !check_maker(p, manifest, err) ||
        !mx_h5_open(arena, mx_path_join(arena, setup->dir, setup->file_name), &p->file, err))
        return false;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < setup->n_arrays; k++)
            if (!check_array(p, &p->side[i], k, err)) return false;
    return true;
}

bool precomputed_is_there(const char *dir, MxComm *comm, bool *is_there, MxError *err) {
    bool found = mx_comm_rank(comm) == 0 && mx_dir_exists(dir), is_unfinished = false;
    if (found && !mx_store_is_unfinished(dir, &is_unfinished, err)) return false;
    found = found && !is_unfinished;
    *is_there = comm ? mx_comm_max(comm, found) : found;
    return true;
}

static void open_sides(MxTrainState *s, Precomputed *p) {
    static const char *const names[] = {"train", "eval"};
    const MxConfig *c = s->config;
    int64_t each = mx_config_iterations(c), n_batches = (c->steps + each - 1) / each;
    int64_t wanted[] = {c->reuse_example_batch > 0 ? 1 : n_batches,
                        c->eval_steps > 0 ? c->eval_steps : -1};
    int64_t rows[] = {c->global_batch_size_to_load, c->global_batch_size_to_load_eval};
    for (int i = 0; i < 2; i++) {
        Side *side = &p->side[i];
        MxDataset *data = p->setup.data[i];
        *side = (Side){.name = names[i],
                       .hash_path = mx_path_join(s->arena, names[i], "hash"),
                       .data = data,
                       .n = count_batches(data, wanted[i]),
                       .rows = rows[i] * mx_train_rows(c),
                       .length = c->max_target_length};
        int64_t held = data ? side->rows : 0;
        side->hash = mx_new_n(s->arena, int64_t, held);
        for (int k = 0; k < p->setup.n_arrays; k++) {
            const PrecomputedArray *array = &p->setup.array[k];
            side->path[k] = mx_path_join(s->arena, names[i], array->name);
            side->value[k] = mx_new_n(s->arena, float, held *width_of(array));
        }
    }
}

bool precomputed_open(MxTrainState *s, const PrecomputedSetup *setup, Precomputed **out,
                      MxError *err) {
    Precomputed *p = *out = mx_new(s->arena, Precomputed);
    *p = (Precomputed){.state = s, .setup = *setup};
    open_sides(s, p);
    bool is_there;
    if (!precomputed_is_there(setup->dir, s->comm, &is_there, err)) return false;
    if (!is_there && !setup->entry[false])
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = setup->dir},
                       "%s are gone, and the %s that made them with them", setup->what,
                       setup->maker);
    return (is_there || make(p, err)) && open_folder(s->arena, p, err);
}

/* Row `row` of a batch's part. */
static bool give_row(const Precomputed *p, Side *side, int64_t i, const MxBatch *batch, int64_t row,
                     MxError *err) {
    int64_t of_batch = batch->part.row ? batch->part.row[row] : row, hash = 0;
    int64_t at = i * side->rows + of_batch;
    if (!mx_h5_read_box(p->file, side->hash_path, MX_I64, hash_box(at, 1), &hash, err))
        return false;
    for (int k = 0; k < p->setup.n_arrays; k++) {
        const PrecomputedArray *array = &p->setup.array[k];
        float *value = (float *)side->value[k] + row * width_of(array);
        if (!mx_h5_read_box(p->file, side->path[k], array->dtype, value_box(array, at, 1), value,
                            err))
            return false;
    }
    return hash == hash_of(batch, row) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = p->setup.dir},
                   "these %s are of other data: %s batch %lld is not the one they were made of",
                   p->setup.noun, side->name, (long long)i);
}

bool precomputed_give(MxTrainState *s, Precomputed *p, bool is_eval, int64_t i,
                      const MxBatch *batch, MxError *err) {
    Side *side = &p->side[is_eval];
    MX_ASSERT(batch->length == side->length);
    for (int64_t row = 0; row < batch->rows; row++)
        if (!give_row(p, side, i, batch, row, err)) return false;
    for (int k = 0; k < p->setup.n_arrays; k++)
        program_give(s, p->setup.array[k].input, side->value[k]);
    return true;
}
