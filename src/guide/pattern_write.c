/* pattern_write.c — a network of characters as a grammar: its states become states of bytes, one
 * for each count of characters. */
#include "pattern.h"

typedef struct Writer {
    MxGrammar *g;
    const Pattern *p;
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
static void write_escapes(MxGrammar *g, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    static const char codes[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    int32_t escape = 0;
    for (int i = 0; codes[i]; i++) {
        if ((uint8_t)codes[i] < low || (uint8_t)codes[i] > high) continue;
        if (!escape) {
            escape = mx_grammar_state(g);
            mx_grammar_bytes(g, from, '\\', '\\', escape);
        }
        mx_grammar_bytes(g, escape, (uint8_t)letters[i], (uint8_t)letters[i], to);
    }
}

static void write_codes(Writer *w, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    static const uint32_t quoted[] = {'"', '\\'}, raw[] = {'<'};
    const uint32_t *without = w->how.is_raw ? raw : quoted;
    int n = w->how.is_raw ? MX_COUNT(raw) : MX_COUNT(quoted);
    if (!w->how.is_raw) write_escapes(w->g, from, low, high, to);
    if (low < ' ' && !w->how.is_raw) low = ' ';
    for (int i = 0; i < n; i++) {
        if (without[i] < low || without[i] > high) continue;
        if (without[i] > low) guide_codes(w->g, from, low, without[i] - 1, to);
        low = without[i] + 1;
    }
    if (low <= high) guide_codes(w->g, from, low, high, to);
}

static void write_state(Writer *w, int32_t at) {
    const int32_t of = (int32_t)(at / w->counts), from = w->state[at];
    const int64_t count = at % w->counts;
    const bool is_bounded = w->how.max < GUIDE_UNBOUNDED;
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
    const int32_t end = w->p->end;
    mx_grammar_nothing(w->g, from, state_of(w, w->p->start, 0));
    for (int64_t i = 0; i < w->n_todo && !w->g->is_full; i++) write_state(w, w->todo[i]);
    for (int64_t count = w->how.min; count < w->counts; count++)
        if (w->state[end * w->counts + count])
            mx_grammar_nothing(w->g, w->state[end * w->counts + count], to);
}

const char *guide_pattern(MxGrammar *g, int32_t from, const char *pattern, Writing how,
                          int32_t to) {
    enum { MOST = 16 * GUIDE_MOST_STATES };
    MxArena scratch = {.name = "pattern"};
    Pattern p;
    const char *wrong = pattern_read(&scratch, pattern, &p);
    Writer w = {.g = g, .p = &p, .how = how};
    w.counts = (how.max < GUIDE_UNBOUNDED ? how.max : how.min) + 1;
    if (!wrong && w.counts * p.n_states > MOST) wrong = "is too large for the length of its texts";
    if (!wrong) {
        int32_t first = mx_grammar_state(g), last = mx_grammar_state(g);
        w.state = mx_new_n(&scratch, int32_t, p.n_states * w.counts);
        w.todo = mx_new_n(&scratch, int32_t, p.n_states * w.counts);
        guide_textn(g, from, "\"", !how.is_raw, first);
        write_all(&w, first, last);
        guide_textn(g, last, "\"", !how.is_raw, to);
    }
    mx_arena_release(&scratch);
    return wrong;
}
