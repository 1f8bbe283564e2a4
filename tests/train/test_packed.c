/* test_packed.c — several pairs in a row against the same pairs in rows of their own: what they
 * are, the loss, all figures and every gradient, for all losses of pairs, adapters, accumulation
 * and every way to have a reference. */
#include "golden.h"
#include "train_test.h"

#include "train/data.h"
#include "program/internal.h"
#include "program/reference.h"

#include <check.h>
#include <math.h>

#define SMALL                                                                                      \
    "base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=1 "        \
    "head_dim=16 base_mlp_dim=64 max_target_length=144 dpo.max_prompt_length=48 use_dpo=true "     \
    "dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl "                \
    "eval_interval=-1 init_weights_seed=3 "

enum { ROWS = 4 };

static MxArena arena = {.name = "packed"};

static void close_all(void) {
    mx_arena_release(&arena);
}

static MxConfig *config_of(const char *more, const char *rows) {
    MxConfig *config;
    MxError err = {0};
    const char *words = mx_arena_printf(&arena, "%s %s", more, rows);
    ck_assert_msg(golden_config(&arena, SMALL, words, &config, &err), "%s", err.text.data);
    return config;
}

static MxDataset *open_data(const MxConfig *config) {
    MxDataset *dataset;
    MxTokenizer *tokenizer;
    MxError err = {0};
    ck_assert(mx_tokenizer_open(&arena, config->tokenizer_type, NULL, &tokenizer, &err));
    MxDataConfig data = train_data_config(config, tokenizer, false);
    ck_assert_msg(mx_data_open(&arena, &data, &dataset, &err), "%s", err.text.data);
    return dataset;
}

static MxBatch first_batch(const MxConfig *config) {
    MxError err = {0};
    MxBatch batch =
        mx_batch_new(&arena, 2 * config->global_batch_size_to_load, config->max_target_length);
    ck_assert_int_eq(mx_data_batch(open_data(config), 0, &batch, &err), MX_DATA_OK);
    return batch;
}

/* ---- a row for each pair */

static int32_t pairs_of_row(const MxBatch *batch, int64_t row) {
    int32_t most = 0;
    for (int64_t t = 0; t < batch->length; t++) {
        int32_t id = batch->field[MX_INPUTS_SEGMENTATION][row * batch->length + t];
        if (id > most) most = id;
    }
    return most;
}

/* Moves segment `id` of a row to the beginning of another row, with its padding. */
static void unpack_segment(const MxBatch *from, int64_t row, int32_t id, const MxBatch *to,
                           int64_t to_row) {
    int64_t n = 0, length = from->length, end = length;
    for (int64_t t = 0; t < length; t++) {
        int64_t at = row * length + t, there = to_row * length + n;
        if (from->field[MX_INPUTS_SEGMENTATION][at] != id) continue;
        for (int f = 0; f < MX_BATCH_FIELDS; f++) to->field[f][there] = from->field[f][at];
        to->field[MX_INPUTS_SEGMENTATION][there] = 1;
        if (to->field[MX_TARGETS_SEGMENTATION][there])
            to->field[MX_TARGETS_SEGMENTATION][there] = 1;
        end = there;
        n++;
    }
    ck_assert_int_gt(n, 0);
    to->field[MX_TARGETS][end] = to->field[MX_TARGETS_POSITION][end] = 0; /* the next document's */
}

static MxBatch unpack(const MxBatch *packed) {
    int64_t rows = packed->rows / 2, n = 0, at = 0;
    for (int64_t r = 0; r < rows; r++) n += pairs_of_row(packed, r);
    MxBatch batch = mx_batch_new(&arena, 2 * n, packed->length);
    for (int64_t r = 0; r < rows; r++) {
        ck_assert_int_eq(pairs_of_row(packed, r), pairs_of_row(packed, rows + r));
        for (int32_t id = 1; id <= pairs_of_row(packed, r); id++, at++) {
            unpack_segment(packed, r, id, &batch, at);
            unpack_segment(packed, rows + r, id, &batch, n + at);
        }
    }
    return batch;
}

static bool same_row(const MxBatch *a, int64_t row, const MxBatch *b, int64_t other) {
    size_t bytes = (size_t)a->length * sizeof(int32_t);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        if (memcmp(a->field[f] + row * a->length, b->field[f] + other * b->length, bytes))
            return false;
    return true;
}

