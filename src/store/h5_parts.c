/* h5_parts.c — where the bytes of HDF5 datasets are. Virtual datasets are taken apart here instead
 * of by the library, which looks for their files in more places than one and reads what is missing
 * as fill values. */
#include <mx/store.h>

#include "library.h"

#include <math.h>
#include <stdlib.h>

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
    hid_t type = H5Dget_type(dataset), memory = h5_new_type(dtype);
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
