/* hdf5.c — batches that somebody prepared: a group with datasets inputs, targets, *_position,
 * *_segmentation. Rows are read when they are wanted, checked, and narrowed to int32; the file is
 * never in memory as a whole. Opening and reading HDF5 is the store's. */
#include "source.h"

#include <mx/store.h>

typedef struct TokenFile {
    MxH5 *file;
    const char *path[MX_BATCH_FIELDS]; /* NULL = not stored */
    MxShape shape;                     /* of all of them */
    int64_t *row;                      /* [length] as stored */
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

static bool is_token(MxBatchField field) {
    return field == MX_INPUTS || field == MX_TARGETS;
}
static bool is_position(MxBatchField field) {
    return field == MX_INPUTS_POSITION || field == MX_TARGETS_POSITION;
}
/* The segmentation that goes with a field. */
static MxBatchField segmentation_of(MxBatchField field) {
    bool is_input = field == MX_INPUTS || field == MX_INPUTS_POSITION;
    return is_input ? MX_INPUTS_SEGMENTATION : MX_TARGETS_SEGMENTATION;
}

static bool check_array(const MxH5Array *array, const char *file, const MxShape *first,
                        const MxDataConfig *config, MxError *err) {
    MxArena scratch = {.name = "message"};
    MxWhere where = {.file = file};
    const char *shape = mx_shape_text(&scratch, array->shape);
    int rank = array->shape.rank;
    bool ok = true;
    if (array->is_text || !strstr(mx_dtype_name(array->dtype), "int"))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "dataset \"%s\" holds %s, wanted integers",
                     array->path, array->is_text ? "text" : mx_dtype_name(array->dtype));
    else if (rank != 2 && rank != 3)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where,
                     "dataset \"%s\" has shape %s, wanted [rows, length] or [steps, batch, length]",
                     array->path, shape);
    else if (array->shape.dim[rank - 1] != config->length)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where,
                     "dataset \"%s\" has shape %s, rows of %lld; max_target_length is %lld",
                     array->path, shape, (long long)array->shape.dim[rank - 1],
                     (long long)config->length);
    else if (first && !mx_shape_equal(*first, array->shape))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where,
                     "dataset \"%s\" has shape %s, wanted %s as the inputs", array->path, shape,
                     mx_shape_text(&scratch, *first));
    mx_arena_release(&scratch);
    return ok;
}

/* Finds the datasets in a group; all failures are told. */
static bool find_fields(MxArena *arena, const MxDataConfig *config, const char *group,
                        TokenFile *tokens, MxError *err) {
    bool ok = true, has_inputs = false;
    for (int i = 0; i < MX_BATCH_FIELDS; i++) {
        MxBatchField field = (MxBatchField)i; /* inputs come first and give the shape */
        const char *path = mx_path_join(arena, group, mx_batch_field_name(field));
        MxH5Array array;
        if (!is_token(field) && !mx_h5_has_array(tokens->file, path)) continue;
        bool fits = mx_h5_stat(tokens->file, path, &array, err) &&
                    check_array(&array, mx_h5_path(tokens->file),
                                has_inputs ? &tokens->shape : NULL, config, err);
        ok = ok && fits;
        if (!fits) continue;
        tokens->path[field] = path;
        if (field == MX_INPUTS) tokens->shape = array.shape;
        has_inputs = has_inputs || field == MX_INPUTS;
    }
    for (int i = 0; i < MX_COUNT(fields); i++)
        if (!tokens->path[fields[i].field])
            tokens->path[fields[i].field] = tokens->path[fields[i].instead];
    return ok;
}

static bool hdf5_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    TokenFile *tokens = mx_new(arena, TokenFile);
    char *file, *group;
    mx_store_ref_parse(arena, config->path ? config->path : "", &file, &group);
    if (!*file)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "no file given, wanted FILE.h5[:group]");
    if (!mx_h5_open(arena, file, &tokens->file, err)) return false;
    if (!mx_h5_has_group(tokens->file, group))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file}, "no group \"%s\"", group);
    if (!find_fields(arena, config, group, tokens, err)) return false;
    tokens->row = mx_new_n(arena, int64_t, config->length);
    dataset->source = tokens;
    dataset->n_rows = mx_shape_count(tokens->shape) / config->length;
    dataset->description =
        mx_arena_printf(arena, "hdf5: %s, %s, %lld rows", config->path,
                        mx_shape_text(arena, tokens->shape), (long long)dataset->n_rows);
    return true;
}

static void fill_missing(MxBatchField field, const int32_t *segmentation, int32_t *out,
                         int64_t length) {
    for (int32_t t = 0; t < length; t++) out[t] = !is_position(field) ? 1 : segmentation[t] ? t : 0;
}

/* Narrows a stored row to int32, refusing what no model could use. */
static bool check_row(const MxDataset *dataset, MxBatchField field, int64_t row,
                      const int32_t *segmentation, int32_t *out, MxError *err) {
    const TokenFile *tokens = dataset->source;
    const MxDataConfig *config = &dataset->config;
    int64_t limit = is_token(field) ? config->vocab : (int64_t)INT32_MAX + 1;
    for (int64_t t = 0; t < config->length; t++) {
        int64_t value = tokens->row[t];
        /* Pipelines without a padding token write -1 where the segment says padding. */
        if (value == -1 && is_token(field) && !segmentation[t]) value = 0;
        if (value < 0 || value >= limit)
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(tokens->file)},
                           "dataset \"%s\", row %lld, column %lld: %s %lld, wanted 0 … %lld",
                           tokens->path[field], (long long)row, (long long)t,
                           is_token(field)      ? "token"
                           : is_position(field) ? "position"
                                                : "segment",
                           (long long)value, (long long)limit - 1);
        out[t] = (int32_t)value;
    }
    return true;
}

static bool hdf5_row(MxDataset *dataset, int64_t row, int32_t *const field[MX_BATCH_FIELDS],
                     MxError *err) {
    const TokenFile *tokens = dataset->source;
    int64_t length = dataset->config.length;
    MxH5Box box = {.rank = tokens->shape.rank, .start = {row}, .count = {1, length}};
    if (box.rank == 3) {
        int64_t rows_a_step = tokens->shape.dim[1];
        box = (MxH5Box){
            .rank = 3, .start = {row / rows_a_step, row % rows_a_step}, .count = {1, 1, length}};
    }
    for (int i = 0; i < MX_COUNT(fields); i++) {
        MxBatchField f = fields[i].field;
        const int32_t *segmentation = field[segmentation_of(f)];
        if (!tokens->path[f]) {
            fill_missing(f, segmentation, field[f], length);
            continue;
        }
        if (!mx_h5_read_box(tokens->file, tokens->path[f], MX_I64, box, tokens->row, err) ||
            !check_row(dataset, f, row, segmentation, field[f], err))
            return false;
    }
    return true;
}

const DataKind data_hdf5 = {
    .name = "hdf5",
    .open = hdf5_open,
    .row = hdf5_row,
    .doc = "prepared batches, FILE.h5[:group]",
};
