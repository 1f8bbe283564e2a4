/* source.c — models in folders, Hugging Face's and ours: their config and weights. */
#include <mx/generate.h>

#include <mx/model.h>

/* ---- configs */

/* The config of a run speaks of training too; what of that would be allocated here is left out. */
static const char *const not_training[] = {
    "use_dpo=false",
    "use_grpo=false",
    "use_kto=false",
    "per_device_batch_size=1",
    "gradient_accumulation_steps=1",
    "dataset_type=synthetic",
};

static const char *set_key(MxArena *arena, MxKey key, const char *value) {
    return mx_arena_printf(arena, "%s=%s", mx_key_name(key),
                           mx_json_quote(arena, value, strlen(value)));
}

bool mx_source_config(MxArena *arena, const MxConfigRequest *request, const char *dtype,
                      MxConfig **out, MxError *err) {
    MxConfigRequest all = *request;
    const char **overrides =
        mx_new_n(arena, const char *, request->n_overrides + MX_COUNT(not_training) + 2);
    int n = 0;
    for (int i = 0; i < request->n_overrides; i++) overrides[n++] = request->overrides[i];
    for (int i = 0; i < MX_COUNT(not_training); i++) overrides[n++] = not_training[i];
    if (dtype) {
        overrides[n++] = set_key(arena, MX_KEY_dtype, dtype);
        overrides[n++] = set_key(arena, MX_KEY_weight_dtype, dtype);
    }
    all.decodes = true;
    all.overrides = overrides;
    all.n_overrides = n;
    return mx_config_load(arena, &all, out, err);
}

/* With the tokenizer that was recorded: the path in the config may be relative to the folder that
 * the run was started in. */
static bool load_config(MxArena *arena, const char *dir, const char *text, const char *dtype,
                        MxSource *out, MxError *err) {
    MxConfig *config;
    MxCkptTokenizer tokenizer;
    const char *overrides[2];
    int n = 0;
    if (!mx_ckpt_tokenizer(arena, &out->ref, &tokenizer, err)) return false;
    if (tokenizer.type) {
        overrides[n++] = set_key(arena, MX_KEY_tokenizer_type, tokenizer.type);
        overrides[n++] = set_key(arena, MX_KEY_tokenizer_path, tokenizer.path);
    }
    const MxConfigRequest request = {.text = text,
                                     .text_name = mx_arena_printf(arena, "the config of %s", dir),
                                     .overrides = overrides,
                                     .n_overrides = n};
    if (!mx_source_config(arena, &request, dtype, &config, err)) return false;
    out->config = config;
    return true;
}

static const char *text_of_hf(MxArena *arena, const char *dir, bool sees, MxError *err) {
    MxHfModel model;
    if (!mx_hf_read_config(arena, mx_hf_config_path(arena, dir), &model, err)) return NULL;
    if (*model.lacks) {
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_hf_config_path(arena, dir)},
                "not available in mxtrain: %s", model.lacks);
        return NULL;
    }
    model.sees = sees && model.encoder;
    model.hears = model.sees && model.audio;
    const char *dtype = mx_dtype_name(model.dtype);
    return mx_arena_printf(arena, "%sdtype: %s\nweight_dtype: %s\n", mx_hf_yaml(arena, &model),
                           dtype, dtype);
}

/* NULL, without an error: nobody knows. What was Hugging Face's has its config.json from
 * mxconvert. */
static const char *text_of(MxArena *arena, const MxCkptRef *ref, bool sees, MxError *err) {
    if (ref->is_hf) return text_of_hf(arena, ref->path, sees, err);
    if (!ref->manifest) return NULL;
    const char *config = mx_json_string(mx_json_get(ref->manifest, "config"));
    bool was_hf = ref->dir && mx_file_exists(mx_path_join(arena, ref->dir, MX_HF_CONFIG));
    return config || !was_hf ? config : text_of_hf(arena, ref->dir, sees, err);
}

/* ---- kernels in few bits */

