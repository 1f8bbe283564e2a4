/* test_ids.c — columns of token ids: used as they stand, in every format and form of record; what
 * is no id, and texts and ids in each other's place, with file and record. */
#include "data_test.h"

static MxDataConfig ids_config(const char *lines) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = 6;
    config.packing = false;
    config.has_ids = true;
    return config;
}

static MxBatch batch_of(MxDataConfig config, int64_t step) {
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(&config), config.length);
    ck_assert_int_eq(mx_data_batch(open_data(config), step, &batch, &err), MX_DATA_OK);
    return batch;
}

START_TEST(as_they_stand) {
    MxDataConfig config =
        ids_config("{\"text\": [7, 0, 257]}\n{\"text\": [1, 2, 3, 4, 5, 6, 9]}\n");
    MxDataset *dataset = open_data(config);
    const char *told = mx_data_describe(dataset);
    ck_assert_msg(strstr(told, "2 documents (text), 9 tokens, 1 cut to 6"), "%s", told);
    MxBatch batch = batch_of(config, 0);
    ck_row(batch, MX_INPUTS, 0, 7, 0, 257, 0, 0, 0);
    ck_row(batch, MX_TARGETS, 0, 0, 257, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 0, 0, 0, 0);
    batch = batch_of(config, 1);
    ck_row(batch, MX_INPUTS, 0, 1, 2, 3, 4, 5, 6);
}
END_TEST

/* Prompts with completions and pairs of ids, without bos and eos between them. */
START_TEST(pieces) {
    MxDataConfig config = ids_config("{\"prompt\": [1, 2], \"completion\": [3, 4]}\n");
    config.is_sft = config.completion_only = true;
    MxBatch batch = batch_of(config, 0);
    ck_row(batch, MX_INPUTS, 0, 1, 2, 3, 4, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 1, 1, 0, 0, 0);
    config = ids_config("{\"chosen\": [1, 2, 3], \"rejected\": [1, 2, 4, 5]}\n");
    config.pairs = MX_DATA_PAIRS_STANDARD;
    config.max_prompt_length = 3;
    batch = batch_of(config, 0);
    ck_row(batch, MX_INPUTS, 0, 1, 2, 3, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, 1, 2, 4, 5, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 1, 1, 0, 0, 0);
}
END_TEST

/* Kept tokens of ids are not those of texts. */
START_TEST(kept_tokens) {
    MxDataConfig config = ids_config("{\"text\": [1, 2, 3]}\n{\"text\": [4, 5]}\n");
    config.token_cache = in_folder("tokens");
    MxBatch made = batch_of(config, 1), found = batch_of(config, 1);
    ck_row(made, MX_INPUTS, 0, 4, 5, 0, 0, 0, 0);
    ck_row(found, MX_INPUTS, 0, 4, 5, 0, 0, 0, 0);
    config.has_ids = false; /* not taken for the same */
    ck_refused(config, "column \"text\" holds a list, wanted a text");
}
END_TEST

static const struct {
    const char *lines, *words;
} wrong[] = {
    {"{\"text\": [1]}\n{\"text\": [1, 258]}\n",
     "a.jsonl:2: column \"text\": element 1 is 258, wanted the id of a token, 0 to 257"},
    {"{\"text\": [1, -100]}\n", "a.jsonl:1: column \"text\": element 1 is -100, wanted"},
    {"{\"text\": [1, 2.5]}\n", "element 1 is a number that is not whole, wanted"},
    {"{\"text\": [1, \"2\"]}\n", "element 1 is a text, wanted the id of a token"},
    {"{\"text\": [[1], [2]]}\n", "element 0 is a list, wanted the id of a token"},
    {"{\"text\": \"one\"}\n",
     "a.jsonl:1: column \"text\" holds a text, wanted a list of token ids; tokens are made of "
     "texts with tokenize_train_data=true"},
    {"{\"text\": {\"a\": 1}}\n", "holds an object, wanted a list of token ids"},
    {"{\"ids\": [1]}\n", "found \"ids\"; wanted \"text\""},
    {"{\"text\": []}\n", "no token counts"},
};

START_TEST(refuses) {
    ck_refused(ids_config(wrong[_i].lines), wrong[_i].words);
}
END_TEST

START_TEST(texts_are_wanted) {
    MxDataConfig config = ids_config("{\"text\": [1, 2]}\n");
    config.has_ids = false;
    ck_refused(config, "a.jsonl:1: column \"text\" holds a list, wanted a text; ids are read with "
                       "tokenize_train_data=false or, for evaluation, tokenize_eval_data=false");
}
END_TEST

Suite *ids_suite(void) {
    Suite *suite = suite_create("data: ids");
    TCase *cases = tcase_create("ids");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, as_they_stand);
    tcase_add_test(cases, pieces);
    tcase_add_test(cases, kept_tokens);
    tcase_add_loop_test(cases, refuses, 0, MX_COUNT(wrong));
    tcase_add_test(cases, texts_are_wanted);
    suite_add_tcase(suite, cases);
    return suite;
}
