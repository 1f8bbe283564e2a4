/* pickle_stack.c — the machine of a pickle: its stack, what it keeps, and the instructions that
 * make plain values and move them. */
#include "pickle.h"

bool pickle_fail(const Machine *m, const char *what) {
    return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where, "byte %zu: %s", m->at, what);
}

/* ---- bytes, values */

bool pickle_take(Machine *m, size_t n, const uint8_t **out) {
    *out = m->bytes + m->at;
    if (n > m->n - m->at) return pickle_fail(m, "the pickle is cut short");
    m->at += n;
    return true;
}

static bool take_number(Machine *m, int n_bytes, uint64_t *out) {
    const uint8_t *b;
    *out = 0;
    if (!pickle_take(m, (size_t)n_bytes, &b)) return false;
    for (int i = 0; i < n_bytes; i++) *out |= (uint64_t)b[i] << 8 * i;
    return true;
}

Value *pickle_new(Machine *m, Kind kind) {
    Value *value = mx_new(m->scratch, Value);
    value->kind = kind;
    return value;
}

bool pickle_push(Machine *m, Value *value) {
    if (m->n_stack == m->stack_cap) {
        int cap = 2 * m->stack_cap + 16;
        m->stack = mx_arena_grow(m->scratch, m->stack, (size_t)m->stack_cap, (size_t)cap,
                                 sizeof *m->stack);
        m->stack_cap = cap;
    }
    m->stack[m->n_stack++] = value;
    return true;
}

bool pickle_pop(Machine *m, Value **out) {
    bool has = m->n_stack && m->stack[m->n_stack - 1]->kind != MARK;
    if (has) *out = m->stack[--m->n_stack];
    return has || pickle_fail(m, "it takes what it has not");
}

/* The value that stays on the stack. */
bool pickle_peek(Machine *m, Kind kind, Value **out) {
    *out = m->n_stack ? m->stack[m->n_stack - 1] : NULL;
    return (*out && (*out)->kind == kind) || pickle_fail(m, "it changes what it has not");
}

static void append(Machine *m, Value *to, Value *item) {
    if (to->n == to->cap) {
        int cap = 2 * to->cap + 8;
        to->item =
            mx_arena_grow(m->scratch, to->item, (size_t)to->cap, (size_t)cap, sizeof *to->item);
        to->cap = cap;
    }
    to->item[to->n++] = item;
}

/* Everything down to the mark, in order, as the items of `to`. */
static bool take_marked(Machine *m, int *first) {
    int at = m->n_stack;
    while (at && m->stack[at - 1]->kind != MARK) at--;
    *first = at;
    return at > 0 || pickle_fail(m, "it has no mark");
}

static const char *string_of(Machine *m, const uint8_t *bytes, size_t n) {
    if (mx_utf8_valid_bytes((const char *)bytes, n) != n || memchr(bytes, 0, n)) return NULL;
    return mx_arena_strndup(m->arena, (const char *)bytes, n);
}

/* ---- instructions */

bool pickle_run_proto(Machine *m) {
    const uint8_t *version;
    return pickle_take(m, 1, &version);
}

bool pickle_run_stop(Machine *m) {
    m->is_over = true;
    return true;
}

bool pickle_run_mark(Machine *m) {
    return pickle_push(m, pickle_new(m, MARK));
}
bool pickle_run_none(Machine *m) {
    return pickle_push(m, pickle_new(m, NONE));
}
bool pickle_run_truth(Machine *m) {
    return pickle_push(m, pickle_new(m, TRUTH));
}
bool pickle_run_empty_dict(Machine *m) {
    return pickle_push(m, pickle_new(m, DICT));
}
bool pickle_run_empty_tuple(Machine *m) {
    return pickle_push(m, pickle_new(m, TUPLE));
}

static bool push_number(Machine *m, int n_bytes, bool is_signed) {
    const int bits = 8 * n_bytes, all = 64;
    uint64_t number;
    if (!take_number(m, n_bytes, &number)) return false;
    bool is_negative = is_signed && n_bytes && bits < all && number >> (bits - 1) & 1;
    if (is_negative) number |= UINT64_MAX << bits;
    Value *value = pickle_new(m, NUMBER);
    memcpy(&value->number, &number, sizeof number);
    return pickle_push(m, value);
}

bool pickle_run_binint(Machine *m) {
    return push_number(m, 4, true);
}
bool pickle_run_binint1(Machine *m) {
    return push_number(m, 1, false);
}
bool pickle_run_binint2(Machine *m) {
    return push_number(m, 2, false);
}

