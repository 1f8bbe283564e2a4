/* chat.h — chat templates and conversations: messages to the text that a model was trained on, its
 * tokens, and which of them the assistant says. Templates are those of Hugging Face's transformers
 * (Jinja); docs/CHAT.md lists the supported parts of Jinja. */
#ifndef MX_CHAT_H
#define MX_CHAT_H

#include <mx/text.h>

/* ---- templates */

typedef struct MxTemplate MxTemplate;

/* mx_template_parse — parses n bytes of Jinja, with the settings of transformers: trim_blocks,
 * lstrip_blocks, loop controls, {% generation %}, an immutable sandbox. `name` precedes the line in
 * messages; it and the arena are kept. A parsed template does not change, so threads may share it.
 * Errors: invalid Jinja, and unsupported features: include, import and extends, the filters pprint,
 * random, urlize, wordwrap, xmlattr and filesizeformat (exit 65). */
bool mx_template_parse(MxArena *arena, const char *text, size_t n, const char *name,
                       MxTemplate **out, MxError *err);
/* mx_template_has_generation — whether it marks what the assistant says. mx_template_has_clock —
 * whether it may use the date. mx_template_reads — whether it reads a variable of a name. */
bool mx_template_has_generation(const MxTemplate *template);
bool mx_template_reads(const MxTemplate *template, const char *name);
bool mx_template_has_clock(const MxTemplate *template);

/* Bytes start … end - 1 of a text. */
typedef struct MxSpan {
    size_t start, end;
} MxSpan;

typedef struct MxRendered {
    char *text; /* [n], terminated */
    size_t n;
    MxSpan *spans; /* [n_spans] the contents of {% generation %}, in order */
    int n_spans;
} MxRendered;

/* mx_template_render — renders a template.
 *   variables  an object with the values of its variables
 * strftime_now() returns the local time, or that of SOURCE_DATE_EPOCH in the environment. Errors:
 * exceptions that the template raises and errors in it, with its line and Jinja's message; more
 * than 20 million steps, 400 levels or 256 MiB (exit 65). Source: jinja2 3.1; transformers 5,
 * utils/chat_template_utils.py. Test: tests/chat/test_features.c. */
bool mx_template_render(MxArena *arena, const MxTemplate *template, const MxJson *variables,
                        MxRendered *out, MxError *err);

/* ---- conversations */

/* A template with the special tokens that it may use, or two templates: one for conversations with
 * tools. */
typedef struct MxChat MxChat;

/* Where a chat template is. */
typedef struct MxChatFrom {
    /* One that is built in (mx_chat_builtin), a file of Jinja, or a file of JSON with the member
     * "chat_template"; NULL or "" = that of the folder: chat_template.jinja, chat_template.json, or
     * what tokenizer_config.json has. */
    const char *named;
    const char *text; /* or its Jinja, which a setting holds; NULL = none */
    MxWhere where;    /* the setting of either, for messages */
    const char *dir;  /* of a tokenizer, or a file in it: it names special tokens; NULL = none */
    bool may_lack;    /* that the folder has none is no error */
} MxChatFrom;

/* mx_chat_open — a chat template; NULL = there is none, and that may be. Errors: there is none
 * (exit 2); a file is damaged or no template (exit 65). */
bool mx_chat_open(MxArena *arena, MxChatFrom from, MxChat **out, MxError *err);
/* mx_chat_builtin — the name of built-in template i: "chatml", "llama3", "gemma", "mistral"; NULL
 * after the last. All of them mark what the assistant says. */
const char *mx_chat_builtin(int i);
/* mx_chat_builtin_text — its Jinja. */
const char *mx_chat_builtin_text(int i);
/* mx_chat_has_clock — whether its output may depend on the date. mx_chat_reads — or on a variable.
 */
bool mx_chat_has_clock(const MxChat *chat);
bool mx_chat_reads(const MxChat *chat, const char *name);
/* mx_chat_hash — a hash of the templates' text and the special tokens. */
uint64_t mx_chat_hash(const MxChat *chat);

/* A conversation as tokens. */
typedef struct MxConversation {
    MxRendered rendered; /* spans: what the assistant says */
    MxTokens tokens;
    uint8_t *mask; /* [tokens.n] 1 = the assistant says it */
} MxConversation;

/* mx_chat_render — renders a conversation.
 *   request  an object with "messages", perhaps "tools", "add_generation_prompt",
 *            "continue_final_message", and whatever else the template knows by name. Members of
 *            messages that are null count as missing.
 *   where    it comes from, for messages
 * Spans are what {% generation %} marks. Errors: no messages; those of mx_template_render (exit
 * 65). Source: transformers 5, apply_chat_template. Test: tests/chat/test_cases.c. */
bool mx_chat_render(MxArena *arena, const MxChat *chat, const MxJson *request, MxWhere where,
                    MxRendered *out, MxError *err);
/* mx_chat_try — the same of a request that is a text of JSON; NULL = the template cannot. */
const char *mx_chat_try(MxArena *arena, const MxChat *chat, const char *request);
/* mx_chat_encode — the same as tokens, with a mask of those that the assistant says. A token
 * belongs to the assistant if one of its characters does. It calls mx_chat_tell, which gives the
 * text with spans of the assistant's parts, and then mx_chat_tokens on out->rendered; callers of
 * the two may change the text between. Without {% generation %} the span of an assistant's message
 * is what rendering the messages up to it adds to rendering those before it with a generation
 * prompt. If a template renders earlier messages differently from the last one, the span is from
 * the end of the prompt to the end of the message's text and of its turn. Errors: also a message
 * that cannot be found (exit 65). */
bool mx_chat_encode(MxArena *arena, const MxChat *chat, const MxTokenizer *tokenizer,
                    const MxJson *request, MxWhere where, MxConversation *out, MxError *err);
bool mx_chat_tell(MxArena *arena, const MxChat *chat, const MxJson *request, MxWhere where,
                  MxRendered *out, MxError *err);
bool mx_chat_tokens(MxArena *arena, const MxTokenizer *tokenizer, MxWhere where,
                    MxConversation *out, MxError *err);
/* mx_chat_line — {"text": …, "ids": […], "mask": […]}. */
const char *mx_chat_line(MxArena *arena, const MxConversation *conversation);

#endif
