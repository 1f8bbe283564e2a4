/* test_blocks.c — rows for block diffusion: which tokens are masked, what is to be told and where,
 * by MaxText's rules (diffusion/block_diffusion/corruption.py), beside the rows as they were. */
#include "data_test.h"

enum { LENGTH = 22, BLOCK = 5, MASK = 259, ROWS = 4 };

/* Lines of many lengths, one a row. */
static MxDataConfig lines_config(bool shifts) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < 40; i++)
        mx_text_add(&text, "{\"text\": \"%.*s\"}\n", 1 + i % 24, "the quick brown fox jumps over");
    MxDataConfig config = text_config(put("a.jsonl", text.data));
    config.kind = "hf";
    config.rows = ROWS;
    config.length = LENGTH;
    config.packing = false;
    config.n_epochs = 0;
    config.blocks = (MxDataBlocks){
        .size = BLOCK, .mask = MASK, .min_noise = 0.001, .keeps_first = shifts, .shifts = shifts};
    return config;
}

static MxDataset *clean_of(MxDataConfig config) {
    config.blocks.size = 0;
    return open_data(config);
}

static MxBatch made_at(MxDataset *dataset, int64_t step) {
    MxBatch batch = mx_batch_new(&arena, ROWS, LENGTH);
    ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    return batch;
}

/* What is true of tokens [first, end) of a row, a block; counts what is masked. */
static void check_block(const MxBatch *made, const MxBatch *clean, int64_t first, int64_t end,
                        bool shifts, int64_t counts[2]) {
    int64_t n_real = 0, n_masked = 0, row = first / LENGTH * LENGTH;
    for (int64_t i = first; i < end; i++) {
        int32_t is = made->field[MX_INPUTS][i], was = clean->field[MX_INPUTS][i];
        bool is_real = clean->field[MX_INPUTS_SEGMENTATION][i] != 0, is_masked = is == MASK;
        bool is_seed = shifts && (i - row) % BLOCK == 0;
        ck_assert(is_masked || is == was);
        ck_assert(!is_masked || (is_real && !is_seed));
        bool is_told = is_masked || (is_seed && is_real && i > row);
        int64_t at = i - shifts;
        if (at >= row) {
            ck_assert_int_eq(made->field[MX_TARGETS_SEGMENTATION][at] != 0, is_told);
            if (is_told) ck_assert_int_eq(made->field[MX_TARGETS][at], was);
        }
        n_real += is_real && !is_seed;
        n_masked += is_masked;
    }
    ck_assert(!n_real || n_masked > 0);
    counts[0] += n_masked;
    counts[1] += n_real;
}

START_TEST(blocks_have_their_targets) {
    MxDataConfig config = lines_config(_i);
    MxDataset *dataset = open_data(config), *plain = clean_of(config);
    int64_t counts[2] = {0};
    for (int64_t step = 0; step < 100; step++) {
        MxBatch made = made_at(dataset, step), clean = made_at(plain, step);
        for (int64_t row = 0; row < ROWS; row++)
            for (int64_t p = 0; p < LENGTH; p += BLOCK) {
                int64_t end = p + BLOCK < LENGTH ? p + BLOCK : LENGTH;
                check_block(&made, &clean, row * LENGTH + p, row * LENGTH + end, _i, counts);
            }
        ck_assert(!_i || !made.field[MX_TARGETS_SEGMENTATION][LENGTH - 1]);
    }
    /* The mean of a share that is drawn from 0 to 1, and one token where that left none: of n
     * tokens 1/(n + 1) of the blocks. */
    double share = (double)counts[0] / (double)counts[1];
    ck_assert_msg(share > 0.5 && share < 0.66, "%g of %lld", share, (long long)counts[1]);
}
END_TEST

START_TEST(all_can_be_masked) {
    MxDataConfig config = lines_config(false);
    config.blocks.min_noise = 1;
    MxBatch made = made_at(open_data(config), 3);
    for (int64_t i = 0; i < ROWS * LENGTH; i++)
        ck_assert_int_eq(made.field[MX_INPUTS][i] == MASK,
                         made.field[MX_INPUTS_SEGMENTATION][i] != 0);
}
END_TEST

static bool same(const MxBatch *a, const MxBatch *b) {
    size_t bytes = (size_t)(a->rows * a->length) * sizeof(int32_t);
    return !memcmp(a->field[MX_INPUTS], b->field[MX_INPUTS], bytes) &&
           !memcmp(a->field[MX_TARGETS_SEGMENTATION], b->field[MX_TARGETS_SEGMENTATION], bytes);
}

/* A step is the same whenever it is made; an epoch later its lines are masked otherwise. Ranks make
 * the rows and columns that they have. */
START_TEST(draws_depend_on_the_step) {
    MxDataConfig config = lines_config(_i);
    config.shuffle = false;
    MxDataset *dataset = open_data(config);
    MxBatch first = made_at(dataset, 7), other = made_at(dataset, 17);
    MxBatch again = made_at(open_data(config), 7);
    ck_assert(same(&first, &again) && !same(&first, &other));
    const int64_t rows[] = {1, 3};
    const MxBatchPart part = {.row = rows, .rows = 2, .of_rows = ROWS, .column = 4, .length = 9};
    MxBatch some = mx_batch_new_part(&arena, &part);
    ck_assert_int_eq(mx_data_batch(dataset, 7, &some, &err), MX_DATA_OK);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int64_t r = 0; r < part.rows; r++)
            ck_values(some.field[f] + r * part.length, first.field[f] + rows[r] * LENGTH + 4, 9);
}
END_TEST

Suite *blocks_suite(void) {
    Suite *suite = suite_create("blocks");
    TCase *tcase = tcase_create("rows");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, blocks_have_their_targets, 0, 2);
    tcase_add_test(tcase, all_can_be_masked);
    tcase_add_loop_test(tcase, draws_depend_on_the_step, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
