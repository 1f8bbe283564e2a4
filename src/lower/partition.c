/* partition.c — from a graph over global shapes to one rank's graph. Nodes are visited in order;
 * each is divided as choose.c finds cheapest, its inputs are brought to the parts that it then
 * needs, and its outputs to the sharding that their constraint or variable asks for. What was moved
 * is kept as a further form of the value, so a second user that needs the same finds it.
 *
 * Forms made for one layer's forward pass are not used by the backward pass (partition->regathers):
 * a gathered weight lives no longer than its layer. What is made outside layers is kept for all,
 * and so is an activation that was moved without growing, such as queries cut by heads. */
#include <mx/lower.h>

#include "partition.h"

enum { OUTSIDE = 0, BACKWARD = -1 }; /* where a form was made; layers count from 1 */

/* A value as a rank has it. */
typedef struct Form {
    MxValue value; /* in the rank's graph */
    MxSharding at;
    int place;
    bool is_own;   /* as its node made it: for all to use */
    bool is_moved; /* an activation, no larger than its own form: for all too */
    int next;
} Form;

typedef enum Wish { WISH_NONE, WISH_HINT, WISH_FIRM } Wish;

typedef struct Wanted {
    Wish wish;
    MxSharding at;
} Wanted;

typedef struct Partitioner {
    const MxPartition *p;
    MxArena arena;
    const MxGraph *global;
    MxTrace t;  /* of the rank's graph */
    int *first; /* [global value] its newest form, -1 = none */
    Form *forms;
    int n_forms, cap_forms;
    Wanted *wanted; /* [global value] */
} Partitioner;

static MxType type_of(const Partitioner *p, MxValue value) {
    return p->global->values[value].type;
}

/* ---- what is wanted of values */

static bool is_constrained(const MxValueInfo *info) {
    for (int d = 0; d < info->type.shape.rank; d++)
        if (info->axes[d]) return true;
    return false;
}

/* As the rules say of its axes, without the mesh axes that do not divide their dim. */
static bool read_constraint(Partitioner *p, const MxValueInfo *info, Wanted *w, MxError *err) {
    const MxMesh *mesh = p->p->mesh;
    MxShardArray array = {.shape = info->type.shape};
    MxSpec names = mx_spec_names(&p->arena, info->axes, info->type.shape.rank);
    if (!mx_shard_resolve(&p->arena, p->p->rules, names, NULL, &array.spec, err))
        return mx_context(err, "%s", p->global->nodes[info->node].scope);
    MxSpec fits = mx_shard_adjust(&p->arena, mesh, &array);
    *w = (Wanted){WISH_FIRM, mx_sharding_of_spec(mesh, fits)};
    for (int d = 0; d < MX_MAX_RANK; d++) w->at.dim[d] &= ~p->p->apart;
    return true;
}

static bool read_wishes(Partitioner *p, MxError *err) {
    for (int v = 0; v < p->global->n_values; v++) {
        const MxValueInfo *info = &p->global->values[v];
        Wanted *w = &p->wanted[v];
        if (info->node == MX_NONE) continue;
        int var = info->like != MX_NONE ? info->like : info->var;
        if (var != MX_NONE) {
            *w = (Wanted){WISH_FIRM, p->p->var[var]};
        } else if (is_constrained(info) && !read_constraint(p, info, w, err)) {
            return false;
        }
    }
    return true;
}

static void find_factors(const Partitioner *p, const MxNode *node, int n_in, MxType *types,
                         MxFactors *f) {
    *f = (MxFactors){.in = types,
                     .out = types + n_in,
                     .n_in = n_in,
                     .n_out = node->n_out,
                     .attr = node->attr,
                     .joined = MX_WHOLE,
                     .swapped = MX_WHOLE,
                     .ring = MX_WHOLE};
    MX_ASSERT(n_in <= MX_MAX_CUT_IN);
    for (int i = 0; i < n_in; i++) types[i] = type_of(p, node->in[i]);
    for (int i = 0; i < node->n_out; i++) types[n_in + i] = type_of(p, node->out[i]);
    for (int d = 0; d < MX_MAX_RANK; d++) {
        for (int i = 0; i < MX_MAX_CUT_IN; i++) f->in_dim[i][d] = MX_WHOLE;
        for (int i = 0; i < MX_MAX_OUT; i++) f->out_dim[i][d] = MX_WHOLE;
    }
    if (node->op->partition) node->op->partition(f);
}

enum { MOST_TYPES = MX_MAX_CUT_IN + MX_MAX_OUT };

