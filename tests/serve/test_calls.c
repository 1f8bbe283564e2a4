/* test_calls.c — calls of tools in answers, as the models' formats have them, whole and in pieces;
 * and in which format templates write them. */
#include "serve_test.h"

#include "common/goldens.h"
#include "serve/calls.h"
#include "serve/internal.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

enum {
    HERMES,
    MISTRAL,
    ARGS,
    LLAMA,
    DEEPSEEK,
    DEEPSEEK_31,
    KIMI,
    HARMONY,
    CODER,
    GLM,
    SEED,
    MINIMAX,
    MINICPM,
    DSML,
    TOOLCALL,
    PHI,
    HUNYUAN,
    MINIMAX_1,
    COMMAND,
    COMMAND_R,
    APERTUS,
    INTERN,
    GRANITE,
    GIGACHAT,
    FUNCTIONARY,
    GEMMA,
    FUNCTION_GEMMA,
    LFM,
    XLAM,
    PYTHONIC
};
static const char *const names[] = {
    "hermes",      "mistral",      "mistral_args",  "llama3_json", "deepseek_v3", "deepseek_v31",
    "kimi_k2",     "harmony",      "qwen3_coder",   "glm45",       "seed_oss",    "minimax_m2",
    "minicpm5",    "deepseek_v32", "nemotron_v2",   "phi4_mini",   "hunyuan",     "minimax_m1",
    "command",     "command_r",    "apertus",       "internlm2",   "granite_20b", "gigachat3",
    "functionary", "gemma4",       "functiongemma", "lfm2",        "xlam",        "pythonic"};

static const CallFormat *format_of(int i) {
    int k = 0;
    while (calls_format_at(k) && strcmp(calls_format_name(calls_format_at(k)), names[i])) k++;
    ck_assert_ptr_nonnull(calls_format_at(k));
    return calls_format_at(k);
}

