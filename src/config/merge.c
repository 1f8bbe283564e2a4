/* merge.c — merges layers of settings, weakest first: defaults, files, the model's preset, the
 * custom mesh, the command line, the environment; with override_model_config also the file that
 * names the model, over its preset. If two of the last three set a key to different values, that is
 * an error, because one value would be silently ignored. Source: MaxText pyconfig.py @e591f30c;
 * maxtext pyconfig tests (identical override allowed). */
#include "room.h"

#include <ctype.h>

/* ---- finding keys ---- */

/* A key whose value is put together of what all layers say. */
static bool is_map(int row) {
    return row < MX_KEY_COUNT && config_rows[row].type == CONFIG_node &&
           !strcmp(config_rows[row].fallback, "{}");
}

static bool is_class(int row, ConfigClass class) {
    return row >= 0 && config_rows[row].class == class;
}

/* A key without the section that it is below: special_tokens.solution_end_token. */
static const char *outside(const ConfigLoad *load, const char *key) {
    size_t n = strcspn(key, ".");
    if (!key[n]) return key;
    int row = (int)mx_map_get(&load->rows, mx_arena_strndup(load->arena, key, n), -1);
    const char *rest = key + n + 1;
    const char *word = mx_arena_strndup(load->arena, rest, strcspn(rest, "."));
    bool is_below =
        is_class(row, CONFIG_SECTION) && config_word_in(config_rows[row].fallback, word);
    return is_below ? rest : key;
}

int config_find(const ConfigLoad *load, const char *key) {
    key = outside(load, key);
    int i = (int)mx_map_get(&load->rows, key, -1);
    const char *dot = i < 0 ? strchr(key, '.') : NULL;
    for (; dot; dot = strchr(dot + 1, '.')) { /* part of a map: dpo.loss_weights.sft */
        const char *map = mx_arena_strndup(load->arena, key, (size_t)(dot - key));
        int row = (int)mx_map_get(&load->rows, map, -1);
        if (row >= 0 && is_map(row)) return row;
    }
    if (is_class(i, CONFIG_ALIAS)) i = (int)mx_map_get(&load->rows, config_rows[i].fallback, -1);
    return is_class(i, CONFIG_SECTION) ? -1 : i;
}

void config_unrecognized(ConfigLoad *load, const char *key, MxWhere where) {
    config_report(load, where, "unrecognized key \"%s\"", config_shorten(load->arena, key));
    config_hint_meant(load, key);
}

/* ---- applying ---- */

/* More of a map, or one of its keys. */
static void add_to_map(ConfigLoad *load, int row, const char *key, const MxYamlPair *pair,
                       ConfigLayer layer) {
    const char *part = key + strlen(config_rows[row].name); /* "", or a dot and its name */
    const MxYaml *more = pair->value;
    ConfigSlot *slot = &load->slots[row];
    if (*part) {
        MxYaml *map = config_node_new(load->arena, MX_YAML_MAP, pair->where);
        map->pair = mx_new_n(load->arena, MxYamlPair, 1);
        map->pair[map->n++] = (MxYamlPair){part + 1, pair->where, pair->value};
        more = map;
    }
    slot->given[layer] = config_node_merge(load->arena, slot->given[layer], more);
}

static void apply_pair(ConfigLoad *load, const char *key, const MxYamlPair *pair,
                       ConfigLayer layer) {
    int i = config_find(load, key);
    if (i < 0) {
        config_unrecognized(load, key, pair->where);
        return;
    }
    ConfigSlot *slot = &load->slots[i];
    bool was_found = layer == CONFIG_FROM_FILE && !load->n_maps && slot->given[layer];
    if (was_found && config_node_equal(load->arena, pair->value, slot->given[CONFIG_FROM_DEFAULT]))
        return;
    if (is_map(i))
        add_to_map(load, i, outside(load, key), pair, layer);
    else
        slot->given[layer] = pair->value;
    if (layer == CONFIG_FROM_FILE)
        slot->is_own = load->names_model &&
                       (load->n_maps || !config_node_equal(load->arena, pair->value,
                                                           slot->given[CONFIG_FROM_DEFAULT]));
}

static void apply_section(ConfigLoad *load, const MxYamlPair *section, ConfigLayer layer) {
    const MxYaml *map = section->value;
    if (config_node_is_null(map)) return;
    if (map->kind != MX_YAML_MAP) {
        config_report(load, map->where, "%s: wants keys below it, found %s", section->key,
                      config_quote(load->arena, map));
        return;
    }
    for (int i = 0; i < map->n; i++)
        apply_pair(load, mx_arena_printf(load->arena, "%s.%s", section->key, map->pair[i].key),
                   &map->pair[i], layer);
}

