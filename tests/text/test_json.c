/* test_json.c — tokenizer files that are wrong are refused with their place; small ones whose ids
 * follow from the rules. */
#include "text_test.h"

#include "text/internal.h"

#include <stdio.h>

#define WORDS "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"u\": 0}, \"unk_token\": \"u\"}"

/* What is read, and what the message says behind the name of the file. */
static const struct {
    const char *json, *says;
} refused[] = {
    {"[]", "found a list, wanted an object"},
    {"{", "not valid JSON"},
    {"{}", "model: is missing, wanted an object"},
    {"{\"model\": {\"type\": \"BPF\"}}",
     "model.type: unrecognized model \"BPF\"\nhint: did you mean \"BPE\"?"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}",
     "model.vocab: found a list, wanted an object of texts and ids"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
     "model.vocab: \"b\" has the id 0, which another token has"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 2000000000}, \"merges\": []}}",
     "model.vocab: the id of \"a\" is no number from 0 to 16777215"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
     "model.merges: \"aa\" is not in the vocabulary"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}",
     "model.merges: wanted two texts with a space between"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}",
     "model.dropout: not available yet"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"colour\": 1}}",
     "model.colour: unrecognized; known here:"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"\": 1}}",
     "model.: unrecognized; known here:"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]], \"unk_id\": 0}}",
     "model.vocab[0]: wanted [text, score]"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]], \"unk_id\": 1}}",
     "model.unk_id: 1, but there are 1 tokens"},
    {"{" WORDS
     ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFX\"}]}}",
     "normalizer.normalizers[0].type: unrecognized normalizer \"NFX\"\nhint: did you mean "
     "\"NFC\"?"},
    {"{" WORDS ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolate\", "
     "\"pattern\": {\"String\": \"a\"}}}",
     "pre_tokenizer.behavior: unrecognized behavior \"Isolate\"\nhint: did you mean \"Isolated\"?"},
    {"{" WORDS ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "
     "\"pattern\": {\"Regex\": \"a(\"}}}",
     "pre_tokenizer.pattern: no pattern: missing closing parenthesis at position 2"},
    {"{" WORDS ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "
     "\"pattern\": {\"Regex\": \"[a[^b]]\"}}}",
     "pre_tokenizer.pattern: no pattern: such brackets inside of brackets, which is not available, "
     "at position 2"},
    {"{" WORDS ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "
     "\"pattern\": {\"Regex\": \"(?:(?i)a)[\\\\p{Lu}](?i:(b)[c\\\\p{Lu}])\"}}}",
     "pre_tokenizer.pattern: no pattern: letters of a case in brackets with (?i), which is not "
     "available, at position 28"},
    {"{" WORDS ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "
     "\"pattern\": {\"Regex\": \"(?i)a|(?i)(?-i)b|(c(?i)d|e)\"}}}",
     "pre_tokenizer.pattern: no pattern: (?i) behind something else, which is not available, at "
     "position 19"},
    {"{" WORDS ", \"decoder\": {\"type\": \"CTC\"}}", "decoder.type: unrecognized decoder \"CTC\""},
    {"{" WORDS ", \"added_tokens\": [{\"id\": 1, \"content\": \"u\"}]}",
     "added_tokens[0]: \"u\" has the id 1, but 0 in the vocabulary"},
    {"{" WORDS ", \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"s\", 9], "
     "\"cls\": [\"c\", 0]}}",
     "post_processor: the id 9 is no token's"},
    {"{" WORDS ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
     "\"ByteLevel\"}, {\"type\": \"BertProcessing\", \"sep\": [\"u\", 0], \"cls\": [\"u\", 0]}, "
     "{\"type\": \"BertProcessing\", \"sep\": [\"u\", 0], \"cls\": [\"u\", 0]}]}}",
     "post_processor: not available yet: two steps that add tokens"},
    {"{" WORDS ", \"colour\": 1}", "colour: unrecognized; known here:"},
};

START_TEST(refusals) {
    const char *path = text_file("refused.json", refused[_i].json, strlen(refused[_i].json));
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "huggingface", path, &tokenizer, &err));
    remove(path);
    ck_assert_msg(!strncmp(err.text.data, path, strlen(path)) &&
                      strstr(err.text.data, refused[_i].says),
                  "%s", err.text.data);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    ck_assert_int_eq(err.count, 1);
}
END_TEST

