/* acts.c — a key that is set where it cannot act is told, and only there. */
#include "config_tests.h"

#include <mx/family.h>

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

/* Those with another condition too. */
static const MxKey tested[] = {
#define MX_ACTS(key_, needs_, values_)
#define MX_ACTS_IF(key_, test_) MX_KEY_##key_,
#include <mx/config_acts.def>
#undef MX_ACTS_IF
#undef MX_ACTS
};

static bool is_tested(MxKey key) {
    int i = 0;
    while (i < MX_COUNT(tested) && tested[i] != key) i++;
    return i < MX_COUNT(tested);
}

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
        {MX_KEY_data_changed, "accept"},
        {MX_KEY_dpo_algo, "ipo"},
        {MX_KEY_dpo_formula, "maxtext"},
        {MX_KEY_dpo_divergence, "js_divergence"},
        {MX_KEY_dpo_loss_weights, "{sft: 1}"},
        {MX_KEY_kto_loss, "apo_zero_unpaired"},
        {MX_KEY_sft_loss, "dft"},
        {MX_KEY_dpo_reference, "copy"},
        {MX_KEY_tokenizer_type, "tiktoken"},
        {MX_KEY_wsd_decay_style, "cosine"},
        {MX_KEY_matmul_precision, "high"},
        {MX_KEY_grain_file_type, "tfrecord"},
        {MX_KEY_routed_score_func, "sigmoid"},
        {MX_KEY_log_expert_load, "layers"},
        {MX_KEY_posemb_type_for_vit, "sincos2d"},
        {MX_KEY_rl_loss_algo, "rloo"},
        {MX_KEY_rl_loss_agg_mode, "token-mean"},
        {MX_KEY_rl_importance_sampling_level, "sequence"},
        {MX_KEY_rl_scale_rewards, "batch"},
        {MX_KEY_rl_kl_loss_mode, "kl"},
        {MX_KEY_rl_reward, "exact"},
        {MX_KEY_vision_encoder_block, "gemma3"},
        {MX_KEY_num_channels_for_vit, "4"},
        {MX_KEY_global_rope_proportion, "0.5"},
        {MX_KEY_optimizer_state_dtype, "int8"},
        {MX_KEY_lora_weight_qtype, "nf4"},
        {MX_KEY_weight_calibration, "rms,3"},
        {MX_KEY_act_calibration, "fixed,2"},
        {MX_KEY_bwd_calibration, "absmax,0.5"},
        {MX_KEY_drhs_calibration, "rms,3"},
        {MX_KEY_kv_quant_axis, "dkv"},
        {MX_KEY_kv_quant_dtype, "int4"},
        {MX_KEY_block_diffusion_logit_alignment, "shifted"},
        {MX_KEY_block_diffusion_canvas_policy, "seed_and_mask"},
    };
    const char *type = built[key].type;
    for (int i = 0; i < MX_COUNT(words); i++)
        if (words[i].key == key) return words[i].word;
    ck_assert_msg(strcmp(type, "choice") != 0, "%s: no other word", mx_key_name(key));
    if (!strcmp(type, "bool")) return strcmp(built[key].fallback, "true") ? "true" : "false";
    if (!strcmp(type, "int")) return "3";
    return !strcmp(type, "float") ? "0.25" : "x";
}

static const struct {
    const char *name, *keys;
} optimizers[] = {
#define MX_OPTIMIZER(name_, keys_) {#name_, keys_},
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
};

/* Whether a word is one of those in a list with blanks between. */
static bool lists(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

/* A family that lists a key. */
static const char *family_of(const char *key) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int i = 0; i < n; i++)
        if (families[i]->keys && lists(families[i]->keys, key)) return families[i]->decoder_block;
    ck_abort_msg("%s: no family lists it", key);
    return NULL;
}

/* What lets a key act that only optimizers have. */
static const char *optimizer_for(MxArena *arena, const char *key) {
    for (int i = 0; i < MX_COUNT(optimizers); i++)
        if (lists(optimizers[i].keys, key))
            return mx_arena_printf(arena, "\nopt_type=%s", optimizers[i].name);
    return "";
}

