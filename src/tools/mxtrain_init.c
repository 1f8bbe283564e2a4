/* mxtrain_init.c — configs to start from: the usual keys of a kind of training, with settings
 * derived from model and data (mxtrain_found.c). */
#include "mxtrain.h"

/* Of all kinds: the data, how long and how fast, what is kept. */
#define USUAL_KEYS                                                                                 \
    "run_name per_device_batch_size max_target_length steps num_epoch learning_rate "              \
    "warmup_steps_fraction dtype checkpoint_period eval_interval eval_steps "

static const Start starts[] = {
    {
        .kind = "pretrain",
        .does = "a model from nothing, on text",
        .usual = "run_name: pretrain\n",
        .is = {"use_sft=false", "use_dpo=false"},
        .keys =
            USUAL_KEYS "text_train_files vocab_size base_emb_dim base_mlp_dim "
                       "base_num_decoder_layers base_num_query_heads base_num_kv_heads head_dim",
    },
    {
        .kind = "sft",
        .does = "supervised fine-tuning on prompts and completions, or on conversations",
        .data = "posttrain/sft_train.jsonl",
        .usual = "run_name: sft\n",
        .is = {"use_sft=true", "use_dpo=false"},
        .keys = USUAL_KEYS "sft_train_on_completion_only packing load_parameters_path",
    },
    {
        .kind = "lora",
        .does = "low-rank adapters on frozen weights, fine-tuned as by sft",
        .data = "posttrain/sft_train.jsonl",
        .usual = "run_name: lora\nlora: {lora_rank: 8, lora_alpha: 16}\n",
        .is = {"use_sft=true", "use_dpo=false", "lora.enable_lora=true"},
        .keys = USUAL_KEYS "sft_train_on_completion_only packing load_parameters_path "
                           "lora.lora_module_path lora.modules_to_save "
                           "lora.lora_weight_qtype",
    },
    {
        .kind = "dpo",
        .does = "direct preference optimization on pairs of responses",
        .data = "posttrain/preference_train.jsonl",
        .usual = "run_name: dpo\nlearning_rate: 2.0e-6\n",
        .is = {"use_sft=false", "use_dpo=true", "packing=false"},
        .keys = USUAL_KEYS "load_parameters_path dpo.algo dpo.dpo_beta",
    },
};

bool mxtrain_start(const char *kind, const Start **out, MxError *err) {
    for (int i = 0; i < MX_COUNT(starts); i++)
        if (!strcmp(starts[i].kind, kind)) {
            *out = &starts[i];
            return true;
        }
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "--init: \"%s\" is no kind of training; wants one of " START_KINDS, kind);
}

bool mxtrain_init(const CommandLine *line, MxArena *arena, const MxConfig *config, MxError *err) {
    const char *path = line->page_path ? line->page_path : "-";
    MxText text;
    mx_text_init(&text, arena);
    if (strcmp(path, "-") && mx_file_exists(path))
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                       "\"%s\" exists already; --init replaces no file", path);
    mx_text_add(&text,
                "# %s: %s. Made by mxtrain --init.\n"
                "#   mxtrain --config FILE            runs it\n"
                "#   mxtrain --plan --config FILE     shows memory and work\n"
                "#   mxtrain --help-config KEY        explains a key\n",
                line->start->kind, line->start->does);
    mx_config_start(&text, config, line->start->keys);
    return mxtrain_put(path, text.data, err);
}
