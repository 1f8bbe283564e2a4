/* h5.c — HDF5 files: opening, closing, what datasets are. Groups and attributes are in h5_groups.c,
 * where bytes lie in h5_parts.c, values in h5_data.c; no other file knows libhdf5. The library
 * prints nothing (its error stack is asked for a reason instead), every return code is checked, and
 * a failed write is remembered until the file is closed, because after one the library's own close
 * reports success. Files are written with fixed format bounds and without time stamps, so equal
 * contents give equal bytes. bfloat16 has no HDF5 type: it is stored as uint16 with an attribute.
 * Publication and hashes are in publish.c. */
#include <mx/store.h>

#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_TEXT_BYTES = 1 << 28 };
/* More elements than any file holds, few enough that eight bytes each do not overflow. */
static const int64_t MAX_ELEMENTS = INT64_C(1) << 48;

/* ---- errors ---- */

int h5_enter(void) {
    h5_lock();
    H5dont_atexit(); /* before all else */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return 0;
}

/* Takes the innermost entry: the system's own message where it has one, else its first line. */
static herr_t take_reason(unsigned n, const H5E_error2_t *entry, void *out) {
    if (n || !entry->desc) return 0;
    static const char mark[] = "error message = '";
    const char *system = strstr(entry->desc, mark);
    const char *text = system ? system + strlen(mark) : entry->desc;
    snprintf(out, H5_FAILURE_BYTES, "%.*s", (int)strcspn(text, system ? "'" : "\n"), text);
    return 0;
}

const char *h5_reason(char out[H5_FAILURE_BYTES]) {
    snprintf(out, H5_FAILURE_BYTES, "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, out);
    return out;
}

MxWhere h5_in(const MxH5 *file) {
    return (MxWhere){.file = file->path};
}

bool h5_fail_read(const MxH5 *file, const char *path, const char *what, MxError *err) {
    char why[H5_FAILURE_BYTES];
    return mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file), "\"%s\": %s (%s)", path, what,
                   h5_reason(why));
}

bool h5_check(MxH5 *file, bool ok) {
    if (!ok) h5_reason(file->why);
    return ok;
}

bool h5_fail_write(MxH5 *file, const char *path, MxError *err) {
    if (!file->failure[0])
        snprintf(file->failure, sizeof file->failure, "could not write \"%.80s\" (%.120s)", path,
                 file->why);
    return mx_fail(err, MX_EXIT_IO, h5_in(file), "could not write \"%s\" (%s)", path, file->why);
}

/* ---- files ---- */

static void close_quietly(void *data) {
    MxH5 *file = data;
    if (file->id < 0) return;
    ENTER;
    H5Fclose(file->id);
    file->id = H5I_INVALID_HID;
}

static MxH5 *new_file(MxArena *arena, const char *path, hid_t id, bool is_new) {
    MxH5 *file = mx_new(arena, MxH5);
    *file =
        (MxH5){.arena = arena, .id = id, .path = mx_arena_strdup(arena, path), .is_new = is_new};
    mx_arena_on_release(arena, close_quietly, file);
    return file;
}

bool mx_h5_open(MxArena *arena, const char *path, MxH5 **out, MxError *err) {
    ENTER;
    MxWhere where = {.file = path};
    if (!h5_is_file(path, err)) return false;
    if (H5Fis_hdf5(path) <= 0) return mx_fail(err, MX_EXIT_BAD_INPUT, where, "is not an HDF5 file");
    /* A link into another file would read what nobody named or verified. */
    if (H5Lis_registered(H5L_TYPE_EXTERNAL) > 0) H5Lunregister(H5L_TYPE_EXTERNAL);
    /* Without the sieve buffer: it reads 64 KiB for each run of a layer's slice. */
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_sieve_buf_size(access, 0);
    hid_t id = H5Fopen(path, H5F_ACC_RDONLY, access);
    char why[H5_FAILURE_BYTES];
    if (id < 0) mx_fail(err, MX_EXIT_BAD_INPUT, where, "could not be opened (%s)", h5_reason(why));
    H5Pclose(access); /* which forgets the reason */
    if (id < 0) return false;
    *out = new_file(arena, path, id, false);
    return true;
}

