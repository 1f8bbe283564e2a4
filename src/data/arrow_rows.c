/* arrow_rows.c — rows of an Arrow batch, column by column. Accesses outside of buffers are detected
 * when they happen. */
#include "arrow.h"

#include "stream.h"
#include "table.h"

#include <math.h>

static bool fail_column(const ArrowRow *a, const ArrowField *field, const char *what,
                        MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = a->file},
                   "column \"%s\", the batch at byte %lld, row %lld: %s", field->path,
                   (long long)a->batch_at, (long long)a->number, what);
}

static bool write_value(ArrowRow *a, ArrowField *field, int64_t i, MxError *err);

/* Where value i of a column begins and ends, by offsets, which never go back. */
static bool find_range(const ArrowRow *a, ArrowField *field, int64_t i, int64_t most,
                       int64_t out[2], MxError *err) {
    const MxBytes *offsets = &field->buffer[1];
    size_t width = (size_t)field->width;
    if ((uint64_t)i + 2 > offsets->size / width)
        return fail_column(a, field, "its offsets are fewer than its values", err);
    for (int k = 0; k < 2; k++)
        out[k] = (int64_t)arrow_get(offsets->data + ((size_t)i + (size_t)k) * width, width);
    if (out[0] < field->done || out[1] < out[0] || out[1] > most)
        return fail_column(a, field, "its offsets go back, or beyond what there is", err);
    field->done = out[1];
    return true;
}

static bool write_list(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    ArrowField *child = field->child;
    int64_t range[2] = {i * field->width, (i + 1) * field->width};
    if (field->kind == ARROW_LIST && !find_range(a, field, i, child->n, range, err)) return false;
    mx_text_addn(&a->text, "[", 1);
    for (int64_t k = range[0]; k < range[1]; k++) {
        if (k > range[0]) mx_text_addn(&a->text, ",", 1);
        if (!write_value(a, child, k, err)) return false;
    }
    mx_text_addn(&a->text, "]", 1);
    return true;
}

static bool write_struct(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    mx_text_addn(&a->text, "{", 1);
    for (int k = 0; k < field->n_children; k++) {
        table_name(&a->text, !k, field->child[k].name);
        if (!write_value(a, &field->child[k], i, err)) return false;
    }
    mx_text_addn(&a->text, "}", 1);
    return true;
}

static bool write_bytes(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    int64_t range[2];
    const MxBytes *bytes = &field->buffer[2];
    if (!find_range(a, field, i, (int64_t)bytes->size, range, err)) return false;
    table_text(&a->text, range[1] > range[0] ? bytes->data + range[0] : (const uint8_t *)"",
               (size_t)(range[1] - range[0]));
    return true;
}

/* Up to 12 bytes are in the view; more are in a buffer. */
static bool write_view(ArrowRow *a, ArrowField *field, const uint8_t *view, MxError *err) {
    enum { SHORT = 12 };
    uint64_t n = arrow_get(view, 4), buffer = arrow_get(view + 8, 4), at = arrow_get(view + 12, 4);
    if (n <= SHORT) {
        table_text(&a->text, view + 4, (size_t)n);
        return true;
    }
    if (buffer >= (uint64_t)field->n_views || n > field->views[buffer].size ||
        at > field->views[buffer].size - n)
        return fail_column(a, field, "a view of what is not there", err);
    table_text(&a->text, field->views[buffer].data + at, (size_t)n);
    return true;
}

