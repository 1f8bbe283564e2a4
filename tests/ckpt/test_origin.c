/* test_origin.c — weights go only where they belong: tokens of the tokenizer that they were trained
 * with, wherever the weights have been meanwhile, and a model of their sizes. As a black box. */
#include "tools.h"

#include <stdio.h>
#include <unistd.h>

/* A small run on bytes; {} is the test's folder. */
static const char run[] =
    "mxtrain --config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 "
    "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 "
    "per_device_batch_size=2 eval_interval=-1 log_config=false base_output_directory={} "
    "text_train_files=share/mxtrain/corpus/shakespeare_train.txt";
static const char on_ids[] = "dataset_type=synthetic"; /* like hdf5: no tokenizer makes them */

#define ADAPTED "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4"

/* A run "a" on bytes, and its weights in "hf" as if somebody else had trained them. */
static void make_foreign_folder(void) {
    ck_tool(0, "%s run_name=a steps=1", run);
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_assert_int_eq(unlink(in_folder("hf/MANIFEST.json")), 0);
}

/* By a run, and by what tells of it beforehand: plans once said OK. */
static void ck_refused(const char *words, const char *type) {
    static const char *const ways[] = {"", "--plan", "--check"};
    for (int i = 0; i < MX_COUNT(ways); i++) {
        ck_tool(2, "%s run_name=refused steps=9 %s %s", run, ways[i], words);
        ck_says(mx_arena_printf(&arena, "were trained with the tokenizer \"%s\"", type));
        ck_says(mx_arena_printf(
            &arena, "hint: tokenizer_type=%s tokenizer_path=FILE_OR_FOLDER makes", type));
        ck_assert_ptr_null(strstr(output, "plan of "));
    }
}

/* Weights on their way: folders, files, other layouts, runs on ids, adapters. */
static const char *const ways[] = {
    "mxconvert {}/hf {}/c",
    "mxconvert {}/hf {}/c.h5 --layout linen --scan-layers false",
    "mxconvert {}/c.h5 {}/d",
    "mxconvert {}/c {}/d.h5",
};

START_TEST(weights_keep_their_tokenizer) {
    static const char *const places[] = {"hf", "c", "c.h5", "d", "d.h5"};
    const char *folder_words = mx_arena_printf(&arena, "load_parameters_path=%s", folder);
    make_foreign_folder();
    for (int i = 0; i < MX_COUNT(ways); i++) ck_tool(0, "%s", ways[i]);
    for (int i = 0; i < MX_COUNT(places); i++) {
        const char *words = mx_arena_printf(&arena, "%s/%s", folder_words, places[i]);
        ck_refused(words, "huggingface");
        ck_refused(mx_arena_printf(&arena, "--eval %s", words), "huggingface");
        ck_tool(0, "%s run_name=ids%d steps=1 %s %s", run, i, on_ids, words);
    }
    ck_refused(mx_arena_printf(&arena, "%s/ids4", folder_words), "huggingface");
    ck_refused(mx_arena_printf(&arena, "load_full_state_path=%s/ids4", folder), "huggingface");
    /* A run that goes on keeps what it began with, and so do adapters over it. */
    ck_refused("run_name=ids4", "huggingface");
    ck_tool(0, "%s --plan run_name=ids4 steps=9 %s", run, on_ids);
    ck_tool(0, "%s --plan run_name=new steps=9 %s %s/c", run, on_ids, folder_words);
    ck_tool(0, "%s --plan load_parameters_path=gs://b/c load_full_state_path=", run);
    ck_tool(0, "%s run_name=over steps=1 %s %s/ids4 " ADAPTED, run, on_ids, folder_words);
    ck_tool(2, "%s run_name=over steps=2 %s/ids4 " ADAPTED, run, folder_words);
    ck_tool(0, "mxconvert {}/over {}/merged --merge-lora");
    ck_refused(mx_arena_printf(&arena, "%s/merged", folder_words), "huggingface");
    ck_tool(0, "mxconvert {}/over {}/peft --to-peft");
    ck_refused(mx_arena_printf(&arena, "lora.lora_restore_path=%s/peft " ADAPTED, folder),
               "huggingface");
}
END_TEST

/* Of bytes are weights that a run of ours trained on text, also when they come back from there. */
START_TEST(bytes_stay_bytes) {
    ck_tool(0, "%s run_name=a steps=1", run);
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_tool(0, "mxconvert {}/hf {}/c");
    static const char *const places[] = {"a", "hf", "c"};
    for (int i = 0; i < MX_COUNT(places); i++)
        ck_tool(0, "%s run_name=b%d steps=1 load_parameters_path=%s/%s", run, i, folder, places[i]);
}
END_TEST

/* Tokenizer, generation_config.json and ids of special tokens go all the way: into a checkpoint,
 * through a run, and out again. An export of a run on bytes has the ids of bytes. */