/* Names of a hub are no files. */
START_TEST(hub_names) {
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "huggingface", "someone/model", &tokenizer, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "\"someone/model\" is no file or folder here, and "
                                                "nothing is fetched from a hub\nhint: bring its"));
}
END_TEST

/* What the ids of words of one character are, where every character is a token of its own number.
 */
static const char splits[] =
    "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"a\": 1, "
    "\"b\": 2, \"ab\": 3, \"-\": 4, \"a-\": 5, \"-b\": 6, \"--\": 7}}, \"pre_tokenizer\": "
    "{\"type\": "
    "\"Split\", \"pattern\": {\"String\": \"-\"}, \"behavior\": \"%s\"}}";

static const struct {
    const char *behavior, *ids; /* of "a--b-" */
} behaviors[] = {
    {"Removed", "1 2"},
    {"Isolated", "1 4 4 2 4"},
    {"MergedWithPrevious", "5 4 0"},
    {"MergedWithNext", "1 4 6 4"},
    {"Contiguous", "1 7 2 4"},
};

START_TEST(split_behaviors) {
    const char *json = mx_arena_printf(&arena, splits, behaviors[_i].behavior);
    const char *path = text_file("split.json", json, strlen(json));
    MxTokenizer *tokenizer = text_opened("huggingface", path);
    remove(path);
    ck_assert_str_eq(text_ids(tokenizer, "a--b-", 5), behaviors[_i].ids);
}
END_TEST

START_TEST(not_utf8) {
    const char *json = mx_arena_printf(&arena, splits, "Removed");
    const char *path = text_file("utf8.json", json, strlen(json));
    MxTokenizer *tokenizer = text_opened("huggingface", path);
    MxTokens tokens;
    MxEncoding what = {.text = "ab\xff", .n = 3, .where = {.file = "FILE", .line = 3}};
    remove(path);
    ck_assert(!mx_tokenizer_encode(&arena, tokenizer, what, &tokens, &err));
    ck_assert_str_eq(err.text.data, "FILE:3: is not UTF-8: byte 0xff at offset 2");
}
END_TEST

/* Damage to a model of sentencepiece is told. */
START_TEST(damaged_pieces) {
    static const char bytes[] = "\x0a\x05\x0a\x03"
                                "abc\x0a"; /* a piece, and the start of another */
    const char *path = text_file("damaged.model", bytes, sizeof bytes - 1);
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "sentencepiece", path, &tokenizer, &err));
    remove(path);
    ck_assert_ptr_nonnull(strstr(err.text.data, ": is no model of sentencepiece that can be read: "
                                                "it ends in a number"));
}
END_TEST

static const struct {
    const char *ranks, *says;
} bad_ranks[] = {
    {"YQ== 0\nYQ== 1\n", ":2: this token or rank is there already"},
    {"YQ==\n", ":1: wanted base64, a space and a number"},
    {"Y 0\n", ":1: wanted base64, a space and a number"},
    {"YQ== 0\n", ": the byte 0x00 has no rank; is it a file of tiktoken?"},
    {"YQ== 1\n", ": 1 tokens have ranks up to 1"},
};

START_TEST(damaged_ranks) {
    const char *path = text_file("bad.tiktoken", bad_ranks[_i].ranks, strlen(bad_ranks[_i].ranks));
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "tiktoken", path, &tokenizer, &err));
    remove(path);
    ck_assert_msg(strstr(err.text.data, bad_ranks[_i].says) != NULL, "%s", err.text.data);
}
END_TEST

/* Single bytes and two merges. */
static MxText some_ranks(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    MxText file;
    mx_text_init(&file, &arena);
    for (int byte = 0; byte < 256; byte++)
        mx_text_add(&file, "%c%c== %d\n", digits[byte >> 2], digits[(byte & 3) << 4], byte);
    mx_text_add(&file, "YWI= 256\nYWJj 257\n"); /* ab, abc */
    return file;
}

