/* call_values.c — how the formats of calls write arguments that are no object of JSON. Sources: as
 * in call_formats.c. */
#include "call_formats.h"

/* A text as it is, up to a tag; else JSON. */
#define UP_TO(tag)                                                                                 \
    {                                                                                              \
        .true_word = "true", .false_word = "false", .null_word = "null", .begin = "", .end = "",   \
        .without = tag, .other = "", .within = &mx_values_json,                                    \
    }

/* Members behind each other, in tags; names have no characters of these. */
#define TAGGED(before, behind, after, values)                                                      \
    {                                                                                              \
        .open = "", .between = "", .close = "", .before_name = before, .behind_name = behind,      \
        .name_without = "<>\"\n", .behind_value = after, .is_object = true, .within = values,      \
    }

/* Braces, names that are words, and texts between marks. */
#define MARKED(mark)                                                                               \
    {                                                                                              \
        .true_word = "true", .false_word = "false", .null_word = "null", .begin = mark,            \
        .end = mark, .without = mark, .other = "", .open = "{", .between = ",", .close = "}",      \
        .before_name = "", .behind_name = ":", .name_without = NO_WORD, .behind_value = "",        \
    }
#define NO_WORD " \t\n\r!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~"
#define ARGUMENTS(left, right, behind, spaces, values)                                             \
    {                                                                                              \
        .open = left, .between = ",", .close = right, .before_name = "", .behind_name = behind,    \
        .name_without = NO_WORD, .behind_value = "", .has_spaces = spaces, .is_object = true,      \
        .within = values,                                                                          \
    }

static const MxGrammarValues parameter = UP_TO("</parameter>"), value = UP_TO("</arg_value>"),
                             param = UP_TO("</param>");
const MxGrammarValues calls_coder = TAGGED("<parameter=", ">\n", "\n</parameter>\n", &parameter);
const MxGrammarValues calls_seed = TAGGED("<parameter=", ">", "</parameter>\n", &parameter);
const MxGrammarValues calls_glm =
    TAGGED("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", &value);
const MxGrammarValues calls_minimax =
    TAGGED("<parameter name=\"", "\">", "</parameter>\n", &parameter);
const MxGrammarValues calls_minicpm = TAGGED("<param name=\"", "\">", "</param>", &param);

/* The tag says whether a value is a text. */
static const MxGrammarValues told = {
    .true_word = "true",
    .false_word = "false",
    .null_word = "null",
    .begin = "true\">",
    .end = "",
    .without = "</" DSML "parameter>",
    .other = "false\">",
    .within = &mx_values_json,
};
const MxGrammarValues calls_dsml =
    TAGGED("<" DSML "parameter name=\"", "\" string=\"", "</" DSML "parameter>\n", &told);

static const MxGrammarValues gemma = MARKED("<|\"|>"), function_gemma = MARKED("<escape>");
const MxGrammarValues calls_gemma = ARGUMENTS("{", "}", ":", false, &gemma);
const MxGrammarValues calls_function_gemma = ARGUMENTS("{", "}", ":", false, &function_gemma);
const MxGrammarValues calls_python = ARGUMENTS("(", ")", "=", true, &mx_values_python);
