/* source.c — messages: where a value came from, its line, a caret below it, a hint. Shows the first
 * errors and counts the rest, so that the output for a nonsensical file stays readable. */
#include "room.h"

enum { MOST_ERRORS_SHOWN = 40, WIDEST_LINE = 96, LONGEST_QUOTE = 60 };

ConfigSource *config_source_add(ConfigLoad *load, const char *name, const char *text, size_t size,
                                bool has_lines) {
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors put before a file */
    ConfigSource *source = mx_new(load->arena, ConfigSource);
    size_t skipped =
        has_lines && size >= strlen(mark) && !memcmp(text, mark, strlen(mark)) ? strlen(mark) : 0;
    *source = (ConfigSource){.name = mx_arena_strdup(load->arena, name),
                             .text = text + skipped,
                             .size = size - skipped,
                             .has_lines = has_lines,
                             .next = load->sources};
    load->sources = source;
    return source;
}

const char *config_shorten(MxArena *arena, const char *text) {
    size_t n = strlen(text);
    if (n <= LONGEST_QUOTE) return text;
    n = LONGEST_QUOTE;
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--; /* not inside a UTF-8 character */
    return mx_arena_printf(arena, "%.*s...", (int)n, text);
}

const char *config_quote(MxArena *arena, const MxYaml *node) {
    if (node->kind == MX_YAML_NULL) return "null";
    if (node->kind == MX_YAML_LIST || node->kind == MX_YAML_MAP)
        return config_shorten(arena, mx_yaml_text(arena, node));
    bool is_string = node->kind == MX_YAML_STRING;
    return mx_arena_printf(arena, is_string ? "\"%s\"" : "%s", config_shorten(arena, node->text));
}

static size_t char_bytes(const char *s, size_t left) {
    size_t n = 1;
    while (n < left && ((unsigned char)s[n] & 0xc0) == 0x80) n++;
    return n;
}

/* The line's text, at most WIDEST_LINE characters around the caret, and the caret's indent. */
static void cut_line(const char *line, size_t size, int col, MxText *shown, MxText *indent) {
    int first = col > WIDEST_LINE * 3 / 4 ? col - WIDEST_LINE / 2 : 1;
    if (first > 1) {
        mx_text_add(shown, "...");
        mx_text_add(indent, "   ");
    }
    int at = 1;
    for (size_t i = 0; i < size && at < first + WIDEST_LINE; at++) {
        size_t n = char_bytes(line + i, size - i);
        bool is_control = (unsigned char)line[i] < ' ' && line[i] != '\t';
        if (at >= first) mx_text_addn(shown, is_control ? "?" : line + i, is_control ? 1 : n);
        if (at >= first && at < col) mx_text_addn(indent, line[i] == '\t' ? "\t" : " ", 1);
        i += n;
    }
}

static const ConfigSource *source_of(const ConfigSource *sources, MxWhere where) {
    for (const ConfigSource *s = sources; s; s = s->next)
        if (s->name == where.file) return s;
    return NULL;
}

/* The source line and caret of a place as notes on the last error. */
static void show_source(MxError *err, const ConfigSource *sources, MxWhere where) {
    const ConfigSource *source = source_of(sources, where);
    if (!source || !source->text || (source->has_lines && !where.line)) return;
    const char *line = source->text, *end = source->text + source->size;
    for (int i = 1; i < where.line && line < end; i++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        line = next ? next + 1 : end;
    }
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    size_t size = (size_t)((stop ? stop : end) - line);
    MxText shown, indent;
    mx_text_init(&shown, &err->arena);
    mx_text_init(&indent, &err->arena);
    cut_line(line, size, where.col, &shown, &indent);
    if (!source->has_lines) {
        mx_note(err, "  %s", shown.data);
        if (where.col) mx_note(err, "  %s^", indent.data);
        return;
    }
    const char *number = mx_arena_printf(&err->arena, "%d", where.line);
    mx_note(err, "  %s | %s", number, shown.data);
    if (where.col) mx_note(err, "  %*s | %s^", (int)strlen(number), "", indent.data);
}

