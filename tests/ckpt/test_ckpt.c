/* test_ckpt.c — runs the suites of the room, and holds what they share. */
#include "ckpt_test.h"

MxArena arena = {.name = "test"};
MxError err;
char *folder;

void set_up(void) {
    folder = scratch_make(&arena);
}

void tear_down(void) {
    scratch_remove(folder);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

TCase *add_case(Suite *suite, const char *name) {
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return tcase;
}

char *in_folder(const char *name) {
    return mx_path_join(&arena, folder, name);
}

void ck_ok(bool ok) {
    ck_assert_msg(ok, "%s", err.count ? err.text.data : "failed without a message");
    ck_assert_int_eq(err.count, 0);
}

void ck_failed(bool ok, const char *words) {
    ck_assert_msg(!ok, "no error, wanted \"%s\"", words);
    ck_assert_int_ge(err.count, 1);
    ck_assert_msg(strstr(err.text.data, words) != NULL, "\"%s\" lacks \"%s\"", err.text.data,
                  words);
    ck_assert_msg(err.exit == MX_EXIT_BAD_INPUT, "exit %d: %s", err.exit, err.text.data);
    mx_error_release(&err);
}

/* ---- states */

static void *zeros(const MxLeaf *leaf) {
    return mx_arena_alloc(&arena, leaf_bytes(leaf));
}

static void add(MxTree *tree, MxLeaf leaf) {
    leaf.data = zeros(&leaf);
    mx_tree_add(tree, leaf);
}

static void add_layers(MxTree *tree, int n_layers, const char *name, MxShape shape) {
    for (int i = 0; i < n_layers; i++)
        mx_tree_add(tree,
                    (MxLeaf){.path = mx_arena_printf(&arena, "decoder/layers_%d/%s", i, name),
                             .shape = shape,
                             .stack = {.path = mx_arena_printf(&arena, "decoder/layers/%s", name),
                                       .axis = "layers",
                                       .index = i,
                                       .count = n_layers}});
}

/* The whole state for some parameters. */
static MxTree state_of(const MxTree *params, MxDtype mu) {
    MxTree state;
    mx_tree_init(&state, &arena);
    mx_tree_add_under(&state, "model", params);
    MxLeaf *moments = mx_tree_add_under(&state, "optimizer/opt_state/0/mu", params);
    for (int i = 0; i < params->n; i++) moments[i].dtype = mu;
    mx_tree_add_under(&state, "optimizer/opt_state/0/nu", params);
    for (int i = params->n; i < state.n; i++) state.leaves[i].kind = MX_KIND_OPTIMIZER;
    for (int i = 0; i < state.n; i++) state.leaves[i].data = zeros(&state.leaves[i]);
    add(&state, (MxLeaf){.path = "optimizer/step", .kind = MX_KIND_COUNTER, .dtype = MX_U32});
    add(&state,
        (MxLeaf){.path = "optimizer/opt_state/0/count", .kind = MX_KIND_COUNTER, .dtype = MX_I32});
    add(&state,
        (MxLeaf){.path = "optimizer/opt_state/2/count", .kind = MX_KIND_COUNTER, .dtype = MX_I32});
    return state;
}

MxTree golden_state(int n_layers) {
    enum { D = 32, N = 4, K = 2, H = 8, M = 48, V = 96 };
    static const struct {
        const char *name;
        MxShape shape;
    } rows[] = {
        {"mlp/wi_0/kernel", {2, {D, M}}},
        {"mlp/wi_1/kernel", {2, {D, M}}},
        {"mlp/wo/kernel", {2, {M, D}}},
        {"post_self_attention_layer_norm/scale", {1, {D}}},
        {"pre_self_attention_layer_norm/scale", {1, {D}}},
        {"self_attention/key/kernel", {3, {D, K, H}}},
        {"self_attention/out/kernel", {3, {N, H, D}}},
        {"self_attention/query/kernel", {3, {D, N, H}}},
        {"self_attention/value/kernel", {3, {D, K, H}}},
    };
    MxTree params;
    mx_tree_init(&params, &arena);
    mx_tree_add(&params, (MxLeaf){.path = "token_embedder/embedding", .shape = MX_SHAPE(V, D)});
    for (int i = 0; i < MX_COUNT(rows); i++)
        add_layers(&params, n_layers, rows[i].name, rows[i].shape);
    mx_tree_add(&params, (MxLeaf){.path = "decoder/decoder_norm/scale", .shape = MX_SHAPE(D)});
    mx_tree_add(&params, (MxLeaf){.path = "decoder/logits_dense/kernel", .shape = MX_SHAPE(D, V)});
    return state_of(&params, MX_F32);
}

MxTree small_state(uint64_t seed) {
    MxTree params;
    mx_tree_init(&params, &arena);
    mx_tree_add(&params, (MxLeaf){.path = "token_embedder/embedding", .shape = MX_SHAPE(7, 4)});
    add_layers(&params, 3, "mlp/wi_0/kernel", MX_SHAPE(4, 5));
    add_layers(&params, 3, "norm/scale", MX_SHAPE(4));
    add_layers(&params, 3, "self_attention/query/kernel", MX_SHAPE(4, 2, 6));
    mx_tree_add(&params, (MxLeaf){.path = "decoder/decoder_norm/scale", .shape = MX_SHAPE(4)});
    MxTree state = state_of(&params, MX_BF16);
    for (int i = 0; seed && i < state.n; i++) {
        uint8_t *bytes = state.leaves[i].data;
        for (size_t k = 0; k < leaf_bytes(&state.leaves[i]); k++) {
            uint32_t words[4];
            mx_philox(seed, (uint64_t)i, k, words);
            bytes[k] = (uint8_t)words[0];
        }
        if (state.leaves[i].kind == MX_KIND_COUNTER) bytes[3] &= 0x7f; /* counts are not negative */
    }
    return state;
}

size_t leaf_bytes(const MxLeaf *leaf) {
    return (size_t)mx_shape_count(leaf->shape) * mx_dtype_bytes(leaf->dtype);
}

void ck_same(const MxTree *a, const MxTree *b, const char *prefix, const char *what) {
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        const MxLeaf *x = &a->leaves[i];
        if (!mx_text_has_prefix(x->path, prefix)) continue;
        int k = mx_tree_find(b, x->path);
        ck_assert_msg(k >= 0, "%s: no %s", what, x->path);
        ck_assert_msg(!memcmp(x->data, b->leaves[k].data, leaf_bytes(x)), "%s: %s differs", what,
                      x->path);
        n++;
    }
    ck_assert_int_gt(n, 0);
}