/* What turns on what takes more than its own key. */
#define ALONE "\npacking=false\ndataset_type=hf\nhf_train_files=x"
static const struct {
    MxKey key;
    const char *set;
} modes[] = {
    {MX_KEY_enable_lora, "lora.enable_lora=true\nlora.lora_rank=4\nlora.lora_alpha=4"},
    {MX_KEY_enable_streaming_diloco,
     "enable_diloco=true\nenable_streaming_diloco=true\nnum_diloco_fragments=2"},
    {MX_KEY_use_kto, "use_kto=true" ALONE},
    {MX_KEY_use_grpo, "use_grpo=true\nrl.num_iterations=2" ALONE},
    {MX_KEY_use_dpo, "use_dpo=true" ALONE},
    {MX_KEY_use_qk_clip, "use_qk_clip=true\ndecoder_block=deepseek\nattention_type=mla"},
    {MX_KEY_use_multimodal, "use_multimodal=true\npacking=false\nvision_encoder_block=gemma3\n"
                            "decoder_block=gemma3\nsliding_window_size=64"},
    {MX_KEY_use_indexer, "use_indexer=true\ndecoder_block=deepseek\nattention_type=mla\n"
                         "q_lora_rank=64\nmax_target_length=4096"},
};

/* "needs=" one of the values, or what it is not (no word of a value that is in the list). */
static const char *setting(MxArena *arena, int i, bool holds) {
    MxKey needs = conditions[i].needs;
    const char *type = built[needs].type, *name = mx_key_name(needs);
    int n = (int)strcspn(conditions[i].values, " ");
    bool is_inverse = !strcmp(conditions[i].values, "false");
    for (int j = 0; j < MX_COUNT(modes); j++)
        if (modes[j].key == needs && (is_inverse ? !holds : holds)) return modes[j].set;
    if (!strcmp(type, "float")) return mx_arena_printf(arena, "%s=%s", name, holds ? "0.5" : "0");
    if (!strcmp(type, "bool"))
        return mx_arena_printf(arena, "%s=%s", name, holds != is_inverse ? "true" : "false");
    bool is_open = needs == MX_KEY_n_routing_groups || needs == MX_KEY_nope_layer_interval;
    int none = is_open ? -1 : 0;
    if (!strcmp(type, "int")) return mx_arena_printf(arena, "%s=%d", name, holds ? 2 : none);
    if (!strcmp(type, "str")) return mx_arena_printf(arena, "%s=%s", name, holds ? "v5e-8" : "");
    if (!strcmp(type, "strs")) return mx_arena_printf(arena, "%s=%s", name, holds ? "[x]" : "[]");
    if (needs == MX_KEY_decoder_block && holds)
        return mx_arena_printf(arena, "%s=%s", name, family_of(mx_key_name(conditions[i].key)));
    if (holds) return mx_arena_printf(arena, "%s=%.*s", name, n, conditions[i].values);
    static const struct {
        MxKey key;
        const char *word;
    } others[] = {
        {MX_KEY_decoder_block, "llama2"},
        {MX_KEY_attention_type, "full"},
        {MX_KEY_rope_type, "default"},
        {MX_KEY_dataset_type, "synthetic"},
        {MX_KEY_dataset_type, "hdf5\nhdf5_train_files=x\nhdf5_eval_files=x"},
        {MX_KEY_dpo_reference, "copy"},
        {MX_KEY_dpo_algo, "dpo"},
        {MX_KEY_dpo_algo, "bco_pair"},
        {MX_KEY_dpo_formula, "maxtext"},
        {MX_KEY_dpo_divergence, "forward_kl"},
        {MX_KEY_sft_loss, "dft"},
        {MX_KEY_rl_reward, "data"},
        {MX_KEY_rl_loss_algo, "sapo"},
        {MX_KEY_rl_loss_algo, "vespo"},
        {MX_KEY_rl_loss_algo, "rloo"},
        {MX_KEY_opt_type, "sgd"},
        {MX_KEY_lr_schedule_type, "cosine"},
        {MX_KEY_tokenizer_type, "byte"},
        {MX_KEY_dtype, "bfloat16"},
        {MX_KEY_quantization, "''"},
        {MX_KEY_routed_score_func, "softmax"},
        {MX_KEY_lora_weight_qtype, "''"},
        {MX_KEY_training_objective, "causal_lm"},
        {MX_KEY_training_objective, "block_diffusion\nattention_type=block_diffusion\nblock_"
                                    "diffusion_mask_id=1\npacking=false"},
        {MX_KEY_vision_encoder_block, "''"},
        {MX_KEY_profiler, "''"},
        {MX_KEY_gradient_exchange_dtype, "int8"},
    };
    for (int j = 0; j < MX_COUNT(others); j++)
        if (others[j].key == needs && !strstr(conditions[i].values, others[j].word))
            return mx_arena_printf(arena, "%s=%s", name, others[j].word);
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
        const char *set = mx_arena_printf(&arena, "%s=%s%s", mx_key_name(key), another(key),
                                          optimizer_for(&arena, mx_key_name(key)));
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
        if (l.ok && !is_tested(key)) ck_assert_msg(!is_told(&l, key), "%s", all.data);
        n_quiet += l.ok;
        unload(&l);
    }
    ck_assert_int_ge(n_quiet, MX_COUNT(conditions) * 2 / 5); /* the others want files and sizes */
    mx_arena_release(&arena);
}
END_TEST

