/* mixture.c — the parts of a mixture and their weights, from a setting or a file. records.c
 * alternates between the records of several parts. */
#include "parts.h"

#include <math.h>
#include <stdlib.h>

static const char *const any_file[] = {"", NULL};

static DataPart *add_part(MxArena *arena, DataParts *parts) {
    parts->item = mx_arena_grow(arena, parts->item, (size_t)parts->n, (size_t)parts->n + 1,
                                sizeof *parts->item);
    return &parts->item[parts->n++];
}

static bool find_weighted(MxArena *arena, const MxDataConfig *config, const char *path,
                          double weight, DataParts *parts, MxError *err) {
    DataPart *part = add_part(arena, parts);
    if (!data_find_part(arena, config, path, any_file, part, err)) return false;
    part->weight = weight;
    return true;
}

static bool is_weight(double weight) {
    return isfinite(weight) && weight > 0;
}

/* "PATH,WEIGHT;PATH,WEIGHT". */
static bool read_list(MxArena *arena, const MxDataConfig *config, DataParts *parts, MxError *err) {
    char *list = mx_arena_strdup(arena, config->path), *next = list;
    while (next) {
        char *item = next, *end = strchr(item, ';'), *comma, *after = NULL;
        next = end ? end + 1 : NULL;
        if (end) *end = '\0';
        comma = strrchr(item, ',');
        double weight = comma ? strtod(comma + 1, &after) : 0;
        if (!comma || after == comma + 1 || *after || !is_weight(weight))
            return mx_fail(err, MX_EXIT_CONFIG, config->where,
                           "\"%s\": wanted \"PATH,WEIGHT\" between semicolons, with a weight above "
                           "0",
                           item);
        *comma = '\0';
        if (!find_weighted(arena, config, item, weight, parts, err)) return false;
    }
    return true;
}

static bool read_file(MxArena *arena, const MxDataConfig *config, DataParts *parts, MxError *err) {
    enum { LARGEST_BYTES = 1 << 20 };
    static const char wants[] =
        "wanted {\"name\": {\"path\": \"a*.array_record\", \"weight\": 0.5}, …}";
    MxBytes bytes;
    const char *name;
    MxJson *value;
    if (!mx_file_read(arena, config->mixture, LARGEST_BYTES, &bytes, err)) return false;
    MxJson *json = mx_json_parse(arena, (const char *)bytes.data, bytes.size, config->mixture, err);
    if (!json) return false;
    MxWhere where = {.file = config->mixture};
    for (size_t i = 0; mx_json_member(json, i, &name, &value); i++) {
        const char *path = mx_json_string(mx_json_get(value, "path"));
        double weight = 0;
        bool has_weight =
            mx_json_get(value, "weight") && mx_json_number(mx_json_get(value, "weight"), &weight);
        if (!path || !has_weight || !is_weight(weight))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "\"%s\" lacks %s, %s", name,
                           path ? "a \"weight\" above 0" : "a \"path\"", wants);
        if (!find_weighted(arena, config, path, weight, parts, err)) return false;
    }
    return parts->n || mx_fail(err, MX_EXIT_BAD_INPUT, where, "has no parts, %s", wants);
}

bool parts_of_mixture(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    *out = (DataParts){0};
    if (config->mixture) return read_file(arena, config, out, err);
    if (config->path && strchr(config->path, ';')) return read_list(arena, config, out, err);
    return data_find_parts(arena, config, any_file, out, err);
}