bool config_report(ConfigLoad *load, MxWhere where, const char *fmt, ...) {
    if (load->n_errors++ >= MOST_ERRORS_SHOWN) return false;
    va_list ap;
    va_start(ap, fmt);
    mx_fail(load->err, MX_EXIT_CONFIG, where, "%s", mx_arena_vprintf(load->arena, fmt, ap));
    va_end(ap);
    show_source(load->err, load->sources, where);
    return false;
}

/* Whether the last error was shown; a hint that is dear to make asks first. */
static bool is_shown(const ConfigLoad *load) {
    return load->n_errors <= MOST_ERRORS_SHOWN;
}

void config_hint(ConfigLoad *load, const char *fmt, ...) {
    if (!is_shown(load)) return;
    va_list ap;
    va_start(ap, fmt);
    mx_note(load->err, "hint: %s", mx_arena_vprintf(load->arena, fmt, ap));
    va_end(ap);
}

void config_hint_nearest(ConfigLoad *load, const char *nearest) {
    if (nearest) config_hint(load, "did you mean \"%s\"?", nearest);
}

void config_hint_meant(ConfigLoad *load, const char *key) {
    const char *hint = is_shown(load) ? config_meant_key(load->arena, key) : NULL;
    if (hint) config_hint(load, "%s", hint);
}

void config_errors_end(ConfigLoad *load) {
    if (load->n_errors > MOST_ERRORS_SHOWN)
        mx_fail(load->err, MX_EXIT_CONFIG, MX_NOWHERE, "%d more errors",
                load->n_errors - MOST_ERRORS_SHOWN);
}

void config_warn(ConfigLoad *load, MxWhere where, const char *fmt, ...) {
    MxText text;
    mx_text_init(&text, load->arena);
    if (where.file) mx_text_add(&text, "%s:", where.file);
    if (where.line) mx_text_add(&text, "%d:%d:", where.line, where.col);
    if (where.file) mx_text_add(&text, " ");
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&text, fmt, ap);
    va_end(ap);
    MxStrs *list = &load->warnings;
    if (list->n == load->warnings_cap) {
        load->warnings_cap = load->warnings_cap ? 2 * load->warnings_cap : 8;
        list->item = mx_arena_grow(load->arena, list->item, (size_t)list->n,
                                   (size_t)load->warnings_cap, sizeof *list->item);
    }
    list->item[list->n++] = text.data;
}

/* ---- after loading ---- */

MxWhere mx_config_where(const MxConfig *config, MxKey key) {
    return config->trail->slots[key].value->where;
}

const char *mx_config_found(MxArena *arena, const MxConfig *config, const MxConfigFound *found) {
    MxText text;
    mx_text_init(&text, arena);
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const char *file = mx_config_where(config, (MxKey)key).file;
        const ConfigSlot *slot = &config->trail->slots[key];
        bool is_usual = config_node_equal(arena, slot->value, slot->given[CONFIG_FROM_DEFAULT]);
        if (!file || strcmp(file, found->name) || is_usual) continue;
        mx_text_add(&text, "%s%s=%s", text.len ? " " : "", mx_key_name((MxKey)key),
                    mx_config_value(arena, config, (MxKey)key));
    }
    return text.data;
}

bool mx_config_fail(MxError *err, const MxConfig *config, MxKey key, const char *fmt, ...) {
    MxArena arena = {.name = "message"};
    va_list ap;
    va_start(ap, fmt);
    MxWhere where = mx_config_where(config, key);
    mx_fail(err, MX_EXIT_CONFIG, where, "%s: %s", mx_key_name(key),
            mx_arena_vprintf(&arena, fmt, ap));
    va_end(ap);
    show_source(err, config->trail->sources, where);
    mx_arena_release(&arena);
    return false;
}

bool config_fail(ConfigLoad *load, MxKey key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = mx_arena_vprintf(load->arena, fmt, ap);
    va_end(ap);
    load->slots[key].is_bad = true;
    return config_report(load, load->slots[key].value->where, "%s: %s", mx_key_name(key), text);
}
