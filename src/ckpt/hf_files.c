/* hf_files.c — files beside the weights in a Hugging Face folder that belong to the model: its
 * tokenizer and its generation config. They are copied unchanged and never read here. Source of the
 * names: transformers 5.23 tokenization_utils_base.py, generation/configuration_utils.py. */
#include "hf.h"

static const char *const companions[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tekken.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
};

/* Members of config.json that name tokens. */
static const char *const special_tokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

bool mx_hf_carry(const char *from, const char *to, MxText *notes, MxError *err) {
    enum { LARGEST = 1 << 30 };
    const char *mark = "carried along: ";
    bool ok = true;
    for (int i = 0; ok && i < MX_COUNT(companions); i++) {
        MxArena arena = {.name = "companion"};
        MxBytes bytes;
        const char *path = mx_path_join(&arena, from, companions[i]);
        if (mx_file_exists(path)) {
            ok =
                mx_file_read(&arena, path, LARGEST, &bytes, err) &&
                mx_file_write(mx_path_join(&arena, to, companions[i]), bytes.data, bytes.size, err);
            mx_text_add(notes, "%s%s", mark, companions[i]);
            mark = ", ";
        }
        mx_arena_release(&arena);
    }
    bool is_any = *mark == ',';
    mx_text_add(notes, is_any ? " of \"%s\"\n" : "no tokenizer in \"%s\" to be carried along\n",
                from);
    return ok;
}

bool mx_hf_special_tokens(MxArena *arena, const char *dir, MxJson *out, MxError *err) {
    enum { LARGEST = 16 << 20 };
    const char *path = mx_path_join(arena, dir, MX_HF_CONFIG);
    MxBytes bytes;
    if (!mx_file_exists(path)) return true;
    if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
    const MxJson *config = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
    for (int i = 0; config && i < MX_COUNT(special_tokens); i++) {
        const MxJson *id = mx_json_get(config, special_tokens[i]);
        if (id) mx_json_set(out, special_tokens[i], id);
    }
    return config != NULL;
}
