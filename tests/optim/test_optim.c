/* test_optim.c — what optimizers keep for which parameters and under which names, what they change,
 * and which updates are left out. That the names are MaxText's is tested with its trees, that steps
 * are right with its trajectories, both in tests/train. */
#include "common/suite.h"

#include <mx/optim.h>

#include <check.h>
#include <math.h>

static MxArena arena;
static MxTree params;
static MxError err;

static void add(const char *path, MxShape shape) {
    MxLeaf leaf = {.path = path, .dtype = MX_F32, .shape = shape, .n_contract = 1};
    if (strstr(path, "layers_"))
        leaf.stack = (MxStack){.path = "decoder/layers/mlp/kernel",
                               .axis = "layers",
                               .index = path[15] - '0',
                               .count = 2};
    mx_tree_add(&params, leaf);
}

static void set_up(void) {
    arena = (MxArena){.name = "test"};
    err = (MxError){0};
    mx_tree_init(&params, &arena);
    add("decoder/layers_0/mlp/kernel", MX_SHAPE(4, 6));
    add("decoder/layers_1/mlp/kernel", MX_SHAPE(4, 6));
    add("decoder/norm/scale", MX_SHAPE(4));
}

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

static MxConfig config_of(const char *opt_type) {
    return (MxConfig){.opt_type = opt_type,
                      .mu_dtype = "bfloat16",
                      .dtype = "float32",
                      .optimizer_state_dtype = "float32"};
}

static MxStrs one(const char **pattern) {
    return (MxStrs){.n = 1, .item = pattern};
}

static MxOptim *optim_of(const MxConfig *config) {
    MxOptim *o;
    ck_assert_msg(mx_optim_new(&arena, config, &params, MX_KIND_PARAM, &o, &err), "%s",
                  err.text.data);
    return o;
}

/* One that learns faster has another learning rate, and all else of its part, of which another with
 * the rate 1 stays. */
START_TEST(parameters_learn_at_their_rates) {
    MxConfig config = config_of("adamw");
    const MxRates rates = {0.25, 0.125};
    float usual[MX_HYPER_COUNT], fast[MX_HYPER_COUNT];
    config.adam_b1 = 0.9, config.adam_b2 = 0.95;
    params.leaves[1].rate = 8, params.leaves[2].rate = 1;
    const MxOptim *o = optim_of(&config);
    ck_assert_int_eq(o->n_paces, 2);
    ck_assert(o->pace[0] == 0 && o->pace[1] == 1 && o->pace[2] == 0);
    ck_assert_str_eq(mx_optim_pace(&arena, o, 0), "adamw");
    ck_assert_str_eq(mx_optim_pace(&arena, o, 1), "adamw at 8");
    mx_optim_hyper(o, 0, rates, usual);
    mx_optim_hyper(o, 1, rates, fast);
    ck_assert(usual[MX_HYPER_LR] == 0.25f && fast[MX_HYPER_LR] == 2);
    usual[MX_HYPER_LR] = fast[MX_HYPER_LR];
    ck_assert(!memcmp(usual, fast, sizeof usual));
}
END_TEST

/* The array in a slot of a parameter. */
static const MxLeaf *kept(const MxOptim *o, int param, int slot) {
    int at = o->array[param * MX_OPTIM_KEPT + slot];
    return at == MX_NONE ? NULL : &o->arrays[at].leaf;
}

START_TEST(moments_lie_where_optax_has_them) {
    MxConfig c = config_of("adamw");
    const MxOptim *o = optim_of(&c);
    ck_assert_int_eq(o->n_arrays, 6);
    const MxLeaf *mu = kept(o, 1, 0), *nu = kept(o, 1, 1);
    ck_assert_str_eq(mu->path, "optimizer/opt_state/0/mu/decoder/layers_1/mlp/kernel");
    ck_assert_str_eq(mu->stack.path, "optimizer/opt_state/0/mu/decoder/layers/mlp/kernel");
    ck_assert_int_eq(mu->dtype, MX_BF16);
    ck_assert_str_eq(nu->path, "optimizer/opt_state/0/nu/decoder/layers_1/mlp/kernel");
    ck_assert_int_eq(nu->dtype, MX_F32);
    ck_assert_int_eq(o->numbers.n, 2);
    ck_assert_int_ge(mx_tree_find(&o->numbers, "optimizer/opt_state/2/count"), 0);
    c = config_of("sgd");
    o = optim_of(&c);
    ck_assert(!mx_optim_has_kept(o));
    ck_assert_int_eq(mx_tree_find(&o->numbers, "optimizer/opt_state/1/count"), 0);
}
END_TEST

/* Blocks along the dim that has the largest, at least eight of them; what is small stays. */
START_TEST(moments_are_bytes_in_blocks) {
    MxConfig c = config_of("adamw");
    c.optimizer_state_dtype = "int8";
    add("decoder/wide/kernel", MX_SHAPE(32, 512, 6));
    const MxOptim *o = optim_of(&c);
    const MxLeaf *nu = kept(o, 3, 1);
    ck_assert(nu->quant.type == MX_SQUARES && nu->quant.dim == 1 && nu->quant.tile == 64);
    ck_assert(nu->dtype == MX_U8 && mx_shape_equal(nu->shape, MX_SHAPE(32, 512, 6)));
    ck_assert_int_eq(kept(o, 3, 0)->quant.type, MX_DYNAMIC);
    const MxOptimArray *codes = &o->arrays[o->array[3 * MX_OPTIM_KEPT + 1]];
    const MxLeaf *scales = &o->arrays[codes->scales].leaf;
    ck_assert_str_eq(scales->path, "optimizer/opt_state/0/nu_scales/decoder/wide/kernel");
    ck_assert(scales->dtype == MX_F32 && mx_shape_equal(scales->shape, MX_SHAPE(32, 8, 6)));
    ck_assert(kept(o, 0, 0)->dtype == MX_BF16 && !kept(o, 0, 0)->quant.type);
    ck_assert_int_eq(o->arrays[o->array[0]].scales, MX_NONE);
}
END_TEST

