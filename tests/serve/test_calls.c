/* test_calls.c — calls of tools in answers, as the models' formats have them, whole and in pieces;
 * and in which format templates write them. */
#include "serve_test.h"

#include "common/goldens.h"
#include "serve/calls.h"
#include "serve/internal.h"

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* How a call of f begins in each format. */
static const char *const signs[] = {"<tool_call>{", "[TOOL_CALLS][{\"name\":\"f\"",
                                    "[TOOL_CALLS]f[", "{\"name\":\"f\",\"parameters\":"};

static const CallFormat *format_of(int i) {
    return calls_format_of(signs[i], "f");
}

/* Calls as "name arguments", a line each; `most` 0 = any number. */
static const struct {
    int format;
    const char *text, *content, *calls;
    int most;
} cases[] = {
    {0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
     "f {\"a\": 1}\n", 0},
    {0,
     "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": "
     "\"g\", \"arguments\": {\"t\": \"}\\\"</tool_call>\"}}\n</tool_call>",
     "I look.\n", "f {}\ng {\"t\": \"}\\\"</tool_call>\"}\n", 0},
    {0,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
     "", "f {}\n", 1},
    {0, "<tool_call>{\"name\": \"f\"}", "", "f {}\n", 0},
    {0, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 2}\"}</tool_call> Done.",
     "Done.", "f {\"x\": 2}\n", 0},
    {0, "<tool_call>{\"name\": \"f\", \"argu", "<tool_call>{\"name\": \"f\", \"argu", "", 0},
    {0, "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>", "", 0},
    {0, "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>", "", 0},
    {0, "a < b, <tool>, <tool_cal", "a < b, <tool>, <tool_cal", "", 0},
    {0, "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "<tool_call>", "f {}\n", 0},
    {0, "{\"name\": \"f\", \"parameters\": {}}", "{\"name\": \"f\", \"parameters\": {}}", "", 0},
    {1,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "", "f {\"a\": [1, {}]}\ng {}\n", 0},
    {1, "So: [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", "So: ", "f {}\n", 0},
    {1, "[TOOL_CALLS] []", "[TOOL_CALLS] []", "", 0},
    {1, "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}}, 5]",
     "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}}, 5]", "", 0},
    {2, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}", "",
     "f {\"a\": 1}\ng {}\n", 0},
    {2, "Hm.[TOOL_CALLS]look_up{\"city\": \"Rome\"}", "Hm.", "look_up {\"city\": \"Rome\"}\n", 0},
    {2, "[TOOL_CALLS]f[ARGS]{\"a\": ", "[TOOL_CALLS]f[ARGS]{\"a\": ", "", 0},
    {2, "[TOOL_CALLS]f[CALL_ID", "[TOOL_CALLS]f[CALL_ID", "", 0},
    {3, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "", "f {\"a\": \"b\"}\n", 0},
    {3, "<|python_tag|>{\"name\": \"f\", \"arguments\": {}}", "", "f {}\n", 0},
    {3, "\n{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "\n",
     "f {}\ng {}\n", 0},
    {3, "{\"answer\": 5}", "{\"answer\": 5}", "", 0},
    {3, "Call {\"name\": \"f\", \"parameters\": {}}", "Call {\"name\": \"f\", \"parameters\": {}}",
     "", 0},
    {3, "<|python_tag|>print(5)", "<|python_tag|>print(5)", "", 0},
    {3, "", "", "", 0},
};

static void check_read(const Calls *c, int i, int pieces) {
    MxText told;
    mx_text_init(&told, &arena);
    for (int64_t k = 0; k < c->n; k++)
        mx_text_add(&told, "%s %s\n", c->call[k].name, c->call[k].arguments);
    const char *got = told.len ? told.data : "", *content = c->content.len ? c->content.data : "";
    ck_assert_msg(!strcmp(got, cases[i].calls), "%s (%d): calls %s", cases[i].text, pieces, got);
    ck_assert_msg(!strcmp(content, cases[i].content), "%s (%d): %s", cases[i].text, pieces,
                  content);
}

START_TEST(calls_are_read_in_pieces_of_any_size) {
    const char *text = cases[_i].text;
    size_t n = strlen(text);
    for (size_t size = 1; size <= n + 1; size++) {
        Calls c;
        calls_init(&c, &arena, format_of(cases[_i].format),
                   cases[_i].most ? cases[_i].most : INT64_MAX);
        for (size_t at = 0; at < n; at += size)
            calls_add(&c, text + at, n - at < size ? n - at : size, false);
        calls_add(&c, "", 0, true);
        check_read(&c, _i, (int)size);
    }
}
END_TEST

/* A text that can be no call is told at once. */
START_TEST(text_is_not_held_back) {
    Calls c;
    calls_init(&c, &arena, format_of(0), INT64_MAX);
    calls_add(&c, "Hello <b", 8, false);
    ck_assert_uint_eq(c.content.len, 8);
    calls_add(&c, "> <tool", 7, false);
    ck_assert_uint_eq(c.content.len, 10);
    calls_init(&c, &arena, format_of(3), INT64_MAX);
    calls_add(&c, "A {\"na", 6, false);
    ck_assert_uint_eq(c.content.len, 6);
}
END_TEST

/* NULL = none that is known. */
static const struct {
    const char *file, *format;
    bool takes_tools;
} templates[] = {
    {"qwen_tools.jinja", "hermes", true},        {"mistral_inst.jinja", "mistral", true},
    {"llama3_tools.jinja", "llama3_json", true}, {"chatml.jinja", NULL, false},
    {"deepseek_think.jinja", NULL, false},       {"gemma_turns.jinja", NULL, false},
};

START_TEST(templates_tell_their_format) {
    MxError err = {0};
    MxChat *chat;
    const char *path = mx_arena_printf(&arena, "hf/chat/templates/%s", templates[_i].file);
    path = goldens_need(&arena, path);
    const char *dir = goldens_need(&arena, "hf/tokenizers/llama3/tokenizer.json");
    ck_assert_msg(mx_chat_open(&arena, (MxChatFrom){.named = path, .dir = dir}, &chat, &err), "%s",
                  err.text.data);
    const Habits habits = messages_habits(chat);
    const char *name = habits.format ? calls_format_name(habits.format) : "none";
    ck_assert_str_eq(name, templates[_i].format ? templates[_i].format : "none");
    ck_assert(habits.takes_tools == templates[_i].takes_tools);
}
END_TEST

Suite *calls_suite(void) {
    Suite *suite = suite_create("calls");
    TCase *tcase = tcase_create("calls");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, calls_are_read_in_pieces_of_any_size, 0, MX_COUNT(cases));
    tcase_add_test(tcase, text_is_not_held_back);
    tcase_add_loop_test(tcase, templates_tell_their_format, 0, MX_COUNT(templates));
    suite_add_tcase(suite, tcase);
    return suite;
}
