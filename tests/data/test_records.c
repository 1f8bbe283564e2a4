/* test_records.c — JSON Lines: texts, prompts with completions, pairs; what is cut, left out and
 * refused, with file and line. */
#include "data_test.h"

#include <stdlib.h>

enum { BOS = 256, EOS = 257 };

/* Rows of `length` tokens, one document each, in order, one epoch. */
static MxDataConfig records_config(const char *lines, int64_t length) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = length;
    config.packing = false;
    return config;
}

static MxDataConfig pairs_config(const char *lines, int64_t length, int64_t max_prompt_length) {
    MxDataConfig config = records_config(lines, length);
    config.pairs = MX_DATA_PAIRS_STANDARD;
    config.max_prompt_length = max_prompt_length;
    return config;
}

static MxBatch batch_of(MxDataset *dataset, const MxDataConfig *config, int64_t step) {
    MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(config), config->length);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        memset(batch.field[f], 0x55, (size_t)(batch.rows * batch.length) * sizeof(int32_t));
    ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    return batch;
}

static void ck_describes(const MxDataset *dataset, const char *words) {
    const char *text = mx_data_describe(dataset);
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" lacks \"%s\"", text, words);
}

static void ck_warns(const MxDataset *dataset, const char *words) {
    const char *text = mx_data_warning(dataset);
    ck_assert_msg(text && words ? strstr(text, words) != NULL : text == words,
                  "\"%s\", wanted \"%s\"", text ? text : "", words ? words : "");
}

/* ---- documents */

START_TEST(texts) {
    MxDataConfig config =
        records_config("{\"text\": \"ab\"}\n{\"text\": \"cdefgh\", \"id\": 7}", 5);
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 2);
    ck_describes(dataset, "a.jsonl, 2 documents (text), 9 tokens, 1 cut to 5, 2 rows");
    ck_warns(dataset, NULL);
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', EOS, 0);
    ck_row(batch, MX_TARGETS, 0, 'a', 'b', EOS, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 1, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0, 0);
    batch = batch_of(dataset, &config, 1); /* a row holds its length, so its last token is alone */
    ck_row(batch, MX_INPUTS, 0, BOS, 'c', 'd', 'e', 'f');
    ck_row(batch, MX_TARGETS, 0, 'c', 'd', 'e', 'f', 0);
    config.omits_bos = config.omits_eos = true;
    batch = batch_of(open_data(config), &config, 0);
    ck_row(batch, MX_INPUTS, 0, 'a', 'b', 0, 0, 0);
}
END_TEST

static const char prompts[] = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
                              "{\"prompt\": \"\", \"completion\": \"d\"}\n";

START_TEST(completions) {
    MxDataConfig config = records_config(prompts, 8);
    config.is_sft = config.completion_only = true;
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "2 documents (prompt, completion), 8 tokens");
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c', EOS, 0, 0, 0);
    ck_row(batch, MX_TARGETS, 0, 0, 0, 'c', EOS, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 0, 0, 0, 0);
    config.packing = true;
    batch = batch_of(open_data(config), &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c', EOS, BOS, 'd', EOS);
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 1, 2, 3, 4, 0, 1, 2);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 1, 1, 2, 2, 2);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 0, 2, 2, 0);
    config.completion_only = false;
    batch = batch_of(open_data(config), &config, 0); /* the bos of another document is no target */
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 1, 0, 2, 2, 0);
    config.max_segments = 1;
    ck_describes(open_data(config), "2 rows");
    config.omits_bos = true; /* nor is its first token */
    config.max_segments = 0;
    batch = batch_of(open_data(config), &config, 0);
    ck_row(batch, MX_INPUTS, 0, 'a', 'b', 'c', EOS, 'd', EOS, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0, 2, 0, 0, 0);
}
END_TEST

