/* source.h — private to the room: what a kind of dataset brings, and what all of them share. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <mx/data.h>

/* A kind of dataset: numbered rows, each a pure function of its number. */
typedef struct DataKind {
    const char *name;
    /* Opens dataset->source and sets n_rows and description. */
    bool (*open)(MxArena *arena, MxDataset *dataset, MxError *err);
    /* Fills one row, [length] of each field. Allocates nothing. */
    bool (*row)(MxDataset *dataset, int64_t row, int32_t *const field[MX_BATCH_FIELDS],
                MxError *err);
    bool is_endless; /* epochs and shuffling mean nothing */
    const char *doc;
} DataKind;

struct MxDataset {
    const DataKind *kind;
    MxDataConfig config;
    void *source;
    int64_t n_rows; /* of an epoch */
    const char *description, *end_reason;
};

extern const DataKind data_synthetic, data_text, data_hdf5;

/* Philox streams of this room; the low 48 bits count epochs or rows. */
#define DATA_STREAM_SHUFFLE  (UINT64_C(0xda01) << 48)
#define DATA_STREAM_TOKENS   (UINT64_C(0xda02) << 48)
#define DATA_STREAM_SEGMENTS (UINT64_C(0xda03) << 48)

/* data_shuffle — where row i of an epoch comes from: for fixed seed, epoch and n a permutation of
 * 0 … n-1. */
int64_t data_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* data_find_texts — the text files that a path names, sorted bytewise by path. */
bool data_find_texts(MxArena *arena, const MxDataConfig *config, char ***paths, int *n,
                     MxError *err);

#endif
