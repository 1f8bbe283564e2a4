/* value.c — converts a YAML value into a field of the row's type, within its range or choices. It
 * is as lenient as MaxText's pydantic models where that loses nothing (1000000.0 for an int,
 * "1e-06" in quotes for a float, "none" for null), but never clamps or guesses. */
#include "room.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

static const char *row_unit(const ConfigRow *row, MxArena *arena) {
    return row->unit && *row->unit ? mx_arena_printf(arena, " %s", row->unit) : "";
}

/* MaxText's own files quote some numbers: read a string as a plain scalar once more. */
static MxYaml plain_form(const MxYaml *node) {
    MxYaml plain = config_node_unquoted(node);
    if (plain.kind == MX_YAML_STRING && *plain.text) {
        char *end;
        double number = strtod(plain.text, &end); /* Python's float() takes "-.5", YAML does not */
        if (!*end && isfinite(number)) {
            plain.kind = MX_YAML_FLOAT;
            plain.number = number;
        }
    }
    return plain;
}

static bool wrong_type(ConfigLoad *load, const ConfigRow *row, const MxYaml *node,
                       const char *wanted) {
    return config_report(load, node->where, "%s: wants %s, found %s", row->name, wanted,
                         config_quote(load->arena, node));
}

static const char *range_text(MxArena *arena, const ConfigRow *row) {
    const char *lo = mx_arena_printf(arena, "%.15g", row->lo);
    const char *hi = mx_arena_printf(arena, "%.15g", row->hi);
    const char *range;
    if (row->hi >= DBL_MAX)
        range = mx_arena_printf(arena, row->is_open_below ? "more than %s" : "at least %s", lo);
    else
        range =
            mx_arena_printf(arena, "%s to %s%s", lo, row->is_open_above ? "less than " : "", hi);
    if (row->has_other) range = mx_arena_printf(arena, "%.15g or %s", row->other, range);
    return mx_arena_printf(arena, "%s%s", range, row_unit(row, arena));
}

static bool check_range(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, double x) {
    if (isnan(x) || isinf(x)) return wrong_type(load, row, node, "a finite number");
    if (!row->has_range || (row->has_other && x == row->other)) return true;
    bool is_low = row->is_open_below ? x <= row->lo : x < row->lo;
    bool is_high = row->is_open_above ? x >= row->hi : x > row->hi;
    if (!is_low && !is_high) return true;
    return wrong_type(load, row, node, range_text(load->arena, row));
}

static bool to_bool(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, bool *out) {
    MxYaml plain = plain_form(node);
    bool is_bit = plain.kind == MX_YAML_INT && (plain.integer == 0 || plain.integer == 1);
    if (plain.kind != MX_YAML_BOOL && !is_bit) return wrong_type(load, row, node, "true or false");
    *out = is_bit ? plain.integer != 0 : plain.boolean;
    return true;
}

static bool to_int(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, int64_t *out) {
    MxYaml plain = plain_form(node);
    bool is_whole = plain.kind == MX_YAML_FLOAT && plain.number == floor(plain.number) &&
                    fabs(plain.number) <= 9007199254740992.0; /* 2^53: exact in a double */
    if (plain.kind != MX_YAML_INT && !is_whole) return wrong_type(load, row, node, "an integer");
    if (!check_range(load, row, node, plain.number)) return false;
    *out = is_whole ? (int64_t)plain.number : plain.integer;
    return true;
}

static bool to_float(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, double *out) {
    MxYaml plain = plain_form(node);
    if (plain.kind != MX_YAML_INT && plain.kind != MX_YAML_FLOAT)
        return wrong_type(load, row, node, "a number");
    if (!check_range(load, row, node, plain.number)) return false;
    *out = plain.number;
    return true;
}

static bool is_scalar(const MxYaml *node) {
    return node->kind != MX_YAML_LIST && node->kind != MX_YAML_MAP;
}

static bool to_str(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, const char **out) {
    if (!is_scalar(node)) return wrong_type(load, row, node, "a text");
    if (node->surprise)
        config_warn(load, node->where,
                    "%s: %s looks like a %s number or word to YAML; taken as the "
                    "text \"%s\" (quote it)",
                    row->name, node->text,
                    strcmp(node->surprise, "boolean") ? node->surprise : "true/false", node->text);
    *out = config_node_is_null(node) ? NULL : node->text;
    return true;
}

static bool check_choice(ConfigLoad *load, const ConfigRow *row, const MxYaml *node) {
    const char *text = node->text;
    if (!*text || !is_scalar(node)) return wrong_type(load, row, node, "a word");
    if (strchr(text, ' ') == NULL &&
        (config_word_in(row->now, text) || config_word_in(row->loads, text)))
        return true;
    if (config_word_in(row->later, text))
        return config_report(load, node->where, "%s: not available yet (got %s; only %s %s now)",
                             row->name, config_quote(load->arena, node),
                             config_words(load->arena, row->now),
                             strchr(row->now, ' ') ? "work" : "works");
    config_report(load, node->where, "%s: unrecognized value %s, wants one of %s", row->name,
                  config_quote(load->arena, node), config_words(load->arena, row->now));
    const char *lists[3] = {row->now, row->later, row->loads};
    config_hint_nearest(load, config_meant_word(load->arena, text, lists));
    return false;
}

