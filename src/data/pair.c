/* pair.c — rows of two responses each: the two masks of dpo.formula, the positions where responses
 * are scored, and which segments of two rows are a pair. The contents of rows come from each kind
 * of dataset. While a row is made, MX_TARGETS_SEGMENTATION refers to its own tokens; at the end it
 * is shifted to the positions that predict them. */
#include "source.h"

enum { CHOSEN, REJECTED };

static int32_t *segments_of(const DataRow *row) {
    return row->field[MX_INPUTS_SEGMENTATION];
}

/* ---- segments of two rows */

static bool has_segment(const DataRow *row, int64_t length, int32_t id) {
    for (int64_t t = 0; t < length; t++)
        if (segments_of(row)[t] == id) return true;
    return false;
}

/* Renames a segment; one that becomes 0 is padding. */
static void rename_segment(const DataRow *row, int64_t length, int32_t id, int32_t to) {
    for (int64_t t = 0; t < length; t++) {
        if (segments_of(row)[t] != id) continue;
        segments_of(row)[t] = to;
        if (!to) row->field[MX_INPUTS_POSITION][t] = 0;
    }
}

/* Numbers the segments that both rows have, and leaves out the others. New numbers are negative
 * until all are given. */
static int64_t match_segments(int64_t length, const DataRow pair[2]) {
    int64_t n_alone = 0;
    int32_t n = 0;
    for (int side = CHOSEN; side <= REJECTED; side++)
        for (int64_t t = 0; t < length; t++) {
            int32_t id = segments_of(&pair[side])[t];
            if (id <= 0) continue;
            bool is_pair = has_segment(&pair[!side], length, id);
            if (is_pair) n++;
            for (int i = 0; i < 2; i++) rename_segment(&pair[i], length, id, is_pair ? -n : 0);
            n_alone += !is_pair;
        }
    for (int side = CHOSEN; side <= REJECTED; side++)
        for (int64_t t = 0; t < length; t++) segments_of(&pair[side])[t] *= -1;
    return n_alone;
}

/* The next place from t on that belongs to a segment, or length. */
static int64_t next_of(const DataRow *row, int64_t length, int32_t id, int64_t t) {
    while (t < length && segments_of(row)[t] != id) t++;
    return t;
}

/* Where the tokens of a segment first differ between the rows, or one of them ends (length = there
 * it has no more); gives whether they differ. */
static bool find_difference(int64_t length, const DataRow pair[2], int32_t id, int64_t at[2]) {
    for (int side = 0; side < 2; side++) at[side] = next_of(&pair[side], length, id, 0);
    while (at[CHOSEN] < length && at[REJECTED] < length &&
           pair[CHOSEN].field[MX_INPUTS][at[CHOSEN]] ==
               pair[REJECTED].field[MX_INPUTS][at[REJECTED]])
        for (int side = 0; side < 2; side++)
            at[side] = next_of(&pair[side], length, id, at[side] + 1);
    return at[CHOSEN] < length || at[REJECTED] < length;
}

/* ---- what counts */

/* Each response of each segment from the first difference on, as far as it goes. */
static void count_differences(int64_t length, const DataRow pair[2]) {
    for (int side = 0; side < 2; side++)
        memset(pair[side].field[MX_TARGETS_SEGMENTATION], 0, (size_t)length * sizeof(int32_t));
    for (int32_t id = 1; has_segment(&pair[CHOSEN], length, id); id++) {
        int64_t from[2];
        find_difference(length, pair, id, from);
        for (int side = 0; side < 2; side++) {
            int64_t t = next_of(&pair[side], length, id, 0) + 1; /* the first is nobody's target */
            for (t = from[side] > t ? from[side] : t; t < length; t++)
                if (segments_of(&pair[side])[t] == id)
                    pair[side].field[MX_TARGETS_SEGMENTATION][t] = id;
        }
    }
}

/* Both from the first difference on, as far as both go. The first tokens are not looked at, since
 * they are nobody's targets. */
