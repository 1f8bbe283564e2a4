/* test_family.c — the table of families: what every row must have, which layers are alike, and
 * where leaves of layers are stacked. That the names are MaxText's is tested with its trees, in
 * tests/plan and tests/ckpt. */
#include "common/suite.h"

#include <mx/family.h>

#include <check.h>

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
        MxLayerKeys keys = {.n = 4 * f->period, .n_dense = f->period, .nope_interval = f->period};
        keys.moe_step = keys.cycle = f->period;
        MxLayers layers = mx_layers(f, keys);
        for (int layer = layers.n_first; is_built && layer < 3 * f->period; layer++) {
            const MxLayerSpec *spec = mx_layer_spec(&layers, layer);
            ck_assert(spec >= f->specs && spec < f->specs + f->n_specs);
            ck_assert_ptr_eq(spec, mx_layer_spec(&layers, layer + f->period * mx_family_a_name(f)));
            for (int b = 0; b < MX_LAYER_BLOCKS; b++)
                ck_assert_int_eq(spec->block[b].kind != MX_BLOCK_NONE, spec->block[b].name != NULL);
            ck_assert_int_ne(spec->block[0].kind, MX_BLOCK_NONE);
        }
        if (is_built) ck_assert_ptr_nonnull(f->lora_modules);
        for (int k = 0; k < MX_MOST_HF; k++)
            if (f->hf[k].model_type) ck_assert_ptr_nonnull(f->hf[k].architecture);
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
    {"llama4", 7, 8, "decoder/layers/layers_3/mlp/wo", 1, 2},
    {"envy", 3, 4, "decoder/layers/layers_1/mlp/wo", 1, 2},
    {"gemma4", 9, 20, "decoder/scanned_blocks/local_layers/mlp/wo", 8, 15},
    {"gemma4", 11, 20, "decoder/scanned_blocks/global_layer/mlp/wo", 1, 3},
    {"gemma4", 19, 20, "decoder/layers_remainder/local_layers/mlp/wo", 1, 2},
};

/* Local layers lie in two dims: periods, and their places in one. */
START_TEST(runs_are_stacked_inside) {
    const MxFamily *family = mx_family_find("gemma4");
    MxStacking how = mx_family_stacking(family, family->period);
    const int layers[] = {9, 11, 19}, inner[] = {5, 0, 0};
    for (int i = 0; i < MX_COUNT(layers); i++) {
        MxStack s = mx_stack_of(&arena, "decoder/", "layers", how, layers[i], 20, "mlp/wo");
        ck_assert_int_eq(s.inner, inner[i]);
        ck_assert_str_eq(s.axis, i == 2 ? "local_layers" : "layers");
    }
}
END_TEST

/* Layers 1, 4 and 5 have n-gram memories; the first two of seven are dense. */
static const struct {
    int layer;
    const char *name, *path;
    int index, count;
} divided[] = {
    {0, "decoder/dense_layers_0", "decoder/dense_layers_0_0/wo", 0, 1},
    {1, "decoder/dense_layers_1", "decoder/dense_layers_engram_1/wo", 0, 0},
    {2, "decoder/moe_layers_0", "decoder/moe_layers_2_3/wo", 0, 2},
    {3, "decoder/moe_layers_1", "decoder/moe_layers_2_3/wo", 1, 2},
    {4, "decoder/moe_layers_2", "decoder/moe_layers_engram_4/wo", 0, 0},
    {5, "decoder/moe_layers_3", "decoder/moe_layers_engram_5/wo", 0, 0},
    {6, "decoder/moe_layers_4", "decoder/moe_layers_6_6/wo", 0, 1},
};

START_TEST(memories_divide_stacks) {
    static const int64_t recall[] = {4, 1, 5};
    MxLayerKeys keys = {.n = 7, .n_dense = 2, .recall = recall, .n_recall = 3};
    MxLayers layers = mx_layers(mx_family_find("deepseek"), keys);
    MxLayerPlace p = mx_layer_place(&layers, divided[_i].layer);
    MxStack s = mx_stack_of(&arena, "decoder/", p.how.outer, p.how, p.layer, p.n, "wo");
    ck_assert_str_eq(mx_layer_name(&arena, &layers, divided[_i].layer), divided[_i].name);
    ck_assert_str_eq(s.path, divided[_i].path);
    ck_assert_int_eq(s.index, divided[_i].index);
    ck_assert_int_eq(s.count, divided[_i].count);
}
END_TEST

START_TEST(layers_are_stacked) {
    const MxFamily *family = mx_family_find(stacked[_i].family);
    MxStacking how = mx_family_stacking(family, family->period);
    MxStack s = mx_stack_of(&arena, "decoder/", "layers", how, stacked[_i].layer,
                            stacked[_i].n_layers, "mlp/wo");
    ck_assert_str_eq(s.path, stacked[_i].path);
    ck_assert_int_eq(s.index, stacked[_i].index);
    ck_assert_int_eq(s.count, stacked[_i].count);
}
END_TEST

