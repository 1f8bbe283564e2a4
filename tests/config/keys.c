/* keys.c — all of MaxText's keys are known; its base.yml and presets load; our base.yml says what
 * the rows say; docs/CONFIG.md holds the table made of the rows. */
#include "config_tests.h"

#include <mx/family.h>

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
    const char *mine = "quantize_mtp=true";
    l = load_files(files, 2, mine);
    ck_assert(!l.ok);
    ck_assert_ptr_nonnull(strstr(l.err.text.data, "quantize_mtp: not available yet (got true"));
    unload(&l);
}
END_TEST

/* Loads quietly, or fails only because something is not built yet. */
static void check_preset(const char *name, const char *yaml, int *n_loaded) {
    MxArena arena = {.name = "test"};
    char *base = read_text(&arena, "tests/config/maxtext_base.yml");
    const char *file = temp_file(&arena, "maxtext/base.yml", base, strlen(base));
    temp_file(&arena, mx_arena_printf(&arena, "maxtext/models/%s.yml", name), yaml, strlen(yaml));
    Loaded l = load_files(&file, 1, mx_arena_printf(&arena, "model_name=%s", name));
    /* these rely on MaxText choosing rope_type by the model's name, which deserves a warning, or
       have keys of images or of a schedule for TPUs, which mean nothing here */
    bool is_told = mx_text_has_prefix(name, "llama3.1") || mx_text_has_prefix(name, "llama3.3") ||
                   mx_text_has_prefix(name, "gemma3") || mx_text_has_prefix(name, "gemma4") ||
                   mx_text_has_prefix(name, "llama4") || mx_text_has_prefix(name, "qwen3.5") ||
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

START_TEST(our_presets_load_quietly) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
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
        static const struct {
            const char *name, *rope_type;
        } scaled[] = {
            {"llama3.1-", "llama3.1"}, {"llama3.3-", "llama3.1"}, {"olmo3-7b-pt", "default"},
            {"olmo3-", "yarn"},        {"deepseek", "yarn"},      {"kimi-", "yarn"},
            {"gpt-oss-", "yarn"},      {"llama4-", "llama3.1"},   {"", "default"}};
        int row = 0;
        while (!mx_text_has_prefix(names[i], scaled[row].name)) row++;
        ck_assert_str_eq(l.config->rope_type, scaled[row].rope_type);
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

/* The same config with and without base.yml, and no key missing from it. */
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
    unload(&base);
    unload(&rows);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(the_docs_hold_the_table) {
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxText table;
    mx_text_init(&table, &arena);
    ck_assert(mx_config_help(&table, "markdown", &err));
    const char *docs = read_text(&arena, "docs/CONFIG.md");
    char *text = table.data;
    for (char *line; (line = next_line(&text));)
        ck_assert_msg(strstr(docs, line),
                      "docs/CONFIG.md lacks (mxtrain --help-config markdown): %s", line);
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
    ck_assert(mx_config_help(&out, "lora_input_adapters_path", &err) &&
              strstr(out.data, "not built yet"));
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

/* ---- keys that act only under a condition */

static const struct {
    MxKey key, needs;
    const char *values;
} conditions[] = {
#define MX_ACTS(key_, needs_, values_) {MX_KEY_##key_, MX_KEY_##needs_, values_},
#define MX_ACTS_IF(key_, test_)        /* tests/plan/keys.c */
#include <mx/config_acts.def>
#undef MX_ACTS_IF
#undef MX_ACTS
};

static const struct {
    const char *type, *fallback;
} built[] = {
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type_, field, key, text, limits, unit, doc) {#type_, text},
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
};

/* A value that is not the default. */
static const char *another(MxKey key) {
    static const struct {
        MxKey key;
        const char *word;
    } words[] = {
        {MX_KEY_data_changed, "accept"},       {MX_KEY_dpo_algo, "ipo"},
        {MX_KEY_dpo_formula, "maxtext"},       {MX_KEY_dpo_reference, "copy"},
        {MX_KEY_tokenizer_type, "tiktoken"},   {MX_KEY_wsd_decay_style, "cosine"},
        {MX_KEY_matmul_precision, "high"},     {MX_KEY_grain_file_type, "tfrecord"},
        {MX_KEY_routed_score_func, "sigmoid"}, {MX_KEY_rl_loss_algo, "rloo"},
        {MX_KEY_rl_reward, "exact"},           {MX_KEY_vision_encoder_block, "gemma3"},
        {MX_KEY_num_channels_for_vit, "4"},    {MX_KEY_global_rope_proportion, "0.5"},
        {MX_KEY_lora_weight_qtype, "nf4"},
    };
    const char *type = built[key].type;
    for (int i = 0; i < MX_COUNT(words); i++)
        if (words[i].key == key) return words[i].word;
    ck_assert_msg(strcmp(type, "choice") != 0, "%s: no other word", mx_key_name(key));
    if (!strcmp(type, "bool")) return strcmp(built[key].fallback, "true") ? "true" : "false";
    if (!strcmp(type, "int")) return "3";
    return !strcmp(type, "float") ? "0.25" : "x";
}

/* One that lists a key. */
static const char *family_of(const char *key) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int i = 0; i < n; i++)
        if (families[i]->keys && strstr(families[i]->keys, key)) return families[i]->decoder_block;
    ck_abort_msg("%s: no family lists it", key);
    return NULL;
}

