/* test_turns.c — completions of several turns: what a program tells becomes the tokens that the
 * chat template makes of the whole conversation; runs in which it tells something, from outside. */
#include "train/turns.h"

#include "common/goldens.h"
#include "process.h"
#include "train_test.h"

#include <sys/stat.h>

static MxArena arena = {.name = "turns"};
static MxError err;

/* ---- tokens */

static const struct {
    const char *template, *folder;
    bool ends; /* a turn of the assistant's ends with the tokenizer's eos */
} templates[] = {{"chatml", "qwen", true},         {"qwen_tools", "qwen", true},
                 {"llama3_tools", "llama3", true}, {"gemma_turns", "gemma", false},
                 {"mistral_inst", "llama2", true}, {"zephyr_lines", "llama2", true}};

static MxJson *parse(const char *text) {
    MxJson *json = mx_json_parse_value(&arena, text, strlen(text), MX_NOWHERE, &err);
    ck_assert_msg(json != NULL, "%s", text);
    return json;
}

static MxTokens tokens_of(const MxWords *words, const char *request) {
    MxConversation out;
    ck_assert_msg(mx_chat_encode(&arena, words->chat, words->tokenizer, parse(request), MX_NOWHERE,
                                 &out, &err),
                  "%s", err.text.data);
    return out.tokens;
}

#define ASKED "{\"role\": \"user\", \"content\": \"Two and two?\"}"
#define SAID  "{\"role\": \"assistant\", \"content\": \"Four.\"}"
#define TOLD  "{\"role\": \"user\", \"content\": \"Are you sure?\"}"

/* What is told are the last tokens of the whole conversation: those behind the assistant's eos, or
 * with that, if the policy has not written it. */
START_TEST(what_is_told_continues_the_conversation) {
    const char *folder = mx_path_dir(
        &arena, goldens_need(&arena, mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json",
                                                     templates[_i].folder)));
    const char *name =
        mx_arena_printf(&arena, "hf/chat/templates/%s.jinja", templates[_i].template);
    MxTokenizer *tokenizer;
    MxChat *chat;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", folder, &tokenizer, &err));
    ck_assert(mx_chat_open(&arena, (MxChatFrom){.named = goldens_need(&arena, name), .dir = folder},
                           &chat, &err));
    const MxWords words = {.tokenizer = tokenizer, .chat = chat};
    const MxTokens all = tokens_of(&words, "{\"messages\": [" ASKED ", " SAID ", " TOLD
                                           "], \"add_generation_prompt\": true}");
    for (int ended = 0; ended < 2; ended++) {
        MxTokens told;
        ck_assert_msg(turns_encode(&arena, &words, parse("[" TOLD "]"), ended, &told, &err), "%s",
                      err.text.data);
        const int64_t at = all.n - told.n;
        ck_assert(at > 0 && !memcmp(all.ids + at, told.ids, (size_t)told.n * sizeof *told.ids));
        bool is_eos = all.ids[at - ended] == mx_tokenizer_eos(tokenizer);
        ck_assert_msg(is_eos == templates[_i].ends, "%d", ended);
    }
    MxTokens plain;
    ck_assert(turns_encode(&arena, &words, parse("\"no.\""), true, &plain, &err));
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, plain.ids, plain.n, false, NULL),
                     "no.");
    mx_arena_release(&arena);
}
END_TEST

START_TEST(messages_want_a_template) {
    MxTokens told;
    MxWords words = {0};
    ck_assert(!turns_encode(&arena, &words, parse("[" TOLD "]"), true, &told, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "messages want a chat template"));
    mx_error_release(&err);
    mx_arena_release(&arena);
}
END_TEST

/* ---- runs */

#define WRITES                                                                                     \
    "use_grpo=true packing=false dataset_type=hf hf_path=json per_device_batch_size=2 "            \
    "hf_train_files=posttrain/sft_train.jsonl eval_interval=-1 max_target_length=64 "              \
    "max_prefill_predict_length=24 rl.num_generations=4 rl.reward=command learning_rate=0.01 "

/* Two observations in each completion, and then a reward if the program sees what came before. */
static const char tells[] =
    "#!/bin/sh\n"
    "while read -r line; do case $line in\n"
    "*'\"turns_left\":2,\"history\":[],'*) echo '{\"observation\": \"(ok)\"}';;\n"
    "*'\"turns_left\":1,\"history\":[{\"completion\":'*'\"observation\":\"(ok)\"}],'*)\n"
    "  echo '{\"observation\": \"(more)\", \"reward\": null}';;\n"
    "*'\"observation\":\"(ok)\"},{'*'\"observation\":\"(more)\"}],'*)\n"
    "  case $line in *'\"completion\":\"'[a-z]*) echo 1;; *) echo 0;; esac;;\n"
    "*) echo nonsense;; esac; done\n";

static int run(const char *dir, const char *program, const char *more) {
    const char *path = mx_path_join(&arena, dir, "program.sh");
    ck_assert(mx_file_write(path, program, strlen(program), &err) && !chmod(path, 0755));
    const char *words = mx_arena_printf(&arena, WRITES "rl.reward_command=%s %s", path, more);
    return process_run(&arena, dir, process_tiny(&arena, dir, words));
}

static const char *log_of(const char *dir) {
    return process_file(&arena, dir, "log", NULL);
}

/* Tokens that were told count neither in the loss nor in its ratios: with the log-probabilities
 * with which the others were drawn the run is the same as with those that it measures. */
