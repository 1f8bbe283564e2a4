/* pattern.c — regular expressions: what JavaScript and Python have in common of them, but for what
 * looks ahead or back, as a network of characters (Thompson). Where the two languages differ, what
 * both would match: \d, \w and \s are ASCII, and their opposites, too. */
#include "pattern.h"

enum {
    MOST_STATES = 1 << 14,
    MOST_RANGES = 256,
    DEEPEST = 64,
    UNBOUNDED = 1 << 30,
};

static bool fail(Pattern *p, const char *wrong) {
    if (!p->wrong) p->wrong = wrong;
    return false;
}

static int32_t new_state(Pattern *p) {
    if (p->n_states == MOST_STATES) fail(p, "is too large");
    return p->wrong ? 0 : p->n_states++;
}

void pattern_link(Pattern *p, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    if (p->n_links == 4 * MOST_STATES) fail(p, "is too large");
    if (p->wrong) return;
    if (p->n_links >= p->cap_links) {
        int32_t cap = 2 * p->cap_links + 64;
        size_t n = p->link ? (size_t)p->n_links : 0;
        p->link = mx_arena_grow(p->arena, p->link, n, (size_t)cap, sizeof *p->link);
        p->cap_links = cap;
    }
    p->link[p->n_links] = (Link){low, high, to, p->first[from]};
    p->first[from] = p->n_links++;
}

static void join(Pattern *p, int32_t from, int32_t to) {
    pattern_link(p, from, 1, 0, to);
}

/* ---- sets of characters */

typedef struct Set {
    uint32_t low[MOST_RANGES], high[MOST_RANGES];
    int n;
    bool has_class; /* what of other scripts is in it depends on the language */
} Set;

static void add_range(Pattern *p, Set *set, uint32_t low, uint32_t high) {
    if (set->n == MOST_RANGES) fail(p, "has a class of too many ranges");
    if (p->wrong) return;
    set->low[set->n] = low;
    set->high[set->n++] = high;
}

static void sort_ranges(Set *set) {
    for (int i = 1; i < set->n; i++)
        for (int k = i; k && set->low[k] < set->low[k - 1]; k--) {
            uint32_t low = set->low[k], high = set->high[k];
            set->low[k] = set->low[k - 1], set->high[k] = set->high[k - 1];
            set->low[k - 1] = low, set->high[k - 1] = high;
        }
}

/* The others, up to a last one. */
static void negate(Pattern *p, Set *set, uint32_t last) {
    Set out = {.has_class = set->has_class};
    uint32_t next = 0;
    sort_ranges(set);
    for (int i = 0; i < set->n; i++) {
        if (set->low[i] > next) add_range(p, &out, next, set->low[i] - 1);
        if (set->high[i] >= next) next = set->high[i] + 1;
    }
    if (next <= last) add_range(p, &out, next, last);
    *set = out;
}

/* What letters behind a backslash stand for. */
static const struct {
    char letter;
    const char *ranges; /* two characters each */
} classes[] = {{'d', "09"}, {'w', "09AZ__az"}, {'s', "\t\r  "}};

static bool add_class(Pattern *p, Set *set, char letter) {
    for (int i = 0; i < MX_COUNT(classes); i++) {
        bool is_other = letter == classes[i].letter - 'a' + 'A';
        if (letter != classes[i].letter && !is_other) continue;
        p->is_narrow = true;
        Set own = {0};
        for (const char *at = classes[i].ranges; *at; at += 2)
            add_range(p, &own, (uint8_t)at[0], (uint8_t)at[1]);
        if (is_other) negate(p, &own, 0x7f);
        for (int k = 0; k < own.n; k++) add_range(p, set, own.low[k], own.high[k]);
        set->has_class = true;
        return true;
    }
    return false;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t read_hex(Pattern *p, int n) {
    uint32_t code = 0;
    for (int i = 0; i < n; i++) {
        int digit = digit_of(p->text[p->at]);
        if (digit < 0) return fail(p, "has an escape with too few digits");
        code = 16 * code + (uint32_t)digit;
        p->at++;
    }
    if (code >= 0xd800 && code < 0xe000) fail(p, "has a surrogate, which is no character");
    return code;
}

/* A character behind a backslash. */
static uint32_t read_escape(Pattern *p) {
    static const char letters[] = "tnrfv", codes[] = "\t\n\r\f\v";
    const char c = p->text[p->at];
    const char *known = c ? strchr(letters, c) : NULL;
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!c) return fail(p, "ends in a backslash");
    if (!known && c != 'x' && c != 'u' && is_word)
        return fail(p, "has an escape that is not available");
    if (!is_word) return mx_char_next(p->text, &p->at);
    p->at++;
    if (c == 'x') return read_hex(p, 2);
    return c == 'u' ? read_hex(p, 4) : (uint32_t)codes[known - letters];
}

