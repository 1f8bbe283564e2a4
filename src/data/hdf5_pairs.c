/* hdf5_pairs.c — pairs of responses that somebody prepared, in one of two layouts:
 *   whole  chosen, rejected [rows, length] with *_position and *_segmentation: prompt and response
 *          in one row, perhaps several of them, each a segment. To MaxText's loss all but the first
 *          are padding.
 *   split  prompt_ids, chosen_ids, rejected_ids with *_mask: prompts padded in front, responses
 *          behind. Both paddings are dropped and the pieces joined: only distances between
 * positions matter to the model, and padding is seen by no token. Sources: MaxText dpo_utils.py,
 * dpo_loss_fn @4bcec6af (whole), DPODataFormatting @e591f30c (split). */
#include "hdf5.h"

enum { CHOSEN, REJECTED, PROMPT, PARTS };

static const char *const parts[PARTS] = {"chosen", "rejected", "prompt"};

typedef struct PairFile {
    MxH5 *file;
    bool is_split;
    Hdf5Column tokens[PARTS], position[PARTS], mask[PARTS]; /* mask: segmentation, or 1 and 0 */
} PairFile;

static const char *path_of(MxArena *arena, const char *group, int part, const char *suffix) {
    return mx_path_join(arena, group, mx_arena_printf(arena, "%s%s", parts[part], suffix));
}

/* Tokens of a part and its mask, of equal shape. */
static bool find_part(MxArena *arena, PairFile *pairs, const char *group, int part, MxError *err) {
    const char *const suffixes[] = {pairs->is_split ? "_ids" : "",
                                    pairs->is_split ? "_mask" : "_segmentation"};
    Hdf5Column *tokens = &pairs->tokens[part], *mask = &pairs->mask[part];
    return hdf5_column(pairs->file, path_of(arena, group, part, suffixes[0]), HDF5_TOKEN, tokens,
                       err) &&
           hdf5_column(pairs->file, path_of(arena, group, part, suffixes[1]), HDF5_SEGMENT, mask,
                       err) &&
           hdf5_check_like(mask, tokens, err);
}

static bool find_whole(MxArena *arena, PairFile *pairs, const char *group, int64_t length,
                       MxError *err) {
    for (int part = CHOSEN; part <= REJECTED; part++) {
        Hdf5Column *tokens = &pairs->tokens[part];
        const char *path = path_of(arena, group, part, "_position");
        if (!find_part(arena, pairs, group, part, err) || !hdf5_check_width(tokens, length, err) ||
            !hdf5_check_like(tokens, &pairs->tokens[CHOSEN], err))
            return false;
        if (mx_h5_has_array(pairs->file, path) &&
            (!hdf5_column(pairs->file, path, HDF5_POSITION, &pairs->position[part], err) ||
             !hdf5_check_like(&pairs->position[part], tokens, err)))
            return false;
    }
    return true;
}

static bool find_split(MxArena *arena, PairFile *pairs, const char *group, int64_t length,
                       MxError *err) {
    for (int part = 0; part < PARTS; part++)
        if (!find_part(arena, pairs, group, part, err)) return false;
    const Hdf5Column *prompt = &pairs->tokens[PROMPT], *chosen = &pairs->tokens[CHOSEN];
    if (!hdf5_check_like(&pairs->tokens[REJECTED], chosen, err)) return false;
    MxWhere where = {.file = mx_h5_path(pairs->file)};
    int64_t width = hdf5_width(prompt) + hdf5_width(chosen);
    if (hdf5_rows(prompt) != hdf5_rows(chosen))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "dataset \"%s\" has %lld rows, \"%s\" has %lld", prompt->path,
                       (long long)hdf5_rows(prompt), chosen->path, (long long)hdf5_rows(chosen));
    return width <= length ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "prompts of %lld and responses of %lld tokens make rows of %lld; "
                   "max_target_length is %lld",
                   (long long)hdf5_width(prompt), (long long)hdf5_width(chosen), (long long)width,
                   (long long)length);
}

/* ---- rows */

static bool read_part(MxDataset *dataset, int part, int64_t row, int32_t *mask, int32_t *tokens,
                      MxError *err) {
    PairFile *pairs = dataset->source;
    return hdf5_row(dataset, &pairs->mask[part], row, NULL, mask, err) &&
           hdf5_row(dataset, &pairs->tokens[part], row, mask, tokens, err);
}

/* 0, 1, … from where each segment begins. */
static void count_positions(const int32_t *segment, int64_t length, int32_t *position) {
    for (int64_t t = 0; t < length; t++)
        position[t] = t && segment[t] == segment[t - 1] ? position[t - 1] + 1 : 0;
}

static bool whole_side(MxDataset *dataset, int side, int64_t row, const DataRow *out,
                       MxError *err) {
    PairFile *pairs = dataset->source;
    const MxDataConfig *config = &dataset->config;
    int32_t *segment = out->field[MX_INPUTS_SEGMENTATION];
    int32_t *position = out->field[MX_INPUTS_POSITION];
    if (!read_part(dataset, side, row, segment, out->field[MX_INPUTS], err)) return false;
    for (int64_t t = 0; t < config->length && config->pairs == MX_DATA_PAIRS_MAXTEXT; t++)
        segment[t] = segment[t] == 1;
    if (!pairs->position[side].path)
        count_positions(segment, config->length, position);
    else if (!hdf5_row(dataset, &pairs->position[side], row, NULL, position, err))
        return false;
    for (int64_t t = 0; t < config->length; t++)
        if (!segment[t]) position[t] = 0;
    return true;
}

/* Appends the real tokens of a part to a row that has n; gives how many it has then, -1 on error.
 */