/* Special tokens in text are text, unless a template wrote it. */
START_TEST(ranks) {
    MxText file = some_ranks();
    const char *path = text_file("good.tiktoken", file.data, file.len);
    MxTokenizer *tokenizer = text_opened("tiktoken", path);
    remove(path);
    ck_assert_str_eq(text_ids(tokenizer, "abab abc", 8), "256 256 32 257");
    ck_assert_int_eq(mx_tokenizer_vocab(tokenizer), 258 + 256);
    ck_assert_int_eq(mx_tokenizer_bos(tokenizer), 258);
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), 259);
    ck_assert_uint_gt(strlen(text_ids(tokenizer, "<|begin_of_text|>", 17)), 20);
    const int32_t ids[] = {258, 257, 264, 267};
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, ids, 4, false, NULL),
                     "<|begin_of_text|>abc<|start_header_id|><|eot_id|>");
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, ids, 4, true, NULL), "abc");
    MxEncoding rendered = {.text = "<|begin_of_text|>abc<|start_header_id|><|eot_id|>",
                           .is_rendered = true};
    MxTokens tokens;
    rendered.n = strlen(rendered.text);
    ck_assert(mx_tokenizer_encode(&arena, tokenizer, rendered, &tokens, &err));
    ck_assert_int_eq(tokens.n, 4);
    ck_assert_mem_eq(tokens.ids, ids, sizeof ids);
}
END_TEST

/* What Meta calls tokenizer.model is, of Llama 3, such a file; a model of sentencepiece begins with
 * the end of a line. */
START_TEST(ranks_that_lie_in_a_folder) {
    MxText file = some_ranks();
    const char *dir = text_file("folder", "", 0);
    remove(dir);
    ck_assert(mx_dir_make(dir, &err));
    const char *path = mx_path_join(&arena, dir, "tokenizer.model");
    ck_assert(mx_file_write(path, file.data, file.len, &err));
    ck_assert_str_eq(mx_tokenizer_guess(dir), "tiktoken");
    ck_assert_str_eq(text_ids(text_opened("tiktoken", dir), "abab abc", 8), "256 256 32 257");
    ck_assert(mx_file_write(path, "\n", 1, &err));
    ck_assert_str_eq(mx_tokenizer_guess(dir), "sentencepiece");
    ck_assert(mx_dir_remove(dir, &err));
    ck_assert_ptr_null(mx_tokenizer_guess(dir));
}
END_TEST

/* Mistral's file: NUL as it is, bytes, two merges, and one token more than its vocabulary has. */
static MxText some_tekken(const char *config, const char *more) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    MxText file;
    mx_text_init(&file, &arena);
    mx_text_add(&file, "{\"config\": {%s}, \"vocab\": [", config);
    for (int byte = 0; byte < 256; byte++)
        mx_text_add(&file, "{\"rank\": %d, \"token_bytes\": \"%c%c==\", \"token_str\": %s},\n",
                    byte, digits[byte >> 2], digits[(byte & 3) << 4],
                    byte ? "null" : "\"\\u0000\"");
    mx_text_add(&file,
                "{\"rank\": 256, \"token_bytes\": \"YWI=\", \"token_str\": \"ab\"}, "
                "{\"rank\": 257, \"token_bytes\": \"YWJj\", \"token_str\": \"abc\"}, "
                "{\"rank\": 258, \"token_bytes\": \"dW51c2Vk\", \"token_str\": \"unused\"}]");
    mx_text_add(&file, "%s}", more);
    return file;
}

#define TEKKEN(vocab, special, version)                                                            \
    "\"pattern\": \"\\\\p{N}| ?\\\\p{L}+|\\\\s+|[^\\\\p{L}]\", \"num_vocab_tokens\": 259, "        \
    "\"default_vocab_size\": " vocab ", \"default_num_special_tokens\": " special                  \
    ", \"version\": \"" version "\""
#define TEKKEN_SPECIAL                                                                             \
    ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<unk>\", \"is_control\": true}, "       \
    "{\"rank\": 1, \"token_str\": \"<s>\", \"is_control\": true}, "                                \
    "{\"rank\": 2, \"token_str\": \"</s>\", \"is_control\": true}, "                               \
    "{\"rank\": 3, \"token_str\": \"<pad>\", \"is_control\": true}]"

