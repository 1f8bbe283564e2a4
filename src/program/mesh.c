/* mesh.c — a config's mesh and rules: the parallelism keys of the axes in mesh_axes become sizes,
 * the YAML list of rules becomes the shard room's list, and a pipeline's stages must divide the
 * layers. Sizes that would overflow are refused. */
#include <mx/program.h>

#include "internal.h"

/* A mesh axis that can be asked for, and its two keys. */
typedef struct Axis {
    const char *name;
    MxKey ici, dcn;
    size_t ici_field, dcn_field; /* in MxConfig */
} Axis;

#define AXIS(mesh_axis, key)                                                                       \
    {                                                                                              \
        .name = mesh_axis, .ici = MX_KEY_ici_##key##_parallelism,                                  \
        .dcn = MX_KEY_dcn_##key##_parallelism,                                                     \
        .ici_field = offsetof(MxConfig, ici_##key##_parallelism),                                  \
        .dcn_field = offsetof(MxConfig, dcn_##key##_parallelism)                                   \
    }

static const Axis known_axes[] = {
    AXIS("diloco", diloco),
    AXIS("data", data),
    AXIS("stage", pipeline),
    AXIS("fsdp", fsdp),
    AXIS("fsdp_transpose", fsdp_transpose),
    AXIS("sequence", sequence),
    AXIS("context", context),
    AXIS("context_usp_ulysses", context_usp_ulysses),
    AXIS("context_autoregressive", context_autoregressive),
    AXIS("tensor", tensor),
    AXIS("tensor_sequence", tensor_sequence),
    AXIS("expert", expert),
    AXIS("autoregressive", autoregressive),
    AXIS("model", tensor),
};

static int64_t size_of(const MxConfig *config, size_t field) {
    return *(const int64_t *)((const char *)config + field);
}

static const Axis *find_axis(const char *name) {
    for (int i = 0; i < MX_COUNT(known_axes); i++)
        if (!strcmp(known_axes[i].name, name)) return &known_axes[i];
    return NULL;
}

/* What the user never wrote has no place. */
static MxWhere place(MxWhere where) {
    return where.file && !strcmp(where.file, "<default>") ? MX_NOWHERE : where;
}

static bool unrecognized_axis(const MxYaml *item, MxError *err) {
    const char *names[MX_COUNT(known_axes)];
    for (int i = 0; i < MX_COUNT(known_axes); i++) names[i] = known_axes[i].name;
    mx_fail(err, MX_EXIT_CONFIG, place(item->where), "mesh_axes: unrecognized mesh axis \"%s\"",
            item->text);
    const char *nearest = mx_nearest(item->text, names, MX_COUNT(known_axes));
    if (nearest) mx_note(err, "hint: did you mean \"%s\"?", nearest);
    return false;
}

static bool has_axis_of_key(const MxMesh *mesh, MxKey ici) {
    for (int i = 0; i < MX_COUNT(known_axes); i++)
        if (known_axes[i].ici == ici && mx_mesh_find(mesh, known_axes[i].name) >= 0) return true;
    return false;
}

/* A size for an axis that the mesh lacks would be lost in silence. */
static bool check_lost_sizes(const MxConfig *config, const MxMesh *mesh, MxError *err) {
    for (int i = 0; i < MX_COUNT(known_axes); i++) {
        const Axis *axis = &known_axes[i];
        bool is_ici = size_of(config, axis->ici_field) > 1;
        if ((!is_ici && size_of(config, axis->dcn_field) <= 1) || has_axis_of_key(mesh, axis->ici))
            continue;
        return mx_config_fail(err, config, is_ici ? axis->ici : axis->dcn,
                              "the mesh has no axis \"%s\"", axis->name);
    }
    return true;
}

static MxParallelism parallelism(const MxConfig *config, MxKey key, size_t field) {
    return (MxParallelism){.size = size_of(config, field),
                           .key = mx_key_name(key),
                           .where = place(mx_config_where(config, key))};
}

static bool has_stages(const MxConfig *config) {
    return config->ici_pipeline_parallelism > 1 || config->dcn_pipeline_parallelism > 1;
}

/* In a pipeline stages come before data. Source: MaxText configs/types.py. */
static void put_stage_first_in_mesh(const char **names, int n) {
    int stage = -1, data = -1;
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], "stage")) stage = i;
        if (!strcmp(names[i], "data")) data = i;
    }
    if (data < 0 || stage < data) return;
    names[data] = "stage";
    names[stage] = "data";
}

