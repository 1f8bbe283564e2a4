/* test_templates.c — calls as chat templates of models write them are read as the same calls again.
 * MX_TEMPLATES names a folder of templates (*.jinja), which are not ours to keep; without it there
 * is nothing to test. A line for each template says what was found. */
#include "serve_test.h"

#include "common/goldens.h"
#include "serve/internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"description\": \"d\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"s\": {\"type\": \"string\", "
    "\"description\": \"s\"}, \"n\": {\"type\": \"integer\", \"description\": \"n\"}, \"b\": "
    "{\"type\": \"boolean\", \"description\": \"b\"}, \"l\": {\"type\": \"array\", \"items\": "
    "{\"type\": \"string\"}, \"description\": \"l\"}}, \"required\": [\"s\"]}}}]";

static const char *const arguments[] = {
    "{}",
    "{\"s\": \"Rome\"}",
    "{\"s\": \"12\", \"n\": 12}",
    "{\"s\": \"S\xc3\xa3o \xe6\x97\xa5, (a) = [b] {c}: d\", \"n\": -3}",
    "{\"s\": \"it\", \"l\": [\"a\", \"b c\"], \"b\": true}",
};

/* A conversation whose last message calls: `n` functions with arguments from `first` on. */
static MxJson *conversation(int first, int n) {
    MxError err = {0};
    MxText out;
    mx_text_init(&out, &arena);
    mx_text_add(&out, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                      "\"assistant\", \"content\": \"\", \"tool_calls\": [");
    for (int i = 0; i < n; i++)
        mx_text_add(&out,
                    "%s{\"id\": \"abcdefgh%d\", \"type\": \"function\", \"function\": {\"name\": "
                    "\"look\", \"arguments\": %s}}",
                    i ? ", " : "", i, arguments[(first + i) % MX_COUNT(arguments)]);
    mx_text_add(&out, "]}], \"tools\": %s}", tools_text);
    MxJson *json = mx_json_parse(&arena, out.data, out.len, "conversation", &err);
    ck_assert_msg(json != NULL, "%s", err.text.data);
    return json;
}

/* Counts of a template's conversations. */
typedef struct Tally {
    int same, differ, refused, held;
} Tally;

/* Objects that have the same members, in any order. */
static bool is_same(const char *a, size_t n, const char *wanted) {
    MxError err = {0};
    const MxJson *left = mx_json_parse_value(&arena, a, n, MX_NOWHERE, &err);
    const MxJson *right = mx_json_parse_value(&arena, wanted, strlen(wanted), MX_NOWHERE, &err);
    const char *name;
    MxJson *value;
    bool same = left && right && mx_json_length(left) == mx_json_length(right);
    for (void *at = NULL; same && mx_json_next(right, &at, &name, &value);) {
        const MxJson *own = mx_json_get(left, name);
        same = own && !strcmp(mx_json_dump(&arena, own, false), mx_json_dump(&arena, value, false));
    }
    mx_error_release(&err);
    return same;
}

/* How many calls a text has: some templates write the first one alone. */
static int count(const char *text) {
    int n = 0;
    while ((text = strstr(text, "look"))) n++, text++;
    return n;
}

static const MxVocabulary *vocabulary;

/* Whether an answer that is held to calls may be this text, as far as a call goes. */
static bool is_held(const Habits *habits, const MxJson *tools, const char *text) {
    MxError err = {0};
    MxGrammar *grammar;
    MxGuided guided;
    const CallRules rules = {.format = habits->format,
                             .writes = habits->writes,
                             .vocabulary = vocabulary,
                             .tools = tools,
                             .choice = CALLS_NEEDED};
    ck_assert(calls_grammar(&arena, &rules, &grammar, &err));
    mx_guided_init(&guided, &arena, mx_guide_new(&arena, grammar, vocabulary));
    size_t n = strlen(text);
    while (n && !mx_guided_add(&guided, text, n)) n--;
    return strstr(text, "look") && n > (size_t)(strstr(text, "look") - text);
}

