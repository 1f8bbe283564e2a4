/* hdf5.c — batches that somebody prepared: a group with datasets inputs, targets, *_position,
 * *_segmentation. Rows are read when they are wanted, checked, and narrowed to int32; the file is
 * never in memory as a whole. Opening and reading HDF5 is the store's; pairs of responses are in
 * hdf5_pairs.c. */
#include "hdf5.h"

typedef struct TokenFile {
    MxH5 *file;
    Hdf5Column column[MX_BATCH_FIELDS]; /* path NULL = not stored */
    int64_t *stored;                    /* [length] one row */
} TokenFile;

/* What stands in for a missing field; segments are read before the tokens that they excuse. */
static const struct {
    MxBatchField field, instead;
} fields[] = {
    {MX_INPUTS_SEGMENTATION, MX_TARGETS_SEGMENTATION},
    {MX_TARGETS_SEGMENTATION, MX_INPUTS_SEGMENTATION},
    {MX_INPUTS_POSITION, MX_TARGETS_POSITION},
    {MX_TARGETS_POSITION, MX_INPUTS_POSITION},
    {MX_INPUTS, MX_INPUTS},
    {MX_TARGETS, MX_TARGETS},
};

static const Hdf5What what_of[MX_BATCH_FIELDS] = {
    [MX_INPUTS] = HDF5_TOKEN,
    [MX_TARGETS] = HDF5_TOKEN,
    [MX_INPUTS_POSITION] = HDF5_POSITION,
    [MX_TARGETS_POSITION] = HDF5_POSITION,
    [MX_INPUTS_SEGMENTATION] = HDF5_SEGMENT,
    [MX_TARGETS_SEGMENTATION] = HDF5_SEGMENT,
};

/* The segmentation that goes with a field. */
static MxBatchField segmentation_of(MxBatchField field) {
    bool is_input = field == MX_INPUTS || field == MX_INPUTS_POSITION;
    return is_input ? MX_INPUTS_SEGMENTATION : MX_TARGETS_SEGMENTATION;
}

/* ---- columns */

bool hdf5_open_group(MxArena *arena, const MxDataConfig *config, MxH5 **file, char **group,
                     MxError *err) {
    char *path;
    mx_store_ref_parse(arena, config->path ? config->path : "", &path, group);
    if (!*path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "no file given, wanted FILE.h5[:group]");
    if (!mx_h5_open(arena, path, file, err)) return false;
    return mx_h5_has_group(*file, *group) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "no group \"%s\"", *group);
}

int64_t hdf5_width(const Hdf5Column *column) {
    return column->shape.dim[column->shape.rank - 1];
}

int64_t hdf5_rows(const Hdf5Column *column) {
    return column->shape.dim[0] * (column->shape.rank == 3 ? column->shape.dim[1] : 1);
}

/* "dataset "…" has shape …, " and what is wrong with it. */
static bool wrong_shape(const MxH5 *file, const Hdf5Column *column, MxError *err, const char *fmt,
                        ...) MX_PRINTF(4, 5);
static bool wrong_shape(const MxH5 *file, const Hdf5Column *column, MxError *err, const char *fmt,
                        ...) {
    MxArena scratch = {.name = "message"};
    MxText text;
    va_list ap;
    mx_text_init(&text, &scratch);
    va_start(ap, fmt);
    mx_text_vadd(&text, fmt, ap);
    va_end(ap);
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
            "dataset \"%s\" has shape %s, %s", column->path, mx_shape_text(&scratch, column->shape),
            text.data);
    mx_arena_release(&scratch);
    return false;
}

bool hdf5_column(MxH5 *file, const char *path, Hdf5Column *out, MxError *err) {
    MxH5Array array;
    if (!mx_h5_stat(file, path, &array, err)) return false;
    *out = (Hdf5Column){.path = path, .shape = array.shape};
    if (array.is_text || !strstr(mx_dtype_name(array.dtype), "int"))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                       "dataset \"%s\" holds %s, wanted integers", path,
                       array.is_text ? "text" : mx_dtype_name(array.dtype));
    return array.shape.rank == 2 || array.shape.rank == 3 ||
           wrong_shape(file, out, err, "wanted [rows, length] or [steps, batch, length]");
}

bool hdf5_check_like(const MxH5 *file, const Hdf5Column *column, const Hdf5Column *like,
                     MxError *err) {
    if (mx_shape_equal(like->shape, column->shape)) return true;
    MxArena scratch = {.name = "message"};
    wrong_shape(file, column, err, "wanted %s as \"%s\"", mx_shape_text(&scratch, like->shape),
                like->path);
    mx_arena_release(&scratch);
    return false;
}

bool hdf5_check_width(const MxH5 *file, const Hdf5Column *column, int64_t length, MxError *err) {
    return hdf5_width(column) == length ||
           wrong_shape(file, column, err, "rows of %lld; max_target_length is %lld",
                       (long long)hdf5_width(column), (long long)length);
}

