/* time.c — seconds of steps on devices: links, hosts and slices by hand-computed cases, products
 * from their operations, steps that add up, and options that are refused. */
#include "plan_test.h"

#include <math.h>

#define TINY "base_num_decoder_layers=2 base_emb_dim=64 base_mlp_dim=128 max_target_length=64 "
#define H100 "--device h100 --links 400:10,8:100 " /* 50 GB/s in 10 us, 1 GB/s in 100 us */

static double number_of(const MxJson *row, const char *name) {
    double x = NAN;
    ck_assert_msg(mx_json_number(mx_json_get(row, name), &x), "no %s", name);
    return x;
}

/* Meshes whose exchanges all have so many ranks on a host, of so many; one axis each. */
static const struct {
    const char *words;
    int n, near;
} links[] = {
    {"--devices 4 ici_fsdp_parallelism=4", 4, 4},
    {"--devices 16 ici_fsdp_parallelism=16", 16, 8},
    {"--devices 4 dcn_fsdp_parallelism=4 ici_fsdp_parallelism=1", 4, 1},
    {"--devices 8 dcn_fsdp_parallelism=2 ici_fsdp_parallelism=4", 8, 4},
    {"--devices 4 dcn_data_parallelism=2 ici_data_parallelism=2 ici_fsdp_parallelism=1", 4, 2},
};

/* The part of a row's bytes that goes to other hosts: slices are hosts of their own, and so are
 * sums in them and between them. */
static double far_of(const MxJson *row, double usual) {
    const char *axes = mx_json_string(mx_json_get(row, "mesh_axes"));
    if (mx_text_has_suffix(axes, " in slices")) return 0;
    return mx_text_has_suffix(axes, " between slices") ? 1 : usual;
}

/* Bytes go to every other rank alike, those inside a host beside those between hosts. */
START_TEST(exchanges_take_their_links) {
    for (int i = 0; i < MX_COUNT(links); i++) {
        const MxJson *plan = run_json(mx_arena_printf(&arena, H100 TINY "%s", links[i].words));
        const MxJson *rows = mx_json_get(mx_json_get(plan, "time"), "collectives");
        double usual = (double)(links[i].n - links[i].near) / (links[i].n - 1), sum = 0;
        ck_assert_int_gt((int)mx_json_length(rows), 1);
        for (size_t r = 0; r < mx_json_length(rows); r++) {
            const MxJson *row = mx_json_at(rows, r);
            double far = far_of(row, usual);
            double calls = number_of(row, "exchanges"), bytes = number_of(row, "bytes_sent");
            double inside = far < 1 ? calls * 10e-6 + bytes * (1 - far) / 50e9 : 0;
            double between = far > 0 ? calls * 100e-6 + bytes * far / 1e9 : 0;
            double wanted = inside > between ? inside : between, got = number_of(row, "seconds");
            ck_assert_msg(fabs(got - wanted) <= 1e-9 * wanted, "%s: %g, wanted %g", links[i].words,
                          got, wanted);
            sum += got;
        }
        ck_assert(fabs(json_number(plan, "time.exchanges") - sum) <= 1e-9 * sum);
        ck_assert(json_number(plan, "time.exposed") <= sum);
        double step = json_number(plan, "time.kernels") + json_number(plan, "time.exposed");
        ck_assert_double_eq_tol(json_number(plan, "time.step"), step, 1e-12);
    }
}
END_TEST

/* The same bytes and exchanges as the plan without phases has. */
START_TEST(phases_add_up) {
    const MxJson *plan =
        run_json(H100 TINY "--devices 8 ici_fsdp_parallelism=4 "
                           "ici_tensor_parallelism=2 gradient_accumulation_steps=3");
    const MxJson *all = mx_json_get(plan, "collectives_per_step");
    const MxJson *rows = mx_json_get(mx_json_get(plan, "time"), "collectives");
    double calls[2] = {0}, bytes[2] = {0};
    for (size_t i = 0; i < mx_json_length(all); i++) {
        calls[0] += number_of(mx_json_at(all, i), "exchanges");
        bytes[0] += number_of(mx_json_at(all, i), "bytes_sent");
    }
    for (size_t i = 0; i < mx_json_length(rows); i++) {
        calls[1] += number_of(mx_json_at(rows, i), "exchanges");
        bytes[1] += number_of(mx_json_at(rows, i), "bytes_sent");
    }
    ck_assert(calls[0] == calls[1] && bytes[0] == bytes[1] && bytes[0] > 0);
}
END_TEST

