/* train.c — a small decoder trained by several ranks on many meshes against the same by one rank:
 * initial parameters to the bit, losses, gradients, norms and what the steps make of the
 * parameters. */
#include "mpi_test.h"

#include <plan/internal.h>
#include <train/internal.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 16, STEPS = 3, MOST_SET = 8, MOST_AXES = 4, MOST_OVERRIDES = 48, VOCAB = 288 };

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
    "learning_rate=0.001",
    "warmup_steps_fraction=0",
    "eval_interval=-1",
    "dtype=float32",
    "steps=4",
    "ici_fsdp_parallelism=1",
};

/* ---- what is trained */

typedef struct Variant {
    const char *name;
    const char *set[MOST_SET];
    const char *axes[MOST_AXES]; /* that its mesh has; none = all of them */
    int length;                  /* of a row; 0 = LENGTH */
    bool everywhere;             /* on all meshes, not only on some */
    int parts;                   /* of a batch that are as long as its rows; 0 = 1 */
    double loss;                 /* how far off losses may be; 0 = as all of the dtype */
    bool is_bf16;
} Variant;

#define SGD "opt_type=sgd", "learning_rate=0.01"

// clang-format off
static const Variant variants[] = {
    {.name = "adamw", .set = {NULL}, .everywhere = true},
    {.name = "sgd", .set = {SGD}, .everywhere = true},
    {.name = "odd length", .set = {SGD}, .length = 15, .everywhere = true},
    {.name = "length that 4 divides", .set = {SGD}, .length = 12},
    {.name = "length that 2 divides, adamw", .set = {NULL}, .length = 18},
    {.name = "tied, grouped heads, norms", .set = {"logits_via_embedding=true", "base_num_query_heads=24", "use_qk_norm=true", "decoder_block=qwen3", SGD}},
    {.name = "biases, window", .set = {"decoder_block=qwen2", "attention_bias=true", "attention_type=local_sliding", "sliding_window_size=5", SGD}},
    {.name = "accumulation", .set = {"gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "accumulation, adamw, odd length", .set = {"gradient_accumulation_steps=2"}, .length = 15, .parts = 2},
    {.name = "adapters", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", SGD}},
    {.name = "adapters, adamw, accumulation", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "preferences", .set = {"use_dpo=true", SGD}, .parts = 2},
    {.name = "preferences, odd length", .set = {"use_dpo=true", SGD}, .length = 13, .parts = 2},
    {.name = "preferences, adapters, adamw", .set = {"use_dpo=true", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8"}, .parts = 2},
    {.name = "looking ahead", .set = {"mtp_num_layers=2", SGD}},
    {.name = "tiles", .set = {"num_vocab_tiling=4", SGD}},
    {.name = "tiles, tied, accumulation", .set = {"num_vocab_tiling=8", "logits_via_embedding=true", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "everything again", .set = {"remat_policy=full", SGD}},
    {.name = "something again", .set = {"remat_policy=minimal", "z_loss_multiplier=0.01", SGD}},
    {.name = "weights cut otherwise", .set = {"logical_axis_rules=[[embed,tensor],[mlp,[fsdp]],[q_heads,[]],[kv_heads,context],[vocab,[data]]]", SGD}},
    {.name = "activations whole", .set = {"logical_axis_rules=[[activation_mlp,[]],[activation_heads,[]],[activation_kv_heads,[]],[activation_embed,[]],[activation_length,[]]]", SGD}},
    {.name = "mesh of fsdp", .set = {"custom_mesh_and_rule=pure-fsdp", SGD}, .axes = {"fsdp"}},
    {.name = "mesh with experts along the context", .set = {"custom_mesh_and_rule=ep-as-cp", SGD}, .axes = {"data", "fsdp", "expert"}},
    {.name = "bfloat16", .set = {"dtype=bfloat16", SGD}, .is_bf16 = true},
    {.name = "vocabulary elsewhere", .set = {"logical_axis_rules=[[vocab,[expert,fsdp,context,tensor,tensor_sequence]],[embed_vocab,[]]]", SGD}},
    {.name = "soft cap, tied, ahead", .set = {"final_logits_soft_cap=3", "logits_via_embedding=true", "mtp_num_layers=1", "z_loss_multiplier=0.01", SGD}},
    {.name = "preferences, adapters, accumulation", .set = {"use_dpo=true", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", "vocab_size=1152", SGD}, .parts = 4},
    {.name = "bfloat16, tied, preferences", .set = {"dtype=bfloat16", "logits_via_embedding=true", "use_dpo=true", "vocab_size=1152", SGD}, .parts = 2, .loss = 1e-2, .is_bf16 = true}, /* its loss is of sums over responses */
};
// clang-format on

/* How far off a run may be: losses relative to themselves, arrays to their norm; what AdamW makes
 * of parameters absolutely, since it makes steps of one size of the smallest gradients too. */
typedef struct Bounds {
    double loss, gradient, parameter, adamw_parameter;
} Bounds;

static Bounds bounds_of(const Variant *v) {
    Bounds bounds = {1e-6, 1e-5, 1e-5, 1e-4};
    if (v->is_bf16) bounds = (Bounds){2e-3, 3e-2, 1e-3, 1e-3};
    if (v->loss > 0) bounds.loss = v->loss;
    return bounds;
}

static bool is_adamw(const Variant *v) {
    bool is_other = false;
    for (int i = 0; i < MOST_SET && v->set[i]; i++)
        is_other = is_other || !strncmp(v->set[i], "opt_type=", 9);
    return !is_other;
}

static int length_of(const Variant *v) {
    return v->length ? v->length : LENGTH;
}

/* Rows that 2, 4 and 8, or 3 and 6, ranks divide, also by halves. */
static int n_rows(void) {
    return mx_comm_size(comm) % 3 ? 16 : 12;
}

/* ---- which meshes */

/* Meshes of each number of ranks for a variant that is not everywhere. */
static int least(void) {
    return getenv("MX_LONG") ? 12 : 3;
}

static bool runs_on(int variant, int mesh) {
    const Variant *v = &variants[variant];
    int n;
    const RankMesh *meshes = rank_meshes(&n);
    int n_axes = 0;
    while (n_axes < MOST_AXES && v->axes[n_axes]) n_axes++;
    if (n_axes) return mesh_is_within(&meshes[mesh], v->axes, n_axes);
    return v->everywhere || n <= least() || (mesh + variant) % (n / least()) == 0;
}

/* ---- configs and batches */

/* Overrides of a config, the later ones in place of the earlier ones. */
typedef struct Overrides {
    const char *item[MOST_OVERRIDES];
    int n;
} Overrides;

static void override(Overrides *to, const char *text) {
    size_t key = strcspn(text, "=") + 1;
    for (int i = 0; i < to->n; i++)
        if (!strncmp(to->item[i], text, key)) {
            to->item[i] = text;
            return;
        }
    ck_assert_int_lt(to->n, MOST_OVERRIDES);
    to->item[to->n++] = text;
}

/* The model divides among three ranks too. */
static void override_for_threes(Overrides *to) {
    static const char *const sizes[] = {"base_emb_dim=48", "base_mlp_dim=96",
                                        "base_num_query_heads=6", "base_num_kv_heads=6",
                                        "head_dim=12"};
    for (int i = 0; i < MX_COUNT(sizes); i++) override(to, sizes[i]);
}

/* mesh: NULL = one rank. */
static MxConfig *load_config(MxArena *arena, const Variant *v, const RankMesh *mesh) {
    const char *files[] = {"configs/base.yml"};
    char *environ[] = {NULL};
    int n_ranks = mesh ? mx_comm_size(comm) : 1;
    Overrides set = {0};
    for (int i = 0; i < MX_COUNT(tiny); i++) override(&set, tiny[i]);
    if (mx_comm_size(comm) % 3 == 0) override_for_threes(&set);
    for (int i = 0; i < MOST_SET && v->set[i]; i++) override(&set, v->set[i]);
    for (int i = 0; mesh && i < MX_MESH_DEFAULT_COUNT; i++)
        if (mesh->size[i] > 1)
            override(&set, mx_arena_printf(arena, "ici_%s_parallelism=%lld",
                                           mx_mesh_default_axes[i], (long long)mesh->size[i]));
    override(&set, mx_arena_printf(arena, "max_target_length=%d", length_of(v)));
    override(&set, mx_arena_printf(arena, "per_device_batch_size=%.17g",
                                   (double)n_rows() / (v->parts ? v->parts : 1) / n_ranks));
    override(&set, "eval_per_device_batch_size=0");
    MxConfigRequest request = {.n_ranks = n_ranks,
                               .files = files,
                               .n_files = 1,
                               .overrides = set.item,
                               .n_overrides = set.n,
                               .environ = environ};
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(mx_config_load(arena, &request, &config, &err), "%s: %s", v->name, err.text.data);
    return config;
}

static uint32_t word(int step, int64_t i) {
    uint32_t w[4];
    mx_philox(23, (uint64_t)step, (uint64_t)i, w);
    return w[0];
}

/* Two or three documents a row, padding at the end of some rows; the same in both halves of the
 * batch, as pairs have them. */
static MxBatch make_batch(MxArena *arena, int length, int step) {
    MxBatch batch = mx_batch_new(arena, n_rows(), length);
    for (int row = 0; row < n_rows(); row++) {
        int pair = row % (n_rows() / 2);
        int first = 3 + (int)(word(step, -1 - pair) % 6), second = first + 4;
        for (int t = 0; t < length; t++) {
            int i = row * length + t, segment = t < first ? 1 : t < second ? 2 : 3;
            bool is_padding = pair % 3 == 1 && t >= length - 3;
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

/* What one rank makes of a variant; arrays by parameter, NULL = it has no gradient. */
typedef struct Record {
    MxArena arena;
    const MxTree *params;
    const float **init, **gradient[STEPS], **last;
    MxLoss loss[STEPS], eval;
    MxUpdate update[STEPS];
} Record;

static const float **keep(Record *r, const MxTrainState *s, const int *vars) {
    const float **kept = mx_new_n(&r->arena, const float *, r->params->n);
    for (int i = 0; i < r->params->n; i++) {
        if (vars[i] == MX_NONE) continue;
        size_t bytes = (size_t)mx_shape_count(r->params->leaves[i].shape) * sizeof(float);
        kept[i] = memcpy(mx_arena_alloc(&r->arena, bytes), mx_run_var(s->run, vars[i]), bytes);
    }
    return kept;
}

static bool has_eval(const MxConfig *config) {
    return config->gradient_accumulation_steps == 1;
}

static Record *make_record(const Variant *v) {
    static Record records[MX_COUNT(variants)];
    Record *r = &records[v - variants];
    if (r->params) return r;
    MxArena scratch = {.name = "whole"};
    MxError err = {0};
    MxTrainState *whole;
    *r = (Record){.arena = {.name = "record"}};
    ck_assert_msg(mx_train_state_open(&r->arena, load_config(&r->arena, v, NULL), &whole, &err),
                  "%s", err.text.data);
    r->params = mx_model_params(whole->model);
    mx_train_state_init(whole);
    mx_train_state_take_reference(whole);
    r->init = keep(r, whole, whole->var.param);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = make_batch(&scratch, length_of(v), step);
        r->loss[step] = mx_train_loss_and_grad(whole, &batch);
        r->gradient[step] = keep(r, whole, whole->var.gradient);
        r->update[step] = mx_train_update(whole);
    }
    r->last = keep(r, whole, whole->var.param);
    MxBatch batch = make_batch(&scratch, length_of(v), STEPS);
    if (has_eval(whole->config)) r->eval = mx_train_eval(whole, &batch);
    mx_arena_release(&scratch);
    return r;
}

/* How far a rank's part is from the whole, relative to the whole's norm; the largest difference. */
typedef struct Distance {
    double relative, absolute;
} Distance;

static Distance distance(const MxTrainState *s, int var, MxShape shape, const float *all) {
    const MxBox *box = &s->box[var];
    const float *part = mx_run_var(s->run, var);
    double error = 0, size = 0, most = 0;
    for (int64_t i = 0; i < mx_shape_count(shape); i++) size += (double)all[i] * (double)all[i];
    for (int64_t i = 0; i < mx_box_count(box); i++) {
        double d = (double)part[i] - (double)all[index_in_whole(box, shape, i)];
        error += d * d;
        most = fmax(most, fabs(d));
    }
    return (Distance){size > 0 ? sqrt(error / size) : sqrt(error), most};
}

/* The parameter that is farthest from the record's. */
static Distance farthest(const MxTrainState *s, const Record *r, const int *vars,
                         const float **whole, const char **which) {
    Distance most = {0};
    for (int i = 0; i < r->params->n; i++) {
        if (!whole[i]) continue;
        Distance d = distance(s, vars[i], r->params->leaves[i].shape, whole[i]);
        most.absolute = fmax(most.absolute, d.absolute);
        if (!(d.relative >= most.relative)) continue;
        most.relative = d.relative;
        *which = r->params->leaves[i].path;
    }
    return most;
}

typedef struct Seen {
    double loss, weights, norm, gradient;
    Distance init, last;
    const char *init_of, *gradient_of, *last_of;
    MxCommCount sent; /* in the last step */
} Seen;

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* Whether the gradient is one of the same parameters, but for rounding: AdamW makes as large a step
 * of a gradient that is nothing but rounding as of any other. */
static bool is_comparable(const Variant *v, int step) {
    return step == 0 || !is_adamw(v);
}

static Seen train(MxTrainState *s, const Variant *v, const Record *r, MxArena *arena) {
    Seen seen = {0};
    mx_train_state_init(s);
    mx_train_state_take_reference(s);
    seen.init = farthest(s, r, s->var.param, r->init, &seen.init_of);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = make_batch(arena, length_of(v), step);
        MxCommCount before = mx_comm_count(comm);
        MxLoss loss = mx_train_loss_and_grad(s, &batch);
        seen.loss = fmax(seen.loss, relative(loss.loss, r->loss[step].loss));
        seen.weights = fmax(seen.weights, fabs(loss.total_weights - r->loss[step].total_weights));
        const char *which = NULL;
        double far = farthest(s, r, s->var.gradient, r->gradient[step], &which).relative;
        if (is_comparable(v, step) && !(far <= seen.gradient)) {
            seen.gradient = far;
            seen.gradient_of = which;
        }
        MxUpdate update = mx_train_update(s);
        seen.sent = (MxCommCount){mx_comm_count(comm).calls - before.calls,
                                  mx_comm_count(comm).bytes - before.bytes};
        seen.norm = fmax(seen.norm, relative(update.raw_grad_norm, r->update[step].raw_grad_norm));
        seen.norm = fmax(seen.norm, relative(update.param_norm, r->update[step].param_norm));
    }
    seen.last = farthest(s, r, s->var.param, r->last, &seen.last_of);
    MxBatch batch = make_batch(arena, length_of(v), STEPS);
    if (has_eval(s->config))
        seen.loss = fmax(seen.loss, relative(mx_train_eval(s, &batch).loss, r->eval.loss));
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
    bool has_calls = mx_comm_size(comm) > 1;
    ck_assert_msg(
        (calls > 0) == has_calls && (uint64_t)calls == sent.calls && (uint64_t)bytes == sent.bytes,
        "%s: planned %lld exchanges of %lld bytes, made %llu of %llu", at, (long long)calls,
        (long long)bytes, (unsigned long long)sent.calls, (unsigned long long)sent.bytes);
}

static void ck_seen(const Seen *seen, const Variant *v, const char *at) {
    Bounds bounds = bounds_of(v);
    /* One rank runs the very program. */
    if (mx_comm_size(comm) == 1) bounds = (Bounds){0};
    ck_assert_msg(seen->init.absolute == 0, "%s: other initial parameters, of %s", at,
                  seen->init_of);
    ck_assert_msg(seen->weights == 0, "%s: other weights", at);
    ck_assert_msg(seen->gradient <= bounds.gradient, "%s: gradient of %s is off by %g", at,
                  seen->gradient_of, seen->gradient);
    ck_assert_msg(seen->loss <= bounds.loss, "%s: losses are off by %g", at, seen->loss);
    ck_assert_msg(seen->norm <= bounds.gradient, "%s: norms are off by %g", at, seen->norm);
    if (is_adamw(v))
        ck_assert_msg(seen->last.absolute <= bounds.adamw_parameter, "%s: parameters are off by %g",
                      at, seen->last.absolute);
    else
        ck_assert_msg(seen->last.relative <= bounds.parameter, "%s: %s is off by %g", at,
                      seen->last_of, seen->last.relative);
}

/* Meshes that each variant ran on, to see that they are enough. */
static int n_ran[MX_COUNT(variants)];

static void train_on(const RankMesh *mesh, int variant) {
    MxArena arena = {.name = "train"};
    MxError err = {0};
    MxTrainState *divided;
    const Variant *v = &variants[variant];
    const Record *record = make_record(v);
    ck_assert_msg(
        mx_train_state_open_on(&arena, load_config(&arena, v, mesh), comm, &divided, &err),
        "%s: %s", v->name, err.text.data);
    Seen seen = train(divided, v, record, &arena);
    const char *at =
        mx_arena_printf(&arena, "%s on %s", v->name, mx_mesh_text(&arena, &divided->mesh.mesh));
    n_ran[variant]++;
    if (!v->everywhere || v == variants) ck_planned(&arena, divided->config, seen.sent, at);
    ck_seen(&seen, v, at);
    mx_arena_release(&arena);
}

/* A test each, since a rank that fails leaves its test, and the others must not wait for it. */
START_TEST(ranks_train_as_one) {
    int n, mesh = _i / MX_COUNT(variants), variant = _i % MX_COUNT(variants);
    const RankMesh *meshes = rank_meshes(&n);
    if (runs_on(variant, mesh)) train_on(&meshes[mesh], variant);
}
END_TEST

/* At least 20 combinations of axes, or of axes and configs where there are fewer axes; of the rarer
 * variants some meshes each, or all there are. */
START_TEST(there_were_enough) {
    enum { WANTED = 20 };
    int n, n_all = 0;
    rank_meshes(&n);
    for (int v = 0; v < MX_COUNT(variants); v++) {
        n_all += n_ran[v];
        if (variants[v].everywhere) ck_assert_int_eq(n_ran[v], n);
        if (!variants[v].axes[0]) ck_assert_int_ge(n_ran[v], n < least() ? n : least());
        ck_assert_int_ge(n_ran[v], 1);
    }
    ck_assert_int_ge(n_all, WANTED);
    if (mx_comm_size(comm) > 3) ck_assert_int_ge(n, WANTED);
    if (mx_comm_rank(comm) == 0)
        printf("%d ranks: %d meshes, %d runs on them like that of one rank\n", mx_comm_size(comm),
               n, n_all);
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

START_TEST(any_mesh_takes_any_state) {
    MxArena arena = {.name = "move"};
    MxError err = {0};
    MxTrainState *from, *to;
    const Variant *v = &variants[0];
    int n;
    const RankMesh *meshes = rank_meshes(&n);
    MxConfig *a = load_config(&arena, v, &meshes[_i]);
    MxConfig *b = load_config(&arena, v, &meshes[(_i + 1) % n]);
    ck_assert_msg(mx_train_state_open_on(&arena, a, comm, &from, &err), "%s", err.text.data);
    ck_assert_msg(mx_train_state_open_on(&arena, b, comm, &to, &err), "%s", err.text.data);
    mx_train_state_init(from);
    MxBatch batch = make_batch(&arena, length_of(v), 0);
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
    int n;
    rank_meshes(&n);
    Suite *suite = suite_create("mpi/train");
    TCase *tcase = tcase_create("train");
    tcase_add_loop_test(tcase, ranks_train_as_one, 0, n * MX_COUNT(variants));
    tcase_add_test(tcase, there_were_enough);
    tcase_add_loop_test(tcase, any_mesh_takes_any_state, 0, n);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
