/* test_serve.c — what requests say, and addresses. What clients see is in run.sh. */
#include "serve_test.h"

#include "serve/internal.h"

#include <stdio.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

static const MxSpeak defaults = {.max_tokens = 50,
                                 .sampling = {.top_p = 1, .repetition_penalty = 1, .seed = 3}};

static bool ask(MxAskKind kind, const char *body, MxAsk *out, MxError *err) {
    return mx_ask_read(&arena, kind, body, strlen(body), &defaults, out, err);
}

START_TEST(what_is_said_counts_and_the_rest_is_as_by_default) {
    MxError err = {0};
    MxAsk a;
    ck_assert_msg(ask(MX_ASK_COMPLETION,
                      "{\"prompt\": [\"x\"], \"temperature\": 0.5, \"top_k\": 4, \"stop\": \"y\", "
                      "\"max_tokens\": 7, \"stream\": true, \"n\": 1, \"logit_bias\": null}",
                      &a, &err),
                  "%s", err.text.data);
    ck_assert_double_eq(a.sampling.temperature, 0.5);
    ck_assert_double_eq(a.sampling.top_p, 1);
    ck_assert_int_eq(a.sampling.top_k, 4);
    ck_assert_int_eq(a.max_tokens, 7);
    ck_assert(a.streams && !a.tells_usage && !a.has_seed && a.sampling.seed == 3);
    ck_assert_int_eq(a.n_stops, 1);
    ck_assert_str_eq(a.stops[0], "y");
    ck_assert_str_eq(mx_json_string(mx_json_get(a.prompts[0], "prompt")), "x");
    ck_assert(ask(MX_ASK_CHAT,
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"seed\": 8, "
                  "\"logprobs\": true, \"tools\": []}",
                  &a, &err));
    ck_assert(a.has_seed && a.sampling.seed == 8 && a.tells_logprobs && a.max_tokens == 50);
    ck_assert_ptr_nonnull(mx_json_get(a.prompts[0], "messages"));
    ck_assert_ptr_nonnull(mx_json_get(a.prompts[0], "tools"));
}
END_TEST

