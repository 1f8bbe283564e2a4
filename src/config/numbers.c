/* numbers.c — whole numbers in values that are no plain numbers, such as lists of layers: how they
 * are read, and what is said of a key whose list is none. */
#include "check.h"

int64_t config_whole(const MxYaml *node) {
    MxYaml plain = config_node_unquoted(node);
    return plain.kind == MX_YAML_INT && plain.integer >= 0 ? plain.integer : -1;
}

int mx_config_numbers(const MxYaml *node, int most, int64_t *out) {
    if (node->kind != MX_YAML_LIST || node->n > most) return -1;
    for (int i = 0; i < node->n; i++) {
        int64_t number = config_whole(node->item[i]);
        if (number < 0) return -1;
        if (out) out[i] = number;
    }
    return node->n;
}

static const char *count_text(MxArena *arena, const ConfigNumbers *wanted) {
    if (!wanted->most) return "";
    return mx_arena_printf(arena, "%s%d ", wanted->least == wanted->most ? "" : "at most ",
                           wanted->most);
}

bool config_check_numbers(ConfigLoad *load, MxKey key, const MxYaml *list, ConfigNumbers wanted) {
    bool is_list = list->kind == MX_YAML_LIST;
    if (!is_list || list->n < wanted.least || (wanted.most && list->n > wanted.most))
        return config_fail(load, key, "wants a list of %s%s, found %s",
                           count_text(load->arena, &wanted), wanted.what,
                           config_quote(load->arena, list));
    for (int i = 0; i < list->n; i++) {
        int64_t number = config_whole(list->item[i]);
        if (number < wanted.low || number > wanted.high)
            return config_fail(load, key, "wants %s from %lld to %lld, found %s", wanted.what,
                               (long long)wanted.low, (long long)wanted.high,
                               config_quote(load->arena, list->item[i]));
    }
    return true;
}
