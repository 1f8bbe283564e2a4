/* pattern_product.c — several networks of characters as one that is deterministic (the construction
 * of subsets): it tells of each text which of them have found something. */
#include "pattern.h"

#include <stdlib.h>

enum { MOST_STATES = 1 << 12, MOST_BOUNDS = 1 << 12, MOST_STEPS = 1 << 24 };

static const char too_large[] = "is too large beside others";

/* A state of one of the networks. */
typedef struct Part {
    int32_t of, state;
} Part;

typedef struct Subset {
    Part *part; /* [n] in order */
    int32_t n;
} Subset;

typedef struct Product {
    MxArena *arena;
    const Demand *demand; /* [n_demands] */
    int n_demands;
    bool is_ascii;
    Subset *subset; /* [out.n_states] */
    int32_t *slot;  /* [SLOTS] by their hashes; 0 = none, else a state's number + 1 */
    Part *work;     /* [n_work] */
    int32_t n_work;
    int32_t *first; /* [n_demands + 1] of the states of all networks … */
    int64_t *seen;  /* … when each was entered last */
    int64_t round, n_steps;
    Pattern out;
} Product;

enum { SLOTS = 4 * MOST_STATES };

static void enter(Product *p, int32_t of, int32_t state) {
    int64_t *seen = &p->seen[p->first[of] + state];
    p->n_steps++;
    if (*seen == p->round) return;
    *seen = p->round;
    p->work[p->n_work++] = (Part){of, state};
}

static int compare_parts(const void *a, const void *b) {
    const Part *x = a, *y = b;
    return x->of != y->of ? x->of - y->of : x->state - y->state;
}

static uint32_t hash_of(const Part *part, int32_t n) {
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)(part[i].of << 24 ^ part[i].state)) * 16777619u;
    return hash ^ hash >> 15;
}

/* All that the parts in work lead to without a character; false: a pattern that must be found
 * cannot be any more. */
static bool close(Product *p) {
    for (int32_t i = 0; i < p->n_work; i++) {
        const Part part = p->work[i];
        const Pattern *own = &p->demand[part.of].pattern;
        for (int32_t k = own->first[part.state]; k; k = own->link[k].next)
            if (own->link[k].low > own->link[k].high) enter(p, part.of, own->link[k].to);
    }
    qsort(p->work, (size_t)p->n_work, sizeof *p->work, compare_parts);
    for (int d = 0, at = 0; d < p->n_demands; d++) {
        bool is_alive = at < p->n_work && p->work[at].of == d;
        while (at < p->n_work && p->work[at].of == d) at++;
        if (!is_alive && p->demand[d].is_wanted) return false;
    }
    return true;
}

/* The state of the parts in work; -1 = nothing comes of them, or there are too many. */
static int32_t find_state(Product *p) {
    if (!close(p)) return -1;
    const size_t bytes = (size_t)p->n_work * sizeof *p->work;
    uint32_t at = hash_of(p->work, p->n_work) % SLOTS;
    for (; p->slot[at]; at = (at + 1) % SLOTS) {
        const Subset *one = &p->subset[p->slot[at] - 1];
        if (one->n == p->n_work && !memcmp(one->part, p->work, bytes)) return p->slot[at] - 1;
    }
    if (p->out.n_states == MOST_STATES || p->n_steps > MOST_STEPS) {
        p->out.wrong = too_large;
        return -1;
    }
    Subset *own = &p->subset[p->out.n_states];
    *own = (Subset){.part = mx_new_n(p->arena, Part, p->n_work + 1), .n = p->n_work};
    if (bytes) memcpy(own->part, p->work, bytes);
    p->slot[at] = p->out.n_states + 1;
    return p->out.n_states++;
}

