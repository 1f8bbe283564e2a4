/* test_talks.c — conversations as rows: TRL's tokens and labels, turns that count and do not, pairs
 * of them, and what is said of those that are none. */
#include "data_test.h"

/* ---- TRL's batches */

static const char *need(const char *name) {
    return goldens_need(&arena, name);
}

/* Rows of a file of golden/hf/datasets with the tokenizer that TRL's runs had. */
static MxDataConfig trl_config(const char *file, int64_t rows, int64_t length) {
    MxTokenizer *tokenizer;
    const char *dir = mx_path_dir(&arena, need("hf/tokenizers/qwen/tokenizer.json"));
    ck_assert(mx_tokenizer_open(&arena, "huggingface", dir, &tokenizer, &err));
    return (MxDataConfig){.kind = "hf",
                          .path = need(mx_arena_printf(&arena, "hf/datasets/%s", file)),
                          .tokenizer = tokenizer,
                          .rows = rows,
                          .length = length,
                          .vocab = 1100,
                          .n_epochs = 1,
                          .is_sft = true,
                          .completion_only = true};
}

static MxBatch first_batch(MxDataConfig config) {
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(&config), config.length);
    MxDataStatus status = mx_data_batch(open_data(config), 0, &batch, &err);
    ck_assert_msg(status == MX_DATA_OK, "%s", err.count ? err.text.data : "the end");
    return batch;
}

static const struct {
    const char *run, *data, *template;
    bool completion_only;
    int64_t length;
} runs[] = {
    {"sft_assistant_only", "messages.jsonl", "chatml_train", true, 128},
    {"sft_completion_only", "prompt_completion.jsonl", NULL, true, 48},
    {"sft_full_sequence", "prompt_completion.jsonl", NULL, false, 48},
};

/* Whether row r holds what TRL's row does: ids where it attends, and a label where a token counts.
 */
static bool is_row(const MxBatch *batch, int64_t r, const int64_t *ids, const int64_t *labels,
                   const int64_t *attends) {
    const int32_t *inputs = batch->field[MX_INPUTS] + r * batch->length;
    const int32_t *counts = batch->field[MX_TARGETS_SEGMENTATION] + r * batch->length;
    for (int64_t t = 0; t < batch->length; t++) {
        if (attends[t] && inputs[t] != ids[t]) return false;
        if (t && (counts[t - 1] != 0) != (labels[t] != -100)) return false;
        if (!attends[t] && batch->field[MX_INPUTS_SEGMENTATION][r * batch->length + t])
            return false;
    }
    return true;
}

START_TEST(rows_are_trls) {
    enum { ROWS = 6, MOST = ROWS * 128 };
    static int64_t ids[MOST], labels[MOST], attends[MOST];
    MxH5 *file;
    MxShape shape = MX_SHAPE(ROWS, runs[_i].length);
    const char *path =
        goldens_find(&arena, mx_arena_printf(&arena, "hf/trl/runs/%s/expected.h5", runs[_i].run));
    if (!path) return;
    bool ok = mx_h5_open(&arena, path, &file, &err) &&
              mx_h5_read(file, "batch_one_order/input_ids", MX_I64, shape, ids, &err) &&
              mx_h5_read(file, "batch_one_order/labels", MX_I64, shape, labels, &err) &&
              mx_h5_read(file, "batch_one_order/attention_mask", MX_I64, shape, attends, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    MxDataConfig config = trl_config(runs[_i].data, ROWS, runs[_i].length);
    config.completion_only = runs[_i].completion_only;
    if (runs[_i].template)
        config.chat.named =
            need(mx_arena_printf(&arena, "hf/chat/templates/%s.jinja", runs[_i].template));
    MxBatch batch = first_batch(config);
    for (int64_t r = 0; r < ROWS; r++) { /* TRL shuffles them */
        bool found = false;
        for (int64_t k = 0; k < ROWS * runs[_i].length; k += runs[_i].length)
            found = found || is_row(&batch, r, ids + k, labels + k, attends + k);
        ck_assert_msg(found, "%s: row %lld", runs[_i].run, (long long)r);
    }
}
END_TEST

/* TRL's ids of both records: eos is not doubled where a completion ends with it. */
START_TEST(an_end_is_not_doubled) {
    static const int32_t want[2][17] = {
        {693, 271, 350, 220, 17, 582, 220, 17, 30, 394, 83, 350, 220, 19, 13, 1002, 0},
        {693, 271, 350, 220, 17, 582, 220, 17, 30, 394, 83, 350, 220, 20, 13, 1002, 0}};
    MxDataConfig config = trl_config("prompt_completion.jsonl", 2, MX_COUNT(want[0]));
    config.omits_bos = true;
    config.path = put("ends.jsonl",
                      "{\"prompt\": \"What is 2 + 2?\", \"completion\": \" It is 4.<|im_end|>\"}\n"
                      "{\"prompt\": \"What is 2 + 2?\", \"completion\": \" It is 5.\"}\n");
    MxBatch batch = first_batch(config);
    for (int r = 0; r < 2; r++)
        ck_assert_mem_eq(batch.field[MX_INPUTS] + r * batch.length, want[r], sizeof want[r]);
    config.is_sft = config.completion_only = false; /* pre-training, as in MaxText */
    config.columns = &(const char *){"completion"};
    config.n_columns = 1;
    batch = first_batch(config);
    ck_assert_int_eq(batch.field[MX_INPUTS][6], 1002);
    ck_assert_int_eq(batch.field[MX_INPUTS][7], 1002);
}
END_TEST

/* ---- all forms of one conversation */

static MxDataConfig byte_config(const char *lines, int64_t length) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = length;
    config.packing = false;
    config.is_sft = config.completion_only = true;
    config.chat.named =
        put("t.jinja", "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}"
                       "{% generation %}{{ m.content + '.' }}{% endgeneration %}{% else %}"
                       "{{ m.content }}{% endif %}{% endfor %}"
                       "{% if add_generation_prompt %}a{% endif %}");
    return config;
}

