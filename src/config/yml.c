/* yml.c — keys as YAML with what they mean beside them, from the rows: configs/base.yml, which has
 * all of them with their defaults, and configs to start from, which have those of a config that
 * matter. */
#include "room.h"

/* The items of a list of lists, a line each. */
static void add_items(MxText *out, const char *list) {
    int depth = 0;
    for (const char *at = list; *at; at++) {
        if (*at == '[' && ++depth == 2) mx_text_add(out, "  - ");
        if (depth >= 2) mx_text_add(out, "%c", *at);
        if (*at == ']' && --depth == 1) mx_text_add(out, "\n");
    }
}

/* The words of a choice stand before what it does, if they are few. */
static const char *comment_of(MxArena *arena, const ConfigRow *row) {
    enum { FEW = 60 };
    if (!row->now || strlen(row->now) > FEW) return row->doc;
    return mx_arena_printf(arena, "%s; %s", config_join(arena, row->now, " | "), row->doc);
}

/* indent  spaces before the key; name  within its section */
static void add_row(MxText *out, const ConfigRow *row, const char *indent, const char *name,
                    const char *value) {
    enum { COMMENT_AT = 42 };
    bool is_table = mx_text_has_prefix(value, "[[") && strstr(value, "], [");
    const char *line = is_table ? mx_arena_printf(out->arena, "%s%s:", indent, name)
                                : mx_arena_printf(out->arena, "%s%s: %s", indent, name, value);
    mx_text_add(out, "%-*s # %s\n", COMMENT_AT, line, comment_of(out->arena, row));
    if (is_table) add_items(out, value);
}

/* The keys that are chosen, in order, in their groups and sections.
 *   values  [MX_KEY_COUNT] NULL = not chosen */
static void add_rows(MxText *out, const char *const *values) {
    const ConfigGroup *group = NULL;
    const char *section = "";
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const ConfigRow *row = &config_rows[key];
        if (!values[key]) continue;
        if (group != config_group_of((MxKey)key)) {
            group = config_group_of((MxKey)key);
            mx_text_add(out, "\n# ---- %s\n", group->title);
        }
        const char *dot = strchr(row->name, '.');
        const char *of =
            dot ? mx_arena_strndup(out->arena, row->name, (size_t)(dot - row->name)) : "";
        if (*of && strcmp(of, section)) mx_text_add(out, "%s:\n", of);
        section = of;
        add_row(out, row, dot ? "  " : "", dot ? dot + 1 : row->name, values[key]);
    }
}

void config_yml(MxText *out) {
    const char *values[MX_KEY_COUNT];
    mx_text_add(out,
                "# base.yml - every key that acts, with its default. mxtrain reads this file when "
                "no other is given;\n"
                "# start your own with \"base_config: base.yml\" and change what you need.\n#\n"
                "# Names and meaning are MaxText's. Where a default differs from MaxText's, the "
                "comment says so: the\n"
                "# bare command is a small byte-level model on the text that comes with mxtrain, "
                "about a minute on\n"
                "# two cores. \"(ours)\" marks keys that MaxText does not have. More about a key: "
                "mxtrain --help-config KEY.\n"
                "# Made by mxtrain --help-config yml (make docs).\n");
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const ConfigRow *row = &config_rows[key];
        values[key] = *row->fallback || row->type > CONFIG_choice ? row->fallback : "\"\"";
    }
    add_rows(out, values);
}

void mx_config_start(MxText *out, const MxConfig *config, const char *keys) {
    const char *values[MX_KEY_COUNT] = {0};
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const ConfigSlot *slot = &config->trail->slots[key];
        bool is_of_preset = slot->from == CONFIG_FROM_MODEL || slot->from == CONFIG_FROM_CUSTOM;
        bool is_wanted =
            config_word_in(keys, mx_key_name((MxKey)key)) || config_differs(out->arena, slot);
        if (is_wanted && !is_of_preset)
            values[key] = mx_config_value(out->arena, config, (MxKey)key);
    }
    mx_text_add(out, "base_config: base.yml\n");
    add_rows(out, values);
}
