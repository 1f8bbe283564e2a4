/* tokenizer.c — the tokenizer of a run's text: the one in the config, or the one that comes with
 * the run's initial weights. Two tokenizers are equal if their files are. */
#include "checkpoint.h"
#include "data.h"
#include "internal.h"

#include <limits.h>
#include <stdlib.h>

/* The tokenizer that weights have with them; path "" = they have none. */
static bool find_beside(MxArena *arena, const MxConfig *c, MxCkptTokenizer *out, MxError *err) {
    const char *const sources[] = {c->load_parameters_path, c->load_full_state_path};
    MxCkptRef ref;
    *out = (MxCkptTokenizer){.path = ""};
    for (int i = 0; i < MX_COUNT(sources) && !*out->path; i++)
        if (sources[i] && !train_is_elsewhere(sources[i]) &&
            (!mx_ckpt_peek(arena, sources[i], &ref, err) ||
             !mx_ckpt_tokenizer(arena, &ref, out, err)))
            return false;
    return true;
}

static bool find_path(MxArena *arena, const MxConfig *c, const char **out, MxError *err) {
    MxCkptTokenizer beside = {.path = ""};
    bool wants_path = strcmp(c->tokenizer_type, "byte") != 0;
    *out = mx_tokenizer_find(arena, c->tokenizer_path);
    if (**out || !wants_path) return true;
    if (!find_beside(arena, c, &beside, err)) return false;
    *out = beside.path;
    if (**out) return true;
    return mx_config_fail(err, c, MX_KEY_tokenizer_path,
                          "is empty, and there is no tokenizer where the weights come from; wants "
                          "the file or folder of the tokenizer \"%s\"",
                          c->tokenizer_type);
}

static const char *digits_of(MxArena *arena, uint64_t hash) {
    return mx_arena_printf(arena, "%016llx", (unsigned long long)hash);
}

bool train_find_tokenizer(MxArena *arena, const MxConfig *c, MxCkptTokenizer *out, MxError *err) {
    uint64_t hash;
    char whole[PATH_MAX];
    *out = (MxCkptTokenizer){.type = c->tokenizer_type};
    if (!find_path(arena, c, &out->path, err)) return false;
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
    if (!mx_data_reads_text(c->dataset_type)) return true;
    if (!find_path(arena, c, &path, err)) return false;
    if (where) *where = path;
    return mx_tokenizer_open(arena, c->tokenizer_type, path, out, err) ||
           mx_context(err, "%s", mx_key_name(MX_KEY_tokenizer_path));
}
