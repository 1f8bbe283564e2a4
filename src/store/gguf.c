/* gguf.c — writes GGUF files. All numbers have their lowest byte first. */
#include <mx/store_gguf.h>

#include <fcntl.h>
#include <unistd.h>

enum { VERSION = 3, ALIGNMENT = 32 };

/* Kinds of values. */
enum { UINT32 = 4, INT32, FLOAT32, BOOL, STRING, ARRAY };

static void put(MxText *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) mx_text_addn(to, &(char){(char)(value >> 8 * i & 255)}, 1);
}

static void put_bytes(MxText *to, const void *bytes, size_t n) {
    put(to, n, 8);
    mx_text_addn(to, bytes, n);
}

static void put_float(MxText *to, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(to, bits, 4);
}

/* ---- facts */

void mx_gguf_init(MxGguf *gguf, MxArena *arena) {
    *gguf = (MxGguf){.arena = arena};
    mx_text_init(&gguf->facts, arena);
}

static MxText *start(MxGguf *gguf, const char *key, int kind) {
    put_bytes(&gguf->facts, key, strlen(key));
    put(&gguf->facts, (uint64_t)kind, 4);
    gguf->n++;
    return &gguf->facts;
}

static MxText *start_list(MxGguf *gguf, const char *key, int kind, int64_t n) {
    MxText *to = start(gguf, key, ARRAY);
    put(to, (uint64_t)kind, 4);
    put(to, (uint64_t)n, 8);
    return to;
}

void mx_gguf_add_uint(MxGguf *gguf, const char *key, int64_t value) {
    MX_ASSERT(value >= 0 && value <= UINT32_MAX);
    put(start(gguf, key, UINT32), (uint64_t)value, 4);
}

void mx_gguf_add_float(MxGguf *gguf, const char *key, double value) {
    put_float(start(gguf, key, FLOAT32), (float)value);
}

void mx_gguf_add_bool(MxGguf *gguf, const char *key, bool value) {
    put(start(gguf, key, BOOL), value, 1);
}

void mx_gguf_add_text(MxGguf *gguf, const char *key, const char *value) {
    put_bytes(start(gguf, key, STRING), value, strlen(value));
}

void mx_gguf_add_bools(MxGguf *gguf, const char *key, const bool *values, int64_t n) {
    MxText *to = start_list(gguf, key, BOOL, n);
    for (int64_t i = 0; i < n; i++) put(to, values[i], 1);
}

void mx_gguf_add_ints(MxGguf *gguf, const char *key, const int32_t *values, int64_t n) {
    MxText *to = start_list(gguf, key, INT32, n);
    for (int64_t i = 0; i < n; i++) put(to, (uint32_t)values[i], 4);
}

void mx_gguf_add_floats(MxGguf *gguf, const char *key, const float *values, int64_t n) {
    MxText *to = start_list(gguf, key, FLOAT32, n);
    for (int64_t i = 0; i < n; i++) put_float(to, values[i]);
}

void mx_gguf_add_texts(MxGguf *gguf, const char *key, const MxBytes *values, int64_t n) {
    MxText *to = start_list(gguf, key, STRING, n);
    for (int64_t i = 0; i < n; i++) put_bytes(to, values[i].data, values[i].size);
}

/* ---- files */

static int64_t padding(int64_t bytes) {
    return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
}

static int64_t bytes_of(const MxGgufArray *array) {
    return mx_gguf_bytes(array->kind, mx_shape_count(array->shape));
}

int64_t mx_gguf_room(const MxGgufArray *array) {
    int64_t bytes = bytes_of(array);
    return bytes + padding(bytes);
}

/* Where each array is, and its dims, the innermost first. */
static void put_arrays(MxText *to, const MxGgufArray *arrays, int n) {
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        const MxShape *shape = &arrays[i].shape;
        put_bytes(to, arrays[i].name, strlen(arrays[i].name));
        put(to, (uint64_t)shape->rank, 4);
        for (int d = shape->rank - 1; d >= 0; d--) put(to, (uint64_t)shape->dim[d], 8);
        put(to, (uint64_t)mx_gguf_types[arrays[i].kind].number, 4);
        put(to, (uint64_t)offset, 8);
        offset += mx_gguf_room(&arrays[i]);
    }
}

static bool append_zeros(const char *path, int fd, int64_t n, MxError *err) {
    static const char zeros[ALIGNMENT];
    return mx_tensors_append(path, fd, zeros, (size_t)n, err);
}

bool mx_gguf_create(const char *path, const MxGguf *gguf, const MxGgufArray *arrays, int n, int *fd,
                    MxError *err) {
    MxArena arena = {.name = "gguf"};
    MxText head;
    mx_text_init(&head, &arena);
    mx_text_add(&head, "GGUF");
    put(&head, VERSION, 4);
    put(&head, (uint64_t)n, 8);
    put(&head, (uint64_t)gguf->n, 8);
    mx_text_addn(&head, gguf->facts.data, gguf->facts.len);
    put_arrays(&head, arrays, n);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = *fd >= 0 ? mx_tensors_append(path, *fd, head.data, head.len, err) &&
                             append_zeros(path, *fd, padding((int64_t)head.len), err)
                       : mx_fail_errno(err, "could not create \"%s\"", path);
    if (!ok && *fd >= 0) close(*fd);
    mx_arena_release(&arena);
    return ok;
}

bool mx_gguf_end(const char *path, int fd, const MxGgufArray *array, MxError *err) {
    return append_zeros(path, fd, padding(bytes_of(array)), err);
}
