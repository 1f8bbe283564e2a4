/* hf_read.c — reads a Hugging Face folder as if it were a file of ours: config.json determines the
 * model, the table its parameters, and each parameter is a tensor of model.safetensors or of one of
 * the shards in model.safetensors.index.json. */
#include "hf.h"

#include <stdlib.h>

typedef struct Folder {
    MxArena *arena;
    const char *dir;
    const char *names; /* the file that lists tensors, for messages */
    HfShards shards;
    const MxHfModel *model;
    MxMap wanted, by_path; /* of arrays, by their tensors' names and by ours */
    bool is_within;        /* tensors of the text model have further names before their own */
    bool is_bare;          /* as MxHfNames has it */
    MxError *err;
} Folder;

static bool refuse(const Folder *f, const char *file, const char *what) {
    return mx_fail(f->err, MX_EXIT_BAD_INPUT,
                   (MxWhere){.file = mx_path_join(f->arena, f->dir, file)}, "%s", what);
}

const char *mx_hf_config_path(MxArena *arena, const char *dir) {
    const char *theirs = mx_path_join(arena, dir, MX_HF_CONFIG);
    const char *metas = mx_path_join(arena, dir, META_CONFIG);
    bool is_meta = !mx_file_exists(theirs) && mx_file_exists(metas) &&
                   mx_file_exists(mx_path_join(arena, dir, hf_meta_file(arena, 0)));
    return is_meta ? metas : theirs;
}

bool mx_hf_is_dir(const char *dir) {
    MxArena arena = {.name = "hf"};
    bool is = mx_file_exists(mx_hf_config_path(&arena, dir)) &&
              !mx_file_exists(mx_path_join(&arena, dir, CKPT_STATE_FILE));
    mx_arena_release(&arena);
    return is;
}

/* ---- shards */

static bool open_shard(Folder *f, const char *name) {
    return mx_tensors_open(f->arena, mx_path_join(f->arena, f->dir, name),
                           &f->shards.file[f->shards.n++], f->err);
}

/* Every tensor of an index is in the shard it says. */
static bool check_index(const Folder *f, const MxJson *weights, const MxMap *by_name) {
    bool ok = true;
    for (size_t i = 0; i < mx_json_length(weights); i++) {
        const char *tensor;
        MxJson *value;
        mx_json_member(weights, i, &tensor, &value);
        const char *shard = mx_json_string(value);
        if (!mx_tensors_find(f->shards.file[mx_map_get(by_name, shard, -1)], tensor))
            ok = refuse(f, shard,
                        mx_arena_printf(f->arena, "\"%s\" is missing; %s says that it is there",
                                        tensor, HF_INDEX));
    }
    return ok;
}

static bool open_index(Folder *f) {
    enum { LARGEST = 64 << 20 };
    const char *path = mx_path_join(f->arena, f->dir, HF_INDEX);
    MxBytes bytes;
    MxMap by_name;
    if (!mx_file_read(f->arena, path, LARGEST, &bytes, f->err)) return false;
    const MxJson *json =
        mx_json_parse(f->arena, (const char *)bytes.data, bytes.size, path, f->err);
    const MxJson *weights = json ? mx_json_get(json, "weight_map") : NULL;
    bool is_object = weights && !strcmp(mx_json_kind(weights), "an object");
    size_t n = is_object ? mx_json_length(weights) : 0;
    if (json && !n) refuse(f, HF_INDEX, "no \"weight_map\" with tensors in it");
    f->shards.file = mx_new_n(f->arena, MxTensors *, n + 1);
    mx_map_init(&by_name, f->arena);
    bool ok = n > 0;
    for (size_t i = 0; ok && i < n; i++) {
        const char *tensor;
        MxJson *value;
        mx_json_member(weights, i, &tensor, &value);
        const char *shard = mx_json_string(value);
        if (!shard || strchr(shard, '/') || !strcmp(shard, ".."))
            return refuse(
                f, HF_INDEX,
                mx_arena_printf(f->arena, "\"%s\": wanted the name of a file beside it", tensor));
        if (mx_map_get(&by_name, shard, -1) >= 0) continue;
        mx_map_set(&by_name, shard, f->shards.n);
        ok = open_shard(f, shard);
    }
    return ok && check_index(f, weights, &by_name);
}

