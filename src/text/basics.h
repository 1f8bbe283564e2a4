/* basics.h — basic types for the stages of tokenizers: characters, JSON with places, patterns,
 * vocabularies, working memory. A part of internal.h, which includes it. */
#ifndef TEXT_BASICS_H
#define TEXT_BASICS_H

#include <mx/text.h>

/* Bytes that somebody else owns. data NULL = nothing. */
typedef struct TextSpan {
    const char *data;
    size_t n;
} TextSpan;

#define TEXT_SPAN(literal) ((TextSpan){literal, sizeof(literal) - 1})

static inline bool text_same(TextSpan a, TextSpan b) {
    return a.n == b.n && !memcmp(a.data, b.data, a.n);
}

/* text_find_span — the first place of a string that is not empty, from `from` on; SIZE_MAX = none.
 */
size_t text_find_span(TextSpan in, size_t from, TextSpan what);

/* ---- characters (unicode.c); text is well-formed UTF-8 */

/* text_char_bytes — how many bytes the character has that starts with this one. */
static inline size_t text_char_bytes(uint8_t first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}
/* text_last_char — the last character; where receives its place. The text is not empty. */
uint32_t text_last_char(TextSpan text, size_t *where);
void text_add_char(MxText *out, uint32_t c);

typedef bool TextIs(uint32_t c);
TextIs text_is_space;       /* White_Space */
TextIs text_is_punctuation; /* P*, and what is none of letter, digit, space in ASCII */
TextIs text_is_numeric;     /* N* */
TextIs text_is_mark;        /* M* */
TextIs text_is_nonspacing;  /* Mn */
TextIs text_is_other;       /* C*, but what is not assigned */
TextIs text_is_word;        /* what \w matches */

unsigned text_class(uint32_t c);               /* of mx_char_class */
uint32_t text_case(uint32_t c, MxCharCase to); /* of one character */

typedef enum TextForm { TEXT_NFC, TEXT_NFD, TEXT_NFKC, TEXT_NFKD } TextForm;
/* text_normal_form — adds the text in a normal form. */
void text_normal_form(MxArena *scratch, TextForm form, TextSpan in, MxText *out);
void text_lower(TextSpan in, MxText *out);
/* text_graphemes — where the grapheme cluster that starts at `at` ends. */
size_t text_grapheme_end(TextSpan text, size_t at);
/* text_add_lossy — bytes as UTF-8: each longest beginning of a sequence that does not go on as it
 * should becomes U+FFFD. */
void text_add_lossy(MxText *out, TextSpan bytes);

/* The alphabet of byte-level tokenizers: a printable character for each byte. Source: GPT-2,
 * encoder.py. */
uint32_t text_of_byte(uint8_t byte);
/* text_byte_of — the byte that a character stands for; -1 = none. */
int text_byte_of(uint32_t c);
/* text_add_byte_level — adds bytes in that alphabet. */
void text_add_byte_level(MxText *out, TextSpan bytes);

/* ---- JSON with places (node.c) */

/* Pairs of texts to be merged (merges.c). */
typedef struct TextMerges {
    TextSpan (*pair)[2]; /* [n] */
    size_t n;
} TextMerges;

/* A value in a JSON file. json NULL = it is missing or null. */
typedef struct TextNode {
    MxArena *arena;
    const MxJson *json;
    const TextMerges *merges; /* of the file's model; NULL = they are in the JSON */
    const char *file, *place; /* "tokenizer.json", "model.merges[3]"; "" = all of it */
    MxError *err;
} TextNode;

/* text_node_parse — the text of a JSON file, whose top is an object. */
bool text_node_parse(MxArena *arena, const char *path, MxBytes bytes, TextNode *out, MxError *err);
TextNode text_node_get(TextNode object, const char *key);
TextNode text_node_at(TextNode array, size_t i);
/* text_node_fail — "FILE: PLACE: message". */
bool text_node_fail(TextNode node, const char *fmt, ...) MX_PRINTF(2, 3);
/* text_node_wants — fails with what was found. */
bool text_node_wants(TextNode node, const char *what);
/* text_node_members — the object has no members but these, in one string with spaces between. */
bool text_node_members(TextNode object, const char *members);
/* Members of an object. What is missing or null leaves *out alone, or is an error where `needed`.
 */
bool text_node_flag(TextNode object, const char *key, bool *out);
bool text_node_int(TextNode object, const char *key, bool needed, int64_t low, int64_t *out);
bool text_node_span(TextNode object, const char *key, bool needed, TextSpan *out);
bool text_node_list(TextNode object, const char *key, bool needed, TextNode *out);