bool pickle_run_long1(Machine *m) {
    const uint8_t *n;
    if (!pickle_take(m, 1, &n)) return false;
    return *n <= 8 ? push_number(m, *n, true) : pickle_fail(m, "a number of more than 64 bits");
}

bool pickle_run_binunicode(Machine *m) {
    uint64_t n;
    const uint8_t *bytes;
    if (!take_number(m, 4, &n) || !pickle_take(m, (size_t)n, &bytes)) return false;
    Value *value = pickle_new(m, TEXT);
    value->text = string_of(m, bytes, (size_t)n);
    return value->text ? pickle_push(m, value) : pickle_fail(m, "a text that is not UTF-8");
}

bool pickle_take_line(Machine *m, const char **out) {
    const uint8_t *at = m->bytes + m->at, *stop = memchr(at, '\n', m->n - m->at);
    if (!stop) return pickle_fail(m, "the pickle is cut short");
    *out = string_of(m, at, (size_t)(stop - at));
    m->at += (size_t)(stop - at) + 1;
    return *out || pickle_fail(m, "a name that is not UTF-8");
}

static bool make_tuple(Machine *m, int first) {
    Value *tuple = pickle_new(m, TUPLE);
    for (int i = first; i < m->n_stack; i++) append(m, tuple, m->stack[i]);
    m->n_stack = first;
    return pickle_push(m, tuple);
}

bool pickle_run_tuple(Machine *m) {
    int first;
    if (!take_marked(m, &first) || !make_tuple(m, first)) return false;
    Value *tuple = m->stack[m->n_stack - 1];
    m->stack[first - 1] = tuple; /* where the mark was */
    m->n_stack = first;
    return true;
}

static bool tuple_of(Machine *m, int n) {
    for (int i = 1; i <= n; i++)
        if (i > m->n_stack || m->stack[m->n_stack - i]->kind == MARK)
            return pickle_fail(m, "it takes what it has not");
    return make_tuple(m, m->n_stack - n);
}
bool pickle_run_tuple1(Machine *m) {
    return tuple_of(m, 1);
}
bool pickle_run_tuple2(Machine *m) {
    return tuple_of(m, 2);
}
bool pickle_run_tuple3(Machine *m) {
    return tuple_of(m, 3);
}

bool pickle_run_setitems(Machine *m) {
    Value *dict;
    int first, end = m->n_stack;
    if (!take_marked(m, &first)) return false;
    m->n_stack = first - 1;
    if (!pickle_peek(m, DICT, &dict)) return false;
    if ((end - first) % 2) return pickle_fail(m, "a key without a value");
    for (int i = first; i < end; i++) append(m, dict, m->stack[i]);
    return true;
}

bool pickle_run_setitem(Machine *m) {
    Value *dict, *value, *key;
    if (!pickle_pop(m, &value) || !pickle_pop(m, &key) || !pickle_peek(m, DICT, &dict))
        return false;
    append(m, dict, key);
    append(m, dict, value);
    return true;
}

/* Attributes of a dictionary, as of a module's state, are of no interest. */
bool pickle_run_build(Machine *m) {
    Value *state, *dict;
    return pickle_pop(m, &state) && pickle_peek(m, DICT, &dict);
}

static bool put(Machine *m, uint64_t at) {
    if (!m->n_stack || m->stack[m->n_stack - 1]->kind == MARK)
        return pickle_fail(m, "it keeps what it has not");
    if (at >= m->n) return pickle_fail(m, "it keeps more than it has");
    if (at >= m->n_memo) {
        size_t more = 2 * (size_t)at + 64;
        m->memo = mx_arena_grow(m->scratch, m->memo, m->n_memo, more, sizeof *m->memo);
        m->n_memo = more;
    }
    m->memo[at] = m->stack[m->n_stack - 1];
    return true;
}

static bool get(Machine *m, uint64_t at) {
    if (at >= m->n_memo || !m->memo[at]) return pickle_fail(m, "it wants what it has not kept");
    return pickle_push(m, m->memo[at]);
}

bool pickle_run_binput(Machine *m) {
    uint64_t at;
    return take_number(m, 1, &at) && put(m, at);
}
bool pickle_run_long_binput(Machine *m) {
    uint64_t at;
    return take_number(m, 4, &at) && put(m, at);
}
bool pickle_run_binget(Machine *m) {
    uint64_t at;
    return take_number(m, 1, &at) && get(m, at);
}
bool pickle_run_long_binget(Machine *m) {
    uint64_t at;
    return take_number(m, 4, &at) && get(m, at);
}
