/* typing.c — what a YAML scalar becomes: the table of OmegaConf 2.4, in files and on the command
 * line. Seen through mesh_axes, whose row keeps YAML as it stands. */
#include "config_tests.h"

#include <math.h>

typedef struct TypeCase {
    const char *yaml;
    MxYamlKind kind;
    double number; /* or 0/1 of a bool */
    const char *text;
} TypeCase;

static const TypeCase cases[] = {
    {"1e-5", MX_YAML_FLOAT, 1e-5, NULL},
    {"1.e-5", MX_YAML_FLOAT, 1e-5, NULL},
    {"1e5", MX_YAML_FLOAT, 1e5, NULL},
    {"1E+5", MX_YAML_FLOAT, 1e5, NULL},
    {"-2.5e3", MX_YAML_FLOAT, -2500, NULL},
    {".5", MX_YAML_FLOAT, 0.5, NULL},
    {".5e+1", MX_YAML_FLOAT, 5, NULL},
    {".5e1", MX_YAML_STRING, 0, ".5e1"},
    {"-.5", MX_YAML_STRING, 0, "-.5"},
    {"1.", MX_YAML_FLOAT, 1, NULL},
    {"10_000", MX_YAML_INT, 10000, NULL},
    {"1_0.5", MX_YAML_FLOAT, 10.5, NULL},
    {"_1", MX_YAML_STRING, 0, "_1"},
    {"0", MX_YAML_INT, 0, NULL},
    {"-7", MX_YAML_INT, -7, NULL},
    {"+7", MX_YAML_INT, 7, NULL},
    {"017", MX_YAML_INT, 15, NULL},
    {"-017", MX_YAML_INT, -15, NULL},
    {"089", MX_YAML_STRING, 0, "089"},
    {"0o17", MX_YAML_STRING, 0, "0o17"},
    {"0x1F", MX_YAML_INT, 31, NULL},
    {"0b101", MX_YAML_INT, 5, NULL},
    {"0x", MX_YAML_STRING, 0, "0x"},
    {"12:30:45", MX_YAML_INT, 45045, NULL},
    {"1:30.5", MX_YAML_FLOAT, 90.5, NULL},
    {"12:60", MX_YAML_STRING, 0, "12:60"},
    {"9223372036854775807", MX_YAML_INT, 9223372036854775807.0, NULL},
    {"100000000000000000000", MX_YAML_FLOAT, 1e20, NULL},
    {"2024-01-01", MX_YAML_STRING, 0, "2024-01-01"},
    {"1.2.3", MX_YAML_STRING, 0, "1.2.3"},
    {"e5", MX_YAML_STRING, 0, "e5"},
    {".inf", MX_YAML_FLOAT, HUGE_VAL, NULL},
    {"-.Inf", MX_YAML_FLOAT, -HUGE_VAL, NULL},
    {"inf", MX_YAML_STRING, 0, "inf"},
    {"yes", MX_YAML_BOOL, 1, NULL},
    {"on", MX_YAML_BOOL, 1, NULL},
    {"True", MX_YAML_BOOL, 1, NULL},
    {"NO", MX_YAML_BOOL, 0, NULL},
    {"off", MX_YAML_BOOL, 0, NULL},
    {"y", MX_YAML_STRING, 0, "y"},
    {"tRue", MX_YAML_STRING, 0, "tRue"},
    {"~", MX_YAML_NULL, 0, NULL},
    {"null", MX_YAML_NULL, 0, NULL},
    {"None", MX_YAML_STRING, 0, "None"},
    {"\"1e-5\"", MX_YAML_STRING, 0, "1e-5"},
    {"'true'", MX_YAML_STRING, 0, "true"},
    {"!!str 12", MX_YAML_STRING, 0, "12"},
    {"a=b", MX_YAML_STRING, 0, "a=b"},
    {"\"x y\"", MX_YAML_STRING, 0, "x y"},
};

static void check_node(const MxYaml *node, const TypeCase *c) {
    ck_assert_msg(node->kind == c->kind, "%s: kind %d, wanted %d", c->yaml, (int)node->kind,
                  (int)c->kind);
    if (c->kind == MX_YAML_STRING) ck_assert_str_eq(node->text, c->text);
    if (c->kind == MX_YAML_BOOL) ck_assert_int_eq(node->boolean, c->number != 0);
    if (c->kind == MX_YAML_INT || c->kind == MX_YAML_FLOAT)
        ck_assert_msg(node->number == c->number, "%s: %.17g", c->yaml, node->number);
    if (c->kind == MX_YAML_INT)
        ck_assert(c->number >= 0x1p62 || node->integer == (int64_t)c->number);
}

