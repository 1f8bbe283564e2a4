/* keys.c — all of MaxText's keys are known; its base.yml and presets load; our base.yml says what
 * the rows say; docs/CONFIG.md holds the table made of the rows. */
#include "config_tests.h"

#include <stdio.h>
#include <stdlib.h>

static char *read_text(MxArena *arena, const char *path) {
    MxError err = {0};
    MxBytes bytes;
    ck_assert_msg(mx_file_read(arena, path, 1 << 20, &bytes, &err), "%s (run from the top folder)",
                  err.text.data);
    return (char *)bytes.data;
}

/* The next line of a text, terminated in place; NULL at the end. */
static char *next_line(char **text) {
    if (!**text) return NULL;
    char *line = *text, *end = line + strcspn(line, "\n");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return line;
}

/* A key set to a list is of the wrong type or not available, but never unrecognized. */
START_TEST(every_key_of_maxtext_is_known) {
    MxArena arena = {.name = "test"};
    char *text = read_text(&arena, "tests/config/maxtext_keys.tsv");
    int n = 0;
    for (char *line; (line = next_line(&text));) {
        if (line[0] == '#') continue;
        line[strcspn(line, "\t")] = '\0';
        MxError err = {0};
        MxText help;
        mx_text_init(&help, &arena);
        static const char *const sections[][2] = {
            {"dpo", "dpo.algo"}, {"lora", "lora.lora_rank"}, {"rl", "rl.loss_algo"}};
        const char *topic = line;
        for (int i = 0; i < MX_COUNT(sections); i++)
            if (!strcmp(line, sections[i][0])) topic = sections[i][1];
        ck_assert_msg(mx_config_help(&help, topic, &err), "%s is not known", line);
        mx_error_release(&err);
        n++;
    }
    ck_assert_int_eq(n, 696 + 79 + 93 + 57);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(maxtexts_base_yml_loads_quietly) {
    const char *file = "tests/config/maxtext_base.yml";
    Loaded l = load_files(&file, 1, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_msg(!l.config->warnings.n, "%s", l.config->warnings.item[0]);
    ck_assert_int_eq(l.config->base_emb_dim, 2048);
    ck_assert_int_eq(l.config->steps, 150001);
    ck_assert_int_eq(l.config->learning_rate_schedule_steps, 150001);
    ck_assert_double_eq(l.config->learning_rate, 3e-5);
    ck_assert_str_eq(l.config->remat_policy, "full");
    MxError err = {0};
    ck_assert(!mx_config_runnable(l.config, &err)); /* a plan needs no data and no tokenizer */
    ck_assert_ptr_nonnull(strstr(err.text.data, "dataset_type: tfds wants dataset_path=FOLDER"));
    ck_assert_ptr_nonnull(
        strstr(err.text.data, "tokenizer_type: \"sentencepiece\" is read from files"));
    ck_assert_int_eq(err.count, 2);
    mx_error_release(&err);
    unload(&l);
}
END_TEST

START_TEST(base_yml_of_release_0_2_5_loads_quietly) {
    const char *files[] = {"tests/config/maxtext_base.yml", "tests/config/maxtext_0.2.5.yml"};
    Loaded l = load_files(files, 2, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_msg(!l.config->warnings.n, "%s", l.config->warnings.item[0]);
    unload(&l);
    const char *mine = "quantize_logits_proj=true";
    l = load_files(files, 2, mine);
    ck_assert(!l.ok);
    ck_assert_ptr_nonnull(
        strstr(l.err.text.data, "quantize_logits_proj: not available yet (got true"));
    unload(&l);
}
END_TEST

/* Loads quietly, or fails only because something is not built yet. */
static void check_preset(const char *name, const char *yaml, int *n_loaded) {
    MxArena arena = {.name = "test"};
    char *base = read_text(&arena, "tests/config/maxtext_base.yml");
    const char *file = temp_file(&arena, "maxtext/base.yml", base, strlen(base));
    temp_file(&arena, mx_arena_printf(&arena, "maxtext/models/%s.yml", name), yaml, strlen(yaml));
    /* a row with images holds one record */
    const char *more = strstr(yaml, "use_multimodal: true") ? "\npacking=false" : "";
    Loaded l = load_files(&file, 1, mx_arena_printf(&arena, "model_name=%s%s", name, more));
    /* these rely on MaxText choosing rope_type by the model's name, which deserves a warning, or
       have keys of a schedule for TPUs, which mean nothing here */
    bool is_told = mx_text_has_prefix(name, "llama3.1") || mx_text_has_prefix(name, "llama3.3") ||
                   mx_text_has_suffix(name, "-batchsplit");
    if (l.ok)
        ck_assert_msg(l.config->warnings.n == is_told, "%s warns: %s", name,
                      l.config->warnings.n ? l.config->warnings.item[0] : "nothing");
    *n_loaded += l.ok;
    for (char *text = l.ok ? NULL : l.err.text.data, *line; text && (line = next_line(&text));) {
        bool is_source = line[0] == ' ' || mx_text_has_prefix(line, "hint: ");
        ck_assert_msg(is_source || strstr(line, ": not available yet (got "), "%s: %s", name, line);
    }
    unload(&l);
    mx_arena_release(&arena);
}

START_TEST(maxtexts_presets_load) {
    MxArena arena = {.name = "test"};
    char *text = read_text(&arena, "tests/config/maxtext_models.tsv");
    MxText yaml;
    mx_text_init(&yaml, &arena);
    const char *name = "";
    int n = 0, n_loaded = 0;
    for (bool more = true; more;) {
        char *line = next_line(&text);
        more = line != NULL;
        if (more && line[0] == '#') continue;
        char *key = more ? strchr(line, '\t') : NULL;
        if (more) *key++ = '\0';
        if (!more || strcmp(line, name)) {
            if (*name) check_preset(name, yaml.data, &n_loaded);
            n += *name != '\0';
            mx_text_clear(&yaml);
            name = line;
        }
        if (more) key[strcspn(key, "\t")] = '\0';
        if (more) mx_text_add(&yaml, "%s: %s\n", key, key + strlen(key) + 1);
    }
    ck_assert_int_eq(n, 78);
    ck_assert_int_ge(n_loaded, 25);
    mx_arena_release(&arena);
}
END_TEST

/* That of MaxText's preset; of some it is chosen by the model's name. */
static const char *rope_type_of(MxArena *arena, const char *models, const char *preset) {
    const char *row = mx_arena_printf(arena, "\n%s\trope_type\t\"", preset);
    const char *said = strstr(models, row);
    bool is_stretched =
        mx_text_has_prefix(preset, "llama3.1-") || mx_text_has_prefix(preset, "llama3.3-");
    if (!said) return is_stretched ? "llama3.1" : "default";
    said += strlen(row);
    return mx_arena_strndup(arena, said, strcspn(said, "\""));
}

START_TEST(our_presets_load_quietly) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    const char *models = read_text(&arena, "tests/config/maxtext_models.tsv");
    char **names;
    int n;
    ck_assert(mx_dir_list(&arena, "configs/models", &names, &n, &err));
    ck_assert_int_ge(n, 25);
    for (int i = 0; i < n; i++) {
        names[i][strlen(names[i]) - strlen(".yml")] = '\0';
        Loaded l = load_config(NULL, mx_arena_printf(&arena, "model_name=%s", names[i]), NULL);
        ck_assert_msg(l.ok, "%s: %s", names[i], l.err.text.data);
        ck_assert_int_eq(l.config->warnings.n, 0);
        ck_assert_int_eq(l.config->head_dim % 8, 0);
        ck_assert_str_ne(mx_config_where(l.config, MX_KEY_base_emb_dim).file, "<default>");
        ck_assert_str_eq(l.config->rope_type, rope_type_of(&arena, models, names[i]));
        unload(&l);
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(our_recipes_load_quietly) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    char **names;
    int n;
    ck_assert(mx_dir_list(&arena, "configs/recipes", &names, &n, &err));
    ck_assert_int_ge(n, 2);
    for (int i = 0; i < n; i++) {
        const char *file = mx_path_join(&arena, "configs/recipes", names[i]);
        Loaded l = load_files(&file, 1, NULL);
        ck_assert_msg(l.ok, "%s: %s", names[i], l.err.text.data);
        ck_assert_int_eq(l.config->warnings.n, 0);
        unload(&l);
    }
    mx_arena_release(&arena);
}
END_TEST

/* What --help-config makes of the rows is what a file has. */
static void is_made(MxArena *arena, const char *topic, char *text, const char *file) {
    MxError err = {0};
    MxText made;
    mx_text_init(&made, arena);
    ck_assert(mx_config_help(&made, topic, &err));
    char *want = made.data + strspn(made.data, "\n"), *x, *y;
    while ((y = next_line(&want)) && (x = next_line(&text)))
        ck_assert_msg(!strcmp(x, y), "%s has\n%s\nfor (make docs)\n%s", file, x, y);
    ck_assert_msg(!y && !next_line(&text), "%s ends elsewhere (make docs)", file);
}

/* The same config with and without base.yml, no key missing from it, and their comments. */
START_TEST(base_yml_equals_the_rows) {
    MxArena arena = {.name = "test"};
    const char *file = "configs/base.yml";
    Loaded base = load_files(&file, 1, NULL), rows = load_config("", NULL, NULL);
    ck_assert_msg(base.ok && rows.ok, "%s", base.ok ? "" : base.err.text.data);
    ck_assert_int_eq(base.config->warnings.n, 0);
    char *a = mx_arena_strdup(&arena, mx_config_text(&arena, base.config));
    char *b = mx_arena_strdup(&arena, mx_config_text(&arena, rows.config));
    for (char *x, *y; (x = next_line(&a)) && (y = next_line(&b));) {
        char *origin = strstr(x, "  # ");
        if (x[0] != '#' && origin) *origin = '\0';
        if (x[0] != '#' && strstr(y, "  # ")) *strstr(y, "  # ") = '\0';
        ck_assert_str_eq(x, y);
    }
    for (int key = 0; key < MX_KEY_COUNT; key++)
        ck_assert_msg(strcmp(mx_config_where(base.config, (MxKey)key).file, "<default>"),
                      "%s is not in base.yml", mx_key_name((MxKey)key));
    is_made(&arena, "yml", read_text(&arena, file), file);
    unload(&base);
    unload(&rows);
    mx_arena_release(&arena);
}
END_TEST

/* Tables that a document ends with: what is made, where they are, and how they begin. */
static const struct {
    const char *topic, *file, *begin;
} tables[] = {{"markdown", "docs/CONFIG.md", "### run:"},
              {"maxtext", "docs/MAXTEXT.md", "## Keys that"}};

START_TEST(the_docs_hold_the_tables) {
    MxArena arena = {.name = "test"};
    char *table = strstr(read_text(&arena, tables[_i].file), tables[_i].begin);
    ck_assert_ptr_nonnull(table);
    is_made(&arena, tables[_i].topic, table, tables[_i].file);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(help_knows_keys_groups_and_typos) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxText out;
    mx_text_init(&out, &arena);
    ck_assert(mx_config_help(&out, NULL, &err) && strstr(out.data, "optimizer"));
    ck_assert(mx_config_help(&out, "optimizer", &err) && strstr(out.data, "adam_b1"));
    ck_assert(mx_config_help(&out, "adam_b1", &err) && strstr(out.data, ">= 0, < 1"));
    ck_assert(mx_config_help(&out, "quantize_logits_proj", &err) &&
              strstr(out.data, "not implemented yet"));
    ck_assert(!mx_config_help(&out, "adam_b3", &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "did you mean \"adam_b1\""));
    mx_error_release(&err);
    mx_arena_release(&arena);
}
END_TEST

/* Typos of one edit in every built key: the right key is suggested for 95 of 100. */
START_TEST(one_edit_typos_find_their_key) {
    MxArena arena = {.name = "test"};
    int n = 0, n_right = 0;
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        const char *name = mx_key_name((MxKey)key);
        int length = (int)strlen(name);
        for (int edit = 0; edit < 3; edit++) {
            int at = (key * 7 + edit * 3) % (length - 1);
            const char *middle = edit == 0   ? ""
                                 : edit == 1 ? "q"
                                             : mx_arena_printf(&arena, "%cx", name[at]);
            char *typo = mx_arena_printf(&arena, "%.*s%s%s=1", at, name, middle, name + at + 1);
            Loaded l = load_config("", typo, NULL);
            const char *want = mx_arena_printf(&arena, "did you mean \"%s\"", name);
            n_right += l.ok || strstr(l.err.text.data, want) != NULL;
            n++;
            unload(&l);
        }
    }
    ck_assert_msg(n_right * 100 >= n * 95, "%d of %d", n_right, n);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(computed_keys_are_told) {
    Loaded l = load_config("emb_dim: 512\nlog_period: 1\n", "checkpoint_dir=/x", NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->emb_dim, 256);
    ck_assert_int_eq(l.config->warnings.n, 2);
    ck_assert_ptr_nonnull(strstr(l.config->warnings.item[1], ":1:10: emb_dim: 512 has no effect, "
                                                             "it is computed from base_emb_dim"));
    unload(&l);
}
END_TEST

/* Another trainer's name is none of ours, and stands for names that are. */
static const struct {
    const char *theirs, *ours;
    bool is_key;
} others[] = {
#define MX_NAME(theirs_, ours_, remark) {theirs_, ours_, true},
#define MX_WORD(theirs_, ours_)         {theirs_, ours_, false},
#include <mx/config_names.def>
#undef MX_NAME
#undef MX_WORD
};

static bool is_key(MxArena *arena, const char *name) {
    Loaded l = load_config("", mx_arena_printf(arena, "%s=1", name), NULL);
    bool is_known = l.ok || !strstr(l.err.text.data, "unrecognized key");
    unload(&l);
    return is_known;
}

/* Whether some key takes a word, now or later. */
static bool is_value(MxArena *arena, const char *word) {
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        MxError err = {0};
        MxText out;
        mx_text_init(&out, arena);
        ck_assert(mx_config_help(&out, mx_key_name((MxKey)key), &err));
        if (strstr(out.data, "choices") && strstr(out.data, mx_arena_printf(arena, " %s", word)))
            return true;
    }
    return false;
}

START_TEST(names_of_other_trainers_lead_to_keys) {
    MxArena arena = {.name = "test"};
    for (int i = 0; i < MX_COUNT(others); i++) {
        const char *theirs = others[i].theirs;
        ck_assert_msg(!others[i].is_key || !is_key(&arena, theirs), "%s is a key", theirs);
        char *save = NULL, *ours = mx_arena_strdup(&arena, others[i].ours);
        for (char *w = strtok_r(ours, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            w[strcspn(w, "=")] = '\0';
            ck_assert_msg(others[i].is_key ? is_key(&arena, w) : is_value(&arena, w), "%s: %s",
                          theirs, w);
        }
        if (!others[i].is_key) continue;
        Loaded l = load_config("", mx_arena_printf(&arena, "%s=1", theirs), NULL);
        ck_assert_msg(strstr(l.err.text.data, "\nhint: ") != NULL, "%s", l.err.text.data);
        ck_assert_msg(strstr(l.err.text.data, "did you mean") == NULL, "%s", l.err.text.data);
        unload(&l);
    }
    mx_arena_release(&arena);
}
END_TEST

TCase *key_cases(void) {
    TCase *tc = tcase_create("keys");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, every_key_of_maxtext_is_known);
    tcase_add_test(tc, maxtexts_base_yml_loads_quietly);
    tcase_add_test(tc, base_yml_of_release_0_2_5_loads_quietly);
    tcase_add_test(tc, maxtexts_presets_load);
    tcase_add_test(tc, our_presets_load_quietly);
    tcase_add_test(tc, our_recipes_load_quietly);
    tcase_add_test(tc, base_yml_equals_the_rows);
    tcase_add_loop_test(tc, the_docs_hold_the_tables, 0, MX_COUNT(tables));
    tcase_add_test(tc, help_knows_keys_groups_and_typos);
    tcase_add_test(tc, computed_keys_are_told);
    tcase_add_test(tc, names_of_other_trainers_lead_to_keys);
    tcase_add_test(tc, one_edit_typos_find_their_key);
    return tc;
}
