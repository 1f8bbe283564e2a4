/* chat.h — chat templates and conversations: messages to the text that a model was trained on, its
 * tokens, and which of them an assistant says. Templates are those of Hugging Face's transformers
 * (Jinja); docs/CHAT.md says what of Jinja there is. */
#ifndef MX_CHAT_H
#define MX_CHAT_H

#include <mx/text.h>

/* ---- templates */

typedef struct MxTemplate MxTemplate;

/* mx_template_parse — n bytes of Jinja, as transformers sets it up: trim_blocks, lstrip_blocks,
 * loop controls, {% generation %}, an immutable sandbox. `name` stands before the line in messages;
 * it and the arena are kept. Once parsed a template does not change: threads may share it. Errors:
 * what is no Jinja, and what is not built: include, import and extends, the filters pprint, random,
 * urlize, wordwrap, xmlattr and filesizeformat (exit 65). */
bool mx_template_parse(MxArena *arena, const char *text, size_t n, const char *name,
                       MxTemplate **out, MxError *err);
/* mx_template_has_generation — whether it marks what an assistant says. mx_template_has_clock —
 * whether it may ask for the date. */
bool mx_template_has_generation(const MxTemplate *template);
bool mx_template_has_clock(const MxTemplate *template);

/* Bytes start … end - 1 of a text. */
typedef struct MxSpan {
    size_t start, end;
} MxSpan;

typedef struct MxRendered {
    char *text; /* [n], terminated */
    size_t n;
    MxSpan *spans; /* [n_spans] what stood in {% generation %}, in order */
    int n_spans;
} MxRendered;

/* mx_template_render — the text of a template.
 *   variables  an object: what its names stand for
 * strftime_now() tells the local time, or that of SOURCE_DATE_EPOCH in the environment.
 * Errors: what the template raises and what goes wrong in it, with its line and Jinja's message;
 * more than 20 million steps, 400 levels or 256 MiB (exit 65).
 * Source: jinja2 3.1; transformers 5, utils/chat_template_utils.py. Test:
 * tests/chat/test_features.c. */
bool mx_template_render(MxArena *arena, const MxTemplate *template, const MxJson *variables,
                        MxRendered *out, MxError *err);

#endif