START_TEST(a_scalar_in_a_file) {
    MxArena arena = {.name = "test"};
    const TypeCase *c = &cases[_i];
    Loaded l = load_config(mx_arena_printf(&arena, "mesh_axes: [%s]\n", c->yaml), NULL, NULL);
    ck_assert_msg(l.ok, "%s: %s", c->yaml, l.err.text.data);
    check_node(l.config->mesh_axes->item[0], c);
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(a_scalar_on_the_command_line) {
    MxArena arena = {.name = "test"};
    const TypeCase *c = &cases[_i];
    Loaded l = load_config("", mx_arena_printf(&arena, "mesh_axes=[%s]", c->yaml), NULL);
    ck_assert_msg(l.ok, "%s: %s", c->yaml, l.err.text.data);
    check_node(l.config->mesh_axes->item[0], c);
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

/* Not a number must not equal itself, so it has no row above. */
START_TEST(nan_is_a_float) {
    Loaded l = load_config("mesh_axes: [.nan]\n", NULL, NULL);
    ck_assert(l.ok && isnan(l.config->mesh_axes->item[0]->number));
    unload(&l);
}
END_TEST

START_TEST(command_line_forms) {
    Loaded l = load_config("",
                           "--steps=3\nmetrics_file=\nrun_name=a=b\nadamw_mask=[x,'y z']\n"
                           "base_output_directory=\"p q\"\nlog_period=10_000",
                           NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->steps, 3);
    ck_assert_ptr_null(l.config->metrics_file);
    ck_assert_str_eq(l.config->run_name, "a=b");
    ck_assert_str_eq(l.config->base_output_directory, "p q");
    ck_assert_int_eq(l.config->log_period, 10000);
    ck_assert_int_eq(l.config->adamw_mask.n, 2);
    ck_assert_str_eq(l.config->adamw_mask.item[1], "y z");
    unload(&l);
}
END_TEST

START_TEST(coercions) {
    Loaded l = load_config("rope_max_timescale: 1000000.0\nnormalization_layer_epsilon: \"1e-06\"\n"
                           "metrics_file: none\nmax_num_checkpoints_to_keep: None\n"
                           "adamw_mask: \"['a', 'b']\"\nattn_logits_soft_cap: null\n"
                           "packing: \"False\"\nscan_layers: 0\nremat_policy: None\n"
                           "data_sharding: [data, fsdp]\nmu_dtype: ''\n"
                           "train_data_columns: \"('p', 'c')\"\neval_data_columns: (p|c)\n",
                           "mlp_activations=silu", NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->train_data_columns.n, 2); /* as MaxText's _coerce_to_list */
    ck_assert_str_eq(l.config->train_data_columns.item[1], "c");
    ck_assert_str_eq(l.config->eval_data_columns.item[0], "(p|c)");
    const MxConfig *c = l.config;
    ck_assert_int_eq(c->rope_max_timescale, 1000000);
    ck_assert_double_eq(c->normalization_layer_epsilon, 1e-6);
    ck_assert_ptr_null(c->metrics_file);
    ck_assert_int_eq(c->max_num_checkpoints_to_keep, 0);
    ck_assert_int_eq(c->adamw_mask.n, 2);
    ck_assert_str_eq(c->adamw_mask.item[1], "b");
    ck_assert_double_eq(c->attn_logits_soft_cap, 0);
    ck_assert(!c->packing && !c->scan_layers);
    ck_assert_str_eq(c->remat_policy, "none");
    ck_assert_str_eq(c->mu_dtype, "float32");
    ck_assert_int_eq(c->mlp_activations.n, 1);
    ck_assert_int_eq(c->data_sharding->n, 1);
    ck_assert_int_eq(c->data_sharding->item[0]->n, 2);
    unload(&l);
}
END_TEST

START_TEST(surprises_are_told) {
    Loaded l =
        load_config("steps: 017\nlog_period: 1:30\nrun_name: on\nmetrics_file: 012\n", NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->steps, 15);
    ck_assert_int_eq(l.config->log_period, 90);
    ck_assert_str_eq(l.config->run_name, "on");
    ck_assert_str_eq(l.config->metrics_file, "012");
    ck_assert_int_eq(l.config->warnings.n, 4);
    unload(&l);
    Loaded quiet = load_config("packing: yes\nsteps: 10_000\n", NULL, NULL);
    ck_assert_int_eq(quiet.config->warnings.n, 0);
    unload(&quiet);
}
END_TEST

TCase *typing_cases(void) {
    TCase *tc = tcase_create("typing");
    tcase_add_loop_test(tc, a_scalar_in_a_file, 0, MX_COUNT(cases));
    tcase_add_loop_test(tc, a_scalar_on_the_command_line, 0, MX_COUNT(cases));
    tcase_add_test(tc, nan_is_a_float);
    tcase_add_test(tc, command_line_forms);
    tcase_add_test(tc, coercions);
    tcase_add_test(tc, surprises_are_told);
    return tc;
}
