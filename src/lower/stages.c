/* stages.c — what one stage of a pipeline runs. A graph was divided among the ranks of a stage as
 * if there were no others; here every node gets a virtual stage, nodes of other stages go, and what
 * they make comes by message. The passes of a step are laid out for every micro-batch in the order
 * of the pipeline's table.
 *
 * A node belongs to the virtual stage of its layer, one outside layers to that of what it reads; a
 * node that reads nothing of any (embeddings, tables of positions) is run by every stage that needs
 * what it makes. So weights outside layers are with all stages, and their gradients are summed.
 *
 * A sender waits for a message only when, in the table's time, the unit that takes it began before:
 * everything that waits then waits for something earlier, and no cycle can come about. */
#include "stages.h"

static bool is_here(const Cut *c, int place) {
    return place == ANYWHERE || place % c->n_stages == c->stage;
}

static MxPeerAttr peer(Cut *c, const Crossing *crossing, int micro, int stage) {
    const MxMesh *mesh = c->s->mesh;
    MxGroup group = mx_lower_group(c->t.graph->arena, mesh, c->s->rank, mx_mesh_stages(mesh));
    int *ranks = mx_new_n(c->t.graph->arena, int, 2);
    ranks[0] = (int)c->s->rank;
    ranks[1] = group.ranks[stage];
    group.ranks = ranks;
    group.size = 2;
    group.index = 0;
    int number = (int)(crossing - c->crossings);
    return (MxPeerAttr){.group = group,
                        .tag = number * c->s->n_micros + micro,
                        .type = c->whole->values[crossing->value].type};
}

/* ---- making the stage's graph */

static MxValue have(Cut *c, MxValue value, int micro);

static void as_part_of(Cut *c, const MxNode *node, int micro) {
    c->t.scope = node->scope;
    c->t.region = node->region ? node->region + micro * c->n_regions : 0;
    c->t.backward = node->backward;
}

static MxValue receive(Cut *c, MxValue value, int micro) {
    const Crossing *crossing = stages_crossing(c, value, c->stage);
    MX_ASSERT(crossing);
    MxPeerAttr attr = peer(c, crossing, micro, stages_place(c, value) % c->n_stages);
    as_part_of(c, stages_maker(c, value), 0);
    c->t.region = 0; /* it comes once */
    return mx_trace_node(&c->t, &op_receive, NULL, 0, &attr);
}

static MxValue sum_of_stages(Cut *c, MxValue value) {
    const MxMesh *mesh = c->s->mesh;
    MxCollectiveAttr attr = {
        .group = mx_lower_group(c->t.graph->arena, mesh, c->s->rank, mx_mesh_stages(mesh))};
    return mx_trace_node(&c->t, &op_all_reduce, &value, 1, &attr);
}

/* Of arrays that all stages have, the first one adds them. */
static MxValue emit_spread(Cut *c, const MxNode *node, int micro) {
    MxValue *in = mx_new_n(&c->arena, MxValue, node->n_in + 1);
    int n = 0;
    for (int i = 0; i < node->n_in; i++) {
        int place = stages_place(c, node->in[i]);
        if (place == ANYWHERE ? !c->stage : is_here(c, place))
            in[n++] = have(c, node->in[i], micro);
    }
    as_part_of(c, node, micro);
    MxValue sum = sum_of_stages(c, mx_trace_node(&c->t, node->op, in, n, node->attr));
    int var = c->whole->values[node->out[0]].var;
    if (var != MX_NONE) mx_trace_assign(&c->t, sum, var, false);
    return sum;
}

/* Whether an output is added to its variable: what is there is forgotten by who comes first. */
static bool is_added(Cut *c, const MxNode *node, int i, int var) {
    bool is_first = !c->is_written[var];
    c->is_written[var] = true;
    return node->accumulate >> i & 1 && (c->s->adds[var] || !is_first);
}