/* Every pair of the file is in one packed row, as it would be in its own. */
START_TEST(rows_hold_all_pairs) {
    MxError err = {0};
    MxConfig *config = config_of("packing=true enable_data_shuffling=false num_epoch=1",
                                 "per_device_batch_size=1");
    MxConfig *apart = config_of("packing=false enable_data_shuffling=false num_epoch=1",
                                "per_device_batch_size=1");
    MxDataset *packed_data = open_data(config), *data = open_data(apart);
    int64_t n = mx_data_steps(data), n_seen = 0, n_rows = mx_data_steps(packed_data);
    ck_assert_int_le(2 * n_rows, n);
    bool *is_seen = mx_new_n(&arena, bool, n);
    MxBatch packed = mx_batch_new(&arena, 2, config->max_target_length), one = packed;
    one = mx_batch_new(&arena, 2, config->max_target_length);
    for (int64_t row = 0; row < n_rows; row++) {
        ck_assert_int_eq(mx_data_batch(packed_data, row, &packed, &err), MX_DATA_OK);
        MxBatch pairs = unpack(&packed);
        for (int64_t p = 0; p < pairs.rows / 2; p++) {
            bool is_found = false;
            for (int64_t i = n_seen > 8 ? n_seen - 8 : 0; i < n && !is_found; i++) {
                if (is_seen[i]) continue;
                ck_assert_int_eq(mx_data_batch(data, i, &one, &err), MX_DATA_OK);
                is_found =
                    same_row(&pairs, p, &one, 0) && same_row(&pairs, pairs.rows / 2 + p, &one, 1);
                if (is_found) is_seen[i] = true;
            }
            ck_assert_msg(is_found, "row %lld holds a pair that is not in the file",
                          (long long)row);
            n_seen++;
        }
    }
    ck_assert_int_eq(n_seen, n);
}
END_TEST

/* ---- losses */

// clang-format off
static const struct {
    const char *algo;
    double beta;
    const char *more, *packed_more;
} cases[] = {
    {"dpo", 0.3, "dpo.dpo_label_smoothing=0.1", ""},
    {"sigmoid_norm", 0.3, "", ""},
    {"hinge", 0.3, "", ""},
    {"ipo", 0.3, "", ""},
    {"robust", 0.3, "dpo.dpo_label_smoothing=0.1", ""},
    {"exo_pair", 0.3, "dpo.dpo_label_smoothing=0.1", ""},
    {"nca_pair", 0.3, "", ""},
    {"bco_pair", 0.3, "", ""},
    {"sppo_hard", 0.3, "", ""},
    {"apo_zero", 0.3, "", ""},
    {"apo_down", 0.3, "", ""},
    {"discopop", 0.02, "", ""}, /* steep: it multiplies rounding by 20 beta */
    {"orpo", 0.3, "", ""},
    {"simpo", 0.3, "", ""},
    {"dpo", 0.3, "", "gradient_accumulation_steps=2 per_device_batch_size=2"},
    {"ipo", 0.3, "dpo.reference=precomputed", ""},
    {"dpo", 0.3, "dpo.reference=precomputed", "gradient_accumulation_steps=2 per_device_batch_size=2"},
    {"dpo", 0.3, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8", ""},
    {"dpo", 0.3, "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 dpo.reference=copy", ""},
};
// clang-format on

static float noise(uint64_t stream, uint64_t i) {
    uint32_t words[4];
    mx_philox(11, stream, i, words);
    return mx_uniform(words[0]);
}

/* A policy that is not its reference. */
static void disturb(MxTrainState *state) {
    MxTree *tree = mx_train_state_tree(state);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (strncmp(leaf->path, "model/", 6)) continue;
        float *x = golden_values(&arena, leaf);
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++)
            x[k] += 0.05f * (noise((uint64_t)i, (uint64_t)k) - 0.5f);
        mx_leaf_write(leaf, x);
    }
    mx_train_state_restored(state);
}

