/* source.c — models in folders, of Hugging Face's and ours: their config, their weights. */
#include <mx/generate.h>

#include <mx/model.h>

/* ---- configs */

/* The config of a run speaks of training too; what of that would be allocated here is left out. */
static const char *const not_training[] = {
    "use_dpo=false",
    "per_device_batch_size=1",
    "gradient_accumulation_steps=1",
    "dataset_type=synthetic",
};

static bool load_config(MxArena *arena, const char *dir, const char *text, MxStrs overrides,
                        const MxConfig **out, MxError *err) {
    MxConfig *config;
    int n = MX_COUNT(not_training) + overrides.n;
    const char **all = mx_new_n(arena, const char *, n);
    memcpy(all, not_training, sizeof not_training);
    for (int i = 0; i < overrides.n; i++) all[MX_COUNT(not_training) + i] = overrides.item[i];
    MxConfigRequest request = {.text = text,
                               .text_name = mx_arena_printf(arena, "the config of %s", dir),
                               .overrides = all,
                               .n_overrides = n};
    if (!mx_config_load(arena, &request, &config, err)) return false;
    *out = config;
    return true;
}

static const char *text_of_hf(MxArena *arena, const char *dir, MxError *err) {
    MxHfModel model;
    if (!mx_hf_read_config(arena, mx_hf_config_path(arena, dir), &model, err)) return NULL;
    const char *dtype = mx_dtype_name(model.dtype);
    return mx_arena_printf(arena, "%sdtype: %s\nweight_dtype: %s\n", mx_hf_yaml(arena, &model),
                           dtype, dtype);
}

/* ---- tokens that end a text */

static bool read_ends(MxArena *arena, const char *dir, const char *name, MxSource *out,
                      MxError *err) {
    enum { LARGEST = 16 << 20 };
    const char *path = mx_path_join(arena, dir, name);
    MxBytes bytes;
    if (out->n_ends || !mx_file_exists(path)) return true;
    if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
    const MxJson *config = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
    const MxJson *ids = config ? mx_json_get(config, "eos_token_id") : NULL;
    bool is_list = ids && !strcmp(mx_json_kind(ids), "a list");
    size_t n = is_list ? mx_json_length(ids) : ids != NULL;
    out->ends = mx_new_n(arena, int32_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (mx_json_int(is_list ? mx_json_at(ids, i) : ids, &id) && id >= 0 && id <= INT32_MAX)
            out->ends[out->n_ends++] = (int32_t)id;
    }
    return config != NULL;
}

bool mx_source_find(MxArena *arena, const char *dir, MxStrs overrides, MxSource *out,
                    MxError *err) {
    *out = (MxSource){0};
    if (!mx_ckpt_peek(arena, dir, &out->ref, err)) {
        if (mx_tokenizer_guess(dir))
            mx_note(err, "hint: a tokenizer alone does --tokenize and --detokenize");
        return false;
    }
    const MxCkptRef *ref = &out->ref;
    const char *text = ref->is_hf      ? text_of_hf(arena, ref->path, err)
                       : ref->manifest ? mx_json_string(mx_json_get(ref->manifest, "config"))
                                       : NULL;
    if (!text && !err->count)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" does not tell with what config it was trained", dir);
    const char *files = ref->is_hf ? ref->path : ref->dir;
    return text && load_config(arena, dir, text, overrides, &out->config, err) &&
           (!files || (read_ends(arena, files, "generation_config.json", out, err) &&
                       read_ends(arena, files, MX_HF_CONFIG, out, err)));
}

/* ---- weights */

static bool load(const char *from, MxTrainState *s, MxError *err) {
    const MxConfig *c = mx_train_state_config(s);
    MxTree *tree = mx_train_state_tree(s);
    if (mx_hf_is_dir(from))
        return mx_hf_load_for(from, NULL, c, mx_model_head_form(mx_train_state_model(s)), tree,
                              err);
    return mx_ckpt_load_params(from, NULL, (int)c->param_scan_axis, tree, err);
}

bool mx_source_open(MxArena *arena, const MxSource *source, MxGeneration what, MxTrainState **out,
                    MxError *err) {
    const MxConfig *c = source->config;
    const char *from = source->ref.ref;
    if (!mx_train_state_open_generation(arena, c, what, out, err)) return false;
    bool has_base = c->enable_lora && !source->ref.is_hf;
    if (has_base && !c->load_parameters_path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s\" holds adapters alone, over weights that were drawn; merge them "
                       "first: mxconvert --merge-lora",
                       from);
    if (!load(has_base ? c->load_parameters_path : from, *out, err)) return false;
    if (has_base &&
        !mx_ckpt_load_adapters(from, NULL, (int)c->param_scan_axis, mx_train_state_tree(*out), err))
        return false;
    mx_train_state_restored(*out);
    return mx_train_check_weights(*out, err);
}