START_TEST(a_tokenizer_is_carried_along) {
    static const char tokenizer[] = "{\"a\": 1}", settings[] = "{\"do_sample\": true}";
    make_foreign_folder();
    const char *config = (const char *)content("hf/config.json").data;
    ck_assert(strstr(config, "\"bos_token_id\": 256") && strstr(config, "\"eos_token_id\": 257"));
    ck_assert(strstr(config, "\"rms_norm_eps\": 1e-05"));
    const char *mark = "\"eos_token_id\": ", *at = strstr(config, mark) + strlen(mark);
    const char *other = mx_arena_printf(&arena, "%.*s[7, 8]%s", (int)(at - config), config, at + 3);
    put_content("hf/config.json", other, strlen(other));
    put_content("hf/tokenizer.json", tokenizer, strlen(tokenizer));
    put_content("hf/generation_config.json", settings, strlen(settings));
    ck_tool(0, "mxconvert {}/hf {}/c");
    ck_says("carried along: generation_config.json, tokenizer.json of ");
    ck_same_bytes("hf/tokenizer.json", "c/tokenizer.json");
    ck_tool(0, "%s run_name=more steps=1 %s load_parameters_path=%s/c", run, on_ids, folder);
    static const char *const sources[] = {"more", "c", "hf"};
    for (int i = 0; i < MX_COUNT(sources); i++) {
        ck_tool(0, "mxconvert {}/%s {}/out%d --to-hf", sources[i], i);
        const char *out = mx_arena_printf(&arena, "out%d/", i);
        ck_same_bytes("hf/tokenizer.json", mx_arena_printf(&arena, "%stokenizer.json", out));
        ck_same_bytes("hf/generation_config.json",
                      mx_arena_printf(&arena, "%sgeneration_config.json", out));
        MxBytes made = content(mx_arena_printf(&arena, "%sconfig.json", out));
        const MxJson *json = mx_json_parse(&arena, (const char *)made.data, made.size, out, &err);
        ck_assert(json && mx_json_length(mx_json_get(json, "eos_token_id")) == 2);
        ck_tool(0, "mxconvert {}/%s {}/out%d --to-hf --force", sources[i], i);
    }
}
END_TEST

/* The tokenizer of a golden file in a folder of the test. */
static void put_tokenizer(const char *dir) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "tokenizer_config.json"};
    ck_assert(mx_dir_make(in_folder(dir), &err));
    for (int i = 0; i < MX_COUNT(names); i++) {
        MxBytes bytes;
        const char *from =
            mx_arena_printf(&arena, "tests/golden/hf/tokenizers/llama2/%s", names[i]);
        ck_assert(mx_file_read(&arena, from, 1 << 20, &bytes, &err));
        put_content(mx_arena_printf(&arena, "%s/%s", dir, names[i]), bytes.data, bytes.size);
    }
}

/* A run on text with the model in "c", which came from a folder with a tokenizer. */
static const char on_text[] =
    "mxtrain --config {}/c/model.yml load_parameters_path={}/c max_target_length=32 "
    "per_device_batch_size=2 eval_interval=-1 base_output_directory={} "
    "text_train_files=share/mxtrain/corpus/shakespeare_train.txt";

static void make_model_with_tokenizer(void) {
    ck_tool(0, "%s run_name=a steps=1 vocab_size=1000 %s", run, on_ids);
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_assert_int_eq(unlink(in_folder("hf/MANIFEST.json")), 0);
    put_tokenizer("hf");
    ck_tool(0, "mxconvert {}/hf {}/c");
}

/* From a folder of Hugging Face's, with its tokenizer, through runs on text and out again. */
START_TEST(text_goes_with_the_tokenizer_of_the_weights) {
    make_model_with_tokenizer();
    const char *model = (const char *)content("c/model.yml").data;
    ck_assert_msg(strstr(model, "\ntokenizer_type: huggingface\n") != NULL, "%s", model);
    ck_tool(0, "%s run_name=t steps=2", on_text);
    ck_says("training data: text: share/mxtrain/corpus/shakespeare_train.txt, ");
    /* What a row shows is the text again, behind bos (1). */
    ck_tool(0, "%s run_name=t --check steps=3 enable_data_shuffling=false", on_text);
    ck_says("count: \"First Citizen:");
    ck_says("    ids 1\n");
    /* The same tokenizer as a model of sentencepiece, wherever it lies. */
    put_tokenizer("more");
    ck_tool(0,
            "%s run_name=s steps=1 tokenizer_type=sentencepiece "
            "tokenizer_path={}/more/tokenizer.model",
            on_text);
    ck_tool(0, "%s run_name=t steps=3 tokenizer_path={}/more", on_text);
    /* The run knows what it was trained with. */
    ck_tool(0, "mxdecode {}/t --tokenize");
    /* Out again, as it came. */
    ck_tool(0, "mxconvert {}/t {}/out --to-hf");
    ck_same_bytes("hf/tokenizer.json", "out/tokenizer.json");
    ck_same_bytes("hf/tokenizer.model", "out/tokenizer.model");
}
END_TEST

