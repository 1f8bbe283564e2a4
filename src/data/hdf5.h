/* hdf5.h — private to the room: datasets of integers in an HDF5 file, read row by row; for prepared
 * batches (hdf5.c) and prepared pairs (hdf5_pairs.c). */
#ifndef DATA_HDF5_H
#define DATA_HDF5_H

#include "source.h"

#include <mx/store.h>

/* One dataset: [rows, width], or [steps, batch, width] read as steps * batch rows. */
typedef struct Hdf5Column {
    const char *path;
    MxShape shape;
} Hdf5Column;

/* hdf5_open_group — opens "FILE.h5[:group]" of the config; *group is the path inside. */
bool hdf5_open_group(MxArena *arena, const MxDataConfig *config, MxH5 **file, char **group,
                     MxError *err);
/* hdf5_column — a dataset by path. Errors: there is none; not integers; another rank. */
bool hdf5_column(MxH5 *file, const char *path, Hdf5Column *out, MxError *err);
/* hdf5_check_like — the shape must be that of another dataset. */
bool hdf5_check_like(const MxH5 *file, const Hdf5Column *column, const Hdf5Column *like,
                     MxError *err);
/* hdf5_check_width — rows must be as long as max_target_length. */
bool hdf5_check_width(const MxH5 *file, const Hdf5Column *column, int64_t length, MxError *err);
int64_t hdf5_width(const Hdf5Column *column);
int64_t hdf5_rows(const Hdf5Column *column);

/* What the values of a row are, for limits and messages. */
typedef enum Hdf5What { HDF5_TOKEN, HDF5_POSITION, HDF5_SEGMENT } Hdf5What;

/* hdf5_row — one row, narrowed to int32 after values that no model could use were refused.
 *   padded   [width] or NULL: where it is 0 a token may be -1, as pipelines without a padding token
 *            write it, and is read as 0
 *   scratch  [width] */
bool hdf5_row(MxH5 *file, const Hdf5Column *column, int64_t row, Hdf5What what, int64_t vocab,
              const int32_t *padded, int64_t *scratch, int32_t *out, MxError *err);

/* data_hdf5 with pairs (hdf5_pairs.c). */
bool hdf5_pairs_open(MxArena *arena, MxDataset *dataset, MxError *err);
bool hdf5_pair_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);

#endif
