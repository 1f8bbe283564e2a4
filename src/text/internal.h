/* internal.h — what the files of the room share. A tokenizer is a pipeline: added tokens are cut
 * out of the text, normalizers rewrite what is between them, pre-tokenizers cut that into words, a
 * model makes ids of each word, a post-processor puts ids around. Decoders turn the strings of ids
 * into text. All of these are rows of tables; every format of files is read into them. */
#ifndef TEXT_INTERNAL_H
#define TEXT_INTERNAL_H

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

/* text_char — the character at `at`, which moves behind it. */
static inline uint32_t text_char(TextSpan text, size_t *at) {
    const uint8_t *s = (const uint8_t *)text.data + *at;
    int bytes = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    *at += (size_t)bytes;
    if (bytes == 1) return s[0];
    uint32_t c = s[0] & (0xffu >> (bytes + 1));
    for (int i = 1; i < bytes; i++) c = c << 6 | (s[i] & 0x3fu);
    return c;
}
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

/* A value in a JSON file. json NULL = it is missing or null. */
typedef struct TextNode {
    MxArena *arena;
    const MxJson *json;
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
TextSeams *text_seams_new(MxArena *arena, const TextVocab *vocab);
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

struct TextCache *text_cache_new(MxArena *arena); /* cache.c */

/* ---- normalizers (normalize.c, charsmap.c) */

typedef struct TextNormalizer {
    TextKind kind;
    bool (*run)(TextWork *work, int step, TextSpan in, MxText *out);
} TextNormalizer;

/* A search for one match after the other: text is given, end is 0 or the last match's. */
typedef struct TextPlace {
    TextSpan text;
    size_t start, end;
    bool found;
} TextPlace;

/* text_match — the next match; found tells whether there is one. slot: of work->finder. Matches of
 * nothing are passed over. Errors: the pattern backtracks without end. */
bool text_match(TextWork *work, int slot, const TextPattern *pattern, TextPlace *place);

extern const TextTable text_normalizers;
/* text_normalize — all steps; the result lives in the work until the next text. */
bool text_normalize(TextWork *work, TextSpan in, TextSpan *out);

/* A map of strings to strings that sentencepiece compiles: a double array and a pool of texts. */
typedef struct TextCharsmap {
    const uint8_t *units, *pool;
    size_t n_units, pool_bytes;
} TextCharsmap;

/* text_charsmap_open — NULL, or what is wrong. Borrows the bytes. */
const char *text_charsmap_open(TextSpan blob, TextCharsmap *out);
/* text_charsmap_find — what the shortest or longest beginning of a text that the map has becomes,
 * and its bytes; 0 = none. */
size_t text_charsmap_find(const TextCharsmap *map, TextSpan text, bool longest, TextSpan *out);
bool text_precompiled_read(TextNode object, const void **settings);
bool text_precompiled_run(TextWork *work, int step, TextSpan in, MxText *out);

/* text_base64 — the bytes that a text stands for; false = it is none. */
bool text_base64(MxArena *arena, TextSpan in, TextSpan *out);

/* ---- pre-tokenizers (split.c) */

/* A piece of a text on its way to the model. */
typedef struct TextPiece {
    TextSpan text;
    bool is_first; /* it begins where the text begins */
} TextPiece;

typedef struct TextSplitter {
    TextKind kind;
    bool (*run)(TextWork *work, int step, TextPiece piece);
} TextSplitter;

extern const TextTable text_splitters;
/* text_split — hands a piece to step `step`, or, behind the last, to the model. */
bool text_split(TextWork *work, int step, TextPiece piece);
bool text_byte_level_read(TextNode object, const void **settings);
bool text_metaspace_read(TextNode object, const void **settings);

typedef enum TextPrepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } TextPrepend;

typedef struct TextMetaspace {
    TextSpan replacement;
    TextPrepend prepend;
    bool splits;
} TextMetaspace;

