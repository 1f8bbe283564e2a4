/* node.c — YAML values as data: making, comparing and writing them. Traversals use an explicit
 * stack; the parser admits no value deeper than CONFIG_DEEPEST. */
#include "room.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

MxYaml *config_node_new(MxArena *arena, MxYamlKind kind, MxWhere where) {
    MxYaml *node = mx_new(arena, MxYaml);
    *node = (MxYaml){.kind = kind, .where = where, .text = "", .expanded = 1, .depth = 1};
    return node;
}

MxYaml *config_node_string(MxArena *arena, const char *text, MxWhere where) {
    MxYaml *node = config_node_new(arena, MX_YAML_STRING, where);
    node->text = text;
    node->is_quoted = true;
    return node;
}

const MxYaml *mx_yaml_get(const MxYaml *map, const char *key) {
    for (int i = 0; map && map->kind == MX_YAML_MAP && i < map->n; i++)
        if (!strcmp(map->pair[i].key, key)) return map->pair[i].value;
    return NULL;
}

const char *config_number_text(MxArena *arena, double number) {
    if (isnan(number)) return ".nan";
    if (isinf(number)) return number < 0 ? "-.inf" : ".inf";
    return mx_number_text(arena, number);
}

static bool is_plain(const char *s) {
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (!*s || *s == '-' || strspn(s, safe) != strlen(s)) return false;
    MxYaml node = {.text = s};
    config_type_scalar(&node);
    return node.kind == MX_YAML_STRING;
}

/* Characters that YAML does not take as they stand, or takes for ends of lines or marks. */
static bool needs_escape(uint32_t c) {
    return c < ' ' || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
           c == 0xfffe || c == 0xffff;
}

/* A character of at most three bytes, the others are never escaped; its bytes to *n. */
static uint32_t character_at(const unsigned char *s, size_t *n) {
    *n = s[0] < 0xc0 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (*n == 2) return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    if (*n == 3) return (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    return s[0];
}

/* s is UTF-8. */
static void add_string(MxText *out, const char *s) {
    if (is_plain(s)) {
        mx_text_add(out, "%s", s);
        return;
    }
    mx_text_addn(out, "\"", 1);
    for (size_t n; *s; s += n) {
        uint32_t c = character_at((const unsigned char *)s, &n);
        if (c == '"' || c == '\\')
            mx_text_add(out, "\\%c", *s);
        else if (c == '$' && s[1] == '{')
            mx_text_add(out, "\\\\$");
        else if (needs_escape(c))
            mx_text_add(out, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        else
            mx_text_addn(out, s, n);
    }
    mx_text_addn(out, "\"", 1);
}

static void add_scalar(MxText *out, const MxYaml *node) {
    switch (node->kind) {
    case MX_YAML_NULL:
        mx_text_add(out, "null");
        break;
    case MX_YAML_BOOL:
        mx_text_add(out, node->boolean ? "true" : "false");
        break;
    case MX_YAML_INT:
        mx_text_add(out, "%lld", (long long)node->integer);
        break;
    case MX_YAML_FLOAT:
        mx_text_add(out, "%s", config_number_text(out->arena, node->number));
        break;
    default:
        add_string(out, node->text);
    }
}

const char *mx_yaml_text(MxArena *arena, const MxYaml *node) {
    struct {
        const MxYaml *node;
        int i;
    } stack[CONFIG_DEEPEST + 1];
    MxText out;
    mx_text_init(&out, arena);
    int depth = 0;
    for (const MxYaml *next = node;;) {
        bool is_map = next && next->kind == MX_YAML_MAP;
        if (next && (is_map || next->kind == MX_YAML_LIST)) {
            MX_ASSERT(depth < MX_COUNT(stack));
            mx_text_add(&out, is_map ? "{" : "[");
            stack[depth].node = next;
            stack[depth++].i = 0;
        } else if (next)
            add_scalar(&out, next);
        if (!depth) return out.data;
        const MxYaml *top = stack[depth - 1].node;
        int i = stack[depth - 1].i++;
        next = NULL;
        if (i == top->n) {
            mx_text_add(&out, top->kind == MX_YAML_MAP ? "}" : "]");
            if (!--depth) return out.data;
            continue;
        }
        if (i) mx_text_add(&out, ", ");
        if (top->kind == MX_YAML_MAP) {
            add_string(&out, top->pair[i].key);
            mx_text_add(&out, ": ");
            next = top->pair[i].value;
        } else
            next = top->item[i];
    }
}

bool config_node_is_null(const MxYaml *node) {
    if (node->kind == MX_YAML_NULL) return true;
    return node->kind == MX_YAML_STRING && (!*node->text || !strcasecmp(node->text, "none"));
}

MxYaml config_node_unquoted(const MxYaml *node) {
    MxYaml plain = *node;
    if (plain.kind == MX_YAML_STRING) config_type_scalar(&plain);
    return plain;
}

bool config_node_equal(MxArena *arena, const MxYaml *a, const MxYaml *b) {
    if (config_node_is_null(a) || config_node_is_null(b))
        return config_node_is_null(a) && config_node_is_null(b);
    MxYaml x = config_node_unquoted(a), y = config_node_unquoted(b);
    bool are_numbers = (x.kind == MX_YAML_INT || x.kind == MX_YAML_FLOAT) &&
                       (y.kind == MX_YAML_INT || y.kind == MX_YAML_FLOAT);
    if (are_numbers) return x.number == y.number;
    return x.kind == y.kind && !strcmp(mx_yaml_text(arena, &x), mx_yaml_text(arena, &y));
}

const MxYaml *config_node_merge(MxArena *arena, const MxYaml *weak, const MxYaml *strong) {
    if (!weak || !strong || weak->kind != MX_YAML_MAP || strong->kind != MX_YAML_MAP)
        return strong ? strong : weak;
    MxYaml *both = config_node_new(arena, MX_YAML_MAP, strong->where);
    both->pair = mx_new_n(arena, MxYamlPair, weak->n + strong->n + 1);
    for (int i = 0; i < weak->n; i++)
        if (!mx_yaml_get(strong, weak->pair[i].key)) both->pair[both->n++] = weak->pair[i];
    for (int i = 0; i < strong->n; i++) both->pair[both->n++] = strong->pair[i];
    return both;
}
