/* thin.c — a provider of matrix products with one small size, as in low-rank adapters: they are
 * bound by memory, and libraries made for large products reach a fraction of its speed. They are
 * divided into products of small.h, so that large operands are read once and packed ones stay in
 * the caches.
 *
 * Flat: C[m, n] = A[m, k] op(B) with a small k, as H B and dH A^T. B is packed; then C is computed,
 * or added to, one block of rows after the other.
 *
 * Long: C[m, n] = A^T B with a small m or n, as X^T dH and H^T dY. The rows of both, tokens, are
 * summed up in spans, each into a separate sum; these are added up in order, so that results do not
 * depend on threads.
 *
 * A product whose only small size is n, X A, is left to the libraries: they too read X at the speed
 * of memory. */
#include "small.h"

enum {
    THIN = 64,    /* most that a size may be to count as small */
    ROWS = 32,    /* flat: of A and C at a time */
    WIDE = 256,   /* columns of a panel, packed or of sums */
    STRETCH = 64, /* long: rows at a time */
    SPANS = 16,   /* long: sums at most */
    LANES = SMALL_LANES,
    MOST_WORDS = 1 << 18 /* of scratch: wider products are made a part after the other */
};

/* A product at work. */
typedef struct Thin {
    const CpuMatmulSpec *spec;
    const SmallKind *kind;
    const void *a, *b;
    void *c;
    bool in_m;        /* long: the wide operand is A, and C the sums turned round */
    uint32_t *panels; /* flat: B, packed */
    float *sums;      /* long: [span][thin][wide, padded] */
} Thin;

bool cpu_is_thin(const CpuMatmulSpec *s) {
    return (s->trans_a ? cpu_min(s->m, s->n) : s->k) <= THIN;
}

static const void *element(const void *x, MxDtype dtype, int64_t at) {
    return (const char *)x + at * (int64_t)mx_dtype_bytes(dtype);
}

/* Words along k, filled up to what the kind takes at a time. */
static int64_t depth_of(const SmallKind *kind, int64_t n) {
    return cpu_pieces(small_words(kind, n), kind->depth) * kind->depth;
}

/* ---- results: rows [rows, columns] of C from floats, `step` of them apart */

typedef struct Block {
    int64_t row, column, rows, columns;
} Block;

static void store(const Thin *p, const Block *block, const float *from, int64_t step) {
    const CpuMatmulSpec *s = p->spec;
    for (int64_t i = 0; i < block->rows; i++, from += step) {
        int64_t at = (block->row + i) * s->ldc + block->column;
        if (s->accumulate)
            cpu_add_to(from, block->columns, p->c, s->out, at);
        else
            cpu_store(from, block->columns, p->c, s->out, at);
    }
}

/* ---- flat */

/* A panel of B is WIDE columns, [words of k][WIDE]. */
static int64_t panel_words(const SmallKind *kind, const CpuMatmulSpec *s) {
    return depth_of(kind, s->k) * WIDE;
}

static void pack_panel(const Thin *p, int64_t panel) {
    const CpuMatmulSpec *s = p->spec;
    int64_t j = panel * WIDE, wide = cpu_min(WIDE, s->n - j), step = small_padded(wide);
    int64_t words = small_words(p->kind, s->k), more = depth_of(p->kind, s->k) - words;
    uint32_t left[WIDE * THIN], *to = p->panels + panel * panel_words(p->kind, s);
    SmallRows rows = {.dtype = s->in, .step = s->ldb};
    rows.data = element(p->b, s->in, s->trans_b ? j * s->ldb : j);
    rows.n = s->trans_b ? wide : s->k;
    rows.width = s->trans_b ? s->k : wide;
    if (s->trans_b)
        small_pack_turned(p->kind, &rows, left, to);
    else
        small_pack_right(p->kind, &rows, to);
    memset(to + words * step, 0, (size_t)(more * step) * sizeof *to);
}

static void pack_panels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) pack_panel(context, i);
}

/* Rows of A as words, zeros behind them. */
static void pack_rows(const Thin *p, int64_t row, int64_t n, uint32_t *to) {
    const CpuMatmulSpec *s = p->spec;
    int64_t step = depth_of(p->kind, s->k);
    size_t bytes = (size_t)s->k * sizeof(float) / (size_t)p->kind->per_word;
    for (int64_t i = 0; i < n; i++, to += step) {
        const void *from = element(p->a, s->in, (row + i) * s->lda);
        if (s->in == MX_BF16 && p->kind->per_word == 1)
            cpu_widen(from, s->k, (float *)to);
        else
            memcpy(to, from, bytes);
        memset((char *)to + bytes, 0, (size_t)step * sizeof *to - bytes);
    }
}

