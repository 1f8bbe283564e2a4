/* h5_data.c — what HDF5 datasets hold, through the library: where their bytes are, reading, making,
 * writing. Virtual datasets are taken apart here instead of by the library, which looks for their
 * files in more places than one and reads what is missing as fill values. */
#include <mx/store.h>

#include "library.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- reading ---- */

/* The HDF5 type of a dtype in memory and, on the little-endian machines we know, in files. */
static hid_t new_type(MxDtype dtype) {
    hid_t type = H5I_INVALID_HID;
    // clang-format off
    switch (dtype) {
    case MX_F32: return H5Tcopy(H5T_IEEE_F32LE);
    case MX_F64: return H5Tcopy(H5T_IEEE_F64LE);
    case MX_I64: return H5Tcopy(H5T_STD_I64LE);
    case MX_I32: return H5Tcopy(H5T_STD_I32LE);
    case MX_U32: return H5Tcopy(H5T_STD_U32LE);
    case MX_BF16:
    case MX_U16: return H5Tcopy(H5T_STD_U16LE);
    case MX_I8: return H5Tcopy(H5T_STD_I8LE);
    case MX_U8: return H5Tcopy(H5T_STD_U8LE);
    case MX_F16: /* IEEE half: sign at 15, 5 exponent bits at 10, 10 mantissa bits, bias 15 */
        type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 15, 10, 5, 0, 10);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, 15);
        return type;
    case MX_DTYPE_COUNT: break;
    }
    // clang-format on
    MX_ASSERT(type >= 0); /* not a dtype */
    return type;
}

/* Lets floats round and saturate as IEEE says, but never an integer change silently. */
static H5T_conv_ret_t on_loss(H5T_conv_except_t what, hid_t from, hid_t to, void *from_value,
                              void *to_value, void *data) {
    (void)what, (void)from, (void)from_value, (void)to_value, (void)data;
    return H5Tget_class(to) == H5T_FLOAT ? H5T_CONV_UNHANDLED : H5T_CONV_ABORT;
}

/* The part of a dataset that a box names, and memory of its size. */
typedef struct Selection {
    hid_t file, memory;
} Selection;

static Selection select_box(hid_t dataset, const MxBox *box) {
    Selection s = {.file = H5Dget_space(dataset), .memory = H5I_INVALID_HID};
    hsize_t start[MX_MAX_RANK], count[MX_MAX_RANK];
    for (int i = 0; i < box->rank; i++) {
        start[i] = (hsize_t)box->start[i];
        count[i] = (hsize_t)box->count[i];
    }
    s.memory = box->rank ? H5Screate_simple(box->rank, count, NULL) : H5Screate(H5S_SCALAR);
    if (box->rank) H5Sselect_hyperslab(s.file, H5S_SELECT_SET, start, NULL, count, NULL);
    return s;
}

static void drop_selection(Selection s) {
    if (s.file >= 0) H5Sclose(s.file);
    if (s.memory >= 0) H5Sclose(s.memory);
}

bool h5_read_native(MxH5 *file, const char *path, MxDtype memory_dtype, const MxBox *box, void *out,
                    MxError *err) {
    if (mx_box_count(box) == 0) return true;
    ENTER;
    MxH5Array array;
    hid_t dataset = h5_open_dataset(file, path, &array, err);
    if (dataset < 0) return false;
    hid_t type = new_type(memory_dtype), transfer = H5Pcreate(H5P_DATASET_XFER);
    Selection s = select_box(dataset, box);
    bool ok = H5Pset_type_conv_cb(transfer, on_loss, NULL) >= 0 &&
              H5Dread(dataset, type, s.memory, s.file, transfer, out) >= 0;
    if (!ok) h5_fail_read(file, path, "could not be read", err);
    drop_selection(s);
    H5Pclose(transfer);
    H5Tclose(type);
    H5Dclose(dataset);
    return ok;
}

/* ---- parts ---- */

int h5_fd(MxH5 *file) {
    ENTER;
    int *fd = NULL;
    return H5Fget_vfd_handle(file->id, H5P_DEFAULT, (void **)&fd) >= 0 && fd ? *fd : -1;
}

bool h5_has_signature(const char *path) {
    ENTER;
    return H5Fis_hdf5(path) > 0;
}

