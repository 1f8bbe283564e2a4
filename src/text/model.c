/* model.c — models that look words up (WordPiece, WordLevel, bytes), code shared by all models, and
 * the path of a word through the cache to its ids. */
#include "internal.h"

/* ---- vocabularies in JSON */

bool text_read_vocab(TextNode object, TextVocab *out) {
    TextNode vocab = text_node_get(object, "vocab");
    void *at = NULL;
    const char *text;
    MxJson *id_json;
    if (!vocab.json || strcmp(mx_json_kind(vocab.json), "an object"))
        return text_node_wants(vocab, "an object of texts and ids");
    text_vocab_init(out, object.arena, mx_json_length(vocab.json));
    while (mx_json_next(vocab.json, &at, &text, &id_json)) {
        int64_t id;
        if (!mx_json_int(id_json, &id) || id < 0 || id > TEXT_MOST_ID)
            return text_node_fail(vocab, "the id of \"%s\" is no number from 0 to %d", text,
                                  TEXT_MOST_ID);
        if (!text_vocab_add(out, (TextSpan){text, strlen(text)}, (int32_t)id))
            return text_node_fail(vocab, "\"%s\" has the id %lld, which another token has", text,
                                  (long long)id);
    }
    return true;
}

bool text_read_unknown(TextNode object, const TextVocab *vocab, int32_t *out) {
    TextSpan text = {0};
    *out = -1;
    if (!text_node_span(object, "unk_token", false, &text)) return false;
    if (text.data) *out = text_vocab_find(vocab, text);
    return !text.data || *out >= 0 ||
           text_node_fail(text_node_get(object, "unk_token"), "\"%s\" is not in the vocabulary",
                          text.data);
}

const TextByteIds *text_byte_ids(MxArena *arena, const TextVocab *vocab) {
    TextByteIds *ids = mx_new(arena, TextByteIds);
    for (int byte = 0; byte < MX_COUNT(ids->id); byte++) {
        const char *text = mx_arena_printf(arena, "<0x%02X>", (unsigned)byte);
        ids->id[byte] = text_vocab_find(vocab, (TextSpan){text, strlen(text)});
    }
    return ids;
}

bool text_add_bytes(const TextByteIds *ids, TextSpan bytes, TextIds *out) {
    if (!ids) return false;
    for (size_t i = 0; i < bytes.n; i++)
        if (ids->id[(uint8_t)bytes.data[i]] < 0) return false;
    for (size_t i = 0; i < bytes.n; i++) text_ids_add(out, ids->id[(uint8_t)bytes.data[i]]);
    return true;
}

void text_ids_add(TextIds *ids, int32_t id) {
    if (ids->n == ids->cap) {
        int64_t cap = ids->cap ? 2 * ids->cap : 64;
        ids->ids =
            mx_arena_grow(ids->arena, ids->ids, (size_t)ids->n, (size_t)cap, sizeof *ids->ids);
        ids->cap = cap;
    }
    ids->ids[ids->n++] = id;
}

/* ---- longest tokens first */

typedef struct WordPiece {
    TextVocab vocab; /* first */
    TextSpan prefix; /* of tokens that continue a word */
    int64_t most_chars;
    int32_t unknown;
    size_t longest; /* token, in bytes */
} WordPiece;

static bool word_piece_read(TextNode object, const void **settings) {
    WordPiece *model = mx_new(object.arena, WordPiece);
    *settings = model;
    *model = (WordPiece){.prefix = TEXT_SPAN("##"), .most_chars = 100};
    if (!text_read_vocab(object, &model->vocab) ||
        !text_read_unknown(object, &model->vocab, &model->unknown) ||
        !text_node_span(object, "continuing_subword_prefix", false, &model->prefix) ||
        !text_node_int(object, "max_input_chars_per_word", false, 0, &model->most_chars))
        return false;
    if (model->unknown < 0) return text_node_wants(text_node_get(object, "unk_token"), "a text");
    for (int32_t id = 0; id < model->vocab.n; id++)
        if (model->vocab.text[id].n > model->longest) model->longest = model->vocab.text[id].n;
    return true;
}

