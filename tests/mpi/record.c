/* record.c — runs of one rank, made once: each rank makes a share of them into files, and all map
 * those of all. A file has the numbers of the steps, then the lists of arrays in the order in which
 * they are made. */
#include "record.h"

#include <math.h>

#include "common/vars.h"

#include <program/internal.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- a run */

int64_t record_index(const MxBox *box, MxShape shape, int64_t at) {
    int64_t index = 0, stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        index += (box->start[d] + at % box->count[d]) * stride;
        stride *= shape.dim[d];
        at /= box->count[d];
    }
    return index;
}

const float *record_floats(MxArena *arena, const MxTrainState *s, int var) {
    MxType type = s->local.item[var].type;
    const void *values = var_values(arena, s->run, var);
    if (type.dtype == MX_F32) return values;
    int64_t n = mx_shape_count(type.shape);
    float *wide = mx_new_n(arena, float, n);
    bool is_codes = type.dtype == MX_U8; /* of a weight in few bits */
    for (int64_t i = 0; i < n; i++)
        wide[i] = is_codes ? (float)((const uint8_t *)values)[i]
                           : mx_bf16_to_f32(((const MxBf16 *)values)[i]);
    return wide;
}

void record_begin(MxTrainState *s) {
    MxError err = {0};
    mx_train_state_init(s);
    ck_assert_msg(mx_train_start_adapters(s, &err), "%s", err.text.data);
    mx_train_state_begin(s);
}

MxTrainState *record_open(MxArena *arena, const MxConfig *config) {
    MxError err = {0};
    MxTrainState *s;
    ck_assert_msg(mx_train_state_open_on(arena, config, comm, &s, &err), "%s", err.text.data);
    record_begin(s);
    return s;
}

bool record_has_eval(const MxConfig *config) {
    return config->gradient_accumulation_steps == 1;
}

static void number(const MxLeaf *leaf, int seed) {
    MxArena arena = {.name = "numbers"};
    const MxBox box = mx_leaf_part(leaf);
    float *values = mx_new_n(&arena, float, mx_box_count(&box));
    for (int64_t k = 0; k < mx_box_count(&box); k++) {
        uint32_t draw[4];
        mx_philox(7, (uint64_t)seed, (uint64_t)record_index(&box, leaf->shape, k), draw);
        values[k] = 0.4f * mx_uniform(draw[0]) - 0.2f;
    }
    mx_leaf_write(leaf, values);
    mx_arena_release(&arena);
}

void record_teach(MxTrainState *s) {
    const MxTree *teacher = mx_train_teacher_tree(s), *own = mx_train_state_tree(s);
    const MxModel *model = mx_train_state_model(s);
    for (int i = 0; teacher && i < teacher->n; i++) number(&teacher->leaves[i], i);
    for (int i = 0; i < mx_model_kernels(model)->n; i++)
        number(&own->leaves[mx_model_taken(model, i)], i);
}

/* Of every row of a batch, and the log-probabilities that its targets were written with. */
static void reward(MxTrainState *s, const MxBatch *batch) {
    enum { REWARDS = 5, LOGPROBS = 7 };
    static float rewards[64], logprobs[64 * 64];
    const MxBatchPart *part = &batch->part;
    ck_assert(part->of_rows <= MX_COUNT(rewards) &&
              part->rows * part->length <= MX_COUNT(logprobs));
    for (int64_t row = 0; row < part->of_rows; row++) rewards[row] = (float)(row * 7 % REWARDS);
    for (int64_t at = 0; at < part->rows; at++)
        for (int64_t t = 0; t < part->length; t++) {
            int64_t row = part->row ? part->row[at] : at, column = part->column + t;
            logprobs[at * part->length + t] = -5 - 0.2f * (float)((3 * row + column) % LOGPROBS);
        }
    mx_train_give_rewards(s, batch, rewards, logprobs);
}

/* What stands behind other prompts is as good as any batch. */
static void label(MxTrainState *s, const MxBatch *batch) {
    static float labels[64];
    ck_assert(batch->part.of_rows <= MX_COUNT(labels));
    for (int64_t row = 0; row < batch->part.of_rows; row++) labels[row] = row % 3 == 1;
    mx_train_give_labels(s, batch, labels, batch);
}

MxLoss record_loss(MxTrainState *s, int step, const MxBatch *batch) {
    MxError err = {0};
    if (s->config->use_grpo)
        reward(s, batch);
    else if (s->config->use_kto)
        label(s, batch);
    else
        ck_assert(mx_train_before_batch(s, false, step, batch, &err));
    return mx_train_loss_and_grad(s, batch);
}

void record_told(const MxTrainState *s, double *out) {
    int n;
    const MxTold *told = mx_train_told(s, &n);
    MX_ASSERT(n <= MOST_TOLD);
    for (int i = 0; i < n; i++) out[i] = told[i].value;
}

/* ---- files */

typedef struct Numbers {
    MxLoss loss[STEPS], eval;
    MxUpdate update[STEPS];
    double told[STEPS][MOST_TOLD];
    int64_t n_params;
} Numbers;

/* What stands before an array. */
typedef struct Head {
    int64_t n; /* of its values; 0 = there is none */
    double squares;
} Head;

static void put(FILE *file, const void *data, size_t bytes) {
    MX_ASSERT(fwrite(data, 1, bytes, file) == bytes);
}

