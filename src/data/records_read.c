/* records_read.c — lines of JSON Lines files to records: every line is checked, tokenised, cut to
 * what a row holds, and kept as tokens, 2 bytes each where the vocabulary allows it, 4 elsewhere.
 */
#include "jsonl.h"
#include "records.h"

enum { MOST_BAD_LINES = 10 };

const char records_want[] = "JSON Lines";

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

/* ---- reading */

/* A line that is no object, in one message. */
static bool refuse_line(const char *text, size_t bytes, MxWhere where, MxError *err) {
    enum { MOST_SHOWN = 40 };
    bool is_cut = bytes > MOST_SHOWN;
    if (text[strspn(text, " \t")] == '[')
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a list, wanted an object in each line");
    bool is_table = memchr(text, ',', bytes) || memchr(text, '\t', bytes);
    if (is_cut) bytes = MOST_SHOWN;
    while (is_cut && bytes && (text[bytes] & 0xc0) == 0x80) bytes--; /* inside a character */
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "found \"%.*s%s\", wanted an object in each line",
            (int)bytes, text, is_cut ? " …" : "");
    mx_note(err, "hint: %s (JSON Lines)",
            is_table ? "is it CSV? write each row as an object in a line of its own"
                     : "write each record as an object in a line of its own");
    return false;
}

/* One line; false = bad. *goes_on: whether others can be better. */
static bool read_line(MxArena *scratch, Records *records, const char *text, size_t bytes,
                      MxWhere where, bool *goes_on, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    ColumnText column[COLUMNS_MOST];
    MxTokens piece[PIECES] = {{0}};
    *goes_on = true;
    char first = text[strspn(text, " \t")];
    if (first == '[' || (first != '{' && where.line == 1)) {
        *goes_on = where.line > 1; /* the first line tells what the file is */
        return refuse_line(text, bytes, where, err);
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
    if (records_teach(records, kept)) {
        for (int i = 0; i < PIECES; i++) records->n_tokens += kept->n[i];
        return true;
    }
    records->n--;
    leave_out(&records->mute, where);
    return true;
}

/* Reads on after a bad line, so that several can be told at once. */
bool records_read(Records *records, const char *path, MxError *err) {
    MxArena reading = {.name = "JSON Lines file"};
    MxError why = {0};
    JsonLines lines;
    const char *text;
    size_t bytes;
    bool goes_on = true,
         ok = data_check_format(path, records_want, err) && jsonl_open(&reading, path, &lines, err);
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
    if (ok && goes_on)
        data_add_file(records->arena, records->dataset,
                      (MxDataFile){path, lines.n_read, mx_hash_value(lines.hash)});
    if (why.count) {
        mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
        goes_on = false;
    }
    mx_error_release(&why);
    mx_arena_release(&reading);
    return ok && goes_on;
}
