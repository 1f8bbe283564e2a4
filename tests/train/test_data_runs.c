/* test_data_runs.c — the data of runs, from outside: what they evaluate on, what they do when files
 * change or end, what is found before anything is built, --check and --eval. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char tiny[] =
    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=1 base_num_query_heads=2 "
    "base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=4 "
    "checkpoint_period=5 learning_rate_schedule_steps=40 log_config=false";

static MxArena arena = {.name = "test"};
static MxError err;
static const char *dir;

static void set_up(void) {
    dir = process_dir(&arena, "data_runs");
}

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

static const char *in(const char *name) {
    return mx_path_join(&arena, dir, name);
}

/* A file of n lines that differ from each other; `word` is in each of them. */
static const char *put_text(const char *name, const char *word, int n) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < n; i++) mx_text_add(&text, "line %d of %s, and so on\n", i, word);
    ck_assert(mx_file_write(in(name), text.data, text.len, &err));
    return in(name);
}

static const char *put_records(const char *name, int n) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < n; i++)
        mx_text_add(&text, "{\"prompt\": \"say %d\", \"completion\": \"%d\"}\n", i, i);
    ck_assert(mx_file_write(in(name), text.data, text.len, &err));
    return in(name);
}

/* Runs with the words of a format, its output in a log of its own; gives that. */
static const char *run_ends(int want, const char *fmt, ...) MX_PRINTF(2, 3);
static const char *run_ends(int want, const char *fmt, ...) {
    MxText words;
    va_list ap;
    mx_text_init(&words, &arena);
    mx_text_add(&words, "%s base_output_directory=%s/out ", tiny, dir);
    va_start(ap, fmt);
    mx_text_vadd(&words, fmt, ap);
    va_end(ap);
    unlink(in("log"));
    int code = process_run(&arena, dir, words.data);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_msg(code == want, "exit %d instead of %d: %s", code, want, log);
    return log;
}

static void has(const char *log, const char *text) {
    ck_assert_msg(strstr(log, text) != NULL, "\"%s\" is not in: %s", text, log);
}

static void lacks(const char *log, const char *text) {
    ck_assert_msg(!strstr(log, text), "\"%s\" is in: %s", text, log);
}

/* ---- what a run evaluates on */

/* Evaluation was once on the bundled text, whatever the training data. */
START_TEST(own_data_is_evaluated_on_itself) {
    put_text("a.txt", "one", 400);
    const char *log =
        run_ends(0, "run_name=x steps=3 eval_interval=2 text_train_files=%s", in("a.txt"));
    lacks(log, "shakespeare");
    has(log, "rows train, ");
    has(log, "held out of the ");
    has(log, " of the training data (eval_split=0.05)\n");
    log = run_ends(0, "run_name=y steps=2 eval_interval=2 text_train_files=%s eval_split=0.5",
                   in("a.txt"));
    has(log, "(eval_split=0.5)");
    log = run_ends(0, "run_name=z steps=1 eval_interval=-1 text_train_files=%s", in("a.txt"));
    lacks(log, "held out");
    log = run_ends(0, "run_name=own steps=1 text_train_files=%s text_eval_files=%s", in("a.txt"),
                   put_text("b.txt", "two", 100));
    lacks(log, "held out");
    has(log, "b.txt, ");
}
END_TEST

/* So are those of a recipe, which brings bundled files for evaluation. */
START_TEST(own_records_leave_the_recipe_s_behind) {
    put_records("a.jsonl", 400);
    const char *log = run_ends(
        0, "configs/recipes/sft.yml model_name=default steps=2 run_name=x hf_train_files=%s",
        in("a.jsonl"));
    lacks(log, "posttrain");
    has(log, "held out of the ");
}
END_TEST

START_TEST(the_default_keeps_its_pair_of_files) {
    const char *log = run_ends(0, "run_name=x steps=1");
    has(log, "/share/mxtrain/corpus/shakespeare_val.txt");
    lacks(log, "held out");
}
END_TEST