#define A_USER(text)   "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A_ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

START_TEST(turns_count) {
    MxDataConfig config = byte_config("{\"messages\": [" A_USER("1") ", " A_ANSWER("2") ", " A_USER(
                                          "3") ", " A_ANSWER("4") "]}\n",
                                      12);
    MxBatch batch = first_batch(config);
    ck_row(batch, MX_INPUTS, 0, 'u', '1', 'a', '2', '.', 'u', '3', 'a', '4', '.', 0, 0);
    ck_row(batch, MX_TARGETS, 0, 0, 0, '2', '.', 0, 0, 0, '4', '.', 0, 0, 0);
    ck_assert_ptr_nonnull(
        strstr(mx_data_describe(open_data(config)), "10 tokens, 4 of them count"));
    config.length = 9; /* which ends in the second answer */
    batch = first_batch(config);
    ck_row(batch, MX_TARGETS, 0, 0, 0, '2', '.', 0, 0, 0, '4', 0);
    config.completion_only = false;
    batch = first_batch(config);
    ck_row(batch, MX_TARGETS, 0, '1', 'a', '2', '.', 'u', '3', 'a', '4', 0);
    config.length = 3; /* nothing that counts is left */
    config.completion_only = true;
    ck_refused(config, "a.jsonl:1: no token counts");
}
END_TEST

static const char *const same[] = {
    "{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "]}\n",
    "{\"prompt\": [" A_USER("1") "], \"completion\": [" A_ANSWER("2") "]}\n",
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"1\"}, {\"from\": \"gpt\", \"value\": "
    "\"2\"}]}\n",
    "{\"conversations\": [" A_USER("1") ", " A_ANSWER("2") "], \"tools\": null}\n",
};

START_TEST(forms_are_the_same) {
    MxBatch batch = first_batch(byte_config(same[_i], 8));
    ck_row(batch, MX_INPUTS, 0, 'u', '1', 'a', '2', '.', 0, 0, 0);
    ck_row(batch, MX_TARGETS, 0, 0, 0, '2', '.', 0, 0, 0, 0);
}
END_TEST

static const char *const same_pairs[] = {
    "{\"prompt\": [" A_USER("1") "], \"chosen\": [" A_ANSWER("2") "], \"rejected\": [" A_ANSWER(
        "3") "]}\n",
    "{\"chosen\": [" A_USER("1") ", " A_ANSWER("2") "], \"rejected\": [" A_USER("1") ", " A_ANSWER(
        "3") "]}\n",
};

START_TEST(pairs_are_the_same) {
    MxDataConfig config = byte_config(same_pairs[_i], 8);
    config.is_sft = config.completion_only = false;
    config.pairs = MX_DATA_PAIRS_STANDARD;
    config.max_prompt_length = 4;
    MxBatch batch = first_batch(config);
    ck_row(batch, MX_INPUTS, 0, 'u', '1', 'a', '2', '.', 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, 'u', '1', 'a', '3', '.', 0, 0, 0);
    for (int r = 0; r < 2; r++) ck_row(batch, MX_TARGETS_SEGMENTATION, r, 0, 0, 1, 1, 0, 0, 0, 0);
}
END_TEST

/* What the record names reaches the template: tools, with whole numbers as they stand, or their
 * JSON; the template's own variables come first, as in TRL. */
static const char *const tooled[] = {
    "\"tools\": [{\"n\": 7}], \"chat_template_kwargs\": {\"x\": true}",
    "\"tools\": \"[{\\\"n\\\": 7}]\", \"chat_template_kwargs\": \"{\\\"x\\\": true}\"",
    "\"tools\": [], \"chat_template_kwargs\": {\"x\": true, \"tools\": [{\"n\": 7}]}",
};