/* Columns are found in the first record or named. */
/* Instructions make the prompt together with what they are about, if anything. */
START_TEST(alpaca) {
    MxDataConfig config =
        records_config("{\"instruction\": \"a\", \"input\": \"\", \"output\": \"x\"}\n"
                       "{\"instruction\": \"b\", \"output\": \"y\", \"input\": \"cd\"}\n"
                       "{\"instruction\": \"e\", \"output\": \"z\"}\n"
                       "{\"instruction\": \"f\", \"input\": \"g\"}\n",
                       8);
    config.is_sft = config.completion_only = true;
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "3 documents (instruction, input, output)");
    ck_warns(dataset, "a.jsonl:4: a column is missing or null; 1 of 4 records are left out");
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', '\n', 'x', EOS, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 0, 0, 0, 0);
    batch = batch_of(dataset, &config, 1);
    ck_row(batch, MX_INPUTS, 0, BOS, 'b', '\n', 'c', 'd', '\n', 'y', EOS);
    batch = batch_of(dataset, &config, 2);
    ck_row(batch, MX_INPUTS, 0, BOS, 'e', '\n', 'z', EOS, 0, 0, 0);
    config.is_sft = config.completion_only = false;
    ck_refused(config, "found \"instruction\", \"input\", \"output\"; wanted \"text\"\n"
                       "hint: use_sft=true trains on conversations, prompts and completions");
}
END_TEST

START_TEST(columns) {
    static const char *const names[] = {"in", "out"};
    MxDataConfig config = records_config("{\"in\": \"a\", \"text\": \"x\", \"out\": \"b\"}\n", 8);
    config.is_sft = true;
    ck_describes(open_data(config), "(text)");
    config.columns = names;
    config.n_columns = 2;
    MxBatch batch = batch_of(open_data(config), &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', EOS, 0, 0, 0, 0);
    config.path = put("b.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
    config.n_columns = 0;
    ck_describes(open_data(config), "(question, answer)");
}
END_TEST

/* A byte order mark, CRLF, blank lines, spaces, escapes, repeated keys, numbers that no type holds,
 * NUL in a text, no end of the last line. */
START_TEST(awkward_but_legal) {
    MxDataConfig config = records_config("\xef\xbb\xbf{\"text\": \"a\"}\r\n"
                                         "\r\n \t\n"
                                         "  {\"text\" : \"\\u00e9\\ud83d\\ude00\"}  \r\n"
                                         "{\"text\": \"b\", \"n\": 123456789012345678901234567890, "
                                         "\"text\": \"c\"}\n"
                                         "{\"text\": \"d\\u0000e\"}\n"
                                         "{\"other\": {\"text\": 1}}\n"
                                         "{\"text\": null}\n"
                                         "{\"text\": \"f\"}",
                                         8);
    config.omits_bos = true;
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), 5);
    ck_warns(dataset, "a.jsonl:7: a column is missing or null; 2 of 7 records are left out");
    ck_row(batch_of(dataset, &config, 1), MX_INPUTS, 0, 0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80, EOS, 0);
    ck_row(batch_of(dataset, &config, 2), MX_INPUTS, 0, 'c', EOS, 0, 0, 0, 0, 0, 0);
    MxBatch batch = batch_of(dataset, &config, 3);
    ck_row(batch, MX_INPUTS, 0, 'd', 0, 'e', EOS, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 1, 0, 0, 0, 0, 0);
    ck_row(batch_of(dataset, &config, 4), MX_INPUTS, 0, 'f', EOS, 0, 0, 0, 0, 0, 0);
}
END_TEST

/* Lines around the size of the reader's buffer, and one of many times its size. */
START_TEST(long_lines) {
    static const int sizes[] = {65530, 65536 - 13, 65536 - 12, 65536, 3, 200000, 1};
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        mx_text_add(&lines, "{\"text\": \"");
        for (int k = 0; k < sizes[i]; k++) mx_text_addn(&lines, &"abcdefg"[i], 1);
        mx_text_add(&lines, "\"}\n");
    }
    MxDataConfig config = records_config(lines.data, 200002);
    MxDataset *dataset = open_data(config);
    ck_assert_int_eq(mx_data_steps(dataset), MX_COUNT(sizes));
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        MxBatch batch = batch_of(dataset, &config, i);
        int32_t *ids = batch.field[MX_INPUTS];
        ck_assert(ids[0] == BOS && ids[1] == "abcdefg"[i] && ids[sizes[i]] == "abcdefg"[i]);
        ck_assert_int_eq(ids[sizes[i] + 1], EOS);
    }
}
END_TEST

