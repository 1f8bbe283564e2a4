/* reference_logps.c — log-probabilities of the reference model, computed once before the first step
 * and stored in a folder: training then needs no second model. The folder identifies its policy by
 * a fingerprint, and every row of a batch by a hash, so stale data is refused. Any number of runs
 * with the same initial policy and batches can use it, on any mesh: all ranks compute it, the first
 * one writes it. */
#include "reference.h"
#include "internal.h"

#include <mx/store.h>

#include <stdio.h>

static const char file_name[] = "logps.h5";

/* One dataset's batches. */
typedef struct Side {
    const char *name, *logp_path, *hash_path;
    MxDataset *data;
    int64_t n, rows, length; /* batches and their arrays */
    float *logp;             /* of the batch at hand, or of its part */
    int64_t *hash;           /* of its rows */
} Side;

struct ReferenceLogps {
    MxTrainState *state;
    const Reference *reference;
    const char *dir;
    MxH5 *file;
    Side side[2]; /* training, evaluation */
};

static int64_t hash_of(const MxBatch *batch, int64_t row) {
    uint64_t hash = 0;
    size_t bytes = (size_t)batch->length * sizeof(int32_t);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        const int32_t *at = batch->field[f] + row * batch->length;
        hash = mx_hash64((uint64_t[]){hash, mx_hash64(at, bytes)}, 2 * sizeof hash);
    }
    return (int64_t)hash;
}

/* Some rows of batch i, in the array of hashes (rank 2) or that of log-probabilities (3). */
static MxBox box_of(const Side *side, int rank, int64_t i, int64_t row, int64_t n_rows) {
    return (MxBox){.rank = rank, .start = {i, row, 0}, .count = {1, n_rows, side->length}};
}

/* ---- making */

/* How many batches a run may want, at most `wanted` (below 0 = all there are). */
static int64_t count_batches(MxDataset *data, int64_t wanted) {
    int64_t n = data ? mx_data_steps(data) : 0;
    return n < 0 || (wanted >= 0 && wanted < n) ? wanted : n;
}

static bool make_batch(ReferenceLogps *r, Side *side, int64_t i, MxH5 *file, MxBatch *batch,
                       MxError *err) {
    if (mx_data_batch(side->data, i, batch, err) != MX_DATA_OK) return false;
    for (int64_t row = 0; row < side->rows; row++) side->hash[row] = hash_of(batch, row);
    reference_refer(r->state, batch, side == &r->side[true], side->logp);
    return !file || (mx_h5_write_box(file, side->logp_path, box_of(side, 3, i, 0, side->rows),
                                     side->logp, err) &&
                     mx_h5_write_box(file, side->hash_path, box_of(side, 2, i, 0, side->rows),
                                     side->hash, err));
}

/* file: NULL on ranks that do not write. */
static bool make_side(ReferenceLogps *r, Side *side, MxH5 *file, MxError *err) {
    if (!side->n) return true;
    MxArena arena = {.name = "reference"};
    MxBatch batch = mx_batch_new(&arena, side->rows, side->length);
    bool ok =
        !file || (mx_h5_make(file, side->logp_path, MX_F32,
                             MX_SHAPE(side->n, side->rows, side->length), err) &&
                  mx_h5_make(file, side->hash_path, MX_I64, MX_SHAPE(side->n, side->rows), err));
    double start = mx_clock_s();
    for (int64_t i = 0; ok && i < side->n; i++) {
        double done = (double)(i + 1);
        ok = make_batch(r, side, i, file, &batch, err);
        mx_progress(
            done / (double)side->n, (mx_clock_s() - start) / done * (double)(side->n - i - 1),
            "reference, %s batch %lld of %lld", side->name, (long long)i + 1, (long long)side->n);
    }
    mx_progress_end();
    mx_arena_release(&arena);
    return ok;
}

static bool make_sides(ReferenceLogps *r, MxH5 *file, MxError *err) {
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) ok = make_side(r, &r->side[i], file, err);
    return ok;
}

static bool make_folder(ReferenceLogps *r, MxError *err) {
    MxArena arena = {.name = "reference"};
    MxPublish *publish;
    MxH5 *file;
    bool ok = mx_store_publish_begin(&arena, r->dir, &publish, err);
    if (ok) {
        mx_log("making the reference's log-probabilities in %s", r->dir);
        mx_json_set_string(
            mx_store_publish_manifest(publish), "policy",
            mx_arena_printf(&arena, "%016llx", (unsigned long long)*r->reference->fingerprint));
        const char *path = mx_path_join(&arena, mx_store_publish_dir(publish), file_name);
        ok = mx_h5_create(&arena, path, &file, err) && make_sides(r, file, err) &&
             mx_h5_close(file, err) && mx_store_publish_commit(publish, err);
    }
    mx_arena_release(&arena);
    return ok;
}

/* The ranks that do not write go on when the folder is there. */
static bool make(ReferenceLogps *r, MxError *err) {
    bool ok = r->state->rank ? make_sides(r, NULL, err) : make_folder(r, err);
    if (!ok) return mx_context(err, "could not make the reference's log-probabilities");
    if (r->state->comm) mx_comm_max(r->state->comm, 0);
    return true;
}

/* ---- reading */

static bool advise(MxError *err) {
    mx_note(err, "hint: remove the folder, or choose another with dpo.reference_logps");
    return false;
}

