/* call_formats.c — the formats in which models write calls of tools: one row each. Sources: chat
 * templates of the models; vLLM 0.11, entrypoints/openai/tool_parsers. */
#include "call_formats.h"

#define SECTION(word) "<\xef\xbd\x9ctool\xe2\x96\x81" word "\xef\xbd\x9c>"
#define CALL_BEGIN                                                                                 \
    SECTION("call\xe2\x96\x81"                                                                     \
            "begin")
#define CALL_END                                                                                   \
    SECTION("call\xe2\x96\x81"                                                                     \
            "end")
#define CALLS_BEGIN                                                                                \
    SECTION("calls\xe2\x96\x81"                                                                    \
            "begin")
#define CALLS_END                                                                                  \
    SECTION("calls\xe2\x96\x81"                                                                    \
            "end")
#define CALL_SEP SECTION("sep")
#define FENCE    "```"

static const CallFormat formats[] = {
    {
        .name = "hermes",
        .sign = "<tool_call> {",
        .marks = {"<tool_call>", "</tool_call>"},
        .n_begins = 1,
        .read = calls_read_tagged,
        .writes = {.begin = "",
                   .head = "<tool_call>\n{\"name\": \"%\", \"arguments\": ",
                   .tail = "}\n</tool_call>",
                   .between = "\n",
                   .end = ""},
    },
    {
        .name = "qwen3_coder",
        .sign = "<tool_call> <function=%>",
        .marks = {"<tool_call>", "<function=", "</tool_call>"},
        .n_begins = 2,
        .read = calls_read_tags,
        .tags = &(const CallTags){.head = "<function=",
                                  .name_ends = ">\n",
                                  .name = "<parameter=",
                                  .name_end = ">",
                                  .value = "",
                                  .value_end = "</parameter>",
                                  .close = "</function>"},
        .writes = {.begin = "",
                   .head = "<tool_call>\n<function=%>\n",
                   .tail = "</function>\n</tool_call>",
                   .between = "\n",
                   .end = "",
                   .tags = &(const MxGrammarTags){"<parameter=", ">\n", "\n</parameter>\n",
                                                  "</parameter>"}},
    },
    {
        .name = "glm45",
        .sign = "<tool_call>% <arg_key>",
        .marks = {"<tool_call>", "</tool_call>"},
        .n_begins = 1,
        .read = calls_read_tags,
        .tags = &(const CallTags){.head = "",
                                  .name_ends = "\n<",
                                  .name = "<arg_key>",
                                  .name_end = "</arg_key>",
                                  .value = "<arg_value>",
                                  .value_end = "</arg_value>",
                                  .close = "</tool_call>"},
        .writes = {.begin = "",
                   .head = "<tool_call>%\n",
                   .tail = "</tool_call>",
                   .between = "\n",
                   .end = "",
                   .tags = &(const MxGrammarTags){"<arg_key>", "</arg_key>\n<arg_value>",
                                                  "</arg_value>\n", "</arg_value>"}},
    },
    {
        .name = "mistral",
        .sign = "[TOOL_CALLS] [ {\"name\": \"%\"",
        .marks = {"[TOOL_CALLS]"},
        .n_begins = 1,
        .read = calls_read_list,
        .writes = {.begin = "[TOOL_CALLS] [",
                   .head = "{\"name\": \"%\", \"arguments\": ",
                   .tail = "}",
                   .between = ", ",
                   .end = "]"},
    },
    {
        .name = "mistral_args",
        .sign = "[TOOL_CALLS] % [",
        .marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
        .n_begins = 1,
        .read = calls_read_named,
        .writes =
            {.begin = "", .head = "[TOOL_CALLS]%[ARGS]", .tail = "", .between = "", .end = ""},
    },
    {
        .name = "deepseek_v3",
        .sign = CALL_BEGIN "function" CALL_SEP "%",
        .marks = {CALL_BEGIN, CALLS_BEGIN, CALLS_END, CALL_SEP, CALL_END},
        .n_begins = 1,
        .n_skipped = 2,
        .read = calls_read_form,
        .form = CALL_BEGIN "function" CALL_SEP "% " FENCE "json { " FENCE CALL_END,
        .writes = {.begin = CALLS_BEGIN,
                   .head = CALL_BEGIN "function" CALL_SEP "%\n" FENCE "json\n",
                   .tail = "\n" FENCE CALL_END,
                   .between = "\n",
                   .end = CALLS_END},
    },
    {
        .name = "deepseek_v31",
        .sign = CALL_BEGIN "%" CALL_SEP,
        .marks = {CALL_BEGIN, CALLS_BEGIN, CALLS_END, CALL_SEP, CALL_END},
        .n_begins = 1,
        .n_skipped = 2,
        .read = calls_read_form,
        .form = CALL_BEGIN "%" CALL_SEP "{" CALL_END,
        .writes = {.begin = CALLS_BEGIN,
                   .head = CALL_BEGIN "%" CALL_SEP,
                   .tail = CALL_END,
                   .between = "",
                   .end = CALLS_END},
    },
    {
        .name = "kimi_k2",
        .sign = "<|tool_call_begin|>",
        .marks = {"<|tool_call_begin|>", "<|tool_calls_section_begin|>",
                  "<|tool_calls_section_end|>", "<|tool_call_argument_begin|>",
                  "<|tool_call_end|>"},
        .n_begins = 1,
        .n_skipped = 2,
        .read = calls_read_form,
        .form =
            "<|tool_call_begin|> functions.%:# <|tool_call_argument_begin|> { <|tool_call_end|>",
        .id = "functions.%:#",
        .writes = {.begin = "<|tool_calls_section_begin|>",
                   .head = "<|tool_call_begin|>functions.%:#<|tool_call_argument_begin|>",
                   .tail = "<|tool_call_end|>",
                   .between = "",
                   .end = "<|tool_calls_section_end|>"},
    },
    {
        .name = "harmony",
        .sign = "to=functions.%",
        .marks = {"<|channel|>", "<|start|>", " to=functions.", "<|end|>", "<|message|>",
                  "<|constrain|>"},
        .n_begins = 3,
        .n_skipped = 1,
        .is_all = true,
        .read = calls_read_channel,
        .writes = {.begin = "",
                   .head = "<|channel|>commentary to=functions.% <|constrain|>json<|message|>",
                   .tail = "",
                   .end = ""},
    },
    {
        .name = "llama3_json",
        .sign = "{\"name\": \"%\", \"parameters\":",
        .marks = {"{", "<|python_tag|>"},
        .n_begins = 2,
        .is_whole = true,
        .separator = ';',
        .read = calls_read_bare,
        .writes = {.begin = "",
                   .head = "{\"name\": \"%\", \"parameters\": ",
                   .tail = "}",
                   .between = "; ",
                   .end = ""},
    },
};

const CallFormat *calls_format_at(int i) {
    return i < MX_COUNT(formats) ? &formats[i] : NULL;
}
const char *calls_format_name(const CallFormat *format) {
    return format->name;
}
const char *calls_mark(const CallFormat *format, int i) {
    return format->marks[i];
}

bool calls_is_all(const CallFormat *format) {
    return format->is_all;
}

/* Whether a text begins as a sign says. */
static bool fits(const char *text, const char *sign, const char *name) {
    for (; *sign; sign++) {
        size_t n = *sign == '%' ? strlen(name) : 1;
        if (*sign == ' ') {
            while (calls_is_space(*text)) text++;
            continue;
        }
        if (strncmp(text, *sign == '%' ? name : sign, n)) return false;
        text += n;
    }
    return true;
}

const CallFormat *calls_format_of(const char *text, const char *name) {
    for (int i = 0; i < MX_COUNT(formats); i++)
        for (const char *at = text; *at; at++)
            if (fits(at, formats[i].sign, name)) return &formats[i];
    return NULL;
}
