/* records.c — records of JSON Lines files ("hf", as MaxText calls data that Hugging Face's datasets
 * would read): texts, prompts with completions, prompts with pairs of responses. Files are read
 * line by line when the dataset is opened; every record is checked, tokenised, cut to what a row
 * holds, and kept as tokens: 2 bytes each where the vocabulary allows it, 4 elsewhere. What could
 * not teach anything is left out, and counted. */
#include "columns.h"
#include "jsonl.h"
#include "rows.h"

enum { MOST_BAD_LINES = 10 };

/* Pieces of a record: prompt, then completion or chosen, then rejected. A text has no prompt. */
enum { PROMPT, ANSWER, REJECTED, PIECES };

typedef struct Record {
    const void *ids; /* of all pieces, one after the other */
    int32_t n[PIECES];
} Record;

/* Records that were left out for one reason. */
typedef struct LeftOut {
    int64_t n;
    MxWhere first;
} LeftOut;

typedef struct Records {
    MxArena *arena;
    MxDataset *dataset;
    Columns columns;
    Record *item; /* [n] */
    int64_t n, cap;
    bool is_narrow;                         /* ids are uint16 */
    RowPlan plan;                           /* with packing */
    int32_t *wide;                          /* [length] one piece */
    DataRow look[2];                        /* to see whether a record teaches anything */
    int64_t n_tokens, n_cut_prompts, n_cut; /* cut: answers and rejected, or whole documents */
    LeftOut empty, mute;                    /* no text; no token to learn from */
    const char *found;                      /* the columns of the first record */
    int n_bad_lines;
} Records;

/* ---- tokens */

/* Joins what stands before a text, its tokens, and what stands behind; -1 = nothing. */
static MxTokens encode(MxArena *arena, const Records *records, ColumnText text, int32_t before,
                       int32_t behind) {
    MxTokens ids =
        mx_tokenizer_encode(arena, records->dataset->config.tokenizer, text.data, text.bytes);
    MxTokens all = {.ids = mx_new_n(arena, int32_t, ids.n + 2)};
    if (before >= 0) all.ids[all.n++] = before;
    if (ids.n) memcpy(all.ids + all.n, ids.ids, (size_t)ids.n * sizeof *ids.ids);
    all.n += ids.n;
    if (behind >= 0) all.ids[all.n++] = behind;
    return all;
}

static int64_t common_prefix(MxTokens a, MxTokens b) {
    int64_t n = 0;
    while (n < a.n && n < b.n && a.ids[n] == b.ids[n]) n++;
    return n;
}

/* The pieces of a record: bos before the first token, eos behind each answer. The prompt of pairs
 * without one is what both begin with. */
static void make_pieces(MxArena *arena, const Records *records, const ColumnText *text,
                        MxTokens piece[PIECES]) {
    const MxDataConfig *config = &records->dataset->config;
    int32_t bos = config->omits_bos ? -1 : mx_tokenizer_bos(config->tokenizer);
    int32_t eos = config->omits_eos ? -1 : mx_tokenizer_eos(config->tokenizer);
    int n_answers = config->pairs ? 2 : 1;
    bool has_prompt = records->columns.n > n_answers;
    if (has_prompt) piece[PROMPT] = encode(arena, records, *text++, bos, -1);
    for (int i = 0; i < n_answers; i++)
        piece[ANSWER + i] = encode(arena, records, text[i], has_prompt ? -1 : bos, eos);
    if (has_prompt || !config->pairs) return;
    piece[PROMPT] = (MxTokens){piece[ANSWER].ids, common_prefix(piece[ANSWER], piece[REJECTED])};
    for (int i = ANSWER; i < PIECES; i++) {
        piece[i].ids += piece[PROMPT].n;
        piece[i].n -= piece[PROMPT].n;
    }
}

/* Keeps at most n tokens of a piece, the last or the first; tells whether any were lost. */
static bool cut(MxTokens *piece, int64_t n, bool keeps_last) {
    if (piece->n <= n) return false;
    if (keeps_last) piece->ids += piece->n - n;
    piece->n = n;
    return true;
}

