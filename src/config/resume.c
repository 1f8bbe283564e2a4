/* resume.c — the config of a state beside that of the run that goes on from it. Both are compared
 * as texts, final values throughout, so it does not matter how each came about. */
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

bool mx_config_resume(MxArena *arena, const MxConfig *config, const char *old, const char *name,
                      MxStrs *out, MxError *err) {
    const MxYaml *was = parse_text(arena, old, name, err);
    const MxYaml *is = parse_text(arena, mx_config_text(arena, config), "config", err);
    int n_errors = err->count;
    *out = (MxStrs){.item = mx_new_n(arena, const char *, MX_KEY_COUNT)};
    for (int key = 0; was && is && key < MX_KEY_COUNT; key++) {
        const char *key_name = mx_key_name((MxKey)key);
        const MxYaml *a = mx_yaml_get(was, key_name), *b = mx_yaml_get(is, key_name);
        ConfigOnResume on_resume = config_on_resume((MxKey)key);
        if (on_resume == CONFIG_FREE || !a || !b || config_node_equal(arena, a, b)) continue;
        const char *before = config_quote(arena, a), *now = config_quote(arena, b);
        if (on_resume == CONFIG_SCHEDULE)
            out->item[out->n++] = mx_arena_printf(arena, "%s: %s -> %s", key_name, before, now);
        else
            mx_config_fail(err, config, (MxKey)key,
                           "%s, but \"%s\" was made with %s and cannot go on otherwise", now, name,
                           before);
    }
    if (err->count > n_errors)
        mx_note(err, "hint: go on with the old values, or begin another run (run_name) from these "
                     "weights: load_parameters_path");
    return was && is && err->count == n_errors;
}
