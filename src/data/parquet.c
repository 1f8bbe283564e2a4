/* parquet.c — Parquet files as records: the footer's description of columns and row groups, and
 * rows assembled from columns. A column has, for each value, its depth and the number of lists in
 * which it is a further element (its levels); lists, missing values and empty lists follow from
 * them. */
#include "parquet.h"

#include "formats.h"

enum { DEEPEST = 32, TAIL_BYTES = 8, LARGEST_FOOTER = 1 << 28 };

/* Runs make many values of few bytes; text is not so. */
static const int64_t FREE_VALUES = 1 << 16, MOST_VALUES_A_BYTE = 1000;

typedef struct Group {
    int64_t n_rows;
    ParquetChunk *chunk; /* [n_columns] */
    int *type;           /* [n_columns] as it is said again */
} Group;

typedef struct Parquet {
    const DataStream *stream;
    int64_t footer_at;
    ParquetNode root;
    ParquetColumn *column; /* [n_columns] */
    int n_columns;
    Group *group; /* [n_groups] */
    size_t n_groups, next_group;
    int64_t rows_left; /* of the present group */
    MxText row;
    size_t room_left; /* bytes that columns may still take */
} Parquet;

static bool fail_footer(const Parquet *p, const char *what, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = p->stream->path},
                   "its footer, at byte %lld: %s", (long long)p->footer_at, what);
}

/* ---- the schema */

enum {
    CONVERTED_TEXT = 0,
    CONVERTED_MAP = 1,
    CONVERTED_LIST = 3,
    CONVERTED_ENUM = 4,
    CONVERTED_JSON = 19
};
enum { CONVERTED_UNSIGNED = 11, CONVERTED_SIGNED = 15 }; /* from, to */
enum { LOGICAL_TEXT = 1, LOGICAL_MAP = 2, LOGICAL_LIST = 3, LOGICAL_ENUM = 4, LOGICAL_JSON = 12 };
enum { REQUIRED, OPTIONAL, REPEATED };

/* A row of the schema. */
typedef struct Element {
    MxProto name;
    int64_t type, length, repetition, n_children, converted;
    int logical;
} Element;

static Element parse_element(Thrift *t) {
    Element e = {.type = -1, .converted = -1};
    ThriftField field = {0}, inner = {0};
    const struct {
        int id;
        int64_t *to;
    } members[] = {
        {1, &e.type}, {2, &e.length}, {3, &e.repetition}, {5, &e.n_children}, {6, &e.converted}};
    while (thrift_next(t, &field)) {
        for (int i = 0; i < MX_COUNT(members); i++)
            if (field.id == members[i].id) *members[i].to = thrift_int(t, &field);
        if (field.id == 4) e.name = thrift_bytes(t, &field);
        if (field.id == 10 && thrift_struct(t, &field))
            while (thrift_next(t, &inner)) e.logical = inner.id;
    }
    return e;
}

/* Maps are lists of keys and values. */
static bool is_list(const Element *e) {
    return (e->converted >= CONVERTED_MAP && e->converted <= CONVERTED_LIST) ||
           e->logical == LOGICAL_MAP || e->logical == LOGICAL_LIST;
}

static bool is_text(const Element *e) {
    return e->converted == CONVERTED_TEXT || e->converted == CONVERTED_ENUM ||
           e->converted == CONVERTED_JSON || e->logical == LOGICAL_TEXT ||
           e->logical == LOGICAL_ENUM || e->logical == LOGICAL_JSON;
}

/* The elements of a footer, in the order of a walk over the tree. */
typedef struct Schema {
    Parquet *p;
    const Element *element; /* [n] */
    size_t n, next;
} Schema;

static const char *name_of(MxArena *arena, const Element *e) {
    size_t n = (size_t)(e->name.end - e->name.at);
    const char *name = n ? (const char *)e->name.at : "";
    if (memchr(name, 0, n) || mx_utf8_valid_bytes(name, n) < n) return NULL;
    return mx_arena_strndup(arena, name, n);
}

static const char *take_leaf(Parquet *p, const Element *e, ParquetNode *node) {
    if (e->type < 0 || e->type >= PARQUET_TYPES) return "a column of an unknown type";
    bool is_fixed = e->type == PARQUET_FIXED;
    if (is_fixed && (e->length < 0 || e->length > LARGEST_FOOTER))
        return "a column of values of no size";
    node->type = (int)e->type;
    node->length = is_fixed ? (int)e->length : 0;
    node->is_text = is_text(e);
    node->is_unsigned = e->converted >= CONVERTED_UNSIGNED && e->converted < CONVERTED_SIGNED;
    node->first_leaf = p->n_columns++;
    node->n_leaves = 1;
    return NULL;
}

