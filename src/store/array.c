/* array.c — whose turn it is in the library, what may be opened, what a read may convert, and which
 * parts of an array exist. The reading itself, and every conversion but those of bfloat16, is
 * HDF5's (h5.c). */
#include <mx/store.h>

#include "h5.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* The library's own state is the process's, so is its lock. */
static pthread_mutex_t library = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void h5_lock(void) {
    pthread_mutex_lock(&library);
}

void h5_unlock(const int *unused) {
    (void)unused;
    pthread_mutex_unlock(&library);
}

bool h5_is_file(const char *path, MxError *err) {
    MxWhere where = {.file = path};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return mx_fail_errno(err, "could not open \"%s\"", path);
    if (fd < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "could not open \"%s\": %s", path,
                       strerror(errno));
    bool is_regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
    close(fd);
    if (!is_regular) return mx_fail(err, MX_EXIT_BAD_INPUT, where, "is not a regular file");
    return true;
}

static MxWhere in(const MxH5 *file) {
    return (MxWhere){.file = mx_h5_path(file)};
}

bool h5_is_float(MxDtype dtype) {
    return dtype == MX_F32 || dtype == MX_F64 || dtype == MX_F16 || dtype == MX_BF16;
}

bool h5_box_fits(const MxH5 *file, const MxH5Array *array, const MxBox *box, MxError *err) {
    bool fits = box->rank == array->shape.rank;
    for (int i = 0; i < box->rank && fits; i++)
        fits = box->start[i] >= 0 && box->count[i] >= 0 &&
               box->start[i] <= array->shape.dim[i] - box->count[i];
    if (fits) return true;
    MxArena scratch = {.name = "message"};
    MxShape start = {.rank = box->rank}, count = {.rank = box->rank};
    memcpy(start.dim, box->start, sizeof start.dim);
    memcpy(count.dim, box->count, sizeof count.dim);
    mx_fail(err, MX_EXIT_BAD_INPUT, in(file), "dataset \"%s\" is %s: no part %s from %s in it",
            array->path, mx_shape_text(&scratch, array->shape), mx_shape_text(&scratch, count),
            mx_shape_text(&scratch, start));
    mx_arena_release(&scratch);
    return false;
}

/* Widens n bfloat16 values at the start of `out` to n float32 in place, last first. */
static void widen_bf16(void *out, int64_t n) {
    for (int64_t i = n - 1; i >= 0; i--) {
        MxBf16 narrow;
        memcpy(&narrow, (char *)out + i * 2, sizeof narrow);
        float wide = mx_bf16_to_f32(narrow);
        memcpy((char *)out + i * 4, &wide, sizeof wide);
    }
}

static bool read_box(MxH5 *file, const MxH5Array *array, MxDtype want, const MxBox *box, void *out,
                     MxError *err) {
    MxDtype stored = array->dtype;
    bool raw = stored == MX_BF16 && (want == MX_BF16 || want == MX_U16);
    if (array->is_text || (h5_is_float(stored) && !h5_is_float(want) && !raw) ||
        (stored == MX_BF16 && want != MX_F32 && !raw))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file), "dataset \"%s\" holds %s, wanted %s",
                       array->path, array->is_text ? "text" : mx_dtype_name(stored),
                       mx_dtype_name(want));
    if (!h5_box_fits(file, array, box, err)) return false;
    int64_t n = mx_box_count(box);
    if (raw) return h5_read_native(file, array->path, MX_U16, box, out, err);
    if (stored == MX_BF16) {
        if (!h5_read_native(file, array->path, MX_U16, box, out, err)) return false;
        widen_bf16(out, n);
        return true;
    }
    if (want != MX_BF16) return h5_read_native(file, array->path, want, box, out, err);
    MxArena scratch = {.name = "conversion"};
    float *wide = mx_new_n(&scratch, float, n);
    bool ok = h5_read_native(file, array->path, MX_F32, box, wide, err);
    for (int64_t i = 0; ok && i < n; i++) ((MxBf16 *)out)[i] = mx_f32_to_bf16(wide[i]);
    mx_arena_release(&scratch);
    return ok;
}

bool mx_h5_read(MxH5 *file, const char *path, MxDtype want, MxShape shape, void *out,
                MxError *err) {
    MxH5Array array;
    if (!mx_h5_stat(file, path, &array, err)) return false;
    MxBox box = mx_box_of(shape);
    if (mx_shape_equal(shape, array.shape)) return read_box(file, &array, want, &box, out, err);
    MxArena scratch = {.name = "message"};
    mx_fail(err, MX_EXIT_BAD_INPUT, in(file), "dataset \"%s\" has shape %s, wanted %s", path,
            mx_shape_text(&scratch, array.shape), mx_shape_text(&scratch, shape));
    mx_arena_release(&scratch);
    return false;
}

bool mx_h5_read_box(MxH5 *file, const char *path, MxDtype want, MxBox box, void *out,
                    MxError *err) {
    MxH5Array array;
    return mx_h5_stat(file, path, &array, err) && read_box(file, &array, want, &box, out, err);
}

bool mx_h5_write(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, const void *data,
                 MxError *err) {
    return mx_h5_make(file, path, dtype, shape, err) &&
           mx_h5_write_box(file, path, mx_box_of(shape), data, err);
}