/* As the folder has them, unless it is said; below adapters, as those were trained. */
static bool find_kept(MxArena *arena, const char *dir, const char *said, MxSource *out,
                      MxError *err) {
    const MxConfig *c = out->config;
    const char *below = c->enable_lora ? c->lora_weight_qtype : "", *kept = said;
    if (said && *below && strcmp(said, below))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--weights: found \"%s\", but the adapters of \"%s\" were trained over %s",
                       said, dir, below);
    if (!said && out->ref.manifest)
        kept = mx_json_string(mx_json_get(out->ref.manifest, MX_CKPT_KEPT));
    if (!kept || *below || !strcmp(kept, "floats")) return true;
    return (mx_qtype_parse(kept, &out->kept) && mx_qtypes[out->kept].is_of_weights) ||
           mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s: found \"%s\", wanted floats, %s",
                   said ? "--weights" : dir, kept, mx_qtype_list(arena));
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

/* The model in a folder, by its own config. */
static bool find_own(MxArena *arena, const char *dir, bool sees, MxWeights how, MxSource *out,
                     MxError *err) {
    const MxCkptRef *ref = &out->ref;
    if (!mx_ckpt_peek(arena, dir, &out->ref, err)) {
        if (mx_tokenizer_guess(dir))
            mx_note(err, "hint: a tokenizer alone does --tokenize and --detokenize");
        return false;
    }
    if (ref->is_hf && mx_peft_is_dir(dir) && !mx_hf_is_dir(dir)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" holds adapters of peft, wanted the model that they belong to", dir);
        mx_note(err,
                "hint: name its config: mxdecode FILE.yml load_parameters_path=MODEL "
                "lora.enable_lora=true lora.lora_restore_path=%s …",
                dir);
        return false;
    }
    const char *text = text_of(arena, ref, sees, err);
    if (!text && !err->count)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" does not tell with what config it was trained", dir);
    if (!text || !load_config(arena, dir, text, how.dtype, out, err)) return false;
    bool is_above = out->config->enable_lora && !ref->is_hf;
    out->base = is_above ? out->config->load_parameters_path : ref->ref;
    out->adapters = is_above ? ref->ref : NULL;
    return out->base || mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                                "\"%s\" holds adapters alone, over weights that were drawn; merge "
                                "them first: mxconvert --merge-lora",
                                dir);
}

/* Of the files that a config names. */
static bool find_file(MxArena *arena, const MxConfig *c, MxKey key, const char *path,
                      MxCkptRef *out, MxError *err) {
    if (!path) return true;
    if (!mx_ckpt_peek(arena, path, out, err)) return mx_context(err, "%s", mx_key_name(key));
    if (!mx_file_exists(out->path) && !mx_dir_exists(out->path))
        return mx_fail(err, MX_EXIT_BAD_INPUT, mx_config_where(c, key),
                       "%s: there is no \"%s\" here", mx_key_name(key), path);
    return mx_ckpt_try(path, err);
}

/* What a config names. */
static bool find_named(MxArena *arena, const MxConfig *c, MxSource *out, MxError *err) {
    out->config = c;
    out->base = c->load_parameters_path;
    out->adapters = c->enable_lora ? c->lora_restore_path : NULL;
    if (c->num_target_devices > 1)
        mx_warn("the mesh of %lld devices has no effect: replies come from one process",
                (long long)c->num_target_devices);
    if (!out->base)
        mx_warn("load_parameters_path is empty: the weights are initialised with "
                "init_weights_seed=%lld",
                (long long)c->init_weights_seed);
    return find_file(arena, c, MX_KEY_load_parameters_path, out->base, &out->ref, err) &&
           find_file(arena, c, MX_KEY_lora_restore_path, out->adapters, &(MxCkptRef){0}, err);
}

bool mx_source_find(MxArena *arena, const char *dir, bool sees, MxWeights how, MxSource *out,
                    MxError *err) {
    *out = (MxSource){0};
    if (how.config ? !find_named(arena, how.config, out, err)
                   : !find_own(arena, dir, sees, how, out, err))
        return false;
    const MxCkptRef *ref = &out->ref;
    const char *files = ref->is_hf ? ref->path : ref->dir;
    return find_kept(arena, dir ? dir : "the config", how.kept, out, err) &&
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
    mx_generation_make_room(c, &what);
    if (!mx_train_state_open_generation(arena, c, what, source->kept, out, err)) return false;
    bool draws = !source->base || (c->enable_lora && !source->adapters);
    if (draws) mx_train_state_init(*out);
    if ((source->base && !load(source->base, *out, err)) || !mx_train_start_adapters(*out, err) ||
        (source->adapters && !mx_source_load_adapters(*out, NULL, source->adapters, err)))
        return false;
    mx_train_state_restored(*out);
    return mx_train_check_weights(*out, err);
}
