/* tensors.c — safetensors files: 8 bytes of header length (little-endian), a JSON object of {name:
 * {dtype, shape, data_offsets}}, then the arrays. Source of the format:
 * github.com/huggingface/safetensors README. */
#include <mx/store.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_HEADER = 100 << 20 }; /* the format's own limit */

struct MxTensors {
    MxArena *arena;
    const char *path;
    int fd;
    MxTensor *tensors;
    int n;
    MxMap by_name;
};

// clang-format off
static const struct {
    const char *name;
    MxDtype dtype;
} dtypes[] = {
    {"F32", MX_F32}, {"BF16", MX_BF16}, {"F16", MX_F16}, {"F64", MX_F64}, {"I64", MX_I64},
    {"I32", MX_I32}, {"U32", MX_U32},   {"U16", MX_U16}, {"I8", MX_I8},   {"U8", MX_U8}, {"BOOL", MX_U8},
};
// clang-format on

static void close_file(void *data) {
    close(((MxTensors *)data)->fd);
}

static bool fail(const MxTensors *f, const char *what, const char *name, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path}, "\"%s\": %s", name, what);
}

static bool read_at(const MxTensors *f, void *out, size_t bytes, int64_t offset, MxError *err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, (char *)out + done, bytes - done, offset + (int64_t)done);
        if (n < 0) return mx_fail_errno(err, "could not read \"%s\"", f->path);
        if (!n)
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                           "no safetensors file, or cut short");
        done += (size_t)n;
    }
    return true;
}

/* ---- the header */

static bool parse_dtype(const MxJson *json, MxDtype *out) {
    const char *name = mx_json_string(json);
    for (int i = 0; name && i < MX_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].name, name)) {
            *out = dtypes[i].dtype;
            return true;
        }
    return false;
}

static bool parse_shape(const MxJson *json, MxShape *out) {
    const int64_t most = (int64_t)1 << 40; /* of elements: sizes cannot overflow below */
    int64_t count = 1;
    if (mx_json_length(json) > MX_MAX_RANK) return false;
    *out = (MxShape){.rank = (int)mx_json_length(json)};
    for (int i = 0; i < out->rank; i++) {
        if (!mx_json_int(mx_json_at(json, (size_t)i), &out->dim[i]) || out->dim[i] < 0 ||
            out->dim[i] > most / (count ? count : 1))
            return false;
        count *= out->dim[i];
    }
    return true;
}

static bool add_tensor(MxTensors *f, const char *name, const MxJson *entry, int64_t start,
                       int64_t end, MxError *err) {
    MxTensor t = {.name = mx_arena_strdup(f->arena, name)};
    int64_t from, to;
    const MxJson *offsets = mx_json_get(entry, "data_offsets");
    if (!parse_dtype(mx_json_get(entry, "dtype"), &t.dtype))
        return fail(f, "a dtype that is not known here", name, err);
    if (!mx_json_get(entry, "shape") || !parse_shape(mx_json_get(entry, "shape"), &t.shape))
        return fail(f, "no shape, or one of too many dims", name, err);
    if (!mx_json_int(mx_json_at(offsets, 0), &from) || !mx_json_int(mx_json_at(offsets, 1), &to) ||
        from < 0 || to < from || to > end - start ||
        to - from != mx_shape_count(t.shape) * (int64_t)mx_dtype_bytes(t.dtype))
        return fail(f, "data_offsets do not agree with its shape or the file's size", name, err);
    t.offset = start + from;
    mx_map_set(&f->by_name, t.name, f->n);
    f->tensors[f->n++] = t;
    return true;
}

static bool read_header(MxTensors *f, int64_t size, MxError *err) {
    MxArena arena = {.name = "safetensors"};
    uint8_t prefix[8];
    uint64_t length = 0;
    if (!read_at(f, prefix, sizeof prefix, 0, err)) return false;
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << 8 * i;
    if (length > LARGEST_HEADER || (int64_t)length > size - 8)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                       "no safetensors file, or cut short");
    char *text = mx_arena_alloc(&arena, (size_t)length + 1);
    bool ok = read_at(f, text, (size_t)length, 8, err);
    MxJson *json = ok ? mx_json_parse(&arena, text, (size_t)length, f->path, err) : NULL;
    size_t n = json ? mx_json_length(json) : 0;
    f->tensors = mx_new_n(f->arena, MxTensor, n + 1);
    for (size_t i = 0; json && ok && i < n; i++) {
        const char *name;
        MxJson *entry;
        if (!mx_json_member(json, i, &name, &entry)) break;
        if (strcmp(name, "__metadata__"))
            ok = add_tensor(f, name, entry, 8 + (int64_t)length, size, err);
    }
    mx_arena_release(&arena);
    return ok && json;
}

