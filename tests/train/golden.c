/* golden.c — reading golden files and comparing with them; see tests/golden/README.md for what they
 * hold. */
#include "golden.h"
#include "close.h"
#include "common/vars.h"

#include "program/internal.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

float *golden_values(MxArena *arena, const MxLeaf *leaf) {
    int64_t n = mx_shape_count(leaf->shape);
    void *read = mx_arena_alloc(arena, mx_leaf_bytes(leaf) + 1);
    mx_leaf_read(leaf, read);
    if (leaf->dtype == MX_F32) return read;
    ck_assert(leaf->dtype == MX_BF16);
    float *copy = mx_new_n(arena, float, n);
    for (int64_t i = 0; i < n; i++) copy[i] = mx_bf16_to_f32(((MxBf16 *)read)[i]);
    return copy;
}

double golden_error(const float *got, const float *want, int64_t n) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return difference > 0 ? sqrt(difference / norm) : difference;
}

double golden_max_abs(const float *got, const float *want, int64_t n) {
    double max = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (!(d <= max)) max = d; /* NaN counts as larger */
    }
    return max;
}

MxH5 *golden_open(MxArena *arena, const char *name) {
    MxError err = {0};
    MxH5 *file = NULL;
    const char *path = goldens_find(arena, name);
    if (!path) {
        mx_arena_release(arena);
        return NULL;
    }
    ck_assert_msg(mx_h5_open(arena, path, &file, &err), "%s", err.text.data);
    return file;
}

int golden_cases(MxArena *arena, MxH5 *file, const char *group, const char **names, int cap) {
    MxH5Array *arrays;
    int n_arrays, n = 0;
    MxError err = {0};
    ck_assert_msg(mx_h5_list(arena, file, group, &arrays, &n_arrays, &err), "%s", err.text.data);
    for (int i = 0; i < n_arrays; i++) {
        const char *path = arrays[i].path, *slash = strchr(path, '/');
        if (!slash || strcmp(slash, "/loss")) continue;
        ck_assert_int_lt(n, cap);
        names[n++] =
            mx_path_join(arena, group, mx_arena_strndup(arena, path, (size_t)(slash - path)));
    }
    ck_assert_int_gt(n, 0);
    return n;
}

float *golden_read(MxArena *arena, MxH5 *file, const char *path, int64_t *n) {
    MxError err = {0};
    MxH5Array array;
    float *data = NULL;
    if (mx_h5_has_array(file, path)) {
        ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
        *n = mx_shape_count(array.shape);
        data = mx_new_n(arena, float, *n + 1);
        ck_assert_msg(mx_h5_read(file, path, MX_F32, array.shape, data, &err), "%s", err.text.data);
    }
    mx_error_release(&err);
    return data;
}