/* Where the bytes of a dataset are, if they are in one piece and as they would be in memory. */
static int64_t offset_of(hid_t dataset, MxDtype dtype) {
    hid_t type = H5Dget_type(dataset), memory = new_type(dtype);
    hid_t create = H5Dget_create_plist(dataset);
    bool is_plain = H5Pget_layout(create) == H5D_CONTIGUOUS && H5Tequal(type, memory) > 0;
    haddr_t offset = is_plain ? H5Dget_offset(dataset) : HADDR_UNDEF;
    H5Tclose(type);
    H5Tclose(memory);
    H5Pclose(create);
    return offset > INT64_MAX ? -1 : (int64_t)offset;
}

static bool refuse_mapping(MxH5 *file, const char *path, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file),
                   "dataset \"%s\": its values are kept in other files, and not as whole datasets "
                   "of files beside this one",
                   path);
}

/* The file of a virtual dataset's source, opened once. */
static MxH5 *open_source(MxH5 *file, const char *name, MxError *err) {
    MxArena *arena = file->arena;
    const char *path = mx_path_join(arena, mx_path_dir(arena, file->path), name);
    for (MxH5 *source = file->sources; source; source = source->next)
        if (!strcmp(source->path, path)) return source;
    MxH5 *source;
    if (!mx_h5_open(arena, path, &source, err)) return NULL;
    source->assumes_bf16 = file->assumes_bf16;
    source->next = file->sources;
    return file->sources = source;
}

/* The box of a virtual dataset that mapping i fills; false if it is none. */
static bool mapped_box(hid_t create, size_t i, int rank, MxBox *out) {
    hid_t space = H5Pget_virtual_vspace(create, i);
    hsize_t start[H5S_MAX_RANK], end[H5S_MAX_RANK];
    *out = (MxBox){.rank = rank};
    bool ok = space >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
              H5Sget_select_bounds(space, start, end) >= 0;
    for (int d = 0; ok && d < rank; d++) {
        out->start[d] = (int64_t)start[d];
        out->count[d] = (int64_t)(end[d] - start[d]) + 1;
    }
    ok = ok && H5Sget_select_npoints(space) == mx_box_count(out);
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool is_virtual(hid_t dataset) {
    hid_t create = H5Dget_create_plist(dataset);
    bool yes = H5Pget_layout(create) == H5D_VIRTUAL;
    H5Pclose(create);
    return yes;
}

/* Mapping i of a virtual dataset: a dataset of the mapped shape, which is not virtual itself. */
static bool take_mapping(MxArena *arena, MxH5 *file, const MxH5Array *array, hid_t create, size_t i,
                         H5Part *out, MxError *err) {
    enum { MOST_BYTES = 1024 };
    char name[MOST_BYTES], path[MOST_BYTES];
    ssize_t n_name = H5Pget_virtual_filename(create, i, name, sizeof name);
    ssize_t n_path = H5Pget_virtual_dsetname(create, i, path, sizeof path);
    bool is_told = n_name > 0 && n_name < MOST_BYTES && n_path > 0 && n_path < MOST_BYTES;
    if (!is_told || strchr(name, '/') || !strcmp(name, ".") ||
        !mapped_box(create, i, array->shape.rank, &out->box))
        return refuse_mapping(file, array->path, err);
    MxH5Array source;
    out->file = open_source(file, name, err);
    out->path = mx_arena_strdup(arena, *path == '/' ? path + 1 : path);
    hid_t dataset =
        out->file ? h5_open_dataset(out->file, out->path, &source, err) : H5I_INVALID_HID;
    if (dataset < 0) return false;
    MxShape shape = {.rank = out->box.rank};
    memcpy(shape.dim, out->box.count, sizeof shape.dim);
    bool ok = mx_shape_equal(source.shape, shape) && !is_virtual(dataset);
    out->offset = source.dtype == array->dtype ? offset_of(dataset, source.dtype) : -1;
    H5Dclose(dataset);
    return ok || refuse_mapping(file, array->path, err);
}

/* The dim along which the parts overlap least: the sum of their extents there, in lengths of the
 * array's, is the smallest. */
static int best_dim(const H5Part *parts, int n, MxShape shape) {
    int best = 0;
    double least = INFINITY;
    for (int d = 0; d < shape.rank; d++) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += (double)parts[i].box.count[d] / (double)shape.dim[d];
        if (sum < least) best = d;
        if (sum < least) least = sum;
    }
    return best;
}

/* A part's place along one dim. */
typedef struct Extent {
    int64_t start, end;
    int part;
} Extent;

