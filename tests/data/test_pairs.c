/* test_pairs.c — pairs of responses: both masks by hand, prepared pairs in both layouts, and the
 * masks of the real systems. */
#include "data_test.h"

#include "data/source.h"

#include <stdlib.h>

enum { N = 3, S = 6 }; /* pairs and length of the hand-made file */

static const int32_t chosen[N][S] = {{1, 2, 3, 4, 5, 0}, {1, 2, 3, 0, 0, 0}, {7, 8, 9, 0, 0, 0}};
static const int32_t rejected[N][S] = {{1, 2, 6, 4, 0, 0}, {1, 2, 3, 4, 5, 0}, {7, 8, 9, 0, 0, 0}};

/* Pair 0 differs at 2; in pair 1 chosen begins rejected; in pair 2 they are equal. */
static const struct {
    MxDataPairs pairs;
    int32_t chosen[N][S], rejected[N][S];
} masks[] = {
    {MX_DATA_PAIRS_STANDARD,
     {{0, 1, 1, 1, 0, 0}, {0}, {0}},
     {{0, 1, 1, 0, 0, 0}, {0, 0, 1, 1, 0, 0}, {0}}},
    {MX_DATA_PAIRS_MAXTEXT, {{0, 1, 1, 0, 0, 0}, {0}, {0}}, {{0, 1, 1, 0, 0, 0}, {0}, {0}}},
};

static void write_array(MxH5 *file, const char *name, MxShape shape, const int32_t *values) {
    ck_assert(mx_h5_write(file, name, MX_I32, shape, values, &err));
}

/* Segment 1 where there is a token, positions not zeroed on padding, as MaxText's TFDS pipeline. */
static void write_side(MxH5 *file, const char *name, const int32_t tokens[N][S]) {
    int32_t segment[N][S], position[N][S];
    for (int r = 0; r < N; r++)
        for (int t = 0; t < S; t++) {
            segment[r][t] = tokens[r][t] != 0;
            position[r][t] = t;
        }
    MxShape shape = MX_SHAPE(N, S);
    write_array(file, mx_arena_printf(&arena, "%s", name), shape, tokens[0]);
    write_array(file, mx_arena_printf(&arena, "%s_segmentation", name), shape, segment[0]);
    write_array(file, mx_arena_printf(&arena, "%s_position", name), shape, position[0]);
}

