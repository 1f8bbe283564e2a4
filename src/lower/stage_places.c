/* stage_places.c — which virtual stage each node of a graph belongs to, which nodes every
 * micro-batch has by itself, and which values go from stage to stage. */
#include "stages.h"

/* ---- where nodes belong */

static bool is_layer(const Cut *c, const MxNode *node) {
    return node->region > 0 && node->region <= c->s->n_layers;
}

bool stages_is_spread(const Cut *c, const MxNode *node) {
    bool any = false;
    for (int i = 0; i < node->n_in; i++) any = any || stages_place(c, node->in[i]) != ANYWHERE;
    return any && node->op->flags & MX_OP_ADDS_INPUTS;
}

static int find_place(const Cut *c, const MxNode *node) {
    int place = ANYWHERE;
    if (node->op->flags & MX_OP_SOURCE) return c->s->var[stages_var(node)].home - 1;
    if (is_layer(c, node)) return (node->region - 1) / c->s->n_each;
    if (stages_is_spread(c, node)) return ANYWHERE;
    for (int i = 0; i < node->n_in; i++) {
        int from = stages_place(c, node->in[i]);
        bool is_later = node->backward ? from < place : from > place;
        if (from != ANYWHERE && (place == ANYWHERE || is_later)) place = from;
    }
    for (int i = 0; i < node->n_out && place == ANYWHERE; i++) {
        int var = c->whole->values[node->out[i]].var;
        if (var != MX_NONE) place = c->s->var[var].home - 1;
    }
    return place;
}

static bool find_varies(const Cut *c, const MxNode *node) {
    const MxStages *s = c->s;
    bool any = is_layer(c, node) && !s->gathers_once;
    if (s->n_micros == 1) return false;
    if (node->op->flags & MX_OP_SOURCE)
        return s->own[s->n_micros - 1][stages_var(node)] != stages_var(node);
    for (int i = 0; i < node->n_in; i++) any = any || c->varies[c->whole->values[node->in[i]].node];
    return any;
}

/* Whether what a node makes goes to a variable that others must be told of. */
static bool tells(const Cut *c, int n, int var) {
    const MxSharding *to = &c->s->var[var];
    bool is_summed_later = to->partial & mx_mesh_stages(c->s->mesh);
    if (to->home || is_summed_later) return false;
    return c->place[n] != ANYWHERE || c->varies[n];
}

void stages_find_places(Cut *c) {
    for (int n = 0; n < c->whole->n_nodes; n++) {
        const MxNode *node = &c->whole->nodes[n];
        c->place[n] = find_place(c, node);
        c->varies[n] = find_varies(c, node);
        if (node->region >= c->n_regions) c->n_regions = node->region + 1;
        for (int i = 0; i < node->n_out; i++) {
            int var = c->whole->values[node->out[i]].var;
            if (var == MX_NONE) continue;
            if (tells(c, n, var)) c->is_told[var] = true;
            MX_ASSERT(!c->s->var[var].home || c->s->var[var].home - 1 == c->place[n]);
        }
    }
}

/* ---- what goes from stage to stage */

static Crossing *find_crossing(const Cut *c, MxValue value, int to) {
    int i = c->crossing[value];
    while (i >= 0 && c->crossings[i].to != to) i = c->crossings[i].next;
    return i < 0 ? NULL : &c->crossings[i];
}

const Crossing *stages_crossing(const Cut *c, MxValue value, int to) {
    return find_crossing(c, value, to);
}

static Crossing *add_crossing(Cut *c, MxValue value, int to) {
    if (c->n_crossings == c->cap_crossings) {
        c->cap_crossings = c->cap_crossings ? 2 * c->cap_crossings : 64;
        c->crossings = mx_arena_grow(&c->arena, c->crossings, (size_t)c->n_crossings,
                                     (size_t)c->cap_crossings, sizeof *c->crossings);
    }
    MX_ASSERT(!(stages_maker(c, value)->op->flags & MX_OP_SOURCE)); /* weights stay at home */
    c->crossings[c->n_crossings] = (Crossing){.value = value,
                                              .to = to,
                                              .takes = mx_new_n(&c->arena, bool, 2 * c->n_places),
                                              .next = c->crossing[value]};
    c->crossing[value] = c->n_crossings;
    return &c->crossings[c->n_crossings++];
}

void stages_find_crossings(Cut *c) {
    for (int v = 0; v < c->whole->n_values; v++) c->crossing[v] = -1;
    for (int n = 0; n < c->whole->n_nodes; n++) {
        const MxNode *node = &c->whole->nodes[n];
        for (int i = 0; i < node->n_in && c->place[n] != ANYWHERE; i++) {
            int from = stages_place(c, node->in[i]), to = c->place[n] % c->n_stages;
            if (from == ANYWHERE || from % c->n_stages == to) continue;
            Crossing *crossing = find_crossing(c, node->in[i], to);
            if (!crossing) crossing = add_crossing(c, node->in[i], to);
            crossing->takes[node->backward * c->n_places + c->place[n]] = true;
        }
    }
}

int64_t stages_taken(const Cut *c, const Crossing *crossing, int micro) {
    int64_t first = INT64_MAX;
    for (int backward = 0; backward < 2; backward++)
        for (int place = crossing->to; place < c->n_places; place += c->n_stages) {
            if (!crossing->takes[backward * c->n_places + place]) continue;
            int at = pipeline_unit(&c->table, place, micro, backward);
            int64_t start = c->table.unit[crossing->to][at].start;
            if (start < first) first = start;
        }
    return first;
}
