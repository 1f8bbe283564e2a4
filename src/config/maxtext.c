/* maxtext.c — MaxText's keys, one by one, from the rows: which are implemented, accepted without an
 * effect, or refused (docs/MAXTEXT.md). docs/CONFIG.md explains the keys, docs/DIFFERENCES.md where
 * results differ on purpose. */
#include "room.h"

static const char of_ours[] = "(ours)", of_theirs[] = "(MaxText: ";

static bool is_built(const ConfigRow *row) {
    return row->class == CONFIG_BUILT && !row->where && !mx_text_has_suffix(row->doc, of_ours);
}
static bool is_same(const ConfigRow *row) {
    return is_built(row) && !strstr(row->doc, of_theirs);
}
static bool is_other(const ConfigRow *row) {
    return is_built(row) && strstr(row->doc, of_theirs);
}
static bool lacks_words(const ConfigRow *row) {
    return is_built(row) && row->now && *row->later;
}
static bool is_later(const ConfigRow *row) {
    return row->class == CONFIG_LATER;
}
static bool is_elsewhere(const ConfigRow *row) {
    return row->where;
}
static bool is_alias(const ConfigRow *row) {
    return row->class == CONFIG_ALIAS;
}
static bool is_section(const ConfigRow *row) {
    return row->class == CONFIG_SECTION;
}
static bool is_computed(const ConfigRow *row) {
    return row->class == CONFIG_COMPUTED;
}
static bool is_quiet(const ConfigRow *row) {
    return row->class == CONFIG_QUIET;
}
static bool is_inert(const ConfigRow *row) {
    return row->class == CONFIG_INERT;
}
static bool is_ours(const ConfigRow *row) {
    return row->class == CONFIG_BUILT && !row->where && !is_built(row);
}

/* ---- what a table says of a key behind its name */

static void add_value(MxText *out, const char *value) {
    if (strlen(value) > 60)
        mx_text_add(out, "see configs/base.yml");
    else
        mx_text_add(out, "`%s`", *value ? value : "\"\"");
}

static void add_default(MxText *out, const ConfigRow *row) {
    add_value(out, row->fallback);
}

/* The row's text ends with "(MaxText: x)". */
static void add_both(MxText *out, const ConfigRow *row) {
    const char *theirs = strstr(row->doc, of_theirs) + strlen(of_theirs);
    add_value(out, row->fallback);
    mx_text_add(out, " | ");
    add_value(out, mx_arena_strndup(out->arena, theirs, strcspn(theirs, ")")));
}

static void add_words(MxText *out, const ConfigRow *row) {
    mx_text_add(out, "%s | %s", config_words(out->arena, row->now),
                config_words(out->arena, row->later));
}

static void add_accepted(MxText *out, const ConfigRow *row) {
    add_value(out, row->fallback);
    if (*row->also) mx_text_add(out, ", %s", config_words(out->arena, row->also));
    if (row->doc) mx_text_add(out, "; instead, %s", row->doc);
}

static void add_keys(MxText *out, const ConfigRow *row) {
    mx_text_add(out, "`%s`", config_join(out->arena, row->fallback, "`, `"));
}

static void add_where(MxText *out, const ConfigRow *row) {
    mx_text_add(out, "%s", row->where);
}

/* ---- */

/* A table, or names in a line where a name is all. */
static const struct Section {
    const char *title, *about;
    bool (*holds)(const ConfigRow *row);
    const char *columns, *rule;
    void (*add)(MxText *out, const ConfigRow *row);
} sections[] = {
    {"Keys that mean the same, with MaxText's default", "", is_same, NULL, NULL, NULL},
    {"Keys that mean the same, with another default",
     "Without a config file mxtrain trains a small model on bundled text. If a config of MaxText's "
     "sets these keys, its values are used.",
     is_other, "default here | default there", "---|---", add_both},
    {"Keys that lack some of MaxText's words",
     "Any other word is an error: `KEY: not available yet (got X; only Y work now)`.", lacks_words,
     "words that work | words that are refused", "---|---", add_words},
    {"Keys that are refused",
     "Not implemented yet. The values below are accepted, others are an error: `KEY: not available "
     "yet (got X; only Y works now)`.",
     is_later, "accepted", "---", add_accepted},
    {"Keys of programs that do not train",
     "MaxText's decoders and converters read them. `mxtrain` accepts them, and a warning says what "
     "does the same here.",
     is_elsewhere, "here", "---", add_where},
    {"Other names of keys", "Both names are read.", is_alias, "the key", "---", add_default},
    {"Maps of keys", "A key below one of these is the same as the key by itself.", is_section,
     "keys", "---", add_keys},
    {"Keys that are computed", "They may be set. A warning says that they have no effect.",
     is_computed, "from", "---", add_default},
    {"Keys whose values all mean the same here", "They are accepted without a message.", is_quiet,
     NULL, NULL, NULL},
    {"Keys that have no meaning on this machine",
     "They are for TPUs, clouds, XLA, kernels, serving, or data sources that mxtrain does not "
     "read. They are accepted; if one is set to something other than off, empty or MaxText's "
     "default, a warning names it.",
     is_inert, NULL, NULL, NULL},
    {"Keys that MaxText does not have", "", is_ours, NULL, NULL, NULL},
};

static void add_section(MxText *out, const struct Section *section) {
    int n = 0;
    for (int i = 0; i < config_row_count; i++) n += section->holds(&config_rows[i]);
    mx_text_add(out, "\n## %s: %d\n\n%s%s", section->title, n, section->about,
                *section->about ? "\n\n" : "");
    if (section->columns)
        mx_text_add(out, "| key | %s |\n|---|%s|\n", section->columns, section->rule);
    for (int i = 0, at = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        if (!section->holds(row)) continue;
        if (!section->columns) {
            mx_text_add(out, "%s`%s`", at++ ? ", " : "", row->name);
            continue;
        }
        mx_text_add(out, "| `%s` | ", row->name);
        section->add(out, row);
        mx_text_add(out, " |\n");
    }
    if (!section->columns) mx_text_add(out, "\n");
}

void config_maxtext(MxText *out) {
    for (int i = 0; i < MX_COUNT(sections); i++) add_section(out, &sections[i]);
}
