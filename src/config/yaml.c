/* yaml.c — converts libyaml's events to MxYaml; the only file that includes libyaml. Input that
 * only an attacker or an accident produces is refused early: libyaml is quadratic in nesting depth,
 * so depth is counted event by event; aliases are shared, but every use counts with the full size
 * of its value. */
#include "room.h"

#include <yaml.h>

/* A list or map that is not closed yet. */
typedef struct Frame {
    MxYaml *node;
    int cap;
    const char *key; /* of a map: set when the next value belongs to it */
    MxWhere key_where;
    const MxYaml *merge; /* value of << */
    MxMap seen;          /* of a map: key → line */
} Frame;

typedef struct Anchor {
    const MxYaml *node;
    bool is_open;
} Anchor;

typedef struct Builder {
    ConfigLoad *load;
    const ConfigSource *source;
    size_t offset;
    Frame stack[CONFIG_DEEPEST];
    int depth;
    const MxYaml *root;
    MxMap anchors; /* name → index */
    Anchor *anchor;
    int n_anchors, cap_anchors;
    int64_t n_values;
} Builder;

static MxWhere where_of(const Builder *b, yaml_mark_t mark) {
    return (MxWhere){.file = b->source->name,
                     .line = b->source->has_lines ? (int)mark.line + 1 : 0,
                     .col = (int)mark.column + 1 + (b->source->has_lines ? 0 : (int)b->offset)};
}

static bool count_values(Builder *b, int64_t n, MxWhere where) {
    b->n_values += n;
    if (b->n_values <= CONFIG_MOST_VALUES) return true;
    return config_report(b->load, where, "holds more than %d values, counting aliases in full",
                         CONFIG_MOST_VALUES);
}

static bool add_pair(Builder *b, Frame *frame, MxYamlPair pair) {
    MxArena *arena = b->load->arena;
    MxYaml *map = frame->node;
    int64_t line = mx_map_get(&frame->seen, pair.key, -1);
    if (line >= 0) {
        config_report(b->load, pair.where, "duplicate key \"%s\"", config_shorten(arena, pair.key));
        if (line) config_hint(b->load, "it stands on line %lld already", (long long)line);
        return false;
    }
    mx_map_set(&frame->seen, pair.key, pair.where.line);
    if (map->n == frame->cap) {
        frame->cap = frame->cap ? 2 * frame->cap : 8;
        map->pair =
            mx_arena_grow(arena, map->pair, (size_t)map->n, (size_t)frame->cap, sizeof *map->pair);
    }
    map->pair[map->n++] = pair;
    return true;
}

static void add_item(Builder *b, Frame *frame, const MxYaml *value) {
    MxYaml *list = frame->node;
    if (list->n == frame->cap) {
        frame->cap = frame->cap ? 2 * frame->cap : 8;
        list->item = mx_arena_grow(b->load->arena, list->item, (size_t)list->n, (size_t)frame->cap,
                                   sizeof *list->item);
    }
    list->item[list->n++] = value;
}

/* A node that is not closed yet has at least so many levels in it. */
static bool deepen(Builder *b, MxYaml *node, int depth, MxWhere where) {
    if (depth > node->depth) node->depth = depth;
    return b->depth - 1 + depth <= CONFIG_DEEPEST ||
           config_report(b->load, where, "nested deeper than %d levels", CONFIG_DEEPEST);
}

/* A finished value goes to where it belongs. */
static bool place(Builder *b, const MxYaml *value) {
    if (!b->depth) {
        b->root = value;
        return true;
    }
    Frame *frame = &b->stack[b->depth - 1];
    MxYaml *node = frame->node;
    node->expanded += value->expanded;
    const char *key = frame->key;
    frame->key = NULL;
    if (key && !strcmp(key, "<<") && !frame->merge) {
        frame->merge = value;
        return true;
    }
    if (!deepen(b, node, value->depth + 1, value->where)) return false;
    if (node->kind == MX_YAML_LIST) {
        add_item(b, frame, value);
        return true;
    }
    return add_pair(b, frame, (MxYamlPair){.key = key, .where = frame->key_where, .value = value});
}

