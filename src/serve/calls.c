/* calls.c — calls of tools in an answer's text. The text is read from the last mark again with each
 * piece until the call is complete; text that looks like a call and is none stays text. */
#include "call_formats.h"

/* ---- calls that have begun */

void calls_open(Calls *calls, const char *name, size_t n) {
    if (calls->n + calls->n_open == calls->cap) {
        int64_t more = 2 * calls->cap + 4;
        calls->call = mx_arena_grow(calls->arena, calls->call, (size_t)calls->cap, (size_t)more,
                                    sizeof *calls->call);
        calls->cap = more;
    }
    const char *copy = mx_arena_strndup(&calls->opened, name, n);
    calls->call[calls->n + calls->n_open++] = (Call){.name = copy, .arguments = ""};
}

void calls_open_arguments(Calls *calls, const char *arguments, size_t n) {
    Call *last = &calls->call[calls->n + calls->n_open - 1];
    last->arguments = arguments;
    last->n_arguments = n;
}

/* Those that are open stay. */
static void settle(Calls *calls) {
    for (; calls->n_open; calls->n_open--) {
        if (calls->n == calls->most) continue;
        Call *call = &calls->call[calls->n++];
        call->name = mx_arena_strdup(calls->arena, call->name);
        call->arguments = mx_arena_strndup(calls->arena, call->arguments, call->n_arguments);
    }
}

/* ---- */

void calls_init(Calls *calls, MxArena *arena, CallReading how) {
    *calls = (Calls){.arena = arena,
                     .format = how.format,
                     .tools = how.tools,
                     .most = how.most,
                     .opened = {.name = "open calls"}};
    mx_reasoning_init(&calls->reasoned, arena, how.reasoning, how.state);
    mx_text_init(&calls->text, arena);
    mx_text_init(&calls->content, arena);
}

static bool is_blank(const MxText *text) {
    for (size_t i = 0; i < text->len; i++)
        if (!mx_is_space(text->data[i])) return false;
    return true;
}

/* Whether some mark stands here, of those from `from` to `to`. */
static MxFound is_mark(const CallFormat *format, MxRest here, int from, int to) {
    MxFound found = MX_FOUND_NONE;
    for (int i = from; i < to && found == MX_FOUND_NONE; i++) {
        MxRest rest = here;
        found = mx_rest_skip(&rest, format->marks[i]);
    }
    return found;
}

/* Skips text up to a call or a mark around one; MX_FOUND_PART: to what may become one. */
static MxFound find_mark(const Calls *calls, MxRest *rest) {
    const CallFormat *f = calls->format;
    bool may = f && (!f->is_whole || is_blank(&calls->content));
    if (!may) rest->at = rest->end;
    for (; rest->at < rest->end; rest->at++) {
        MxFound found = may ? is_mark(f, *rest, 0, f->n_begins + f->n_skipped) : MX_FOUND_NONE;
        if (found != MX_FOUND_NONE) return found;
        may &= !f->is_whole || mx_is_space(*rest->at);
    }
    return MX_FOUND_NONE;
}

static void add_content(Calls *calls, const char *from, const char *to) {
    if (to == from) return;
    mx_text_addn(&calls->content, from, (size_t)(to - from));
    calls->is_behind = false;
}

/* A call at its mark, or a mark around calls. */
static MxFound read_mark(Calls *calls, MxRest *rest) {
    const CallFormat *f = calls->format;
    for (int i = f->n_begins; i < f->n_begins + f->n_skipped; i++)
        if (is_mark(f, *rest, i, i + 1) == MX_FOUND_CALL) return mx_rest_skip(rest, f->marks[i]);
    MxFound found = f->read(calls, rest);
    return found == MX_FOUND_NONE && calls->n_open ? MX_FOUND_CALL : found;
}

/* Whether all that is left is the beginning of a mark. */
static bool is_part_of_mark(const CallFormat *format, const MxRest *rest) {
    MxRest here = *rest;
    here.is_over = false;
    int n = 0;
    while (format->marks[n]) n++;
    return is_mark(format, here, 0, n) == MX_FOUND_PART;
}

/* Some text, or a call; false = there is nothing that can be read yet. */
static bool read_on(Calls *calls, bool is_over) {
    const char *start = calls->text.data + calls->done;
    MxRest rest = {start, calls->text.data + calls->text.len, is_over};
    const char separator = calls->n ? calls->format->separator : 0;
    while (calls->is_behind && rest.at < rest.end &&
           (mx_is_space(*rest.at) || (separator && *rest.at == separator)))
        rest.at++;
    if (is_over && calls->n && calls->is_behind && is_part_of_mark(calls->format, &rest))
        rest.at = rest.end;
    const char *from = rest.at;
    MxFound found = find_mark(calls, &rest);
    add_content(calls, from, rest.at);
    calls->done += (size_t)(rest.at - start);
    if (found != MX_FOUND_CALL || rest.at == rest.end) return false;
    const char *mark = rest.at;
    found = read_mark(calls, &rest);
    if (found == MX_FOUND_PART) return false;
    if (found == MX_FOUND_NONE) {
        add_content(calls, mark, mark + 1);
        rest.at = mark + 1;
    } else {
        settle(calls);
        calls->is_behind = true;
    }
    calls->done += (size_t)(rest.at - mark);
    return true;
}

/* False = the reasoning is not over. */
static bool is_reasoned(Calls *calls, bool is_over) {
    if (calls->reasoned.state == MX_REASONING_OVER) return true;
    const char *start = calls->text.data + calls->done;
    MxRest rest = {start, calls->text.data + calls->text.len, is_over};
    bool out = mx_reasoning_read(&calls->reasoned, &rest);
    calls->is_behind = rest.at > start;
    calls->done += (size_t)(rest.at - start);
    return out;
}

void calls_add(Calls *calls, const char *text, size_t n, bool is_over) {
    if (n) mx_text_addn(&calls->text, text, n);
    for (bool goes_on = calls->text.len > 0 && is_reasoned(calls, is_over); goes_on;) {
        calls_release(calls);
        goes_on = read_on(calls, is_over);
    }
    if (calls->n + calls->n_open > calls->most) calls->n_open = calls->most - calls->n;
    if (is_over) calls_release(calls);
}

void calls_release(Calls *calls) {
    calls->n_open = 0;
    mx_arena_release(&calls->opened);
    calls->opened = (MxArena){.name = "open calls"};
}

bool calls_are_all(const Calls *calls) {
    return is_blank(&calls->content);
}

const char *calls_id(MxArena *arena, const Calls *calls, int64_t i) {
    MxText out;
    const char *form = calls->format->id;
    if (!form) return NULL;
    mx_text_init(&out, arena);
    for (; *form; form++) {
        if (*form == '%')
            mx_text_add(&out, "%s", calls->call[i].name);
        else if (*form == '#')
            mx_text_add(&out, "%lld", (long long)i);
        else
            mx_text_addn(&out, form, 1);
    }
    return out.data;
}
