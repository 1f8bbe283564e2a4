/* diloco.c — replicas that train apart: on gradients that are given, the trajectory of MaxText's
 * own functions (scripts/golden_diloco.py); on batches, what as many runs of one process make that
 * are joined by hand; with an outer step after every step, data parallelism. On meshes with every
 * other axis beside the replicas. */
#include "common/goldens.h"
#include "record.h"

#include <mx/store.h>
#include <program/internal.h>

#include <math.h>
#include <stdlib.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_arena_release(&arena);
    mx_error_release(&err);
}

/* ---- meshes: so many replicas, the other ranks along one more axis */

static const char *const beside[] = {"fsdp", "data", "tensor", "context", "stage"};

static int axis_number(const char *name) {
    int i = 0;
    while (strcmp(mx_mesh_default_axes[i], name)) i++;
    return i;
}

static RankMesh mesh_of_replicas(int replicas, const char *other) {
    RankMesh mesh;
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++) mesh.size[i] = 1;
    mesh.size[axis_number("diloco")] = replicas;
    mesh.size[axis_number(other)] *= mx_comm_size(comm) / replicas;
    return mesh;
}

static MxTrainState *open_state(const Variant *v, const RankMesh *mesh) {
    MxTrainState *s;
    ck_assert_msg(
        mx_train_state_open_on(&arena, small_config(&arena, v, mesh), mesh ? comm : NULL, &s, &err),
        "%s: %s", v->name, err.text.data);
    return s;
}

/* ---- arrays: this rank's part against a whole one */

/* A rank's part of a whole array. */
static const float *part_of(const MxTrainState *s, int var, const float *whole) {
    const MxBox *box = &s->box[var], all = mx_box_of(s->vars.item[var].type.shape);
    float *part = mx_new_n(&arena, float, mx_box_count(box) + 1);
    mx_box_copy(box, &all, whole, box, part, sizeof *part);
    return part;
}

static int var_of_leaf(MxTrainState *s, const char *prefix, const char *path) {
    int at = mx_tree_find(&s->tree, mx_arena_printf(&arena, "%s%s", prefix, path));
    ck_assert_msg(at >= 0, "no %s%s", prefix, path);
    return s->tree.leaves[at].array;
}

/* ---- MaxText's trajectory */

enum { GOLDEN_STEPS = 7, OUTER = 0, MOMENTUM, REPLICA };
static const int kept_steps[] = {2, 5, 7};

static const char *const cases[] = {"sgd", "adamw"};

/* Elements of an array of one layer, as the script makes them. */
static float *numbers(const char *path, int layer, int draw, int64_t n) {
    float *x = mx_new_n(&arena, float, n);
    int64_t seed = 7919 * layer + 104729 * (int64_t)draw;
    for (int i = 0; path[i]; i++) seed += (i + 1) * path[i];
    for (int64_t at = 0; at < n; at++)
        x[at] = (float)((double)((at * 31 + seed * 17) * (at + seed) % 2001 - 1000) / 1000);
    return x;
}

static float *numbers_of(const MxLeaf *leaf, int draw) {
    static const char layers[] = "decoder/layers/";
    int64_t n = mx_shape_count(leaf->shape);
    if (!leaf->stack.count) return numbers(leaf->path, 0, draw, n);
    return numbers(leaf->stack.path + strlen(layers), leaf->stack.index + 1, draw, n);
}

/* Where a leaf's elements are among those of all parameters, in the order of the file. */
static int64_t place_in_file(const MxTree *params, const MxLeaf *leaf, const char *paths) {
    int64_t at = 0, each = mx_shape_count(leaf->shape);
    const char *own = leaf->stack.count ? leaf->stack.path : leaf->path;
    for (const char *path = paths; *path; path = strchr(path, '\n') + 1) {
        size_t len = strcspn(path, "\n");
        if (strlen(own) == len && !strncmp(path, own, len))
            return at + (leaf->stack.count ? leaf->stack.index * each : 0);
        for (int i = 0; i < params->n; i++) {
            const MxLeaf *l = &params->leaves[i];
            const char *name = l->stack.count ? l->stack.path : l->path;
            if (strlen(name) == len && !strncmp(path, name, len)) at += mx_shape_count(l->shape);
        }
    }
    ck_abort_msg("the file lacks %s", own);
    return 0;
}

