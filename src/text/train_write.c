/* train_write.c — a trained tokenizer as files: the special tokens and bytes with which it begins,
 * and tokenizer.json as the tokenizers library writes it. */
#include "train.h"

/* What the tokenizers library requires of its members is all there. */
const char text_bytes_layout[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], "
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": false}]}, "
    "\"post_processor\": null, "
    "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
    "\"use_regex\": true}, "
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": false, \"ignore_merges\": false, \"vocab\": {}, \"merges\": []}}";

bool text_bytes_pipeline(MxArena *arena, const char *file, const char *pattern, MxTokenizer *out,
                         MxError *err) {
    MxBytes bytes = {(uint8_t *)(uintptr_t)text_bytes_layout, strlen(text_bytes_layout)};
    TextNode top;
    if (!text_node_parse(arena, file, bytes, &top, err)) return false;
    TextNode splitter = text_node_get(top, "pre_tokenizer");
    MxJson *split = mx_json_at(mx_json_get(splitter.json, "pretokenizers"), 0);
    if (pattern) mx_json_set_string(mx_json_get(split, "pattern"), "Regex", pattern);
    return text_steps_read(splitter, &text_splitters, &out->splitters) &&
           text_steps_read(text_node_get(top, "decoder"), &text_decoders, &out->decoders);
}

/* ---- what every vocabulary begins with */

static const TextSpan specials[TEXT_N_SPECIAL] = {TEXT_SPAN(MX_BPE_PAD), TEXT_SPAN("<|im_start|>"),
                                                  TEXT_SPAN(MX_BPE_EOS)};

void text_train_specials(TextAddedSet *set) {
    for (int32_t i = 0; i < TEXT_N_SPECIAL; i++)
        text_added_put(set, (TextAdded){.text = specials[i], .id = i, .is_special = true});
}

/* The characters that stand for bytes, in Unicode's order. */
void text_train_start(MxArena *arena, TextTrained *out) {
    enum { BEYOND = 0x200 };
    *out = (TextTrained){0};
    text_vocab_init(&out->tokens, arena, MX_BPE_LEAST);
    for (int32_t i = 0; i < TEXT_N_SPECIAL; i++) text_vocab_add(&out->tokens, specials[i], i);
    for (uint32_t c = 0; c < BEYOND; c++) {
        if (text_byte_of(c) < 0) continue;
        MxText text;
        mx_text_init(&text, arena);
        text_add_char(&text, c);
        text_vocab_add(&out->tokens, (TextSpan){text.data, text.len}, out->tokens.n);
    }
    MX_ASSERT(out->tokens.n == MX_BPE_LEAST);
}

/* ---- files */

static void put_specials(MxJson *top) {
    MxJson *list = mx_json_put_array(top, "added_tokens");
    for (int32_t i = 0; i < TEXT_N_SPECIAL; i++) {
        MxJson *added = mx_json_push_object(list);
        mx_json_set_int(added, "id", i);
        mx_json_set_string(added, "content", specials[i].data);
        mx_json_set_bool(added, "single_word", false);
        mx_json_set_bool(added, "lstrip", false);
        mx_json_set_bool(added, "rstrip", false);
        mx_json_set_bool(added, "normalized", false);
        mx_json_set_bool(added, "special", true);
    }
}

static void put_model(MxArena *arena, const TextTrained *trained, MxJson *model) {
    const TextVocab *tokens = &trained->tokens;
    MxJson *vocab = mx_json_put_object(model, "vocab");
    for (int32_t id = 0; id < tokens->n; id++)
        mx_json_set_int(vocab, mx_arena_strndup(arena, tokens->text[id].data, tokens->text[id].n),
                        id);
    MxJson *merges = mx_json_put_array(model, "merges");
    for (uint32_t i = 0; i < trained->n_merges; i++) {
        TextSpan a = tokens->text[trained->merge[i].a], b = tokens->text[trained->merge[i].b];
        mx_json_push_string(merges, mx_arena_printf(arena, "%.*s %.*s", (int)a.n, a.data, (int)b.n,
                                                    b.data)); /* no token holds a space */
    }
}

/* What weights were trained with is not written over. */
static bool write_json(MxArena *arena, const char *dir, const char *name, const MxJson *json,
                       MxError *err) {
    const char *path = mx_path_join(arena, dir, name);
    MxBytes old = {0};
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "%s\n", mx_json_dump(arena, json, true));
    if (mx_file_exists(path) && !mx_file_read(arena, path, SIZE_MAX, &old, err)) return false;
    if (old.data && (old.size != text.len || memcmp(old.data, text.data, text.len) != 0))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                       "is another tokenizer's; name another folder, or remove it");
    return mx_file_write(path, text.data, text.len, err);
}

static bool write_files(MxArena *arena, const TextTrained *trained, const char *dir, MxError *err) {
    MxJson *top = mx_json_parse(arena, text_bytes_layout, strlen(text_bytes_layout), "", err);
    MX_ASSERT(top);
    put_specials(top);
    put_model(arena, trained, mx_json_get(top, "model"));
    MxJson *config = mx_json_object(arena);
    mx_json_set_string(config, "tokenizer_class", "PreTrainedTokenizerFast");
    mx_json_set_string(config, "eos_token", MX_BPE_EOS);
    mx_json_set_string(config, "pad_token", MX_BPE_PAD);
    mx_json_set_bool(config, "clean_up_tokenization_spaces", false);
    return mx_dir_make(dir, err) && write_json(arena, dir, "tokenizer.json", top, err) &&
           write_json(arena, dir, "tokenizer_config.json", config, err);
}

bool mx_bpe_write(const MxBpe *trainer, int64_t vocab, const char *dir, MxBpeMade *out,
                  MxError *err) {
    MxArena arena = {.name = "tokenizer"};
    TextTrained trained;
    MX_ASSERT(vocab >= MX_BPE_LEAST && vocab <= MX_BPE_MOST);
    text_train(&arena, &trainer->counts, (int32_t)vocab, &trained);
    *out = (MxBpeMade){.n_texts = trainer->n_texts,
                       .n_bytes = trainer->n_bytes,
                       .n_words = trainer->counts.words.n,
                       .n_lost = trainer->counts.n_lost,
                       .vocab = trained.tokens.n};
    bool ok = write_files(&arena, &trained, dir, err);
    mx_arena_release(&arena);
    return ok;
}
