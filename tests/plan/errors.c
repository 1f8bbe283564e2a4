/* errors.c — what cannot be planned, what sharding_strict refuses, what a run still refuses: each
 * an error with its place, exit 2, and nothing on stdout. */
#include "plan_test.h"

/* words of the command line, text of the config file (NULL = base.yml), what stderr holds */
static const struct {
    const char *words, *yaml, *wanted;
} cases[] = {
    /* the mesh */
    {"--plan", "mesh_axes: [data, fdsp]\n",
     ":2:19: mesh_axes: unrecognized mesh axis \"fdsp\"\nhint: did you mean \"fsdp\"?"},
    {"--plan", "mesh_axes: [data, fsdp, data]\n", "mesh_axes: \"data\" occurs more than once"},
    {"--plan", "mesh_axes: [data, fsdp]\nici_tensor_parallelism: 2\n",
     ":3:25: ici_tensor_parallelism: the mesh has no axis \"tensor\""},
    {"--plan", "ici_data_parallelism: -1\n",
     "ici parallelism has more than one -1: ici_data_parallelism and ici_fsdp_parallelism"},
    {"--plan", "ici_data_parallelism: -2\n",
     ":2:23: ici_data_parallelism: wants -1 or at least 1 devices, found -2"},
    {"--plan", "dcn_fsdp_parallelism: 0\n",
     ":2:23: dcn_fsdp_parallelism: wants -1 or at least 1 slices, found 0"},
    {"--plan", "num_devices: 8\nici_fsdp_parallelism: 3\nnum_slices: 1\n",
     ":3:23: ici parallelism makes 3 (ici_fsdp_parallelism=3), but there are 8 devices per slice"},
    {"--plan", "num_devices: 8\nici_tensor_parallelism: 3\n",
     "ici_fsdp_parallelism=-1 cannot be filled in: 8 devices per slice do not divide by 3"},
    {"--plan", "num_devices: 0\n", ":2:14: num_devices: wants -1 or at least 1 devices, found 0"},
    {"--plan", "num_devices: 6\nnum_slices: 4\n", "6 devices do not divide into 4 slices"},
    {"--plan ici_fsdp_parallelism=4000000000000 ici_tensor_parallelism=4000000000000", NULL,
     "per_device_batch_size: 8 rows on each of "},
    {"--plan per_device_batch_size=1000000000 max_target_length=1000000000", NULL,
     "per_device_batch_size: 1e+18 tokens on one rank are more than a plan takes"},
    {"--plan base_emb_dim=1000000000 base_mlp_dim=1000000000", NULL,
     "base_emb_dim: a model of 1.2e+19 parameters; a plan takes at most 1e+16"},
    {"--explain-sharding a/b base_num_decoder_layers=1000000000", NULL,
     "base_num_decoder_layers: 1000000000 layers; a plan takes at most 10000"},
    /* rules */
    {"--plan", "logical_axis_rules: {embed: fsdp}\n",
     ":2:21: logical_axis_rules: wants a list of rules [axis, mesh axes], found {embed: fsdp}"},
    {"--plan", "logical_axis_rules:\n  - [embed, fsdp]\n  - embed\n",
     ":4:5: logical_axis_rules: wants a rule [axis, mesh axes], found \"embed\""},
    {"--plan custom_mesh_and_rule=pure-fdsp", NULL,
     "custom_mesh_and_rule: unrecognized custom mesh \"pure-fdsp\""},
    {"--plan compile_topology=v5e-3", NULL, "compile_topology: unrecognized topology \"v5e-3\""},
    {"--plan custom_mesh_and_rule=pure-fsdp mesh_axes=[data]", NULL,
     "mesh_axes: [data] is also set to [fsdp] at configs/custom_mesh_and_rule/pure-fsdp.yml:4"},
    {"--plan", "shard_optimizer_over_data: true\nopt_type: sgd\n",
     ":2:28: shard_optimizer_over_data: optimizer \"sgd\" keeps no moments"},
    /* the pipeline */
    {"--plan", "ici_pipeline_parallelism: 3\n",
     ":2:27: ici_pipeline_parallelism: 3 stages do not divide 4 decoder layers"},
    {"--plan", "ici_pipeline_parallelism: 2\nnum_pipeline_repeats: 4\n",
     ":3:23: num_pipeline_repeats: 4 layers on 2 stages make 2 repeats, found 4"},
    {"--plan", "ici_pipeline_parallelism: 2\nnum_layers_per_pipeline_stage: 3\n",
     ":3:32: num_layers_per_pipeline_stage: 3 do not divide the 2 layers of each of 2 stages"},
    {"--plan", "ici_pipeline_parallelism: 2\nnum_pipeline_microbatches: 5\n",
     ":3:28: num_pipeline_microbatches: 16 rows do not divide into 5 micro-batches of a pipeline"},
    {"--plan", "ici_pipeline_parallelism: 2\npipeline_parallel_layers: 2\n",
     ":3:27: pipeline_parallel_layers: not available yet (got 2; only -1 and all 4 layers work "
     "now)"},
    /* explanations and options */
    {"--explain-sharding decoder/layers/mlp/wi_O/kernel", NULL,
     "there is no parameter \"decoder/layers/mlp/wi_O/kernel\" in this model\nhint: did you mean "
     "\"decoder/layers/mlp/wi_0/kernel\"?"},
    {"--explain-sharding embed,mlp,embed", NULL, "axis \"embed\" occurs more than once in "},
    {"--explain-sharding a,b,c,d,e,f,g", NULL, "an array has at most 6 dims"},
    {"--explain-sharding", NULL, "--explain-sharding wants a value: --explain-sharding WHAT"},
    {"--dump-graph gard", NULL,
     "--dump-graph: no entry \"gard\", wants one of init, weigh, grad, update, eval, frozen"},
    {"--dump-graph grad:fuze", NULL,
     "--dump-graph: no pass \"fuze\", wants one of trace, remat, fuse, schedule, gathers, bucket, "
     "overlap"},
    {"--plann", NULL, "unrecognized option \"--plann\"\nhint: did you mean \"--plan\"?"},
    /* strict: a conflict, replication in silence, doubtful rules, sizes, too much unsharded */
    {"--plan",
     "sharding_strict: true\nici_fsdp_parallelism: 2\nlogical_axis_rules: [[mlp, fsdp], [embed, "
     "fsdp], [norm, fsdp], [vocab, fsdp], [embed_vocab, []], [q_heads, []], [kv_heads, []], "
     "[heads, "
     "[]], [kv, []], [kv_head_dim, []], [layers, []]]\nici_tensor_parallelism: 2\n",
     ":4:35: model/decoder/layers"},
    {"--plan sharding_strict=true custom_mesh_and_rule=pure-fsdp num_devices=2", NULL,
     "model/decoder/layers/pre_self_attention_layer_norm/scale: axis \"norm\" (dim 0): no rule "
     "names it, so it is "
     "replicated"},
    {"--plan", "sharding_strict: true\nlogical_axis_rules: [[embed, tensr]]\n",
     ":3:22: rule embed -> tensr: "},
    {"--plan", "sharding_strict: true\nici_fsdp_parallelism: 3\n", "does not divide dim "},
    {"--plan",
     "sharding_strict: true\nici_fsdp_parallelism: 2\nlogical_axis_rules: [[embed, []], [mlp, "
     "[]], [norm, []], [vocab, []], [embed_vocab, []], [q_heads, []], [kv_heads, []], [heads, []], "
     "[kv, []], [kv_head_dim, []], [layers, []]]\n",
     "Unsharded parameter percentage (100.00%)exceeds tolerance (2.00%)."},
    /* a run, not a plan */
    {"steps=1 enable_checkpointing=false sharding_strict=true",
     "logical_axis_rules: [[embed, tensr]]\n", ":2:22: rule embed -> tensr: "},
    {"ici_fsdp_parallelism=2", NULL,
     "the mesh has 2 devices (fsdp=2), but this run has 1 rank: start it with mpirun -n 2"},
    {"dcn_data_parallelism=2", NULL, "the mesh has 2 devices (data=2), but this run has 1 rank"},
    {"num_devices=2", NULL, "the mesh has 2 devices (fsdp=2), but this run has 1 rank"},
    {"num_slices=2", NULL, "num_slices: 2 slices of 1 rank"},
};

