/* data_test.h — the suites of this room, and what each test starts from. */
#ifndef DATA_TEST_H
#define DATA_TEST_H
#include "common/goldens.h"

#include <check.h>
#include <mx/data.h>
#include <mx/store.h>

Suite *blocks_suite(void);
Suite *c4_suite(void);
Suite *cache_suite(void);
Suite *threads_suite(void);
Suite *tables_suite(void);
Suite *talks_suite(void);
Suite *text_suite(void);
Suite *formats_suite(void);
Suite *hdf5_suite(void);
Suite *golden_rows_suite(void);
Suite *ids_suite(void);
Suite *images_suite(void);
Suite *loader_suite(void);
Suite *olmo_suite(void);
Suite *pairs_suite(void);
Suite *parts_suite(void);
Suite *pieces_suite(void);
Suite *questions_suite(void);
Suite *records_suite(void);
Suite *groups_suite(void);
Suite *rows_suite(void);
Suite *turns_suite(void);

/* One test's arena, error and empty folder, made by set_up and removed by tear_down. */
extern MxArena arena;
extern MxError err;
extern char *folder;

void set_up(void);
void tear_down(void);

char *in_folder(const char *name);
/* Writes a file into the folder and gives its path. */
char *put(const char *name, const char *text);
/* A text dataset of 2 × 4 tokens with packing, in order, one epoch; the byte tokenizer. */
MxDataConfig text_config(const char *path);
MxDataset *open_data(MxDataConfig config);
/* The dataset is refused with a text that contains `words`. */
void ck_refused(MxDataConfig config, const char *words);
MxBatch batch_at(MxDataset *dataset, int64_t step);
/* Two datasets give the same batches, at least one. */
void ck_same_rows(MxDataConfig a, MxDataConfig b);
/* One row of one field equals the n values given. */
#define ck_row(batch, f, r, ...)                                                                   \
    ck_values((batch).field[f] + (r) * (batch).length, (const int32_t[]){__VA_ARGS__},             \
              (int)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))
void ck_values(const int32_t *got, const int32_t *want, int n);

#endif
