/* test_losses_see.c — pairs, groups of responses and replies of the policy about images, and a
 * teacher that sees: TRL's DPOTrainer and GRPOTrainer on a tiny Qwen 3-VL
 * (scripts/golden_trl_sees.py), forms of records and of runs that mean the same, and images where
 * none may be. */
#include "close.h"
#include "common/goldens.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <unistd.h>

#define FOLDER   "hf/trl/sees"
#define PICTURES "PICTURES"

static MxArena arena = {.name = "losses that see"};

static void close_all(void) {
    mx_arena_release(&arena);
}

/* As the script has it. */
#define TRAINING                                                                                   \
    "model=%s data=%s/%s.jsonl tokenizer_path=%s use_multimodal=true "                             \
    "max_num_images_per_example=2 "                                                                \
    "freeze_vision_encoder_params=false steps=%d per_device_batch_size=4 num_epoch=5 "             \
    "enable_data_shuffling=false max_target_length=96 packing=false dtype=float32 "                \
    "weight_dtype=float32 learning_rate=1e-2 lr_schedule_type=wsd wsd_decay_steps_fraction=0 "     \
    "warmup_steps_fraction=0 adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0 "          \
    "gradient_clipping_threshold=1.0 eval_interval=-1 enable_checkpointing=false "                 \
    "log_config=false run_name=x base_output_directory=%s metrics_file=%s/m.jsonl %s %s"

/* What learns, from which records. */
typedef struct Learning {
    const char *data, *words;
    int steps;
} Learning;

static const Learning
    pairs = {"pairs", "use_sft=false use_dpo=true dpo.max_prompt_length=64 dpo.dpo_beta=0.3", 5},
    groups = {"groups",
              "use_grpo=true rl.num_generations=2 rl.reward=data rl.grpo_beta=0.1 "
              "rl.scale_rewards=none",
              3},
    replies = {"groups",
               "use_grpo=true rl.num_generations=4 rl.reward=regex rl.reward_pattern='[a-m]' "
               "rl.grpo_beta=0.0 rl.recorded_logprobs=true max_prefill_predict_length=80 "
               "train_data_columns=prompt",
               5},
    taught = {"groups", "use_sft=true distill_alpha=0.5 distill.top_k=264", 4};

static char *replaced(const char *text, const char *from, const char *to) {
    MxText out;
    mx_text_init(&out, &arena);
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
        mx_text_add(&out, "%.*s%s", (int)(at - text), text, to);
    mx_text_add(&out, "%s", text);
    return out.data;
}

/* Records, with the pictures' folder in place of its name, and `from` as `to`, if it is given. */
static void put_records(const char *dir, const char *data, const char *from, const char *to) {
    MxBytes bytes;
    MxError err = {0};
    const char *name = mx_arena_printf(&arena, "%s.jsonl", data);
    const char *path = goldens_need(&arena, mx_path_join(&arena, FOLDER, name));
    char here[4096];
    ck_assert(getcwd(here, sizeof here) != NULL);
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    if (from) ck_assert_msg(strstr(text, from) != NULL, "%s", from);
    if (from) text = replaced(text, from, to);
    text = replaced(text, PICTURES, mx_path_join(&arena, here, "share/mxtrain/images"));
    ck_assert(mx_file_write(mx_path_join(&arena, dir, name), text, strlen(text), &err));
}

static const char *words_of(const char *dir, const Learning *what, const char *more) {
    const char *model = goldens_need(&arena, FOLDER);
    return mx_arena_printf(&arena, TRAINING, model, dir, what->data, model, what->steps, dir, dir,
                           what->words, more);
}

static const MetricsLine *run_ranks(const char *dir, const Learning *what, int ranks,
                                    const char *more) {
    const char *words = words_of(dir, what, more);
    int n, code = ranks > 1 ? process_run_ranks(&arena, dir, ranks, words)
                            : process_run(&arena, dir, words);
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    const MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", &n);
    ck_assert_int_eq(n, what->steps);
    return lines;
}

/* ---- TRL */

typedef struct Figure {
    const char *theirs, *ours;
    CloseKind kind;
} Figure;

static const Figure of_pairs[] = {
    {"loss", "learning/loss", CLOSE_LATER_LOSS},
    {"grad_norm", "learning/raw_grad_norm", CLOSE_LATER_NORM},
    {"rewards/chosen", "learning/rewards_chosen", CLOSE_LATER_LOSS},
    {"rewards/rejected", "learning/rewards_rejected", CLOSE_LATER_LOSS},
    {"rewards/margins", "learning/rewards_margin", CLOSE_LATER_LOSS},
    {"rewards/accuracies", "learning/reward_accuracy", CLOSE_LATER_LOSS},
    {"logps/chosen", "learning/logps_chosen", CLOSE_LATER_LOSS},
    {"logps/rejected", "learning/logps_rejected", CLOSE_LATER_LOSS},
};