START_TEST(refused) {
    const char *file = "configs/base.yml";
    if (cases[_i].yaml) {
        file = temp_path("case.yml");
        write_text(file, mx_arena_printf(&arena, "base_config: base.yml\n%s", cases[_i].yaml));
    }
    /* options that want a value stand last, so that the missing one is missed */
    Run run = run_mxtrain(mx_arena_printf(&arena, "--config %s %s", file, cases[_i].words));
    ck_assert_msg(run.code == MX_EXIT_CONFIG, "case %d: %s %s: exit %d: %s", _i, cases[_i].words,
                  cases[_i].yaml ? cases[_i].yaml : "", run.code, run.err);
    ck_assert_msg(strstr(run.err, cases[_i].wanted), "case %d: no \"%s\" in: %s", _i,
                  cases[_i].wanted, run.err);
    ck_assert_msg(!*run.out, "case %d: stdout: %s", _i, run.out);
    if (cases[_i].wanted[0] == ':')
        ck_assert_msg(strstr(run.err, mx_arena_printf(&arena, "case.yml%s", cases[_i].wanted)),
                      "case %d: %s", _i, run.err);
}
END_TEST

/* The config room reads 20000 values: 10^5 rules are refused in one message. */
START_TEST(too_many_rules) {
    enum { N = 100000 };
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add(&text, "logical_axis_rules:\n");
    for (int i = 0; i < N; i++) mx_text_add(&text, "- [a,b]\n");
    const char *file = temp_path("rules.yml");
    write_text(file, text.data);
    Run run = run_mxtrain(mx_arena_printf(&arena, "--plan --config %s", file));
    ck_assert_int_eq(run.code, MX_EXIT_CONFIG);
    ck_assert_msg(strstr(run.err, "rules.yml:") && strlen(run.err) < 4096, "%s", run.err);
}
END_TEST

