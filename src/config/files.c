/* files.c — the files that make up a config: the request's files, their base_config parents, the
 * model's preset, the custom mesh. A file is looked for as given, beside the file that names it,
 * beside that file's folder, in ./configs and in the installed share folder. Source: MaxText
 * pyconfig.py; if a preset is missing, MaxText trains its default architecture, while we report an
 * error. */
#include "room.h"

#include <sys/stat.h>

enum { MOST_PARENTS = 16 };

/* Folders in which configs stand, strongest first. */
enum { CONFIG_DIRS = 2 };

static void config_dirs(MxArena *arena, const char *dirs[CONFIG_DIRS]) {
    dirs[0] = "configs";
    dirs[1] = mx_path_join(arena, mx_share_dir(arena), "configs");
}

/* How such a folder is spelt in MaxText's sources and in ours, taken off a path. */
static const char *const spelt_dirs[] = {"src/maxtext/configs/", "src/MaxText/configs/",
                                         "MaxText/configs/", "configs/"};

static const char *find_file(MxArena *arena, const char *name, const char *beside) {
    if (mx_file_exists(name)) return name;
    for (int up = 0; beside && up < 2; up++) { /* and beside its folder: recipes/mine.yml */
        const char *dir = up ? mx_path_join(arena, beside, "..") : beside;
        const char *path = mx_path_join(arena, dir, name);
        if (mx_file_exists(path)) return path;
    }
    for (int i = 0; i < MX_COUNT(spelt_dirs); i++)
        if (mx_text_has_prefix(name, spelt_dirs[i])) name += strlen(spelt_dirs[i]);
    const char *dirs[CONFIG_DIRS];
    config_dirs(arena, dirs);
    for (int i = 0; i < CONFIG_DIRS; i++) {
        const char *path = mx_path_join(arena, dirs[i], name);
        if (mx_file_exists(path)) return path;
    }
    return NULL;
}

/* A text as a map, NULL after an error. */
static const MxYaml *parse_map(ConfigLoad *load, const char *name, const char *text, size_t size) {
    const ConfigSource *source = config_source_add(load, name, text, size, true);
    const MxYaml *root = config_parse(load, source, 0);
    if (!root) return NULL;
    if (root->kind == MX_YAML_NULL) return config_node_new(load->arena, MX_YAML_MAP, root->where);
    if (root->kind == MX_YAML_MAP) return root;
    config_report(load, root->where, "wants \"key: value\" lines, found %s",
                  config_quote(load->arena, root));
    return NULL;
}

/* The YAML map in a file; NULL after an error. */
static const MxYaml *read_map(ConfigLoad *load, const char *path) {
    MxError reading = {0};
    MxBytes bytes;
    bool ok = mx_file_read(load->arena, path, CONFIG_LARGEST_FILE, &bytes, &reading);
    if (!ok) config_report(load, MX_NOWHERE, "%s", reading.text.data);
    mx_error_release(&reading);
    return ok ? parse_map(load, path, (const char *)bytes.data, bytes.size) : NULL;
}

/* The file that a map's base_config names, or NULL. */
static const char *parent_of(ConfigLoad *load, const MxYaml *map, const char *path) {
    const MxYaml *base = mx_yaml_get(map, "base_config");
    if (!base || config_node_is_null(base)) return NULL;
    if (base->kind != MX_YAML_STRING) {
        config_report(load, base->where, "base_config: wants a file name, found %s",
                      config_quote(load->arena, base));
        return NULL;
    }
    const char *found = find_file(load->arena, base->text, mx_path_dir(load->arena, path));
    if (!found)
        config_report(
            load, base->where,
            "base_config: there is no file \"%s\" here, beside this file, in ./configs or "
            "among the installed configs",
            config_shorten(load->arena, base->text));
    return found;
}

static bool names_model(const MxYaml *map) {
    const MxYaml *name = mx_yaml_get(map, mx_key_name(MX_KEY_model_name));
    return name && !config_node_is_null(name) &&
           (name->kind != MX_YAML_STRING || strcmp(name->text, "default") != 0);
}