/* Whether an input's dims are output 0's, so that what is wanted of the one suits the other. */
static bool is_alike(const MxFactors *f, int i) {
    if (!mx_shape_equal(f->in[i].shape, f->out[0].shape)) return false;
    for (int d = 0; d < f->out[0].shape.rank; d++)
        if (f->in_dim[i][d] != f->out_dim[0][d]) return false;
    return true;
}

/* A constraint reaches back over elementwise ops: what makes their inputs hears of it. */
static void pass_wishes_back(Partitioner *p) {
    for (int n = p->global->n_nodes - 1; n >= 0; n--) {
        const MxNode *node = &p->global->nodes[n];
        MxType types[MOST_TYPES];
        MxFactors f;
        if (!node->n_out || !node->op->partition || node->op->arity < 1) continue;
        const Wanted *w = &p->wanted[node->out[0]];
        if (w->wish == WISH_NONE || p->global->values[node->out[0]].var != MX_NONE) continue;
        find_factors(p, node, node->n_in, types, &f);
        for (int i = 0; i < node->n_in; i++)
            if (p->wanted[node->in[i]].wish == WISH_NONE && is_alike(&f, i))
                p->wanted[node->in[i]] = (Wanted){WISH_HINT, w->at};
    }
}

/* ---- forms of values */

static void add_form(Partitioner *p, MxValue global, Form form) {
    if (p->n_forms == p->cap_forms) {
        p->cap_forms = p->cap_forms ? 2 * p->cap_forms : 1024;
        p->forms = mx_arena_grow(&p->arena, p->forms, (size_t)p->n_forms, (size_t)p->cap_forms,
                                 sizeof *p->forms);
    }
    form.next = p->first[global];
    p->forms[p->n_forms] = form;
    p->first[global] = p->n_forms++;
}

static int place_of(const Partitioner *p, const MxNode *user) {
    return !user->backward || !p->p->regathers ? user->region : BACKWARD;
}

static bool can_use(const Partitioner *p, const Form *form, const MxNode *user) {
    if (form->is_own || form->is_moved || form->place == OUTSIDE ||
        form->place == place_of(p, user))
        return true;
    return user->backward && !p->p->regathers;
}

static const Form *own_form(const Partitioner *p, MxValue global) {
    int i = p->first[global];
    while (i >= 0 && !p->forms[i].is_own) i = p->forms[i].next;
    MX_ASSERT(i >= 0);
    return &p->forms[i];
}

static bool is_weight(const Partitioner *p, MxValue global) {
    const MxNode *maker = mx_graph_producer(p->global, global);
    while (maker->op->flags & (MX_OP_CAST | MX_OP_VIEW))
        maker = mx_graph_producer(p->global, maker->in[0]);
    return maker->op->flags & MX_OP_SOURCE;
}

static bool is_moved(const Partitioner *p, MxValue global, MxSharding at, MxSharding own) {
    const MxMesh *mesh = p->p->mesh;
    int rank = type_of(p, global).shape.rank;
    return !is_weight(p, global) &&
           lower_parts(mesh, lower_used(at, rank)) >= lower_parts(mesh, lower_used(own, rank));
}

static MxValue move_value(Partitioner *p, MxValue value, int rank, MxSharding from, MxSharding to) {
    return lower_move(&(const Wired){.t = &p->t, .p = p->p}, value, rank, from, to);
}

/* The value as `to`, made from the form that is nearest. */
static MxValue brought_to(Partitioner *p, MxValue global, MxSharding to, const MxNode *user) {
    MxType type = type_of(p, global);
    const Form *nearest = NULL;
    double least = 0;
    for (int i = p->first[global]; i >= 0; i = p->forms[i].next) {
        const Form *form = &p->forms[i];
        if (!can_use(p, form, user) || to.partial & ~form->at.partial) continue;
        if (lower_same_sharding(form->at, to, type.shape.rank)) return form->value;
        double cost = lower_move_cost(p->p->machine, p->p->mesh, type, form->at, to);
        if (nearest && cost >= least) continue;
        nearest = form;
        least = cost;
    }
    MX_ASSERT(nearest);
    MxValue value = move_value(p, nearest->value, type.shape.rank, nearest->at, to);
    add_form(p, global,
             (Form){.value = value,
                    .at = to,
                    .place = place_of(p, user),
                    .is_moved = is_moved(p, global, to, own_form(p, global)->at)});
    return value;
}

/* ---- outputs */

static bool is_added(const MxNode *node, int out) {
    return node->accumulate >> out & 1;
}

/* What every rank along these mesh axes has, as a sum over them: the first one holds it, the others
 * zeros. */
