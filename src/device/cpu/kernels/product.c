/* product.c — a provider of matrix products of any size and dtype, after Goto and van de Geijn
 * (2008): a strip of B is packed into panels as wide as the columns of C that stay in registers;
 * threads take blocks of rows of A, pack a part of their depth into the second cache, and multiply
 * it with panel after panel, each of which stays in the first. What multiplies is small.h's; bf16
 * is widened, where words are floats, while it is packed.
 *
 * A sum is made DEPTH words at a time, whatever the threads and blocks are: results do not depend
 * on them. */
#include "small.h"

enum {
    DEPTH = 256,           /* words along k of a panel: a third to two thirds of the first cache */
    BLOCK_ROWS = 112,      /* of A at most: with DEPTH, a fraction of the second cache */
    MOST_ROWS = 128,       /* the same, rounded up to rows of any kind */
    STRIP_WORDS = 2 << 20, /* of packed B at most, about */
    STRIP_COLUMNS = 1024   /* at most, so that a block's sums stay in the second cache */
};

/* A product at work: columns [column, column + columns) of C, of which words [first, first + words)
 * of the sums are made next. */
typedef struct Product {
    const CpuMatmulSpec *spec;
    const SmallKind *kind;
    const void *a, *b;
    void *c;
    int64_t column, columns;
    int64_t first, words;
    int64_t block_rows, group; /* rows, and panels of B, that a thread takes at a time */
    uint32_t *strip;           /* [pieces of DEPTH][panels][words][columns of a panel] */
    float *sums;               /* [m][columns, padded]: where C's rows cannot be written to */
    char *workers;
} Product;

/* ---- sizes */

static int64_t words_of(const SmallKind *kind, const CpuMatmulSpec *s) {
    return small_words(kind, s->k);
}

static int64_t rounded_up(int64_t n, int64_t to) {
    return cpu_pieces(n, to) * to;
}

/* Columns and words of the largest strip. */
static int64_t strip_columns(const SmallKind *kind, const CpuMatmulSpec *s) {
    return cpu_min(rounded_up(s->n, kind->columns), STRIP_COLUMNS);
}

static int64_t strip_words(const SmallKind *kind, const CpuMatmulSpec *s) {
    int64_t most = STRIP_WORDS / strip_columns(kind, s) / DEPTH * DEPTH;
    return cpu_min(words_of(kind, s), most);
}

/* Floats are summed up in C itself where whole lanes may be written to it. */
static bool is_direct(const CpuMatmulSpec *s) {
    return s->out == MX_F32 && s->n % SMALL_LANES == 0;
}

/* A thread's part of A, packed; and what packing takes besides. */
static size_t worker_bytes(void) {
    return 2 * (size_t)(MOST_ROWS * DEPTH) * sizeof(uint32_t);
}

static size_t carve(const MxDevice *device, const CpuMatmulSpec *s, Product *p, void *scratch) {
    const SmallKind *kind = p->kind;
    char *start = scratch;
    p->strip = cpu_carve(&scratch, sizeof *p->strip *
                                       (size_t)(strip_words(kind, s) * strip_columns(kind, s)));
    p->sums = cpu_carve(
        &scratch, is_direct(s) ? 0 : sizeof *p->sums * (size_t)(s->m * strip_columns(kind, s)));
    p->workers = cpu_carve(&scratch, worker_bytes() * (size_t)device->n_threads);
    return (size_t)((char *)scratch - start);
}

static size_t scratch_bytes(const MxDevice *device, const CpuMatmulSpec *s) {
    static char origin[1]; /* offsets alone matter */
    Product p = {.kind = small_kind(device, s->in)};
    return carve(device, s, &p, origin);
}

/* ---- packing */

static const void *element(const void *x, MxDtype dtype, int64_t at) {
    return (const char *)x + at * (int64_t)mx_dtype_bytes(dtype);
}

/* DEPTH words of the strip, or fewer at its end, and the elements of k that they are. */
typedef struct Piece {
    int64_t words, at, elements;
} Piece;

static Piece piece_of(const Product *p, int64_t piece) {
    int64_t per_word = p->kind->per_word, from = p->first + piece * DEPTH;
    Piece out = {.words = cpu_min(DEPTH, p->words - piece * DEPTH), .at = from * per_word};
    out.elements = cpu_min(out.words * per_word, p->spec->k - out.at);
    return out;
}

static int64_t panels_of(const Product *p) {
    return cpu_pieces(p->columns, p->kind->columns);
}

static uint32_t *panel_at(const Product *p, int64_t piece, int64_t panel, int64_t words) {
    int64_t wide = p->kind->columns;
    return p->strip + piece * DEPTH * panels_of(p) * wide + panel * words * wide;
}

/* Columns that a panel has; their number of words in a row, which is what B's rows are apart. */
static int64_t panel_columns(const Product *p, int64_t panel) {
    return cpu_min(p->kind->columns, p->columns - panel * p->kind->columns);
}

static void pack_panel(const Product *p, int64_t at, int64_t panel) {
    enum { MOST_COLUMNS = 32 };
    uint32_t left[MOST_COLUMNS * DEPTH];
    const CpuMatmulSpec *s = p->spec;
    Piece piece = piece_of(p, at);
    uint32_t *to = panel_at(p, at, panel, piece.words);
    int64_t n = panel_columns(p, panel), column = p->column + panel * p->kind->columns;
    SmallRows rows = {.dtype = s->in, .step = s->ldb};
    rows.data =
        element(p->b, s->in, s->trans_b ? column * s->ldb + piece.at : piece.at * s->ldb + column);
    rows.n = s->trans_b ? n : piece.elements;
    rows.width = s->trans_b ? piece.elements : n;
    if (s->trans_b)
        small_pack_turned(p->kind, &rows, left, to);
    else
        small_pack_right(p->kind, &rows, to);
}

