/* teacher.c — checks the keys of distillation together, and that student and teacher are
 * compatible. Source: MaxText types.py, trainers/post_train/distillation/train_distill.py
 * @e591f30c; mistakes that MaxText only notices by mismatching shapes are reported here. */
#include "check.h"

bool config_has_teacher(const MxConfig *c) {
    const MxYaml *map = c->teacher_overrides;
    return map && map->kind == MX_YAML_MAP && map->n > 0;
}

bool mx_config_distils(const MxConfig *c) {
    return !c->is_teacher && (config_has_teacher(c) || c->offline_data_dir);
}

bool mx_config_ties(const MxConfig *c) {
    const MxYaml *map = c->distill_student_weights_share_map;
    return mx_config_distils(c) && map && map->n;
}

bool mx_config_learns_init(const MxConfig *c) {
    return mx_config_distils(c) && c->learn_to_init_mode;
}

/* ---- one config */

/* A value that changes over the steps. */
typedef struct Schedule {
    MxKey start, end, how;
    const char *style;
    bool has_end;
} Schedule;

static void check_schedule(ConfigLoad *load, const Schedule *s) {
    if (load->slots[s->how].is_bad || load->slots[s->end].is_bad) return;
    bool changes = strcmp(s->style, "constant") != 0;
    if (changes && !s->has_end)
        config_fail(load, s->how, "\"%s\" wants %s, the value at the last step", s->style,
                    mx_key_name(s->end));
    if (!changes && s->has_end)
        config_fail(load, s->end, "%s is constant, so it gets nowhere; linear and cosine do",
                    mx_key_name(s->how));
}

static void check_with_others(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = config_has_teacher(c) ? MX_KEY_teacher_overrides : MX_KEY_offline_data_dir;
    if (c->use_dpo)
        config_fail(load, key, "a run distills or trains on pairs (use_dpo=true), not both");
    if (c->use_grpo)
        config_fail(load, key, "a run distills or learns from rewards (use_grpo=true), not both");
    if (c->use_kto)
        config_fail(load, key, "a run distills or trains on labels (use_kto=true), not both");
    if (c->mtp_num_layers)
        config_fail(load, key,
                    "distillation does not train modules that look ahead (mtp_num_layers is %lld)",
                    (long long)c->mtp_num_layers);
}

/* A map of patterns to paths of the student. */
static void check_map(ConfigLoad *load, const MxConfig *c, MxKey key, const MxYaml *map) {
    if (config_node_is_null(map)) return;
    if (map->kind != MX_YAML_MAP) {
        config_fail(load, key, "wants a path below each pattern, found %s",
                    config_quote(load->arena, map));
        return;
    }
    if (map->n && c->offline_data_dir)
        config_fail(load, key, "with offline_data_dir there is no teacher to begin with");
    for (int i = 0; i < map->n; i++) {
        config_check_regex(load, key, map->pair[i].key);
        if (map->pair[i].value->kind != MX_YAML_STRING)
            config_report(load, map->pair[i].where, "%s: wants a path of the student, found %s",
                          mx_key_name(key), config_quote(load->arena, map->pair[i].value));
    }
}

static void check_ties(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_distill_student_weights_share_map;
    check_map(load, c, key, c->distill_student_weights_share_map);
    if (mx_config_ties(c) && c->enable_lora)
        config_fail(load, key, "not available yet with adapters (lora.enable_lora=true)");
}

