/* resume.c — compares the config of a run with that of the state from which it resumes, or with
 * another rank's. Both are compared as texts of final values, so their origins do not matter. Also
 * reads a single key from such a text. */
#include "room.h"

/* A text of mx_config_text as a map; NULL after an error. */
static const MxYaml *parse_text(MxArena *arena, const char *text, const char *name, MxError *err) {
    ConfigLoad load = {.arena = arena, .err = err};
    ConfigSource *source = config_source_add(&load, name, text, strlen(text), true);
    MxError failed = {0};
    load.err = &failed;
    const MxYaml *map = config_parse(&load, source, 0);
    if (map && map->kind != MX_YAML_MAP) map = NULL;
    if (!map)
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = name}, "its config cannot be read%s%s",
                failed.count ? ": " : "", failed.count ? failed.text.data : "");
    mx_error_release(&failed);
    return map;
}

const char *mx_config_said(MxArena *arena, const char *text, MxKey key) {
    MxError ignored = {0};
    const MxYaml *map = text ? parse_text(arena, text, "config", &ignored) : NULL;
    const MxYaml *value = map ? mx_yaml_get(map, mx_key_name(key)) : NULL;
    bool is_scalar = value && value->kind != MX_YAML_LIST && value->kind != MX_YAML_MAP;
    mx_error_release(&ignored);
    return is_scalar ? value->text : value ? mx_yaml_text(arena, value) : "";
}

/* The values of both. */
typedef struct Both {
    const MxYaml *theirs, *ours;
} Both;

static bool parse_both(MxArena *arena, const MxConfig *config, const char *other, const char *name,
                       Both *out, MxError *err) {
    out->theirs = parse_text(arena, other, name, err);
    out->ours = parse_text(arena, mx_config_text(arena, config), "config", err);
    return out->theirs && out->ours;
}

/* Whether a key that both have differs, and how both are quoted. */
static bool differs(MxArena *arena, const Both *both, MxKey key, const char **theirs,
                    const char **ours) {
    const char *name = mx_key_name(key);
    const MxYaml *a = mx_yaml_get(both->theirs, name), *b = mx_yaml_get(both->ours, name);
    if (!a || !b || config_node_equal(arena, a, b)) return false;
    *theirs = config_quote(arena, a);
    *ours = config_quote(arena, b);
    return true;
}

bool mx_config_same(MxArena *arena, const MxConfig *config, const char *other, const char *name,
                    MxError *err) {
    Both both;
    const char *theirs, *ours;
    int n_errors = err->count;
    if (!parse_both(arena, config, other, name, &both, err)) return false;
    for (int key = 0; key < MX_KEY_COUNT; key++)
        if (differs(arena, &both, (MxKey)key, &theirs, &ours))
            mx_config_fail(err, config, (MxKey)key, "%s here, %s has %s", ours, name, theirs);
    return err->count == n_errors;
}

bool mx_config_resume(MxArena *arena, const MxConfig *config, const char *old, const char *name,
                      MxStrs *out, MxError *err) {
    Both both;
    const char *before, *now;
    int n_errors = err->count;
    *out = (MxStrs){.item = mx_new_n(arena, const char *, MX_KEY_COUNT)};
    if (!parse_both(arena, config, old, name, &both, err)) return false;
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const char *key_name = mx_key_name((MxKey)key);
        ConfigOnResume on_resume = config_on_resume((MxKey)key);
        if (on_resume == CONFIG_FREE || !differs(arena, &both, (MxKey)key, &before, &now)) continue;
        if (on_resume == CONFIG_SCHEDULE)
            out->item[out->n++] = mx_arena_printf(arena, "%s: %s -> %s", key_name, before, now);
        else
            mx_config_fail(err, config, (MxKey)key,
                           "%s, but \"%s\" was made with %s; it cannot resume with another value",
                           now, name, before);
    }
    if (err->count > n_errors)
        mx_note(err, "hint: resume with the old values, or begin another run (run_name) from these "
                     "weights: load_parameters_path");
    return err->count == n_errors;
}