/* Types of f's arguments. */
static const char tools_text[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"s\": {\"type\": "
    "\"string\"}, \"n\": {\"type\": \"integer\"}, \"o\": {\"anyOf\": [{\"type\": \"string\"}, "
    "{\"type\": "
    "\"null\"}]}, \"l\": {\"type\": \"array\"}}, \"required\": [\"s\"]}}}]";

static const MxJson *tools_of(void) {
    MxError err = {0};
    return mx_json_parse_value(&arena, tools_text, strlen(tools_text), MX_NOWHERE, &err);
}

#define MARK(word) "<\xef\xbd\x9ctool\xe2\x96\x81" word "\xef\xbd\x9c>"
#define B                                                                                          \
    MARK("call\xe2\x96\x81"                                                                        \
         "begin")
#define E                                                                                          \
    MARK("call\xe2\x96\x81"                                                                        \
         "end")
#define BS                                                                                         \
    MARK("calls\xe2\x96\x81"                                                                       \
         "begin")
#define ES                                                                                         \
    MARK("calls\xe2\x96\x81"                                                                       \
         "end")
#define SEP MARK("sep")

#define D                                                                                          \
    "\xef\xbd\x9c"                                                                                 \
    "DSML\xef\xbd\x9c"

/* Calls as "name arguments", a line each; `most` 0 = any number. */
static const struct {
    int format;
    const char *text, *content, *calls;
    int most;
} cases[] = {
    {HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
     "f {\"a\": 1}\n", 0},
    {HERMES,
     "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": "
     "\"g\", \"arguments\": {\"t\": \"}\\\"</tool_call>\"}}\n</tool_call>",
     "I look.\n", "f {}\ng {\"t\": \"}\\\"</tool_call>\"}\n", 0},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
     "", "f {}\n", 1},
    {HERMES, "<tool_call>{\"name\": \"f\"}", "", "f {}\n", 0},
    {HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 2}\"}</tool_call> Done.",
     "Done.", "f {\"x\": 2}\n", 0},
    {HERMES, "<tool_call>{\"name\": \"f\", \"argu", "<tool_call>{\"name\": \"f\", \"argu", "", 0},
    {HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, \"b", "",
     "f {\"a\": [1, \"b\n", 0},
    {HERMES, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", "",
     "f {\"a\": 1}\n", 0},
    {HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_ca", "", "f {}\n", 0},
    {HERMES, "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>", "", 0},
    {HERMES, "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>", "", 0},
    {HERMES, "a < b, <tool>, <tool_cal", "a < b, <tool>, <tool_cal", "", 0},
    {HERMES, "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "<tool_call>", "f {}\n", 0},
    {HERMES, "{\"name\": \"f\", \"parameters\": {}}", "{\"name\": \"f\", \"parameters\": {}}", "",
     0},
    {MISTRAL,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "", "f {\"a\": [1, {}]}\ng {}\n", 0},
    {MISTRAL, "So: [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", "So: ", "f {}\n", 0},
    {MISTRAL, "[TOOL_CALLS] []", "[TOOL_CALLS] []", "", 0},
    {MISTRAL, "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}}, 5]", "5]", "f {}\n", 0},
    {ARGS, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}", "",
     "f {\"a\": 1}\ng {}\n", 0},
    {ARGS, "Hm.[TOOL_CALLS]look_up{\"city\": \"Rome\"}", "Hm.", "look_up {\"city\": \"Rome\"}\n",
     0},
    {ARGS, "[TOOL_CALLS]f[ARGS]{\"a\": ", "", "f {\"a\": \n", 0},
    {ARGS, "[TOOL_CALLS]f[CALL_ID", "[TOOL_CALLS]f[CALL_ID", "", 0},
    {LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "", "f {\"a\": \"b\"}\n", 0},
    {LLAMA, "<|python_tag|>{\"name\": \"f\", \"arguments\": {}}", "", "f {}\n", 0},
    {LLAMA, "\n{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "\n",
     "f {}\ng {}\n", 0},
    {LLAMA, "{\"answer\": 5}", "{\"answer\": 5}", "", 0},
    {LLAMA, "Call {\"name\": \"f\", \"parameters\": {}}",
     "Call {\"name\": \"f\", \"parameters\": {}}", "", 0},
    {LLAMA, "<|python_tag|>print(5)", "<|python_tag|>print(5)", "", 0},
    {LLAMA, "", "", "", 0},
    {DEEPSEEK,
     "I look." BS B "function" SEP "f\n```json\n{\"a\": 1}\n```" E "\n" B "function" SEP
     "g\n```json\n{}\n```" E ES,
     "I look.", "f {\"a\": 1}\ng {}\n", 0},
    {DEEPSEEK, BS B "function" SEP "f\n```json\n{\"a\": \"}", "", "f {\"a\": \"}\n", 0},
    {DEEPSEEK, "a " B "other" SEP "f", "a " B "other" SEP "f", "", 0},
    {DEEPSEEK_31, BS B "f" SEP "{\"a\": 1}" E B "g" SEP "{}" E ES, "", "f {\"a\": 1}\ng {}\n", 0},
    {DEEPSEEK_31, BS B "f" SEP "{\"a\": 1}" E B "g" SEP "{}" E ES, "", "f {\"a\": 1}\n", 1},
    {KIMI,
     "So.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
     "\"a\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_"
     "end|>"
     "<|tool_calls_section_end|>",
     "So.", "f {\"a\": 1}\ng {}\n", 0},
    {HARMONY,
     "<|channel|>analysis<|message|>They want it.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
     "", "f {\"a\": 1}\n", 0},
    {HARMONY,
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant "
     "to=functions.f<|channel|>commentary "
     "json<|message|>{}",
     "I look.", "f {}\n", 0},
    {HARMONY, " to=functions.f<|channel|>commentary json<|message|>{\"a\": \"", "",
     "f {\"a\": \"\n", 0},
    {HARMONY,
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>It is "
     "warm.",
     "It is warm.", "", 0},
    {HARMONY, "<|channel|>analysis<|message|>Hm, hm", "", "", 0},
    {CODER,
     "I look.\n<tool_call>\n<function=f>\n<parameter=s>\nRome "
     "\"x\"\n2\n</parameter>\n<parameter=n>\n5\n"
     "</parameter>\n<parameter=l>\n[1, {}]\n</parameter>\n</function>\n</tool_call>",
     "I look.\n", "f {\"s\": \"Rome \\\"x\\\"\\n2\", \"n\": 5, \"l\": [1, {}]}\n", 0},
    {CODER,
     "<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=o>\nnull\n</parameter>\n</function>",
     "", "f {\"s\": \"5\", \"o\": null}\n", 0},
    {CODER,
     "<tool_call>\n<function=f>\n</function>\n</"
     "tool_call>\n<tool_call>\n<function=g>\n<parameter=q>\n"
     "true\n</parameter>\n</function>\n</tool_call>",
     "", "f {}\ng {\"q\": true}\n", 0},
    {CODER, "<tool_call>\n<function=f>\n<parameter=s>\nRo", "", "f {\n", 0},
    {GLM,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>New "
     "York</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3"
     "</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
     "", "f {\"s\": \"New York\", \"n\": 3}\ng {}\n", 0},
    {GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value></tool_call> ok", "ok",
     "f {\"s\": \"a\"}\n", 0},
    {GLM, "<tool_call>{\"name\": 1}", "<tool_call>{\"name\": 1}", "", 0},
    {CODER,
     "<tool_call><function=f><parameter=l>['a', 1.5, True, {'k': "
     "None}]</parameter></function></tool_call>",
     "", "f {\"l\": [\"a\", 1.5, true, {\"k\": null}]}\n", 0},
    {SEED,
     "So.<seed:tool_call>\n<function=f>\n<parameter=s>a b</parameter>\n<parameter=n>5</parameter>\n"
     "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n</function>\n</"
     "seed:tool_call>",
     "So.", "f {\"s\": \"a b\", \"n\": 5}\ng {}\n", 0},
    {MINIMAX,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a</parameter>\n<parameter "
     "name=\"n\">5</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call> ok",
     "ok", "f {\"s\": \"a\", \"n\": 5}\ng {}\n", 0},
    {MINIMAX, "<minimax:tool_call>\n<invoke name=\"f\" x",
     "<minimax:tool_call>\n<invoke name=\"f\" x", "", 0},
    {MINICPM,
     "<function name=\"f\"><param name=\"s\">a</param></function>\n<function "
     "name=\"g\"></function>",
     "", "f {\"s\": \"a\"}\ng {}\n", 0},
    {DSML,
     "Hm.\n\n<" D "function_calls>\n<" D "invoke name=\"f\">\n<" D "parameter name=\"s\" "
     "string=\"true\">5</" D "parameter>\n<" D "parameter name=\"q\" string=\"true\">5</" D
     "parameter>\n<" D "parameter name=\"n\" string=\"false\">5</" D "parameter>\n</" D
     "invoke>\n</" D "function_calls>",
     "Hm.\n\n", "f {\"s\": \"5\", \"q\": \"5\", \"n\": 5}\n", 0},
    {DSML, "<" D "tool_calls>\n<" D "invoke name=\"g\">\n</" D "invoke>\n</" D "tool_calls>", "",
     "g {}\n", 0},
    {TOOLCALL, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>", "",
     "f {\"a\": 1}\n", 0},
    {PHI, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "", "f {}\n", 0},
    {PHI, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "", "f {}\n", 0},
    {HUNYUAN, "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>", "", "f {}\n", 0},
    {MINIMAX_1,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {\"a\": "
     "1}}\n</tool_calls>",
     "", "f {}\ng {\"a\": 1}\n", 0},
    {COMMAND,
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"a\": 1}}\n]<|END_ACTION|>",
     "", "f {\"a\": 1}\n", 0},
    {COMMAND_R,
     "Action: ```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {}\n    "
     "}\n]\n```",
     "", "f {}\n", 0},
    {COMMAND_R, "Action: go.", "Action: go.", "", 0},
    {APERTUS, "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>", "",
     "f {\"a\": 1}\ng {}\n", 0},
    {APERTUS, "<|tools_prefix|>[{\"f\": 5}]", "<|tools_prefix|>[{\"f\": 5}]", "", 0},
    {INTERN, "So.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {}}<|action_end|>",
     "So.", "f {}\n", 0},
    {GRANITE, "<function_call> {\"name\": \"f\", \"arguments\": {}}", "", "f {}\n", 0},
    {GIGACHAT, "<|function_call|>{\"name\": \"f\", \"arguments\": {}}", "", "f {}\n", 0},
    {FUNCTIONARY, "<function=f>{\"a\": 1}</function><function=g>{}</function>", "",
     "f {\"a\": 1}\ng {}\n", 0},
    {GEMMA,
     "So.<|tool_call>call:f{l:[<|\"|>a \"b\"<|\"|>,{k:true}],n:-1.5,s:<|\"|>5}, <|\"|>}<tool_call|>"
     "<|tool_call>call:g{}<tool_call|>",
     "So.", "f {\"l\": [\"a \\\"b\\\"\", {\"k\": true}], \"n\": -1.5, \"s\": \"5}, \"}\ng {}\n", 0},
    {GEMMA, "<|tool_call>call:f{s:<|\"|>a<|\"", "<|tool_call>call:f{s:<|\"|>a<|\"", "", 0},
    {GEMMA, "<|tool_call>call:f{s:a b}<tool_call|>", "<|tool_call>call:f{s:a b}<tool_call|>", "",
     0},
    {FUNCTION_GEMMA,
     "<start_function_call>call:f{s:<escape>5<escape>,n:<escape>5<escape>}<end_function_call>", "",
     "f {\"s\": \"5\", \"n\": 5}\n", 0},
    {LFM,
     "<|tool_call_start|>[f(s='it\\'s \\x41\\u00df\\n', n=5, l=[\"a\", None, True,], o={'k': "
     "1e3}), "
     "g()]<|tool_call_end|>Done.",
     "Done.",
     "f {\"s\": \"it's A\xc3\x9f\\n\", \"n\": 5, \"l\": [\"a\", null, true], \"o\": {\"k\": "
     "1e3}}\ng "
     "{}\n",
     0},
    {LFM, "<|tool_call_start|>[f(s=x)]<|tool_call_end|>",
     "<|tool_call_start|>[f(s=x)]<|tool_call_end|>", "", 0},
    {XLAM, "[{\"name\": \"f\", \"arguments\": {}}]", "", "f {}\n", 0},
    {XLAM, "[1, 2]", "[1, 2]", "", 0},
    {PYTHONIC, "[f(n=5), g(a='b')]", "", "f {\"n\": 5}\ng {\"a\": \"b\"}\n", 0},
    {PYTHONIC, "<|python_start|>[f()]<|python_end|>", "", "f {}\n", 0},
    {PYTHONIC, "[1] and [f()]", "[1] and [f()]", "", 0},
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
        calls_init(&c, &arena,
                   (CallReading){.format = format_of(cases[_i].format),
                                 .tools = tools_of(),
                                 .most = cases[_i].most ? cases[_i].most : INT64_MAX});
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
    calls_init(&c, &arena, (CallReading){.format = format_of(HERMES), .most = INT64_MAX});
    calls_add(&c, "Hello <b", 8, false);
    ck_assert_uint_eq(c.content.len, 8);
    calls_add(&c, "> <tool", 7, false);
    ck_assert_uint_eq(c.content.len, 10);
    calls_init(&c, &arena, (CallReading){.format = format_of(LLAMA), .most = INT64_MAX});
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
    const Habits habits = messages_habits(&arena, chat);
    const char *name = habits.format ? calls_format_name(habits.format) : "none";
    ck_assert_str_eq(name, templates[_i].format ? templates[_i].format : "none");
    ck_assert(habits.takes_tools == templates[_i].takes_tools);
}
END_TEST

/* A conversation's text, or a call's. */
#define TEMPLATE(call)                                                                             \
    "{% if tools %}{{ tools|tojson }} like <tool_call>{\"name\": …}{% endif %}"                  \
    "{% for m in messages %}{% if m.tool_calls %}{% "                                              \
    "for t in "                                                                                    \
    "m.tool_calls %}{% set f = t.function %}" call                                                 \
    "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"

/* As the models' own have them. */
static const struct {
    int format;
    const char *text;
    const char *begin, *head; /* how it writes calls; NULL = as others do */
} written[] = {
    {MISTRAL,
     TEMPLATE("[TOOL_CALLS][{\"name\": \"{{ f.name }}\", \"arguments\":{{ f.arguments|tojson }}}]"),
     "[TOOL_CALLS][", "{\"name\": \"%\", \"arguments\":"},
    {MISTRAL,
     TEMPLATE(
         "[TOOL_CALLS] [{\"name\":\"{{ f.name }}\", \"arguments\": {{ f.arguments|tojson }}}]"),
     "[TOOL_CALLS] [", "{\"name\":\"%\", \"arguments\": "},
    {HERMES,
     TEMPLATE("<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ "
              "f.arguments|tojson }}}\n</tool_call>"),
     NULL, NULL},
    {DEEPSEEK,
     TEMPLATE(BS B "{{ t['type'] + '" SEP "' + f.name + '\n```json\n' + f.arguments }}\n```" E),
     NULL, NULL},
    {DEEPSEEK_31, TEMPLATE(BS B "{{ f.name + '" SEP "' + f.arguments }}" E ES), NULL, NULL},
    {KIMI,
     TEMPLATE("<|tool_calls_section_begin|><|tool_call_begin|>{{ t['id'] "
              "}}<|tool_call_argument_begin|>{{ f.arguments|tojson }}<|tool_call_end|>"),
     NULL, NULL},
    {HARMONY,
     TEMPLATE("<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary "
              "json<|message|>{{ f.arguments|tojson }}<|call|>"),
     NULL, NULL},
    {CODER,
     TEMPLATE("<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments|items "
              "%}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>"),
     NULL, NULL},
    {MINIMAX, TEMPLATE("<minimax:tool_call>\n<invoke name=\"{{ f.name }}\">\n</invoke>"), NULL,
     NULL},
    {COMMAND,
     TEMPLATE("<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"{{ f.name }}\""),
     NULL, NULL},
    {GEMMA, TEMPLATE("<|tool_call>call:{{ f.name }}{}<tool_call|>"), NULL, NULL},
    {LFM, TEMPLATE("<|tool_call_start|>[{{ f.name }}()]<|tool_call_end|>"), NULL, NULL},
    {PYTHONIC, TEMPLATE("[{{ f.name }}()]"), NULL, NULL},
    {GLM,
     TEMPLATE("\n<tool_call>{{ f.name }}\n{% for k, v in f.arguments|items %}<arg_key>{{ k "
              "}}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>"),
     NULL, NULL},
};

START_TEST(templates_write_the_formats) {
    MxError err = {0};
    MxChat *chat;
    char path[] = "/tmp/template-XXXXXX";
    const int fd = mkstemp(path);
    const size_t n = strlen(written[_i].text);
    const char *dir = goldens_need(&arena, "hf/tokenizers/llama3/tokenizer.json");
    ck_assert(fd >= 0 && write(fd, written[_i].text, n) == (ssize_t)n);
    close(fd);
    bool ok = mx_chat_open(&arena, (MxChatFrom){.named = path, .dir = dir}, &chat, &err);
    unlink(path);
    ck_assert_msg(ok, "%s", err.text.data);
    const Habits habits = messages_habits(&arena, chat);
    ck_assert_ptr_eq(habits.format, format_of(written[_i].format));
    if (written[_i].begin) {
        ck_assert_ptr_nonnull(habits.writes);
        ck_assert_str_eq(habits.writes->begin, written[_i].begin);
        ck_assert_str_eq(habits.writes->head, written[_i].head);
    }
    ck_assert(habits.takes_tools);
}
END_TEST

static const MxVocabulary *bytes_of(void) {
    static const int32_t eos = 257;
    MxError err = {0};
    MxTokenizer *tokenizer;
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    return mx_vocabulary_new(&arena, tokenizer, &eos, 1, NULL, 0);
}

static MxGuide *guide_of(const CallRules *rules) {
    MxError err = {0};
    MxGrammar *grammar;
    ck_assert_msg(calls_grammar(&arena, rules, &grammar, &err), "%s", err.text.data);
    return mx_guide_new(&arena, grammar, rules->vocabulary);
}

/* Whether the value in work, between tags, is a list or an object by its name. */
static bool is_json(const MxText *text) {
    size_t value = text->len;
    while (value && text->data[value - 1] != '>') value--;
    for (size_t at = value ? value - 1 : 0; at-- > 1;)
        if (strchr("=\">", text->data[at - 1]) && strchr("stnolrpdx", text->data[at]) &&
            strchr("<\">", text->data[at + 1]))
            return strchr("ld", text->data[at]) != NULL;
    return false;
}

/* Whether a byte goes on with the end of a value, if there is one; JSON ends otherwise. */
static bool closes(const MxText *text, const char *end, int32_t byte) {
    for (size_t k = strlen(end); k--;)
        if (k <= text->len && !memcmp(text->data + text->len - k, end, k))
            return (uint8_t)end[k] == byte;
    return false;
}

/* Whatever bytes come of those that may, as numbers of a generator say; ends are likely. */
static const char *write_answer(MxGuide *guide, const char *end, uint64_t seed) {
    enum { FEW = 80, FREE = 300, MOST = 6000, EOS = 257, VOCAB };
    MxGuided text;
    float logits[VOCAB];
    mx_guided_init(&text, &arena, guide);
    for (int n = 0;; n++) {
        int32_t best = 0;
        double most = -1;
        const bool closed = text.bytes.len && text.bytes.data[text.bytes.len - 1] == '}';
        const char *close = n > FEW && !is_json(&text.bytes) ? end : "";
        memset(logits, 0, sizeof logits);
        ck_assert_msg(n < MOST, "%.900s", text.bytes.data);
        ck_assert(mx_guided_limit(&text, logits, VOCAB));
        for (int32_t id = 0; id < VOCAB; id++) {
            uint32_t w[4];
            mx_philox(seed, (uint64_t)n, (uint64_t)id, w);
            bool ends = id == EOS || (id < 256 && strchr("\"}]<')", id)),
                 is_odd =
                     (id < ' ' && !(id == '\n' && closed && n > FREE)) || id > '~' || id == '>';
            double worth = (double)mx_uniform(w[0]) + (n > FREE && ends) * (id == EOS ? 4 : 1) +
                           2 * closes(&text.bytes, close, id) - (is_odd && id != EOS);
            if (!isinf(logits[id]) && worth > most) most = worth, best = id;
        }
        while (isinf(logits[best])) best++; /* only odd ones may come */
        if (best == EOS || mx_guided_accept(&text, best)) return text.bytes.data;
    }
}

/* Arguments that each format writes otherwise. */
static const char rich_text[] =
    "[{\"function\": {\"name\": \"g_2\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"t\": {\"enum\": [\"it's\", \"a \\\"b\\\" \\\\\", 5, null, true, [\"x\", {\"k\": -1.5}]]}, "
    "\"r\": {\"$ref\": \"#/$defs/s\"}, \"p\": {\"type\": \"string\", \"pattern\": "
    "\"^[a-z'\\\"]{2,3}$\"}, \"d\": {\"type\": \"object\", \"properties\": {\"in_a\": {\"type\": "
    "\"boolean\"}, \"b-1\": {\"type\": \"null\"}}, \"additionalProperties\": {\"type\": "
    "\"integer\"}}, \"l\": {\"type\": \"array\", \"items\": {\"type\": [\"string\", \"boolean\", "
    "\"number\"]}, \"maxItems\": 3}, \"x\": {\"anyOf\": [{\"type\": \"string\", \"minLength\": 2, "
    "\"pattern\": \"^[^\\n]*$\"}, {\"type\": \"integer\"}]}}, \"required\": [\"t\", \"r\"], "
    "\"$defs\": {\"s\": {\"type\": \"string\", \"pattern\": \"^[0-9a-z.' ]{0,4}$\"}}}}}]";

/* What ends a text of an argument. */
static const char *end_of_text(int format) {
    static const struct {
        int format;
        const char *end;
    } ends[] = {{CODER, "\n</parameter>"}, {GLM, "</arg_value>"},       {SEED, "</parameter>"},
                {MINIMAX, "</parameter>"}, {MINICPM, "</param>"},       {DSML, "</" D "parameter>"},
                {GEMMA, "<|\"|>"},         {FUNCTION_GEMMA, "<escape>"}};
    for (int i = 0; i < MX_COUNT(ends); i++)
        if (ends[i].format == format) return ends[i].end;
    return "";
}

/* An answer that must be calls is read as these, and their arguments fit. */
START_TEST(answers_are_held_to_calls) {
    MxError err = {0};
    const MxJson *lists[] = {
        tools_of(), mx_json_parse_value(&arena, rich_text, strlen(rich_text), MX_NOWHERE, &err)};
    CallRules rules = {.format = format_of(_i), .vocabulary = bytes_of(), .choice = CALLS_NEEDED};
    int n = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        rules.has_one = seed % 2;
        rules.tools = lists[seed / 2 % 2];
        const MxJson *function = mx_json_get(mx_json_at(rules.tools, 0), "function");
        const MxJson *schema = mx_json_get(function, "parameters");
        const char *text = write_answer(guide_of(&rules), end_of_text(_i), seed);
        Calls c;
        calls_init(&c, &arena,
                   (CallReading){.format = rules.format, .tools = rules.tools, .most = INT64_MAX});
        calls_add(&c, text, strlen(text), true);
        ck_assert_msg(c.n > 0 && (!rules.has_one || c.n == 1) && calls_are_all(&c), "%s", text);
        for (int64_t i = 0; i < c.n; i++, n++) {
            const MxJson *json = mx_json_parse_value(&arena, c.call[i].arguments,
                                                     c.call[i].n_arguments, MX_NOWHERE, &err);
            ck_assert_msg(json != NULL, "%s: %s", text, err.text.data);
            ck_assert_str_eq(c.call[i].name, mx_json_string(mx_json_get(function, "name")));
            ck_assert_msg(mx_schema_allows(schema, schema, json), "%s", text);
        }
    }
    ck_assert_int_ge(n, 40);
}
END_TEST

