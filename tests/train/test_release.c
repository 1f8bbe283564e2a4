/* test_release.c — keys beside those of the models that have golden files: of release 0.2.5 of
 * MaxText against that release, others, and experts that are drawn against MaxText given the same;
 * loss, and gradients of some kernels. */
#include "close.h"
#include "common/told.h"
#include "golden.h"
#include "train_test.h"

#include <check.h>

static const char release[] = "train/release.h5", drawn[] = "train/random_routing.h5",
                  others[] = "train/words.h5";

/* A file's group with a model and words; what MaxText knows by the model's name. */
static const struct {
    const char *golden, *group, *more;
} cases[] = {{release, "layers", NULL},
             {release, "bias", NULL},
             {release, "weights", NULL},
             {release, "weights_fixed", NULL},
             {release, "router", NULL},
             {release, "mtp", NULL},
             {others, "scores", NULL},
             {others, "latent_chunks", NULL},
             {drawn, "mixtral", NULL},
             {drawn, "deepseek4", NULL},
             {drawn, "deepseek_no_shared", NULL},
             {drawn, "llama4", "rope_stretch_factor=8 rope_stretch_high=4"}};

/* Micro-batches have scales of their own, as in MaxText. */
static bool is_of_batch(const char *group) {
    return !strcmp(group, "weights") || !strcmp(group, "mtp");
}

static char *text_of(MxArena *arena, MxH5 *file, const char *group, const char *name) {
    char *text;
    MxError err = {0};
    ck_assert_msg(mx_h5_attr(arena, file, group, name, &text, &err) && text, "no %s", name);
    return text;
}

/* Biases of routers, which begin as zeros, get other numbers (scripts/golden_release.py). */
static void set_biases(MxTree *tree) {
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (!mx_text_has_prefix(leaf->path, "model/") || !strstr(leaf->path, "/gate/bias"))
            continue;
        int64_t n = leaf->shape.dim[0];
        float *x = golden_values(tree->arena, leaf);
        for (int64_t k = 0; k < n; k++) x[k] = 0.4F - 0.5F * (float)k / (float)(n - 1);
        mx_leaf_write(leaf, x);
    }
}

typedef struct Case {
    const char *group, *name;
    MxH5 *file;
    MxTrainState *state;
    MxBatch batch;
} Case;

/* NULL if the file, or that of the model, is not there. */
static Case *open_case(MxArena *arena, const char *golden, const char *group, const char *more) {
    MxError err = {0};
    MxConfig *config;
    Case *c = mx_new(arena, Case);
    *c = (Case){.group = group, .name = mx_arena_printf(arena, "%s:%s", golden, group)};
    if (!(c->file = golden_open(arena, golden))) return NULL;
    const char *model = text_of(arena, c->file, group, "model");
    MxH5 *from = golden_open(arena, mx_arena_printf(arena, "models/%s.h5", model));
    if (!from) return NULL;
    const char *words = text_of(arena, c->file, group, "words");
    bool ok = golden_config(arena, text_of(arena, from, "", "config_cli"),
                            mx_arena_printf(arena, "%s %s", words, more), &config, &err) &&
              mx_train_state_open(arena, config, &c->state, &err);
    ck_assert_msg(ok, "%s: %s", group, err.text.data);
    mx_train_state_init(c->state);
    MxTree *tree = mx_train_state_tree(c->state);
    ck_assert(mx_ckpt_read(from, "linen", "model/", (int)config->param_scan_axis, tree, &err));
    if (golden == release) set_biases(tree);
    close_nudge(tree);
    mx_train_state_begin(c->state);
    c->batch = golden_batch(arena, from, "train/batches", 0);
    return c;
}

static void check_number(MxArena *arena, const Case *c, CloseKind kind, const char *name,
                         double got) {
    int64_t n;
    const float *want =
        golden_read(arena, c->file, mx_arena_printf(arena, "%s/%s", c->group, name), &n);
    Close close = {.golden = c->name, .kind = kind, .what = name};
    close_number(&close, got, (double)*want);
}

static void check_gradients(MxArena *arena, const Case *c) {
    MxTree got = golden_gradient_tree(arena, c->state);
    int n_compared = 0;
    for (int i = 0; i < got.n; i++) {
        int64_t n;
        const char *leaf = got.leaves[i].path;
        const char *path = mx_arena_printf(arena, "%s/grads/%s", c->group, leaf + strlen("model/"));
        if (!mx_h5_has_array(c->file, path)) continue;
        Close close = {.golden = c->name, .kind = CLOSE_GRADIENT, .what = leaf};
        const float *want = golden_read(arena, c->file, path, &n);
        close_array(&close, got.leaves[i].data, want, n);
        n_compared++;
    }
    ck_assert_int_gt(n_compared, 0);
}

START_TEST(losses_are_the_releases) {
    MxArena arena = {.name = "release"};
    static const char *const ways[] = {"", "remat_policy=minimal",
                                       "per_device_batch_size=1 gradient_accumulation_steps=3"};
    const char *golden = cases[_i / MX_COUNT(ways)].golden;
    const char *group = cases[_i / MX_COUNT(ways)].group, *way = ways[_i % MX_COUNT(ways)];
    if (strstr(way, "accumulation") && is_of_batch(group)) return;
    const char *more = cases[_i / MX_COUNT(ways)].more;
    Case *c =
        open_case(&arena, golden, group, mx_arena_printf(&arena, "%s %s", way, more ? more : ""));
    if (!c) return;
    MxLoss loss = mx_train_loss_and_grad(c->state, &c->batch);
    check_number(&arena, c, CLOSE_LOSS, "loss", loss.loss);
    check_number(&arena, c, CLOSE_LOSS, "moe_lb_loss",
                 *mx_train_sum(c->state, &loss, "moe_lb_loss"));
    check_gradients(&arena, c);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(steps_are_diagnosed) {
    static const char *const told[] = {"told", "told_biases"};
    static const struct {
        const char *name;
        CloseKind kind;
    } figures[] = {{"diag/max_abs_grad", CLOSE_NORM},
                   {"diag/moe_bias_checksum", CLOSE_NORM},
                   {"diag/moe_bias_update_nonzero", CLOSE_COUNT},
                   {"diag/moe_overflow", CLOSE_COUNT}};
    MxArena arena = {.name = "release"};
    Case *c = open_case(&arena, release, told[_i], "");
    if (!c) return;
    mx_train_loss_and_grad(c->state, &c->batch);
    mx_train_update(c->state);
    for (int f = 0; f < MX_COUNT(figures); f++)
        check_number(&arena, c, figures[f].kind, figures[f].name,
                     told_value(c->state, figures[f].name));
    mx_arena_release(&arena);
}
END_TEST

Suite *release_suite(void) {
    Suite *suite = suite_create("release");
    TCase *tcase = tcase_create("goldens");
    tcase_add_loop_test(tcase, losses_are_the_releases, 0, MX_COUNT(cases) * 3);
    tcase_add_loop_test(tcase, steps_are_diagnosed, 0, 2);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return suite;
}