static int64_t append_part(MxDataset *dataset, int part, int64_t row, int64_t n, const DataRow *out,
                           MxError *err) {
    PairFile *pairs = dataset->source;
    const DataScratch *read = &dataset->scratch;
    if (!read_part(dataset, part, row, read->mask, read->tokens, err)) return -1;
    for (int64_t t = 0; t < hdf5_width(&pairs->tokens[part]); t++) {
        if (!read->mask[t]) continue;
        out->field[MX_INPUTS][n] = read->tokens[t];
        out->field[MX_INPUTS_POSITION][n] = (int32_t)n;
        out->field[MX_INPUTS_SEGMENTATION][n] = 1;
        out->field[MX_TARGETS_SEGMENTATION][n] = n > 0 && part != PROMPT;
        n++;
    }
    return n;
}

static bool split_side(MxDataset *dataset, int side, int64_t row, const DataRow *out,
                       MxError *err) {
    size_t bytes = (size_t)dataset->config.length * sizeof(int32_t);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) memset(out->field[f], 0, bytes);
    int64_t prompt = append_part(dataset, PROMPT, row, 0, out, err);
    return prompt >= 0 && append_part(dataset, side, row, prompt, out, err) >= 0;
}

bool hdf5_pair_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err) {
    const PairFile *pairs = dataset->source;
    return (pairs->is_split ? split_side : whole_side)(dataset, side, row, out, err);
}

/* ---- opening */

/* What was seen of all pairs. */
typedef struct Seen {
    int64_t n_pairs, n_mute, n_alone; /* alone: segments that one row of two has */
    int64_t first_mute, first_alone;  /* their rows */
} Seen;

static bool look_at(MxDataset *dataset, int64_t row, Seen *seen, MxError *err) {
    int64_t n_pairs;
    for (int side = CHOSEN; side <= REJECTED; side++)
        if (!hdf5_pair_side(dataset, row, side, &dataset->spare[side], err)) return false;
    int64_t n_alone = data_pair_finish(dataset, dataset->spare);
    int64_t n_mute = data_pair_mute(dataset->config.length, dataset->spare, &n_pairs);
    if (n_mute && !seen->n_mute) seen->first_mute = row;
    if (n_alone && !seen->n_alone) seen->first_alone = row;
    seen->n_pairs += n_pairs;
    seen->n_mute += n_mute;
    seen->n_alone += n_alone;
    return true;
}

static void warn(MxArena *arena, MxDataset *dataset, const Seen *seen) {
    MxText text;
    const char *path = dataset->config.path;
    mx_text_init(&text, arena);
    if (seen->n_mute)
        mx_text_add(&text,
                    "%s: in %lld of %lld pairs chosen equals rejected or no token counts, first in "
                    "row %lld; they teach nothing",
                    path, (long long)seen->n_mute, (long long)seen->n_pairs,
                    (long long)seen->first_mute);
    if (seen->n_alone)
        mx_text_add(&text,
                    "%s%s: %lld segments, first in row %lld, are in one of two responses alone; "
                    "they are left out",
                    text.len ? "; " : "", path, (long long)seen->n_alone,
                    (long long)seen->first_alone);
    if (text.len) dataset->warning = text.data;
}

/* Reads all pairs once: a bad value is told before training, and pairs that cannot teach are
 * counted. */
static bool look_through(MxArena *arena, MxDataset *dataset, Seen *seen, MxError *err) {
    for (int64_t row = 0; row < dataset->n_rows; row++)
        if (!look_at(dataset, row, seen, err)) return false;
    warn(arena, dataset, seen);
    return seen->n_mute < seen->n_pairs || !dataset->n_rows ||
           mx_fail(err, MX_EXIT_BAD_INPUT, dataset->config.where,
                   "%s: no pair to learn from: in all %lld of them chosen equals rejected or no "
                   "token counts",
                   dataset->config.path, (long long)seen->n_mute);
}

bool hdf5_pairs_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    PairFile *pairs = mx_new(arena, PairFile);
    char *group;
    if (!hdf5_open_group(arena, dataset, &pairs->file, &group, err)) return false;
    pairs->is_split = mx_h5_has_array(pairs->file, path_of(arena, group, CHOSEN, "_ids"));
    if (!pairs->is_split && !mx_h5_has_array(pairs->file, path_of(arena, group, CHOSEN, "")))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_h5_path(pairs->file)},
                       "group \"%s\" has neither \"chosen\" nor \"chosen_ids\", so no pairs of "
                       "responses",
                       group);
    if (pairs->is_split ? !find_split(arena, pairs, group, config->length, err)
                        : !find_whole(arena, pairs, group, config->length, err))
        return false;
    if (!hdf5_keep(arena, pairs->tokens, PARTS, err) ||
        !hdf5_keep(arena, pairs->mask, PARTS, err) ||
        !hdf5_keep(arena, pairs->position, PARTS, err))
        return false;
    const Hdf5Column *chosen = &pairs->tokens[CHOSEN];
    dataset->source = pairs;
    dataset->n_rows = hdf5_rows(chosen);
    dataset->lacks_responses = !pairs->is_split;
    Seen seen = {0};
    if (!look_through(arena, dataset, &seen, err)) return false;
    bool is_packed = seen.n_pairs > dataset->n_rows;
    if (is_packed) dataset->unit = "rows of pairs";
    dataset->description =
        mx_arena_printf(arena, "hdf5: %s, %s, %lld pairs%s", config->path,
                        mx_shape_text(arena, chosen->array.shape), (long long)seen.n_pairs,
                        is_packed ? ", several in a row" : "");
    return true;
}