/* Large products of a dense model are most of a step: 3 (4 under full remat) forward passes at the
 * row's share of its peak, in bf16 and in f32. */
START_TEST(products_take_their_operations) {
    static const struct {
        const char *words;
        double peak, passes;
    } cases[] = {
        {"dtype=bfloat16 remat_policy=minimal", 989e12, 3},
        {"dtype=bfloat16 remat_policy=full", 989e12, 4},
        {"remat_policy=minimal", 67e12, 3},
    };
    for (int i = 0; i < MX_COUNT(cases); i++) {
        const MxJson *plan =
            run_json(mx_arena_printf(&arena,
                                     "--device h100 model_name=llama2-7b per_device_batch_size=8 "
                                     "max_target_length=2048 %s",
                                     cases[i].words));
        double flops = json_number(plan, "tflops_per_device.total") * 1e12 * cases[i].passes / 3;
        double kernels = json_number(plan, "time.kernels") * cases[i].peak * 0.6;
        ck_assert_msg(kernels > 0.9 * flops && kernels < 1.4 * flops, "%s: %g of %g",
                      cases[i].words, kernels, flops);
    }
}
END_TEST

/* Deep models on the line of two shallow ones, stages with their bubble. */
START_TEST(stages_wait) {
    const char *words = H100 TINY "base_num_decoder_layers=8 --devices 4 ici_fsdp_parallelism=1 "
                                  "ici_pipeline_parallelism=4 num_layers_per_pipeline_stage=2 "
                                  "num_pipeline_microbatches=%d";
    double few, more;
    const MxJson *plan = run_json(mx_arena_printf(&arena, words, 4));
    few = json_number(plan, "time.bubble") / json_number(plan, "time.step");
    plan = run_json(mx_arena_printf(&arena, words, 16));
    more = json_number(plan, "time.bubble") / json_number(plan, "time.step");
    ck_assert_msg(few > 3. / 7 * 0.8 && few < 0.6, "%g", few);
    ck_assert_msg(more > 3. / 19 * 0.8 && more < few, "%g", more);
}
END_TEST

START_TEST(memory_is_the_devices) {
    const MxJson *plan = run_json("--device h200");
    ck_assert_int_eq(json_int(plan, "memory_per_rank.machine"), 141000000000);
    plan = run_json("--device h200 --device-memory 0.125");
    ck_assert_int_eq(json_int(plan, "memory_per_rank.machine"), 1 << 27);
    ck_assert(!json_bool(plan, "memory_per_rank.fits"));
    plan = run_json("--device cpu");
    ck_assert(json_number(plan, "time.step") > 0 && json_number(plan, "time.step") < 600);
}
END_TEST

static const struct {
    const char *words, *wanted;
} refused[] = {
    {"--plan --device h1000", "unrecognized device \"h1000\"; there are cpu|h100|h200|tpu-v5p\n"
                              "hint: did you mean \"h100\"?"},
    {"--plan --device h100 --links 4x", "--links wants Gbit/s and microseconds"},
    {"--plan --device h100 --links 4:1,", "found \"4:1,\""},
    {"--plan --device h100 --links 0", "found \"0\""},
    {"--plan --links 4", "--links goes with --device"},
    {"--plan --device-memory 4", "--device-memory goes with --device"},
    {"--plan --device h100 --device-memory 0", "--device-memory wants GiB above 0, found \"0\""},
    {"--device h100", "--device goes with --plan"},
    {"--devices 4", "--devices goes with --plan"},
    {"--plan --devices 0", "--devices"},
};

START_TEST(refusals) {
    for (int i = 0; i < MX_COUNT(refused); i++) {
        Run run = run_mxtrain(refused[i].words);
        ck_assert_msg(run.code == 2 && !*run.out && strstr(run.err, refused[i].wanted), "%s: %d %s",
                      refused[i].words, run.code, run.err);
    }
}
END_TEST

Suite *time_suite(void) {
    Suite *s = suite_create("time");
    suite_add(s, "exchanges_take_their_links", exchanges_take_their_links, 60);
    suite_add(s, "phases_add_up", phases_add_up, 60);
    suite_add(s, "products_take_their_operations", products_take_their_operations, 60);
    suite_add(s, "stages_wait", stages_wait, 60);
    suite_add(s, "memory_is_the_devices", memory_is_the_devices, 60);
    suite_add(s, "refusals", refusals, 60);
    return s;
}