START_TEST(template_gets_tools) {
    const char *line = mx_arena_printf(
        &arena, "{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "], %s}\n", tooled[_i]);
    MxDataConfig config = byte_config(line, 24);
    config.chat.named = put("t.jinja", "{{ tools|tojson }}{{ x }}{% generation %}{{ "
                                       "messages[1].content }}{% endgeneration %}");
    MxBatch batch = first_batch(config);
    static const char text[] = "[{\"n\": 7}]True2";
    for (int i = 0; text[i]; i++) ck_assert_int_eq(batch.field[MX_INPUTS][i], text[i]);
}
END_TEST

/* ---- what is told */

static const struct {
    const char *lines, *words;
} bad[] = {
    {"{\"messages\": []}\n", "a.jsonl:1: \"messages\" is empty; wanted a list of messages"},
    {"{\"messages\": [{\"content\": \"x\"}]}\n",
     "a.jsonl:1: message 1 has no \"role\"; a message that fits: {\"role\": \"user\""},
    {"{\"messages\": [" A_USER("1") ", {\"role\": \"assistant\"}]}\n",
     "t.jinja:1: 'dict object' has no attribute 'content'"},
    {"{\"conversations\": [{\"from\": \"narrator\", \"value\": \"x\"}]}\n",
     "a.jsonl:1: unrecognized speaker \"narrator\", wanted \"system\", \"human\", \"gpt\" or"},
    {"{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "]}\n{\"messages\": \"x\"}\n",
     "a.jsonl:2: column \"messages\" holds a text, wanted a list of messages, as in the first"},
    {"{\"prompt\": [], \"completion\": [" A_ANSWER("2") "]}\n",
     "a.jsonl:1: the conversation has no prompt"},
    {"{\"messages\": [" A_USER("1") "]}\n", "a.jsonl:1: no token counts"},
    {"{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "], \"tools\": {\"n\": 7}}\n",
     "a.jsonl:1: column \"tools\" holds an object, wanted a list"},
    {"{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "], \"tools\": \"[{]\"}\n",
     "a.jsonl:1: column \"tools\" holds a text that is not JSON, wanted a list"},
    {"{\"messages\": [" A_USER("1") ", " A_ANSWER("2") "], \"chat_template_kwargs\": 5}\n",
     "a.jsonl:1: column \"chat_template_kwargs\" holds a number, wanted an object"},
};

START_TEST(mistakes_are_told) {
    ck_refused(byte_config(bad[_i].lines, 16), bad[_i].words);
}
END_TEST

START_TEST(template_without_conversations_is_told) {
    MxDataset *dataset = open_data(byte_config("{\"text\": \"ab\"}\n", 8));
    ck_assert_str_eq(mx_data_warning(dataset),
                     "the data holds no conversations, so the chat template does nothing");
}
END_TEST

/* The text of a template does what a file with it does; its errors name the setting. */
START_TEST(template_as_text) {
    const char *text = "{{ messages[0].content }}{% generation %}{{ messages[1].content }}"
                       "{% endgeneration %}";
    const char *lines = "{\"messages\": [" A_USER("ab") ", " A_ANSWER("c") "]}\n";
    MxDataConfig named = byte_config(lines, 8), said = named;
    named.chat.named = put("t.jinja", text);
    said.chat.named = NULL;
    said.chat.text = text;
    ck_same_rows(named, said);
    said.chat.text = "\n{% if %}";
    said.chat.where = (MxWhere){.file = "a.yml", .line = 7};
    ck_refused(said, "a.yml:7: chat_template:2: ");
}
END_TEST

/* A template is part of the data: it is noted with the files, by its content. */
START_TEST(template_is_noted) {
    int n;
    uint64_t hash[2];
    for (int i = 0; i < 2; i++) {
        MxDataConfig config = byte_config(same[0], 8);
        if (i)
            config.chat.named = put("t.jinja", "x{% generation %}{{ messages[1].content }}"
                                               "{% endgeneration %}.");
        const MxDataFile *files = mx_data_files(open_data(config), &n);
        ck_assert_int_eq(n, 2);
        hash[i] = files[0].hash;
    }
    ck_assert(hash[0] != hash[1]);
}
END_TEST

Suite *talks_suite(void) {
    Suite *suite = suite_create("data: conversations");
    TCase *tests = tcase_create("conversations");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, rows_are_trls, 0, MX_COUNT(runs));
    tcase_add_test(tests, an_end_is_not_doubled);
    tcase_add_test(tests, turns_count);
    tcase_add_loop_test(tests, forms_are_the_same, 0, MX_COUNT(same));
    tcase_add_loop_test(tests, pairs_are_the_same, 0, MX_COUNT(same_pairs));
    tcase_add_loop_test(tests, template_gets_tools, 0, MX_COUNT(tooled));
    tcase_add_loop_test(tests, mistakes_are_told, 0, MX_COUNT(bad));
    tcase_add_test(tests, template_without_conversations_is_told);
    tcase_add_test(tests, template_as_text);
    tcase_add_test(tests, template_is_noted);
    suite_add_tcase(suite, tests);
    return suite;
}
