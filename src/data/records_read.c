/* records_read.c — files to records: records are checked and tokenised by several threads, then in
 * order truncated to the length of a row and kept as tokens, of 2 bytes if the vocabulary allows
 * it, else of 4. */
#include "formats.h"
#include "ids.h"
#include "records.h"
#include "turns.h"

enum { MOST_BAD = 10 };

/* ---- tokens */

/* Joins what stands before a text, its tokens, and what stands behind; -1 = nothing. A text may end
 * with the last itself. */
static bool encode(MxArena *arena, const MxTokenizer *tokenizer, MxEncoding what,
                   const int32_t around[2], bool may_end, MxTokens *out, MxError *err) {
    MxTokens ids;
    if (!mx_tokenizer_encode(arena, tokenizer, what, &ids, err)) return false;
    *out = (MxTokens){.ids = mx_new_n(arena, int32_t, ids.n + 2)};
    if (around[0] >= 0) out->ids[out->n++] = around[0];
    if (ids.n) memcpy(out->ids + out->n, ids.ids, (size_t)ids.n * sizeof *ids.ids);
    out->n += ids.n;
    bool has_end = may_end && ids.n && ids.ids[ids.n - 1] == around[1];
    if (around[1] >= 0 && !has_end) out->ids[out->n++] = around[1];
    return true;
}

/* Images without a place in texts that follow one another: they are put first. */
static int count_missing(const Records *records, const Field *text, int n_texts,
                         const Pictures *pictures) {
    int n = pictures->n;
    for (int i = 0; i < n_texts; i++)
        n -= pictures_marked(records->seer, text[i].text, text[i].bytes);
    return n > 0 ? n : 0;
}

/* The prompt of pairs without one is what both begin with. */
static void split_prompt(MxTokens piece[PIECES]) {
    piece[PROMPT] = (MxTokens){piece[ANSWER].ids, talk_prefix(piece[ANSWER], piece[REJECTED])};
    for (int i = ANSWER; i < PIECES; i++) {
        piece[i].ids += piece[PROMPT].n;
        piece[i].n -= piece[PROMPT].n;
    }
}

/* Of texts before which nothing stands. */
static void mark_places(MxArena *arena, const Records *records, const Field *text, int first,
                        Field out[COLUMNS_MOST]) {
    for (int i = 0; i < records->columns.n_texts; i++)
        out[i] = i == 0 || first == ANSWER ? turns_mark(arena, records->seer, &text[i]) : text[i];
}

/* The pieces of a record of texts: bos before the first token, eos behind each answer, but for
 * turns. Texts written for other trainers end with eos already, which is not doubled; those of
 * pre-training are as in MaxText. Source: trl 1.16, trainer/sft_trainer.py, add_eos. */
static bool encode_pieces(MxArena *arena, const Records *records, const Field *text, int first,
                          MxWhere where, Draft *draft, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    Field marked[COLUMNS_MOST];
    Pictures *pictures = &draft->pictures;
    bool has_turns = records->seer && first == PROMPT && !config->pairs && !config->group;
    int32_t bos = config->omits_bos || has_turns ? -1 : mx_tokenizer_bos(config->tokenizer);
    int32_t eos = config->omits_eos || has_turns ? -1 : mx_tokenizer_eos(config->tokenizer);
    if (has_turns)
        turns_make(arena, records->seer, pictures->n, text, marked);
    else if (records->seer)
        mark_places(arena, records, text, first, marked);
    if (records->seer) text = marked;
    const int32_t of_prompt[] = {bos, -1}, of_answer[] = {first == PROMPT ? -1 : bos, eos};
    bool may_end = config->is_sft || config->pairs || config->group;
    int n_together = config->pairs ? 1 : records->columns.n_texts;
    for (int i = first; i < first + records->columns.n_texts; i++, text++) {
        MxRendered told = {.text = (char *)(uintptr_t)text->text, .n = text->bytes};
        bool begins = i == first || first == ANSWER; /* nothing stands before it */
        if (records->seer && begins)
            pictures_tell_whole(arena, records->seer, pictures,
                                count_missing(records, text, n_together, pictures), &told);
        else if (records->seer)
            pictures_tell(arena, records->seer, pictures, 0, 0, &told);
        MxEncoding what = {.text = told.text, .n = told.n, .where = where};
        if (!encode(arena, config->tokenizer, what, i == PROMPT ? of_prompt : of_answer, may_end,
                    &draft->piece[i], err))
            return false;
    }
    return true;
}

