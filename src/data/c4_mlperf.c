/* c4_mlperf.c — C4 as MLPerf's benchmark of GPT-3 reads it, from a folder of TensorFlow Datasets:
 * documents follow each other in rows, in groups of a fixed number of documents. Splits and the
 * form of what is evaluated follow from the names of the sets. Source: MaxText
 * input_pipeline/tfds_data_processing_c4_mlperf.py and packing/sequence_packing.py @e591f30c. */
#include "formats.h"
#include "parts.h"
#include "records.h"

enum {
    JOINED = 4096,       /* documents of training */
    JOINED_EVAL = 24567, /* documents of evaluation: all of 3.0.4 */
    UNUSED = 0,          /* the token that documents lose when they are joined, and … */
    END = 1,             /* … that is never a target, whatever the tokenizer's are */
};

/* What is evaluated, by the name of its set. */
static const struct {
    const char *set, *split;
    bool has_ids; /* rows of ids instead of texts */
} evaluated[] = {
    {"c4/en:3.0.1", "validation", false},
    {"c4/en:3.0.4", "validation_24567exp", false},
    {"c4/en:3.0.5", "validation_tokenized_5662seqs", true},
    {"c4/en:3.0.8", "validation", false},
    {"c4/en:3.0.9", "validation", false},
};

static bool no_such_set(const MxDataConfig *config, MxError *err) {
    MxArena scratch = {.name = "message"};
    MxText text;
    mx_text_init(&text, &scratch);
    for (int i = 0; i < MX_COUNT(evaluated); i++)
        mx_text_add(&text, "%s%s", i ? ", " : "", evaluated[i].set);
    mx_fail(err, MX_EXIT_CONFIG, config->where,
            "\"%s\" is no set that c4_mlperf evaluates; wanted one of %s", config->set, text.data);
    mx_note(err, "hint: dataset_type=tfds evaluates any set");
    mx_arena_release(&scratch);
    return false;
}

/* What the names of the sets say besides the config. */
static bool settle(MxDataConfig *config, MxError *err) {
    static const char *const text[] = {"text"}, *const ids[] = {"ids"};
    config->columns = text;
    config->n_columns = 1;
    config->split = "train2";
    config->has_ids = false;
    config->splits = true;
    if (!config->evaluates) return true;
    for (int i = 0; i < MX_COUNT(evaluated); i++) {
        if (!config->set || strcmp(config->set, evaluated[i].set)) continue;
        config->split = evaluated[i].split;
        config->has_ids = evaluated[i].has_ids;
        config->splits = !config->has_ids;
        if (config->has_ids) config->columns = ids;
        return true;
    }
    return no_such_set(config, err);
}

static bool c4_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    MxDataConfig settled = *config;
    return settle(&settled, err) && parts_of_set(arena, &settled, out, err);
}

static bool c4_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    MxDataConfig *config = &dataset->config;
    if (!settle(config, err) || !records_open(arena, dataset, err)) return false;
    if (!config->evaluates) return true;
    int64_t rows = dataset->n_rows;
    dataset->n_rows = (rows + config->rows - 1) / config->rows * config->rows;
    if (dataset->n_rows > rows)
        dataset->description =
            mx_arena_printf(arena, "%s, and %lld that do not count fill up the last batch",
                            dataset->description, (long long)(dataset->n_rows - rows));
    return true;
}

/* What fills up a row, and is no target inside of it; -1 = the tokenizer has no such token. */
static int32_t padding_of(const MxTokenizer *tokenizer) {
    int32_t pad = mx_tokenizer_pad(tokenizer);
    return pad >= 0 ? pad : mx_tokenizer_unk(tokenizer);
}

/* Targets: the inputs moved by one, across documents. A token whose target does not count has no
 * segment. */
static void end_row(const RowFill *fill, int32_t pad) {
    int32_t *const *field = fill->row->field;
    const int32_t *inputs = field[MX_INPUTS];
    int32_t *segment = field[MX_INPUTS_SEGMENTATION];
    for (int64_t t = fill->n; t < fill->length; t++) field[MX_INPUTS][t] = pad < 0 ? 0 : pad;
    for (int64_t t = 0; t < fill->length; t++) {
        int32_t target = t + 1 < fill->length ? inputs[t + 1] : END;
        bool counts = t + 1 < fill->n && target != END && target != pad;
        field[MX_TARGETS][t] = target;
        if (!counts || inputs[t] == pad) segment[t] = 0;
    }
    size_t bytes = (size_t)fill->length * sizeof *segment;
    memcpy(field[MX_TARGETS_SEGMENTATION], segment, bytes);
    memcpy(field[MX_TARGETS_POSITION], field[MX_INPUTS_POSITION], bytes);
}

