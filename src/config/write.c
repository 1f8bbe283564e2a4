/* write.c — a loaded config as text: YAML that loads back to the same config, and what
 * differs from the defaults as MaxText's "Config param" lines. */
#include "room.h"

#include <stdio.h>
#include <stdlib.h>

static const char *string_text(MxArena *arena, const char *s) {
    MxYaml node = {.kind = MX_YAML_STRING, .text = s};
    return mx_yaml_text(arena, &node);
}

static const char *list_text(MxArena *arena, MxStrs list) {
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "[");
    for (int i = 0; i < list.n; i++)
        mx_text_add(&text, "%s%s", i ? ", " : "", string_text(arena, list.item[i]));
    mx_text_add(&text, "]");
    return text.data;
}

const char *mx_config_value(MxArena *arena, const MxConfig *config, MxKey key) {
    const void *field = (const char *)config + config_rows[key].offset;
    switch (config_rows[key].type) {
    case CONFIG_bool:
        return *(const bool *)field ? "true" : "false";
    case CONFIG_int:
        return mx_arena_printf(arena, "%lld", (long long)*(const int64_t *)field);
    case CONFIG_float:
        return config_number_text(arena, *(const double *)field);
    case CONFIG_str:
    case CONFIG_choice: {
        const char *s = *(const char *const *)field;
        return string_text(arena, s ? s : "");
    }
    case CONFIG_strs:
        return list_text(arena, *(const MxStrs *)field);
    case CONFIG_node:
        return mx_yaml_text(arena, *(const MxYaml *const *)field);
    }
    return "";
}

static const char *origin_text(MxArena *arena, const MxConfig *config, MxKey key) {
    const ConfigSlot *slot = &config->trail->slots[key];
    MxWhere where = slot->value->where;
    if (slot->is_derived) return "derived";
    if (slot->from == CONFIG_FROM_DEFAULT) return "default";
    if (!where.line) return where.file;
    return mx_arena_printf(arena, "%s:%d", where.file, where.line);
}

static void add_key(MxText *out, const MxConfig *config, MxKey key) {
    const char *name = mx_key_name(key), *origin = origin_text(out->arena, config, key);
    const MxYaml *rules =
        config_rows[key].type == CONFIG_node
            ? *(const MxYaml *const *)((const char *)config + config_rows[key].offset)
            : NULL;
    if (key == MX_KEY_apply_model_config && config->trail->has_model) {
        mx_text_add(out, "%s: false  # the preset's values stand here already\n", name);
        return;
    }
    if (!rules || rules->kind != MX_YAML_LIST || rules->n < 2 ||
        rules->item[0]->kind != MX_YAML_LIST) {
        mx_text_add(out, "%s: %s  # %s\n", name, mx_config_value(out->arena, config, key), origin);
        return;
    }
    mx_text_add(out, "%s:  # %s\n", name, origin);
    for (int i = 0; i < rules->n; i++)
        mx_text_add(out, "  - %s\n", mx_yaml_text(out->arena, rules->item[i]));
}

const char *mx_config_text(MxArena *arena, const MxConfig *config) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "# Effective config of mxtrain " MX_VERSION
                      "; loads back to the same config. Comments say where a value came from.\n");
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const ConfigGroup *group = config_group_of((MxKey)key);
        if ((int)group->first == key) mx_text_add(&out, "\n# %s\n", group->title);
        add_key(&out, config, (MxKey)key);
    }
    return out.data;
}

bool mx_config_write(const MxConfig *config, const char *path, MxError *err) {
    MxArena arena = {.name = "config text"};
    const char *text = mx_config_text(&arena, config);
    bool ok = true;
    if (strcmp(path, "-"))
        ok = mx_file_write(path, text, strlen(text), err);
    else if (fputs(text, stdout) < 0 || fflush(stdout))
        ok = mx_fail_errno(err, "could not write the config to stdout");
    mx_arena_release(&arena);
    return ok;
}

static int by_name(const void *a, const void *b) {
    return strcmp(mx_key_name(*(const MxKey *)a), mx_key_name(*(const MxKey *)b));
}

bool config_differs(MxArena *arena, const ConfigSlot *slot) {
    return slot->from != CONFIG_FROM_DEFAULT &&
           !config_node_equal(arena, slot->value, slot->given[CONFIG_FROM_DEFAULT]);
}

void mx_config_print(const MxConfig *config, const char *path) {
    MxArena arena = {.name = "config text"};
    MxKey keys[MX_KEY_COUNT];
    int n = 0;
    for (int key = 0; key < MX_KEY_COUNT; key++)
        if (config_differs(&arena, &config->trail->slots[key])) keys[n++] = (MxKey)key;
    qsort(keys, (size_t)n, sizeof keys[0], by_name);
    for (int i = 0; i < n; i++) {
        const char *value = mx_config_value(&arena, config, keys[i]);
        if (config_rows[keys[i]].type == CONFIG_node) value = config_shorten(&arena, value);
        mx_log("Config param %s: %s", mx_key_name(keys[i]), value);
    }
    mx_log("%d of %d keys differ from the defaults; all are in %s", n, MX_KEY_COUNT, path);
    mx_arena_release(&arena);
}