static int compare_codes(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Where the links of a subset begin and end: between two bounds all characters lead to the same. */
static int find_bounds(Product *p, const Subset *from, uint32_t *bound) {
    int n = 0, kept = 0;
    bound[n++] = p->is_ascii ? ' ' : 0;
    bound[n++] = p->is_ascii ? '~' + 1 : PATTERN_LAST_CODE + 1;
    const uint32_t low = bound[0], high = bound[1];
    for (int32_t i = 0; i < from->n; i++) {
        const Pattern *own = &p->demand[from->part[i].of].pattern;
        for (int32_t k = own->first[from->part[i].state]; k; k = own->link[k].next) {
            const Link *link = &own->link[k];
            if (link->low > link->high) continue;
            if (n + 2 > MOST_BOUNDS) {
                p->out.wrong = too_large;
                return 0;
            }
            if (link->low > low && link->low < high) bound[n++] = link->low;
            if (link->high + 1 > low && link->high + 1 < high) bound[n++] = link->high + 1;
        }
    }
    qsort(bound, (size_t)n, sizeof *bound, compare_codes);
    for (int i = 0; i < n; i++)
        if (!i || bound[i] != bound[kept - 1]) bound[kept++] = bound[i];
    return kept;
}

/* The parts that a character leads to. */
static void step(Product *p, const Subset *from, uint32_t code) {
    p->n_work = 0;
    p->round++;
    for (int32_t i = 0; i < from->n; i++) {
        const Pattern *own = &p->demand[from->part[i].of].pattern;
        for (int32_t k = own->first[from->part[i].state]; k; k = own->link[k].next, p->n_steps++)
            if (own->link[k].low <= code && code <= own->link[k].high)
                enter(p, from->part[i].of, own->link[k].to);
    }
}

static void write_links(Product *p, int32_t state, uint32_t *bound) {
    const Subset from = p->subset[state];
    const int n = find_bounds(p, &from, bound);
    int32_t last = -1;
    for (int i = 0; i + 1 < n && !p->out.wrong; i++) {
        step(p, &from, bound[i]);
        int32_t to = find_state(p);
        Link *link = &p->out.link[p->out.first[state]];
        if (to >= 0 && to == last)
            link->high = bound[i + 1] - 1;
        else if (to >= 0)
            pattern_link(&p->out, state, bound[i], bound[i + 1] - 1, to);
        last = to;
    }
}

/* Whether a text may end in a subset. */
static bool is_wanted(const Product *p, const Subset *subset) {
    bool ok = true;
    for (int d = 0; d < p->n_demands; d++) {
        bool found = false;
        for (int32_t i = 0; i < subset->n; i++)
            found |= subset->part[i].of == d && subset->part[i].state == p->demand[d].pattern.end;
        ok &= found == p->demand[d].is_wanted;
    }
    return ok;
}

static void begin(Product *p) {
    int32_t n = 0;
    p->first = mx_new_n(p->arena, int32_t, p->n_demands + 1);
    for (int d = 0; d < p->n_demands; d++) {
        p->first[d] = n;
        n += p->demand[d].pattern.n_states;
        p->is_ascii |= p->demand[d].pattern.is_narrow && !p->demand[d].is_wanted;
    }
    p->work = mx_new_n(p->arena, Part, n + 1);
    p->seen = mx_new_n(p->arena, int64_t, n + 1);
    p->round = 1;
    for (int d = 0; d < p->n_demands; d++) enter(p, d, p->demand[d].pattern.start);
}

const char *pattern_product(MxArena *arena, const Demand *demand, int n, Pattern *out,
                            bool **is_end) {
    Product p = {.arena = arena, .demand = demand, .n_demands = n};
    p.out = (Pattern){.arena = arena, .n_links = 1};
    p.out.first = mx_new_n(arena, int32_t, MOST_STATES);
    p.subset = mx_new_n(arena, Subset, MOST_STATES);
    p.slot = mx_new_n(arena, int32_t, SLOTS);
    uint32_t *bound = mx_new_n(arena, uint32_t, MOST_BOUNDS);
    begin(&p);
    p.out.start = find_state(&p);
    for (int32_t i = 0; i < p.out.n_states && !p.out.wrong; i++) write_links(&p, i, bound);
    *is_end = mx_new_n(arena, bool, p.out.n_states + 1);
    for (int32_t i = 0; i < p.out.n_states; i++) (*is_end)[i] = is_wanted(&p, &p.subset[i]);
    *out = p.out;
    return p.out.wrong;
}

bool pattern_finds(const Pattern *pattern, const char *text) {
    MxArena scratch = {.name = "pattern"};
    const Demand demand = {*pattern, true};
    Product p = {.arena = &scratch, .demand = &demand, .n_demands = 1};
    begin(&p);
    bool goes_on = close(&p);
    Subset from = {.part = mx_new_n(&scratch, Part, pattern->n_states + 1)};
    for (size_t at = 0; goes_on && text[at];) {
        from.n = p.n_work;
        memcpy(from.part, p.work, (size_t)p.n_work * sizeof *p.work);
        step(&p, &from, mx_char_next(text, &at));
        goes_on = close(&p);
    }
    goes_on = goes_on && is_wanted(&p, &(const Subset){.part = p.work, .n = p.n_work});
    mx_arena_release(&scratch);
    return goes_on;
}
