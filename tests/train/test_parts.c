/* test_parts.c — each rank makes its part of a batch: whatever the mesh and however batches are
 * split, the parts put together are the batch of one rank, bit for bit, from every kind of data;
 * and a rank makes its own rows alone. */
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include "train/data.h"
#include "program/internal.h"

#include <check.h>

enum { ROWS = 16, LENGTH = 48, STORED = 80, PART = 24, MOST_WORDS = 40, UNTOUCHED = 0x5555 };

static MxArena arena = {.name = "parts"};

static void close_all(void) {
    mx_arena_release(&arena);
}

static const struct {
    const char *words;
    int makes; /* rows for each one that a rank has; 0 = both of each pair */
} sources[] = {
    {"dataset_type=synthetic packing=true max_segments_per_seq=3", 1},
    {"dataset_type=synthetic use_dpo=true", 1},
    {"dataset_type=text text_train_files=corpus packing=true", 1},
    {"dataset_type=text text_train_files=corpus packing=false", 1},
    {"dataset_type=hf hf_path=json hf_train_files=posttrain/sft_train.jsonl use_sft=true "
     "packing=true",
     1},
    {"dataset_type=hf hf_path=json hf_train_files=posttrain/sft_train.jsonl use_sft=true "
     "packing=false",
     1},
    {"dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl use_dpo=true "
     "packing=false",
     1},
    {"dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl use_dpo=true "
     "packing=true dpo.max_prompt_length=8",
     1},
    {"dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl use_dpo=true "
     "packing=false dpo.formula=maxtext",
     0},
    {"dataset_type=hdf5 group=batches", 1},
    {"dataset_type=hdf5 group=pairs use_dpo=true", 0},
    {"dataset_type=hdf5 group=split use_dpo=true", 1},
};

static const struct {
    int n_ranks;
    const char *keys[4];
} meshes[] = {
    {2, {"data=2", "fsdp=1"}},
    {2, {"fsdp=2"}},
    {2, {"context=2", "fsdp=1"}},
    {2, {"tensor=2", "fsdp=1"}},
    {4, {"data=2", "fsdp=2"}},
    {4, {"fsdp=2", "context=2"}},
    {4, {"expert=4", "fsdp=1"}},
    {4, {"fsdp=2", "tensor=2"}},
    {8, {"fsdp=8"}},
    {8, {"data=2", "fsdp=2", "context=2"}},
    {8, {"context=8", "fsdp=1"}},
    {8, {"fsdp=2", "fsdp_transpose=2", "expert=2"}},
};

static const int64_t splits[] = {1, 2};

/* ---- prepared data */

static uint32_t word(int64_t i) {
    uint32_t w[4];
    mx_philox(5, 0, (uint64_t)i, w);
    return w[0];
}

static void write(MxH5 *file, const char *path, int64_t length, const int32_t *values) {
    MxError err = {0};
    ck_assert(mx_h5_write(file, path, MX_I32, MX_SHAPE(STORED, length), values, &err));
}

/* Rows of two segments and padding, prompts in front of responses, any tokens. */
static const char *prepared_data(void) {
    static int32_t tokens[STORED * LENGTH], segments[STORED * LENGTH], ones[STORED * PART];
    static const char *const whole[] = {"batches/inputs", "batches/targets", "pairs/chosen",
                                        "pairs/rejected"};
    static const char *const parts[] = {"prompt", "chosen", "rejected"};
    static const char *path;
    MxH5 *file;
    MxError err = {0};
    if (path) return path;
    path = mx_path_join(&arena, process_dir(&arena, "parts"), "data.h5");
    ck_assert(mx_h5_create(&arena, path, &file, &err));
    for (int64_t i = 0; i < STORED * PART; i++) ones[i] = 1;
    for (int k = 0; k < MX_COUNT(whole); k++) {
        for (int64_t i = 0; i < STORED * LENGTH; i++) {
            int64_t first = 10 + k + (int64_t)(word(i / LENGTH) % 20), t = i % LENGTH;
            tokens[i] = (int32_t)(word(i + k * STORED * LENGTH) % 250);
            segments[i] = t < first ? 1 : t < first + 12 ? 2 : 0;
        }
        write(file, whole[k], LENGTH, tokens);
        const char *more = mx_arena_printf(&arena, "%s_segmentation", whole[k]);
        write(file, more, LENGTH, segments);
    }
    for (int k = 0; k < MX_COUNT(parts); k++) {
        for (int64_t i = 0; i < STORED * PART; i++)
            tokens[i] = (int32_t)(word(i + (9 + k) * STORED * PART) % 250);
        write(file, mx_arena_printf(&arena, "split/%s_ids", parts[k]), PART, tokens);
        write(file, mx_arena_printf(&arena, "split/%s_mask", parts[k]), PART, ones);
    }
    ck_assert(mx_h5_close(file, &err));
    return path;
}

