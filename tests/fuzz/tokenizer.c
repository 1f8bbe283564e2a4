/* tokenizer.c — fuzz target for the files of tokenizers: JSON, a model of sentencepiece, ranks of
 * tiktoken or, behind a blank, Mistral's JSON, by its first byte. Bytes are a tokenizer or errors;
 * a tokenizer makes ids of its own of any text, and UTF-8 of any ids, at once and token by token.
 */
#include <mx/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds) {
    if (!holds) abort();
}

static void check_ids(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids, int64_t n) {
    for (int skips = 0; skips < 2; skips++) {
        size_t bytes;
        char *text = mx_tokenizer_decode(arena, tokenizer, ids, n, skips, &bytes);
        need(mx_utf8_valid_bytes(text, bytes) == bytes);
        MxTextStream *stream = mx_text_stream_new(arena, tokenizer, skips);
        for (int64_t i = 0; i < n; i++) {
            const char *part = mx_text_stream_next(stream, ids[i], &bytes);
            need(mx_utf8_valid_bytes(part, bytes) == bytes);
        }
        mx_text_stream_end(stream, NULL);
    }
}

static void check_text(MxArena *arena, const MxTokenizer *tokenizer, const char *text) {
    for (int special = 0; special < 2; special++) {
        MxError err = {0};
        MxTokens tokens = {0};
        MxEncoding what = {
            .text = text, .n = strlen(text), .special = special, .is_rendered = special};
        if (mx_tokenizer_encode(arena, tokenizer, what, &tokens, &err)) {
            for (int64_t i = 0; i < tokens.n; i++)
                need(tokens.ids[i] >= 0 && tokens.ids[i] < mx_tokenizer_vocab(tokenizer));
            check_ids(arena, tokenizer, tokens.ids, tokens.n < 64 ? tokens.n : 64);
        } else {
            need(err.count == 1 && err.exit == MX_EXIT_BAD_INPUT);
        }
        mx_error_release(&err);
    }
}

static void check(MxArena *arena, const MxTokenizer *tokenizer) {
    static const char *const texts[] = {
        "",
        " ",
        "a",
        "Hello  world, don't 123!",
        "  \n\n\t x  ",
        "\xe4\xbd\xa0\xe5\xa5\xbd \xc3\xa9\xcc\x81",
        "<s> [MASK] </s>",
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"};
    int32_t ids[48];
    for (int i = 0; i < MX_COUNT(texts); i++) check_text(arena, tokenizer, texts[i]);
    for (int i = 0; i < MX_COUNT(ids); i++)
        ids[i] = i * 7919 % (mx_tokenizer_vocab(tokenizer) + 2) - 1;
    check_ids(arena, tokenizer, ids, MX_COUNT(ids));
    need(mx_tokenizer_bos(tokenizer) < mx_tokenizer_vocab(tokenizer));
    need(mx_tokenizer_eos(tokenizer) < mx_tokenizer_vocab(tokenizer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { PIECE = 0x0a }; /* what a message of pieces begins with */
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxTokenizer *tokenizer;
    if (!size) return 0;
    const char *type = data[0] == '{'     ? "huggingface"
                       : data[0] == PIECE ? "sentencepiece"
                       : data[0] == ' '   ? "tekken"
                                          : "tiktoken";
    const char *path = mx_arena_printf(&arena, "/tmp/mx_fuzz_%d.tokenizer", (int)getpid());
    FILE *file = fopen(path, "wb");
    need(file && fwrite(data, 1, size, file) == size);
    need(!fclose(file));
    if (mx_tokenizer_open(&arena, type, path, &tokenizer, &err))
        check(&arena, tokenizer);
    else
        need(err.count == 1 && err.exit == MX_EXIT_BAD_INPUT);
    remove(path);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