/* What fills up the last batch of evaluation is the first row, without targets. */
static bool c4_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    const Records *records = dataset->source;
    bool is_more = row >= records->packing.n_rows;
    RowFill fill = records_fill(dataset, is_more ? 0 : row, 0, out);
    (void)err;
    end_row(&fill, padding_of(dataset->config.tokenizer));
    if (is_more)
        memset(out->field[MX_TARGETS_SEGMENTATION], 0, (size_t)fill.length * sizeof(int32_t));
    return true;
}

/* ---- documents in the order of TensorFlow Datasets, which reads several files at a time */

enum { OPEN = 16, BLOCK = 16 }; /* files, and records of each before it is the next one's turn */

/* The records of a file that are still to be read. */
typedef struct File {
    int64_t next, end;
    bool is_open;
} File;

/* Source: tensorflow_datasets 4.9 core/reader.py, _read_files; tf.data.Dataset.interleave. */
static Record *interleave(const Records *records) {
    const DataPart *part = records->share->part;
    Record *order = mx_new_n(records->arena, Record, records->n + 1);
    int n_open = part->is_ordered ? 1 : OPEN, opened = 0, turn = 0, n_taken = 0;
    File file[OPEN] = {0};
    for (int64_t n = 0; n < records->n;) {
        File *at = &file[turn];
        if (!at->is_open && opened < part->n_paths) {
            *at = (File){.next = records->begins[opened], .end = records->begins[opened + 1]};
            at->is_open = at->next < at->end; /* files without records take no turn */
            opened++;
        } else if (at->is_open && at->next < at->end && n_taken < BLOCK) {
            order[n++] = records->item[at->next++];
            n_taken++;
        } else {
            if (n_taken < BLOCK) at->is_open = false;
            turn = (turn + 1) % n_open;
            n_taken = 0;
        }
    }
    return order;
}

/* ---- documents that are joined */

/* Adds a document's tokens behind n others; their number with them. */
static int64_t add_tokens(const Records *records, const Record *document, void *ids, int64_t n) {
    for (int64_t i = 0; i < document->n[ANSWER]; i++) {
        int32_t id = records_id(records, document, i);
        if (id == UNUSED) continue;
        if (records->is_narrow)
            ((uint16_t *)ids)[n++] = (uint16_t)id;
        else
            ((int32_t *)ids)[n++] = id;
    }
    return n;
}

/* Cuts the tokens of a group, [from, to), into records; the number of all records with them. */
static int64_t cut_group(const Records *records, const void *ids, int64_t from, int64_t to,
                         Record *item, int64_t n) {
    int64_t length = records->dataset->config.length;
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    for (; from < to; from += length) {
        item[n] = (Record){.ids = (const uint8_t *)ids + (size_t)from * id_bytes};
        item[n++].n[ANSWER] = (int32_t)(to - from < length ? to - from : length);
    }
    return n;
}

/* Rows of ids were joined before. */
static void c4_join(Records *records) {
    const MxDataConfig *config = &records->dataset->config;
    records->item = interleave(records);
    if (config->has_ids) return;
    int64_t joined = config->evaluates ? JOINED_EVAL : JOINED, all = records->tally.n_tokens;
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    void *ids = mx_arena_alloc(records->arena, (size_t)(all + 1) * id_bytes);
    Record *item = mx_new_n(records->arena, Record, all / config->length + records->n / joined + 1);
    int64_t n_ids = 0, n = 0, from = 0;
    for (int64_t i = 0; i < records->n; i++) {
        n_ids = add_tokens(records, &records->item[i], ids, n_ids);
        if ((i + 1) % joined && i + 1 < records->n) continue;
        n = cut_group(records, ids, from, n_ids, item, n);
        from = n_ids;
    }
    records->n_split = records->n;
    records->tally.n_tokens = n_ids;
    records->item = item;
    records->n = n;
}

const DataKind data_c4_mlperf = {
    .name = "c4_mlperf",
    .reads_text = true,
    .is_stream = true,
    .parts = c4_parts,
    .choice = examples_choice,
    .join = c4_join,
    .open = c4_open,
    .row = c4_row,
    .longest = records_longest,
    .doc = "C4 in a folder of TensorFlow Datasets, as MLPerf's benchmark of GPT-3 reads it",
};
