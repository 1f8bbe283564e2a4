/* mxconvert_facts.c — facts that a conversion needs besides the arrays: the scale and the base of
 * adapters, the model of an export. They come from configs and manifests. */
#include "mxconvert.h"

/* ---- adapters */

/* The config that SRC holds, or the one that is named; NULL = there is none. */
static bool load_config(const Work *work, const char *file, MxArena *arena, const MxConfig **out,
                        MxError *err) {
    const MxJson *manifest = work->from.manifest;
    MxConfigRequest request = {
        .files = &file,
        .n_files = file != NULL,
        .text = manifest ? mx_json_string(mx_json_get(manifest, "config")) : NULL,
        .text_name = mx_arena_printf(arena, "the config in %s", work->from.ref)};
    MxConfig *config = NULL;
    *out = NULL;
    if (!file && !request.text) return true;
    if (file && request.text)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--config: \"%s\" holds its config itself",
                       work->from.ref);
    if (!mx_config_load(arena, &request, &config, err)) return false;
    *out = config;
    return true;
}

static bool settle_alpha(const Work *work, const MxConfig *config, double *out, MxError *err) {
    double said = work->line->alpha, theirs = config ? config->lora_alpha : 0;
    *out = said > 0 ? said : theirs;
    if (!(said > 0 && theirs > 0) || said == theirs) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "--lora-alpha: found %.15g, but the config says %.15g", said, theirs);
}

static bool find_base(Work *work, const MxConfig *config, MxArena *arena, MxError *err) {
    MxAdapterFacts *facts = &work->line->how.facts;
    const char *ref = work->line->base;
    facts->is_base_said = ref != NULL;
    if (!ref && config) {
        ref = config->load_parameters_path;
        facts->base_hint =
            ref ? mx_arena_printf(arena,
                                  "hint: that is the load_parameters_path in the config of \"%s\"; "
                                  "--base names another place",
                                  work->from.ref)
                : mx_arena_printf(
                      arena, "hint: its config draws them (init_weights_seed %lld), from no file",
                      (long long)config->init_weights_seed);
    }
    if (!ref) return true;
    facts->base = &work->base;
    bool is_found = mx_ckpt_find(arena, ref, NULL, &work->base, err);
    work->base.sees = config && config->use_multimodal;
    work->base.hears = work->base.sees && config->use_audio;
    work->base.unties = config && !config->logits_via_embedding;
    if (is_found) return true;
    if (facts->base_hint) mx_note(err, "%s", facts->base_hint);
    return false;
}

/* The model as Hugging Face has it: also whether its weights are from a folder of one that sees, in
 * which the text model has other names. */
static bool find_model(Work *work, const MxConfig *config, MxHeadForm heads, MxArena *arena,
                       MxError *err) {
    const char *const dirs[] = {config->load_parameters_path, work->line->base};
    MxHfModel *model = mx_new(arena, MxHfModel);
    bool is_found = false;
    *model = mx_hf_of_config(config, heads);
    for (int i = 0; i < MX_COUNT(dirs) && !is_found; i++) {
        is_found = dirs[i] && mx_hf_is_dir(dirs[i]);
        if (is_found && !mx_hf_see(arena, dirs[i], model, err)) return false;
    }
    model->sees = config->use_multimodal;
    model->hears = model->sees && config->use_audio;
    if (model->sees) model->encoder = mx_encoder_find(config->vision_encoder_block);
    work->peft.model = model;
    return true;
}