/* ---- steps: rows of tables that "type" names */

/* What all tables begin a row with. */
typedef struct TextKind {
    const char *name, *members; /* that its object may have besides "type" */
    /* Makes settings of an object; NULL = there are none. */
    bool (*read)(TextNode object, const void **settings);
} TextKind;

typedef struct TextStep {
    const TextKind *kind;
    const void *settings;
} TextStep;

typedef struct TextSteps {
    TextStep *item;
    int n;
} TextSteps;

typedef struct TextTable {
    const void *rows;
    size_t row_bytes;
    int n;
    const char *what;     /* "normalizer" */
    const char *sequence; /* the member of a "Sequence" that holds its steps */
} TextTable;

/* text_steps_read — what a value describes: one step, or a sequence of them, flat; nothing if it is
 * missing. */
bool text_steps_read(TextNode node, const TextTable *table, TextSteps *out);
void text_steps_add(MxArena *arena, TextSteps *steps, TextStep step);
/* text_kind_read — one object that is a row of a table. */
bool text_kind_read(TextNode node, const TextTable *table, TextStep *out);

/* ---- patterns (pattern.c): a string, or a regular expression in Oniguruma's syntax */

typedef struct TextPattern {
    TextSpan string; /* data NULL = it is a regular expression */
    const MxRegex *regex;
} TextPattern;

/* text_pattern_read — {"String": "…"} or {"Regex": "…"}. */
bool text_pattern_read(TextNode node, TextPattern *out);
/* text_regex_new — of Oniguruma's syntax; NULL after an error. */
const MxRegex *text_regex_new(MxArena *arena, const char *pattern, const char **why);

/* ---- vocabularies (vocab.c) */

enum { TEXT_MOST_ID = (1 << 24) - 1 }; /* ids are indices of arrays */

typedef struct TextVocab {
    MxArena *arena;
    TextSpan *text; /* [n] data NULL = no token has this id */
    int32_t n, cap_ids;
    int32_t *slots; /* [n_slots] ids, -1 = free */
    size_t n_slots, count;
} TextVocab;

void text_vocab_init(TextVocab *vocab, MxArena *arena, size_t expected);
/* text_vocab_add — borrows the bytes; false if the id or the text is there already. */
bool text_vocab_add(TextVocab *vocab, TextSpan text, int32_t id);
int32_t text_vocab_find(const TextVocab *vocab, TextSpan text); /* -1 = none */

/* Pairs of 32-bit numbers to an index, for what has to be fast. */
typedef struct TextPairs {
    struct TextPairSlot {
        uint32_t a, b;
        uint32_t value;
        bool is_used;
    } * slots;
    size_t n_slots;
} TextPairs;

void text_pairs_init(TextPairs *pairs, MxArena *arena, size_t most);
void text_pairs_set(TextPairs *pairs, uint32_t a, uint32_t b, uint32_t value);
/* text_pairs_get — UINT32_MAX = none. */
uint32_t text_pairs_get(const TextPairs *pairs, uint32_t a, uint32_t b);

/* Where words may be cut without changing what tokens they have: between two characters that are
 * tokens of their own and that no token has side by side. */
typedef struct TextSeams TextSeams;
/* text_seams_new — n_real: ids from here on are no tokens. */
TextSeams *text_seams_new(MxArena *arena, const TextVocab *vocab, int32_t n_real);
/* text_seams_next — the first such place behind `from`, or the end. */
size_t text_seams_next(const TextSeams *seams, TextSpan word, size_t from);

/* ---- work: what encoding one text needs; one for each thread */

typedef struct TextIds {
    MxArena *arena;
    int32_t *ids;
    int64_t n, cap;
} TextIds;

void text_ids_add(TextIds *ids, int32_t id);

typedef struct TextWork {
    MxArena arena; /* lives as long as the tokenizer */
    const MxTokenizer *tokenizer;
    MxText *normal;    /* [normalizers + 1] what each made */
    MxFinder **finder; /* [normalizers + splitters] of those that have a pattern */
    MxText *split;     /* [splitters] what each rewrote */
    struct TextCache *cache;
    TextIds *out;
    MxWhere where;   /* the text comes from */
    bool lost_start; /* normalizers left the first character out */
    MxError *err;
    void *model;                         /* of its own */
    struct TextWork *next, *next_of_all; /* of those that rest */
} TextWork;

/* text_work_init — room, in its arena, for what a tokenizer's steps make. */
void text_work_init(TextWork *work, const MxTokenizer *tokenizer);

struct TextCache *text_cache_new(MxArena *arena); /* cache.c */

#endif
