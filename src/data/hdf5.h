/* hdf5.h — private to the room: datasets of integers in an HDF5 file, read row by row; for prepared
 * batches (hdf5.c) and prepared pairs (hdf5_pairs.c). */
#ifndef DATA_HDF5_H
#define DATA_HDF5_H

#include "source.h"

#include <mx/store.h>

/* What the values of a row are, for limits and messages. */
typedef enum Hdf5What { HDF5_TOKEN, HDF5_POSITION, HDF5_SEGMENT } Hdf5What;

/* One dataset: [rows, width], or [steps, batch, width] read as steps * batch rows. */
typedef struct Hdf5Column {
    MxH5 *file;
    const char *path; /* NULL = not stored */
    Hdf5What what;
    MxH5Array array;
    void *kept; /* all of it as kept_dtype: reading one row would cost too much; else NULL */
    MxDtype kept_dtype; /* MX_I32 or MX_I64 */
} Hdf5Column;

/* hdf5_open_group — opens "FILE.h5[:group]" of the config and takes its fingerprint; *group is the
 * path inside. */
bool hdf5_open_group(MxArena *arena, MxDataset *dataset, MxH5 **file, char **group, MxError *err);
/* hdf5_column — a dataset by path. Errors: there is none; not integers; another rank. */
bool hdf5_column(MxH5 *file, const char *path, Hdf5What what, Hdf5Column *out, MxError *err);
/* hdf5_check_like — the shape must be that of another dataset. */
bool hdf5_check_like(const Hdf5Column *column, const Hdf5Column *like, MxError *err);
/* hdf5_check_width — rows must be as long as max_target_length. */
bool hdf5_check_width(const Hdf5Column *column, int64_t length, MxError *err);
/* hdf5_keep — reads columns whole where a row takes much more than itself to read: compressed in
 * large chunks. Errors: they are too large for that. */
bool hdf5_keep(MxArena *arena, Hdf5Column *columns, int n, MxError *err);
int64_t hdf5_width(const Hdf5Column *column);
int64_t hdf5_rows(const Hdf5Column *column);

/* hdf5_row — one row, narrowed to int32 after values that no model could use were refused.
 *   padded   [width] or NULL: where it is 0 a token may be -1, as pipelines without a padding token
 *            write it, and is read as 0 */
bool hdf5_row(MxDataset *dataset, const Hdf5Column *column, int64_t row, const int32_t *padded,
              int32_t *out, MxError *err);

/* data_hdf5 with pairs (hdf5_pairs.c). */
bool hdf5_pairs_open(MxArena *arena, MxDataset *dataset, MxError *err);
bool hdf5_pair_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);

#endif
