/* help.c — explanations of keys, generated from the rows: for --help-config, the tables in
 * docs/CONFIG.md and base.yml(5), and the completion of command lines. configs/base.yml is made by
 * yml.c. */
#include "room.h"

#include <mx/family.h>

#include <float.h>

static const char *const type_names[] = {
    [CONFIG_bool] = "bool", [CONFIG_int] = "int",     [CONFIG_float] = "float",
    [CONFIG_str] = "text",  [CONFIG_choice] = "word", [CONFIG_strs] = "list",
    [CONFIG_node] = "yaml",
};

/* Long defaults (the axis rules) would drown the table. */
static const char *default_text(MxArena *arena, const ConfigRow *row) {
    if (strlen(row->fallback) > 60) return "see configs/base.yml";
    if (*row->fallback || row->type > CONFIG_choice) return row->fallback;
    return mx_arena_strdup(arena, "\"\"");
}

static int group_end(const ConfigGroup *group) {
    int next = (int)(group - config_groups) + 1;
    return next < config_group_count ? (int)config_groups[next].first : MX_KEY_COUNT;
}

static void help_groups(MxText *out) {
    mx_text_add(out, "Groups of keys (mxtrain --help-config GROUP, or KEY):\n");
    for (int i = 0; i < config_group_count; i++)
        mx_text_add(out, "  %-11s %s\n", config_groups[i].name, config_groups[i].title);
}

static void help_group(MxText *out, const ConfigGroup *group) {
    mx_text_add(out, "%s\n", group->title);
    for (int key = (int)group->first; key < group_end(group); key++)
        mx_text_add(out, "  %-33s %-9s %s\n", config_rows[key].name,
                    default_text(out->arena, &config_rows[key]), config_rows[key].doc);
}

static void add_limits(MxText *out, const ConfigRow *row) {
    if (row->now) mx_text_add(out, "\n  choices  %s", config_words(out->arena, row->now));
    if (row->now && *row->later)
        mx_text_add(out, "\n  later    %s", config_words(out->arena, row->later));
    if (!row->has_range) return;
    mx_text_add(out, "\n  range    %s %.15g", row->is_open_below ? ">" : ">=", row->lo);
    if (row->hi < DBL_MAX) mx_text_add(out, ", %s %.15g", row->is_open_above ? "<" : "<=", row->hi);
    if (row->has_other) mx_text_add(out, ", or %.15g", row->other);
}

/* Families and optimizers in which it acts. */
static void add_kinds(MxText *out, MxKey key) {
    const char *families = config_that_name(out->arena, MX_KEY_decoder_block, key);
    const char *optimizers = config_that_name(out->arena, MX_KEY_opt_type, key);
    if (families && *families) mx_text_add(out, "\n  families %s", families);
    if (optimizers && *optimizers) mx_text_add(out, "\n  opt_type %s", optimizers);
}

static void help_key(MxText *out, const ConfigRow *row) {
    static const char *const classes[] = {
        [CONFIG_QUIET] = "accepted; all values mean the same here",
        [CONFIG_INERT] = "accepted, but has no effect on this machine",
        [CONFIG_ELSEWHERE] = "accepted, but has no effect on training",
        [CONFIG_LATER] = "not implemented yet; only its default is accepted",
        [CONFIG_COMPUTED] = "accepted, but has no effect: it is computed",
        [CONFIG_ALIAS] = "another name",
        [CONFIG_SECTION] = "a map of keys, which may also stand by themselves",
    };
    static const char *const on_resume[] = {
        [CONFIG_FREE] = "may change",
        [CONFIG_SCHEDULE] = "may change, with a warning: the training curve changes",
        [CONFIG_FROZEN] = "cannot change",
    };
    if (row->class != CONFIG_BUILT) {
        const char *word = row->class == CONFIG_COMPUTED ? "from"
                           : row->class >= CONFIG_ALIAS  ? "of"
                                                         : "default";
        mx_text_add(out, "%s\n  %s\n  %s %s\n", row->name, classes[row->class], word,
                    *row->fallback ? row->fallback : "\"\"");
        const char *instead = row->where ? row->where : row->doc;
        if (instead) mx_text_add(out, "  instead  %s\n", instead);
        return;
    }
    const ConfigGroup *group = config_group_of((MxKey)(row - config_rows));
    mx_text_add(out, "%s\n  %s\n  group    %s\n  type     %s%s%s\n  default  %s", row->name,
                row->doc, group->name, type_names[row->type], *row->unit ? ", in " : "", row->unit,
                *row->fallback ? row->fallback : "\"\"");
    add_limits(out, row);
    add_kinds(out, (MxKey)(row - config_rows));
    mx_text_add(out, "\n  resume   %s\n", on_resume[config_on_resume((MxKey)(row - config_rows))]);
}

