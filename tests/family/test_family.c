/* test_family.c — the table of families: what every row must have, which layers are alike, and
 * where leaves of layers are stacked. That the names are MaxText's is tested with its trees, in
 * tests/plan and tests/ckpt. */
#include <mx/family.h>

#include <check.h>
#include <stdlib.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

START_TEST(rows_are_whole) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    ck_assert_int_ge(n, 25);
    for (int i = 0; i < n; i++) {
        const MxFamily *f = families[i];
        bool is_built = strstr(mx_families_built, mx_arena_printf(&arena, "%s ", f->decoder_block));
        ck_assert_ptr_eq(mx_family_find(f->decoder_block), f);
        ck_assert_int_eq(is_built, f->n_specs > 0);
        ck_assert(f->period >= 1 && f->period <= MX_MOST_PERIOD);
        ck_assert_int_eq(f->period > 1, f->place != NULL);
        for (int layer = 0; is_built && layer < 3 * f->period; layer++) {
            const MxLayerSpec *spec = mx_family_spec(f, layer);
            ck_assert(spec >= f->specs && spec < f->specs + f->n_specs);
            ck_assert_ptr_eq(spec, mx_family_spec(f, layer + f->period * mx_family_a_name(f)));
            for (int b = 0; b < MX_LAYER_BLOCKS; b++) ck_assert_ptr_nonnull(spec->block[b].name);
        }
        if (is_built) ck_assert_ptr_nonnull(f->lora_modules);
        if (f->hf.model_type) ck_assert_ptr_nonnull(f->hf.architecture);
    }
    ck_assert_ptr_null(mx_family_find("llama"));
}
END_TEST

static const struct {
    const char *family;
    int layer, n_layers;
    const char *path;
    int index, count;
} stacked[] = {
    {"llama2", 0, 3, "decoder/layers/mlp/wo", 0, 3},
    {"llama2", 2, 3, "decoder/layers/mlp/wo", 2, 3},
    {"gemma3", 0, 8, "decoder/layers/layers_0/mlp/wo", 0, 1},
    {"gemma3", 5, 8, "decoder/layers/layers_5/mlp/wo", 0, 1},
    {"gemma3", 6, 8, "decoder/layers_remainder/layers_0/mlp/wo", 0, 0},
    {"gemma3", 11, 34, "decoder/layers/layers_5/mlp/wo", 1, 5},
    {"gemma3", 33, 34, "decoder/layers_remainder/layers_3/mlp/wo", 0, 0},
    {"olmo3", 6, 8, "decoder/layers/layers_2/mlp/wo", 1, 2},
    {"gpt_oss", 3, 4, "decoder/layers/layers_1/mlp/wo", 1, 2},
    {"qwen3_next", 6, 8, "decoder/layers/layer_2/mlp/wo", 1, 2},
};

START_TEST(layers_are_stacked) {
    MxStacking how = mx_family_stacking(mx_family_find(stacked[_i].family));
    MxStack s = mx_stack_of(&arena, "decoder/", "layers", how, stacked[_i].layer,
                            stacked[_i].n_layers, "mlp/wo");
    ck_assert_str_eq(s.path, stacked[_i].path);
    ck_assert_int_eq(s.index, stacked[_i].index);
    ck_assert_int_eq(s.count, stacked[_i].count);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("family");
    TCase *tcase = tcase_create("family");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, rows_are_whole);
    tcase_add_loop_test(tcase, layers_are_stacked, 0, MX_COUNT(stacked));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