/* Those of a record of ids, as they stand. */
static bool take_pieces(MxArena *arena, const Records *records, const Field *ids, int first,
                        MxWhere where, Draft *draft, MxError *err) {
    const Columns *columns = &records->columns;
    for (int i = 0; i < columns->n_texts; i++) {
        const IdsFrom from = {columns->name[i], where, records->dataset->config.vocab};
        if (!ids_read(arena, &ids[i], &from, &draft->piece[first + i], err)) return false;
    }
    return true;
}

static bool make_pieces(MxArena *arena, const Records *records, const Field *column, MxWhere where,
                        Draft *draft, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    bool has_prompt = records->columns.n_texts > records_answers(config);
    int first = has_prompt ? PROMPT : ANSWER;
    if (!(config->has_ids ? take_pieces : encode_pieces)(arena, records, column, first, where,
                                                         draft, err))
        return false;
    if (!has_prompt && config->pairs) split_prompt(draft->piece);
    return true;
}

/* Keeps at most n tokens of a piece, the last or the first; tells whether any were lost. */
static bool cut(MxTokens *piece, int64_t n, bool keeps_last) {
    if (piece->n <= n) return false;
    if (keeps_last) piece->ids += piece->n - n;
    piece->n = n;
    return true;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

void records_raise(Tally *tally, MxDataLongest more) {
    MxDataLongest *longest = &tally->longest;
    longest->whole = larger(longest->whole, more.whole);
    longest->prompt = larger(longest->prompt, more.prompt);
    longest->answer = larger(longest->answer, more.answer);
}

static void cut_pieces(Records *records, MxTokens piece[PIECES]) {
    const MxDataConfig *config = &records->dataset->config;
    int64_t prompt = piece[PROMPT].n;
    for (int i = ANSWER; i < PIECES; i++)
        records_raise(
            &records->tally,
            (MxDataLongest){.whole = prompt + piece[i].n, .prompt = prompt, .answer = piece[i].n});
    if (config->asks) {
        records->tally.n_cut_prompts += cut(&piece[PROMPT], config->max_prompt_length, true);
        return;
    }
    if (config->splits) return;
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

/* ---- drafts, by several threads */

enum { MOST_JOBS = 1024, MOST_JOB_BYTES = 4 << 20 };

/* A record on its way from the file. */
typedef struct Job {
    MxArena arena; /* in which all of it lies */
    MxError err;
    MxWhere where;
    const char *bytes; /* [n] as the file has it, with a 0 behind */
    size_t n;
    Fields fields;
    const char *lacking; /* a column that is missing or null; NULL = none */
    Draft draft;
    bool ok, goes_on; /* goes_on: others can be better */
} Job;

/* Records that are drafted together. */
typedef struct Batch {
    Records *records;
    const RecordFormat *format;
    Job *job; /* [n] of MOST_JOBS */
    int n;
    size_t n_bytes;
} Batch;

/* By the first record that can be read, which is in a batch of its own. */
static bool choose_columns(Records *records, const Job *job, MxError *err) {
    if (!columns_choose(&records->dataset->config, &job->fields, job->where, &records->columns,
                        err))
        return false;
    columns_ask(&records->columns, records->question);
    if (records->columns.talks && !talk_open(records, err)) return false;
    records->found = columns_found(records->arena, &job->fields);
    return true;
}

/* Makes tokens of a record's columns. */
static bool draft(const Records *records, Job *job) {
    Field column[COLUMNS_MOST];
    const Columns *columns = &records->columns;
    MxArena *arena = &job->arena;
    if (!columns_read(arena, columns, &job->fields, job->where, column, &job->err)) return false;
    for (int i = 0; i < columns->n_texts && !job->lacking; i++)
        if (columns_lacks(columns, &column[i])) job->lacking = columns->name[i];
    if (job->lacking) return true;
    return (!columns->talks ||
            talk_plain(arena, column, columns->n_texts, job->where, &job->err)) &&
           records_find_seen(arena, records, &job->fields, column, job->where, &job->draft,
                             &job->err) &&
           (columns->talks
                ? talk_draft(arena, records, &job->fields, column, job->where, &job->draft,
                             &job->err)
                : make_pieces(arena, records, column, job->where, &job->draft, &job->err));
}

static void do_job(void *data, int i) {
    Batch *batch = data;
    Job *job = &batch->job[i];
    Records *records = batch->records;
    job->ok = batch->format->parse(&job->arena, job->bytes, job->n, job->where, &job->fields,
                                   &job->goes_on, &job->err);
    if (!job->ok) return;
    if (!records->columns.n) job->goes_on = choose_columns(records, job, &job->err);
    job->ok = job->goes_on && draft(records, job);
}

/* ---- records, in their order */

/* Keeps what can teach something; what cannot is counted. */
static bool add_record(Records *records, Job *job, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    bool is_grouped = data_has_groups(config);
    if (job->lacking && is_grouped)
        return mx_fail(err, MX_EXIT_BAD_INPUT, job->where,
                       "column \"%s\" is missing or null; its group needs it", job->lacking);
    if (job->lacking) {
        leave_out(records, &records->tally.empty, job->where);
        return true;
    }
    const Draft whole = job->draft;
    if (!records_check_seen(records, &job->draft, false, job->where, err)) return false;
    cut_pieces(records, job->draft.piece);
    if (!records_check_seen(records, &job->draft, true, job->where, err)) return false;
    Record *kept = keep(records, &job->draft);
    records_keep_seen(records, &job->draft, job->where, kept);
    bool teaches = records_teach(records, kept);
    if (!teaches) leave_out(records, &records->tally.mute, job->where);
    if (teaches || is_grouped) {
        for (int i = 0; i < PIECES; i++) records->tally.n_tokens += kept->n[i];
        records->tally.n_counted += kept->n_counted;
        if (config->asks) return scores_keep(records, &job->fields, job->where, err);
        return !is_grouped || scores_read(records, &job->fields, &whole, job->where, err);
    }
    records->n--;
    return true;
}

/* Reads on after a bad record, so that several can be told at once; whether that makes sense. */
static bool finish_job(Batch *batch, Job *job, MxError *err) {
    Records *records = batch->records;
    if (!job->ok) mx_fail(err, job->err.exit, MX_NOWHERE, "%s", job->err.text.data);
    if (job->ok && add_record(records, job, err)) return true;
    if (data_has_groups(&records->dataset->config))
        return false; /* where groups begin is not known any more */
    if (++records->n_bad < MOST_BAD || !job->goes_on) return job->goes_on;
    mx_note(err, "%d bad %s; the rest was not read", MOST_BAD,
            batch->format->is_binary ? "records" : "lines");
    return false;
}

static bool finish_batch(Batch *batch, MxError *err) {
    bool goes_on = true;
    mx_parallel(batch->records->dataset->config.n_threads, batch->n, do_job, batch);
    for (int i = 0; i < batch->n; i++) {
        Job *job = &batch->job[i];
        goes_on = goes_on && finish_job(batch, job, err);
        mx_error_release(&job->err);
        mx_arena_release(&job->arena);
    }
    batch->n = 0;
    batch->n_bytes = 0;
    return goes_on;
}

static void add_job(Batch *batch, const RecordFile *file, const char *bytes, size_t n) {
    Job *job = &batch->job[batch->n++];
    *job = (Job){.arena = {.name = "record"}, .n = n, .goes_on = true};
    job->where = record_file_where(&job->arena, file);
    job->bytes = mx_arena_strndup(&job->arena, bytes, n);
    batch->n_bytes += n;
}

/* The columns are chosen by the first record, so nothing is drafted beside it. */
static bool is_full(const Batch *batch) {
    return batch->n == MOST_JOBS || batch->n_bytes >= MOST_JOB_BYTES ||
           (batch->n && !batch->records->columns.n);
}

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
    Batch batch = {.records = records, .format = file.format};
    batch.job = mx_new_n(&reading, Job, MOST_JOBS);
    while (ok && goes_on && file.format->next(&file, &bytes, &n, &why)) {
        add_job(&batch, &file, bytes, n);
        if (is_full(&batch)) goes_on = finish_batch(&batch, err);
    }
    if (ok && goes_on) goes_on = finish_batch(&batch, err);
    if (goes_on && why.count) goes_on = mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
    if (ok && goes_on && !file.stream.is_at_end)
        goes_on =
            mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "has grown while it was read");
    if (ok && goes_on) data_add_file(records->arena, records->dataset, stream_file(&file.stream));
    mx_error_release(&why);
    mx_arena_release(&reading);
    return ok && goes_on;
}
