/* memory.c — predicted memory: against what runs really take, deep models against their own
 * lowered program, and what planning itself takes. */
#include "plan_test.h"

#include <mx/program.h>

#include <stdio.h>

static const char *const runs[] = {
    "base_num_decoder_layers=4 per_device_batch_size=4",
    "base_emb_dim=384 base_mlp_dim=1024 vocab_size=4000 dtype=bfloat16 per_device_batch_size=2",
    "base_emb_dim=512 base_mlp_dim=1024 base_num_decoder_layers=6 remat_policy=full "
    "per_device_batch_size=2 enable_checkpointing=false",
    "base_emb_dim=256 vocab_size=16000 opt_type=sgd remat_policy=minimal per_device_batch_size=2 "
    "logits_via_embedding=true",
    "base_emb_dim=768 base_mlp_dim=2048 base_num_decoder_layers=8 vocab_size=16000 dtype=bfloat16 "
    "remat_policy=full lora.enable_lora=true lora.lora_rank=8 lora.lora_alpha=8 "
    "per_device_batch_size=1 "
    "enable_checkpointing=false",
};

/* Within 5 % + 40 MB of the peak of a run of two steps. */
START_TEST(measured) {
    const int64_t slack = 40000000;
    const char *dir = temp_path("measured");
    const char *words =
        mx_arena_printf(&arena,
                        "--config configs/base.yml steps=2 eval_interval=-1 log_config=false "
                        "base_output_directory=%s %s",
                        dir, runs[_i]);
    int64_t predicted = json_int(run_json(words), "memory_per_rank.total");
    if (is_sanitized()) {
        printf("memory of a run: not measured in a sanitized build\n");
        return;
    }
    int64_t peak = run_ok(words).peak;
    int64_t off = predicted > peak ? predicted - peak : peak - predicted;
    printf("memory of a run: predicted %.1f MiB, measured %.1f MiB (%s)\n",
           (double)predicted / (1 << 20), (double)peak / (1 << 20), runs[_i]);
    ck_assert_int_le(off, peak / 20 + slack);
}
END_TEST

/* Deep models: what two shallow programs say equals what the whole program takes. */
START_TEST(deep_models) {
    static const char *const remats[] = {"none", "minimal", "full"};
    static const char *const others[] = {"dtype=float32 logits_via_embedding=true",
                                         "dtype=bfloat16 use_qk_norm=true",
                                         "dtype=float32 mtp_num_layers=2",
                                         ("dtype=bfloat16 lora.enable_lora=true lora.lora_rank=4 "
                                          "lora.lora_alpha=4")};
    int n = 0;
    for (int layers = 49; layers <= 80; layers += 31) {
        for (int i = 0; i < MX_COUNT(remats) * MX_COUNT(others); i++) {
            const char *words = mx_arena_printf(
                &arena,
                "base_emb_dim=64 base_num_query_heads=4 base_num_kv_heads=2 head_dim=16 "
                "base_mlp_dim=160 max_target_length=32 per_device_batch_size=2 "
                "base_num_decoder_layers=%d remat_policy=%s %s",
                layers, remats[i / MX_COUNT(others)], others[i % MX_COUNT(others)]);
            const char *overrides[16];
            MxConfigRequest request = {.overrides = overrides};
            char *save = NULL;
            for (char *w = strtok_r(mx_arena_strdup(&arena, words), " ", &save); w;
                 w = strtok_r(NULL, " ", &save))
                overrides[request.n_overrides++] = w;
            MxError err = {0};
            MxConfig *config;
            MxTrainMesh mesh;
            MxTrainProgram program;
            ck_assert_msg(mx_config_load(&arena, &request, &config, &err), "%s", err.text.data);
            ck_assert(mx_train_mesh(&arena, config, &mesh, &err));
            ck_assert(mx_train_program(&arena, &mesh, NULL, &program, &err));
            MxPlan *plan;
            ck_assert(mx_plan_new(&arena, config, NULL, &plan, &err));
            const char *json = mx_plan_json(&arena, plan);
            const MxJson *root = mx_json_parse(&arena, json, strlen(json), "plan", &err);
            ck_assert_msg(json_int(root, "memory_per_rank.activations") ==
                              (int64_t)program.layout.bytes.arena,
                          "%s: %lld, wanted %zu", words,
                          (long long)json_int(root, "memory_per_rank.activations"),
                          program.layout.bytes.arena);
            ck_assert_int_eq(json_int(root, "memory_per_rank.casts"), (int64_t)program.bytes.casts);
            n++;
        }
    }
    printf("deep models: %d equal\n", n);
}
END_TEST

