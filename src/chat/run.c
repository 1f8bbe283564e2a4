/* run.c — a rendering as a whole: its limits, scopes of names, variables, and its result. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

/* What a template may do. Those of real models need thousands of steps. */
enum { MOST_STEPS = 20 * 1000 * 1000, DEEPEST = 400, MOST_BYTES = 256 << 20 };

ChatValue chat_fail(ChatRun *run, const char *fmt, ...) {
    if (run->failed) return (ChatValue){0};
    va_list ap;
    va_start(ap, fmt);
    const char *message = mx_arena_vprintf(run->arena, fmt, ap);
    va_end(ap);
    run->failed = true;
    mx_fail(run->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = run->made_of->name, .line = run->line},
            "%s", message);
    return (ChatValue){0};
}

bool chat_spend(ChatRun *run, size_t steps) {
    run->steps += (int64_t)(steps < MOST_STEPS ? steps : MOST_STEPS);
    if (run->steps > MOST_STEPS)
        chat_fail(run, "the template takes more than %d steps", MOST_STEPS);
    return !run->failed;
}

bool chat_enter(ChatRun *run) {
    if (run->failed) return false;
    if (run->depth < DEEPEST) return ++run->depth, true;
    chat_fail(run, "nested deeper than %d levels", DEEPEST);
    return false;
}

void chat_leave(ChatRun *run) {
    run->depth--;
}

static bool has_room(ChatRun *run, size_t n, size_t bytes) {
    size_t used = run->arena->used_bytes;
    bool fits = used <= MOST_BYTES && n <= (MOST_BYTES - used) / bytes;
    if (!fits) chat_fail(run, "the template takes more than %d MiB of memory", MOST_BYTES >> 20);
    return fits && !run->failed;
}

void *chat_alloc(ChatRun *run, size_t n, size_t bytes) {
    return has_room(run, n, bytes) ? mx_arena_alloc(run->arena, n * bytes) : NULL;
}

void *chat_grow(ChatRun *run, void *items, int64_t n, int64_t *cap, size_t item_bytes) {
    if (n < *cap) return items;
    int64_t wanted = 2 * *cap + 4;
    void *more = chat_alloc(run, (size_t)wanted, item_bytes);
    if (!more) return NULL;
    if (n) memcpy(more, items, (size_t)n * item_bytes);
    *cap = wanted;
    return more;
}

void chat_add(ChatRun *run, MxText *out, const char *bytes, size_t n) {
    if (n && chat_spend(run, n / 64) && has_room(run, n, 1)) mx_text_addn(out, bytes, n);
}

MxText chat_builder(ChatRun *run) {
    MxText text;
    mx_text_init(&text, run->arena);
    return text;
}

/* ---- names */

void chat_set(ChatRun *run, const char *name, ChatValue value) {
    ChatScope *scope = run->scope;
    for (int64_t i = 0; i < scope->n; i++)
        if (!strcmp(scope->item[i].name, name)) {
            scope->item[i].value = value;
            return;
        }
    ChatBinding *item = chat_grow(run, scope->item, scope->n, &scope->cap, sizeof *item);
    if (!item) return;
    scope->item = item;
    scope->item[scope->n++] = (ChatBinding){name, value};
}

static void set_variables(ChatRun *run, const MxJson *variables) {
    const char *name;
    MxJson *value;
    for (int i = 0; i < chat_globals.n; i++)
        chat_set(run, chat_globals.rows[i].name,
                 chat_function(run, &chat_globals.rows[i], (ChatValue){0}));
    chat_set(run, "self", chat_dict_new(run));
    for (void *at = NULL; mx_json_next(variables, &at, &name, &value);)
        chat_set(run, name, chat_of_json(run, value));
}

/* ---- the whole */

bool mx_template_render(MxArena *arena, const MxTemplate *template, const MxJson *variables,
                        MxRendered *out, MxError *err) {
    MxArena scratch = {.name = "chat template"};
    ChatScope top = {0};
    MxText text;
    mx_text_init(&text, &scratch);
    ChatRun run = {.made_of = template,
                   .arena = &scratch,
                   .err = err,
                   .scope = &top,
                   .out = &text,
                   .root = &text};
    set_variables(&run, variables);
    chat_render(&run);
    if (!run.failed) {
        *out = (MxRendered){.text = mx_arena_strndup(arena, text.data, text.len), .n = text.len};
        out->spans = mx_new_n(arena, MxSpan, run.n_spans + 1);
        out->n_spans = run.n_spans;
        for (int i = 0; i < run.n_spans; i++) out->spans[i] = run.spans[i];
    }
    mx_arena_release(&scratch);
    return !run.failed;
}
