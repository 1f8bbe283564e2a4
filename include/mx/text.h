/* text.h — text to token ids and back. A tokenizer is read from published files (tokenizer.json,
 * sentencepiece models, tiktoken files, tekken.json), or uses bytes as tokens. */
#ifndef MX_TEXT_H
#define MX_TEXT_H

#include <mx/base.h>

typedef struct MxTokenizer MxTokenizer;

/* ---- characters, as in Python's string methods */

/* Bits of mx_char_class. */
enum {
    MX_CHAR_SPACE = 1 << 0,
    MX_CHAR_LETTER = 1 << 1,
    MX_CHAR_UPPER = 1 << 2, /* upper case */
    MX_CHAR_LOWER = 1 << 3,
    MX_CHAR_TITLE = 1 << 4,
    MX_CHAR_DECIMAL = 1 << 5, /* 0 to 9 of any script */
    MX_CHAR_DIGIT = 1 << 6,   /* also superscripts and subscripts */
    MX_CHAR_NUMERIC = 1 << 7, /* also fractions, Roman numerals … */
    MX_CHAR_WORD = 1 << 8,    /* what \w matches */
    MX_CHAR_PRINTABLE = 1 << 9,
};
unsigned mx_char_class(uint32_t c);
/* mx_char_next — the character at `at` of well-formed UTF-8; advances `at`. */
static inline uint32_t mx_char_next(const char *text, size_t *at) {
    const uint8_t *s = (const uint8_t *)text + *at;
    int bytes = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    *at += (size_t)bytes;
    if (bytes == 1) return s[0];
    uint32_t c = s[0] & (0xffu >> (bytes + 1));
    for (int i = 1; i < bytes; i++) c = c << 6 | (s[i] & 0x3fu);
    return c;
}
/* mx_char_start — the start of the character that contains the byte at `at`. */
static inline size_t mx_char_start(const char *text, size_t at) {
    while (at && ((uint8_t)text[at] & 0xc0) == 0x80) at--;
    return at;
}
/* mx_char_add — adds a character in UTF-8; mx_char_add_case — adds it in another case, which may be
 * several characters. */
typedef enum MxCharCase { MX_CASE_UPPER, MX_CASE_LOWER, MX_CASE_TITLE } MxCharCase;
void mx_char_add(MxText *out, uint32_t c);
void mx_char_add_case(MxText *out, uint32_t c, MxCharCase to);

/* ---- tokenizers */

/* Token ids, in the arena of the function that made them. */
typedef struct MxTokens {
    int32_t *ids; /* [n] */
    int64_t n;
} MxTokens;

/* mx_tokenizer_open — a tokenizer by type name. Once open it does not change: threads may share it.
 *   path  "byte"           "" or NULL: ids 0..255 are bytes, bos 256, eos 257
 *         "huggingface"    tokenizer.json or a folder with it; tokenizer_config.json and others
 *                          beside it tell which tokens are bos and eos
 *         "sentencepiece"  a model file, or a folder with tokenizer.model
 *         "tiktoken"       a file of ranks; its split pattern and special tokens are Llama 3's
 *         "tekken"         tekken.json of Mistral, or a folder with it
 *         relative to the working folder
 * Errors: unrecognized type, with the nearest name (exit 2); a file is missing, damaged or has
 * what is not built: file and place are named (exit 65).
 * Source: MaxText src/maxtext/input_pipeline/tokenizer.py; tokenizers 0.23; sentencepiece 0.2. */
bool mx_tokenizer_open(MxArena *arena, const char *type, const char *path, MxTokenizer **out,
                       MxError *err);
/* mx_tokenizer_find — where the tokenizer is that a path names: there, or below the program's share
 * folder; "" if path is NULL or "". */
const char *mx_tokenizer_find(MxArena *arena, const char *path);
/* mx_tokenizer_guess — the type of the tokenizer in a file or folder, by names only; NULL = none.
 */
const char *mx_tokenizer_guess(const char *path);
/* mx_tokenizer_file — the file of the tokenizer in a file or folder, by names only; the path where
 * there is none. */