/* Into the file layer. What the file that names the model says, or one after it, is meant to change
 * the preset; but the first file may be a copy of base.yml, which says everything: there, what the
 * defaults say does not count. */
static void apply_file(ConfigLoad *load, const MxYaml *map) {
    load->names_model = load->names_model || names_model(map);
    config_apply(load, map, CONFIG_FROM_FILE);
    load->n_maps++;
}

/* Below all files: but where the first one only says a default, what was found out stands. */
static void apply_found(ConfigLoad *load, const MxConfigRequest *request) {
    for (int i = 0; i < request->n_found; i++) {
        const char *text = request->found[i].text;
        const MxYaml *map = parse_map(load, request->found[i].name, text, strlen(text));
        if (map) config_apply(load, map, CONFIG_FROM_FILE);
    }
}

/* A file and its parents, parents first, into the file layer. */
static void read_chain(ConfigLoad *load, const char *path) {
    const MxYaml *map[MOST_PARENTS];
    struct stat seen[MOST_PARENTS];
    int n = 0;
    for (MxWhere named_at = MX_NOWHERE; path; n++) {
        struct stat *st = &seen[n < MOST_PARENTS ? n : 0];
        bool is_again = n == MOST_PARENTS || stat(path, st);
        for (int i = 0; !is_again && i < n; i++)
            is_again = seen[i].st_dev == st->st_dev && seen[i].st_ino == st->st_ino;
        if (is_again) {
            config_report(load, named_at, "base_config: the files include each other in a circle");
            return;
        }
        map[n] = read_map(load, path);
        if (!map[n]) return;
        const MxYaml *base = mx_yaml_get(map[n], "base_config");
        if (base) named_at = base->where;
        path = parent_of(load, map[n], path);
    }
    while (n--) apply_file(load, map[n]);
}

/* A text stands alone: it names all keys, and no parent. */
static void read_text(ConfigLoad *load, const MxConfigRequest *request) {
    const MxYaml *map = parse_map(load, request->text_name, request->text, strlen(request->text));
    if (map) apply_file(load, map);
}

/* A file of the request with its parents. */
static void read_named(ConfigLoad *load, const char *name) {
    const char *path = find_file(load->arena, name, NULL);
    if (path) {
        load->main_dir = mx_path_dir(load->arena, path);
        read_chain(load, path);
        return;
    }
    config_report(load, MX_NOWHERE,
                  "there is no config file \"%s\" here, in ./configs or among the installed "
                  "configs",
                  config_shorten(load->arena, name));
}

/* base_config=FILE of the command line, as MaxText takes it: the weakest file. */
static bool read_base(ConfigLoad *load, const MxConfigRequest *request) {
    static const char key[] = "base_config=";
    bool found = false;
    for (int i = 0; i < request->n_overrides; i++) {
        const char *text = request->overrides[i];
        text += mx_text_has_prefix(text, "--") ? 2 : 0;
        if (!mx_text_has_prefix(text, key)) continue;
        found = true;
        read_named(load, text + strlen(key));
    }
    return found;
}

bool mx_config_is_file(const char *word) {
    return !strchr(word, '=') &&
           (mx_text_has_suffix(word, ".yml") || mx_text_has_suffix(word, ".yaml"));
}

void config_read_files(ConfigLoad *load, const MxConfigRequest *request) {
    if (request->text) {
        read_text(load, request);
        return;
    }
    apply_found(load, request);
    bool has_base = read_base(load, request);
    for (int i = 0; i < request->n_files; i++) read_named(load, request->files[i]);
    /* Without a file: base.yml. It says what the rows say, so a missing one changes nothing. */
    const char *base =
        request->n_files || has_base ? NULL : find_file(load->arena, "base.yml", NULL);
    if (base) load->main_dir = mx_path_dir(load->arena, base);
    if (base) read_chain(load, base);
}

/* ---- files that a key names ---- */

enum { NAMED_DIRS = 2 + CONFIG_DIRS, MOST_NAMED = 512 };