/* One device trains, whatever names its sizes have: -1 and 1. */
START_TEST(one_device_trains) {
    const char *dir = temp_path("run");
    run_ok(mx_arena_printf(&arena,
                           "--config configs/base.yml steps=1 eval_interval=-1 "
                           "enable_checkpointing=false base_num_decoder_layers=1 base_emb_dim=32 "
                           "base_mlp_dim=32 max_target_length=16 per_device_batch_size=1 "
                           "ici_fsdp_parallelism=1 ici_data_parallelism=-1 num_devices=1 "
                           "sharding_strict=true base_output_directory=%s",
                           dir));
}
END_TEST

/* What needs no tokenizer trains with any; a policy of MaxText's and a batch never evaluated. */
START_TEST(maxtexts_synthetic_command_trains) {
    run_ok(
        mx_arena_printf(&arena,
                        "--config configs/base.yml steps=1 eval_interval=0 dataset_type=synthetic "
                        "tokenizer_type=sentencepiece remat_policy=save_qkv_proj "
                        "enable_checkpointing=false base_num_decoder_layers=1 base_emb_dim=32 "
                        "base_mlp_dim=32 max_target_length=16 per_device_batch_size=1 "
                        "use_tunix_gradient_accumulation=true base_output_directory=%s",
                        temp_path("synthetic")));
}
END_TEST

/* A plan tells what a run refuses. */
START_TEST(a_plan_tells_refusals) {
    const char *text = run_ok("--plan dataset_type=tfds base_output_directory=gs://bucket/out").out;
    ck_assert(
        strstr(text, "\nerror, when run: <command line>: dataset_type: tfds wants dataset_path"));
    ck_assert(strstr(text, "\n<command line>: base_output_directory: \"gs://bucket/out\" is "));
    /* MaxText's own base.yml names a tokenizer's type and no files. */
    text = run_ok("--plan --config tests/config/maxtext_base.yml run_name=x").out;
    ck_assert(strstr(text, "tokenizer_type: \"sentencepiece\" is read from files, but none"));
    text = run_ok("--plan num_devices=16 ici_fsdp_parallelism=16 optimizer_state_dtype=int8").out;
    ck_assert(strstr(text,
                     "\nerror, when run: mesh axis \"fsdp\" (size 16) does not divide dim 0 = "
                     "8 of optimizer/opt_state/0/mu_scales/decoder/layers_0/"));
    const MxJson *plan = run_json("dataset_type=tfds");
    ck_assert_uint_eq(mx_json_length(mx_json_get(plan, "errors_when_run")), 1);
    ck_assert_uint_eq(mx_json_length(mx_json_get(run_json(""), "errors_when_run")), 0);
}
END_TEST

Suite *error_suite(void) {
    Suite *s = suite_create("errors");
    TCase *tc = tcase_create("refused");
    tcase_add_checked_fixture(tc, test_setup, test_teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, refused, 0, MX_COUNT(cases));
    suite_add_tcase(s, tc);
    suite_add(s, "too_many_rules", too_many_rules, 60);
    suite_add(s, "one_device_trains", one_device_trains, 60);
    suite_add(s, "maxtexts_synthetic_command_trains", maxtexts_synthetic_command_trains, 60);
    suite_add(s, "a_plan_tells_refusals", a_plan_tells_refusals, 60);
    return s;
}