/* The next node with all below it; NULL, or what is wrong. */
static const char *take_node(Schema *schema, const ParquetNode *parent, int depth,
                             ParquetNode *out) {
    Parquet *p = schema->p;
    MxArena *arena = p->stream->arena;
    if (schema->next == schema->n || depth > DEEPEST) return "the tree of its columns has no end";
    const Element *e = &schema->element[schema->next++];
    const char *why = NULL;
    out->name = name_of(arena, e);
    if (!out->name) return "the name of a column is not UTF-8";
    if (e->repetition < REQUIRED || e->repetition > REPEATED) return "a column of unknown form";
    out->path = depth > 1 ? mx_arena_printf(arena, "%s.%s", parent->path, out->name) : out->name;
    out->is_optional = e->repetition == OPTIONAL;
    out->repeats = e->repetition == REPEATED;
    if (depth) {
        out->def = parent->def + (out->is_optional || out->repeats);
        out->rep = parent->rep + out->repeats;
    }
    if (e->n_children < 0 || (uint64_t)e->n_children > schema->n) return "a group of no size";
    if (!e->n_children && depth) return take_leaf(p, e, out);
    out->n_children = (int)e->n_children;
    out->child = mx_new_n(arena, ParquetNode, e->n_children + 1);
    out->first_leaf = p->n_columns;
    for (int i = 0; i < out->n_children && !why; i++)
        why = take_node(schema, out, depth + 1, &out->child[i]);
    out->n_leaves = p->n_columns - out->first_leaf;
    out->is_list = is_list(e) && out->n_children == 1 && out->child[0].repeats;
    return why;
}

/* ---- the footer */

static ParquetChunk parse_chunk(Thrift *t, int *type) {
    ThriftField field = {0}, inner = {0};
    int64_t first_page = 0, dictionary = 0, codec = 0, of_type = -1;
    ParquetChunk chunk = {0};
    const struct {
        int id;
        int64_t *to;
    } members[] = {{1, &of_type},     {4, &codec},      {5, &chunk.n_values},
                   {7, &chunk.bytes}, {9, &first_page}, {11, &dictionary}};
    while (thrift_next(t, &field))
        if (field.id == 3 && thrift_struct(t, &field))
            while (thrift_next(t, &inner))
                for (int i = 0; i < MX_COUNT(members); i++)
                    if (inner.id == members[i].id) *members[i].to = thrift_int(t, &inner);
    chunk.at = dictionary > 0 && dictionary < first_page ? dictionary : first_page;
    chunk.codec = codec >= 0 && codec < INT16_MAX ? (int)codec : -1;
    *type = of_type >= 0 && of_type < PARQUET_TYPES ? (int)of_type : -1;
    return chunk;
}

static const char *parse_group(Thrift *t, const Parquet *p, Group *out) {
    ThriftField field = {0};
    MxArena *arena = p->stream->arena;
    size_t n = 0;
    while (thrift_next(t, &field)) {
        if (field.id == 3) out->n_rows = thrift_int(t, &field);
        if (field.id != 1) continue;
        n = thrift_list(t, &field, THRIFT_STRUCT);
        if (n != (size_t)p->n_columns) return "a group of rows that lacks columns";
        out->chunk = mx_new_n(arena, ParquetChunk, (int64_t)n + 1);
        out->type = mx_new_n(arena, int, (int64_t)n + 1);
        for (size_t i = 0; i < n; i++) out->chunk[i] = parse_chunk(t, &out->type[i]);
    }
    return n == (size_t)p->n_columns ? NULL : "a group of rows that lacks columns";
}

static const char *parse_schema(Thrift *t, ThriftField *field, Parquet *p) {
    MxArena scratch = {.name = "schema"};
    size_t n = thrift_list(t, field, THRIFT_STRUCT);
    Element *element = mx_new_n(&scratch, Element, (int64_t)n + 1);
    for (size_t i = 0; i < n; i++) element[i] = parse_element(t);
    Schema schema = {.p = p, .element = element, .n = n};
    const char *why = take_node(&schema, NULL, 0, &p->root);
    if (!why && schema.next != n) why = "it has columns outside of the tree";
    if (!why && !p->n_columns) why = "it has no columns";
    mx_arena_release(&scratch);
    return t->is_bad ? NULL : why;
}

