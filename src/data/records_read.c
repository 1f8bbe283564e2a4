/* records_read.c — files to records: each of theirs is checked, tokenised, cut to what a row holds,
 * and kept as tokens, 2 bytes each where the vocabulary allows it, 4 elsewhere. */
#include "formats.h"
#include "records.h"

enum { MOST_BAD = 10 };

/* ---- tokens */

/* Joins what stands before a text, its tokens, and what stands behind; -1 = nothing. */
static bool encode(MxArena *arena, const MxTokenizer *tokenizer, MxEncoding what,
                   const int32_t around[2], MxTokens *out, MxError *err) {
    MxTokens ids;
    if (!mx_tokenizer_encode(arena, tokenizer, what, &ids, err)) return false;
    *out = (MxTokens){.ids = mx_new_n(arena, int32_t, ids.n + 2)};
    if (around[0] >= 0) out->ids[out->n++] = around[0];
    if (ids.n) memcpy(out->ids + out->n, ids.ids, (size_t)ids.n * sizeof *ids.ids);
    out->n += ids.n;
    if (around[1] >= 0) out->ids[out->n++] = around[1];
    return true;
}

/* The pieces of a record: bos before the first token, eos behind each answer. The prompt of pairs
 * without one is what both begin with. */
static bool make_pieces(MxArena *arena, const Records *records, const Field *text, MxWhere where,
                        MxTokens piece[PIECES], MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    const MxTokenizer *tokenizer = config->tokenizer;
    int32_t bos = config->omits_bos ? -1 : mx_tokenizer_bos(config->tokenizer);
    int32_t eos = config->omits_eos ? -1 : mx_tokenizer_eos(config->tokenizer);
    int n_answers = config->pairs ? 2 : 1;
    bool has_prompt = records->columns.n_texts > n_answers;
    const int32_t of_prompt[] = {bos, -1}, of_answer[] = {has_prompt ? -1 : bos, eos};
    for (int i = has_prompt ? PROMPT : ANSWER; i < ANSWER + n_answers; i++, text++) {
        MxEncoding what = {text->text, text->bytes, false, where};
        if (!encode(arena, tokenizer, what, i == PROMPT ? of_prompt : of_answer, &piece[i], err))
            return false;
    }
    if (has_prompt || !config->pairs) return true;
    piece[PROMPT] = (MxTokens){piece[ANSWER].ids, talk_prefix(piece[ANSWER], piece[REJECTED])};
    for (int i = ANSWER; i < PIECES; i++) {
        piece[i].ids += piece[PROMPT].n;
        piece[i].n -= piece[PROMPT].n;
    }
    return true;
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
    int64_t *longest = &records->tally.n_longest;
    for (int i = ANSWER; i < PIECES; i++)
        if (piece[PROMPT].n + piece[i].n > *longest) *longest = piece[PROMPT].n + piece[i].n;
    if (!config->pairs) {
        bool is_long = cut(&piece[PROMPT], config->length, false);
        is_long |= cut(&piece[ANSWER], config->length - piece[PROMPT].n, false);
        records->tally.n_cut += is_long;
        return;
    }
    int64_t response = config->length - config->max_prompt_length;
    records->tally.n_cut_prompts += cut(&piece[PROMPT], config->max_prompt_length, true);
    records->tally.n_cut += cut(&piece[ANSWER], response, false);
    records->tally.n_cut += cut(&piece[REJECTED], response, false);
}

static void leave_out(Records *records, LeftOut *out, MxWhere where) {
    if (out->n++) return;
    out->first = where;
    out->first.file = mx_arena_strdup(records->arena, where.file);
}

/* The turns of what is left of an answer. */
static void keep_turns(Records *records, const Draft *draft, Record *record) {
    int64_t left = draft->piece[ANSWER].n;
    int32_t n = 0, *turn;
    for (; n < draft->n_turns && left > 0; n++) left -= draft->turn[n];
    if (!draft->n_turns || !n) return;
    record->turn = turn = mx_new_n(records->arena, int32_t, n);
    memcpy(turn, draft->turn, (size_t)n * sizeof *turn);
    if (left < 0) turn[n - 1] += (int32_t)left;
    record->n_turns = n;
}