bool mx_h5_create(MxArena *arena, const char *path, MxH5 **out, MxError *err) {
    ENTER;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return mx_fail_errno(err, "could not create \"%s\"", path);
    close(fd);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
    /* Without the sieve buffer small writes reach the system, and their failures us, at once. A
     * lock would outlast us in processes that are started meanwhile; nobody else knows the file
     * yet. */
    bool ok = H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
              H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
              H5Pset_sieve_buf_size(access, 0) >= 0 &&
              H5Pset_file_locking(access, false, true) >= 0 &&
              H5Pset_obj_track_times(create, 0) >= 0;
    hid_t id = ok ? H5Fcreate(path, H5F_ACC_TRUNC, create, access) : H5I_INVALID_HID;
    char why[H5_FAILURE_BYTES];
    if (id < 0)
        mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "could not create \"%s\" (%s)", path, h5_reason(why));
    H5Pclose(access);
    H5Pclose(create);
    if (id < 0) return false;
    *out = new_file(arena, path, id, true);
    return true;
}

void mx_h5_assume_bf16(MxH5 *file) {
    file->assumes_bf16 = true;
}

/* Whether a file that was written and closed opens again. */
static bool opens_again(const char *path) {
    hid_t again = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    return again >= 0 && H5Fclose(again) >= 0;
}

bool mx_h5_close(MxH5 *file, MxError *err) {
    if (file->id < 0) return true;
    ENTER;
    const char *failed = NULL;
    if (file->is_new && H5Fflush(file->id, H5F_SCOPE_GLOBAL) < 0) failed = "could not be flushed";
    if (H5Fclose(file->id) < 0 && !failed) failed = "could not be closed";
    file->id = H5I_INVALID_HID;
    if (!file->is_new) return true;
    if (!failed && !file->failure[0] && !opens_again(file->path))
        failed = "cannot be read back after closing";
    if (file->failure[0]) failed = file->failure;
    if (!failed) return true;
    bool is_told = err->count && strstr(err->text.data, failed);
    return !is_told && mx_fail(err, MX_EXIT_IO, h5_in(file), "%s", failed);
}

const char *mx_h5_path(const MxH5 *file) {
    return file->path;
}

/* ---- what is stored ---- */

static H5I_type_t kind_of(MxH5 *file, const char *path) {
    ENTER;
    hid_t object = H5Oopen(file->id, ROOTED(path), H5P_DEFAULT);
    if (object < 0) return H5I_BADID;
    H5I_type_t kind = H5Iget_type(object);
    H5Oclose(object);
    return kind;
}

bool mx_h5_has_group(MxH5 *file, const char *path) {
    return kind_of(file, path) == H5I_GROUP;
}

bool mx_h5_has_array(MxH5 *file, const char *path) {
    return kind_of(file, path) == H5I_DATASET;
}

/* The element type of integers by [log2 bytes][is signed]. */
static const MxDtype integer_dtypes[4][2] = {
    {MX_U8, MX_I8}, {MX_U16, MX_I32}, {MX_U32, MX_I32}, {MX_I64, MX_I64}};

bool h5_dtype_of(hid_t type, MxH5Array *out) {
    size_t bytes = H5Tget_size(type);
    int log2_bytes = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : -1;
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        if (log2_bytes < 0) return false;
        out->dtype = integer_dtypes[log2_bytes][H5Tget_sign(type) == H5T_SGN_2];
        return true;
    case H5T_ENUM: /* h5py's bool */
        out->dtype = MX_I8;
        return bytes == 1;
    case H5T_FLOAT: {
        size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
        out->dtype = bytes == 8 ? MX_F64 : bytes == 4 ? MX_F32 : MX_F16;
        if (bytes != 2) return bytes == 4 || bytes == 8;
        return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >=
                   0 &&
               exponent_bits == 5;
    }
    case H5T_STRING:
        out->dtype = MX_U8;
        out->is_text = true;
        return true;
    default:
        return false;
    }
}