bool mx_tensors_open(MxArena *arena, const char *path, MxTensors **out, MxError *err) {
    MxTensors *f = *out = mx_new(arena, MxTensors);
    struct stat st;
    *f = (MxTensors){.arena = arena, .path = mx_arena_strdup(arena, path)};
    mx_map_init(&f->by_name, arena);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    mx_arena_on_release(arena, close_file, f);
    if (fstat(f->fd, &st)) return mx_fail_errno(err, "could not read \"%s\"", path);
    return read_header(f, (int64_t)st.st_size, err);
}

int mx_tensors_count(const MxTensors *file) {
    return file->n;
}
const MxTensor *mx_tensors_at(const MxTensors *file, int i) {
    return &file->tensors[i];
}
const MxTensor *mx_tensors_find(const MxTensors *file, const char *name) {
    int64_t i = mx_map_get(&file->by_name, name, -1);
    return i < 0 ? NULL : &file->tensors[i];
}

/* ---- arrays */

/* IEEE binary16: 1 sign, 5 exponent, 10 fraction bits. */
static float half_to_f32(uint16_t h) {
    const float smallest = 5.9604644775390625e-8f; /* 2^-24 */
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    float value = (float)fraction * smallest;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (exponent == 31) bits = 0x7f800000u | fraction << 13;
    if (exponent && exponent < 31) bits = (exponent + 112) << 23 | fraction << 13;
    bits |= sign;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Element i of floats that are not float32. */
static float element(const void *from, MxDtype dtype, int64_t i) {
    uint16_t narrow;
    double wide;
    if (dtype == MX_F64) {
        memcpy(&wide, (const char *)from + 8 * i, sizeof wide);
        return (float)wide;
    }
    memcpy(&narrow, (const char *)from + 2 * i, sizeof narrow);
    return dtype == MX_BF16 ? mx_bf16_to_f32(narrow) : half_to_f32(narrow);
}

bool mx_tensors_read(const MxTensors *file, const MxTensor *tensor, float *out, MxError *err) {
    MxDtype dtype = tensor->dtype;
    int64_t n = mx_shape_count(tensor->shape);
    size_t bytes = (size_t)n * mx_dtype_bytes(dtype);
    if (dtype != MX_F32 && dtype != MX_BF16 && dtype != MX_F16 && dtype != MX_F64)
        return fail(file, "holds integers, wanted floats", tensor->name, err);
    if (dtype == MX_F32) return read_at(file, out, bytes, tensor->offset, err);
    MxArena arena = {.name = "tensor"};
    void *raw = mx_arena_alloc(&arena, bytes + 1);
    bool ok = read_at(file, raw, bytes, tensor->offset, err);
    for (int64_t i = 0; ok && i < n; i++) out[i] = element(raw, dtype, i);
    mx_arena_release(&arena);
    return ok;
}

/* ---- writing */

static MxJson *make_header(MxArena *arena, const MxTensorData *tensors, int n, int64_t *bytes) {
    MxJson *header = mx_json_object(arena);
    mx_json_set_string(mx_json_put_object(header, "__metadata__"), "format", "pt");
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        MxJson *entry = mx_json_put_object(header, tensors[i].name);
        mx_json_set_string(entry, "dtype", "F32");
        MxJson *shape = mx_json_put_array(entry, "shape");
        for (int d = 0; d < tensors[i].shape.rank; d++)
            mx_json_push_int(shape, tensors[i].shape.dim[d]);
        MxJson *offsets = mx_json_put_array(entry, "data_offsets");
        mx_json_push_int(offsets, *bytes);
        *bytes += mx_shape_count(tensors[i].shape) * (int64_t)sizeof(float);
        mx_json_push_int(offsets, *bytes);
    }
    return header;
}

bool mx_tensors_write(const char *path, const MxTensorData *tensors, int n, MxError *err) {
    MxArena arena = {.name = "safetensors"};
    int64_t bytes;
    const char *header = mx_json_dump(&arena, make_header(&arena, tensors, n, &bytes), false);
    size_t length = strlen(header), padded = (length + 7) / 8 * 8; /* arrays are aligned to 8 */
    char *file = mx_arena_alloc(&arena, 8 + padded + (size_t)bytes), *to = file + 8 + padded;
    for (int i = 0; i < 8; i++) file[i] = (char)(padded >> 8 * i & 255);
    memset(file + 8, ' ', padded);
    memcpy(file + 8, header, length);
    for (int i = 0; i < n; i++) {
        size_t size = (size_t)mx_shape_count(tensors[i].shape) * sizeof(float);
        memcpy(to, tensors[i].data, size);
        to += size;
    }
    bool ok = mx_file_write(path, file, 8 + padded + (size_t)bytes, err);
    mx_arena_release(&arena);
    return ok;
}