static bool open_metas(Folder *f) {
    int n = 0;
    while (mx_file_exists(mx_path_join(f->arena, f->dir, hf_meta_file(f->arena, n)))) n++;
    f->names = hf_meta_file(f->arena, 0);
    f->shards.file = mx_new_n(f->arena, MxTensors *, n + 1);
    for (int i = 0; i < n; i++)
        if (!open_shard(f, hf_meta_file(f->arena, i))) return false;
    return true;
}

static bool open_shards(Folder *f, const MxHfModel *model) {
    if (model->is_meta) return open_metas(f);
    f->names = HF_TENSORS;
    if (!mx_file_exists(mx_path_join(f->arena, f->dir, HF_TENSORS)) &&
        mx_file_exists(mx_path_join(f->arena, f->dir, HF_INDEX))) {
        f->names = HF_INDEX;
        return open_index(f);
    }
    f->shards.file = mx_new(f->arena, MxTensors *);
    return open_shard(f, HF_TENSORS);
}

/* ---- parameters */

/* What stands before the names of a text model in those of a model around it: as transformers 4.50
 * writes them, as 4.52 has them in memory, and in a model that also speaks. */
const MxHfSpelling hf_withins[] = {{"language_model.", ""},
                                   {"model.language_model.", "model."},
                                   {"thinker.model.", "model."},
                                   {"thinker.lm_head.", "lm_head."}};
const int hf_n_withins = MX_COUNT(hf_withins);

/* The same names of models without "model." before them, as transformers 5 saves them. */
static const MxHfSpelling saved[] = {{"model.embed_tokens.", "embed."},
                                     {"model.hc_head.hc_", "hc_head_"},
                                     {"model.norm.", "norm."},
                                     {"model.layers.", "layers."}};

static bool find_spelled(Folder *f, const char *name, HfLink *link) {
    if (link->tensor) return true;
    if (f->model->few_bits) link->scaled = hf_scaled_find(&f->shards, f->model, name, f->err);
    if (link->scaled) {
        link->file = link->scaled->codes.file;
        link->tensor = &link->scaled->decoded;
    } else
        link->tensor = hf_find(&f->shards, name, &link->file);
    return link->tensor != NULL;
}

/* The name that a tensor of an encoder of images has in the files. */
static const char *find_eye(Folder *f, const MxHfEncoder *hf, const char *name, HfLink *link) {
    if (find_spelled(f, name, link)) return name;
    for (int k = 0; k < MX_COUNT(hf->spelled) && hf->spelled[k].with; k++) {
        const char *with = hf->spelled[k].with, *without = hf->spelled[k].without;
        if (!mx_text_has_prefix(name, without)) continue;
        const char *spelled = mx_arena_printf(f->arena, "%s%s", with, name + strlen(without));
        if (find_spelled(f, spelled, link)) return spelled;
    }
    return name;
}

static const char *find_saved(Folder *f, const char *name, HfLink *link) {
    for (int k = 0; k < MX_COUNT(saved) && !link->tensor; k++) {
        if (!mx_text_has_prefix(name, saved[k].without)) continue;
        const char *spelled =
            mx_arena_printf(f->arena, "%s%s", saved[k].with, name + strlen(saved[k].without));
        if (find_spelled(f, spelled, link)) return spelled;
    }
    return name;
}

/* The name that a tensor has in the files. */
static const char *find_tensor(Folder *f, const char *name, HfLink *link) {
    const char *spelled = name;
    if (f->is_bare && !find_spelled(f, name, link)) return find_saved(f, name, link);
    for (int k = -1; k < (f->is_within ? hf_n_withins : 0) && !link->tensor; k++) {
        if (k >= 0 && !mx_text_has_prefix(name, hf_withins[k].without)) continue;
        if (k >= 0)
            spelled = mx_arena_printf(f->arena, "%s%s", hf_withins[k].with,
                                      name + strlen(hf_withins[k].without));
        find_spelled(f, spelled, link);
    }
    return link->tensor ? spelled : name;
}

static bool has_elements(const HfLink *link, HfRole role) {
    MxDtype dtype = link->tensor->dtype;
    return role == HF_IDS && (dtype == MX_I64 || dtype == MX_I32);
}

static bool link_tensor(Folder *f, const char *name, HfRole role, const HfLink *link) {
    const char *want = mx_shape_text(f->arena, link->map.theirs);
    if (!link->tensor)
        return refuse(
            f, f->names,
            mx_arena_printf(f->arena, "\"%s\" is missing; the model wants %s", name, want));
    if (link->scaled && !link->scaled->fits)
        return link->scaled->fault && refuse(f, f->names, link->scaled->fault);
    if (mx_shape_equal(link->tensor->shape, link->map.theirs))
        return has_elements(link, role) ||
               mx_tensors_check_floats(link->file, link->tensor, f->err);
    return refuse(f, f->names,
                  mx_arena_printf(f->arena, "\"%s\" has shape %s; the model wants %s", name,
                                  mx_shape_text(f->arena, link->tensor->shape), want));
}

