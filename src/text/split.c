/* split.c — pre-tokenizers, which split text into words: one row each. Pieces pass from step to
 * step, and from the last step to the model, one at a time, so no list of words is kept. */
#include "internal.h"

static const void *settings_of(const TextWork *work, int step) {
    return work->tokenizer->splitters.item[step].settings;
}
static int finder_slot(const TextWork *work, int step) {
    return work->tokenizer->normalizers.n + step;
}

/* ---- pieces by behavior */

static bool hand_on(TextCutter *cutter, size_t start, size_t end) {
    TextPiece part = {.text = {cutter->piece.text.data + start, end - start},
                      .is_first = cutter->piece.is_first && start == 0};
    return start == end || text_split(cutter->work, cutter->step, part);
}

/* Whether a stretch goes on with what waits. */
static bool joins(const TextCutter *cutter, bool is_match) {
    switch (cutter->behavior) {
    case TEXT_WITH_PREVIOUS:
        return is_match && !cutter->was_match;
    case TEXT_WITH_NEXT:
        return !is_match && cutter->was_match;
    case TEXT_CONTIGUOUS:
        return is_match == cutter->was_match;
    default:
        return false;
    }
}

bool text_cut(TextCutter *cutter, size_t start, size_t end, bool is_match) {
    if (cutter->behavior == TEXT_REMOVED && is_match) return true;
    if (cutter->waits && joins(cutter, is_match)) {
        cutter->end = end;
        cutter->was_match = is_match;
        return true;
    }
    bool ok = text_cut_end(cutter);
    cutter->start = start;
    cutter->end = end;
    cutter->waits = true;
    cutter->was_match = is_match;
    return ok;
}

/* What lies before a match, unless that is nothing; `counts` = as a match. */
static bool cut_gap(TextCutter *cutter, size_t start, size_t end, bool counts) {
    return start == end || text_cut(cutter, start, end, counts);
}

bool text_cut_end(TextCutter *cutter) {
    bool ok = !cutter->waits || hand_on(cutter, cutter->start, cutter->end);
    cutter->waits = false;
    return ok;
}

/* Cuts at the characters that `is` holds for; each is a stretch. */
static bool cut_at_chars(TextCutter *cutter, TextIs *is) {
    TextSpan text = cutter->piece.text;
    size_t done = 0;
    for (size_t at = 0; at < text.n;) {
        size_t start = at;
        if (!is(mx_char_next(text.data, &at))) continue;
        if (!cut_gap(cutter, done, start, false) || !text_cut(cutter, start, at, true))
            return false;
        done = at;
    }
    return cut_gap(cutter, done, text.n, false) && text_cut_end(cutter);
}

/* ---- patterns */

typedef struct Split {
    TextPattern pattern;
    TextBehavior behavior;
    bool invert;
} Split;

static const struct {
    const char *name;
    TextBehavior behavior;
} behaviors[] = {
    {"Removed", TEXT_REMOVED},
    {"Isolated", TEXT_ISOLATED},
    {"MergedWithPrevious", TEXT_WITH_PREVIOUS},
    {"MergedWithNext", TEXT_WITH_NEXT},
    {"Contiguous", TEXT_CONTIGUOUS},
};

static bool behavior_read(TextNode object, TextBehavior *out) {
    const char *names[MX_COUNT(behaviors)];
    TextSpan name = {0};
    if (!text_node_span(object, "behavior", true, &name)) return false;
    for (int i = 0; i < MX_COUNT(behaviors); i++) {
        names[i] = behaviors[i].name;
        if (strcmp(name.data, names[i])) continue;
        *out = behaviors[i].behavior;
        return true;
    }
    text_node_fail(text_node_get(object, "behavior"), "unrecognized behavior \"%s\"", name.data);
    const char *nearest = mx_nearest(name.data, names, MX_COUNT(names));
    if (nearest) mx_note(object.err, "hint: did you mean \"%s\"?", nearest);
    return false;
}

static bool split_read(TextNode object, const void **settings) {
    Split *split = mx_new(object.arena, Split);
    *settings = split;
    return text_pattern_read(text_node_get(object, "pattern"), &split->pattern) &&
           behavior_read(object, &split->behavior) &&
           text_node_flag(object, "invert", &split->invert);
}

static bool cut_at_matches(TextWork *work, int step, const Split *split, TextPiece piece) {
    TextCutter cutter = {
        .work = work, .step = step + 1, .piece = piece, .behavior = split->behavior};
    TextPlace place = {.text = piece.text};
    for (size_t done = 0; done < piece.text.n; done = place.end) {
        if (!text_match(work, finder_slot(work, step), &split->pattern, &place)) return false;
        size_t start = place.found ? place.start : piece.text.n;
        if (!cut_gap(&cutter, done, start, split->invert)) return false;
        if (!place.found) break;
        if (!text_cut(&cutter, place.start, place.end, !split->invert)) return false;
    }
    return text_cut_end(&cutter);
}

static bool split_run(TextWork *work, int step, TextPiece piece) {
    return cut_at_matches(work, step, settings_of(work, step), piece);
}