static int split(MxArena *arena, const char *words, const char **out, int cap) {
    int n = 0;
    char *save = NULL;
    for (char *w = strtok_r(mx_arena_strdup(arena, words), " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(n, cap);
        out[n++] = w;
    }
    return n;
}

enum { MAX_OVERRIDES = 256 };

static bool load(MxArena *arena, const char **overrides, int n, const char *more, MxConfig **out,
                 MxError *err) {
    const char *files[] = {"configs/base.yml"};
    n += split(arena, "override_model_config=true", overrides + n, MAX_OVERRIDES - n);
    n += split(arena, more, overrides + n, MAX_OVERRIDES - n);
    MxConfigRequest request = {
        .files = files, .n_files = 1, .overrides = overrides, .n_overrides = n};
    return mx_config_load(arena, &request, out, err);
}

bool golden_config(MxArena *arena, const char *words, const char *more, MxConfig **out,
                   MxError *err) {
    const char *overrides[MAX_OVERRIDES];
    return load(arena, overrides, split(arena, words, overrides, MAX_OVERRIDES), more, out, err);
}

MxConfig *golden_text_config(MxArena *arena, const char *yaml, const char *more) {
    const char *overrides[MAX_OVERRIDES];
    char *lines = mx_arena_strdup(arena, yaml), *save = NULL;
    int n = 0;
    MxConfig *config = NULL;
    MxError err = {0};
    for (char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (*line == '#') continue;
        char *colon = strstr(line, ": ");
        ck_assert_msg(colon && n < MAX_OVERRIDES, "no override: %s", line);
        overrides[n++] = mx_arena_printf(arena, "%.*s=%s", (int)(colon - line), line, colon + 2);
    }
    ck_assert_msg(load(arena, overrides, n, more, &config, &err), "%s", err.text.data);
    return config;
}

MxConfig *golden_yaml_config(MxArena *arena, MxH5 *file, const char *group, const char *more) {
    char *yaml = NULL;
    MxError err = {0};
    bool ok = mx_h5_attr(arena, file, group, "config", &yaml, &err) &&
              (yaml || mx_h5_attr(arena, file, "", "config", &yaml, &err));
    ck_assert_msg(ok && yaml, "%s has no config", group);
    return golden_text_config(arena, yaml, more);
}

MxTrainState *golden_hf_start(MxArena *arena, const char *folder, const char *more) {
    MxHfModel model;
    MxTrainState *state;
    MxCkptRef from;
    MxError err = {0};
    const char *dir = goldens_need(arena, folder);
    ck_assert_msg(mx_hf_read_config(arena, mx_hf_config_path(arena, dir), &model, &err), "%s",
                  err.text.data);
    const MxConfig *config = golden_text_config(arena, mx_hf_yaml(arena, &model), more);
    ck_assert_msg(mx_train_state_open(arena, config, &state, &err), "%s", err.text.data);
    mx_train_state_init(state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(state));
    ck_assert_msg(mx_ckpt_find(arena, dir, NULL, &from, &err), "%s", err.text.data);
    from.heads = &heads;
    ck_assert_msg(mx_hf_load(arena, &from, mx_train_state_tree(state), &model, &err), "%s",
                  err.text.data);
    close_nudge(mx_train_state_tree(state));
    mx_train_state_restored(state);
    mx_train_state_begin(state);
    return state;
}

MxBatch golden_batch(MxArena *arena, MxH5 *file, const char *group, int64_t step) {
    MxError err = {0};
    MxBatch batch = {0};
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        const char *path =
            mx_arena_printf(arena, "%s/%s", group, mx_batch_field_name((MxBatchField)f));
        MxH5Array array;
        ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
        MxBox box = {.rank = array.shape.rank};
        for (int i = 0; i < box.rank; i++) box.count[i] = array.shape.dim[i];
        if (box.rank == 3) {
            box.start[0] = step;
            box.count[0] = 1;
        }
        int64_t rows = box.count[box.rank - 2], length = box.count[box.rank - 1];
        if (!f) batch = mx_batch_new(arena, rows, length);
        ck_assert_msg(mx_h5_read_box(file, path, MX_I32, box, batch.field[f], &err), "%s",
                      err.text.data);
    }
    return batch;
}

enum { LOGITS, GRAD, ENTRIES };
enum { LOSS, XENT, Z, WEIGHTS, OUTS };

struct GoldenProgram {
    MxArena *arena;
    MxModel *model;
    MxVars vars;
    int in[MX_BATCH_FIELDS], out[OUTS], logits;
    MxVision vision;
    int pixels, place[MX_PLACE_FACTS], index; /* of a model that sees images */
    int corner, share, mrope[MX_MROPE_KINDS];
    int *param, *gradient;
    bool rounds_table;
    MxRun *run;
};

static void declare(GoldenProgram *g, const MxConfig *config) {
    const MxTree *params = mx_model_params(g->model);
    MxShape ids = MX_SHAPE(config->global_batch_size_to_train_on, config->max_target_length);
    MxShape logits = MX_SHAPE(ids.dim[0], ids.dim[1], config->vocab_size);
    g->param = mx_new_n(g->arena, int, params->n);
    g->gradient = mx_new_n(g->arena, int, params->n);
    for (int i = 0; i < params->n; i++) {
        MxType type = {params->leaves[i].dtype, params->leaves[i].shape};
        g->param[i] = mx_vars_add(&g->vars, params->leaves[i].path, type);
        type.dtype = MX_F32;
        g->gradient[i] = mx_vars_add(&g->vars, "gradient", type);
    }
    for (int i = 0; i < MX_BATCH_FIELDS; i++)
        g->in[i] = mx_vars_add(&g->vars, "in", (MxType){MX_I32, ids});
    g->vision = mx_model_vision(config);
    MxShape pixels = MX_SHAPE(ids.dim[0], mx_vision_row(&g->vision));
    MxShape places = MX_SHAPE(ids.dim[0], mx_vision_places(&g->vision));
    if (g->vision.images) {
        g->pixels = mx_vars_add(&g->vars, "pixels", (MxType){MX_F32, pixels});
        for (int k = 0; k < MX_PLACE_FACTS; k++)
            g->place[k] = mx_vars_add(&g->vars, "place", (MxType){MX_I32, places});
        g->index = mx_vars_add(&g->vars, "index", (MxType){MX_I32, ids});
        places.dim[1] *= MX_CORNERS;
        g->corner = mx_vars_add(&g->vars, "corner", (MxType){MX_I32, places});
        g->share = mx_vars_add(&g->vars, "share", (MxType){MX_F32, places});
        for (int k = 0; k < MX_MROPE_KINDS; k++)
            g->mrope[k] = mx_vars_add(&g->vars, "mrope", (MxType){MX_I32, ids});
    }
    for (int i = 0; i < OUTS; i++)
        g->out[i] = mx_vars_add(&g->vars, "out", (MxType){MX_F32, MX_SCALAR});
    g->logits = mx_vars_add(&g->vars, "logits", (MxType){MX_F32, logits});
}

