/* mxtrain_found.c — model=DIR and data=FILE on the command line: settings derived from them are
 * added below those of config files and printed. */
#include "mxtrain.h"

#include <mx/ckpt.h>
#include <mx/data.h>
#include <mx/store.h>
#include <mx/train.h>

/* What the two words name, and what was found out. */
typedef struct Given {
    const char *model, *data; /* NULL = not given */
    const MxConfig *said;     /* by the user */
    MxConfigFound *found;     /* [n] */
    int n;
} Given;

/* Behind the dashes that may stand before a key. */
static const char *key_of(const char *word) {
    return word + (mx_text_has_prefix(word, "--") ? 2 : 0);
}

/* Takes the word out of the overrides; the last one counts, as of keys. */
static const char *take(CommandLine *line, const char *word) {
    MxConfigRequest *request = &line->request;
    const char **overrides = (const char **)(uintptr_t)request->overrides, *value = NULL;
    int n = 0;
    for (int i = 0; i < request->n_overrides; i++) {
        const char *text = key_of(overrides[i]);
        if (mx_text_has_prefix(text, word))
            value = text + strlen(word);
        else
            overrides[n++] = overrides[i];
    }
    request->n_overrides = n;
    return value;
}

/* Before those of the user, which are stronger. */
static void put_overrides(CommandLine *line, MxArena *arena, const char *const *words, int n) {
    MxConfigRequest *request = &line->request;
    const char **all = mx_new_n(arena, const char *, request->n_overrides + n + 1);
    int n_all = 0;
    for (int i = 0; i < n; i++)
        if (words[i]) all[n_all++] = words[i];
    for (int i = 0; i < request->n_overrides; i++) all[n_all++] = request->overrides[i];
    request->overrides = all;
    request->n_overrides = n_all;
}

static void add_found(Given *given, const char *name, const MxText *text) {
    given->found[given->n++] = (MxConfigFound){name, text->data};
}

/* What a config to start from says, under and over all that is found. */
static void add_start(CommandLine *line, MxArena *arena, Given *given) {
    const Start *start = line->start;
    if (!start) return;
    if (!given->data) given->data = start->data;
    given->found[given->n++] = (MxConfigFound){start->kind, start->usual};
    put_overrides(line, arena, start->is, START_WORDS);
}

static bool find_model(CommandLine *line, MxArena *arena, Given *given, MxError *err) {
    MxText text;
    mx_text_init(&text, arena);
    if (!given->model) return true;
    if (!mx_ckpt_try(given->model, err) ||
        !mx_train_found_model(&text, given->model, given->data, given->said, err))
        return false;
    const char *quoted = mx_json_quote(arena, given->model, strlen(given->model));
    const char *weights = mx_arena_printf(arena, "load_parameters_path=%s", quoted);
    put_overrides(line, arena, &weights, 1);
    add_found(given, mx_arena_printf(arena, "model=%s", given->model), &text);
    return true;
}

static void try_found(MxArena *arena, const void *data, MxError *ignored) {
    const Given *given = data;
    const char *words[MX_FOUND_KEYS];
    MxText text;
    mx_text_init(&text, arena);
    mx_train_found_data(&text, given->data, given->said, words, ignored);
}

static bool find_data(CommandLine *line, MxArena *arena, Given *given, MxError *err) {
    const char *words[MX_FOUND_KEYS];
    MxText text;
    mx_text_init(&text, arena);
    if (!given->data) return true;
    if (!mx_store_try(given->data, try_found, given, err) ||
        !mx_train_found_data(&text, given->data, given->said, words, err))
        return false;
    put_overrides(line, arena, words, MX_FOUND_KEYS);
    add_found(given, mx_arena_printf(arena, "data=%s", given->data), &text);
    return true;
}

/* The config of all that was found so far. */
static bool load(CommandLine *line, MxArena *arena, const Given *given, MxConfig **config,
                 MxError *err) {
    line->request.n_found = given->n;
    return mx_config_load(arena, &line->request, config, err);
}

/* What depends on both is found with the config that the two make, and how many steps there are,
 * and how long prompts may be, with the one that all of this makes. */
static bool find_both(CommandLine *line, MxArena *arena, Given *given, MxConfig **config,
                      MxError *err) {
    MxText text, rest;
    MxFoundData data = {.arena = {.name = "found data"}, .memory = mx_data_memory_new(arena)};
    mx_text_init(&text, arena);
    mx_text_init(&rest, arena);
    bool ok = load(line, arena, given, config, err) &&
              mx_train_found_both(&text, *config, given->said, given->model,
                                  given->data ? &data : NULL, err);
    if (ok) add_found(given, "model and data", &text);
    ok = ok && load(line, arena, given, config, err);
    if (ok) mx_train_found_rest(&rest, *config, given->said, &data);
    if (rest.len) add_found(given, "the length of the data", &rest);
    mx_arena_release(&data.arena);
    ok = ok && (!rest.len || load(line, arena, given, config, err));
    if (ok && data.data) (*config)->data_memory = data.memory;
    return ok;
}

bool mxtrain_config(CommandLine *line, MxArena *arena, MxConfig **out, MxError *err) {
    enum { MOST_FOUND = 5 };
    Given given = {.found = mx_new_n(arena, MxConfigFound, MOST_FOUND)};
    given.model = take(line, "model=");
    given.data = take(line, "data=");
    line->request.found = given.found;
    add_start(line, arena, &given);
    if (!given.model && !given.data && !given.n)
        return mx_config_load(arena, &line->request, out, err);
    given.said = mx_config_request_said(arena, &line->request);
    if (!find_model(line, arena, &given, err) || !find_data(line, arena, &given, err) ||
        !find_both(line, arena, &given, out, err))
        return false;
    bool is_quiet = line->start || line->dump_path || line->json_path || line->sharding_path;
    for (int i = 0; i < given.n && !is_quiet; i++) {
        const char *keys = mx_config_found(arena, *out, &given.found[i]);
        if (*keys) mx_log("found in %s: %s", given.found[i].name, keys);
    }
    return true;
}
