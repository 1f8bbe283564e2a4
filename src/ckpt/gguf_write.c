/* gguf_write.c — the bytes of a GGUF file, written and read back. */
#include "gguf.h"

#include <fcntl.h>
#include <unistd.h>

static bool read_bytes(HfMaker *m, const char *path, int fd, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)to + done, bytes - done);
        if (n < 0) return mx_fail_errno(m->err, "could not read \"%s\"", path);
        if (!n) return false;
        done += (size_t)n;
    }
    return true;
}

/* Goes through the bytes of an output, piece by piece, in memory or from the file, and joins their
 * hashes. */
static bool go_through(GgufExport *x, const GgufOutput *out, const char *path, int fd, bool writes,
                       uint64_t *hash) {
    HfMaker *m = &x->made;
    size_t bytes = (size_t)mx_tensor_bytes(&out->tensor);
    *hash = 0;
    if (!out->n) {
        float *read = mx_arena_alloc(&m->arena, bytes);
        return writes ? mx_tensors_append(path, fd, x->stretch, bytes, m->err)
                      : read_bytes(m, path, fd, read, bytes) && !memcmp(read, x->stretch, bytes);
    }
    for (int i = 0; i < out->n; i++)
        for (m->to = 0; hf_make_next(m, &out->items[i]->tensor, &bytes);) {
            if (writes ? !hf_make_piece(m, out->items[i]) ||
                             !mx_tensors_append(path, fd, m->piece, bytes, m->err)
                       : !read_bytes(m, path, fd, m->piece, bytes))
                return false;
            *hash = *hash * 31 + mx_hash64(m->piece, bytes);
        }
    return true;
}

static bool write_file(GgufExport *x, const char *path, int64_t *start) {
    HfMaker *m = &x->made;
    MxTensor *tensors = mx_new_n(&m->arena, MxTensor, x->n);
    int fd;
    for (int i = 0; i < x->n; i++) tensors[i] = x->outputs[i].tensor;
    if (!mx_gguf_create(path, &x->facts, tensors, x->n, &fd, m->err)) return false;
    *start = lseek(fd, 0, SEEK_CUR);
    bool ok = true;
    for (int i = 0; ok && i < x->n; i++) {
        ok = go_through(x, &x->outputs[i], path, fd, true, &x->outputs[i].hash) &&
             mx_gguf_end(path, fd, &tensors[i], m->err);
        mx_progress((double)i / x->n, -1, "writing %.90s", tensors[i].name);
    }
    return (!close(fd) || mx_fail_errno(m->err, "could not write \"%s\"", path)) && ok;
}

/* Every array reads back as it was written. */
static bool verify(GgufExport *x, const char *path, int64_t at) {
    HfMaker *m = &x->made;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 || mx_fail_errno(m->err, "could not open \"%s\"", path);
    for (int i = 0; ok && i < x->n; i++) {
        const GgufOutput *out = &x->outputs[i];
        uint64_t hash;
        ok = lseek(fd, at, SEEK_SET) == at && go_through(x, out, path, fd, false, &hash) &&
             hash == out->hash;
        if (!ok && !m->err->count)
            mx_fail(m->err, MX_EXIT_IO, (MxWhere){.file = path},
                    "\"%s\" does not read back as it was written", out->tensor.name);
        at += mx_gguf_room(&out->tensor);
        mx_progress((double)i / x->n, -1, "verifying %.90s", out->tensor.name);
    }
    if (fd >= 0) close(fd);
    return ok;
}

bool gguf_write(GgufExport *x, const char *path) {
    int64_t start;
    hf_make_room(&x->made);
    bool ok = write_file(x, path, &start) && (!x->how->hf.verifies || verify(x, path, start));
    mx_progress_end();
    return ok;
}