/* What becomes of what a pattern matches. */
typedef enum TextBehavior {
    TEXT_REMOVED,
    TEXT_ISOLATED,
    TEXT_WITH_PREVIOUS,
    TEXT_WITH_NEXT,
    TEXT_CONTIGUOUS,
} TextBehavior;

/* Puts pieces together as a behavior says: give it each stretch in order, then end it. */
typedef struct TextCutter {
    TextWork *work;
    int step; /* that gets the pieces */
    TextPiece piece;
    TextBehavior behavior;
    size_t start, end; /* of what waits */
    bool waits, was_match;
} TextCutter;

bool text_cut(TextCutter *cutter, size_t start, size_t end, bool is_match);
bool text_cut_end(TextCutter *cutter);

/* ---- models */

typedef struct TextModel {
    TextKind kind;
    /* Adds the ids of a word, which is not empty. */
    void (*encode)(const void *model, TextWork *work, TextSpan word);
    /* Where it may be cut; NULL = nowhere. */
    const TextSeams *(*seams)(const void *model, size_t word_bytes);
    bool is_cached; /* words come again, and looking them up is faster */
} TextModel;

typedef enum TextModelRow {
    TEXT_BPE,
    TEXT_UNIGRAM,
    TEXT_WORD_PIECE,
    TEXT_WORD_LEVEL,
    TEXT_BYTES,
} TextModelRow;

extern const TextModel text_model_rows[];
extern const TextTable text_models;
bool text_bpe_read(TextNode object, const void **settings);
void text_bpe_encode(const void *model, TextWork *work, TextSpan word);
const TextSeams *text_bpe_seams(const void *model, size_t word_bytes);
bool text_unigram_read(TextNode object, const void **settings);
void text_unigram_encode(const void *model, TextWork *work, TextSpan word);
const TextSeams *text_unigram_seams(const void *model, size_t word_bytes);
/* text_read_vocab, …_unknown — the members "vocab", an object of texts and ids, and "unk_token", -1
 * if there is none. */
bool text_read_vocab(TextNode object, TextVocab *out);
bool text_read_unknown(TextNode object, const TextVocab *vocab, int32_t *out);
/* text_encode_word — adds the ids of a word. */
void text_encode_word(TextWork *work, TextSpan word);
/* text_model_vocab — what every model begins with. */
const TextVocab *text_model_vocab(const TextStep *model);

/* Ids of "<0x00>" … "<0xFF>" for what a vocabulary lacks; -1 = it has none. */
typedef struct TextByteIds {
    int32_t id[256];
} TextByteIds;
const TextByteIds *text_byte_ids(MxArena *arena, const TextVocab *vocab);
/* text_add_bytes — adds the ids of bytes, if the vocabulary has all of them. */
bool text_add_bytes(const TextByteIds *ids, TextSpan bytes, TextIds *out);

/* bpe.c: byte pairs. */
typedef struct TextBpe {
    TextVocab vocab; /* first */
    int32_t n_real;  /* ids from here on stand for characters that are no tokens */
    TextPairs pairs; /* of ids to an index of merges */
    struct TextMerge {
        uint32_t rank; /* the lowest is done first */
        int32_t id;    /* of what they become */
    } * merges;
    uint32_t n_merges;
    const TextByteIds *bytes; /* NULL = no byte fallback */
    TextSpan prefix, suffix;  /* of what continues a word, and ends it */
    int32_t unknown;          /* -1 = what is unknown is left out */
    bool fuses_unknown, ignores_merges;
    const TextSeams *seams; /* NULL = words are never cut */
} TextBpe;

/* text_bpe_derive — merges for all tokens of at least two characters: any two tokens that make one
 * up. ranks [vocab.n] tells how early; UINT32_MAX = nothing is merged to this token. */
void text_bpe_derive(MxArena *arena, TextBpe *bpe, const uint32_t *ranks);