static const Figure of_groups[] = {
    {"loss", "learning/loss", CLOSE_LATER_LOSS},
    {"grad_norm", "learning/raw_grad_norm", CLOSE_LATER_NORM},
    {"kl", "learning/avg_kl", CLOSE_LATER_LOSS},
};

static void compare(const Learning *what, const Figure *figures, int n_figures) {
    MxBytes bytes;
    MxError err = {0};
    const char *dir = process_dir(&arena, "trl");
    const char *name = mx_arena_printf(&arena, FOLDER "/%s.json", what->data);
    const char *path = goldens_need(&arena, name);
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    MxJson *want = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    ck_assert(want != NULL);
    put_records(dir, what->data, NULL, NULL);
    const MetricsLine *lines = run_ranks(dir, what, 1, "");
    for (int f = 0; f < n_figures; f++)
        for (int step = 0; step < what->steps; step++) {
            double x;
            const MxJson *all = mx_json_get(want, figures[f].theirs);
            ck_assert(mx_json_number(mx_json_at(all, (size_t)step), &x));
            close_number(
                &(Close){.golden = FOLDER, .kind = figures[f].kind, .what = figures[f].theirs},
                process_number(&lines[step], figures[f].ours), x);
        }
}

START_TEST(pairs_are_those_of_trl) {
    compare(&pairs, of_pairs, MX_COUNT(of_pairs));
}
END_TEST

START_TEST(groups_are_those_of_trl) {
    compare(&groups, of_groups, MX_COUNT(of_groups));
}
END_TEST

/* ---- what means the same */

#define TEACHER "teacher_overrides.load_parameters_path=TEACHER "
#define ON_TWO  "per_device_batch_size=2 "

static const struct {
    const Learning *what;
    const char *from, *to; /* in the records */
    int ranks;
    const char *both, *more;
} same[] = {
    {&pairs, "\"content\": \"Which", "\"content\": \"<image>Which", 1, "", ""},
    {&pairs, "\"content\": \"Are", "\"content\": \"<|image|><image>Are", 1, "", ""},
    {&pairs, "\"content\": \"Which colour?\"",
     "\"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"Which colour?\"}]", 1,
     "", ""},
    {&pairs, "\"role\": \"user\", \"content\"", "\"from\": \"human\", \"value\"", 1, "", ""},
    {&pairs, NULL, NULL, 1, "", "remat_policy=full"},
    {&pairs, NULL, NULL, 1, "", ON_TWO "gradient_accumulation_steps=2"},
    {&pairs, NULL, NULL, 2, "", ON_TWO "ici_data_parallelism=2"},
    {&pairs, NULL, NULL, 2, "", ON_TWO "ici_fsdp_parallelism=2"},
    {&pairs, NULL, NULL, 2, "", ON_TWO "ici_context_parallelism=2"},
    {&pairs, NULL, NULL, 1, "", "dpo.reference=precomputed"},
    {&pairs, NULL, NULL, 2, "", "dpo.reference=precomputed " ON_TWO "ici_fsdp_parallelism=2"},
    {&groups, NULL, NULL, 1, "", ON_TWO "gradient_accumulation_steps=2"},
    {&groups, NULL, NULL, 2, "", ON_TWO "ici_fsdp_parallelism=2"},
    {&groups, NULL, NULL, 2, "", ON_TWO "ici_context_parallelism=2"},
    {&taught, NULL, NULL, 1, TEACHER, "offline_data_dir=LOGITS"},
    {&taught, NULL, NULL, 2, TEACHER, ON_TWO "ici_fsdp_parallelism=2"},
    {&replies, NULL, NULL, 1, "", "rollout_micro_batch_size=1"},
    {&replies, NULL, NULL, 2, "", ON_TWO "ici_data_parallelism=2"},
    {&replies, NULL, NULL, 2, "", ON_TWO "ici_fsdp_parallelism=2"},
};

/* With folders in place of their names; the teacher is what the script began with. */
static const char *placed(const char *dir, const char *words) {
    words = replaced(words, "TEACHER", goldens_need(&arena, FOLDER));
    return replaced(words, "LOGITS", mx_path_join(&arena, dir, "logits"));
}

START_TEST(losses_are_the_same) {
    const char *plain = process_dir(&arena, "plain"), *other = process_dir(&arena, "other");
    const Learning *what = same[_i].what;
    const char *more = mx_arena_printf(&arena, "%s%s", same[_i].both, same[_i].more);
    put_records(plain, what->data, NULL, NULL);
    put_records(other, what->data, same[_i].from, same[_i].to);
    const MetricsLine *want = run_ranks(plain, what, 1, placed(plain, same[_i].both));
    const MetricsLine *got = run_ranks(other, what, same[_i].ranks, placed(other, more));
    for (int step = 0; step < what->steps; step++)
        for (int norm = 0; norm < 2; norm++) {
            const char *name = norm ? "learning/raw_grad_norm" : "learning/loss";
            ck_assert_double_eq_tol(process_number(&got[step], name),
                                    process_number(&want[step], name), 1e-5);
        }
}
END_TEST