/* mesh_axes in their order, known and each once. */
static const char **read_mesh_axes(MxArena *arena, const MxYaml *list, MxError *err) {
    const char **names = mx_new_n(arena, const char *, list->n);
    for (int i = 0; i < list->n; i++) {
        const Axis *axis = find_axis(list->item[i]->text);
        if (!axis) {
            unrecognized_axis(list->item[i], err);
            return NULL;
        }
        for (int j = 0; j < i; j++)
            if (!strcmp(names[j], axis->name)) {
                mx_fail(err, MX_EXIT_CONFIG, place(list->item[i]->where),
                        "mesh_axes: \"%s\" occurs more than once", axis->name);
                return NULL;
            }
        names[i] = axis->name;
    }
    return names;
}

static bool make_mesh(MxArena *arena, const MxConfig *config, MxMesh *out, MxError *err) {
    int n = config->mesh_axes->n;
    const char **names = read_mesh_axes(arena, config->mesh_axes, err);
    if (!names) return false;
    if (has_stages(config)) put_stage_first_in_mesh(names, n);
    MxParallelism *ici = mx_new_n(arena, MxParallelism, n);
    MxParallelism *dcn = mx_new_n(arena, MxParallelism, n);
    for (int i = 0; i < n; i++) {
        const Axis *axis = find_axis(names[i]);
        ici[i] = parallelism(config, axis->ici, axis->ici_field);
        dcn[i] = parallelism(config, axis->dcn, axis->dcn_field);
    }
    MxMeshInput in = {.n = n,
                      .axes = names,
                      .ici = ici,
                      .dcn = dcn,
                      .n_devices = config->num_devices > 0 ? config->num_devices : 0,
                      .n_slices = config->num_slices > 0 ? config->num_slices : 0,
                      .where = place(mx_config_where(config, MX_KEY_mesh_axes))};
    return mx_mesh_from_parallelism(arena, &in, out, err) && check_lost_sizes(config, out, err);
}

static const char *text_or_null(const MxYaml *node) {
    return node->kind == MX_YAML_NULL ? NULL : node->text;
}

/* The config has checked the form: [axis, mesh axis | [mesh axes] | null]. */
static MxRule read_rule(MxArena *arena, const MxYaml *node) {
    const MxYaml *value = node->item[1];
    bool is_list = value->kind == MX_YAML_LIST;
    MxRule rule = {.axis = text_or_null(node->item[0]), .where = place(node->where)};
    rule.n = is_list ? value->n : value->kind != MX_YAML_NULL;
    const char **axes = mx_new_n(arena, const char *, rule.n);
    for (int i = 0; i < rule.n; i++) axes[i] = is_list ? text_or_null(value->item[i]) : value->text;
    rule.mesh_axes = axes;
    return rule;
}

/* In a pipeline, the first rule of the batch's axis is MaxText's own (configs/types.py), without
 * what a custom mesh lacks. */
