/* tokenizer.c — the tokenizer of a config: the one that it names, or the one that comes with its
 * weights. */
#include <mx/generate.h>

#include <mx/store.h>

/* The tokenizer that weights have with them; path "" = they have none. */
static bool find_beside(MxArena *arena, const MxConfig *c, MxCkptTokenizer *out, MxError *err) {
    const char *const sources[] = {c->load_parameters_path, c->load_full_state_path};
    MxCkptRef ref;
    *out = (MxCkptTokenizer){.path = ""};
    for (int i = 0; i < MX_COUNT(sources) && !*out->path; i++)
        if (sources[i] && !mx_config_is_elsewhere(sources[i]) &&
            (!mx_ckpt_peek(arena, sources[i], &ref, err) ||
             !mx_ckpt_tokenizer(arena, &ref, out, err)))
            return false;
    return true;
}

bool mx_source_tokenizer_path(MxArena *arena, const MxConfig *c, const char **out, MxError *err) {
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

bool mx_source_tokenizer(MxArena *arena, const MxConfig *c, MxTokenizer **out, const char **path,
                         MxError *err) {
    *out = NULL;
    if (!mx_source_tokenizer_path(arena, c, path, err)) return false;
    mx_store_guard_rearm(mx_tokenizer_file(arena, *path));
    return mx_tokenizer_open(arena, c->tokenizer_type, *path, out, err) ||
           mx_context(err, "%s", mx_key_name(MX_KEY_tokenizer_path));
}
