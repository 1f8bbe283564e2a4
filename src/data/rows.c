/* rows.c — documents to rows: concatenating tokens, the mask of tokens that count, and first-fit
 * packing. */
#include "rows.h"

RowFill rows_begin(const DataRow *row, int64_t length) {
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        memset(row->field[f], 0, (size_t)length * sizeof(int32_t));
    return (RowFill){.row = row, .length = length};
}

void rows_document(RowFill *fill) {
    fill->segment++;
    fill->position = 0;
}

void rows_add(RowFill *fill, const int32_t *ids, int64_t n, bool counts) {
    int32_t *const *field = fill->row->field;
    for (int64_t i = 0; i < n && fill->n < fill->length; i++, fill->n++, fill->position++) {
        field[MX_INPUTS][fill->n] = ids[i];
        field[MX_INPUTS_POSITION][fill->n] = fill->position;
        field[MX_INPUTS_SEGMENTATION][fill->n] = fill->segment;
        /* Of the token itself for now: rows_end moves it to the place that predicts the token. */
        field[MX_TARGETS_SEGMENTATION][fill->n] = counts ? fill->segment : 0;
    }
}

void rows_end(RowFill *fill) {
    int32_t *const *field = fill->row->field;
    int32_t *counts = field[MX_TARGETS_SEGMENTATION];
    for (int64_t t = 0; t + 1 < fill->length; t++) {
        counts[t] = counts[t + 1];
        field[MX_TARGETS][t] = counts[t] ? field[MX_INPUTS][t + 1] : 0;
    }
    counts[fill->length - 1] = 0;
    memcpy(field[MX_TARGETS_POSITION], field[MX_INPUTS_POSITION],
           (size_t)fill->length * sizeof(int32_t));
}

/* One open row, or two of a pair. */
typedef struct Bin {
    int64_t used[2], n_documents;
} Bin;

static bool has_room(const Bin *bin, const int32_t *lengths, const RowLimits *limits) {
    for (int side = 0; side < limits->sides; side++)
        if (bin->used[side] + lengths[side] > limits->length) return false;
    return limits->max_segments <= 0 || bin->n_documents < limits->max_segments;
}

/* The row of each document; gives the number of rows. */
static int64_t first_fit(const int32_t *lengths, int64_t n, const RowLimits *limits, Bin *bin,
                         int64_t *row_of) {
    int64_t closed = 0, n_open = 0; /* bins in use are the first ones */
    for (int64_t i = 0; i < n; i++, lengths += limits->sides) {
        int64_t b = 0;
        while (b < n_open && !has_room(&bin[b], lengths, limits)) b++;
        bool is_next = limits->together && i % limits->together == 0;
        if (b == limits->bins || is_next) {
            closed += n_open;
            b = n_open = 0;
        }
        if (b == n_open) bin[n_open++] = (Bin){0};
        for (int side = 0; side < limits->sides; side++) bin[b].used[side] += lengths[side];
        bin[b].n_documents++;
        row_of[i] = closed + b;
    }
    return closed + n_open;
}

RowPacking rows_pack(MxArena *arena, const int32_t *lengths, int64_t n, const RowLimits *limits) {
    MxArena scratch = {.name = "packing"};
    int64_t *row_of = mx_new_n(&scratch, int64_t, n + 1);
    Bin *bin = mx_new_n(&scratch, Bin, limits->bins);
    RowPacking packing = {.n_rows = first_fit(lengths, n, limits, bin, row_of)};
    packing.first = mx_new_n(arena, int64_t, packing.n_rows + 1);
    packing.document = mx_new_n(arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) packing.first[row_of[i] + 1]++;
    for (int64_t r = 0; r < packing.n_rows; r++) packing.first[r + 1] += packing.first[r];
    int64_t *next = mx_new_n(&scratch, int64_t, packing.n_rows + 1);
    memcpy(next, packing.first, (size_t)(packing.n_rows + 1) * sizeof *next);
    for (int64_t i = 0; i < n; i++) packing.document[next[row_of[i]]++] = i;
    mx_arena_release(&scratch);
    return packing;
}
