/* tensors.c — fuzz target for files of named arrays: safetensors and what torch.save writes, by
 * their own first bytes, or a pickle alone, if the first byte is that of one. Bytes are arrays that
 * lie in the file and can be read, or one error. */
#include "store/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST = 1 << 20, PICKLE = 0x80 };

static void need(bool holds) {
    if (!holds) abort();
}

static void check_arrays(MxArena *arena, const MxTensors *file, size_t size) {
    int64_t read = 0;
    for (int i = 0; i < mx_tensors_count(file); i++) {
        const MxTensor *t = mx_tensors_at(file, i);
        MxError err = {0};
        int64_t bytes = mx_tensor_bytes(t), n = mx_shape_count(t->shape);
        need(t->offset >= 0 && bytes >= 0 && t->offset + bytes <= (int64_t)size);
        need(mx_tensors_find(file, t->name) != NULL);
        read += bytes;
        if (read > LARGEST) continue; /* arrays may share their elements */
        need(mx_tensors_read(file, t, mx_new_n(arena, float, n + 1), &err) || err.count == 1);
        mx_error_release(&err);
    }
}

static void check_file(MxArena *arena, const uint8_t *data, size_t size, MxError *err) {
    MxTensors *tensors;
    const char *path = mx_arena_printf(arena, "/tmp/mx_fuzz_%d.tensors", (int)getpid());
    FILE *file = fopen(path, "wb");
    need(file && fwrite(data, 1, size, file) == size);
    need(!fclose(file));
    if (mx_tensors_open(arena, path, &tensors, err))
        check_arrays(arena, tensors, size);
    else
        need(err->count == 1 && err->exit == MX_EXIT_BAD_INPUT);
    remove(path);
}

static void check_pickle(MxArena *arena, const uint8_t *data, size_t size, MxError *err) {
    PickledTensor *tensors;
    int n;
    if (!pickle_read(arena, data, size, (MxWhere){.file = "pickle"}, &tensors, &n, err))
        need(err->count == 1 && err->exit == MX_EXIT_BAD_INPUT);
    else
        for (int i = 0; i < n; i++)
            need(tensors[i].name && tensors[i].storage && tensors[i].first >= 0 &&
                 tensors[i].of_storage >= 0 && mx_shape_count(tensors[i].shape) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    if (!size || size > LARGEST) return 0;
    (data[0] == PICKLE ? check_pickle : check_file)(&arena, data, size, &err);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
