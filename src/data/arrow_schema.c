/* arrow_schema.c — the columns of an Arrow table, and the buffers of each. */
#include "arrow.h"

enum { DEEPEST = 32, MOST_FIELDS = 1 << 16 };

/* By Schema.fbs's union Type. */
enum {
    TYPE_INT = 2,
    TYPE_REAL = 3,
    TYPE_DATE = 8,
    TYPE_TIME = 9,
    TYPE_FIXED = 15,
    TYPE_FIXED_LIST = 16
};

static const struct Type {
    const char *name;
    ArrowKind kind;
    int width, n_buffers;
} types[] = {
    {"no type", ARROW_OTHER, 0, 0},
    {"null", ARROW_NULL, 0, 0},
    {"int", ARROW_INT, 0, 2},
    {"float", ARROW_REAL, 0, 2},
    {"binary", ARROW_BYTES, 4, 3},
    {"utf8", ARROW_BYTES, 4, 3},
    {"bool", ARROW_TRUTH, 0, 2},
    {"decimal", ARROW_OTHER, 0, 2},
    {"date", ARROW_INT, 4, 2},
    {"time", ARROW_INT, 4, 2},
    {"timestamp", ARROW_INT, 8, 2},
    {"interval", ARROW_OTHER, 0, 2},
    {"list", ARROW_LIST, 4, 2},
    {"struct", ARROW_STRUCT, 0, 1},
    {"union", ARROW_OTHER, 0, -1},
    {"fixed size binary", ARROW_FIXED, 0, 2},
    {"fixed size list", ARROW_FIXED_LIST, 0, 1},
    {"map", ARROW_LIST, 4, 2},
    {"duration", ARROW_INT, 8, 2},
    {"large binary", ARROW_BYTES, 8, 3},
    {"large utf8", ARROW_BYTES, 8, 3},
    {"large list", ARROW_LIST, 8, 2},
    {"run end encoded", ARROW_OTHER, 0, 0},
    {"binary view", ARROW_VIEW, 16, 2},
    {"utf8 view", ARROW_VIEW, 16, 2},
    {"list view", ARROW_OTHER, 0, 3},
    {"large list view", ARROW_OTHER, 0, 3},
};

/* What a type says besides its kind. */
static const char *take_type(int number, FlatTable type, ArrowField *out) {
    enum { WIDEST = 1 << 20 };
    int64_t width = out->width;
    if (number == TYPE_INT) {
        width = flat_int(type, 0, 4, 0) / 8;
        out->is_unsigned = !flat_int(type, 1, 1, 0);
        if (width != 1 && width != 2 && width != 4 && width != 8) return "integers of odd sizes";
    } else if (number == TYPE_REAL) {
        int64_t precision = flat_int(type, 0, 2, 0);
        if (precision < 0 || precision > 2) return "reals of unknown precision";
        width = 2 << precision;
    } else if (number == TYPE_DATE) {
        width = flat_int(type, 0, 2, 1) == 0 ? 4 : 8;
    } else if (number == TYPE_TIME) {
        width = flat_int(type, 1, 4, 32) == 64 ? 8 : 4;
    } else if (number == TYPE_FIXED || number == TYPE_FIXED_LIST) {
        width = flat_int(type, 0, 4, 0);
        if (width < 0 || width > WIDEST) return "values of no size, or of more than 1048576 parts";
    }
    out->width = (int)width;
    return NULL;
}

static const char *take_name(MxArena *arena, FlatTable field, const ArrowField *parent,
                             ArrowField *out) {
    MxProto name = flat_text(field, 0);
    size_t n = (size_t)(name.end - name.at);
    const char *text = n ? (const char *)name.at : "";
    if (memchr(text, 0, n) || mx_utf8_valid_bytes(text, n) < n)
        return "the name of a column is not UTF-8";
    out->name = mx_arena_strndup(arena, text, n);
    out->path = parent->path ? mx_arena_printf(arena, "%s.%s", parent->path, out->name) : out->name;
    return NULL;
}

/* What is being read. */
typedef struct Schema {
    MxArena *arena;
    int n_fields;
    ArrowDictionary *first;
} Schema;

/* A column of numbers, and the column of what they stand for. Source: Schema.fbs, table
 * DictionaryEncoding: 0 id, 1 indexType. */
static const char *take_dictionary(Schema *s, FlatTable encoding, ArrowField *out,
                                   ArrowField **values) {
    ArrowDictionary *own = out->dictionary = mx_new(s->arena, ArrowDictionary);
    FlatTable index = flat_table(encoding, 1);
    *own = (ArrowDictionary){
        .id = flat_int(encoding, 0, 8, 0),
        .root = {.kind = ARROW_STRUCT, .child = mx_new(s->arena, ArrowField), .n_children = 1},
        .next = s->first};
    mx_text_init(&own->text, s->arena);
    s->first = own;
    *values = own->root.child;
    **values = (ArrowField){.name = out->name, .path = out->path};
    out->kind = ARROW_NUMBER;
    out->width = 4; /* without a type of its own */
    out->n_buffers = 2;
    return index.flat ? take_type(TYPE_INT, index, out) : NULL;
}

static const char *take_children(Schema *s, FlatVector fields, int depth, ArrowField *out);

/* Source: Schema.fbs, table Field: 0 name, 2 type_type, 3 type, 4 dictionary, 5 children. */
static const char *take_field(Schema *s, FlatTable field, const ArrowField *parent, int depth,
                              ArrowField *out) {
    int64_t number = flat_int(field, 2, 1, 0);
    FlatVector children = flat_vector(field, 5, 4);
    FlatTable encoding = flat_table(field, 4);
    const char *why = take_name(s->arena, field, parent, out);
    if (!why && encoding.flat) why = take_dictionary(s, encoding, out, &out);
    if (why) return why;
    if (++s->n_fields > MOST_FIELDS || depth > DEEPEST) return "it has too many columns";
    if (number < 0 || number >= MX_COUNT(types)) return "a column of an unknown type";
    const struct Type *type = &types[number];
    out->kind = type->kind;
    out->width = type->width;
    out->other = type->name;
    out->n_buffers = type->n_buffers;
    if (out->n_buffers < 0) return "not available yet: a column of unions";
    why = take_type((int)number, flat_table(field, 3), out);
    if (!why) why = take_children(s, children, depth + 1, out);
    bool is_list = out->kind == ARROW_LIST || out->kind == ARROW_FIXED_LIST;
    return !why && is_list && out->n_children != 1 ? "a list of no type" : why;
}

static const char *take_children(Schema *s, FlatVector fields, int depth, ArrowField *out) {
    const char *why = NULL;
    if (fields.n > MOST_FIELDS) return "it has too many columns";
    out->n_children = (int)fields.n;
    out->child = mx_new_n(s->arena, ArrowField, (int64_t)fields.n + 1);
    for (size_t i = 0; i < fields.n && !why; i++)
        why = take_field(s, flat_table_at(fields, i), out, depth, &out->child[i]);
    return why;
}

const char *arrow_schema(MxArena *arena, FlatTable schema, ArrowField *out) {
    Schema s = {.arena = arena};
    *out = (ArrowField){.kind = ARROW_STRUCT};
    if (flat_int(schema, 0, 2, 0)) return "not available yet: numbers whose highest byte is first";
    const char *why = take_children(&s, flat_vector(schema, 1, 4), 0, out);
    out->dictionary = s.first;
    return !why && !s.n_fields ? "it has no columns" : why;
}
