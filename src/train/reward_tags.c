/* reward_tags.c — rewards of a completion's form and answer, as MaxText's: whether marks around the
 * reasoning and the solution are there, and whether what the solution says is right. */
#include "reward_tags.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

RewardTags reward_tags_of(const MxConfig *c) {
    return (RewardTags){
        .reasoning_start = c->reasoning_start_token,
        .reasoning_end = c->reasoning_end_token,
        .solution_start = c->solution_start_token,
        .solution_end = c->solution_end_token,
        .starts_in_prompt = c->reasoning_start_token_in_prompt,
        .exact_format = c->reward_exact_format_match,
        .partial_format = c->reward_partial_format_match,
        .incorrect_format = c->penalty_incorrect_format,
        .exact_answer = c->reward_exact_answer,
        .white_space = c->reward_white_space_format_match,
        .incorrect_answer = c->penalty_incorrect_answer,
    };
}

/* ---- pieces of texts */

typedef struct Piece {
    const char *at; /* NULL = none */
    size_t n;
} Piece;

static const char *end_of(Piece p) {
    return p.at + p.n;
}

static Piece from(Piece whole, const char *at) {
    return (Piece){at, (size_t)(end_of(whole) - at)};
}

static const char *find(Piece in, const char *mark) {
    return in.at <= end_of(in) ? memmem(in.at, in.n, mark, strlen(mark)) : NULL;
}

static bool is_same(Piece a, Piece b) {
    return a.n == b.n && !memcmp(a.at, b.at, a.n);
}

static bool is_space(char c) {
    return isspace((unsigned char)c) || (c >= 0x1c && c <= 0x1f);
}

static Piece trim(Piece p) {
    while (p.n && is_space(*p.at)) p.at++, p.n--;
    while (p.n && is_space(p.at[p.n - 1])) p.n--;
    return p;
}

/* ---- the form */

/* What is behind the first such mark; {NULL} if there is none. */
static Piece behind(Piece in, const char *mark) {
    const char *at = in.at ? find(in, mark) : NULL;
    return at ? from(in, at + strlen(mark)) : (Piece){0};
}

/* A solution that is not empty, of what begins with one; its end mark is left in *rest. */
static Piece solution_at(const RewardTags *t, Piece in, Piece *rest) {
    const char *end = in.n ? find(from(in, in.at + 1), t->solution_end) : NULL;
    if (!end) return (Piece){0};
    *rest = from(in, end + strlen(t->solution_end));
    return (Piece){in.at, (size_t)(end - in.at)};
}

static bool is_whole(const RewardTags *t, Piece text) {
    Piece rest = t->starts_in_prompt ? text : behind(text, t->reasoning_start);
    rest = behind(behind(rest, t->reasoning_end), t->solution_start);
    return rest.at && solution_at(t, rest, &rest).at;
}

static bool occurs_once(Piece text, const char *mark) {
    Piece rest = behind(text, mark);
    return rest.at && !find(rest, mark);
}

static double marks(const RewardTags *t, Piece text) {
    const struct {
        const char *mark;
        bool is_given;
    } all[] = {{t->reasoning_start, t->starts_in_prompt},
               {t->reasoning_end, false},
               {t->solution_start, false},
               {t->solution_end, false}};
    double sum = 0;
    for (int i = 0; i < MX_COUNT(all); i++)
        sum += all[i].is_given || occurs_once(text, all[i].mark) ? t->partial_format
                                                                 : t->incorrect_format;
    return sum;
}

/* ---- the answer */

static Piece last_solution(const RewardTags *t, Piece text) {
    Piece found = {0}, rest = text;
    for (;;) {
        rest = behind(rest, t->solution_start);
        Piece next = rest.at ? solution_at(t, rest, &rest) : (Piece){0};
        if (!next.at) return found;
        found = next;
    }
}

static const char boxed[] = "\\boxed";

static bool ends_with_boxed(const char *begin, const char *end) {
    size_t n = sizeof boxed - 1;
    return (size_t)(end - begin) >= n && !memcmp(end - n, boxed, n);
}

/* Of the boxes whose braces pair, the one that is closed last. */
static Piece last_box(MxArena *arena, Piece in) {
    const char **open = mx_new_n(arena, const char *, (int64_t)in.n + 1);
    int64_t depth = 0;
    Piece found = {0};
    for (const char *p = in.at; p < end_of(in); p++) {
        if (*p == '{') open[depth++] = p;
        if (*p != '}' || !depth) continue;
        const char *brace = open[--depth];
        if (ends_with_boxed(in.at, brace)) found = (Piece){brace + 1, (size_t)(p - brace - 1)};
    }
    return found.at ? trim(found) : found;
}

static bool is_plain(char c) {
    return isalnum((unsigned char)c) || c == '.' || c == ',' || c == '-';
}

/* Of "\boxed 42", or of a box that is not closed. */
static Piece open_box(Piece in) {
    for (Piece rest = behind(in, boxed); rest.at; rest = behind(rest, boxed)) {
        Piece at = rest;
        while (at.n && is_space(*at.at)) at.at++, at.n--;
        if (at.n && *at.at == '{') at.at++, at.n--;
        while (at.n && is_space(*at.at)) at.at++, at.n--;
        size_t n = 0;
        while (n < at.n && is_plain(at.at[n])) n++;
        if (n) return (Piece){at.at, n};
    }
    return (Piece){0};
}

