/* test_reasoning.c — reasoning before answers: what it is read as, whole and in pieces; how
 * templates tell that a model reasons, and prompts that it has begun; and answers that are held to
 * a grammar behind it. */
#include "serve_test.h"

#include "serve/internal.h"

#include <stdlib.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

static const CallFormat *format_of(const char *name) {
    int k = 0;
    while (name && calls_format_at(k) && strcmp(calls_format_name(calls_format_at(k)), name)) k++;
    return name ? calls_format_at(k) : NULL;
}

/* ---- reading */

static const struct {
    const char *sign, *format; /* NULL = no calls are read */
    MxReasoningState state;
    const char *text, *reasoning, *content, *calls;
} cases[] = {
    {"</think>", NULL, MX_REASONING_MAY, "<think>\nHm < </thin.\n</think>\n\nYes.", "Hm < </thin.",
     "Yes.", ""},
    {"</think>", NULL, MX_REASONING_MAY, "\n<think></think>Yes. </think>", "", "Yes. </think>", ""},
    {"</think>", NULL, MX_REASONING_MAY, "A <think>b</think>", "", "A <think>b</think>", ""},
    {"</think>", NULL, MX_REASONING_MAY, "<thi", "", "<thi", ""},
    {"</think>", NULL, MX_REASONING_MAY, "<think>Hm, <thi", "Hm, <thi", "", ""},
    {"</think>", NULL, MX_REASONING_IN, "Hm\nhm </think", "Hm\nhm </think", "", ""},
    {"</think>", NULL, MX_REASONING_IN, "\nHm.\n</think>\n\nYes.\n", "Hm.", "Yes.\n", ""},
    {"</think>", NULL, MX_REASONING_OVER, "<think>a</think>", "", "<think>a</think>", ""},
    {"</think>", "hermes", MX_REASONING_IN,
     "<tool_call>? Yes.</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>? Yes.", "", "f {}\n"},
    {"</think>", "llama3_json", MX_REASONING_MAY,
     "<think>a</think>\n{\"name\": \"f\", \"parameters\": {}}", "a", "", "f {}\n"},
    {"[/THINK]", NULL, MX_REASONING_MAY, "[THINK]a[/THINK]b", "a", "b", ""},
    {"<channel|>", NULL, MX_REASONING_MAY, "<|channel>thought\na\n<channel|>b", "a", "b", ""},
    {"<|END_THINKING|>", NULL, MX_REASONING_MAY, "<|START_THINKING|>a<|END_THINKING|>b", "a", "b",
     ""},
    {"</seed:think>", NULL, MX_REASONING_MAY, "<seed:think>a</seed:think>b", "a", "b", ""},
    {"</mm:think>", NULL, MX_REASONING_MAY, "<mm:think>a</mm:think>b", "a", "b", ""},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|"
     ">"
     "<|start|>assistant<|channel|>final<|message|>c",
     "a\nb", "c", ""},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, "<|channel|>final<|message|>c", "", "c",
     ""},
};

static const char *text_of(const MxText *text) {
    return text->len ? text->data : "";
}

START_TEST(reasoning_is_read_in_pieces_of_any_size) {
    const char *text = cases[_i].text;
    size_t n = strlen(text);
    const MxReasoning *how = mx_reasoning_of(cases[_i].sign);
    ck_assert_ptr_nonnull(how);
    for (size_t size = 1; size <= n + 1; size++) {
        Calls c;
        MxText told;
        mx_text_init(&told, &arena);
        calls_init(&c, &arena,
                   (CallReading){.format = format_of(cases[_i].format),
                                 .most = INT64_MAX,
                                 .reasoning = how,
                                 .state = cases[_i].state});
        for (size_t at = 0; at < n; at += size)
            calls_add(&c, text + at, n - at < size ? n - at : size, false);
        calls_add(&c, "", 0, true);
        for (int64_t k = 0; k < c.n; k++)
            mx_text_add(&told, "%s %s\n", c.call[k].name, c.call[k].arguments);
        ck_assert_str_eq(text_of(&c.reasoned.text), cases[_i].reasoning);
        ck_assert_str_eq(text_of(&c.content), cases[_i].content);
        ck_assert_str_eq(text_of(&told), cases[_i].calls);
    }
}
END_TEST