/* "needs=" one of the values, or what it is not (no word of a value that is in the list). */
static const char *setting(MxArena *arena, int i, bool holds) {
    MxKey needs = conditions[i].needs;
    const char *type = built[needs].type, *name = mx_key_name(needs);
    int n = (int)strcspn(conditions[i].values, " ");
    bool is_inverse = !strcmp(conditions[i].values, "false");
    if (is_inverse && !holds && needs == MX_KEY_enable_lora)
        return "lora.enable_lora=true\nlora.lora_rank=4\nlora.lora_alpha=4";
    if (is_inverse && !holds && needs == MX_KEY_use_kto)
        return "use_kto=true\npacking=false\ndataset_type=hf\nhf_train_files=x";
    if (is_inverse && !holds && needs == MX_KEY_use_grpo)
        return "use_grpo=true\npacking=false\ndataset_type=hf\nhf_train_files=x";
    if (is_inverse && !holds)
        return "use_dpo=true\npacking=false\ndataset_type=hf\nhf_train_files=x";
    if (holds && needs == MX_KEY_use_qk_clip)
        return "use_qk_clip=true\ndecoder_block=deepseek\nattention_type=mla";
    if (!strcmp(type, "bool"))
        return mx_arena_printf(arena, "%s=%s", name, holds != is_inverse ? "true" : "false");
    bool is_open = needs == MX_KEY_n_routing_groups || needs == MX_KEY_nope_layer_interval;
    int none = is_open ? -1 : 0;
    if (!strcmp(type, "int")) return mx_arena_printf(arena, "%s=%d", name, holds ? 2 : none);
    if (!strcmp(type, "str")) return mx_arena_printf(arena, "%s=%s", name, holds ? "v5e-8" : "");
    if (needs == MX_KEY_decoder_block)
        return mx_arena_printf(arena, "%s=%s", name,
                               holds ? family_of(mx_key_name(conditions[i].key)) : "llama2");
    if (holds) return mx_arena_printf(arena, "%s=%.*s", name, n, conditions[i].values);
    static const struct {
        MxKey key;
        const char *word;
    } others[] = {
        {MX_KEY_attention_type, "full"},    {MX_KEY_rope_type, "default"},
        {MX_KEY_dataset_type, "synthetic"}, {MX_KEY_dpo_reference, "copy"},
        {MX_KEY_dpo_algo, "dpo"},           {MX_KEY_rl_reward, "data"},
        {MX_KEY_opt_type, "sgd"},           {MX_KEY_lr_schedule_type, "cosine"},
        {MX_KEY_tokenizer_type, "byte"},    {MX_KEY_dtype, "bfloat16"},
        {MX_KEY_lora_weight_qtype, "''"},
    };
    for (int j = 0; j < MX_COUNT(others); j++)
        if (others[j].key == needs)
            return mx_arena_printf(arena, "%s=%s", name,
                                   strstr(conditions[i].values, others[j].word)
                                       ? "hdf5\nhdf5_train_files=x\nhdf5_eval_"
                                         "files=x"
                                       : others[j].word);
    ck_abort_msg("%s: no other word", name);
    return NULL;
}

