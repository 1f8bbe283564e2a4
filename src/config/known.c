/* known.c — keys without a field: those that have no meaning here are named in one warning if they
 * are set, and those that are not built yet must keep their default. Keys of other programs, with
 * or without a field, get a warning each. */
#include "room.h"

#include <math.h>

/* A switch turned off is what we do anyway; an empty value asks for nothing. */
static bool asks_for_nothing(const MxYaml *node) {
    MxYaml plain = *node;
    if (plain.kind == MX_YAML_STRING) config_type_scalar(&plain);
    if (plain.kind == MX_YAML_BOOL) return !plain.boolean;
    return config_node_is_null(node) || (node->kind >= MX_YAML_LIST && !node->n);
}

static const char *wanted_type(ConfigType type) {
    switch (type) {
    case CONFIG_bool:
        return "true or false";
    case CONFIG_int:
        return "an integer";
    case CONFIG_float:
        return "a number";
    default:
        return "a text";
    }
}

/* Same rules as for a field, but the value is thrown away. */
static bool has_type(ConfigLoad *load, const ConfigRow *row, const MxYaml *node) {
    if (row->type == CONFIG_node || config_node_is_null(node)) return true;
    MxYaml plain = *node;
    if (plain.kind == MX_YAML_STRING && row->type != CONFIG_str) config_type_scalar(&plain);
    bool is_number = plain.kind == MX_YAML_INT || plain.kind == MX_YAML_FLOAT;
    bool is_bit = plain.kind == MX_YAML_INT && (plain.integer == 0 || plain.integer == 1);
    bool is_whole = is_number && plain.number == floor(plain.number);
    bool ok = row->type == CONFIG_bool    ? plain.kind == MX_YAML_BOOL || is_bit
              : row->type == CONFIG_int   ? is_whole
              : row->type == CONFIG_float ? is_number
                                          : plain.kind < MX_YAML_LIST;
    return ok || config_report(load, node->where, "%s: wants %s, found %s", row->name,
                               wanted_type(row->type), config_quote(load->arena, node));
}

/* null, true, 1.5 and words stand as they are, texts in quotes. */
static const char *default_text(ConfigLoad *load, const ConfigRow *row) {
    if (!*row->fallback) return row->type == CONFIG_str ? "\"\"" : "null";
    if (row->type != CONFIG_str || row->fallback[0] == '"') return row->fallback;
    return mx_arena_printf(load->arena, "\"%s\"", row->fallback);
}

static void refuse_later(ConfigLoad *load, const ConfigRow *row, const MxYaml *node) {
    const char *fallback = default_text(load, row);
    const char *also = *row->also ? mx_arena_printf(load->arena, "%s, %s work", fallback,
                                                    config_words(load->arena, row->also))
                                  : mx_arena_printf(load->arena, "%s works", fallback);
    config_report(load, node->where, "%s: not available yet (got %s; only %s now)", row->name,
                  config_quote(load->arena, node), also);
    if (row->doc) config_hint(load, "%s", row->doc);
}

/* Of a program of ours that this load is not for. */
static void warn_elsewhere(ConfigLoad *load, const ConfigRow *row, const MxYaml *node) {
    if (row->class == CONFIG_BUILT && load->decodes) return;
    config_warn(load, node->where, "%s: no effect on %s: %s", row->name,
                load->decodes ? "replies" : "training", row->where);
}

static void check_row(ConfigLoad *load, const ConfigRow *row, ConfigSlot *slot, MxText *inert) {
    const MxYaml *node = slot->value;
    if (slot->from == CONFIG_FROM_DEFAULT || slot->is_bad) return;
    if (row->class == CONFIG_COMPUTED) { /* MaxText computes over what is said, without a word */
        if (!config_node_is_null(node))
            config_warn(load, node->where, "%s: %s has no effect, it is computed from %s",
                        row->name, config_quote(load->arena, node), row->fallback);
        return;
    }
    if (row->class != CONFIG_BUILT && !has_type(load, row, node)) return;
    if (row->class == CONFIG_QUIET) return;
    const MxYaml *fallback = slot->given[CONFIG_FROM_DEFAULT];
    bool is_default = config_node_equal(load->arena, node, fallback);
    bool is_fine =
        is_default || (node->kind < MX_YAML_LIST && config_word_in(row->also, node->text));
    /* a copy of base.yml says all defaults, a user means one */
    bool is_meant = (!is_default || slot->from > CONFIG_FROM_CUSTOM) && !asks_for_nothing(node);
    if (row->class == CONFIG_LATER && !is_fine) refuse_later(load, row, node);
    if (row->where && is_meant) warn_elsewhere(load, row, node);
    if (row->class == CONFIG_INERT && is_meant)
        mx_text_add(inert, "%s%s", inert->len ? ", " : "", row->name);
}

void config_check_known(ConfigLoad *load) {
    MxText inert;
    mx_text_init(&inert, load->arena);
    for (int i = 0; i < config_row_count; i++)
        if (load->slots[i].value && (i >= MX_KEY_COUNT || config_rows[i].where))
            check_row(load, &config_rows[i], &load->slots[i], &inert);
    if (inert.len) config_warn(load, MX_NOWHERE, "no effect on this machine: %s", inert.data);
}