static MxValue as_sum(Partitioner *p, MxValue value, uint32_t axes) {
    MxScaleAttr once = {.factor = lower_index(p->p->mesh, p->p->rank, axes) == 0};
    return mx_trace_node(&p->t, &op_scale, &value, 1, &once);
}

/* The mesh axis along which ranks have terms of a sum, by what the trace says. */
static uint32_t terms_of(const Partitioner *p, MxValue global) {
    int axis = mx_mesh_find(p->p->mesh, p->global->values[global].terms);
    return axis >= 0 && p->p->mesh->sizes[axis] > 1 ? 1u << axis : 0;
}

/* Output i of a node as it was made: brought to where it is wanted, and into its variable. */
static void settle(Partitioner *p, const MxNode *node, int i, MxValue value, MxSharding made) {
    MxValue global = node->out[i];
    const Wanted *w = &p->wanted[global];
    MxSharding at = w->wish == WISH_FIRM ? w->at : made, moved = at;
    const MxValueInfo *info = &p->global->values[global];
    const Wired wired = {.t = &p->t, .p = p->p, .wire = info->wire, .lost = info->lost};
    int var = info->var;
    made.partial |= terms_of(p, global);
    moved.partial &= made.partial;
    value = lower_move(&wired, value, info->type.shape.rank, made, moved);
    uint32_t once = at.partial & ~moved.partial & ~mx_mesh_stages(p->p->mesh);
    if (once) value = as_sum(p, value, once); /* stages add what they make themselves */
    if (var != MX_NONE) {
        const MxNode *maker = &p->t.graph->nodes[p->t.graph->values[value].node];
        int out = 0;
        while (maker->out[out] != value) out++;
        if (is_added(node, i) && !(maker->op->accumulates >> out & 1))
            value = mx_copy(&p->t, value);
        mx_trace_assign(&p->t, value, var, is_added(node, i));
    }
    add_form(p, global, (Form){.value = value, .at = at, .is_own = true});
}

/* ---- nodes */

/* Where inputs are to be had and outputs are wanted. */
static void describe(Partitioner *p, const MxNode *node, Choice *c) {
    for (int i = 0; i < node->n_in; i++) {
        MxValue in = node->in[i];
        int n = 1;
        for (int k = p->first[in]; k >= 0; k = p->forms[k].next) n++;
        MxSharding *at = mx_new_n(&p->arena, MxSharding, n);
        at[0] = own_form(p, in)->at;
        n = 1;
        for (int k = p->first[in]; k >= 0; k = p->forms[k].next)
            if (!p->forms[k].is_own && can_use(p, &p->forms[k], node)) at[n++] = p->forms[k].at;
        c->in[i] = (Candidate){.type = type_of(p, in), .is_set = true, .at = at, .n_at = n};
    }
    for (int i = 0; i < node->n_out; i++) {
        const Wanted *w = &p->wanted[node->out[i]];
        c->out[i] = (Candidate){.type = type_of(p, node->out[i]),
                                .is_set = w->wish != WISH_NONE,
                                .at = &w->at,
                                .n_at = 1};
    }
}

/* Whether a node only copies a value to where it is not: moving it there is all that it takes. */
static bool is_move(const Partitioner *p, const MxNode *node) {
    if (!(node->op->flags & MX_OP_COPY) || p->wanted[node->out[0]].wish != WISH_FIRM) return false;
    return !lower_same_sharding(own_form(p, node->in[0])->at, p->wanted[node->out[0]].at,
                                type_of(p, node->in[0]).shape.rank);
}

static void divide(Partitioner *p, const MxNode *node) {
    MxType types[MOST_TYPES];
    Choice c = {.machine = p->p->machine,
                .apart = p->p->apart,
                .balances = p->p->balances,
                .rings = p->p->rings};
    if (is_move(p, node)) {
        const Form *own = own_form(p, node->in[0]);
        settle(p, node, 0, own->value, own->at);
        return;
    }
    find_factors(p, node, node->n_in, types, &c.factors);
    describe(p, node, &c);
    if (node->op->flops) c.flops = node->op->flops(types, types + node->n_in, node->attr);
    lower_choose(p->p->mesh, &c);
    MxValue in[MX_MAX_CUT_IN];
    for (int i = 0; i < node->n_in; i++)
        in[i] = brought_to(p, node->in[i], lower_in_sharding(&c, i), node);
    const void *attr = lower_localized(p->t.graph->arena, p->p->mesh, p->p->rank, node, &c);
    MxValue out[MX_MAX_OUT];
    if (c.is_ring) {
        MxGroup ring =
            mx_lower_group(p->t.graph->arena, p->p->mesh, p->p->rank, c.cut[c.factors.ring]);
        node->op->ring(&p->t, &ring, in, node->n_in, attr, out);
    } else {
        MxValue first = mx_trace_node(&p->t, node->op, in, node->n_in, attr);
        for (int i = 0; i < node->n_out; i++) out[i] = first + i;
    }
    for (int i = 0; i < node->n_out; i++) settle(p, node, i, out[i], lower_out_sharding(&c, i));
}

