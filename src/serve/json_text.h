/* json_text.h — which bytes can continue the text of a JSON object (json_text.c). */
#ifndef SERVE_JSON_TEXT_H
#define SERVE_JSON_TEXT_H

#include <mx/base.h>

/* The grammar; how far a text is in it. */
typedef struct JsonGrammar JsonGrammar;
typedef struct JsonText {
    uint8_t state, depth;
    uint8_t n_spaces; /* in a row, outside of texts */
    bool is_key;      /* the text that has begun */
    uint64_t lists;   /* bit d: what is open at depth d is a list */
} JsonText;

enum { JSON_TEXT_DEEPEST = 64, JSON_TEXT_MOST_SPACES = 64 };

/* json_grammar_new — of an object (RFC 8259) with at most so many levels and so many spaces between
 * two of its parts, and one before it; in UTF-8, without escapes of surrogates, which many parsers
 * refuse if they stand alone. */
const JsonGrammar *json_grammar_new(MxArena *arena);
/* json_text_add — n bytes more; false = no object begins so, and the text is as it was. A new
 * JsonText is all zeros. json_text_may — whether a byte could be the next one; true may turn out
 * wrong. json_text_is_complete — whether the object has ended. json_text_is_plain — whether bytes
 * are whole characters of a text, wherever one is open; json_text_in_plain — whether one is. Test:
 * tests/serve/test_json_text.c. */
bool json_text_add(const JsonGrammar *grammar, JsonText *text, const char *bytes, size_t n);
bool json_text_may(const JsonGrammar *grammar, const JsonText *text, char byte);
bool json_text_is_complete(const JsonText *text);
bool json_text_is_plain(const JsonGrammar *grammar, const char *bytes, size_t n);
bool json_text_in_plain(const JsonText *text);

#endif
