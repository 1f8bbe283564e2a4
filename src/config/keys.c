/* keys.c — the table of all keys: rows of config_keys.def, then those of config_known.def, so the
 * index of a built row is its MxKey. */
#include "room.h"

#include <mx/family.h>

#include <float.h>

#define ANY                      .has_range = false
#define RANGE(a, b)              .has_range = true, .lo = (a), .hi = (b)
#define AT_LEAST(a)              RANGE(a, DBL_MAX)
#define ABOVE(a)                 AT_LEAST(a), .is_open_below = true
#define BELOW(a, b)              RANGE(a, b), .is_open_above = true
#define AT_LEAST_OR(a, x)        AT_LEAST(a), .has_other = true, .other = (x)
#define SHARE_OR(x)              RANGE(0, 1), .is_open_below = true, .has_other = true, .other = (x)
#define NULL_IS(text, limits)    .null_as = (text), limits
#define CHOICE(act, later_, fit) .now = (act), .later = (later_), .loads = (fit)
#define DECODES                  .where = "mxdecode --config reads it"
#define DECODES_CHOICE(act)      DECODES, CHOICE(act, "", "")
#define FREE                     .on_resume = CONFIG_FREE,
#define SCHEDULE                 .on_resume = CONFIG_SCHEDULE,
#define FROZEN                   .on_resume = CONFIG_FROZEN,

// clang-format off
static const char opt_types[] =
#define MX_OPTIMIZER(name, keys) #name " "
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
    ;

const ConfigRow config_rows[] = {
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type_, field, key, text, limits, unit_, doc_)                                       \
    [MX_KEY_##field] = {.name = key, .class = CONFIG_BUILT, .type = CONFIG_##type_,                \
                        .offset = offsetof(MxConfig, field), .fallback = text, limits,             \
                        .unit = unit_, .doc = doc_},
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
#define KNOWN(class_, type_, key, text)                                                            \
    .name = key, .class = class_, .type = type_, .fallback = text
#define MX_KNOWN_QUIET(t, key, text)       {KNOWN(CONFIG_QUIET, CONFIG_##t, key, text)},
#define MX_KNOWN_INERT(t, key, text)       {KNOWN(CONFIG_INERT, CONFIG_##t, key, text)},
#define MX_KNOWN_ELSEWHERE(t, key, text, x) \
    {KNOWN(CONFIG_ELSEWHERE, CONFIG_##t, key, text), .where = x},
#define MX_KNOWN_LATER(t, key, text, ok)   {KNOWN(CONFIG_LATER, CONFIG_##t, key, text), .also = ok},
#define MX_KNOWN_INSTEAD(t, key, text, x)  \
    {KNOWN(CONFIG_LATER, CONFIG_##t, key, text), .also = "", .doc = x},
#define MX_KNOWN_COMPUTED(key, from)       {KNOWN(CONFIG_COMPUTED, CONFIG_node, key, from)},
#define MX_KNOWN_ALIAS(key, real)          {.name = key, .class = CONFIG_ALIAS, .fallback = real},
#define MX_KNOWN_SECTION(key, keys)        {.name = key, .class = CONFIG_SECTION, .fallback = keys},
#include <mx/config_known.def>
#undef MX_KNOWN_QUIET
#undef MX_KNOWN_INERT
#undef MX_KNOWN_ELSEWHERE
#undef MX_KNOWN_LATER
#undef MX_KNOWN_INSTEAD
#undef MX_KNOWN_COMPUTED
#undef MX_KNOWN_ALIAS
#undef MX_KNOWN_SECTION
    // clang-format on
};
const int config_row_count = MX_COUNT(config_rows);

/* Groups, each with the first key below it. */
// clang-format off
enum {
#define MX_GROUP(name, on_resume, title)                                                           \
    GROUP_BEFORE_##name, GROUP_SKIP_##name = GROUP_BEFORE_##name - 1,
#define MX_KEY(type, field, key, fallback, limits, unit, doc) GROUP_KEY_##field,
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
    GROUP_END
};
// clang-format on

const ConfigGroup config_groups[] = {
#define MX_GROUP(name_, on_resume_, title_)                                                        \
    {.name = #name_, on_resume_.title = title_, .first = (MxKey)GROUP_BEFORE_##name_},
#define MX_KEY(type, field, key, fallback, limits, unit, doc)
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
};
const int config_group_count = MX_COUNT(config_groups);

const ConfigGroup *config_group_of(MxKey key) {
    const ConfigGroup *group = &config_groups[0];
    for (int i = 1; i < config_group_count && config_groups[i].first <= key; i++)
        group = &config_groups[i];
    return group;
}

ConfigOnResume config_on_resume(MxKey key) {
    ConfigOnResume own = config_rows[key].on_resume;
    return own ? own : config_group_of(key)->on_resume;
}

const char *mx_key_name(MxKey key) {
    return config_rows[key].name;
}

bool config_word_in(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; p && *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && !memcmp(p, word, n)) return true;
        p += len;
    }
    return false;
}

const char *config_join(MxArena *arena, const char *words, const char *between) {
    MxText text;
    mx_text_init(&text, arena);
    for (const char *p = words; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        mx_text_add(&text, "%s%.*s", text.len ? between : "", (int)n, p);
        p += n;
    }
    return text.data;
}

const char *config_words(MxArena *arena, const char *words) {
    return config_join(arena, words, ", ");
}

const char *config_nearest_word(MxArena *arena, const char *word, const char *const lists[3]) {
    const char *candidates[64];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        for (const char *p = lists[i]; p && *p && n < MX_COUNT(candidates); p += strspn(p, " ")) {
            size_t len = strcspn(p, " ");
            candidates[n++] = mx_arena_strndup(arena, p, len);
            p += len;
        }
    }
    return mx_nearest(word, candidates, n);
}
