/* tokenizer.c — the tokenizer of a run's text (mx_source_tokenizer). Two tokenizers are equal if
 * their files are. */
#include "checkpoint.h"
#include "data.h"
#include "internal.h"

#include <mx/generate.h>

#include <limits.h>
#include <stdlib.h>

static const char *digits_of(MxArena *arena, uint64_t hash) {
    return mx_arena_printf(arena, "%016llx", (unsigned long long)hash);
}

bool train_find_tokenizer(MxArena *arena, const MxConfig *c, MxCkptTokenizer *out, MxError *err) {
    uint64_t hash;
    char whole[PATH_MAX];
    *out = (MxCkptTokenizer){.type = c->tokenizer_type};
    if (!mx_source_tokenizer_path(arena, c, &out->path, err)) return false;
    if (!mx_tokenizer_identify(out->type, out->path, &hash, err))
        return mx_context(err, "%s", mx_key_name(MX_KEY_tokenizer_path));
    if (hash) out->hash = digits_of(arena, hash);
    if (*out->path && realpath(out->path, whole)) out->path = mx_arena_strdup(arena, whole);
    return true;
}

bool train_same_tokenizer(const MxCkptTokenizer *ours, const MxCkptTokenizer *theirs) {
    MxArena arena = {.name = "tokenizer"};
    MxError ignored = {0};
    uint64_t hash = 0;
    bool is_same = !strcmp(ours->type, theirs->type);
    bool has_hash = is_same && theirs->hash && ours->hash;
    if (has_hash) is_same = !strcmp(ours->hash, theirs->hash);
    /* It may lie beside them in another form, and older records have no hash. */
    if (!has_hash && ours->hash && *theirs->path &&
        mx_tokenizer_identify(ours->type, theirs->path, &hash, &ignored))
        is_same = !strcmp(digits_of(&arena, hash), ours->hash);
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return is_same;
}

bool train_open_tokenizer(MxArena *arena, const MxConfig *c, MxTokenizer **out, const char **where,
                          MxError *err) {
    const char *path;
    *out = NULL;
    return !mx_data_reads_text(c->dataset_type) ||
           mx_source_tokenizer(arena, c, out, where ? where : &path, err);
}

MxChatFrom train_chat_from(const MxConfig *c) {
    MxKey key = c->chat_template ? MX_KEY_chat_template : MX_KEY_chat_template_path;
    return (MxChatFrom){
        .named = c->chat_template_path, .text = c->chat_template, .where = mx_config_where(c, key)};
}

bool train_open_words(MxArena *arena, const MxConfig *c, MxWords *out, MxError *err) {
    MxChatFrom from = train_chat_from(c);
    MxTokenizer *tokenizer;
    MxChat *chat = NULL;
    from.may_lack = true;
    if (!train_open_tokenizer(arena, c, &tokenizer, &from.dir, err) ||
        (tokenizer && !mx_chat_open(arena, from, &chat, err)))
        return false;
    *out = (MxWords){.tokenizer = tokenizer, .chat = chat};
    return true;
}

static void try_words(MxArena *arena, const void *config, MxError *ignored) {
    MxChatFrom from = train_chat_from(config);
    MxTokenizer *tokenizer;
    MxChat *chat;
    if (train_open_tokenizer(arena, config, &tokenizer, &from.dir, ignored))
        mx_chat_open(arena, from, &chat, ignored);
}

bool train_try_tokenizer(const MxConfig *c, MxError *err) {
    return !mx_data_reads_text(c->dataset_type) || !strcmp(c->tokenizer_type, "byte") ||
           mx_store_try("the tokenizer", try_words, c, err);
}
