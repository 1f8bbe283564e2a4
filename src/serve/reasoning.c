/* reasoning.c — reasoning before answers: the marks of models, one row each, and how a text is read
 * with them. Sources: chat templates of the models; vLLM 0.11, reasoning/ *_parser.py. */
#include "call_formats.h"

static const Reasoning rows[] = {
    {
        .name = "harmony",
        .sign = "<|channel|>analysis",
        .begin = "<|channel|>analysis<|message|>",
        .end = "<|end|>",
        .next = "<|start|>assistant",
        .lead = "<|channel|>final<|message|>",
        .marks = {"<|channel|>", "<|message|>", "<|end|>", "<|start|>"},
    },
    {.name = "think", .begin = "<think>", .end = "</think>"},
    {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "gemma4",
     .begin = "<|channel>thought\n",
     .end = "<channel|>",
     .marks = {"<|channel>", "<channel|>"}},
    {.name = "command", .begin = "<|START_THINKING|>", .end = "<|END_THINKING|>"},
    {.name = "seed", .begin = "<seed:think>", .end = "</seed:think>"},
    {.name = "minimax_m3", .begin = "<mm:think>", .end = "</mm:think>"},
};

static bool has(const char *text, const Reasoning *row) {
    return row->sign ? strstr(text, row->sign) != NULL
                     : strstr(text, row->begin) || strstr(text, row->end);
}

const Reasoning *reasoning_of(const char *text) {
    int i = 0;
    while (i < MX_COUNT(rows) && !has(text, &rows[i])) i++;
    return i < MX_COUNT(rows) ? &rows[i] : NULL;
}

const char *reasoning_name(const Reasoning *how) {
    return how->name;
}

const char *reasoning_mark(const Reasoning *how, int i) {
    const char *own[] = {how->begin, how->end, NULL};
    return how->marks[0] ? how->marks[i] : own[i];
}

/* Whether a text ends with a mark, but for spaces behind both. */
static bool ends_with(const char *text, size_t n, const char *mark) {
    size_t n_mark = strlen(mark);
    while (n && calls_is_space(text[n - 1])) n--;
    while (calls_is_space(mark[n_mark - 1])) n_mark--;
    return n >= n_mark && !memcmp(text + n - n_mark, mark, n_mark);
}

ReasoningState reasoning_state(const Reasoning *how, const char *prompt, size_t n) {
    return !how || ends_with(prompt, n, how->end) ? REASONING_OVER
           : ends_with(prompt, n, how->begin)     ? REASONING_IN
                                                  : REASONING_MAY;
}

void reasoning_init(Reasoned *out, MxArena *arena, const Reasoning *how, ReasoningState state) {
    *out = (Reasoned){.how = how, .state = how ? state : REASONING_OVER};
    mx_text_init(&out->text, arena);
}

static void add(Reasoned *out, const char *from, const char *to) {
    while (!out->text.len && from < to && calls_is_space(*from)) from++;
    if (from < to) mx_text_addn(&out->text, from, (size_t)(to - from));
}

static const char *without_spaces(const char *from, const char *to) {
    while (to > from && calls_is_space(to[-1])) to--;
    return to;
}

/* How much of a mark's beginning a text ends with. */
static size_t begun(const Rest *rest, const char *mark) {
    size_t n = (size_t)(rest->end - rest->at), k = strlen(mark) - 1;
    for (k = k < n ? k : n; k && memcmp(rest->end - k, mark, k);) k--;
    return k;
}

static bool read_beginning(Reasoned *out, Rest *rest) {
    Rest here = *rest;
    calls_skip_spaces(&here);
    if (here.at == here.end && !rest->is_over) return false;
    Found found = calls_skip(&here, out->how->begin);
    if (found == FOUND_PART) return false;
    out->state = found == FOUND_CALL ? REASONING_IN : REASONING_OVER;
    if (found == FOUND_CALL) rest->at = here.at;
    return true;
}

static bool read_inside(Reasoned *out, Rest *rest) {
    const char *end = out->how->end;
    const char *found = memmem(rest->at, (size_t)(rest->end - rest->at), end, strlen(end));
    const char *to = found ? found : rest->end - (rest->is_over ? 0 : begun(rest, end));
    to = without_spaces(rest->at, to);
    add(out, rest->at, to);
    rest->at = found ? found + strlen(end) : rest->is_over ? rest->end : to;
    if (!found) return false;
    calls_skip_spaces(rest);
    out->state = REASONING_OVER;
    return true;
}

bool reasoning_read(Reasoned *out, Rest *rest) {
    bool goes_on = true;
    if (out->state == REASONING_MAY) goes_on = read_beginning(out, rest);
    if (goes_on && out->state == REASONING_IN) goes_on = read_inside(out, rest);
    return goes_on && out->state == REASONING_OVER;
}