void config_check_distillation(ConfigLoad *load, const MxConfig *c) {
    const Schedule schedules[] = {
        {MX_KEY_distill_alpha, MX_KEY_distill_alpha_end, MX_KEY_distill_alpha_schedule,
         c->distill_alpha_schedule, c->distill_alpha_end >= 0},
        {MX_KEY_distill_temperature, MX_KEY_distill_temperature_end,
         MX_KEY_distill_temperature_schedule, c->distill_temperature_schedule,
         c->distill_temperature_end > 0},
        {MX_KEY_distill_beta, MX_KEY_distill_beta_end, MX_KEY_distill_beta_schedule,
         c->distill_beta_schedule, c->distill_beta_end >= 0}};
    const MxYaml *map = c->teacher_overrides;
    if (!config_node_is_null(map) && map->kind != MX_YAML_MAP)
        config_fail(load, MX_KEY_teacher_overrides, "wants keys below it, found %s",
                    config_quote(load->arena, map));
    if (!mx_config_distils(c)) return;
    for (int i = 0; i < MX_COUNT(schedules); i++) check_schedule(load, &schedules[i]);
    if (c->distill_alpha_end > 1)
        config_fail(load, MX_KEY_distill_alpha_end, "wants at most 1, found %g",
                    c->distill_alpha_end);
    if (c->distill_beta == 0 && c->distill_beta_end > 0)
        config_fail(load, MX_KEY_distill_beta_end,
                    "%g, but distill_beta is 0, so nothing is measured; start from a small value",
                    c->distill_beta_end);
    check_map(load, c, MX_KEY_distill_weights_copy_map, c->distill_weights_copy_map);
    check_ties(load, c);
    if (c->learn_to_init_mode && c->offline_data_dir)
        config_fail(load, MX_KEY_learn_to_init_mode,
                    "with offline_data_dir there is no teacher to begin with");
    if (c->student_params_to_update.n && c->enable_lora)
        config_fail(load, MX_KEY_student_params_to_update,
                    "with adapters (lora.enable_lora=true) these are what is trained; "
                    "lora.lora_module_path chooses where they are");
    if (c->offline_data_dir && c->distill_beta > 0)
        config_fail(load, MX_KEY_distill_beta,
                    "%g, but offline_data_dir has no features of the teacher, only logits",
                    c->distill_beta);
    if (c->offline_data_dir && c->distill_top_k > c->vocab_size)
        config_fail(load, config_culprit(load, MX_KEY_distill_top_k, MX_KEY_vocab_size),
                    "distill.top_k is %lld, vocab_size only %lld", (long long)c->distill_top_k,
                    (long long)c->vocab_size);
    check_with_others(load, c);
}

/* ---- both */

bool config_is_of_model(int row) {
    static const char *const groups[] = {"model", "attention", "vision",
                                         "audio", "layout",    "precision"};
    static const struct {
        MxKey key;
        bool is;
    } keys[] = {{MX_KEY_load_parameters_path, true},
                {MX_KEY_model_name, true},
                {MX_KEY_override_model_config, true},
                {MX_KEY_use_multimodal, false}, /* both read the same batches */
                {MX_KEY_use_audio, false},
                {MX_KEY_max_num_images_per_example, false},
                {MX_KEY_max_sample_len_for_audio, false}};
    for (int i = 0; i < MX_COUNT(keys); i++)
        if (row == (int)keys[i].key) return keys[i].is;
    for (int i = 0; row >= 0 && row < MX_KEY_COUNT && i < MX_COUNT(groups); i++)
        if (!strcmp(config_group_of((MxKey)row)->name, groups[i])) return true;
    return false;
}

static void check_keys(ConfigLoad *load) {
    const MxYaml *map = load->slots[MX_KEY_teacher_overrides].value;
    for (int i = 0; i < map->n; i++) {
        int row = config_find(load, map->pair[i].key);
        if (row < MX_KEY_COUNT && !config_is_of_model(row))
            config_report(load, map->pair[i].where,
                          "teacher_overrides: %s is the run's, a teacher has none of its own",
                          map->pair[i].key);
    }
}

/* Features are compared element by element, layer by layer. */
static void check_features(ConfigLoad *load, const MxConfig *student, const MxConfig *teacher) {
    const MxYaml *layers = student->distill_layer_indices;
    int64_t ours = student->num_decoder_layers, theirs = teacher->num_decoder_layers;
    int64_t least = ours < theirs ? ours : theirs;
    bool is_all = !layers || config_node_is_null(layers);
    if (student->emb_dim != teacher->emb_dim)
        config_fail(load, MX_KEY_distill_beta,
                    "features of width %lld cannot be compared with the teacher's of %lld",
                    (long long)student->emb_dim, (long long)teacher->emb_dim);
    if (is_all && ours != theirs)
        config_fail(load, MX_KEY_distill_beta,
                    "the student has %lld layers, the teacher %lld; distill_layer_indices names "
                    "those to compare",
                    (long long)ours, (long long)theirs);
    if (is_all) return;
    config_check_numbers(
        load, MX_KEY_distill_layer_indices, layers,
        (ConfigNumbers){.what = "layers of both models", .high = least - 1, .least = 1});
}

/* In MaxText these layers alone know of it; of another model it learns nothing new. */
static const struct {
    const char *decoder_block, *attention;
} with_maps = {"llama2", "self_attention"};

