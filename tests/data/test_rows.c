/* test_rows.c — documents into rows: masks, shifts and first-fit packing, by hand and against the
 * batches that MaxText made of the same tokens. */
#include "data_test.h"

#include "data/rows.h"

#include <stdlib.h>

enum { LENGTH = 6 };

static DataRow new_row(int64_t length) {
    DataRow row;
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        row.field[f] = mx_new_n(&arena, int32_t, length);
        memset(row.field[f], 0x55, (size_t)length * sizeof(int32_t));
    }
    return row;
}

#define ck_field(row, f, ...) ck_values((row).field[f], (const int32_t[]){__VA_ARGS__}, LENGTH)

/* Two documents, the second longer than what is left: prompt 7 8, answer 9 | 1, 2 3 4 5. */
START_TEST(masks_and_shifts) {
    DataRow row = new_row(LENGTH);
    RowFill fill = rows_begin(&row, LENGTH);
    rows_document(&fill);
    rows_add(&fill, (const int32_t[]){7, 8}, 2, false);
    rows_add(&fill, (const int32_t[]){9}, 1, true);
    rows_document(&fill);
    rows_add(&fill, (const int32_t[]){1}, 1, false);
    rows_add(&fill, (const int32_t[]){2, 3, 4, 5}, 4, true);
    rows_end(&fill);
    ck_field(row, MX_INPUTS, 7, 8, 9, 1, 2, 3);
    ck_field(row, MX_INPUTS_POSITION, 0, 1, 2, 0, 1, 2);
    ck_field(row, MX_INPUTS_SEGMENTATION, 1, 1, 1, 2, 2, 2);
    ck_field(row, MX_TARGETS, 0, 9, 0, 2, 3, 0);
    ck_field(row, MX_TARGETS_POSITION, 0, 1, 2, 0, 1, 2);
    ck_field(row, MX_TARGETS_SEGMENTATION, 0, 1, 0, 2, 2, 0);
}
END_TEST

/* A first token that counts is a target of the document before it, as in MaxText. */
START_TEST(first_tokens_may_count) {
    DataRow row = new_row(LENGTH);
    RowFill fill = rows_begin(&row, LENGTH);
    for (int document = 0; document < 2; document++) {
        rows_document(&fill);
        rows_add(&fill, (const int32_t[]){5, 6}, 2, true);
    }
    rows_end(&fill);
    ck_field(row, MX_TARGETS, 6, 5, 6, 0, 0, 0);
    ck_field(row, MX_TARGETS_SEGMENTATION, 1, 2, 2, 0, 0, 0);
    ck_field(row, MX_INPUTS_SEGMENTATION, 1, 1, 2, 2, 0, 0);
}
END_TEST

static const struct {
    int32_t lengths[12];
    int64_t n, bins, max_segments;
    int sides;
    int64_t row[8];
} packings[] = {
    {{4, 4, 2, 2, 6}, 5, 2, 0, 1, {0, 1, 0, 1, 2}}, /* the second gap is filled; 6 closes both */
    {{4, 4, 2, 2, 6}, 5, 3, 0, 1, {0, 1, 0, 1, 2}}, /* room for a third row */
    {{5, 3, 1, 3, 6, 1}, 6, 2, 0, 1, {0, 1, 0, 1, 2, 3}}, /* 6 fills its row: 1 opens another */
    {{1, 1, 1, 1, 1}, 5, 2, 2, 1, {0, 0, 1, 1, 2}},       /* at most two a row */
    {{6, 6, 6}, 3, 1, 0, 1, {0, 1, 2}},
    {{1, 2, 3}, 3, 4, -1, 1, {0, 0, 0}},
    /* either side may be the one that does not fit */
    {{3, 1, 1, 4, 1, 6, 4, 1, 1, 1, 2, 1}, 6, 3, 0, 2, {0, 0, 1, 2, 0, 2}},
};

