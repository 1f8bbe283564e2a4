/* merge.c — which layer wins, and which conflicts are errors. */
#include "config_tests.h"

/* What is given → a part of the error, or NULL and the resulting base_emb_dim. */
typedef struct MergeCase {
    const char *name, *yaml, *overrides, *variables, *error;
    int64_t emb;
} MergeCase;

static const MergeCase cases[] = {
    {"row default", "", NULL, NULL, NULL, 256},
    {"file over default", "base_emb_dim: 8", NULL, NULL, NULL, 8},
    {"preset over file", "base_emb_dim: 8\nmodel_name: llama2-7b", NULL, NULL, NULL, 4096},
    {"preset named on the command line", "base_emb_dim: 8", "model_name=llama2-7b", NULL, NULL,
     4096},
    {"preset named in the environment", "", NULL, "M_MODEL_NAME=llama2-7b", NULL, 4096},
    {"-Instruct is cut off", "model_name: llama3.1-8b-Instruct", NULL, NULL, NULL, 4096},
    {"command line over file", "base_emb_dim: 8", "base_emb_dim=16", NULL, NULL, 16},
    {"last one wins", "", "base_emb_dim=16\nbase_emb_dim=32", NULL, NULL, 32},
    {"environment over file", "base_emb_dim: 8", NULL, "M_BASE_EMB_DIM=64", NULL, 64},
    {"preset and command line differ", "model_name: llama2-7b", "base_emb_dim=16", NULL,
     "base_emb_dim: 16 is also set to 4096 at", 0},
    {"preset and command line agree", "model_name: llama2-7b", "base_emb_dim=4096", NULL, NULL,
     4096},
    {"agree after typing", "model_name: llama2-7b", "base_emb_dim=4096.0", NULL, NULL, 4096},
    {"override_model_config", "model_name: llama2-7b\noverride_model_config: true",
     "base_emb_dim=16", NULL, NULL, 16},
    {"override_model_config on the command line", "model_name: llama2-7b",
     "base_emb_dim=16\noverride_model_config=True", NULL, NULL, 16},
    {"override_model_config and the file that names the model",
     "base_emb_dim: 8\nmodel_name: llama2-7b", "override_model_config=true", NULL, NULL, 8},
    {"the same with a default, as in a copy of base.yml",
     "base_emb_dim: 256\nmodel_name: llama2-7b\noverride_model_config: true", NULL, NULL, NULL,
     4096},
    {"override_model_config and a file that names none", "base_emb_dim: 8",
     "model_name=llama2-7b\noverride_model_config=true", NULL, NULL, 4096},
    {"preset and environment", "model_name: llama2-7b", NULL, "M_BASE_EMB_DIM=4096",
     "base_emb_dim: 4096 is also set to 4096 at", 0},
    {"preset and environment, allowed", "model_name: llama2-7b\noverride_model_config: true", NULL,
     "M_BASE_EMB_DIM=64", NULL, 64},
    {"command line and environment", "", "base_emb_dim=16", "M_BASE_EMB_DIM=16",
     "environment M_BASE_EMB_DIM: base_emb_dim: 16 is also set to 16 at <command line>", 0},
    {"other variables are not ours", "", NULL, "MAIL=x\nM_=1\nPATH=/", NULL, 256},
    {"a list from the environment", "", NULL, "M_ADAMW_MASK=[a]",
     "adamw_mask: cannot be set from the environment", 0},
    {"interpolation", "base_mlp_dim: 12\nbase_emb_dim: ${base_mlp_dim}", NULL, NULL, NULL, 12},
    {"interpolation in two steps", "base_emb_dim: ${base_mlp_dim}\nbase_mlp_dim: ${head_dim}", NULL,
     NULL, NULL, 64},
    {"interpolation in a circle", "base_emb_dim: ${base_mlp_dim}\nbase_mlp_dim: ${base_emb_dim}",
     NULL, NULL, "leads back to itself", 0},
    {"interpolation of nothing", "base_emb_dim: ${base_mpl_dim}", NULL, NULL,
     "did you mean \"base_mlp_dim\"", 0},
    {"merge key", "x: 1", NULL, NULL, "unrecognized key \"x\"", 0},
    {"base_config on the command line", "base_emb_dim: 16",
     "base_config=configs/models/llama2-7b.yml", NULL, NULL, 16},
    {"base_config on the command line alone", NULL, "--base_config=configs/models/llama2-7b.yml",
     NULL, NULL, 4096},
    {"base_config that is not there", NULL, "base_config=nowhere.yml", NULL,
     "there is no config file \"nowhere.yml\"", 0},
    {"a name that means scaled positions", "", "model_name=llama3.1-8b", NULL, NULL, 4096},
};