/* The longest token that a rest of a word begins with, and its bytes there; -1 = none. */
static int32_t longest_piece(const WordPiece *model, TextSpan rest, bool is_first, MxText *text,
                             size_t *bytes) {
    size_t prefix = is_first ? 0 : model->prefix.n;
    mx_text_clear(text);
    mx_text_addn(text, model->prefix.data, prefix);
    mx_text_addn(text, rest.data, rest.n < model->longest ? rest.n : model->longest);
    for (size_t n = text->len - prefix; n; n--) {
        if (n < rest.n && ((uint8_t)rest.data[n] & 0xc0) == 0x80) continue;
        int32_t id = text_vocab_find(&model->vocab, (TextSpan){text->data, prefix + n});
        *bytes = n;
        if (id >= 0) return id;
    }
    return -1;
}

static void word_piece_encode(const void *settings, TextWork *work, TextSpan word) {
    const WordPiece *model = settings;
    MxArena scratch = {.name = "word"};
    MxText text;
    int64_t n_chars = 0, n_before = work->out->n;
    mx_text_init(&text, &scratch);
    for (size_t i = 0; i < word.n; i++) n_chars += ((uint8_t)word.data[i] & 0xc0) != 0x80;
    bool is_known = n_chars <= model->most_chars;
    for (size_t at = 0, bytes; is_known && at < word.n; at += bytes) {
        TextSpan rest = {word.data + at, word.n - at};
        int32_t id = longest_piece(model, rest, !at, &text, &bytes);
        is_known = id >= 0;
        if (is_known) text_ids_add(work->out, id);
    }
    if (!is_known) {
        work->out->n = n_before;
        text_ids_add(work->out, model->unknown);
    }
    mx_arena_release(&scratch);
}

/* ---- whole words */

typedef struct WordLevel {
    TextVocab vocab; /* first */
    int32_t unknown;
} WordLevel;

static bool word_level_read(TextNode object, const void **settings) {
    WordLevel *model = mx_new(object.arena, WordLevel);
    *settings = model;
    return text_read_vocab(object, &model->vocab) &&
           text_read_unknown(object, &model->vocab, &model->unknown) &&
           (model->unknown >= 0 || text_node_wants(text_node_get(object, "unk_token"), "a text"));
}

static void word_level_encode(const void *settings, TextWork *work, TextSpan word) {
    const WordLevel *model = settings;
    int32_t id = text_vocab_find(&model->vocab, word);
    text_ids_add(work->out, id >= 0 ? id : model->unknown);
}

/* ---- bytes: the vocabulary is that of 256 of them */

static void bytes_encode(const void *settings, TextWork *work, TextSpan word) {
    (void)settings;
    for (size_t i = 0; i < word.n; i++) text_ids_add(work->out, (uint8_t)word.data[i]);
}

/* ---- */

const TextVocab *text_model_vocab(const TextStep *model) {
    return model->settings;
}

const TextModel text_model_rows[] = {
    [TEXT_BPE] =
        {
            .kind = {.name = "BPE",
                     .members = "vocab merges dropout unk_token continuing_subword_prefix "
                                "end_of_word_suffix fuse_unk byte_fallback ignore_merges",
                     .read = text_bpe_read},
            .encode = text_bpe_encode,
            .seams = text_bpe_seams,
            .is_cached = true,
        },
    [TEXT_UNIGRAM] =
        {
            .kind = {.name = "Unigram",
                     .members = "vocab unk_id byte_fallback",
                     .read = text_unigram_read},
            .encode = text_unigram_encode,
            .seams = text_unigram_seams,
            .is_cached = true,
        },
    [TEXT_WORD_PIECE] =
        {
            .kind = {.name = "WordPiece",
                     .members = "vocab unk_token continuing_subword_prefix "
                                "max_input_chars_per_word",
                     .read = word_piece_read},
            .encode = word_piece_encode,
            .is_cached = true,
        },
    [TEXT_WORD_LEVEL] =
        {
            .kind = {.name = "WordLevel", .members = "vocab unk_token", .read = word_level_read},
            .encode = word_level_encode,
        },
    [TEXT_BYTES] = {.kind = {.name = "bytes"}, .encode = bytes_encode}, /* in no file */
};

const TextTable text_models = {
    .rows = text_model_rows,
    .row_bytes = sizeof *text_model_rows,
    .n = TEXT_BYTES,
    .what = "model",
};