/* Floats are made where they belong, if whole lanes may be written there. */
static void multiply_block(const Thin *p, const uint32_t *a, const Block *block) {
    const CpuMatmulSpec *s = p->spec;
    float sums[ROWS * WIDE];
    int64_t step = small_padded(block->columns), depth = depth_of(p->kind, s->k);
    bool is_direct = s->out == MX_F32 && block->columns == step;
    float *c = is_direct ? (float *)p->c + block->row * s->ldc + block->column : sums;
    Small small = {.m = block->rows,
                   .n = block->columns,
                   .k = depth,
                   .a_row = depth,
                   .a_k = 1,
                   .b_row = step,
                   .c_row = is_direct ? s->ldc : step,
                   .adds = is_direct && s->accumulate};
    p->kind->multiply(&small, a, p->panels + block->column / WIDE * panel_words(p->kind, s), c);
    if (!is_direct) store(p, block, sums, step);
}

static void multiply_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Thin *p = context;
    const CpuMatmulSpec *s = p->spec;
    uint32_t a[ROWS * THIN];
    small_open(p->kind);
    for (int64_t i = begin; i < end; i += ROWS) {
        int64_t rows = cpu_min(ROWS, end - i);
        pack_rows(p, i, rows, a);
        for (int64_t j = 0; j < s->n; j += WIDE) {
            Block block = {i, j, rows, cpu_min(WIDE, s->n - j)};
            multiply_block(p, a, &block);
        }
    }
    small_close(p->kind);
}

static void run_flat(const MxDevice *device, Thin *p, void *scratch) {
    p->panels = scratch;
    cpu_for(device, cpu_pieces(p->spec->n, WIDE), 1, pack_panels, p);
    cpu_for(device, p->spec->m, ROWS, multiply_rows, p);
}

/* ---- long */

/* The operands as sizes and places, the thin one and the wide one. */
typedef struct Sides {
    const void *thin, *wide;
    int64_t n_thin, n_wide, thin_step, wide_step, padded;
} Sides;

static Sides sides_of(const Thin *p) {
    const CpuMatmulSpec *s = p->spec;
    Sides a = {.thin = p->a, .n_thin = s->m, .thin_step = s->lda, .wide = p->b, .n_wide = s->n};
    Sides b = {.thin = p->b, .n_thin = s->n, .thin_step = s->ldb, .wide = p->a, .n_wide = s->m};
    a.wide_step = s->ldb;
    b.wide_step = s->lda;
    Sides sides = p->in_m ? b : a;
    sides.padded = small_padded(sides.n_wide);
    return sides;
}

/* Rows of a span: a multiple of STRETCH. */
static int64_t span_rows(const CpuMatmulSpec *s) {
    int64_t least = 4 * STRETCH;
    return cpu_max(least, cpu_pieces(s->k, SPANS * STRETCH) * STRETCH);
}

/* The thin operand of a stretch of rows as A, contracted over the rows: [thin, padded][STRETCH], as
 * many words along k as the stretch has. */
static void pack_thin(const Thin *p, const Sides *sides, const int64_t at_n[2], uint32_t *to) {
    uint32_t right[STRETCH * THIN];
    int64_t words = small_words(p->kind, at_n[1]), step = small_padded(sides->n_thin);
    int64_t whole = small_padded(words);
    small_pack_right(p->kind,
                     &(SmallRows){element(sides->thin, p->spec->in, at_n[0] * sides->thin_step),
                                  p->spec->in, at_n[1], sides->n_thin, sides->thin_step},
                     right);
    memset(right + words * step, 0, (size_t)((whole - words) * step) * sizeof *right);
    for (int64_t w = 0; w < whole; w += LANES)
        for (int64_t i = 0; i < step; i += LANES)
            small_turn(right + w * step + i, step, to + i * STRETCH + w, STRETCH);
}

/* The wide operand of a stretch of rows as B: where it lies, if words are floats there. */
static const void *right_of(const Thin *p, const Sides *sides, const Block *rows, uint32_t *packed,
                            Small *small) {
    MxDtype dtype = p->spec->in;
    const void *x = element(sides->wide, dtype, rows->row * sides->wide_step + rows->column);
    small->n = rows->columns;
    small->k = depth_of(p->kind, rows->rows);
    small->b_row = sides->wide_step;
    if (dtype == MX_F32 && rows->columns % LANES == 0) return x;
    int64_t words = small_words(p->kind, rows->rows);
    small->b_row = small_padded(rows->columns);
    small_pack_right(p->kind, &(SmallRows){x, dtype, rows->rows, rows->columns, sides->wide_step},
                     packed);
    memset(packed + words * small->b_row, 0,
           (size_t)((small->k - words) * small->b_row) * sizeof *packed);
    return packed;
}