/* One end of a range, or a class; false = a class. */
static bool read_item(Pattern *p, Set *set, uint32_t *code) {
    bool is_escape = p->text[p->at] == '\\';
    p->at += is_escape;
    if (is_escape && p->text[p->at] && add_class(p, set, p->text[p->at])) {
        p->at++;
        return false;
    }
    *code = is_escape ? read_escape(p) : mx_char_next(p->text, &p->at);
    return true;
}

static void read_set(Pattern *p, Set *set) {
    bool is_other = p->text[p->at] == '^';
    p->at += is_other;
    if (p->text[p->at] == ']') fail(p, "has an empty class");
    while (p->text[p->at] != ']' && !p->wrong) {
        uint32_t low, high;
        if (!p->text[p->at]) fail(p, "has a class without its end");
        if (p->wrong || !read_item(p, set, &low)) continue;
        high = low;
        const char *next = p->text + p->at;
        if (next[0] == '-' && next[1] && next[1] != ']') {
            p->at++;
            if (!read_item(p, set, &high)) fail(p, "has a range of a class");
        }
        if (low > high) fail(p, "has a range whose end is before its start");
        add_range(p, set, low, high);
    }
    p->at++;
    if (is_other && set->has_class) add_range(p, set, 0x80, PATTERN_LAST_CODE);
    if (is_other) negate(p, set, PATTERN_LAST_CODE);
}

static void add_set(Pattern *p, int32_t from, const Set *set, int32_t to) {
    for (int i = 0; i < set->n; i++) pattern_link(p, from, set->low[i], set->high[i], to);
}

/* ---- expressions */

static void read_choices(Pattern *p, int32_t from, int32_t to);

/* Skips what stands behind the bracket of a group that only groups. */
static void read_group_kind(Pattern *p) {
    if (p->text[p->at] != '?') return;
    const char *at = p->text + p->at + 1;
    bool has_name =
        (at[0] == 'P' && at[1] == '<') || (at[0] == '<' && at[1] != '=' && at[1] != '!');
    const char *end = has_name ? strchr(at, '>') : *at == ':' ? at : NULL;
    if (end)
        p->at = (size_t)(end - p->text) + 1;
    else
        fail(p, "has a group that looks ahead or back or sets something");
}

static void read_group(Pattern *p, int32_t from, int32_t to) {
    if (++p->depth > DEEPEST) fail(p, "has groups within groups too deep");
    if (p->wrong) return;
    read_group_kind(p);
    read_choices(p, from, to);
    if (p->text[p->at] != ')') fail(p, "has a bracket without its end");
    p->at++;
    p->depth--;
}

static void read_atom(Pattern *p, int32_t from, int32_t to) {
    Set set = {0};
    uint32_t code;
    const char c = p->text[p->at];
    if (strchr("*+?{", c)) fail(p, "repeats nothing");
    if (c == '^' || c == '$') fail(p, "has ^ or $ elsewhere than at its ends");
    if (c == '(' || c == '[' || c == '.') p->at++;
    if (p->wrong) return;
    if (c == '(') {
        read_group(p, from, to);
        return;
    }
    if (c == '[') {
        read_set(p, &set);
    } else if (c == '.') {
        p->is_narrow = true;
        const uint32_t ends[] = {'\n', '\r', 0x2028, 0x2029};
        for (int i = 0; i < MX_COUNT(ends); i++) add_range(p, &set, ends[i], ends[i]);
        negate(p, &set, PATTERN_LAST_CODE);
    } else if (read_item(p, &set, &code)) {
        add_range(p, &set, code, code);
    }
    add_set(p, from, &set, to);
}

