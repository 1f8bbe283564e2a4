/* plan.c — the plan as text and as JSON, explanations, dumps: that they say the same, and what the
 * expect files hold. */
#include "plan_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The number after `label` in a text. */
static double number_after(const char *text, const char *label) {
    const char *at = strstr(text, label);
    ck_assert_msg(at != NULL, "no \"%s\" in %s", label, text);
    return strtod(at + strlen(label), NULL);
}

static const char *const agreeing[] = {
    "--config configs/base.yml",
    "--config configs/base.yml model_name=llama2-7b ici_fsdp_parallelism=4 "
    "ici_tensor_parallelism=2",
    "--config configs/base.yml model_name=llama3.1-405b num_devices=4096 ici_tensor_parallelism=8",
    "--config configs/base.yml model_name=qwen3-8b scan_layers=false ici_data_parallelism=2 "
    "ici_pipeline_parallelism=4 dtype=bfloat16",
    "--config configs/base.yml model_name=llama3.1-8b ici_fsdp_parallelism=4 dtype=bfloat16 "
    "lora.enable_lora=true lora.lora_rank=8 lora.lora_alpha=8",
};

static void same_gib(const char *text, const char *label, const MxJson *plan, const char *member) {
    double bytes = (double)json_int(plan, mx_arena_printf(&arena, "memory_per_rank.%s", member));
    char gib[MX_FIGURE];
    mx_figure(gib, bytes / (1 << 30), 3);
    ck_assert_msg(number_after(text, label) == strtod(gib, NULL), "%s: %s", label, gib);
}

/* What matmul_precision comes to on this machine stands in the text and in the JSON. */
START_TEST(machine_is_told) {
    const char *words = "configs/base.yml matmul_precision=high matmul_provider=openblas";
    const char *text = run_ok(mx_arena_printf(&arena, "--plan %s", words)).out;
    const char *machine = mx_json_string(mx_json_get(run_json(words), "machine"));
    ck_assert_msg(strstr(text, mx_arena_printf(&arena, "\nmachine      %s\n", machine)), "%s",
                  text);
    ck_assert_msg(strstr(machine, "matmul f32 OpenBLAS (high is f32 here), "), "%s", machine);
}
END_TEST

START_TEST(text_and_json_agree) {
    for (int i = 0; i < MX_COUNT(agreeing); i++) {
        const char *text = run_ok(mx_arena_printf(&arena, "--plan %s", agreeing[i])).out;
        const MxJson *plan = run_json(agreeing[i]);
        ck_assert(number_after(text, "Num_devices: ") == json_number(plan, "mesh.devices"));
        ck_assert(number_after(text, " billion (") == json_number(plan, "parameters.total"));
        ck_assert(number_after(text, " = ") == json_number(plan, "batch.tokens"));
        static const char *const members[] = {"weights",     "gradients", "optimizer",
                                              "activations", "saving",    "total"};
        const char *memory = strstr(text, "\nmemory of ");
        int64_t total = 0;
        for (int m = 0; m < MX_COUNT(members); m++) {
            same_gib(memory, mx_arena_printf(&arena, "  %-12s", members[m]), plan, members[m]);
            total += json_int(plan, mx_arena_printf(&arena, "memory_per_rank.%s", members[m]));
        }
        int64_t casts = json_int(plan, "memory_per_rank.casts");
        if (casts) same_gib(memory, "  casts", plan, "casts");
        total += casts + json_int(plan, "memory_per_rank.buffers") +
                 json_int(plan, "memory_per_rank.process");
        ck_assert_int_eq(total, 2 * json_int(plan, "memory_per_rank.total"));
        ck_assert_msg(strstr(text, json_bool(plan, "memory_per_rank.fits")
                                       ? ": enough for one rank"
                                       : ": not enough for one rank"),
                      "%s", text);
        char total_text[MX_FIGURE];
        mx_figure(total_text, json_number(plan, "tflops_per_device.total"), 2);
        const char *flops = mx_arena_printf(&arena, "Total TFLOPs: %s \n", total_text);
        ck_assert_msg(strstr(text, flops), "no %s", flops);
        const MxJson *arrays = mx_json_get(plan, "arrays");
        ck_assert_uint_gt(mx_json_length(arrays), 0);
        for (size_t a = 0; a < mx_json_length(arrays); a++) {
            const MxJson *array = mx_json_at(arrays, a);
            const char *path = mx_json_string(mx_json_get(array, "path"));
            if (strstr(path, "layers_") && !strstr(path, "layers_0/")) continue;
            ck_assert_msg(strstr(text, path), "no %s", path);
        }
    }
}
END_TEST

