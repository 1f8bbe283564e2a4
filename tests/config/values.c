/* values.c — derived values, warnings, dumping and reporting. */
#include "common/goldens.h"
#include "config_tests.h"

START_TEST(sizes_follow_the_scale) {
    /* e = log2(scale); q, rest = divmod(e, 3): mlp and heads q + (rest > 0), emb q + (rest > 1) */
    static const struct {
        int scale, emb, mlp, layers;
    } cases[] = {{1, 1, 1, 1}, {2, 1, 2, 1},  {4, 2, 2, 1},
                 {8, 2, 2, 2}, {16, 2, 4, 2}, {128, 4, 8, 4}};
    for (int i = 0; i < MX_COUNT(cases); i++) {
        MxArena arena = {.name = "test"};
        Loaded l =
            load_config("base_emb_dim: 10\nbase_mlp_dim: 20\nbase_num_query_heads: 6\n"
                        "base_num_kv_heads: 3\nbase_num_decoder_layers: 5\nhead_dim: 8\n",
                        mx_arena_printf(&arena, "global_parameter_scale=%d", cases[i].scale), NULL);
        ck_assert_msg(l.ok, "%s", l.err.text.data);
        ck_assert_int_eq(l.config->emb_dim, 10 * cases[i].emb);
        ck_assert_int_eq(l.config->mlp_dim, 20 * cases[i].mlp);
        ck_assert_int_eq(l.config->num_query_heads, 6 * cases[i].mlp);
        ck_assert_int_eq(l.config->num_kv_heads, 3 * cases[i].mlp);
        ck_assert_int_eq(l.config->num_decoder_layers, 5 * cases[i].layers);
        ck_assert_int_eq(l.config->head_dim, 8);
        unload(&l);
        mx_arena_release(&arena);
    }
}
END_TEST