static void put_list(FILE *file, const MxTrainState *s, const int *vars, int n_params) {
    MxArena arena = {.name = "list"};
    for (int i = 0; i < n_params; i++) {
        Head head = {0};
        const float *values = NULL;
        if (vars[i] != MX_NONE) {
            values = record_floats(&arena, s, vars[i]);
            head.n = mx_shape_count(s->local.item[vars[i]].type.shape);
        }
        for (int64_t k = 0; k < head.n; k++) head.squares += (double)values[k] * (double)values[k];
        put(file, &head, sizeof head);
        put(file, values ? values : &(float){0}, (size_t)head.n * sizeof *values);
        if (head.n % 2) put(file, &(float){0}, sizeof *values); /* so that heads are aligned */
    }
    mx_arena_release(&arena);
}

static const char *path_of(MxArena *arena, const char *folder, int variant) {
    return mx_arena_printf(arena, "%s/%d", folder, variant);
}

/* The others wait for this rank: what goes wrong ends them all. */
static MxTrainState *open_whole(MxArena *arena, const Variant *v) {
    MxError err = {0};
    MxConfig *config;
    MxTrainState *whole;
    if (small_load(arena, v, NULL, &config, &err) &&
        mx_train_state_open(arena, config, &whole, &err))
        return whole;
    fprintf(stderr, "%s: %s\n", v->name, err.text.data);
    mx_comm_abort(comm, MX_EXIT_DIFFERENT);
    return NULL;
}

static void write_record(const Variant *v, const char *path) {
    MxArena arena = {.name = "whole"};
    MxTrainState *s = open_whole(&arena, v);
    FILE *file = fopen(path, "w");
    MX_ASSERT(file);
    Numbers numbers = {.n_params = mx_model_params(s->model)->n};
    int n = (int)numbers.n_params;
    put(file, &numbers, sizeof numbers);
    record_teach(s);
    record_begin(s);
    put_list(file, s, s->var.param, n);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = small_batch(&arena, v, step);
        numbers.loss[step] = record_loss(s, step, &batch);
        put_list(file, s, s->var.gradient, n);
        numbers.update[step] = mx_train_update(s);
        record_told(s, numbers.told[step]);
    }
    put_list(file, s, s->var.param, n);
    MxBatch batch = small_batch(&arena, v, STEPS);
    if (record_has_eval(s->config)) numbers.eval = mx_train_eval(s, &batch);
    rewind(file);
    put(file, &numbers, sizeof numbers);
    MX_ASSERT(!fclose(file));
    mx_arena_release(&arena);
}

static RecordList take_list(MxArena *arena, const char **at, int64_t n_params) {
    RecordList list = {.values = mx_new_n(arena, const float *, n_params)};
    double *squares = mx_new_n(arena, double, n_params);
    for (int64_t i = 0; i < n_params; i++) {
        Head head;
        memcpy(&head, *at, sizeof head);
        *at += sizeof head;
        squares[i] = head.squares;
        if (head.n) list.values[i] = (const float *)(const void *)*at;
        *at += (head.n + head.n % 2) * (int64_t)sizeof(float);
    }
    list.squares = squares;
    return list;
}

static Record read_record(MxArena *arena, const char *path) {
    FILE *file = fopen(path, "r");
    Numbers numbers;
    MX_ASSERT(file && !fseek(file, 0, SEEK_END));
    char *all = mmap(NULL, (size_t)ftell(file), PROT_READ, MAP_SHARED, fileno(file), 0);
    MX_ASSERT(all != MAP_FAILED && !fclose(file));
    memcpy(&numbers, all, sizeof numbers);
    const char *at = all + sizeof numbers;
    Record r = {.eval = numbers.eval};
    memcpy(r.loss, numbers.loss, sizeof r.loss);
    memcpy(r.update, numbers.update, sizeof r.update);
    memcpy(r.told, numbers.told, sizeof r.told);
    r.init = take_list(arena, &at, numbers.n_params);
    for (int step = 0; step < STEPS; step++)
        r.gradient[step] = take_list(arena, &at, numbers.n_params);
    r.last = take_list(arena, &at, numbers.n_params);
    return r;
}

/* ---- all of them */

static Record *make_all(MxArena *arena, const Variant *variants, int n) {
    char folder[] = "/tmp/mx_record_XXXXXX";
    int rank = mx_comm_rank(comm);
    MxError err = {0};
    Record *all = mx_new_n(arena, Record, n);
    if (rank == 0) MX_ASSERT(mkdtemp(folder));
    mx_comm_broadcast(comm, folder, sizeof folder);
    for (int i = rank; i < n; i += mx_comm_size(comm))
        write_record(&variants[i], path_of(arena, folder, i));
    mx_comm_max(comm, 0); /* all are written … */
    for (int i = 0; i < n; i++) all[i] = read_record(arena, path_of(arena, folder, i));
    mx_comm_max(comm, 0); /* … and mapped, so that their names may go */
    if (rank == 0) MX_ASSERT(mx_dir_remove(folder, &err));
    return all;
}

const Record *record_of(const Variant *variants, int n_variants, int variant) {
    static MxArena arena = {.name = "records"};
    static Record *all;
    if (!all) all = make_all(&arena, variants, n_variants);
    return &all[variant];
}

double record_distance(MxArena *arena, const MxTrainState *s, int var, const float *whole) {
    const float *part = record_floats(arena, s, var);
    const MxBox *box = &s->box[var];
    double far = 0;
    for (int64_t at = 0; at < mx_box_count(box); at++) {
        double d = fabs(part[at] - whole[record_index(box, s->vars.item[var].type.shape, at)]);
        far = d <= far ? far : d; /* NaN is far */
    }
    return far;
}
