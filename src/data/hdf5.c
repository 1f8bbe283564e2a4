/* hdf5.c — prepared batches: a group with datasets inputs, targets, *_position, *_segmentation.
 * Rows are read when they are needed, checked, and narrowed to int32; the file is never completely
 * in memory. Opening and reading HDF5 is in the room store; pairs of responses are in hdf5_pairs.c.
 */
#include "formats.h"
#include "hdf5.h"

static const FormatChoice choice = {.wants = "HDF5"};

typedef struct TokenFile {
    MxH5 *file;
    Hdf5Column column[MX_BATCH_FIELDS];
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

bool hdf5_open_group(MxArena *arena, MxDataset *dataset, MxH5 **file, char **group, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    MxDataFile read;
    char *path;
    mx_store_ref_parse(arena, config->path ? config->path : "", &path, group);
    if (!*path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "no file given, wanted FILE.h5[:group]");
    if (!formats_check(path, &choice, err) || !data_hash_file(path, &read, err) ||
        !mx_h5_open(arena, path, file, err))
        return false;
    data_add_file(arena, dataset, read);
    return mx_h5_has_group(*file, *group) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "no group \"%s\"", *group);
}

int64_t hdf5_width(const Hdf5Column *column) {
    return column->array.shape.dim[column->array.shape.rank - 1];
}

int64_t hdf5_rows(const Hdf5Column *column) {
    const MxShape *shape = &column->array.shape;
    return shape->dim[0] * (shape->rank == 3 ? shape->dim[1] : 1);
}

static MxWhere in(const Hdf5Column *column) {
    return (MxWhere){.file = mx_h5_path(column->file)};
}

/* "dataset "…" has shape …, " and what is wrong with it. */
static bool wrong_shape(const Hdf5Column *column, MxError *err, const char *fmt, ...)
    MX_PRINTF(3, 4);
static bool wrong_shape(const Hdf5Column *column, MxError *err, const char *fmt, ...) {
    MxArena scratch = {.name = "message"};
    va_list ap;
    va_start(ap, fmt);
    const char *text = mx_arena_vprintf(&scratch, fmt, ap);
    va_end(ap);
    mx_fail(err, MX_EXIT_BAD_INPUT, in(column), "dataset \"%s\" has shape %s, %s", column->path,
            mx_shape_text(&scratch, column->array.shape), text);
    mx_arena_release(&scratch);
    return false;
}

bool hdf5_column(MxH5 *file, const char *path, Hdf5What what, Hdf5Column *out, MxError *err) {
    MxH5Array array;
    mx_store_guard_rearm(mx_h5_path(file));
    if (!mx_h5_stat(file, path, &array, err)) return false;
    *out = (Hdf5Column){.file = file, .path = path, .what = what, .array = array};
    if (array.is_text || !strstr(mx_dtype_name(array.dtype), "int"))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(out), "dataset \"%s\" holds %s, wanted integers",
                       path, array.is_text ? "text" : mx_dtype_name(array.dtype));
    return array.shape.rank == 2 || array.shape.rank == 3 ||
           wrong_shape(out, err, "wanted [rows, length] or [steps, batch, length]");
}

bool hdf5_check_like(const Hdf5Column *column, const Hdf5Column *like, MxError *err) {
    if (mx_shape_equal(like->array.shape, column->array.shape)) return true;
    MxArena scratch = {.name = "message"};
    wrong_shape(column, err, "wanted %s as \"%s\"", mx_shape_text(&scratch, like->array.shape),
                like->path);
    mx_arena_release(&scratch);
    return false;
}

bool hdf5_check_width(const Hdf5Column *column, int64_t length, MxError *err) {
    return hdf5_width(column) == length ||
           wrong_shape(column, err, "rows of %lld; max_target_length is %lld",
                       (long long)hdf5_width(column), (long long)length);
}

/* ---- rows */

/* More than this would be inflated for a row, and again for the next one in another order. */
static const int64_t MOST_CHUNK_BYTES = 1 << 20;
static const int64_t MOST_KEPT_BYTES = 1 << 30;

static bool keep(MxArena *arena, Hdf5Column *column, int64_t *room, MxError *err) {
    const MxH5Array *array = &column->array;
    bool is_wide = array->dtype == MX_I64 || array->dtype == MX_U32;
    column->kept_dtype = is_wide ? MX_I64 : MX_I32;
    int64_t n = mx_shape_count(array->shape);
    int64_t bytes = n * (int64_t)mx_dtype_bytes(column->kept_dtype);
    if (n > MOST_KEPT_BYTES || bytes > *room) {
        mx_fail(err, MX_EXIT_BAD_INPUT, in(column),
                "dataset \"%s\" is compressed in chunks of %lld bytes, so each row would take that "
                "long to read, and the file is too large to be kept in memory; wanted chunks of at "
                "most %lld bytes, or %lld bytes in all",
                column->path, (long long)array->chunk_bytes, (long long)MOST_CHUNK_BYTES,
                (long long)MOST_KEPT_BYTES);
        mx_note(err, "hint: h5repack -l CHUNK=64x%lld %s NEW.h5", (long long)hdf5_width(column),
                mx_h5_path(column->file));
        return false;
    }
    *room -= bytes;
    column->kept = mx_arena_alloc(arena, (size_t)bytes);
    mx_store_guard_rearm(mx_h5_path(column->file));
    return mx_h5_read(column->file, column->path, column->kept_dtype, array->shape, column->kept,
                      err);
}

