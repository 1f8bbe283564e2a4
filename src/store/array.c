/* array.c — whose turn it is in the library, what may be opened, what a read may convert, and which
 * parts of an array exist. Bytes that are in a file as memory wants them are fetched past the
 * library (fetch.c); every conversion but those of bfloat16 is HDF5's (h5_data.c). */
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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
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

/* ---- reading ---- */

/* Parts of datasets while they are read. */
typedef struct Reading {
    MxArena arena; /* of what one dataset needs */
    MxH5 *file;
    H5Fetch fetch;
    MxError *err;
} Reading;

/* Whether a conversion keeps every value, up to the rounding of floats. */
static bool can_read(const Reading *r, const MxH5Array *array, MxDtype want) {
    MxDtype stored = array->dtype;
    bool raw = stored == MX_BF16 && (want == MX_BF16 || want == MX_U16);
    if (!array->is_text && (!mx_dtype_is_float(stored) || mx_dtype_is_float(want) || raw) &&
        (stored != MX_BF16 || want == MX_F32 || raw))
        return true;
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, in(r->file), "dataset \"%s\" holds %s, wanted %s",
                   array->path, array->is_text ? "text" : mx_dtype_name(stored),
                   mx_dtype_name(want));
}

/* By the library, from a dataset of its own: `box` of it, dense. */
static bool read_converted(const H5Part *part, MxDtype stored, MxDtype want, const MxBox *box,
                           void *out, MxError *err) {
    int64_t n = mx_box_count(box);
    if (stored == MX_BF16) {
        if (!h5_read_native(part->file, part->path, MX_U16, box, out, err)) return false;
        if (want == MX_F32) widen_bf16(out, n);
        return true;
    }
    if (want != MX_BF16) return h5_read_native(part->file, part->path, want, box, out, err);
    MxArena scratch = {.name = "conversion"};
    float *wide = mx_new_n(&scratch, float, n);
    bool ok = h5_read_native(part->file, part->path, MX_F32, box, wide, err);
    for (int64_t i = 0; ok && i < n; i++) ((MxBf16 *)out)[i] = mx_f32_to_bf16(wide[i]);
    mx_arena_release(&scratch);
    return ok;
}

/* What a part has of a box that is wanted. */
static bool convert_part(const H5Part *part, MxDtype stored, MxDtype want, const H5Target *target,
                         MxError *err) {
    MxArena scratch = {.name = "part"};
    size_t bytes = mx_dtype_bytes(want);
    MxBox own = target->box; /* in the part's own dataset */
    for (int d = 0; d < own.rank; d++) own.start[d] -= part->box.start[d];
    bool is_all = mx_box_equal(&target->box, &target->in);
    void *out = is_all ? target->out : mx_arena_alloc(&scratch, (size_t)mx_box_count(&own) * bytes);
    bool ok = read_converted(part, stored, want, &own, out, err);
    if (ok && !is_all)
        mx_box_copy(&target->box, &target->box, out, &target->in, target->out, bytes);
    mx_arena_release(&scratch);
    return ok;
}

static bool read_part(Reading *r, const H5Part *part, const MxH5Array *array, const MxH5Want *wants,
                      int n, int64_t *found) {
    MxDtype stored = array->dtype, want = wants->dtype;
    bool is_raw = stored == want || (stored == MX_BF16 && want == MX_U16), ok = true;
    bool is_direct = is_raw && part->offset >= 0;
    H5Target *targets = mx_new_n(&r->arena, H5Target, n);
    int n_targets = 0;
    for (int i = 0; ok && i < n; i++) {
        H5Target target = {mx_box_meet(&part->box, &wants[i].box), wants[i].box, wants[i].out};
        int64_t count = mx_box_count(&target.box);
        *found += count;
        if (count && is_direct)
            targets[n_targets++] = target;
        else if (count)
            ok = convert_part(part, stored, want, &target, r->err);
    }
    if (n_targets) h5_fetch_add(&r->fetch, part, mx_dtype_bytes(stored), targets, n_targets);
    return ok;
}

/* Wants of one dataset. */
static bool read_dataset(Reading *r, const MxH5Want *wants, int n) {
    MxH5Array array;
    H5Part *parts;
    int n_parts;
    int64_t found = 0, wanted = 0;
    if (!mx_h5_stat(r->file, wants->path, &array, r->err) || !can_read(r, &array, wants->dtype))
        return false;
    for (int i = 0; i < n; i++) {
        if (!h5_box_fits(r->file, &array, &wants[i].box, r->err)) return false;
        wanted += mx_box_count(&wants[i].box);
    }
    if (!wanted) return true;
    if (!h5_parts(&r->arena, r->file, &array, &parts, &n_parts, r->err)) return false;
    for (int p = 0; p < n_parts; p++)
        if (!read_part(r, &parts[p], &array, wants, n, &found)) return false;
    return found == wanted || mx_fail(r->err, MX_EXIT_BAD_INPUT, in(r->file),
                                      "dataset \"%s\": its files hold %lld of %lld elements",
                                      array.path, (long long)found, (long long)wanted);
}

bool mx_h5_read_boxes(MxH5 *file, const MxH5Want *wants, int n, MxError *err) {
    Reading r = {.file = file, .fetch.arena.name = "fetch", .err = err};
    bool ok = true;
    for (int i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && wants[next].dtype == wants[i].dtype &&
                           !strcmp(wants[next].path, wants[i].path);)
            next++;
        r.arena = (MxArena){.name = "read"};
        ok = read_dataset(&r, wants + i, next - i) && ok;
        mx_arena_release(&r.arena);
    }
    return h5_fetch_run(&r.fetch, err) && ok;
}

bool mx_h5_read(MxH5 *file, const char *path, MxDtype want, MxShape shape, void *out,
                MxError *err) {
    MxH5Array array;
    if (!mx_h5_stat(file, path, &array, err)) return false;
    if (mx_shape_equal(shape, array.shape))
        return mx_h5_read_box(file, path, want, mx_box_of(shape), out, err);
    MxArena scratch = {.name = "message"};
    mx_fail(err, MX_EXIT_BAD_INPUT, in(file), "dataset \"%s\" has shape %s, wanted %s", path,
            mx_shape_text(&scratch, array.shape), mx_shape_text(&scratch, shape));
    mx_arena_release(&scratch);
    return false;
}

bool mx_h5_read_box(MxH5 *file, const char *path, MxDtype want, MxBox box, void *out,
                    MxError *err) {
    return mx_h5_read_boxes(file, &(MxH5Want){path, want, box, out}, 1, err);
}

bool mx_h5_write(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, const void *data,
                 MxError *err) {
    return mx_h5_make(file, path, dtype, shape, err) &&
           mx_h5_write_box(file, path, mx_box_of(shape), data, err);
}
