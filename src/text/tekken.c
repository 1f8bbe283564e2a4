/* tekken.c — tekken.json, Mistral's files: ranks of tokens as those of tiktoken, a split pattern,
 * and special tokens. Ids of special tokens come first, tokens behind them. A file may have more
 * tokens than its vocabulary: the last ones are left out. Special tokens are found only in
 * what a chat template rendered.
 * Source: mistral-common 1.13, tokens/tokenizers/tekken.py. */
#include "internal.h"

#include <stdio.h>

/* Up to this version of the format a file may leave out its special tokens, which are these. */
enum { LAST_WITHOUT_SPECIAL = 7 };
static const char *const early_special[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

typedef struct Tekken {
    TextSpan pattern;
    int64_t n_special, vocab; /* vocab counts special tokens too */
    int version;
} Tekken;

static bool read_config(TextNode top, Tekken *out) {
    TextNode config = text_node_get(top, "config");
    TextSpan version = {0};
    int64_t n_there; /* how many tokens the file has, which its list says too */
    if (!config.json || strcmp(mx_json_kind(config.json), "an object"))
        return text_node_wants(config, "an object");
    if (!text_node_members(config, "pattern num_vocab_tokens default_vocab_size "
                                   "default_num_special_tokens version") ||
        !text_node_span(config, "pattern", true, &out->pattern) ||
        !text_node_int(config, "num_vocab_tokens", false, 0, &n_there) ||
        !text_node_int(config, "default_vocab_size", true, 1, &out->vocab) ||
        !text_node_int(config, "default_num_special_tokens", true, 0, &out->n_special) ||
        !text_node_span(config, "version", true, &version))
        return false;
    if (strlen(out->pattern.data) != out->pattern.n)
        return text_node_fail(text_node_get(config, "pattern"), "it holds a NUL");
    int end = 0;
    if (sscanf(version.data, "v%3d%n", &out->version, &end) != 1 || (size_t)end != version.n)
        return text_node_fail(text_node_get(config, "version"),
                              "found \"%s\", wanted v and a number", version.data);
    if (out->vocab > TEXT_MOST_ID || out->n_special >= out->vocab)
        return text_node_fail(config, "%lld tokens with %lld special ones cannot be",
                              (long long)out->vocab, (long long)out->n_special);
    return true;
}

/* ---- special tokens: those that are named, and a number for every other */

static bool read_special(TextNode list, size_t i, TextSpan *out) {
    TextNode node = text_node_at(list, i);
    int64_t rank = 0;
    bool is_control = true; /* either way it is never made of text */
    if (!node.json || strcmp(mx_json_kind(node.json), "an object"))
        return text_node_wants(node, "an object");
    if (!text_node_members(node, "rank token_str is_control") ||
        !text_node_int(node, "rank", true, 0, &rank) ||
        !text_node_span(node, "token_str", true, out) ||
        !text_node_flag(node, "is_control", &is_control))
        return false;
    if (!out->n) return text_node_fail(text_node_get(node, "token_str"), "it is empty");
    return rank == (int64_t)i || text_node_fail(text_node_get(node, "rank"),
                                                "found %lld, wanted %zu", (long long)rank, i);
}

static bool add_all_special(TextNode top, const Tekken *tekken, TextAddedSet *out) {
    TextNode list;
    if (!text_node_list(top, "special_tokens", tekken->version > LAST_WITHOUT_SPECIAL, &list))
        return false;
    size_t n_named = list.json ? mx_json_length(list.json) : MX_COUNT(early_special);
    if (n_named > (size_t)tekken->n_special)
        return text_node_fail(list, "there are %zu, but default_num_special_tokens is %lld",
                              n_named, (long long)tekken->n_special);
    for (size_t i = 0; i < (size_t)tekken->n_special; i++) {
        const char *text = i < MX_COUNT(early_special) ? early_special[i] : NULL;
        if (i >= n_named) text = mx_arena_printf(top.arena, "<SPECIAL_%zu>", i);
        TextAdded added = {.id = (int32_t)i, .is_special = true};
        if (text) added.text = (TextSpan){text, strlen(text)};
        if (i < n_named && list.json && !read_special(list, i, &added.text)) return false;
        if (text_vocab_find(&out->find, added.text) >= 0)
            return text_node_fail(list, "\"%s\" is there twice", added.text.data);
        text_added_put(out, added);
    }
    return true;
}

static int32_t find_special(const TextAddedSet *set, const char *text) {
    for (int i = 0; i < set->n; i++)
        if (!strcmp(set->item[i].text.data, text)) return set->item[i].id;
    return -1;
}

/* ---- tokens */

static bool fail_token(TextNode list, size_t i, const char *what) {
    return text_node_fail(text_node_at(list, i), "%s", what);
}

/* {"rank": i, "token_bytes": base64, "token_str": what they show, or null}. */
static bool add_token(TextNode list, size_t i, int64_t first, TextVocab *out) {
    const MxJson *token = mx_json_at(list.json, i);
    const char *base64 = mx_json_string(mx_json_get(token, "token_bytes"));
    int64_t rank;
    MxBytes bytes;
    MxText text;
    if (!mx_json_int(mx_json_get(token, "rank"), &rank) || rank != (int64_t)i)
        return fail_token(list, i, "its \"rank\" is not its place in the list");
    if (!base64 || !mx_base64(list.arena, base64, strlen(base64), &bytes) || !bytes.size)
        return fail_token(list, i, "its \"token_bytes\" are not base64");
    mx_text_init(&text, list.arena);
    text_add_byte_level(&text, (TextSpan){(const char *)bytes.data, bytes.size});
    return text_vocab_add(out, (TextSpan){text.data, text.len}, (int32_t)(first + rank)) ||
           fail_token(list, i, "its bytes are there already");
}

static bool add_tokens(TextNode top, const Tekken *tekken, TextVocab *out) {
    TextNode list;
    size_t n = (size_t)(tekken->vocab - tekken->n_special);
    if (!text_node_list(top, "vocab", true, &list)) return false;
    if (mx_json_length(list.json) < n)
        return text_node_fail(list, "there are %zu tokens, wanted %zu by default_vocab_size",
                              mx_json_length(list.json), n);
    text_vocab_init(out, top.arena, n);
    for (size_t i = 0; i < n; i++)
        if (!add_token(list, i, tekken->n_special, out)) return false;
    return true;
}

/* ---- */

bool text_open_tekken(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                      MxError *err) {
    TextNode top;
    Tekken tekken = {0};
    TextVocab vocab;
    TextAddedSet *special = &out->unsought;
    if (!text_node_parse(arena, file, bytes, &top, err) ||
        !text_node_members(top, "config vocab special_tokens version type image multimodal audio "
                                "model_settings_builder") ||
        !read_config(top, &tekken) || !add_all_special(top, &tekken, special) ||
        !add_tokens(top, &tekken, &vocab) ||
        !text_ranks_pipeline(arena, file, tekken.pattern.data, &vocab, out, err))
        return false;
    out->bos = find_special(special, "<s>");
    out->eos = find_special(special, "</s>");
    out->pad = find_special(special, "<pad>");
    if (out->bos >= 0) out->around.before = (MxTokens){&out->bos, 1};
    text_finish(arena, out);
    return true;
}