static const struct {
    MxAskKind kind;
    const char *body, *message;
} wrong[] = {
    {MX_ASK_COMPLETION, "", "body:1: not valid JSON"},
    {MX_ASK_COMPLETION, "{}", "wanted a member \"prompt\""},
    {MX_ASK_CHAT, "{\"tools\": []}", "wanted a member \"messages\""},
    {MX_ASK_CHAT, "{\"prompt\": \"a\"}", "unrecognized member \"prompt\""},
    {MX_ASK_COMPLETION, "{\"promt\": \"a\"}", "unrecognized member \"promt\""},
    {MX_ASK_COMPLETION, "{\"prompt\": [\"a\", 5]}", "prompt: found [\"a\", 5], wanted a text, a"},
    {MX_ASK_COMPLETION, "{\"prompt\": {}}", "prompt: found {}, wanted a text, a list of ids, or"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 51}",
     "max_tokens: found 51, wanted an integer from 1 to 50"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"top_p\": 0}",
     "top_p: found 0, wanted a number above"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"top_k\": 1.5}",
     "top_k: found 1.5, wanted an integer"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"temperature\": \"hot\"}",
     "temperature: found \"hot\", wanted a number"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"n\": 0}", "n: found 0, wanted an integer from 1 to"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"best_of\": 1, \"n\": 2}",
     "best_of: wanted no less than \"n\""},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"best_of\": 2, \"stream\": true}",
     "best_of: wanted no \"stream\" with it"},
    {MX_ASK_COMPLETION,
     "{\"prompt\": [\"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\"], \"n\": 128}",
     "prompt: wanted at most 1024 replies to all prompts"},
    {MX_ASK_CHAT, "{\"messages\": [], \"best_of\": 2}", "unrecognized member \"best_of\""},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 0}",
     "max_tokens: wanted above 0 without \"echo\": true"},
    {MX_ASK_CHAT, "{\"messages\": [], \"max_tokens\": 0}", "max_tokens: found 0, wanted an"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": true}",
     "logprobs: found true, wanted an integer from 0 to 20"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"echo\": 1}", "echo: found 1, wanted true or false"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"stop\": [\"\"]}",
     "stop: found [\"\"], wanted a text"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"5\": 101}}",
     "logit_bias: found {\"5\": 101}, wanted an object of ids with numbers from -100 to 100"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "logit_bias: found"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"-1\": 1}}", "logit_bias: found"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"4294967297\": 1}}",
     "logit_bias: found"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": [1]}", "logit_bias: found [1]"},
    {MX_ASK_CHAT, "{\"messages\": [], \"presence_penalty\": 2.1}", "presence_penalty: found 2.1"},
    {MX_ASK_CHAT, "{\"messages\": [], \"top_logprobs\": 3}", "top_logprobs: wanted \"logprobs\""},
    {MX_ASK_CHAT, "{\"messages\": [], \"top_logprobs\": 21}", "top_logprobs: found 21, wanted an"},
    {MX_ASK_CHAT, "{\"messages\": {}}", "messages: found {}, wanted a list of messages"},
    {MX_ASK_CHAT, "{\"messages\": [5]}", "messages[0]: wanted {\"role\""},
    {MX_ASK_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
     "messages[0].content: found null, wanted a text or a list of parts"},
    {MX_ASK_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"audio\"}]}]}",
     "messages[0].content[0]: wanted {\"type\": \"text\""},
    {MX_ASK_CHAT,
     "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
     "\"arguments\": \"{\"}}]}]}",
     "messages[0].tool_calls[0]: wanted {\"function\": {\"name\""},
    {MX_ASK_CHAT, "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{}]}]}",
     "messages[0].tool_calls[0]: wanted {\"function\": {\"name\""},
    {MX_ASK_CHAT, "{\"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"a\"}]}",
     "messages[0].content: found nothing, wanted a text"},
    {MX_ASK_CHAT, "{\"messages\": [], \"tools\": [{\"type\": \"function\"}]}",
     "tools[0]: wanted {\"type\": \"function\", \"function\""},
    {MX_ASK_CHAT, "{\"messages\": [], \"tool_choice\": {\"type\": \"function\"}}",
     "tool_choice: found {\"type\": \"function\"}, wanted \"auto\", \"none\", \"required\" or"},
    {MX_ASK_CHAT, "{\"messages\": [], \"tool_choice\": \"required\"}",
     "tool_choice: wanted \"tools\" with it"},
    {MX_ASK_CHAT,
     "{\"messages\": [], \"tools\": [{\"function\": {\"name\": \"f\"}}], \"tool_choice\": "
     "{\"type\": "
     "\"function\", \"function\": {\"name\": \"g\"}}}",
     "tool_choice: wanted the name of one of the \"tools\""},
    {MX_ASK_CHAT,
     "{\"messages\": [], \"tool_choice\": {\"type\": \"allowed_tools\", \"function\": {\"name\": "
     "\"f\"}}}",
     "tool_choice: found"},
    {MX_ASK_CHAT, "{\"messages\": [], \"modalities\": [\"audio\"]}", "modalities: found"},
    {MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix: found \"b\", wanted"},
    {MX_ASK_CHAT, "{\"messages\": [], \"stream_options\": {\"include_usage\": true}}",
     "stream_options: wanted \"stream\": true"},
    {MX_ASK_CHAT, "{\"messages\": [], \"response_format\": {\"type\": \"json_schema\"}}",
     "response_format: found {\"type\": \"json_schema\"}, wanted {\"type\": \"text\"}, {"},
    {MX_ASK_CHAT, "{\"messages\": [], \"response_format\": 5}", "response_format: found 5"},
};

START_TEST(wrong_requests_are_told) {
    MxError err = {0};
    MxAsk a;
    ck_assert(!ask(wrong[_i].kind, wrong[_i].body, &a, &err));
    ck_assert_msg(strstr(err.text.data, wrong[_i].message), "%s: %s", wrong[_i].body,
                  err.text.data);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
}
END_TEST

