/* tokenizer.c — tokenizers as rows of a table; a row brings its own open, encode and decode. Here
 * is the byte tokenizer; those that read files get a file each. */
#include <mx/text.h>

typedef struct TokenizerKind {
    const char *type;
    bool (*open)(MxArena *arena, const char *path, MxTokenizer *out, MxError *err);
    MxTokens (*encode)(MxArena *arena, const MxTokenizer *tokenizer, const char *text, size_t n);
    /* Adds the text of one id that is neither bos nor eos. */
    void (*decode)(const MxTokenizer *tokenizer, int32_t id, MxText *out);
    const char *doc;
} TokenizerKind;

struct MxTokenizer {
    const TokenizerKind *kind;
    int32_t vocab, bos, eos;
};

/* ---- bytes ---- */

enum { N_BYTES = 256, BYTE_BOS = N_BYTES, BYTE_EOS, BYTE_VOCAB };

static bool byte_open(MxArena *arena, const char *path, MxTokenizer *out, MxError *err) {
    (void)arena, (void)path, (void)err;
    *out = (MxTokenizer){.vocab = BYTE_VOCAB, .bos = BYTE_BOS, .eos = BYTE_EOS};
    return true;
}

static MxTokens byte_encode(MxArena *arena, const MxTokenizer *tokenizer, const char *text,
                            size_t n) {
    (void)tokenizer;
    MxTokens tokens = {.ids = mx_new_n(arena, int32_t, n), .n = (int64_t)n};
    for (size_t i = 0; i < n; i++) tokens.ids[i] = (uint8_t)text[i];
    return tokens;
}

static void byte_decode(const MxTokenizer *tokenizer, int32_t id, MxText *out) {
    (void)tokenizer;
    char byte = (char)(uint8_t)id;
    mx_text_addn(out, &byte, 1);
}

/* ---- all ---- */

static const TokenizerKind kinds[] = {
    {
        .type = "byte",
        .open = byte_open,
        .encode = byte_encode,
        .decode = byte_decode,
        .doc = "every byte is a token; bos 256, eos 257",
    },
};

bool mx_tokenizer_open(MxArena *arena, const char *type, const char *path, MxTokenizer **out,
                       MxError *err) {
    const char *names[MX_COUNT(kinds)];
    for (int i = 0; i < MX_COUNT(kinds); i++) {
        names[i] = kinds[i].type;
        if (strcmp(kinds[i].type, type)) continue;
        *out = mx_new(arena, MxTokenizer);
        if (!kinds[i].open(arena, path, *out, err)) return false;
        (*out)->kind = &kinds[i];
        return true;
    }
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "unrecognized tokenizer type \"%s\"", type);
    const char *nearest = mx_nearest(type, names, MX_COUNT(kinds));
    mx_note(err, "hint: %s \"%s\"", nearest ? "did you mean" : "there is",
            nearest ? nearest : "byte");
    return false;
}

const char *mx_tokenizer_type(const MxTokenizer *tokenizer) {
    return tokenizer->kind->type;
}
int32_t mx_tokenizer_vocab(const MxTokenizer *tokenizer) {
    return tokenizer->vocab;
}
int32_t mx_tokenizer_bos(const MxTokenizer *tokenizer) {
    return tokenizer->bos;
}
int32_t mx_tokenizer_eos(const MxTokenizer *tokenizer) {
    return tokenizer->eos;
}

MxTokens mx_tokenizer_encode(MxArena *arena, const MxTokenizer *tokenizer, const char *text,
                             size_t n) {
    return tokenizer->kind->encode(arena, tokenizer, text, n);
}

char *mx_tokenizer_decode(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids,
                          int64_t n) {
    MxText text;
    mx_text_init(&text, arena);
    for (int64_t i = 0; i < n; i++) {
        bool is_text = ids[i] >= 0 && ids[i] < tokenizer->vocab && ids[i] != tokenizer->bos &&
                       ids[i] != tokenizer->eos;
        if (is_text) tokenizer->kind->decode(tokenizer, ids[i], &text);
    }
    return text.data;
}