static void cut_pieces(Records *records, MxTokens piece[PIECES]) {
    const MxDataConfig *config = &records->dataset->config;
    if (!config->pairs) {
        bool is_long = cut(&piece[PROMPT], config->length, false);
        is_long |= cut(&piece[ANSWER], config->length - piece[PROMPT].n, false);
        records->n_cut += is_long;
        return;
    }
    int64_t response = config->length - config->max_prompt_length;
    records->n_cut_prompts += cut(&piece[PROMPT], config->max_prompt_length, true);
    records->n_cut += cut(&piece[ANSWER], response, false);
    records->n_cut += cut(&piece[REJECTED], response, false);
}

static void leave_out(LeftOut *out, MxWhere where) {
    if (!out->n++) out->first = where;
}

/* Adds a record to the end. */
static Record *keep(Records *records, const MxTokens piece[PIECES]) {
    int64_t n = 0, at = 0;
    for (int i = 0; i < PIECES; i++) n += piece[i].n;
    if (records->n == records->cap) {
        records->cap = records->cap ? 2 * records->cap : 256;
        records->item = mx_arena_grow(records->arena, records->item, (size_t)records->n,
                                      (size_t)records->cap, sizeof *records->item);
    }
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    void *ids = mx_arena_alloc(records->arena, (size_t)n * id_bytes);
    Record *record = &records->item[records->n++];
    *record = (Record){.ids = ids};
    for (int i = 0; i < PIECES; i++) {
        record->n[i] = (int32_t)piece[i].n;
        for (int64_t k = 0; k < piece[i].n; k++, at++)
            if (records->is_narrow)
                ((uint16_t *)ids)[at] = (uint16_t)piece[i].ids[k];
            else
                ((int32_t *)ids)[at] = piece[i].ids[k];
    }
    return record;
}

static int64_t tokens_of(const Record *record) {
    return (int64_t)record->n[PROMPT] + record->n[ANSWER] + record->n[REJECTED];
}

/* ---- rows */

/* Adds n tokens of a record from `from` on to a row. */
static void add_ids(const Records *records, const Record *record, int64_t from, int64_t n,
                    bool counts, RowFill *fill) {
    for (int64_t i = 0; i < n; i++)
        records->wide[i] = records->is_narrow ? ((const uint16_t *)record->ids)[from + i]
                                              : ((const int32_t *)record->ids)[from + i];
    rows_add(fill, records->wide, n, counts);
}

/* Its first token counts for nobody: the row's token before it is of another document. */
static void add_document(const Records *records, const Record *record, RowFill *fill) {
    bool prompt_counts = !records->dataset->config.completion_only;
    int64_t n = record->n[PROMPT] + record->n[ANSWER];
    int64_t mute = prompt_counts || !record->n[PROMPT] ? 1 : record->n[PROMPT];
    rows_document(fill);
    add_ids(records, record, 0, mute, false, fill);
    add_ids(records, record, mute, n - mute, true, fill);
}

static void fill_pair(const Records *records, const Record *record, const DataRow pair[2]) {
    const MxDataConfig *config = &records->dataset->config;
    const int64_t prompt = record->n[PROMPT], start[2] = {prompt, prompt};
    for (int side = 0; side < 2; side++) {
        int64_t from = prompt + (side ? record->n[ANSWER] : 0);
        RowFill fill = rows_begin(&pair[side], config->length);
        rows_document(&fill);
        add_ids(records, record, 0, prompt, false, &fill);
        add_ids(records, record, from, record->n[ANSWER + side], true, &fill);
    }
    data_pair_targets(config->pairs, config->length, start, pair);
}

/* Whether any token of a record counts, in rows made for that. */
static bool teaches(const Records *records, const Record *record) {
    const MxDataConfig *config = &records->dataset->config;
    if (config->pairs) {
        fill_pair(records, record, records->look);
        return data_pair_teaches(config->length, records->look);
    }
    RowFill fill = rows_begin(&records->look[0], config->length);
    add_document(records, record, &fill);
    rows_end(&fill);
    const int32_t *counts = records->look[0].field[MX_TARGETS_SEGMENTATION];
    for (int64_t t = 0; t < config->length; t++)
        if (counts[t]) return true;
    return false;
}

/* ---- reading */