/* Another one means nothing to the weights, and neither do bytes. */
START_TEST(another_tokenizer_is_refused) {
    make_model_with_tokenizer();
    put_tokenizer("more");
    MxBytes bytes = content("more/tokenizer.json");
    put_content("more/tokenizer.json", mx_arena_printf(&arena, "%s\n", (char *)bytes.data),
                bytes.size + 1);
    ck_tool(2, "%s run_name=u steps=1 tokenizer_path={}/more", on_text);
    ck_says("makes tokens with another \"huggingface\" of \"");
    ck_tool(2, "%s run_name=u steps=1 tokenizer_type=byte", on_text);
    ck_says("hint: tokenizer_type=huggingface tokenizer_path=FILE_OR_FOLDER makes");
    ck_tool(65, "%s run_name=u steps=1 tokenizer_path=someone/model", on_text);
    ck_says("tokenizer_path: \"someone/model\" is no file or folder here");
    ck_tool(2, "%s run_name=u steps=1 vocab_size=600 load_parameters_path= tokenizer_path={}/hf",
            on_text);
    ck_says("tokenizer \"huggingface\" has 900 tokens, vocab_size is 600");
}
END_TEST

/* One message instead of one an array, with the command that helps. */
START_TEST(other_sizes_are_told_at_once) {
    make_foreign_folder();
    ck_tool(0, "mxconvert {}/hf {}/c");
    ck_tool(2, "%s run_name=b steps=1 %s load_parameters_path={}/hf base_emb_dim=64 head_dim=32",
            run, on_ids);
    ck_says(
        "holds another model than this config: base_emb_dim=32 (here 64), head_dim=16 (here 32)");
    ck_says(mx_arena_printf(&arena, "hint: mxconvert %s/hf DST writes DST/model.yml", folder));
    ck_assert_msg(!strstr(output, "the model wants"), "%s", output);
    ck_assert(!mx_dir_exists(in_folder("b")) || !mx_file_exists(in_folder("b/config.yml")));
    ck_tool(2, "%s run_name=b steps=1 %s load_parameters_path={}/c decoder_block=qwen3", run,
            on_ids);
    ck_says("another model than this config: decoder_block=llama2 (here qwen3)");
    ck_tool(2, "%s --plan %s load_parameters_path={}/c decoder_block=qwen3", run, on_ids);
    ck_says("another model than this config: decoder_block=llama2 (here qwen3)");
    ck_says(mx_arena_printf(&arena, "hint: mxtrain --config %s/c/model.yml", folder));
}
END_TEST

/* What a run of that name cannot change, its plan does not promise. */
START_TEST(a_plan_goes_by_the_run_s_checkpoints) {
    ck_tool(0, "%s run_name=a steps=1 checkpoint_period=1", run);
    ck_tool(0, "%s --plan run_name=a steps=2 learning_rate=1e-5", run);
    ck_says("learning_rate: 0.001 -> 1e-05 since ");
    ck_tool(2, "%s --plan run_name=a steps=2 base_mlp_dim=32", run);
    ck_says("base_mlp_dim: 32, but \"");
    ck_tool(0, "%s --plan run_name=b steps=2 base_mlp_dim=32", run);
    put_content("a/checkpoints/0/MANIFEST.json", "x", 1);
    ck_tool(65, "%s --plan run_name=a steps=2", run);
    ck_says("none of 1 checkpoints verifies");
}
END_TEST

/* A run may hold the kernels of its base in another form than the base's own config tells: queries
 * that are not scaled. They are the weights below its adapters all the same. */
START_TEST(heads_in_the_form_of_the_run) {
    ck_tool(0, "%s run_name=a steps=1 %s", run, on_ids);
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_tool(
        0,
        "%s run_name=over steps=2 %s query_pre_attn_scalar=16 load_parameters_path={}/hf " ADAPTED,
        run, on_ids);
    ck_tool(0, "mxconvert {}/over {}/merged --merge-lora");
    ck_says("they were trained over these weights (fingerprint)");
    ck_tool(0, "mxconvert {}/over {}/back --merge-lora --to-hf");
    ck_tool(0, "mxcompare {}/merged {}/back");
}
END_TEST

Suite *origin_suite(void) {
    Suite *suite = suite_create("ckpt/origin");
    TCase *tcase = add_case(suite, "origin");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, weights_keep_their_tokenizer);
    tcase_add_test(tcase, bytes_stay_bytes);
    tcase_add_test(tcase, a_tokenizer_is_carried_along);
    tcase_add_test(tcase, text_goes_with_the_tokenizer_of_the_weights);
    tcase_add_test(tcase, another_tokenizer_is_refused);
    tcase_add_test(tcase, other_sizes_are_told_at_once);
    tcase_add_test(tcase, a_plan_goes_by_the_run_s_checkpoints);
    tcase_add_test(tcase, heads_in_the_form_of_the_run);
    return suite;
}