MxH5 *open_golden(const char *name) {
    MxH5 *file;
    const char *path = goldens_need(&arena, mx_arena_printf(&arena, "models/%s.h5", name));
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    return file;
}

const MxForm forms[] = {
    {.is_linen = false, .is_scanned = false},
    {.is_linen = true, .is_scanned = false},
    {false, true, 0},
    {true, true, 0},
    {false, true, 1},
    {true, true, 1},
    {false, true, 2},
    {true, true, 2},
    {false, true, 9},
    {true, true, 9},
};
const int n_forms = MX_COUNT(forms);

const char *form_text(MxForm form) {
    return mx_arena_printf(&arena, "%s %s axis %d", form.is_linen ? "linen" : "nnx",
                           form.is_scanned ? "scanned" : "unscanned", form.scan_axis);
}

int main(void) {
    return RUN_SUITES(layout_suite(), read_suite(), save_suite(), share_suite(), adapters_suite(),
                      trees_suite(), tools_suite(), hostile_suite(), gguf_suite(),
                      lora_tools_suite(), peft_suite(), few_bits_suite(), hf_suite(),
                      hf_config_suite(), hf_images_suite(), runs_suite(), hf_deepseek4_suite(),
                      hf_scaled_suite(), origin_suite(), logits_suite());
}
