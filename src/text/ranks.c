/* ranks.c — tiktoken files: a line has the bytes of a token in base64 and its rank, which is its
 * id. Tokens are merged by rank. A file contains neither the split pattern nor special tokens:
 * those are Llama 3's, as in MaxText (src/maxtext/input_pipeline/tokenizer.py, TikTokenTokenizer).
 */
#include "internal.h"

enum { N_SPECIAL = 256, N_NAMED = 10 };

/* Special tokens behind the ranks; %d counts those that are kept free. */
static const char *const named[N_NAMED] = {
    "<|begin_of_text|>",   "<|end_of_text|>",   NULL, NULL,         NULL, NULL,
    "<|start_header_id|>", "<|end_header_id|>", NULL, "<|eot_id|>",
};

static void add_special(MxArena *arena, int32_t first, TextAddedSet *out) {
    int n_free = 0;
    for (int i = 0; i < N_SPECIAL; i++) {
        const char *text = i < N_NAMED ? named[i] : NULL;
        if (!text) text = mx_arena_printf(arena, "<|reserved_special_token_%d|>", n_free++);
        text_added_put(
            out, (TextAdded){.text = {text, strlen(text)}, .id = first + i, .is_special = true});
    }
}

/* One line: base64, a space, a rank. */
static bool read_line(MxArena *arena, TextSpan line, TextVocab *vocab, const char **why) {
    MxBytes bytes;
    const char *space = memchr(line.data, ' ', line.n);
    int64_t rank = 0;
    *why = "wanted base64, a space and a number";
    if (!space || space == line.data || space + 1 == line.data + line.n) return false;
    for (const char *p = space + 1; p < line.data + line.n; p++) {
        if (*p < '0' || *p > '9') return false;
        rank = 10 * rank + (*p - '0');
        if (rank > TEXT_MOST_ID) return false;
    }
    if (!mx_base64(arena, line.data, (size_t)(space - line.data), &bytes) || !bytes.size)
        return false;
    MxText text;
    mx_text_init(&text, arena);
    text_add_byte_level(&text, (TextSpan){(const char *)bytes.data, bytes.size});
    *why = "this token or rank is there already";
    return text_vocab_add(vocab, (TextSpan){text.data, text.len}, (int32_t)rank);
}

static bool read_ranks(MxArena *arena, const char *file, MxBytes bytes, TextVocab *vocab,
                       MxError *err) {
    enum { LIKELY_LINE = 16 };
    const char *at = (const char *)bytes.data, *end = at + bytes.size, *why;
    text_vocab_init(vocab, arena, bytes.size / LIKELY_LINE);
    for (int line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        TextSpan text = {at, (size_t)(stop - at)};
        MxWhere where = {.file = file, .line = line};
        if (text.n && text.data[text.n - 1] == '\r') text.n--;
        if (text.n && !read_line(arena, text, vocab, &why))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s", why);
        at = stop + (stop < end);
    }
    return true;
}

/* Every text can be written. */
static bool check_bytes(const char *file, const char *type, const TextVocab *vocab, MxError *err) {
    MxArena scratch = {.name = "ranks"};
    bool ok = true;
    for (int byte = 0; ok && byte < 256; byte++) {
        MxText text;
        char c = (char)byte;
        mx_text_init(&text, &scratch);
        text_add_byte_level(&text, (TextSpan){&c, 1});
        ok = text_vocab_find(vocab, (TextSpan){text.data, text.len}) >= 0;
        if (!ok)
            mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file},
                    "the byte 0x%02x has no rank; is it a file of %s?", (unsigned)byte, type);
    }
    mx_arena_release(&scratch);
    return ok;
}

bool text_ranks_pipeline(MxArena *arena, const char *file, const char *pattern,
                         const TextVocab *vocab, MxTokenizer *out, MxError *err) {
    TextBpe *bpe = mx_new(arena, TextBpe);
    uint32_t *ranks = mx_new_n(arena, uint32_t, vocab->n);
    if (!check_bytes(file, out->type, vocab, err)) return false;
    *bpe = (TextBpe){.vocab = *vocab, .n_real = vocab->n, .unknown = -1, .ignores_merges = true};
    for (int32_t id = 0; id < vocab->n; id++) ranks[id] = (uint32_t)id;
    text_bpe_derive(arena, bpe, ranks);
    out->model = (TextStep){&text_model_rows[TEXT_BPE].kind, bpe};
    return text_bytes_pipeline(arena, file, pattern, out, err);
}

bool text_open_ranks(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                     MxError *err) {
    TextVocab vocab;
    if (!read_ranks(arena, file, bytes, &vocab, err)) return false;
    if (vocab.count != (size_t)vocab.n) /* an id is left out */
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file},
                       "%zu tokens have ranks up to %d", vocab.count, vocab.n - 1);
    if (!text_ranks_pipeline(arena, file, NULL, &vocab, out, err)) return false;
    add_special(arena, vocab.n, &out->unsought);
    text_finish(arena, out);
    out->bos = vocab.n;     /* <|begin_of_text|> */
    out->eos = vocab.n + 1; /* <|end_of_text|> */
    return true;
}