static int64_t read_count(Pattern *p) {
    int64_t n = 0;
    for (; p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
        if (n < UNBOUNDED) n = 10 * n + (p->text[p->at] - '0');
    return n < UNBOUNDED ? n : UNBOUNDED;
}

/* How often; false = once. */
static bool read_times(Pattern *p, int64_t *min, int64_t *max) {
    const char c = p->text[p->at];
    if (!c || !strchr("*+?{", c)) return false;
    p->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : UNBOUNDED;
    if (c == '{') {
        const char *start = p->text + p->at;
        *min = *max = read_count(p);
        if (p->text[p->at] == ',') {
            p->at++;
            bool has_max = p->text[p->at] != '}';
            *max = has_max ? read_count(p) : UNBOUNDED;
        }
        if (p->text[p->at] != '}' || *start == ',' || *start == '}' || *max < *min)
            fail(p, "has a repetition that is not {n}, {n,} or {n,m}");
        p->at++;
    }
    if (p->text[p->at] == '?') p->at++; /* what is found first does not matter */
    if (p->text[p->at] && strchr("*+{", p->text[p->at])) fail(p, "repeats a repetition");
    return true;
}

/* An atom as often as it says: it is read again for each copy. Returns the state behind. */
static int32_t read_repeated(Pattern *p, int32_t from) {
    const size_t start = p->at;
    int64_t min = 1, max = 1;
    int32_t first = new_state(p), end = new_state(p), behind = new_state(p);
    read_atom(p, first, end);
    const bool repeats = read_times(p, &min, &max);
    const size_t next = p->at;
    const int64_t copies = max < UNBOUNDED ? max : min > 1 ? min : 1;
    int32_t last = from;
    if (!repeats) min = max = 1;
    for (int64_t i = 0; i < copies && !p->wrong; i++) {
        if (i >= min) join(p, last, behind);
        if (i) {
            first = new_state(p), end = new_state(p);
            p->at = start;
            read_atom(p, first, end);
        }
        join(p, last, first);
        last = end;
    }
    if (max == UNBOUNDED) join(p, last, first);
    join(p, last, behind);
    p->at = next;
    return behind;
}

static void read_sequence(Pattern *p, int32_t from, int32_t to) {
    while (p->text[p->at] && !strchr("|)", p->text[p->at]) && !p->wrong) {
        if (p->text[p->at] == '$' && !p->depth) break;
        from = read_repeated(p, from);
    }
    join(p, from, to);
}

static void read_choices(Pattern *p, int32_t from, int32_t to) {
    for (bool more = true; more && !p->wrong;) {
        int32_t start = new_state(p);
        join(p, from, start);
        read_sequence(p, start, to);
        more = p->text[p->at] == '|';
        p->at += more;
    }
}

/* Any characters. */
static int32_t add_anything(Pattern *p, int32_t from) {
    int32_t loop = new_state(p);
    join(p, from, loop);
    pattern_link(p, loop, 0, PATTERN_LAST_CODE, loop);
    return loop;
}

/* Choices that may begin and end where the text does. */
static void read_all(Pattern *p, int32_t from, int32_t to) {
    for (bool more = true; more && !p->wrong;) {
        bool begins = p->text[p->at] == '^';
        int32_t start = new_state(p), end = new_state(p);
        p->at += begins;
        join(p, from, start);
        if (!begins) start = add_anything(p, start);
        read_sequence(p, start, end);
        bool ends = p->text[p->at] == '$';
        p->at += ends;
        p->is_narrow |= ends; /* Python's $ is also before a last new line */
        join(p, ends ? end : add_anything(p, end), to);
        more = p->text[p->at] == '|';
        if (!more && p->text[p->at])
            fail(p, p->text[p->at] == ')' ? "has a bracket without its start"
                                          : "has ^ or $ elsewhere than at its ends");
        p->at += more;
    }
}

const char *pattern_read(MxArena *arena, const char *text, Pattern *out) {
    *out = (Pattern){.arena = arena, .text = text, .n_links = 1};
    out->first = mx_new_n(arena, int32_t, MOST_STATES);
    out->start = new_state(out);
    out->end = new_state(out);
    read_all(out, out->start, out->end);
    return out->wrong;
}

const char *pattern_of_texts(MxArena *arena, const char *const *texts, int64_t n, Pattern *out) {
    *out = (Pattern){.arena = arena, .text = "", .n_links = 1};
    out->first = mx_new_n(arena, int32_t, MOST_STATES);
    out->start = new_state(out);
    out->end = new_state(out);
    for (int64_t i = 0; i < n && !out->wrong; i++) {
        int32_t from = out->start;
        for (size_t at = 0; texts[i][at] && !out->wrong;) {
            const uint32_t code = mx_char_next(texts[i], &at);
            int32_t to = texts[i][at] ? new_state(out) : out->end;
            pattern_link(out, from, code, code, to);
            from = to;
        }
        if (from == out->start) join(out, from, out->end);
    }
    return out->wrong;
}
