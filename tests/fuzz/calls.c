/* calls.c — fuzz target for calls of tools in answers. The first byte of the input chooses the
 * format and the size of the pieces in which the rest of it comes. Pieces of one size make what all
 * of it makes at once, and arguments are JSON. */
#include "serve/calls.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How a call of f begins in each format. */
static const char *const signs[] = {"<tool_call>{", "[TOOL_CALLS][{\"name\":\"f\"",
                                    "[TOOL_CALLS]f[", "{\"name\":\"f\",\"parameters\":"};

static void need(bool holds) {
    if (!holds) abort();
}

static bool same(const MxText *a, const MxText *b) {
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

static void check_calls(const Calls *a, const Calls *b) {
    need(a->n == b->n && same(&a->content, &b->content));
    for (int64_t i = 0; i < a->n; i++) {
        need(!strcmp(a->call[i].name, b->call[i].name) && *a->call[i].name);
        need(!strcmp(a->call[i].arguments, b->call[i].arguments));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LARGEST = 1 << 12, SIZES = 16, FORMATS = MX_COUNT(signs) };
    MxArena arena = {.name = "fuzz"};
    Calls whole, pieces;
    if (!size || size > LARGEST) return 0;
    const CallFormat *format = calls_format_of(signs[data[0] % FORMATS], "f");
    size_t some = 1 + data[0] / FORMATS % SIZES, n = size - 1;
    const char *text = (const char *)data + 1;
    calls_init(&whole, &arena, format, INT64_MAX);
    calls_add(&whole, text, n, true);
    calls_init(&pieces, &arena, format, INT64_MAX);
    for (size_t at = 0; at < n; at += some)
        calls_add(&pieces, text + at, n - at < some ? n - at : some, false);
    calls_add(&pieces, "", 0, true);
    check_calls(&whole, &pieces);
    need(whole.content.len <= n);
    mx_arena_release(&arena);
    return 0;
}
