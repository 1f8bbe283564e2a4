/* calibrate.c — which magnitude becomes the bound of a grid of numbers: what methods there are, and
 * how a text says one. */
#include <mx/base.h>

#include <math.h>
#include <stdlib.h>
#include <strings.h>

enum { MOST_NUMBERS = 2 };

static const struct {
    const char *name;
    int least, most; /* numbers behind it */
} methods[MX_MEASURE_COUNT] = {
    [MX_ABSMAX] = {"absmax", 0, 1},
    [MX_RMS] = {"rms", 1, 1},
    [MX_FIXED] = {"fixed", 1, 2},
};

static const char wanted[] = "wants absmax, absmax,FACTOR, rms,FACTOR, fixed,MOST or "
                             "fixed,-MOST,MOST";

const char *mx_calibration_name(MxMeasure measure) {
    return methods[measure].name;
}

/* Whether n letters are a name, in letters of either case. */
static bool is_name(const char *text, size_t n, const char *name) {
    return n == strlen(name) && !strncasecmp(text, name, n);
}

/* A number up to the next comma, or the end, with blanks around it; NULL = none. */
static const char *read_number(const char *text, double *out) {
    char *end;
    size_t n = strcspn(text, ",");
    if (memchr(text, 'x', n) || memchr(text, 'X', n)) return NULL; /* no number to Python */
    *out = strtod(text, &end);
    if (end == text || !isfinite(*out)) return NULL;
    end += strspn(end, " ");
    return end == text + n ? end : NULL;
}

const char *mx_calibration_parse(MxArena *arena, const char *text, MxCalibration *out) {
    size_t n_name = strcspn(text, ",");
    int method = 0, n = 0;
    double number[MOST_NUMBERS] = {1};
    if (is_name(text, n_name, "minmax"))
        return mx_arena_printf(arena,
                               "minmax has a zero point, through which no gradient "
                               "goes; %s",
                               wanted);
    while (method < MX_MEASURE_COUNT && !is_name(text, n_name, methods[method].name)) method++;
    if (method == MX_MEASURE_COUNT)
        return mx_arena_printf(arena, "unrecognized method \"%s\", %s", text, wanted);
    const char *at = text + n_name;
    for (; at && *at && n < methods[method].most; n++) at = read_number(at + 1, &number[n]);
    if (!at || *at || n < methods[method].least)
        return mx_arena_printf(arena, "found \"%s\", %s", text, wanted);
    if (n == 2 && number[0] != -number[1])
        return mx_arena_printf(arena,
                               "a range from %g to %g is not symmetrical, so it has a zero "
                               "point, through which no gradient goes; %s",
                               number[0], number[1], wanted);
    double by = number[n == 2];
    if (!((float)by > 0) || !isfinite((float)by))
        return mx_arena_printf(arena, "wants a number above 0 in float32, found %g", by);
    *out = (MxCalibration){.measure = (MxMeasure)method, .by = (float)by};
    return NULL;
}

float mx_calibration_magnitude(MxCalibration c, float found, int64_t n) {
    const float measured[MX_MEASURE_COUNT] = {
        [MX_ABSMAX] = found,
        [MX_RMS] = sqrtf(found / (float)n),
        [MX_FIXED] = isnan(found) ? found : 1,
    };
    return measured[c.measure] * c.by;
}

float mx_calibration_scale(MxCalibration c, MxGrid grid, float magnitude) {
    float given = magnitude / mx_grids[grid].bound;
    if (c.measure != MX_FIXED) return mx_grid_scale(grid, magnitude);
    return given < MX_LEAST_SCALE ? 1 : given;
}