/* A real of 16 bits: 1 of sign, 5 of exponent, 10. */
static double half(uint64_t x) {
    int exponent = (int)(x >> 10 & 31);
    double fraction = (double)(x & 1023) / 1024;
    double size = exponent == 31  ? (fraction > 0 ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(fraction, -14)
                                  : ldexp(1 + fraction, exponent - 15);
    return x >> 15 ? -size : size;
}

static double real_of(uint64_t x, int width) {
    uint32_t low = (uint32_t)x;
    float single;
    double wide;
    memcpy(&single, &low, sizeof single);
    memcpy(&wide, &x, sizeof wide);
    return width == 2 ? half(x) : width == 4 ? (double)single : wide;
}

static bool write_fixed(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    const MxBytes *data = &field->buffer[1];
    size_t width = (size_t)field->width;
    if (width && (uint64_t)i >= data->size / width)
        return fail_column(a, field, "it has fewer values than rows", err);
    const uint8_t *at = data->data + (size_t)i * width;
    if (field->kind == ARROW_VIEW) return write_view(a, field, at, err);
    uint64_t x = width <= 8 ? arrow_get(at, width) : 0;
    unsigned shift = width <= 8 && width ? 64 - 8 * (unsigned)width : 0;
    if (field->kind == ARROW_REAL)
        table_real(&a->text, real_of(x, field->width));
    else if (field->kind == ARROW_FIXED)
        table_other(&a->text, "%zu bytes that are no text", width);
    else if (field->is_unsigned)
        mx_text_add(&a->text, "%llu", (unsigned long long)x);
    else
        mx_text_add(&a->text, "%lld", (long long)((int64_t)(x << shift) >> shift));
    return true;
}

static bool write_truth(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    if ((uint64_t)i / 8 >= field->buffer[1].size)
        return fail_column(a, field, "it has fewer values than rows", err);
    mx_text_add(&a->text, field->buffer[1].data[i / 8] >> (i % 8) & 1 ? "true" : "false");
    return true;
}

static bool write_numbered(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    const ArrowDictionary *from = field->dictionary;
    size_t width = (size_t)field->width;
    if ((uint64_t)i >= field->buffer[1].size / width)
        return fail_column(a, field, "it has fewer values than rows", err);
    uint64_t number = arrow_get(field->buffer[1].data + (size_t)i * width, width);
    if (number >= (uint64_t)from->n)
        return fail_column(a, field, "a number beyond its dictionary", err);
    size_t at = number ? from->end[number - 1] : 0;
    mx_text_addn(&a->text, from->text.data + at, from->end[number] - at);
    return true;
}

static bool write_other(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    (void)i, (void)err;
    table_other(&a->text, "values of the type %s, which is not available yet", field->other);
    return true;
}

static bool write_value(ArrowRow *a, ArrowField *field, int64_t i, MxError *err) {
    static bool (*const write[])(ArrowRow *, ArrowField *, int64_t, MxError *) = {
        [ARROW_INT] = write_fixed,     [ARROW_REAL] = write_fixed,
        [ARROW_TRUTH] = write_truth,   [ARROW_BYTES] = write_bytes,
        [ARROW_VIEW] = write_fixed,    [ARROW_FIXED] = write_fixed,
        [ARROW_LIST] = write_list,     [ARROW_FIXED_LIST] = write_list,
        [ARROW_STRUCT] = write_struct, [ARROW_NUMBER] = write_numbered,
        [ARROW_OTHER] = write_other};
    const MxBytes *valid = &field->buffer[0];
    if (i >= field->n) return fail_column(a, field, "it has fewer values than rows", err);
    if (a->text.len > STREAM_LONGEST_BYTES)
        return fail_column(a, field, "a row of more than 268435456 bytes", err);
    bool has_nulls = field->n_buffers && valid->size;
    if (has_nulls && (uint64_t)i / 8 >= valid->size)
        return fail_column(a, field, "it does not tell what of it is null", err);
    if (field->kind != ARROW_NULL && (!has_nulls || valid->data[i / 8] >> (i % 8) & 1))
        return write[field->kind](a, field, i, err);
    mx_text_addn(&a->text, "null", 4);
    return true;
}

bool arrow_write_row(ArrowRow *row, ArrowField *root, MxError *err) {
    mx_text_clear(&row->text);
    return write_struct(row, root, row->number, err);
}

bool arrow_write_values(ArrowRow *row, ArrowDictionary *to, MxError *err) {
    ArrowField *values = to->root.child;
    if (to->cap < to->n + values->n) {
        size_t *old = to->end;
        to->cap = 2 * (to->n + values->n);
        to->end = mx_new_n(to->text.arena, size_t, to->cap);
        if (to->n) memcpy(to->end, old, (size_t)to->n * sizeof *old);
    }
    ArrowRow values_row = *row;
    values_row.text = to->text;
    bool ok = true;
    for (int64_t i = 0; ok && i < values->n; i++) {
        values_row.number = i;
        ok = write_value(&values_row, values, i, err);
        to->end[to->n++] = values_row.text.len;
    }
    to->text = values_row.text;
    return ok;
}
