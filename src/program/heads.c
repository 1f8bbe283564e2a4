/* heads.c — the part of a program that keeps attention scores within bounds (use_qk_clip): a step
 * records the largest score of each head, and scales down the kernels of queries and keys of heads
 * above a threshold. Each layer and head is treated separately, over all rows of the batch. Source:
 * Kimi K2 (2025) 2.1; MaxText utils/qk_clip_utils.py @e591f30c, which for stacked layers uses the
 * largest score of the whole stack, and does not change queries without a low-rank projection. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

typedef struct Heads {
    const MxHeads *of;
    int n;
    MxValue *tops; /* [parameter] of the pass that is being traced */
    int *vars;     /* [layer] f32 [rows, heads]; MX_NONE = its kernels are frozen */
    int metric;    /* the largest score of a step's batch */
} Heads;

static bool is_wanted(const MxConfig *config) {
    return config->use_qk_clip;
}

/* Maxima of ranks do not add up, so every rank has those of all rows. */
static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Heads *own = program_part(s, PART_heads);
    const MxTree *params = mx_model_params(s->model);
    int64_t rows = mx_train_rows(s->config) * s->config->micro_batch_size_to_train_on;
    own->of = mx_model_heads(s->model, &own->n);
    own->tops = mx_new_n(s->arena, MxValue, params->n);
    own->vars = mx_new_n(s->arena, int, own->n + 1);
    own->metric = program_add_metric(s, "learning/max_logits", METRIC_LARGEST);
    for (int i = 0; i < own->n; i++) {
        const MxLeaf *query = &params->leaves[own->of[i].query];
        MxType type = {MX_F32, MX_SHAPE(rows, query->shape.dim[query->shape.rank - 2])};
        bool is_trained =
            program_is_trained(s, query) || program_is_trained(s, &params->leaves[own->of[i].key]);
        own->vars[i] = is_trained ? program_add_var(s, "top", query->path, type) : MX_NONE;
    }
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    (void)t;
    const Heads *own = program_part(s, PART_heads);
    in->tops = own->tops;
}

/* The larger of x and y. */
static MxValue larger(MxTrace *t, MxValue x, MxValue y) {
    MxShape shape = mx_trace_type(t, x).shape;
    shape.dim[shape.rank++] = 1;
    return mx_largest(t, mx_concat(t, mx_reshape(t, x, shape), mx_reshape(t, y, shape)));
}

static void observe(MxTrainState *s, MxTrace *t, bool add) {
    const Heads *own = program_part(s, PART_heads);
    for (int i = 0; i < own->n && !t->failure.len; i++) {
        MxValue tops = own->tops[own->of[i].query];
        if (own->vars[i] == MX_NONE) continue;
        if (add) tops = larger(t, tops, mx_variable(t, own->vars[i]));
        mx_trace_assign(t, tops, own->vars[i], false);
    }
}

static MxValue adjust(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    const Heads *own = program_part(s, PART_heads);
    for (int i = 0; i < own->n; i++) {
        bool is_key = own->of[i].key == param;
        MxClipHeadsAttr attr = {.threshold = s->config->qk_clip_threshold,
                                .n_root = own->of[i].first,
                                .keeps_rest = is_key};
        if (is_key || own->of[i].query == param)
            return mx_clip_heads(t, value, mx_variable(t, own->vars[i]), attr);
    }
    return value;
}

static void tell(MxTrainState *s) {
    const Heads *own = program_part(s, PART_heads);
    MxArena arena = {.name = "largest scores"};
    double most = NAN;
    for (int i = 0; i < own->n; i++) {
        if (own->vars[i] == MX_NONE) continue;
        int64_t n = mx_shape_count(s->vars.item[own->vars[i]].type.shape);
        float *tops = mx_new_n(&arena, float, n);
        program_read_all(s, own->vars[i], tops);
        for (int64_t k = 0; k < n; k++) most = fmax(most, (double)tops[k]);
    }
    mx_arena_release(&arena);
    program_tell(s, own->metric, most);
}

const Part part_heads = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Heads),
    .declare = declare,
    .ask = ask,
    .observe = observe,
    .adjust = adjust,
    .tell = tell,
};