/* On one device, a plan's bytes are those that a run allocates. */
START_TEST(shards_add_up) {
    const char *words = "--config configs/base.yml model_name=llama2-7b";
    const MxJson *one = run_json(words);
    const MxJson *many = run_json(mx_arena_printf(
        &arena, "%s ici_fsdp_parallelism=8 logical_axis_rules=[[norm,[fsdp]]]", words));
    ck_assert(json_bool(one, "memory_per_rank.activations_are_exact"));
    ck_assert(json_bool(many, "memory_per_rank.activations_are_exact"));
    static const char *const members[] = {"memory_per_rank.weights", "memory_per_rank.gradients",
                                          "memory_per_rank.optimizer"};
    for (int i = 0; i < MX_COUNT(members); i++)
        ck_assert_int_eq(json_int(one, members[i]), 8 * json_int(many, members[i]));
    /* rows are what fsdp divides: the activations of a rank are those of one device, and gathered
     * weights beside them, of a layer or the head and their gradients */
    int64_t gathered = json_int(many, "memory_per_rank.activations") -
                       json_int(one, "memory_per_rank.activations");
    int64_t layer = 4 * (4 * 4096 * 4096 + 3 * 4096 * 11008);
    ck_assert_msg(gathered >= 0 && gathered < 2 * layer, "%lld", (long long)gathered);
    const MxJson *cut = run_json(
        mx_arena_printf(&arena, "%s ici_fsdp_parallelism=1 ici_tensor_parallelism=8", words));
    double share = json_number(cut, "memory_per_rank.activations") /
                   json_number(one, "memory_per_rank.activations");
    ck_assert_msg(share > 0.9 && share < 2, "8 rows on each of 8 ranks, cut by 8: %g", share);
    words = mx_arena_printf(&arena,
                            "%s dtype=bfloat16 lora.enable_lora=true lora.lora_rank=4 "
                            "lora.lora_alpha=4",
                            words);
    many = run_json(mx_arena_printf(&arena, "%s ici_fsdp_parallelism=8", words));
    int64_t kernels = 32000 * 4096 + 32 * layer / 4;
    ck_assert_int_eq(json_int(run_json(words), "memory_per_rank.casts"), 2 * kernels);
    ck_assert_int_eq(json_int(many, "memory_per_rank.casts"), 2 * kernels / 8);
}
END_TEST

static void same_memory(const char *refused, const char *near, const char *why) {
    static const char *const members[] = {"activations", "buffers"}; /* others are rounded up */
    const MxJson *a = run_json(mx_arena_printf(&arena, "--config configs/base.yml %s", refused));
    const MxJson *b = run_json(mx_arena_printf(&arena, "--config configs/base.yml %s", near));
    for (int i = 0; i < MX_COUNT(members); i++) {
        const char *member = mx_arena_printf(&arena, "memory_per_rank.%s", members[i]);
        ck_assert_msg(json_int(a, member) == json_int(b, member), "%s: %s is %lld, of %s %lld",
                      refused, members[i], (long long)json_int(a, member), near,
                      (long long)json_int(b, member));
    }
    ck_assert(!json_bool(a, "memory_per_rank.activations_are_exact"));
    ck_assert(json_bool(b, "memory_per_rank.activations_are_exact"));
    const MxJson *errors = mx_json_get(a, "errors_when_run");
    const char *last = mx_json_string(mx_json_at(errors, mx_json_length(errors) - 1));
    ck_assert_msg(strstr(last, why), "%s: %s", refused, last);
    ck_assert_uint_eq(mx_json_length(mx_json_get(a, "collectives_per_step")), 0);
}

/* A rank has its stage's layers and what is outside layers; a deep pipeline is planned from shallow
 * ones, and one that no run takes without stages. */
