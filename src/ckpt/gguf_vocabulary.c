/* gguf_vocabulary.c — a tokenizer's files as facts of a GGUF file: the tokens of every id, what
 * kind each is, and merges of byte pairs, or scores of pieces. Source: llama.cpp conversion/base.py
 * (get_vocab_base, _create_vocab_sentencepiece), gguf-py/gguf/vocab.py (SpecialVocab),
 * src/llama-vocab.cpp (ways to split). */
#include "gguf.h"

#include <stdlib.h>

enum { LARGEST = 1 << 28 };

/* Kinds of tokens. Those of sentencepiece have the same numbers. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct Vocabulary {
    MxArena *arena;
    const MxGgufTokenizer *tokenizer;
    const char *path; /* tokenizer.json */
    const MxJson *json, *model;
    MxBytes *token; /* [n] */
    int32_t *kind;  /* [n] */
    float *score;   /* [n] */
    int64_t n,
        n_beyond; /* beyond: the first id that the model has no room for; -1 = there is none */
    MxError *err;
} Vocabulary;

static bool wrong(const Vocabulary *v, const char *what) {
    return mx_fail(v->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = v->path}, "%s", what);
}

static MxBytes bytes_of(const Vocabulary *v, const char *text, size_t n) {
    return (MxBytes){(uint8_t *)mx_arena_strndup(v->arena, text, n), n};
}

static void put(Vocabulary *v, int64_t id, MxBytes token, int32_t kind, float score) {
    if (id < 0 || id >= v->n) {
        v->n_beyond = id;
        return;
    }
    v->token[id] = token;
    v->kind[id] = kind;
    v->score[id] = score;
}

static const MxJson *read_json(const Vocabulary *v, const char *name) {
    const char *path = mx_path_join(v->arena, v->tokenizer->dir, name);
    MxBytes bytes;
    if (!mx_file_exists(path) || !mx_file_read(v->arena, path, LARGEST, &bytes, v->err))
        return NULL;
    return mx_json_parse(v->arena, (const char *)bytes.data, bytes.size, path, v->err);
}

/* ---- added tokens */

