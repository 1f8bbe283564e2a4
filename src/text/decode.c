/* decode.c — decoders, which turn the strings of tokens into text: one row each. A row changes the
 * list of strings; the resulting strings are joined. Source: tokenizers, decoders/ and
 * pre_tokenizers/byte_level.rs. */
#include "internal.h"

static const char broken[] = "\xef\xbf\xbd"; /* U+FFFD */

static TextSpan span_of(const MxText *text) {
    return (TextSpan){text->data, text->len};
}

/* Adds a text with every place of a string replaced. */
static void add_replaced(MxText *out, TextSpan in, TextSpan from, TextSpan to) {
    size_t done = 0, at;
    while ((at = text_find_span(in, done, from)) != SIZE_MAX) {
        mx_text_addn(out, in.data + done, at - done);
        mx_text_addn(out, to.data, to.n);
        done = at + from.n;
    }
    mx_text_addn(out, in.data + done, in.n - done);
}

static TextSpan replaced(MxArena *arena, TextSpan in, TextSpan from, TextSpan to) {
    MxText out;
    if (text_find_span(in, 0, from) == SIZE_MAX) return in;
    mx_text_init(&out, arena);
    add_replaced(&out, in, from, to);
    return span_of(&out);
}

/* ---- one string */

static void fuse_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    (void)settings;
    MxText all;
    mx_text_init(&all, arena);
    for (int64_t i = 0; i < tokens->n; i++)
        mx_text_addn(&all, tokens->item[i].data, tokens->item[i].n);
    if (!tokens->n) return;
    tokens->item[0] = span_of(&all);
    tokens->n = 1;
}

/* Adds the bytes that a token stands for; one with other characters stands for itself. */
static void add_bytes_of(MxText *out, TextSpan token) {
    size_t before = out->len;
    for (size_t at = 0; at < token.n;) {
        int byte = text_byte_of(mx_char_next(token.data, &at));
        char c = (char)byte;
        if (byte < 0) {
            out->len = before;
            mx_text_addn(out, token.data, token.n);
            return;
        }
        mx_text_addn(out, &c, 1);
    }
}

static void byte_level_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    (void)settings;
    MxText bytes, text;
    mx_text_init(&bytes, arena);
    mx_text_init(&text, arena);
    for (int64_t i = 0; i < tokens->n; i++) add_bytes_of(&bytes, tokens->item[i]);
    text_add_lossy(&text, span_of(&bytes));
    tokens->n = 1;
    tokens->item[0] = span_of(&text);
}

/* ---- bytes that stand for themselves */

/* The byte of "<0x0A>"; -1 = another token. */
static int byte_of(TextSpan token) {
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    int byte = 0;
    if (token.n != 6 || memcmp(token.data, "<0x", 3) || token.data[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        const char *digit = memchr(digits, token.data[i], sizeof digits - 1);
        if (!digit) return -1;
        byte = 16 * byte + (int)((digit - digits) % 16);
    }
    return byte;
}

/* Where a run of bytes ends that starts at token i; bytes receives them. */
static int64_t run_of_bytes(const TextSpans *tokens, int64_t i, MxText *bytes) {
    mx_text_clear(bytes);
    for (int byte; i < tokens->n && (byte = byte_of(tokens->item[i])) >= 0; i++) {
        char c = (char)byte;
        mx_text_addn(bytes, &c, 1);
    }
    return i;
}

/* A run of bytes that is no text is told byte by byte. */
static void byte_fallback_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    (void)settings;
    MxText bytes;
    int64_t n = 0;
    mx_text_init(&bytes, arena);
    for (int64_t i = 0; i < tokens->n;) {
        int64_t end = run_of_bytes(tokens, i, &bytes);
        bool is_text = mx_utf8_valid_bytes(bytes.data, bytes.len) == bytes.len;
        if (end == i) {
            tokens->item[n++] = tokens->item[i++];
        } else if (is_text) {
            char *copy = mx_arena_strndup(arena, bytes.data, bytes.len);
            tokens->item[n++] = (TextSpan){copy, bytes.len};
            i = end;
        } else {
            for (; i < end; i++) tokens->item[n++] = (TextSpan){broken, sizeof broken - 1};
        }
    }
    tokens->n = n;
}

/* ---- each string by itself */

typedef struct Strip {
    TextSpan content; /* one character */
    int64_t start, stop;
} Strip;

static bool strip_read(TextNode object, const void **settings) {
    Strip *strip = mx_new(object.arena, Strip);
    *settings = strip;
    if (!text_node_span(object, "content", true, &strip->content) ||
        !text_node_int(object, "start", true, 0, &strip->start) ||
        !text_node_int(object, "stop", true, 0, &strip->stop))
        return false;
    TextSpan one = strip->content;
    return (one.n && text_char_bytes((uint8_t)one.data[0]) == one.n) ||
           text_node_fail(text_node_get(object, "content"), "wanted one character");
}

