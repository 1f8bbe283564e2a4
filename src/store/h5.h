/* h5.h — private to the room: what the files around libhdf5 share without knowing it. */
#ifndef STORE_H5_H
#define STORE_H5_H

#include <mx/store.h>

/* Takes one link of a group; false ends the walk as a failure. */
typedef bool (*H5Links)(const char *name, bool is_hard, void *data);

/* h5_each_link — every link of a group, by name. */
bool h5_each_link(MxH5 *file, const char *path, H5Links fn, void *data, MxError *err);

/* Where some of an array's elements are: a box of it, which is the whole of a dataset. */
typedef struct H5Part {
    MxH5 *file;
    const char *path; /* of the dataset */
    MxBox box;
    int64_t offset; /* of its bytes in the file, as they are in memory; -1 = only the library can
                       read them */
} H5Part;

/* h5_parts — of an array: itself or, if it is virtual, the datasets that it shows, whose files must
 * be beside its own. Errors: such a file is missing; mappings of any other kind. */
bool h5_parts(MxArena *arena, MxH5 *file, const MxH5Array *array, H5Part **out, int *n,
              MxError *err);
/* h5_read_native — some of a dataset that is not virtual, into memory of `memory_dtype`, by HDF5's
 * own conversion; MX_BF16 is raw bits. */
bool h5_read_native(MxH5 *file, const char *path, MxDtype memory_dtype, const MxBox *box, void *out,
                    MxError *err);
/* h5_has_signature — whether a file begins as an HDF5 file does. */
bool h5_has_signature(const char *path);
/* h5_fd — the open file's descriptor; -1 = there is none. */
int h5_fd(MxH5 *file);

/* array.c */

/* h5_lock — one thread at a time inside the library; a thread may enter again. The argument of
 * h5_unlock is there for the cleanup attribute. */
void h5_lock(void);
void h5_unlock(const int *unused);

/* h5_is_file — that there is a regular file which may be read. */
bool h5_is_file(const char *path, MxError *err);
/* h5_box_fits — that a box lies inside an array; a message if not. */
bool h5_box_fits(const MxH5 *file, const MxH5Array *array, const MxBox *box, MxError *err);

/* ---- many threads (fetch.c) */

/* What is to be read from files past the library. */
typedef struct H5Fetch {
    MxArena arena;
    struct FetchJob *jobs;
    int n, cap;
} H5Fetch;

/* Boxes of a part and where they go. */
typedef struct H5Target {
    MxBox box; /* what is wanted of the part */
    MxBox in;  /* what `out` holds, dense */
    char *out;
} H5Target;

/* h5_fetch_add — boxes of a part with an offset; targets [n] are copied. */
void h5_fetch_add(H5Fetch *fetch, const H5Part *part, size_t element_bytes, const H5Target *targets,
                  int n);
/* h5_fetch_run — reads it all and releases the fetch. Errors: I/O; files cut short. */
bool h5_fetch_run(H5Fetch *fetch, MxError *err);

#endif