static void check(const MxChat *chat, const Habits *habits, int first, int n, Tally *tally) {
    MxError err = {0};
    MxRendered with, before;
    MxJson *json = conversation(first, n), *prompt = conversation(first, n);
    const MxJson *messages = mx_json_get(json, "messages"), *tools = mx_json_get(json, "tools");
    MxJson *list = mx_json_put_array(prompt, "messages");
    mx_json_push(list, mx_json_at(messages, 0));
    mx_json_set_bool(prompt, "add_generation_prompt", true);
    mx_json_set(json, "messages", messages_as_taken(&arena, habits, messages));
    bool ok = mx_chat_render(&arena, chat, json, MX_NOWHERE, &with, &err) &&
              mx_chat_render(&arena, chat, prompt, MX_NOWHERE, &before, &err);
    mx_error_release(&err);
    tally->refused += !ok;
    if (!ok) return;
    size_t from = 0;
    while (from < with.n && from < before.n && with.text[from] == before.text[from]) from++;
    while (from && !strchr(">] \n", with.text[from - 1])) from--; /* marks are whole */
    if (count(with.text + from) < n) n = count(with.text + from);
    Calls c;
    calls_init(&c, &arena,
               (CallReading){.format = habits->format,
                             .tools = tools,
                             .most = INT64_MAX,
                             .reasoning = habits->reasoning,
                             .state = MX_REASONING_MAY});
    if (habits->reasoning)
        c.reasoned.state = mx_reasoning_state(habits->reasoning, with.text, from);
    calls_add(&c, with.text + from, with.n - from, true);
    bool same = n && c.n == n;
    for (int i = 0; same && i < n; i++)
        same = !strcmp(c.call[i].name, "look") &&
               is_same(c.call[i].arguments, c.call[i].n_arguments,
                       arguments[(first + i) % MX_COUNT(arguments)]);
    tally->same += same;
    tally->differ += !same;
    if (!same)
        printf("  %d calls of %s, read %lld: %s\n", n, with.text + from, (long long)c.n,
               c.n ? c.call[0].arguments : "");
    const char *at = with.text + from;
    while (*at && !is_held(habits, tools, at)) at++;
    tally->held += *at != 0;
}

static void check_file(const char *path, const char *name, int *n_bad) {
    MxError err = {0};
    MxChat *chat;
    Tally tally = {0};
    const char *dir = goldens_need(&arena, "hf/tokenizers/llama3/tokenizer.json");
    if (!mx_chat_open(&arena, (MxChatFrom){.named = path, .dir = dir}, &chat, &err)) {
        printf("%s: %s\n", name, err.text.data);
        mx_error_release(&err);
        return;
    }
    const Habits habits = messages_habits(&arena, chat);
    printf("%s: tools %s, calls %s, reasoning %s\n", name, habits.takes_tools ? "yes" : "no",
           habits.format ? calls_format_name(habits.format) : "none",
           habits.reasoning ? mx_reasoning_name(habits.reasoning) : "none");
    if (!habits.format) return;
    for (int first = 0; first < MX_COUNT(arguments); first++)
        for (int n = 1; n <= 2; n++) check(chat, &habits, first, n, &tally);
    printf("  %d same, %d differ, %d refused, %d held\n", tally.same, tally.differ, tally.refused,
           tally.held);
    /* vLLM's do not quote texts */
    if (strcmp(calls_format_name(habits.format), "pythonic")) *n_bad += tally.differ;
}

START_TEST(calls_of_templates_are_read) {
    static const int32_t eos = 257;
    const char *dir = getenv("MX_TEMPLATES");
    struct dirent **files;
    MxTokenizer *tokenizer;
    MxError err = {0};
    int n_bad = 0, n = dir ? scandir(dir, &files, NULL, alphasort) : 0;
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    vocabulary = mx_vocabulary_new(&arena, tokenizer, &eos, 1, NULL, 0);
    for (int i = 0; i < n; i++)
        if (mx_text_has_suffix(files[i]->d_name, ".jinja"))
            check_file(mx_path_join(&arena, dir, files[i]->d_name), files[i]->d_name, &n_bad);
    ck_assert_int_eq(n_bad, 0);
}
END_TEST

Suite *templates_suite(void) {
    Suite *suite = suite_create("templates");
    TCase *tcase = tcase_create("templates");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, calls_of_templates_are_read);
    suite_add_tcase(suite, tcase);
    return suite;
}