static void strip_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    (void)arena;
    const Strip *strip = settings;
    TextSpan one = strip->content;
    for (int64_t i = 0; i < tokens->n; i++) {
        TextSpan token = tokens->item[i];
        for (int64_t k = 0; k < strip->start && token.n >= one.n; k++) {
            if (memcmp(token.data, one.data, one.n)) break;
            token = (TextSpan){token.data + one.n, token.n - one.n};
        }
        for (int64_t k = 0; k < strip->stop && token.n >= one.n; k++) {
            if (memcmp(token.data + token.n - one.n, one.data, one.n)) break;
            token.n -= one.n;
        }
        tokens->item[i] = token;
    }
}

typedef struct Replace {
    TextPattern pattern;
    TextSpan content;
} Replace;

static bool replace_read(TextNode object, const void **settings) {
    Replace *replace = mx_new(object.arena, Replace);
    TextNode pattern = text_node_get(object, "pattern");
    *settings = replace;
    if (!text_pattern_read(pattern, &replace->pattern)) return false;
    return text_node_span(object, "content", true, &replace->content);
}

/* From where a pattern has too many ways to match, a string stays as it is. */
static void replace_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    const Replace *replace = settings;
    const MxRegex *regex = replace->pattern.regex;
    MxFinder *finder = regex ? mx_finder_new(arena, regex) : NULL;
    for (int64_t i = 0; i < tokens->n; i++) {
        TextPlace place = {.text = tokens->item[i]};
        MxText out;
        size_t done = 0;
        if (text_find_match(finder, &replace->pattern, &place) != MX_MATCH_PART) continue;
        mx_text_init(&out, arena);
        do {
            mx_text_addn(&out, place.text.data + done, place.start - done);
            mx_text_addn(&out, replace->content.data, replace->content.n);
            done = place.end;
        } while (text_find_match(finder, &replace->pattern, &place) == MX_MATCH_PART);
        mx_text_addn(&out, place.text.data + done, place.text.n - done);
        tokens->item[i] = span_of(&out);
    }
}

static void metaspace_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    const TextMetaspace *meta = settings;
    for (int64_t i = 0; i < tokens->n; i++) {
        bool is_dropped = i == 0 && meta->prepend != PREPEND_NEVER;
        tokens->item[i] = replaced(arena, tokens->item[i], meta->replacement,
                                   is_dropped ? TEXT_SPAN("") : TEXT_SPAN(" "));
    }
}

/* ---- words */

typedef struct Words {
    TextSpan mark; /* before what continues a word, or behind its end */
    bool cleans;
} Words;

static bool word_piece_read(TextNode object, const void **settings) {
    Words *words = mx_new(object.arena, Words);
    *words = (Words){TEXT_SPAN("##"), true};
    *settings = words;
    return text_node_span(object, "prefix", false, &words->mark) &&
           text_node_flag(object, "cleanup", &words->cleans);
}

/* Spaces before punctuation and in English contractions go. */
static TextSpan cleaned(MxArena *arena, TextSpan text) {
    static const struct {
        TextSpan from, to;
    } rules[] = {
        {TEXT_SPAN(" ."), TEXT_SPAN(".")},     {TEXT_SPAN(" ?"), TEXT_SPAN("?")},
        {TEXT_SPAN(" !"), TEXT_SPAN("!")},     {TEXT_SPAN(" ,"), TEXT_SPAN(",")},
        {TEXT_SPAN(" ' "), TEXT_SPAN("'")},    {TEXT_SPAN(" n't"), TEXT_SPAN("n't")},
        {TEXT_SPAN(" 'm"), TEXT_SPAN("'m")},   {TEXT_SPAN(" do not"), TEXT_SPAN(" don't")},
        {TEXT_SPAN(" 's"), TEXT_SPAN("'s")},   {TEXT_SPAN(" 've"), TEXT_SPAN("'ve")},
        {TEXT_SPAN(" 're"), TEXT_SPAN("'re")},
    };
    for (int i = 0; i < MX_COUNT(rules); i++)
        text = replaced(arena, text, rules[i].from, rules[i].to);
    return text;
}

static void word_piece_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    const Words *words = settings;
    for (int64_t i = 0; i < tokens->n; i++) {
        TextSpan token = tokens->item[i], mark = words->mark;
        MxText text;
        mx_text_init(&text, arena);
        bool continues = token.n >= mark.n && !memcmp(token.data, mark.data, mark.n);
        if (i && continues) token = (TextSpan){token.data + mark.n, token.n - mark.n};
        if (i && !continues) mx_text_addn(&text, " ", 1);
        mx_text_addn(&text, token.data, token.n);
        tokens->item[i] = words->cleans ? cleaned(arena, span_of(&text)) : span_of(&text);
    }
}