/* Options that plan need no --plan; each writes its file, and "-" is stdout. */
START_TEST(files) {
    const char *json = temp_path("plan.json"), *dump = temp_path("plan.tsv");
    const char *words = mx_arena_printf(
        &arena, "--config configs/base.yml --plan --json %s --dump-sharding=%s", json, dump);
    ck_assert(mx_text_has_prefix(run_ok(words).out, "plan of default, model default"));
    MxError err = {0};
    const char *text = read_text(json);
    ck_assert_msg(mx_json_parse(&arena, text, strlen(text), json, &err) != NULL, "bad JSON");
    Table table = table_of(read_text(dump), dump);
    ck_assert_int_eq(table.n_rows, 12);
    ck_assert_str_eq(run_ok("--config configs/base.yml --dump-sharding -").out, read_text(dump));
    Run run = run_mxtrain("--plan --dump-sharding build/no/such/folder/x.tsv");
    ck_assert_int_eq(run.code, MX_EXIT_CANNOT_CREATE);
}
END_TEST

static const struct {
    const char *file, *words;
} expected[] = {
    {"explain_wi.txt", "--explain-sharding decoder/layers/mlp/wi_0/kernel"},
    {"explain_norm.txt", "--explain-sharding model/decoder/decoder_norm/scale"},
    {"explain_moment.txt",
     "--explain-sharding opt_state/0/mu/params/decoder/layers/self_attention/key/kernel "
     "pure_nnx=false"},
    {"explain_unscanned.txt",
     "--explain-sharding params/params/decoder/layers_2/mlp/wo/kernel scan_layers=false"},
    {"explain_names.txt", "--explain-sharding embed,mlp,None,nobody"},
    {"graph_weigh.txt", "--dump-graph weigh ici_tensor_parallelism=1 "
                        "input_data_sharding_logical_axes=[activation_batch,kv]"},
    {"graph_weigh_trace.txt", "--dump-graph weigh:trace ici_tensor_parallelism=1 "
                              "input_data_sharding_logical_axes=[activation_batch,kv]"},
    {"dump_linen.txt", "--dump-sharding - pure_nnx=false"},
    {"dump_pipeline.txt", "--dump-sharding - ici_pipeline_parallelism=2 ici_fsdp_parallelism=1"},
    {"dump_one_repeat.txt",
     "--dump-sharding - ici_pipeline_parallelism=4 ici_fsdp_parallelism=1 scan_layers=false"},
};

/* UPDATE_EXPECT=1 rewrites the files; look at the difference then. */
START_TEST(explanations) {
    for (int i = 0; i < MX_COUNT(expected); i++) {
        const char *out = run_ok(mx_arena_printf(&arena, "--config tests/plan/expect/rules.yml %s",
                                                 expected[i].words))
                              .out;
        const char *file = mx_arena_printf(&arena, "tests/plan/expect/%s", expected[i].file);
        if (getenv("UPDATE_EXPECT")) write_text(file, out);
        ck_assert_msg(!strcmp(out, read_text(file)), "%s:\n%s", file, out);
    }
}
END_TEST