bool h5_read_string(MxArena *arena, hid_t object, bool is_attr, char **out) {
    hid_t type = is_attr ? H5Aget_type(object) : H5Dget_type(object);
    hid_t space = is_attr ? H5Aget_space(object) : H5Dget_space(object);
    size_t bytes = H5Tget_size(type);
    bool ok = H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1 &&
              bytes <= MAX_TEXT_BYTES;
    if (ok && H5Tis_variable_str(type) > 0) {
        char *value = NULL;
        hid_t memory = H5Tcopy(H5T_C_S1);
        H5Tset_size(memory, H5T_VARIABLE);
        H5Tset_cset(memory, H5Tget_cset(type));
        ok = (is_attr ? H5Aread(object, memory, &value)
                      : H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value)) >= 0;
        if (ok) *out = mx_arena_strdup(arena, value ? value : "");
        if (value) H5free_memory(value);
        H5Tclose(memory);
    } else if (ok) {
        *out = mx_arena_alloc(arena, bytes + 1);
        ok = (is_attr ? H5Aread(object, type, *out)
                      : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out)) >= 0;
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool is_tagged_bf16(hid_t dataset) {
    if (H5Aexists(dataset, "dtype") <= 0) return false;
    MxArena scratch = {.name = "attribute"};
    char *value = NULL;
    hid_t attr = H5Aopen(dataset, "dtype", H5P_DEFAULT);
    bool is_bf16 = h5_read_string(&scratch, attr, true, &value) && !strcmp(value, "bfloat16");
    if (attr >= 0) H5Aclose(attr);
    mx_arena_release(&scratch);
    return is_bf16;
}

/* Bytes of a chunk that must be unpacked as a whole; 0 = stored otherwise. */
static int64_t packed_chunk_bytes(hid_t create, size_t element_bytes) {
    hsize_t dims[H5S_MAX_RANK];
    if (H5Pget_layout(create) != H5D_CHUNKED || H5Pget_nfilters(create) <= 0) return 0;
    int rank = H5Pget_chunk(create, H5S_MAX_RANK, dims); /* below 2^32 bytes in all */
    int64_t bytes = (int64_t)element_bytes;
    for (int i = 0; i < rank; i++) bytes *= (int64_t)dims[i];
    return bytes;
}

/* Shape and type of an open dataset; on failure `why` says what is wrong with it. */
static bool look_at(const MxH5 *file, hid_t dataset, MxH5Array *out, const char **why) {
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    hid_t create = H5Dget_create_plist(dataset);
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    *why = NULL;
    if (rank < 0 || H5Sget_simple_extent_type(space) == H5S_NULL)
        *why = "it has no shape";
    else if (rank > MX_MAX_RANK)
        *why = "its rank is above 6";
    else if (!h5_dtype_of(type, out))
        *why = "its element type is none of float, integer, bool or string";
    else if (H5Pget_external_count(create) != 0)
        *why = "its values are kept in another file";
    int64_t count = 1;
    for (int i = 0; i < rank && !*why; i++) {
        if (dims[i] > (hsize_t)MAX_ELEMENTS || (dims[i] && count > MAX_ELEMENTS / (int64_t)dims[i]))
            *why = "its shape is beyond any size";
        else
            count *= out->shape.dim[i] = (int64_t)dims[i];
    }
    out->shape.rank = rank;
    if (!*why) out->chunk_bytes = packed_chunk_bytes(create, H5Tget_size(type));
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (create >= 0) H5Pclose(create);
    if (!*why && out->dtype == MX_U16 && (file->assumes_bf16 || is_tagged_bf16(dataset)))
        out->dtype = MX_BF16;
    return !*why;
}

hid_t h5_open_dataset(MxH5 *file, const char *path, MxH5Array *out, MxError *err) {
    *out = (MxH5Array){.path = path};
    hid_t dataset = H5Dopen2(file->id, ROOTED(path), H5P_DEFAULT);
    const char *why = NULL;
    if (dataset >= 0 && look_at(file, dataset, out, &why)) return dataset;
    if (dataset >= 0) H5Dclose(dataset);
    if (!why) why = mx_h5_has_group(file, path) ? "it is a group" : "there is none";
    mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file), "cannot read dataset \"%s\": %s", path, why);
    return H5I_INVALID_HID;
}

bool mx_h5_stat(MxH5 *file, const char *path, MxH5Array *out, MxError *err) {
    ENTER;
    hid_t dataset = h5_open_dataset(file, path, out, err);
    if (dataset < 0) return false;
    H5Dclose(dataset);
    return true;
}