bool hdf5_row(MxH5 *file, const Hdf5Column *column, int64_t row, Hdf5What what, int64_t vocab,
              const int32_t *padded, int64_t *scratch, int32_t *out, MxError *err) {
    static const char *const names[] = {
        [HDF5_TOKEN] = "token", [HDF5_POSITION] = "position", [HDF5_SEGMENT] = "segment"};
    int64_t width = hdf5_width(column), limit = what == HDF5_TOKEN ? vocab : (int64_t)INT32_MAX + 1;
    MxBox box = {.rank = 2, .start = {row}, .count = {1, width}};
    if (column->shape.rank == 3) {
        int64_t a_step = column->shape.dim[1];
        box = (MxBox){.rank = 3, .start = {row / a_step, row % a_step}, .count = {1, 1, width}};
    }
    if (!mx_h5_read_box(file, column->path, MX_I64, box, scratch, err)) return false;
    for (int64_t t = 0; t < width; t++) {
        int64_t value = scratch[t];
        if (value == -1 && what == HDF5_TOKEN && padded && !padded[t]) value = 0;
        if (value < 0 || value >= limit)
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(file)},
                           "dataset \"%s\", row %lld, column %lld: %s %lld, wanted 0 … %lld",
                           column->path, (long long)row, (long long)t, names[what],
                           (long long)value, (long long)limit - 1);
        out[t] = (int32_t)value;
    }
    return true;
}

/* ---- batches */

/* Finds the datasets in a group; all failures are told. */
static bool find_fields(MxArena *arena, const MxDataConfig *config, const char *group,
                        TokenFile *tokens, MxError *err) {
    bool ok = true;
    for (int i = 0; i < MX_BATCH_FIELDS; i++) {
        MxBatchField field = (MxBatchField)i; /* inputs come first and give the shape */
        const char *path = mx_path_join(arena, group, mx_batch_field_name(field));
        if (what_of[field] != HDF5_TOKEN && !mx_h5_has_array(tokens->file, path)) continue;
        Hdf5Column column, *inputs = &tokens->column[MX_INPUTS];
        bool fits = hdf5_column(tokens->file, path, &column, err) &&
                    hdf5_check_width(tokens->file, &column, config->length, err) &&
                    (!inputs->path || hdf5_check_like(tokens->file, &column, inputs, err));
        if (fits) tokens->column[field] = column;
        ok = ok && fits;
    }
    for (int i = 0; i < MX_COUNT(fields); i++)
        if (!tokens->column[fields[i].field].path)
            tokens->column[fields[i].field] = tokens->column[fields[i].instead];
    if (!ok && mx_h5_has_array(tokens->file, mx_path_join(arena, group, "chosen")))
        mx_note(err, "hint: these are pairs of responses; use_dpo=true trains on them");
    return ok;
}

static bool hdf5_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    if (config->pairs) return hdf5_pairs_open(arena, dataset, err);
    TokenFile *tokens = mx_new(arena, TokenFile);
    char *group;
    if (!hdf5_open_group(arena, config, &tokens->file, &group, err) ||
        !find_fields(arena, config, group, tokens, err))
        return false;
    const Hdf5Column *inputs = &tokens->column[MX_INPUTS];
    tokens->stored = mx_new_n(arena, int64_t, config->length);
    dataset->source = tokens;
    dataset->n_rows = hdf5_rows(inputs);
    dataset->description =
        mx_arena_printf(arena, "hdf5: %s, %s, %lld rows", config->path,
                        mx_shape_text(arena, inputs->shape), (long long)dataset->n_rows);
    return true;
}

static void fill_missing(MxBatchField field, const int32_t *segmentation, int32_t *out,
                         int64_t length) {
    bool is_position = what_of[field] == HDF5_POSITION;
    for (int32_t t = 0; t < length; t++) out[t] = !is_position ? 1 : segmentation[t] ? t : 0;
}

static bool hdf5_batch_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    const TokenFile *tokens = dataset->source;
    const MxDataConfig *config = &dataset->config;
    for (int i = 0; i < MX_COUNT(fields); i++) {
        MxBatchField f = fields[i].field;
        const int32_t *segmentation = out->field[segmentation_of(f)];
        if (!tokens->column[f].path)
            fill_missing(f, segmentation, out->field[f], config->length);
        else if (!hdf5_row(tokens->file, &tokens->column[f], row, what_of[f], config->vocab,
                           segmentation, tokens->stored, out->field[f], err))
            return false;
    }
    return true;
}

const DataKind data_hdf5 = {
    .name = "hdf5",
    .open = hdf5_open,
    .row = hdf5_batch_row,
    .side = hdf5_pair_side,
    .doc = "prepared batches, FILE.h5[:group]",
};