/* The files of a folder, in order; the same rows whatever the vocabulary's size makes of tokens. */
START_TEST(several_files) {
    put("b.jsonl", "{\"text\": \"b\"}\n");
    put("c.txt", "no json");
    MxDataConfig config = records_config("{\"text\": \"a\"}\n", 4), wide;
    config.path = folder;
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "a.jsonl …, 2 documents");
    wide = config;
    wide.vocab = 70000;
    for (int step = 0; step < 2; step++)
        for (int i = 0; i < 2; i++) {
            MxBatch batch = batch_of(i ? open_data(wide) : dataset, &config, step);
            ck_row(batch, MX_INPUTS, 0, BOS, 'a' + step, EOS, 0);
        }
}
END_TEST

/* ---- pairs */

START_TEST(pairs_with_prompt) {
    MxDataConfig config =
        pairs_config("{\"prompt\": \"pq\", \"chosen\": \"ab\", \"rejected\": \"a\"}\n", 8, 4);
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "a.jsonl, 1 pairs (prompt, chosen, rejected), 8 tokens, 0 prompts cut to "
                          "their last 4 tokens, 0 responses to their first 4");
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_assert_int_eq(batch.rows, 2);
    ck_row(batch, MX_INPUTS, 0, BOS, 'p', 'q', 'a', 'b', EOS, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'p', 'q', 'a', EOS, 0, 0, 0);
    ck_row(batch, MX_TARGETS, 1, 'p', 'q', 'a', EOS, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS_POSITION, 1, 0, 1, 2, 3, 4, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 1, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 0, 1, 1, 0, 0, 0, 0);
    config.pairs = MX_DATA_PAIRS_MAXTEXT;
    batch = batch_of(open_data(config), &config, 0);
    for (int side = 0; side < 2; side++)
        ck_row(batch, MX_TARGETS_SEGMENTATION, side, 0, 0, 0, 1, 0, 0, 0, 0);
}
END_TEST

/* What both begin with is the prompt. */
START_TEST(pairs_without_prompt) {
    MxDataConfig config = pairs_config("{\"chosen\": \"pqa\", \"rejected\": \"pqbc\"}\n"
                                       "{\"rejected\": \"pq\", \"chosen\": \"p\"}\n",
                                       8, 4);
    MxDataset *dataset = open_data(config);
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'p', 'q', 'a', EOS, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'p', 'q', 'b', 'c', EOS, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 0, 1, 1, 1, 0, 0, 0);
    batch = batch_of(dataset, &config, 1);
    ck_row(batch, MX_INPUTS, 0, BOS, 'p', EOS, 0, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 1, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'p', 'q', EOS, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 1, 1, 0, 0, 0, 0, 0);
}
END_TEST

/* Prompts lose their beginning, responses their end. */
START_TEST(cuts_pairs) {
    MxDataConfig config =
        pairs_config("{\"prompt\": \"pqrst\", \"chosen\": \"abcd\", \"rejected\": \"ef\"}\n", 6, 3);
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "1 prompts cut to their last 3 tokens, 1 responses to their first 3");
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, 'r', 's', 't', 'a', 'b', 'c');
    ck_row(batch, MX_INPUTS, 1, 'r', 's', 't', 'e', 'f', EOS);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 1, 0);
}
END_TEST

/* Both rows of a pair stay together whatever the order of pairs. */
static const char two_pairs[] = "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"de\"}\n"
                                "{\"prompt\": \"f\", \"chosen\": \"ghi\", \"rejected\": \"j\"}\n";