/* Findings reach the text with their line; what costs nothing is a note. */
START_TEST(findings) {
    const char *text = run_ok("--config tests/plan/expect/rules.yml --plan").out;
    static const char *const lines[] = {
        "\nwarning: tests/plan/expect/rules.yml:25: rule norm -> tenser: unrecognized mesh axis ",
        "\nwarning: tests/plan/expect/rules.yml:23: axis \"embed\" (dim 0): rule embed -> "
        "(fsdp,tensor) is passed over because mesh axis \"tensor\" belongs to \"mlp\" (dim 2); "
        "embed -> fsdp is used instead; not sharded over \"tensor\" "
        "(model/decoder/layers/mlp/wi_0/kernel and 1 more)\n",
        "\nerror, when run: tests/plan/expect/rules.yml:18:5: rule kv_heads -> tensor: mesh axis "
        "\"tensor\" (size 2) does not divide dim 2 = 3 of "
        "model/decoder/layers/self_attention/key/kernel\n",
        "  48x4x3x8  embed|layers|kv_heads|kv_head_dim  fsdp|None|tensor|None  "
        "ERR IndivisibleError\n",
        "\nwarning: axis \"activation_mlp\" (dim 2): no rule names it, so it is replicated "
        "(activation of decoder/layers_0)\nhint: write [name, []] to leave an axis unsharded on "
        "purpose\n",
    };
    for (int i = 0; i < MX_COUNT(lines); i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no %s", lines[i]);
    text =
        run_ok("--plan model_name=llama2-7b num_devices=8 logical_axis_rules=[[mlp,[fsdp]]]").out;
    ck_assert_msg(strstr(text, "\nnote: configs/base.yml:") != NULL, "no note");
    ck_assert_msg(strstr(text, "is passed over because mesh axis \"fsdp\" belongs to \"") != NULL,
                  "no warning");
}
END_TEST

/* Rules cannot matter on one device; a rule that no device understands is still told. */
START_TEST(one_device_has_no_notes) {
    const char *text = run_ok("--plan").out;
    ck_assert_msg(!strstr(text, "note: ") && !strstr(text, "rules that were passed over"), "%s",
                  text);
    text = run_ok("--plan logical_axis_rules=[[mlp,[tenser]]]").out;
    ck_assert_msg(strstr(text, "rule mlp -> tenser: unrecognized mesh axis") != NULL, "%s", text);
}
END_TEST

/* Nothing that exists is shown as 0.000, and shares of FLOPs add up. */
START_TEST(small_models_have_figures) {
    static const char *const small = "base_emb_dim=32 base_mlp_dim=32 base_num_decoder_layers=1 "
                                     "max_target_length=16";
    const char *text = run_ok(mx_arena_printf(&arena,
                                              "--plan %s use_dpo=true packing=false "
                                              "dataset_type=synthetic",
                                              small))
                           .out;
    ck_assert_msg(number_after(text, "parameters   ") > 0, "%s", text);
    ck_assert_msg(number_after(text, "Total TFLOPs: ") > 0, "%s", text);
    ck_assert_msg(number_after(text, "  weights ") > 0, "%s", text);
    double sum = number_after(text, "split as ") +
                 number_after(text, "learnable weight flops and ") +
                 number_after(text, "attention flops, ");
    ck_assert_msg(fabs(sum - 100) < 0.02, "%g: %s", sum, text);
}
END_TEST

/* Of the last module's layer only its results are needed; what was dropped has no place to tell. */
START_TEST(modules_ahead) {
    static const char *const words[] = {
        "--plan mtp_num_layers=2 num_devices=4", "--plan mtp_num_layers=10 num_devices=4",
        "--plan mtp_num_layers=100 base_num_decoder_layers=1 remat_policy=full num_devices=4"};
    for (int i = 0; i < MX_COUNT(words); i++)
        ck_assert(strstr(run_ok(words[i]).out, "(activation of decoder/layers_0)") != NULL);
}
END_TEST

/* custom_mesh_and_rule takes the place of everybody's mesh and rules. */
START_TEST(custom_mesh) {
    const MxJson *plan =
        run_json("--config configs/base.yml model_name=llama2-7b custom_mesh_and_rule=pure-fsdp "
                 "num_devices=8");
    ck_assert_int_eq(json_int(plan, "mesh.axes.fsdp"), 8);
    ck_assert_uint_eq(mx_json_length(mx_json_get(mx_json_get(plan, "mesh"), "axes")), 1);
    const char *dump = temp_path("config.yml");
    run_ok(mx_arena_printf(&arena,
                           "--config configs/base.yml custom_mesh_and_rule=ep-as-cp --dump-config "
                           "%s",
                           dump));
    const char *again = mx_arena_printf(&arena, "--config %s --dump-sharding -", dump);
    ck_assert_str_eq(
        run_ok(again).out,
        run_ok("--config configs/base.yml custom_mesh_and_rule=ep-as-cp --dump-sharding -").out);
}
END_TEST

/* What train_compile compiles is planned; every mesh of MaxText's can be taken. */
START_TEST(topologies_and_meshes_of_maxtext) {
    const MxJson *plan = run_json("compile_topology=v5p-16 compile_topology_num_slices=2");
    ck_assert_int_eq(json_int(plan, "mesh.devices"), 16);
    ck_assert_int_eq(json_int(plan, "mesh.axes.data"), 2);
    ck_assert_int_eq(json_int(run_json("compile_topology=v5e-256"), "mesh.devices"), 256);
    ck_assert_int_eq(json_int(run_json("compile_topology=a3"), "mesh.devices"), 8);
    static const char *const meshes[] = {"cp-as-ep", "ep-as-cp", "ep-as-dp", "shard-exp-on-fsdp"};
    for (int i = 0; i < MX_COUNT(meshes); i++) {
        const char *words = mx_arena_printf(
            &arena, "model_name=llama2-7b num_devices=8 custom_mesh_and_rule=%s", meshes[i]);
        ck_assert_int_eq(json_int(run_json(words), "mesh.axes.fsdp"), 8);
    }
}
END_TEST

/* A policy of MaxText's is done as one of ours, and the plan says as which. */
START_TEST(policies_of_maxtext) {
    static const struct {
        const char *name, *ours;
    } policies[] = {{"minimal_with_context", "minimal"},
                    {"minimal_offloaded", "minimal"},
                    {"save_dot_except_mlp", "full"},
                    {"save_qkv_proj", "full"},
                    {"custom", "full"}};
    for (int i = 0; i < MX_COUNT(policies); i++) {
        const char *name = policies[i].name, *ours = policies[i].ours;
        const char *words = mx_arena_printf(&arena, "--plan remat_policy=%s", name);
        const char *line = mx_arena_printf(&arena, "\nremat        %s: done as %s\n", name, ours);
        ck_assert_msg(strstr(run_ok(words).out, line), "no %s", line);
        const char *path = "memory_per_rank.activations";
        ck_assert_int_eq(
            json_int(run_json(mx_arena_printf(&arena, "remat_policy=%s", name)), path),
            json_int(run_json(mx_arena_printf(&arena, "remat_policy=%s", ours)), path));
    }
    ck_assert(!strstr(run_ok("--plan remat_policy=full").out, "done as"));
}
END_TEST

/* Every preset can be planned, on one device and on many. */
START_TEST(presets) {
    MxError err = {0};
    char **names;
    int n;
    ck_assert(mx_dir_list(&arena, "configs/models", &names, &n, &err));
    for (int i = 0; i < n; i++) {
        int len = (int)(strlen(names[i]) - strlen(".yml"));
        /* Of deepseek4 o_a_proj and tables lie whole, of these Qwen's their encoders. */
        bool has_tower =
            mx_text_has_prefix(names[i], "qwen3-vl") || mx_text_has_prefix(names[i], "qwen3-omni");
        bool has_whole = mx_text_has_prefix(names[i], "deepseek4") || has_tower;
        const char *tolerance = has_tower                                        ? "0.2"
                                : mx_text_has_prefix(names[i], "deepseek4-tiny") ? "0.05"
                                                                                 : "0.02";
        const char *words = mx_arena_printf(
            &arena, "--config configs/base.yml model_name=%.*s sharding_tolerance=%s", len,
            names[i], tolerance);
        bool is_16_wide = mx_text_has_prefix(names[i], "deepseek3-tiny"); /* in places */
        bool is_8_wide = mx_text_has_prefix(names[i], "envy-test") ||
                         mx_text_has_prefix(names[i], "deepseek4-tiny");
        int devices = is_8_wide ? 8 : is_16_wide ? 16 : 64;
        const MxJson *one = run_json(words);
        const MxJson *many = run_json(mx_arena_printf(&arena, "%s num_devices=%d", words, devices));
        ck_assert_int_eq(json_int(one, "mesh.devices"), 1);
        ck_assert_int_eq(json_int(many, "mesh.axes.fsdp"), devices);
        ck_assert_int_eq(json_int(one, "parameters.total"), json_int(many, "parameters.total"));
        /* Of the small one much are norms. */
        bool is_small = json_int(one, "parameters.total") < 1000000;
        int least = is_small ? 2 : has_whole ? 4 : devices * 15 / 16;
        ck_assert_int_lt(json_int(many, "memory_per_rank.weights"),
                         json_int(one, "memory_per_rank.weights") / least);
        ck_assert(json_bool(many, "sharding_check.ok"));
    }
    printf("presets: %d planned\n", n);
    ck_assert_int_ge(n, 25);
}
END_TEST

/* Whatever the original's trees of pipelines have in the place of layers that take turns. */
START_TEST(stages_have_the_same_layers) {
    static const struct {
        const char *model;
        int stages;
    } piped[] = {{"gpt-oss-20b", 2}, {"gemma4-26b", 2}, {"deepseek4-284b", 43}};
    for (int i = 0; i < MX_COUNT(piped); i++) {
        const char *model =
            mx_arena_printf(&arena, "--config configs/base.yml model_name=%s", piped[i].model);
        const MxJson *one = run_json(model);
        const MxJson *many = run_json(
            mx_arena_printf(&arena, "%s ici_pipeline_parallelism=%d", model, piped[i].stages));
        ck_assert_int_eq(json_int(many, "mesh.axes.stage"), piped[i].stages);
        ck_assert_int_eq(json_int(one, "parameters.total"), json_int(many, "parameters.total"));
    }
}
END_TEST

/* Of a long list of rules those count that say something of the model. */
START_TEST(many_rules) {
    enum { N = 4500 };
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add(&text, "base_config: base.yml\nlogical_axis_rules:\n");
    for (int i = 0; i < N; i++) mx_text_add(&text, "  - [axis_%d, [tensor]]\n", i);
    mx_text_add(&text, "  - [embed, [fsdp]]\n");
    const char *file = temp_path("many.yml");
    write_text(file, text.data);
    Run run = run_ok(
        mx_arena_printf(&arena,
                        "--plan --config %s model_name=llama2-7b num_devices=8 scan_layers=false "
                        "logical_axis_rules=[[norm,[fsdp]]]",
                        file));
    ck_assert(strstr(run.out, "4096x11008  embed|mlp  fsdp|None  512x11008"));
}
END_TEST

/* ---- along what the loss is cut */

#define PAIRS                                                                                      \
    "use_dpo=true dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl "   \
    "packing=false eval_interval=-1 "

/* On two ranks, 4096 tokens (pairs: 8192) a micro-batch, 1024 a chunk unless the config says less,
 * 16 bytes a token to the other rank. */
static const struct {
    const char *words, *op, *axes; /* of the exchange within the loss; NULL = tokens are cut */
    int64_t exchanges, bytes;
} losses[] = {
    {"vocab_size=32000 ici_tensor_parallelism=2", "xent_grad", "tensor", 4, 65536},
    {"vocab_size=32000 ici_tensor_sequence_parallelism=2", "xent_grad", "tensor_sequence", 4,
     65536},
    {"vocab_size=32000 ici_tensor_parallelism=2 num_vocab_tiling=16", "xent_grad", "tensor", 16,
     65536},
    {"vocab_size=32000 ici_tensor_parallelism=2 gradient_accumulation_steps=2", "xent_grad",
     "tensor", 8, 131072},
    {PAIRS "vocab_size=32000 ici_tensor_parallelism=2", "logprob", "tensor", 16, 262144},
    {PAIRS "vocab_size=32000 ici_tensor_parallelism=2 dpo.algo=orpo", "logprob", "tensor", 8,
     131072},
    {"vocab_size=258 ici_tensor_parallelism=2", NULL, NULL, 0, 0},
    {"vocab_size=2000 ici_fsdp_parallelism=2", NULL, NULL, 0, 0},
    /* A part of the matrix along its width is given for one along the vocabulary. */
    {"vocab_size=32000 ici_fsdp_parallelism=2", "xent_grad", "fsdp", 4, 65536},
};

START_TEST(cut_of_the_loss) {
    for (int i = 0; i < MX_COUNT(losses); i++) {
        const MxJson *plan =
            run_json(mx_arena_printf(&arena,
                                     "--config configs/base.yml num_devices=2 "
                                     "ici_fsdp_parallelism=1 per_device_batch_size=8 %s",
                                     losses[i].words));
        const MxJson *rows = mx_json_get(plan, "collectives_per_step");
        int n = 0;
        for (size_t r = 0; r < mx_json_length(rows); r++) {
            const MxJson *row = mx_json_at(rows, r);
            const char *op = mx_json_string(mx_json_get(row, "op"));
            if (!mx_text_has_prefix(op, "xent") && !mx_text_has_prefix(op, "logprob")) continue;
            n++;
            ck_assert_msg(losses[i].op != NULL, "%s: %s", losses[i].words, op);
            ck_assert_str_eq(op, losses[i].op);
            ck_assert_str_eq(mx_json_string(mx_json_get(row, "mesh_axes")), losses[i].axes);
            ck_assert_int_eq(json_int(row, "exchanges"), losses[i].exchanges);
            ck_assert_int_eq(json_int(row, "bytes_sent"), losses[i].bytes);
        }
        ck_assert_msg(n == (losses[i].op != NULL), "%s", losses[i].words);
    }
}
END_TEST

/* The columns logical, spec_raw, spec of one parameter in the dump. */
static const char *dumped(const char *words, const char *path) {
    const char *dump = run_ok(mx_arena_printf(&arena, "--dump-sharding - %s", words)).out;
    const char *row = strstr(dump, mx_arena_printf(&arena, "\n%s\t", path));
    ck_assert_msg(row, "no %s in\n%s", path, dump);
    return mx_arena_strndup(&arena, row + 1, strcspn(row + 1, "\n"));
}

/* MaxText (attentions.py) leaves projections of attention whole on such a mesh; its pipelines cut
 * rows along stages first (types.py). */
START_TEST(meshes_with_rules_of_their_own) {
    const char *words = "--config configs/base.yml num_devices=4 ici_fsdp_parallelism=2 "
                        "ici_context_autoregressive_parallelism=2";
    const char *const kernels[] = {"query", "key", "value", "out"};
    for (int i = 0; i < MX_COUNT(kernels); i++) {
        const char *path =
            mx_arena_printf(&arena, "model/decoder/layers/self_attention/%s/kernel", kernels[i]);
        const char *row = dumped(words, path);
        ck_assert_msg(strstr(row, "\tNone|layers|None|None\tNone|stage|None|None\t"
                                  "None|None|None|None\t"),
                      "%s", row);
    }
    const char *row = dumped(words, "model/decoder/layers/mlp/wi_0/kernel");
    ck_assert_msg(strstr(row, "\tfsdp|None|None\t"), "%s", row);
    const char *why = run_ok("--explain-sharding activation_embed_and_logits_batch "
                             "--config configs/base.yml num_devices=8 ici_data_parallelism=2 "
                             "ici_pipeline_parallelism=4 ici_fsdp_parallelism=1")
                          .out;
    ck_assert_msg(strstr(why, "spec      (stage,data)\n"), "%s", why);
}
END_TEST

Suite *plan_suite(void) {
    Suite *s = suite_create("plan");
    suite_add(s, "text_and_json_agree", text_and_json_agree, 60);
    suite_add(s, "machine_is_told", machine_is_told, 30);
    suite_add(s, "files", files, 30);
    suite_add(s, "explanations", explanations, 60);
    suite_add(s, "findings", findings, 30);
    suite_add(s, "one_device_has_no_notes", one_device_has_no_notes, 30);
    suite_add(s, "small_models_have_figures", small_models_have_figures, 30);
    suite_add(s, "modules_ahead", modules_ahead, 60);
    suite_add(s, "custom_mesh", custom_mesh, 30);
    suite_add(s, "topologies_and_meshes_of_maxtext", topologies_and_meshes_of_maxtext, 60);
    suite_add(s, "policies_of_maxtext", policies_of_maxtext, 60);
    tcase_set_long(suite_add(s, "presets", presets, 120));
    suite_add(s, "stages_have_the_same_layers", stages_have_the_same_layers, 60);
    suite_add(s, "many_rules", many_rules, 60);
    suite_add(s, "cut_of_the_loss", cut_of_the_loss, 60);
    suite_add(s, "meshes_with_rules_of_their_own", meshes_with_rules_of_their_own, 30);
    return s;
}
