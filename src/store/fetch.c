/* fetch.c — bytes of files into memory by several threads, without libhdf5. What is wanted of a
 * dataset is cut into jobs that are some MiB of the file each; a job's runs are sorted by their
 * place in the file, and one call of the system spreads what lies there over the places in memory
 * where it belongs: the layers of a stack, say. */
#include <mx/store.h>

#include "h5.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

enum { JOB_BYTES = 4 << 20, MOST_VECTORS = 1024 /* IOV_MAX */ };

/* ---- jobs ---- */

/* Rows of a dataset, and what is wanted of them. */
typedef struct FetchJob {
    const H5Part *part; /* its box is all of the dataset */
    int fd;
    size_t element;
    const H5Target *targets;
    int n;
    MxBox slab;
    int failed; /* errno; -1 = the file ended */
} FetchJob;

static void add_job(H5Fetch *fetch, FetchJob job) {
    if (fetch->n == fetch->cap) {
        fetch->cap = fetch->cap ? 2 * fetch->cap : 64;
        fetch->jobs = mx_arena_grow(&fetch->arena, fetch->jobs, (size_t)fetch->n,
                                    (size_t)fetch->cap, sizeof *fetch->jobs);
    }
    fetch->jobs[fetch->n++] = job;
}

void h5_fetch_add(H5Fetch *fetch, const H5Part *part, size_t element_bytes, const H5Target *targets,
                  int n) {
    H5Part *kept = mx_new(&fetch->arena, H5Part);
    H5Target *all = mx_new_n(&fetch->arena, H5Target, n);
    *kept = *part;
    kept->path = mx_arena_strdup(&fetch->arena, part->path);
    memcpy(all, targets, (size_t)n * sizeof *all);
    FetchJob job = {.part = kept,
                    .fd = h5_fd(part->file),
                    .element = element_bytes,
                    .targets = all,
                    .n = n,
                    .slab = part->box};
    int dim = 0; /* the first that can be cut into contiguous slabs */
    while (dim < part->box.rank - 1 && part->box.count[dim] == 1) dim++;
    int64_t rows = part->box.rank ? part->box.count[dim] : 1;
    int64_t row_bytes = mx_box_count(&part->box) / rows * (int64_t)element_bytes;
    int64_t step = row_bytes < JOB_BYTES ? JOB_BYTES / row_bytes : 1;
    for (int64_t row = 0; row < rows; row += step) {
        if (part->box.rank) {
            job.slab.start[dim] = part->box.start[dim] + row;
            job.slab.count[dim] = row + step < rows ? step : rows - row;
        }
        add_job(fetch, job);
    }
}

/* ---- reading ---- */

/* Bytes that are contiguous in the file and in memory. */
typedef struct Run {
    int64_t at;
    char *out;
    size_t bytes;
} Run;

static int by_place(const void *a, const void *b) {
    const Run *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int64_t list_runs(const FetchJob *job, MxArena *arena, Run **out) {
    int64_t n = 0, cap = 0;
    Run *runs = NULL;
    for (int t = 0; t < job->n; t++) {
        const H5Target *target = &job->targets[t];
        MxBox box = mx_box_meet(&target->box, &job->slab);
        if (!mx_box_count(&box)) continue;
        MxBoxRuns each = mx_box_runs(&box, &job->part->box, &target->in);
        if (n + each.n > cap) {
            cap = 2 * (n + each.n);
            runs = mx_arena_grow(arena, runs, (size_t)n, (size_t)cap, sizeof *runs);
        }
        for (int64_t i = 0; i < each.n; i++) {
            int64_t at[2], size = (int64_t)job->element;
            mx_box_run_at(&each, i, at);
            runs[n++] = (Run){.at = job->part->offset + at[0] * size,
                              .out = target->out + at[1] * size,
                              .bytes = (size_t)(each.length * size)};
        }
    }
    if (job->n > 1 && n) qsort(runs, (size_t)n, sizeof *runs, by_place);
    *out = runs;
    return n;
}

/* Reads n vectors that follow each other in the file; 0, errno, or -1 where the file ends. */
static int read_vectors(int fd, struct iovec *vectors, int n, int64_t at) {
    while (n) {
        ssize_t got = preadv(fd, vectors, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got ? errno : -1;
        at += got;
        for (; n && (size_t)got >= vectors->iov_len; vectors++, n--)
            got -= (ssize_t)vectors->iov_len;
        if (got) {
            vectors->iov_base = (char *)vectors->iov_base + got;
            vectors->iov_len -= (size_t)got;
        }
    }
    return 0;
}

static void do_job(void *jobs, int i) {
    FetchJob *job = (FetchJob *)jobs + i;
    MxArena arena = {.name = "fetch job"};
    struct iovec vectors[MOST_VECTORS];
    Run *runs;
    int64_t n = list_runs(job, &arena, &runs);
    for (int64_t first = 0, next; first < n && !job->failed; first = next) {
        int k = 0;
        int64_t end = runs[first].at;
        for (next = first; next < n && k < MOST_VECTORS && runs[next].at == end; next++) {
            vectors[k++] = (struct iovec){runs[next].out, runs[next].bytes};
            end += (int64_t)runs[next].bytes;
        }
        job->failed = read_vectors(job->fd, vectors, k, runs[first].at);
    }
    mx_arena_release(&arena);
}

bool h5_fetch_run(H5Fetch *fetch, MxError *err) {
    bool ok = true;
    mx_parallel(0, fetch->n, do_job, fetch->jobs);
    for (int i = 0; ok && i < fetch->n; i++) {
        const FetchJob *job = &fetch->jobs[i];
        if (!job->failed) continue;
        ok = mx_fail(err, job->failed < 0 ? MX_EXIT_BAD_INPUT : MX_EXIT_IO,
                     (MxWhere){.file = mx_h5_path(job->part->file)},
                     "\"%s\": could not be read (%s)", job->part->path,
                     job->failed < 0 ? "the file ends" : strerror(job->failed));
    }
    mx_arena_release(&fetch->arena);
    return ok;
}
