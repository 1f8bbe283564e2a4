/* dataset.c — datasets by kind, and a batch as rows of the sequence of epochs. Each kind makes its
 * own rows (synthetic.c, corpus.c, records.c, hdf5.c, olmo.c); pair.c decides which tokens of a
 * pair count; the thread that prefetches batches is in loader.c. */
#include "source.h"

#include <math.h>

static const DataKind *const kinds[] = {&data_synthetic, &data_text,      &data_hf,   &data_grain,
                                        &data_tfds,      &data_c4_mlperf, &data_hdf5, &data_olmo};

const DataKind *data_find_kind(const char *name, MxWhere where, MxError *err) {
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

bool mx_data_reads_text(const char *kind) {
    for (int i = 0; i < MX_COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, kind)) return kinds[i]->reads_text;
    return false;
}

bool data_check_tokenizer(const MxDataConfig *config, MxError *err) {
    int32_t vocab = mx_tokenizer_vocab(config->tokenizer);
    return vocab <= config->vocab ||
           mx_fail(err, MX_EXIT_CONFIG, config->where,
                   "tokenizer \"%s\" has %d tokens, vocab_size is %lld",
                   mx_tokenizer_type(config->tokenizer), vocab, (long long)config->vocab);
}

int64_t mx_data_batch_rows(const MxDataConfig *config) {
    return data_sides(config) * config->rows;
}

int64_t data_sides(const MxDataConfig *config) {
    return config->group ? config->group : config->pairs ? 2 : 1;
}

bool data_has_groups(const MxDataConfig *config) {
    return config->group && !config->asks;
}

static bool check_kind(const MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    bool has = config->group ? dataset->kind->score != NULL : dataset->kind->side != NULL;
    return (!config->group && !config->pairs) || has ||
           mx_fail(err, MX_EXIT_CONFIG, config->where,
                   "%s are wanted; data of kind \"%s\" has none",
                   config->asks    ? "prompts for responses"
                   : config->group ? "responses with rewards"
                                   : "pairs of responses",
                   config->kind);
}

void data_make_room(MxArena *arena, MxDataset *dataset) {
    int64_t length = dataset->config.length;
    MxBatch spare = mx_batch_new(arena, MX_COUNT(dataset->spare), length);
    for (int i = 0; i < MX_COUNT(dataset->spare); i++) dataset->spare[i] = data_row(&spare, i);
    dataset->scratch = (DataScratch){.wide = mx_new_n(arena, int64_t, length),
                                     .tokens = mx_new_n(arena, int32_t, length),
                                     .mask = mx_new_n(arena, int32_t, length),
                                     .reals = mx_new_n(arena, float, length)};
    const MxDataImages *images = &dataset->config.images;
    if (!images->vision.images) return;
    dataset->scratch.rgb = mx_new_n(
        arena, uint8_t, mx_vision_views(&images->vision) * mx_vision_pixels(&images->vision) * 3);
    if (images->hearing.encoder)
        dataset->scratch.samples = mx_new_n(arena, float, sounds_most(&images->hearing));
    for (int k = 0; k < MX_MROPE_KINDS; k++)
        dataset->scratch.mrope[k] = mx_new_n(arena, int32_t, length);
}

void data_say_end(MxArena *arena, MxDataset *dataset) {
    const MxDataConfig *config = &dataset->config;
    int64_t steps = mx_data_batches(dataset), epochs = config->n_epochs;
    dataset->end_reason =
        steps < 0 ? "the data has no end"
                  : mx_arena_printf(arena,
                                    "the data ends after %lld batches of %lld %s: %lld epoch%s "
                                    "of %lld %s",
                                    (long long)steps, (long long)config->rows, dataset->unit,
                                    (long long)epochs, epochs == 1 ? "" : "s",
                                    (long long)dataset->n_rows, dataset->unit);
}

