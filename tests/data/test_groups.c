/* test_groups.c — responses with rewards: groups of them as rows, and what is refused. */
#include "data_test.h"

enum { BOS = 256, EOS = 257 };

/* Groups of two responses in rows of `length` tokens, in order, one epoch. */
static MxDataConfig groups_config(const char *lines, int64_t length) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = length;
    config.packing = false;
    config.is_sft = config.completion_only = true;
    config.group = 2;
    return config;
}

static MxBatch batch_of(MxDataset *dataset, const MxDataConfig *config, int64_t step) {
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(config), config->length);
    ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    return batch;
}

#define RESPONSE(prompt, completion, more)                                                         \
    "{\"prompt\": \"" prompt "\", \"completion\": \"" completion "\", " more "}\n"

static const char responses[] = RESPONSE("a", "bc", "\"reward\": 0.5, \"logprobs\": [-1, -2, -3]")
    RESPONSE("a", "d", "\"reward\": -1, \"logprobs\": [-4, -5]")
        RESPONSE("xy", "z", "\"reward\": 2, \"logprobs\": [-6, -7]")
            RESPONSE("xy", "", "\"reward\": 3, \"logprobs\": [-8]");

/* Row g * rows + r is response g to prompt r; rewards are those of the whole batch, whatever part
 * of its rows is made. */
START_TEST(groups) {
    MxDataConfig config = groups_config(responses, 6);
    config.rows = 2;
    config.reads_logprobs = true;
    MxDataset *dataset = open_data(config);
    float rewards[4], logprobs[4 * 6];
    ck_assert_int_eq(mx_data_steps(dataset), 1);
    ck_assert_ptr_nonnull(strstr(mx_data_describe(dataset),
                                 "4 responses (prompt, completion), 18 tokens, 8 of them count"));
    ck_assert_ptr_null(mx_data_warning(dataset));
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c', EOS, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'x', 'y', 'z', EOS, 0);
    ck_row(batch, MX_INPUTS, 2, BOS, 'a', 'd', EOS, 0, 0);
    ck_row(batch, MX_INPUTS, 3, BOS, 'x', 'y', EOS, 0, 0);
    ck_row(batch, MX_TARGETS, 0, 0, 'b', 'c', EOS, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 2, 0, 1, 1, 0, 0, 0);
    mx_data_scores(dataset, 0, &batch.part, rewards, logprobs);
    const float want_rewards[] = {0.5f, 2, -1, 3};
    const float want[] = {0, -1, -2, -3, 0, 0, 0, 0, -6, -7, 0, 0,
                          0, -4, -5, 0,  0, 0, 0, 0, -8, 0,  0, 0};
    ck_assert_mem_eq(rewards, want_rewards, sizeof rewards);
    ck_assert_mem_eq(logprobs, want, sizeof logprobs);
    const int64_t row[] = {1, 2};
    const MxBatchPart part = {.row = row, .rows = 2, .of_rows = 4, .column = 1, .length = 3};
    const float want_part[] = {0, -6, -7, -4, -5, 0};
    MxBatch some = mx_batch_new_part(&arena, &part);
    ck_assert_int_eq(mx_data_batch(dataset, 0, &some, &err), MX_DATA_OK);
    ck_row(some, MX_INPUTS, 0, 'x', 'y', 'z');
    ck_row(some, MX_INPUTS, 1, 'a', 'd', EOS);
    mx_data_scores(dataset, 0, &part, rewards, logprobs);
    ck_assert_mem_eq(rewards, want_rewards, sizeof rewards);
    ck_assert_mem_eq(logprobs, want_part, sizeof want_part);
}
END_TEST

/* Prompts whose responses are yet to be written: every row of a group holds the prompt's last
 * tokens, and nothing counts. The record goes along as it is. */
START_TEST(prompts_that_ask) {
    MxDataConfig config = groups_config("{\"prompt\": \"abcd\", \"answer\": \"e\", \"more\": [1]}\n"
                                        "{\"prompt\": \"x\", \"answer\": \"y\"}\n",
                                        6);
    config.rows = 2;
    config.asks = true;
    config.answers = (const char *const[]){"answer", NULL};
    config.max_prompt_length = 3;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 1);
    ck_assert_ptr_nonnull(
        strstr(mx_data_describe(dataset), "2 prompts (prompt), 5 tokens, 1 cut to their last 3"));
    MxBatch batch = batch_of(dataset, &config, 0);
    for (int side = 0; side < 2; side++) {
        ck_row(batch, MX_INPUTS, 2 * side, 'b', 'c', 'd', 0, 0, 0);
        ck_row(batch, MX_INPUTS, 2 * side + 1, BOS, 'x', 0, 0, 0, 0);
        ck_row(batch, MX_INPUTS_SEGMENTATION, 2 * side + 1, 1, 1, 0, 0, 0, 0);
        ck_row(batch, MX_TARGETS_SEGMENTATION, 2 * side, 0, 0, 0, 0, 0, 0);
    }
    for (int row = 0; row < 4; row++)
        ck_assert_str_eq(mx_data_record(dataset, 0, row),
                         row % 2 ? "{\"prompt\": \"x\", \"answer\": \"y\"}"
                                 : "{\"prompt\": \"abcd\", \"answer\": \"e\", \"more\": [1]}");
}
END_TEST

/* Labels are rewards of 1 and 0; behind each prompt stands the completion of the row before it, cut
 * to the row. */