static void pack_panels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Product *p = context;
    int64_t panels = panels_of(p);
    for (int64_t i = begin; i < end; i++) pack_panel(p, i / panels, i % panels);
}

/* Rows [row, row + n) of A as words. */
static SmallLeft pack_block(const Product *p, const Piece *piece, const int64_t row_n[2],
                            uint32_t *space) {
    const CpuMatmulSpec *s = p->spec;
    int64_t row = row_n[0], n = row_n[1];
    SmallRows rows = {.dtype = s->in, .step = s->lda};
    rows.data =
        element(p->a, s->in, s->trans_a ? piece->at * s->lda + row : row * s->lda + piece->at);
    rows.n = s->trans_a ? piece->elements : n;
    rows.width = s->trans_a ? n : piece->elements;
    if (s->trans_a) return small_pack_columns(p->kind, &rows, space, space + MOST_ROWS * DEPTH);
    return small_pack_left(p->kind, &rows, space);
}

/* ---- multiplying */

/* Rows [row, row + n) of C, and panels [panel, last). */
typedef struct Block {
    int64_t row, n, panel, last;
} Block;

static float *sums_at(const Product *p, int64_t row, int64_t panel, int64_t *step) {
    const CpuMatmulSpec *s = p->spec;
    int64_t column = panel * p->kind->columns;
    *step = is_direct(s) ? s->ldc : strip_columns(p->kind, s);
    return is_direct(s) ? (float *)p->c + row * s->ldc + p->column + column
                        : p->sums + row * *step + column;
}

static void multiply_piece(const Product *p, const Block *block, int64_t at, uint32_t *space) {
    const CpuMatmulSpec *s = p->spec;
    Piece piece = piece_of(p, at);
    SmallLeft a = pack_block(p, &piece, (int64_t[]){block->row, block->n}, space);
    Small small = {.m = block->n, .k = piece.words, .a_row = a.row, .a_k = a.k};
    small.adds = p->first || at || (is_direct(s) && s->accumulate);
    for (int64_t panel = block->panel; panel < block->last; panel++) {
        small.n = panel_columns(p, panel);
        small.b_row = small_padded(small.n);
        float *c = sums_at(p, block->row, panel, &small.c_row);
        p->kind->multiply(&small, a.words, panel_at(p, at, panel, piece.words), c);
    }
}

/* What is summed up elsewhere goes to C. */
static void store_block(const Product *p, const Block *block) {
    const CpuMatmulSpec *s = p->spec;
    int64_t column = block->panel * p->kind->columns, step;
    int64_t n = cpu_min(p->columns, block->last * p->kind->columns) - column;
    for (int64_t row = block->row; row < block->row + block->n; row++) {
        const float *from = sums_at(p, row, block->panel, &step);
        int64_t at = row * s->ldc + p->column + column;
        if (s->accumulate)
            cpu_add_to(from, n, p->c, s->out, at);
        else
            cpu_store(from, n, p->c, s->out, at);
    }
}

static void multiply_blocks(const void *context, int64_t begin, int64_t end, int worker) {
    const Product *p = context;
    uint32_t *space = (uint32_t *)(p->workers + worker_bytes() * (size_t)worker);
    int64_t groups = cpu_pieces(panels_of(p), p->group);
    bool is_last = p->first + p->words >= words_of(p->kind, p->spec);
    small_open(p->kind);
    for (int64_t i = begin; i < end; i++) {
        Block block = {.row = i / groups * p->block_rows, .panel = i % groups * p->group};
        block.n = cpu_min(p->block_rows, p->spec->m - block.row);
        block.last = cpu_min(panels_of(p), block.panel + p->group);
        for (int64_t at = 0; at * DEPTH < p->words; at++) multiply_piece(p, &block, at, space);
        if (is_last && !is_direct(p->spec)) store_block(p, &block);
    }
    small_close(p->kind);
}

/* Blocks alike, a whole number of them for each thread; where rows do not suffice, columns are
 * shared too. */
static void share(const MxDevice *device, Product *p) {
    int64_t threads = device->n_threads, panels = panels_of(p), m = p->spec->m;
    int64_t blocks = rounded_up(cpu_pieces(m, BLOCK_ROWS), threads);
    p->block_rows = cpu_min(rounded_up(cpu_pieces(m, blocks), p->kind->rows), MOST_ROWS);
    blocks = cpu_pieces(m, p->block_rows);
    int64_t groups = blocks >= threads ? 1 : cpu_min(panels, cpu_pieces(2 * threads, blocks));
    p->group = cpu_pieces(panels, groups);
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    const MxDevice *device = matmul->device;
    const CpuMatmulSpec *s = &matmul->run;
    Product p = {.spec = s, .kind = small_kind(device, s->in), .a = a, .b = b, .c = c};
    carve(device, s, &p, scratch);
    int64_t columns = strip_columns(p.kind, s), words = words_of(p.kind, s);
    int64_t depth = strip_words(p.kind, s);
    for (p.column = 0; p.column < s->n; p.column += columns) {
        p.columns = cpu_min(columns, s->n - p.column);
        share(device, &p);
        for (p.first = 0; p.first < words; p.first += depth) {
            p.words = cpu_min(depth, words - p.first);
            cpu_for(device, cpu_pieces(p.words, DEPTH) * panels_of(&p), 1, pack_panels, &p);
            int64_t blocks = cpu_pieces(s->m, p.block_rows);
            cpu_for_uneven(device, blocks * cpu_pieces(panels_of(&p), p.group), 1, multiply_blocks,
                           &p);
        }
    }
}

const CpuProvider cpu_own_products = {
    .name = "our own",
    .scratch = scratch_bytes,
    .run = run,
};