static void count_maxtext(int64_t length, const DataRow pair[2]) {
    bool is_prefix = true;
    for (int64_t t = 0; t < length; t++) {
        is_prefix = is_prefix &&
                    (!t || pair[CHOSEN].field[MX_INPUTS][t] == pair[REJECTED].field[MX_INPUTS][t]);
        bool counts =
            !is_prefix && segments_of(&pair[CHOSEN])[t] && segments_of(&pair[REJECTED])[t];
        for (int side = 0; side < 2; side++) pair[side].field[MX_TARGETS_SEGMENTATION][t] = counts;
    }
}

/* Targets are the inputs moved by one. */
static void move(int64_t length, const DataRow *row) {
    static const MxBatchField from[][2] = {{MX_TARGETS, MX_INPUTS},
                                           {MX_TARGETS_POSITION, MX_INPUTS_POSITION},
                                           {MX_TARGETS_SEGMENTATION, MX_TARGETS_SEGMENTATION}};
    for (int i = 0; i < MX_COUNT(from); i++) {
        int32_t *to = row->field[from[i][0]];
        memmove(to, row->field[from[i][1]] + 1, (size_t)(length - 1) * sizeof(int32_t));
        to[length - 1] = 0;
    }
}

/* Where responses are scored, nobody predicts anything. Source: transformers 5.23
 * modeling_layers.py, GenericForSequenceClassification: the last token that is not padding. */
static void end_row(const MxDataset *dataset, const DataRow *row) {
    int64_t length = dataset->config.length;
    int32_t *counts = row->field[MX_TARGETS_SEGMENTATION], *segments = segments_of(row);
    move(length, row);
    if (dataset->config.pairs != MX_DATA_PAIRS_SCORED) return;
    for (int64_t t = 0; t < length; t++) {
        bool is_last = t + 1 == length || segments[t + 1] != segments[t];
        counts[t] = is_last ? segments[t] : 0;
    }
}

int64_t data_pair_finish(const MxDataset *dataset, const DataRow pair[2]) {
    const MxDataConfig *config = &dataset->config;
    int64_t n_alone = 0;
    if (config->pairs == MX_DATA_PAIRS_MAXTEXT)
        count_maxtext(config->length, pair);
    else if (dataset->lacks_responses) {
        n_alone = match_segments(config->length, pair);
        count_differences(config->length, pair);
    }
    for (int side = 0; side < 2; side++) end_row(dataset, &pair[side]);
    return n_alone;
}

bool data_pair_is_joint(const MxDataset *dataset) {
    return dataset->config.pairs == MX_DATA_PAIRS_MAXTEXT ||
           (dataset->config.pairs && dataset->lacks_responses);
}

bool data_pair(MxDataset *dataset, int64_t row, const DataRow out[2], MxError *err) {
    for (int side = 0; side < 2; side++)
        if (!dataset->kind->side(dataset, row, side, &out[side], err)) return false;
    dataset->n_made += 2;
    data_pair_finish(dataset, out);
    return true;
}

bool data_pair_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err) {
    if (!dataset->kind->side(dataset, row, side, out, err)) return false;
    end_row(dataset, out);
    dataset->n_made++;
    return true;
}

/* ---- what teaches */

int64_t data_pair_mute(int64_t length, const DataRow pair[2], int64_t *n_pairs) {
    int64_t n_mute = 0, ignored[2];
    int32_t most = 1;
    for (int side = 0; side < 2; side++)
        for (int64_t t = 0; t < length; t++)
            if (segments_of(&pair[side])[t] > most) most = segments_of(&pair[side])[t];
    for (int32_t id = 1; id <= most; id++) {
        bool counts = false;
        for (int side = 0; side < 2; side++)
            for (int64_t t = 0; t < length; t++)
                counts = counts || pair[side].field[MX_TARGETS_SEGMENTATION][t] == id;
        n_mute += !counts || !find_difference(length, pair, id, ignored);
    }
    *n_pairs = most;
    return n_mute;
}