static bool is_told(const Loaded *l, MxKey key) {
    MxArena arena = {.name = "test"};
    const char *begin = mx_arena_printf(&arena, "<command line>: %s: ", mx_key_name(key));
    bool found = false;
    for (int i = 0; i < l->config->warnings.n; i++)
        found = found || (mx_text_has_prefix(l->config->warnings.item[i], begin) &&
                          strstr(l->config->warnings.item[i], " has no effect: it acts where "));
    mx_arena_release(&arena);
    return found;
}

/* Another value is told where the key cannot act, and not where all its conditions hold. */
START_TEST(keys_that_cannot_act_are_told) {
    MxArena arena = {.name = "test"};
    int n_quiet = 0;
    for (int i = 0; i < MX_COUNT(conditions); i++) {
        MxKey key = conditions[i].key;
        const char *set = mx_arena_printf(&arena, "%s=%s", mx_key_name(key), another(key));
        Loaded l = load_config(
            "", mx_arena_printf(&arena, "%s\n%s", set, setting(&arena, i, false)), NULL);
        ck_assert_msg(l.ok, "%s: %s", set, l.err.text.data);
        ck_assert_msg(is_told(&l, key), "%s under %s", set, setting(&arena, i, false));
        unload(&l);
        MxText all;
        mx_text_init(&all, &arena);
        mx_text_add(&all, "%s", set);
        for (int j = 0; j < MX_COUNT(conditions); j++)
            if (conditions[j].key == key) mx_text_add(&all, "\n%s", setting(&arena, j, true));
        l = load_config("", all.data, NULL);
        if (l.ok) ck_assert_msg(!is_told(&l, key), "%s", all.data);
        n_quiet += l.ok;
        unload(&l);
    }
    ck_assert_int_ge(n_quiet, MX_COUNT(conditions) / 2); /* the others want files and sizes */
    mx_arena_release(&arena);
}
END_TEST

/* A share is held out only where nothing else is named to evaluate on. */
static const struct {
    const char *set;
    bool acts;
} shares[] = {
    {"eval_split=0.3", false}, /* bundled text has files for evaluation */
    {"eval_split=0.3\ntext_train_files=configs/base.yml", true},
    {"eval_split=0.3\ntext_train_files=configs/base.yml\ntext_eval_files=configs/base.yml", false},
    {"eval_split=0\ntext_train_files=configs/base.yml\ntext_eval_files=configs/base.yml", true},
    {"eval_split=validation\ntext_train_files=configs/base.yml\ntext_eval_files=configs/base.yml",
     true},
    {"eval_split=test\ntext_train_files=configs/base.yml\ntext_eval_files=configs/base.yml", false},
    {"eval_split=0.3\ntext_train_files=configs/base.yml\neval_interval=-1", false},
    {"eval_split=0.3\ndataset_type=synthetic", false},
    {"eval_split=test\ndataset_type=tfds\ndataset_path=configs", true},
};

START_TEST(shares_beside_files_are_told) {
    Loaded l = load_config("", shares[_i].set, NULL);
    ck_assert_msg(l.ok, "%s: %s", shares[_i].set, l.err.text.data);
    ck_assert_msg(is_told(&l, MX_KEY_eval_split) != shares[_i].acts, "%s", shares[_i].set);
    MxConfig *again = NULL;
    MxArena arena = {.name = "test"};
    MxConfigRequest request = {.text = mx_config_text(&arena, l.config), .text_name = "dump"};
    ck_assert(mx_config_load(&arena, &request, &again, &l.err));
    for (int i = 0; i < again->warnings.n; i++)
        ck_assert_ptr_null(strstr(again->warnings.item[i], "eval_split"));
    mx_arena_release(&arena);
    unload(&l);
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
    tcase_add_test(tc, the_docs_hold_the_table);
    tcase_add_test(tc, help_knows_keys_groups_and_typos);
    tcase_add_test(tc, keys_that_cannot_act_are_told);
    tcase_add_loop_test(tc, shares_beside_files_are_told, 0, MX_COUNT(shares));
    tcase_add_test(tc, computed_keys_are_told);
    tcase_add_test(tc, names_of_other_trainers_lead_to_keys);
    tcase_add_test(tc, one_edit_typos_find_their_key);
    return tc;
}
