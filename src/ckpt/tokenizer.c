/* tokenizer.c — the tokenizer with which weights were trained, as recorded in a checkpoint: in the
 * manifest of a folder, or as an attribute of an HDF5 file. A Hugging Face folder without such a
 * record has its own tokenizer. If there is no record, nothing is guessed. */
#include <mx/ckpt.h>

#include "hf.h"

static const char member[] = "tokenizer", attribute[] = "mxtrain_tokenizer";
static const char hash_member[] = "xxh3_64";
static const char theirs[] = "huggingface";

static MxCkptTokenizer of_json(MxArena *arena, const MxJson *json) {
    const char *type = mx_json_string(mx_json_get(json, "type"));
    const char *path = mx_json_string(mx_json_get(json, "path"));
    const char *hash = mx_json_string(mx_json_get(json, hash_member));
    return (MxCkptTokenizer){.type = type ? mx_arena_strdup(arena, type) : NULL,
                             .path = mx_arena_strdup(arena, path ? path : ""),
                             .hash = hash ? mx_arena_strdup(arena, hash) : NULL};
}

static MxJson *to_json(MxArena *arena, const MxCkptTokenizer *tokenizer) {
    MxJson *json = mx_json_object(arena);
    mx_json_set_string(json, "type", tokenizer->type);
    if (*tokenizer->path) mx_json_set_string(json, "path", tokenizer->path);
    if (tokenizer->hash) mx_json_set_string(json, hash_member, tokenizer->hash);
    return json;
}

void ckpt_tell_tokenizer(MxArena *arena, const MxCkptTokenizer *tokenizer, MxJson *manifest) {
    if (tokenizer->type) mx_json_set(manifest, member, to_json(arena, tokenizer));
}

bool ckpt_note_tokenizer(MxArena *arena, MxH5 *file, const MxCkptTokenizer *tokenizer,
                         MxError *err) {
    return !tokenizer->type ||
           mx_h5_set_attr(file, "", attribute,
                          mx_json_dump(arena, to_json(arena, tokenizer), false), err);
}

/* What an open file has noted. */
static bool read_note(MxArena *arena, MxH5 *file, MxCkptTokenizer *out, MxError *err) {
    char *text = NULL;
    if (!mx_h5_attr(arena, file, "", attribute, &text, err)) return false;
    const MxJson *json =
        text ? mx_json_parse(arena, text, strlen(text), mx_h5_path(file), err) : NULL;
    if (json) *out = of_json(arena, json);
    return json || !text;
}

/* A folder that mxconvert made of one of Hugging Face's has its config.json, and the files of its
 * tokenizer too. */
static void move_closer(const MxCkptRef *ref, MxArena *arena, MxCkptTokenizer *out) {
    const char *dir = ref->is_hf ? ref->path : ref->dir;
    if (out->type && !strcmp(out->type, theirs) && dir &&
        mx_file_exists(mx_hf_config_path(arena, dir)))
        out->path = mx_arena_strdup(arena, dir);
}

bool ckpt_tokenizer(MxArena *arena, const CkptFile *file, MxCkptTokenizer *out, MxError *err) {
    const MxCkptRef *ref = &file->ref;
    const MxJson *json = ref->manifest ? mx_json_get(ref->manifest, member) : NULL;
    *out = (MxCkptTokenizer){.path = ""};
    if (json)
        *out = of_json(arena, json);
    else if (ref->is_hf && !ref->manifest && mx_hf_is_dir(ref->path))
        out->type = theirs; /* a folder of peft knows no tokenizer */
    else if (!ref->is_hf && !read_note(arena, file->file, out, err))
        return false;
    move_closer(ref, arena, out);
    return true;
}

bool mx_ckpt_tokenizer(MxArena *arena, const MxCkptRef *ref, MxCkptTokenizer *out, MxError *err) {
    MxArena scratch = {.name = "tokenizer"};
    CkptFile file = {.ref = *ref};
    bool ok = ref->is_hf || mx_h5_open(&scratch, ref->path, &file.file, err);
    ok = ok && ckpt_tokenizer(arena, &file, out, err);
    mx_arena_release(&scratch);
    return ok;
}
