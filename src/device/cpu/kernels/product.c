/* product.c — a provider of matrix products of any size and dtype, after Goto and van de Geijn
 * (2008): a strip of B is packed into panels as wide as the columns of C that stay in registers;
 * threads take blocks of rows of A, pack a part of their depth into the second-level cache, and
 * multiply it with panel after panel, each of which stays in the first-level cache. small.h does
 * the multiplication; bf16 is widened while it is packed if words are floats.
 *
 * If products of bf16 are so fast that three cost less than one of f32 (matmul_precision=high), a
 * float is split into two bf16: the one nearest to it and the one nearest to the rest. Both are
 * packed, and the products of high with high, high with low, and low with high are added up. The
 * omitted product, low with low, is as small as the rounding error of low itself: 2^-16 of a
 * product. An infinite number cannot be split: its products are NaN.
 *
 * A sum is computed DEPTH words at a time, for any threads and blocks, so results do not depend on
 * them. */
#include "small.h"
#include "vec.h"

enum {
    DEPTH = 256,           /* words along k of a panel: a third to two thirds of the first cache */
    BLOCK_ROWS = 112,      /* of A at most: with DEPTH, a fraction of the second cache */
    MOST_ROWS = 128,       /* the same, rounded up to rows of any kind */
    STRIP_WORDS = 2 << 20, /* of packed B at most, about */
    STRIP_COLUMNS = 1024   /* at most, so that a block's sums stay in the second cache */
};

/* What is packed of an operand: itself, or two parts of it. */
enum { HIGH, LOW, MOST_PARTS };

/* Parts of A and of B that are multiplied; operands that are whole have the first term alone. */
typedef struct Term {
    int a, b;
} Term;
static const Term terms[] = {{HIGH, HIGH}, {HIGH, LOW}, {LOW, HIGH}};

/* A product at work: columns [column, column + columns) of C, of which words [first, first + words)
 * of the sums are made next. */