START_TEST(the_last_step_is_evaluated) {
    int n;
    run_ends(0, "run_name=x steps=8 eval_interval=5 metrics_file=%s/m.jsonl", dir);
    MetricsLine *lines = process_metrics(&arena, dir, "eval/avg_loss", &n);
    ck_assert_int_eq(n, 3);
    ck_assert(lines[0].step == 0 && lines[1].step == 5 && lines[2].step == 7);
    unlink(in("m.jsonl")); /* data that ends before the steps do */
    run_ends(0,
             "run_name=y steps=50 eval_interval=4 eval_steps=2 metrics_file=%s/m.jsonl "
             "text_train_files=%s",
             dir, put_text("a.txt", "one", 40));
    lines = process_metrics(&arena, dir, "eval/avg_loss", &n);
    int n_steps;
    MetricsLine *steps = process_metrics(&arena, dir, "learning/loss", &n_steps);
    ck_assert_int_gt(n, 1);
    ck_assert_double_eq(lines[n - 1].step, steps[n_steps - 1].step);
}
END_TEST

/* ---- evaluation alone */

static double last_loss(void) {
    int n;
    double loss = NAN;
    MetricsLine *lines = process_metrics(&arena, dir, "eval/avg_loss", &n);
    mx_json_number(mx_json_get(lines[n - 1].json, "eval/avg_loss"), &loss);
    return loss;
}

START_TEST(evaluation_alone_is_that_of_the_run) {
    put_text("a.txt", "one", 400);
    const char *keys = mx_arena_printf(
        &arena, "run_name=x eval_interval=4 metrics_file=%s/m.jsonl text_train_files=%s", dir,
        in("a.txt"));
    run_ends(0, "%s steps=5", keys);
    double loss = last_loss();
    const char *log = run_ends(0, "--eval %s steps=5", keys);
    has(log, "Completed eval after train step 4, ");
    has(log, "gradients 0.000, optimizer 0.000, "); /* nothing is taken that only training needs */
    lacks(log, "completed step");
    ck_assert_double_eq(last_loss(), loss);
    int n;
    process_metrics(&arena, dir, "step", &n);
    ck_assert_int_eq(n, 5 + 2 + 1); /* none is lost */
    log = run_ends(0, "--eval run_name=x text_eval_files=%s", put_text("b.txt", "two", 100));
    has(log, "b.txt");
    log = run_ends(0, "--eval run_name=new load_parameters_path=%s/out/x", dir);
    has(log, "Completed eval after");
    ck_assert(!mx_dir_exists(in("out/new")));
}
END_TEST

/* It replaced the file, and what the run wrote from then on was lost. */
START_TEST(evaluation_beside_a_run_takes_no_metrics_away) {
    const char *keys = mx_arena_printf(&arena,
                                       "%s base_output_directory=%s/out run_name=x "
                                       "metrics_file=%s/m.jsonl log_period=10",
                                       tiny, dir, dir);
    pid_t pid = process_start(&arena, dir, mx_arena_printf(&arena, "%s steps=100000", keys));
    process_wait_for(&arena, dir, "completed step: 20,");
    mx_dir_make(in("eval"), &err);
    int code = process_run(&arena, in("eval"), mx_arena_printf(&arena, "--eval %s", keys));
    ck_assert_msg(!code, "%s", process_file(&arena, in("eval"), "log", NULL));
    int n, n_evals, before = 0;
    process_metrics(&arena, dir, "learning/loss", &before);
    for (int i = 0, now = 0; i < 60000 && now < before + 50; i++) {
        process_metrics(&arena, dir, "learning/loss", &now);
        usleep(10000);
    }
    ck_assert(!kill(pid, SIGTERM));
    ck_assert_int_eq(process_wait(pid), MX_EXIT_SIGTERM);
    MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", &n);
    ck_assert_int_gt(n, before);
    for (int i = 0; i < n; i++) ck_assert(lines[i].step == i);
    process_metrics(&arena, dir, "eval/avg_loss", &n_evals);
    ck_assert_int_gt(n_evals, 1); /* the run's own and ours */
}
END_TEST

/* What was trained on is no evaluation. */
START_TEST(evaluation_alone_refuses) {
    put_text("a.txt", "one", 400);
    run_ends(0, "run_name=x steps=1 eval_interval=-1 text_train_files=%s", in("a.txt"));
    const char *log =
        run_ends(2, "--eval run_name=x eval_interval=-1 text_train_files=%s", in("a.txt"));
    has(log, "text_eval_files: no data for evaluation is named, and none was held out");
    log = run_ends(2, "--eval run_name=x eval_interval=2 text_train_files=%s", in("a.txt"));
    has(log, "was trained with 0 held out");
    log = run_ends(65, "--eval run_name=nobody text_train_files=%s", in("a.txt"));
    has(log, "nothing to evaluate: there is no checkpoint in ");
    ck_assert(!mx_dir_exists(in("out/nobody")));
}
END_TEST

