/* small.c — products of small matrices, by every kind that this machine can run, through every way
 * of packing. Operands are small whole numbers: the result is exact, in whatever order. */
#include "device/cpu/kernels/small.h"
#include "device/cpu/kernels/vec.h"

#include "probe.h"
#include "suites.h"

#include <math.h>

enum { MOST = 144, EXTRA = 4 }; /* largest size; elements between rows */

static const int64_t sizes[][3] = {/* m, n, k */
                                   {1, 1, 1},    {8, 16, 2},   {16, 16, 32},  {7, 5, 3},
                                   {64, 64, 64}, {17, 33, 31}, {32, 16, 64},  {33, 48, 65},
                                   {64, 80, 96}, {9, 100, 1},  {130, 31, 77}, {128, 128, 140}};

/* Ways to bring A and B into words. */
typedef enum Way { LEFT_TURNED, LEFT_RIGHT, ACROSS_RIGHT, WAYS } Way;

static int whole(uint64_t seed, int64_t i, int64_t j) {
    return (int)(case_word(seed, (uint64_t)(i * 1000 + j)) % 9) - 4;
}

/* Rows [n, width] of whole numbers, surrounded by numbers that must not be used. */
static SmallRows make_rows(MxArena *arena, MxDtype dtype, uint64_t seed, const int64_t n_width[2]) {
    int64_t n = n_width[0], width = n_width[1], step = width + EXTRA;
    float *x = mx_new_n(arena, float, n *step);
    MxBf16 *y = mx_new_n(arena, MxBf16, n * step);
    for (int64_t i = 0; i < n * step; i++) {
        int64_t row = i / step, column = i % step;
        x[i] = column < width ? (float)whole(seed, row, column) : 1e30f;
        y[i] = mx_f32_to_bf16(x[i]);
    }
    const void *data = dtype == MX_F32 ? (const void *)x : y;
    return (SmallRows){data, dtype, n, width, step};
}

static void *buffer(MxArena *arena) {
    uint32_t *words = mx_new_n(arena, uint32_t, MOST * MOST + CPU_ALIGN);
    for (int i = 0; i < MOST * MOST; i++) words[i] = 0x7fc07fc0u; /* not a number */
    return (void *)(((uintptr_t)words + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN);
}

typedef struct Operands {
    const void *a, *b;
} Operands;

/* X is [m, k], or [k, m] where it is across; Y is [k, n], or [n, k] where it is turned. */
static const SmallParts *parts; /* of the level */

static Operands pack(MxArena *arena, const SmallKind *kind, MxDtype dtype, Way way, Small *s) {
    int64_t k = s->k;
    SmallRows x = make_rows(arena, dtype, 1,
                            way == ACROSS_RIGHT ? (int64_t[]){k, s->m} : (int64_t[]){s->m, k});
    SmallRows y = make_rows(arena, dtype, 2,
                            way == LEFT_TURNED ? (int64_t[]){s->n, k} : (int64_t[]){k, s->n});
    void *a = buffer(arena), *b = buffer(arena), *left = buffer(arena);
    Operands o = {a, b};
    s->k = small_words(kind, k);
    s->b_row = small_padded(s->n);
    if (way == LEFT_TURNED)
        parts->pack_turned(kind, &y, left, b);
    else
        parts->pack_right(kind, &y, b);
    SmallLeft x_left =
        way == ACROSS_RIGHT ? parts->pack_across(kind, &x, left, a) : parts->pack_left(kind, &x, a);
    o.a = x_left.words;
    s->a_row = x_left.row;
    s->a_k = x_left.k;
    return o;
}

static float want_at(Way way, int64_t i, int64_t j, int64_t k) {
    int sum = 0;
    for (int64_t l = 0; l < k; l++)
        sum += (way == ACROSS_RIGHT ? whole(1, l, i) : whole(1, i, l)) *
               (way == LEFT_TURNED ? whole(2, j, l) : whole(2, l, j));
    return (float)sum;
}

static void check_product(const SmallKind *kind, MxDtype dtype, Way way, const int64_t size[3]) {
    MxArena arena = {.name = "small"};
    Small s = {.m = size[0], .n = size[1], .k = size[2], .c_row = small_padded(size[1])};
    Operands o = pack(&arena, kind, dtype, way, &s);
    float *c = mx_new_n(&arena, float, (s.m + 1) * s.c_row);
    for (int64_t i = 0; i < (s.m + 1) * s.c_row; i++) c[i] = 7;
    small_open(kind);
    for (int pass = 0; pass < 2; pass++) { /* C = A B, then C += A B */
        s.adds = pass;
        kind->multiply(&s, o.a, o.b, c);
    }
    small_close(kind);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            float want = 2 * want_at(way, i, j, size[2]), got = c[i * s.c_row + j];
            ck_assert_msg(
                got == want, "%s %s, way %d, [%lld, %lld, %lld]: C[%lld, %lld] is %g, not %g",
                kind->name, mx_dtype_name(dtype), way, (long long)s.m, (long long)s.n,
                (long long)size[2], (long long)i, (long long)j, (double)got, (double)want);
        }
    for (int64_t j = 0; j < s.c_row; j++) ck_assert(c[s.m * s.c_row + j] == 7);
    mx_arena_release(&arena);
}

