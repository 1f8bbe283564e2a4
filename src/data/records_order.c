/* records_order.c — which records an epoch has, and in which order, once all of them are read:
 * parts of a mixture take turns, and long documents become several records. */
#include "records.h"

#include <math.h>

/* ---- mixtures */

/* Numbers of data_shuffle for the order of parts' records; no epoch comes this far. */
static const int64_t MIXTURE_EPOCHS = INT64_C(1) << 40;

/* The part whose turn it is: that which is furthest behind its weight when t records were given. */
static int whose_turn(const Records *records, int64_t t, double sum) {
    int best = 0;
    double most = -INFINITY;
    for (int i = 0; i < records->n_shares; i++) {
        const Share *share = &records->share[i];
        double behind = share->part->weight / sum * (double)(t + 1) - (double)share->used;
        if (behind > most) {
            most = behind;
            best = i;
        }
    }
    return best;
}

void records_mix(Records *records) {
    const MxDataConfig *config = &records->dataset->config;
    Record *item = mx_new_n(records->arena, Record, records->n ? records->n : 1);
    double sum = 0;
    int64_t n = 0;
    for (int i = 0; i < records->n_shares; i++) sum += records->share[i].part->weight;
    records->tally.n_tokens = records->tally.n_counted = 0;
    for (; n < records->n; n++) {
        int turn = whose_turn(records, n, sum);
        Share *share = &records->share[turn];
        if (share->used == share->n) break;
        int64_t at = share->used++;
        if (config->shuffle) at = data_shuffle(config->seed, MIXTURE_EPOCHS + turn, share->n, at);
        item[n] = records->item[share->first + at];
        for (int i = 0; i < PIECES; i++) records->tally.n_tokens += item[n].n[i];
        records->tally.n_counted += item[n].n_counted;
    }
    records->item = item;
    records->n = n;
}

/* ---- pieces of documents */

/* n tokens of a document, from `from` on: its ids stay where they are. */
static Record piece_of(const Records *records, const Record *whole, int64_t from, int64_t n) {
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    Record piece = {.ids = (const uint8_t *)whole->ids + (size_t)from * id_bytes};
    piece.n[ANSWER] = (int32_t)n;
    return piece;
}

/* The pieces that teach something, at `out` unless it is NULL; their number. */
static int64_t split_one(Records *records, const Record *whole, Record *out) {
    int64_t length = records->dataset->config.length, n = 0;
    for (int64_t from = 0; from < whole->n[ANSWER]; from += length) {
        int64_t left = whole->n[ANSWER] - from;
        Record piece = piece_of(records, whole, from, left < length ? left : length);
        if (!records_teach(records, &piece)) continue;
        if (out) out[n] = piece;
        n++;
    }
    return n;
}

bool records_teach_apart(Records *records, const Record *whole) {
    return split_one(records, whole, NULL) > 0;
}

void records_split(Records *records) {
    int64_t length = records->dataset->config.length, n = 0, most = 0;
    for (int64_t i = 0; i < records->n; i++) most += records->item[i].n[ANSWER] / length + 1;
    Record *item = mx_new_n(records->arena, Record, most);
    for (int64_t i = 0; i < records->n; i++) {
        records->n_split += records->item[i].n[ANSWER] > length;
        n += split_one(records, &records->item[i], item + n);
    }
    records->tally.n_tokens = 0;
    for (int64_t i = 0; i < n; i++) records->tally.n_tokens += item[i].n[ANSWER];
    records->item = item;
    records->n = n;
}