START_TEST(a_merge) {
    const MergeCase *c = &cases[_i];
    Loaded l = load_config(c->yaml, c->overrides, c->variables);
    if (c->error) {
        ck_assert_msg(!l.ok, "%s: loaded", c->name);
        ck_assert_msg(strstr(l.err.text.data, c->error), "%s: %s", c->name, l.err.text.data);
    } else {
        ck_assert_msg(l.ok, "%s: %s", c->name, l.err.text.data);
        ck_assert_msg(l.config->base_emb_dim == c->emb, "%s: %lld", c->name,
                      (long long)l.config->base_emb_dim);
    }
    unload(&l);
}
END_TEST

START_TEST(files_in_order_and_parents) {
    MxArena arena = {.name = "test"};
    const char grand[] = "steps: 1\nlog_period: 1\nhead_dim: 2\n";
    const char child[] = "base_config: grand.yml\nsteps: 2\nlog_period: 2\n";
    const char second[] = "steps: 3\n";
    temp_file(&arena, "grand.yml", grand, strlen(grand));
    const char *files[2] = {temp_file(&arena, "child.yml", child, strlen(child)),
                            temp_file(&arena, "second.yml", second, strlen(second))};
    Loaded l = load_files(files, 2, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->steps, 3);
    ck_assert_int_eq(l.config->log_period, 2);
    ck_assert_int_eq(l.config->head_dim, 2);
    MxWhere where = mx_config_where(l.config, MX_KEY_log_period);
    ck_assert_str_eq(where.file, files[0]);
    ck_assert_int_eq(where.line, 3);
    ck_assert_int_eq(where.col, 13);
    ck_assert_str_eq(mx_config_where(l.config, MX_KEY_packing).file, "<default>");
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

/* Under override_model_config what stands beside the model's name and after it changes the preset;
 * without, it gives way, and that is told. */
START_TEST(files_and_the_preset_they_name) {
    MxArena arena = {.name = "test"};
    const char base[] = "base_emb_dim: 8\nhead_dim: 8\n";
    const char mine[] = "model_name: llama2-7b\nbase_num_decoder_layers: 4\n";
    const char more[] = "head_dim: 64\n";
    const char *files[3] = {temp_file(&arena, "base.yml", base, strlen(base)),
                            temp_file(&arena, "mine.yml", mine, strlen(mine)),
                            temp_file(&arena, "more.yml", more, strlen(more))};
    Loaded l = load_files(files, 3, "override_model_config=true");
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->base_emb_dim, 4096);
    ck_assert_int_eq(l.config->base_num_decoder_layers, 4);
    ck_assert_int_eq(l.config->head_dim, 64);
    ck_assert_int_eq(l.config->warnings.n, 0);
    unload(&l);
    l = load_files(files, 3, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->base_num_decoder_layers, 32);
    ck_assert_int_eq(l.config->head_dim, 128);
    ck_assert_int_eq(l.config->warnings.n, 2);
    ck_assert_ptr_nonnull(strstr(l.config->warnings.item[0],
                                 "mine.yml:2:26: base_num_decoder_layers: 4 gives way to 32 at"));
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(files_in_a_circle) {
    MxArena arena = {.name = "test"};
    const char a[] = "base_config: b.yml\n", b[] = "base_config: a.yml\n";
    const char *file = temp_file(&arena, "a.yml", a, strlen(a));
    temp_file(&arena, "b.yml", b, strlen(b));
    Loaded l = load_files(&file, 1, NULL);
    ck_assert(!l.ok);
    ck_assert_ptr_nonnull(strstr(l.err.text.data, "b.yml:1:14: base_config: the files include"));
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

/* A preset beside the main file, as in a checkout of MaxText. */
START_TEST(a_preset_beside_the_file) {
    MxArena arena = {.name = "test"};
    const char base[] = "steps: 1\n", model[] = "base_emb_dim: 6\n";
    const char *file = temp_file(&arena, "base.yml", base, strlen(base));
    temp_file(&arena, "models/mine.yml", model, strlen(model));
    Loaded l = load_files(&file, 1, "model_name=mine");
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->base_emb_dim, 6);
    ck_assert_str_eq(l.config->run_name, "mine");
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

/* As post_train/sft.yml in MaxText's configs, whose parent stands above it. */
START_TEST(a_parent_above_the_folder) {
    MxArena arena = {.name = "test"};
    const char top[] = "base_emb_dim: 6\n", child[] = "base_config: top.yml\n";
    temp_file(&arena, "top.yml", top, strlen(top));
    const char *file = temp_file(&arena, "below/child.yml", child, strlen(child));
    Loaded l = load_files(&file, 1, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->base_emb_dim, 6);
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

/* MaxText's own presets of llama3.1 name no rope_type; what a file says on purpose stands. */
START_TEST(a_preset_gets_its_rope_type) {
    MxArena arena = {.name = "test"};
    const char preset[] = "base_emb_dim: 64\n", file_text[] = "steps: 1\n";
    const char *file = temp_file(&arena, "rope/base.yml", file_text, strlen(file_text));
    temp_file(&arena, "rope/models/llama3.1-mine.yml", preset, strlen(preset));
    temp_file(&arena, "rope/models/llama3-mine.yml", preset, strlen(preset));
    Loaded l = load_files(&file, 1, "model_name=llama3.1-mine");
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_str_eq(l.config->rope_type, "llama3.1");
    ck_assert_int_eq(l.config->warnings.n, 1);
    ck_assert_ptr_nonnull(strstr(l.config->warnings.item[0], "rope_type: set to llama3.1"));
    unload(&l);
    l = load_files(&file, 1,
                   "model_name=llama3.1-mine\noverride_model_config=true\nrope_type=default");
    ck_assert_str_eq(l.config->rope_type, "default");
    unload(&l);
    l = load_files(&file, 1, "model_name=llama3-mine");
    ck_assert_str_eq(l.config->rope_type, "default");
    unload(&l);
    mx_arena_release(&arena);
}
END_TEST

static const char *rule_name(const MxConfig *c, int i) {
    return c->logical_axis_rules->item[i]->item[0]->text;
}

START_TEST(axis_rules_merge_by_name) {
    Loaded base = load_config("", NULL, NULL);
    int n = base.config->logical_axis_rules->n;
    ck_assert_int_eq(n, 79);
    unload(&base);

    Loaded preset = load_config("", "model_name=llama2-7b", NULL);
    ck_assert_int_eq(preset.config->logical_axis_rules->n, n);
    ck_assert_str_eq(rule_name(preset.config, n - 1), "norm");
    unload(&preset);

    /* both rules of activation_vocab's three go, two come at the end */
    Loaded line = load_config("", "logical_axis_rules=[[activation_vocab,[]],[norm,data]]", NULL);
    ck_assert_int_eq(line.config->logical_axis_rules->n, n - 4 + 2);
    ck_assert_str_eq(rule_name(line.config, n - 4), "activation_vocab");
    unload(&line);

    Loaded all =
        load_config("", "logical_axis_rules=[[norm,data]]\noverride_logical_axis_rules=true", NULL);
    ck_assert_int_eq(all.config->logical_axis_rules->n, 1);
    unload(&all);

    Loaded file = load_config("logical_axis_rules: [[norm, data]]", NULL, NULL);
    ck_assert_int_eq(file.config->logical_axis_rules->n, 1);
    unload(&file);
}
END_TEST

START_TEST(anchors_aliases_and_merge_keys) {
    Loaded l = load_config("lora: &l {lora_rank: 0}\ndpo:\n  <<: {dpo_beta: 0.1}\n"
                           "adamw_mask: &m [a, b]\nmlp_activations: [silu, linear]\n"
                           "num_devices: 2\ninput_data_sharding_logical_axes: *m\n",
                           NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->input_data_sharding_logical_axes.n, 2);
    ck_assert_int_eq(l.config->warnings.n, 0);
    unload(&l);
}
END_TEST

/* A key below a section is the key by itself, wherever it is set; the last line of a file counts.
 */
START_TEST(sections_hold_keys) {
    Loaded l = load_config("special_tokens:\n  solution_end_token: <end>\n"
                           "reward: {reward_exact_answer: 7, reward_partial_format_match: 1}\n"
                           "evaluation: {num_eval_passes: 2, generation_configs: {greedy: "
                           "{eval_temperature: 0.5, eval_top_k: 4, eval_top_p: 1}}}\ncluster: "
                           "{num_trainer_slices: -1}\nvllm: {}\n",
                           "use_grpo=true\nrl.reward=maxtext\npacking=false\ndataset_type=hf\n"
                           "hf_train_files=x.jsonl\nreward.reward_partial_format_match=3\n"
                           "num_test_batches=1",
                           NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_str_eq(l.config->solution_end_token, "<end>");
    ck_assert_double_eq(l.config->reward_exact_answer, 7);
    ck_assert_double_eq(l.config->reward_partial_format_match, 3);
    ck_assert_int_eq(l.config->num_eval_passes, 2);
    const MxYaml *greedy = mx_yaml_get(l.config->generation_configs, "greedy");
    ck_assert_double_eq(mx_yaml_get(greedy, "eval_temperature")->number, 0.5);
    unload(&l);
    Loaded m =
        load_config("special_tokens: {steps: 3}\nreward: 5\ncluster: {num_trainer_slices: 2}\n",
                    "vllm.none=1\nevaluation=x", NULL);
    ck_assert_int_eq(m.err.count, 4);
    ck_assert_ptr_nonnull(strstr(m.err.text.data, "unrecognized key \"special_tokens.steps\""));
    ck_assert_ptr_nonnull(strstr(m.err.text.data, "reward: wants keys below it, found 5"));
    ck_assert_ptr_nonnull(strstr(m.err.text.data, "unrecognized key \"vllm.none\""));
    ck_assert_ptr_nonnull(strstr(m.err.text.data, "evaluation: wants keys below it, found \"x\""));
    unload(&m);
    Loaded n = load_config("cluster: {num_trainer_slices: 2}\n", NULL, NULL);
    ck_assert_str_eq(n.config->warnings.item[0], "no effect on this machine: num_trainer_slices");
    unload(&n);
}
END_TEST

START_TEST(all_errors_in_one_pass) {
    Loaded l = load_config("stepz: 1\nhead_dim: odd\ndtype: float99\n",
                           "learning_rate=x\nlora_rank=4\nsteps=0", "M_PACKING=maybe");
    ck_assert(!l.ok);
    ck_assert_int_eq(l.err.count, 7);
    ck_assert_ptr_nonnull(strstr(l.err.text.data, "did you mean \"lora.lora_rank\""));
    ck_assert_int_eq(count_lines(l.err.text.data, "environment M_PACKING: packing: wants"), 1);
    unload(&l);
}
END_TEST

TCase *merge_cases(void) {
    TCase *tc = tcase_create("merge");
    tcase_add_loop_test(tc, a_merge, 0, MX_COUNT(cases));
    tcase_add_test(tc, files_in_order_and_parents);
    tcase_add_test(tc, files_and_the_preset_they_name);
    tcase_add_test(tc, files_in_a_circle);
    tcase_add_test(tc, a_preset_beside_the_file);
    tcase_add_test(tc, a_parent_above_the_folder);
    tcase_add_test(tc, a_preset_gets_its_rope_type);
    tcase_add_test(tc, axis_rules_merge_by_name);
    tcase_add_test(tc, anchors_aliases_and_merge_keys);
    tcase_add_test(tc, sections_hold_keys);
    tcase_add_test(tc, all_errors_in_one_pass);
    return tc;
}