static const char *or_dash(const char *text) {
    return text && *text ? text : "–";
}

/* One line a family that is built. */
static void families_table(MxText *out) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    mx_text_add(out, "\n### Families of decoders\n\n| `decoder_block` | layers repeat after | "
                     "Hugging Face's `model_type` | keys with an effect in it, but not, or not "
                     "always, in other families |\n|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        const MxFamily *f = families[i];
        const char *hf = or_dash(f->hf[0].model_type), *more = f->hf[1].model_type;
        if (!f->n_specs) continue;
        mx_text_add(out, "| %s | ", f->decoder_block);
        if (f->keys_say_turns)
            mx_text_add(out, "set by keys");
        else
            mx_text_add(out, "%d", f->period * mx_family_a_name(f));
        mx_text_add(out, " | %s%s%s | %s |\n", hf, more ? ", " : "", more ? more : "",
                    or_dash(f->keys ? config_words(out->arena, f->keys) : NULL));
    }
}

/* As it stands: what Markdown would take for a tag or for the end of a cell is escaped. */
static const char *in_cell(MxArena *arena, const char *text) {
    MxText out;
    mx_text_init(&out, arena);
    for (; *text; text++) mx_text_add(&out, strchr("<|", *text) ? "\\%c" : "%c", *text);
    return out.data;
}

static void help_markdown(MxText *out) {
    for (int i = 0; i < config_group_count; i++) {
        const ConfigGroup *group = &config_groups[i];
        mx_text_add(out, "\n### %s: %s\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                    group->name, group->title);
        for (int key = (int)group->first; key < group_end(group); key++) {
            const ConfigRow *row = &config_rows[key];
            const char *text = default_text(out->arena, row);
            const char *tick = text[0] == 's' && strlen(row->fallback) > 60 ? "" : "`";
            mx_text_add(out, "| `%s` | %s | %s%s%s | %s%s%s |\n", row->name, type_names[row->type],
                        tick, text, tick, in_cell(out->arena, row->doc),
                        row->now ? "; one of " : "",
                        row->now ? config_words(out->arena, row->now) : "");
        }
    }
    families_table(out);
}

static void man_row(MxText *out, const ConfigRow *row) {
    const char *fallback = default_text(out->arena, row);
    mx_text_add(out, ".TP\n.BR %s \" (%s, default ", row->name, type_names[row->type]);
    mx_troff_add(out, fallback[0] == '"' ? "empty" : fallback);
    mx_text_add(out, ")\"\n");
    mx_troff_add(out, row->doc);
    if (row->now) {
        mx_text_add(out, "; one of ");
        mx_troff_add(out, config_words(out->arena, row->now));
    }
    mx_text_add(out, "\n");
}

static void help_man(MxText *out) {
    mx_text_add(
        out,
        ".TH base.yml 5 " MX_VERSION_DATE " \"mxtrain " MX_VERSION "\" \"File Formats\"\n"
        ".SH NAME\nbase.yml \\- keys of the configs of mxtrain\n"
        ".SH DESCRIPTION\nA config is a YAML map of these keys. Later files override earlier ones; "
        "the command line (KEY=VALUE) and the environment (M_KEY) override all files.\n");
    for (int i = 0; i < config_group_count; i++) {
        const ConfigGroup *group = &config_groups[i];
        mx_troff_section(out, group->name);
        mx_text_add(out, "%s.\n", group->title);
        for (int key = (int)group->first; key < group_end(group); key++)
            man_row(out, &config_rows[key]);
    }
}

bool mx_config_help(MxText *out, const char *topic, MxError *err) {
    if (!topic) {
        help_groups(out);
        return true;
    }
    static const struct {
        const char *topic;
        void (*help)(MxText *out);
    } files[] = {{"markdown", help_markdown},
                 {"yml", config_yml},
                 {"man", help_man},
                 {"maxtext", config_maxtext}};
    for (int i = 0; i < MX_COUNT(files); i++)
        if (!strcmp(files[i].topic, topic)) {
            files[i].help(out);
            return true;
        }
    for (int i = 0; i < config_group_count; i++)
        if (!strcmp(config_groups[i].name, topic)) {
            help_group(out, &config_groups[i]);
            return true;
        }
    for (int i = 0; i < config_row_count; i++) {
        if (strcmp(config_rows[i].name, topic)) continue;
        help_key(out, &config_rows[i]);
        return true;
    }
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\" is neither a key nor a group of keys", topic);
    const char *hint = config_meant_key(out->arena, topic);
    if (hint) mx_note(err, "hint: %s", hint);
    return false;
}

