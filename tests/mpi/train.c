/* train.c — a small decoder trained by several ranks on many meshes against the same by one rank:
 * initial parameters to the bit, losses, gradients, norms and what the steps make of the
 * parameters. */
#include "mpi_test.h"

#include <plan/internal.h>
#include <train/internal.h>

#include <math.h>

enum { ROWS = 16, LENGTH = 16, STEPS = 2, MOST_OVERRIDES = 40, VOCAB = 288 };

static const char *const tiny[] = {
    "base_emb_dim=32",
    "base_mlp_dim=64",
    "base_num_query_heads=8",
    "base_num_kv_heads=8",
    "head_dim=8",
    "base_num_decoder_layers=2",
    "max_target_length=16",
    "vocab_size=288",
    "dataset_type=synthetic",
    "learning_rate=0.01",
    "warmup_steps_fraction=0",
    "eval_interval=-1",
    "dtype=float32",
    "steps=4",
    "ici_fsdp_parallelism=1",
};

/* ---- what is trained */

typedef struct Variant {
    const char *name;
    const char *set[8];
    double loss, gradient, parameter; /* how far off they may be, relative to their norm */
    bool everywhere;                  /* on all meshes, not only on some */
} Variant;

// clang-format off
static const Variant variants[] = {
    {"adamw", {NULL}, 1e-6, 1e-5, 1e-4, false},
    {"sgd", {"opt_type=sgd"}, 1e-6, 1e-5, 1e-5, true},
    {"tied, grouped heads, norms", {"logits_via_embedding=true", "base_num_kv_heads=4", "use_qk_norm=true", "decoder_block=qwen3", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"biases, window", {"decoder_block=qwen2", "attention_bias=true", "attention_type=local_sliding", "sliding_window_size=5", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"accumulation", {"gradient_accumulation_steps=2", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"adapters", {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"preferences", {"use_dpo=true", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"looking ahead", {"mtp_num_layers=2", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"tiles", {"num_vocab_tiling=4", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"everything again", {"remat_policy=full", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"something again", {"remat_policy=minimal", "z_loss_multiplier=0.01", "opt_type=sgd"}, 1e-6, 1e-5, 1e-5, false},
    {"bfloat16", {"dtype=bfloat16", "opt_type=sgd"}, 2e-3, 3e-2, 1e-3, false},
};

/* Meshes by their parallelism keys. */
static const struct {
    const char *keys[4];
    int n_ranks;
    bool is_chosen; /* for the variants that do not run everywhere */
} meshes[] = {
    {{"data=2"}, 2, true}, {{"fsdp=2"}, 2, true}, {{"tensor=2"}, 2, true},
    {{"fsdp_transpose=2"}, 2, false}, {{"context=2"}, 2, true}, {{"tensor_sequence=2"}, 2, true},
    {{"expert=2"}, 2, false}, {{"context_usp_ulysses=2"}, 2, false}, {{"autoregressive=2"}, 2, false},
    {{"context_autoregressive=2"}, 2, false},
    {{"data=4"}, 4, false}, {{"fsdp=4"}, 4, false}, {{"tensor=4"}, 4, true}, {{"context=4"}, 4, false},
    {{"tensor_sequence=4"}, 4, false}, {{"fsdp_transpose=4"}, 4, false}, {{"expert=4"}, 4, false},
    {{"data=2", "fsdp=2"}, 4, true}, {{"data=2", "tensor=2"}, 4, false}, {{"data=2", "context=2"}, 4, false},
    {{"fsdp=2", "tensor=2"}, 4, true}, {{"fsdp=2", "context=2"}, 4, true},
    {{"fsdp=2", "tensor_sequence=2"}, 4, true}, {{"fsdp=2", "fsdp_transpose=2"}, 4, true},
    {{"tensor=2", "context=2"}, 4, false}, {{"tensor=2", "tensor_sequence=2"}, 4, false},
    {{"expert=2", "fsdp=2"}, 4, false}, {{"expert=2", "tensor=2"}, 4, false},
    {{"fsdp_transpose=2", "tensor=2"}, 4, false}, {{"context=2", "tensor_sequence=2"}, 4, false},
    {{"data=8"}, 8, false}, {{"fsdp=8"}, 8, true}, {{"tensor=8"}, 8, false},
    {{"data=2", "fsdp=2", "tensor=2"}, 8, true}, {{"fsdp=2", "tensor=2", "context=2"}, 8, true},
    {{"data=2", "fsdp=4"}, 8, false}, {{"fsdp=2", "tensor=4"}, 8, false}, {{"fsdp=4", "context=2"}, 8, false},
    {{"data=2", "tensor=2", "tensor_sequence=2"}, 8, false},
    {{"fsdp=2", "fsdp_transpose=2", "tensor=2"}, 8, true},
    {{"data=2", "context=2", "tensor_sequence=2"}, 8, false}, {{"expert=2", "fsdp=2", "tensor=2"}, 8, false},
};
// clang-format on

enum { RUNS = MX_COUNT(meshes) * MX_COUNT(variants) };

/* ---- configs and batches */

static MxConfig *load_config(MxArena *arena, const Variant *variant, int mesh) {
    const char *files[] = {"configs/base.yml"}, *set[MOST_OVERRIDES];
    char *environ[] = {NULL};
    int n = 0, n_ranks = mesh < 0 ? 1 : meshes[mesh].n_ranks;
    bool halves = !strcmp(variant->name, "accumulation") || !strcmp(variant->name, "preferences");
    for (int i = 0; i < MX_COUNT(tiny); i++) {
        bool is_reset = false;
        size_t key = strcspn(tiny[i], "=") + 1;
        for (int j = 0; j < 8 && variant->set[j]; j++)
            is_reset = is_reset || !strncmp(tiny[i], variant->set[j], key);
        for (int j = 0; j < 4 && mesh >= 0 && meshes[mesh].keys[j]; j++)
            is_reset = is_reset || (!strncmp(tiny[i], "ici_", 4) &&
                                    !strncmp(tiny[i] + 4, meshes[mesh].keys[j], 5) &&
                                    meshes[mesh].keys[j][4] == '=');
        if (!is_reset) set[n++] = tiny[i];
    }
    for (int j = 0; j < 8 && variant->set[j]; j++) set[n++] = variant->set[j];
    for (int j = 0; j < 4 && mesh >= 0 && meshes[mesh].keys[j]; j++) {
        const char *value = strchr(meshes[mesh].keys[j], '=');
        set[n++] =
            mx_arena_printf(arena, "ici_%.*s_parallelism%s", (int)(value - meshes[mesh].keys[j]),
                            meshes[mesh].keys[j], value);
    }
    set[n++] = mx_arena_printf(arena, "per_device_batch_size=%g",
                               (double)ROWS / (halves ? 2 : 1) / n_ranks);
    set[n++] = "eval_per_device_batch_size=0";
    MxConfigRequest request = {.n_ranks = n_ranks,
                               .files = files,
                               .n_files = 1,
                               .overrides = set,
                               .n_overrides = n,
                               .environ = environ};
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(mx_config_load(arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

static uint32_t word(int step, int64_t i) {
    uint32_t w[4];
    mx_philox(23, (uint64_t)step, (uint64_t)i, w);
    return w[0];
}

/* Two or three documents a row, padding at the end of some rows. */
static MxBatch make_batch(MxArena *arena, int step) {
    MxBatch batch = mx_batch_new(arena, ROWS, LENGTH);
    for (int row = 0; row < ROWS; row++) {
        int first = 3 + (int)(word(step, -1 - row) % 6), second = first + 4;
        for (int t = 0; t < LENGTH; t++) {
            int i = row * LENGTH + t, segment = t < first ? 1 : t < second ? 2 : 3;
            bool is_padding = row % 3 == 1 && t >= LENGTH - 3;
            batch.field[MX_INPUTS][i] = (int32_t)(word(step, i) % VOCAB);
            batch.field[MX_TARGETS][i] = (int32_t)(word(step, i + 1) % VOCAB);
            batch.field[MX_INPUTS_POSITION][i] = batch.field[MX_TARGETS_POSITION][i] =
                t - (segment == 1   ? 0
                     : segment == 2 ? first
                                    : second);
            batch.field[MX_INPUTS_SEGMENTATION][i] = is_padding ? 0 : segment;
            batch.field[MX_TARGETS_SEGMENTATION][i] = is_padding || t == first - 1 ? 0 : segment;
        }
    }
    return batch;
}

/* ---- comparing a rank's part with the whole */

static int64_t index_in_whole(const MxBox *box, MxShape shape, int64_t at) {
    int64_t index = 0, stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        index += (box->start[d] + at % box->count[d]) * stride;
        stride *= shape.dim[d];
        at /= box->count[d];
    }
    return index;
}

/* How far a variable's part is from the whole, relative to the whole's norm. */
static double distance(const MxTrainState *divided, const MxTrainState *whole, int var) {
    MxShape shape = whole->vars.item[var].type.shape;
    const MxBox *box = &divided->box[var];
    const float *part = mx_run_var(divided->run, var), *all = mx_run_var(whole->run, var);
    double error = 0, size = 0;
    for (int64_t i = 0; i < mx_shape_count(shape); i++) size += (double)all[i] * (double)all[i];
    for (int64_t i = 0; i < mx_box_count(box); i++) {
        double d = (double)part[i] - (double)all[index_in_whole(box, shape, i)];
        error += d * d;
    }
    return size > 0 ? sqrt(error / size) : sqrt(error);
}

static double farthest(const MxTrainState *divided, const MxTrainState *whole, const int *vars,
                       const char **which) {
    const MxTree *params = mx_model_params(whole->model);
    double most = 0;
    for (int i = 0; i < params->n; i++) {
        double d = vars[i] == MX_NONE ? 0 : distance(divided, whole, vars[i]);
        if (d < most) continue;
        most = d;
        *which = params->leaves[i].path;
    }
    return most;
}

typedef struct Seen {
    double init, loss, weights, norm, gradient, parameter;
    const char *gradient_of, *parameter_of;
    MxCommCount sent; /* in the last step */
} Seen;

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

static Seen train(MxTrainState *divided, MxTrainState *whole, MxArena *arena) {
    Seen seen = {0};
    mx_train_state_init(divided);
    mx_train_state_init(whole);
    mx_train_state_take_reference(divided);
    mx_train_state_take_reference(whole);
    seen.init = farthest(divided, whole, whole->var.param, &seen.parameter_of);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = make_batch(arena, step);
        MxCommCount before = mx_comm_count(comm);
        MxLoss a = mx_train_loss_and_grad(divided, &batch);
        MxLoss b = mx_train_loss_and_grad(whole, &batch);
        seen.loss = fmax(seen.loss, relative(a.loss, b.loss));
        seen.weights = fmax(seen.weights, fabs(a.total_weights - b.total_weights));
        double far = farthest(divided, whole, whole->var.gradient, &seen.gradient_of);
        seen.gradient = fmax(seen.gradient, far);
        MxUpdate x = mx_train_update(divided), y = mx_train_update(whole);
        seen.sent = (MxCommCount){mx_comm_count(comm).calls - before.calls,
                                  mx_comm_count(comm).bytes - before.bytes};
        seen.norm = fmax(seen.norm, relative(x.raw_grad_norm, y.raw_grad_norm));
        seen.norm = fmax(seen.norm, relative(x.param_norm, y.param_norm));
    }
    seen.parameter = farthest(divided, whole, whole->var.param, &seen.parameter_of);
    MxBatch batch = make_batch(arena, STEPS);
    if (whole->config->gradient_accumulation_steps == 1)
        seen.loss = fmax(seen.loss, relative(mx_train_eval(divided, &batch).loss,
                                             mx_train_eval(whole, &batch).loss));
    return seen;
}

/* The plan's list is what a step sent. */
static void ck_planned(MxArena *arena, const MxConfig *config, MxCommCount sent, const char *at) {
    PlanCollectives plan;
    int64_t calls = 0, bytes = 0;
    plan_collectives(arena, config, &plan);
    ck_assert_msg(!plan.refusal, "%s: %s", at, plan.refusal);
    for (int i = 0; i < plan.n; i++) {
        calls += plan.rows[i].calls;
        bytes += plan.rows[i].bytes;
    }
    ck_assert_msg(calls > 0 && (uint64_t)calls == sent.calls && (uint64_t)bytes == sent.bytes,
                  "%s: planned %lld exchanges of %lld bytes, made %llu of %llu", at,
                  (long long)calls, (long long)bytes, (unsigned long long)sent.calls,
                  (unsigned long long)sent.bytes);
}

START_TEST(ranks_train_as_one) {
    int mesh = _i / MX_COUNT(variants);
    const Variant *v = &variants[_i % MX_COUNT(variants)];
    if (meshes[mesh].n_ranks != mx_comm_size(comm)) return;
    if (!v->everywhere && !meshes[mesh].is_chosen) return;
    MxArena arena = {.name = "train"};
    MxError err = {0};
    MxTrainState *divided, *whole;
    ck_assert_msg(
        mx_train_state_open_on(&arena, load_config(&arena, v, mesh), comm, &divided, &err), "%s",
        err.text.data);
    ck_assert_msg(mx_train_state_open(&arena, load_config(&arena, v, -1), &whole, &err), "%s",
                  err.text.data);
    Seen seen = train(divided, whole, &arena);
    const char *at =
        mx_arena_printf(&arena, "%s on %s", v->name, mx_mesh_text(&arena, &divided->mesh.mesh));
    ck_planned(&arena, divided->config, seen.sent, at);
    ck_assert_msg(seen.init == 0, "%s: other initial parameters", at);
    ck_assert_msg(seen.weights == 0, "%s: other weights", at);
    ck_assert_msg(seen.gradient <= v->gradient, "%s: gradient of %s is off by %g", at,
                  seen.gradient_of, seen.gradient);
    ck_assert_msg(seen.loss <= v->loss, "%s: losses are off by %g", at, seen.loss);
    ck_assert_msg(seen.norm <= v->gradient, "%s: norms are off by %g", at, seen.norm);
    ck_assert_msg(seen.parameter <= v->parameter, "%s: %s is off by %g", at, seen.parameter_of,
                  seen.parameter);
    mx_arena_release(&arena);
}
END_TEST

/* ---- states move between meshes */

static void ck_same_tree(const MxTree *a, const MxTree *b) {
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const MxLeaf *x = &a->leaves[i], *y = &b->leaves[i];
        size_t bytes = (size_t)mx_shape_count(x->shape) * mx_dtype_bytes(x->dtype);
        ck_assert_msg(!memcmp(x->data, y->data, bytes), "%s has other bits", x->path);
    }
}

/* The next mesh of as many ranks, round and round. */
static int next_mesh(int mesh) {
    int next = mesh;
    do next = (next + 1) % MX_COUNT(meshes);
    while (meshes[next].n_ranks != meshes[mesh].n_ranks);
    return next;
}

START_TEST(any_mesh_takes_any_state) {
    if (meshes[_i].n_ranks != mx_comm_size(comm)) return;
    MxArena arena = {.name = "move"};
    MxError err = {0};
    MxTrainState *from, *to;
    const Variant *v = &variants[0];
    MxConfig *a = load_config(&arena, v, _i), *b = load_config(&arena, v, next_mesh(_i));
    ck_assert_msg(mx_train_state_open_on(&arena, a, comm, &from, &err), "%s", err.text.data);
    ck_assert_msg(mx_train_state_open_on(&arena, b, comm, &to, &err), "%s", err.text.data);
    mx_train_state_init(from);
    MxBatch batch = make_batch(&arena, 0);
    mx_train_loss_and_grad(from, &batch);
    mx_train_update(from);
    MxTree *sent = mx_train_state_whole(from, &arena);
    MxTree *on_first = mx_train_state_on_first(from, &arena);
    mx_train_state_gather(from, on_first);
    mx_train_state_take(to, sent);
    mx_train_state_restored(to);
    MxTree *arrived = mx_train_state_whole(to, &arena);
    ck_same_tree(sent, arrived);
    if (mx_comm_rank(comm) == 0) ck_same_tree(sent, on_first);
    ck_assert_int_eq(mx_train_state_step(to), 1);
    ck_assert(on_first->leaves[0].data || mx_comm_rank(comm));
    mx_arena_release(&arena);
}
END_TEST

Suite *train_suite(void) {
    Suite *suite = suite_create("mpi/train");
    TCase *tcase = tcase_create("train");
    tcase_add_loop_test(tcase, ranks_train_as_one, 0, RUNS);
    tcase_add_loop_test(tcase, any_mesh_takes_any_state, 0, MX_COUNT(meshes));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