typedef struct Product {
    const CpuMatmulSpec *spec;
    const SmallKind *kind;
    int parts, n_terms;
    const void *a, *b;
    void *c;
    int64_t column, columns;
    int64_t first, words;
    int64_t block_rows, group; /* rows, and panels of B, that a thread takes at a time */
    uint32_t *strip;           /* [part][pieces of DEPTH][panels][words][columns of a panel] */
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

/* A thread's part of A, packed, and what packing takes besides; parts are split before. */
static int64_t part_words(const Product *p) {
    return (p->parts == 1 ? 2 : 3) * MOST_ROWS * DEPTH;
}

static size_t worker_bytes(const Product *p) {
    return (size_t)(p->parts * part_words(p)) * sizeof(uint32_t);
}

static size_t carve(const MxDevice *device, const CpuMatmulSpec *s, Product *p, void *scratch) {
    const SmallKind *kind = p->kind;
    char *start = scratch;
    int64_t strip = p->parts * strip_words(kind, s) * strip_columns(kind, s);
    p->strip = cpu_carve(&scratch, sizeof *p->strip * (size_t)strip);
    p->sums = cpu_carve(
        &scratch, is_direct(s) ? 0 : sizeof *p->sums * (size_t)(s->m * strip_columns(kind, s)));
    p->workers = cpu_carve(&scratch, worker_bytes(p) * (size_t)device->n_threads);
    return (size_t)((char *)scratch - start);
}

static Product product_of(const MxDevice *device, const CpuMatmulSpec *s) {
    if (s->in == MX_F32 && cpu_splits_f32(device))
        return (Product){.spec = s,
                         .kind = small_kind_of_pairs(device),
                         .parts = MOST_PARTS,
                         .n_terms = MX_COUNT(terms)};
    return (Product){.spec = s, .kind = small_kind(device, s->in), .parts = 1, .n_terms = 1};
}

static size_t scratch_bytes(const MxDevice *device, const CpuMatmulSpec *s) {
    static char origin[1]; /* offsets alone matter */
    Product p = product_of(device, s);
    return carve(device, s, &p, origin);
}

/* ---- packing */

static const void *element(const void *x, MxDtype dtype, int64_t at) {
    return (const char *)x + at * (int64_t)mx_dtype_bytes(dtype);
}

/* DEPTH words of one part of the strip, or fewer at its end, and the elements of k that they are.
 */
typedef struct Piece {
    int part;
    int64_t words, first, at, elements; /* first: of all the part's words; at: of k */
} Piece;

static int64_t pieces_of(const Product *p) {
    return cpu_pieces(p->words, DEPTH);
}

static Piece piece_of(const Product *p, int part, int64_t i) {
    int64_t per_word = p->kind->per_word;
    Piece out = {.part = part, .first = i * DEPTH, .at = (p->first + i * DEPTH) * per_word};
    out.words = cpu_min(DEPTH, p->words - out.first);
    out.elements = cpu_min(out.words * per_word, p->spec->k - out.at);
    return out;
}

static int64_t panels_of(const Product *p) {
    return cpu_pieces(p->columns, p->kind->columns);
}

static uint32_t *panel_at(const Product *p, const Piece *piece, int64_t panel) {
    int64_t before = (piece->part * p->words + piece->first) * panels_of(p);
    return p->strip + (before + panel * piece->words) * p->kind->columns;
}

/* Columns that a panel has; their number of words in a row, which is what B's rows are apart. */
static int64_t panel_columns(const Product *p, int64_t panel) {
    return cpu_min(p->kind->columns, p->columns - panel * p->kind->columns);
}

/* The high or the low part of rows of f32, made in `to`. What would round to infinity is cut off,
 * so that large numbers stay numbers; a NaN stays one. */
static SmallRows split(const SmallRows *rows, int part, MxBf16 *to) {
    const uint32_t magnitude = 0x7fffffff, largest = 0x7f7f8000, infinite = 0x7f800000;
    int64_t step = rounded_up(rows->width, 2);
    for (int64_t i = 0; i < rows->n; i++) {
        const float *x = (const float *)rows->data + i * rows->step;
        for (int64_t j = 0; j < rows->width; j++) {
            uint32_t bits = vec_bits(x[j]), size = bits & magnitude;
            uint32_t high = size < largest ? bits + 0x7fff + (bits >> 16 & 1) : bits;
            high = (size > infinite ? bits | 1 << 22 : high) & 0xffff0000;
            float low = x[j] - vec_from_bits(high);
            uint32_t rounded = vec_bits(low) + 0x7fff + (vec_bits(low) >> 16 & 1);
            to[i * step + j] = (MxBf16)((part == HIGH ? high : rounded) >> 16);
        }
    }
    return (SmallRows){to, MX_BF16, rows->n, rows->width, step};
}

static void pack_panel(const Product *p, const Piece *piece, int64_t panel) {
    enum { MOST_COLUMNS = 32, MOST_WORDS = MOST_COLUMNS * DEPTH };
    uint32_t left[MOST_WORDS], parts[MOST_WORDS];
    const CpuMatmulSpec *s = p->spec;
    int64_t n = panel_columns(p, panel), column = p->column + panel * p->kind->columns;
    SmallRows rows = {.dtype = s->in, .step = s->ldb};
    rows.data = element(p->b, s->in,
                        s->trans_b ? column * s->ldb + piece->at : piece->at * s->ldb + column);
    rows.n = s->trans_b ? n : piece->elements;
    rows.width = s->trans_b ? piece->elements : n;
    if (p->parts > 1) rows = split(&rows, piece->part, (MxBf16 *)parts);
    if (s->trans_b)
        small_pack_turned(p->kind, &rows, left, panel_at(p, piece, panel));
    else
        small_pack_right(p->kind, &rows, panel_at(p, piece, panel));
}

static void pack_panels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Product *p = context;
    int64_t panels = panels_of(p), pieces = pieces_of(p);
    for (int64_t i = begin; i < end; i++) {
        Piece piece = piece_of(p, (int)(i / panels / pieces), i / panels % pieces);
        pack_panel(p, &piece, i % panels);
    }
}