static void copy_node(Cut *c, const MxNode *node, int micro) {
    MxNode copy = *node;
    MxGraph *to = c->t.graph;
    MxValue *in = mx_new_n(to->arena, MxValue, node->n_in + 1);
    for (int i = 0; i < node->n_in; i++) in[i] = have(c, node->in[i], micro);
    copy.in = in;
    copy.accumulate = 0;
    copy.region = node->region ? node->region + micro * c->n_regions : 0;
    for (int i = 0; i < node->n_out; i++) {
        MxValueInfo info = c->whole->values[node->out[i]];
        if (info.var != MX_NONE && c->is_told[info.var]) info.var = MX_NONE;
        if (info.var != MX_NONE && is_added(c, node, i, info.var)) copy.accumulate |= 1u << i;
        copy.out[i] = mx_graph_add_value(to, info);
        c->made[micro][node->out[i]] = copy.out[i];
    }
    mx_graph_add_node(to, copy);
}

static void emit(Cut *c, int n, int micro) {
    const MxNode *node = &c->whole->nodes[n];
    MxValue *made = &c->made[micro][node->out[0]];
    if (*made != MX_NONE) return;
    if (node->op->flags & MX_OP_SOURCE) {
        int var = stages_var(node);
        as_part_of(c, node, micro);
        *made = mx_variable(&c->t, c->varies[n] ? c->s->own[micro][var] : var);
    } else if (stages_is_spread(c, node)) {
        *made = emit_spread(c, node, micro);
    } else {
        copy_node(c, node, micro);
    }
}

/* A value of the whole graph as this stage has it. */
static MxValue have(Cut *c, MxValue value, int micro) {
    int n = c->whole->values[value].node;
    if (!c->varies[n]) micro = 0;
    MxValue *made = &c->made[micro][value];
    if (*made == MX_NONE && is_here(c, c->place[n])) emit(c, n, micro);
    if (*made == MX_NONE) *made = receive(c, value, micro);
    return *made;
}

/* ---- messages */

static void send(Cut *c, const Crossing *crossing, int micro) {
    const MxNode *maker = stages_maker(c, crossing->value);
    MxValue value = have(c, crossing->value, micro);
    as_part_of(c, maker, micro);
    c->t.region = 0;
    MxValue buffer = mx_graph_buffer(c->t.graph, value);
    if (c->t.graph->values[buffer].var != MX_NONE ||
        mx_graph_producer(c->t.graph, buffer)->op->flags & MX_OP_SOURCE)
        value = mx_copy(&c->t, value); /* the variable may change before it has gone */
    MxPeerAttr attr = peer(c, crossing, micro, crossing->to);
    if (c->n_letters == c->cap_letters) {
        c->cap_letters = c->cap_letters ? 2 * c->cap_letters : 64;
        c->letters = mx_arena_grow(&c->arena, c->letters, (size_t)c->n_letters,
                                   (size_t)c->cap_letters, sizeof *c->letters);
    }
    c->letters[c->n_letters++] = (Letter){.value = value,
                                          .token = mx_trace_node(&c->t, &op_send, &value, 1, &attr),
                                          .attr = attr,
                                          .taken = stages_taken(c, crossing, micro),
                                          .backward = maker->backward};
}

static void send_from(Cut *c, const PipelineUnit *unit) {
    for (int i = 0; i < c->n_crossings; i++) {
        const Crossing *crossing = &c->crossings[i];
        int n = c->whole->values[crossing->value].node;
        bool is_its = c->place[n] == unit->place && c->whole->nodes[n].backward == unit->backward;
        if (is_its && (c->varies[n] || !unit->micro)) send(c, crossing, unit->micro);
    }
}

/* Waits for messages that were taken before. Not for those that are taken at this time: who takes
 * them may wait in the same way. */
static void wait_before(Cut *c, int64_t time) {
    int n = 0;
    for (int i = 0; i < c->n_letters; i++) {
        Letter letter = c->letters[i];
        if (letter.taken >= time) {
            c->letters[n++] = letter;
            continue;
        }
        c->t.scope = "stage";
        c->t.region = 0;
        c->t.backward = letter.backward;
        mx_trace_node(&c->t, &op_sent, (MxValue[]){letter.token, letter.value}, 2, &letter.attr);
    }
    c->n_letters = n;
}

