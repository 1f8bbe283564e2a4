/* jsonl.c — fuzz target for JSON Lines data. The first byte of the input chooses the purpose, the
 * rest is the file. Bytes are a dataset or errors; rows of a dataset hold together: targets are the
 * inputs moved by one, what counts is a token, positions and segments begin where they should. */
#include <mx/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LENGTH = 24, VOCAB = 258 };

static void need(bool holds) {
    if (!holds) abort();
}

static MxDataConfig config_of(uint8_t bits, const char *path, const MxTokenizer *tokenizer) {
    static const char *const columns[] = {"p", "a", "b"};
    MxDataConfig config = {.kind = "hf",
                           .path = path,
                           .tokenizer = tokenizer,
                           .rows = 1 + (bits >> 7),
                           .length = LENGTH,
                           .vocab = VOCAB,
                           .packing = bits & 4,
                           .omits_bos = bits & 8,
                           .omits_eos = bits & 16,
                           .completion_only = bits & 32,
                           .max_prompt_length = 10,
                           .columns = columns,
                           .n_epochs = 1};
    config.pairs = (MxDataPairs)(bits & 3);
    if ((bits & 3) == 3) config.pairs = MX_DATA_NO_PAIRS;
    config.is_sft = !config.pairs && (bits & 3);
    if (config.pairs == MX_DATA_PAIRS_MAXTEXT) config.packing = false; /* configs refuse both */
    config.n_columns = !(bits & 64) ? 0 : config.pairs ? 3 : config.is_sft ? 2 : 1;
    return config;
}

static void check_row(const MxDataConfig *config, const MxBatch *batch, int64_t row) {
    const int32_t *f[MX_BATCH_FIELDS];
    for (int i = 0; i < MX_BATCH_FIELDS; i++) f[i] = batch->field[i] + row * LENGTH;
    int32_t n_counted = 0;
    for (int t = 0; t < LENGTH; t++) {
        int32_t token = f[MX_INPUTS][t], segment = f[MX_INPUTS_SEGMENTATION][t];
        int32_t before = t ? f[MX_INPUTS_SEGMENTATION][t - 1] : 0;
        need(token >= 0 && token < VOCAB && segment >= 0);
        need(segment ? segment == before || segment == before + 1 : !token); /* padding is behind */
        need(f[MX_INPUTS_POSITION][t] == (!segment            ? 0
                                          : segment != before ? 0
                                                              : f[MX_INPUTS_POSITION][t - 1] + 1));
        if (!f[MX_TARGETS_SEGMENTATION][t]) continue;
        need(t + 1 < LENGTH && f[MX_TARGETS][t] == f[MX_INPUTS][t + 1]);
        need(f[MX_TARGETS_SEGMENTATION][t] == segment);
        need(f[MX_INPUTS_SEGMENTATION][t + 1] == segment);
        n_counted++;
    }
    need(config->pairs || n_counted > 0); /* rows that teach nothing are left out */
}

static void check_pair(const MxBatch *batch, int64_t row, int64_t pairs) {
    const int32_t *counts = batch->field[MX_TARGETS_SEGMENTATION] + row * LENGTH;
    const int32_t *inputs = batch->field[MX_INPUTS] + row * LENGTH;
    const int32_t *segments = batch->field[MX_INPUTS_SEGMENTATION] + row * LENGTH;
    int32_t n = 0;
    for (int t = 0; t < LENGTH; t++) n += counts[t] + counts[t + pairs * LENGTH];
    need(n > 0);
    need(memcmp(inputs, inputs + pairs * LENGTH, LENGTH * sizeof *inputs) ||
         memcmp(segments, segments + pairs * LENGTH, LENGTH * sizeof *segments));
}

static void check_data(MxArena *arena, const MxDataConfig *config, MxDataset *dataset) {
    MxError err = {0};
    MxBatch batch = mx_batch_new(arena, mx_data_batch_rows(config), LENGTH);
    int64_t steps = mx_data_steps(dataset);
    need(steps > 0 && mx_data_describe(dataset));
    for (int64_t step = 0; step < steps && step < 64; step++) {
        need(mx_data_batch(dataset, step, &batch, &err) == MX_DATA_OK);
        for (int64_t r = 0; r < batch.rows; r++) check_row(config, &batch, r);
        for (int64_t r = 0; config->pairs && r < config->rows; r++)
            check_pair(&batch, r, config->rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxDataset *dataset;
    if (!size) return 0;
    const char *path = mx_arena_printf(&arena, "/tmp/mx_fuzz_%d.jsonl", (int)getpid());
    FILE *file = fopen(path, "wb");
    need(file && fwrite(data + 1, 1, size - 1, file) == size - 1);
    need(!fclose(file));
    need(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    MxDataConfig config = config_of(data[0], path, tokenizer);
    if (mx_data_open(&arena, &config, &dataset, &err))
        check_data(&arena, &config, dataset);
    else
        /* Conversations want a chat template, which the config lacks here. */
        need(err.count > 0 && (err.exit == MX_EXIT_BAD_INPUT || err.exit == MX_EXIT_CONFIG));
    remove(path);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