bool hdf5_keep(MxArena *arena, Hdf5Column *columns, int n, MxError *err) {
    int64_t room = MOST_KEPT_BYTES;
    for (int i = 0; i < n; i++)
        if (columns[i].path && columns[i].array.chunk_bytes > MOST_CHUNK_BYTES &&
            !keep(arena, &columns[i], &room, err))
            return false;
    return true;
}

/* The values of a row as they are stored. */
static bool read_row(const Hdf5Column *column, int64_t row, int64_t *out, MxError *err) {
    const MxShape *shape = &column->array.shape;
    int64_t width = hdf5_width(column);
    for (int64_t t = 0; t < width && column->kept; t++)
        out[t] = column->kept_dtype == MX_I64 ? ((const int64_t *)column->kept)[row * width + t]
                                              : ((const int32_t *)column->kept)[row * width + t];
    if (column->kept) return true;
    MxBox box = {.rank = 2, .start = {row}, .count = {1, width}};
    if (shape->rank == 3)
        box = (MxBox){
            .rank = 3, .start = {row / shape->dim[1], row % shape->dim[1]}, .count = {1, 1, width}};
    mx_store_guard_rearm(mx_h5_path(column->file));
    return mx_h5_read_box(column->file, column->path, MX_I64, box, out, err);
}

bool hdf5_row(MxDataset *dataset, const Hdf5Column *column, int64_t row, const int32_t *padded,
              int32_t *out, MxError *err) {
    static const char *const names[] = {
        [HDF5_TOKEN] = "token", [HDF5_POSITION] = "position", [HDF5_SEGMENT] = "segment"};
    int64_t *stored = dataset->scratch.wide, width = hdf5_width(column);
    bool is_token = column->what == HDF5_TOKEN;
    bool counts_pairs = column->what == HDF5_SEGMENT && dataset->config.pairs; /* up to the last */
    int64_t limit = is_token       ? dataset->config.vocab
                    : counts_pairs ? width + 1
                                   : (int64_t)INT32_MAX + 1;
    if (!read_row(column, row, stored, err)) return false;
    for (int64_t t = 0; t < width; t++) {
        int64_t value = stored[t];
        if (value == -1 && is_token && padded && !padded[t]) value = 0;
        if (value < 0 || value >= limit)
            return mx_fail(err, MX_EXIT_BAD_INPUT, in(column),
                           "dataset \"%s\", row %lld, column %lld: %s %lld, wanted 0 … %lld",
                           column->path, (long long)row, (long long)t, names[column->what],
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
        bool fits = hdf5_column(tokens->file, path, what_of[field], &column, err) &&
                    hdf5_check_width(&column, config->length, err) &&
                    (!inputs->path || hdf5_check_like(&column, inputs, err));
        if (fits) tokens->column[field] = column;
        ok = ok && fits;
    }
    ok = ok && hdf5_keep(arena, tokens->column, MX_BATCH_FIELDS, err);
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
    if (!hdf5_open_group(arena, dataset, &tokens->file, &group, err) ||
        !find_fields(arena, config, group, tokens, err))
        return false;
    const Hdf5Column *inputs = &tokens->column[MX_INPUTS];
    dataset->source = tokens;
    dataset->n_rows = hdf5_rows(inputs);
    dataset->description =
        mx_arena_printf(arena, "hdf5: %s, %s, %lld rows", config->path,
                        mx_shape_text(arena, inputs->array.shape), (long long)dataset->n_rows);
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
        else if (!hdf5_row(dataset, &tokens->column[f], row, segmentation, out->field[f], err))
            return false;
    }
    return true;
}

static bool hdf5_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    char *group;
    DataPart *part = mx_new(arena, DataPart);
    (void)err;
    *part = (DataPart){.label = config->path, .weight = 1, .n_paths = 1};
    part->paths = mx_new(arena, char *);
    mx_store_ref_parse(arena, config->path ? config->path : "", part->paths, &group);
    *out = (DataParts){part, 1};
    return true;
}

static const FormatChoice *hdf5_choice(const MxDataConfig *config, const char *path) {
    (void)config, (void)path;
    return &choice;
}

const DataKind data_hdf5 = {
    .name = "hdf5",
    .parts = hdf5_parts,
    .choice = hdf5_choice,
    .is_guarded = true,
    .open = hdf5_open,
    .row = hdf5_batch_row,
    .side = hdf5_pair_side,
    .doc = "prepared batches, FILE.h5[:group]",
};