/* The pairs of a map below << that the map does not have itself. */
static bool merge_map(Builder *b, Frame *frame, const MxYaml *from) {
    if (from->kind != MX_YAML_MAP)
        return config_report(b->load, from->where, "<< wants a map or a list of maps, found %s",
                             config_quote(b->load->arena, from));
    if (!count_values(b, from->expanded, from->where)) return false;
    if (!deepen(b, frame->node, from->depth, from->where)) return false;
    for (int i = 0; i < from->n; i++)
        if (mx_map_get(&frame->seen, from->pair[i].key, -1) < 0)
            if (!add_pair(b, frame, from->pair[i])) return false;
    return true;
}

static bool close_frame(Builder *b) {
    Frame *frame = &b->stack[b->depth - 1];
    const MxYaml *merge = frame->merge;
    bool is_list = merge && merge->kind == MX_YAML_LIST;
    if (merge && !is_list && !merge_map(b, frame, merge)) return false;
    for (int i = 0; is_list && i < merge->n; i++)
        if (!merge_map(b, frame, merge->item[i])) return false;
    for (int i = 0; i < b->n_anchors; i++)
        if (b->anchor[i].node == frame->node) b->anchor[i].is_open = false;
    b->depth--;
    return place(b, frame->node);
}

static void remember_anchor(Builder *b, const yaml_char_t *name, const MxYaml *node, bool is_open) {
    if (!name) return;
    if (b->n_anchors == b->cap_anchors) {
        b->cap_anchors = b->cap_anchors ? 2 * b->cap_anchors : 8;
        b->anchor = mx_arena_grow(b->load->arena, b->anchor, (size_t)b->n_anchors,
                                  (size_t)b->cap_anchors, sizeof *b->anchor);
    }
    mx_map_set(&b->anchors, mx_arena_strdup(b->load->arena, (const char *)name), b->n_anchors);
    b->anchor[b->n_anchors++] = (Anchor){.node = node, .is_open = is_open};
}

/* Only YAML's own tags, and only where they change nothing or make a string. */
static bool tag_is_fine(Builder *b, const yaml_char_t *tag, const char *kinds, MxWhere where) {
    static const char prefix[] = "tag:yaml.org,2002:";
    if (!tag || !strcmp((const char *)tag, "!")) return true;
    const char *name = (const char *)tag;
    if (mx_text_has_prefix(name, prefix) && config_word_in(kinds, name + strlen(prefix)))
        return true;
    return config_report(b->load, where, "tag \"%s\" is not allowed",
                         config_shorten(b->load->arena, name));
}

static bool on_scalar(Builder *b, const yaml_event_t *event) {
    MxArena *arena = b->load->arena;
    MxWhere where = where_of(b, event->start_mark);
    const yaml_char_t *tag = event->data.scalar.tag;
    if (!tag_is_fine(b, tag, "str", where)) return false;
    const char *bytes = (const char *)event->data.scalar.value;
    size_t size = event->data.scalar.length;
    if (memchr(bytes, '\0', size))
        return config_report(b->load, where, "a value holds a NUL character");
    const char *text = mx_arena_strndup(arena, bytes, size);
    bool is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !tag;
    Frame *frame = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (frame && frame->node->kind == MX_YAML_MAP && !frame->key) {
        frame->key = text;
        frame->key_where = where;
        return true;
    }
    MxYaml *node = config_node_new(arena, MX_YAML_STRING, where);
    node->text = text;
    node->is_quoted = !is_plain;
    if (is_plain) config_type_scalar(node);
    remember_anchor(b, event->data.scalar.anchor, node, false);
    return count_values(b, 1, where) && place(b, node);
}

static bool open_frame(Builder *b, const yaml_event_t *event, MxYamlKind kind) {
    MxWhere where = where_of(b, event->start_mark);
    bool is_map = kind == MX_YAML_MAP;
    Frame *outer = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (outer && outer->node->kind == MX_YAML_MAP && !outer->key)
        return config_report(b->load, where, "a key must be a single word, not a list or map");
    if (b->depth == CONFIG_DEEPEST - 1)
        return config_report(b->load, where, "nested deeper than %d levels", CONFIG_DEEPEST);
    const yaml_char_t *tag =
        is_map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    if (!tag_is_fine(b, tag, is_map ? "map" : "seq", where)) return false;
    Frame *frame = &b->stack[b->depth++];
    *frame = (Frame){.node = config_node_new(b->load->arena, kind, where)};
    if (is_map) mx_map_init(&frame->seen, b->load->arena);
    remember_anchor(b,
                    is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor,
                    frame->node, true);
    return count_values(b, 1, where);
}

