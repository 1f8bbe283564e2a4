/* records.c — datasets of records: texts, prompts with completions, prompts with pairs of
 * responses. All of them are read and kept as tokens when the dataset is opened (records_read.c);
 * here they become rows, with one or several records each. The kinds are MaxText's: "hf" is JSON
 * and text, "grain" files for Grain, "tfds" files written by TensorFlow Datasets. */
#include "records.h"

#include "cache.h"
#include "formats.h"

#include <stdlib.h>

/* ---- rows */

int32_t records_id(const Records *records, const Record *record, int64_t i) {
    return records->is_narrow ? ((const uint16_t *)record->ids)[i]
                              : ((const int32_t *)record->ids)[i];
}

/* Adds n tokens of a record from `from` on to a row. */
static void add_ids(MxDataset *dataset, const Record *record, int64_t from, int64_t n, bool counts,
                    RowFill *fill) {
    const Records *records = dataset->source;
    int32_t *tokens = dataset->scratch.tokens;
    for (int64_t i = 0; i < n; i++) tokens[i] = records_id(records, record, from + i);
    rows_add(fill, tokens, n, counts);
}

/* A prompt and a record's answer, or its rejected one (side 1). The first token counts for nobody:
 * the row's token before it is of another document. */
static void add_mixed(MxDataset *dataset, const Record *asks, const Record *record, int side,
                      RowFill *fill) {
    const MxDataConfig *config = &dataset->config;
    int64_t begin = fill->n, answer = record->n[PROMPT] + (side ? record->n[ANSWER] : 0);
    rows_document(fill);
    add_ids(dataset, asks, 0, asks->n[PROMPT], !config->pairs && !config->completion_only, fill);
    for (int32_t i = 0; i < record->n_turns; i++) {
        bool counts = i % 2 == 0 || !config->completion_only;
        add_ids(dataset, record, answer, record->turn[i], counts, fill);
        answer += record->turn[i];
    }
    if (!record->n_turns) add_ids(dataset, record, answer, record->n[ANSWER + side], true, fill);
    if (begin < fill->length) fill->row->field[MX_TARGETS_SEGMENTATION][begin] = 0;
}

static void add_document(MxDataset *dataset, const Record *record, int side, RowFill *fill) {
    add_mixed(dataset, record, record, side, fill);
}

RowFill records_fill(MxDataset *dataset, int64_t row, int side, const DataRow *out) {
    const Records *records = dataset->source;
    const RowPacking *packing = &records->packing;
    RowFill fill = rows_begin(out, dataset->config.length);
    if (!packing->n_rows) add_document(dataset, &records->item[row], side, &fill);
    for (int64_t i = packing->n_rows ? packing->first[row] : 0;
         packing->n_rows && i < packing->first[row + 1]; i++)
        add_document(dataset, &records->item[packing->document[i]], side, &fill);
    return fill;
}

/* Nobody predicts what an image is, nor what fills up a row of ids. */
static void leave_mute(const Records *records, RowFill *fill) {
    int32_t *const *field = fill->row->field;
    for (int64_t t = 0; records->mute >= 0 && t < fill->n; t++)
        if (field[MX_INPUTS][t] == records->mute ||
            (records->seer && seer_reads(records->seer, field[MX_INPUTS][t])))
            field[MX_TARGETS_SEGMENTATION][t] = 0;
}

bool records_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err) {
    (void)err;
    RowFill fill = records_fill(dataset, row, side, out);
    leave_mute(dataset->source, &fill);
    return true;
}

static void end_row(const Records *records, RowFill *fill) {
    leave_mute(records, fill);
    rows_end(fill);
}

bool records_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    (void)err;
    RowFill fill = records_fill(dataset, row, 0, out);
    end_row(dataset->source, &fill);
    return true;
}

bool records_see(MxDataset *dataset, int64_t row, const int32_t *tokens, const DataSeen *out,
                 MxError *err) {
    const Records *records = dataset->source;
    const Record *record = &records->item[row];
    if (!record->pictures) return true;
    seer_index(records->seer, record->pictures, tokens, dataset->config.length,
               mx_vision_rows(&records->seer->vision), out->index);
    return seer_views(records->seer, record->pictures, record->where, dataset->scratch.rgb, out,
                      err);
}