void config_apply(ConfigLoad *load, const MxYaml *map, ConfigLayer layer) {
    for (int i = 0; i < map->n; i++) {
        const MxYamlPair *pair = &map->pair[i];
        if (!strcmp(pair->key, "base_config") && layer == CONFIG_FROM_FILE) continue;
        if (config_find(load, pair->key) < 0 && mx_map_get(&load->sections, pair->key, -1) >= 0)
            apply_section(load, pair, layer);
        else
            apply_pair(load, pair->key, pair, layer);
    }
}

static void read_override(ConfigLoad *load, const char *text) {
    const char *start = mx_text_has_prefix(text, "--") ? text + 2 : text;
    const char *equals = strchr(start, '=');
    size_t n = equals ? (size_t)(equals - start) : strlen(start);
    const ConfigSource *source =
        config_source_add(load, "<command line>", text, strlen(text), false);
    MxWhere where = {.file = source->name, .col = (int)(start - text) + 1};
    const char *key = mx_arena_strndup(load->arena, start, n);
    if (!n) {
        config_report(load, where, "wants key=value, found no key");
        return;
    }
    if (equals && !strcmp(key, "base_config")) return; /* a file, read as one */
    size_t offset = (size_t)(start - text) + n + (equals ? 1 : 0);
    const MxYaml *value = config_parse(load, source, offset);
    if (!value) return;
    MxYamlPair pair = {.key = key, .where = where, .value = value};
    config_apply(load, &(MxYaml){.kind = MX_YAML_MAP, .n = 1, .pair = &pair}, CONFIG_FROM_LINE);
}

void config_read_overrides(ConfigLoad *load, const MxConfigRequest *request) {
    for (int i = 0; i < request->n_overrides; i++) read_override(load, request->overrides[i]);
}

/* ---- environment ---- */

static char *lower_case(MxArena *arena, const char *s, size_t n) {
    char *copy = mx_arena_strndup(arena, s, n);
    for (char *p = copy; *p; p++) *p = (char)tolower((unsigned char)*p);
    return copy;
}

/* Typed by the row, not by YAML: a string is taken as it stands. */
static const MxYaml *read_variable(ConfigLoad *load, const ConfigRow *row,
                                   const ConfigSource *source, size_t offset) {
    MxWhere where = {.file = source->name, .col = (int)offset + 1};
    if (row->type == CONFIG_strs || row->type == CONFIG_node) {
        config_report(load, where, "%s: cannot be set from the environment", row->name);
        return NULL;
    }
    const char *text = source->text + offset;
    if (mx_utf8_valid_bytes(text, strlen(text)) < strlen(text)) {
        config_report(load, where, "%s: not UTF-8 text", row->name);
        return NULL;
    }
    MxYaml *node = config_node_string(load->arena, text, where);
    bool is_text = row->type == CONFIG_str || row->type == CONFIG_choice;
    node->is_quoted = is_text;
    if (!is_text) config_type_scalar(node);
    return node;
}

void config_read_environment(ConfigLoad *load, char *const *environ) {
    for (; environ && *environ; environ++) {
        const char *text = *environ, *equals = strchr(text, '=');
        if (!equals || !mx_text_has_prefix(text, "M_")) continue;
        const char *key = lower_case(load->arena, text + 2, (size_t)(equals - text) - 2);
        const char *variable = mx_arena_strndup(load->arena, text, (size_t)(equals - text));
        int i = config_find(load, key);
        if (i < 0) {
            const char *hint = strlen(key) > 4 ? config_meant_key(load->arena, key) : NULL;
            if (hint)
                config_warn(load, MX_NOWHERE,
                            "environment variable %s is not a key and has no effect; %s",
                            config_shorten(load->arena, variable), hint);
            continue;
        }
        const char *name = mx_arena_printf(load->arena, "environment %s", variable);
        const ConfigSource *source = config_source_add(load, name, text, strlen(text), false);
        const MxYaml *node =
            read_variable(load, &config_rows[i], source, (size_t)(equals - text) + 1);
        if (node) load->slots[i].given[CONFIG_FROM_ENV] = node;
    }
}

/* ---- settling ---- */

static bool is_true(const ConfigLoad *load, MxKey key) {
    const MxYaml *node = NULL;
    for (int layer = 0; layer < CONFIG_LAYERS; layer++)
        if (load->slots[key].given[layer]) node = load->slots[key].given[layer];
    MxYaml plain = *node;
    if (plain.kind == MX_YAML_STRING) config_type_scalar(&plain);
    return plain.kind == MX_YAML_BOOL ? plain.boolean : plain.kind == MX_YAML_INT && plain.integer;
}

static const char *place_text(ConfigLoad *load, MxWhere where) {
    if (!where.line) return where.file;
    return mx_arena_printf(load->arena, "%s:%d", where.file, where.line);
}

