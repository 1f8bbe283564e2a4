/* product.h — one matrix product by a library called directly, timed on random operands. */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include "common.h"

/* C[m, n] = op(A)[m, k] op(B)[k, n], dense and row-major. */
typedef struct Product {
    int m, n, k;
    bool trans_a, trans_b;
    bool is_bf16;     /* operands */
    bool is_bf16_out; /* the result */
} Product;

typedef enum Library { LIBRARY_OPENBLAS, LIBRARY_ONEDNN, LIBRARY_COUNT } Library;
extern const char *const library_names[LIBRARY_COUNT];

/* product_versions — one line: both libraries, OpenBLAS's core and threading, the compiler. */
void product_versions(char *text, size_t bytes);

/* product_operands — memory for every product of at most `cells` elements an array, filled. */
typedef struct Operands {
    void *a, *b, *c;
} Operands;
Operands product_operands(size_t cells);

/* product_has_bf16 — whether a library multiplies bfloat16 here; where none does, floats are the
 * floor of what is to be widened first. */
bool product_has_bf16(void);
/* product_can — whether a library has it: OpenBLAS multiplies float32 alone. */
bool product_can(const Product *product, Library library);
BenchTimes product_time(const Product *product, Library library, const Operands *operands);

double product_flops(const Product *product);

#endif