/* What mistral-common 1.13 makes with the same file. */
START_TEST(tekken) {
    MxText file = some_tekken(TEKKEN("264", "6", "v11"), TEKKEN_SPECIAL);
    const char *dir = text_file("folder", "", 0), *path = mx_path_join(&arena, dir, "tekken.json");
    remove(dir);
    ck_assert(mx_dir_make(dir, &err));
    ck_assert(mx_file_write(path, file.data, file.len, &err));
    ck_assert_str_eq(mx_tokenizer_guess(dir), "tekken");
    ck_assert_str_eq(mx_tokenizer_guess(path), "tekken");
    MxTokenizer *tokenizer = text_opened("tekken", dir);
    ck_assert(mx_dir_remove(dir, &err));
    ck_assert_str_eq(text_ids(tokenizer, "abab abc12<s>", 13), "262 262 38 263 55 56 66 121 68");
    ck_assert_str_eq(text_ids(tokenizer, "unused\0", 7), "123 116 123 121 107 106 6");
    ck_assert_int_eq(mx_tokenizer_vocab(tokenizer), 264);
    ck_assert_int_eq(mx_tokenizer_bos(tokenizer), 1);
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), 2);
    ck_assert_int_eq(mx_tokenizer_pad(tokenizer), 3);
    const int32_t ids[] = {1, 263, 4, 2, 5};
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, ids, 5, false, NULL),
                     "<s>abc<SPECIAL_4></s><SPECIAL_5>");
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, ids, 5, true, NULL), "abc");
}
END_TEST

static const struct {
    const char *config, *more, *says;
} bad_tekken[] = {
    {TEKKEN("264", "6", "v11"), "", ": special_tokens: is missing, wanted a list"},
    {TEKKEN("264", "6", "v3"), "", ": there are 20, but default_num_special_tokens is 6"},
    {TEKKEN("264", "6", "x"), "", ": config.version: found \"x\", wanted v and a number"},
    {TEKKEN("266", "6", "v11"), TEKKEN_SPECIAL, "vocab: there are 259 tokens, wanted 260"},
    {TEKKEN("6", "6", "v11"), TEKKEN_SPECIAL, ": config: 6 tokens with 6 special ones cannot be"},
    {TEKKEN("264", "100", "v3"), ", \"picture\": 1", ": picture: unrecognized; known here"},
    {TEKKEN("110", "6", "v11"), TEKKEN_SPECIAL, ": the byte 0x68 has no rank"},
    {TEKKEN("264", "6", "v11"),
     ", \"special_tokens\": [{\"rank\": 1, \"token_str\": \"<s>\", \"is_control\": true}]",
     ": special_tokens[0].rank: found 1, wanted 0"},
    {TEKKEN("264", "6", "v11"),
     ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<SPECIAL_3>\"}]", "is there twice"},
    {TEKKEN("264", "6", "v11"), ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"\"}]",
     ": special_tokens[0].token_str: it is empty"},
};

START_TEST(damaged_tekken) {
    MxText file = some_tekken(bad_tekken[_i].config, bad_tekken[_i].more);
    const char *path = text_file("tekken_bad.json", file.data, file.len);
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "tekken", path, &tokenizer, &err));
    remove(path);
    ck_assert_msg(strstr(err.text.data, bad_tekken[_i].says) != NULL, "%s", err.text.data);
}
END_TEST