START_TEST(products_are_exact) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxDevice *device = NULL;
    const SmallKind *kinds[SMALL_KINDS];
    ck_assert(
        mx_device_open(&arena, &(MxDeviceConfig){.backend = "cpu", .n_threads = 1}, &device, &err));
    parts = cpu_of(device)->level->kernels->small;
    int n = parts->kinds(device, kinds);
    for (int i = 0; i < n; i++)
        for (int way = 0; way < WAYS; way++) {
            check_product(kinds[i], MX_BF16, (Way)way, sizes[_i]);
            if (kinds[i]->per_word == 1) check_product(kinds[i], MX_F32, (Way)way, sizes[_i]);
        }
    mx_arena_release(&arena);
}
END_TEST

/* No NaNs, of which only some keep their bits, nor denormals, which may become zero. */
static float number(uint64_t seed, uint64_t i) {
    float x = vec_from_bits(case_word(seed, i));
    if (i % 4 == 0) x = vec_from_bits((vec_bits(x) & 0xffff0000u) | 0x8000u); /* a tie */
    return isnormal(x) ? x : 1.0f;
}

START_TEST(pairs_are_rounded_as_single_numbers) {
    enum { STEP = SMALL_LANES + EXTRA };
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxDevice *device = NULL;
    ck_assert(
        mx_device_open(&arena, &(MxDeviceConfig){.backend = "cpu", .n_threads = 1}, &device, &err));
    const SmallParts *level = cpu_of(device)->level->kernels->small;
    for (uint64_t i = 0; i < 20000; i++) {
        float low[SMALL_LANES], high[SMALL_LANES];
        uint32_t words[SMALL_LANES];
        MxBf16 rows[2 * STEP];
        for (uint64_t l = 0; l < SMALL_LANES; l++) {
            low[l] = number(1, i * SMALL_LANES + l);
            high[l] = number(2, i * SMALL_LANES + l);
        }
        level->pairs_words(low, high, words);
        level->pairs_rows(low, high, rows, STEP);
        for (int l = 0; l < SMALL_LANES; l++) {
            MxBf16 want[] = {mx_f32_to_bf16(low[l]), mx_f32_to_bf16(high[l])};
            bool is_word = words[l] == (want[0] | (uint32_t)want[1] << 16);
            ck_assert_msg(is_word && rows[l] == want[0] && rows[STEP + l] == want[1],
                          "%a and %a became %08x, %04x and %04x", (double)low[l], (double)high[l],
                          words[l], rows[l], rows[STEP + l]);
        }
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(floats_are_never_multiplied_as_pairs) {
    static const MxMatmulProvider providers[] = {MX_MATMUL_AUTO, MX_MATMUL_OPENBLAS};
    for (int i = 0; i < MX_COUNT(providers); i++) {
        MxArena arena = {.name = "test"};
        MxError err = {0};
        MxDevice *device = NULL;
        MxDeviceConfig config = {.backend = "cpu", .n_threads = 1, .matmul = providers[i]};
        ck_assert(mx_device_open(&arena, &config, &device, &err));
        const SmallParts *level = cpu_of(device)->level->kernels->small;
        ck_assert_int_eq(level->kind(device, MX_F32)->per_word, 1);
        bool takes_pairs = providers[i] == MX_MATMUL_AUTO &&
                           (cpu_of(device)->level->has_tiles || cpu_of(device)->has_fast_pairs);
        ck_assert_int_eq(level->kind(device, MX_BF16)->per_word, takes_pairs ? 2 : 1);
        mx_arena_release(&arena);
    }
}
END_TEST

Suite *suite_small(void) {
    Suite *suite = suite_create("small");
    TCase *t = tcase_create("small");
    tcase_set_timeout(t, 60);
    tcase_set_tags(t, "tiles");
    tcase_add_loop_test(t, products_are_exact, 0, MX_COUNT(sizes));
    tcase_add_test(t, pairs_are_rounded_as_single_numbers);
    tcase_add_test(t, floats_are_never_multiplied_as_pairs);
    suite_add_tcase(suite, t);
    return suite;
}
