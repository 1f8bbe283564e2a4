/* peft_config.c — adapter_config.json of Hugging Face's peft: whether its adapters compute what
 * ours do. Its modules are checked by the tensors (peft.c). */
#include "hf.h"

#include <math.h>

/* Members that change what an adapter is; each must be absent or say nothing. */
static const char *const foreign[] = {
    "use_dora",
    "fan_in_fan_out",
    "lora_bias",
    "use_qalora",
    "use_bdlora",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
};

/* Ways to begin that change the weights below the adapters, as peft does whenever it loads them.
 * Source: peft 0.21, tuners/lora/layer.py. */
static const char *const changing[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};

static bool check_beginning(const MxJson *config, MxWhere where, MxError *err) {
    const char *way = mx_json_string(mx_json_get(config, "init_lora_weights"));
    for (int i = 0; way && i < MX_COUNT(changing); i++) {
        if (strncmp(way, changing[i], strlen(changing[i])) != 0) continue;
        mx_fail(err, MX_EXIT_BAD_INPUT, where,
                "init_lora_weights is \"%s\", which changes the weights below the adapters too, "
                "wanted adapters for the weights as they are",
                way);
        mx_note(err, "hint: peft writes such: save_pretrained(DIR, "
                     "path_initial_model_for_weight_conversion=...)");
        return false;
    }
    return true;
}

static bool check_config(const MxJson *config, MxWhere where, MxError *err) {
    const char *type = mx_json_string(mx_json_get(config, "peft_type"));
    const char *bias = mx_json_string(mx_json_get(config, "bias"));
    bool ok = true;
    if (!type || strcmp(type, "LORA"))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "peft_type is \"%s\", wanted \"LORA\"",
                     type ? type : "");
    if (bias && strcmp(bias, "none"))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "bias is \"%s\", wanted \"none\"", bias);
    for (int i = 0; i < MX_COUNT(foreign); i++)
        if (hf_says_something(mx_json_get(config, foreign[i])))
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s is not available here", foreign[i]);
    return check_beginning(config, where, err) && ok;
}

bool peft_read_config(MxArena *arena, const char *dir, double scale, MxError *err) {
    enum { LARGEST = 1 << 20 };
    MxWhere where = {.file = mx_path_join(arena, dir, PEFT_CONFIG)};
    MxBytes bytes;
    double rank = 0, alpha = 0;
    bool is_rs = false;
    if (!mx_file_read(arena, where.file, LARGEST, &bytes, err)) return false;
    const MxJson *config =
        mx_json_parse(arena, (const char *)bytes.data, bytes.size, where.file, err);
    if (!config || !check_config(config, where, err)) return false;
    if (!mx_json_number(mx_json_get(config, "r"), &rank) || rank < 1 ||
        !mx_json_number(mx_json_get(config, "lora_alpha"), &alpha))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "no r of at least 1, or no lora_alpha");
    mx_json_bool(mx_json_get(config, "use_rslora"), &is_rs);
    double found = alpha / (is_rs ? sqrt(rank) : rank);
    if (fabs(found - scale) <= 1e-6 * fabs(scale)) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, where,
            "its adapters count %.9g (lora_alpha %.9g, r %.9g%s), those of this run lora_alpha / "
            "lora_rank = %.9g",
            found, alpha, rank, is_rs ? ", use_rslora" : "", scale);
    mx_note(err, "hint: lora.lora_rank=%.9g lora.lora_alpha=%.9g", rank, found * rank);
    return false;
}