/* ---- data that changes, or ends */

START_TEST(changed_data_is_told_by_name) {
    const char *keys =
        mx_arena_printf(&arena, "run_name=x eval_interval=-1 text_train_files=%s/*.txt", dir);
    put_text("a.txt", "one", 300);
    put_text("b.txt", "two", 300);
    run_ends(0, "%s steps=3", keys);
    run_ends(0, "%s steps=4", keys);
    put_text("b.txt", "TWO", 300); /* as long as before */
    put_text("c.txt", "three", 10);
    const char *log = run_ends(65, "%s steps=5", keys);
    has(log, "text_train_files: training data has changed since \"");
    has(log, "b.txt\" has changed, \"");
    has(log, "c.txt\" is new\n");
    has(log, "hint: data_changed=accept");
    lacks(log, "a.txt\" has");
    lacks(log, "completed step");
    log = run_ends(0, "%s steps=5 data_changed=accept", keys);
    has(log, "warning: training data has changed since \"");
    run_ends(0, "%s steps=6", keys); /* now it is that of the newest checkpoint */
    ck_assert(!unlink(in("c.txt")));
    log = run_ends(65, "%s steps=7", keys);
    has(log, "c.txt\" is gone\n");
}
END_TEST

/* The same content of another name is the same data; other data of another name is told as such. */
START_TEST(names_do_not_matter) {
    put_text("a.txt", "one", 300);
    run_ends(0, "run_name=x steps=2 eval_interval=-1 text_train_files=%s", in("a.txt"));
    ck_assert(!rename(in("a.txt"), in("b.txt")));
    run_ends(0, "run_name=x steps=3 eval_interval=-1 text_train_files=%s", in("b.txt"));
    const char *log = run_ends(0, "run_name=x steps=4 eval_interval=-1 text_train_files=%s",
                               put_text("c.txt", "three", 300));
    has(log, "warning: text_train_files: ");
    log = run_ends(0, "run_name=x steps=5 eval_interval=-1 dataset_type=synthetic");
    has(log, "warning: dataset_type: \"text\" -> \"synthetic\" since");
}
END_TEST

START_TEST(too_few_steps_of_data_are_told_first) {
    put_text("a.txt", "one", 40);
    const char *keys = mx_arena_printf(
        &arena, "steps=30 learning_rate_schedule_steps=-1 eval_interval=-1 text_train_files=%s",
        in("a.txt"));
    const char *log = run_ends(0, "run_name=x %s", keys);
    const char *warning =
        strstr(log, "warning: steps=30, but the data ends after 8 batches of 4 rows");
    ck_assert_msg(warning && warning < strstr(log, "completed step: 0,"), "%s", log);
    has(warning, "the schedule of the learning rate is 30 steps long. num_epoch=4 gives data for");
    log = run_ends(0, "run_name=y num_epoch=4 %s", keys);
    lacks(log, "warning: steps=");
    has(log, "completed step: 29,");
    log = run_ends(0, "run_name=z num_epoch=3 %s", keys);
    has(log, "warning: steps=");
}
END_TEST

/* ---- before anything is built */

START_TEST(what_is_missing_is_found_first) {
    static const char *const modes[] = {"", "--plan", "--check"};
    for (int i = 0; i < MX_COUNT(modes); i++) {
        const char *log = run_ends(65,
                                   "%s run_name=x load_parameters_path=/no/weights.h5:linen "
                                   "metrics_file=/no/m.jsonl text_train_files=/no/*.txt",
                                   modes[i]);
        has(log, "load_parameters_path: could not open \"/no/weights.h5\"");
        has(log, "no files at \"/no/*.txt\"");
        has(log, "metrics_file: could not write \"/no/m.jsonl\"");
        lacks(log, "number parameters");
        ck_assert(!mx_dir_exists(in("out")));
    }
    const char *log = run_ends(73, "--plan run_name=x metrics_file=%s", dir);
    has(log, "Is a directory");
    ck_assert(!mkfifo(in("pipe"), 0600));
    log = run_ends(65, "run_name=x load_parameters_path=%s", in("pipe"));
    has(log, "is neither a file nor a folder");
    log = run_ends(65, "run_name=x dataset_type=hdf5 eval_interval=-1 hdf5_train_files=%s",
                   in("pipe"));
    has(log, "is not a regular file");
    run_ends(0, "run_name=x steps=1 eval_interval=-1");
    run_ends(
        0,
        "run_name=x steps=2 eval_interval=-1 load_parameters_path=/no/weights.h5"); /* not read */
}
END_TEST