/* A key whose value is the name of a file in a folder of its own. */
typedef struct Named {
    MxKey key;
    const char *folder; /* beside the main file, beside its folder, among our configs */
    const char *word;
} Named;

enum { MODELS, CUSTOM_MESHES };

static const Named named_files[] = {
    [MODELS] =
        {
            .key = MX_KEY_model_name,
            .folder = "models",
            .word = "model",
        },
    [CUSTOM_MESHES] =
        {
            .key = MX_KEY_custom_mesh_and_rule,
            .folder = "custom_mesh_and_rule",
            .word = "custom mesh",
        },
};

static void list_dirs(MxArena *arena, const char *main_dir, const Named *named,
                      const char *dirs[NAMED_DIRS]) {
    if (!main_dir) main_dir = ".";
    dirs[0] = mx_path_join(arena, main_dir, named->folder);
    dirs[1] = mx_path_join(arena, mx_path_join(arena, main_dir, ".."), named->folder);
    config_dirs(arena, dirs + 2);
    for (int i = 2; i < NAMED_DIRS; i++) dirs[i] = mx_path_join(arena, dirs[i], named->folder);
}

static const char *find_named(const ConfigLoad *load, const Named *named, const char *name) {
    const char *dirs[NAMED_DIRS];
    list_dirs(load->arena, load->main_dir, named, dirs);
    const char *file = mx_arena_printf(load->arena, "%s.yml", name);
    for (int i = 0; i < NAMED_DIRS && !strchr(name, '/'); i++) {
        const char *path = mx_path_join(load->arena, dirs[i], file);
        if (mx_file_exists(path)) return path;
    }
    return NULL;
}

static bool has_name(const char *const *found, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(found[i], name)) return true;
    return false;
}

/* The names that are there, each once, out of the folders that are; returns how many. */
static int list_named(MxArena *arena, const char *main_dir, const Named *named,
                      const char *found[MOST_NAMED]) {
    const char *dirs[NAMED_DIRS];
    list_dirs(arena, main_dir, named, dirs);
    int n = 0;
    for (int d = 0; d < NAMED_DIRS; d++) {
        MxError ignored = {0};
        char **names = NULL;
        int n_names = 0;
        if (mx_dir_exists(dirs[d])) mx_dir_list(arena, dirs[d], &names, &n_names, &ignored);
        mx_error_release(&ignored);
        for (int i = 0; i < n_names && n < MOST_NAMED; i++) {
            if (!mx_text_has_suffix(names[i], ".yml")) continue;
            const char *name = mx_arena_strndup(arena, names[i], strlen(names[i]) - 4);
            if (!has_name(found, n, name)) found[n++] = name;
        }
    }
    return n;
}

const char *config_named(MxArena *arena, MxKey key) {
    const char *found[MOST_NAMED];
    MxText words;
    mx_text_init(&words, arena);
    for (int k = 0; k < MX_COUNT(named_files); k++) {
        int n = named_files[k].key == key ? list_named(arena, NULL, &named_files[k], found) : 0;
        for (int i = 0; i < n; i++) mx_text_add(&words, "%s ", found[i]);
    }
    return words.data;
}

static const char *nearest_named(const ConfigLoad *load, const Named *named, const char *name) {
    const char *found[MOST_NAMED];
    int n = list_named(load->arena, load->main_dir, named, found);
    return mx_nearest(name, found, n);
}

/* There is no such file. */
static void report_named(ConfigLoad *load, const Named *named, const MxYaml *node,
                         const char *name) {
    const char *key = mx_key_name(named->key);
    load->slots[named->key].is_bad = true;
    config_report(load, node->where, "%s: unrecognized %s \"%s\"", key, named->word,
                  config_shorten(load->arena, name));
    config_hint_nearest(load, nearest_named(load, named, name));
}

