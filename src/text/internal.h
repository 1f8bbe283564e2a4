/* internal.h — shared by the files of the room. A tokenizer is a pipeline: added tokens are cut out
 * of the text, normalizers rewrite the text between them, pre-tokenizers split it into words, a
 * model converts each word to ids, a post-processor adds ids around them. Decoders turn the strings
 * of ids into text. All of these are rows of tables; every file format is read into them. */
#ifndef TEXT_INTERNAL_H
#define TEXT_INTERNAL_H

#include "basics.h"

/* ---- normalizers (normalize.c, charsmap.c) */

typedef struct TextNormalizer {
    TextKind kind;
    bool (*run)(TextWork *work, int step, TextSpan in, MxText *out);
} TextNormalizer;

/* A search for one match after the other: text is given; found, and end, are the last match's. */
typedef struct TextPlace {
    TextSpan text;
    size_t start, end;
    bool found;
} TextPlace;

/* text_find_match — the next match, which may be empty, but not where the last one ended. finder:
 * of the regular expression. Source: the crate onig, find.rs (FindMatches). */
MxMatch text_find_match(MxFinder *finder, const TextPattern *pattern, TextPlace *place);
/* text_match — the same with the finder in a slot of work->finder. Errors: the pattern backtracks
 * without end. */
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
/* text_merges_read — the merges of a tokenizer.json and, in the arena, the rest of the file, where
 * an empty list stands for them. out: in the arena and the file. Returns false if they are not
 * plain: then the whole file is to be read as JSON. Test: tests/text/test_json.c. */
bool text_merges_read(MxArena *arena, MxBytes file, TextMerges *out, MxBytes *rest);
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
    bool like_pieces; /* as sentencepiece: sums are float32, what is unknown stays so */
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
/* text_added_put — of two with the same text the first is found, but of two with the same id too
 * the later one counts. */
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
    int32_t vocab, bos, eos, pad, unk;
    TextAddedSet raw, normal; /* looked for before and behind normalizers … */
    TextAddedSet unsought;    /* … or only in rendered texts; the others are empty then */
    const bool *is_special;   /* [vocab] */
    const TextSpan *text;     /* [vocab] data NULL = there is no such token */
    TextSteps normalizers, splitters, decoders;
    TextStep model;
    TextAround around;
    const char *joint;     /* between tokens where there is no decoder */
    bool takes_any_bytes;  /* not only UTF-8 */
    struct TextPool *pool; /* of works that rest */
};

/* text_tokenizer_new — with nothing in it yet. */
MxTokenizer *text_tokenizer_new(MxArena *arena);
/* text_bytes_layout — a tokenizer.json of byte-level BPE without its tokens: text is split as Llama
 * 3 does. text_bytes_pipeline — its steps; pattern NULL = split so, else by this one, which errors
 * say to be in `file`. */
extern const char text_bytes_layout[];
bool text_bytes_pipeline(MxArena *arena, const char *file, const char *pattern, MxTokenizer *out,
                         MxError *err);
/* text_ranks_pipeline — a tokenizer that merges by id and splits by a pattern as above, and is not
 * finished yet. Errors: a byte has no id. */
bool text_ranks_pipeline(MxArena *arena, const char *file, const char *pattern,
                         const TextVocab *vocab, MxTokenizer *out, MxError *err);

/* text_finish — vocab, text and is_special from the model's vocabulary and the added tokens. */
void text_finish(MxArena *arena, MxTokenizer *tokenizer);

/* How formats of files become tokenizers. */
typedef bool TextOpen(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                      MxError *err);
TextOpen text_open_json;   /* json.c: tokenizer.json, and what lies beside it */
TextOpen text_open_pieces; /* pieces.c: a model of sentencepiece */
TextOpen text_open_ranks;  /* ranks.c: a file of tiktoken */
TextOpen text_open_tekken; /* tekken.c: Mistral's tekken.json */

#endif
