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

/* A piece of an item, as the file has it. */
static bool make_piece(GgufExport *x, const GgufOutput *out, const HfItem *item) {
    HfMaker *m = &x->made;
    const MxGgufType *type = &mx_gguf_types[out->array.kind];
    return hf_make_piece(m, item) &&
           (!type->encode || type->encode(m->piece, m->to - m->from, x->encoded) ||
            mx_fail(m->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = m->source.ref.ref},
                    "\"%s\" has a value that %s has no number for", item->tensor.name, type->name));
}

/* Goes through the bytes of an output, piece by piece, in memory or from the file, and joins their
 * hashes. */
static bool go_through(GgufExport *x, const GgufOutput *out, const char *path, int fd, bool writes,
                       uint64_t *hash) {
    HfMaker *m = &x->made;
    const MxGgufType *type = &mx_gguf_types[out->array.kind];
    size_t bytes = (size_t)mx_gguf_bytes(out->array.kind, mx_shape_count(out->array.shape));
    *hash = 0;
    if (!out->n) {
        float *read = mx_arena_alloc(&m->arena, bytes);
        return writes ? mx_tensors_append(path, fd, x->stretch, bytes, m->err)
                      : read_bytes(m, path, fd, read, bytes) && !memcmp(read, x->stretch, bytes);
    }
    for (int i = 0; i < out->n; i++)
        for (m->to = 0; hf_make_next(m, &out->items[i]->tensor, &bytes);) {
            uint8_t *piece = type->encode ? x->encoded : m->piece;
            if (type->encode) bytes = (size_t)mx_gguf_bytes(out->array.kind, m->to - m->from);
            if (writes ? !make_piece(x, out, out->items[i]) ||
                             !mx_tensors_append(path, fd, piece, bytes, m->err)
                       : !read_bytes(m, path, fd, piece, bytes))
                return false;
            *hash = *hash * 31 + mx_hash64(piece, bytes);
        }
    return true;
}

static bool write_file(GgufExport *x, const char *path, int64_t *start) {
    HfMaker *m = &x->made;
    MxGgufArray *arrays = mx_new_n(&m->arena, MxGgufArray, x->n);
    int fd;
    for (int i = 0; i < x->n; i++) arrays[i] = x->outputs[i].array;
    if (!mx_gguf_create(path, &x->facts, arrays, x->n, &fd, m->err)) return false;
    *start = lseek(fd, 0, SEEK_CUR);
    bool ok = true;
    for (int i = 0; ok && i < x->n; i++) {
        ok = go_through(x, &x->outputs[i], path, fd, true, &x->outputs[i].hash) &&
             mx_gguf_end(path, fd, &arrays[i], m->err);
        mx_progress((double)i / x->n, -1, "writing %.90s", arrays[i].name);
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
                    "\"%s\" does not read back as it was written", out->array.name);
        at += mx_gguf_room(&out->array);
        mx_progress((double)i / x->n, -1, "verifying %.90s", out->array.name);
    }
    if (fd >= 0) close(fd);
    return ok;
}

bool gguf_write(GgufExport *x, const char *path) {
    int64_t start;
    size_t room = hf_make_room(&x->made);
    if (mx_gguf_types[x->how->kind].encode) x->encoded = mx_arena_alloc(&x->made.arena, room);
    bool ok = write_file(x, path, &start) && (!x->how->hf.verifies || verify(x, path, start));
    mx_progress_end();
    return ok;
}
