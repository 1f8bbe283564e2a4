/* torch.c — files of torch.save: a ZIP archive, nothing in it packed, with a pickle of a dictionary
 * (NAME/data.pkl) and the elements of each storage as they are (NAME/data/<key>), so that an array
 * is bytes of the file as in safetensors. Source of the formats: PKWARE's APPNOTE 6.3.10; torch
 * 2.15, torch/serialization.py. */
#include "tensors.h"

/* One file of the archive. */
typedef struct Entry {
    const char *name; /* without the folder that all are in */
    int64_t offset, bytes;
} Entry;

typedef struct Archive {
    const MxTensors *file;
    int64_t size;
    Entry *entry; /* [n] */
    int64_t n;
    MxMap by_name;
    MxError *err;
} Archive;

bool torch_is_archive(const uint8_t first[8]) {
    return !memcmp(first, "PK\3\4", 4);
}

static bool fail(const Archive *a, const char *what) {
    return mx_fail(a->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = a->file->path},
                   "no archive of torch.save: %s", what);
}

static uint64_t little(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static bool read_some(const Archive *a, void *out, int64_t bytes, int64_t offset) {
    if (offset < 0 || bytes < 0 || bytes > a->size || offset > a->size - bytes)
        return fail(a, "it is cut short, or names bytes that it has not");
    return tensors_read_at(a->file, out, (size_t)bytes, offset, a->err);
}

/* ---- the list of files, at the end */

/* Where it is: its first byte, its bytes, files in it. */
typedef struct Directory {
    int64_t offset, bytes, n;
} Directory;

enum { END_BYTES = 22, LOCATOR_BYTES = 20, END_64_BYTES = 56, MOST_COMMENT = 65535 };

/* The end of a large archive, which its locator, before the end that all have, points to. */
static bool read_end_64(const Archive *a, int64_t end, Directory *out) {
    uint8_t locator[LOCATOR_BYTES], b[END_64_BYTES];
    if (!read_some(a, locator, sizeof locator, end - LOCATOR_BYTES)) return false;
    if (memcmp(locator, "PK\6\7", 4)) return true; /* it is no such archive */
    uint64_t at = little(locator + 8, 8);
    if (at > INT64_MAX) return fail(a, "its end is nowhere");
    if (!read_some(a, b, sizeof b, (int64_t)at)) return false;
    if (memcmp(b, "PK\6\6", 4)) return fail(a, "its end is no end");
    if (little(b + 32, 8) > INT64_MAX || little(b + 40, 8) > INT64_MAX ||
        little(b + 48, 8) > INT64_MAX)
        return fail(a, "its list of files is larger than any file");
    *out = (Directory){(int64_t)little(b + 48, 8), (int64_t)little(b + 40, 8),
                       (int64_t)little(b + 32, 8)};
    return true;
}

static bool find_directory(const Archive *a, Directory *out) {
    MxArena arena = {.name = "archive"};
    const int64_t most = END_BYTES + MOST_COMMENT, n = a->size < most ? a->size : most;
    uint8_t *tail = mx_arena_alloc(&arena, (size_t)n + 1);
    bool ok = read_some(a, tail, n, a->size - n);
    int64_t at = n - END_BYTES;
    while (ok && at >= 0 && memcmp(tail + at, "PK\5\6", 4)) at--;
    if (ok && at < 0) ok = fail(a, "it has no end; is it cut short?");
    if (ok) {
        const int64_t end = a->size - n + at;
        *out = (Directory){(int64_t)little(tail + at + 16, 4), (int64_t)little(tail + at + 12, 4),
                           (int64_t)little(tail + at + 10, 2)};
        ok = end < LOCATOR_BYTES || read_end_64(a, end, out);
    }
    mx_arena_release(&arena);
    return ok;
}

/* ---- files */

enum { RECORD_BYTES = 46, LOCAL_BYTES = 30 };

/* Sizes and the place that 32 bits do not hold, in this order, in a field of the record. */
static void widen(const uint8_t *extra, size_t n, uint64_t value[3]) {
    const uint64_t full = UINT32_MAX;
    for (size_t at = 0; at + 4 <= n;) {
        size_t bytes = little(extra + at + 2, 2), from = at + 4;
        bool is_wide = little(extra + at, 2) == 1;
        at += 4 + bytes;
        for (int i = 0; is_wide && i < 3; i++)
            if (value[i] == full && from + 8 <= at && at <= n) {
                value[i] = little(extra + from, 8);
                from += 8;
            }
    }
}

/* The bytes of a file are behind a record of its own, whose length is known only there. */
static bool find_bytes(const Archive *a, int64_t local, Entry *out) {
    uint8_t b[LOCAL_BYTES];
    if (!read_some(a, b, sizeof b, local)) return false;
    if (memcmp(b, "PK\3\4", 4)) return fail(a, "a file in it does not begin where it should");
    out->offset = local + LOCAL_BYTES + (int64_t)little(b + 26, 2) + (int64_t)little(b + 28, 2);
    return out->bytes <= a->size && out->offset <= a->size - out->bytes
               ? true
               : fail(a, "a file in it ends behind its own end");
}

static bool add_entry(Archive *a, MxArena *arena, const uint8_t *record, const uint8_t *name,
                      size_t n_name, size_t n_extra) {
    uint64_t value[] = {little(record + 24, 4), little(record + 20, 4), little(record + 42, 4)};
    Entry *entry = &a->entry[a->n];
    widen(name + n_name, n_extra, value);
    if (little(record + 10, 2) || value[0] != value[1])
        return fail(a, "a file in it is packed, which torch.save does not do");
    if (value[0] > INT64_MAX || value[2] > INT64_MAX)
        return fail(a, "a file in it is larger than any file");
    const char *path = mx_arena_strndup(arena, (const char *)name, n_name);
    const char *slash = strchr(path, '/');
    *entry = (Entry){.name = slash ? slash + 1 : path, .bytes = (int64_t)value[0]};
    if (!find_bytes(a, (int64_t)value[2], entry)) return false;
    mx_map_set(&a->by_name, entry->name, a->n++);
    return true;
}

static bool read_directory(Archive *a, MxArena *arena) {
    const int64_t largest = (int64_t)64 << 20;
    Directory d;
    if (!find_directory(a, &d)) return false;
    if (d.bytes > largest || d.n > d.bytes / RECORD_BYTES)
        return fail(a, "its list of files has no size that one has");
    uint8_t *b = mx_arena_alloc(arena, (size_t)d.bytes + 1);
    if (!read_some(a, b, d.bytes, d.offset)) return false;
    a->entry = mx_new_n(arena, Entry, d.n + 1);
    mx_map_init(&a->by_name, arena);
    for (int64_t i = 0, at = 0; i < d.n; i++) {
        if (at + RECORD_BYTES > d.bytes || memcmp(b + at, "PK\1\2", 4))
            return fail(a, "its list of files is damaged");
        size_t n_name = little(b + at + 28, 2), n_extra = little(b + at + 30, 2);
        int64_t next = at + RECORD_BYTES + (int64_t)n_name + (int64_t)n_extra +
                       (int64_t)little(b + at + 32, 2);
        if (next > d.bytes) return fail(a, "its list of files is damaged");
        if (!add_entry(a, arena, b + at, b + at + RECORD_BYTES, n_name, n_extra)) return false;
        at = next;
    }
    return true;
}

static const Entry *find(const Archive *a, const char *name) {
    int64_t i = mx_map_get(&a->by_name, name, -1);
    return i < 0 ? NULL : &a->entry[i];
}

/* ---- arrays */

/* Elements in order, without gaps. */
static bool is_dense(const PickledTensor *t) {
    int64_t next = 1;
    bool is = true;
    for (int d = t->shape.rank - 1; d >= 0 && mx_shape_count(t->shape); d--) {
        is = is && (t->shape.dim[d] <= 1 || t->step[d] == next);
        next *= t->shape.dim[d];
    }
    return is;
}

static bool add_tensor(MxTensors *f, const Archive *a, const PickledTensor *p) {
    MxArena scratch = {.name = "name"};
    MxTensor t = {.name = p->name, .dtype = p->dtype, .shape = p->shape};
    const Entry *e = find(a, mx_arena_printf(&scratch, "data/%s", p->storage));
    const int64_t width = (int64_t)mx_dtype_bytes(t.dtype), n = mx_shape_count(t.shape);
    mx_arena_release(&scratch);
    if (!e) return tensors_fail(f, "its elements are not in the archive", p->name, a->err);
    if (!is_dense(p))
        return tensors_fail(f, "is a view of other elements; save it with .contiguous()", p->name,
                            a->err);
    if (p->of_storage > e->bytes / width || p->first > p->of_storage ||
        n > p->of_storage - p->first)
        return tensors_fail(f, "has more elements than the archive has of it", p->name, a->err);
    if (mx_map_get(&f->by_name, p->name, -1) >= 0)
        return tensors_fail(f, "is there twice", p->name, a->err);
    t.offset = e->offset + p->first * width;
    mx_map_set(&f->by_name, t.name, f->n);
    f->tensors[f->n++] = t;
    return true;
}

static bool read_pickle(MxTensors *f, Archive *a, MxArena *arena) {
    const int64_t largest = (int64_t)4 << 20; /* bounds memory, too: some tens of bytes a byte */
    const Entry *pickle = find(a, "data.pkl"), *order = find(a, "byteorder");
    PickledTensor *tensors;
    char text[8] = "";
    int n;
    if (!pickle) return fail(a, "there is no data.pkl in it");
    if (pickle->bytes > largest) return fail(a, "its data.pkl is larger than 4 MiB");
    if (order && order->bytes < (int64_t)sizeof text &&
        !read_some(a, text, order->bytes, order->offset))
        return false;
    if (order && strcmp(text, "little"))
        return fail(a, "its numbers begin with their highest byte (byteorder)");
    uint8_t *bytes = mx_arena_alloc(arena, (size_t)pickle->bytes + 1);
    const char *where = mx_arena_printf(f->arena, "%s: data.pkl", f->path);
    if (!read_some(a, bytes, pickle->bytes, pickle->offset) ||
        !pickle_read(f->arena, bytes, (size_t)pickle->bytes, (MxWhere){.file = where}, &tensors, &n,
                     a->err))
        return false;
    f->tensors = mx_new_n(f->arena, MxTensor, n + 1);
    for (int i = 0; i < n; i++)
        if (!add_tensor(f, a, &tensors[i])) return false;
    return true;
}

bool torch_read_header(MxTensors *f, int64_t size, MxError *err) {
    MxArena arena = {.name = "archive"};
    Archive a = {.file = f, .size = size, .err = err};
    bool ok = read_directory(&a, &arena) && read_pickle(f, &a, &arena);
    mx_arena_release(&arena);
    return ok;
}
