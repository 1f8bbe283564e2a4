/* json.c — tokenizer.json of the tokenizers library, and the special tokens in the files beside it.
 * Members about padding and truncation are ignored: the caller does both. */
#include "internal.h"

/* ---- added tokens */

/* One of "added_tokens". Its id is that of the model's vocabulary, if it is there. */
static bool read_added(TextNode node, MxTokenizer *tokenizer) {
    TextAdded added = {0};
    bool is_normalized = true;
    int64_t id = -1;
    if (!node.json) return text_node_wants(node, "an object");
    if (!text_node_members(node, "id content single_word lstrip rstrip normalized special") ||
        !text_node_int(node, "id", true, 0, &id) ||
        !text_node_span(node, "content", true, &added.text) ||
        !text_node_flag(node, "single_word", &added.is_word) ||
        !text_node_flag(node, "lstrip", &added.takes_left) ||
        !text_node_flag(node, "rstrip", &added.takes_right) ||
        !text_node_flag(node, "normalized", &is_normalized) ||
        !text_node_flag(node, "special", &added.is_special))
        return false;
    int32_t known = text_vocab_find(text_model_vocab(&tokenizer->model), added.text);
    if (known >= 0 && known != id)
        return text_node_fail(node, "\"%s\" has the id %lld, but %d in the vocabulary",
                              added.text.data, (long long)id, known);
    if (!added.text.n) return true; /* it is never found */
    if (id > TEXT_MOST_ID) return text_node_fail(node, "the id %lld is too large", (long long)id);
    added.id = (int32_t)id;
    text_added_put(is_normalized ? &tokenizer->normal : &tokenizer->raw, added);
    return true;
}

/* Tokens that are looked for behind the normalizers are looked for, and shown, as those make them.
 */
static bool normalize_added(MxArena *arena, MxTokenizer *tokenizer, MxError *err) {
    TextAddedSet as_written = tokenizer->normal;
    TextWork work = {.err = err};
    bool ok = true;
    text_added_init(&tokenizer->normal, arena);
    text_work_init(&work, tokenizer);
    for (int i = 0; ok && i < as_written.n; i++) {
        TextAdded added = as_written.item[i];
        ok = text_normalize(&work, added.text, &added.text);
        if (!ok || !added.text.n) continue;
        added.text.data = mx_arena_strndup(arena, added.text.data, added.text.n);
        text_added_put(&tokenizer->normal, added);
    }
    mx_arena_release(&work.arena);
    return ok;
}

static bool read_all_added(TextNode top, MxTokenizer *tokenizer) {
    TextNode list;
    if (!text_node_list(top, "added_tokens", false, &list)) return false;
    for (size_t i = 0; list.json && i < mx_json_length(list.json); i++)
        if (!read_added(text_node_at(list, i), tokenizer)) return false;
    if (!normalize_added(top.arena, tokenizer, top.err)) return false;
    text_finish(top.arena, tokenizer);
    return true;
}

/* ---- which tokens are bos, eos, padding and unknown text */

static int32_t find_token(const MxTokenizer *tokenizer, TextSpan text) {
    for (int32_t id = tokenizer->vocab; id-- > 0;)
        if (tokenizer->text[id].data && text_same(tokenizer->text[id], text)) return id;
    return -1;
}

/* "<s>", or {"content": "<s>", …}. */
static bool read_token(TextNode top, const char *key, const MxTokenizer *tokenizer, int32_t *out) {
    TextNode node = text_node_get(top, key);
    TextSpan text = {0};
    bool is_object = node.json && !strcmp(mx_json_kind(node.json), "an object");
    if (!(is_object ? text_node_span(node, "content", true, &text)
                    : text_node_span(top, key, false, &text)))
        return false;
    if (!text.data || *out >= 0) return true;
    *out = find_token(tokenizer, text);
    return *out >= 0 || text_node_fail(node, "\"%s\" is no token of tokenizer.json", text.data);
}

/* A token that a model may lack. */
static void find_named(TextNode top, const char *key, const MxTokenizer *tokenizer, int32_t *out) {
    const MxJson *json = text_node_get(top, key).json;
    if (json && !strcmp(mx_json_kind(json), "an object")) json = mx_json_get(json, "content");
    const char *text = json ? mx_json_string(json) : NULL;
    if (text && *out < 0) *out = find_token(tokenizer, (TextSpan){text, strlen(text)});
}