/* One line; false = bad. *goes_on: whether others can be better. */
static bool read_line(MxArena *scratch, Records *records, const char *text, size_t bytes,
                      MxWhere where, bool *goes_on, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    ColumnText column[COLUMNS_MOST];
    MxTokens piece[PIECES] = {{0}};
    *goes_on = true;
    if (text[strspn(text, " \t")] == '[') {
        *goes_on = where.line > 1; /* else the whole file is a list */
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a list, wanted an object in each line (JSON Lines)");
    }
    MxJson *record = mx_json_parse_line(scratch, text, bytes, where, err);
    if (!record) return false;
    if (!records->columns.n) {
        *goes_on = columns_choose(config, record, where, &records->columns, err);
        if (!*goes_on) return false;
        records->found = columns_found(records->arena, record);
    }
    bool is_form_wrong;
    if (!columns_read(&records->columns, record, where, column, &is_form_wrong, err)) {
        *goes_on = !is_form_wrong;
        return false;
    }
    for (int i = 0; i < records->columns.n; i++)
        if (!column[i].data) {
            leave_out(&records->empty, where);
            return true;
        }
    make_pieces(scratch, records, column, piece);
    cut_pieces(records, piece);
    const Record *kept = keep(records, piece);
    if (teaches(records, kept)) {
        records->n_tokens += tokens_of(kept);
        return true;
    }
    records->n--;
    leave_out(&records->mute, where);
    return true;
}

/* Reads on after a bad line, so that several can be told at once. */
static bool read_file(Records *records, const char *path, MxError *err) {
    MxArena reading = {.name = "JSON Lines file"};
    MxError why = {0};
    JsonLines lines;
    const char *text;
    size_t bytes;
    bool goes_on = true, ok = jsonl_open(&reading, path, &lines, err);
    while (ok && goes_on && jsonl_next(&lines, &text, &bytes, &why)) {
        MxArena scratch = {.name = "JSON line"};
        MxWhere where = {.file = path, .line = lines.line};
        char *line = mx_arena_strndup(&scratch, text, bytes);
        if (!read_line(&scratch, records, line, bytes, where, &goes_on, err)) {
            records->n_bad_lines++;
            if (goes_on && records->n_bad_lines == MOST_BAD_LINES) {
                mx_note(err, "%d bad lines; the rest was not read", MOST_BAD_LINES);
                goes_on = false;
            }
        }
        mx_arena_release(&scratch);
    }
    if (why.count) {
        mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
        goes_on = false;
    }
    mx_error_release(&why);
    mx_arena_release(&reading);
    return ok && goes_on;
}

/* ---- telling */

static const char *unit_of(const Records *records) {
    return records->dataset->config.pairs ? "pairs" : "documents";
}

static void describe(Records *records, const char *path, int n_paths) {
    MxDataset *dataset = records->dataset;
    const MxDataConfig *config = &dataset->config;
    MxText text;
    mx_text_init(&text, records->arena);
    mx_text_add(&text, "hf: %s%s, %lld %s (", path, n_paths > 1 ? " …" : "", (long long)records->n,
                unit_of(records));
    for (int i = 0; i < records->columns.n; i++)
        mx_text_add(&text, "%s%s", i ? ", " : "", records->columns.name[i]);
    mx_text_add(&text, "), %lld tokens", (long long)records->n_tokens);
    if (config->pairs)
        mx_text_add(&text,
                    ", %lld prompts cut to their last %lld tokens, %lld responses to their first "
                    "%lld",
                    (long long)records->n_cut_prompts, (long long)config->max_prompt_length,
                    (long long)records->n_cut,
                    (long long)(config->length - config->max_prompt_length));
    else
        mx_text_add(&text, ", %lld cut to %lld, %lld rows", (long long)records->n_cut,
                    (long long)config->length, (long long)dataset->n_rows);
    dataset->description = text.data;
}

static const char *why_mute(const MxDataConfig *config) {
    return config->pairs ? "chosen equals rejected or no token counts"
                         : "no token counts, since nothing is left behind the prompt";
}