START_TEST(images_count) {
    static const Learning *const all[] = {&pairs, &groups, &taught};
    const Learning *what = all[_i];
    const char *plain = process_dir(&arena, "plain"), *other = process_dir(&arena, "other");
    put_records(plain, what->data, NULL, NULL);
    put_records(other, what->data, "red_circle_0.jpg", "green_square_0.png");
    const char *more = what == &taught ? placed(plain, TEACHER) : "";
    double a = process_number(&run_ranks(plain, what, 1, more)[1], "learning/loss");
    double b = process_number(&run_ranks(other, what, 1, more)[1], "learning/loss");
    ck_assert_double_gt(fabs(a - b), 1e-5);
}
END_TEST

/* Every ratio is 1, and the advantages of a group have the sum 0, if what the policy saw when it
 * wrote its replies is what it sees when it learns from them. */
START_TEST(replies_are_about_images) {
    const char *dir = process_dir(&arena, "replies");
    const char *from = "0.25, \"image\": [\"PICTURES/train_red_circle_0.jpg\"]";
    const char *to = "0.25, \"image\": [\"PICTURES/train_green_square_0.png\"]";
    double norm = 0;
    put_records(dir, replies.data, _i ? from : NULL, to); /* the words of both are the same */
    const MetricsLine *lines = run_ranks(dir, &replies, 1, "");
    for (int step = 0; step < replies.steps; step++) {
        ck_assert_double_lt(fabs(process_number(&lines[step], "learning/loss")), 1e-6);
        norm += process_number(&lines[step], "learning/raw_grad_norm");
    }
    ck_assert_double_gt(norm, 0.1); /* some were rewarded */
}
END_TEST

/* A student that is its teacher has nothing to learn from it. */
START_TEST(teachers_see_the_same) {
    const char *dir = process_dir(&arena, "taught");
    put_records(dir, taught.data, NULL, NULL);
    const MetricsLine *lines = run_ranks(dir, &taught, 1, placed(dir, TEACHER "distill_alpha=1.0"));
    ck_assert_double_lt(process_number(&lines[0], "learning/loss"), 1e-6);
}
END_TEST

/* ---- what is refused */

static const struct {
    const Learning *what;
    const char *from, *to, *more, *says;
} refused[] = {
    {&pairs, "\"content\": \"red\"", "\"content\": [{\"type\": \"image\"}]", "",
     "pairs.jsonl:1: its responses have images or sounds of their own; those of pairs belong to "
     "the prompt, which both have"},
    {&pairs, "\"content\": \"green, I think\"", "\"content\": [{\"type\": \"image\"}]", "",
     "pairs.jsonl:1: its responses have images or sounds of their own"},
    {&pairs, "\"content\": \"Are", "\"content\": \"<image>Are", "",
     "pairs.jsonl:3: 2 images in the image column, but the conversation has only 1 without a file"},
    {&pairs, "\"content\": \"Which", "\"content\": \"<image><image>Which", "",
     "pairs.jsonl:1: an image of the conversation names no file (\"path\"), and the image column "
     "has no more"},
    {&pairs, NULL, NULL, "dpo.max_prompt_length=20",
     "pairs.jsonl:3: its images and sounds do not fit into dpo.max_prompt_length (20), with 8 "
     "tokens"},
    {&groups,
     "\"green, I think\"}], \"reward\": 0.25, \"image\": [\"PICTURES/train_red_circle_0.jpg\"]",
     "\"green, I think\"}], \"reward\": 0.25, \"image\": [\"PICTURES/train_red_circle_1.png\"]", "",
     "groups.jsonl:2: the prompt differs from that of line 1"},
    {&replies, NULL, NULL, "max_prefill_predict_length=20",
     "its images and sounds do not fit into max_prefill_predict_length (20), with 4 tokens"},
};

START_TEST(misfits_are_told) {
    const char *dir = process_dir(&arena, "refused");
    put_records(dir, refused[_i].what->data, refused[_i].from, refused[_i].to);
    ck_assert_int_ne(process_run(&arena, dir, words_of(dir, refused[_i].what, refused[_i].more)),
                     0);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_msg(strstr(log, refused[_i].says) != NULL, "%s", log);
}
END_TEST

Suite *losses_see_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("losses that see");
    TCase *tcase = tcase_create("losses");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, pairs_are_those_of_trl);
    tcase_add_test(tcase, groups_are_those_of_trl);
    tcase_add_loop_test(tcase, losses_are_the_same, 0, MX_COUNT(same));
    tcase_add_loop_test(tcase, images_count, 0, 3);
    tcase_add_loop_test(tcase, replies_are_about_images, 0, 2);
    tcase_add_test(tcase, teachers_see_the_same);
    tcase_add_loop_test(tcase, misfits_are_told, 0, MX_COUNT(refused));
    suite_add_tcase(suite, tcase);
    return suite;
}