START_TEST(check_shows_a_batch) {
    put_records("a.jsonl", 100);
    const char *log =
        run_ends(0,
                 "--check use_sft=true sft_train_on_completion_only=true dataset_type=hf "
                 "enable_data_shuffling=false eval_interval=-1 hf_train_files=%s",
                 in("a.jsonl"));
    has(log, "batch 0, row 0 of 4: ");
    has(log, "  tokens 0-5, segment 1, do not count: \"say 0\"\n    ids 256 115 97 121 32 48\n");
    has(log, "  tokens 6-7, segment 1, count: \"0\"\n    ids 48 257\n");
    has(log, "segment 2, count: \"1\"\n    ids 49 257\n");
    ck_assert(!mx_dir_exists(in("out")));
    log = run_ends(0,
                   "--check use_sft=true dataset_type=hf packing=false eval_interval=-1 "
                   "enable_data_shuffling=false hf_train_files=%s",
                   in("a.jsonl"));
    has(log, "  tokens 1-7, segment 1, count: \"say 00\"\n");
    has(log, "  tokens 8-31, padding\n");
}
END_TEST

START_TEST(show_data_shows_rows) {
    static const char hf[] = "use_sft=true dataset_type=hf packing=false eval_interval=-1 "
                             "enable_data_shuffling=false per_device_batch_size=2";
    put_records("a.jsonl", 6);
    const char *log = run_ends(0, "--show-data 3 %s hf_train_files=%s", hf, in("a.jsonl"));
    has(log, "batch 0, row 1 of 2: 7 of 32 targets count\n");
    has(log, "batch 1, row 0 of 2: ");
    has(log, "  tokens 1-7, segment 1, count: \"say 22\"\n    ids 115 97 121 32 50 50 257\n");
    lacks(log, "batch 1, row 1 of 2");
    lacks(log, "\033["); /* no terminal */
    log = run_ends(0, "--show-data 9 %s hf_train_files=%s", hf, in("a.jsonl"));
    has(log, "batch 2, row 1 of 2: ");
    has(log, "the data ends after 3 batches");
    has(run_ends(2, "--show-data 0 %s", hf), "--show-data");
}
END_TEST

/* ---- files of TensorFlow and Grain */

#define FIXTURES "tests/data/fixtures/"

/* A set of TensorFlow Datasets, with a split to evaluate on, or a share of the training data. */
START_TEST(a_set_is_trained_on) {
    static const char set[] = "dataset_type=tfds dataset_path=" FIXTURES "sets dataset_name=other";
    const char *log = run_ends(0,
                               "run_name=x steps=2 eval_interval=2 %s eval_dataset_name=texts/en "
                               "eval_split=validation eval_per_device_batch_size=1",
                               set);
    has(log, "training data: tfds: " FIXTURES "sets/other/2.0.0/other-train.tfrecord-00000-of-00001"
             ", 40 documents (text), ");
    has(log, "evaluation data: tfds: " FIXTURES "sets/texts/en/1.0.0/texts-validation.tfrecord-");
    lacks(log, "held out");
    has(run_ends(0, "run_name=y steps=2 eval_interval=2 %s", set), "(eval_split=0.05)");
    log = run_ends(2, "--eval run_name=y eval_interval=-1 eval_split=0 %s", set);
    has(log, "no data for evaluation is named, and none was held out of the training data");
    log = run_ends(2, "run_name=z dataset_type=tfds dataset_path=gs://bucket/data");
    has(log, "dataset_path: \"gs://bucket/data\" is elsewhere, wants a path of this machine");
    log = run_ends(0, "run_name=z dataset_type=synthetic dataset_path=gs://bucket/data steps=1");
    has(log, "dataset_path has no effect with dataset_type synthetic");
    has(run_ends(65, "run_name=z %s train_split=test", set),
        "has no split \"test\"; it has \"train\"");
}
END_TEST

/* The last loss of a run, as it was written. */
static const char *loss_of(const char *run) {
    static const char key[] = "\"learning/loss\":";
    const char *text =
        process_file(&arena, dir, mx_arena_printf(&arena, "out/%s/metrics.jsonl", run), NULL);
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, key)); at += sizeof key) last = at;
    ck_assert_msg(last != NULL, "%s", text);
    return mx_arena_strndup(&arena, last, strcspn(last, ",}"));
}

