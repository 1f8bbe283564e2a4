/* explain.c — finds what the user asked about, a parameter by one of its paths or bare logical
 * names, and lets the room shard explain its resolution. */
#include "internal.h"

/* What may stand before a parameter's own path. Longest first. */
static const char *const folders[] = {
    "optimizer/opt_state/0/mu/",
    "optimizer/opt_state/0/nu/",
    "opt_state/0/mu/params/",
    "opt_state/0/nu/params/",
    "params/params/",
    "params/",
    "model/",
};

static const char *own_path(const char *path) {
    for (int i = 0; i < MX_COUNT(folders); i++)
        if (mx_text_has_prefix(path, folders[i])) return path + strlen(folders[i]);
    return path;
}

/* "embed,mlp" to names; "None" and nothing at all are dims without one. */
static MxSpec read_names(MxArena *arena, const char *text) {
    int n = 1;
    for (const char *p = text; *p; p++) n += *p == ',';
    const char **axes = mx_new_n(arena, const char *, n);
    for (int d = 0; d < n; d++) {
        size_t len = strcspn(text, ",");
        while (len && *text == ' ') text++, len--;
        size_t used = len;
        while (used && text[used - 1] == ' ') used--;
        const char *name = mx_arena_strndup(arena, text, used);
        axes[d] = used && strcmp(name, "None") ? name : NULL;
        text += len + (text[len] == ',');
    }
    return mx_spec_names(arena, axes, n);
}

static bool explain_names(MxArena *arena, const MxTrainMesh *mesh, const char *what, MxText *out,
                          MxError *err) {
    MxShardArray array = {.spec = read_names(arena, what)};
    if (array.spec.rank > MX_MAX_RANK)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\": an array has at most %d dims",
                       what, MX_MAX_RANK);
    return mx_shard_explain(arena, &mesh->rules, &mesh->mesh, &array, out, err);
}

static bool no_such_parameter(MxArena *arena, const PlanArray *arrays, int n, const char *what,
                              MxError *err) {
    const char **paths = mx_new_n(arena, const char *, n);
    for (int i = 0; i < n; i++) paths[i] = own_path(arrays[i].path);
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "there is no parameter \"%s\" in this model", what);
    const char *nearest = mx_nearest(own_path(what), paths, n);
    if (nearest) mx_note(err, "hint: did you mean \"%s\"?", nearest);
    return false;
}

bool mx_plan_explain(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                     MxError *err) {
    MxTrainMesh mesh;
    MxModel *model;
    PlanArray *arrays;
    int n;
    if (!mx_train_mesh(arena, config, &mesh, err)) return false;
    if (!strchr(what, '/')) return explain_names(arena, &mesh, what, out, err);
    if (!mx_model_new(arena, config, &model, err) ||
        !plan_arrays(arena, &mesh, model, &arrays, &n, err))
        return false;
    for (int i = 0; i < n; i++) {
        if (strcmp(own_path(arrays[i].path), own_path(what))) continue;
        MxShardArray array = {.path = arrays[i].path,
                              .dtype = arrays[i].dtype,
                              .shape = arrays[i].shape,
                              .spec = arrays[i].how.names};
        return mx_shard_explain(arena, &mesh.rules, &mesh.mesh, &array, out, err);
    }
    return no_such_parameter(arena, arrays, n, what, err);
}