bool mx_data_open(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err) {
    MX_ASSERT(config->rows > 0 && config->length > 0 && config->vocab > 0);
    MX_ASSERT(!config->pads || !config->group);
    MX_ASSERT(config->length < INT32_MAX && config->vocab <= (int64_t)1 << 31);
    MxDataset *dataset = mx_new(arena, MxDataset);
    dataset->config = *config;
    dataset->kind = data_find_kind(config->kind, config->where, err);
    dataset->unit = config->asks    ? "prompts"
                    : config->group ? "groups"
                    : config->pairs ? "pairs"
                                    : "rows";
    data_make_room(arena, dataset);
    if (!dataset->kind || !check_kind(dataset, err) || !dataset->kind->open(arena, dataset, err))
        return false;
    if (dataset->n_rows < config->rows)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "too little data: %s; a batch needs %lld %s", dataset->description,
                       (long long)config->rows, dataset->unit);
    if (dataset->kind->is_endless) dataset->config.n_epochs = 0;
    data_say_end(arena, dataset);
    *out = dataset;
    return true;
}

bool mx_data_skip(MxArena *arena, MxDataset *dataset, int64_t n, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    if (dataset->n_rows - n < config->rows)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "too little data: %s; a batch needs %lld %s behind the first %lld",
                       dataset->description, (long long)config->rows, dataset->unit, (long long)n);
    dataset->n_skipped = n;
    data_say_end(arena, dataset);
    return true;
}

/* ---- what is told */

int64_t mx_data_steps(const MxDataset *dataset) {
    return dataset->config.pads ? -1 : mx_data_batches(dataset);
}

int64_t mx_data_batches(const MxDataset *dataset) {
    const MxDataConfig *config = &dataset->config;
    if (config->n_epochs <= 0 || config->n_epochs > INT64_MAX / dataset->n_rows) return -1;
    return (config->n_epochs * dataset->n_rows - dataset->n_skipped) / config->rows;
}

MxDataLongest mx_data_longest(const MxDataset *dataset) {
    return dataset->kind->longest ? dataset->kind->longest(dataset) : (MxDataLongest){0};
}

int64_t mx_data_rows(const MxDataset *dataset, const MxDataConfig *as) {
    return dataset->kind->rows ? dataset->kind->rows(dataset, as) : 0;
}