static int by_start(const void *a, const void *b) {
    const Extent *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Parts that overlap could hold as many elements as the array and still leave some of it out; and
 * which of them counts where they meet is the library's affair. */
static bool check_apart(MxArena *arena, const MxH5 *file, const MxH5Array *array,
                        const H5Part *parts, int n, MxError *err) {
    int d = best_dim(parts, n, array->shape);
    Extent *extents = mx_new_n(arena, Extent, n + 1);
    for (int i = 0; i < n; i++) {
        int64_t start = parts[i].box.start[d];
        extents[i] = (Extent){start, start + parts[i].box.count[d], i};
    }
    if (n) qsort(extents, (size_t)n, sizeof *extents, by_start);
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n && extents[k].start < extents[i].end; k++) {
            const H5Part *a = &parts[extents[i].part], *b = &parts[extents[k].part];
            MxBox both = mx_box_meet(&a->box, &b->box);
            if (mx_box_count(&both))
                return mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file),
                               "dataset \"%s\": \"%s\" and \"%s\" both hold %lld of its elements",
                               array->path, mx_h5_path(a->file), mx_h5_path(b->file),
                               (long long)mx_box_count(&both));
        }
    return true;
}

static bool virtual_parts(MxArena *arena, MxH5 *file, const MxH5Array *array, hid_t dataset,
                          H5Part **out, int *n, MxError *err) {
    enum { MOST_PARTS = 1 << 16 };
    hid_t create = H5Dget_create_plist(dataset);
    size_t count = 0;
    bool ok = (H5Pget_virtual_count(create, &count) >= 0 && count <= MOST_PARTS) ||
              refuse_mapping(file, array->path, err);
    *out = mx_new_n(arena, H5Part, ok ? count + 1 : 1);
    for (size_t i = 0; ok && i < count; i++)
        ok = take_mapping(arena, file, array, create, i, *out + i, err);
    *n = (int)count;
    ok = ok && check_apart(arena, file, array, *out, *n, err);
    H5Pclose(create);
    return ok;
}

bool h5_parts(MxArena *arena, MxH5 *file, const MxH5Array *array, H5Part **out, int *n,
              MxError *err) {
    ENTER;
    MxH5Array found;
    hid_t dataset = h5_open_dataset(file, array->path, &found, err);
    if (dataset < 0) return false;
    bool ok = true;
    if (is_virtual(dataset)) {
        ok = virtual_parts(arena, file, array, dataset, out, n, err);
    } else {
        *out = mx_new(arena, H5Part);
        **out = (H5Part){.file = file,
                         .path = array->path,
                         .box = mx_box_of(array->shape),
                         .offset = offset_of(dataset, array->dtype)};
        *n = 1;
    }
    H5Dclose(dataset);
    return ok;
}

static int by_offset(const void *a, const void *b) {
    const MxH5Span *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

bool mx_h5_spans(MxArena *arena, MxH5 *file, MxH5Span **out, int *n, MxError *err) {
    MxH5Array *arrays;
    int n_arrays;
    *n = 0;
    if (!mx_h5_list(arena, file, "", &arrays, &n_arrays, err)) return false;
    *out = mx_new_n(arena, MxH5Span, n_arrays + 1);
    ENTER;
    for (int i = 0; i < n_arrays; i++) {
        MxH5Array array;
        hid_t dataset = h5_open_dataset(file, arrays[i].path, &array, err);
        if (dataset < 0) return false;
        int64_t bytes = mx_shape_count(array.shape) * (int64_t)mx_dtype_bytes(array.dtype);
        int64_t offset = array.is_text ? -1 : offset_of(dataset, array.dtype);
        H5Dclose(dataset);
        if (offset >= 0 && bytes)
            (*out)[(*n)++] = (MxH5Span){.path = arrays[i].path, .offset = offset, .bytes = bytes};
    }
    if (*n) qsort(*out, (size_t)*n, sizeof **out, by_offset);
    return true;
}

/* ---- texts ---- */

bool mx_h5_read_text(MxArena *arena, MxH5 *file, const char *path, char **out, MxError *err) {
    ENTER;
    MxH5Array array;
    hid_t dataset = h5_open_dataset(file, path, &array, err);
    if (dataset < 0) return false;
    bool ok = array.is_text && h5_read_string(arena, dataset, false, out);
    if (!array.is_text || array.shape.rank)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file), "dataset \"%s\" is not one string", path);
    else if (!ok)
        h5_fail_read(file, path, "could not be read", err);
    H5Dclose(dataset);
    return ok;
}

/* ---- writing ---- */