/* Of the two largest dims, the last of equals, each array lacks one. */
START_TEST(factored_moments_lack_a_dim) {
    MxConfig c = config_of("adafactor");
    c.adafactor_factored = true;
    c.adafactor_min_dim_size_to_factor = 6;
    add("decoder/wide/kernel", MX_SHAPE(8, 2, 8));
    add("decoder/tall/kernel", MX_SHAPE(9, 7));
    const MxOptim *o = optim_of(&c);
    ck_assert(mx_shape_equal(kept(o, 3, 0)->shape, MX_SHAPE(8, 2)));
    ck_assert(mx_shape_equal(kept(o, 3, 1)->shape, MX_SHAPE(2, 8)));
    ck_assert(mx_shape_equal(kept(o, 4, 0)->shape, MX_SHAPE(7)));
    ck_assert(mx_shape_equal(kept(o, 4, 1)->shape, MX_SHAPE(9)));
    ck_assert_str_eq(kept(o, 4, 0)->path, "optimizer/opt_state/0/v_row/decoder/tall/kernel");
    ck_assert(!kept(o, 3, 2) && !kept(o, 0, 0) && !kept(o, 0, 3));
    ck_assert(mx_shape_equal(kept(o, 0, 2)->shape, MX_SHAPE(4, 6))); /* one is below 6 */
}
END_TEST

START_TEST(wrappers_stand_around_each_other) {
    MxConfig c = config_of("adamw");
    c.trainable_parameters_mask = one((const char *[]){"mlp"});
    c.skip_step_on_spikes = true;
    c.skip_step_interval = 5;
    const MxOptim *o = optim_of(&c);
    ck_assert_int_eq(o->part[2], MX_NONE);
    ck_assert_ptr_null(kept(o, 2, 0));
    ck_assert_str_eq(kept(o, 0, 0)->path,
                     "optimizer/opt_state/inner_states/trainable/inner_state/inner_state/0/mu/"
                     "decoder/layers_0/mlp/kernel");
    int at =
        mx_tree_find(&o->numbers, "optimizer/opt_state/inner_states/trainable/inner_state/losses");
    ck_assert_int_ge(at, 0);
    ck_assert_int_eq(o->numbers.leaves[at].shape.dim[0], 5);
}
END_TEST

START_TEST(masks_see_the_paths_of_stacks) {
    MxConfig c = config_of("adamw");
    c.adamw_mask = one((const char *[]){"layers_1"});
    ck_assert(optim_of(&c)->is_masked[1]);
    c.scan_layers = true;
    ck_assert(!optim_of(&c)->is_masked[1]);
    c.adamw_mask = one((const char *[]){"layers/mlp"});
    ck_assert(optim_of(&c)->is_masked[0] && !optim_of(&c)->is_masked[2]);
}
END_TEST

static bool is_left_out(MxOptim *o, double loss, double norm) {
    float limit[2];
    mx_optim_limit(o, loss, limit);
    bool out = !((float)norm - limit[0] <= limit[1]);
    mx_optim_stepped(o, loss, norm, out);
    return out;
}

/* Four steps back; half of them are enough. */
START_TEST(spikes_are_left_out) {
    MxConfig c = config_of("adamw");
    c.skip_step_on_spikes = true;
    c.skip_step_interval = 4;
    c.skip_step_scaling_factor = 2;
    MxOptim *o = optim_of(&c);
    ck_assert(!is_left_out(o, 9, 9)); /* nothing to compare with */
    ck_assert(!is_left_out(o, 8, 8.5));
    ck_assert(!is_left_out(o, 8.5, 9));
    ck_assert(is_left_out(o, 12, 9)); /* mean 8.5, deviation 0.5 */
    ck_assert(is_left_out(o, 8, 20));
    ck_assert(!is_left_out(o, 12, 20)); /* they count in the windows: no spikes any more */
    ck_assert(is_left_out(o, NAN, 9));
    ck_assert_int_eq(mx_optim_count(o), 4);
    mx_optim_start(o, 7); /* resumed: the counts say more than the step does */
    ck_assert_int_eq(mx_optim_count(o), 4);
    mx_optim_start(o, 0);
    ck_assert_int_eq(mx_optim_count(o), 0);
    ck_assert(!is_left_out(o, 90, 90));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("optim");
    TCase *tests = tcase_create("optim");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, parameters_learn_at_their_rates);
    tcase_add_test(tests, moments_lie_where_optax_has_them);
    tcase_add_test(tests, moments_are_bytes_in_blocks);
    tcase_add_test(tests, factored_moments_lack_a_dim);
    tcase_add_test(tests, wrappers_stand_around_each_other);
    tcase_add_test(tests, masks_see_the_paths_of_stacks);
    tcase_add_test(tests, spikes_are_left_out);
    suite_add_tcase(suite, tests);
    return RUN_SUITES(suite);
}