/* Layers behind the last one, which look further ahead; transformers does not read them either. */
static bool is_ahead(const MxHfModel *model, const char *name) {
    const char prefix[] = "model.layers.";
    const char *ahead = model->names->ahead;
    if (ahead && mx_text_has_prefix(name, ahead)) return true;
    if (!model->n_ahead || !mx_text_has_prefix(name, prefix)) return false;
    long layer = strtol(name + strlen(prefix), NULL, 10);
    return layer >= hf_layers(model) && layer < hf_layers(model) + model->n_ahead;
}

/* Tensors without a meaning: a table that old files hold of each layer's rotations, and a head that
 * tied models and those with another one do not read. */
static bool is_idle(const MxHfModel *model, const char *name) {
    return mx_text_has_suffix(name, ".rotary_emb.inv_freq") || !strcmp(name, "rope.freqs") ||
           is_ahead(model, name) || (model->few_bits && hf_scaled_is_idle(name)) ||
           ((model->is_tied || model->unties || model->has_score) &&
            !strcmp(name, "lm_head.weight"));
}

/* Of the model around a text model. */
static bool is_around(const Folder *f, const char *name) {
    bool is_text = false;
    for (int k = 0; k < hf_n_withins; k++)
        is_text = is_text || mx_text_has_prefix(name, hf_withins[k].with);
    return f->is_within && !is_text;
}

static void check_extra(Folder *f, const MxHfModel *model) {
    int n_around = 0;
    for (int s = 0; s < f->shards.n; s++)
        for (int i = 0; i < mx_tensors_count(f->shards.file[s]); i++) {
            const MxTensor *t = mx_tensors_at(f->shards.file[s], i);
            bool is_extra = mx_map_get(&f->wanted, t->name, -1) < 0 && !is_idle(model, t->name);
            n_around += is_extra && is_around(f, t->name);
            if (is_extra && !is_around(f, t->name))
                refuse(f, f->names,
                       mx_arena_printf(f->arena, "\"%s\" %s is not in the model", t->name,
                                       mx_shape_text(f->arena, t->shape)));
        }
    if (n_around)
        mx_warn("%s: only %s taken; left out: %d tensors of the others, as of images",
                mx_path_join(f->arena, f->dir, f->names),
                model->sees ? "what the model needs is" : "the text model is", n_around);
}

static void release_kept(void *data) {
    mx_arena_release(&((CkptHf *)data)->kept);
}

/* Whether the folder has matrices of experts in a form: by name and shape. */
static bool has_experts(Folder *f, const MxHfModel *model, MxHfExperts form) {
    MxHfModel tried = *model;
    tried.experts = (int)form;
    for (int r = 0; r < hf_n_rows; r++) {
        const HfRow *row = &hf_rows[r];
        HfLink link = {.tensor = NULL};
        if (row->holder != HF_ROUTED || strcmp(row->ours, "wi_0") || row->experts != form) continue;
        find_tensor(f, hf_their_name(f->arena, &tried, row, 0), &link);
        return link.tensor && mx_shape_equal(link.tensor->shape, hf_map(&tried, row, 0).theirs);
    }
    return false;
}

/* They may have other names or shapes in the folder than the family's models have. */
static void choose_experts(Folder *f, MxHfModel *model) {
    const MxHfNames *names = model->names;
    const MxHfExperts others[] = {names->also_experts, names->outer_experts[0],
                                  names->outer_experts[1]};
    if (has_experts(f, model, names->experts)) return;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i] && has_experts(f, model, others[i])) {
            model->experts = (int)others[i];
            return;
        }
}

/* The name under which it is found. */
static const char *find_and_link(Folder *f, const MxHfModel *model, const HfRow *row,
                                 const char *name, HfLink *link) {
    if (model->is_meta) name = hf_meta_name(f->arena, name);
    name = row->encoder ? find_eye(f, &model->encoder->hf, name, link) : find_tensor(f, name, link);
    if (!model->is_meta || hf_meta_join(f->arena, f->shards.file, f->shards.n, link))
        link_tensor(f, name, row->role, link);
    else
        refuse(
            f, f->names,
            mx_arena_printf(f->arena, "\"%s\": parts in other files are missing or others", name));
    return name;
}

