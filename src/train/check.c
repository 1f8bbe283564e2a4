/* check.c — prints the first rows of a run's data: the text of each row, divided into pieces of one
 * segment that count or do not count, with their ids. On a terminal, text that counts is green, and
 * ids that are not text are dim. */
#include "data.h"
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* How much is shown. */
typedef struct Shown {
    int64_t rows, ids, bytes; /* at most; of ids and bytes in each piece */
    bool in_colour;
} Shown;

static const Shown few = {.rows = 2, .ids = 16, .bytes = 200};

/* ---- colours: what is between them was made fit for a terminal before */

static const char colour_counts[] = "\033[32m", colour_aside[] = "\033[2m",
                  colour_end[] = "\033[0m";

static void paint(MxText *out, const Shown *shown, const char *colour) {
    if (shown->in_colour) mx_text_add(out, "%s", colour);
}

/* ---- rows */

/* Of a row: tokens that lie together, are of one segment, and all count or do not. */
typedef struct Piece {
    int64_t start, end;
    int32_t segment;
    bool counts;
} Piece;

/* A token counts where the one before is asked for it. */
static bool token_counts(const MxBatch *batch, int64_t row, int64_t t) {
    const int32_t *targets = batch->field[MX_TARGETS_SEGMENTATION] + row * batch->length;
    return t > 0 && targets[t - 1] != 0;
}

static Piece piece_at(const MxBatch *batch, int64_t row, int64_t start) {
    const int32_t *segments = batch->field[MX_INPUTS_SEGMENTATION] + row * batch->length;
    Piece piece = {start, start + 1, segments[start], token_counts(batch, row, start)};
    while (piece.end < batch->length && segments[piece.end] == piece.segment &&
           token_counts(batch, row, piece.end) == piece.counts)
        piece.end++;
    return piece;
}

static void show_text(MxText *out, const Shown *shown, const MxTokenizer *tokenizer,
                      const int32_t *ids, Piece piece) {
    size_t bytes, n;
    const char *text = mx_tokenizer_decode(out->arena, tokenizer, ids + piece.start,
                                           piece.end - piece.start, false, &bytes);
    n = bytes < (size_t)shown->bytes ? bytes : (size_t)shown->bytes;
    if (n < bytes) n = mx_char_start(text, n);
    mx_text_add(out, ": ");
    if (piece.counts) paint(out, shown, colour_counts);
    mx_text_add_quoted(out, text, n);
    if (piece.counts) paint(out, shown, colour_end);
    if (n < bytes) mx_text_add(out, " …");
}

static void show_piece(MxText *out, const Shown *shown, const MxTokenizer *tokenizer,
                       const int32_t *ids, Piece piece) {
    int64_t n = piece.end - piece.start;
    mx_text_add(out, n > 1 ? "  tokens %lld-%lld, " : "  token %lld, ", (long long)piece.start,
                (long long)piece.end - 1);
    if (!piece.segment) {
        mx_text_add(out, "padding\n");
        return;
    }
    mx_text_add(out, "segment %d, %s", piece.segment, piece.counts ? "count" : "do not count");
    if (tokenizer) show_text(out, shown, tokenizer, ids, piece);
    mx_text_add(out, "\n");
    paint(out, shown, colour_aside);
    mx_text_add(out, "    ids");
    for (int64_t i = 0; i < n && i < shown->ids; i++) mx_text_add(out, " %d", ids[piece.start + i]);
    if (n > shown->ids) mx_text_add(out, " … (%lld)", (long long)n);
    paint(out, shown, colour_end);
    mx_text_add(out, "\n");
}

/* A row of a batch, and which batch it is. */
typedef struct Row {
    const MxBatch *batch;
    int64_t step, row;
    const char *what;
} Row;