static MxTrainState *open_state(MxConfig *config, const MxBatch *batch) {
    MxTrainState *state;
    MxError err = {0};
    ck_assert_msg(mx_train_state_open(&arena, config, &state, &err), "%s", err.text.data);
    mx_train_state_init(state);
    mx_train_state_begin(state);
    Reference *reference = program_part(state, PART_reference);
    if (reference && reference->logp != MX_NONE) {
        float *logp = mx_new_n(&arena, float, batch->rows * batch->length);
        program_make_inputs(state, &entry_refer, &reference->logp, 1, false, batch,
                            (void *[]){logp});
        program_give(state, reference->logp, logp);
    }
    disturb(state);
    return state;
}

/* All of the gradient within 1e-6 of its norm; what cancels in one array leaves more of rounding
 * there, since attention over other rows adds in another order. */
static void check_gradients(const MxTrainState *packed, const MxTrainState *apart) {
    const double bound = 1e-6, array_bound = 3e-6;
    MxTree got = golden_gradient_tree(&arena, packed), want = golden_gradient_tree(&arena, apart);
    double squares = 0, error_squares = 0;
    for (int i = 0; i < got.n; i++) {
        const float *x = got.leaves[i].data, *y = want.leaves[i].data;
        int64_t n = mx_shape_count(got.leaves[i].shape);
        if (!y) continue; /* frozen under adapters */
        double error = golden_error(x, y, n);
        ck_assert_msg(error <= array_bound, "gradient of %s is off by %.3g", got.leaves[i].path,
                      error);
        for (int64_t k = 0; k < n; k++) {
            squares += pow((double)y[k], 2);
            error_squares += pow((double)x[k] - (double)y[k], 2);
        }
    }
    ck_assert(squares > 0);
    ck_assert_msg(error_squares <= bound * bound * squares, "the gradient is off by %.3g",
                  sqrt(error_squares / squares));
}

START_TEST(losses_are_those_of_pairs_apart) {
    const double bound = 1e-6;
    const char *more = mx_arena_printf(&arena, "dpo.algo=%s dpo.dpo_beta=%g %s", cases[_i].algo,
                                       cases[_i].beta, cases[_i].more);
    const char *rows = *cases[_i].packed_more
                           ? cases[_i].packed_more
                           : mx_arena_printf(&arena, "per_device_batch_size=%d", ROWS);
    MxConfig *config = config_of(mx_arena_printf(&arena, "packing=true %s", more), rows);
    MxBatch packed = first_batch(config), apart = unpack(&packed);
    int64_t n = apart.rows / 2;
    ck_assert_int_ge(n, 2 * ROWS);
    MxConfig *config_apart =
        config_of(mx_arena_printf(&arena, "packing=false %s", more),
                  mx_arena_printf(&arena, "per_device_batch_size=%lld", (long long)n));
    MxTrainState *state = open_state(config, &packed);
    MxTrainState *state_apart = open_state(config_apart, &apart);
    MxLoss got = mx_train_loss_and_grad(state, &packed);
    MxLoss want = mx_train_loss_and_grad(state_apart, &apart);
    ck_assert_int_eq((int64_t)want.total_weights, n);
    ck_assert_int_eq((int64_t)got.total_weights, n);
    const double *sum = mx_train_sum(state, &got, "pairs");
    const double *apart_sum = mx_train_sum(state_apart, &want, "pairs");
    ck_assert(sum[MX_PAIRS_CORRECT] == apart_sum[MX_PAIRS_CORRECT]);
    ck_assert(sum[MX_PAIRS_CORRECT] > 0 && sum[MX_PAIRS_CORRECT] < (double)n);
    ck_assert_msg(fabs(got.loss - want.loss) <= bound * fabs(want.loss), "loss %.9g, wanted %.9g",
                  got.loss, want.loss);
    for (int k = 0; k < MX_PAIRS_COUNT; k++)
        ck_assert_msg(fabs(sum[k] - apart_sum[k]) <= 1e-5 * fabs(apart_sum[k]) + 1e-5,
                      "sum %d: %.9g, wanted %.9g", k, sum[k], apart_sum[k]);
    check_gradients(state, state_apart);
}
END_TEST

Suite *packed_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("packed pairs");
    TCase *tcase = tcase_create("packed pairs");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, rows_hold_all_pairs);
    tcase_add_loop_test(tcase, losses_are_those_of_pairs_apart, 0, MX_COUNT(cases));
    suite_add_tcase(suite, tcase);
    return suite;
}