static const MxYaml *strongest(const ConfigLoad *load, MxKey key) {
    for (int layer = CONFIG_LAYERS - 1; layer > CONFIG_FROM_DEFAULT; layer--)
        if (load->slots[key].given[layer]) return load->slots[key].given[layer];
    return load->slots[key].given[CONFIG_FROM_DEFAULT];
}

/* apply_model_config: false belongs to the file that a dump wrote, whose model_name it is. */
static bool wants_model(ConfigLoad *load, const MxYaml *name) {
    const MxYaml *apply = strongest(load, MX_KEY_apply_model_config);
    if (apply->kind != MX_YAML_BOOL || apply->boolean) return true;
    const ConfigSlot *slot = &load->slots[MX_KEY_model_name];
    bool is_other = name != slot->given[CONFIG_FROM_FILE] && slot->given[CONFIG_FROM_FILE];
    if (is_other && strcmp(name->text, slot->given[CONFIG_FROM_FILE]->text)) {
        config_report(load, name->where,
                      "model_name: \"%s\" would not be merged: %s says "
                      "apply_model_config: false",
                      config_shorten(load->arena, name->text), apply->where.file);
        config_hint(load, "start from another config file, or add apply_model_config=true");
        load->slots[MX_KEY_model_name].is_bad = true;
    }
    return false;
}

/* MaxText's own presets of these models name no rope_type: it goes by the model's name. Here it is
 * a key, so the preset gets what it leaves out. */
static void name_rope(ConfigLoad *load, const char *model, const char *path) {
    static const char *const scaled[] = {"llama3.1", "llama3.3"};
    const MxYaml **given = &load->slots[MX_KEY_rope_type].given[CONFIG_FROM_MODEL];
    for (int i = 0; i < MX_COUNT(scaled) && !*given; i++) {
        if (!mx_text_has_prefix(model, scaled[i])) continue;
        *given = config_node_string(load->arena, "llama3.1", (MxWhere){.file = path});
        config_warn(load, (MxWhere){.file = path},
                    "rope_type: set to llama3.1; the preset of %s names none", model);
    }
}

void config_read_model(ConfigLoad *load) {
    const MxYaml *node = strongest(load, MX_KEY_model_name);
    if (node->kind == MX_YAML_LIST || node->kind == MX_YAML_MAP) return; /* reported by type */
    const char *name = node->text;
    if (config_node_is_null(node) || !strcmp(name, "default") || !wants_model(load, node)) return;
    if (mx_text_has_suffix(name, "-Instruct"))
        name = mx_arena_strndup(load->arena, name, strlen(name) - strlen("-Instruct"));
    const char *path = find_named(load, &named_files[MODELS], name);
    if (!path) {
        report_named(load, &named_files[MODELS], node, name);
        return;
    }
    const MxYaml *map = read_map(load, path);
    if (!map) return;
    load->model_file = path;
    config_apply(load, map, CONFIG_FROM_MODEL);
    name_rope(load, name, path);
}

static bool is_of_mesh(const char *key) {
    static const char *const keys[] = {"mesh_axes", "data_sharding", "logical_axis_rules",
                                       "context_sharding"};
    for (int i = 0; i < MX_COUNT(keys); i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

void config_read_custom_mesh(ConfigLoad *load) {
    const MxYaml *node = strongest(load, MX_KEY_custom_mesh_and_rule);
    if (node->kind == MX_YAML_LIST || node->kind == MX_YAML_MAP || config_node_is_null(node))
        return;
    const char *path = find_named(load, &named_files[CUSTOM_MESHES], node->text);
    if (!path) {
        report_named(load, &named_files[CUSTOM_MESHES], node, node->text);
        return;
    }
    const MxYaml *map = read_map(load, path);
    for (int i = 0; map && i < map->n; i++)
        if (!is_of_mesh(map->pair[i].key)) {
            config_report(load, map->pair[i].where,
                          "unrecognized key \"%s\"; a custom mesh has mesh_axes, data_sharding and "
                          "logical_axis_rules",
                          config_shorten(load->arena, map->pair[i].key));
            return;
        }
    if (map) config_apply(load, map, CONFIG_FROM_CUSTOM);
}