/* Only what may be the end of a mark, or of the reasoning, is held back. */
START_TEST(reasoning_is_not_held_back) {
    Calls c;
    calls_init(&c, &arena,
               (CallReading){.reasoning = mx_reasoning_of("</think>"), .state = MX_REASONING_MAY});
    calls_add(&c, "<think>\nHm, so \n", 16, false);
    ck_assert_str_eq(text_of(&c.reasoned.text), "Hm, so");
    calls_add(&c, "it </t", 6, false);
    ck_assert_str_eq(text_of(&c.reasoned.text), "Hm, so \nit");
    calls_add(&c, "hink>\nYes", 9, false);
    ck_assert_str_eq(text_of(&c.reasoned.text), "Hm, so \nit");
    ck_assert_str_eq(text_of(&c.content), "Yes");
}
END_TEST

/* ---- templates and prompts */

#define TURNS "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"

static const struct {
    const char *template, *name; /* NULL = none that is known */
} templates[] = {
    {TURNS, NULL},
    {TURNS "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}", "think"},
    {TURNS "{% if add_generation_prompt %}{{ '<think></think>' if enable_thinking is false }}"
           "{% endif %}",
     "think"},
    {TURNS "{% if add_generation_prompt and thinking is true %}[THINK]a[/THINK]{% endif %}",
     "mistral"},
    {"{% for m in messages %}{% if m.reasoning_content %}<|channel>thought\n"
     "{{ m.reasoning_content }}<channel|>{% endif %}{{ m.content }}{% endfor %}",
     "gemma4"},
    {"{% for m in messages %}{% if m.tool_calls and m.thinking %}<|channel|>analysis<|message|>"
     "{{ m.thinking }}<|end|>{% endif %}{{ m.content }}{% endfor %}",
     "harmony"},
    {"{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}", NULL},
};

START_TEST(templates_tell_that_models_reason) {
    MxError err = {0};
    MxChat *chat;
    MxChatFrom from = {.text = templates[_i].template, .where = {.file = "t", .line = 1}};
    ck_assert_msg(mx_chat_open(&arena, from, &chat, &err), "%s", err.text.data);
    const MxReasoning *how = messages_habits(&arena, chat).reasoning;
    ck_assert_str_eq(how ? mx_reasoning_name(how) : "none",
                     templates[_i].name ? templates[_i].name : "none");
}
END_TEST

START_TEST(prompts_tell_where_answers_begin) {
    static const struct {
        const char *prompt;
        MxReasoningState state;
    } prompts[] = {
        {"[user]Hi[assistant]", MX_REASONING_MAY},
        {"[user]<think>[assistant]", MX_REASONING_MAY},
        {"[assistant]<think>\n", MX_REASONING_IN},
        {"[assistant]<think>\n\n</think>\n\n", MX_REASONING_OVER},
        {"[assistant]</think>", MX_REASONING_OVER},
        {"", MX_REASONING_MAY},
    };
    const MxReasoning *how = mx_reasoning_of("</think>"), *gemma = mx_reasoning_of("<channel|>");
    for (int i = 0; i < MX_COUNT(prompts); i++)
        ck_assert_int_eq(mx_reasoning_state(how, prompts[i].prompt, strlen(prompts[i].prompt)),
                         prompts[i].state);
    ck_assert_int_eq(mx_reasoning_state(NULL, "<think>", 7), MX_REASONING_OVER);
    ck_assert_int_eq(mx_reasoning_state(gemma, "<|channel>thought", 17), MX_REASONING_IN);
}
END_TEST

/* ---- answers that are held to a grammar */

#define TOOLS "[{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]"
#define CALL  "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
#define HELD  "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"
#define FINAL "<|channel|>final<|message|>"

typedef enum Wanted { JSON, CALLS, EITHER } Wanted;