static Piece answer_in(MxArena *arena, const RewardTags *t, Piece text) {
    Piece solution = last_solution(t, text), in = solution.at ? solution : text;
    Piece found = last_box(arena, in);
    if (!found.at) found = open_box(in);
    return found.at || !solution.at ? found : trim(solution);
}

/* ---- equal answers */

/* What says the same with or without it. */
static const char *const left_out[] = {"\\left", "\\right", "\\!", "\\$", "\\ ", "$", " ", "\n"};
static const char *const fractions[] = {"\\dfrac", "\\tfrac"};

static size_t skipped(const char *at) {
    for (int i = 0; i < MX_COUNT(left_out); i++)
        if (mx_text_has_prefix(at, left_out[i])) return strlen(left_out[i]);
    return 0;
}

/* Behind the last "=", in the simplest spelling. */
static char *simple(MxArena *arena, Piece p) {
    char *text = mx_arena_printf(arena, "%.*s", (int)p.n, p.at), *last = strrchr(text, '=');
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "%s", "");
    for (const char *at = last ? last + 1 : text; *at;) {
        bool is_fraction = false;
        for (int i = 0; i < MX_COUNT(fractions); i++)
            is_fraction |= mx_text_has_prefix(at, fractions[i]);
        size_t n = skipped(at);
        if (is_fraction)
            mx_text_add(&out, "\\frac"), at += strlen(fractions[0]);
        else if (n)
            at += n;
        else
            mx_text_addn(&out, at++, 1);
    }
    size_t n = out.len;
    if (n < 2 || out.data[0] != '{' || out.data[n - 1] != '}') return out.data;
    out.data[n - 1] = '\0';
    return out.data + 1;
}

/* An unsigned decimal, whose commas between digits say nothing; NULL = none. */
static const char *read_decimal(const char *at, double *out) {
    char digits[64], *end;
    size_t n = 0;
    bool has_point = false;
    for (; n + 1 < sizeof digits; at++) {
        if (*at == ',' && n && isdigit((unsigned char)at[1])) continue;
        if (!isdigit((unsigned char)*at) && (*at != '.' || has_point)) break;
        has_point |= *at == '.';
        digits[n++] = *at;
    }
    digits[n] = '\0';
    *out = strtod(digits, &end);
    return end == digits || *end ? NULL : at;
}

static const char *read_signed(const char *at, double *out) {
    bool is_negative = *at == '-';
    at = read_decimal(at + (*at == '-' || *at == '+'), out);
    if (is_negative) *out = -*out;
    return at;
}

/* a, a/b, \frac{a}{b}, with a sign. */
static bool read_number(const char *text, double *out) {
    static const char frac[] = "\\frac{";
    double below = 1, sign = *text == '-' ? -1 : 1;
    const char *at = text + (*text == '-');
    if (mx_text_has_prefix(at, frac)) {
        at = read_signed(at + strlen(frac), out);
        at = at && !strncmp(at, "}{", 2) ? read_signed(at + 2, &below) : NULL;
        at = at && *at == '}' ? at + 1 : NULL;
        *out *= sign;
    } else {
        at = read_signed(text, out);
        if (at && *at == '/') at = read_decimal(at + 1, &below);
    }
    *out /= below;
    return at && !*at && isfinite(*out);
}

static bool is_equal(MxArena *arena, Piece a, Piece b) {
    const double least_digit = 1e-6; /* math_verify rounds decimals to six */
    const char *left = simple(arena, a), *right = simple(arena, b);
    double x, y;
    if (*left && !strcmp(left, right)) return true;
    return read_number(left, &x) && read_number(right, &y) && fabs(x - y) < least_digit / 2;
}

static double answered(MxArena *arena, const RewardTags *t, Piece text, Piece answer) {
    Piece guess = answer_in(arena, t, text);
    if (!guess.at) return t->incorrect_answer;
    if (is_same(guess, answer)) return fmax(t->incorrect_format, t->exact_answer);
    if (is_same(trim(guess), trim(answer))) return fmax(t->incorrect_format, t->white_space);
    if (!is_equal(arena, guess, answer)) return t->incorrect_format;
    return fmax(t->incorrect_format, t->exact_answer);
}

double reward_tags(MxArena *arena, const RewardTags *tags, const char *text, size_t n,
                   const char *answer, size_t n_answer) {
    Piece all = {text, n};
    return (is_whole(tags, all) ? tags->exact_format : 0) + marks(tags, all) +
           answered(arena, tags, all, (Piece){answer, n_answer});
}

/* ---- evaluations */

RewardReply reward_tags_read(MxArena *arena, const RewardTags *tags, const char *text, size_t n) {
    static const char none[] = "-1000000";
    const Piece all = {text, n}, found = answer_in(arena, tags, all);
    const bool has_form = is_whole(tags, all);
    if (!found.at) return (RewardReply){none, sizeof none - 1, has_form};
    return (RewardReply){found.at, found.n, has_form};
}

bool reward_tags_is_right(MxArena *arena, const RewardReply *reply, const char *answer,
                          size_t n_answer, bool *is_near) {
    const double epsilon = 1e-6, low = 0.9, high = 1.1;
    const Piece said = {reply->answer, reply->n}, right = {answer, n_answer};
    double x, y;
    *is_near = is_equal(arena, said, right);
    if (*is_near) return true;
    if (!read_number(simple(arena, said), &x) || !read_number(simple(arena, right), &y))
        return false;
    const double ratio = (x + epsilon) / (y + epsilon);
    *is_near = ratio >= low && ratio <= high;
    return false;
}