/* Traces the hidden states; values for the head, of which the table may be rounded, go to `head`.
 */
static MxValue trace_hidden(GoldenProgram *g, MxTrace *t, MxValue *params, MxValue *head) {
    int table = mx_tree_find(mx_model_params(g->model), "token_embedder/embedding");
    for (int i = 0; i < mx_model_params(g->model)->n; i++) {
        params[i] = head[i] = mx_variable(t, g->param[i]);
        if (i == table && g->rounds_table)
            head[i] = mx_cast(t, mx_cast(t, head[i], MX_BF16), MX_F32);
    }
    MxModelInputs in = {.tokens = mx_variable(t, g->in[MX_INPUTS]),
                        .positions = mx_variable(t, g->in[MX_INPUTS_POSITION]),
                        .segments = mx_variable(t, g->in[MX_INPUTS_SEGMENTATION])};
    MxModelImages images;
    MxValue mrope[MX_MROPE_KINDS];
    if (g->vision.images) {
        images = (MxModelImages){.pixels = mx_variable(t, g->pixels),
                                 .rows = MX_NONE,
                                 .index = mx_variable(t, g->index)};
        for (int k = 0; k < MX_PLACE_FACTS; k++) images.place[k] = mx_variable(t, g->place[k]);
        images.corner = mx_variable(t, g->corner);
        images.share = mx_variable(t, g->share);
        for (int k = 0; k < MX_MROPE_KINDS; k++) mrope[k] = mx_variable(t, g->mrope[k]);
        in.images = &images;
        if (g->vision.has_mrope) in.mrope = mrope;
    }
    return mx_model_hidden(t, g->model, params, in);
}

static MxGraph *trace_logits(GoldenProgram *g, MxTrace *t) {
    MxGraph *graph = mx_graph_new(g->arena, "logits", &g->vars);
    int n = mx_model_params(g->model)->n;
    MxValue *params = mx_new_n(g->arena, MxValue, n), *head = mx_new_n(g->arena, MxValue, n);
    mx_trace_begin(t, graph);
    MxValue hidden = trace_hidden(g, t, params, head);
    mx_trace_assign(t, mx_copy(t, mx_model_logits(t, g->model, head, hidden)), g->logits, false);
    return graph;
}

static MxGraph *trace_grad(GoldenProgram *g, MxTrace *t) {
    MxGraph *graph = mx_graph_new(g->arena, "grad", &g->vars);
    int n = mx_model_params(g->model)->n;
    MxValue *params = mx_new_n(g->arena, MxValue, n), *head = mx_new_n(g->arena, MxValue, n);
    MxGradTarget *targets = mx_new_n(g->arena, MxGradTarget, n);
    mx_trace_begin(t, graph);
    MxValue hidden = trace_hidden(g, t, params, head);
    MxValue weights = mx_variable(t, g->in[MX_TARGETS_SEGMENTATION]);
    MxValue xent =
        mx_model_xent(t, g->model, head, hidden, mx_variable(t, g->in[MX_TARGETS]), weights);
    MxValue count = mx_count_nonzero(t, weights), loss = mx_ratio(t, xent, count, 1e-8);
    const MxValue outs[OUTS] = {[LOSS] = loss, [XENT] = xent, [Z] = xent + 1, [WEIGHTS] = count};
    for (int i = 0; i < OUTS; i++) mx_trace_assign(t, outs[i], g->out[i], false);
    for (int i = 0; i < n; i++)
        targets[i] = (MxGradTarget){.wrt = params[i], .var = g->gradient[i]};
    mx_grad(t, loss, targets, n);
    return graph;
}