/* A key that optimizers list acts in these alone. */
START_TEST(keys_of_other_optimizers_are_told) {
    MxArena arena = {.name = "test"};
    int n = 0;
    for (int i = 0; i < MX_COUNT(optimizers); i++)
        for (int key = 0; key < MX_KEY_COUNT; key++) {
            const char *name = mx_key_name((MxKey)key);
            bool is_listed = false;
            for (int k = 0; k < MX_COUNT(optimizers); k++)
                is_listed = is_listed || lists(optimizers[k].keys, name);
            if (!is_listed) continue;
            Loaded l = load_config("",
                                   mx_arena_printf(&arena, "%s=%s\nopt_type=%s", name,
                                                   another((MxKey)key), optimizers[i].name),
                                   NULL);
            ck_assert_msg(l.ok, "%s: %s", name, l.err.text.data);
            bool acts = lists(optimizers[i].keys, name);
            ck_assert_msg(is_told(&l, (MxKey)key) == !acts, "%s under %s", name,
                          optimizers[i].name);
            n += acts;
            unload(&l);
        }
    ck_assert_int_ge(n, 20);
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

/* What several keys decide together. */
#define OWN "\ndataset_type=hf\nhf_train_files=x"
static const struct {
    MxKey key;
    const char *set;
    bool acts;
} together[] = {
    {MX_KEY_shard_optimizer_over_data,
     "shard_optimizer_over_data=true\nnum_devices=2\nici_data_parallelism=2", true},
    {MX_KEY_shard_optimizer_over_data,
     "shard_optimizer_over_data=true\nnum_devices=2\nici_data_parallelism=-1", true},
    {MX_KEY_shard_optimizer_over_data,
     "shard_optimizer_over_data=true\nnum_devices=2\nici_fsdp_parallelism=2", false},
    {MX_KEY_tokenize_eval_data, "tokenize_eval_data=false\nhf_eval_files=x" OWN, true},
    {MX_KEY_tokenize_eval_data, "tokenize_eval_data=false" OWN, false},
    {MX_KEY_eval_data_columns, "eval_data_columns=[x]\nhf_eval_files=x" OWN, true},
    {MX_KEY_eval_data_columns, "eval_data_columns=[x]" OWN, false},
    {MX_KEY_add_bos, "add_bos=false" OWN, true},
    {MX_KEY_add_bos, "add_bos=false\ntokenize_train_data=false" OWN, false},
    {MX_KEY_add_bos, "add_bos=false\ntokenize_train_data=false\nhf_eval_files=x" OWN, true},
};

START_TEST(keys_of_several_others_are_told) {
    Loaded l = load_config("", together[_i].set, NULL);
    ck_assert_msg(l.ok, "%s: %s", together[_i].set, l.err.text.data);
    ck_assert_msg(is_told(&l, together[_i].key) != together[_i].acts, "%s", together[_i].set);
    unload(&l);
}
END_TEST

TCase *act_cases(void) {
    TCase *tc = tcase_create("acts");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, keys_that_cannot_act_are_told);
    tcase_add_test(tc, keys_of_other_optimizers_are_told);
    tcase_add_loop_test(tc, shares_beside_files_are_told, 0, MX_COUNT(shares));
    tcase_add_loop_test(tc, keys_of_several_others_are_told, 0, MX_COUNT(together));
    return tc;
}
