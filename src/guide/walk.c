/* walk.c — the states of a grammar that a text may be in, as a deterministic automaton whose nodes
 * are made when a text reaches them. Rules within rules are frames, of which equal ones are one. A
 * place whose state could not be finished within the depth that is left is not entered, so that
 * every text can be finished. */
#include "walk.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
    const uint64_t odd = 0x9e3779b97f4a7c15;
    hash = (hash ^ value) * odd;
    return hash ^ hash >> 32;
}

static uint64_t hash_places(const Place *place, int32_t n) {
    uint64_t hash = (uint64_t)n;
    for (int32_t i = 0; i < n; i++)
        hash = mix(hash, (uint64_t)(uint32_t)place[i].state << 32 | (uint32_t)place[i].frame);
    return hash;
}

static uint64_t hash_frame(const Frame *f) {
    return mix((uint64_t)(uint32_t)f->to, (uint32_t)f->below);
}

/* ---- tables */

/* Room for one more; the hash of an item gives its new slot. */
static void make_room(Walk *w, Table *table, uint64_t (*hash_of)(const Walk *w, int32_t item)) {
    if (2 * table->n < table->cap) return;
    Table old = *table;
    table->cap = old.cap ? 4 * old.cap : 256;
    table->slot = mx_new_n(&w->arena, int32_t, table->cap);
    for (int64_t i = 0; i < old.cap; i++) {
        if (!old.slot[i]) continue;
        uint64_t at = hash_of(w, old.slot[i]);
        while (table->slot[at & (uint64_t)(table->cap - 1)]) at++;
        table->slot[at & (uint64_t)(table->cap - 1)] = old.slot[i];
    }
}

static uint64_t node_hash(const Walk *w, int32_t item) {
    return hash_places(w->node[item].place, w->node[item].n);
}

static uint64_t frame_hash(const Walk *w, int32_t item) {
    return hash_frame(&w->frame[item]);
}

static int32_t *slot_of(const Table *table, uint64_t at) {
    return &table->slot[at & (uint64_t)(table->cap - 1)];
}

/* The frame that returns to a state and then to another frame. */
static int32_t find_frame(Walk *w, int32_t to, int32_t below) {
    const Frame frame = {to, below, w->frame[below].depth + 1};
    make_room(w, &w->frames, frame_hash);
    uint64_t at = hash_frame(&frame);
    for (; *slot_of(&w->frames, at); at++) {
        const Frame *one = &w->frame[*slot_of(&w->frames, at)];
        if (one->to == to && one->below == below) return *slot_of(&w->frames, at);
    }
    if (w->n_frames == w->cap_frames) {
        int32_t cap = 2 * w->cap_frames;
        w->frame =
            mx_arena_grow(&w->arena, w->frame, (size_t)w->n_frames, (size_t)cap, sizeof *w->frame);
        w->cap_frames = cap;
    }
    w->frame[w->n_frames] = frame;
    w->frames.n++;
    return *slot_of(&w->frames, at) = w->n_frames++;
}

/* ---- places */

/* One more place, unless it is there or cannot be finished. */
static void enter(Walk *w, int32_t state, int32_t frame) {
    const MxGrammar *g = w->grammar;
    if (w->frame[frame].depth + g->height[state] > GUIDE_DEEPEST) return;
    if (w->n_work == WALK_MOST_PLACES) return;
    const Place place = {state, frame};
    uint64_t at = hash_places(&place, 1);
    for (; *slot_of(&w->seen, at); at++) {
        const Place *one = &w->work[*slot_of(&w->seen, at) - 1];
        if (one->state == state && one->frame == frame) return;
    }
    w->work[w->n_work++] = place;
    *slot_of(&w->seen, at) = w->n_work;
}

/* The places that a place leads to without bytes. A rule at whose end nothing is left to do but to
 * return returns to where that would. */
static void enter_behind(Walk *w, Place place) {
    const MxGrammar *g = w->grammar;
    for (int32_t i = g->first[place.state]; i; i = g->edge[i].next) {
        const Edge *e = &g->edge[i];
        if (e->kind == EDGE_NOTHING) enter(w, e->to, place.frame);
        if (e->kind == EDGE_RETURN && place.frame)
            enter(w, w->frame[place.frame].to, w->frame[place.frame].below);
        if (e->kind != EDGE_CALL) continue;
        bool is_last = guide_returns(g, e->to);
        int32_t depth = w->frame[place.frame].depth;
        if (is_last)
            enter(w, e->rule, place.frame);
        else if (depth < GUIDE_DEEPEST && depth + g->height[e->to] <= GUIDE_DEEPEST &&
                 depth + 1 + g->height[e->rule] <= GUIDE_DEEPEST)
            enter(w, e->rule, find_frame(w, e->to, place.frame));
    }
}

