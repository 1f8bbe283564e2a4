/* normalize.c — normalizers, which rewrite text before it is split into words: one row each.
 * Offsets of characters are not tracked. */
#include "internal.h"

static const void *settings_of(const TextWork *work, int step) {
    return work->tokenizer->normalizers.item[step].settings;
}

/* To be called behind the first character of a text: one that left nothing is lost. */
static void note_start(TextWork *work, const MxText *out) {
    if (!out->len) work->lost_start = true;
}

/* ---- forms of Unicode */

static bool nfc_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    text_normal_form(&work->arena, TEXT_NFC, in, out);
    return true;
}
static bool nfd_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    text_normal_form(&work->arena, TEXT_NFD, in, out);
    return true;
}
static bool nfkc_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    text_normal_form(&work->arena, TEXT_NFKC, in, out);
    return true;
}
static bool nfkd_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    text_normal_form(&work->arena, TEXT_NFKD, in, out);
    return true;
}

static bool lowercase_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)work, (void)step;
    text_lower(in, out);
    return true;
}

/* ---- what is left out */

/* Adds all characters but those. */
static void add_without(TextWork *work, TextSpan in, TextIs *is_left_out, MxText *out) {
    for (size_t at = 0; at < in.n;) {
        size_t start = at;
        if (!is_left_out(mx_char_next(in.data, &at)))
            mx_text_addn(out, in.data + start, at - start);
        note_start(work, out);
    }
}

static bool strip_accents_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    add_without(work, in, text_is_mark, out);
    return true;
}

typedef struct Strip {
    bool left, right;
} Strip;

static bool strip_read(TextNode object, const void **settings) {
    Strip *strip = mx_new(object.arena, Strip);
    *strip = (Strip){true, true};
    *settings = strip;
    return text_node_flag(object, "strip_left", &strip->left) &&
           text_node_flag(object, "strip_right", &strip->right);
}

static bool strip_run(TextWork *work, int step, TextSpan in, MxText *out) {
    const Strip *strip = settings_of(work, step);
    size_t start = 0, end;
    while (strip->left && start < in.n) {
        end = start;
        if (!text_is_space(mx_char_next(in.data, &end))) break;
        start = end;
    }
    if (start) work->lost_start = true;
    in = (TextSpan){in.data + start, in.n - start};
    while (strip->right && in.n && text_is_space(text_last_char(in, &end))) in.n = end;
    mx_text_addn(out, in.data, in.n);
    return true;
}

/* ---- strings */

typedef struct Replace {
    TextPattern pattern;
    TextSpan content;
} Replace;

static bool replace_read(TextNode object, const void **settings) {
    Replace *replace = mx_new(object.arena, Replace);
    *settings = replace;
    return text_pattern_read(text_node_get(object, "pattern"), &replace->pattern) &&
           text_node_span(object, "content", true, &replace->content);
}

static bool replace_run(TextWork *work, int step, TextSpan in, MxText *out) {
    const Replace *replace = settings_of(work, step);
    TextPlace place = {.text = in};
    for (size_t done = 0;; done = place.end) {
        if (!text_match(work, step, &replace->pattern, &place)) return false;
        mx_text_addn(out, in.data + done, (place.found ? place.start : in.n) - done);
        if (!place.found) return true;
        mx_text_addn(out, replace->content.data, replace->content.n);
        if (place.end > place.start) note_start(work, out);
    }
}

static bool prepend_read(TextNode object, const void **settings) {
    TextSpan *prepend = mx_new(object.arena, TextSpan);
    *settings = prepend;
    return text_node_span(object, "prepend", true, prepend);
}

static bool prepend_run(TextWork *work, int step, TextSpan in, MxText *out) {
    const TextSpan *prepend = settings_of(work, step);
    if (in.n) mx_text_addn(out, prepend->data, prepend->n);
    mx_text_addn(out, in.data, in.n);
    return true;
}

static bool byte_level_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)work, (void)step;
    text_add_byte_level(out, in);
    return true;
}

/* ---- sentencepiece's older rules. Source: tokenizers, normalizers/unicode.rs (Nmt). */

static bool is_nmt_control(uint32_t c) {
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
           c == 0x9f;
}
static bool is_nmt_space(uint32_t c) {
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
}

static bool nmt_run(TextWork *work, int step, TextSpan in, MxText *out) {
    (void)step;
    for (size_t at = 0; at < in.n; note_start(work, out)) {
        size_t start = at;
        uint32_t c = mx_char_next(in.data, &at);
        if (is_nmt_space(c))
            mx_text_addn(out, " ", 1);
        else if (!is_nmt_control(c))
            mx_text_addn(out, in.data + start, at - start);
    }
    return true;
}

