/* search.c — the search against every plan of a small space, one by one; what it prints as keys is
 * the plan that it means; when nothing fits; options that are refused. */
#include "plan_test.h"

#include <math.h>

#define SMALL                                                                                      \
    "--config configs/base.yml num_devices=2 base_num_decoder_layers=4 base_emb_dim=64 "           \
    "base_mlp_dim=256 base_num_query_heads=4 base_num_kv_heads=2 head_dim=16 "                     \
    "max_target_length=128 async_checkpointing=false "
#define ROWS 4

/* One mesh a row; micro-batches of pipelines and virtual layers are tried for the last. */
static const char *const meshes[] = {
    "ici_data_parallelism=2 ici_fsdp_parallelism=1",
    "ici_fsdp_parallelism=2",
    "ici_tensor_parallelism=2 ici_fsdp_parallelism=1",
    "ici_context_parallelism=2 ici_fsdp_parallelism=1",
    "ici_pipeline_parallelism=2 ici_fsdp_parallelism=1",
};
static const char *const remats[] = {"none", "minimal", "full"};

typedef struct Best {
    double seconds;
    int n;
} Best;

/* Seconds of the plan of these words; NAN if no run takes it, INFINITY if it does not fit. */
static double plan_of(const char *words, const MxPlanDevice *device) {
    MxError err = {0};
    MxPlan *plan;
    ck_assert(mx_plan_new(&arena, config_of(words), device, &plan, &err));
    const char *text = mx_plan_json(&arena, plan);
    MxJson *root = mx_json_parse(&arena, text, strlen(text), "plan", &err);
    if (!mx_json_get(mx_json_get(root, "time"), "step")) return NAN;
    return json_bool(root, "memory_per_rank.fits") ? json_number(root, "time.step") : INFINITY;
}

static void try(Best *best, const char *words, const MxPlanDevice *device) {
    for (int r = 0; r < MX_COUNT(remats); r++) {
        double s =
            plan_of(mx_arena_printf(&arena, SMALL "%s remat_policy=%s", words, remats[r]), device);
        ck_assert_msg(!isnan(s), "no run takes %s", words);
        best->n++;
        if (s < best->seconds) best->seconds = s;
    }
}

static Best by_force(const MxPlanDevice *device) {
    Best best = {.seconds = INFINITY};
    for (int m = 0; m < MX_COUNT(meshes); m++) {
        bool is_piped = m == MX_COUNT(meshes) - 1;
        for (int n = 1; n <= (is_piped ? 2 : m < 2 ? ROWS / 2 : ROWS); n *= 2) {
            const char *words =
                mx_arena_printf(&arena,
                                "%s per_device_batch_size=%g "
                                "gradient_accumulation_steps=%d",
                                meshes[m], is_piped ? 2. : ROWS / 2. / n, is_piped ? 1 : n);
            for (int turns = 1; turns <= 2 && is_piped; turns++)
                try(&best,
                    mx_arena_printf(&arena,
                                    "%s num_pipeline_microbatches=%d "
                                    "num_layers_per_pipeline_stage=%d",
                                    words, 2 * n, 2 / turns),
                    device);
            if (!is_piped) try(&best, words, device);
        }
    }
    return best;
}

static bool search(const MxPlanDevice *device, MxPlanSearch *out, MxError *err) {
    const char *files[] = {"configs/base.yml"};
    static const char *const words[] = {"num_devices=2",
                                        "base_num_decoder_layers=4",
                                        "base_emb_dim=64",
                                        "base_mlp_dim=256",
                                        "base_num_query_heads=4",
                                        "base_num_kv_heads=2",
                                        "head_dim=16",
                                        "max_target_length=128",
                                        "async_checkpointing=false",
                                        "per_device_batch_size=2"};
    MxConfigRequest request = {
        .files = files, .n_files = 1, .overrides = words, .n_overrides = MX_COUNT(words)};
    return mx_plan_search(&arena, &request, device, out, err);
}

