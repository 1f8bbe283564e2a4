/* tensors.c — files of named arrays. Safetensors: 8 bytes of header length (little-endian), a JSON
 * object of {name: {dtype, shape, data_offsets}}, then the arrays. Source of the format:
 * github.com/huggingface/safetensors README. Those of torch.save: torch.c. */
#include "tensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_HEADER = 100 << 20 }; /* the format's own limit */

// clang-format off
static const struct {
    const char *name;
    MxDtype dtype;
} dtypes[] = {
    {"F32", MX_F32}, {"BF16", MX_BF16}, {"F16", MX_F16}, {"F64", MX_F64}, {"I64", MX_I64},
    {"I32", MX_I32}, {"U32", MX_U32},   {"U16", MX_U16}, {"I8", MX_I8},   {"U8", MX_U8}, {"BOOL", MX_U8},
    /* As elements of that size. */
    {"I16", MX_U16}, {"U64", MX_I64}, {"C64", MX_I64}, {"F8_E4M3", MX_U8}, {"F8_E5M2", MX_U8},
    {"F8_E8M0", MX_U8}, {"F8_E4M3FNUZ", MX_U8}, {"F8_E5M2FNUZ", MX_U8},
};
// clang-format on

static void close_file(void *data) {
    close(((MxTensors *)data)->fd);
}

bool tensors_fail(const MxTensors *f, const char *what, const char *name, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path}, "\"%s\": %s", name, what);
}

bool tensors_read_at(const MxTensors *f, void *out, size_t bytes, int64_t offset, MxError *err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, (char *)out + done, bytes - done, offset + (int64_t)done);
        if (n < 0) return mx_fail_errno(err, "could not read \"%s\"", f->path);
        if (!n)
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                           "no file of tensors, or cut short");
        done += (size_t)n;
    }
    return true;
}

/* ---- the header */

static bool parse_dtype(const MxJson *json, MxTensor *out) {
    const char *name = mx_json_string(json);
    for (int i = 0; name && i < MX_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].name, name)) {
            out->dtype = dtypes[i].dtype;
            out->stored = dtypes[i].name;
            return true;
        }
    return false;
}

bool tensors_add_dim(MxShape *shape, int64_t dim) {
    const int64_t most = (int64_t)1 << 40; /* of elements: sizes cannot overflow below */
    int64_t count = mx_shape_count(*shape);
    if (shape->rank == MX_MAX_RANK || dim < 0 || dim > most / (count ? count : 1)) return false;
    shape->dim[shape->rank++] = dim;
    return true;
}

static bool parse_shape(const MxJson *json, MxShape *out) {
    *out = (MxShape){0};
    for (size_t i = 0; i < mx_json_length(json); i++) {
        int64_t dim;
        if (!mx_json_int(mx_json_at(json, i), &dim) || !tensors_add_dim(out, dim)) return false;
    }
    return true;
}

static bool add_tensor(MxTensors *f, const char *name, const MxJson *entry, int64_t start,
                       int64_t end, MxError *err) {
    MxTensor t = {.name = mx_arena_strdup(f->arena, name)};
    int64_t from, to;
    const MxJson *offsets = mx_json_get(entry, "data_offsets");
    if (!parse_dtype(mx_json_get(entry, "dtype"), &t))
        return tensors_fail(f, "a dtype that is not known here", name, err);
    if (!mx_json_get(entry, "shape") || !parse_shape(mx_json_get(entry, "shape"), &t.shape))
        return tensors_fail(f, "no shape, or one of too many dims", name, err);
    if (!mx_json_int(mx_json_at(offsets, 0), &from) || !mx_json_int(mx_json_at(offsets, 1), &to) ||
        from < 0 || to < from || to > end - start || to - from != mx_tensor_bytes(&t))
        return tensors_fail(f, "data_offsets do not agree with its shape or the file's size", name,
                            err);
    t.offset = start + from;
    mx_map_set(&f->by_name, t.name, f->n);
    f->tensors[f->n++] = t;
    return true;
}

static int by_offset(const void *a, const void *b) {
    const MxTensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) return (*x)->offset < (*y)->offset ? -1 : 1;
    return (mx_shape_count((*x)->shape) > 0) - (mx_shape_count((*y)->shape) > 0);
}

/* Arrays cover all bytes behind the header, without holes and each byte once. */
static bool check_cover(const MxTensors *f, int64_t start, int64_t size, MxArena *scratch,
                        MxError *err) {
    const MxTensor **sorted = mx_new_n(scratch, const MxTensor *, f->n + 1);
    for (int i = 0; i < f->n; i++) sorted[i] = &f->tensors[i];
    if (f->n) qsort(sorted, (size_t)f->n, sizeof *sorted, by_offset);
    int64_t end = start;
    for (int i = 0; i < f->n; i++) {
        if (sorted[i]->offset != end)
            return tensors_fail(f, "its bytes do not begin where those of the array before it end",
                                sorted[i]->name, err);
        end += mx_tensor_bytes(sorted[i]);
    }
    return end == size || mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                                  "%lld bytes behind the last array", (long long)(size - end));
}

