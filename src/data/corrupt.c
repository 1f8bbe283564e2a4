/* corrupt.c — rows for block diffusion: in every block of a row some tokens are masked, and the
 * model predicts them. Their number is drawn for each block, at least one, so that no block is
 * without a target. A target is placed where the logits that predict it are computed. Source:
 * Arriola et al. 2025 (BD3-LM); MaxText diffusion/block_diffusion/corruption.py,
 * target_alignment.py @e591f30c. */
#include "source.h"

/* What is done with a token. */
enum { MASKED = 1, PREDICTED = 2 };

/* Draws of a row: philox words of a position. */
typedef enum Draw { DRAW_TOKEN, DRAW_LAST_CHOICE, DRAW_NOISE } Draw;

typedef struct Canvas {
    const MxDataBlocks *how;
    uint64_t seed, row;
    const int32_t *segments; /* 0 = padding */
    int32_t *marks;          /* [length] what is done with each */
    int64_t length;
} Canvas;

static double drawn(const Canvas *c, int64_t position, Draw which) {
    uint32_t words[4];
    mx_philox(c->seed, c->row, (uint64_t)position, words);
    return (double)mx_uniform(words[which]);
}

/* The block's first token is never masked, but told where tokens before it can predict it. */
static bool is_seed(const Canvas *c, int64_t position) {
    return c->how->keeps_first && position % c->how->size == 0;
}

static void mark_block(const Canvas *c, int64_t first, int64_t end) {
    double noise = c->how->min_noise + (1 - c->how->min_noise) * drawn(c, first, DRAW_NOISE);
    double best = -1;
    int64_t last_choice = -1;
    bool any = false;
    for (int64_t p = first; p < end; p++) {
        c->marks[p] = 0;
        if (!c->segments[p]) continue;
        if (is_seed(c, p)) {
            c->marks[p] = first ? PREDICTED : 0;
            continue;
        }
        if (drawn(c, p, DRAW_TOKEN) < noise) {
            c->marks[p] = MASKED | PREDICTED;
            any = true;
        }
        double score = drawn(c, p, DRAW_LAST_CHOICE);
        if (score > best) best = score, last_choice = p;
    }
    if (!any && last_choice >= 0) c->marks[last_choice] = MASKED | PREDICTED;
}

void data_corrupt(const MxDataset *dataset, int64_t number, const DataRow *row) {
    const MxDataBlocks *how = &dataset->config.blocks;
    const int64_t length = dataset->config.length, ahead = how->shifts;
    int32_t *inputs = row->field[MX_INPUTS], *targets = row->field[MX_TARGETS];
    Canvas c = {.how = how,
                .seed = ~dataset->config.seed, /* the shuffle has the seed itself */
                .row = (uint64_t)number,
                .segments = row->field[MX_INPUTS_SEGMENTATION],
                .marks = dataset->scratch.mask,
                .length = length};
    for (int64_t p = 0; p < length; p += how->size)
        mark_block(&c, p, p + how->size < length ? p + how->size : length);
    for (int64_t p = 0; p < length; p++) {
        bool is_told = p + ahead < length && c.marks[p + ahead] & PREDICTED;
        row->field[MX_TARGETS_SEGMENTATION][p] = is_told ? c.segments[p + ahead] : 0;
        if (!ahead) {
            targets[p] = inputs[p];
            row->field[MX_TARGETS_POSITION][p] = row->field[MX_INPUTS_POSITION][p];
        }
        if (c.marks[p] & MASKED) inputs[p] = how->mask;
    }
}
