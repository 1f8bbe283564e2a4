/* origin.c — checks, before anything is built, that a run fits its initial weights: their tokenizer
 * must be the run's, their sizes those of its model. Facts that a checkpoint does not record are
 * not guessed. */
#include <mx/train.h>

#include "checkpoint.h"
#include "internal.h"

#include <mx/data.h>

/* Where weights come from. */
typedef struct Source {
    MxKey key;              /* that names it */
    const char *path;       /* NULL = nothing comes from there */
    const MxConfig *config; /* of the model that they are for; NULL = what is read has its own */
} Source;

enum { N_SOURCES = 5 };

/* In the order in which they count: what was trained last first. */
static void list_sources(const MxConfig *c, const char *own, Source *out) {
    bool loads = !own || c->enable_lora;
    const Source sources[N_SOURCES] = {
        {MX_KEY_dataset_type, own, NULL},
        {MX_KEY_load_full_state_path, own ? NULL : c->load_full_state_path, NULL},
        {MX_KEY_lora_restore_path, own ? NULL : c->lora_restore_path, NULL},
        {MX_KEY_load_parameters_path, loads ? c->load_parameters_path : NULL, c},
        {MX_KEY_teacher_overrides, c->teacher ? c->teacher->load_parameters_path : NULL,
         c->teacher}};
    memcpy(out, sources, sizeof sources);
}

/* ---- tokenizers */

static bool find_tokenizer(MxArena *arena, const char *path, MxCkptTokenizer *out, MxError *err) {
    MxCkptRef ref;
    return mx_ckpt_peek(arena, path, &ref, err) && mx_ckpt_tokenizer(arena, &ref, out, err);
}

/* Ids mean nothing to weights that learned others. */
static bool check_tokenizer(const MxConfig *c, const Source *source, const MxCkptTokenizer *theirs,
                            const MxCkptTokenizer *ours, MxError *err) {
    if (!theirs->type || !ours->type || train_same_tokenizer(ours, theirs)) return true;
    bool has_place = *theirs->path && strcmp(theirs->path, source->path);
    mx_config_fail(err, c, source->key,
                   "the weights in \"%s\" were trained with the tokenizer \"%s\"%s%s%s, but "
                   "dataset_type=%s makes tokens with %s\"%s\"%s%s%s, which mean nothing to them",
                   source->path, theirs->type, has_place ? " of \"" : "",
                   has_place ? theirs->path : "", has_place ? "\"" : "", c->dataset_type,
                   strcmp(theirs->type, ours->type) ? "" : "another ", ours->type,
                   *ours->path ? " of \"" : "", ours->path, *ours->path ? "\"" : "");
    mx_note(err, "hint: tokenizer_type=%s%s makes tokens that they know (docs/TOKENIZERS.md)",
            theirs->type, strcmp(theirs->type, "byte") ? " tokenizer_path=FILE_OR_FOLDER" : "");
    return false;
}

/* ---- sizes */

/* One line for what else were an error for each array. A folder of Hugging Face's tells its sizes,
 * and so does what mxconvert made of it. */
static bool check_sizes(MxArena *arena, const MxConfig *run, const Source *source, MxError *err) {
    const MxConfig *c = source->config;
    MxCkptRef ref;
    MxHfModel t;
    if (!mx_ckpt_peek(arena, source->path, &ref, err)) return false;
    const char *dir = ref.is_hf ? ref.path : ref.dir;
    const char *json = dir ? mx_hf_config_path(arena, dir) : NULL;
    if (!json || !mx_file_exists(json)) return true;
    if (!mx_hf_read_config(arena, json, &t, err)) return false;
    bool is_family = !strcmp(t.decoder_block, c->decoder_block);
    MxHfModel ours = mx_hf_of_config(c, (MxHeadForm){0});
    if (ref.is_hf && !c->logits_via_embedding) t.is_tied = false; /* a copy of the embedding */
    const char *others = mx_hf_other_shapes(arena, &t, &ours);
    if (is_family && !*others) return true;
    mx_config_fail(
        err, run, source->key, "\"%s\" holds another model than this config: %s%s%s%s",
        source->path, is_family ? "" : "decoder_block=", is_family ? "" : t.decoder_block,
        is_family ? ""
                  : mx_arena_printf(arena, " (here %s)%s", c->decoder_block, *others ? ", " : ""),
        others);
    if (ref.is_hf)
        mx_note(err,
                "hint: mxconvert %s DST writes DST/model.yml, the config of that model: mxtrain "
                "--config DST/model.yml load_parameters_path=DST …",
                source->path);
    else
        mx_note(err, "hint: mxtrain --config %s/model.yml load_parameters_path=%s …", dir,
                source->path);
    return false;
}

/* ---- */

static bool check_source(MxArena *arena, const MxConfig *c, const Source *source,
                         const MxCkptTokenizer *ours, MxCkptTokenizer *found, MxError *err) {
    if (source->config && !check_sizes(arena, c, source, err)) return false;
    if (!find_tokenizer(arena, source->path, found, err))
        return mx_context(err, "%s", mx_key_name(source->key));
    return check_tokenizer(c, source, found, ours, err);
}

bool train_check_origin(MxArena *arena, const MxConfig *c, MxComm *comm, const char *own,
                        MxCkptTokenizer *out, MxError *err) {
    Source sources[N_SOURCES];
    MxCkptTokenizer ours = {.path = ""};
    MxError refused = {0};
    bool is_first = mx_comm_rank(comm) == 0;
    /* What a run refuses before, a plan only tells: it is often made elsewhere. */
    bool wants_tokenizer = mx_data_reads_text(c->dataset_type) && mx_config_runnable(c, &refused);
    bool ok = !is_first || !wants_tokenizer || train_find_tokenizer(arena, c, &ours, err);
    mx_error_release(&refused);
    list_sources(c, own, sources);
    *out = ours;
    for (int i = 0; i < N_SOURCES && is_first && ok; i++) {
        MxCkptTokenizer found = {0};
        if (!sources[i].path || mx_config_is_elsewhere(sources[i].path)) continue;
        ok = check_source(arena, c, &sources[i], &ours, &found, err);
        if (!out->type && found.type) *out = found;
    }
    return train_agree(comm, ok, err);
}

bool mx_train_origin(const MxConfig *config, MxComm *comm, MxError *err) {
    MxArena arena = {.name = "origin"};
    Checkpoints *checkpoints;
    bool ok = checkpoints_open(&arena, config, comm, CHECKPOINTS_PLAN, &checkpoints, err) &&
              checkpoints_try(checkpoints, err);
    mx_arena_release(&arena);
    return ok;
}
