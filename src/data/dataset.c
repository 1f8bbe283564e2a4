/* dataset.c — datasets by kind, and a batch as rows of the sequence of epochs. What a row holds is
 * each kind's own matter (synthetic.c, corpus.c, records.c, hdf5.c); what of a pair counts is in
 * pair.c; the thread that works ahead is in loader.c. */
#include "source.h"

static const char *const field_names[MX_BATCH_FIELDS] = {
    [MX_INPUTS] = "inputs",
    [MX_TARGETS] = "targets",
    [MX_INPUTS_POSITION] = "inputs_position",
    [MX_TARGETS_POSITION] = "targets_position",
    [MX_INPUTS_SEGMENTATION] = "inputs_segmentation",
    [MX_TARGETS_SEGMENTATION] = "targets_segmentation",
};

const char *mx_batch_field_name(MxBatchField field) {
    return field_names[field];
}

MxBatch mx_batch_new(MxArena *arena, int64_t rows, int64_t length) {
    MxBatch batch = {.rows = rows, .length = length};
    for (int i = 0; i < MX_BATCH_FIELDS; i++)
        batch.field[i] = mx_new_n(arena, int32_t, rows * length);
    return batch;
}

static const DataKind *const kinds[] = {&data_synthetic, &data_text, &data_records, &data_hdf5};

static const DataKind *find_kind(const char *name, MxWhere where, MxError *err) {
    const char *names[MX_COUNT(kinds)];
    for (int i = 0; i < MX_COUNT(kinds); i++) {
        names[i] = kinds[i]->name;
        if (!strcmp(names[i], name)) return kinds[i];
    }
    const char *nearest = mx_nearest(name, names, MX_COUNT(kinds));
    mx_fail(err, MX_EXIT_CONFIG, where, "unrecognized kind of dataset \"%s\"", name);
    if (nearest) mx_note(err, "hint: did you mean \"%s\"", nearest);
    return NULL;
}

bool data_check_tokenizer(const MxDataConfig *config, MxError *err) {
    int32_t vocab = mx_tokenizer_vocab(config->tokenizer);
    return vocab <= config->vocab ||
           mx_fail(err, MX_EXIT_CONFIG, config->where,
                   "tokenizer \"%s\" has %d tokens, vocab_size is %lld",
                   mx_tokenizer_type(config->tokenizer), vocab, (long long)config->vocab);
}

int64_t mx_data_batch_rows(const MxDataConfig *config) {
    return config->pairs ? 2 * config->rows : config->rows;
}

/* What an epoch and a batch are counted in. */
static const char *unit_of(const MxDataset *dataset) {
    return dataset->config.pairs ? "pairs" : "rows";
}

static bool check_kind(const MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    if (!config->pairs || dataset->kind->has_pairs) return true;
    return mx_fail(err, MX_EXIT_CONFIG, config->where,
                   "pairs of responses are wanted; data of kind \"%s\" has none", config->kind);
}

bool mx_data_open(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err) {
    MX_ASSERT(config->rows > 0 && config->length > 0 && config->vocab > 0);
    MX_ASSERT(config->length < INT32_MAX && config->vocab <= (int64_t)1 << 31);
    MxDataset *dataset = mx_new(arena, MxDataset);
    dataset->config = *config;
    dataset->kind = find_kind(config->kind, config->where, err);
    if (!dataset->kind || !check_kind(dataset, err) || !dataset->kind->open(arena, dataset, err))
        return false;
    if (dataset->n_rows < config->rows)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "too little data: %s; a batch needs %lld %s", dataset->description,
                       (long long)config->rows, unit_of(dataset));
    if (dataset->kind->is_endless) dataset->config.n_epochs = 0;
    int64_t steps = mx_data_steps(dataset), epochs = dataset->config.n_epochs;
    dataset->end_reason =
        steps < 0 ? "the data has no end"
                  : mx_arena_printf(arena,
                                    "the data ends after %lld batches of %lld %s: %lld epoch%s "
                                    "of %lld %s",
                                    (long long)steps, (long long)config->rows, unit_of(dataset),
                                    (long long)epochs, epochs == 1 ? "" : "s",
                                    (long long)dataset->n_rows, unit_of(dataset));
    *out = dataset;
    return true;
}

int64_t mx_data_steps(const MxDataset *dataset) {
    const MxDataConfig *config = &dataset->config;
    if (config->n_epochs <= 0 || config->n_epochs > INT64_MAX / dataset->n_rows) return -1;
    return config->n_epochs * dataset->n_rows / config->rows;
}

const char *mx_data_end_reason(const MxDataset *dataset) {
    return dataset->end_reason;
}

const char *mx_data_describe(const MxDataset *dataset) {
    return dataset->description;
}

const char *mx_data_warning(const MxDataset *dataset) {
    return dataset->warning;
}

DataRow data_row(const MxBatch *batch, int64_t row) {
    DataRow at;
    for (int f = 0; f < MX_BATCH_FIELDS; f++) at.field[f] = batch->field[f] + row * batch->length;
    return at;
}

MxDataStatus mx_data_batch(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    MX_ASSERT(step >= 0 && out->length == config->length);
    MX_ASSERT(out->rows == mx_data_batch_rows(config));
    int64_t steps = mx_data_steps(dataset);
    if (steps >= 0 && step >= steps) return MX_DATA_END;
    for (int64_t r = 0; r < config->rows; r++) {
        int64_t row = step * config->rows + r;
        int64_t epoch = row / dataset->n_rows, i = row % dataset->n_rows;
        if (config->shuffle && !dataset->kind->is_endless)
            i = data_shuffle(config->seed, epoch, dataset->n_rows, i);
        DataRow to[2] = {data_row(out, r)};
        if (config->pairs) to[1] = data_row(out, config->rows + r);
        if (!dataset->kind->row(dataset, i, to, err)) return MX_DATA_ERROR;
    }
    return MX_DATA_OK;
}