/* ---- the order */

/* The nodes of each virtual stage, forwards and backwards, in order: list[start[key]]… */
typedef struct Units {
    int *start, *list;
} Units;

static int key_of(const Cut *c, int place, bool backward) {
    return backward * c->n_places + place;
}

static Units sort_nodes(Cut *c) {
    int n_keys = 2 * c->n_places;
    Units u = {mx_new_n(&c->arena, int, n_keys + 2),
               mx_new_n(&c->arena, int, c->whole->n_nodes + 1)};
    for (int pass = 0; pass < 2; pass++) {
        for (int n = 0; n < c->whole->n_nodes; n++) {
            if (c->place[n] == ANYWHERE) continue;
            int key = key_of(c, c->place[n], c->whole->nodes[n].backward);
            if (pass)
                u.list[u.start[key + 1]++] = n;
            else
                u.start[key + 2]++;
        }
        for (int k = 2; !pass && k < n_keys + 2; k++) u.start[k] += u.start[k - 1];
    }
    return u;
}

/* Sums over stages come in the same order in all of them. */
static void emit_sums(Cut *c) {
    for (int n = 0; n < c->whole->n_nodes; n++) {
        const MxNode *node = &c->whole->nodes[n];
        const MxCollective kind = node->op->collective;
        bool is_uneven = kind && ((const MxCollectiveAttr *)node->attr)->group.is_uneven;
        if (is_uneven || stages_is_spread(c, node)) emit(c, n, 0);
    }
}

static void emit_units(Cut *c) {
    Units u = sort_nodes(c);
    for (int i = 0; i < c->table.n; i++) {
        const PipelineUnit *unit = &c->table.unit[c->stage][i];
        int key = key_of(c, unit->place, unit->backward);
        wait_before(c, unit->start);
        for (int k = u.start[key]; k < u.start[key + 1]; k++)
            emit(c, u.list[k], c->varies[u.list[k]] ? unit->micro : 0);
        send_from(c, unit);
    }
    wait_before(c, INT64_MAX);
}

/* What no stage alone runs, and goes to a variable. */
static void emit_rest(Cut *c) {
    for (int n = 0; n < c->whole->n_nodes; n++) {
        const MxNode *node = &c->whole->nodes[n];
        bool is_kept = false;
        for (int i = 0; i < node->n_out; i++)
            is_kept = is_kept || c->whole->values[node->out[i]].var != MX_NONE;
        if (!is_kept || c->place[n] != ANYWHERE) continue;
        for (int micro = 0; micro < (c->varies[n] ? c->s->n_micros : 1); micro++) emit(c, n, micro);
    }
}

/* ---- variables without a home */

/* What a stage has made of such a variable, over all micro-batches; MX_NONE = nothing. */
static MxValue total_of(Cut *c, int var, bool *is_everywhere) {
    MxValue total = MX_NONE;
    bool adds = false;
    int n_made = 0;
    for (int n = 0; n < c->whole->n_nodes; n++) {
        const MxNode *node = &c->whole->nodes[n];
        for (int i = 0; i < node->n_out; i++) {
            if (c->whole->values[node->out[i]].var != var) continue;
            adds = adds || node->accumulate >> i & 1;
            *is_everywhere = c->place[n] == ANYWHERE;
            for (int m = 0; is_here(c, c->place[n]) && m < c->s->n_micros; m++) {
                MxValue x = c->varies[n] || !m ? c->made[m][node->out[i]] : MX_NONE;
                if (x == MX_NONE) continue;
                total = total == MX_NONE ? x : mx_add(&c->t, total, x);
                n_made++;
            }
        }
    }
    MX_ASSERT(n_made < 2 || adds || c->s->is_sum[var]);
    if (total != MX_NONE && adds && c->s->adds[var])
        total = mx_add(&c->t, total, mx_variable(&c->t, var));
    return total;
}