/* All parameters of a row. */
static void link_row(Folder *f, CkptHf *hf, const HfRow *row, MxH5Array *arrays, int *n) {
    MxMap *wanted = &f->wanted, *by_path = &f->by_path;
    int64_t count = hf_count(&hf->model, row);
    for (int i = 0; i < count; i++) {
        if (!hf_has(&hf->model, row, i)) continue;
        const char *name = hf_their_name(f->arena, &hf->model, row, i);
        const char *ours = hf_our_name(f->arena, &hf->model, row, i);
        HfLink link = {.map = hf_map(&hf->model, row, i)};
        if (name) name = find_and_link(f, &hf->model, row, name, &link);
        int array = (int)mx_map_get(by_path, ours, *n); /* another part of it may be there */
        if (array < *n) {
            link.next = mx_new(f->arena, HfLink);
            *link.next = hf->links[array];
        }
        hf->links[array] = link;
        if (name) mx_map_set(wanted, name, array);
        for (int p = 0; link.scaled && p < link.scaled->n_parts; p++)
            mx_map_set(wanted, link.scaled->part[p]->name, array);
        mx_map_set(by_path, ours, array);
        arrays[array] = (MxH5Array){.path = ours, .dtype = MX_F32, .shape = link.map.ours};
        *n += array == *n;
    }
}

bool ckpt_hf_open(MxArena *arena, const MxCkptRef *ref, CkptHf **out, MxH5Array **arrays, int *n,
                  MxError *err) {
    const char *dir = ref->path;
    Folder f = {.arena = arena, .dir = dir, .err = err};
    CkptHf *hf = *out = mx_new(arena, CkptHf);
    int failures = err->count;
    *hf = (CkptHf){.kept = {.name = "tensor"}};
    if (!mx_hf_read_config(arena, mx_hf_config_path(arena, dir), &hf->model, err) ||
        !open_shards(&f, &hf->model))
        return false;
    f.model = &hf->model;
    f.shards.arena = arena;
    mx_map_init(&f.shards.by_name, arena);
    f.is_within = hf->model.is_within;
    f.is_bare = hf->model.names->is_bare;
    if (ref->heads) hf->model.heads = *ref->heads;
    hf->model.sees = ref->sees;
    hf->model.hears = ref->hears && hf->model.audio;
    hf->model.unties = ref->unties && hf->model.is_tied;
    if (ref->unties) hf->model.is_tied = false;
    if (ref->sees && !hf->model.encoder)
        return refuse(&f, MX_HF_CONFIG,
                      mx_arena_printf(arena,
                                      "no encoder of images that is available here (those of %s)",
                                      mx_encoders_built));
    choose_experts(&f, &hf->model);
    int64_t most = hf_most_names(&hf->model);
    *arrays = mx_new_n(arena, MxH5Array, most);
    hf->links = mx_new_n(arena, HfLink, most);
    mx_map_init(&f.wanted, arena);
    mx_map_init(&f.by_path, arena);
    *n = 0;
    for (int r = 0; r < hf_n_rows; r++) link_row(&f, hf, &hf_rows[r], *arrays, n);
    check_extra(&f, &hf->model);
    mx_arena_on_release(arena, release_kept, hf);
    return err->count == failures;
}

bool mx_hf_load_for(const char *dir, const MxTeam *team, const MxConfig *config, MxHeadForm heads,
                    MxTree *state, MxError *err) {
    MxArena arena = {.name = "hf"};
    MxError others = {0}; /* numbers that no shape tells; a run may have its own on purpose */
    MxHfModel theirs, ours = mx_hf_of_config(config, heads);
    MxCkptRef from;
    bool ok = mx_ckpt_find(&arena, dir, team, &from, err);
    from.heads = &ours.heads;
    from.sees = config->use_multimodal;
    from.hears = config->use_multimodal && config->use_audio;
    from.unties = !config->logits_via_embedding;
    ok = ok && mx_hf_load(&arena, &from, state, &theirs, err);
    if (ok && theirs.unties)
        mx_log("%s: its output matrix is the embedding; here it begins as a copy of that "
               "(logits_via_embedding=false)",
               dir);
    MxWhere where = {.file = mx_hf_config_path(&arena, dir)};
    if (ok && !mx_hf_agree(&theirs, &ours, where, &others)) mx_warn("%s", others.text.data);
    mx_error_release(&others);
    mx_arena_release(&arena);
    return ok;
}