/* A number, or of a list the first one. */
static void read_token_id(TextNode top, const char *key, const MxTokenizer *tokenizer,
                          int32_t *out) {
    TextNode node = text_node_get(top, key);
    int64_t id;
    const MxJson *json = node.json;
    if (json && !strcmp(mx_json_kind(json), "a list")) json = mx_json_at(json, 0);
    if (*out < 0 && json && mx_json_int(json, &id) && id >= 0 && id < tokenizer->vocab)
        *out = (int32_t)id;
}

/* What the files beside it say, the first that does. */
static bool read_special(MxArena *arena, const char *dir, MxTokenizer *tokenizer, MxError *err) {
    static const char *const by_text[] = {"tokenizer_config.json", "special_tokens_map.json"};
    static const char *const by_id[] = {"generation_config.json", "config.json"};
    for (int i = 0; i < MX_COUNT(by_text) + MX_COUNT(by_id); i++) {
        bool is_text = i < MX_COUNT(by_text);
        char *path = mx_path_join(arena, dir, is_text ? by_text[i] : by_id[i - MX_COUNT(by_text)]);
        MxBytes bytes;
        TextNode top;
        if (!mx_file_exists(path)) continue;
        if (!mx_file_read(arena, path, (size_t)1 << 28, &bytes, err) ||
            !text_node_parse(arena, path, bytes, &top, err))
            return false;
        if (is_text) find_named(top, "pad_token", tokenizer, &tokenizer->pad);
        if (is_text) find_named(top, "unk_token", tokenizer, &tokenizer->unk);
        if (!is_text) {
            read_token_id(top, "bos_token_id", tokenizer, &tokenizer->bos);
            read_token_id(top, "eos_token_id", tokenizer, &tokenizer->eos);
        } else if (!read_token(top, "bos_token", tokenizer, &tokenizer->bos) ||
                   !read_token(top, "eos_token", tokenizer, &tokenizer->eos)) {
            return false;
        }
    }
    return true;
}

/* ---- */

static bool check_around(TextNode top, const MxTokenizer *tokenizer) {
    MxTokens sides[] = {tokenizer->around.before, tokenizer->around.behind};
    for (int s = 0; s < MX_COUNT(sides); s++)
        for (int64_t i = 0; i < sides[s].n; i++)
            if (sides[s].ids[i] >= tokenizer->vocab)
                return text_node_fail(text_node_get(top, "post_processor"),
                                      "the id %d is no token's", sides[s].ids[i]);
    return true;
}

static bool read_model(TextNode top, TextStep *out) {
    TextNode model = text_node_get(top, "model");
    if (!model.json) return text_node_wants(model, "an object");
    return text_kind_read(model, &text_models, out);
}

static bool read_top(TextNode top, MxTokenizer *out) {
    return text_node_members(top, "version truncation padding added_tokens normalizer "
                                  "pre_tokenizer post_processor decoder model") &&
           read_model(top, &out->model) &&
           text_steps_read(text_node_get(top, "normalizer"), &text_normalizers,
                           &out->normalizers) &&
           text_steps_read(text_node_get(top, "pre_tokenizer"), &text_splitters, &out->splitters) &&
           text_steps_read(text_node_get(top, "decoder"), &text_decoders, &out->decoders) &&
           text_around_read(text_node_get(top, "post_processor"), &out->around) &&
           read_all_added(top, out) && check_around(top, out);
}

/* The tree of the file; an error is told of the whole of it. */
static bool parse(MxArena *arena, const char *file, MxBytes bytes, TextMerges *merges,
                  TextNode *top, MxError *err) {
    MxError ignored = {0};
    MxBytes rest;
    bool ok = text_merges_read(arena, bytes, merges, &rest) &&
              text_node_parse(top->arena, file, rest, top, &ignored);
    mx_error_release(&ignored);
    if (!ok) return text_node_parse(top->arena, file, bytes, top, err);
    top->merges = merges;
    top->err = err;
    return true;
}

bool text_open_json(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                    MxError *err) {
    MxArena scratch = {.name = "merges"};
    TextMerges merges;
    TextNode top = {.arena = arena};
    bool ok = parse(&scratch, file, bytes, &merges, &top, err) && read_top(top, out);
    if (ok && !text_node_get(top, "decoder").json) out->joint = " ";
    mx_arena_release(&scratch);
    return ok && read_special(arena, mx_path_dir(arena, file), out, err);
}