static bool check_metadata(const MxTensors *f, const MxJson *metadata, MxError *err) {
    const char *name;
    MxJson *value;
    for (size_t i = 0; mx_json_member(metadata, i, &name, &value); i++)
        if (!mx_json_string(value)) return tensors_fail(f, "metadata that is no text", name, err);
    return true;
}

static bool read_json_header(MxTensors *f, int64_t size, MxError *err) {
    MxArena arena = {.name = "safetensors"};
    uint8_t prefix[8];
    uint64_t length = 0;
    if (!tensors_read_at(f, prefix, sizeof prefix, 0, err)) return false;
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << 8 * i;
    if (length > LARGEST_HEADER || (int64_t)length > size - 8)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                       "no safetensors file, or cut short");
    char *text = mx_arena_alloc(&arena, (size_t)length + 1);
    bool ok = tensors_read_at(f, text, (size_t)length, 8, err);
    MxJson *json = ok ? mx_json_parse(&arena, text, (size_t)length, f->path, err) : NULL;
    if (json && strcmp(mx_json_kind(json), "an object"))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->path},
                     "the header is %s, wanted an object", mx_json_kind(json));
    size_t n = json ? mx_json_length(json) : 0;
    f->tensors = mx_new_n(f->arena, MxTensor, n + 1);
    for (size_t i = 0; json && ok && i < n; i++) {
        const char *name;
        MxJson *entry;
        if (!mx_json_member(json, i, &name, &entry)) break;
        ok = strcmp(name, "__metadata__")
                 ? add_tensor(f, name, entry, 8 + (int64_t)length, size, err)
                 : check_metadata(f, entry, err);
    }
    ok = ok && json && check_cover(f, 8 + (int64_t)length, size, &arena, err);
    mx_arena_release(&arena);
    return ok;
}

static bool read_header(MxTensors *f, int64_t size, MxError *err) {
    uint8_t first[8];
    return tensors_read_at(f, first, sizeof first, 0, err) &&
           (torch_is_archive(first) ? torch_read_header : read_json_header)(f, size, err);
}

bool mx_tensors_open(MxArena *arena, const char *path, MxTensors **out, MxError *err) {
    MxTensors *f = *out = mx_new(arena, MxTensors);
    struct stat st;
    *f = (MxTensors){.arena = arena, .path = mx_arena_strdup(arena, path)};
    mx_map_init(&f->by_name, arena);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    mx_arena_on_release(arena, close_file, f);
    if (fstat(f->fd, &st)) return mx_fail_errno(err, "could not read \"%s\"", path);
    if (!S_ISREG(st.st_mode))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "is not a regular file");
    return read_header(f, (int64_t)st.st_size, err);
}