/* Two layers say different things about a key. */
static void report_conflict(ConfigLoad *load, int row, const MxYaml *strong, const MxYaml *weak) {
    load->slots[row].is_bad = true;
    config_report(load, strong->where, "%s: %s is also set to %s at %s", config_rows[row].name,
                  config_quote(load->arena, strong), config_quote(load->arena, weak),
                  place_text(load, weak->where));
}

const MxYaml *config_map(const ConfigLoad *load, MxKey key) {
    const MxYaml *map = NULL;
    for (int layer = 0; layer < CONFIG_LAYERS; layer++)
        map = config_node_merge(load->arena, map, load->slots[key].given[layer]);
    return config_node_is_null(map) || (map->kind == MX_YAML_MAP && !map->n) ? NULL : map;
}

void config_apply_overrides(ConfigLoad *load, MxKey key, const MxYaml *map) {
    if (map && map->kind != MX_YAML_MAP) {
        config_report(load, map->where, "%s: wants keys below it, found %s", mx_key_name(key),
                      config_quote(load->arena, map));
        return;
    }
    for (int i = 0; map && i < map->n; i++) {
        int row = config_find(load, map->pair[i].key);
        const MxYaml *line = row < 0 ? NULL : load->slots[row].given[CONFIG_FROM_LINE];
        if (line && !is_map(row) && !config_node_equal(load->arena, line, map->pair[i].value))
            report_conflict(load, row, map->pair[i].value, line);
        else
            config_apply(load, &(MxYaml){.kind = MX_YAML_MAP, .n = 1, .pair = &map->pair[i]},
                         CONFIG_FROM_LINE);
    }
}

static void check_conflicts(ConfigLoad *load, int row, bool may_override) {
    const ConfigSlot *slot = &load->slots[row];
    const MxYaml *model = slot->given[CONFIG_FROM_MODEL];
    const MxYaml *line = slot->given[CONFIG_FROM_LINE];
    const MxYaml *env = slot->given[CONFIG_FROM_ENV];
    const MxYaml *custom = slot->given[CONFIG_FROM_CUSTOM];
    if (line && (env || custom)) {
        report_conflict(load, row, env ? env : line, env ? line : custom);
        config_hint(load, "leave one of them out");
        return;
    }
    const MxYaml *strong = line ? line : env;
    if (!model || !strong || may_override || row == MX_KEY_logical_axis_rules) return;
    if (line && config_node_equal(load->arena, line, model)) return;
    report_conflict(load, row, strong, model);
    config_hint(load, "add override_model_config=true to change a preset's value");
}

/* The model's name comes from outside the files: none of them was written for that preset. */
static bool is_named_outside(ConfigLoad *load) {
    const MxYaml *const *given = load->slots[MX_KEY_model_name].given;
    const MxYaml *outside =
        given[CONFIG_FROM_LINE] ? given[CONFIG_FROM_LINE] : given[CONFIG_FROM_ENV];
    return outside && !config_node_equal(load->arena, outside, given[CONFIG_FROM_FILE]);
}

/* A file that names the model and says something else than its preset: that stands if the user
 * wants it so. */
static void choose_own(ConfigLoad *load, int row, bool may_override) {
    ConfigSlot *slot = &load->slots[row];
    const MxYaml *own = slot->given[CONFIG_FROM_FILE], *model = slot->given[CONFIG_FROM_MODEL];
    if (!slot->is_own || !model || row == MX_KEY_logical_axis_rules || is_named_outside(load) ||
        config_node_equal(load->arena, own, model))
        return;
    if (may_override)
        slot->given[CONFIG_FROM_MODEL] = NULL;
    else
        config_warn(load, own->where,
                    "%s: %s gives way to %s at %s; with override_model_config=true it stands",
                    config_rows[row].name, config_quote(load->arena, own),
                    config_quote(load->arena, model), place_text(load, model->where));
}

void config_settle(ConfigLoad *load) {
    bool may_override = is_true(load, MX_KEY_override_model_config);
    for (int row = 0; row < config_row_count; row++) {
        ConfigSlot *slot = &load->slots[row];
        choose_own(load, row, may_override);
        check_conflicts(load, row, may_override);
        for (int layer = 0; layer < CONFIG_LAYERS; layer++) {
            if (!slot->given[layer]) continue;
            slot->value = slot->given[layer];
            slot->from = (ConfigLayer)layer;
        }
        if (is_map(row) && config_map(load, (MxKey)row)) slot->value = config_map(load, (MxKey)row);
    }
    if (!is_true(load, MX_KEY_override_logical_axis_rules))
        load->slots[MX_KEY_logical_axis_rules].value = config_merge_rules(load);
}
