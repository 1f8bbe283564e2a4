/* close.h — how close to golden values is close enough. A figure's bound is the larger of what is
 * stated for its kind and twice the noise: what float32 leaves open for that file. The noise of our
 * own results is measured (scripts/noise.sh) and stands in tests/golden/noise.tsv; that of the
 * original stands in some golden files, as the distance of their float32 run from their float64
 * one. tests/golden/README.md tells more. */
#ifndef TESTS_TRAIN_CLOSE_H
#define TESTS_TRAIN_CLOSE_H

#include <mx/tree.h>

/* Kinds of figures, and how the distance of one is taken. */
typedef enum CloseKind {
    CLOSE_LOGITS,           /* norm of the difference over the norm */
    CLOSE_GRADIENT,         /* likewise, of one array */
    CLOSE_ROUNDED_GRADIENT, /* likewise, of one that the original rounds to bfloat16 */
    CLOSE_LOSS,             /* relative; before the first update */
    CLOSE_NORM,             /* likewise, norms of gradients and parameters */
    CLOSE_LATER_LOSS,       /* relative; after an update */
    CLOSE_LATER_NORM,
    CLOSE_FINAL,     /* parameters after the last step: largest difference of an array */
    CLOSE_FINAL_RMS, /* and root of its mean square */
    CLOSE_COUNT,     /* numbers that must be equal */
    CLOSE_KINDS,
} CloseKind;

/* What is compared. */
typedef struct Close {
    const char *golden; /* the file below the golden folder, and ":group" where it has several */
    CloseKind kind;
    const char *what; /* the figure's name, one of its own within the file and kind */
    double original; /* the original's own noise as the file tells it, by the same distance; or 0 */
} Close;

/* close_bound — how far the figure may be off. */
double close_bound(const Close *c);

/* close_array, close_number — fail the test where what we made is further from what the golden file
 * says than the bound. Under MX_NOISE=FOLDER they compare nothing with golden files: figures that
 * the folder lacks are kept there, distances from those that it has are added to its file
 * `distances`. */
void close_array(const Close *c, const float *got, const float *want, int64_t n);
void close_number(const Close *c, double got, double want);
/* close_final — an array of final parameters, by both of its kinds; c->kind does not count. */
void close_final(const Close *c, const float *got, const float *want, int64_t n);

/* close_nudge — under MX_NOISE_SEED, moves the parameters in a state by at most one bit, up or
 * down, by that seed. A test calls it on what it starts from. */
void close_nudge(MxTree *state);

#endif