/* Which of an input's dims may stay cut in an op that adds up its inputs one by one. */
static MxSharding summed_sharding(const Partitioner *p, const MxNode *node, MxValue in) {
    MxNode one = *node;
    MxType types[MOST_TYPES];
    MxFactors f;
    one.in = &in;
    find_factors(p, &one, 1, types, &f);
    MxSharding s = own_form(p, in)->at;
    for (int d = 0; d < types[0].shape.rank; d++)
        if (f.in_dim[0][d] == MX_WHOLE) {
            s.dim[d] = 0;
            s.swapped &= ~(1u << d);
        }
    s.partial = 0;
    return s;
}

/* A sum over inputs that are cut differently: each kind by itself, summed over the ranks that have
 * different parts and over no others. */
static void divide_sum(Partitioner *p, const MxNode *node) {
    MX_ASSERT(node->n_out == 1);
    MxValue *in = mx_new_n(&p->arena, MxValue, node->n_in + 1), total = MX_NONE;
    uint32_t *cut = mx_new_n(&p->arena, uint32_t, node->n_in + 1);
    bool *is_done = mx_new_n(&p->arena, bool, node->n_in + 1);
    for (int i = 0; i < node->n_in; i++) {
        MxSharding s = summed_sharding(p, node, node->in[i]);
        cut[i] = lower_used(s, type_of(p, node->in[i]).shape.rank);
        in[i] = brought_to(p, node->in[i], s, node);
    }
    for (int i = 0; i < node->n_in || total == MX_NONE; i++) {
        if (is_done[i]) continue;
        MxValue *group = mx_new_n(&p->arena, MxValue, node->n_in + 1);
        int n = 0;
        for (int j = i; j < node->n_in; j++)
            if (!is_done[j] && cut[j] == cut[i]) {
                group[n++] = in[j];
                is_done[j] = true;
            }
        MxValue sum = mx_trace_node(&p->t, node->op, group, n, node->attr);
        sum = move_value(p, sum, 0, (MxSharding){.partial = cut[i]}, (MxSharding){0});
        total = total == MX_NONE ? sum : mx_add(&p->t, total, sum);
    }
    settle(p, node, 0, total, (MxSharding){0});
}

static void read_variable(Partitioner *p, const MxNode *node) {
    int var = ((const MxVariableAttr *)node->attr)->var;
    add_form(p, node->out[0],
             (Form){.value = mx_variable(&p->t, var), .at = p->p->var[var], .is_own = true});
}

static void divide_all(Partitioner *p) {
    for (int n = 0; n < p->global->n_nodes && !p->t.failure.len; n++) {
        const MxNode *node = &p->global->nodes[n];
        p->t.scope = node->scope;
        p->t.region = node->region;
        p->t.backward = node->backward;
        if (node->op->flags & MX_OP_SOURCE)
            read_variable(p, node);
        else if (node->op->flags & MX_OP_ADDS_INPUTS)
            divide_sum(p, node);
        else
            divide(p, node);
    }
}

bool mx_partition(const MxPartition *partition, MxGraph *global, MxGraph **out, MxError *err) {
    mx_pass_fuse_losses(global); /* while both ends of a loss still have the same inputs */
    mx_pass_schedule(global);
    Partitioner p = {.p = partition, .arena = {.name = "partition"}, .global = global};
    p.wanted = mx_new_n(&p.arena, Wanted, global->n_values + 1);
    p.first = mx_new_n(&p.arena, int, global->n_values + 1);
    for (int v = 0; v < global->n_values; v++) p.first[v] = -1;
    *out = mx_graph_new(global->arena, global->name, partition->vars);
    (*out)->watch = global->watch;
    mx_trace_begin(&p.t, *out);
    bool ok = read_wishes(&p, err);
    if (ok) {
        pass_wishes_back(&p);
        divide_all(&p);
        ok = mx_trace_end(&p.t, err);
    }
    if (ok) mx_graph_verify(*out);
    if (ok) mx_graph_seen(*out, "partition");
    mx_arena_release(&p.arena);
    return ok;
}