static void put_stage_first_in_rules(MxArena *arena, const MxMesh *mesh, MxRule *rules, int n) {
    static const char *const wanted[] = {"stage", "data", "fsdp", "fsdp_transpose", "expert"};
    for (int i = 0; i < n; i++) {
        if (!rules[i].axis || strcmp(rules[i].axis, "activation_embed_and_logits_batch")) continue;
        const char **axes = mx_new_n(arena, const char *, MX_COUNT(wanted));
        rules[i].n = 0;
        rules[i].mesh_axes = axes;
        for (int k = 0; k < MX_COUNT(wanted); k++)
            if (mx_mesh_find(mesh, wanted[k]) >= 0) axes[rules[i].n++] = wanted[k];
        return;
    }
}

static MxRules read_rules(MxArena *arena, const MxConfig *config, const MxMesh *mesh) {
    const MxYaml *list = config->logical_axis_rules;
    int n = list && list->kind == MX_YAML_LIST ? list->n : 0;
    MxRule *rules = mx_new_n(arena, MxRule, n);
    for (int i = 0; i < n; i++) rules[i] = read_rule(arena, list->item[i]);
    if (has_stages(config)) put_stage_first_in_rules(arena, mesh, rules, n);
    return mx_rules_new(arena, rules, n);
}

/* Bytes of all arrays, and indices, stay far inside an int64. */
static bool check_sizes(const MxConfig *c, MxError *err) {
    const double most_parameters = 1e16;
    const int64_t most_layers = 10000;
    if (c->num_decoder_layers > most_layers)
        return mx_config_fail(err, c, MX_KEY_base_num_decoder_layers,
                              "%lld layers; a plan takes at most %lld",
                              (long long)c->num_decoder_layers, (long long)most_layers);
    double parameters = mx_model_size(c);
    if (parameters <= most_parameters) return true;
    return mx_config_fail(err, c, MX_KEY_base_emb_dim,
                          "a model of %.3g parameters; a plan takes at most %.0e", parameters,
                          most_parameters);
}

/* What the pipeline's keys make of the layers. Source: MaxText configs/types.py, pipeline. */
static bool read_pipeline(const MxConfig *c, MxTrainMesh *out, MxError *err) {
    int64_t layers = c->num_decoder_layers, each = c->num_layers_per_pipeline_stage;
    out->n_stages = mx_mesh_size(&out->mesh, "stage");
    out->n_repeats = 1;
    out->stage_layers = layers;
    if (out->n_stages == 1) return true;
    if (c->pipeline_parallel_layers > 0 && c->pipeline_parallel_layers != layers)
        return mx_config_fail(err, c, MX_KEY_pipeline_parallel_layers,
                              "not available yet (got %lld; only -1 and all %lld layers work now)",
                              (long long)c->pipeline_parallel_layers, (long long)layers);
    if (layers % out->n_stages)
        return mx_config_fail(err, c, MX_KEY_ici_pipeline_parallelism,
                              "%lld stages do not divide %lld decoder layers",
                              (long long)out->n_stages, (long long)layers);
    if (layers / out->n_stages % each)
        return mx_config_fail(err, c, MX_KEY_num_layers_per_pipeline_stage,
                              "%lld do not divide the %lld layers of each of %lld stages",
                              (long long)each, (long long)(layers / out->n_stages),
                              (long long)out->n_stages);
    out->n_repeats = layers / out->n_stages / each;
    out->stage_layers = each;
    if (c->num_pipeline_repeats > 0 && c->num_pipeline_repeats != out->n_repeats)
        return mx_config_fail(err, c, MX_KEY_num_pipeline_repeats,
                              "%lld layers on %lld stages make %lld repeats, found %lld",
                              (long long)layers, (long long)out->n_stages,
                              (long long)out->n_repeats, (long long)c->num_pipeline_repeats);
    return true;
}

bool mx_train_mesh(MxArena *arena, const MxConfig *config, MxTrainMesh *out, MxError *err) {
    *out = (MxTrainMesh){.config = config};
    if (!check_sizes(config, err) || !make_mesh(arena, config, &out->mesh, err)) return false;
    out->rules = read_rules(arena, config, &out->mesh);
    return read_pipeline(config, out, err);
}