/* On fast and slow links, with memory for all and for some. */
START_TEST(finds_the_best) {
    static const struct {
        const char *links;
        double gib;
    } cases[] = {{"3600:10", 80}, {"1:200", 80}, {"1:200", 0.0365}, {"3600:10", 0.0355}};
    for (int i = 0; i < MX_COUNT(cases); i++) {
        MxPlanDevice device;
        MxPlanSearch found;
        MxError err = {0};
        ck_assert(mx_plan_device(&arena, "h100", cases[i].links, cases[i].gib, &device, &err));
        ck_assert_msg(search(&device, &found, &err), "%s", err.count ? err.text.data : "");
        Best best = by_force(&device);
        ck_assert_int_eq(found.n_candidates, best.n);
        ck_assert_int_eq(found.n_planned, best.n);
        ck_assert_int_eq(found.n_refused, 0);
        ck_assert_int_eq(found.n_too_large > 0, cases[i].gib < 1);
        ck_assert_double_eq_tol(found.found[0].seconds, best.seconds, 1e-12);
        for (int k = 0; k < found.n; k++) {
            double same =
                plan_of(mx_arena_printf(&arena, SMALL "%s", found.found[k].words), &device);
            ck_assert_double_eq_tol(found.found[k].seconds, same, 1e-12);
            ck_assert(!k || found.found[k - 1].seconds <= found.found[k].seconds);
        }
    }
}
END_TEST

START_TEST(tells_the_smallest_overflow) {
    Run run = run_mxtrain("--plan --search --device h100 --device-memory 0.03125 --devices 4");
    ck_assert_int_eq(run.code, 71);
    ck_assert_msg(strstr(run.err, "no plan fits 4 devices \"h100\" of 0.031 GiB: the smallest of"),
                  "%s", run.err);
    ck_assert_msg(strstr(run.err, "GiB more: ici_") && !*run.out, "%s", run.err);
}
END_TEST

/* The table and the JSON have the same plans, of which there are too many to look at all. */
START_TEST(both_forms_say_the_same) {
    const char *words =
        "--search --device h100 --devices 16 configs/base.yml per_device_batch_size=1";
    Run run = run_ok(mx_arena_printf(&arena, "--plan %s", words));
    ck_assert_msg(strstr(run.out, "ici_") != NULL, "%s", run.out);
    MxJson *json = run_json(words), *plans = mx_json_get(json, "plans");
    ck_assert_uint_eq(mx_json_length(plans), 10);
    for (size_t i = 0; i < mx_json_length(plans); i++)
        ck_assert(strstr(run.out, mx_json_string(mx_json_get(mx_json_at(plans, i), "keys"))));
}
END_TEST

static const struct {
    const char *words, *wanted;
} refused[] = {
    {"--plan --search", "--search goes with --device"},
    {"--search --device h100", "--device goes with --plan"},
    {"--plan --search --device h100 --devices 4 ici_tensor_parallelism=2",
     "ici_tensor_parallelism: --search chooses it; leave it out"},
    {"--plan --search --device h100 --devices 4 remat_policy=full",
     "remat_policy: --search chooses it; leave it out"},
    {"--plan --search --device h100 --devices 4 dcn_data_parallelism=2",
     "--search plans one slice"},
    {"--plan --search --device h100 --devices 7 per_device_batch_size=1 max_target_length=8 "
     "base_num_decoder_layers=1 --links 0",
     "--links wants"},
};

START_TEST(refusals) {
    for (int i = 0; i < MX_COUNT(refused); i++) {
        Run run = run_mxtrain(refused[i].words);
        ck_assert_msg(run.code == 2 && !*run.out && strstr(run.err, refused[i].wanted), "%s: %d %s",
                      refused[i].words, run.code, run.err);
    }
}
END_TEST

Suite *search_suite(void) {
    Suite *s = suite_create("search");
    suite_add(s, "finds_the_best", finds_the_best, 120);
    suite_add(s, "tells_the_smallest_overflow", tells_the_smallest_overflow, 60);
    tcase_set_long(suite_add(s, "both_forms_say_the_same", both_forms_say_the_same, 300));
    suite_add(s, "refusals", refusals, 60);
    return s;
}