static void warn(Records *records) {
    const struct {
        const LeftOut *out;
        const char *why;
    } reasons[] = {{&records->empty, "a column is missing or null"},
                   {&records->mute, why_mute(&records->dataset->config)}};
    int64_t all = records->n + records->empty.n + records->mute.n;
    MxText text;
    mx_text_init(&text, records->arena);
    for (int i = 0; i < MX_COUNT(reasons); i++)
        if (reasons[i].out->n)
            mx_text_add(&text, "%s%s:%d: %s; %lld of %lld records are left out for that",
                        text.len ? "; " : "", reasons[i].out->first.file,
                        reasons[i].out->first.line, reasons[i].why, (long long)reasons[i].out->n,
                        (long long)all);
    if (text.len) records->dataset->warning = text.data;
}

/* No record is left. */
static bool refuse(const Records *records, MxWhere where, MxError *err) {
    const LeftOut *empty = &records->empty, *mute = &records->mute;
    if (!empty->n && !mute->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "no records in %s",
                       records->dataset->config.path);
    if (mute->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, mute->first,
                       "%s, as in all other records; there is nothing to learn",
                       why_mute(&records->dataset->config));
    MxArena scratch = {.name = "message"};
    MxText text;
    mx_text_init(&text, &scratch);
    for (int i = 0; i < records->columns.n; i++)
        mx_text_add(&text, "%s\"%s\"", i ? ", " : "", records->columns.name[i]);
    mx_fail(err, MX_EXIT_BAD_INPUT, empty->first,
            "no record has all of the columns %s; the first has %s", text.data, records->found);
    mx_arena_release(&scratch);
    return false;
}

/* ---- the kind */

static void pack(Records *records) {
    const MxDataConfig *config = &records->dataset->config;
    MxArena scratch = {.name = "packing"};
    int32_t *lengths = mx_new_n(&scratch, int32_t, records->n);
    for (int64_t i = 0; i < records->n; i++)
        lengths[i] = records->item[i].n[PROMPT] + records->item[i].n[ANSWER];
    records->plan = rows_pack(records->arena, lengths, records->n, config->length, config->rows,
                              config->max_segments);
    mx_arena_release(&scratch);
}

static bool records_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    MX_ASSERT(!config->pairs ||
              (config->max_prompt_length > 0 && config->max_prompt_length < config->length));
    MX_ASSERT(!config->n_columns ||
              (config->pairs ? config->n_columns == 2 || config->n_columns == 3
                             : config->n_columns <= 1 + config->is_sft));
    Records *records = mx_new(arena, Records);
    char **paths;
    int n_paths;
    if (!data_check_tokenizer(config, err) ||
        !data_find_files(arena, config, "jsonl", &paths, &n_paths, err))
        return false;
    *records = (Records){.arena = arena,
                         .dataset = dataset,
                         .is_narrow = config->vocab <= UINT16_MAX + 1,
                         .wide = mx_new_n(arena, int32_t, config->length)};
    MxBatch look = mx_batch_new(arena, 2, config->length);
    for (int i = 0; i < 2; i++) records->look[i] = data_row(&look, i);
    for (int i = 0; i < n_paths; i++)
        if (!read_file(records, paths[i], err)) return false;
    if (records->n_bad_lines) return false;
    if (!records->n) return refuse(records, config->where, err);
    bool packs = config->packing && !config->pairs;
    if (packs) pack(records);
    dataset->source = records;
    dataset->n_rows = packs ? records->plan.n_rows : records->n;
    describe(records, paths[0], n_paths);
    warn(records);
    return true;
}

static bool records_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    const Records *records = dataset->source;
    const RowPlan *plan = &records->plan;
    (void)err;
    if (dataset->config.pairs) {
        fill_pair(records, &records->item[row], out);
        return true;
    }
    RowFill fill = rows_begin(out, dataset->config.length);
    if (!plan->n_rows) add_document(records, &records->item[row], &fill);
    for (int64_t i = plan->n_rows ? plan->first[row] : 0; plan->n_rows && i < plan->first[row + 1];
         i++)
        add_document(records, &records->item[plan->document[i]], &fill);
    rows_end(&fill);
    return true;
}

const DataKind data_records = {
    .name = "hf",
    .open = records_open,
    .row = records_row,
    .has_pairs = true,
    .doc = "JSON Lines: texts, prompts and completions, pairs of responses",
};
