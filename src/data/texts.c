/* texts.c — the texts of a dataset before tokenization: whole files, columns of records, and the
 * contents of conversations. */
#include "columns.h"
#include "formats.h"

/* Who wants the texts. */
typedef struct Taker {
    const MxDataConfig *config;
    MxDataText *take;
    void *data;
    Columns columns; /* n 0 = not chosen yet */
} Taker;

static bool give(const Taker *taker, const char *text, size_t n, MxWhere where, MxError *err) {
    return !text || !n ||
           taker->take(taker->data, (MxEncoding){.text = text, .n = n, .where = where}, err);
}

/* What is said, with whatever roles and kinds of contents: {"role": …, "content": TEXT}, {"from":
 * …, "value": TEXT}, {"content": [{"type": "text", "text": TEXT}]}. */
static bool give_said(const Taker *taker, const MxJson *json, MxWhere where, MxError *err) {
    static const char *const members[] = {"content", "value", "text"};
    if (mx_json_string(json))
        return give(taker, mx_json_string(json), mx_json_string_bytes(json), where, err);
    bool is_list = !strcmp(mx_json_kind(json), "a list");
    for (size_t i = 0; is_list && i < mx_json_length(json); i++)
        if (!give_said(taker, mx_json_at(json, i), where, err)) return false;
    for (int i = 0; !is_list && i < MX_COUNT(members); i++) {
        const MxJson *member = mx_json_get(json, members[i]);
        if (member && !give_said(taker, member, where, err)) return false;
    }
    return true;
}

static bool give_record(MxArena *arena, Taker *taker, const Fields *fields, MxWhere where,
                        MxError *err) {
    Field column[COLUMNS_MOST];
    if (!taker->columns.n && !columns_choose(taker->config, fields, where, &taker->columns, err))
        return false;
    const Columns *columns = &taker->columns;
    if (!columns_read(arena, columns, fields, where, column, err)) return false;
    for (int i = 0; i < columns->n_texts; i++) {
        if (columns_lacks(columns, &column[i])) continue;
        if (columns->talks ? !give_said(taker, column[i].json, where, err)
                           : !give(taker, column[i].text, column[i].bytes, where, err))
            return false;
    }
    return true;
}

static bool give_records(Taker *taker, RecordFile *file, MxError *err) {
    MxError why = {0};
    const char *bytes;
    size_t n;
    bool ok = true, goes_on = true;
    while (ok && file->format->next(file, &bytes, &n, &why)) {
        MxArena scratch = {.name = "record"};
        Fields fields;
        MxWhere where = record_file_where(&scratch, file);
        const char *copy = mx_arena_strndup(&scratch, bytes, n);
        ok = file->format->parse(&scratch, copy, n, where, &fields, &goes_on, err) &&
             give_record(&scratch, taker, &fields, where, err);
        mx_arena_release(&scratch);
    }
    if (why.count) ok = mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
    mx_error_release(&why);
    return ok;
}

static bool give_file(Taker *taker, const char *path, const FormatChoice *choice, MxError *err) {
    MxArena arena = {.name = "file of texts"};
    RecordFile file;
    size_t n;
    bool ok = record_file_open(&arena, path, choice, &file, err);
    if (ok && file.format) {
        ok = give_records(taker, &file, err);
    } else if (ok && (ok = stream_hold_all(&file.stream, err))) {
        const char *text = (const char *)stream_held(&file.stream, &n);
        ok = give(taker, text, n, (MxWhere){.file = path}, err);
    }
    mx_arena_release(&arena);
    return ok;
}

bool mx_data_texts(const MxDataConfig *config, MxDataText *take, void *data, MxError *err) {
    MxArena arena = {.name = "files"};
    Taker taker = {.config = config, .take = take, .data = data};
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    DataParts parts;
    bool ok = kind != NULL;
    if (ok && !kind->reads_text)
        ok = mx_fail(err, MX_EXIT_CONFIG, config->where, "data of kind \"%s\" has no text",
                     kind->name);
    if (ok && config->has_ids)
        ok = mx_fail(err, MX_EXIT_CONFIG, config->where,
                     "the data holds token ids (tokenize_train_data=false), no text");
    ok = ok && kind->parts(&arena, config, &parts, err);
    for (int i = 0; ok && i < parts.n; i++)
        for (int k = 0; ok && k < parts.item[i].n_paths; k++) {
            const char *path = parts.item[i].paths[k];
            ok = give_file(&taker, path, kind->choice(config, path), err);
        }
    mx_arena_release(&arena);
    return ok;
}
