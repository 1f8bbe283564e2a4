/* guide.h — texts of a grammar, token by token: which tokens may come next, so that whatever is
 * chosen of them, the text becomes one of the grammar's. A grammar is of JSON schemas, or of other
 * text around them. Models are not known here. */
#ifndef MX_GUIDE_H
#define MX_GUIDE_H

#include <mx/text.h>

/* ---- tokens */

/* The bytes of each token, and which tokens end texts. */
typedef struct MxVocabulary MxVocabulary;

/* mx_vocabulary_new — of a tokenizer. Special tokens are no text and never come, but for marks.
 *   ends   [n_ends] tokens that end a text; they may come where it may end
 *   marks  [n_marks] special tokens that a grammar may ask for
 * mx_vocabulary_spell — a text in which those of the marks' texts are what stands for them in
 * grammars: nothing else is the same as a mark. */
MxVocabulary *mx_vocabulary_new(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ends,
                                int n_ends, const int32_t *marks, int n_marks);
const char *mx_vocabulary_spell(MxArena *arena, const MxVocabulary *vocabulary, const char *text);

/* ---- grammars */

/* A network of states: bytes lead from one to another, or a rule, whose states come between. Paths
 * are added between two states, which makes sequences, choices and loops. */
typedef struct MxGrammar MxGrammar;

/* How values are written, each kind of them. NULL: as in JSON, or nothing. */
typedef struct MxGrammarValues {
    const char *true_word, *false_word, *null_word;
    const char *quotes; /* any of which stands around texts, whose others are escaped … */
    const char
        *escapes; /* … by a backslash and one of these letters; NULL: texts are as they are … */
    const char *begin;                     /* … behind this … */
    const char *end;                       /* … and before this, … */
    const char *without;                   /* … which they do not have in them */
    const char *other;                     /* before what is no text */
    const char *open, *between, *close;    /* around and between an object's members */
    const char *before_name, *behind_name; /* of a name as it is; NULL: names are texts */
    const char *name_without;              /* characters that such a name does not have */
    const char *behind_value;              /* of a member */
    bool has_spaces;                       /* between parts of objects and lists, if one likes */
    bool is_object;                        /* of objects alone */
    const struct MxGrammarValues
        *within; /* lists and objects; of objects alone, values in them; NULL: as this one */
} MxGrammarValues;

/* JSON (RFC 8259); Python's literals, as far as JSON has such values. */
extern const MxGrammarValues mx_values_json, mx_values_python;

/* mx_grammar_new — states MX_GRAMMAR_START and MX_GRAMMAR_END and no path between them.
 * mx_grammar_state — one more state. mx_grammar_text — a path of a text of bytes;
 * mx_grammar_bytes — a path of one byte, from low to high; mx_grammar_nothing — of none.
 * mx_grammar_spaces — up to so many spaces and line ends; returns the state behind.
 * mx_grammar_other — any bytes, of which none begins one of [n] texts; it may end everywhere.
 * mx_grammar_schema — the values of a JSON schema, in UTF-8; which of them is said in
 * docs/SERVING.md.
 *   name    of the schema, for messages
 *   values  how they are written; lives as long as the grammar
 * Errors (exit 65): no schema, words of schemas that are not available, too large; the place in the
 * schema is named. mx_grammar_finish — no more is added. Errors: no text is of the grammar.
 * Source: JSON Schema 2020-12, core and validation; RFC 8259. Test: tests/guide. */
enum { MX_GRAMMAR_START, MX_GRAMMAR_END };
MxGrammar *mx_grammar_new(MxArena *arena);
int32_t mx_grammar_state(MxGrammar *grammar);
void mx_grammar_text(MxGrammar *grammar, int32_t from, const char *text, int32_t to);
void mx_grammar_bytes(MxGrammar *grammar, int32_t from, uint8_t low, uint8_t high, int32_t to);
void mx_grammar_nothing(MxGrammar *grammar, int32_t from, int32_t to);
int32_t mx_grammar_spaces(MxGrammar *grammar, int32_t from, int most);
void mx_grammar_other(MxGrammar *grammar, int32_t from, const char *const *texts, int n,
                      int32_t to);
bool mx_grammar_schema(MxGrammar *grammar, int32_t from, const MxJson *schema, const char *name,
                       const MxGrammarValues *values, int32_t to, MxError *err);
bool mx_grammar_finish(MxGrammar *grammar, const char *name, MxError *err);

/* mx_schema_allows — whether a value is one of a schema, which is a part of another one; also where
 * that cannot be told, such as of formats that are not known. */
bool mx_schema_allows(const MxJson *root, const MxJson *schema, const MxJson *value);

/* mx_grammar_of_schema — the values of a schema alone, with a space before them at most; an object
 * that a schema does not speak of is {"type": "object"}. Errors: as above. */
bool mx_grammar_of_schema(MxArena *arena, const MxJson *schema, const char *name, MxGrammar **out,
                          MxError *err);

/* ---- texts in the making */

/* A grammar over a vocabulary, with what was found out of it so far; threads may share it. */
typedef struct MxGuide MxGuide;
/* A text in the making. */
typedef struct MxGuided {
    MxGuide *guide;
    MxText bytes;
    int32_t node;   /* where it is in the guide … */
    uint32_t epoch; /* … as long as that has not forgotten */
} MxGuided;

/* mx_guide_new — grammar and vocabulary must live as long. mx_guided_init — an empty text.
 * mx_guided_limit — sets logits [vocab] of tokens that cannot come next to -INFINITY; false = none
 * can. mx_guided_accept — a token that came; returns whether the text is complete: nothing but
 * spaces could follow. mx_guided_add — n bytes more, false = they cannot come, and the text is as
 * it was. Memory is bounded. Test: tests/guide. */
MxGuide *mx_guide_new(MxArena *arena, const MxGrammar *grammar, const MxVocabulary *vocabulary);
void mx_guided_init(MxGuided *text, MxArena *arena, MxGuide *guide);
bool mx_guided_limit(MxGuided *text, float *logits, int64_t vocab);
bool mx_guided_accept(MxGuided *text, int32_t id);
bool mx_guided_add(MxGuided *text, const char *bytes, size_t n);

#endif