static MxH5 *create(void) {
    MxH5 *file;
    ck_assert(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    return file;
}

static MxDataConfig pair_config(const char *path) {
    return (MxDataConfig){.kind = "hdf5",
                          .path = path,
                          .rows = N,
                          .length = S,
                          .vocab = 60,
                          .n_epochs = 1,
                          .pairs = MX_DATA_PAIRS_STANDARD};
}

static MxDataConfig config_of(MxH5 *file, const char *group) {
    ck_assert(mx_h5_close(file, &err));
    return pair_config(mx_arena_printf(&arena, "%s:%s", mx_h5_path(file), group));
}

static MxBatch first_batch(MxDataConfig config) {
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(&config), config.length);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        memset(batch.field[f], 0x55, (size_t)(batch.rows * batch.length) * sizeof(int32_t));
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

START_TEST(whole_pairs) {
    MxH5 *file = create();
    write_side(file, "chosen", chosen);
    write_side(file, "rejected", rejected);
    MxDataConfig config = config_of(file, "");
    config.pairs = masks[_i].pairs;
    MxBatch batch = first_batch(config);
    ck_assert_int_eq(batch.rows, 2 * N);
    for (int r = 0; r < 2 * N; r++) {
        const int32_t *tokens = r < N ? chosen[r] : rejected[r - N];
        const int32_t *counts = r < N ? masks[_i].chosen[r] : masks[_i].rejected[r - N];
        int32_t next[S] = {0};
        memcpy(next, tokens + 1, sizeof next - sizeof next[0]);
        ck_values(batch.field[MX_INPUTS] + r * S, tokens, S);
        ck_values(batch.field[MX_TARGETS] + r * S, next, S);
        ck_values(batch.field[MX_TARGETS_SEGMENTATION] + r * S, counts, S);
    }
    ck_row(batch, MX_INPUTS_POSITION, N, 0, 1, 2, 3, 0, 0);
    ck_row(batch, MX_TARGETS_POSITION, N, 1, 2, 3, 0, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, N, 1, 1, 1, 1, 0, 0);
    const char *warning = mx_data_warning(open_data(config));
    ck_assert_ptr_nonnull(warning);
    const char *words = masks[_i].pairs == MX_DATA_PAIRS_MAXTEXT
                            ? "in 2 of 3 pairs chosen equals rejected or no token counts, first in "
                              "row 1;"
                            : "in 1 of 3 pairs chosen equals rejected or no token counts, first in "
                              "row 2;";
    ck_assert_msg(strstr(warning, words) != NULL, "%s", warning);
}
END_TEST

/* Rows that differ from the first token on count from the second: the first is nobody's target. One
 * that is a token here and padding there is a difference, whatever the padding holds. */
START_TEST(borders_of_masks) {
    int32_t fields[2][MX_BATCH_FIELDS][4] = {{{3, 0, 0, 0}}, {{4, 0, 5, 0}}};
    DataRow pair[2];
    for (int side = 0; side < 2; side++)
        for (int f = 0; f < MX_BATCH_FIELDS; f++) pair[side].field[f] = fields[side][f];
    for (int t = 0; t < 4; t++) {
        fields[0][MX_INPUTS_SEGMENTATION][t] = t < 1;
        fields[1][MX_INPUTS_SEGMENTATION][t] = t < 3;
    }
    MxDataset dataset = {.config = {.pairs = MX_DATA_PAIRS_STANDARD, .length = 4},
                         .lacks_responses = true};
    int64_t n_pairs;
    ck_assert_int_eq(data_pair_finish(&dataset, pair), 0);
    ck_values(pair[0].field[MX_TARGETS_SEGMENTATION], (const int32_t[]){0, 0, 0, 0}, 4);
    ck_values(pair[1].field[MX_TARGETS_SEGMENTATION], (const int32_t[]){1, 1, 0, 0}, 4);
    fields[0][MX_INPUTS][0] = 4; /* now 0 in [1] is a token, and the first difference */
    data_pair_finish(&dataset, pair);
    ck_values(pair[1].field[MX_TARGETS_SEGMENTATION], (const int32_t[]){1, 1, 0, 0}, 4);
    ck_assert_int_eq(data_pair_mute(4, pair, &n_pairs), 0);
    ck_assert_int_eq(n_pairs, 1);
    dataset.lacks_responses = false; /* what the source says of its own tokens moves to targets */
    memcpy(fields[1][MX_TARGETS_SEGMENTATION], (const int32_t[]){0, 0, 1, 0}, 4 * sizeof(int32_t));
    data_pair_finish(&dataset, pair);
    ck_values(pair[1].field[MX_TARGETS_SEGMENTATION], (const int32_t[]){0, 1, 0, 0}, 4);
}
END_TEST

/* Paddings in front and behind are dropped; a mask may have holes. */
START_TEST(split_pairs) {
    static const int32_t ids[3][2][3] = {
        {{0, 1, 2}, {3, 4, 5}}, {{6, 0, 0}, {7, 8, 9}}, {{6, 11, 0}, {12, 0, 13}}};
    static const int32_t mask[3][2][3] = {
        {{0, 1, 1}, {1, 1, 1}}, {{1, 0, 0}, {1, 1, 1}}, {{1, 1, 0}, {1, 0, 1}}};
    static const char *const parts[] = {"prompt", "chosen", "rejected"};
    MxH5 *file = create();
    for (int i = 0; i < 3; i++) {
        write_array(file, mx_arena_printf(&arena, "b/%s_ids", parts[i]), MX_SHAPE(2, 3), ids[i][0]);
        write_array(file, mx_arena_printf(&arena, "b/%s_mask", parts[i]), MX_SHAPE(2, 3),
                    mask[i][0]);
    }
    MxDataConfig config = config_of(file, "b");
    config.rows = 2;
    MxBatch batch = first_batch(config);
    ck_row(batch, MX_INPUTS, 0, 1, 2, 6, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 1, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, 3, 4, 5, 7, 8, 9);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 0, 1, 1, 1, 0);
    ck_row(batch, MX_INPUTS, 2, 1, 2, 6, 11, 0, 0); /* what both begin with counts too */
    ck_row(batch, MX_INPUTS_POSITION, 2, 0, 1, 2, 3, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 2, 0, 1, 1, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 3, 3, 4, 5, 12, 13, 0);
    config.pairs = MX_DATA_PAIRS_MAXTEXT;
    batch = first_batch(config);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 0, 1, 1, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 3, 0, 0, 1, 1, 0, 0);
    config.length = 5;
    ck_refused(config, "prompts of 3 and responses of 3 tokens make rows of 6; max_target_length "
                       "is 5");
}
END_TEST

