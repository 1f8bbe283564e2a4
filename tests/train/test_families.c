/* test_families.c — a small model of every family that is built, in all ways in which steps are
 * made and states are kept: whatever way, the same loss and gradients; adapters, preferences; every
 * form of checkpoint and back. */
#include "common/families.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <ckpt/internal.h>

#include <mx/family.h>
#include <mx/store.h>

#include <check.h>
#include <math.h>

enum { LENGTH = 24, VOCAB = 96 };

static MxArena arena = {.name = "families"};

static void close_all(void) {
    mx_arena_release(&arena);
}

static MxTrainState *open_state(const char *family, const char *more) {
    MxError err = {0};
    MxConfig *config;
    MxTrainState *state;
    const char *words =
        mx_arena_printf(&arena, "%s max_target_length=%d", family_small(&arena, family), LENGTH);
    ck_assert_msg(golden_config(&arena, words, more, &config, &err) &&
                      mx_train_state_open(&arena, config, &state, &err),
                  "%s %s: %s", family, more, err.text.data);
    mx_train_state_init(state);
    return state;
}

/* Two documents in each row. */
static MxBatch batch_of(int rows) {
    MxBatch batch = mx_batch_new(&arena, rows, LENGTH);
    for (int i = 0; i < rows * LENGTH; i++) {
        int at = i % LENGTH, half = LENGTH / 2;
        batch.field[MX_INPUTS][i] = (i * 37 + i / LENGTH) % VOCAB;
        batch.field[MX_TARGETS][i] = ((i + 1) * 37 + i / LENGTH) % VOCAB;
        batch.field[MX_INPUTS_POSITION][i] = at % half;
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1 + at / half;
        batch.field[MX_TARGETS_SEGMENTATION][i] = at % half < half - 1 ? 1 + at / half : 0;
    }
    return batch;
}

/* ---- steps */

static const char *const ways[] = {
    "remat_policy=full",
    "remat_policy=minimal",
    "num_vocab_tiling=4",
    "gradient_accumulation_steps=2 per_device_batch_size=1",
    "scan_layers=false pure_nnx=false",
};

/* All others that there are. */
static const char *const policies[] = {
    "remat_policy=minimal_with_context",
    "remat_policy=minimal_with_quantization",
    "remat_policy=minimal_with_context_and_quantization",
    "remat_policy=minimal_flash",
    "remat_policy=minimal_offloaded",
    "remat_policy=save_dot_except_mlp",
    "remat_policy=save_dot_except_mlpwi",
    "remat_policy=save_dot_with_context_except_mlp",
    "remat_policy=save_qkv_proj",
    "remat_policy=save_out_proj",
    "remat_policy=qkv_proj_offloaded",
    "remat_policy=custom mlpwo=device context=offload query_proj=device",
};

static double distance(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* What is a thousandth of the whole gradient and less is rounding in part, or nothing else: of
 * biases of keys, of a factor before the last norm. */
static void same_gradients(const char *family, const char *way, MxTrainState *a, MxTrainState *b) {
    const MxTree *params = mx_model_params(mx_train_state_model(a));
    double whole = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < params->n; i++) {
            int64_t n = mx_shape_count(params->leaves[i].shape);
            const float *got = mx_train_gradient(&arena, a, i);
            const float *want = mx_train_gradient(&arena, b, i);
            if (!want) continue; /* it has none */
            double norm = distance(want, NULL, n);
            if (!pass) whole = hypot(whole, norm);
            double error = distance(got, want, n) / fmax(norm, whole / 1000);
            ck_assert_msg(!pass || error <= 2e-5, "%s %s: gradient of %s off by %.3g", family, way,
                          params->leaves[i].path, error);
        }
}

static void ck_same_steps(const char *family, const char *const *all, int n) {
    MxBatch batch = batch_of(2);
    MxTrainState *plain = open_state(family, "");
    MxLoss want = mx_train_loss_and_grad(plain, &batch);
    ck_assert_msg(want.loss > 1 && want.loss < 20, "%s: loss %g", family, want.loss);
    for (int w = 0; w < n; w++) {
        MxTrainState *state = open_state(family, all[w]);
        MxLoss got = mx_train_loss_and_grad(state, &batch);
        ck_assert_msg(fabs(got.loss - want.loss) <= 1e-6 * want.loss, "%s %s: loss %.9g, not %.9g",
                      family, all[w], got.loss, want.loss);
        same_gradients(family, all[w], state, plain);
    }
}