START_TEST(members_may_ask_for_what_is_so_anyway) {
    MxError err = {0};
    MxAsk a;
    ck_assert_msg(
        ask(MX_ASK_CHAT,
            "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": "
            "\"f\", \"arguments\": \"{}\"}}]}], \"tools\": [{\"function\": {\"name\": \"f\"}}], "
            "\"tool_choice\": \"auto\", \"parallel_tool_calls\": true, \"modalities\": [\"text\"], "
            "\"functions\": [], \"service_tier\": \"auto\"}",
            &a, &err),
        "%s", err.text.data);
    ck_assert_int_eq((int)mx_json_length(mx_json_get(a.prompts[0], "tools")), 1);
    ck_assert(a.has_tools && !a.calls_one && !a.schema && !a.needs_calls && !a.has_strict_tools);
    ck_assert(ask(MX_ASK_CHAT,
                  "{\"tools\": [{\"function\": {\"name\": \"f\"}}], \"messages\": [], "
                  "\"tool_choice\": \"none\"}",
                  &a, &err));
    ck_assert_ptr_null(mx_json_get(a.prompts[0], "tools"));
    ck_assert(ask(MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"suffix\": \"\"}", &a, &err));
}
END_TEST

START_TEST(logits_may_be_changed) {
    MxError err = {0};
    MxAsk a;
    ck_assert(ask(MX_ASK_COMPLETION,
                  "{\"prompt\": \"a\", \"logit_bias\": {\"5\": -100, \"0\": 1.5}, "
                  "\"presence_penalty\": -2, \"frequency_penalty\": 0.5}",
                  &a, &err));
    ck_assert(a.sampling.n_biases == 2 && a.sampling.biases[0].id == 5);
    ck_assert_double_eq((double)a.sampling.biases[1].value, 1.5);
    ck_assert_double_eq(a.sampling.presence_penalty, -2);
    ck_assert_double_eq(a.sampling.frequency_penalty, 0.5);
}
END_TEST

START_TEST(several_prompts_and_replies) {
    MxError err = {0};
    MxAsk a;
    ck_assert(ask(MX_ASK_COMPLETION, "{\"prompt\": [[1, 2], [3]], \"n\": 3}", &a, &err));
    ck_assert(a.n_prompts == 2 && a.n == 3 && a.best_of == 3);
    ck_assert_uint_eq(mx_json_length(mx_json_get(a.prompts[0], "prompt")), 2);
    ck_assert_uint_eq(mx_json_length(mx_json_get(a.prompts[1], "prompt")), 1);
    ck_assert(ask(MX_ASK_COMPLETION, "{\"prompt\": [1, 2], \"best_of\": 4, \"n\": 2}", &a, &err));
    ck_assert(a.n_prompts == 1 && a.n == 2 && a.best_of == 4);
    ck_assert(
        ask(MX_ASK_COMPLETION, "{\"max_tokens\": 0, \"prompt\": \"a\", \"echo\": true}", &a, &err));
    ck_assert(a.echoes && a.max_tokens == 0);
}
END_TEST

START_TEST(the_member_at_fault_is_named) {
    MxError err = {0};
    MxAsk a;
    ck_assert(!ask(MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"top_p\": 2}", &a, &err));
    ck_assert_str_eq(a.wrong, "top_p");
    ck_assert(!ask(MX_ASK_COMPLETION, "{\"prompt\": \"a\", \"promt\": 2}", &a, &err));
    ck_assert_str_eq(a.wrong, "promt");
    mx_error_release(&err);
}
END_TEST

