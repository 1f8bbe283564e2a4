/* test_pairs_see.c — pairs about images: TRL's DPOTrainer on a tiny Qwen 3-VL
 * (scripts/golden_dpo_sees.py), forms of records and of runs that mean the same, and images where
 * none may be. */
#include "close.h"
#include "common/goldens.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <unistd.h>

#define FOLDER   "hf/trl/dpo_sees"
#define PICTURES "PICTURES"

enum { STEPS = 5 };

static MxArena arena = {.name = "pairs that see"};

static void close_all(void) {
    mx_arena_release(&arena);
}

/* As the script has it. */
#define TRAINING                                                                                   \
    "model=%s data=%s/pairs.jsonl tokenizer_path=%s use_multimodal=true use_sft=false "            \
    "use_dpo=true max_num_images_per_example=2 freeze_vision_encoder_params=false "                \
    "dpo.dpo_beta=0.3 steps=5 per_device_batch_size=4 num_epoch=5 enable_data_shuffling=false "    \
    "max_target_length=96 dpo.max_prompt_length=64 packing=false dtype=float32 "                   \
    "weight_dtype=float32 learning_rate=1e-2 lr_schedule_type=wsd wsd_decay_steps_fraction=0 "     \
    "warmup_steps_fraction=0 adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0 "          \
    "gradient_clipping_threshold=1.0 eval_interval=-1 enable_checkpointing=false "                 \
    "log_config=false run_name=x base_output_directory=%s metrics_file=%s/m.jsonl %s"

static char *replaced(const char *text, const char *from, const char *to) {
    MxText out;
    mx_text_init(&out, &arena);
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
        mx_text_add(&out, "%.*s%s", (int)(at - text), text, to);
    mx_text_add(&out, "%s", text);
    return out.data;
}

/* The pairs, with the pictures' folder in place of its name, and `from` as `to`, if it is given. */
static void put_pairs(const char *dir, const char *from, const char *to) {
    MxBytes bytes;
    MxError err = {0};
    const char *path = goldens_need(&arena, FOLDER "/pairs.jsonl");
    char here[4096];
    ck_assert(getcwd(here, sizeof here) != NULL);
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    if (from) ck_assert_msg(strstr(text, from) != NULL, "%s", from);
    if (from) text = replaced(text, from, to);
    text = replaced(text, PICTURES, mx_path_join(&arena, here, "share/mxtrain/images"));
    ck_assert(mx_file_write(mx_path_join(&arena, dir, "pairs.jsonl"), text, strlen(text), &err));
}

static const char *words_of(const char *dir, const char *more) {
    const char *model = goldens_need(&arena, FOLDER);
    return mx_arena_printf(&arena, TRAINING, model, dir, model, dir, dir, more);
}

static const MetricsLine *run_ranks(const char *dir, int ranks, const char *more) {
    int n, code = ranks > 1 ? process_run_ranks(&arena, dir, ranks, words_of(dir, more))
                            : process_run(&arena, dir, words_of(dir, more));
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    const MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", &n);
    ck_assert_int_eq(n, STEPS);
    return lines;
}

/* ---- TRL */

static const struct {
    const char *theirs, *ours;
    CloseKind kind;
} figures[] = {
    {"loss", "learning/loss", CLOSE_LATER_LOSS},
    {"grad_norm", "learning/raw_grad_norm", CLOSE_LATER_NORM},
    {"rewards/chosen", "learning/rewards_chosen", CLOSE_LATER_LOSS},
    {"rewards/rejected", "learning/rewards_rejected", CLOSE_LATER_LOSS},
    {"rewards/margins", "learning/rewards_margin", CLOSE_LATER_LOSS},
    {"rewards/accuracies", "learning/reward_accuracy", CLOSE_LATER_LOSS},
    {"logps/chosen", "learning/logps_chosen", CLOSE_LATER_LOSS},
    {"logps/rejected", "learning/logps_rejected", CLOSE_LATER_LOSS},
};

START_TEST(steps_are_those_of_trl) {
    MxBytes bytes;
    MxError err = {0};
    const char *dir = process_dir(&arena, "trl");
    const char *path = goldens_need(&arena, FOLDER "/expected.json");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    MxJson *want = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    ck_assert(want != NULL);
    put_pairs(dir, NULL, NULL);
    const MetricsLine *lines = run_ranks(dir, 1, "");
    for (int f = 0; f < MX_COUNT(figures); f++)
        for (int step = 0; step < STEPS; step++) {
            double x;
            const MxJson *all = mx_json_get(want, figures[f].theirs);
            ck_assert(mx_json_number(mx_json_at(all, (size_t)step), &x));
            close_number(
                &(Close){.golden = FOLDER, .kind = figures[f].kind, .what = figures[f].theirs},
                process_number(&lines[step], figures[f].ours), x);
        }
}
END_TEST