/* A row whose settings are a pattern of its own. */
static bool own_pattern(TextNode object, const char *pattern, TextBehavior behavior,
                        const void **settings) {
    Split *split = mx_new(object.arena, Split);
    const char *why = "";
    *split =
        (Split){.pattern.regex = text_regex_new(object.arena, pattern, &why), .behavior = behavior};
    MX_ASSERT(split->pattern.regex);
    *settings = split;
    return true;
}

static bool whitespace_read(TextNode object, const void **settings) {
    /* What this step has for \w is Unicode's own list, with the two joiners. */
    static const char words[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]+|"
                                "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\s]+";
    if (!own_pattern(object, words, TEXT_REMOVED, settings)) return false;
    ((Split *)(uintptr_t)*settings)->invert = true;
    return true;
}

/* ---- bytes */

typedef struct ByteLevel {
    bool adds_space;
    const Split *words; /* NULL = what comes is a word */
} ByteLevel;

bool text_byte_level_read(TextNode object, const void **settings) {
    /* Source: GPT-2, encoder.py. */
    static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                                "\\s+(?!\\S)|\\s+";
    ByteLevel *bytes = mx_new(object.arena, ByteLevel);
    bool has_words = true;
    const void *split = NULL;
    bytes->adds_space = true;
    *settings = bytes;
    if (!text_node_flag(object, "add_prefix_space", &bytes->adds_space) ||
        !text_node_flag(object, "use_regex", &has_words))
        return false;
    if (has_words && !own_pattern(object, words, TEXT_ISOLATED, &split)) return false;
    bytes->words = split;
    return true;
}

/* The bytes of each word, in the alphabet of bytes, go on. */
static bool hand_bytes_on(TextWork *work, int step, TextPiece word) {
    MxText *out = &work->split[step];
    mx_text_clear(out);
    text_add_byte_level(out, word.text);
    return text_split(work, step + 1, (TextPiece){{out->data, out->len}, word.is_first});
}

static bool byte_level_run(TextWork *work, int step, TextPiece piece) {
    const ByteLevel *bytes = settings_of(work, step);
    MxArena scratch = {.name = "bytes"};
    if (bytes->adds_space && piece.text.n && piece.text.data[0] != ' ') {
        char *spaced = mx_arena_alloc(&scratch, piece.text.n + 1);
        spaced[0] = ' ';
        memcpy(spaced + 1, piece.text.data, piece.text.n);
        piece.text = (TextSpan){spaced, piece.text.n + 1};
    }
    bool ok = true;
    TextPlace place = {.text = piece.text};
    for (size_t done = 0; ok && bytes->words && done < piece.text.n; done = place.end) {
        ok = text_match(work, finder_slot(work, step), &bytes->words->pattern, &place);
        size_t start = !ok || place.found ? place.start : piece.text.n;
        TextPiece rest = {{piece.text.data + done, start - done}, piece.is_first && !done};
        TextPiece word = {{piece.text.data + place.start, place.end - place.start},
                          piece.is_first && !place.start};
        ok = ok && (!rest.text.n || hand_bytes_on(work, step, rest)) &&
             (!place.found || hand_bytes_on(work, step, word));
        if (!place.found) break;
    }
    if (!bytes->words) ok = hand_bytes_on(work, step, piece);
    mx_arena_release(&scratch);
    return ok;
}

/* ---- spaces as characters */

bool text_metaspace_read(TextNode object, const void **settings) {
    static const char *const schemes[] = {"always", "first", "never"};
    TextMetaspace *meta = mx_new(object.arena, TextMetaspace);
    TextSpan scheme = {0};
    bool adds_space = true;
    *meta = (TextMetaspace){.replacement = TEXT_SPAN("\xe2\x96\x81"), .splits = true};
    *settings = meta;
    if (!text_node_span(object, "replacement", true, &meta->replacement) ||
        !text_node_span(object, "prepend_scheme", false, &scheme) ||
        !text_node_flag(object, "add_prefix_space", &adds_space) ||
        !text_node_flag(object, "split", &meta->splits))
        return false;
    if (!meta->replacement.n)
        return text_node_fail(text_node_get(object, "replacement"), "is empty");
    if (!scheme.data) scheme.data = adds_space ? "always" : "never"; /* older files */
    for (int i = 0; i < MX_COUNT(schemes); i++)
        if (!strcmp(scheme.data, schemes[i])) {
            meta->prepend = (TextPrepend)i;
            return true;
        }
    return text_node_fail(text_node_get(object, "prepend_scheme"),
                          "unrecognized \"%s\", wanted always, first or never", scheme.data);
}