/* Adds a record to the end. */
static Record *keep(Records *records, const Draft *draft) {
    const MxTokens *piece = draft->piece;
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
    keep_turns(records, draft, record);
    return record;
}

/* ---- reading */

/* Makes tokens of a record's columns. false = bad; *goes_on: whether others can be better. */
static bool add_record(MxArena *scratch, Records *records, const Fields *fields, MxWhere where,
                       bool *goes_on, MxError *err) {
    Field column[COLUMNS_MOST];
    const Columns *columns = &records->columns;
    Draft draft = {0};
    if (!columns->n) {
        const MxDataConfig *config = &records->dataset->config;
        *goes_on = columns_choose(config, fields, where, &records->columns, err) &&
                   (!columns->talks || talk_open(records, err));
        if (!*goes_on) return false;
        records->found = columns_found(records->arena, fields);
    }
    if (!columns_read(scratch, columns, fields, where, column, err)) return false;
    for (int i = 0; i < columns->n_texts; i++)
        if (columns_lacks(columns, &column[i])) {
            if (records->dataset->config.group)
                return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                               "column \"%s\" is missing or null; its group needs it",
                               columns->name[i]);
            leave_out(records, &records->tally.empty, where);
            return true;
        }
    if (columns->talks ? !talk_draft(scratch, records, fields, column, where, &draft, err)
                       : !make_pieces(scratch, records, column, where, draft.piece, err))
        return false;
    const Draft whole = draft;
    cut_pieces(records, draft.piece);
    Record *kept = keep(records, &draft);
    bool is_grouped = records->dataset->config.group > 0, teaches = records_teach(records, kept);
    if (!teaches) leave_out(records, &records->tally.mute, where);
    if (teaches || is_grouped) {
        for (int i = 0; i < PIECES; i++) records->tally.n_tokens += kept->n[i];
        records->tally.n_counted += kept->n_counted;
        return !is_grouped || scores_read(records, fields, &whole, where, err);
    }
    records->n--;
    return true;
}

/* One record as the file has it. */
static bool read_record(Records *records, const RecordFile *file, const char *bytes, size_t n,
                        bool *goes_on, MxError *err) {
    MxArena scratch = {.name = "record"};
    Fields fields;
    MxWhere where = record_file_where(&scratch, file);
    const char *copy = mx_arena_strndup(&scratch, bytes, n); /* with a 0 behind */
    bool ok = file->format->parse(&scratch, copy, n, where, &fields, goes_on, err) &&
              add_record(&scratch, records, &fields, where, goes_on, err);
    mx_arena_release(&scratch);
    return ok;
}

/* Reads on after a bad record, so that several can be told at once. */
bool records_read(Records *records, const char *path, MxError *err) {
    MxArena reading = {.name = "file of records"};
    MxError why = {0};
    RecordFile file;
    const char *bytes;
    size_t n;
    const MxDataset *dataset = records->dataset;
    bool goes_on = true;
    bool ok =
        record_file_open(&reading, path, dataset->kind->choice(&dataset->config, path), &file, err);
    while (ok && goes_on && file.format->next(&file, &bytes, &n, &why)) {
        if (read_record(records, &file, bytes, n, &goes_on, err)) continue;
        if (dataset->config.group) goes_on = false; /* where groups begin is not known any more */
        if (++records->n_bad < MOST_BAD || !goes_on) continue;
        mx_note(err, "%d bad %s; the rest was not read", MOST_BAD,
                file.format->is_binary ? "records" : "lines");
        goes_on = false;
    }
    if (why.count) {
        mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
        goes_on = false;
    }
    if (ok && goes_on && !file.stream.is_at_end)
        goes_on =
            mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "has grown while it was read");
    if (ok && goes_on) data_add_file(records->arena, records->dataset, stream_file(&file.stream));
    mx_error_release(&why);
    mx_arena_release(&reading);
    return ok && goes_on;
}
