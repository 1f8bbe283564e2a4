/* interpolate.c — "${key}" in a value, or in a list of values, is replaced by another key's value.
 * A value that consists only of "${key}" also takes its type; "\${" is a literal "${". Substitution
 * is repeated until none is left, so values may refer to values with references. Limits on the
 * number of substitutions and on the length detect cycles. */
#include "room.h"

enum { MOST_SUBSTITUTIONS = 64, LONGEST_TEXT = 4096 };

static const char *find_reference(const char *s) {
    for (const char *p = s; (p = strstr(p, "${")); p += 2)
        if (p == s || p[-1] != '\\') return p;
    return NULL;
}

/* The node that the reference at `start` names; NULL after an error. */
static const MxYaml *look_up(ConfigLoad *load, const MxYaml *user, const char *start,
                             const char **end) {
    const char *close = strchr(start, '}');
    if (!close) {
        config_report(load, user->where, "\"${\" without \"}\"");
        return NULL;
    }
    *end = close + 1;
    const char *key = mx_arena_strndup(load->arena, start + 2, (size_t)(close - start - 2));
    int row = config_find(load, key);
    if (row >= 0 && load->slots[row].value) return load->slots[row].value;
    config_report(load, user->where, "\"${%s}\" is not the value of a key",
                  config_shorten(load->arena, key));
    config_hint_meant(load, key);
    return NULL;
}

static const char *unescape(MxArena *arena, const char *s) {
    char *copy = mx_arena_strdup(arena, s), *out = copy;
    for (const char *p = copy; *p; p++)
        if (!(p[0] == '\\' && p[1] == '$' && p[2] == '{')) *out++ = *p;
    *out = '\0';
    return copy;
}

static const MxYaml *resolve(ConfigLoad *load, const MxYaml *user) {
    const MxYaml *now = user;
    for (int i = 0; i < MOST_SUBSTITUTIONS; i++) {
        const char *start = now->kind == MX_YAML_STRING ? find_reference(now->text) : NULL;
        if (!start) {
            MxYaml *done = mx_new(load->arena, MxYaml);
            *done = *now;
            done->where = user->where;
            if (done->kind == MX_YAML_STRING) done->text = unescape(load->arena, done->text);
            return done;
        }
        const char *end;
        const MxYaml *value = look_up(load, user, start, &end);
        if (!value) return NULL;
        if (start == now->text && !*end) {
            now = value;
            continue;
        }
        if (value->kind == MX_YAML_LIST || value->kind == MX_YAML_MAP) {
            config_report(load, user->where, "a list cannot stand inside a text");
            return NULL;
        }
        const char *text = mx_arena_printf(load->arena, "%.*s%s%s", (int)(start - now->text),
                                           now->text, value->text, end);
        if (strlen(text) > LONGEST_TEXT) break;
        now = config_node_string(load->arena, text, user->where);
    }
    config_report(load, user->where, "\"%s\" leads back to itself",
                  config_shorten(load->arena, user->text));
    return NULL;
}

static const MxYaml *resolve_list(ConfigLoad *load, const MxYaml *list) {
    MxYaml *copy = mx_new(load->arena, MxYaml);
    *copy = *list;
    copy->item = mx_new_n(load->arena, const MxYaml *, list->n);
    for (int i = 0; i < list->n; i++) {
        copy->item[i] = resolve(load, list->item[i]);
        if (!copy->item[i]) return NULL;
    }
    return copy;
}

void config_interpolate(ConfigLoad *load) {
    const MxYaml **done = mx_new_n(load->arena, const MxYaml *, config_row_count);
    for (int i = 0; i < config_row_count; i++) {
        const ConfigSlot *slot = &load->slots[i];
        done[i] = slot->value;
        if (!slot->value || slot->from == CONFIG_FROM_DEFAULT || slot->is_bad) continue;
        bool is_list = slot->value->kind == MX_YAML_LIST;
        if (!is_list && slot->value->kind != MX_YAML_STRING) continue;
        done[i] = is_list ? resolve_list(load, slot->value) : resolve(load, slot->value);
    }
    for (int i = 0; i < config_row_count; i++) {
        if (!done[i] && load->slots[i].value) load->slots[i].is_bad = true;
        if (done[i]) load->slots[i].value = done[i];
    }
}