START_TEST(packs_first_fit) {
    int64_t n = packings[_i].n, n_rows = 0;
    const RowLimits limits = {.length = LENGTH,
                              .bins = packings[_i].bins,
                              .max_segments = packings[_i].max_segments,
                              .sides = packings[_i].sides};
    RowPacking packing = rows_pack(&arena, packings[_i].lengths, n, &limits);
    for (int64_t i = 0; i < n; i++)
        if (packings[_i].row[i] >= n_rows) n_rows = packings[_i].row[i] + 1;
    ck_assert_int_eq(packing.n_rows, n_rows);
    ck_assert_int_eq(packing.first[0], 0);
    ck_assert_int_eq(packing.first[n_rows], n);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t k = packing.first[r]; k < packing.first[r + 1]; k++) {
            ck_assert_int_eq(packings[_i].row[packing.document[k]], r);
            ck_assert(k == packing.first[r] || packing.document[k - 1] < packing.document[k]);
        }
}
END_TEST

/* ---- MaxText's own batches: golden/train/sft.h5 */

enum { RECORDS = 9, PARTS = 4, PART = 8, ROWS = 4, WIDTH = 24 };

static const char *const goldens[] = {"completion_only/unpacked", "completion_only/packed",
                                      "all_tokens/unpacked", "all_tokens/packed"};

static int64_t part_tokens(const int32_t *part) {
    int64_t n = 0;
    while (n < PART && part[n] >= 0) n++;
    return n;
}

/* Parts are prompts and completions in turn. */
static void add_record(RowFill *fill, const int32_t record[PARTS][PART], bool completion_only) {
    rows_document(fill);
    for (int p = 0; p < PARTS; p++)
        rows_add(fill, record[p], part_tokens(record[p]), p % 2 || !completion_only);
}

START_TEST(equals_maxtext) {
    char *path = goldens_find(&arena, "train/sft.h5");
    if (!path) return;
    MxH5 *file;
    int32_t records[RECORDS][PARTS][PART], lengths[RECORDS] = {0};
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    ck_assert(
        mx_h5_read(file, "records/tokens", MX_I32, MX_SHAPE(RECORDS, PARTS, PART), records, &err));
    bool completion_only = strstr(goldens[_i], "completion"), packs = !strstr(goldens[_i], "unp");
    for (int i = 0; i < RECORDS; i++)
        for (int p = 0; p < PARTS; p++) lengths[i] += (int32_t)part_tokens(records[i][p]);
    const RowLimits limits = {
        .length = WIDTH, .bins = packs ? ROWS : 1, .max_segments = !packs, .sides = 1};
    RowPacking packing = rows_pack(&arena, lengths, RECORDS, &limits);
    for (int r = 0; r < ROWS; r++) {
        DataRow row = new_row(WIDTH);
        RowFill fill = rows_begin(&row, WIDTH);
        for (int64_t k = packing.first[r]; k < packing.first[r + 1]; k++)
            add_record(&fill, records[packing.document[k]], completion_only);
        rows_end(&fill);
        for (int f = 0; f < MX_BATCH_FIELDS; f++) {
            int32_t want[ROWS][WIDTH];
            const char *name = mx_arena_printf(&arena, "%s/batch/%s", goldens[_i],
                                               mx_batch_field_name((MxBatchField)f));
            ck_assert(mx_h5_read(file, name, MX_I32, MX_SHAPE(ROWS, WIDTH), want, &err));
            for (int t = 0; t < WIDTH; t++)
                ck_assert_msg(row.field[f][t] == want[r][t], "%s[%d][%d] %d, wanted %d", name, r, t,
                              row.field[f][t], want[r][t]);
        }
    }
}
END_TEST

Suite *rows_suite(void) {
    Suite *suite = suite_create("data: rows");
    TCase *tests = tcase_create("rows");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, masks_and_shifts);
    tcase_add_test(tests, first_tokens_may_count);
    tcase_add_loop_test(tests, packs_first_fit, 0, MX_COUNT(packings));
    tcase_add_loop_test(tests, equals_maxtext, 0, MX_COUNT(goldens));
    suite_add_tcase(suite, tests);
    return suite;
}
