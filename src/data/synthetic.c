/* synthetic.c — random tokens, the same batch at every step: for measuring speed, and to check that
 * a model can memorize one batch. The batch depends neither on the seed nor on the step, as in
 * MaxText; the random numbers are our own. */
#include "source.h"

/* A uniform integer in [0, n) from 32 random bits. */
static int32_t below(uint32_t bits, int64_t n) {
    return (int32_t)((uint64_t)bits * (uint64_t)n >> 32);
}

static bool synthetic_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    (void)err;
    dataset->n_rows = config->rows;
    dataset->description = mx_arena_printf(
        arena, "synthetic: one batch of %lld %s of %lld random tokens", (long long)config->rows,
        config->pairs ? "pairs of rows" : "rows", (long long)config->length);
    return true;
}

/* Random borders: contiguous segments 1, 2, … up to `most`, of which a row has no more than tokens;
 * positions from 0 in each. */
static void cut_segments(int64_t row, int64_t length, int64_t most, int32_t *segment,
                         int32_t *position) {
    for (int64_t t = 0; t < length; t++) segment[t] = 0;
    for (int64_t cut = 1; cut < most && cut < length; cut++) {
        uint32_t random[4];
        mx_philox(0, DATA_STREAM_SEGMENTS + (uint64_t)row, (uint64_t)cut, random);
        segment[1 + below(random[0], length - 1)] = 1; /* two cuts may fall together */
    }
    int32_t id = 1, start = 0;
    for (int32_t t = 0; t < length; t++) {
        if (segment[t]) start = t;
        id += segment[t];
        segment[t] = id;
        position[t] = t - start;
    }
}

static int32_t random_token(const MxDataConfig *config, int64_t row, int64_t t) {
    uint32_t random[4];
    mx_philox(0, DATA_STREAM_TOKENS + (uint64_t)row, (uint64_t)t, random);
    return below(random[0], config->vocab);
}

/* A full row; both of a pair share their first half, the prompt. */
static bool synthetic_side(MxDataset *dataset, int64_t row, int side, const DataRow *out,
                           MxError *err) {
    const MxDataConfig *config = &dataset->config;
    const int64_t prompt = config->length / 2;
    (void)err;
    for (int64_t t = 0; t < config->length; t++) {
        int64_t from = t < prompt ? row : row + side * config->rows;
        out->field[MX_INPUTS][t] = random_token(config, from, t);
        out->field[MX_INPUTS_POSITION][t] = (int32_t)t;
        out->field[MX_INPUTS_SEGMENTATION][t] = 1;
        out->field[MX_TARGETS_SEGMENTATION][t] = t > 0 && t >= prompt;
    }
    return true;
}

static bool synthetic_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    int32_t *const *field = out->field;
    (void)err;
    for (int64_t t = 0; t <= config->length; t++) {
        int32_t token = random_token(config, row, t);
        if (t < config->length) field[MX_INPUTS][t] = token;
        if (t > 0) field[MX_TARGETS][t - 1] = token;
    }
    bool has_segments = config->packing && config->max_segments >= 2 && config->length >= 2;
    cut_segments(row, config->length, has_segments ? config->max_segments : 1,
                 field[MX_INPUTS_SEGMENTATION], field[MX_INPUTS_POSITION]);
    size_t bytes = (size_t)config->length * sizeof(int32_t);
    memcpy(field[MX_TARGETS_SEGMENTATION], field[MX_INPUTS_SEGMENTATION], bytes);
    memcpy(field[MX_TARGETS_POSITION], field[MX_INPUTS_POSITION], bytes);
    return true;
}

const DataKind data_synthetic = {
    .name = "synthetic",
    .open = synthetic_open,
    .row = synthetic_row,
    .side = synthetic_side,
    .is_endless = true,
    .doc = "one batch of random tokens, the same at every step",
};
