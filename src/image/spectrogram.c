/* spectrogram.c — log-mel spectrograms of sounds. A frame's spectrum is a transform of its length,
 * 4 · 4 · 5 · 5, in four passes that sort themselves (Stockham 1966); sums are in double. */
#include <mx/image_sound.h>

#include <complex.h>
#include <math.h>

enum { N = MX_SOUND_WINDOW, SPECTRUM = N / 2 + 1 };

typedef struct Tables {
    double window[N];
    double complex turn[N]; /* exp(-2 pi i k / N) */
} Tables;

static void fill_tables(Tables *t) {
    const double pi = acos(-1);
    for (int k = 0; k < N; k++) {
        double angle = 2 * pi * k / N;
        t->window[k] = 0.5 - 0.5 * cos(angle);
        t->turn[k] = cos(angle) - sin(angle) * I;
    }
}

/* One pass over x: transforms of n, of which there are `s` beside each other, become of n / r. */
static void pass(const Tables *t, int n, int s, int r, const double complex *x, double complex *y) {
    const int m = n / r;
    for (int p = 0; p < m; p++)
        for (int q = 0; q < s; q++)
            for (int j = 0; j < r; j++) {
                double complex sum = 0;
                for (int k = 0; k < r; k++)
                    sum += x[q + s * (p + m * k)] * t->turn[j * k % r * (N / r)];
                y[q + s * (r * p + j)] = sum * t->turn[p * j % n * (N / n)];
            }
}

static void transform(const Tables *t, double complex *x, double complex *y) {
    static const int radix[] = {4, 4, 5, 5}; /* an even number: the result is in x again */
    double complex *from = x, *to = y;
    for (int i = 0, n = N, s = 1; i < MX_COUNT(radix); i++) {
        pass(t, n, s, radix[i], from, to);
        n /= radix[i];
        s *= radix[i];
        double complex *last = from;
        from = to;
        to = last;
    }
}

/* ---- mel */

/* Slaney's scale: linear up to 1 kHz, then logarithmic. */
static double hertz_of(double mel) {
    static const double knee = 15, knee_hertz = 1000;
    return mel < knee ? mel * 200 / 3 : knee_hertz * exp((mel - knee) * log(6.4) / 27);
}

static double mel_of(double hertz) {
    return hertz < 1000 ? 3 * hertz / 200 : 15 + log(hertz / 1000) * 27 / log(6.4);
}

/* Triangles of equal area, f32 [bins, SPECTRUM]. */
static float *fill_triangles(MxArena *arena, int64_t bins) {
    const double top = MX_SOUND_RATE / 2.0, last = mel_of(top);
    float *out = mx_new_n(arena, float, bins *SPECTRUM);
    for (int64_t b = 0; b < bins; b++) {
        double f[3];
        for (int k = 0; k < 3; k++) f[k] = hertz_of(last * (double)(b + k) / (double)(bins + 1));
        for (int i = 0; i < SPECTRUM; i++) {
            double hertz = top * i / (SPECTRUM - 1);
            double rise = (hertz - f[0]) / (f[1] - f[0]), fall = (f[2] - hertz) / (f[2] - f[1]);
            out[b * SPECTRUM + i] = (float)(fmax(0, fmin(rise, fall)) * 2 / (f[2] - f[0]));
        }
    }
    return out;
}

/* Sample i of a sound that is mirrored at both ends. */
static double sample_of(const float *samples, int64_t n, int64_t i) {
    if (i < 0) i = -i;
    if (i >= n) i = 2 * (n - 1) - i;
    return (double)samples[i];
}

static void read_frame(const Tables *t, const float *samples, int64_t n, int64_t frame,
                       double power[SPECTRUM]) {
    double complex x[N], y[N];
    for (int k = 0; k < N; k++)
        x[k] = t->window[k] * sample_of(samples, n, frame * MX_SOUND_HOP + k - N / 2);
    transform(t, x, y);
    for (int i = 0; i < SPECTRUM; i++)
        power[i] = creal(x[i]) * creal(x[i]) + cimag(x[i]) * cimag(x[i]);
}

void mx_sound_frames(const float *samples, int64_t n, int64_t bins, float *out) {
    static const double least = 1e-10;
    MxArena arena = {.name = "spectrogram"};
    Tables *t = mx_new(&arena, Tables);
    const float *triangles = fill_triangles(&arena, bins);
    const int64_t frames = n / MX_SOUND_HOP;
    double power[SPECTRUM], largest = log10(least);
    MX_ASSERT(n >= MX_SOUND_LEAST);
    fill_tables(t);
    for (int64_t f = 0; f < frames; f++) {
        read_frame(t, samples, n, f, power);
        for (int64_t b = 0; b < bins; b++) {
            double sum = 0;
            for (int i = 0; i < SPECTRUM; i++)
                sum += (double)triangles[b * SPECTRUM + i] * power[i];
            double level = log10(fmax(sum, least));
            largest = fmax(largest, level);
            out[f * bins + b] = (float)level;
        }
    }
    for (int64_t i = 0; i < frames * bins; i++)
        out[i] = (float)((fmax((double)out[i], largest - 8) + 4) / 4);
    mx_arena_release(&arena);
}
