/* hf_codes.c — values of tensors in few bits: any elements of what they stand for, from the parts
 * of their planes that these need. */
#include "hf.h"

#include <math.h>

/* ---- what codes stand for */

/* A power of two; all bits set are no number. */
static float e8m0(unsigned exponent) {
    return exponent == UINT8_MAX ? NAN : ldexpf(1, (int)exponent - 127);
}

const float *hf_values_of(HfShards *shards, HfNumber number) {
    static const float *const known[HF_N_NUMBERS] = {
        [HF_E4M3] = mx_e4m3_values, [HF_E2M1] = mx_e2m1_values, [HF_SIGNED] = mx_int8_values};
    if (known[number]) return known[number];
    if (!shards->values[number]) {
        float *values = mx_new_n(shards->arena, float, MX_BYTE_CODES);
        for (unsigned i = 0; i < MX_BYTE_CODES; i++)
            values[i] = number == HF_E8M0 ? e8m0(i) : (float)i;
        shards->values[number] = values;
    }
    return shards->values[number];
}

/* ---- part of a plane */

/* Elements of some rows and columns of matrices, in memory. */
typedef struct Window {
    const HfPlane *plane;
    int64_t row, column, columns; /* the first element; how many a row has */
    void *data;
} Window;

/* Where the number of an element of the matrices is: in which row and column of elements, and the
 * how manieth of that element. */
typedef struct Place {
    int64_t row, column;
    int within;
} Place;

/* column  of numbers: a group of the matrix's columns */
static Place place_of(const HfPlane *p, int64_t row, int64_t column) {
    int64_t in_matrix = row % p->each / p->block[0], matrix = row / p->each;
    Place at = {p->is_turned ? column : in_matrix, p->is_turned ? in_matrix : column, 0};
    int pack = hf_pack(p);
    int64_t *packed = p->packs_rows ? &at.row : &at.column;
    at.within = (int)(*packed % pack);
    *packed /= pack;
    at.row += matrix * p->rows;
    return at;
}

static bool load(MxArena *scratch, const HfPlane *p, const int64_t rows[2],
                 const int64_t columns[2], Window *w, MxError *err) {
    Place first = place_of(p, rows[0], columns[0]), last = place_of(p, rows[1], columns[1]);
    size_t size = mx_dtype_bytes(p->tensor->dtype);
    int64_t n_rows = last.row - first.row + 1, n = last.column - first.column + 1;
    *w = (Window){.plane = p, .row = first.row, .column = first.column, .columns = n};
    w->data = mx_arena_alloc(scratch, (size_t)(n_rows * n) * size + 1);
    bool ok = true, is_dense = n == p->columns;
    int64_t at_once = is_dense ? n_rows : 1;
    for (int64_t r = 0; ok && r < n_rows; r += at_once)
        ok = mx_tensors_read_part(p->file, p->tensor, (first.row + r) * p->columns + first.column,
                                  at_once * n, (char *)w->data + (size_t)(r * n) * size, err);
    return ok;
}

static int64_t index_of(const Window *w, Place at) {
    return (at.row - w->row) * w->columns + at.column - w->column;
}

static unsigned code_at(const HfPlane *p, const void *data, int64_t i, int within) {
    uint32_t element =
        p->tensor->dtype == MX_I32 ? ((const uint32_t *)data)[i] : ((const uint8_t *)data)[i];
    if (!p->bits) return element;
    int place = p->order ? p->order[within] : within;
    return element >> (place * p->bits) & ((1u << p->bits) - 1);
}

static float number_at(const Window *w, int64_t row, int64_t column) {
    const HfPlane *p = w->plane;
    Place at = place_of(p, row, column);
    int64_t i = index_of(w, at);
    float value;
    if (p->values) return p->values[code_at(p, w->data, i, at.within)];
    mx_tensor_widen(w->data, p->tensor->dtype, i, 1, &value);
    return value;
}

/* ---- elements */

/* What is read of all planes, for elements of some rows and columns. */
typedef struct Reading {
    const HfScaled *s;
    int64_t rows[2], columns[2], groups[2]; /* first and last; of columns that share a scale */
    int32_t *group;                         /* of each column; NULL = neighbours share one */
    Window codes, scales, zeros, nested;
    float *scale, *zero; /* of the groups, in one row */
} Reading;