bool records_mixed(MxDataset *dataset, int64_t prompt, int64_t answer, const DataRow *out,
                   MxError *err) {
    const Record *item = ((const Records *)dataset->source)->item;
    RowFill fill = rows_begin(out, dataset->config.length);
    (void)err;
    add_mixed(dataset, &item[prompt], &item[answer], 0, &fill);
    end_row(dataset->source, &fill);
    return true;
}

MxDataLongest records_longest(const MxDataset *dataset) {
    return ((const Records *)dataset->source)->tally.longest;
}

int records_answers(const MxDataConfig *config) {
    return config->pairs ? 2 : config->asks ? 0 : 1;
}

bool records_teach(Records *records, Record *record) {
    MxDataset *dataset = records->dataset;
    int64_t length = dataset->config.length, n_pairs;
    int n_sides = dataset->config.pairs ? 2 : 1;
    if (dataset->kind->is_stream) return true;
    if (dataset->config.asks) return record->n[PROMPT] > 0;
    if (record->n[ANSWER] > length && dataset->config.splits)
        return records_teach_apart(records, record);
    for (int side = 0; side < n_sides; side++) {
        RowFill fill = rows_begin(&dataset->spare[side], length);
        add_document(dataset, record, side, &fill);
        if (n_sides == 1)
            end_row(records, &fill);
        else
            leave_mute(records, &fill);
    }
    if (n_sides == 2) {
        data_pair_finish(dataset, dataset->spare);
        return !data_pair_mute(length, dataset->spare, &n_pairs);
    }
    const int32_t *counts = dataset->spare[0].field[MX_TARGETS_SEGMENTATION];
    record->n_counted = 0;
    for (int64_t t = 0; t < length; t++) record->n_counted += counts[t] != 0;
    return record->n_counted > 0;
}

/* ---- telling */

static const char *unit_of(const Records *records) {
    const MxDataConfig *config = &records->dataset->config;
    return config->splits  ? "pieces"
           : config->pairs ? "pairs"
           : config->asks  ? "prompts"
           : config->group ? "responses"
                           : "documents";
}

static void describe(Records *records, const DataParts *parts) {
    MxDataset *dataset = records->dataset;
    const DataPart *first = parts->item;
    const MxDataConfig *config = &dataset->config;
    MxText text;
    mx_text_init(&text, records->arena);
    mx_text_add(&text, "%s: %s%s, %lld %s (", dataset->kind->name, first->paths[0],
                parts->n > 1 || first->n_paths > 1 ? " …" : "", (long long)records->n,
                unit_of(records));
    for (int i = 0; i < records->columns.n; i++)
        mx_text_add(&text, "%s%s", i ? ", " : "", records->columns.name[i]);
    mx_text_add(&text, "), %lld tokens", (long long)records->tally.n_tokens);
    if (config->is_sft && !config->asks)
        mx_text_add(&text, ", %lld of them count", (long long)records->tally.n_counted);
    if (config->pairs)
        mx_text_add(&text,
                    ", %lld prompts cut to their last %lld tokens, %lld responses to their first "
                    "%lld",
                    (long long)records->tally.n_cut_prompts, (long long)config->max_prompt_length,
                    (long long)records->tally.n_cut,
                    (long long)(config->length - config->max_prompt_length));
    else if (config->asks)
        mx_text_add(&text, ", %lld cut to their last %lld", (long long)records->tally.n_cut_prompts,
                    (long long)config->max_prompt_length);
    else if (config->splits)
        mx_text_add(&text, ", %lld documents %s into pieces of at most %lld",
                    (long long)records->n_split, dataset->kind->join ? "joined and cut" : "split",
                    (long long)config->length);
    else
        mx_text_add(&text, ", %lld cut to %lld", (long long)records->tally.n_cut,
                    (long long)config->length);
    if (!config->pairs || records->packing.n_rows)
        mx_text_add(&text, ", %lld rows", (long long)dataset->n_rows);
    for (int i = 0; records->n_shares > 1 && i < records->n_shares; i++) {
        const Share *share = &records->share[i];
        mx_text_add(&text, "%s %lld of %lld of \"%s\" (weight %g)",
                    i ? "," : "; mixture:", (long long)share->used, (long long)share->n,
                    share->part->label, share->part->weight);
    }
    cache_tell(dataset, &text);
    dataset->description = text.data;
}