static bool on_alias(Builder *b, const yaml_event_t *event) {
    MxWhere where = where_of(b, event->start_mark);
    const char *name = (const char *)event->data.alias.anchor;
    Frame *frame = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (frame && frame->node->kind == MX_YAML_MAP && !frame->key)
        return config_report(b->load, where, "an alias cannot be a key");
    int64_t i = mx_map_get(&b->anchors, name, -1);
    if (i < 0) {
        config_report(b->load, where, "alias \"*%s\" has no anchor before it",
                      config_shorten(b->load->arena, name));
        config_hint(b->load, "quote a value that begins with *");
        return false;
    }
    if (b->anchor[i].is_open)
        return config_report(b->load, where, "alias \"*%s\" stands inside its own anchor",
                             config_shorten(b->load->arena, name));
    const MxYaml *node = b->anchor[i].node;
    return count_values(b, node->expanded, where) && place(b, node);
}

static bool on_event(Builder *b, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event);
    case YAML_ALIAS_EVENT:
        return on_alias(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_frame(b, event, MX_YAML_LIST);
    case YAML_MAPPING_START_EVENT:
        return open_frame(b, event, MX_YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_frame(b);
    case YAML_DOCUMENT_START_EVENT:
        return !b->root || config_report(b->load, where_of(b, event->start_mark),
                                         "a second document begins; only one is allowed");
    default:
        return true;
    }
}

/* Line and column of a byte: the reader's errors (bad UTF-8, control characters) only know that. */
static MxWhere where_of_byte(const Builder *b, size_t at) {
    const char *text = b->source->text + b->offset;
    MxWhere where = {.file = b->source->name, .line = 1, .col = 1};
    for (size_t i = 0; i < at && i < b->source->size - b->offset; i++) {
        where.col++;
        if (text[i] != '\n') continue;
        where.line++;
        where.col = 1;
    }
    if (!b->source->has_lines) where.line = 0;
    return where;
}

static bool parser_failed(Builder *b, const yaml_parser_t *parser) {
    const char *problem = parser->problem ? parser->problem : "malformed YAML";
    if (parser->error == YAML_READER_ERROR)
        return config_report(b->load, where_of_byte(b, parser->problem_offset),
                             "not UTF-8 text: %s", problem);
    config_report(b->load, where_of(b, parser->problem_mark), "%s%s%s", problem,
                  parser->context ? " " : "", parser->context ? parser->context : "");
    if (parser->context && parser->context_mark.line != parser->problem_mark.line)
        config_hint(b->load, "it begins on line %d", (int)parser->context_mark.line + 1);
    return false;
}

static bool is_text(Builder *b) {
    const unsigned char *bytes = (const unsigned char *)b->source->text;
    size_t size = b->source->size;
    MxWhere where = {.file = b->source->name};
    if (size >= 2 &&
        ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff)))
        return config_report(b->load, where, "is UTF-16; save it as UTF-8");
    const unsigned char *nul = memchr(bytes, '\0', size);
    if (!nul) return true;
    return config_report(b->load, where, "is not a text file: NUL at byte %td", nul - bytes);
}

const MxYaml *config_parse(ConfigLoad *load, const ConfigSource *source, size_t offset) {
    Builder *b = mx_new(load->arena, Builder);
    *b = (Builder){.load = load, .source = source, .offset = offset};
    mx_map_init(&b->anchors, load->arena);
    if (!is_text(b)) return NULL;
    yaml_parser_t parser;
    MX_ASSERT(yaml_parser_initialize(&parser));
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)source->text + offset,
                                 source->size - offset);
    bool ok = true;
    for (bool at_end = false; ok && !at_end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            ok = parser_failed(b, &parser);
            break;
        }
        at_end = event.type == YAML_STREAM_END_EVENT;
        ok = on_event(b, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (!ok) return NULL;
    MxWhere start = {.file = source->name, .line = source->has_lines, .col = (int)offset + 1};
    return b->root ? b->root : config_node_new(load->arena, MX_YAML_NULL, start);
}