static bool bpe_read(TextNode object, const void **settings) {
    Words *words = mx_new(object.arena, Words);
    *words = (Words){.mark = TEXT_SPAN("</w>")};
    *settings = words;
    if (!text_node_span(object, "suffix", false, &words->mark)) return false;
    return words->mark.n || text_node_fail(text_node_get(object, "suffix"), "is empty");
}

static void bpe_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    const Words *words = settings;
    for (int64_t i = 0; i < tokens->n; i++)
        tokens->item[i] = replaced(arena, tokens->item[i], words->mark,
                                   i + 1 < tokens->n ? TEXT_SPAN(" ") : TEXT_SPAN(""));
}

/* ---- pieces of sentencepiece. Source: its src/sentencepiece_processor.cc (Decode). */

static void add_byte_run(MxText *out, TextSpan bytes) {
    while (bytes.n) {
        size_t valid = mx_utf8_valid_bytes(bytes.data, bytes.n);
        mx_text_addn(out, bytes.data, valid);
        if (valid == bytes.n) return;
        mx_text_addn(out, broken, sizeof broken - 1);
        bytes = (TextSpan){bytes.data + valid + 1, bytes.n - valid - 1};
    }
}

static void pieces_run(const void *settings, MxArena *arena, TextSpans *tokens) {
    static const TextSpan mark = TEXT_SPAN("\xe2\x96\x81");
    const TextSpm *spm = settings;
    bool may_strip = spm->adds_dummy || spm->removes_spaces, has_stripped = false;
    MxText bytes, out;
    mx_text_init(&bytes, arena);
    mx_text_init(&out, arena);
    for (int64_t i = 0; i < tokens->n; i++) {
        int64_t end = run_of_bytes(tokens, i, &bytes);
        add_byte_run(&out, span_of(&bytes));
        i = end;
        if (i == tokens->n) break;
        TextSpan token = tokens->item[i];
        may_strip = may_strip && !has_stripped && !out.len;
        bool strips = may_strip && token.n >= mark.n && !memcmp(token.data, mark.data, mark.n);
        if (strips) token = (TextSpan){token.data + mark.n, token.n - mark.n};
        has_stripped = strips && !spm->removes_spaces;
        add_replaced(&out, token, mark, TEXT_SPAN(" "));
    }
    if (!tokens->n) return;
    tokens->item[0] = span_of(&out);
    tokens->n = 1;
}

const TextDecoder text_pieces_decoder = {.kind = {.name = "sentencepiece"}, .run = pieces_run};

/* ---- */

static const TextDecoder rows[] = {
    {.kind = {.name = "ByteLevel", .members = "add_prefix_space trim_offsets use_regex"},
     .run = byte_level_run},
    {.kind = {.name = "ByteFallback", .members = ""}, .run = byte_fallback_run},
    {.kind = {.name = "Fuse", .members = ""}, .run = fuse_run},
    {.kind = {.name = "Strip", .members = "content start stop", .read = strip_read},
     .run = strip_run},
    {.kind = {.name = "Replace", .members = "pattern content", .read = replace_read},
     .run = replace_run},
    {.kind = {.name = "Metaspace",
              .members = "replacement prepend_scheme split add_prefix_space str_rep",
              .read = text_metaspace_read},
     .run = metaspace_run},
    {.kind = {.name = "WordPiece", .members = "prefix cleanup", .read = word_piece_read},
     .run = word_piece_run},
    {.kind = {.name = "BPEDecoder", .members = "suffix", .read = bpe_read}, .run = bpe_run},
};

const TextTable text_decoders = {
    .rows = rows,
    .row_bytes = sizeof *rows,
    .n = MX_COUNT(rows),
    .what = "decoder",
    .sequence = "decoders",
};

const char *mx_tokenizer_bytes(MxArena *arena, const MxTokenizer *t, int32_t id, size_t *n_bytes) {
    MxText out;
    const TextSpan token = t->text[id];
    if (!token.data || t->is_special[id]) return NULL;
    mx_text_init(&out, arena);
    for (int i = 0; i < t->decoders.n && !out.len; i++) {
        const TextDecoder *row = (const void *)t->decoders.item[i].kind;
        const char byte = (char)byte_of(token);
        bool has_bytes = row->run == byte_fallback_run || row->run == pieces_run;
        if (row->run == byte_level_run) add_bytes_of(&out, token);
        if (has_bytes && byte_of(token) >= 0) mx_text_addn(&out, &byte, 1);
    }
    *n_bytes = out.len;
    return out.len ? out.data : NULL;
}
