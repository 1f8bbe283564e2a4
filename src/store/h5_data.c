/* h5_data.c — what HDF5 datasets hold, through the library: reading, making, writing. */
#include <mx/store.h>

#include "library.h"

/* ---- reading ---- */

hid_t h5_new_type(MxDtype dtype) {
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
    hid_t type = h5_new_type(memory_dtype), transfer = H5Pcreate(H5P_DATASET_XFER);
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
    hid_t type = h5_new_type(dtype), dataset = make_dataset(file, path, type, shape, create, err);
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
    hid_t create = h5_new_creation(H5P_DATASET_CREATE), type = h5_new_type(dtype);
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
    hid_t type = h5_new_type(array.dtype);
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
