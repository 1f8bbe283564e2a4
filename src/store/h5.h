/* h5.h — private to the room: what list.c and array.c share with the one file that knows libhdf5.
 */
#ifndef STORE_H5_H
#define STORE_H5_H

#include <mx/store.h>

/* Takes one link of a group; false ends the walk as a failure. */
typedef bool (*H5Links)(const char *name, bool is_hard, void *data);

/* h5_each_link — every link of a group, by name. */
bool h5_each_link(MxH5 *file, const char *path, H5Links fn, void *data, MxError *err);

/* h5_read_native — a part that exists, into memory of `memory_dtype`, by HDF5's own conversion;
 * MX_BF16 is raw bits. */
bool h5_read_native(MxH5 *file, const char *path, MxDtype memory_dtype, const MxBox *box, void *out,
                    MxError *err);

/* array.c */

/* h5_lock — one thread at a time inside the library; a thread may enter again. The argument of
 * h5_unlock is there for the cleanup attribute. */
void h5_lock(void);
void h5_unlock(const int *unused);

/* h5_is_file — that there is a regular file which may be read. */
bool h5_is_file(const char *path, MxError *err);
bool h5_is_float(MxDtype dtype);
/* h5_box_fits — that a box lies inside an array; a message if not. */
bool h5_box_fits(const MxH5 *file, const MxH5Array *array, const MxBox *box, MxError *err);

#endif