static void check_maps(ConfigLoad *load, const MxConfig *c, const MxConfig *teacher) {
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {{MX_KEY_fused_qkv, c->fused_qkv},
                  {MX_KEY_quantization, *c->quantization},
                  {MX_KEY_enable_lora, c->enable_lora}};
    const MxKey key = MX_KEY_learn_to_init_mode;
    const MxYaml *layers = c->lti_layer_indices;
    if (strcmp(c->decoder_block, with_maps.decoder_block))
        config_fail(load, key, "not available for decoder_block=%s; wants %s", c->decoder_block,
                    with_maps.decoder_block);
    if (!c->attn_module_name || strcmp(c->attn_module_name, with_maps.attention))
        config_fail(load, c->attn_module_name ? MX_KEY_attn_module_name : key,
                    "wants attn_module_name=%s, the attention of a layer", with_maps.attention);
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_set)
            config_fail(load, others[i].key, "not available yet with learn_to_init_mode");
    if (c->emb_dim != teacher->emb_dim)
        config_fail(load, key,
                    "maps are of heads, not of the model's width: emb_dim is %lld, the teacher's "
                    "%lld",
                    (long long)c->emb_dim, (long long)teacher->emb_dim);
    if (config_node_is_null(layers)) return;
    if (c->scan_layers)
        config_fail(load, MX_KEY_lti_layer_indices,
                    "layers of one stack are alike; single ones want scan_layers=false");
    config_check_numbers(
        load, MX_KEY_lti_layer_indices, layers,
        (ConfigNumbers){.what = "layers", .high = c->num_decoder_layers - 1, .least = 1});
}

/* Both are given the same images and sounds, and the same tokens stand for them. */
static void check_senses(ConfigLoad *load, const MxConfig *teacher) {
    static const MxKey keys[] = {MX_KEY_vision_encoder_block,
                                 MX_KEY_image_size_for_vit,
                                 MX_KEY_patch_size_for_vit,
                                 MX_KEY_vision_output_length,
                                 MX_KEY_max_num_tiles_for_vit,
                                 MX_KEY_spatial_merge_size_for_vit,
                                 MX_KEY_pixel_shuffle_ratio_for_vit,
                                 MX_KEY_num_position_embeddings_for_vit,
                                 MX_KEY_use_mrope,
                                 MX_KEY_num_mel_bins_for_audio,
                                 MX_KEY_n_window_for_audio,
                                 MX_KEY_n_window_infer_for_audio};
    for (int i = 0; i < MX_COUNT(keys) && load->config->use_multimodal; i++) {
        const char *ours = mx_config_value(load->arena, load->config, keys[i]);
        const char *theirs = mx_config_value(load->arena, teacher, keys[i]);
        if (strcmp(ours, theirs) != 0)
            config_fail(load, MX_KEY_teacher_overrides,
                        "the teacher sees in another way: %s is %s, the student's is %s",
                        mx_key_name(keys[i]), theirs, ours);
    }
}

void config_check_teacher(ConfigLoad *load, const MxConfig *teacher) {
    const MxConfig *student = load->config;
    const MxKey key = MX_KEY_teacher_overrides;
    check_keys(load);
    if (student->vocab_size != teacher->vocab_size)
        config_fail(load, key,
                    "the teacher has another vocabulary: vocab_size %lld, the student's is %lld",
                    (long long)teacher->vocab_size, (long long)student->vocab_size);
    if (!teacher->load_parameters_path ||
        !mx_yaml_get(load->slots[key].value, mx_key_name(MX_KEY_load_parameters_path)))
        config_fail(load, key, "wants load_parameters_path, the teacher's weights");
    if (student->distill_beta > 0) check_features(load, student, teacher);
    check_senses(load, teacher);
    if (mx_config_learns_init(student)) check_maps(load, student, teacher);
}

/* ---- in a dump: the files that a teacher came from are not in it */

const MxYaml *config_teacher_keys(MxArena *arena, const MxConfig *student,
                                  const MxConfig *teacher) {
    MxYaml *map = config_node_new(arena, MX_YAML_MAP, student->teacher_overrides->where);
    map->pair = mx_new_n(arena, MxYamlPair, MX_KEY_COUNT);
    for (int i = 0; i < MX_KEY_COUNT; i++) {
        MxKey key = (MxKey)i;
        const char *own = mx_config_value(arena, teacher, key);
        bool is_same = !strcmp(own, mx_config_value(arena, student, key));
        bool is_named = key == MX_KEY_model_name || key == MX_KEY_override_model_config;
        if (!config_is_of_model(i) || is_named || (is_same && key != MX_KEY_load_parameters_path))
            continue;
        ConfigLoad load = {.arena = arena};
        const ConfigSource *source = config_source_add(&load, "<teacher>", own, strlen(own), false);
        map->pair[map->n++] =
            (MxYamlPair){mx_key_name(key), map->where, config_parse(&load, source, 0)};
    }
    return map;
}