bool mxconvert_adapters(Work *work, MxArena *arena, MxError *err) {
    const MxConfig *config;
    MxModel *model = NULL;
    MxAdapterFacts *facts = &work->line->how.facts;
    bool merges = work->line->merges;
    if (!merges && !work->line->to_peft) return true;
    if (!load_config(work, work->line->config, arena, &config, err) ||
        !settle_alpha(work, config, &facts->alpha, err) ||
        (config && !mx_model_new(arena, config, &model, err)) ||
        (merges && !find_base(work, config, arena, err)))
        return false;
    if (model) {
        MxHeadForm *heads = mx_new(arena, MxHeadForm);
        *heads = mx_model_head_form(model);
        /* The run may hold kernels otherwise than its base's config says. */
        work->base.heads = heads;
        if (work->line->to_peft && !find_model(work, config, *heads, arena, err)) return false;
        facts->weights = mx_model_params(model);
    }
    const char *base = work->line->base;
    if (!base && config) base = config->load_parameters_path;
    work->peft.base = base ? base : "";
    work->peft.alpha = facts->alpha;
    work->peft.dropout = config ? config->lora_dropout : 0;
    work->peft.verifies = work->line->how.verifies;
    return true;
}

/* ---- Hugging Face's models */

static bool model_of_config(MxArena *arena, const MxConfig *c, MxHfModel *out, MxError *err) {
    MxModel *model;
    if (!mx_hf_fits(c, err) || !mx_model_new(arena, c, &model, err)) return false;
    *out = mx_hf_of_config(c, mx_model_head_form(model));
    return true;
}

bool mxconvert_names_json(const CommandLine *line) {
    return line->config && mx_text_has_suffix(line->config, ".json");
}

/* The config.json that tells the model to export: the one that is named, or SRC's own, which a
 * conversion left there; NULL = there is none. */
static const char *find_json(const Work *work, MxArena *arena) {
    const char *named = work->line->config,
               *dir = work->from.is_hf ? work->from.path : work->from.dir;
    if (named) return mxconvert_names_json(work->line) ? named : NULL;
    const char *path = dir ? mx_hf_config_path(arena, dir) : NULL;
    return path && mx_file_exists(path) ? path : NULL;
}

/* The config.json of the folder that a run began with, or the run that it began with, and so on;
 * NULL = there is none, or not any more: `lost` is then what cannot be found. */
static const char *find_first(const MxConfig *config, MxArena *arena, const char **lost) {
    enum { MOST_RUNS = 100 };
    const char *json = NULL;
    MxError ignored = {0};
    for (int i = 0; config && !json && i < MOST_RUNS; i++) {
        const char *ref = config->load_parameters_path;
        Work before = {.line = &(CommandLine){0}};
        config = NULL;
        if (ref && mx_hf_is_dir(ref))
            json = mx_hf_config_path(arena, ref);
        else if (ref && (!mx_ckpt_peek(arena, ref, &before.from, &ignored) ||
                         !(before.from.dir || mx_file_exists(before.from.path))))
            *lost = ref;
        else if (ref && !(json = find_json(&before, arena)))
            load_config(&before, NULL, arena, &config, &ignored);
    }
    mx_error_release(&ignored);
    return json;
}

/* Of a run: the config.json of the folder that it began with says more than its own config. Of one
 * that sees images, our keys do not tell all of the encoder. */
static bool take_first(Work *work, const MxConfig *config, MxArena *arena, MxHfModel *out,
                       const char **json, MxError *err) {
    MxHfModel theirs;
    MxError ignored = {0};
    const char *lost = NULL, *path = find_first(config, arena, &lost), *changed = NULL;
    if (config->use_multimodal) {
        *json = path;
        if (path) return mx_hf_read_config(arena, path, out, err);
        return mx_fail(
            err, MX_EXIT_BAD_INPUT, (MxWhere){.file = work->from.ref},
            "it sees images, and our keys do not tell all of its encoder; --config names "
            "the config.json of the folder that it began with");
    }
    bool is_read = path && mx_hf_read_config(arena, path, &theirs, &ignored);
    if (is_read && mx_hf_adapt(arena, &theirs, &work->hf.model, out, &changed)) *json = path;
    mx_error_release(&ignored);
    int64_t *length = &work->hf.model.length;
    if (is_read && *length < theirs.length) *length = theirs.length; /* rows of a run are shorter */
    const char *from = lost ? lost : path ? mx_path_dir(arena, path) : NULL;
    if (*json)
        work->remark =
            mx_arena_printf(arena, "config.json: that of \"%s\"%s%s", from,
                            *changed ? ", with other numbers of the run: " : "", changed);
    else if (from)
        work->remark = mx_arena_printf(
            arena,
            "config.json: made from the config of the run; \"%s\", which it began with, %s%s", from,
            lost      ? "cannot be found; --config names its config.json"
            : is_read ? "is of another model: "
                      : "is not understood",
            changed ? changed : "");
    return true;
}