START_TEST(pipelines) {
    static const char *const members[] = {"weights", "gradients", "optimizer"};
    const MxJson *staged = run_json("num_devices=8 ici_pipeline_parallelism=4 "
                                    "per_device_batch_size=2");
    const MxJson *shallow = run_json("num_devices=2 base_num_decoder_layers=1");
    for (int i = 0; i < MX_COUNT(members); i++) {
        const char *member = mx_arena_printf(&arena, "memory_per_rank.%s", members[i]);
        ck_assert_int_eq(json_int(staged, member), json_int(shallow, member));
    }
    ck_assert(json_bool(staged, "memory_per_rank.activations_are_exact"));
    ck_assert_uint_gt(mx_json_length(mx_json_get(staged, "collectives_per_step")), 0);
    const MxJson *deep = run_json("num_devices=8 ici_pipeline_parallelism=4 "
                                  "base_num_decoder_layers=64 num_layers_per_pipeline_stage=16");
    const MxJson *half = run_json("num_devices=8 ici_pipeline_parallelism=4 "
                                  "base_num_decoder_layers=32 num_layers_per_pipeline_stage=8");
    const MxJson *quarter = run_json("num_devices=8 ici_pipeline_parallelism=4 "
                                     "base_num_decoder_layers=16 num_layers_per_pipeline_stage=4");
    const char *member = "memory_per_rank.activations";
    ck_assert_int_eq(json_int(deep, member) - json_int(half, member),
                     2 * (json_int(half, member) - json_int(quarter, member)));
    const MxJson *refused = run_json(
        "num_devices=8 ici_pipeline_parallelism=4 decoder_block=deepseek attention_type=mla "
        "first_num_dense_layers=4 use_qk_clip=true enable_checkpointing=false");
    const MxJson *errors = mx_json_get(refused, "errors_when_run");
    const char *last = mx_json_string(mx_json_at(errors, mx_json_length(errors) - 1));
    ck_assert_msg(strstr(last, "not available yet in a pipeline"), "%s", last);
}
END_TEST

/* By the passes that runs use: what does not divide is computed whole, and kept as the largest part
 * of it. */
START_TEST(meshes_that_no_run_takes) {
    same_memory("num_devices=2 ici_tensor_parallelism=2 vocab_size=1001",
                "num_devices=2 ici_tensor_parallelism=2 vocab_size=1001 "
                "logical_axis_rules=[[vocab,[]],[activation_vocab,[]]]",
                "does not divide dim 0 = 1001 of ");
    const MxJson *uneven = run_json("num_devices=2 ici_tensor_parallelism=2 vocab_size=1001 "
                                    "enable_checkpointing=false");
    const MxJson *even = run_json("num_devices=2 ici_tensor_parallelism=2 vocab_size=1002 "
                                  "enable_checkpointing=false");
    ck_assert_int_eq(json_int(uneven, "memory_per_rank.weights"),
                     json_int(even, "memory_per_rank.weights"));
    const MxJson *odd = run_json("num_devices=4 per_device_batch_size=0.75");
    const MxJson *errors = mx_json_get(odd, "errors_when_run");
    ck_assert_uint_eq(mx_json_length(errors), 1);
    ck_assert(strstr(mx_json_string(mx_json_at(errors, 0)), "3 rows does not divide among the 4"));
    ck_assert_int_gt(json_int(odd, "memory_per_rank.activations"), 0);
}
END_TEST

/* The memory of planning itself; bench/plan.py tells its time. */
START_TEST(plans_are_small) {
    const int64_t most_bytes = 200000000;
    Run run = run_ok("--plan --config configs/base.yml model_name=llama3.1-405b "
                     "num_devices=4096 ici_tensor_parallelism=8");
    ck_assert_msg(is_sanitized() || run.peak < most_bytes, "%lld bytes", (long long)run.peak);
}
END_TEST

Suite *memory_suite(void) {
    Suite *s = suite_create("memory");
    TCase *tc = tcase_create("measured");
    tcase_add_checked_fixture(tc, test_setup, test_teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, measured, 0, MX_COUNT(runs));
    tcase_set_long(tc);
    suite_add_tcase(s, tc);
    suite_add(s, "deep_models", deep_models, 240);
    suite_add(s, "shards_add_up", shards_add_up, 60);
    suite_add(s, "pipelines", pipelines, 120);
    suite_add(s, "meshes_that_no_run_takes", meshes_that_no_run_takes, 120);
    suite_add(s, "plans_are_small", plans_are_small, 60);
    return s;
}