/* unigram.c: the likeliest tokens. */
typedef struct TextUnigram {
    TextVocab vocab;      /* first */
    const double *scores; /* [vocab.n] */
    struct TextTrie *trie;
    double unknown_score;
    int32_t unknown;
    const TextByteIds *bytes;
    bool is_float; /* sums are rounded to float32, as sentencepiece does */
    const TextSeams *seams;
} TextUnigram;

/* text_unigram_index — lets it find tokens. is_piece [vocab.n] = which; NULL = all. */
void text_unigram_index(MxArena *arena, TextUnigram *unigram, const bool *is_piece);

/* ---- post-processors (post.c) */

/* Ids around a text. */
typedef struct TextAround {
    MxTokens before, behind;
} TextAround;

bool text_around_read(TextNode node, TextAround *out);

/* ---- decoders (decode.c) */

typedef struct TextSpans {
    TextSpan *item;
    int64_t n;
} TextSpans;

typedef struct TextDecoder {
    TextKind kind;
    void (*run)(const void *settings, MxArena *arena, TextSpans *tokens);
} TextDecoder;

extern const TextTable text_decoders;
extern const TextDecoder text_pieces_decoder; /* settings: a TextSpm */

/* ---- added tokens (added.c) */

typedef struct TextAdded {
    TextSpan text;
    int32_t id;
    bool is_word, takes_left, takes_right; /* it stands alone; it takes spaces beside it */
    bool is_special;
} TextAdded;

/* Tokens that are looked for in text. */
typedef struct TextAddedSet {
    MxArena *arena;
    TextAdded *item;
    int n;
    TextVocab find;       /* text to index of item */
    size_t *lengths[256]; /* of texts by their first byte, longest first, 0 behind the last */
} TextAddedSet;

void text_added_init(TextAddedSet *set, MxArena *arena);
/* text_added_put — of two with the same text the later one counts. */
void text_added_put(TextAddedSet *set, TextAdded added);

/* A stretch of text: a token, or what lies between two. */
typedef struct TextStretch {
    size_t start, end;
    const TextAdded *added; /* NULL = text */
} TextStretch;

/* A walk over stretches: begins with set and text. */
typedef struct TextAddedScan {
    const TextAddedSet *set;
    TextSpan text;
    size_t at, done;   /* where the search goes on; the end of what was handed out */
    TextStretch token; /* that was found behind text; added NULL = none waits */
} TextAddedScan;

/* text_added_next — the next stretch; false behind the last. None is empty. */
bool text_added_next(TextAddedScan *scan, TextStretch *out);
/* text_added_at — the longest token that begins at a place; NULL = none. */
const TextAdded *text_added_at(const TextAddedSet *set, TextSpan text, size_t at);

/* How a model of sentencepiece rewrites text (pieces.c). */
typedef struct TextSpm {
    TextCharsmap map;
    bool has_map, adds_dummy, removes_spaces, escapes_spaces;
    const TextAddedSet *own; /* symbols that stay as they are */
} TextSpm;

/* ---- tokenizers */

struct MxTokenizer {
    const char *type;
    uint64_t hash;
    int32_t vocab, bos, eos;
    TextAddedSet raw, normal; /* looked for before and behind normalizers … */
    TextAddedSet unsought;    /* … or never */
    const bool *is_special;   /* [vocab] */
    const TextSpan *text;     /* [vocab] data NULL = there is no such token */
    TextSteps normalizers, splitters, decoders;
    TextStep model;
    TextAround around;
    const char *joint;     /* between tokens where there is no decoder */
    bool takes_any_bytes;  /* not only UTF-8 */
    struct TextPool *pool; /* of works that rest */
};

/* text_finish — vocab, text and is_special from the model's vocabulary and the added tokens. */
void text_finish(MxArena *arena, MxTokenizer *tokenizer);

/* How formats of files become tokenizers. */
typedef bool TextOpen(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                      MxError *err);
TextOpen text_open_json;   /* json.c: tokenizer.json, and what lies beside it */
TextOpen text_open_pieces; /* pieces.c: a model of sentencepiece */
TextOpen text_open_ranks;  /* ranks.c: a file of tiktoken */

#endif