START_TEST(steps_are_the_same) {
    if (family_model(_i)) ck_same_steps(family_model(_i), ways, MX_COUNT(ways));
}
END_TEST

START_TEST(policies_are_the_same) {
    if (family_model(_i)) ck_same_steps(family_model(_i), policies, MX_COUNT(policies));
}
END_TEST

/* ---- adapters and preferences */

START_TEST(adapters_learn) {
    if (!family_model(_i)) return;
    const char *family = family_model(_i);
    MxBatch batch = batch_of(2);
    MxTrainState *plain = open_state(family, "");
    MxTrainState *state =
        open_state(family, "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4");
    double want = mx_train_loss_and_grad(plain, &batch).loss;
    double got = mx_train_loss_and_grad(state, &batch).loss;
    ck_assert_msg(fabs(got - want) <= 1e-6 * want, "%s: loss %.9g, not %.9g", family, got, want);
    const MxTree *params = mx_model_params(mx_train_state_model(state));
    int n = 0;
    for (int i = 0; i < params->n; i++) {
        const float *gradient = mx_train_gradient(&arena, state, i);
        ck_assert_int_eq(params->leaves[i].kind == MX_KIND_LORA_PARAM, gradient != NULL);
        if (!gradient || !mx_text_has_suffix(params->leaves[i].path, "_lora_b")) continue;
        double norm = 0;
        for (int64_t k = 0; k < mx_shape_count(params->leaves[i].shape); k++)
            norm += fabs((double)gradient[k]);
        ck_assert_msg(norm > 0, "%s: no gradient of %s", family, params->leaves[i].path);
        n++;
    }
    ck_assert_int_gt(n, 0);
}
END_TEST

/* Policy and reference are the same before the first step. */
START_TEST(preferences_begin_even) {
    if (!family_model(_i)) return;
    MxBatch batch = batch_of(4);
    MxTrainState *state =
        open_state(family_model(_i), "use_dpo=true packing=false vocab_size=258 dataset_type=hf "
                                     "hf_train_files=x");
    mx_train_state_begin(state);
    double loss = mx_train_loss_and_grad(state, &batch).loss;
    ck_assert_msg(fabs(loss - log(2)) < 1e-5, "%s: loss %.9g", family_model(_i), loss);
}
END_TEST

/* ---- checkpoints */

static const MxForm forms[] = {
    {.is_linen = false, .is_scanned = true, .scan_axis = 1},
    {.is_linen = true, .is_scanned = true, .scan_axis = 0},
    {.is_linen = true, .is_scanned = false, .scan_axis = 1},
};

static void there_and_back(const char *family, MxTrainState *from, MxTrainState *to, MxForm form) {
    MxError err = {0};
    MxH5 *file;
    const char *path = mx_path_join(&arena, process_dir(&arena, "families"), "state.h5");
    const MxTree *a = mx_train_state_tree(from), *b = mx_train_state_tree(to);
    bool ok = mx_h5_create(&arena, path, &file, &err) && ckpt_write(file, form, a, NULL, &err) &&
              mx_h5_close(file, &err) && mx_h5_open(&arena, path, &file, &err) &&
              mx_ckpt_read(file, "", "", form.scan_axis, mx_train_state_tree(to), &err);
    ck_assert_msg(ok, "%s: %s", family, err.text.data);
    for (int i = 0; i < a->n; i++)
        ck_assert_msg(!memcmp(mx_leaf_values(&arena, &a->leaves[i]),
                              mx_leaf_values(&arena, &b->leaves[i]), mx_leaf_bytes(&a->leaves[i])),
                      "%s: %s is another", family, a->leaves[i].path);
}

START_TEST(forms_hold_the_same) {
    if (!family_model(_i)) return;
    MxBatch batch = batch_of(2);
    MxTrainState *state = open_state(family_model(_i), "");
    mx_train_loss_and_grad(state, &batch);
    mx_train_update(state);
    for (int f = 0; f < MX_COUNT(forms); f++)
        there_and_back(family_model(_i), state, open_state(family_model(_i), "init_weights_seed=7"),
                       forms[f]);
}
END_TEST

Suite *families_suite(void) {
    enum { SECONDS = 60 };
    int n = family_models();
    Suite *suite = suite_create("families");
    TCase *tcase = tcase_create("families");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, steps_are_the_same, 0, n);
    tcase_add_loop_test(tcase, adapters_learn, 0, n);
    tcase_add_loop_test(tcase, preferences_begin_even, 0, n);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("forms and policies");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, forms_hold_the_same, 0, n);
    tcase_add_loop_test(tcase, policies_are_the_same, 0, n);
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