int mx_tensors_count(const MxTensors *file) {
    return file->n;
}
const char *mx_tensors_path(const MxTensors *file) {
    return file->path;
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

int64_t mx_tensor_bytes(const MxTensor *tensor) {
    return mx_shape_count(tensor->shape) * (int64_t)mx_dtype_bytes(tensor->dtype);
}

void mx_tensor_widen(const void *data, MxDtype dtype, int64_t first, int64_t n, float *out) {
    const char *from = (const char *)data + first * (int64_t)mx_dtype_bytes(dtype);
    if (dtype == MX_F32) memcpy(out, from, (size_t)n * sizeof *out);
    for (int64_t i = 0; dtype == MX_F64 && i < n; i++) {
        double wide;
        memcpy(&wide, from + 8 * i, sizeof wide);
        out[i] = (float)wide;
    }
    for (int64_t i = 0; (dtype == MX_BF16 || dtype == MX_F16) && i < n; i++) {
        uint16_t narrow;
        memcpy(&narrow, from + 2 * i, sizeof narrow);
        out[i] = dtype == MX_BF16 ? mx_bf16_to_f32(narrow) : half_to_f32(narrow);
    }
    for (int64_t i = 0; dtype == MX_I64 && i < n; i++) {
        int64_t whole;
        memcpy(&whole, from + 8 * i, sizeof whole);
        out[i] = (float)whole;
    }
    for (int64_t i = 0; dtype == MX_I32 && i < n; i++) {
        int32_t whole;
        memcpy(&whole, from + 4 * i, sizeof whole);
        out[i] = (float)whole;
    }
}

bool mx_tensors_check_floats(const MxTensors *file, const MxTensor *tensor, MxError *err) {
    MxDtype dtype = tensor->dtype;
    return dtype == MX_F32 || dtype == MX_BF16 || dtype == MX_F16 || dtype == MX_F64 ||
           tensors_fail(file, "holds other elements than F16, BF16, F32 or F64, wanted floats",
                        tensor->name, err);
}

bool mx_tensors_read_part(const MxTensors *file, const MxTensor *tensor, int64_t first, int64_t n,
                          void *out, MxError *err) {
    int64_t size = (int64_t)mx_dtype_bytes(tensor->dtype);
    MX_ASSERT(first >= 0 && n >= 0 && first + n <= mx_shape_count(tensor->shape));
    return tensors_read_at(file, out, (size_t)(n * size), tensor->offset + first * size, err);
}

bool mx_tensors_read_raw(const MxTensors *file, const MxTensor *tensor, void *out, MxError *err) {
    return mx_tensors_check_floats(file, tensor, err) &&
           mx_tensors_read_part(file, tensor, 0, mx_shape_count(tensor->shape), out, err);
}

bool mx_tensors_read(const MxTensors *file, const MxTensor *tensor, float *out, MxError *err) {
    if (tensor->dtype == MX_F32) return mx_tensors_read_raw(file, tensor, out, err);
    MxArena arena = {.name = "tensor"};
    void *raw = mx_arena_alloc(&arena, (size_t)mx_tensor_bytes(tensor) + 1);
    bool ok = mx_tensors_read_raw(file, tensor, raw, err);
    if (ok) mx_tensor_widen(raw, tensor->dtype, 0, mx_shape_count(tensor->shape), out);
    mx_arena_release(&arena);
    return ok;
}

/* ---- writing */

static const char *dtype_name(MxDtype dtype) {
    int i = 0;
    while (dtypes[i].dtype != dtype) i++;
    return dtypes[i].name;
}

/* The length and the header, padded so that arrays are aligned to 8. */
static MxBytes make_header(MxArena *arena, const MxTensor *tensors, int n) {
    MxJson *header = mx_json_object(arena);
    mx_json_set_string(mx_json_put_object(header, "__metadata__"), "format", "pt");
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        MxJson *entry = mx_json_put_object(header, tensors[i].name);
        mx_json_set_string(entry, "dtype", dtype_name(tensors[i].dtype));
        MxJson *shape = mx_json_put_array(entry, "shape");
        for (int d = 0; d < tensors[i].shape.rank; d++)
            mx_json_push_int(shape, tensors[i].shape.dim[d]);
        MxJson *offsets = mx_json_put_array(entry, "data_offsets");
        mx_json_push_int(offsets, bytes);
        bytes += mx_tensor_bytes(&tensors[i]);
        mx_json_push_int(offsets, bytes);
    }
    const char *text = mx_json_dump(arena, header, false);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    MxBytes out = {mx_arena_alloc(arena, 8 + padded), 8 + padded};
    for (int i = 0; i < 8; i++) out.data[i] = (uint8_t)(padded >> 8 * i & 255);
    memset(out.data + 8, ' ', padded);
    memcpy(out.data + 8, text, length);
    return out;
}

bool mx_tensors_write(const char *path, const MxTensorData *tensors, int n, MxError *err) {
    MxArena arena = {.name = "safetensors"};
    MxTensor *rows = mx_new_n(&arena, MxTensor, n + 1);
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        rows[i] = (MxTensor){.name = tensors[i].name, .dtype = MX_F32, .shape = tensors[i].shape};
        bytes += (size_t)mx_tensor_bytes(&rows[i]);
    }
    MxBytes header = make_header(&arena, rows, n);
    char *file = mx_arena_alloc(&arena, header.size + bytes), *to = file + header.size;
    memcpy(file, header.data, header.size);
    for (int i = 0; i < n; i++) {
        size_t size = (size_t)mx_tensor_bytes(&rows[i]);
        memcpy(to, tensors[i].data, size);
        to += size;
    }
    bool ok = mx_file_write(path, file, header.size + bytes, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_tensors_create(const char *path, const MxTensor *tensors, int n, int *fd, MxError *err) {
    MxArena arena = {.name = "safetensors"};
    MxBytes header = make_header(&arena, tensors, n);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = *fd >= 0 ? mx_tensors_append(path, *fd, header.data, header.size, err)
                       : mx_fail_errno(err, "could not create \"%s\"", path);
    if (!ok && *fd >= 0) close(*fd);
    mx_arena_release(&arena);
    return ok;
}

bool mx_tensors_append(const char *path, int fd, const void *data, size_t bytes, MxError *err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0) return mx_fail_errno(err, "could not write \"%s\"", path);
        done += (size_t)n;
    }
    return true;
}