static hid_t new_space(MxShape shape) {
    hsize_t dims[MX_MAX_RANK];
    for (int i = 0; i < shape.rank; i++) dims[i] = (hsize_t)shape.dim[i];
    return shape.rank ? H5Screate_simple(shape.rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

/* Makes an empty dataset as the creation list says; < 0 with a message. */
static hid_t make_dataset(MxH5 *file, const char *path, hid_t type, MxShape shape, hid_t create,
                          MxError *err) {
    MX_ASSERT(file->is_new && file->id >= 0);
    hid_t space = new_space(shape), dataset = H5I_INVALID_HID;
    if (h5_make_groups(file, path, false)) {
        dataset = H5Dcreate2(file->id, path, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
        h5_check(file, dataset >= 0);
    }
    if (dataset < 0) h5_fail_write(file, path, err);
    if (space >= 0) H5Sclose(space);
    return dataset;
}

/* Closes a dataset after writing, telling the failure if there was any. */
static bool finish_write(MxH5 *file, const char *path, hid_t dataset, bool ok, MxError *err) {
    if (H5Dclose(dataset) < 0 && ok) ok = h5_check(file, false);
    return ok || h5_fail_write(file, path, err);
}

/* Makes an array; bfloat16 with its tag. */
static bool make_array(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, hid_t create,
                       MxError *err) {
    hid_t type = new_type(dtype), dataset = make_dataset(file, path, type, shape, create, err);
    H5Tclose(type);
    if (dataset < 0) return false;
    bool ok = dtype != MX_BF16 || h5_put_attr(file, dataset, "dtype", "bfloat16");
    return finish_write(file, path, dataset, ok, err);
}

bool mx_h5_make(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, MxError *err) {
    ENTER;
    hid_t create = h5_new_creation(H5P_DATASET_CREATE);
    bool ok = make_array(file, path, dtype, shape, create, err);
    H5Pclose(create);
    return ok;
}

static bool add_mapping(hid_t create, const char *path, MxShape shape, const MxH5Source *source) {
    MxShape part = {.rank = shape.rank};
    memcpy(part.dim, source->box.count, sizeof part.dim);
    hid_t whole = new_space(shape), own = new_space(part);
    hsize_t start[MX_MAX_RANK], count[MX_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) {
        start[d] = (hsize_t)source->box.start[d];
        count[d] = (hsize_t)source->box.count[d];
    }
    bool ok = H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              H5Pset_virtual(create, whole, source->file, path, own) >= 0;
    H5Sclose(whole);
    H5Sclose(own);
    return ok;
}

bool mx_h5_make_virtual(MxH5 *file, const char *path, MxDtype dtype, MxShape shape,
                        const MxH5Source *sources, int n, MxError *err) {
    MX_ASSERT(shape.rank > 0); /* the library has no virtual scalars */
    ENTER;
    hid_t create = h5_new_creation(H5P_DATASET_CREATE), type = new_type(dtype);
    unsigned char missing[sizeof(double)];
    memset(missing, 0xff, sizeof missing); /* a NaN in every type of float */
    bool ok = H5Pset_fill_value(create, type, missing) >= 0;
    for (int i = 0; ok && i < n; i++)
        ok = !mx_box_count(&sources[i].box) || add_mapping(create, path, shape, &sources[i]);
    H5Tclose(type);
    ok = h5_check(file, ok) ? make_array(file, path, dtype, shape, create, err)
                            : h5_fail_write(file, path, err);
    H5Pclose(create);
    return ok;
}

bool mx_h5_write_box(MxH5 *file, const char *path, MxBox box, const void *data, MxError *err) {
    MX_ASSERT(file->is_new);
    ENTER;
    MxH5Array array;
    hid_t dataset = h5_open_dataset(file, path, &array, err);
    if (dataset < 0) return false;
    bool fits = h5_box_fits(file, &array, &box, err);
    if (!fits || mx_box_count(&box) == 0) {
        H5Dclose(dataset);
        return fits;
    }
    hid_t type = new_type(array.dtype);
    Selection s = select_box(dataset, &box);
    bool ok = h5_check(file, H5Dwrite(dataset, type, s.memory, s.file, H5P_DEFAULT, data) >= 0);
    drop_selection(s);
    H5Tclose(type);
    return finish_write(file, path, dataset, ok, err);
}

bool mx_h5_write_text(MxH5 *file, const char *path, const char *text, MxError *err) {
    ENTER;
    hid_t type = h5_new_text_type(strlen(text)), create = h5_new_creation(H5P_DATASET_CREATE);
    hid_t dataset = make_dataset(file, path, type, MX_SCALAR, create, err);
    H5Pclose(create);
    bool ok = dataset >= 0;
    bool written = ok && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0;
    ok = ok && finish_write(file, path, dataset, h5_check(file, written), err);
    H5Tclose(type);
    return ok;
}