static bool metaspace_run(TextWork *work, int step, TextPiece piece) {
    const TextMetaspace *meta = settings_of(work, step);
    MxText *out = &work->split[step];
    TextSpan mark = meta->replacement;
    bool has_mark = piece.text.n >= mark.n && !memcmp(piece.text.data, mark.data, mark.n);
    bool prepends =
        meta->prepend == PREPEND_ALWAYS || (meta->prepend == PREPEND_FIRST && piece.is_first);
    mx_text_clear(out);
    if (prepends && !has_mark && piece.text.data[0] != ' ') mx_text_addn(out, mark.data, mark.n);
    for (size_t i = 0; i < piece.text.n; i++)
        if (piece.text.data[i] == ' ')
            mx_text_addn(out, mark.data, mark.n);
        else
            mx_text_addn(out, piece.text.data + i, 1);
    piece.text = (TextSpan){out->data, out->len};
    if (!meta->splits) return text_split(work, step + 1, piece);
    Split at_marks = {.pattern.string = mark, .behavior = TEXT_WITH_NEXT};
    return cut_at_matches(work, step, &at_marks, piece);
}

/* ---- properties of characters */

static bool whitespace_split_run(TextWork *work, int step, TextPiece piece) {
    TextCutter cutter = {.work = work, .step = step + 1, .piece = piece};
    return cut_at_chars(&cutter, text_is_space);
}

static bool is_bert_space_or_punctuation(uint32_t c) {
    return text_is_space(c) || text_is_punctuation(c);
}

/* Spaces are left out, punctuation stands alone. */
static bool bert_run(TextWork *work, int step, TextPiece piece) {
    TextCutter cutter = {.work = work, .step = step + 1, .piece = piece, .behavior = TEXT_ISOLATED};
    TextSpan text = piece.text;
    size_t done = 0;
    for (size_t at = 0; at < text.n;) {
        size_t start = at;
        uint32_t c = mx_char_next(text.data, &at);
        if (!is_bert_space_or_punctuation(c)) continue;
        if (!cut_gap(&cutter, done, start, false)) return false;
        if (!text_is_space(c) && !text_cut(&cutter, start, at, true)) return false;
        done = at;
    }
    return cut_gap(&cutter, done, text.n, false) && text_cut_end(&cutter);
}

static bool punctuation_read(TextNode object, const void **settings) {
    TextBehavior *behavior = mx_new(object.arena, TextBehavior);
    *behavior = TEXT_ISOLATED;
    *settings = behavior;
    return !text_node_get(object, "behavior").json || behavior_read(object, behavior);
}

static bool punctuation_run(TextWork *work, int step, TextPiece piece) {
    TextCutter cutter = {.work = work,
                         .step = step + 1,
                         .piece = piece,
                         .behavior = *(const TextBehavior *)settings_of(work, step)};
    return cut_at_chars(&cutter, text_is_punctuation);
}

static bool digits_read(TextNode object, const void **settings) {
    TextBehavior *behavior = mx_new(object.arena, TextBehavior);
    bool is_each = false;
    *settings = behavior;
    if (!text_node_flag(object, "individual_digits", &is_each)) return false;
    *behavior = is_each ? TEXT_ISOLATED : TEXT_CONTIGUOUS;
    return true;
}

static bool digits_run(TextWork *work, int step, TextPiece piece) {
    TextCutter cutter = {.work = work,
                         .step = step + 1,
                         .piece = piece,
                         .behavior = *(const TextBehavior *)settings_of(work, step)};
    return cut_at_chars(&cutter, text_is_numeric);
}

static bool delimiter_read(TextNode object, const void **settings) {
    Split *split = mx_new(object.arena, Split);
    *settings = split; /* which leaves out what it matches */
    if (!text_node_span(object, "delimiter", true, &split->pattern.string)) return false;
    return split->pattern.string.n ||
           text_node_fail(text_node_get(object, "delimiter"), "is empty");
}

/* ---- */

bool text_split(TextWork *work, int step, TextPiece piece) {
    const TextSteps *steps = &work->tokenizer->splitters;
    if (step < steps->n)
        return ((const TextSplitter *)steps->item[step].kind)->run(work, step, piece);
    text_encode_word(work, piece.text);
    return true;
}

static const TextSplitter rows[] = {
    {.kind = {.name = "ByteLevel",
              .members = "add_prefix_space trim_offsets use_regex",
              .read = text_byte_level_read},
     .run = byte_level_run},
    {.kind = {.name = "Split", .members = "pattern behavior invert", .read = split_read},
     .run = split_run},
    {.kind = {.name = "Metaspace",
              .members = "replacement prepend_scheme split add_prefix_space str_rep",
              .read = text_metaspace_read},
     .run = metaspace_run},
    {.kind = {.name = "Whitespace", .members = "", .read = whitespace_read}, .run = split_run},
    {.kind = {.name = "WhitespaceSplit", .members = ""}, .run = whitespace_split_run},
    {.kind = {.name = "BertPreTokenizer", .members = ""}, .run = bert_run},
    {.kind = {.name = "Punctuation", .members = "behavior", .read = punctuation_read},
     .run = punctuation_run},
    {.kind = {.name = "Digits", .members = "individual_digits", .read = digits_read},
     .run = digits_run},
    {.kind = {.name = "CharDelimiterSplit", .members = "delimiter", .read = delimiter_read},
     .run = split_run},
};

const TextTable text_splitters = {
    .rows = rows,
    .row_bytes = sizeof *rows,
    .n = MX_COUNT(rows),
    .what = "pre-tokenizer",
    .sequence = "pretokenizers",
};