bool mxconvert_model(Work *work, MxArena *arena, MxError *err) {
    const MxConfig *config;
    const CommandLine *line = work->line;
    MxHfExport *hf = &work->hf;
    *hf = (MxHfExport){.shard_bytes = line->shard_bytes, .verifies = line->how.verifies};
    MxHfModel theirs = {.dtype = MX_F32};
    if (!load_config(work, mxconvert_names_json(line) ? NULL : line->config, arena, &config, err))
        return false;
    const char *json = find_json(work, arena);
    if ((config && !model_of_config(arena, config, &hf->model, err)) ||
        (json && !mx_hf_read_config(arena, json, &theirs, err)))
        return false;
    hf->dtype = line->how.casts ? line->how.param_dtype : theirs.dtype; /* a run's is float32 */
    if (config && !json && !take_first(work, config, arena, &theirs, &json, err)) return false;
    if (!json && !config)
        return mx_fail(
            err, MX_EXIT_BAD_INPUT, (MxWhere){.file = work->from.ref},
            "its model is not known; --config names the config of its run, or a config.json");
    if (json && config) { /* of a run, which may hold kernels in its own way */
        if (!mx_hf_agree(&theirs, &hf->model, (MxWhere){.file = json}, err)) return false;
        theirs.heads = hf->model.heads;
    }
    theirs.is_meta = false; /* of the result */
    /* What a conversion left there is of all that it took; a run may have taken the text alone. */
    bool has_encoder = !work->from.is_hf && (!config || config->use_multimodal);
    theirs.sees = theirs.encoder && (work->line->sees || has_encoder);
    theirs.hears = theirs.sees && theirs.audio && (!config || config->use_audio);
    if (json) hf->model = theirs;
    return true;
}

/* ---- weights in few bits */

/* The config of a model of Hugging Face's, or what load_config finds. */
static bool config_of_model(Work *work, MxArena *arena, const MxConfig **out, MxError *err) {
    MxHfModel theirs;
    MxConfig *config = NULL;
    if (!work->from.is_hf) return load_config(work, work->line->config, arena, out, err);
    const char *json = mx_path_join(arena, work->from.path, MX_HF_CONFIG);
    if (!mx_hf_read_config(arena, json, &theirs, err)) return false;
    if (*theirs.lacks)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = json},
                       "not available in mxtrain: %s", theirs.lacks);
    theirs.sees = work->line->sees;
    theirs.hears = theirs.sees && theirs.audio;
    MxConfigRequest request = {
        .text = mx_arena_printf(arena, "%sdataset_type: synthetic\n", mx_hf_yaml(arena, &theirs)),
        .text_name = json};
    bool ok = mx_config_load(arena, &request, &config, err);
    *out = config;
    return ok;
}

bool mxconvert_quantized(Work *work, MxArena *arena, MxError *err) {
    const MxConfig *config;
    MxModel *model;
    MxQtype type;
    bool is_known = mx_qtype_parse(work->line->quantize, &type);
    MX_ASSERT(is_known); /* the command line was checked */
    if (!config_of_model(work, arena, &config, err)) return false;
    if (!config)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = work->from.ref},
                       "its model is not known; --config names the config of its run");
    if (!mx_model_new(arena, config, &model, err) || !mx_model_keep(arena, model, type, err))
        return false;
    work->line->how.quantized = mx_model_params(model);
    return true;
}
