/* touch.c — how long a program that does nothing else takes to touch so many bytes for the first
 * time: one write a page.
 *
 *   touch BYTES THREADS small|huge      prints seconds
 *
 * small: pages of 4 KiB, as a plain allocation gets them; huge: pages of 2 MiB where the system has
 * them. */
#include "common.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    enum { PAGE_BYTES = 4096 };
    bool is_huge = argc == 4 && !strcmp(argv[3], "huge");
    if (argc != 4 || (!is_huge && strcmp(argv[3], "small")))
        bench_fail("usage: touch BYTES THREADS small|huge");
    int64_t bytes = bench_positive(argv[1], "BYTES");
    bench_threads((int)bench_positive(argv[2], "THREADS"));
    double start = bench_clock_s();
    volatile char *memory = bench_map((size_t)bytes, is_huge);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < bytes; at += PAGE_BYTES) memory[at] = 1;
    return printf("%.6f\n", bench_clock_s() - start) < 0;
}