/* What is packed, shuffled and mixed is found again. */
START_TEST(mixtures_resume) {
    static const char mixture[] =
        "dataset_type=grain eval_interval=-1 num_epoch=2 grain_train_files="
        "'" FIXTURES "short.array_record,2;" FIXTURES "long.array_record,1'";
    static const char records[] =
        "dataset_type=hf eval_interval=-1 hf_train_files=" FIXTURES "long.jsonl.zst";
    const char *const data[] = {mixture, records};
    for (int i = 0; i < 2; i++) {
        has(run_ends(0, "run_name=a%d steps=8 %s", i, data[i]), i ? "" : "; mixture: 40 of 40 of");
        run_ends(0, "run_name=b%d steps=5 %s", i, data[i]);
        has(run_ends(0, "run_name=b%d steps=8 %s", i, data[i]),
            "restoring from this run's directory step 4");
        ck_assert_str_eq(loss_of(mx_arena_printf(&arena, "a%d", i)),
                         loss_of(mx_arena_printf(&arena, "b%d", i)));
    }
}
END_TEST

/* Documents that are joined: rows are found again. */
START_TEST(joined_documents_resume) {
    static const char c4[] =
        "dataset_type=c4_mlperf dataset_path=tests/golden/rows/c4/sets dataset_name=c4/en:3.0.4 "
        "eval_dataset_name=c4/en:3.0.5 eval_interval=4 eval_steps=-1 vocab_size=1024 add_bos=false "
        "tokenizer_type=sentencepiece tokenizer_path=tests/golden/hf/tokenizers/t5 "
        "per_device_batch_size=4 learning_rate_schedule_steps=8 eval_per_device_batch_size=8";
    const char *log = run_ends(0, "run_name=a steps=8 %s", c4);
    has(log, "c4-train2.tfrecord-00000-of-00019 …");
    has(log, "(ids), ");
    has(run_ends(2, "run_name=a steps=8 %s eval_dataset_name=c4/en:3.1.0", c4),
        "is no set that c4_mlperf evaluates; wanted one of c4/en:3.0.1");
    run_ends(0, "run_name=b steps=5 %s", c4);
    has(run_ends(0, "run_name=b steps=8 %s", c4), "restoring from this run's directory step 4");
    ck_assert_str_eq(loss_of("a"), loss_of("b"));
}
END_TEST

/* ---- what is printed */

START_TEST(no_byte_of_a_file_commands_the_terminal) {
    ck_assert(mx_file_write(in("a.jsonl"), "\x1b]0;x\x07,\n", 8, &err));
    const char *log =
        run_ends(65, "dataset_type=hf eval_interval=-1 hf_train_files=%s", in("a.jsonl"));
    has(log, "a.jsonl:1: found \"\\x1b]0;x\\x07,\", wanted an object in each line");
    has(log, "is it CSV?");
    for (const char *c = log; *c; c++) ck_assert(*c == '\n' || (unsigned char)*c >= ' ');
}
END_TEST

Suite *data_runs_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("data of runs");
    TCase *tcase = tcase_create("data");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_test(tcase, own_data_is_evaluated_on_itself);
    tcase_add_test(tcase, own_records_leave_the_recipe_s_behind);
    tcase_add_test(tcase, the_default_keeps_its_pair_of_files);
    tcase_add_test(tcase, the_last_step_is_evaluated);
    tcase_add_test(tcase, evaluation_alone_is_that_of_the_run);
    tcase_add_test(tcase, evaluation_beside_a_run_takes_no_metrics_away);
    tcase_add_test(tcase, evaluation_alone_refuses);
    tcase_add_test(tcase, changed_data_is_told_by_name);
    tcase_add_test(tcase, names_do_not_matter);
    tcase_add_test(tcase, too_few_steps_of_data_are_told_first);
    tcase_add_test(tcase, what_is_missing_is_found_first);
    tcase_add_test(tcase, check_shows_a_batch);
    tcase_add_test(tcase, show_data_shows_rows);
    tcase_add_test(tcase, a_set_is_trained_on);
    tcase_add_test(tcase, mixtures_resume);
    tcase_add_test(tcase, joined_documents_resume);
    tcase_add_test(tcase, no_byte_of_a_file_commands_the_terminal);
    suite_add_tcase(suite, tcase);
    return suite;
}
