/* pattern_write.c — a network of characters as a grammar: its states become states of bytes, one
 * for each count of characters. */
#include "pattern.h"

typedef struct Writer {
    MxGrammar *g;
    const Pattern *p;
    const bool *is_end; /* [n_states] */
    Writing how;
    int64_t counts; /* that are told apart */
    int32_t *state; /* [n_states, counts] of the grammar, 0 = none so far */
    int32_t *todo;  /* [n_states * counts] */
    int64_t n_todo;
} Writer;

static int32_t state_of(Writer *w, int32_t of, int64_t count) {
    int64_t at = of * w->counts + count;
    if (!w->state[at]) {
        w->state[at] = mx_grammar_state(w->g);
        w->todo[w->n_todo++] = (int32_t)at;
    }
    return w->state[at];
}

/* Characters that are escaped, each with its letter; others below a space never come. */
static void write_escapes(Writer *w, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    static const char codes[] = "\b\t\n\f\r\"\\'", letters[] = "btnfr\"\\'";
    int32_t escape = 0;
    for (int i = 0; codes[i]; i++) {
        bool is_other = strchr("\"'", codes[i]) && codes[i] != w->how.quote;
        if ((uint8_t)codes[i] < low || (uint8_t)codes[i] > high || is_other) continue;
        if (!escape) {
            escape = mx_grammar_state(w->g);
            mx_grammar_bytes(w->g, from, '\\', '\\', escape);
        }
        mx_grammar_bytes(w->g, escape, (uint8_t)letters[i], (uint8_t)letters[i], to);
    }
}

static void write_codes(Writer *w, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    const char quote = w->how.quote, other = quote ? '\\' : *w->how.values->without;
    const char first = quote && quote < other ? quote : other;
    const char without[] = {first, first == other ? quote : other};
    if (quote) write_escapes(w, from, low, high, to);
    if (low < ' ' && quote) low = ' ';
    for (int i = 0; i < MX_COUNT(without); i++) {
        const uint32_t code = (uint8_t)without[i];
        if (!code || code < low || code > high) continue;
        if (code > low) guide_codes(w->g, from, low, code - 1, to);
        low = code + 1;
    }
    if (low <= high) guide_codes(w->g, from, low, high, to);
}

/* Whether any character leads back to a state. */
static bool is_loop(const Pattern *p, int32_t state) {
    for (int32_t i = p->first[state]; i; i = p->link[i].next)
        if (!p->link[i].low && p->link[i].high == PATTERN_LAST_CODE && p->link[i].to == state)
            return true;
    return false;
}

static void write_state(Writer *w, int32_t at) {
    const int32_t of = (int32_t)(at / w->counts), from = w->state[at];
    const int64_t count = at % w->counts;
    const bool is_bounded = w->how.max < GUIDE_UNBOUNDED;
    if (!is_bounded && w->how.quote == '"' && count + 1 == w->counts && is_loop(w->p, of))
        w->g->plain[from] = GUIDE_UNBOUNDED;
    for (int32_t i = w->p->first[of]; i && !w->g->is_full; i = w->p->link[i].next) {
        const Link *link = &w->p->link[i];
        bool is_nothing = link->low > link->high, is_last = count + 1 == w->counts;
        if (is_nothing) {
            mx_grammar_nothing(w->g, from, state_of(w, link->to, count));
        } else if (!is_last || !is_bounded) {
            int32_t to = state_of(w, link->to, is_last ? count : count + 1);
            write_codes(w, from, link->low, link->high, to);
        }
    }
}

static void write_all(Writer *w, int32_t from, int32_t to) {
    mx_grammar_nothing(w->g, from, state_of(w, w->p->start, 0));
    for (int64_t i = 0; i < w->n_todo && !w->g->is_full; i++) write_state(w, w->todo[i]);
    for (int32_t s = 0; s < w->p->n_states; s++)
        for (int64_t count = w->how.min; w->is_end[s] && count < w->counts; count++)
            if (w->state[s * w->counts + count])
                mx_grammar_nothing(w->g, w->state[s * w->counts + count], to);
}

/* One pattern that must be found is written as it is. */
static const char *find_network(MxArena *arena, const Demand *demand, int n, Pattern *out,
                                bool **is_end) {
    if (n > 1 || !demand->is_wanted) return pattern_product(arena, demand, n, out, is_end);
    *out = demand->pattern;
    *is_end = mx_new_n(arena, bool, out->n_states + 1);
    (*is_end)[out->end] = true;
    return NULL;
}

const char *pattern_write(MxGrammar *g, int32_t from, const Demand *demand, int n, Writing how,
                          int32_t to) {
    enum { MOST = 16 * GUIDE_MOST_STATES };
    MxArena scratch = {.name = "pattern"};
    Pattern p;
    bool *is_end;
    const char *wrong = find_network(&scratch, demand, n, &p, &is_end);
    Writer w = {.g = g, .p = &p, .is_end = is_end, .how = how};
    w.counts = (how.max < GUIDE_UNBOUNDED ? how.max : how.min) + 1;
    if (!wrong && w.counts * p.n_states > MOST) wrong = "is too large for the length of its texts";
    if (!wrong && p.n_states) {
        w.state = mx_new_n(&scratch, int32_t, p.n_states * w.counts);
        w.todo = mx_new_n(&scratch, int32_t, p.n_states * w.counts);
        write_all(&w, from, to);
    }
    mx_arena_release(&scratch);
    return wrong;
}