/* Both rows have the same segments, wherever they begin. */
START_TEST(packed_pairs) {
    MxDataConfig config = pairs_config(two_pairs, 12, 4);
    config.packing = true;
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "2 pairs (prompt, chosen, rejected)");
    ck_describes(dataset, ", 1 rows");
    ck_assert_str_eq(mx_data_end_reason(dataset), "the data ends after 1 batches of 1 rows of "
                                                  "pairs: 1 epoch of 1 rows of pairs");
    MxBatch batch = batch_of(dataset, &config, 0);
    ck_row(batch, MX_INPUTS, 0, BOS, 'a', 'b', 'c', EOS, BOS, 'f', 'g', 'h', 'i', EOS, 0);
    ck_row(batch, MX_TARGETS, 0, 'a', 'b', 'c', EOS, BOS, 'f', 'g', 'h', 'i', EOS, 0, 0);
    ck_row(batch, MX_INPUTS_POSITION, 0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 0, 0, 1, 1, 0, 0, 2, 2, 2, 2, 0, 0);
    ck_row(batch, MX_INPUTS, 1, BOS, 'a', 'b', 'd', 'e', EOS, BOS, 'f', 'j', EOS, 0, 0);
    ck_row(batch, MX_INPUTS_SEGMENTATION, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 0, 0, 1, 1, 1, 0, 0, 2, 2, 0, 0, 0);
    config.length = 10; /* the chosen side has no room */
    ck_describes(open_data(config), ", 2 rows");
    config.length = 12;
    config.max_segments = 1;
    ck_describes(open_data(config), ", 2 rows");
    config.omits_bos = true; /* without a prompt the first token of a response is nobody's target */
    config.max_segments = 0;
    config.path = put("b.jsonl", "{\"chosen\": \"ab\", \"rejected\": \"c\"}\n"
                                 "{\"chosen\": \"de\", \"rejected\": \"f\"}\n");
    batch = batch_of(open_data(config), &config, 0);
    ck_row(batch, MX_INPUTS, 0, 'a', 'b', EOS, 'd', 'e', EOS, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 0, 1, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0);
    ck_row(batch, MX_TARGETS_SEGMENTATION, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}
END_TEST

START_TEST(shuffled_pairs) {
    enum { PAIRS = 40, ROWS = 5 };
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < PAIRS; i++)
        mx_text_add(&lines, "{\"prompt\": \"%c\", \"chosen\": \"y\", \"rejected\": \"n\"}\n",
                    '0' + i);
    MxDataConfig config = pairs_config(lines.data, 8, 4);
    config.rows = ROWS;
    config.shuffle = true;
    MxDataset *dataset = open_data(config);
    int seen[PAIRS] = {0}, in_place = 0;
    for (int step = 0; step < PAIRS / ROWS; step++) {
        MxBatch batch = batch_of(dataset, &config, step);
        for (int r = 0; r < ROWS; r++) {
            const int32_t *a = batch.field[MX_INPUTS] + r * 8, *b = a + ROWS * 8;
            ck_assert(a[1] == b[1] && a[2] == 'y' && b[2] == 'n');
            seen[a[1] - '0']++;
            in_place += a[1] - '0' == step * ROWS + r;
        }
    }
    for (int i = 0; i < PAIRS; i++) ck_assert_int_eq(seen[i], 1);
    ck_assert_int_lt(in_place, 10);
    ck_assert_str_eq(mx_data_end_reason(dataset),
                     "the data ends after 8 batches of 5 pairs: 1 epoch of 40 pairs");
}
END_TEST

/* MaxText's DPODataFormatting on the same tokens, which are bytes here: the pieces of each row are
 * its arrays without their padding. */