/* Text need not have calls; those that it has fit, if they are strict. */
START_TEST(answers_may_be_other_text) {
    const MxVocabulary *vocabulary = bytes_of();
    const char strict[] =
        "[{\"function\": {\"name\": \"f\", \"strict\": true, \"parameters\": {\"type\": "
        "\"object\", "
        "\"properties\": {\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"]}}}]";
    static const struct {
        int format;
        const char *text;
        bool fits;
    } cases_of[] = {
        {HERMES,
         "It is <b>warm</b>. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": "
         "5}}\n</tool_call>",
         true},
        {HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": \"", false},
        {HERMES, "<tool_call>\n{\"name\": \"g", false},
        {LLAMA, "It is {warm}", true},
        {LLAMA, "{\"name\": \"f\", \"parameters\": {\"n\": 5}}", true},
        {LLAMA, "{\"temperature", false},
        {CODER,
         "So.\n<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</"
         "tool_call>",
         true},
        {CODER, "<tool_call>\n<function=f>\n<parameter=n>\nx", false},
    };
    MxError err = {0};
    const MxJson *tools = mx_json_parse_value(&arena, strict, strlen(strict), MX_NOWHERE, &err);
    for (int i = 0; i < MX_COUNT(cases_of); i++) {
        const CallRules rules = {
            .format = format_of(cases_of[i].format), .vocabulary = vocabulary, .tools = tools};
        MxGuided text;
        mx_guided_init(&text, &arena, guide_of(&rules));
        bool fits = mx_guided_add(&text, cases_of[i].text, strlen(cases_of[i].text));
        ck_assert_msg(fits == cases_of[i].fits, "%s", cases_of[i].text);
    }
}
END_TEST

Suite *calls_suite(void) {
    Suite *suite = suite_create("calls");
    TCase *tcase = tcase_create("calls");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, calls_are_read_in_pieces_of_any_size, 0, MX_COUNT(cases));
    tcase_add_test(tcase, text_is_not_held_back);
    tcase_add_loop_test(tcase, templates_tell_their_format, 0, MX_COUNT(templates));
    tcase_add_loop_test(tcase, templates_write_the_formats, 0, MX_COUNT(written));
    tcase_add_loop_test(tcase, answers_are_held_to_calls, 0, MX_COUNT(names));
    tcase_add_test(tcase, answers_may_be_other_text);
    suite_add_tcase(suite, tcase);
    return suite;
}
