/* call_formats.c — the formats in which models write calls of tools: one row each. Here are those
 * whose arguments are JSON; the others, and those without marks, are in call_formats_other.c.
 * Sources: chat templates of the models; vLLM 0.33, its tool parsers. */
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

#define ARGUMENTS "{\"name\": \"%\", \"arguments\": "
/* A list of calls between two marks. */
#define LIST(title, begins, ends)                                                                  \
    {                                                                                              \
        .name = title, .sign = begins " [", .marks = {begins, ends}, .n_begins = 1,                \
        .read = calls_read_objects,                                                                \
        .objects = &(const CallObjects){.begin = begins, .end = ends, .is_list = true},            \
        .writes = {begins "[", ARGUMENTS, "}", ", ", "]" ends, NULL},                              \
    }

static const CallFormat formats[] = {
    {
        .name = "hermes",
        .sign = "<tool_call> {",
        .marks = {"<tool_call>", "</tool_call>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<tool_call>", .end = "</tool_call>"},
        .writes = {.begin = "",
                   .head = "<tool_call>\n{\"name\": \"%\", \"arguments\": ",
                   .tail = "}\n</tool_call>",
                   .between = "\n",
                   .end = ""},
    },
    {
        .name = "mistral",
        .sign = "[TOOL_CALLS] [ {\"name\": \"%\"",
        .marks = {"[TOOL_CALLS]"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "[TOOL_CALLS]", .is_list = true},
        .writes = {.begin = "[TOOL_CALLS] [",
                   .head = ARGUMENTS,
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
    LIST("nemotron_v2", "<TOOLCALL>", "</TOOLCALL>"),
    LIST("phi4_mini", "<|tool_call|>", "<|/tool_call|>"),
    LIST("hunyuan", "<tool_calls>", "</tool_calls>"),
    {
        .name = "minimax_m1",
        .sign = "<tool_calls> {",
        .marks = {"<tool_calls>", "</tool_calls>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects =
            &(const CallObjects){.begin = "<tool_calls>", .end = "</tool_calls>", .is_run = true},
        .writes = {.begin = "<tool_calls>\n",
                   .head = ARGUMENTS,
                   .tail = "}\n",
                   .between = "",
                   .end = "</tool_calls>"},
    },
    {
        .name = "command",
        .sign = "<|START_ACTION|> [",
        .marks = {"<|START_ACTION|>", "<|END_ACTION|>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<|START_ACTION|>",
                                        .end = "<|END_ACTION|>",
                                        .is_list = true},
        .writes = {.begin = "<|START_ACTION|>[\n",
                   .head = "    {\"tool_call_id\": \"#\", \"tool_name\": \"%\", \"parameters\": ",
                   .tail = "}",
                   .between = ",\n",
                   .end = "\n]<|END_ACTION|>"},
    },
    {
        .name = "command_r",
        .sign = "Action: " FENCE "json [",
        .marks = {"Action:"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects =
            &(const CallObjects){
                .begin = "Action:", .end = FENCE, .fence = FENCE "json", .is_list = true},
        .writes = {.begin = "Action:\n" FENCE "json\n[\n",
                   .head = "    {\n        \"tool_name\": \"%\",\n        \"parameters\": ",
                   .tail = "\n    }",
                   .between = ",\n",
                   .end = "\n]" FENCE},
    },
    {
        .name = "apertus",
        .sign = "<|tools_prefix|> [",
        .marks = {"<|tools_prefix|>", "<|tools_suffix|>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<|tools_prefix|>",
                                        .end = "<|tools_suffix|>",
                                        .is_list = true,
                                        .is_named = true},
        .writes = {.begin = "<|tools_prefix|>[",
                   .head = "{\"%\": ",
                   .tail = "}",
                   .between = ", ",
                   .end = "]<|tools_suffix|>"},
    },
    {
        .name = "internlm2",
        .sign = "<|action_start|><|plugin|>",
        .marks = {"<|action_start|>", "<|plugin|>", "<|action_end|>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<|action_start|>",
                                        .end = "<|action_end|>",
                                        .fence = "<|plugin|>"},
        .writes = {.begin = "",
                   .head = "<|action_start|><|plugin|>\n{\"name\": \"%\", \"parameters\": ",
                   .tail = "}<|action_end|>",
                   .between = "",
                   .end = ""},
    },
    {
        .name = "granite_20b",
        .sign = "<function_call> {",
        .marks = {"<function_call>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<function_call>"},
        .writes = {.begin = "",
                   .head = "<function_call> {\"name\": \"%\", \"arguments\": ",
                   .tail = "}",
                   .between = "\n",
                   .end = ""},
    },
    {
        .name = "gigachat3",
        .sign = "<|function_call|> {",
        .marks = {"<|function_call|>"},
        .n_begins = 1,
        .read = calls_read_objects,
        .objects = &(const CallObjects){.begin = "<|function_call|>"},
        .writes = {.begin = "",
                   .head = "<|function_call|>{\"name\": \"%\", \"arguments\": ",
                   .tail = "}",
                   .end = ""},
    },
    {
        .name = "functionary",
        .sign = "<function=%>{",
        .marks = {"<function=", "</function>"},
        .n_begins = 1,
        .read = calls_read_form,
        .form = "<function=%>{</function>",
        .writes =
            {.begin = "", .head = "<function=%>", .tail = "</function>", .between = "", .end = ""},
    },
};

const CallFormat *calls_format_at(int i) {
    return i < MX_COUNT(formats) ? &formats[i] : calls_other_format_at(i - MX_COUNT(formats));
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
            while (mx_is_space(*text)) text++;
            continue;
        }
        if (strncmp(text, *sign == '%' ? name : sign, n)) return false;
        text += n;
    }
    return true;
}

const CallFormat *calls_format_of(const char *text, const char *name) {
    const CallFormat *format;
    for (int i = 0; (format = calls_format_at(i)); i++)
        for (const char *at = text; *at; at++)
            if (fits(at, format->sign, name)) return format;
    return NULL;
}

/* ---- how a template writes them */

/* What of a text fits a form, whose spaces stand for any number of them, from `*text` on, as a
 * form: the text's spaces, and otherwise what the form has. NULL = it does not fit. */
static const char *copy_form(MxArena *arena, const char *form, const char *name,
                             const char **text) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_addn(&out, "", 0);
    for (const char *at = *text;; form++) {
        if (!*form) {
            *text = at;
            return out.len ? out.data : "";
        }
        if (mx_is_space(*form)) {
            while (mx_is_space(form[1])) form++;
            for (; mx_is_space(*at); at++) mx_text_addn(&out, at, 1);
            continue;
        }
        const char one[] = {*form, '\0'}, *wanted = *form == '%' ? name : one;
        size_t n = *form == '#' ? strspn(at, "0123456789") : strlen(wanted);
        if (!n || (*form != '#' && strncmp(at, wanted, n))) return NULL;
        mx_text_addn(&out, form, 1);
        at += n;
    }
}

const CallWriting *calls_writing(MxArena *arena, const CallFormat *format, const char *text,
                                 const char *name) {
    CallWriting *out = mx_new(arena, CallWriting);
    for (const char *at = text; *at; at++) {
        const char *rest = at;
        *out = format->writes;
        out->begin = copy_form(arena, format->writes.begin, name, &rest);
        if (out->begin) out->head = copy_form(arena, format->writes.head, name, &rest);
        if (out->begin && out->head) return out;
    }
    return NULL;
}