START_TEST(equals_maxtext) {
    enum { PAIRS = 6, LONGEST = 40, P = 8, R = 16 };
    static const char *const forms[] = {"columns3", "columns2"};
    static const char *const names[] = {"prompt", "chosen", "rejected"};
    const char *form = forms[_i];
    char *path = goldens_need(&arena, "train/dpo_data.h5");
    MxH5 *file;
    int32_t source[3][PAIRS][LONGEST], ids[3][PAIRS][R], mask[3][PAIRS][R];
    ck_assert(mx_h5_open(&arena, path, &file, &err));
    for (int i = 0; i < 3; i++) {
        const char *name = mx_arena_printf(&arena, "%s/source/%s", form, names[i]);
        MxShape shape = MX_SHAPE(PAIRS, i ? R : P);
        if (mx_h5_has_array(file, name))
            ck_assert(mx_h5_read(file, name, MX_I32, MX_SHAPE(PAIRS, LONGEST), source[i], &err));
        name = mx_arena_printf(&arena, "%s/%s_ids", form, names[i]);
        ck_assert(mx_h5_read(file, name, MX_I32, shape, ids[i], &err));
        name = mx_arena_printf(&arena, "%s/%s_mask", form, names[i]);
        ck_assert(mx_h5_read(file, name, MX_I32, shape, mask[i], &err));
    }
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int r = 0; r < PAIRS; r++) {
        for (int i = _i; i < 3; i++) {
            mx_text_add(&lines, "%c\"%s\": \"", i == _i ? '{' : ',', names[i]);
            for (int t = 0; t < LONGEST && source[i][r][t] >= 0; t++)
                mx_text_add(&lines, "\\u%04x", (unsigned)source[i][r][t]);
            mx_text_add(&lines, "\"");
        }
        mx_text_add(&lines, "}\n");
    }
    MxDataConfig config = pairs_config(lines.data, P + R, P);
    config.omits_bos = config.omits_eos = true;
    MxDataset *dataset = open_data(config);
    for (int r = 0; r < PAIRS; r++) {
        MxBatch batch = batch_of(dataset, &config, r);
        for (int side = 0; side < 2; side++) {
            int32_t want[P + R] = {0}, counts[P + R] = {0};
            int n = 0;
            const int32_t *prompt = (const int32_t *)ids[0] + r * P;
            const int32_t *is_prompt = (const int32_t *)mask[0] + r * P;
            for (int t = 0; t < P; t++)
                if (is_prompt[t]) want[n++] = prompt[t];
            for (int t = 0; t < R; t++)
                if (mask[1 + side][r][t]) {
                    counts[n - 1] = 1;
                    want[n++] = ids[1 + side][r][t];
                }
            ck_values(batch.field[MX_INPUTS] + side * (P + R), want, P + R);
            ck_values(batch.field[MX_TARGETS_SEGMENTATION] + side * (P + R), counts, P + R);
        }
    }
}
END_TEST

/* ---- what is left out and what is refused */