int64_t mx_data_epochs_for(const MxDataset *dataset, int64_t steps) {
    double rows = (double)steps * (double)dataset->config.rows;
    return (int64_t)ceil(rows / (double)dataset->n_rows);
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

const MxDataFile *mx_data_files(const MxDataset *dataset, int *n) {
    *n = dataset->n_files;
    return dataset->files;
}

int64_t mx_data_rows_made(const MxDataset *dataset) {
    return dataset->n_made;
}

/* Which of a dataset's rows is row r of a step's batch. */
static int64_t row_of(const MxDataset *dataset, int64_t step, int64_t r) {
    const MxDataConfig *config = &dataset->config;
    int64_t row = dataset->n_skipped + step * config->rows + r;
    int64_t epoch = row / dataset->n_rows, i = row % dataset->n_rows;
    bool shuffles = config->shuffle && !dataset->kind->is_endless;
    if (shuffles) i = data_shuffle(config->seed, epoch, dataset->n_rows, i);
    return data_row_of_source(dataset, i);
}

/* Which of a source's records holds a side of an example: all of a prompt's do. */
static int64_t record_of(const MxDataConfig *config, int64_t row, int64_t side) {
    return data_has_groups(config) ? row * config->group + side : row;
}

static void copy_columns(const DataRow *from, const MxBatchPart *part, const DataRow *to) {
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        memcpy(to->field[f], from->field[f] + part->column, (size_t)part->length * sizeof(int32_t));
}

/* The time, row and column of each of its tokens. */
static void place_row(MxDataset *dataset, const DataRow *tokens, const DataSeen *seen, int64_t at,
                      MxBatch *out) {
    int32_t *const *all = dataset->scratch.mrope;
    mx_vision_mrope(&dataset->config.images.vision, seen->grids, seen->index,
                    tokens->field[MX_INPUTS_POSITION], dataset->config.length, all);
    for (int k = 0; k < MX_MROPE_KINDS; k++)
        memcpy(out->mrope[k] + at * out->length, all[k] + out->part.column,
               (size_t)out->length * sizeof **all);
}

/* The images of a row whose tokens are made. Rows of kinds without images have none. */
static bool see_row(MxDataset *dataset, int64_t row, const DataRow *tokens, int64_t at,
                    MxBatch *out, MxError *err) {
    int32_t *index = dataset->scratch.mask, *to = out->image + at * out->length;
    DataSeen seen = {.index = index, .pixels = out->pixels + at * out->part.pixels};
    if (out->grids) seen.grids = out->grids + at * out->part.grids;
    if (out->left) {
        seen.frames = out->frames + at * out->part.frames;
        seen.left = out->left + at * out->part.chunks;
        seen.samples = dataset->scratch.samples;
        memset(seen.frames, 0, (size_t)out->part.frames * sizeof *seen.frames);
        memset(seen.left, 0, (size_t)out->part.chunks * sizeof *seen.left);
    }
    memset(index, 0, (size_t)dataset->config.length * sizeof *index);
    memset(seen.pixels, 0, (size_t)out->part.pixels * sizeof *seen.pixels);
    if (seen.grids) memset(seen.grids, 0, (size_t)out->part.grids * sizeof *seen.grids);
    bool ok = !dataset->kind->see ||
              dataset->kind->see(dataset, row, tokens->field[MX_INPUTS], &seen, err);
    memcpy(to, index + out->part.column, (size_t)out->length * sizeof *to);
    if (ok && out->mrope[0]) place_row(dataset, tokens, &seen, at, out);
    return ok;
}

/* Row `row`, of side `side`, which is number `at` of out's and `number` of all that are made. */
typedef struct Place {
    int64_t row, side, at, number;
} Place;

static bool make_row(MxDataset *dataset, Place place, MxBatch *out, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    int64_t row = place.row, side = place.side, at = place.at;
    bool is_cut = out->length < config->length;
    DataRow there = data_row(out, at), to = is_cut ? dataset->spare[0] : there;
    if (config->pairs) {
        if (!data_pair_side(dataset, row, (int)side, &to, err)) return false;
    } else {
        row = record_of(config, row, side);
        if (!dataset->kind->row(dataset, row, &to, err)) return false;
        dataset->n_made++;
    }
    if (out->pixels && !see_row(dataset, row, &to, at, out, err)) return false;
    if (config->blocks.size) data_corrupt(dataset, place.number, &to);
    if (is_cut) copy_columns(&to, &out->part, &there);
    return true;
}

/* Makes both rows of a pair. at[side]: where among out's rows it belongs, -1 = nowhere. */
static bool make_pair(MxDataset *dataset, int64_t row, const int64_t at[2], MxBatch *out,
                      MxError *err) {
    bool is_cut = out->length < dataset->config.length;
    DataRow to[2];
    for (int side = 0; side < 2; side++)
        to[side] = at[side] >= 0 && !is_cut ? data_row(out, at[side]) : dataset->spare[side];
    if (!data_pair(dataset, row, to, err)) return false;
    for (int side = 0; side < 2; side++) {
        if (at[side] < 0) continue;
        DataRow there = data_row(out, at[side]);
        if (out->pixels && !see_row(dataset, row, &to[side], at[side], out, err)) return false;
        if (is_cut) copy_columns(&to[side], &out->part, &there);
    }
    return true;
}

static void check_part(const MxDataset *dataset, const MxBatch *batch) {
    const MxBatchPart *part = &batch->part;
    MX_ASSERT(part->of_rows == mx_data_batch_rows(&dataset->config));
    MX_ASSERT(part->rows == batch->rows && part->length == batch->length);
    MX_ASSERT(part->column >= 0 && part->length > 0);
    MX_ASSERT(part->column + part->length <= dataset->config.length);
}

/* Which rows of a batch are still to be made: chosen ones and, with pairs, rejected ones. */
typedef struct Todo {
    int64_t next[2], end[2]; /* among the part's rows */
    int64_t rows;            /* of each half */
} Todo;

/* The next row of a half, `rows` when there is none. */
static int64_t next_of(const Todo *todo, const MxBatchPart *part, int side) {
    int64_t at = todo->next[side];
    if (at == todo->end[side]) return todo->rows;
    return data_part_row(part, at) - side * todo->rows;
}

/* Takes the lowest one, from both halves if both have it; at[side]: its place, -1 = not wanted. */
static int64_t take_next(Todo *todo, const MxBatchPart *part, int64_t at[2]) {
    int64_t row[] = {next_of(todo, part, 0), next_of(todo, part, 1)};
    int64_t lowest = row[0] < row[1] ? row[0] : row[1];
    for (int side = 0; side < 2; side++) at[side] = row[side] == lowest ? todo->next[side]++ : -1;
    return lowest;
}

/* Pairs both of whose rows are made together. */
static bool make_pairs(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err) {
    const MxBatchPart *part = &out->part;
    int64_t half = data_part_from(part, dataset->config.rows);
    Todo todo = {.next = {0, half}, .end = {half, part->rows}, .rows = dataset->config.rows};
    while (todo.next[0] < todo.end[0] || todo.next[1] < todo.end[1]) {
        int64_t at[2], r = take_next(&todo, part, at);
        if (!make_pair(dataset, row_of(dataset, step, r), at, out, err)) return false;
    }
    return true;
}

static bool make_rows(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err) {
    int64_t rows = dataset->config.rows;
    for (int64_t at = 0; at < out->part.rows; at++) {
        int64_t r = data_part_row(&out->part, at);
        Place place = {.row = row_of(dataset, step, r % rows),
                       .side = r / rows,
                       .at = at,
                       .number = step * rows + r % rows};
        if (!make_row(dataset, place, out, err)) return false;
    }
    return true;
}

MxDataStatus mx_data_batch(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err) {
    check_part(dataset, out);
    MX_ASSERT(step >= 0);
    int64_t batches = mx_data_batches(dataset);
    bool is_over = batches >= 0 && step >= batches;
    if (is_over && !dataset->config.pads) return MX_DATA_END;
    if (is_over) {
        data_clear(out);
        return MX_DATA_OK;
    }
    bool ok = data_pair_is_joint(dataset) ? make_pairs(dataset, step, out, err)
                                          : make_rows(dataset, step, out, err);
    return ok ? MX_DATA_OK : MX_DATA_ERROR;
}

/* ---- what is known of responses */

void mx_data_scores(const MxDataset *dataset, int64_t step, const MxBatchPart *part, float *rewards,
                    float *logprobs) {
    const MxDataConfig *config = &dataset->config;
    float *whole = dataset->scratch.reals;
    MX_ASSERT(data_has_groups(config) && part->of_rows == mx_data_batch_rows(config));
    for (int64_t r = 0, at = 0; r < part->of_rows; r++) {
        int64_t row = record_of(config, row_of(dataset, step, r % config->rows), r / config->rows);
        bool is_mine = at < part->rows && data_part_row(part, at) == r;
        bool wants = is_mine && logprobs;
        rewards[r] = dataset->kind->score(dataset, row, wants ? whole : NULL);
        if (wants)
            memcpy(logprobs + at * part->length, whole + part->column,
                   (size_t)part->length * sizeof *logprobs);
        at += is_mine;
    }
}

const char *mx_data_record(const MxDataset *dataset, int64_t step, int64_t r) {
    MX_ASSERT(dataset->config.asks);
    return dataset->kind->record(dataset, row_of(dataset, step, r % dataset->config.rows));
}

bool mx_data_mismatched(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err) {
    int64_t rows = dataset->config.rows;
    check_part(dataset, out);
    MX_ASSERT(dataset->config.group == 1);
    for (int64_t at = 0; at < out->part.rows; at++) {
        int64_t r = data_part_row(&out->part, at);
        int64_t row = row_of(dataset, step, r),
                other = row_of(dataset, step, (r + rows - 1) % rows);
        if (!dataset->kind->mixed(dataset, row, other, &dataset->spare[0], err)) return false;
        DataRow to = data_row(out, at);
        copy_columns(&dataset->spare[0], &out->part, &to);
    }
    return true;
}
