/* outer.c — the outer steps of DiLoCo's replicas. Fragments of the parameters take them in turn
 * (enable_streaming_diloco), or one fragment has all parameters. The ranks of different replicas
 * have different values of a parameter along mesh axis "diloco", which costs nothing until the
 * values are summed (mx_trace_terms). The values that replicas mix in some steps later are not
 * stored separately: they are the fragment's outer parameters at that time.
 *
 * Source: Douillard et al. 2023 (DiLoCo) and 2025 (streaming); MaxText utils/spmd_diloco_sync.py
 * and trainers/diloco/utils/fragmenter.py @e591f30c; optax.sgd with nesterov. */
#include "diloco.h"
#include "internal.h"

/* ---- fragments */

static int n_fragments(const MxTrainState *s) {
    return (int)s->config->diloco_fragments;
}

/* Of layers that lie apart or in stacks of another size all is in fragment 0. */
static int fragment_of(const MxTrainState *s, int param) {
    const MxLeaf *leaf = &mx_model_params(s->model)->leaves[param];
    int64_t shares = n_fragments(s) - 1, layers = s->config->num_decoder_layers;
    if (!shares || leaf->stack.count != layers || !mx_text_has_prefix(leaf->path, "decoder/"))
        return 0;
    int64_t layer = leaf->stack.index;
    return 1 + (int)(s->config->use_sequential_layers ? layer * shares / layers : layer % shares);
}

/* ---- entries */

/* How far the replicas went from the outer parameter, their mean: a gradient to the outer
 * optimizer.
 */
static MxValue trace_gradient(MxTrainState *s, MxTrace *t, int param, MxValue outer) {
    MxValue reached = mx_cast(t, mx_variable(t, s->var.param[param]), MX_F32);
    MxValue way = mx_add(t, outer, mx_scale(t, reached, -1));
    mx_trace_terms(t, way, "diloco");
    const Diloco *own = program_part(s, PART_diloco);
    MxValue sum = mx_trace_like(t, mx_copy(t, way), own->momentum[param]);
    return mx_scale(t, sum, 1 / (double)program_replicas(s));
}

/* m = g + beta m; outer -= lr (g + beta m). */
static void trace_outer(MxTrainState *s, MxTrace *t, int param) {
    const Diloco *own = program_part(s, PART_diloco);
    const MxConfig *c = s->config;
    MxDtype dtype = s->vars.item[s->var.param[param]].type.dtype;
    MxValue outer = mx_cast(t, mx_variable(t, own->outer[param]), MX_F32);
    MxValue g = trace_gradient(s, t, param, outer);
    MxValue kept = mx_scale(t, mx_variable(t, own->momentum[param]), c->diloco_outer_momentum);
    MxValue m = mx_add(t, g, kept);
    mx_trace_assign(t, m, own->momentum[param], false);
    MxValue step = mx_add(t, g, mx_scale(t, m, c->diloco_outer_momentum));
    MxValue new = mx_add(t, outer, mx_scale(t, step, -c->diloco_outer_lr));
    mx_trace_assign(t, mx_cast(t, new, dtype), own->outer[param], false);
}

/* alpha of what a replica has, the rest of what is outer. */
static void trace_join(MxTrainState *s, MxTrace *t, int param) {
    double alpha = n_fragments(s) > 1 ? s->config->communication_overlapping_alpha : 0;
    MxDtype dtype = s->vars.item[s->var.param[param]].type.dtype;
    MxValue new = mx_cast(t, mx_variable(t, program_held(s, param)), MX_F32);
    if (alpha > 0) {
        MxValue own = mx_cast(t, mx_variable(t, s->var.param[param]), MX_F32);
        new = mx_add(t, mx_scale(t, own, alpha), mx_scale(t, new, 1 - alpha));
    }
    mx_trace_assign(t, mx_copy(t, mx_cast(t, new, dtype)), s->var.param[param], false);
}

static void trace_fragment(MxTrainState *s, MxTrace *t, int fragment,
                           void (*trace)(MxTrainState *, MxTrace *, int)) {
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (s->var.gradient[i] == MX_NONE || fragment_of(s, i) != fragment) continue;
        t->scope = mx_model_params(s->model)->leaves[i].path;
        trace(s, t, i);
    }
}

static void trace_outer_of(MxTrainState *s, MxTrace *t, int fragment) {
    trace_fragment(s, t, fragment, trace_outer);
}

static void trace_join_of(MxTrainState *s, MxTrace *t, int fragment) {
    trace_fragment(s, t, fragment, trace_join);
}

const Entry diloco_entry_outer = {.name = "outer",
                                  .is_wanted = program_is_training,
                                  .count = n_fragments,
                                  .trace_one = trace_outer_of};
const Entry diloco_entry_join = {.name = "join",
                                 .is_wanted = program_is_training,
                                 .count = n_fragments,
                                 .trace_one = trace_join_of};

/* ---- while it is run */

/* That of the fragment whose turn it was `late` steps ago. */
static void take_turn(MxTrainState *s, const Entry *entry, int64_t late) {
    int64_t each = s->config->diloco_fragment_steps, step = *s->step - late;
    if (step <= 0 || step % each) return;
    program_run_one(s, entry, (int)(step / each % n_fragments(s)));
    program_changed(s);
}

void diloco_stepped(MxTrainState *s) {
    bool is_streaming = n_fragments(s) > 1;
    take_turn(s, &diloco_entry_outer, 0);
    take_turn(s, &diloco_entry_join,
              is_streaming ? s->config->num_communication_overlapping_steps : 0);
}