START_TEST(what_is_told_is_not_learnt) {
    const char *turns = "steps=3 rl.max_turns=3 rl.max_turn_length=6 enable_checkpointing=false "
                        "rl.recorded_logprobs=";
    MetricsLine *lines[2];
    for (int i = 0; i < 2; i++) {
        const char *dir = process_dir(&arena, i ? "recorded" : "measured");
        int n, code = run(dir, tells, mx_arena_printf(&arena, "%s%s", turns, i ? "true" : "false"));
        ck_assert_msg(code == 0, "%s", log_of(dir));
        lines[i] = process_metrics(&arena, dir, "learning/avg_reward", &n);
        ck_assert_int_eq(n, 3);
    }
    for (int k = 0; k < 3; k++) {
        ck_assert_double_eq_tol(process_number(&lines[0][k], "learning/loss"),
                                process_number(&lines[1][k], "learning/loss"), 1e-5);
        ck_assert_double_eq(process_number(&lines[1][k], "learning/clip_fraction"), 0);
        ck_assert_double_eq(process_number(&lines[1][k], "learning/completion_turns"), 3);
        ck_assert_double_le(process_number(&lines[1][k], "learning/completion_length"), 18);
    }
    mx_arena_release(&arena);
}
END_TEST

/* A run that stops between two steps on one batch goes on to the same bits. */
START_TEST(turns_survive_a_resume) {
    const char *more = "rl.max_turns=3 rl.max_turn_length=6 rl.num_iterations=3 "
                       "checkpoint_period=1 learning_rate_schedule_steps=8 steps=";
    const char *whole = process_dir(&arena, "whole"), *parted = process_dir(&arena, "parted");
    int n[2], code = run(whole, tells, mx_arena_printf(&arena, "%s5", more));
    ck_assert_msg(code == 0, "%s", log_of(whole));
    code = run(parted, tells, mx_arena_printf(&arena, "%s2", more));
    ck_assert_msg(code == 0, "%s", log_of(parted));
    code = run(parted, tells, mx_arena_printf(&arena, "%s5", more));
    ck_assert_msg(code == 0, "%s", log_of(parted));
    MetricsLine *want = process_metrics(&arena, whole, "learning/loss", &n[0]),
                *got = process_metrics(&arena, parted, "learning/loss", &n[1]);
    ck_assert(n[0] == 5 && n[1] == 5);
    for (int k = 0; k < 5; k++)
        ck_assert_double_eq(process_number(&got[k], "learning/loss"),
                            process_number(&want[k], "learning/loss"));
    mx_arena_release(&arena);
}
END_TEST

static const struct {
    const char *answer, *more, *told;
    int code;
} failing[] = {
    {"{\"observation\": \"more\"}", "rl.max_turns=2", "it was told something after its last turn",
     2},
    {"{\"observation\": \"more\"}", "", "it was told something after its last turn", 2},
    {"{\"observation\": \"more\", \"reward\": 1}", "rl.max_turns=2", "completed step: 0", 0},
    {"{\"observation\": \"a text that is longer than all the room that there is in the row\"}",
     "rl.max_turns=2", "there was no room for what it was told", 2},
    {"{\"observation\": 5}", "rl.max_turns=2", "{\"observation\": text or messages}", 65},
    {"{\"observation\": [{\"role\": \"tool\", \"content\": \"4\"}]}", "rl.max_turns=2",
     "rl.reward_command: messages want a chat template", 2},
    {"{\"observation\": [{\"role\": \"tool\", \"content\": \"4\"}]}",
     "rl.max_turns=2 chat_template_path=chatml max_target_length=160",
     "it was told something after", 2},
};

START_TEST(what_cannot_be_told) {
    const char *dir = process_dir(&arena, "told");
    const char *program = mx_arena_printf(
        &arena, "#!/bin/sh\nwhile read -r line; do echo '%s'; done\n", failing[_i].answer);
    int code =
        run(dir, program,
            mx_arena_printf(&arena, "steps=1 rl.max_turn_length=6 enable_checkpointing=false %s",
                            failing[_i].more));
    ck_assert_msg(code == failing[_i].code && strstr(log_of(dir), failing[_i].told), "exit %d: %s",
                  code, log_of(dir));
    mx_arena_release(&arena);
}
END_TEST

/* A key that does nothing without responses that are written ended such runs. */
START_TEST(turns_of_nobody) {
    const char *dir = process_dir(&arena, "nobody");
    int code =
        process_run(&arena, dir,
                    process_tiny(&arena, dir, "steps=1 rl.max_turns=3 enable_checkpointing=false"));
    ck_assert_msg(code == 0 && strstr(log_of(dir), "rl.max_turns: 3 has no effect"), "exit %d: %s",
                  code, log_of(dir));
    mx_arena_release(&arena);
}
END_TEST

Suite *turns_suite(void) {
    enum { TIMEOUT_S = 120 };
    Suite *suite = suite_create("turns");
    TCase *tcase = tcase_create("turns");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_loop_test(tcase, what_is_told_continues_the_conversation, 0, MX_COUNT(templates));
    tcase_add_test(tcase, messages_want_a_template);
    tcase_add_test(tcase, what_is_told_is_not_learnt);
    tcase_add_test(tcase, turns_survive_a_resume);
    tcase_add_test(tcase, turns_of_nobody);
    tcase_add_loop_test(tcase, what_cannot_be_told, 0, MX_COUNT(failing));
    suite_add_tcase(suite, tcase);
    return suite;
}