START_TEST(leaves_out) {
    MxDataConfig config =
        pairs_config("{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"a\"}\n"
                     "{\"prompt\": \"p\", \"chosen\": \"a\"}\n"
                     "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                     "{\"prompt\": \"p\", \"chosen\": \"abcdefg\", \"rejected\": \"abcdxyz\"}\n",
                     8, 4); /* the last two are equal after the cut */
    MxDataset *dataset = open_data(config);
    ck_describes(dataset, "1 pairs");
    ck_warns(dataset, "a.jsonl:2: a column is missing or null; 1 of 4 records are left out");
    ck_warns(dataset, "a.jsonl:1: chosen equals rejected or no token counts; 2 of 4 records are");
    config = records_config("{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n"
                            "{\"prompt\": \"a\", \"completion\": \"i\"}\n",
                            8);
    config.is_sft = config.completion_only = true;
    dataset = open_data(config);
    ck_describes(dataset, "1 documents");
    ck_warns(dataset,
             "a.jsonl:1: no token counts, since nothing is left behind the prompt; 1 of 2");
    config.completion_only = false;
    ck_describes(open_data(config), "2 documents");
}
END_TEST

/* One response begins with the other: they differ only where one has ended, which only standard
 * counts. */
START_TEST(one_mask_may_count_nothing) {
    MxDataConfig config =
        pairs_config("{\"prompt\": \"p\", \"chosen\": \"ab\", \"rejected\": \"a\"}\n", 8, 4);
    config.omits_eos = true;
    ck_warns(open_data(config), NULL);
    config.pairs = MX_DATA_PAIRS_MAXTEXT;
    ck_refused(config, "a.jsonl:1: chosen equals rejected or no token counts, as in all other "
                       "records; there is nothing to learn");
}
END_TEST

static const struct {
    bool is_pair, is_sft;
    const char *lines, *words;
} bad[] = {
    {0, 0, "\n \n", "no records in "},
    {0, 0, "{\"text\": \"a\"}\n{\"text\": \"b\n",
     "a.jsonl:2:11: not valid JSON: premature end of input"},
    {0, 0, "{\"text\": \"a\",}\n", "a.jsonl:1:14: not valid JSON: "},
    {0, 0, "{hello\n", "a.jsonl:1:6: not valid JSON: "},
    {0, 0, "hello\n", "a.jsonl:1: found \"hello\", wanted an object in each line"},
    {0, 0, "text,label\n\"a, b\",1\n", "hint: is it CSV? write each row as an object"},
    {0, 0, "{\"text\": 5}\n", "a.jsonl:1: column \"text\" holds a number, wanted a text"},
    {0, 0, "{\"text\": true}\n", "a.jsonl:1: column \"text\" holds true or false, wanted a text"},
    {0, 0, "{\"text\": {}}\n", "a.jsonl:1: column \"text\" holds an object, wanted a text"},
    {0, 0, "{\"text\": \"\xff\"}\n", "a.jsonl:1:10: not valid JSON: unable to decode byte 0xff"},
    {0, 0, "{\"text\": \"\\ud800\"}\n", "a.jsonl:1:17: not valid JSON: invalid Unicode"},
    {0, 0, "{\"text\": \"a\"}\n[{}]\n", "a.jsonl:2: found a list, wanted an object in each line"},
    {0, 0, "{\"a\": 1, \"b\": 2}\n",
     "a.jsonl:1: found \"a\", \"b\"; wanted \"text\"\nhint: train_data_columns"},
    {0, 0, "{}\n", "a.jsonl:1: found no columns; wanted \"text\""},
    {0, 1, "{\"q\": \"\"}\n",
     "name other columns; a record that fits: {\"messages\": [{\"role\": \"user\", \"content\": "},
    {0, 1, "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}\n",
     "the data holds conversations: the tokenizer has no chat template\nhint: name one by "
     "chat_template_path (mxdecode: --chat-template): \"chatml\""},
    {0, 0, "{\"prompt\": \"\", \"completion\": \"\"}\n",
     "wanted \"text\"\nhint: use_sft=true trains on conversations, prompts and completions"},
    {0, 1, "{\"prompt\": \"\", \"chosen\": \"\", \"rejected\": \"\"}\n",
     "wanted \"messages\", \"prompt\" and \"completion\", or \"text\"\nhint: use_dpo=true trains "
     "on pairs"},
    {1, 0, "{\"text\": \"a\"}\n",
     "wanted \"chosen\" and \"rejected\", with \"prompt\" or without\nhint: use_dpo=false"},
    {0, 1, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
     "the data holds conversations: the tokenizer has no chat template"},
    {1, 0, "{\"chosen\": [{}], \"rejected\": [{}]}\n{\"chosen\": [{}]}\n",
     "the data holds conversations: the tokenizer has no chat template"},
    {0, 0, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
     "found \"messages\"; wanted \"text\"\nhint: use_sft=true trains on conversations"},
    {0, 0, "{\"text\": [\"a\"]}\n", "a.jsonl:1: column \"text\" holds a list, wanted a text"},
    {1, 0, "{\"chosen\": \"a\", \"rejected\": \"a\"}\n{\"chosen\": \"b\", \"rejected\": \"b\"}\n",
     "a.jsonl:1: chosen equals rejected or no token counts, as in all other records"},
    {0, 0, "{\"text\": null}\n",
     "a.jsonl:1: no record has all of the columns \"text\"; the first "
     "has \"text\""},
};

START_TEST(refuses) {
    MxDataConfig config = pairs_config(bad[_i].lines, 8, 4);
    if (!bad[_i].is_pair) config.pairs = MX_DATA_NO_PAIRS;
    config.is_sft = bad[_i].is_sft;
    ck_refused(config, bad[_i].words);
}
END_TEST

/* Every bad line is told, up to ten of them. */
START_TEST(tells_all_bad_lines) {
    MxDataset *dataset;
    MxText lines;
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 12; i++) mx_text_add(&lines, "{\"text\": \"a\"}\n{\"text\": %d}\n", i);
    MxDataConfig config = records_config(lines.data, 8);
    ck_assert(!mx_data_open(&arena, &config, &dataset, &err));
    ck_assert_int_eq(err.count, 10);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text.data, "a.jsonl:2: column"));
    ck_assert_ptr_nonnull(strstr(err.text.data, "a.jsonl:20: column"));
    ck_assert_ptr_nonnull(strstr(err.text.data, "\n10 bad lines; the rest was not read"));
    mx_error_release(&err);
    config = records_config("{nope\n[]\n{\"text\": \"a\"}\n{\"text\": [1]}\n{\"text\": 1}\n", 8);
    ck_assert(!mx_data_open(&arena, &config, &dataset, &err));
    ck_assert_int_eq(err.count, 4);
}
END_TEST