GoldenProgram *golden_program(MxArena *arena, const MxConfig *config, bool rounds_table) {
    GoldenProgram *g = mx_new(arena, GoldenProgram);
    MxError err = {0};
    MxDevice *device;
    MxTrace t;
    *g = (GoldenProgram){.arena = arena, .vars.arena = arena, .rounds_table = rounds_table};
    ck_assert_msg(mx_model_new(arena, config, &g->model, &err) &&
                      mx_train_read_tokens(arena, g->model, config, &err),
                  "%s", err.text.data);
    declare(g, config);
    MxGraph *entries[ENTRIES];
    entries[LOGITS] = trace_logits(g, &t);
    ck_assert_msg(mx_trace_end(&t, &err), "%s", err.text.data);
    entries[GRAD] = trace_grad(g, &t);
    ck_assert_msg(mx_trace_end(&t, &err), "%s", err.text.data);
    bool ok = mx_device_open(arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(arena, device, &g->vars, entries, ENTRIES, MX_REMAT_NONE, &g->run, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    return g;
}

static void fill_images(GoldenProgram *g, const MxBatch *batch) {
    const MxVision *v = &g->vision;
    int64_t places = mx_vision_places(v);
    int32_t *all[MX_PLACE_FACTS], *row[MX_PLACE_FACTS];
    int32_t *corner = mx_new_n(g->arena, int32_t, batch->rows * places * MX_CORNERS);
    float *share = mx_new_n(g->arena, float, batch->rows *places *MX_CORNERS);
    for (int k = 0; k < MX_PLACE_FACTS; k++)
        all[k] = mx_new_n(g->arena, int32_t, batch->rows * places);
    for (int64_t b = 0; b < batch->rows; b++) {
        for (int k = 0; k < MX_PLACE_FACTS; k++) row[k] = all[k] + b * places;
        const MxVisionGrid *grids = batch->grids ? batch->grids + b * mx_vision_grids(v) : NULL;
        mx_vision_fill(v, grids, row);
        int64_t at = b * places * MX_CORNERS;
        if (v->learned) mx_vision_mix(v, grids, corner + at, share + at);
    }
    if (v->learned) {
        var_fill(g->run, g->corner, corner);
        var_fill(g->run, g->share, share);
    }
    for (int k = 0; v->has_mrope && k < MX_MROPE_KINDS; k++)
        var_fill(g->run, g->mrope[k], batch->mrope[k]);
    for (int k = 0; k < MX_PLACE_FACTS; k++) var_fill(g->run, g->place[k], all[k]);
    var_fill(g->run, g->pixels, batch->pixels);
    var_fill(g->run, g->index, batch->image);
}

static void run_entry(GoldenProgram *g, const MxTree *state, const MxBatch *batch, int entry) {
    if (g->vision.images) fill_images(g, batch);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) var_fill(g->run, g->in[f], batch->field[f]);
    for (int i = 0; i < mx_model_params(g->model)->n; i++)
        var_fill(g->run, g->param[i], mx_leaf_values(g->arena, &state->leaves[i]));
    mx_run_entry(g->run, entry);
}

const float *golden_logits(GoldenProgram *g, const MxTree *state, const MxBatch *batch) {
    run_entry(g, state, batch, LOGITS);
    return var_values(g->arena, g->run, g->logits);
}

MxLoss golden_loss_and_grad(GoldenProgram *g, MxTrainState *state, const MxBatch *batch) {
    run_entry(g, mx_train_state_tree(state), batch, GRAD);
    for (int i = 0; i < mx_model_params(g->model)->n; i++)
        var_fill(state->run, state->var.gradient[i], var_values(g->arena, g->run, g->gradient[i]));
    double out[OUTS];
    for (int i = 0; i < OUTS; i++) out[i] = *(const float *)var_values(g->arena, g->run, g->out[i]);
    return (MxLoss){.loss = out[LOSS], .total_weights = out[WEIGHTS], .sum = {out[XENT], out[Z]}};
}

MxTree golden_gradient_tree(MxArena *arena, const MxTrainState *state) {
    MxTree tree;
    const MxTree *params = mx_model_params(mx_train_state_model(state));
    mx_tree_init(&tree, arena);
    mx_tree_add_under(&tree, "model", params);
    for (int i = 0; i < tree.n; i++) {
        tree.leaves[i].dtype = MX_F32;
        tree.leaves[i].data = mx_train_gradient(arena, state, i);
    }
    return tree;
}

bool golden_like(MxArena *arena, const MxTrainState *state, MxH5 *file, const char *group,
                 int scan_axis, MxTree *out, MxError *err) {
    *out = golden_gradient_tree(arena, state);
    for (int i = 0; i < out->n; i++) {
        MxLeaf *leaf = &out->leaves[i];
        leaf->data = mx_arena_alloc(arena, (size_t)mx_shape_count(leaf->shape) * sizeof(float));
        leaf->may_start_anew |= leaf->is_unoptimized;
    }
    return mx_ckpt_read(file, group, "model/", scan_axis, out, err);
}
