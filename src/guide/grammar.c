/* grammar.c — networks of states: how they are made, and which of their states have an end within
 * the depth that a walk may reach, so that whoever is in one of them can finish. */
#include "internal.h"

MxGrammar *mx_grammar_new(MxArena *arena) {
    MxGrammar *g = mx_new(arena, MxGrammar);
    g->arena = arena;
    g->n_edges = 1;
    mx_map_init(&g->known, arena);
    for (int i = MX_GRAMMAR_START; i <= MX_GRAMMAR_END; i++) mx_grammar_state(g);
    return g;
}

int32_t mx_grammar_state(MxGrammar *g) {
    if (g->n_states == GUIDE_MOST_STATES) g->is_full = true;
    if (g->is_full) return 0;
    if (g->n_states == g->cap_states) {
        int32_t cap = 2 * g->cap_states + 64;
        g->first =
            mx_arena_grow(g->arena, g->first, (size_t)g->n_states, (size_t)cap, sizeof *g->first);
        g->plain =
            mx_arena_grow(g->arena, g->plain, (size_t)g->n_states, (size_t)cap, sizeof *g->plain);
        g->cap_states = cap;
    }
    g->first[g->n_states] = g->plain[g->n_states] = 0;
    return g->n_states++;
}

static void add_edge(MxGrammar *g, Edge edge) {
    enum { EDGES = 6 /* for each state, at most */ };
    if (g->n_edges == EDGES * GUIDE_MOST_STATES) g->is_full = true;
    if (g->is_full) return;
    if (g->n_edges >= g->cap_edges) {
        int32_t cap = 2 * g->cap_edges + 64;
        size_t n = g->edge ? (size_t)g->n_edges : 0;
        g->edge = mx_arena_grow(g->arena, g->edge, n, (size_t)cap, sizeof *g->edge);
        g->cap_edges = cap;
    }
    edge.next = g->first[edge.from];
    g->first[edge.from] = g->n_edges;
    g->edge[g->n_edges++] = edge;
}

void mx_grammar_bytes(MxGrammar *g, int32_t from, uint8_t low, uint8_t high, int32_t to) {
    add_edge(g, (Edge){.kind = EDGE_BYTES, .low = low, .high = high, .from = from, .to = to});
}

void guide_set(MxGrammar *g, int32_t from, const char *bytes, int32_t to) {
    for (; *bytes; bytes++) mx_grammar_bytes(g, from, (uint8_t)*bytes, (uint8_t)*bytes, to);
}

void mx_grammar_nothing(MxGrammar *g, int32_t from, int32_t to) {
    add_edge(g, (Edge){.kind = EDGE_NOTHING, .from = from, .to = to});
}

void guide_call(MxGrammar *g, int32_t from, int32_t rule, int32_t to) {
    add_edge(g, (Edge){.kind = EDGE_CALL, .from = from, .rule = rule, .to = to});
}

int32_t guide_rule(MxGrammar *g, int32_t *end) {
    int32_t start = mx_grammar_state(g);
    *end = mx_grammar_state(g);
    add_edge(g, (Edge){.kind = EDGE_RETURN, .from = *end});
    return start;
}

bool guide_returns(const MxGrammar *g, int32_t state) {
    const Edge *edge = &g->edge[g->first[state]];
    return g->first[state] && edge->kind == EDGE_RETURN && !edge->next;
}

void guide_textn(MxGrammar *g, int32_t from, const char *text, size_t n, int32_t to) {
    if (!n) mx_grammar_nothing(g, from, to);
    for (size_t i = 0; i < n; i++) {
        int32_t next = i + 1 < n ? mx_grammar_state(g) : to;
        mx_grammar_bytes(g, from, (uint8_t)text[i], (uint8_t)text[i], next);
        from = next;
    }
}

void mx_grammar_text(MxGrammar *g, int32_t from, const char *text, int32_t to) {
    guide_textn(g, from, text, strlen(text), to);
}

int32_t mx_grammar_spaces(MxGrammar *g, int32_t from, int most) {
    int32_t to = mx_grammar_state(g);
    mx_grammar_nothing(g, from, to);
    for (int i = 0; i < most; i++) {
        int32_t next = mx_grammar_state(g);
        mx_grammar_bytes(g, from, '\t', '\n', next);
        mx_grammar_bytes(g, from, ' ', ' ', next);
        mx_grammar_nothing(g, next, to);
        from = next;
    }
    return to;
}

/* ---- text without others in it */

/* Which beginning of a text, the longest, stands at the end of what was seen; *whole: some text
 * stands there. */
typedef struct Begun {
    int which;
    size_t n; /* bytes of it */
    bool is_whole;
} Begun;

static Begun find_begun(const char *const *texts, int n, const char *seen, size_t n_seen) {
    Begun out = {0};
    for (int i = 0; i < n; i++)
        for (size_t k = strlen(texts[i]); k; k--) {
            if (k > n_seen || memcmp(texts[i], seen + n_seen - k, k)) continue;
            out.is_whole |= !texts[i][k];
            if (k > out.n) out.which = i, out.n = k;
        }
    return out;
}

/* Where a byte leads that comes behind `seen`; 0 = it may not come. */
static int32_t leads_to(const char *const *texts, int n, const int32_t *first, char *seen,
                        size_t n_seen, int byte) {
    seen[n_seen] = (char)byte;
    bool in_mark = n_seen && (uint8_t)seen[n_seen - 1] == GUIDE_MARK;
    const Begun begun = find_begun(texts, n, seen, n_seen + 1);
    bool is_strange = (in_mark || byte == GUIDE_MARK) && !begun.n;
    return begun.is_whole || is_strange ? 0 : first[begun.which] + (int32_t)begun.n;
}