/* Rows [row, row + n) of A as words. */
static SmallLeft pack_block(const Product *p, const Piece *piece, const int64_t row_n[2],
                            uint32_t *space) {
    const CpuMatmulSpec *s = p->spec;
    int64_t row = row_n[0], n = row_n[1];
    uint32_t *besides = space + MOST_ROWS * DEPTH;
    SmallRows rows = {.dtype = s->in, .step = s->lda};
    rows.data =
        element(p->a, s->in, s->trans_a ? piece->at * s->lda + row : row * s->lda + piece->at);
    rows.n = s->trans_a ? piece->elements : n;
    rows.width = s->trans_a ? n : piece->elements;
    if (p->parts > 1) rows = split(&rows, piece->part, (MxBf16 *)(besides + MOST_ROWS * DEPTH));
    if (s->trans_a) return small_pack_columns(p->kind, &rows, space, besides);
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
    Piece pieces[MOST_PARTS];
    SmallLeft a[MOST_PARTS];
    for (int part = 0; part < p->parts; part++) {
        pieces[part] = piece_of(p, part, at);
        a[part] = pack_block(p, &pieces[part], (int64_t[]){block->row, block->n},
                             space + part * part_words(p));
    }
    bool adds = p->first || at || (is_direct(s) && s->accumulate);
    for (int64_t panel = block->panel; panel < block->last; panel++) {
        Small small = {.m = block->n, .n = panel_columns(p, panel), .k = pieces->words};
        small.b_row = small_padded(small.n);
        float *c = sums_at(p, block->row, panel, &small.c_row);
        for (int i = 0; i < p->n_terms; i++) {
            const SmallLeft *left = &a[terms[i].a];
            small.a_row = left->row;
            small.a_k = left->k;
            small.adds = adds || i;
            p->kind->multiply(&small, left->words, panel_at(p, &pieces[terms[i].b], panel), c);
        }
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
    uint32_t *space = (uint32_t *)(p->workers + worker_bytes(p) * (size_t)worker);
    int64_t groups = cpu_pieces(panels_of(p), p->group);
    bool is_last = p->first + p->words >= words_of(p->kind, p->spec);
    small_open(p->kind);
    for (int64_t i = begin; i < end; i++) {
        Block block = {.row = i / groups * p->block_rows, .panel = i % groups * p->group};
        block.n = cpu_min(p->block_rows, p->spec->m - block.row);
        block.last = cpu_min(panels_of(p), block.panel + p->group);
        for (int64_t at = 0; at < pieces_of(p); at++) multiply_piece(p, &block, at, space);
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
    Product p = product_of(device, s);
    p.a = a;
    p.b = b;
    p.c = c;
    carve(device, s, &p, scratch);
    int64_t columns = strip_columns(p.kind, s), words = words_of(p.kind, s);
    int64_t depth = strip_words(p.kind, s);
    for (p.column = 0; p.column < s->n; p.column += columns) {
        p.columns = cpu_min(columns, s->n - p.column);
        share(device, &p);
        for (p.first = 0; p.first < words; p.first += depth) {
            p.words = cpu_min(depth, words - p.first);
            cpu_for(device, p.parts * pieces_of(&p) * panels_of(&p), 1, pack_panels, &p);
            int64_t blocks = cpu_pieces(s->m, p.block_rows);
            cpu_for_uneven(device, blocks * cpu_pieces(panels_of(&p), p.group), 1, multiply_blocks,
                           &p);
        }
    }
}

const CpuProvider cpu_own_products = {
    .name = "our own",
    .takes_less = true,
    .scratch = scratch_bytes,
    .run = run,
};