/* ---- what means the same */

static const struct {
    const char *from, *to; /* in the records */
    int ranks;
    const char *more;
} same[] = {
    {"\"content\": \"Which", "\"content\": \"<image>Which", 1, ""},
    {"\"content\": \"Are", "\"content\": \"<|image|><image>Are", 1, ""},
    {"\"content\": \"Which colour?\"",
     "\"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"Which colour?\"}]", 1,
     ""},
    {"\"role\": \"user\", \"content\"", "\"from\": \"human\", \"value\"", 1, ""},
    {NULL, NULL, 1, "remat_policy=full"},
    {NULL, NULL, 1, "per_device_batch_size=2 gradient_accumulation_steps=2"},
    {NULL, NULL, 2, "per_device_batch_size=2 ici_data_parallelism=2"},
    {NULL, NULL, 2, "per_device_batch_size=2 ici_fsdp_parallelism=2"},
    {NULL, NULL, 2, "per_device_batch_size=2 ici_context_parallelism=2"},
};

START_TEST(losses_are_the_same) {
    const char *plain = process_dir(&arena, "plain"), *other = process_dir(&arena, "other");
    put_pairs(plain, NULL, NULL);
    put_pairs(other, same[_i].from, same[_i].to);
    const MetricsLine *want = run_ranks(plain, 1, "");
    const MetricsLine *got = run_ranks(other, same[_i].ranks, same[_i].more);
    for (int step = 0; step < STEPS; step++)
        ck_assert_double_eq_tol(process_number(&got[step], "learning/loss"),
                                process_number(&want[step], "learning/loss"), 1e-5);
}
END_TEST

START_TEST(images_count) {
    const char *plain = process_dir(&arena, "plain"), *other = process_dir(&arena, "other");
    put_pairs(plain, NULL, NULL);
    put_pairs(other, "red_circle_0.jpg", "green_square_0.png");
    double a = process_number(&run_ranks(plain, 1, "")[1], "learning/loss");
    double b = process_number(&run_ranks(other, 1, "")[1], "learning/loss");
    ck_assert_double_gt(fabs(a - b), 1e-4);
}
END_TEST

/* ---- what is refused */

static const struct {
    const char *from, *to, *more, *says;
} refused[] = {
    {"\"content\": \"red\"", "\"content\": [{\"type\": \"image\"}]", "",
     "pairs.jsonl:1: its responses have images or sounds of their own; those of pairs belong to "
     "the prompt, which both have"},
    {"\"content\": \"green, I think\"", "\"content\": [{\"type\": \"image\"}]", "",
     "pairs.jsonl:1: its responses have images or sounds of their own"},
    {"\"content\": \"Are", "\"content\": \"<image>Are", "",
     "pairs.jsonl:3: 2 images in the image column, but the conversation has only 1 without a file"},
    {"\"content\": \"Which", "\"content\": \"<image><image>Which", "",
     "pairs.jsonl:1: an image of the conversation names no file (\"path\"), and the image column "
     "has no more"},
    {NULL, NULL, "dpo.max_prompt_length=20",
     "pairs.jsonl:3: its images and sounds do not fit into dpo.max_prompt_length (20), with 8 "
     "tokens"},
    {NULL, NULL, "dpo.reference=precomputed",
     "dpo.reference: not available yet with use_multimodal"},
};

START_TEST(misfits_are_told) {
    const char *dir = process_dir(&arena, "refused");
    put_pairs(dir, refused[_i].from, refused[_i].to);
    ck_assert_int_ne(process_run(&arena, dir, words_of(dir, refused[_i].more)), 0);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_msg(strstr(log, refused[_i].says) != NULL, "%s", log);
}
END_TEST

Suite *pairs_see_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("pairs that see");
    TCase *tcase = tcase_create("pairs");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, steps_are_those_of_trl);
    tcase_add_loop_test(tcase, losses_are_the_same, 0, MX_COUNT(same));
    tcase_add_test(tcase, images_count);
    tcase_add_loop_test(tcase, misfits_are_told, 0, MX_COUNT(refused));
    suite_add_tcase(suite, tcase);
    return suite;
}