static const struct {
    const char *sign, *format;
    MxReasoningState state;
    Wanted wanted;
    const char *text;
    bool fits;
} held[] = {
    {"</think>", "hermes", MX_REASONING_MAY, JSON, "{\"a\": 1}", true},
    {"</think>", "hermes", MX_REASONING_MAY, JSON, "<think>\n{ [ x <b> \n</think>\n\n{\"a\": 1}",
     true},
    {"</think>", "hermes", MX_REASONING_MAY, JSON, "\n<think></think> {\"a\": 1}", true},
    {"</think>", "hermes", MX_REASONING_MAY, JSON, "So <think>", false},
    {"</think>", "hermes", MX_REASONING_MAY, JSON, "<think>a</think>So", false},
    {"</think>", "hermes", MX_REASONING_IN, JSON, "Hm.</think>{\"a\": 1}", true},
    {"</think>", "hermes", MX_REASONING_IN, JSON, "Hm.</think>{\"b", false},
    {"</think>", "hermes", MX_REASONING_OVER, JSON, "{\"a\": 1}", true},
    {"</think>", "hermes", MX_REASONING_OVER, JSON, "<think>", false},
    {"</think>", "hermes", MX_REASONING_IN, CALLS, "<tool_call>?</think>\n" CALL, true},
    {"</think>", "hermes", MX_REASONING_IN, CALLS, "Hm.</think>\n\nSo", false},
    {"</think>", "hermes", MX_REASONING_MAY, CALLS, CALL, true},
    {"</think>", "hermes", MX_REASONING_MAY, EITHER, "<think>a</think>{\"a\": 1}", true},
    {"</think>", "hermes", MX_REASONING_MAY, EITHER, "<think>a</think>" CALL, true},
    {"</think>", "hermes", MX_REASONING_MAY, EITHER, "<think>a</think>No", false},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, JSON,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" FINAL "{\"a\": 1}", true},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, JSON, FINAL "{\"a\": 1}", true},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, JSON, "{\"a\": 1}", false},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, CALLS,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" HELD, true},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, CALLS, HELD, true},
    {"<|channel|>analysis", "harmony", MX_REASONING_MAY, CALLS, FINAL, false},
};

START_TEST(answers_are_held_behind_reasoning) {
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}";
    static const int32_t eos = 257;
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxGrammar *grammar;
    MxGuided text;
    Wanted wanted = held[_i].wanted;
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    const MxJson *tools = mx_json_parse_value(&arena, TOOLS, strlen(TOOLS), MX_NOWHERE, &err);
    const CallRules rules = {
        .format = format_of(held[_i].format),
        .vocabulary = mx_vocabulary_new(&arena, tokenizer, &eos, 1, NULL, 0),
        .tools = wanted == JSON ? NULL : tools,
        .choice = wanted == CALLS ? CALLS_NEEDED : CALLS_FREE,
        .schema = wanted == CALLS ? NULL : mx_json_parse(&arena, schema, strlen(schema), "s", &err),
        .reasoning = mx_reasoning_of(held[_i].sign),
        .state = held[_i].state};
    ck_assert_msg(calls_grammar(&arena, &rules, &grammar, &err), "%s", err.text.data);
    mx_guided_init(&text, &arena, mx_guide_new(&arena, grammar, rules.vocabulary));
    bool fits = mx_guided_add(&text, held[_i].text, strlen(held[_i].text));
    ck_assert_msg(fits == held[_i].fits, "%s", held[_i].text);
}
END_TEST

Suite *reasoning_suite(void) {
    Suite *suite = suite_create("reasoning");
    TCase *tcase = tcase_create("reasoning");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, reasoning_is_read_in_pieces_of_any_size, 0, MX_COUNT(cases));
    tcase_add_test(tcase, reasoning_is_not_held_back);
    tcase_add_loop_test(tcase, templates_tell_that_models_reason, 0, MX_COUNT(templates));
    tcase_add_test(tcase, prompts_tell_where_answers_begin);
    tcase_add_loop_test(tcase, answers_are_held_behind_reasoning, 0, MX_COUNT(held));
    suite_add_tcase(suite, tcase);
    return suite;
}
