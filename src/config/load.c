/* load.c — mx_config_load: read, merge, convert, derive, check. All errors are reported in one
 * pass, except that nothing is converted if a file cannot be read. */
#include "room.h"

static void init_names(ConfigLoad *load) {
    mx_map_init(&load->rows, load->arena);
    mx_map_init(&load->sections, load->arena);
    for (int i = 0; i < config_row_count; i++) {
        mx_map_set(&load->rows, config_rows[i].name, i);
        const char *name = config_rows[i].name;
        size_t n = strcspn(name, ".");
        if (name[n] || config_rows[i].class == CONFIG_SECTION)
            mx_map_set(&load->sections, mx_arena_strndup(load->arena, name, n), i);
    }
}

/* All defaults are one YAML document, made of the rows and read like any other. */
static void read_defaults(ConfigLoad *load) {
    MxText text;
    mx_text_init(&text, load->arena);
    for (int i = 0; i < config_row_count; i++)
        if (config_rows[i].class < CONFIG_COMPUTED)
            mx_text_add(&text, "%s: %s\n", config_rows[i].name, config_rows[i].fallback);
    ConfigSource *source = config_source_add(load, "<default>", text.data, text.len, false);
    const MxYaml *map = config_parse(load, source, 0);
    MX_ASSERT(map && map->kind == MX_YAML_MAP);
    source->text = NULL; /* the user never wrote it: nothing to point at */
    for (int i = 0; i < map->n; i++) {
        MxYaml *node = mx_new(load->arena, MxYaml);
        *node = *map->pair[i].value;
        node->where = (MxWhere){.file = source->name};
        load->slots[mx_map_get(&load->rows, map->pair[i].key, 0)].given[CONFIG_FROM_DEFAULT] = node;
    }
}

static void convert_all(ConfigLoad *load) {
    for (int i = 0; i < MX_KEY_COUNT; i++) {
        ConfigSlot *slot = &load->slots[i];
        bool was_bad = slot->is_bad;
        ConfigSlot fallback = {.value = slot->given[CONFIG_FROM_DEFAULT]};
        void *field = (char *)load->config + config_rows[i].offset;
        config_convert(load, &config_rows[i], &fallback,
                       field); /* a bad value leaves the default */
        if (!was_bad) config_convert(load, &config_rows[i], slot, field);
    }
}

static ConfigLoad *new_load(MxArena *arena, const MxConfigRequest *request, MxError *err) {
    ConfigLoad *load = mx_new(arena, ConfigLoad);
    *load = (ConfigLoad){.arena = arena,
                         .err = err,
                         .n_ranks = request->n_ranks,
                         .decodes = request->decodes,
                         .slots = mx_new_n(arena, ConfigSlot, config_row_count),
                         .config = mx_new(arena, MxConfig)};
    init_names(load);
    read_defaults(load);
    return load;
}

/* Values of all layers, which were read. */
static void finish(ConfigLoad *load) {
    config_read_model(load);
    config_read_custom_mesh(load);
    config_settle(load);
    config_interpolate(load);
    convert_all(load);
    config_check_known(load);
    config_derive(load);
    config_check(load);
    config_check_acts(load);
    MxConfigTrail *trail = mx_new(load->arena, MxConfigTrail);
    *trail = (MxConfigTrail){
        .sources = load->sources, .slots = load->slots, .has_model = load->model_file != NULL};
    load->config->trail = trail;
    load->config->warnings = load->warnings;
}

/* What the run says of a key, in every layer. */
static void adopt(ConfigSlot *slot, const ConfigSlot *run) {
    memcpy(slot->given, run->given, sizeof slot->given);
}

/* The model of the same files with other keys over them. What it would warn of, the run warns of.
 */
static void load_teacher(ConfigLoad *student, const MxConfigRequest *request) {
    ConfigLoad *load = new_load(student->arena, request, student->err);
    load->sources = student->sources;
    config_read_files(load, request);
    for (int row = 0; row < config_row_count; row++)
        if (!config_is_of_model(row)) adopt(&load->slots[row], &student->slots[row]);
    config_apply_overrides(load, MX_KEY_teacher_overrides,
                           student->slots[MX_KEY_teacher_overrides].value);
    finish(load);
    student->n_errors = load->n_errors;
    load->config->enable_lora = false; /* it is as its weights are */
    load->config->lora_restore_path = load->config->load_full_state_path = NULL;
    load->config->mtp_num_layers = 0;
    load->config->is_teacher = true;
    *(student->config->offline_data_dir ? &student->config->offline_teacher
                                        : &student->config->teacher) = load->config;
    if (load->n_errors) return;
    config_check_teacher(student, load->config);
    student->config->teacher_overrides =
        config_teacher_keys(student->arena, student->config, load->config);
}

/* All layers but those that a key of them names. */
static ConfigLoad *read_request(MxArena *arena, const MxConfigRequest *request, MxError *err) {
    ConfigLoad *load = new_load(arena, request, err);
    config_read_files(load, request);
    config_read_overrides(load, request);
    config_read_environment(load, request->environ);
    return load;
}

const MxConfig *mx_config_request_said(MxArena *arena, const MxConfigRequest *request) {
    MxError err = {0};
    ConfigLoad *load = read_request(arena, request, &err);
    config_settle(load);
    convert_all(load);
    mx_error_release(&err);
    return load->config;
}

bool mx_config_load(MxArena *arena, const MxConfigRequest *request, MxConfig **out, MxError *err) {
    ConfigLoad *load = read_request(arena, request, err);
    config_apply_overrides(load, MX_KEY_student_overrides,
                           config_map(load, MX_KEY_student_overrides));
    finish(load);
    if (!load->n_errors && config_has_teacher(load->config)) load_teacher(load, request);
    config_errors_end(load);
    if (load->n_errors) return false;
    *out = load->config;
    return true;
}
