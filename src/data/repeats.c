/* repeats.c — spans of a row that repeat a short sequence of tokens many times, which pre-training
 * leaves out: they teach nothing but to go on. Source: OLMo-core data/utils.py
 * (find_periodic_sequences), as MaxText input_pipeline/olmo_data.py @e591f30c has it, where the
 * first line of a period is compared with the last one. */
#include "source.h"

enum { LONGEST_PERIOD = 13, MOST_TIMES = 32 };

/* A row of tokens in lines of one period. */
typedef struct Lines {
    const int32_t *tokens;
    int64_t n, period, lines; /* the last line may be shorter */
} Lines;

/* Whether a token is that of the line before. What lies behind the end equals nothing but itself.
 */
static bool is_again(const Lines *l, int64_t line, int64_t column) {
    int64_t at = line * l->period + column;
    int64_t before = (line ? line - 1 : l->lines - 1) * l->period + column;
    return at < l->n && before < l->n && l->tokens[at] == l->tokens[before];
}

/* How many columns repeat, from the first on; a line that has all of them is whole. */
static int64_t count_first(const Lines *l, int64_t line) {
    int64_t column = 0;
    while (column < l->period && is_again(l, line, column)) column++;
    return column;
}

/* How many repeat up to the last column; 0 if all do. */
static int64_t count_last(const Lines *l, int64_t line) {
    int64_t n = 0;
    while (n < l->period && is_again(l, line, l->period - 1 - n)) n++;
    return n < l->period ? n : 0;
}

/* Whether lines that repeat the one before lie together long enough, with the parts of lines around
 * them. */
static bool has_span(const Lines *l) {
    for (int64_t line = 0; line < l->lines; line++) {
        int64_t first = line;
        while (line < l->lines && count_first(l, line) == l->period) line++;
        if (line == first) continue;
        int64_t behind = count_first(l, line % l->lines);
        int64_t start = (first - 1) * l->period - count_last(l, first ? first - 1 : l->lines - 1);
        if ((line * l->period + behind - start) / l->period >= MOST_TIMES) return true;
    }
    return false;
}

bool data_repeats(const int32_t *tokens, int64_t n) {
    for (int64_t period = 1; period <= LONGEST_PERIOD && period <= n / 3; period++) {
        const Lines lines = {tokens, n, period, (n + period - 1) / period};
        if (has_span(&lines)) return true;
    }
    return false;
}