START_TEST(batches_and_steps) {
    Loaded l = load_config("per_device_batch_size: 3\nmax_target_length: 24\nsteps: -1\n"
                           "learning_rate_schedule_steps: 8\nexpansion_factor_real_data: 2\n",
                           NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    const MxConfig *c = l.config;
    ck_assert_int_eq(c->steps, 8);
    ck_assert_int_eq(c->micro_batch_size_to_train_on, 3);
    ck_assert_int_eq(c->global_batch_size_to_train_on, 3);
    ck_assert_int_eq(c->global_batch_size_to_load, 6);
    ck_assert_int_eq(c->global_batch_size_to_eval_on, 3);
    ck_assert_double_eq(c->eval_per_device_batch_size, 3);
    ck_assert_int_eq(c->tokens_per_step, 72);
    unload(&l);
    Loaded d = load_config("steps: 7\neval_per_device_batch_size: 2\nweight_dtype: float32\n"
                           "mu_dtype: bfloat16\n",
                           NULL, NULL);
    ck_assert_int_eq(d.config->learning_rate_schedule_steps, 7);
    ck_assert_int_eq(d.config->global_batch_size_to_eval_on, 2);
    ck_assert_str_eq(d.config->mu_dtype, "bfloat16");
    unload(&d);
}
END_TEST

/* MaxText's keys of learning from rewards say what others say elsewhere; 7 prompts on 3 devices are
 * 7 again. */
START_TEST(batches_of_rewards) {
    static const char text[] = "use_grpo: true\nrl.reward: maxtext\ndataset_type: hf\n"
                               "hf_train_files: a.jsonl\nbatch_size: 14\nnum_batches: 10\n"
                               "train_fraction: 0.75\nrl.num_iterations: 2\nnum_epoch: 3\n"
                               "train_micro_batch_size: 7\nnum_test_batches: 6\n"
                               "eval_batch_size: 49\nnum_devices: 3\nici_data_parallelism: 3\n";
    Loaded l = load_config(text, NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    const MxConfig *c = l.config;
    ck_assert_int_eq(c->micro_batch_size_to_train_on, 7);
    ck_assert_int_eq(c->gradient_accumulation_steps, 2);
    ck_assert_int_eq(c->global_batch_size_to_load, 14);
    ck_assert_int_eq(c->global_batch_size_to_load_eval, 49);
    ck_assert_int_eq(c->steps, 45);
    ck_assert_int_eq(c->learning_rate_schedule_steps, 45);
    ck_assert_int_eq(c->eval_steps, 6);
    ck_assert(!c->packing);
    unload(&l);
    Loaded later = load_config(text, "test_batch_start_index=50", NULL);
    ck_assert_msg(later.ok, "%s", later.err.text.data);
    ck_assert_int_eq(later.config->eval_steps, 4);
    unload(&later);
    Loaded all = load_config(text, "test_batch_start_index=246", NULL);
    ck_assert(!all.ok);
    ck_assert_ptr_nonnull(strstr(all.err.text.data, "246 leaves no whole batch of the prompts of "
                                                    "num_test_batches, 6 of 49"));
    unload(&all);
    Loaded none = load_config(text, "num_test_batches=0\neval_batch_size=-1", NULL);
    ck_assert_msg(none.ok, "%s", none.err.text.data);
    ck_assert_int_eq(none.config->eval_interval, -1);
    ck_assert_int_eq(none.config->global_batch_size_to_load_eval, 14);
    unload(&none);
}
END_TEST

/* Sizes that overflow are errors, not undefined behaviour (the sanitizers watch). */
START_TEST(absurd_sizes) {
    Loaded l = load_config("base_emb_dim: 9223372036854775807\nglobal_parameter_scale: 1048576\n"
                           "per_device_batch_size: 1e300\nmax_target_length: 9223372036854775807\n"
                           "expansion_factor_real_data: 1e300\nsteps: 9223372036854775807\n"
                           "num_experts: 1e300\neval_per_device_batch_size: 1e19\n"
                           "rope_max_timescale: 9223372036854775808\n",
                           NULL, NULL);
    ck_assert(!l.ok);
    ck_assert_msg(l.err.count == 7, "%s", l.err.text.data);
    unload(&l);
}
END_TEST

START_TEST(names_of_folders) {
    Loaded l = load_config("", NULL, NULL);
    ck_assert_str_eq(l.config->run_name, "default");
    ck_assert_str_eq(l.config->run_dir, "./maxtext_output/default");
    unload(&l);
    Loaded m = load_config("base_output_directory: /x/\nmodel_name: llama2-7b\n", NULL, NULL);
    ck_assert_str_eq(m.config->run_dir, "/x/llama2-7b");
    ck_assert_str_eq(m.config->checkpoint_dir, "/x/llama2-7b/checkpoints");
    unload(&m);
}
END_TEST

/* A line of the golden: keys of a config, and rows of its first steps. */
static void check_ramp(const MxJson *line, const char *yaml) {
    Loaded l = load_config(yaml, NULL, NULL);
    ck_assert_msg(l.ok, "%s%s", yaml, l.err.text.data);
    const MxJson *rows = mx_json_get(line, "rows");
    int64_t first = 0;
    for (size_t step = 0; step < mx_json_length(rows); step++) {
        int64_t want;
        MxTake take = mx_config_take(l.config, (int64_t)step);
        ck_assert(mx_json_int(mx_json_at(rows, step), &want));
        ck_assert_msg(take.n * l.config->rows_at_once == want,
                      "%sstep %zu: %lld batches of %lld, not "
                      "%lld rows",
                      yaml, step, (long long)take.n, (long long)l.config->rows_at_once,
                      (long long)want);
        ck_assert_int_eq(take.first, first);
        ck_assert_int_eq(mx_config_steps_of(l.config, first), (int64_t)step);
        ck_assert_int_eq(mx_config_steps_of(l.config, first + take.n - 1), (int64_t)step);
        first += take.n;
    }
    unload(&l);
}

START_TEST(batches_grow_as_maxtexts) {
    MxArena arena = {.name = "ramps"};
    MxError err = {0};
    MxBytes bytes;
    const char *path = goldens_find(&arena, "train/rampup.jsonl");
    if (!path) path = GOLDENS_HERE "/train/rampup.jsonl"; /* what the larger set lacks */
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    int n = 0;
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, n++) {
        *end = 0;
        const MxJson *line = mx_json_parse(&arena, at, strlen(at), path, &err);
        MxText yaml;
        ck_assert_msg(line != NULL, "%s", err.text.data);
        mx_text_init(&yaml, &arena);
        mx_text_add(&yaml, "enable_rampup_batch_size: true\nsteps: 99\n");
        for (const char *key = at; (key = strchr(key, '"')) && strncmp(key, "\"rows", 5);) {
            const char *stop = strchr(++key, '"'), *value = stop + 3;
            mx_text_add(&yaml, "%.*s: %.*s\n", (int)(stop - key), key, (int)strcspn(value, ","),
                        value);
            key = stop + 1;
        }
        check_ramp(line, yaml.data);
    }
    ck_assert_int_gt(n, 0);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(inert_keys_are_named_once) {
    Loaded l =
        load_config("dump_hlo: true\nsa_block_q: 256\njax_profiler_port: 1\nenable_dropout: false\n"
                    "float32_logits: true\nenable_gcp_goodput_metrics: false\n"
                    "ici_fsdp_parallelism: 1\nhardware: cpu\nskip_jax_distributed_system: true\n",
                    NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->warnings.n, 1);
    ck_assert_str_eq(l.config->warnings.item[0],
                     "no effect on this machine: dump_hlo, jax_profiler_port, sa_block_q");
    unload(&l);
}
END_TEST

START_TEST(keys_of_other_programs_say_what_does_it_here) {
    Loaded l = load_config("prompt: \"I love to\"\nforce_unroll: true\nsystem_prompt: \"\"\n",
                           "use_chat_template=false", NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->warnings.n, 1);
    ck_assert_ptr_nonnull(strstr(l.config->warnings.item[0],
                                 "force_unroll: no effect on training: mxconvert --params-only"));
    unload(&l);
    Loaded m = load_config("prompt: other\nimage_path: a.png\ndecode_sampling_strategy: topk\n",
                           "use_chat_template=true", NULL);
    ck_assert_msg(m.ok, "%s", m.err.text.data);
    ck_assert_int_eq(m.config->warnings.n, 4);
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_nonnull(strstr(m.config->warnings.item[i],
                                     ": no effect on training: mxdecode --config reads it"));
    unload(&m);
}
END_TEST

START_TEST(later_keys_keep_their_default) {
    Loaded l = load_config("te_moe_block: false\nquantization_local_shard_count: 1\n",
                           "num_experts=1.0", NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    unload(&l);
    Loaded m = load_config("te_moe_block: true\n",
                           "quantization_local_shard_count=2\nuse_audio_in_video=true", NULL);
    ck_assert(!m.ok && m.err.count == 3);
    unload(&m);
}
END_TEST

/* The same lines, origins aside. */
static void check_same_dump(MxArena *arena, const char *text, const char *again) {
    while (*text && *again) {
        size_t n = strcspn(text, "\n"), m = strcspn(again, "\n");
        const char *x = mx_arena_strndup(arena, text, n), *y = mx_arena_strndup(arena, again, m);
        size_t keep = strstr(x, "  # ") ? (size_t)(strstr(x, "  # ") - x) : n;
        ck_assert_msg(!strncmp(x, y, keep), "%s\n%s", x, y);
        text += n + 1;
        again += m + 1;
    }
    ck_assert_int_eq(*text, *again);
}

/* Dump → load → dump is the same text, from a file and from memory; and the first dump's fields are
 * kept. */
static void check_round_trip(const char *overrides) {
    MxArena arena = {.name = "test"};
    Loaded a = load_config(NULL, overrides, NULL);
    ck_assert_msg(a.ok, "%s", a.err.text.data);
    const char *text = mx_config_text(&arena, a.config);
    const char *path = temp_file(&arena, "dump.yml", text, strlen(text));
    Loaded b = load_files(&path, 1, NULL);
    ck_assert_msg(b.ok, "%s", b.err.text.data);
    ck_assert_int_eq(b.config->warnings.n, a.config->warnings.n); /* those of the user's values */
    ck_assert_str_eq(a.config->run_dir, b.config->run_dir);
    ck_assert_int_eq(a.config->emb_dim, b.config->emb_dim);
    check_same_dump(&arena, text, mx_config_text(&arena, b.config));
    MxConfigRequest request = {.text = text, .text_name = "memory"};
    MxError err = {0};
    MxConfig *c;
    ck_assert_msg(mx_config_load(&arena, &request, &c, &err), "%s", err.text.data);
    check_same_dump(&arena, text, mx_config_text(&arena, c));
    unload(&a);
    unload(&b);
    mx_arena_release(&arena);
}

START_TEST(a_dump_loads_back) {
    check_round_trip(NULL);
    check_round_trip("model_name=llama2-7b\nbase_emb_dim=32\noverride_model_config=true");
    check_round_trip(
        "adamw_mask=['.*norm.*','.*embedding.*']\nlearning_rate=1.e-8\nmu_dtype=bfloat16\n"
        "attn_logits_soft_cap=0.1\nadam_b2=0.949999999999999\nsteps=-1\n"
        "learning_rate_schedule_steps=8");
    check_round_trip("run_name=\"a: \\\"b\\\" #c é\"\nmetrics_file=\"12 \\x01\"\n"
                     "base_output_directory='\\${x}/on'\nhdf5_train_files=F.h5:train/batches");
    check_round_trip(
        "metrics_file=\"a\\N b\\u0085 \\x80\\x9f\\xa0 \\L\\P \\ufeff \\uffff é€\\U0001f600\"\n"
        "load_parameters_path=\"\\ufeff\"");
    check_round_trip("logical_axis_rules=[[norm,data]]\noverride_logical_axis_rules=true\n"
                     "mesh_axes=[data, '1', \"x y\"]\ndata_sharding=[data]");
}
END_TEST

START_TEST(a_dump_keeps_its_own_model) {
    MxArena arena = {.name = "test"};
    Loaded a = load_config(NULL, "model_name=llama2-7b", NULL);
    const char *text = mx_config_text(&arena, a.config);
    const char *path = temp_file(&arena, "dump.yml", text, strlen(text));
    Loaded b = load_files(&path, 1, "model_name=llama2-13b");
    ck_assert(!b.ok);
    ck_assert_ptr_nonnull(strstr(b.err.text.data, "would not be merged"));
    unload(&b);
    Loaded c = load_files(&path, 1, "model_name=llama2-13b\napply_model_config=true");
    ck_assert_msg(c.ok, "%s", c.err.text.data);
    ck_assert_int_eq(c.config->emb_dim, 5120);
    unload(&c);
    unload(&a);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(other_rooms_report_a_value) {
    Loaded l = load_config("head_dim: 64\nsteps: 12\n", "learning_rate=2", NULL);
    MxError err = {0};
    ck_assert(!mx_config_fail(&err, l.config, MX_KEY_steps, "%d is too few", 12));
    ck_assert_ptr_nonnull(strstr(err.text.data, "t.yml:2:8: steps: 12 is too few\n"
                                                "  2 | steps: 12\n"
                                                "    |        ^"));
    mx_config_fail(&err, l.config, MX_KEY_learning_rate, "too hot");
    mx_config_fail(&err, l.config, MX_KEY_packing, "no");
    ck_assert_ptr_nonnull(strstr(err.text.data, "\n<command line>: learning_rate: too hot\n"
                                                "  learning_rate=2\n"
                                                "                ^\n"
                                                "<default>: packing: no"));
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    mx_error_release(&err);
    unload(&l);
}
END_TEST

TCase *value_cases(void) {
    TCase *tc = tcase_create("values");
    tcase_add_test(tc, sizes_follow_the_scale);
    tcase_add_test(tc, batches_and_steps);
    tcase_add_test(tc, batches_of_rewards);
    tcase_add_test(tc, absurd_sizes);
    tcase_add_test(tc, names_of_folders);
    tcase_add_test(tc, batches_grow_as_maxtexts);
    tcase_add_test(tc, inert_keys_are_named_once);
    tcase_add_test(tc, keys_of_other_programs_say_what_does_it_here);
    tcase_add_test(tc, later_keys_keep_their_default);
    tcase_add_test(tc, a_dump_loads_back);
    tcase_add_test(tc, a_dump_keeps_its_own_model);
    tcase_add_test(tc, other_rooms_report_a_value);
    return tc;
}