/* Of a template that takes a text alone and one that takes parts as well. */
START_TEST(parts_become_a_text_where_a_template_takes_no_parts) {
    static const char texts[] = "{% for m in messages %}{{ '<' + m['content'] + '>' }}{% endfor %}";
    static const char parts[] =
        "{% for m in messages %}<{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}>{% endfor %}";
    MxError err = {0};
    MxChat *chat;
    ck_assert(
        mx_chat_open(&arena, (MxChatFrom){.text = texts, .where = {.file = "texts"}}, &chat, &err));
    ck_assert(!messages_habits(&arena, chat).takes_parts);
    ck_assert(
        mx_chat_open(&arena, (MxChatFrom){.text = parts, .where = {.file = "parts"}}, &chat, &err));
    ck_assert(messages_habits(&arena, chat).takes_parts);
    static const char body[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"\u00e9\"}]}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"image\"}]}]";
    const MxJson *list = mx_json_parse_value(&arena, body, strlen(body), MX_NOWHERE, &err);
    list = messages_as_taken(&arena, &(Habits){.takes_parts = false}, list);
    ck_assert_str_eq(mx_json_string(mx_json_get(mx_json_at(list, 0), "content")), "a\n\u00e9");
    ck_assert_str_eq(mx_json_kind(mx_json_get(mx_json_at(list, 1), "content")), "a list");
}
END_TEST

/* Of OpenAI's texts: objects, or texts of a template that wants these. */
START_TEST(arguments_are_as_a_template_takes_them) {
    static const char objects[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
        "{% endfor %}{% endfor %}";
    static const char texts[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ 'a' + c.function.arguments }}"
        "{% endfor %}{% endfor %}";
    static const char body[] = "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"x\", "
                               "\"function\": {\"name\": \"f\", "
                               "\"arguments\": \"{\\\"a\\\":  1}\"}}, {\"function\": {\"name\": "
                               "\"g\", \"arguments\": \"\"}}]}]";
    MxError err = {0};
    MxChat *chat;
    for (int wants = 0; wants < 2; wants++) {
        const char *text = wants ? texts : objects;
        const MxChatFrom from = {.text = text, .where = {.file = "template"}};
        ck_assert(mx_chat_open(&arena, from, &chat, &err));
        const Habits habits = messages_habits(&arena, chat);
        ck_assert(habits.wants_texts == wants && !habits.takes_tools && !habits.format);
        const MxJson *list = mx_json_parse_value(&arena, body, strlen(body), MX_NOWHERE, &err);
        list = messages_as_taken(&arena, &habits, list);
        const MxJson *calls = mx_json_get(mx_json_at(list, 0), "tool_calls");
        const MxJson *first = mx_json_at(calls, 0);
        const MxJson *arguments = mx_json_get(mx_json_get(first, "function"), "arguments");
        ck_assert_str_eq(mx_json_string(mx_json_get(first, "id")), "x");
        ck_assert_str_eq(mx_json_dump(&arena, arguments, false),
                         wants ? "\"{\\\"a\\\": 1}\"" : "{\"a\": 1}");
        arguments = mx_json_get(mx_json_get(mx_json_at(calls, 1), "function"), "arguments");
        ck_assert_str_eq(mx_json_dump(&arena, arguments, false), wants ? "\"{}\"" : "{}");
    }
}
END_TEST

/* host NULL = it is refused. */
static const struct {
    const char *text, *host, *port;
} addresses[] = {
    {"8080", "127.0.0.1", "8080"}, {"0.0.0.0:1", "0.0.0.0", "1"},
    {"[::1]:80", "::1", "80"},     {"localhost:0", "localhost", "0"},
    {"::1:80", NULL, NULL},        {"127.0.0.1", NULL, NULL},
    {":80", NULL, NULL},           {"127.0.0.1:65536", NULL, NULL},
    {"127.0.0.1:8o", NULL, NULL},  {"", NULL, NULL},
    {"127.0.0.1:-1", NULL, NULL},
};

START_TEST(addresses_are_read) {
    MxError err = {0};
    char *host, *port;
    bool ok = mx_serve_address(&arena, addresses[_i].text, &host, &port, &err);
    ck_assert_msg(ok == (addresses[_i].host != NULL), "%s", addresses[_i].text);
    if (ok) {
        ck_assert_str_eq(host, addresses[_i].host);
        ck_assert_str_eq(port, addresses[_i].port);
    }
    mx_error_release(&err);
}
END_TEST

Suite *serve_suite(void) {
    Suite *suite = suite_create("serve");
    TCase *tcase = tcase_create("requests");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, what_is_said_counts_and_the_rest_is_as_by_default);
    tcase_add_loop_test(tcase, wrong_requests_are_told, 0, MX_COUNT(wrong));
    tcase_add_test(tcase, members_may_ask_for_what_is_so_anyway);
    tcase_add_test(tcase, logits_may_be_changed);
    tcase_add_test(tcase, several_prompts_and_replies);
    tcase_add_test(tcase, the_member_at_fault_is_named);
    tcase_add_test(tcase, parts_become_a_text_where_a_template_takes_no_parts);
    tcase_add_test(tcase, arguments_are_as_a_template_takes_them);
    tcase_add_loop_test(tcase, addresses_are_read, 0, MX_COUNT(addresses));
    suite_add_tcase(suite, tcase);
    return suite;
}