static bool to_choice(ConfigLoad *load, const ConfigRow *row, const MxYaml *node,
                      const char **out) {
    bool is_known_word = is_scalar(node) && *node->text && config_word_in(row->now, node->text);
    if (config_node_is_null(node) && row->null_as && !is_known_word) {
        *out = row->null_as;
        return true;
    }
    *out = node->text;
    return check_choice(load, row, node);
}

/* The YAML list that a text looks like: "['a', 'b']", or Python's "('a', 'b')" of quoted texts
 * ("(a|b)" is a regular expression); NULL = like none. */
static const char *listed_text(MxArena *arena, const char *text) {
    size_t n = strlen(text);
    if (text[0] == '[') return text;
    bool is_tuple = text[0] == '(' && n > 3 && strchr("'\"", text[1]) && text[n - 1] == ')' &&
                    strchr("'\",", text[n - 2]);
    if (!is_tuple) return NULL;
    return mx_arena_printf(arena, "[%.*s]", (int)n - 2, text + 1);
}

/* A bare word is a list of one; a text that looks like a list is read as one. */
static const MxYaml *list_form(ConfigLoad *load, const MxYaml *node) {
    if (node->kind == MX_YAML_LIST) return node;
    MxYaml *list = config_node_new(load->arena, MX_YAML_LIST, node->where);
    if (config_node_is_null(node)) return list;
    bool is_text = node->kind == MX_YAML_STRING;
    const char *listed = is_text ? listed_text(load->arena, node->text) : NULL;
    if (listed) {
        const ConfigSource *source =
            config_source_add(load, node->where.file, listed, strlen(listed), false);
        return config_parse(load, source, 0);
    }
    list->item = mx_new_n(load->arena, const MxYaml *, 1);
    list->item[list->n++] = node;
    return list;
}

static bool to_strs(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, MxStrs *out) {
    const MxYaml *list = node->kind == MX_YAML_MAP ? NULL : list_form(load, node);
    if (!list || list->kind != MX_YAML_LIST) return wrong_type(load, row, node, "a list of texts");
    *out = (MxStrs){.item = mx_new_n(load->arena, const char *, list->n ? list->n : 1)};
    for (int i = 0; i < list->n; i++) {
        const MxYaml *item = list->item[i];
        if (!is_scalar(item)) return wrong_type(load, row, item, "a list of texts");
        if (row->now && !check_choice(load, row, item)) return false;
        out->item[out->n++] = item->text;
    }
    return true;
}

static void warn_surprise(ConfigLoad *load, const ConfigRow *row, const MxYaml *node) {
    if (!node->surprise || !strcmp(node->surprise, "boolean")) return;
    MxYaml number = *node;
    config_warn(load, node->where, "%s: %s is read as %s, because YAML takes it for %s", row->name,
                node->text, mx_yaml_text(load->arena, &number), node->surprise);
}

/* Null in a row of numbers: what the row says it means. */
static bool convert_null(ConfigLoad *load, const ConfigRow *row, const MxYaml *node, void *field) {
    static const char *const wanted[] = {
        [CONFIG_bool] = "true or false", [CONFIG_int] = "an integer", [CONFIG_float] = "a number"};
    if (!row->null_as) return wrong_type(load, row, node, wanted[row->type]);
    if (row->type == CONFIG_int) *(int64_t *)field = strtoll(row->null_as, NULL, 10);
    if (row->type == CONFIG_float) *(double *)field = strtod(row->null_as, NULL);
    return true;
}

bool config_convert(ConfigLoad *load, const ConfigRow *row, ConfigSlot *slot, void *field) {
    const MxYaml *node = slot->value;
    bool is_number =
        row->type == CONFIG_bool || row->type == CONFIG_int || row->type == CONFIG_float;
    bool ok = true;
    if (is_number) warn_surprise(load, row, node);
    if (is_number && config_node_is_null(node))
        ok = convert_null(load, row, node, field);
    else if (row->type == CONFIG_bool)
        ok = to_bool(load, row, node, field);
    else if (row->type == CONFIG_int)
        ok = to_int(load, row, node, field);
    else if (row->type == CONFIG_float)
        ok = to_float(load, row, node, field);
    else if (row->type == CONFIG_str)
        ok = to_str(load, row, node, field);
    else if (row->type == CONFIG_choice)
        ok = to_choice(load, row, node, field);
    else if (row->type == CONFIG_strs)
        ok = to_strs(load, row, node, field);
    else
        *(const MxYaml **)field = node;
    if (!ok) slot->is_bad = true;
    return ok;
}
