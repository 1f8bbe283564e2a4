/* calls.c — fuzz target for calls of tools in answers. The first byte of the input chooses the
 * format and the size of the pieces in which the rest of it comes. Pieces of one size make what all
 * of it makes at once, and what is told of a call's
 * arguments only grows. */
#include "serve/calls.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds) {
    if (!holds) abort();
}

static bool same(const MxText *a, const MxText *b) {
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

static void check_calls(const Calls *a, const Calls *b) {
    need(a->n == b->n && same(&a->content, &b->content));
    need(same(&a->reasoned.text, &b->reasoned.text));
    for (int64_t i = 0; i < a->n; i++) {
        need(!strcmp(a->call[i].name, b->call[i].name) && *a->call[i].name);
        need(!strcmp(a->call[i].arguments, b->call[i].arguments));
    }
}

/* The last call that was told is still there, and has more or as many arguments. */
static void check_grows(const Calls *calls, int64_t *n_told, MxText *told) {
    const int64_t n = calls->n + calls->n_open;
    need(n >= *n_told);
    if (*n_told) {
        const Call *last = &calls->call[*n_told - 1];
        need(last->n_arguments >= told->len && !memcmp(last->arguments, told->data, told->len));
    }
    mx_text_clear(told);
    if (n) mx_text_addn(told, calls->call[n - 1].arguments, calls->call[n - 1].n_arguments);
    *n_told = n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LARGEST = 1 << 12, SIZES = 16 };
    static const char types[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":"
        "\"string\"}}}}}]";
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    Calls whole, pieces;
    MxText told;
    int formats = 0;
    int64_t n_told = 0;
    if (!size || size > LARGEST) return 0;
    while (calls_format_at(formats)) formats++;
    const CallFormat *format = calls_format_at(data[0] % formats);
    const MxJson *tools = mx_json_parse_value(&arena, types, sizeof types - 1, MX_NOWHERE, &err);
    size_t some = 1 + (size_t)(data[0] / formats % SIZES), n = size - 1;
    const char *text = (const char *)data + 1;
    mx_text_init(&told, &arena);
    const CallReading how = {.format = format,
                             .tools = tools,
                             .most = INT64_MAX,
                             .reasoning = mx_reasoning_of("</think>"),
                             .state = (MxReasoningState)(data[0] / formats / SIZES % 3)};
    calls_init(&whole, &arena, how);
    calls_add(&whole, text, n, true);
    calls_init(&pieces, &arena, how);
    for (size_t at = 0; at < n; at += some) {
        calls_add(&pieces, text + at, n - at < some ? n - at : some, false);
        check_grows(&pieces, &n_told, &told);
    }
    calls_add(&pieces, "", 0, true);
    check_grows(&pieces, &n_told, &told);
    check_calls(&whole, &pieces);
    need(whole.content.len <= n);
    mx_arena_release(&arena);
    return 0;
}
