/* acts.c — tells keys that are set where they cannot act (config_acts.def). A default, or the value
 * that means "as the rest says", asks for nothing; a preset's value is not the user's, neither
 * where it stands nor in a dumped config. */
#include "room.h"

typedef struct Acts {
    MxKey key, needs;
    const char *values; /* a space between them; "" = true, above 0, not empty */
} Acts;

static const Acts conditions[] = {
#define MX_ACTS(key_, needs_, values_)                                                             \
    {.key = MX_KEY_##key_, .needs = MX_KEY_##needs_, .values = values_},
#include <mx/config_acts.def>
#undef MX_ACTS
};

static bool holds(const MxConfig *c, const Acts *acts) {
    const void *field = (const char *)c + config_rows[acts->needs].offset;
    switch (config_rows[acts->needs].type) {
    case CONFIG_bool:
        return *(const bool *)field;
    case CONFIG_int:
        return *(const int64_t *)field > 0;
    case CONFIG_str:
        return *(const char *const *)field != NULL;
    case CONFIG_choice:
        return config_word_in(acts->values, *(const char *const *)field);
    default:
        MX_BUG("a key of this type is needed by none");
    }
}

static const char *wanted(MxArena *arena, const Acts *acts) {
    switch (config_rows[acts->needs].type) {
    case CONFIG_bool:
        return "true";
    case CONFIG_int:
        return "above 0";
    case CONFIG_str:
        return "set";
    default:
        return config_words(arena, acts->values);
    }
}

static bool is_asked_for(const ConfigLoad *load, MxKey key) {
    const ConfigSlot *slot = &load->slots[key];
    const ConfigRow *row = &config_rows[key];
    bool is_users = slot->from > CONFIG_FROM_MODEL ||
                    (slot->from == CONFIG_FROM_FILE && load->config->apply_model_config);
    bool is_open = row->has_other && slot->value->number == row->other;
    if (slot->is_bad || !is_users || is_open) return false;
    return !config_node_equal(load->arena, slot->value, slot->given[CONFIG_FROM_DEFAULT]);
}

void config_check_acts(ConfigLoad *load) {
    const MxConfig *c = load->config;
    for (int i = 0; i < MX_COUNT(conditions); i++) {
        const Acts *acts = &conditions[i];
        const ConfigSlot *slot = &load->slots[acts->key];
        bool is_told = i && conditions[i - 1].key == acts->key && !holds(c, &conditions[i - 1]);
        if (is_told || load->slots[acts->needs].is_bad || holds(c, acts) ||
            !is_asked_for(load, acts->key))
            continue;
        config_warn(load, slot->value->where,
                    "%s: %s has no effect: it acts where %s is %s, here it is %s",
                    mx_key_name(acts->key), config_quote(load->arena, slot->value),
                    mx_key_name(acts->needs), wanted(load->arena, acts),
                    config_value_text(load->arena, c, acts->needs));
    }
}