/* Segments lie in any order, have any numbers, and begin at other places in the two rows; segment 7
 * is the chosen row's alone, and 5 is equal in both. */
START_TEST(packed_whole_pairs) {
    enum { L = 12 };
    static const int32_t tokens[2][2][L] = {
        {{1, 2, 3, 4, 5, 6, 7, 9, 8, 8, 0, 0}, {1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}},
        {{4, 5, 8, 1, 2, 9, 9, 8, 8, 0, 0, 0}, {1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}}};
    static const int32_t segments[2][2][L] = {
        {{1, 1, 1, 3, 3, 3, 3, 7, 5, 5, 0, 0}, {1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
        {{3, 3, 3, 1, 1, 1, 1, 5, 5, 0, 0, 0}, {1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}}};
    static const char *const sides[] = {"chosen", "rejected"};
    MxH5 *file = create();
    for (int i = 0; i < 2; i++) {
        write_array(file, sides[i], MX_SHAPE(2, L), tokens[i][0]);
        write_array(file, mx_arena_printf(&arena, "%s_segmentation", sides[i]), MX_SHAPE(2, L),
                    segments[i][0]);
    }
    MxDataConfig config = config_of(file, "");
    config.rows = 2;
    config.length = L;
    MxBatch batch = first_batch(config);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 2, 2, 2, 2, 0, 3, 3, 0, 0);
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 2, 2, 2, 2, 1, 1, 1, 1, 3, 3, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 2, 0, 2, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    MxDataset *dataset = open_data(config);
    ck_assert(strstr(mx_data_describe(dataset), "[2, 12], 4 pairs, several in a row"));
    const char *warning = mx_data_warning(dataset);
    ck_assert(warning && strstr(warning, "in 1 of 4 pairs chosen equals rejected or no token "
                                         "counts, first in row 0;"));
    ck_assert(strstr(warning, "1 segments, first in row 0, are in one of two responses alone; they "
                              "are left out"));
    config.pairs = MX_DATA_PAIRS_MAXTEXT; /* to which all but the first are padding */
    batch = first_batch(config);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 2, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0);
    ck_assert(strstr(mx_data_describe(open_data(config)), ", 2 pairs") != NULL);
}
END_TEST

/* One response of some pairs, both of another, a few columns of each. */
START_TEST(parts_of_pairs) {
    static const int64_t rows[] = {0, 2, N + 1, N + 2};
    MxBatchPart part = {.row = rows, .rows = 4, .of_rows = 2 * N, .column = 1, .length = S - 2};
    MxDataConfig config = pair_config(NULL);
    config.kind = "synthetic";
    MxBatch whole = first_batch(config), batch = mx_batch_new_part(&arena, &part);
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_batch(dataset, 0, &batch, &err), MX_DATA_OK);
    ck_assert_int_eq(mx_data_rows_made(dataset), 4);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int r = 0; r < 4; r++)
            ck_values(batch.field[f] + r * (S - 2), whole.field[f] + rows[r] * S + 1, S - 2);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(mx_batch_row(&part, rows[r]), r);
    ck_assert_int_eq(mx_batch_row(&whole.part, 3), 3);
}
END_TEST