START_TEST(refuses_files) {
    MxDataConfig config = records_config("{\"text\": \"a\"}\n", 8), other = config;
    other.path = in_folder("none.jsonl");
    ck_refused(other, "no files at \"");
    other.path = NULL;
    ck_refused(other, "no files at \"\": wanted a file, a folder of *.jsonl or a pattern");
    other = config;
    other.rows = 2;
    ck_refused(other, "1 rows; a batch needs 2 rows");
    other = config;
    other.vocab = 200;
    ck_refused(other, "tokenizer \"byte\" has 258 tokens, vocab_size is 200");
}
END_TEST

/* The thread gives what a direct call gives, and rows are made without allocating. */
START_TEST(allocates_nothing) {
    MxDataConfig config = records_config(prompts, 8);
    config.is_sft = config.packing = config.shuffle = true;
    config.n_epochs = -1;
    MxDataset *dataset = open_data(config);
    MxBatch batch = mx_batch_new(&arena, 1, 8);
    uint64_t allocs = mx_host_alloc_count();
    for (int step = 0; step < 20; step++)
        ck_assert_int_eq(mx_data_batch(dataset, step, &batch, &err), MX_DATA_OK);
    ck_assert_uint_eq(mx_host_alloc_count(), allocs);
}
END_TEST

Suite *records_suite(void) {
    Suite *suite = suite_create("data: records");
    TCase *tests = tcase_create("records");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, texts);
    tcase_add_test(tests, completions);
    tcase_add_test(tests, columns);
    tcase_add_test(tests, alpaca);
    tcase_add_test(tests, awkward_but_legal);
    tcase_add_test(tests, long_lines);
    tcase_add_test(tests, several_files);
    tcase_add_test(tests, pairs_with_prompt);
    tcase_add_test(tests, pairs_without_prompt);
    tcase_add_test(tests, cuts_pairs);
    tcase_add_test(tests, packed_pairs);
    tcase_add_test(tests, shuffled_pairs);
    tcase_add_loop_test(tests, equals_maxtext, 0, 2);
    tcase_add_test(tests, leaves_out);
    tcase_add_test(tests, one_mask_may_count_nothing);
    tcase_add_loop_test(tests, refuses, 0, MX_COUNT(bad));
    tcase_add_test(tests, tells_all_bad_lines);
    tcase_add_test(tests, refuses_files);
    tcase_add_test(tests, allocates_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}