static bool check_policy(const ReferenceLogps *r, const MxJson *manifest, MxError *err) {
    char here[32];
    const char *policy = mx_json_string(mx_json_get(manifest, "policy"));
    snprintf(here, sizeof here, "%016llx", (unsigned long long)*r->reference->fingerprint);
    if (policy && !strcmp(policy, here)) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->dir},
            "these log-probabilities are of another policy: fingerprint %s, this run started from "
            "%s",
            policy ? policy : "none", here);
    return advise(err);
}

static bool check_side(const ReferenceLogps *r, const Side *side, MxError *err) {
    MxArena arena = {.name = "reference"};
    MxH5Array array = {.shape = MX_SHAPE(0, side->rows, side->length)};
    bool ok = !mx_h5_has_array(r->file, side->logp_path) ||
              mx_h5_stat(r->file, side->logp_path, &array, err);
    MxShape shape = array.shape;
    if (ok && (shape.rank != 3 || shape.dim[0] < side->n || shape.dim[1] != side->rows ||
               shape.dim[2] != side->length)) {
        ok =
            mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->dir},
                    "it holds %s of %s batches; this run wants %s", mx_shape_text(&arena, shape),
                    side->name, mx_shape_text(&arena, MX_SHAPE(side->n, side->rows, side->length)));
        ok = advise(err);
    }
    mx_arena_release(&arena);
    return ok;
}

static bool open_folder(MxArena *arena, ReferenceLogps *r, MxError *err) {
    MxJson *manifest;
    if (!mx_store_verify(arena, r->dir, NULL, &manifest, err) || !check_policy(r, manifest, err) ||
        !mx_h5_open(arena, mx_path_join(arena, r->dir, file_name), &r->file, err))
        return false;
    for (int i = 0; i < 2; i++)
        if (!check_side(r, &r->side[i], err)) return false;
    return true;
}

/* Whether the folder is there when the ranks look: one answer for all. What a killed run left
 * unfinished in its place is made anew. */
static bool look(const ReferenceLogps *r, bool *is_there, MxError *err) {
    bool found = r->state->rank == 0 && mx_dir_exists(r->dir), is_unfinished = false;
    if (found && !mx_store_is_unfinished(r->dir, &is_unfinished, err)) return false;
    found = found && !is_unfinished;
    *is_there = r->state->comm ? mx_comm_max(r->state->comm, found) : found;
    return true;
}

bool reference_open_logps(MxTrainState *state, MxDataset *const data[2], MxError *err) {
    static const char *const names[] = {"train", "eval"};
    const MxConfig *c = state->config;
    MxArena *arena = state->arena;
    Reference *own = program_part(state, PART_reference);
    if (own->logp == MX_NONE) return true;
    ReferenceLogps *r = own->logps = mx_new(arena, ReferenceLogps);
    r->state = state;
    r->reference = own;
    r->dir = c->dpo_reference_logps ? c->dpo_reference_logps
                                    : mx_path_join(arena, c->run_dir, "reference");
    int64_t each = mx_config_iterations(c), n_batches = (c->steps + each - 1) / each;
    int64_t wanted[] = {c->reuse_example_batch > 0 ? 1 : n_batches,
                        c->eval_steps > 0 ? c->eval_steps : -1};
    int64_t rows[] = {c->global_batch_size_to_load, c->global_batch_size_to_load_eval};
    for (int i = 0; i < 2; i++) {
        Side *side = &r->side[i];
        *side = (Side){.name = names[i],
                       .logp_path = mx_path_join(arena, names[i], "logp"),
                       .hash_path = mx_path_join(arena, names[i], "hash"),
                       .data = data[i],
                       .n = count_batches(data[i], wanted[i]),
                       .rows = rows[i] * mx_train_rows(state->config),
                       .length = c->max_target_length};
        side->logp = mx_new_n(arena, float, side->rows * side->length);
        side->hash = mx_new_n(arena, int64_t, side->rows);
    }
    bool is_there;
    if (!look(r, &is_there, err)) return false;
    if (!is_there) {
        if (mx_train_state_step(state))
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->dir},
                           "the reference's log-probabilities are gone, and the policy that made "
                           "them with them");
        if (!make(r, err)) return false;
    }
    return open_folder(arena, r, err);
}

/* Row `row` of a batch's part. */
static bool give_row(const ReferenceLogps *r, Side *side, int64_t i, const MxBatch *batch,
                     int64_t row, MxError *err) {
    int64_t of_batch = batch->part.row ? batch->part.row[row] : row, hash = 0;
    float *logp = side->logp + row * side->length;
    if (!mx_h5_read_box(r->file, side->hash_path, MX_I64, box_of(side, 2, i, of_batch, 1), &hash,
                        err) ||
        !mx_h5_read_box(r->file, side->logp_path, MX_F32, box_of(side, 3, i, of_batch, 1), logp,
                        err))
        return false;
    return hash == hash_of(batch, row) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->dir},
                   "these log-probabilities are of other data: %s batch %lld is not the one they "
                   "were made of",
                   side->name, (long long)i);
}

bool reference_give_logps(MxTrainState *state, bool is_eval, int64_t i, const MxBatch *batch,
                          MxError *err) {
    const Reference *own = program_part(state, PART_reference);
    ReferenceLogps *r = own->logps;
    if (!r) return true;
    Side *side = &r->side[is_eval];
    MX_ASSERT(batch->length == side->length);
    for (int64_t row = 0; row < batch->rows; row++)
        if (!give_row(r, side, i, batch, row, err)) return false;
    program_give(state, own->logp, side->logp);
    return true;
}
