/* held.c — datasets that share a source: rows of one that are held out of another, and the same
 * dataset for another thread. */
#include "source.h"

MxDataset *mx_data_twin(MxArena *arena, const MxDataset *dataset) {
    MxDataset *twin = mx_new(arena, MxDataset);
    *twin = *dataset;
    data_make_room(arena, twin);
    return twin;
}

int64_t mx_data_held_rows(int64_t n, double share, int64_t rows) {
    int64_t held = (int64_t)(share * (double)n);
    return held < rows ? rows : held;
}

bool mx_data_hold_out(MxArena *arena, MxDataset *dataset, double share, int64_t rows,
                      MxDataset **out, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    MX_ASSERT(share > 0 && share < 1 && !dataset->n_held && !dataset->kind->is_endless);
    int64_t all = dataset->n_rows, held = mx_data_held_rows(all, share, rows);
    if (all - held < config->rows)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "too little data to hold a share out for evaluation: %s; a batch needs %lld "
                       "%s, one of evaluation %lld",
                       dataset->description, (long long)config->rows, dataset->unit,
                       (long long)rows);
    dataset->n_held = held;
    dataset->n_all = all;
    MxDataset *taken = *out = mx_new(arena, MxDataset);
    *taken = *dataset;
    data_make_room(arena, taken);
    taken->is_held = true;
    taken->n_rows = held;
    taken->n_made = 0;
    taken->config.rows = rows;
    taken->config.n_epochs = 1;
    taken->config.shuffle = taken->config.pads = false;
    taken->warning = NULL;
    taken->description = mx_arena_printf(arena, "%lld %s held out of the %lld of the training data",
                                         (long long)held, dataset->unit, (long long)all);
    dataset->n_rows = all - held;
    dataset->description =
        mx_arena_printf(arena, "%s; %lld %s train, %lld are held out", dataset->description,
                        (long long)dataset->n_rows, dataset->unit, (long long)held);
    data_say_end(arena, dataset);
    data_say_end(arena, taken);
    return true;
}

/* The source's row that is number j of those held out: every n-th, or one later where that does not
 * divide. */
static int64_t held_row(const MxDataset *dataset, int64_t j) {
    int64_t every = dataset->n_all / dataset->n_held, rest = dataset->n_all % dataset->n_held;
    return j * every + (j < rest ? j : rest) + every / 2;
}

/* The source's row that is number i of this dataset. */
int64_t data_row_of_source(const MxDataset *dataset, int64_t i) {
    if (dataset->is_held) return held_row(dataset, i);
    int64_t low = 0, high = dataset->n_held; /* how many held ones come before */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (held_row(dataset, middle) - middle <= i)
            low = middle + 1;
        else
            high = middle;
    }
    return i + low;
}