static const struct {
    int n_dense, layer;
    MxBlockKind kind;
    const char *name;
    int place, n;
} first[] = {
    {1, 0, MX_BLOCK_GLU, "decoder/dense_layers_0", 0, 1},
    {1, 1, MX_BLOCK_MOE, "decoder/moe_layers_0", 0, 3},
    {1, 3, MX_BLOCK_MOE, "decoder/moe_layers_2", 2, 3},
    {0, 0, MX_BLOCK_MOE, "decoder/moe_layers_0", 0, 4},
    {9, 3, MX_BLOCK_GLU, "decoder/dense_layers_3", 3, 4},
};

START_TEST(first_layers_are_a_stack) {
    MxLayers layers =
        mx_layers(mx_family_find("deepseek"), (MxLayerKeys){.n = 4, .n_dense = first[_i].n_dense});
    MxLayerPlace place = mx_layer_place(&layers, first[_i].layer);
    ck_assert_int_eq(mx_layer_spec(&layers, first[_i].layer)->block[1].kind, first[_i].kind);
    ck_assert_str_eq(mx_layer_name(&arena, &layers, first[_i].layer), first[_i].name);
    ck_assert_int_eq(place.layer, first[_i].place);
    ck_assert_int_eq(place.n, first[_i].n);
}
END_TEST

static const struct {
    const char *family;
    int nope_interval, moe_step, layer;
    MxRopeKind rope;
    MxBlockKind kind;
} said[] = {
    {"llama4", 4, 2, 0, MX_ROPE_AS_SAID, MX_BLOCK_GLU},
    {"llama4", 4, 2, 1, MX_ROPE_AS_SAID, MX_BLOCK_MOE},
    {"llama4", 4, 2, 3, MX_ROPE_NONE, MX_BLOCK_MOE},
    {"llama4", 3, 2, 2, MX_ROPE_NONE, MX_BLOCK_GLU},
    {"llama4", 4, 1, 6, MX_ROPE_AS_SAID, MX_BLOCK_MOE},
    {"llama4", -1, -1, 3, MX_ROPE_AS_SAID, MX_BLOCK_GLU},
    {"envy", 2, 3, 1, MX_ROPE_AS_SAID, MX_BLOCK_GLU},
    {"envy", 2, 3, 2, MX_ROPE_AS_SAID, MX_BLOCK_MOE},
};

/* That of Gemma 3 sees a window whatever the last layer sees; in a random model of MaxText's its
 * loss was off by 0.1 % else. */
START_TEST(modules_ahead_have_a_kind) {
    const MxFamily *gemma3 = mx_family_find("gemma3"), *deepseek = mx_family_find("deepseek");
    MxLayers layers = mx_layers(gemma3, (MxLayerKeys){.n = 6});
    ck_assert_int_eq(mx_layer_spec(&layers, 5)->sees, MX_SEES_ALL_BEFORE);
    ck_assert_int_eq(mx_layer_ahead(layers, 0)->sees, MX_SEES_WINDOW);
    layers = mx_layers(deepseek, (MxLayerKeys){.n = 2, .n_dense = 2});
    ck_assert_int_eq(mx_layer_spec(&layers, 1)->block[1].kind, MX_BLOCK_GLU);
    ck_assert_int_eq(mx_layer_ahead(layers, 0)->block[1].kind, MX_BLOCK_MOE);
    layers = mx_layers(mx_family_find("gemma2"), (MxLayerKeys){.n = 1}); /* both of a pair */
    ck_assert_int_eq(mx_layer_ahead(layers, 0)->sees, MX_SEES_WINDOW);
    ck_assert_int_eq(mx_layer_ahead(layers, 1)->sees, MX_SEES_ALL_BEFORE);
}
END_TEST

START_TEST(keys_say_kinds) {
    MxLayerKeys keys = {.n = 24, .cycle = 12};
    keys.nope_interval = said[_i].nope_interval;
    keys.moe_step = said[_i].moe_step;
    MxLayers layers = mx_layers(mx_family_find(said[_i].family), keys);
    const MxLayerSpec *spec = mx_layer_spec(&layers, said[_i].layer);
    ck_assert_int_eq(spec->rope, said[_i].rope);
    if (!strcmp(said[_i].family, "llama4"))
        ck_assert_int_eq(spec->sees, said[_i].rope ? MX_SEES_ALL_BEFORE : MX_SEES_CHUNK);
    ck_assert_int_eq(spec->block[1].kind, said[_i].kind);
    MxLayerPlace place = mx_layer_place(&layers, 12 + said[_i].layer);
    ck_assert_int_eq(place.how.period, 12);
    ck_assert_ptr_eq(spec, mx_layer_spec(&layers, 12 + said[_i].layer));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("family");
    TCase *tcase = tcase_create("family");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, rows_are_whole);
    tcase_add_loop_test(tcase, memories_divide_stacks, 0, MX_COUNT(divided));
    tcase_add_loop_test(tcase, layers_are_stacked, 0, MX_COUNT(stacked));
    tcase_add_test(tcase, runs_are_stacked_inside);
    tcase_add_loop_test(tcase, first_layers_are_a_stack, 0, MX_COUNT(first));
    tcase_add_loop_test(tcase, keys_say_kinds, 0, MX_COUNT(said));
    tcase_add_test(tcase, modules_ahead_have_a_kind);
    suite_add_tcase(suite, tcase);
    return RUN_SUITES(suite);
}