static void add_bytes_behind(MxGrammar *g, const char *const *texts, int n, const int32_t *first,
                             int which, size_t n_seen) {
    char *seen = mx_arena_strndup(g->arena, texts[which], n_seen + 1);
    int32_t from = first[which] + (int32_t)n_seen;
    for (int low = 0, high; low <= GUIDE_MARK; low = high) {
        int32_t to = leads_to(texts, n, first, seen, n_seen, low);
        for (high = low + 1; high <= GUIDE_MARK; high++)
            if (leads_to(texts, n, first, seen, n_seen, high) != to) break;
        if (to) mx_grammar_bytes(g, from, (uint8_t)low, (uint8_t)(high - 1), to);
    }
}

/* A state for each beginning of a text, as the search of Aho and Corasick has them. */
void mx_grammar_other(MxGrammar *g, int32_t from, const char *const *texts, int n, int32_t to) {
    int32_t *first = mx_new_n(g->arena, int32_t, n + 1);
    MX_ASSERT(n > 0);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < strlen(texts[i]); k++) {
            int32_t state = mx_grammar_state(g);
            if (!k) first[i] = state;
            mx_grammar_nothing(g, state, to);
        }
    mx_grammar_nothing(g, from, first[0]);
    for (int i = 0; i < n && !g->is_full; i++)
        for (size_t k = 0; k < strlen(texts[i]); k++) add_bytes_behind(g, texts, n, first, i, k);
}

/* ---- which states have an end */

/* Edges by a state that they lead to or whose rule they call. */
typedef struct Backwards {
    int32_t *start; /* [n_states + 1] */
    int32_t *edge;
} Backwards;

static Backwards turn(MxArena *arena, const MxGrammar *g) {
    Backwards b = {.start = mx_new_n(arena, int32_t, g->n_states + 2)};
    int32_t *at = b.start + 1;
    for (int32_t i = 1; i < g->n_edges; i++) {
        const Edge *e = &g->edge[i];
        if (e->kind != EDGE_RETURN) at[e->to + 1]++;
        if (e->kind == EDGE_CALL) at[e->rule + 1]++;
    }
    for (int32_t s = 0; s < g->n_states; s++) at[s + 1] += at[s];
    b.edge = mx_new_n(arena, int32_t, at[g->n_states] + 1);
    for (int32_t i = 1; i < g->n_edges; i++) {
        const Edge *e = &g->edge[i];
        if (e->kind != EDGE_RETURN) b.edge[at[e->to]++] = i;
        if (e->kind == EDGE_CALL) b.edge[at[e->rule]++] = i;
    }
    return b; /* at[s] has become the start of s + 1, which start[s + 1] is */
}

/* How deep an edge goes on, as far as that is known. */
static int32_t height_by(const MxGrammar *g, const Edge *e) {
    if (e->kind == EDGE_RETURN) return 0;
    int32_t to = g->height[e->to];
    if (e->kind != EDGE_CALL) return to;
    int32_t rule = g->height[e->rule] + !guide_returns(g, e->to);
    return to > rule ? to : rule;
}

/* States in the order of their heights, each once it is final. */
typedef struct Queue {
    int32_t *next; /* [n_edges] */
    int32_t head[GUIDE_DEEPEST + 1];
} Queue;

/* By the last edge that made it known, of which each makes one entry. */
static void expect(Queue *q, const MxGrammar *g, int32_t edge) {
    int32_t height = height_by(g, &g->edge[edge]);
    if (height > GUIDE_DEEPEST) return;
    if (q->next[edge]) return;
    q->next[edge] = q->head[height] ? q->head[height] : -1;
    q->head[height] = edge;
}

static void find_heights(MxGrammar *g) {
    MxArena scratch = {.name = "heights"};
    Backwards b = turn(&scratch, g);
    Queue q = {.next = mx_new_n(&scratch, int32_t, g->n_edges + 1)};
    g->height = mx_new_n(g->arena, int32_t, g->n_states);
    for (int32_t s = 0; s < g->n_states; s++) g->height[s] = GUIDE_NEVER;
    g->height[MX_GRAMMAR_END] = 0;
    for (int32_t i = 1; i < g->n_edges; i++)
        if (g->edge[i].kind == EDGE_RETURN || g->edge[i].to == MX_GRAMMAR_END) expect(&q, g, i);
    for (int32_t h = 0; h <= GUIDE_DEEPEST; h++)
        while (q.head[h]) {
            int32_t i = q.head[h], s = g->edge[i].from;
            q.head[h] = q.next[i] > 0 ? q.next[i] : 0;
            if (g->height[s] < GUIDE_NEVER) continue;
            g->height[s] = h;
            for (int32_t k = b.start[s]; k < b.start[s + 1]; k++) expect(&q, g, b.edge[k]);
        }
    mx_arena_release(&scratch);
}

bool mx_grammar_finish(MxGrammar *g, const char *name, MxError *err) {
    if (g->is_full)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "%s: too large: wanted a grammar of at most %d states", name,
                       GUIDE_MOST_STATES);
    find_heights(g);
    return g->height[MX_GRAMMAR_START] <= GUIDE_DEEPEST ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: no value fits it", name);
}
