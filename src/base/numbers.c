/* numbers.c — sums over arrays of numbers. */
#include <mx/base.h>

#include <math.h>

double mx_log_sum(const float *x, int64_t n) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = (double)x[i] > most ? (double)x[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}
