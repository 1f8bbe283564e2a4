/* pair.c — what of a pair of responses counts: the two masks of dpo.formula. The rows themselves
 * come from each kind of dataset. */
#include "source.h"

/* Whether the two rows differ at a token; padding differs from every token. */
static bool differ(const DataRow pair[2], int64_t t) {
    return pair[0].field[MX_INPUTS][t] != pair[1].field[MX_INPUTS][t] ||
           pair[0].field[MX_INPUTS_SEGMENTATION][t] != pair[1].field[MX_INPUTS_SEGMENTATION][t];
}

/* Each response from its own beginning, as far as it goes. */
static void count_standard(int64_t length, const int64_t start[2], const DataRow pair[2]) {
    int64_t first = 0;
    while (first < length && !differ(pair, first)) first++;
    for (int side = 0; side < 2; side++) {
        int64_t from = start ? start[side] : first;
        for (int64_t t = 1; t < length; t++)
            pair[side].field[MX_TARGETS_SEGMENTATION][t - 1] =
                t >= from && pair[side].field[MX_INPUTS_SEGMENTATION][t];
    }
}

/* Both from the first difference on, as far as both go. The first tokens are not looked at, since
 * they are nobody's targets. */
static void count_maxtext(int64_t length, const DataRow pair[2]) {
    bool is_prefix = true;
    for (int64_t t = 1; t < length; t++) {
        is_prefix = is_prefix && pair[0].field[MX_INPUTS][t] == pair[1].field[MX_INPUTS][t];
        bool counts = !is_prefix && pair[0].field[MX_INPUTS_SEGMENTATION][t] &&
                      pair[1].field[MX_INPUTS_SEGMENTATION][t];
        for (int side = 0; side < 2; side++)
            pair[side].field[MX_TARGETS_SEGMENTATION][t - 1] = counts;
    }
}

void data_pair_targets(MxDataPairs pairs, int64_t length, const int64_t start[2],
                       const DataRow pair[2]) {
    static const MxBatchField moved[][2] = {{MX_TARGETS, MX_INPUTS},
                                            {MX_TARGETS_POSITION, MX_INPUTS_POSITION}};
    for (int side = 0; side < 2; side++) {
        int32_t *const *field = pair[side].field;
        for (int i = 0; i < MX_COUNT(moved); i++) {
            memcpy(field[moved[i][0]], field[moved[i][1]] + 1,
                   (size_t)(length - 1) * sizeof(int32_t));
            field[moved[i][0]][length - 1] = 0;
        }
        field[MX_TARGETS_SEGMENTATION][length - 1] = 0;
    }
    if (pairs == MX_DATA_PAIRS_MAXTEXT)
        count_maxtext(length, pair);
    else
        count_standard(length, start, pair);
}

bool data_pair_teaches(int64_t length, const DataRow pair[2]) {
    bool has_difference = false, has_target = false;
    for (int64_t t = 0; t < length; t++) {
        has_difference = has_difference || differ(pair, t);
        for (int side = 0; side < 2; side++)
            has_target = has_target || pair[side].field[MX_TARGETS_SEGMENTATION][t];
    }
    return has_difference && has_target;
}