static void tell(Cut *c, int var) {
    MxInitAttr zeros = {.type = c->t.graph->vars->item[var].type};
    bool is_everywhere = false;
    c->t.scope = c->t.graph->vars->item[var].name;
    MxValue total = total_of(c, var, &is_everywhere);
    if (total == MX_NONE) total = mx_init(&c->t, zeros);
    mx_trace_assign(&c->t, is_everywhere ? mx_copy(&c->t, total) : sum_of_stages(c, total), var,
                    false);
}

/* Gradients that nothing has come to. */
static void forget_gradients(Cut *c) {
    for (int i = 0; i < c->s->n_gradients; i++) {
        int var = c->s->gradients[i], home = c->s->var[var].home;
        if (c->s->adds[var] || c->is_written[var] || (home && !is_here(c, home - 1))) continue;
        c->t.scope = c->t.graph->vars->item[var].name;
        mx_trace_assign(&c->t,
                        mx_init(&c->t, (MxInitAttr){.type = c->t.graph->vars->item[var].type}), var,
                        false);
    }
}

/* ---- the pass */

static void begin(Cut *c) {
    const MxStages *s = c->s;
    uint32_t stages = mx_mesh_stages(s->mesh);
    int n_vars = c->whole->vars->n;
    c->n_stages = (int)lower_parts(s->mesh, stages);
    c->stage = (int)lower_index(s->mesh, s->rank, stages);
    c->n_places = c->n_stages * s->n_repeats;
    MX_ASSERT(c->n_places * s->n_each == s->n_layers);
    c->table = pipeline_table(&c->arena, (PipelineSizes){c->n_stages, s->n_repeats, s->n_micros});
    c->place = mx_new_n(&c->arena, int, c->whole->n_nodes + 1);
    c->varies = mx_new_n(&c->arena, bool, c->whole->n_nodes + 1);
    c->is_told = mx_new_n(&c->arena, bool, n_vars + 1);
    c->is_written = mx_new_n(&c->arena, bool, n_vars + 1);
    c->crossing = mx_new_n(&c->arena, int, c->whole->n_values + 1);
    c->made = mx_new_n(&c->arena, MxValue *, s->n_micros);
    for (int m = 0; m < s->n_micros; m++) {
        c->made[m] = mx_new_n(&c->arena, MxValue, c->whole->n_values + 1);
        for (int v = 0; v < c->whole->n_values; v++) c->made[m][v] = MX_NONE;
    }
}

void mx_cut_stages(const MxStages *stages, MxGraph *whole, MxGraph **out) {
    Cut c = {.s = stages, .arena = {.name = "stages"}, .whole = whole};
    MxError err = {0};
    mx_pass_schedule(whole); /* what is dead goes nowhere */
    *out = mx_graph_new(whole->arena, whole->name, whole->vars);
    (*out)->watch = whole->watch;
    mx_trace_begin(&c.t, *out);
    begin(&c);
    stages_find_places(&c);
    stages_find_crossings(&c);
    emit_sums(&c);
    emit_units(&c);
    emit_rest(&c);
    c.t.region = 0;
    c.t.backward = false;
    for (int var = 0; var < whole->vars->n; var++)
        if (c.is_told[var]) tell(&c, var);
    forget_gradients(&c);
    bool ok = mx_trace_end(&c.t, &err);
    MX_ASSERT(ok);
    mx_pass_schedule(*out);
    mx_graph_verify(*out);
    mx_graph_seen(*out, "stages");
    mx_arena_release(&c.arena);
}

double mx_stages_bubble(int n_stages, int n_repeats, int n_micros) {
    MxArena arena = {.name = "bubble"};
    PipelineTable table = pipeline_table(&arena, (PipelineSizes){n_stages, n_repeats, n_micros});
    double bubble = pipeline_bubble(&table);
    mx_arena_release(&arena);
    return bubble;
}

double mx_stages_s(const MxStageTimes *times) {
    MxArena arena = {.name = "seconds of stages"};
    PipelineSizes sizes = {times->n_stages, times->n_repeats, times->n_micros};
    PipelineTable table = pipeline_table(&arena, sizes);
    double seconds = pipeline_s(&arena, &table, times);
    mx_arena_release(&arena);
    return seconds;
}