/* ---- BERT's */

typedef struct Bert {
    bool cleans, spaces_chinese, strips_accents, lowers;
} Bert;

static bool bert_read(TextNode object, const void **settings) {
    Bert *bert = mx_new(object.arena, Bert);
    *bert = (Bert){true, true, true, true};
    *settings = bert;
    if (!text_node_flag(object, "clean_text", &bert->cleans) ||
        !text_node_flag(object, "handle_chinese_chars", &bert->spaces_chinese) ||
        !text_node_flag(object, "lowercase", &bert->lowers))
        return false;
    bert->strips_accents = bert->lowers; /* unless it is said */
    return text_node_flag(object, "strip_accents", &bert->strips_accents);
}

/* The blocks of ideographs that BERT knows. */
static bool is_chinese(uint32_t c) {
    static const uint32_t blocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (int i = 0; i < MX_COUNT(blocks); i++)
        if (c >= blocks[i][0] && c <= blocks[i][1]) return true;
    return false;
}

static void clean_char(const Bert *bert, uint32_t c, MxText *out) {
    bool is_line = c == '\t' || c == '\n' || c == '\r';
    if (bert->cleans && (!c || c == 0xfffd || (!is_line && text_is_other(c)))) return;
    if (bert->cleans && text_is_space(c)) c = ' ';
    bool is_alone = bert->spaces_chinese && is_chinese(c);
    if (is_alone) mx_text_addn(out, " ", 1);
    text_add_char(out, c);
    if (is_alone) mx_text_addn(out, " ", 1);
}

static bool bert_run(TextWork *work, int step, TextSpan in, MxText *out) {
    const Bert *bert = settings_of(work, step);
    MxArena scratch = {.name = "normalizer"};
    MxText text[3];
    for (int i = 0; i < MX_COUNT(text); i++) mx_text_init(&text[i], &scratch);
    for (size_t at = 0; at < in.n; note_start(work, &text[0]))
        clean_char(bert, mx_char_next(in.data, &at), &text[0]);
    in = (TextSpan){text[0].data, text[0].len};
    if (bert->strips_accents) {
        text_normal_form(&scratch, TEXT_NFD, in, &text[1]);
        add_without(work, (TextSpan){text[1].data, text[1].len}, text_is_nonspacing, &text[2]);
        in = (TextSpan){text[2].data, text[2].len};
    }
    if (bert->lowers)
        text_lower(in, out);
    else
        mx_text_addn(out, in.data, in.n);
    mx_arena_release(&scratch);
    return true;
}

/* ---- */

bool text_normalize(TextWork *work, TextSpan in, TextSpan *out) {
    const TextSteps *steps = &work->tokenizer->normalizers;
    work->lost_start = false;
    for (int i = 0; i < steps->n; i++) {
        MxText *made = &work->normal[i];
        mx_text_clear(made);
        if (!((const TextNormalizer *)steps->item[i].kind)->run(work, i, in, made)) return false;
        in = (TextSpan){made->data, made->len};
    }
    *out = in;
    return true;
}

static const TextNormalizer rows[] = {
    {.kind = {.name = "NFC", .members = ""}, .run = nfc_run},
    {.kind = {.name = "NFD", .members = ""}, .run = nfd_run},
    {.kind = {.name = "NFKC", .members = ""}, .run = nfkc_run},
    {.kind = {.name = "NFKD", .members = ""}, .run = nfkd_run},
    {.kind = {.name = "Lowercase", .members = ""}, .run = lowercase_run},
    {.kind = {.name = "StripAccents", .members = ""}, .run = strip_accents_run},
    {.kind = {.name = "Strip", .members = "strip_left strip_right", .read = strip_read},
     .run = strip_run},
    {.kind = {.name = "Replace", .members = "pattern content", .read = replace_read},
     .run = replace_run},
    {.kind = {.name = "Prepend", .members = "prepend", .read = prepend_read}, .run = prepend_run},
    {.kind = {.name = "Precompiled",
              .members = "precompiled_charsmap",
              .read = text_precompiled_read},
     .run = text_precompiled_run},
    {.kind = {.name = "ByteLevel", .members = ""}, .run = byte_level_run},
    {.kind = {.name = "Nmt", .members = ""}, .run = nmt_run},
    {.kind = {.name = "BertNormalizer",
              .members = "clean_text handle_chinese_chars strip_accents lowercase",
              .read = bert_read},
     .run = bert_run},
};

const TextTable text_normalizers = {
    .rows = rows,
    .row_bytes = sizeof *rows,
    .n = MX_COUNT(rows),
    .what = "normalizer",
    .sequence = "normalizers",
};
