/* shard_rules.c — fuzz target for rule lists: bytes become a mesh, names, a shape and rules, and
 * everything that the shard room does with them runs. What must always hold is asserted; what a
 * user can get wrong must come back as an error. Input, one item a line:
 *
 *     fsdp=2 tensor=-1       mesh axes with their sizes
 *     8                      number of devices, 0 = planning
 *     embed layers (fsdp)    names; "." is null, (x) a mesh axis
 *     8 4 6                  sizes of the dims
 *     embed fsdp expert      a rule, and so on to the end */
#include <mx/shard.h>

#include <stdlib.h>

enum {
    MOST_WORDS = 64, /* in a line */
    MOST_RULES = 4096,
    MOST_RANKS = 64, /* for which boxes are looked at */
    MOST_ELEMENTS = 4096,
    LARGEST_INPUT = 1 << 16,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the bytes say. */
typedef struct Input {
    MxArena arena;
    MxError err;
    const char *rest; /* of the text */
    MxMesh mesh;
    bool has_mesh;
    MxSpec names;
    MxShape shape;
    MxRules rules;
} Input;

/* The next line as words; false at the end. */
static bool next_line(Input *in, const char **words, int *n) {
    *n = 0;
    if (!*in->rest) return false;
    while (*in->rest && *in->rest != '\n') {
        size_t len = strcspn(in->rest, " \n");
        if (len && *n < MOST_WORDS) words[(*n)++] = mx_arena_strndup(&in->arena, in->rest, len);
        in->rest += len;
        while (*in->rest == ' ') in->rest++;
    }
    if (*in->rest) in->rest++;
    return true;
}

static void read_mesh(Input *in) {
    const char **words = mx_new_n(&in->arena, const char *, MOST_WORDS), *devices[MOST_WORDS];
    MxParallelism ici[MOST_WORDS];
    int n, n_devices;
    next_line(in, words, &n);
    for (int i = 0; i < n; i++) {
        char *name = mx_arena_strdup(&in->arena, words[i]), *equals = strchr(name, '=');
        ici[i] = (MxParallelism){.size = equals ? strtoll(equals + 1, NULL, 10) : 1, .key = name};
        if (equals) *equals = '\0';
        words[i] = name;
    }
    next_line(in, devices, &n_devices);
    MxMeshInput input = {.n = n, .axes = words, .ici = ici};
    if (n_devices) input.n_devices = strtoll(devices[0], NULL, 10);
    if (n_devices > 1) {
        input.dcn = ici;
        input.n_slices = strtoll(devices[1], NULL, 10);
    }
    in->has_mesh = mx_mesh_from_parallelism(&in->arena, &input, &in->mesh, &in->err);
    if (!in->has_mesh) in->mesh = (MxMesh){.n_ranks = 1};
}

static void read_array(Input *in) {
    const char **words = mx_new_n(&in->arena, const char *, MOST_WORDS), *sizes[MOST_WORDS];
    int n, n_sizes;
    next_line(in, words, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(words[i], ".")) words[i] = NULL;
    in->names = mx_spec_names(&in->arena, words, n);
    MxSpecDim *dim = mx_new_n(&in->arena, MxSpecDim, n);
    for (int d = 0; d < n; d++) {
        dim[d] = in->names.dim[d];
        if (words[d] && words[d][0] == '(') dim[d].is_name = false;
    }
    in->names.dim = dim;
    next_line(in, sizes, &n_sizes);
    in->shape.rank = n_sizes < MX_MAX_RANK ? n_sizes : MX_MAX_RANK;
    for (int d = 0; d < in->shape.rank; d++) {
        int64_t size = strtoll(sizes[d], NULL, 10);
        in->shape.dim[d] = size < 0 ? 0 : size % MOST_ELEMENTS;
    }
}

static void read_rules(Input *in) {
    MxRule *list = mx_new_n(&in->arena, MxRule, MOST_RULES);
    const char *words[MOST_WORDS];
    int n = 0, n_words;
    while (n < MOST_RULES && next_line(in, words, &n_words)) {
        if (!n_words) continue;
        const char **axes = mx_new_n(&in->arena, const char *, n_words);
        for (int i = 1; i < n_words; i++)
            axes[i - 1] = !strcmp(words[i], ".") ? NULL : !strcmp(words[i], "''") ? "" : words[i];
        list[n] = (MxRule){.axis = strcmp(words[0], ".") ? words[0] : NULL,
                           .n = n_words - 1,
                           .mesh_axes = axes,
                           .where = {"rules", n + 5, 0}};
        n++;
    }
    in->rules = mx_rules_new(&in->arena, list, n);
}

/* Lists made of lists: nothing is lost. */
static void try_lists(Input *in) {
    MxRules twice = mx_rules_concat(&in->arena, &in->rules, &in->rules);
    MX_ASSERT(twice.n == 2 * in->rules.n);
    MxFindings found = {0};
    mx_rules_findings(&in->arena, &in->rules, &in->mesh, &found);
    mx_findings_fail(&found, NULL, &in->err);
}

/* Boxes of all ranks hold every element as often as there are replicas. */
static void try_boxes(Input *in, MxSpec spec) {
    int64_t n = 1, held = 0, parts = 1;
    for (int d = 0; d < in->shape.rank; d++) {
        n *= in->shape.dim[d];
        if (n > MOST_ELEMENTS) return;
    }
    if (in->mesh.n_ranks > MOST_RANKS) return;
    MxLayout layout = {&in->mesh, spec};
    for (int64_t rank = 0; rank < in->mesh.n_ranks; rank++) {
        MxBox box = mx_shard_box(layout, in->shape, rank);
        held += mx_box_count(&box);
    }
    for (int d = 0; d < spec.rank; d++) parts *= mx_shard_parts(&in->mesh, &spec.dim[d]);
    MX_ASSERT(held * parts == n * in->mesh.n_ranks);
}

static void try_spec(Input *in, MxSpec spec) {
    MxShardArray array = {.path = "array", .shape = in->shape, .spec = spec};
    MxShape shard;
    MxSpec out = mx_shard_adjust(&in->arena, &in->mesh, &array);
    MX_ASSERT(out.rank == spec.rank);
    mx_shard_add_data(&in->arena, &in->mesh, &array, &out, &in->err);
    mx_shard_sufficient(&in->mesh, &array, 1, (MxTolerance){0}, NULL, &in->err);
    mx_shard_shape(&in->mesh, &array, &shard, &in->err);
    mx_spec_python(&in->arena, spec);
    if (spec.rank <= in->shape.rank && mx_shard_check(&in->mesh, spec, "array", &in->err))
        try_boxes(in, spec);
}

static void try_array(Input *in) {
    MxTrail trail = {.arena = &in->arena};
    MxSpec raw, again;
    MxShardArray array = {.shape = in->shape, .spec = in->names};
    MxText text;
    mx_text_init(&text, &in->arena);
    bool ok = mx_shard_resolve(&in->arena, &in->rules, in->names, &trail, &raw, &in->err);
    MX_ASSERT(ok == mx_shard_explain(&in->arena, &in->rules, &in->mesh, &array, &text, &in->err));
    if (!ok) return;
    MX_ASSERT(mx_shard_resolve(&in->arena, &in->rules, in->names, NULL, &again, &in->err));
    MX_ASSERT(!strcmp(mx_spec_text(&in->arena, raw), mx_spec_text(&in->arena, again)));
    MxFindings found = {0};
    mx_shard_findings(&in->arena, &in->rules, in->names, &trail, &in->mesh, &found);
    mx_findings_fail(&found, "array", &in->err);
    try_spec(in, raw);
    try_spec(in, mx_shard_clean(&in->arena, &in->mesh, raw));
    try_spec(in, in->names); /* not resolved */
    MxVariable variable = {.names = in->names, .partition = "layers", .scan_axis = 1};
    MxResolved resolved;
    mx_shard_resolve_variable(&in->arena, &variable, &in->rules, &in->mesh, &resolved, &in->err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > LARGEST_INPUT) return 0;
    Input in = {.arena = {.name = "fuzz"}};
    in.rest = mx_arena_strndup(&in.arena, (const char *)data, size);
    read_mesh(&in);
    read_array(&in);
    read_rules(&in);
    try_lists(&in);
    try_array(&in);
    mx_error_release(&in.err);
    mx_arena_release(&in.arena);
    return 0;
}