static const char *parse_groups(Thrift *t, ThriftField *field, Parquet *p) {
    const char *why = p->n_columns ? NULL : "its groups of rows come before its columns";
    p->n_groups = thrift_list(t, field, THRIFT_STRUCT);
    p->group = mx_new_n(p->stream->arena, Group, (int64_t)p->n_groups + 1);
    for (size_t i = 0; i < p->n_groups && !why && !t->is_bad; i++)
        why = parse_group(t, p, &p->group[i]);
    return why;
}

/* Whether a group of rows may be as it says. */
static const char *check_group(const Parquet *p, const Group *g) {
    int64_t file = p->stream->file_bytes, most = FREE_VALUES;
    if (file > most / MOST_VALUES_A_BYTE) most = file * MOST_VALUES_A_BYTE;
    if (g->n_rows < 0 || g->n_rows > most) return "a group of more rows than the file can hold";
    for (int i = 0; i < p->n_columns; i++) {
        const ParquetChunk *chunk = &g->chunk[i];
        if (g->type[i] != p->column[i].node->type) return "the type of a column is not always one";
        if (chunk->at < 0 || chunk->bytes < 0 || chunk->at > file ||
            chunk->bytes > file - chunk->at)
            return "a column that lies outside of the file";
        if (chunk->n_values < 0 || chunk->n_values > most)
            return "a column of more values than the file can hold";
    }
    return NULL;
}

/* Columns in the order of the leaves. */
static void list_columns(Parquet *p, const ParquetNode *node) {
    for (int i = 0; i < node->n_children; i++) list_columns(p, &node->child[i]);
    if (!node->n_children)
        p->column[node->first_leaf] = (ParquetColumn){.arena = p->stream->arena,
                                                      .stream = p->stream,
                                                      .node = node,
                                                      .room_left = &p->room_left};
}

static bool parse_footer(Parquet *p, MxBytes bytes, MxError *err) {
    Thrift t = {.at = bytes.data, .end = bytes.data + bytes.size};
    ThriftField field = {0};
    const char *why = NULL;
    while (!why && thrift_next(&t, &field)) {
        if (field.id == 2) why = parse_schema(&t, &field, p);
        if (field.id == 4 && !why) why = parse_groups(&t, &field, p);
    }
    if (!why && t.is_bad) why = "it is damaged";
    if (!why && !p->n_columns) why = "it tells no columns";
    if (why) return fail_footer(p, why, err);
    p->column = mx_new_n(p->stream->arena, ParquetColumn, p->n_columns);
    list_columns(p, &p->root);
    for (size_t i = 0; i < p->n_groups && !why; i++) why = check_group(p, &p->group[i]);
    return !why || fail_footer(p, why, err);
}

static bool parquet_open(RecordFile *file, MxError *err) {
    DataStream *stream = &file->stream;
    Parquet *p = file->state = mx_new(stream->arena, Parquet);
    uint8_t tail[TAIL_BYTES] = {0};
    const MxWhere where = {.file = stream->path};
    *p = (Parquet){.stream = stream, .room_left = PARQUET_MOST_ROOM};
    mx_text_init(&p->row, stream->arena);
    if (stream->codec)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "is Parquet inside of %s; unpack it first",
                       stream->codec->name);
    int64_t end = stream->file_bytes - TAIL_BYTES;
    if (end < 4 || stream_read_at(stream->fd, tail, TAIL_BYTES, end) != TAIL_BYTES ||
        memcmp(tail + 4, "PAR1", 4)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, where,
                "is Parquet that does not end as such files do, with \"PAR1\"");
        mx_note(err, "hint: it was cut short, or its footer is encrypted");
        return false;
    }
    uint32_t n = parquet_u32(tail);
    p->footer_at = end - n;
    if (p->footer_at < 4 || n > LARGEST_FOOTER)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "its footer is said to have %u bytes, but the file has %lld", n,
                       (long long)stream->file_bytes);
    MxBytes bytes = {mx_arena_alloc(stream->arena, n), n};
    if (stream_read_at(stream->fd, bytes.data, n, p->footer_at) != (ssize_t)n)
        return mx_fail_errno(err, "could not read %s", stream->path);
    return parse_footer(p, bytes, err);
}

/* ---- rows */

static bool step(Parquet *p, const ParquetColumn *column, MxError *err) {
    if (p->row.len > STREAM_LONGEST_BYTES)
        return parquet_fail(column, err, "a row of more than %d bytes", STREAM_LONGEST_BYTES);
    return parquet_column_step(&p->column[column - p->column], err);
}