START_TEST(labels) {
    MxDataConfig config =
        groups_config(RESPONSE("a", "bc", "\"label\": true") RESPONSE("xy", "z", "\"label\": false")
                          RESPONSE("pqr", "s", "\"label\": true"),
                      6);
    config.rows = 3;
    config.group = 1;
    config.has_labels = true;
    MxDataset *dataset = open_data(config), *twin = mx_data_twin(&arena, dataset);
    float rewards[3];
    const float want[] = {1, 0, 1};
    MxBatch batch = batch_of(dataset, &config, 0), mixed = mx_batch_new(&arena, 3, 6);
    ck_row(batch, MX_INPUTS, 1, BOS, 'x', 'y', 'z', EOS, 0);
    mx_data_scores(twin, 0, &batch.part, rewards, NULL);
    ck_assert_mem_eq(rewards, want, sizeof want);
    ck_assert(mx_data_mismatched(twin, 0, &mixed, &err));
    ck_row(mixed, MX_INPUTS, 0, BOS, 'a', 's', EOS, 0, 0);
    ck_row(mixed, MX_TARGETS, 0, 0, 's', EOS, 0, 0, 0);
    ck_row(mixed, MX_TARGETS_SEGMENTATION, 0, 0, 1, 1, 0, 0, 0);
    ck_row(mixed, MX_INPUTS, 1, BOS, 'x', 'y', 'b', 'c', EOS);
    ck_row(mixed, MX_INPUTS, 2, BOS, 'p', 'q', 'r', 'z', EOS);
    const int64_t row[] = {1};
    const MxBatchPart part = {.row = row, .rows = 1, .of_rows = 3, .column = 2, .length = 3};
    MxBatch some = mx_batch_new_part(&arena, &part);
    ck_assert(mx_data_mismatched(twin, 0, &some, &err));
    ck_row(some, MX_INPUTS, 0, 'y', 'b', 'c');
    ck_row(some, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1);
}
END_TEST

START_TEST(labels_are_true_or_false) {
    MxDataConfig config = groups_config(RESPONSE("a", "b", "\"label\": 1"), 6);
    config.group = 1;
    config.has_labels = true;
    ck_refused(config, "a.jsonl:1: column \"label\" holds a number, wanted true where the "
                       "completion is wanted, or false");
}
END_TEST

/* Groups stay together when they are shuffled, and keep responses of which nothing is left. */
START_TEST(groups_stay_whole) {
    MxDataConfig config = groups_config(responses, 3);
    config.shuffle = true;
    config.n_epochs = 2;
    MxDataset *dataset = open_data(config);
    ck_assert_ptr_nonnull(
        strstr(mx_data_warning(dataset), "2 of 4 records teach nothing for that"));
    for (int step = 0; step < 4; step++) {
        float rewards[2];
        MxBatch batch = batch_of(dataset, &config, step);
        mx_data_scores(dataset, step, &batch.part, rewards, NULL);
        bool is_first = batch.field[MX_INPUTS][1] == 'a';
        ck_assert_int_eq(batch.field[MX_INPUTS][4], batch.field[MX_INPUTS][1]);
        ck_assert(rewards[0] == (is_first ? 0.5f : 2) && rewards[1] == (is_first ? -1 : 3));
    }
}
END_TEST

static const struct {
    const char *lines, *message;
} bad_groups[] = {
    {RESPONSE("a", "b", "\"reward\": 1") RESPONSE("c", "b", "\"reward\": 1"),
     "a.jsonl:2: the prompt differs from that of line 1, with which its group of "
     "rl.num_generations=2 begins"},
    {RESPONSE("a", "b", "\"reward\": 1") RESPONSE("a", "c", "\"reward\": 1")
         RESPONSE("a", "b", "\"reward\": 1"),
     "a.jsonl:3: the last group has 1 response, wanted rl.num_generations=2"},
    {RESPONSE("a", "b", "\"score\": 1"), "a.jsonl:1: has no column \"reward\""},
    {RESPONSE("a", "b", "\"reward\": \"1\""),
     "a.jsonl:1: column \"reward\" holds a text, wanted a number"},
    {RESPONSE("a", "b", "\"reward\": true"),
     "a.jsonl:1: column \"reward\" holds true or false, wanted a number"},
    {RESPONSE("a", "b", "\"reward\": 1") "{\"prompt\": \"a\", \"reward\": 1}\n",
     "a.jsonl:2: column \"completion\" is missing or null; its group needs it"},
    {RESPONSE("a", "b", "\"reward\": 1"),
     "a.jsonl:1: column \"logprobs\" holds nothing, wanted a list of numbers, one a token"},
    {RESPONSE("a", "b", "\"reward\": 1, \"logprobs\": [-1]"),
     "column \"logprobs\" holds 1 numbers, but the response has 2 tokens with that of its end"},
    {RESPONSE("a", "b", "\"reward\": 1, \"logprobs\": [-1, 0.5]"),
     "column \"logprobs\": element 1 is no number, or above 0"},
};

START_TEST(refuses_groups) {
    MxDataConfig config = groups_config(bad_groups[_i].lines, 8);
    config.reads_logprobs = strstr(bad_groups[_i].message, "logprobs") != NULL;
    ck_refused(config, bad_groups[_i].message);
}
END_TEST

START_TEST(other_kinds_have_no_rewards) {
    MxDataConfig config = groups_config(responses, 6);
    config.kind = "synthetic";
    ck_refused(config, "responses with rewards are wanted; data of kind \"synthetic\" has none");
}
END_TEST

Suite *groups_suite(void) {
    Suite *suite = suite_create("data: groups");
    TCase *tests = tcase_create("groups");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, groups);
    tcase_add_test(tests, prompts_that_ask);
    tcase_add_test(tests, labels);
    tcase_add_test(tests, labels_are_true_or_false);
    tcase_add_test(tests, groups_stay_whole);
    tcase_add_loop_test(tests, refuses_groups, 0, MX_COUNT(bad_groups));
    tcase_add_test(tests, other_kinds_have_no_rewards);
    suite_add_tcase(suite, tests);
    return suite;
}
