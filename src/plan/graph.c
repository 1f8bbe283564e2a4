/* graph.c — an entry of the program as text, after a pass: for debugging passes. */
#include "internal.h"

typedef struct Dump {
    MxArena *arena;
    const char *entry, *pass; /* wanted; NULL = the last one */
    MxText *out;
    MxText entries, passes; /* that were seen */
    bool is_found;
} Dump;

static void note(MxText *names, const char *name) {
    MxArena scratch = {.name = "names"};
    const char *padded = mx_arena_printf(&scratch, ", %s,", name);
    const char *all = mx_arena_printf(&scratch, ", %s,", names->data ? names->data : "");
    if (!strstr(all, padded)) mx_text_add(names, "%s%s", names->len ? ", " : "", name);
    mx_arena_release(&scratch);
}

static void see(void *context, const MxGraph *graph, const char *pass) {
    Dump *d = context;
    note(&d->entries, graph->name);
    note(&d->passes, pass);
    if (strcmp(d->entry, graph->name) || (d->pass && strcmp(d->pass, pass))) return;
    mx_text_clear(d->out);
    mx_graph_print(graph, d->out);
    d->is_found = true;
}

static bool has_name(const MxText *names, const char *name) {
    MxArena scratch = {.name = "names"};
    bool has = strstr(mx_arena_printf(&scratch, ", %s,", names->data),
                      mx_arena_printf(&scratch, ", %s,", name)) != NULL;
    mx_arena_release(&scratch);
    return has;
}

bool mx_plan_dump_graph(MxArena *arena, const MxConfig *config, const char *what, MxText *out,
                        MxError *err) {
    const char *colon = strchr(what, ':');
    size_t n = colon ? (size_t)(colon - what) : strlen(what);
    Dump d = {.arena = arena,
              .entry = mx_arena_printf(arena, "%.*s", (int)n, what),
              .pass = colon ? colon + 1 : NULL,
              .out = out};
    mx_text_init(&d.entries, arena);
    mx_text_init(&d.passes, arena);
    const MxGraphWatch watch = {.see = see, .context = &d};
    MxTrainMesh mesh;
    MxTrainProgram program;
    if (!mx_train_mesh(arena, config, &mesh, err) ||
        !mx_train_program(arena, &mesh, &watch, &program, err))
        return false;
    if (program.refusal) return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s", program.refusal);
    if (d.is_found) return true;
    bool knows_entry = has_name(&d.entries, d.entry);
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--dump-graph: no %s \"%s\", wants one of %s",
                   knows_entry ? "pass" : "entry", knows_entry ? d.pass : d.entry,
                   knows_entry ? d.passes.data : d.entries.data);
}
