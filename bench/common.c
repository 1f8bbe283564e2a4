/* common.c — clock, memory, timing, random operands and the memory loop of the benchmark programs.
 */
#include "common.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

void bench_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

double bench_clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *bench_map(size_t bytes, bool wants_huge) {
    const size_t huge_bytes = (size_t)2 << 20;
    void *base = mmap(NULL, bytes + huge_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) bench_fail("could not get %zu MiB of memory", bytes >> 20);
    uintptr_t start = ((uintptr_t)base + huge_bytes - 1) / huge_bytes * huge_bytes;
    madvise((void *)start, bytes, wants_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* a wish */
    return (void *)start;
}

int bench_threads(int wanted) {
    omp_set_dynamic(0);
    if (wanted > 0) omp_set_num_threads(wanted);
    return omp_get_max_threads();
}

int64_t bench_positive(const char *text, const char *name) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 1) bench_fail("%s: \"%s\" is no number above 0", name, text);
    return value;
}

void bench_fill(void *words, size_t bytes, uint32_t seed) {
    uint32_t *word = words;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < bytes / sizeof *word; i++) {
        uint32_t r = ((uint32_t)i ^ seed * 0x85ebca6bu) * 2654435761u;
        r = (r ^ r >> 15) * 0x2c1b3c6du;
        uint32_t half = (r >> 31) << 15 | (0x3c00u + (r >> 8 & 0x3ffu));
        word[i] = half << 16 | half;
    }
}

/* ---- timing */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

BenchTimes bench_time(BenchWork *work, void *context) {
    enum { LEAST_RUNS = 7, MOST_RUNS = 255 };
    const double least_s = 0.05;
    double seconds[MOST_RUNS], total = 0;
    int n = 0;
    work(context);
    while (n < LEAST_RUNS || (total < least_s && n < MOST_RUNS)) {
        double start = bench_clock_s();
        work(context);
        seconds[n] = bench_clock_s() - start;
        total += seconds[n++];
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    return (BenchTimes){
        .min_s = seconds[0], .median_s = seconds[n / 2], .max_s = seconds[n - 1], .runs = n};
}

/* ---- memory bandwidth */

enum { STREAM_DOUBLES = 1 << 24 }; /* 128 MiB an array: several times any L3 */

typedef struct Stream {
    double *a;
    const double *b;
} Stream;

static void add_stream(void *context) {
    const Stream *s = context;
    double *restrict a = s->a;
    const double *restrict b = s->b;
#pragma omp parallel for simd schedule(static)
    for (int i = 0; i < STREAM_DOUBLES; i++) a[i] += 3.0 * b[i];
}

double bench_bandwidth(void) {
    const size_t bytes = STREAM_DOUBLES * sizeof(double);
    void *a = bench_map(bytes, true), *b = bench_map(bytes, true);
    bench_fill(a, bytes, 1);
    bench_fill(b, bytes, 2);
    Stream s = {.a = a, .b = b};
    BenchTimes times = bench_time(add_stream, &s);
    munmap(a, bytes);
    munmap(b, bytes);
    return 3.0 * (double)bytes / times.median_s;
}

typedef struct Span {
    const uint64_t *from;
    uint64_t sum;
} Span;

/* Eight words a line and several lines under way: bound by memory alone. */
static void read_span(void *context) {
    Span *s = context;
    const uint64_t *from = s->from;
    uint64_t sum = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
    for (int i = 0; i < 2 * STREAM_DOUBLES; i++) sum += from[i];
    s->sum = sum; /* so that it is wanted */
}

double bench_reading(void) {
    const size_t bytes = 2 * STREAM_DOUBLES * sizeof(uint64_t);
    void *from = bench_map(bytes, true);
    bench_fill(from, bytes, 1);
    Span s = {.from = from};
    BenchTimes times = bench_time(read_span, &s);
    munmap(from, bytes);
    return (double)bytes / times.min_s;
}