/* Some files say of tokens that mark roles that they are plain text. */
static bool looks_special(const char *text) {
    static const char *const whole[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
    static const char *const ends[][2] = {
        {"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}, {"<unused", ">"}};
    for (int i = 0; i < MX_COUNT(whole); i++)
        if (!strcmp(text, whole[i])) return true;
    for (int i = 0; i < MX_COUNT(ends); i++)
        if (mx_text_has_prefix(text, ends[i][0]) && mx_text_has_suffix(text, ends[i][1]))
            return true;
    return false;
}

static MxBytes with_spaces(const Vocabulary *v, const char *text) {
    MxText out;
    mx_text_init(&out, v->arena);
    static const char space[] = "\xe2\x96\x81"; /* what stands for one in pieces */
    for (size_t n = strlen(space); *text;) {
        bool is_space = !strncmp(text, space, n);
        mx_text_addn(&out, is_space ? " " : text, 1);
        text += is_space ? n : 1;
    }
    return bytes_of(v, out.data, out.len);
}

static void put_added(Vocabulary *v, int64_t id, const MxJson *token, float score) {
    const char *text = mx_json_string(mx_json_get(token, "content"));
    bool is_special = false;
    if (!text) return;
    mx_json_bool(mx_json_get(token, "special"), &is_special);
    is_special = is_special || looks_special(text);
    put(v, id, is_special ? bytes_of(v, text, strlen(text)) : with_spaces(v, text),
        is_special ? CONTROL : USER_DEFINED, score);
}

static void put_all_added(Vocabulary *v, float score) {
    const MxJson *added = mx_json_get(v->json, "added_tokens");
    for (size_t i = 0; i < mx_json_length(added); i++) {
        int64_t id = -1;
        if (mx_json_int(mx_json_get(mx_json_at(added, i), "id"), &id))
            put_added(v, id, mx_json_at(added, i), score);
    }
}

/* ---- byte pairs */

/* Words of letters, numbers of so many digits, and what stands between. */
#define WORDS(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Ways to split a text into words, by the pattern in tokenizer.json, and whether words that are
 * tokens are never merged. */
static const struct {
    const char *pattern;
    int ignores_merges; /* -1 = it does not matter */
    const char *name;
} splits[] = {
    {WORDS("{1,3}"), 1, "llama-bpe"},
    {WORDS("{1,3}"), 0, "dbrx"},
    {WORDS(""), 0, "qwen2"},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
     "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     1, "tekken"},
    {"", -1, "gpt-2"}, /* that of the row ByteLevel */
    {"Digits", -1, "smollm"},
};

/* The patterns of a pre-tokenizer, one behind the other: "" for that of ByteLevel. False = it has
 * other rows. */
static bool add_patterns(const MxJson *row, MxText *out) {
    const char *type = mx_json_string(mx_json_get(row, "type"));
    const MxJson *rows = mx_json_get(row, "pretokenizers");
    const char *regex = mx_json_string(mx_json_get(mx_json_get(row, "pattern"), "Regex"));
    bool alone = false;
    if (!type) return false;
    if (!strcmp(type, "ByteLevel")) return true;
    if (!strcmp(type, "Split") && regex) {
        mx_text_add(out, "%s", regex);
        return true;
    }
    if (!strcmp(type, "Digits") && mx_json_bool(mx_json_get(row, "individual_digits"), &alone)) {
        mx_text_add(out, "Digits%s", alone ? "" : " together");
        return true;
    }
    for (size_t i = 0; i < mx_json_length(rows); i++)
        if (!add_patterns(mx_json_at(rows, i), out)) return false;
    return !strcmp(type, "Sequence");
}

static const char *find_split(const Vocabulary *v) {
    const MxJson *row = mx_json_get(v->json, "pre_tokenizer");
    bool ignores = false;
    MxText found;
    mx_text_init(&found, v->arena);
    mx_json_bool(mx_json_get(v->model, "ignore_merges"), &ignores);
    for (int i = 0; row && add_patterns(row, &found) && i < MX_COUNT(splits); i++) {
        bool fits = splits[i].ignores_merges < 0 || splits[i].ignores_merges == ignores;
        if (fits && !strcmp(found.data, splits[i].pattern)) return splits[i].name;
        mx_text_clear(&found);
    }
    wrong(v, mx_arena_printf(v->arena,
                             "\"pre_tokenizer\" splits texts in a way for which --to-gguf knows no "
                             "name of llama.cpp's: \"%.200s\"",
                             found.len ? found.data : mx_json_dump(v->arena, row, false)));
    return NULL;
}

static bool put_vocab(Vocabulary *v) {
    const MxJson *vocab = mx_json_get(v->model, "vocab");
    const char *text;
    MxJson *value;
    for (void *at = NULL; mx_json_next(vocab, &at, &text, &value);) {
        int64_t id;
        if (!mx_json_int(value, &id)) return wrong(v, "\"vocab\": wanted numbers");
        put(v, id, bytes_of(v, text, strlen(text)), NORMAL, 0);
    }
    return mx_json_length(vocab) || wrong(v, "\"vocab\": wanted texts and their ids");
}

/* The parts of a merge. */
static bool parts_of(const MxJson *merge, const char *part[2], size_t n[2]) {
    const char *line = mx_json_string(merge);
    for (size_t i = 0; i < 2; i++) {
        part[i] = line ? line : mx_json_string(mx_json_at(merge, i));
        n[i] = part[i] ? strlen(part[i]) : 0;
    }
    const char *space = line ? strchr(line, ' ') : NULL;
    if (!line) return part[0] && part[1];
    if (!space) return false;
    n[0] = (size_t)(space - line);
    part[1] = space + 1;
    n[1] = strlen(part[1]);
    return true;
}

static bool add_merges(Vocabulary *v, MxGguf *out) {
    const MxJson *merges = mx_json_get(v->model, "merges");
    int64_t n = (int64_t)mx_json_length(merges);
    MxBytes *texts = mx_new_n(v->arena, MxBytes, n + 1);
    for (int64_t i = 0; i < n; i++) {
        const char *part[2];
        size_t length[2];
        if (!parts_of(mx_json_at(merges, (size_t)i), part, length))
            return wrong(v, mx_arena_printf(v->arena, "\"merges\", item %lld: wanted two texts",
                                            (long long)i));
        const char *text = mx_arena_printf(v->arena, "%.*s %.*s", (int)length[0], part[0],
                                           (int)length[1], part[1]);
        texts[i] = (MxBytes){(uint8_t *)(uintptr_t)text, length[0] + 1 + length[1]};
    }
    mx_gguf_add_texts(out, "tokenizer.ggml.merges", texts, n);
    return true;
}

static bool add_pairs(Vocabulary *v, MxGguf *out) {
    const char *split = find_split(v);
    if (!split || !put_vocab(v)) return false;
    put_all_added(v, 0);
    mx_gguf_add_text(out, "tokenizer.ggml.model", "gpt2");
    mx_gguf_add_text(out, "tokenizer.ggml.pre", split);
    return add_merges(v, out);
}

/* ---- pieces */

static const float of_added = -1000, of_unused = -10000;

/* tokenizer.model: its first field is repeated, and has a text, a score and a kind. */
static bool put_pieces(Vocabulary *v, const char *path) {
    MxBytes file;
    MxProtoField f, part;
    if (!mx_file_read(v->arena, path, LARGEST, &file, v->err)) return false;
    MxProto message = mx_proto_of(file.data, file.size);
    for (int64_t id = 0; mx_proto_next(&message, &f);) {
        if (f.number != 1 || f.wire != MX_PROTO_BYTES) continue;
        MxProto piece = mx_proto_of(f.bytes.at, f.value);
        MxBytes text = {0};
        float score = 0;
        int32_t kind = NORMAL;
        while (mx_proto_next(&piece, &part)) {
            uint32_t bits = (uint32_t)part.value;
            if (part.number == 1 && part.wire == MX_PROTO_BYTES)
                text = bytes_of(v, (const char *)part.bytes.at, (size_t)part.value);
            if (part.number == 2 && part.wire == MX_PROTO_32) memcpy(&score, &bits, sizeof score);
            if (part.number == 3 && part.wire == MX_PROTO_VARINT) kind = (int32_t)part.value;
        }
        put(v, id++, text, kind, score);
    }
    return !message.why ||
           mx_fail(v->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "%s", message.why);
}

/* What transformers adds to that file. */
static bool put_decoder(Vocabulary *v) {
    const MxJson *config = read_json(v, "tokenizer_config.json");
    const char *id;
    MxJson *token;
    for (void *at = NULL;
         mx_json_next(mx_json_get(config, "added_tokens_decoder"), &at, &id, &token);)
        put_added(v, strtoll(id, NULL, 10), token, of_added);
    return !v->err->count;
}

/* Without that file scores are the merges' order: the earlier, the higher. */
static bool put_merged(Vocabulary *v) {
    const MxJson *merges = mx_json_get(v->model, "merges");
    const char *unknown = mx_json_string(mx_json_get(v->model, "unk_token"));
    MxMap by_text;
    if (!put_vocab(v)) return false;
    mx_map_init(&by_text, v->arena);
    for (int64_t i = 0; i < v->n; i++) {
        const char *text = (const char *)v->token[i].data;
        bool is_byte = v->token[i].size == strlen("<0x00>") && mx_text_has_prefix(text, "<0x");
        if (v->kind[i] != NORMAL) continue;
        mx_map_set(&by_text, text, i);
        v->score[i] = -(float)mx_json_length(merges);
        v->kind[i] = is_byte ? BYTE : unknown && !strcmp(text, unknown) ? UNKNOWN : NORMAL;
    }
    for (size_t i = mx_json_length(merges); i-- > 0;) {
        const char *part[2];
        size_t n[2];
        if (!parts_of(mx_json_at(merges, i), part, n))
            return wrong(v, mx_arena_printf(v->arena, "\"merges\", item %zu: wanted two texts", i));
        const char *text =
            mx_arena_printf(v->arena, "%.*s%.*s", (int)n[0], part[0], (int)n[1], part[1]);
        int64_t id = mx_map_get(&by_text, text, -1);
        if (id >= 0) v->score[id] = -(float)i;
    }
    return true;
}

/* Whether texts get a space in front, as pieces see it. */
static bool prepends_space(const Vocabulary *v) {
    const char *text = mx_json_dump(v->arena, mx_json_get(v->json, "normalizer"), false);
    const MxJson *row = mx_json_get(v->json, "pre_tokenizer");
    const char *scheme = mx_json_string(mx_json_get(row, "prepend_scheme"));
    return strstr(text, "\"Prepend\"") || (scheme && strcmp(scheme, "never"));
}

static bool add_pieces(Vocabulary *v, MxGguf *out) {
    const char *file = mx_path_join(v->arena, v->tokenizer->dir, "tokenizer.model");
    bool has_file = mx_file_exists(file);
    if (!(has_file ? put_pieces(v, file) && put_decoder(v) : put_merged(v))) return false;
    if (!has_file) put_all_added(v, of_added);
    mx_gguf_add_text(out, "tokenizer.ggml.model", "llama");
    mx_gguf_add_text(out, "tokenizer.ggml.pre", "default");
    mx_gguf_add_floats(out, "tokenizer.ggml.scores", v->score, v->n);
    mx_gguf_add_bool(out, "tokenizer.ggml.add_space_prefix", prepends_space(v));
    return true;
}

/* ---- all of it */

static void add_special(const MxGgufTokenizer *t, MxGguf *out) {
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", t->bos},
               {"tokenizer.ggml.eos_token_id", t->eos},
               {"tokenizer.ggml.unknown_token_id", t->unk},
               {"tokenizer.ggml.padding_token_id", t->pad}};
    for (int i = 0; i < MX_COUNT(ids); i++)
        if (ids[i].id >= 0) mx_gguf_add_uint(out, ids[i].key, ids[i].id);
    mx_gguf_add_bool(out, "tokenizer.ggml.add_bos_token", t->adds_bos);
    mx_gguf_add_bool(out, "tokenizer.ggml.add_eos_token", t->adds_eos);
}

/* The template of a file; of several the default one. NULL = it has none. */
static const char *find_template(const MxJson *file) {
    const MxJson *said = mx_json_get(file, "chat_template");
    const char *text = mx_json_string(said);
    for (size_t i = 0; !text && i < mx_json_length(said); i++) {
        const char *name = mx_json_string(mx_json_get(mx_json_at(said, i), "name"));
        if (name && !strcmp(name, "default"))
            text = mx_json_string(mx_json_get(mx_json_at(said, i), "template"));
    }
    return text;
}

/* From the first file that has one, in the order of src/chat/open.c. */
static bool add_template(const Vocabulary *v, MxGguf *out) {
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json"};
    const char *own = mx_path_join(v->arena, v->tokenizer->dir, "chat_template.jinja");
    MxBytes file = {0};
    if (mx_file_exists(own) && !mx_file_read(v->arena, own, LARGEST, &file, v->err)) return false;
    const char *text = (const char *)file.data;
    for (int i = 0; !text && i < MX_COUNT(files); i++) text = find_template(read_json(v, files[i]));
    if (text) mx_gguf_add_text(out, "tokenizer.chat_template", text);
    return !v->err->count;
}

/* Ids that no file tells of. */
static void fill(Vocabulary *v) {
    for (int64_t i = 0; i < v->n; i++) {
        const char *text = mx_arena_printf(v->arena, "[PAD%lld]", (long long)i);
        put(v, i, (MxBytes){(uint8_t *)(uintptr_t)text, strlen(text)}, UNUSED, of_unused);
    }
}

bool gguf_add_vocabulary(MxArena *arena, const MxGgufTokenizer *tokenizer, int64_t n, MxGguf *out,
                         MxText *notes, MxError *err) {
    Vocabulary v = {.arena = arena, .tokenizer = tokenizer, .n = n, .n_beyond = -1, .err = err};
    if (!*tokenizer->dir) {
        mx_gguf_add_text(out, "tokenizer.ggml.model", "no_vocab");
        mx_text_add(notes, "no tokenizer is known: the file has none, and takes ids alone\n");
        return true;
    }
    v.path = mx_path_join(arena, tokenizer->dir, "tokenizer.json");
    v.json = read_json(&v, "tokenizer.json");
    if (err->count) return false;
    if (!v.json) return wrong(&v, "is missing; --to-gguf wants it of a tokenizer");
    v.model = mx_json_get(v.json, "model");
    const char *type = mx_json_string(mx_json_get(v.model, "type"));
    bool has_bytes = false;
    mx_json_bool(mx_json_get(v.model, "byte_fallback"), &has_bytes);
    v.token = mx_new_n(arena, MxBytes, n);
    v.kind = mx_new_n(arena, int32_t, n);
    v.score = mx_new_n(arena, float, n);
    fill(&v);
    if (type && strcmp(type, "BPE"))
        return wrong(&v,
                     mx_arena_printf(arena, "\"model\": found \"%s\", --to-gguf wants BPE", type));
    if (!(has_bytes ? add_pieces(&v, out) : add_pairs(&v, out))) return false;
    if (v.n_beyond >= 0)
        return wrong(&v, mx_arena_printf(arena, "has token %lld; the model has %lld",
                                         (long long)v.n_beyond, (long long)n));
    mx_gguf_add_texts(out, "tokenizer.ggml.tokens", v.token, n);
    mx_gguf_add_ints(out, "tokenizer.ggml.token_type", v.kind, n);
    add_special(tokenizer, out);
    return add_template(&v, out);
}