/* ---- configs */

/* `group` names one of the prepared data's. */
static int add_words(const char *words, const char **set, int n) {
    char *save = NULL, *copy = mx_arena_strdup(&arena, words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        set[n++] = !strncmp(w, "group=", 6)
                       ? mx_arena_printf(&arena, "hdf5_train_files=%s:%s", prepared_data(), w + 6)
                       : w;
    return n;
}

/* One rank for all of the batch, or those of a mesh (>= 0). */
static MxConfig *config_of(int source, int mesh, int64_t n_micro) {
    const char *files[] = {"configs/base.yml"}, *set[MOST_WORDS];
    char *environ[] = {NULL};
    int n_ranks = mesh < 0 ? 1 : meshes[mesh].n_ranks;
    int n = add_words("eval_interval=-1 vocab_size=300", set, 0);
    n = add_words(sources[source].words, set, n);
    set[n++] = mx_arena_printf(&arena, "max_target_length=%d", LENGTH);
    set[n++] = mx_arena_printf(&arena, "gradient_accumulation_steps=%lld", (long long)n_micro);
    set[n++] = mx_arena_printf(&arena, "per_device_batch_size=%g",
                               (double)ROWS / (double)n_micro / n_ranks);
    set[n++] = mx_arena_printf(&arena, "eval_per_device_batch_size=%g", (double)ROWS / n_ranks);
    for (int k = 0; k < 4 && mesh >= 0 && meshes[mesh].keys[k]; k++) {
        const char *key = meshes[mesh].keys[k], *size = strchr(key, '=');
        set[n++] = mx_arena_printf(&arena, "ici_%.*s_parallelism%s", (int)(size - key), key, size);
    }
    ck_assert_int_lt(n, MOST_WORDS);
    MxConfigRequest request = {.n_ranks = n_ranks,
                               .files = files,
                               .n_files = 1,
                               .overrides = set,
                               .n_overrides = n,
                               .environ = environ};
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

static MxDataset *open_data(const MxConfig *config, bool is_eval) {
    MxDataset *dataset;
    MxTokenizer *tokenizer;
    MxError err = {0};
    ck_assert(mx_tokenizer_open(&arena, config->tokenizer_type, NULL, &tokenizer, &err));
    MxDataConfig data = train_data_config(config, tokenizer, is_eval);
    ck_assert_msg(mx_data_open(&arena, &data, &dataset, &err), "%s", err.text.data);
    return dataset;
}

/* ---- parts */

/* Rows that a rank should make: its own, or both of every pair that it has one of. */
static int64_t cost_of(const MxBatchPart *part, bool is_pair_made) {
    int64_t half = part->of_rows / 2, n_pairs = 0;
    bool *has = mx_new_n(&arena, bool, half);
    if (!is_pair_made) return part->rows;
    for (int64_t r = 0; r < part->rows; r++) has[part->row[r] % half] = true;
    for (int64_t r = 0; r < half; r++) n_pairs += has[r];
    return 2 * n_pairs;
}

/* Puts a part where it belongs. */
static void assemble(const MxBatch *part, MxBatch *whole) {
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int64_t r = 0; r < part->rows; r++)
            memcpy(whole->field[f] + part->part.row[r] * whole->length + part->part.column,
                   part->field[f] + r * part->length, (size_t)part->length * sizeof(int32_t));
}

static const int64_t steps[] = {0, 4};

/* Data opened for a mesh, and what one rank makes of the same at each of the steps. */
typedef struct Data {
    MxDataset *divided;
    const MxBatch *want;
    bool is_eval, is_pair_made;
} Data;

static const MxBatch *make_whole(int source, bool is_eval) {
    MxError err = {0};
    MxConfig *config = config_of(source, -1, 1);
    MxDataset *whole = open_data(config, is_eval);
    MxBatch *want = mx_new_n(&arena, MxBatch, MX_COUNT(steps));
    for (int i = 0; i < MX_COUNT(steps); i++) {
        want[i] = mx_batch_new(&arena, ROWS * mx_train_rows(config), LENGTH);
        ck_assert_int_eq(mx_data_batch(whole, steps[i], &want[i], &err), MX_DATA_OK);
    }
    return want;
}

static void check_step(const MxTrainMesh *mesh, const Data *data, int at) {
    MxError err = {0};
    const MxBatch want = data->want[at];
    int64_t rows = want.rows, fewest = rows, step = steps[at];
    MxBatch got = mx_batch_new(&arena, rows, LENGTH);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        for (int64_t i = 0; i < rows * LENGTH; i++) got.field[f][i] = UNTOUCHED;
    for (int64_t rank = 0; rank < mesh->mesh.n_ranks; rank++) {
        MxBatchPart part;
        ck_assert_msg(mx_train_batch_part(&arena, mesh, rank, data->is_eval, &part, &err), "%s",
                      err.text.data);
        MxBatch batch = mx_batch_new_part(&arena, &part);
        int64_t before = mx_data_rows_made(data->divided);
        ck_assert_int_eq(mx_data_batch(data->divided, step, &batch, &err), MX_DATA_OK);
        ck_assert_int_eq(mx_data_rows_made(data->divided) - before,
                         cost_of(&part, data->is_pair_made));
        assemble(&batch, &got);
        if (part.rows < fewest) fewest = part.rows;
    }
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        ck_assert_msg(!memcmp(got.field[f], want.field[f], (size_t)(rows * LENGTH) * 4),
                      "%s, %lld micro-batches, step %lld: %s", mx_mesh_text(&arena, &mesh->mesh),
                      (long long)mesh->config->gradient_accumulation_steps, (long long)step,
                      mx_batch_field_name((MxBatchField)f));
    int64_t row_parts = 1;
    static const char *const cut_rows[] = {"data", "fsdp", "fsdp_transpose", "expert"};
    for (int i = 0; i < MX_COUNT(cut_rows); i++)
        row_parts *= mx_mesh_size(&mesh->mesh, cut_rows[i]);
    ck_assert_int_eq(fewest, rows / row_parts);
}

static void check_mesh(int source, int mesh, int64_t n_micro, const MxBatch *want, bool is_eval) {
    MxError err = {0};
    MxTrainMesh of_ranks;
    MxConfig *config = config_of(source, mesh, n_micro);
    ck_assert_msg(mx_train_mesh(&arena, config, &of_ranks, &err), "%s", err.text.data);
    Data data = {.divided = open_data(config, is_eval),
                 .want = want,
                 .is_eval = is_eval,
                 .is_pair_made = !sources[source].makes};
    for (int i = 0; i < MX_COUNT(steps); i++) check_step(&of_ranks, &data, i);
}

START_TEST(ranks_make_their_rows) {
    const MxBatch *want = make_whole(_i, false);
    for (int mesh = 0; mesh < MX_COUNT(meshes); mesh++)
        for (int split = 0; split < MX_COUNT(splits); split++)
            check_mesh(_i, mesh, splits[split], want, false);
}
END_TEST

/* Evaluation has batches of its own size, in one piece whatever training does. */
START_TEST(ranks_make_their_rows_of_evaluation) {
    const MxBatch *want = make_whole(_i, true);
    for (int mesh = 0; mesh < MX_COUNT(meshes); mesh++) check_mesh(_i, mesh, 2, want, true);
}
END_TEST

/* Told before there is any data to look at. */
START_TEST(rows_must_divide) {
    MxConfig *config = config_of(0, 8, 4); /* micro-batches of 4 rows on 8 ranks */
    MxTrainMesh mesh;
    MxBatchPart part;
    MxError err = {0};
    ck_assert(mx_train_mesh(&arena, config, &mesh, &err));
    ck_assert(!mx_train_batch_part(&arena, &mesh, 0, false, &part, &err));
    ck_assert_msg(strstr(err.text.data, "a micro-batch of 4 rows does not divide among the 8 ranks "
                                        "along fsdp") != NULL,
                  "%s", err.text.data);
    mx_error_release(&err);
}
END_TEST

Suite *parts_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("parts of batches");
    TCase *tcase = tcase_create("parts of batches");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, ranks_make_their_rows_of_evaluation, 0, 2); /* need no files */
    tcase_add_test(tcase, rows_must_divide);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("sources");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, ranks_make_their_rows, 0, MX_COUNT(sources));
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