typedef struct Golden {
    char *config, *paths;
    float *values; /* [kept, 4, n] */
    int64_t n;
} Golden;

static Golden read_golden(const char *name) {
    Golden g;
    MxH5 *file;
    MxH5Array *arrays;
    int n;
    const char *path = goldens_need(&arena, "train/diloco.h5");
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    ck_assert(mx_h5_attr(&arena, file, name, "config", &g.config, &err));
    ck_assert(mx_h5_attr(&arena, file, "/", "paths", &g.paths, &err));
    ck_assert(mx_h5_list(&arena, file, "", &arrays, &n, &err));
    for (int i = 0; i < n; i++)
        if (!strcmp(arrays[i].path, name)) g.n = arrays[i].shape.dim[2];
    g.values = mx_new_n(&arena, float, MX_COUNT(kept_steps) * 4 * g.n);
    const MxH5Want want = {.path = name,
                           .dtype = MX_F32,
                           .box = mx_box_of(MX_SHAPE(MX_COUNT(kept_steps), 4, g.n)),
                           .out = g.values};
    ck_assert_msg(mx_h5_read_boxes(file, &want, 1, &err), "%s", err.text.data);
    return g;
}

/* The config of a case as overrides, behind those of the tiny decoder. */
static Variant golden_variant(const char *name, const char *config) {
    Variant v = {.name = name,
                 .set = {"enable_diloco=true", "base_emb_dim=2", "base_mlp_dim=4",
                         "base_num_query_heads=2", "base_num_kv_heads=2", "head_dim=2",
                         "base_num_decoder_layers=4", "vocab_size=8", "learning_rate=0.05",
                         "learning_rate_final_fraction=1", "gradient_clipping_threshold=0",
                         "steps=100", "sharding_tolerance=1"}};
    int n = 0;
    while (v.set[n]) n++;
    for (const char *line = config; *line; line = strchr(line, '\n') + 1) {
        const char *colon = strchr(line, ':');
        v.set[n++] = mx_arena_printf(&arena, "%.*s=%.*s", (int)(colon - line), line,
                                     (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    return v;
}

static void give_gradients(MxTrainState *s, int draw) {
    const MxTree *params = mx_model_params(s->model);
    for (int i = 0; i < params->n; i++) {
        const float *whole = numbers_of(&params->leaves[i], draw);
        program_write_all(s, s->var.gradient[i], part_of(s, s->var.gradient[i], whole));
    }
}

static void ck_golden(MxTrainState *s, const Golden *g, int kept, const char *at) {
    const double bound = 1e-6; /* a few roundings of numbers up to 4 */
    const MxTree *params = mx_model_params(s->model);
    int replica = (int)program_replica(&s->mesh.mesh, s->rank);
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        const float *values = g->values + kept * 4 * g->n + place_in_file(params, leaf, g->paths);
        const int vars[] = {var_of_leaf(s, "model/", leaf->path),
                            var_of_leaf(s, "outer_opt_state/0/trace/", leaf->path),
                            var_of_leaf(s, "inner_state/model/", leaf->path)};
        const int rows[] = {OUTER, MOMENTUM, REPLICA + replica};
        for (int k = 0; k < MX_COUNT(vars); k++) {
            double far = record_distance(&arena, s, vars[k], values + rows[k] * g->n);
            ck_assert_msg(far <= bound, "%s: array %d of %s is off by %g", at, k, leaf->path, far);
        }
    }
}

/* Replicas of the golden are two. */
static bool takes(int replicas) {
    return mx_comm_size(comm) % replicas == 0;
}

START_TEST(outer_steps_are_those_of_maxtext) {
    enum { REPLICAS = 2, N_BESIDE = 3 };
    const char *name = cases[_i / N_BESIDE];
    if (!takes(REPLICAS)) return;
    RankMesh mesh = mesh_of_replicas(REPLICAS, beside[_i % N_BESIDE]);
    if (mx_comm_size(comm) > 2 * REPLICAS) return; /* dims of two */
    Golden g = read_golden(name);
    Variant v = golden_variant(name, g.config);
    MxTrainState *s = open_state(&v, &mesh);
    const MxTree *params = mx_model_params(s->model);
    mx_train_state_init(s);
    for (int i = 0; i < params->n; i++) {
        int var = var_of_leaf(s, "model/", params->leaves[i].path);
        program_write_all(s, var, part_of(s, var, numbers_of(&params->leaves[i], 0)));
    }
    mx_train_state_restored(s);
    mx_train_state_begin(s);
    int replica = (int)program_replica(&s->mesh.mesh, s->rank), kept = 0;
    for (int step = 1; step <= GOLDEN_STEPS; step++) {
        give_gradients(s, 1 + (step - 1) * REPLICAS + replica);
        mx_train_update(s);
        if (step == kept_steps[kept])
            ck_golden(s, &g, kept++, mx_arena_printf(&arena, "%s, step %d", name, step));
    }
}
END_TEST

/* ---- runs of one process each, joined by hand */

#define APART                                                                                      \
    "enable_diloco=true", "diloco_sync_period=2", "diloco_outer_lr=0.7", "diloco_outer_momentum=0.5"
#define SGD "opt_type=sgd", "learning_rate=1", "gradient_clipping_threshold=0"
/* Three fragments, of which one has an outer step every PERIOD steps. */
#define IN_TURN                                                                                    \
    "enable_diloco=true", "diloco_sync_period=6", "diloco_outer_lr=0.7",                           \
        "diloco_outer_momentum=0.5", "enable_streaming_diloco=true", "num_diloco_fragments=3",     \
        "base_num_decoder_layers=4"

// clang-format off
static const Variant variants[] = {
    {.name = "sgd", .set = {APART, SGD}},
    {.name = "adamw", .set = {APART}},
    {.name = "adapters", .set = {APART, SGD, "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8"}},
    {.name = "accumulation", .set = {APART, SGD, "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "preferences", .set = {APART, SGD, "use_dpo=true"}, .parts = 2},
    {.name = "moments over data", .set = {APART, "shard_optimizer_over_data=true"}},
    {.name = "fragments", .set = {IN_TURN, SGD}},
    {.name = "fragments taken over late", .set = {IN_TURN, SGD, "num_communication_overlapping_steps=1", "communication_overlapping_alpha=0.25"}},
    {.name = "fragments of adapters", .set = {IN_TURN, SGD, "use_sequential_layers=true", "communication_overlapping_alpha=0.5", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8"}},
};
// clang-format on

enum { APART_STEPS = 7, PERIOD = 2, N_VARIANTS = MX_COUNT(variants), MOST_REPLICAS = 8 };
static const double outer_lr = 0.7, outer_momentum = 0.5;

/* The rows of a replica: as many next to each other, of both responses of pairs. */
static MxBatch rows_of(const MxBatch *batch, int sides, int replica, int replicas) {
    int64_t all = batch->rows / sides, each = all / replicas;
    MxBatch own = mx_batch_new(&arena, sides * each, batch->length);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int64_t row = 0; row < own.rows; row++) {
            int64_t from = row / each * all + replica * each + row % each;
            memcpy(own.field[f] + row * batch->length, batch->field[f] + from * batch->length,
                   (size_t)batch->length * sizeof(int32_t));
        }
    return own;
}

/* Runs of one process, a replica each, and the outer parameters and momentum in float64. */
typedef struct Alone {
    MxTrainState *run[MOST_REPLICAS];
    int n;
    double **outer, **momentum; /* [parameter]; NULL = it is not trained */
    double loss;                /* of the last step, the mean */
    const MxConfig *config;
} Alone;

static Variant alone_variant(const Variant *v, int replicas) {
    Variant alone = *v;
    for (int i = 0; v->set[i]; i++)
        if (!strcmp(v->set[i], "enable_diloco=true")) alone.set[i] = "enable_diloco=false";
    alone.parts = replicas * (v->parts ? v->parts : 1);
    return alone;
}

static void open_alone(const Variant *v, int replicas, Alone *a) {
    Variant alone = alone_variant(v, replicas);
    *a = (Alone){.n = replicas};
    for (int r = 0; r < replicas; r++) {
        a->run[r] = open_state(&alone, NULL);
        mx_train_state_init(a->run[r]);
        mx_train_state_begin(a->run[r]);
    }
    const MxTrainState *s = a->run[0];
    int n = mx_model_params(s->model)->n;
    a->outer = mx_new_n(&arena, double *, n);
    a->momentum = mx_new_n(&arena, double *, n);
    for (int i = 0; i < n; i++) {
        if (s->var.gradient[i] == MX_NONE) continue;
        int64_t size = mx_shape_count(mx_model_params(s->model)->leaves[i].shape);
        const float *start = record_floats(&arena, s, s->var.param[i]);
        a->outer[i] = mx_new_n(&arena, double, size);
        a->momentum[i] = mx_new_n(&arena, double, size);
        for (int64_t k = 0; k < size; k++) a->outer[i][k] = start[k];
    }
}

static int64_t size_of(const Alone *a, int i) {
    return mx_shape_count(mx_model_params(a->run[0]->model)->leaves[i].shape);
}

/* Nesterov's momentum, as optax.sgd has it. */
static void step_outer(Alone *a, int i) {
    double *g = mx_new_n(&arena, double, size_of(a, i));
    for (int r = 0; r < a->n; r++) {
        const float *x = record_floats(&arena, a->run[r], a->run[r]->var.param[i]);
        for (int64_t k = 0; k < size_of(a, i); k++) g[k] += (a->outer[i][k] - x[k]) / a->n;
    }
    for (int64_t k = 0; k < size_of(a, i); k++) {
        a->momentum[i][k] = g[k] + outer_momentum * a->momentum[i][k];
        a->outer[i][k] -= outer_lr * (g[k] + outer_momentum * a->momentum[i][k]);
    }
}

static void take_over(Alone *a, int i) {
    double alpha = a->config->communication_overlapping_alpha;
    for (int r = 0; r < a->n; r++) {
        const float *x = record_floats(&arena, a->run[r], a->run[r]->var.param[i]);
        float *new = mx_new_n(&arena, float, size_of(a, i));
        for (int64_t k = 0; k < size_of(a, i); k++)
            new[k] = (float)(alpha * x[k] + (1 - alpha) * a->outer[i][k]);
        program_write_all(a->run[r], a->run[r]->var.param[i], new);
    }
}

/* All of it, or one of three: what is in no layer, every other layer or the first half of them, the
 * rest. */
static int fragment_of(const Alone *a, int i) {
    static const char layers[] = "decoder/layers_";
    const char *path = mx_model_params(a->run[0]->model)->leaves[i].path;
    if (!a->config->enable_streaming_diloco || !mx_text_has_prefix(path, layers)) return 0;
    long layer = strtol(path + strlen(layers), NULL, 10);
    return 1 + (int)(a->config->use_sequential_layers ? layer / 2 : layer % 2);
}

/* After so many steps. */
static bool has_turn(const Alone *a, int i, int64_t steps) {
    int n = a->config->enable_streaming_diloco ? 3 : 1;
    return steps > 0 && steps % PERIOD == 0 && steps / PERIOD % n == fragment_of(a, i);
}

static void step_alone(Alone *a, const MxBatch *batch, int step) {
    int64_t late = a->config->num_communication_overlapping_steps;
    a->loss = 0;
    for (int r = 0; r < a->n; r++) {
        MxBatch own = rows_of(batch, (int)mx_train_rows(a->run[r]->config), r, a->n);
        a->loss += record_loss(a->run[r], step, &own).loss / a->n;
        mx_train_update(a->run[r]);
    }
    for (int i = 0; i < mx_model_params(a->run[0]->model)->n; i++) {
        if (a->outer[i] && has_turn(a, i, step + 1)) step_outer(a, i);
        if (a->outer[i] && has_turn(a, i, step + 1 - late)) take_over(a, i);
    }
}

static double far_from(const MxTrainState *s, const Alone *a, int i, bool is_outer) {
    const MxLeaf *leaf = &mx_model_params(s->model)->leaves[i];
    int64_t size = mx_shape_count(leaf->shape);
    int r = (int)program_replica(&s->mesh.mesh, s->rank);
    float *outer = mx_new_n(&arena, float, size);
    if (!is_outer)
        return record_distance(&arena, s, s->var.param[i],
                               record_floats(&arena, a->run[r], a->run[r]->var.param[i]));
    for (int64_t k = 0; k < size; k++) outer[k] = (float)a->outer[i][k];
    return record_distance(&arena, s, program_held(s, i), outer);
}

/* An evaluation is that of the outer parameters on the whole batch. */
static double eval_of_outer(const Variant *v, const Alone *a, const MxBatch *batch) {
    Variant whole = alone_variant(v, 1);
    MxTrainState *s = open_state(&whole, NULL);
    mx_train_state_init(s);
    mx_train_state_begin(s);
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (!a->outer[i]) continue;
        int64_t size = mx_shape_count(mx_model_params(s->model)->leaves[i].shape);
        float *outer = mx_new_n(&arena, float, size);
        for (int64_t k = 0; k < size; k++) outer[k] = (float)a->outer[i][k];
        program_write_all(s, s->var.param[i], outer);
    }
    mx_train_state_restored(s);
    return mx_train_eval(s, batch).loss;
}

/* How many meshes a variant has: the replicas are all ranks, or all but those of one more axis. */
static bool mesh_number(int i, RankMesh *mesh, int *replicas) {
    int n = mx_comm_size(comm);
    *replicas = i ? n / 2 : n;
    if (i && (n % 2 || n < 4)) return false;
    *mesh = mesh_of_replicas(*replicas, i ? beside[i - 1] : "data");
    return true;
}

/* What updates send more than as many without outer steps is what the plan says of those, which
 * each fragment has had equally often.
 *   plain  of the first update; sum  of all of them, with `outer_steps` */
static void ck_outer_planned(const MxTrainState *s, MxCommCount plain, MxCommCount sum,
                             int outer_steps, const char *at) {
    const PlanProgram plan = small_plan(&arena, s->config);
    MxTrainBytes has = mx_train_state_bytes(s);
    int64_t calls = 0, bytes = 0, apart = 0;
    for (int i = 0; i < plan.outer.n; i++) { /* ranks of a replica may share the work */
        if (strstr(plan.outer.rows[i].axes, "diloco")) apart += plan.outer.rows[i].bytes;
        calls += plan.outer.rows[i].calls;
        bytes += plan.outer.rows[i].bytes;
    }
    for (int i = 0; i < plan.traffic.n; i++)
        ck_assert_ptr_null(strstr(plan.traffic.rows[i].axes, "diloco"));
    ck_assert_int_eq(apart > 0, mx_train_replicas(s) > 1);
    int64_t times = outer_steps / s->config->diloco_fragments;
    int64_t more_calls = (int64_t)sum.calls - APART_STEPS * (int64_t)plain.calls;
    int64_t more_bytes = (int64_t)sum.bytes - APART_STEPS * (int64_t)plain.bytes;
    ck_assert_msg(more_calls == times * calls && more_bytes == times * bytes,
                  "%s: planned %lld exchanges of %lld bytes, %lld times, made %lld of %lld", at,
                  (long long)calls, (long long)bytes, (long long)times, (long long)more_calls,
                  (long long)more_bytes);
    ck_assert_uint_gt(has.outer, 0);
    ck_assert_uint_eq((size_t)plan.bytes[PLAN_OUTER], has.outer);
}

/* Adds what an update sends. */
static void update_counted(MxTrainState *s, MxCommCount *sum) {
    MxCommCount before = mx_comm_count(comm);
    mx_train_update(s);
    MxCommCount after = mx_comm_count(comm);
    sum->calls += after.calls - before.calls;
    sum->bytes += after.bytes - before.bytes;
}

START_TEST(replicas_are_runs_of_their_own) {
    enum { N_MESHES = 1 + MX_COUNT(beside) };
    const Variant *v = &variants[_i / N_MESHES];
    const double bound = 2e-5; /* of parameters up to 1 after steps of up to 1, ranks' sums */
    RankMesh mesh;
    int replicas;
    Alone alone;
    if (!mesh_number(_i % N_MESHES, &mesh, &replicas)) return;
    MxTrainState *s = open_state(v, &mesh);
    open_alone(v, replicas, &alone);
    alone.config = s->config;
    mx_train_state_init(s);
    mx_train_state_begin(s);
    const char *at =
        mx_arena_printf(&arena, "%s on %s", v->name, mx_mesh_text(&arena, &s->mesh.mesh));
    double loss_off = 0, eval;
    MxCommCount plain, sent = {0};
    for (int step = 0; step < APART_STEPS; step++) {
        MxBatch batch = small_batch(&arena, v, step);
        MxLoss loss = record_loss(s, step, &batch);
        update_counted(s, &sent);
        if (!step) plain = sent;
        step_alone(&alone, &batch, step);
        loss_off = fmax(loss_off, fabs(loss.loss - alone.loss));
    }
    MxBatch all = small_batch(&arena, v, APART_STEPS);
    MxBatch batch = rows_of(&all, (int)mx_train_rows(s->config), 0, /* as many as are loaded */
                            (int)s->config->gradient_accumulation_steps);
    eval = mx_train_eval(s, &batch).loss;
    double eval_off = fabs(eval - eval_of_outer(v, &alone, &batch)), far[2] = {0};
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        for (int outer = 0; alone.outer[i] && outer < 2; outer++)
            if (program_has(s, s->sharding[s->var.param[i]], s->rank))
                far[outer] = fmax(far[outer], far_from(s, &alone, i, outer));
    if (s->mesh.n_stages == 1) ck_outer_planned(s, plain, sent, APART_STEPS / PERIOD, at);
    ck_assert_msg(loss_off <= bound, "%s: losses are off by %g", at, loss_off);
    ck_assert_msg(eval_off <= bound, "%s: the evaluation is off by %g", at, eval_off);
    ck_assert_msg(far[0] <= bound, "%s: a replica's parameters are off by %g", at, far[0]);
    ck_assert_msg(far[1] <= bound, "%s: the outer parameters are off by %g", at, far[1]);
}
END_TEST

/* ---- data parallelism */

/* Every token counts, so that replicas weigh alike. */
static MxBatch full_batch(int step) {
    MxBatch batch = small_batch(&arena, NULL, step);
    for (int64_t i = 0; i < batch.rows * batch.length; i++)
        batch.field[MX_INPUTS_SEGMENTATION][i] = batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    return batch;
}

START_TEST(an_outer_step_each_time_is_data_parallelism) {
    const double bound = 2e-6;
    static const Variant apart = {.name = "apart",
                                  .set = {SGD, "enable_diloco=true", "diloco_sync_period=1",
                                          "diloco_outer_lr=1", "diloco_outer_momentum=0"}},
                         together = {.name = "together", .set = {SGD}};
    RankMesh replicas = mesh_of_replicas(mx_comm_size(comm), "data"),
             data = mesh_of_replicas(1, "data");
    MxTrainState *state[] = {open_state(&apart, &replicas), open_state(&together, &data)};
    for (int k = 0; k < 2; k++) {
        mx_train_state_init(state[k]);
        mx_train_state_begin(state[k]);
        for (int step = 0; step < STEPS; step++) {
            MxBatch batch = full_batch(step);
            record_loss(state[k], step, &batch);
            mx_train_update(state[k]);
        }
    }
    for (int i = 0; i < mx_model_params(state[0]->model)->n; i++) {
        const float *want = record_floats(&arena, state[1], state[1]->var.param[i]);
        double far = record_distance(&arena, state[0], state[0]->var.param[i], want);
        ck_assert_msg(far <= bound, "%s is off by %g",
                      mx_model_params(state[0]->model)->leaves[i].path, far);
    }
}
END_TEST

Suite *diloco_suite(void) {
    Suite *suite = suite_create("mpi/diloco");
    TCase *tcase = tcase_create("diloco");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, outer_steps_are_those_of_maxtext, 0, 3 * MX_COUNT(cases));
    tcase_add_loop_test(tcase, replicas_are_runs_of_their_own, 0,
                        N_VARIANTS * (1 + MX_COUNT(beside)));
    tcase_add_test(tcase, an_outer_step_each_time_is_data_parallelism);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
