/* library.h — what the files that know libhdf5 (h5.c, h5_groups.c, h5_parts.c, h5_data.c) share. */
#ifndef STORE_LIBRARY_H
#define STORE_LIBRARY_H

#include "h5.h"

#include <hdf5.h>

enum { H5_FAILURE_BYTES = 256 };

#define ROOTED(path) (*(path) ? (path) : "/")

/* First in what is called from outside: to the end of the block the library is this thread's (not
 * every build of it has a lock of its own) and quiet, which is a setting of each thread. Its work
 * at exit is off: after a close that failed on a full disk it crashes there. */
#define ENTER __attribute__((cleanup(h5_unlock), unused)) const int entered = h5_enter()
int h5_enter(void);

struct MxH5 {
    MxArena *arena;
    hid_t id; /* < 0 once closed */
    const char *path;
    bool is_new, assumes_bf16;
    MxH5 *sources, *next;           /* files that virtual datasets show, opened so far */
    char why[H5_FAILURE_BYTES];     /* the library's reason for the last failure while writing */
    char failure[H5_FAILURE_BYTES]; /* the first failed write, "" = none */
};

MxWhere h5_in(const MxH5 *file);
bool h5_fail_read(const MxH5 *file, const char *path, const char *what, MxError *err);
bool h5_fail_write(MxH5 *file, const char *path, MxError *err);
/* h5_reason — the library's innermost reason for its last failure, in `out`. */
const char *h5_reason(char out[H5_FAILURE_BYTES]);
/* h5_check — keeps the library's reason for a failed step, which its next call would forget. */
bool h5_check(MxH5 *file, bool ok);

/* h5_open_dataset — opens a dataset and looks at it; < 0 with a message. */
hid_t h5_open_dataset(MxH5 *file, const char *path, MxH5Array *out, MxError *err);
/* h5_dtype_of — the dtype of an HDF5 type, and whether it is text; false if it is none of ours. */
bool h5_dtype_of(hid_t type, MxH5Array *out);
/* h5_new_type — the HDF5 type of a dtype in memory and, on the little-endian machines we know, in
 * files. */
hid_t h5_new_type(MxDtype dtype);
/* h5_read_string — a string dataset's or attribute's one element; false (and no message) when it is
 * not one. */
bool h5_read_string(MxArena *arena, hid_t object, bool is_attr, char **out);
/* h5_new_text_type — UTF-8 of fixed length: variable lengths go through HDF5's global heap, which
 * is fragile. */
hid_t h5_new_text_type(size_t bytes);
/* h5_new_creation — a creation list without time stamps; the library's own for groups on the way
 * would keep them. */
hid_t h5_new_creation(hid_t class);
/* h5_make_groups — makes the groups above a path, and with `itself` the path too. */
bool h5_make_groups(MxH5 *file, const char *path, bool itself);
bool h5_put_attr(MxH5 *file, hid_t object, const char *name, const char *value);

#endif
