/* cases.h — one descriptor an op, `test_<op>`: ways to use it, right and wrong, and a plain
 * reference. All suites of ops loop over them: shape rules and gradients' types (tests/ops),
 * kernels (tests/device), slopes (tests/run), and shares of ranks (tests/mpi). An op without a
 * descriptor does not link; what a descriptor lacks is named by tests/ops.
 *
 * Inputs are text: a dtype's letter, dims, and what the array holds: "x2,3 f4:square0.5 i".
 * Letters: f float32, b bfloat16, i int32, u uint8, c int8, d float64, x the dtype under test. A
 * case with an x is run in float32 and in bfloat16. Each such run is a Shot. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <mx/ops.h>

enum { SHOT_INPUTS = 10 };

/* What an input holds: the word behind the colon, and a number `a`. */
typedef enum Fill {
    FILL_NORMAL, /* reals: normal numbers times a; what reals hold if nothing is said, a = 1 */
    FILL_IDS,    /* in [0, a); a few of them often; what integers hold if nothing is said, a = 2, of
                    bytes 256 */
    FILL_NONE,   /* in [-1, a): ids of experts, and no expert */
    FILL_SLOTS,  /* ids of [B, X, S]: the index in dim 1, or -1 */
    FILL_AWAY,   /* normal numbers moved away from 0 by a: no kink within reach of a difference */
    FILL_VALUE,  /* a everywhere */
    FILL_SQUARE, /* squares of normal numbers times a: second moments, sums */
    FILL_LOGP,   /* below 0, of size a: log-probabilities */
    FILL_HYPER,  /* numbers of an update, MX_HYPER_* */
    FILL_TRIG,   /* cos and sin of random angles */
    FILL_FLAGS,  /* 0 with probability a */
    FILL_SEGMENTS,  /* 1, 2, .. each about a long, padding 0 at the end */
    FILL_POSITIONS, /* counting up to a, then again from 0 */
    FILL_FROM,      /* counting from a along each row, -1 in the last tenth of a longer one */
    FILL_BITS,      /* of [B, T, words]: some bits, that of the token a + t itself among them */
    FILL_CHUNKS,    /* of [B, T, N, words]: bits, that of the token's own chunk of a tokens too */
    FILL_FORWARD,   /* output a of the forward op: saved for its gradient */
    FILL_COUNT
} Fill;

/* How a case is used, besides by all suites. */
enum {
    CASE_FOLLOWS = 1 << 0,  /* its attributes start with the dtype under test */
    CASE_RANKS = 1 << 1,    /* meshes divide its sizes, powers of two: ranks share it too … */
    CASE_JOINED = 1 << 2,   /* … and exchange something within the op, on some mesh */
    CASE_TYPES = 1 << 3,    /* no single device can run it: its types alone are looked at */
    CASE_NO_SLOPE = 1 << 4, /* too flat or too rough for differences of float32 runs */
    CASE_SWAPPED = 1 << 5,  /* of ranks: they swap halves of what they have, on some mesh */
    CASE_DETACHED = 1 << 6, /* gradients pass over a factor: no differences have them, goldens do */
    CASE_LAST = 1 << 7,     /* occurs in gradients alone, which have none */
};

typedef struct OpCase {
    const char *label; /* NULL = none */
    const void *attr;
    const char *in;
    const char *out; /* the types of the outputs, NULL = not said */
    unsigned use;
} OpCase;

typedef struct WrongCase {
    const void *attr;
    const char *in, *message; /* a part of it */
} WrongCase;

typedef struct Reference {
    const void *attr;
    const MxType *in_type, *out_type;
    double *const *in;
    double **out;
    int n_in;
} Reference;

/* The op once more, in plain loops over doubles. */
typedef void ReferenceFn(const Reference *r);

typedef struct OpTest {
    const OpCase *cases;
    int n_cases;
    const WrongCase *wrong;
    int n_wrong;
    ReferenceFn *reference;
    unsigned flows; /* inputs to which a gradient flows, of ops with a rule */
    /* A gradient op is measured against differences of its forward op, and used as the forward op's
     * cases say: its inputs are the forward op's, the outputs of that which it needs, and the
     * cotangents of those that have one. Output i is the gradient of input wrt[i]; -1 - k = it is
     * the forward op's output k. */
    const MxOp *forward;
    unsigned saved; /* outputs of the forward op */
    int wrt[MX_MAX_OUT];
    int replaces[MX_MAX_OUT]; /* 1 + input whose buffer an output may take over, besides inplace */
    bool rounds; /* its gradients pass over what it rounds: no differences have them, goldens do */
    bool any_bits; /* libraries may share its products differently among more threads */
} OpTest;

extern const OpTest *const op_tests[MX_OP_COUNT];

#define CASES(...)                                                                                 \
    .cases = (const OpCase[]){__VA_ARGS__}, .n_cases = MX_COUNT(((const OpCase[]){__VA_ARGS__}))
#define WRONG(...)                                                                                 \
    .wrong = (const WrongCase[]){__VA_ARGS__},                                                     \
    .n_wrong = MX_COUNT(((const WrongCase[]){__VA_ARGS__}))
#define ATTR(type, ...) (&(const type){__VA_ARGS__})

/* An op, its attributes and inputs in one dtype. */
typedef struct Shot {
    const MxOp *op;
    const OpTest *test;
    const struct Shot *forward; /* of a gradient op, unless the case is its own */
    const OpCase *c;
    const char *name; /* "glu (silu), bfloat16" */
    const void *attr;
    MxDtype dtype; /* under test */
    MxType in[SHOT_INPUTS], out[MX_MAX_OUT];
    Fill fill[SHOT_INPUTS];
    double a[SHOT_INPUTS];
    int n_in, n_out;
} Shot;

/* op_shots — all of them, or those that a suite wants. */
const Shot *const *op_shots(bool (*wants)(const Shot *shot), int *n);

/* shot_parse — types and fills of the inputs, from the text of its case. */
void shot_parse(Shot *shot);
/* shot_inputs — what its inputs hold, each value one that its dtype can hold. */
void shot_inputs(const Shot *shot, MxArena *arena, double *in[SHOT_INPUTS]);
/* shot_reference — what its outputs are; arrays that are NULL are made. Ops with a reference. */
void shot_reference(const Shot *shot, MxArena *arena, double *const *in, double **out);

/* parse_types — "f2,3 b4 i" to f32 [2, 3], bf16 [4], an i32 scalar; returns how many. */
int parse_types(const char *text, MxType types[SHOT_INPUTS]);

/* case_normal, case_word — numbers that depend on (seed, index) alone. */
double case_normal(uint64_t seed, uint64_t index);
/* case_put, case_get — element `at` of an array of any dtype that ops know. */
void case_put(void *array, MxDtype dtype, int64_t at, double x);
double case_get(const void *array, MxDtype dtype, int64_t at);
uint32_t case_word(uint64_t seed, uint64_t index);

/* is_window_of — whether all `ratio` tokens of window w of a row are of a segment that is not 0. */
static inline bool is_window_of(const double *row, int64_t ratio, int64_t w, double segment) {
    bool is = segment != 0;
    for (int64_t i = 0; i < ratio; i++) is = is && row[w * ratio + i] == segment;
    return is;
}

/* element_count — of an array. */
static inline int64_t element_count(MxType type) {
    return mx_shape_count(type.shape);
}

#endif