START_TEST(synthetic_pairs) {
    MxDataConfig config = pair_config(NULL);
    config.kind = "synthetic";
    MxBatch batch = first_batch(config);
    for (int r = 0; r < N; r++) {
        const int32_t *a = batch.field[MX_INPUTS] + r * S, *b = a + N * S;
        ck_assert(!memcmp(a, b, S / 2 * sizeof *a) && memcmp(a + S / 2, b + S / 2, 3 * sizeof *a));
        ck_row(batch, MX_TARGETS_SEGMENTATION, r, 0, 0, 1, 1, 1, 0);
        ck_row(batch, MX_TARGETS_SEGMENTATION, N + r, 0, 0, 1, 1, 1, 0);
    }
}
END_TEST

START_TEST(refuses) {
    MxH5 *file = create();
    int32_t zeros[N * S] = {0};
    static const int32_t ones[6] = {1, 1, 1, 1, 1, 1};
    write_side(file, "chosen", chosen);
    write_side(file, "rejected", rejected);
    write_side(file, "same/chosen", chosen);
    write_side(file, "same/rejected", chosen);
    write_array(file, "half/chosen", MX_SHAPE(N, S), chosen[0]);
    write_array(file, "half/chosen_segmentation", MX_SHAPE(N, S), zeros);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "many/rejected" : "many/chosen"; /* its tokens, as segments too */
        write_array(file, name, MX_SHAPE(N, S), chosen[0]);
        name = i ? "many/rejected_segmentation" : "many/chosen_segmentation";
        write_array(file, name, MX_SHAPE(N, S), chosen[0]);
    }
    write_array(file, "bare/chosen", MX_SHAPE(N, S), chosen[0]);
    write_array(file, "short/chosen", MX_SHAPE(N * S / 2, 2), chosen[0]);
    write_array(file, "short/chosen_segmentation", MX_SHAPE(N * S / 2, 2), chosen[0]);
    static const char *const parts[] = {"prompt", "chosen", "rejected"};
    for (int i = 0; i < 3; i++) {
        write_array(file, mx_arena_printf(&arena, "twin/%s_ids", parts[i]), MX_SHAPE(2, 3), ones);
        write_array(file, mx_arena_printf(&arena, "twin/%s_mask", parts[i]), MX_SHAPE(2, 3), ones);
    }
    write_array(file, "batch/inputs", MX_SHAPE(N, S), zeros);
    MxDataConfig config = config_of(file, ""), other = config;
    static const struct {
        const char *group, *words;
    } cases[] = {
        {"same", "no pair to learn from: in all 3 of them chosen equals rejected or no token"},
        {"twin", "no pair to learn from: in all 2 of them chosen equals rejected or no token"},
        {"half", "\"half/rejected\": there is none"},
        {"many", "\"many/chosen_segmentation\", row 2, column 0: segment 7, wanted 0 … 6"},
        {"bare", "\"bare/chosen_segmentation\": there is none"},
        {"short", "\"short/chosen\" has shape [9, 2], rows of 2; max_target_length is 6"},
        {"batch", "group \"batch\" has neither \"chosen\" nor \"chosen_ids\""},
    };
    for (int i = 0; i < MX_COUNT(cases); i++) {
        other.path = mx_arena_printf(&arena, "%s:%s", in_folder("a.h5"), cases[i].group);
        ck_refused(other, cases[i].words);
    }
    other = config;
    other.vocab = 9;
    ck_refused(other, "\"chosen\", row 2, column 2: token 9, wanted 0 … 8");
    other = config;
    other.rows = 4;
    ck_refused(other, "3 pairs; a batch needs 4 pairs");
    other = config;
    other.pairs = MX_DATA_NO_PAIRS;
    ck_refused(other, "hint: these are pairs of responses; use_dpo=true trains on them");
    other = text_config(put("a.txt", "abcdefgh"));
    other.pairs = MX_DATA_PAIRS_STANDARD;
    ck_refused(other, "pairs of responses are wanted; data of kind \"text\" has none");
}
END_TEST

/* ---- values of the real systems */