static bool precedes(Place a, Place b) {
    return a.state < b.state || (a.state == b.state && a.frame < b.frame);
}

static void sort(Place *place, int32_t n) {
    for (int32_t gap = n / 2; gap; gap /= 2)
        for (int32_t i = gap; i < n; i++) {
            Place own = place[i];
            int32_t k = i;
            for (; k >= gap && precedes(own, place[k - gap]); k -= gap) place[k] = place[k - gap];
            place[k] = own;
        }
}

static bool takes_bytes(const MxGrammar *g, int32_t state) {
    for (int32_t i = g->first[state]; i; i = g->edge[i].next)
        if (g->edge[i].kind == EDGE_BYTES) return true;
    return state == MX_GRAMMAR_END;
}

static int32_t add_node(Walk *w, const Place *place, int32_t n) {
    const MxGrammar *g = w->grammar;
    if (w->n_nodes == w->cap_nodes) {
        int32_t cap = 2 * w->cap_nodes;
        w->node =
            mx_arena_grow(&w->arena, w->node, (size_t)w->n_nodes, (size_t)cap, sizeof *w->node);
        w->cap_nodes = cap;
    }
    Node *node = &w->node[w->n_nodes];
    *node = (Node){.place = mx_new_n(&w->arena, Place, n), .n = n};
    memcpy(node->place, place, (size_t)n * sizeof *place);
    for (int32_t i = 0; i < n; i++) {
        int32_t plain = g->plain[place[i].state];
        node->plain = plain > node->plain ? plain : node->plain;
        node->may_end |= place[i].state == MX_GRAMMAR_END;
    }
    node->must_end = node->may_end && n == 1;
    return w->n_nodes++;
}

/* The node of the places in work and of all behind them. */
static int32_t close(Walk *w) {
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_work; i++) enter_behind(w, w->work[i]);
    for (int32_t i = 0; i < w->n_work; i++)
        if (takes_bytes(w->grammar, w->work[i].state)) w->work[n++] = w->work[i];
    w->n_steps += (uint64_t)w->n_work;
    if (!n) return WALK_REFUSED;
    sort(w->work, n);
    make_room(w, &w->nodes, node_hash);
    uint64_t at = hash_places(w->work, n);
    for (; *slot_of(&w->nodes, at); at++) {
        const Node *one = &w->node[*slot_of(&w->nodes, at)];
        if (one->n == n && !memcmp(one->place, w->work, (size_t)n * sizeof *w->work))
            return *slot_of(&w->nodes, at);
    }
    w->nodes.n++;
    return *slot_of(&w->nodes, at) = add_node(w, w->work, n);
}

static void clear(Walk *w) {
    if (w->n_work) memset(w->seen.slot, 0, (size_t)w->seen.cap * sizeof *w->seen.slot);
    w->n_work = 0;
}

void walk_begin(Walk *w, const MxGrammar *grammar) {
    enum { FEW = 64 };
    mx_arena_release(&w->arena);
    *w = (Walk){.arena = {.name = "guide"}, .grammar = grammar, .n_nodes = 1, .n_frames = 1};
    w->cap_nodes = w->cap_frames = FEW;
    w->node = mx_new_n(&w->arena, Node, FEW);
    w->frame = mx_new_n(&w->arena, Frame, FEW);
    w->work = mx_new_n(&w->arena, Place, WALK_MOST_PLACES);
    w->seen.cap = 4 * WALK_MOST_PLACES;
    w->seen.slot = mx_new_n(&w->arena, int32_t, w->seen.cap);
    enter(w, MX_GRAMMAR_START, 0);
    int32_t start = close(w);
    MX_ASSERT(start == WALK_START);
}

int32_t walk_once(Walk *w, int32_t from, uint8_t byte) {
    const MxGrammar *g = w->grammar;
    clear(w);
    for (int32_t i = 0; i < w->node[from].n; i++) {
        const Place place = w->node[from].place[i];
        for (int32_t k = g->first[place.state]; k; k = g->edge[k].next) {
            const Edge *e = &g->edge[k];
            if (e->kind == EDGE_BYTES && e->low <= byte && byte <= e->high)
                enter(w, e->to, place.frame);
        }
    }
    w->n_steps += (uint64_t)w->node[from].n;
    return close(w);
}

int32_t walk_next(Walk *w, int32_t from, uint8_t byte) {
    enum { BYTES = 256 };
    if (!w->node[from].next) w->node[from].next = mx_new_n(&w->arena, int32_t, BYTES);
    int32_t *next = &w->node[from].next[byte]; /* stays where nodes move */
    if (!*next) *next = walk_once(w, from, byte);
    return *next;
}