/* ---- completion */

/* Words that are no keys, and whose values are files. */
static const char *const file_words[] = {"model=", "data="};

/* "recipes/sft.yml": configs of the share folder, which need not be here. */
static void complete_recipe(const char *begin, MxText *out) {
    static const char folder[] = "recipes/";
    const char *share = mx_share_dir(out->arena);
    char **names;
    int n = 0;
    MxError ignored = {0};
    bool may_be =
        *begin && (mx_text_has_prefix(folder, begin) || mx_text_has_prefix(begin, folder));
    if (may_be && share &&
        mx_dir_list(out->arena, mx_path_join(out->arena, share, "configs/recipes"), &names, &n,
                    &ignored))
        for (int i = 0; i < n; i++) {
            const char *word = mx_arena_printf(out->arena, "%s%s", folder, names[i]);
            if (mx_text_has_prefix(word, begin)) mx_text_add(out, "%s\n", word);
        }
    mx_error_release(&ignored);
}

static void complete_key(const char *begin, MxText *out) {
    for (int i = 0; i < MX_COUNT(file_words); i++)
        if (mx_text_has_prefix(file_words[i], begin)) mx_text_add(out, "%s\n", file_words[i]);
    for (int i = 0; i < config_row_count; i++)
        if (config_rows[i].class == CONFIG_BUILT && mx_text_has_prefix(config_rows[i].name, begin))
            mx_text_add(out, "%s=\n", config_rows[i].name);
}

/* Words with spaces between them. */
static void complete_words(const char *words, const char *key, const char *begin, MxText *out) {
    for (size_t n; *words; words += n, words += strspn(words, " ")) {
        n = strcspn(words, " ");
        if (!strncmp(words, begin, strlen(begin)) && strlen(begin) <= n)
            mx_text_add(out, "%s=%.*s\n", key, (int)n, words);
    }
}

void mx_config_complete(const char *begin, MxText *out) {
    const char *equals = strchr(begin, '=');
    const ConfigRow *row = config_rows, *end = config_rows + config_row_count;
    if (!equals) {
        complete_key(begin, out);
        complete_recipe(begin, out);
        mx_text_add(out, ":files\n");
        return;
    }
    for (int i = 0; i < MX_COUNT(file_words); i++)
        if (mx_text_has_prefix(begin, file_words[i])) mx_text_add(out, ":files\n");
    const char *key = mx_arena_strndup(out->arena, begin, (size_t)(equals - begin));
    while (row < end && strcmp(row->name, key)) row++;
    if (row == end) return;
    if (row->now) complete_words(row->now, key, equals + 1, out);
    if (row->type == CONFIG_bool) complete_words("true false", key, equals + 1, out);
    if (row->type == CONFIG_str || row->type == CONFIG_strs) mx_text_add(out, ":files\n");
    complete_words(config_named(out->arena, (MxKey)(row - config_rows)), key, equals + 1, out);
}