/* The columns of a node, in which it is missing, or a list empty. rep: of the row or element. */
static bool pass_over(Parquet *p, const ParquetNode *node, int rep, MxError *err) {
    for (int i = node->first_leaf; i < node->first_leaf + node->n_leaves; i++) {
        ParquetColumn *column = &p->column[i];
        if (!column->has || column->rep != rep || column->def >= node->def)
            return parquet_fail(column, err, "its levels are not those of its neighbours");
        if (!step(p, column, err)) return false;
    }
    return true;
}

static bool write_value(Parquet *p, const ParquetNode *node, int rep, MxError *err);

/* A node that repeats, as a list. */
static bool write_items(Parquet *p, const ParquetNode *node, const ParquetNode *element, int rep,
                        MxError *err) {
    ParquetColumn *first = &p->column[node->first_leaf];
    mx_text_addn(&p->row, "[", 1);
    bool is_empty = first->def < node->def, ok = !is_empty || pass_over(p, node, rep, err);
    while (ok && !is_empty) {
        ok = write_value(p, element, rep, err);
        rep = node->rep;
        if (!first->has || first->rep < rep) break;
        mx_text_addn(&p->row, ",", 1);
    }
    mx_text_addn(&p->row, "]", 1);
    return ok;
}

/* The elements of a list are what its repeated child has, or that itself. Source: LogicalTypes.md,
 * "Nested Types", with its rules for older files. */
static const ParquetNode *element_of(const ParquetNode *list) {
    const ParquetNode *child = list->child;
    size_t n = strlen(list->name);
    bool is_tuple =
        mx_text_has_prefix(child->name, list->name) && !strcmp(child->name + n, "_tuple");
    if (child->n_children != 1 || child->child->repeats) return child;
    return !strcmp(child->name, "array") || is_tuple ? child : child->child;
}

static bool write_group(Parquet *p, const ParquetNode *node, int rep, MxError *err) {
    bool ok = true;
    mx_text_addn(&p->row, "{", 1);
    for (int i = 0; ok && i < node->n_children; i++) {
        const ParquetNode *child = &node->child[i];
        table_name(&p->row, !i, child->name);
        ok = child->repeats ? write_items(p, child, child, rep, err)
                            : write_value(p, child, rep, err);
    }
    mx_text_addn(&p->row, "}", 1);
    return ok;
}

/* What is there of a node, without its repetitions. */
static bool write_value(Parquet *p, const ParquetNode *node, int rep, MxError *err) {
    ParquetColumn *first = &p->column[node->first_leaf];
    if (!first->has || first->rep != rep)
        return parquet_fail(first, err, "its levels are not those of its neighbours");
    if (first->def < node->def) {
        mx_text_addn(&p->row, "null", 4);
        return pass_over(p, node, rep, err);
    }
    if (node->is_list) return write_items(p, node->child, element_of(node), rep, err);
    if (node->n_children) return write_group(p, node, rep, err);
    return parquet_column_write(first, &p->row, err) && step(p, first, err);
}

static bool open_group(Parquet *p, MxError *err) {
    const Group *group = &p->group[p->next_group++];
    p->rows_left = group->n_rows;
    for (int i = 0; i < p->n_columns; i++)
        if (!parquet_column_open(&p->column[i], group->chunk[i], err)) return false;
    return true;
}

/* Behind the last row of a group no column has more. */
static bool close_group(Parquet *p, MxError *err) {
    for (int i = 0; i < p->n_columns; i++)
        if (p->column[i].has)
            return parquet_fail(&p->column[i], err, "more values than its group has rows");
    return true;
}

static bool parquet_next(RecordFile *file, const char **bytes, size_t *n, MxError *err) {
    Parquet *p = file->state;
    while (!p->rows_left) {
        if (p->next_group == p->n_groups) return stream_finish(&file->stream, err) && false;
        if (!open_group(p, err) || (!p->rows_left && !close_group(p, err))) return false;
    }
    file->number++;
    mx_text_clear(&p->row);
    if (!write_group(p, &p->root, 0, err)) return false;
    if (!--p->rows_left && !close_group(p, err)) return false;
    *bytes = p->row.data;
    *n = p->row.len;
    return true;
}

static bool parquet_test(const uint8_t *head, size_t n) {
    return n >= 4 && !memcmp(head, "PAR1", 4);
}

const RecordFormat format_parquet = {
    .name = "Parquet",
    .hint = "dataset_type=hf reads it",
    .is_binary = true,
    .test = parquet_test,
    .open = parquet_open,
    .next = parquet_next,
    .parse = table_parse,
};