static void sum_span(const Thin *p, const Sides *sides, const int64_t first_last[2], float *sums) {
    uint32_t left[THIN * STRETCH], right[STRETCH * WIDE];
    Small small = {.m = sides->n_thin, .a_row = STRETCH, .a_k = 1, .c_row = sides->padded};
    for (int64_t at = first_last[0]; at < first_last[1]; at += STRETCH, small.adds = true) {
        const int64_t at_n[] = {at, cpu_min(STRETCH, first_last[1] - at)};
        pack_thin(p, sides, at_n, left);
        for (int64_t j = 0; j < sides->n_wide; j += WIDE) {
            Block rows = {at, j, at_n[1], cpu_min(WIDE, sides->n_wide - j)};
            const void *b = right_of(p, sides, &rows, right, &small);
            p->kind->multiply(&small, left, b, sums + j);
        }
    }
}

static void sum_spans(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Thin *p = context;
    Sides sides = sides_of(p);
    int64_t rows = span_rows(p->spec);
    small_open(p->kind);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first_last[] = {i * rows, cpu_min(p->spec->k, (i + 1) * rows)};
        sum_span(p, &sides, first_last, p->sums + i * sides.n_thin * sides.padded);
    }
    small_close(p->kind);
}

static void add_spans(const float *from, int64_t n, int64_t step, float *to) {
    for (int lane = 0; lane < LANES; lane++) to[lane] = from[lane];
    for (int64_t i = 1; i < n; i++)
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++) to[lane] += from[i * step + lane];
}

/* Sixteen columns of the sums at a time, added up and brought to C. */
static void finish_columns(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Thin *p = context;
    Sides sides = sides_of(p);
    int64_t spans = cpu_pieces(p->spec->k, span_rows(p->spec));
    for (int64_t j = begin; j < end; j += LANES) {
        float sum[THIN * LANES] = {0}, turned[LANES * THIN];
        int64_t wide = cpu_min(LANES, end - j);
        for (int64_t i = 0; i < sides.n_thin; i++)
            add_spans(p->sums + i * sides.padded + j, spans, sides.n_thin * sides.padded,
                      sum + i * LANES);
        if (!p->in_m) {
            store(p, &(Block){0, j, sides.n_thin, wide}, sum, LANES);
            continue;
        }
        for (int64_t i = 0; i < sides.n_thin; i += LANES)
            small_turn((uint32_t *)sum + i * LANES, LANES, (uint32_t *)turned + i, THIN);
        store(p, &(Block){j, 0, wide, sides.n_thin}, turned, THIN);
    }
}

static void run_long(const MxDevice *device, Thin *p, void *scratch) {
    Sides sides = sides_of(p);
    p->sums = scratch;
    cpu_for(device, cpu_pieces(p->spec->k, span_rows(p->spec)), 1, sum_spans, p);
    cpu_for(device, sides.n_wide, WIDE, finish_columns, p);
}

/* ---- provider */

/* Words of scratch for so many columns of the wide operand. */
static int64_t words_for(const SmallKind *kind, const CpuMatmulSpec *s, int64_t wide) {
    if (!s->trans_a) return cpu_pieces(wide, WIDE) * panel_words(kind, s);
    return cpu_pieces(s->k, span_rows(s)) * cpu_min(s->m, s->n) * small_padded(wide);
}

/* Of two operands that lie with their columns in rows, the wider is worked through in parts. */
static bool is_wide_in_m(const CpuMatmulSpec *s) {
    return s->trans_a && s->m > s->n;
}

/* Columns of the wide operand that are made at a time. */
static int64_t part_columns(const SmallKind *kind, const CpuMatmulSpec *s) {
    int64_t columns = MOST_WORDS / words_for(kind, s, WIDE) * WIDE;
    return cpu_min(is_wide_in_m(s) ? s->m : s->n, cpu_max(columns, WIDE));
}

static size_t scratch_bytes(const MxDevice *device, const CpuMatmulSpec *s) {
    const SmallKind *kind = small_kind(device, s->in);
    return (size_t)words_for(kind, s, part_columns(kind, s)) * sizeof(uint32_t);
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    const MxDevice *device = matmul->device;
    const CpuMatmulSpec *s = &matmul->run;
    const SmallKind *kind = small_kind(device, s->in);
    bool in_m = is_wide_in_m(s);
    int64_t wide = in_m ? s->m : s->n, columns = part_columns(kind, s);
    for (int64_t at = 0; at < wide; at += columns) {
        CpuMatmulSpec part = *s;
        *(in_m ? &part.m : &part.n) = cpu_min(columns, wide - at);
        Thin p = {.spec = &part, .kind = kind, .in_m = in_m, .a = a, .b = b, .c = c};
        if (in_m)
            p.a = element(a, s->in, at);
        else
            p.b = element(b, s->in, s->trans_b ? at * s->ldb : at);
        p.c = (char *)c + (in_m ? at * s->ldc : at) * (int64_t)mx_dtype_bytes(s->out);
        (s->trans_a ? run_long : run_flat)(device, &p, scratch);
    }
}

const CpuProvider cpu_thin_products = {
    .name = "our own",
    .scratch = scratch_bytes,
    .run = run,
};