static const char *why_mute(const MxDataConfig *config) {
    if (config->asks) return "the prompt has no tokens";
    return config->pairs ? "chosen equals rejected or no token counts"
                         : "no token counts, since nothing is left behind the prompt";
}

static const char *place_of(MxArena *arena, MxWhere where) {
    return where.line ? mx_arena_printf(arena, "%s:%d", where.file, where.line) : where.file;
}

static void warn(Records *records) {
    const struct {
        const LeftOut *out;
        const char *why;
    } reasons[] = {{&records->tally.empty, "a column is missing or null"},
                   {&records->tally.mute, why_mute(&records->dataset->config)}};
    bool keeps_mute = data_has_groups(&records->dataset->config);
    int64_t all = records->n + records->tally.empty.n + (keeps_mute ? 0 : records->tally.mute.n);
    MxText text;
    mx_text_init(&text, records->arena);
    for (int i = 0; i < MX_COUNT(reasons); i++)
        if (reasons[i].out->n)
            mx_text_add(&text, "%s%s: %s; %lld of %lld records %s for that", text.len ? "; " : "",
                        place_of(records->arena, reasons[i].out->first), reasons[i].why,
                        (long long)reasons[i].out->n, (long long)all,
                        keeps_mute ? "teach nothing" : "are left out");
    if (records->columns.talks && mx_chat_has_clock(records->chat) && !getenv("SOURCE_DATE_EPOCH"))
        mx_text_add(&text,
                    "%sthe chat template tells the date, so data differs from day to day; "
                    "SOURCE_DATE_EPOCH=SECONDS in the environment keeps it",
                    text.len ? "; " : "");
    const MxDataConfig *config = &records->dataset->config;
    if ((config->chat.named || config->chat.text) && !records->columns.talks &&
        !config->chat_has_others)
        mx_text_add(&text, "%sthe data holds no conversations, so the chat template does nothing",
                    text.len ? "; " : "");
    if (text.len) records->dataset->warning = text.data;
}