static bool read_groups(MxArena *scratch, Reading *r, MxError *err) {
    const HfScaled *s = r->s;
    int64_t n = r->columns[1] - r->columns[0] + 1;
    for (int i = 0; i < 2; i++) r->groups[i] = r->columns[i] / s->scales.block[1];
    if (!s->groups) return true;
    r->group = mx_new_n(scratch, int32_t, n);
    if (!mx_tensors_read_part(s->group_file, s->groups, r->columns[0], n, r->group, err))
        return false;
    for (int64_t i = 0; i < n; i++) {
        if (r->group[i] < 0 || r->group[i] >= s->scales.count[1])
            return mx_fail(
                err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_tensors_path(s->group_file)},
                "\"%s\": column %lld is in group %d; wanted 0 to %lld", s->groups->name,
                (long long)(r->columns[0] + i), r->group[i], (long long)s->scales.count[1] - 1);
        if (!i || r->group[i] < r->groups[0]) r->groups[0] = r->group[i];
        if (!i || r->group[i] > r->groups[1]) r->groups[1] = r->group[i];
    }
    return true;
}

static bool start(MxArena *scratch, Reading *r, MxError *err) {
    const HfScaled *s = r->s;
    if (!read_groups(scratch, r, err)) return false;
    int64_t n_groups = r->groups[1] - r->groups[0] + 1;
    r->scale = mx_new_n(scratch, float, n_groups);
    r->zero = mx_new_n(scratch, float, n_groups);
    int64_t nested[2] = {0, 0};
    for (int i = 0; i < 2 && s->nested.tensor; i++)
        nested[i] = r->groups[i] * s->scales.block[1] / s->nested.block[1];
    return load(scratch, &s->codes, r->rows, r->columns, &r->codes, err) &&
           load(scratch, &s->scales, r->rows, r->groups, &r->scales, err) &&
           (!s->zeros.tensor || load(scratch, &s->zeros, r->rows, r->groups, &r->zeros, err)) &&
           (!s->nested.tensor || load(scratch, &s->nested, r->rows, nested, &r->nested, err));
}

static void start_row(Reading *r, int64_t row) {
    const HfScaled *s = r->s;
    for (int64_t g = r->groups[0]; g <= r->groups[1]; g++) {
        float scale = number_at(&r->scales, row, g), zero = s->zero;
        if (s->nested.tensor)
            scale =
                scale * number_at(&r->nested, row, g * s->scales.block[1] / s->nested.block[1]) +
                s->nested_term;
        if (s->zeros.tensor) zero += number_at(&r->zeros, row, g);
        r->scale[g - r->groups[0]] = scale * s->factor / s->divisor;
        r->zero[g - r->groups[0]] = zero;
    }
}

/* Columns from one on that are in its group. */
static int64_t run_of(const Reading *r, int64_t column, int64_t most, int64_t *group) {
    int64_t block = r->s->scales.block[1];
    if (r->group) {
        *group = r->group[column - r->columns[0]];
        return 1;
    }
    *group = column / block;
    int64_t left = block - column % block;
    return left < most ? left : most;
}

/* Elements of a row from a column on. Where an element of the codes has those of neighbouring
 * columns, they are as many as a power of two. */
static void read_row(const Reading *r, int64_t row, int64_t column, int64_t n, float *out) {
    const HfPlane *p = &r->s->codes;
    const Window *w = &r->codes;
    const Place start = place_of(p, row, 0);
    const int64_t first = index_of(w, start), step = p->is_turned ? w->columns : 1;
    const bool is_along = p->is_turned == p->packs_rows;
    const int shift = is_along ? __builtin_ctz((unsigned)hf_pack(p)) : 0;
    for (int64_t i = 0, g, end; i < n;) {
        end = i + run_of(r, column + i, n - i, &g);
        float zero = r->zero[g - r->groups[0]], scale = r->scale[g - r->groups[0]];
        for (; i < end; i++) {
            int64_t c = column + i;
            int within = is_along ? (int)(c & ((1 << shift) - 1)) : start.within;
            unsigned code = code_at(p, w->data, first + (c >> shift) * step, within);
            out[i] = (p->values[code] - zero) * scale;
        }
    }
}

bool hf_scaled_read(const HfScaled *s, int64_t from, int64_t n, float *out, MxError *err) {
    MxArena scratch = {.name = "codes"};
    int64_t columns = s->read.dim[s->read.rank - 1], last = from + n - 1;
    Reading r = {.s = s, .rows = {from / columns, last / columns}, .columns = {0, columns - 1}};
    if (r.rows[0] == r.rows[1]) {
        r.columns[0] = from % columns;
        r.columns[1] = last % columns;
    }
    bool ok = start(&scratch, &r, err);
    for (int64_t at = from, row = r.rows[0]; ok && row <= r.rows[1]; row++) {
        int64_t end = (row + 1) * columns, count = (end <= last ? end : last + 1) - at;
        start_row(&r, row);
        read_row(&r, row, at % columns, count, out + (at - from));
        at += count;
    }
    mx_arena_release(&scratch);
    return ok;
}