const char *mx_tokenizer_file(MxArena *arena, const char *path);
const char *mx_tokenizer_type(const MxTokenizer *tokenizer);
/* Ids are below mx_tokenizer_vocab; an id that the tokenizer lacks is -1. */
int32_t mx_tokenizer_vocab(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_bos(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_eos(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_pad(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_unk(const MxTokenizer *tokenizer); /* of transformers: "unk_token" */
/* mx_tokenizer_canon — (*out)[id], for all ids, the number of the class of tokens that count as the
 * same: their texts differ only in case, accents, forms of characters and surrounding spaces.
 * Numbers ascend from 0 in the order of ids. Source: Engram (2026) 2.2; MaxText layers/engram.py
 * (CompressedTokenizer) @e591f30c. */
bool mx_tokenizer_canon(MxArena *arena, const MxTokenizer *tokenizer, const int32_t **out,
                        MxError *err);
/* mx_tokenizer_identify — the hash of mx_tokenizer_hash, without opening the tokenizer. Errors:
 * those of files in mx_tokenizer_open. */
bool mx_tokenizer_identify(const char *type, const char *path, uint64_t *out, MxError *err);
/* mx_tokenizer_hash — a hash of the contents of its files; 0 = it has none. Two tokenizers with the
 * same hash make the same tokens. */
uint64_t mx_tokenizer_hash(const MxTokenizer *tokenizer);

/* A text to encode. */
typedef struct MxEncoding {
    const char *text; /* [n] UTF-8 */
    size_t n;
    bool special;     /* add the special tokens around a text (bos, eos, [CLS] …) */
    MxWhere where;    /* source of the text, for messages */
    bool is_rendered; /* by a chat template: special tokens in it are meant, also where the files of
                         the tokenizer do not say that texts have them */
} MxEncoding;

/* mx_tokenizer_encode — the ids of a text. Special tokens in it are recognized if the tokenizer's
 * files say so. Errors: it is not UTF-8 (except for "byte", which accepts any bytes); a split
 * pattern that backtracks excessively (exit 65). */
bool mx_tokenizer_encode(MxArena *arena, const MxTokenizer *tokenizer, MxEncoding what,
                         MxTokens *out, MxError *err);
/* mx_tokenizer_decode — the text of n ids, terminated; ids that are not tokens give no text, nor do
 * special tokens with skip_special. Bytes that are not UTF-8 become U+FFFD, except for "byte",
 * where they are unchanged. n_bytes may be NULL. */
char *mx_tokenizer_decode(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids,
                          int64_t n, bool skip_special, size_t *n_bytes);

/* mx_tokenizer_bytes — the bytes that a token stands for, whether they are characters or parts of
 * some; NULL = its text depends on what stands beside it, or is none. */
const char *mx_tokenizer_bytes(MxArena *arena, const MxTokenizer *tokenizer, int32_t id,
                               size_t *n_bytes);

/* Text of tokens in a stream. Returned text never ends in a part of a character, unless the tokens
 * do. */
typedef struct MxTextStream MxTextStream;
MxTextStream *mx_text_stream_new(MxArena *arena, const MxTokenizer *tokenizer, bool skip_special);
/* mx_text_stream_next — the text that a token completes, possibly empty; valid until the next call.
 */
const char *mx_text_stream_next(MxTextStream *stream, int32_t id, size_t *n_bytes);
/* mx_text_stream_end — the remaining text. */
const char *mx_text_stream_end(MxTextStream *stream, size_t *n_bytes);

/* ---- training a tokenizer */

/* A trainer of a byte-level BPE: texts are added, then its files are written. */
typedef struct MxBpe MxBpe;

/* The special tokens that every trained tokenizer has, ids 0, 1, …: those of ChatML. */
#define MX_BPE_PAD "<|endoftext|>"
#define MX_BPE_EOS "<|im_end|>"

enum { MX_BPE_LEAST = 3 + 256, MX_BPE_MOST = (1 << 24) - 1 };

/* Statistics of the training. */
typedef struct MxBpeMade {
    int64_t n_texts, n_bytes, n_words; /* number read; n_words: different words */
    int64_t n_lost; /* words beyond 16 million different ones, which are not counted */
    int32_t vocab;  /* number of tokens, including special ones and bytes */
} MxBpeMade;

/* mx_bpe_new — without texts. Texts are split as Llama 3 splits them; what MxBpe makes is
 * what the tokenizers library makes of the same texts (BpeTrainer, min_frequency 2).
 * mx_bpe_add — one more text. Errors: as mx_tokenizer_encode.
 * mx_bpe_write — tokenizer.json and tokenizer_config.json in a folder, which is made: at most
 *   `vocab` tokens (MX_BPE_LEAST to MX_BPE_MOST), fewer where no two neighbours occur
 *   twice. Errors: the folder has another tokenizer (exit 65); files.
 * Test: tests/text/test_train.c. */
MxBpe *mx_bpe_new(MxArena *arena);
bool mx_bpe_add(MxBpe *trainer, MxEncoding what, MxError *err);
bool mx_bpe_write(const MxBpe *trainer, int64_t vocab, const char *dir, MxBpeMade *out,
                  MxError *err);

#endif
