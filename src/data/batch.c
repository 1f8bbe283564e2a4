/* batch.c — the arrays of a batch, or of a part of it, and the rows in it. */
#include "source.h"

static const char *const field_names[MX_BATCH_FIELDS] = {
    [MX_INPUTS] = "inputs",
    [MX_TARGETS] = "targets",
    [MX_INPUTS_POSITION] = "inputs_position",
    [MX_TARGETS_POSITION] = "targets_position",
    [MX_INPUTS_SEGMENTATION] = "inputs_segmentation",
    [MX_TARGETS_SEGMENTATION] = "targets_segmentation",
};

const char *mx_batch_field_name(MxBatchField field) {
    return field_names[field];
}

MxBatch mx_batch_new_part(MxArena *arena, const MxBatchPart *part) {
    MxBatch batch = {.part = *part, .rows = part->rows, .length = part->length};
    for (int i = 0; i < MX_BATCH_FIELDS; i++)
        batch.field[i] = mx_new_n(arena, int32_t, part->rows * part->length);
    if (part->pixels) {
        batch.image = mx_new_n(arena, int32_t, part->rows * part->length);
        batch.pixels = mx_new_n(arena, float, part->rows * part->pixels);
        if (part->grids) batch.grids = mx_new_n(arena, MxVisionGrid, part->rows * part->grids);
        if (part->chunks) batch.frames = mx_new_n(arena, float, part->rows * part->frames);
        if (part->chunks) batch.left = mx_new_n(arena, int32_t, part->rows * part->chunks);
        for (int k = 0; part->has_mrope && k < MX_MROPE_KINDS; k++)
            batch.mrope[k] = mx_new_n(arena, int32_t, part->rows * part->length);
    }
    return batch;
}

MxBatch mx_batch_new(MxArena *arena, int64_t rows, int64_t length) {
    return mx_batch_new_part(arena,
                             &(MxBatchPart){.rows = rows, .of_rows = rows, .length = length});
}

int64_t data_part_row(const MxBatchPart *part, int64_t at) {
    return part->row ? part->row[at] : at;
}

int64_t data_part_from(const MxBatchPart *part, int64_t row) {
    int64_t low = 0, high = part->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (data_part_row(part, middle) < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t mx_batch_row(const MxBatchPart *part, int64_t row) {
    int64_t at = data_part_from(part, row);
    MX_ASSERT(at < part->rows && data_part_row(part, at) == row);
    return at;
}

DataRow data_row(const MxBatch *batch, int64_t row) {
    DataRow at;
    for (int f = 0; f < MX_BATCH_FIELDS; f++) at.field[f] = batch->field[f] + row * batch->length;
    return at;
}

void data_clear(MxBatch *batch) {
    const MxBatchPart *part = &batch->part;
    size_t bytes = (size_t)(batch->rows * batch->length) * sizeof(int32_t);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) memset(batch->field[f], 0, bytes);
    for (int k = 0; k < MX_MROPE_KINDS; k++)
        if (batch->mrope[k]) memset(batch->mrope[k], 0, bytes);
    if (!batch->pixels) return;
    memset(batch->image, 0, bytes);
    memset(batch->pixels, 0, (size_t)(batch->rows * part->pixels) * sizeof *batch->pixels);
    if (batch->grids)
        memset(batch->grids, 0, (size_t)(batch->rows * part->grids) * sizeof *batch->grids);
    if (!batch->left) return;
    memset(batch->frames, 0, (size_t)(batch->rows * part->frames) * sizeof *batch->frames);
    memset(batch->left, 0, (size_t)(batch->rows * part->chunks) * sizeof *batch->left);
}