/* No record is left. */
static bool refuse(const Records *records, MxWhere where, MxError *err) {
    const LeftOut *empty = &records->tally.empty, *mute = &records->tally.mute;
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

/* Which records share a row if they were laid out as a config says; of pairs both rows. */
static RowPacking pack_rows(MxArena *arena, const Records *records, const MxDataConfig *as) {
    bool is_stream = records->dataset->kind->is_stream;
    RowLimits limits = {.length = as->length,
                        .bins = is_stream ? 1 : as->rows,
                        .together = is_stream ? as->length : 0,
                        .max_segments = as->max_segments,
                        .sides = as->pairs ? 2 : 1};
    MxArena scratch = {.name = "packing"};
    int32_t *lengths = mx_new_n(&scratch, int32_t, limits.sides * records->n), *next = lengths;
    for (int64_t i = 0; i < records->n; i++)
        for (int side = 0; side < limits.sides; side++) {
            int64_t n = records->item[i].n[PROMPT] + records->item[i].n[ANSWER + side];
            *next++ = (int32_t)(n < limits.length ? n : limits.length);
        }
    RowPacking packing = rows_pack(arena, lengths, records->n, &limits);
    mx_arena_release(&scratch);
    return packing;
}

static void pack(Records *records) {
    const MxDataConfig *config = &records->dataset->config;
    records->packing = pack_rows(records->arena, records, config);
    if (config->pairs) records->dataset->unit = "rows of pairs";
}

int64_t records_rows(const MxDataset *dataset, const MxDataConfig *as) {
    MxArena arena = {.name = "rows"};
    const Records *records = dataset->source;
    if (dataset->config.splits) return 0; /* pieces of another length are not made */
    int64_t n = as->packing ? pack_rows(&arena, records, as).n_rows
                            : records->n / (as->group ? as->group : 1);
    mx_arena_release(&arena);
    return n;
}

static bool check_shares(const Records *records, MxError *err) {
    for (int i = 0; i < records->n_shares; i++)
        if (!records->share[i].n)
            return mx_fail(err, MX_EXIT_BAD_INPUT, records->dataset->config.where,
                           "no records in \"%s\", a part of the mixture",
                           records->share[i].part->label);
    return true;
}

static void check_config(const MxDataConfig *config) {
    MX_ASSERT(config->pairs != MX_DATA_PAIRS_MAXTEXT || !config->packing);
    MX_ASSERT(!config->images.vision.images ||
              !(config->packing || config->has_labels || config->has_ids));
    MX_ASSERT(!config->group || (config->is_sft && config->completion_only && !config->packing));
    MX_ASSERT(!config->splits ||
              !(config->pairs || config->group || config->is_sft || config->images.vision.images));
    MX_ASSERT((!config->pairs && !config->asks) ||
              (config->max_prompt_length > 0 && config->max_prompt_length < config->length));
    MX_ASSERT(!config->n_columns ||
              (config->pairs ? config->n_columns == 2 || config->n_columns == 3
                             : config->n_columns <= 1 + config->is_sft));
}

/* A file that was cut between two records looks whole; only its set knows better. */
static bool check_told(const Records *records, const DataPart *part, MxError *err) {
    int64_t n = records->n + records->tally.empty.n + records->tally.mute.n; /* no groups */
    return !part->told_by || n == part->n_told ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = part->told_by},
                   "says that split \"%s\" has %lld records, but its files have %lld",
                   records->dataset->config.split, (long long)part->n_told, (long long)n);
}

static bool read_parts(Records *records, const DataParts *parts, MxError *err) {
    int n_files = 0, n = 0;
    for (int i = 0; i < parts->n; i++) n_files += parts->item[i].n_paths;
    records->share = mx_new_n(records->arena, Share, parts->n);
    records->begins = mx_new_n(records->arena, int64_t, n_files + 1);
    for (int i = 0; i < parts->n; i++) {
        Share *share = &records->share[records->n_shares++];
        *share = (Share){.part = &parts->item[i], .first = records->n};
        for (int k = 0; k < parts->item[i].n_paths; k++) {
            if (!records_read_kept(records, parts->item[i].paths[k], err)) return false;
            records->begins[++n] = records->n;
        }
        share->n = records->n - share->first;
        if (!records->n_bad && !check_told(records, share->part, err)) return false;
    }
    return !records->n_bad;
}

/* ---- opening */

bool records_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    Records *records = mx_new(arena, Records);
    DataParts parts;
    check_config(config);
    if (!data_check_tokenizer(config, err) || !dataset->kind->parts(arena, config, &parts, err))
        return false;
    *records =
        (Records){.arena = arena, .dataset = dataset, .is_narrow = config->vocab <= UINT16_MAX + 1};
    dataset->source = records;
    if (!seer_open(arena, config, &records->seer, err) ||
        !question_open(arena, &config->form, &records->question, err))
        return false;
    records->mute = records->seer     ? records->seer->token
                    : config->has_ids ? mx_tokenizer_pad(config->tokenizer)
                                      : -1;
    if (!records_cache_open(records, err)) return false;
    if (!read_parts(records, &parts, err)) return false;
    bool has_groups = data_has_groups(config);
    if (!records->n || (has_groups && !records->tally.n_counted))
        return refuse(records, config->where, err);
    if (has_groups && !scores_check(records, err)) return false;
    if (records->n_shares > 1) {
        if (!check_shares(records, err)) return false;
        records_mix(records);
    }
    if (dataset->kind->join)
        dataset->kind->join(records);
    else if (config->splits)
        records_split(records);
    if (config->packing) pack(records);
    dataset->n_rows =
        config->packing ? records->packing.n_rows : records->n / (has_groups ? config->group : 1);
    describe(records, &parts);
    warn(records);
    return true;
}
