/* check.c — the first batch of a run's data, shown as people read it: the text of each row in
 * pieces of one segment that count or do not, with their ids. */
#include "data.h"
#include "internal.h"

enum { MOST_ROWS = 2, MOST_IDS = 16, MOST_BYTES = 200 };

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

static void show_piece(MxText *out, const MxTokenizer *tokenizer, const int32_t *ids, Piece piece) {
    int64_t n = piece.end - piece.start;
    mx_text_add(out, n > 1 ? "  tokens %lld-%lld, " : "  token %lld, ", (long long)piece.start,
                (long long)piece.end - 1);
    if (!piece.segment) {
        mx_text_add(out, "padding\n");
        return;
    }
    mx_text_add(out, "segment %d, %s", piece.segment, piece.counts ? "count" : "do not count");
    if (tokenizer) {
        size_t bytes, shown;
        const char *text =
            mx_tokenizer_decode(out->arena, tokenizer, ids + piece.start, n, false, &bytes);
        shown = bytes < MOST_BYTES ? bytes : MOST_BYTES;
        while (shown < bytes && shown && (text[shown] & 0xc0) == 0x80) shown--;
        mx_text_add(out, ": ");
        mx_text_add_quoted(out, text, shown);
        if (shown < bytes) mx_text_add(out, " …");
    }
    mx_text_add(out, "\n    ids");
    for (int64_t i = 0; i < n && i < MOST_IDS; i++) mx_text_add(out, " %d", ids[piece.start + i]);
    mx_text_add(out, n > MOST_IDS ? " … (%lld)\n" : "\n", (long long)n);
}

static void show_row(MxText *out, const MxTokenizer *tokenizer, const MxBatch *batch, int64_t row,
                     const char *what) {
    const int32_t *ids = batch->field[MX_INPUTS] + row * batch->length;
    const int32_t *targets = batch->field[MX_TARGETS_SEGMENTATION] + row * batch->length;
    int64_t n = 0;
    for (int64_t t = 0; t < batch->length; t++) n += targets[t] != 0;
    mx_text_add(out, "batch 0, row %lld of %lld%s: %lld of %lld targets count\n", (long long)row,
                (long long)batch->rows, what, (long long)n, (long long)batch->length);
    for (int64_t t = 0; t < batch->length;) {
        Piece piece = piece_at(batch, row, t);
        show_piece(out, tokenizer, ids, piece);
        t = piece.end;
    }
}

static bool show_batch(MxArena *arena, const MxConfig *c, MxDataset *data, MxError *err) {
    MxTokenizer *tokenizer = NULL;
    MxDataConfig config = train_data_config(c, NULL, false);
    MxBatch batch = mx_batch_new(arena, mx_data_batch_rows(&config), config.length);
    MxText out;
    mx_text_init(&out, arena);
    if (!train_open_tokenizer(arena, c, &tokenizer, NULL, err) ||
        mx_data_batch(data, 0, &batch, err) != MX_DATA_OK)
        return false;
    for (int64_t r = 0; r < MOST_ROWS && r < config.rows; r++) {
        show_row(&out, tokenizer, &batch, r, config.pairs ? " (chosen)" : "");
        if (config.pairs) show_row(&out, tokenizer, &batch, config.rows + r, " (rejected)");
    }
    out.data[out.len - 1] = '\0'; /* the log ends the line */
    mx_log("%s", out.data);
    return true;
}

bool mx_train_check(const MxConfig *c, MxComm *comm, MxError *err) {
    MxArena arena = {.name = "check"};
    TrainData data;
    bool ok = mx_train_origin(c, comm, err) && train_try_data(c, comm, train_wants(c), err) &&
              train_open_data(&arena, c, train_wants(c), &data, err);
    if (ok) train_warn_steps(c, data.train);
    ok = ok && show_batch(&arena, c, data.train, err);
    mx_arena_release(&arena);
    return ok;
}
