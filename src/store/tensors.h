/* tensors.h — private to the room: an open file of named arrays, whatever its form. */
#ifndef STORE_TENSORS_H
#define STORE_TENSORS_H

#include <mx/store.h>

struct MxTensors {
    MxArena *arena;
    const char *path;
    int fd;
    MxTensor *tensors;
    int n;
    MxMap by_name;
};

/* tensors_fail — what is wrong with the array of a name. tensors_read_at — bytes of the file, all
 * of them. */
bool tensors_fail(const MxTensors *file, const char *what, const char *name, MxError *err);
bool tensors_read_at(const MxTensors *file, void *out, size_t bytes, int64_t offset, MxError *err);
/* tensors_add_dim — one more dim of a shape; false = more than any shape has, or more elements than
 * sizes can tell. */
bool tensors_add_dim(MxShape *shape, int64_t dim);

/* ---- files that torch.save wrote (torch.c): an archive with a pickle (pickle.c) */

/* torch_is_archive — by the first bytes. torch_read_header — the arrays of one.
 *   size  of the file
 * Errors: what no dictionary of tensors holds, by name; sizes that disagree. */
bool torch_is_archive(const uint8_t first[8]);
bool torch_read_header(MxTensors *file, int64_t size, MxError *err);

/* An array as a pickle tells it. */
typedef struct PickledTensor {
    const char *name, *storage; /* storage: its file in the archive, "0" */
    MxDtype dtype;
    MxShape shape;
    int64_t first;             /* of its elements in the storage */
    int64_t of_storage;        /* elements in that */
    int64_t step[MX_MAX_RANK]; /* elements between neighbours along each dim */
} PickledTensor;

/* pickle_read — the dictionary of tensors that a pickle holds. Nothing is run: what a dictionary of
 * tensors is made with is understood, and all else refused.
 *   where  the file, for messages */
bool pickle_read(MxArena *arena, const uint8_t *bytes, size_t n, MxWhere where, PickledTensor **out,
                 int *n_out, MxError *err);

#endif
