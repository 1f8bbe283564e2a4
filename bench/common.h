/* common.h — what the benchmark's C programs share: a clock, memory, medians, random operands. It
 * stands on nothing of mxtrain's own, so that a floor is measured without the code that is held
 * against it. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* bench_fail — says why on stderr and ends the program with code 2. */
_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* bench_clock_s — monotonic seconds. */
double bench_clock_s(void);

/* bench_map — fresh memory, not touched yet, at a multiple of 2 MiB; with huge pages if wanted and
 * had. Kept until the program ends. */
void *bench_map(size_t bytes, bool wants_huge);

/* bench_threads — sets the number of threads (0 = as the environment and the machine say) and
 * returns it. */
int bench_threads(int wanted);

/* bench_positive — a command line's whole number above 0; fails with the argument's name. */
int64_t bench_positive(const char *text, const char *name);

/* bench_fill — random words: both halves of each are the same bfloat16 of size 2^-7 to 2, so they
 * serve as operands of either dtype. The seed chooses the signs. */
void bench_fill(void *words, size_t bytes, uint32_t seed);

typedef struct BenchTimes {
    double min_s, median_s, max_s;
    int runs;
} BenchTimes;

/* bench_time — runs work once to warm up, then at least 7 times and for at least 50 ms. */
typedef void BenchWork(void *context);
BenchTimes bench_time(BenchWork *work, void *context);

/* bench_bandwidth — bytes a second of a[i] += s b[i] over arrays far larger than the caches, three
 * arrays' worth a run. Every byte counted is a byte moved: where a loop writes elsewhere than it
 * reads (STREAM's triad), the lines that it writes are read first, uncounted, and it shows a
 * quarter less. The median run. */
double bench_bandwidth(void);

/* bench_reading — bytes a second that all threads read of an array far larger than the caches, and
 * do nothing else: the roof over what reads weights once. The fastest run. */
double bench_reading(void);

#endif