/* Files whose merges are read ahead of the JSON around them, or not: there, JSON alone knows. */
static const struct {
    const char *json;
    bool is_plain;
} merged[] = {
    {"{\"model\": {\"vocab\": {\"merges\": [1]}, \"merges\": [[\"a\", \"b\"], [ \"\",\"\u00e9 c\" "
     "]]}}",
     true},
    {"{\"added_tokens\": [{\"merges\": []}], \"model\":{\"merges\"\n:\t[\"a b\",\"c \"],\"x\": 1}}",
     true},
    {"{\"model\": {\"merges\": [[\"\\u00E9\\n\\\"\\\\\", \"]\\/\\u0000[\"], [\"\\\\\", \"\\t\"]]}}",
     true},
    {"{\"merges\": [\"a b\"], \"model\": {}}", false},
    {"{\"model\": {\"merges\": []}}", false},
    {"{\"model\": {\"merges\": [\"a b c\"]}}", false},
    {"{\"model\": {\"merges\": [[\"a\", \"b\", \"c\"]]}}", false},
    {"{\"model\": {\"merges\": [[\"a\", 1]]}}", false},
    {"{\"model\": {\"merges\": [\"a b\",]}}", false},
    {"{\"model\": {\"merges\": [\"a b\"", false},
    {"{\"model\": {\"merges\": [[\"\\ud83d\\ude00\", \"b\"]]}}", false},
    {"{\"model\": {\"merges\": [[\"\\x\", \"b\"]]}}", false},
    {"{\"model\": {\"merges\": [[\"\x80\", \"b\"]]}}", false},
    {"{\"model\": {\"merges\": [[\"a\nb\", \"b\"]]}}", false},
    {"{\"model\": {\"merges\": [[\"\\\\a\nb\", \"b\"]]}}", false},
    {"{\"model\": {\"merges\": [\"a b\"], \"merges\": [\"a b\"]}}", false},
    {"{\"model\": {\"merges\": [\"a b\"], \"\\u006derges\": [\"a c\"]}}", false},
    {"{\"model\": {\"merges\": [\"a b\"]}, \"model\": {\"merges\": [\"a c\"]}}", false},
    {"{\"model\": {\"merges\": [\"a b\"]}, \"model\": {}}", false},
};

/* A part of a row as JSON has it. */
static void check_part(const MxJson *row, size_t k, TextSpan part) {
    const MxJson *json = mx_json_at(row, k);
    ck_assert_uint_eq(mx_json_string_bytes(json), part.n);
    ck_assert_mem_eq(mx_json_string(json), part.data, part.n);
}

START_TEST(merges_read_ahead) {
    const char *text = merged[_i].json;
    MxBytes rest;
    TextMerges merges;
    bool is_plain = text_merges_read(&arena, (MxBytes){(uint8_t *)(uintptr_t)text, strlen(text)},
                                     &merges, &rest);
    ck_assert_msg(is_plain == merged[_i].is_plain, "%s", text);
    if (!is_plain) return;
    MxWhere where = {.file = "merges", .line = 1};
    const MxJson *whole = mx_json_parse_line(&arena, text, strlen(text), where, &err);
    const MxJson *list = mx_json_get(mx_json_get(whole, "model"), "merges");
    ck_assert_uint_eq(mx_json_length(list), merges.n);
    for (size_t i = 0; i < merges.n; i++) {
        const MxJson *row = mx_json_at(list, i);
        char line[64];
        snprintf(line, sizeof line, "%.*s %.*s", (int)merges.pair[i][0].n, merges.pair[i][0].data,
                 (int)merges.pair[i][1].n, merges.pair[i][1].data);
        if (mx_json_string(row)) ck_assert_str_eq(mx_json_string(row), line);
        for (size_t k = 0; !mx_json_string(row) && k < 2; k++)
            check_part(row, k, merges.pair[i][k]);
    }
    MxJson *left = mx_json_parse_line(&arena, (char *)rest.data, rest.size, where, &err);
    ck_assert_uint_eq(mx_json_length(mx_json_get(mx_json_get(left, "model"), "merges")), 0);
    mx_json_set(mx_json_get(left, "model"), "merges", list);
    ck_assert_str_eq(mx_json_dump(&arena, left, false), mx_json_dump(&arena, whole, false));
}
END_TEST

Suite *text_json_suite(void) {
    Suite *suite = suite_create("text/files");
    TCase *tests = tcase_create("files");
    tcase_add_checked_fixture(tests, NULL, text_tear_down);
    tcase_add_loop_test(tests, refusals, 0, MX_COUNT(refused));
    tcase_add_loop_test(tests, merges_read_ahead, 0, MX_COUNT(merged));
    tcase_add_test(tests, hub_names);
    tcase_add_loop_test(tests, split_behaviors, 0, MX_COUNT(behaviors));
    tcase_add_test(tests, not_utf8);
    tcase_add_test(tests, damaged_pieces);
    tcase_add_loop_test(tests, damaged_ranks, 0, MX_COUNT(bad_ranks));
    tcase_add_test(tests, ranks);
    tcase_add_test(tests, ranks_that_lie_in_a_folder);
    tcase_add_test(tests, tekken);
    tcase_add_loop_test(tests, damaged_tekken, 0, MX_COUNT(bad_tekken));
    suite_add_tcase(suite, tests);
    return suite;
}
