/* source.h — private to the room: what a kind of dataset brings, and what all of them share. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <mx/data.h>

/* One row of a batch. */
typedef struct DataRow {
    int32_t *field[MX_BATCH_FIELDS]; /* [length] each */
} DataRow;

/* data_row — a row of a batch's arrays. */
DataRow data_row(const MxBatch *batch, int64_t row);

/* A kind of dataset: numbered rows, each a pure function of its number. */
typedef struct DataKind {
    const char *name;
    /* Opens dataset->source and sets n_rows and description, perhaps warning. */
    bool (*open)(MxArena *arena, MxDataset *dataset, MxError *err);
    /* Fills out[0]; with pairs row is one, and out[1] its rejected side. Allocates
     * nothing. */
    bool (*row)(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err);
    bool is_endless; /* epochs and shuffling mean nothing */
    bool has_pairs;  /* can be opened with pairs */
    const char *doc;
} DataKind;

struct MxDataset {
    const DataKind *kind;
    MxDataConfig config;
    void *source;
    int64_t n_rows; /* of an epoch, or pairs */
    const char *description, *warning, *end_reason;
};

extern const DataKind data_synthetic, data_text, data_records, data_hdf5;

/* Philox streams of this room; the low 48 bits count epochs or rows. */
#define DATA_STREAM_SHUFFLE  (UINT64_C(0xda01) << 48)
#define DATA_STREAM_TOKENS   (UINT64_C(0xda02) << 48)
#define DATA_STREAM_SEGMENTS (UINT64_C(0xda03) << 48)

/* data_shuffle — where row i of an epoch comes from: for fixed seed, epoch and n a permutation of
 * 0 … n-1. */
int64_t data_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* data_pair_targets — the targets of a pair whose inputs, positions and segmentations (1 or 0) are
 * in place, and what of them counts.
 *   start  standard: the token at which each response begins, NULL = where the two first differ
 * The latter gives the same DPO loss and gradient: tokens of a common prefix have equal log-probs
 * in both rows, so they cancel in the difference. A row's first token never counts, having none
 * before it. Source of MX_DATA_PAIRS_MAXTEXT: MaxText dpo_utils.py, dpo_loss_fn @4bcec6af. */
void data_pair_targets(MxDataPairs pairs, int64_t length, const int64_t start[2],
                       const DataRow pair[2]);
/* data_pair_teaches — whether any token of a pair counts and its responses differ. */
bool data_pair_teaches(int64_t length, const DataRow pair[2]);

/* data_find_files — the files that a path names, sorted bytewise by path; of a folder those that
 * end in ".SUFFIX". */
bool data_find_files(MxArena *arena, const MxDataConfig *config, const char *suffix, char ***paths,
                     int *n, MxError *err);

/* data_check_tokenizer — every token must be below vocab. */
bool data_check_tokenizer(const MxDataConfig *config, MxError *err);

#endif