static void show_row(MxText *out, const Shown *shown, const MxTokenizer *tokenizer, Row at) {
    const MxBatch *batch = at.batch;
    const int32_t *ids = batch->field[MX_INPUTS] + at.row * batch->length;
    const int32_t *targets = batch->field[MX_TARGETS_SEGMENTATION] + at.row * batch->length;
    int64_t n = 0;
    for (int64_t t = 0; t < batch->length; t++) n += targets[t] != 0;
    mx_text_add(out, "batch %lld, row %lld of %lld%s: %lld of %lld targets count\n",
                (long long)at.step, (long long)at.row, (long long)batch->rows, at.what,
                (long long)n, (long long)batch->length);
    for (int64_t t = 0; t < batch->length;) {
        Piece piece = piece_at(batch, at.row, t);
        show_piece(out, shown, tokenizer, ids, piece);
        t = piece.end;
    }
}

/* What was asked for: --quiet leaves it. Colours would be escaped, so they are written as they are.
 */
static bool tell(MxText *out, const Shown *shown, bool is_first_rank, MxError *err) {
    if (is_first_rank && shown->in_colour)
        fwrite(out->data, 1, out->len, stdout);
    else if (is_first_rank)
        mx_print("%s", out->data);
    mx_text_clear(out);
    return (!fflush(stdout) && !ferror(stdout)) || mx_fail_errno(err, "could not write to stdout");
}

/* What a row is of its example. */
static const char *what_is(MxArena *arena, const MxDataConfig *config, int64_t row,
                           const float *rewards) {
    if (config->pairs) return row < config->rows ? " (chosen)" : " (rejected)";
    if (!config->group || config->asks) return "";
    return mx_arena_printf(arena, " (response %lld of %lld, reward %g)",
                           (long long)(row / config->rows + 1), (long long)config->group,
                           (double)rewards[row]);
}

static bool show_rows(const MxConfig *c, MxComm *comm, MxDataset *data, const Shown *shown,
                      MxError *err) {
    MxArena arena = {.name = "rows"};
    MxTokenizer *tokenizer = NULL;
    MxDataConfig config = train_data_config(c, NULL, false);
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(&config), config.length);
    float *rewards = mx_new_n(&arena, float, batch.rows);
    MxText out;
    MxDataStatus status = MX_DATA_OK;
    mx_text_init(&out, &arena);
    bool ok = train_open_tokenizer(&arena, c, &tokenizer, NULL, err);
    for (int64_t i = 0; ok && i < shown->rows; i++) {
        int64_t step = i / config.rows, r = i % config.rows;
        if (!r) status = mx_data_batch(data, step, &batch, err);
        if (status != MX_DATA_OK) break;
        if (!r && config.group && !config.asks)
            mx_data_scores(data, step, &batch.part, rewards, NULL);
        for (int64_t row = r; row < (config.asks ? config.rows : batch.rows); row += config.rows)
            show_row(&out, shown, tokenizer,
                     (Row){&batch, step, row, what_is(&arena, &config, row, rewards)});
        ok = tell(&out, shown, mx_comm_rank(comm) == 0, err);
    }
    if (status == MX_DATA_END) mx_log("%s", mx_data_end_reason(data));
    mx_arena_release(&arena);
    return ok && status != MX_DATA_ERROR;
}

bool mx_train_check(const MxConfig *c, MxComm *comm, int64_t n_rows, MxError *err) {
    MxArena arena = {.name = "check"};
    TrainData data;
    Shown shown = {.rows = n_rows, .ids = INT64_MAX, .bytes = INT64_MAX};
    if (!n_rows) shown = few;
    shown.in_colour = mx_has_color(STDOUT_FILENO);
    bool ok = mx_train_origin(c, comm, err) && train_try_data(c, comm, train_wants(c), err) &&
              train_open_data(&arena, c, train_wants(c), &data, err);
    if (ok) train_warn_steps(c, data.train);
    ok = ok && show_rows(c, comm, data.train, &shown, err);
    mx_arena_release(&arena);
    return ok;
}
