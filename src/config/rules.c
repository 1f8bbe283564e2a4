/* rules.c — merging logical_axis_rules by name: the rules of a stronger layer replace all weaker
 * rules of the same name and go to the end. A list in a later file simply replaces the earlier one;
 * that of custom_mesh_and_rule replaces all of them. Source: MaxText pyconfig.py,
 * _merge_logical_axis_rules @e591f30c. */
#include "room.h"

static const char *name_of(const MxYaml *rule) {
    if (rule->kind != MX_YAML_LIST || !rule->n) return "";
    return rule->item[0]->text;
}

static bool has_rule(const MxYaml *rules, const char *name) {
    for (int i = 0; i < rules->n; i++)
        if (!strcmp(name_of(rules->item[i]), name)) return true;
    return false;
}

static const MxYaml *merge_two(MxArena *arena, const MxYaml *weak, const MxYaml *strong) {
    if (weak->kind != MX_YAML_LIST || strong->kind != MX_YAML_LIST) return strong;
    MxYaml *both = config_node_new(arena, MX_YAML_LIST, strong->where);
    both->item = mx_new_n(arena, const MxYaml *, weak->n + strong->n);
    for (int i = 0; i < weak->n; i++)
        if (!has_rule(strong, name_of(weak->item[i]))) both->item[both->n++] = weak->item[i];
    for (int i = 0; i < strong->n; i++) both->item[both->n++] = strong->item[i];
    return both;
}

const MxYaml *config_merge_rules(ConfigLoad *load) {
    const ConfigSlot *slot = &load->slots[MX_KEY_logical_axis_rules];
    const MxYaml *rules = slot->given[CONFIG_FROM_FILE];
    if (!rules) rules = slot->given[CONFIG_FROM_DEFAULT];
    if (slot->given[CONFIG_FROM_CUSTOM]) return slot->given[CONFIG_FROM_CUSTOM];
    const MxYaml *model = slot->given[CONFIG_FROM_MODEL], *line = slot->given[CONFIG_FROM_LINE];
    if (model) rules = merge_two(load->arena, rules, model);
    if (line) rules = merge_two(load->arena, rules, line);
    return rules;
}