/* The mask that MaxText's loss used, and rows whose second segment is dropped. */
START_TEST(equals_maxtext) {
    enum { PAIRS = 4, LENGTH = 24 };
    const char *path = goldens_find(&arena, "train/dpo_loss.h5");
    if (!path) return;
    MxDataConfig config = pair_config(mx_arena_printf(&arena, "%s:batch", path));
    config.rows = PAIRS;
    config.length = LENGTH;
    config.vocab = 128;
    config.pairs = MX_DATA_PAIRS_MAXTEXT;
    MxBatch batch = first_batch(config);
    MxH5 *file;
    int32_t mask[PAIRS][LENGTH - 1], segments[PAIRS][LENGTH], n_dropped = 0;
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    ck_assert(mx_h5_read(file, "derived/valid_seq_mask", MX_I32, MX_SHAPE(PAIRS, LENGTH - 1), mask,
                         &err));
    ck_assert(mx_h5_read(file, "batch/chosen_segmentation", MX_I32, MX_SHAPE(PAIRS, LENGTH),
                         segments, &err));
    for (int r = 0; r < PAIRS; r++) {
        for (int half = 0; half < 2; half++)
            ck_values(batch.field[MX_TARGETS_SEGMENTATION] + (half * PAIRS + r) * LENGTH, mask[r],
                      LENGTH - 1);
        for (int t = 0; t < LENGTH; t++) {
            int32_t at = r * LENGTH + t, is_first = segments[r][t] == 1;
            n_dropped += segments[r][t] > 1;
            ck_assert_int_eq(batch.field[MX_INPUTS_SEGMENTATION][at], is_first);
            ck_assert_int_eq(batch.field[MX_INPUTS_POSITION][at], is_first ? t : 0);
        }
    }
    ck_assert_int_gt(n_dropped, 0);
}
END_TEST

/* Tunix pads prompts in front, we drop the padding: row by row the same tokens count, in order, and
 * lie at the same distances. */
START_TEST(equals_tunix) {
    enum { PAIRS = 3, P = 8, R = 16, LENGTH = P + R };
    const char *path = goldens_find(&arena, "train/tunix_dpo.h5");
    if (!path) return;
    MxDataConfig config = pair_config(mx_arena_printf(&arena, "%s:batch", path));
    config.rows = PAIRS;
    config.length = LENGTH;
    config.vocab = 128;
    MxBatch batch = first_batch(config);
    MxH5 *file;
    int32_t mask[2 * PAIRS][R], ids[2 * PAIRS][LENGTH], position[2 * PAIRS][LENGTH];
    MxShape shape = MX_SHAPE(2 * PAIRS, LENGTH);
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    ck_assert(
        mx_h5_read(file, "prepared/completion_mask", MX_I32, MX_SHAPE(2 * PAIRS, R), mask, &err));
    ck_assert(mx_h5_read(file, "prepared/input_ids", MX_I32, shape, ids, &err));
    ck_assert(mx_h5_read(file, "prepared/positions", MX_I32, shape, position, &err));
    for (int r = 0; r < 2 * PAIRS; r++) {
        const int32_t *counts = batch.field[MX_TARGETS_SEGMENTATION] + r * LENGTH;
        int at = 0;
        for (int k = 0; k < R; k++) {
            if (!mask[r][k]) continue;
            while (at < LENGTH && !counts[at]) at++;
            ck_assert_int_lt(at, LENGTH);
            ck_assert_int_eq(batch.field[MX_TARGETS][r * LENGTH + at], ids[r][P + k]);
            ck_assert_int_eq(batch.field[MX_TARGETS_POSITION][r * LENGTH + at], position[r][P + k]);
            at++;
        }
        while (at < LENGTH) ck_assert_int_eq(counts[at++], 0);
    }
}
END_TEST

Suite *pairs_suite(void) {
    Suite *suite = suite_create("data: pairs");
    TCase *tests = tcase_create("pairs");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, whole_pairs, 0, MX_COUNT(masks));
    tcase_add_test(tests, borders_of_masks);
    tcase_add_test(tests, split_pairs);
    tcase_add_test(tests, packed_whole_pairs);
    tcase_add_test(tests, parts_of_pairs);
    tcase_add_test(tests, synthetic_pairs);
    tcase_add_test(tests, refuses);
    tcase_add_test(tests, equals_maxtext);
    tcase_add_test(tests, equals_tunix);
    suite_add_tcase(suite, tests);
    return suite;
}
