/* test_golden.c — tokenizers of transformers, tokenizers and sentencepiece: every string of theirs
 * becomes the same ids, every list of ids the same text, at once and token by token. */
#include "text_test.h"

#include "common/goldens.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

MxArena arena = {.name = "test"};
MxError err;

void text_tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

MxTokenizer *text_opened(const char *type, const char *path) {
    MxTokenizer *tokenizer = NULL;
    bool ok = mx_tokenizer_open(&arena, type, path, &tokenizer, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    return tokenizer;
}

static MxTokens encoded(const MxTokenizer *tokenizer, const char *text, size_t n, bool special) {
    MxTokens tokens = {0};
    MxEncoding what = {.text = text, .n = n, .special = special};
    bool ok = mx_tokenizer_encode(&arena, tokenizer, what, &tokens, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    return tokens;
}

static const char *shown(MxTokens tokens) {
    MxText out;
    mx_text_init(&out, &arena);
    for (int64_t i = 0; i < tokens.n; i++) mx_text_add(&out, "%s%d", i ? " " : "", tokens.ids[i]);
    return out.data;
}

const char *text_ids(const MxTokenizer *tokenizer, const char *text, size_t n) {
    return shown(encoded(tokenizer, text, n, false));
}

const char *text_file(const char *name, const char *content, size_t n) {
    const char *path = mx_arena_printf(&arena, "/tmp/mx_text_%d_%s", (int)getpid(), name);
    ck_assert(mx_file_write(path, content, n, &err));
    return path;
}

/* ---- golden files */

/* "hf/tokenizers/<folder>/<file>", the strings that go with it, and where ids are. */
static const struct {
    const char *folder, *file, *type, *strings, *decodes;
} cases[] = {
    {"gpt2", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"gpt2", "tokenizer_string_merges.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"llama3", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"qwen", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"qwen", "tokenizer_string_merges.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"deepseek", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"llama2", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"llama2", "tokenizer_string_merges.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"llama2", "tokenizer.model", "sentencepiece", "expected_spm.jsonl", NULL},
    {"gemma", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"gemma", "tokenizer.model", "sentencepiece", "expected_spm.jsonl", NULL},
    {"t5", "tokenizer.json", "huggingface", "expected.jsonl", "decode.jsonl"},
    {"t5", "tokenizer.model", "sentencepiece", "expected_spm.jsonl", NULL},
    {"pieces", "tokenizer.model", "sentencepiece", "expected_spm.jsonl", NULL},
    {"pieces", "bpe.model", "sentencepiece", "expected_bpe.jsonl", NULL},
};

/* Folders with canon.txt: the padding token's id, then the number of each token. */
static const char *const canons[] = {"qwen", "llama3", "gemma", "gpt2"};

START_TEST(tokens_count_as_one) {
    const char *dir = mx_arena_printf(&arena, GOLDENS_HERE "/hf/tokenizers/%s", canons[_i]);
    MxTokenizer *tokenizer = text_opened("huggingface", dir);
    const int32_t *canon;
    MxBytes bytes;
    ck_assert_msg(mx_tokenizer_canon(&arena, tokenizer, &canon, &err), "%s", err.text.data);
    ck_assert(mx_file_read(&arena, mx_path_join(&arena, dir, "canon.txt"), 1 << 20, &bytes, &err));
    char *at = (char *)bytes.data;
    ck_assert_int_eq(mx_tokenizer_pad(tokenizer), strtol(at, &at, 10));
    for (int32_t id = 0; id < mx_tokenizer_vocab(tokenizer); id++)
        ck_assert_msg(canon[id] == strtol(at, &at, 10), "%s: token %d", canons[_i], id);
    ck_assert_str_eq(at, "\n");
}
END_TEST

static bool falls_back; /* of the tokenizer that is tested */

typedef void EachLine(const MxTokenizer *tokenizer, const MxJson *line, int number);

static void each_line(const char *path, const MxTokenizer *tokenizer, EachLine *each, int least) {
    MxBytes bytes;
    int number = 0;
    ck_assert(mx_file_read(&arena, path, (size_t)1 << 26, &bytes, &err));
    for (const char *at = (const char *)bytes.data, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        MxWhere where = {path, ++number, 0};
        const MxJson *line = mx_json_parse_line(&arena, at, (size_t)(end - at), where, &err);
        ck_assert_msg(line != NULL, "%s", line ? "" : err.text.data);
        each(tokenizer, line, number);
    }
    ck_assert_int_ge(number, least);
}

static MxTokens list_of(const MxJson *list) {
    MxTokens tokens = {mx_new_n(&arena, int32_t, mx_json_length(list) + 1), 0};
    for (size_t i = 0; i < mx_json_length(list); i++) {
        double id;
        ck_assert(mx_json_number(mx_json_at(list, i), &id));
        tokens.ids[tokens.n++] = (int32_t)id;
    }
    return tokens;
}

static void check_text(const MxJson *want, const char *text, size_t n, int number) {
    ck_assert_msg(n == mx_json_string_bytes(want) && !memcmp(text, mx_json_string(want), n),
                  "line %d: got \"%s\", want \"%s\"", number, text, mx_json_string(want));
}

/* Decoding at once and token by token. With byte fallback a broken run of bytes is no text as a
 * whole; characters of it that came before are out by then. */
static void check_decode(const MxTokenizer *tokenizer, MxTokens tokens, bool skips,
                         const MxJson *want, int number) {
    size_t n;
    const char *text = mx_tokenizer_decode(&arena, tokenizer, tokens.ids, tokens.n, skips, &n);
    check_text(want, text, n, number);
    MxTextStream *stream = mx_text_stream_new(&arena, tokenizer, skips);
    MxText all;
    mx_text_init(&all, &arena);
    for (int64_t i = 0; i < tokens.n; i++) {
        text = mx_text_stream_next(stream, tokens.ids[i], &n);
        ck_assert_uint_eq(mx_utf8_valid_bytes(text, n), n);
        mx_text_addn(&all, text, n);
    }
    text = mx_text_stream_end(stream, &n);
    mx_text_addn(&all, text, n);
    bool is_broken = strstr(mx_json_string(want), "\xef\xbf\xbd") && falls_back;
    if (!is_broken) check_text(want, all.data, all.len, number);
}

static void check_strings(const MxTokenizer *tokenizer, const MxJson *line, int number) {
    const MxJson *text = mx_json_get(line, "text"), *ids = mx_json_get(line, "ids");
    const MxJson *special = mx_json_get(line, "ids_special");
    for (int is_special = 0; is_special < 2; is_special++) {
        MxTokens want = list_of(is_special && special ? special : ids);
        MxTokens got =
            encoded(tokenizer, mx_json_string(text), mx_json_string_bytes(text), is_special);
        ck_assert_msg(!strcmp(shown(got), shown(want)), "line %d \"%s\": got %s, want %s", number,
                      mx_json_string(text), shown(got), shown(want));
    }
    if (!strcmp(mx_tokenizer_type(tokenizer), "sentencepiece")) return; /* has no texts */
    const MxJson *decoded = mx_json_get(line, "decoded");
    check_decode(tokenizer, list_of(ids), false, decoded ? decoded : text, number);
}

static void check_decodes(const MxTokenizer *tokenizer, const MxJson *line, int number) {
    MxTokens ids = list_of(mx_json_get(line, "ids"));
    check_decode(tokenizer, ids, false, mx_json_get(line, "decoded"), number);
    check_decode(tokenizer, ids, true, mx_json_get(line, "decoded_skip"), number);
}

START_TEST(golden) {
    const char *folder = mx_arena_printf(&arena, "hf/tokenizers/%s", cases[_i].folder);
    char *path = goldens_find(&arena, mx_arena_printf(&arena, "%s/%s", folder, cases[_i].file));
    char *strings =
        goldens_find(&arena, mx_arena_printf(&arena, "%s/%s", folder, cases[_i].strings));
    if (!path || !strings) return;
    MxTokenizer *tokenizer = text_opened(cases[_i].type, path);
    falls_back = !strcmp(cases[_i].folder, "llama2") || !strcmp(cases[_i].folder, "gemma");
    each_line(strings, tokenizer, check_strings, 100);
    if (!cases[_i].decodes) return;
    each_line(goldens_need(&arena, mx_arena_printf(&arena, "%s/%s", folder, cases[_i].decodes)),
              tokenizer, check_decodes, 100);
}
END_TEST

/* One rule: a tokenizer, and what it makes of texts. */
static void check_rule(const MxTokenizer *none, const MxJson *line, int number) {
    (void)none;
    const char *json = mx_json_dump(&arena, mx_json_get(line, "tokenizer"), false);
    const char *path = text_file("rule.json", json, strlen(json));
    MxTokenizer *tokenizer = text_opened("huggingface", path);
    const MxJson *texts = mx_json_get(line, "texts"), *decoded = mx_json_get(line, "decoded");
    remove(path);
    for (size_t i = 0; i < mx_json_length(texts); i++) {
        const MxJson *text = mx_json_at(texts, i);
        MxTokens want = list_of(mx_json_at(mx_json_get(line, "ids"), i));
        MxTokens got = encoded(tokenizer, mx_json_string(text), mx_json_string_bytes(text), false);
        ck_assert_msg(!strcmp(shown(got), shown(want)), "line %d, %s, \"%s\": got %s, want %s",
                      number, mx_json_string(mx_json_get(line, "rule")), mx_json_string(text),
                      shown(got), shown(want));
        size_t n;
        const char *back = mx_tokenizer_decode(&arena, tokenizer, want.ids, want.n, false, &n);
        if (decoded) check_text(mx_json_at(decoded, i), back, n, number);
    }
}

START_TEST(rules) {
    each_line(GOLDENS_HERE "/hf/tokenizers/rules/rules.jsonl", NULL, check_rule, 40);
}
END_TEST

/* bos and eos are those that the files beside it name. */
START_TEST(special_tokens) {
    char *path = goldens_need(&arena, "hf/tokenizers/llama3");
    MxTokenizer *tokenizer = text_opened("huggingface", path);
    ck_assert_int_eq(mx_tokenizer_bos(tokenizer), 1206); /* <|begin_of_text|> */
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), 1212); /* <|eot_id|> */
    ck_assert_int_eq(mx_tokenizer_vocab(tokenizer), 1217);
    ck_assert_str_eq(mx_tokenizer_guess(path), "huggingface");
    MxTokenizer *other = text_opened("huggingface", mx_path_join(&arena, path, "tokenizer.json"));
    ck_assert(mx_tokenizer_hash(other) == mx_tokenizer_hash(tokenizer));
}
END_TEST

/* Padding and unknown text, as sentencepiece and transformers have them; -1 = none. */
static const struct {
    const char *type, *path;
    int32_t pad, unk;
} lacking[] = {
    {"sentencepiece", "t5/tokenizer.model", 0, -1},
    {"sentencepiece", "llama2/tokenizer.model", -1, -1},
    {"huggingface", "t5/tokenizer.json", 0, 2},
    {"huggingface", "llama2/tokenizer.json", -1, 0},
    {"huggingface", "gpt2/tokenizer.json", -1, 800},
};

START_TEST(tokens_that_stand_for_nothing) {
    const char *name = mx_arena_printf(&arena, "hf/tokenizers/%s", lacking[_i].path);
    MxTokenizer *tokenizer = text_opened(lacking[_i].type, goldens_need(&arena, name));
    ck_assert_int_eq(mx_tokenizer_pad(tokenizer), lacking[_i].pad);
    ck_assert_int_eq(mx_tokenizer_unk(tokenizer), lacking[_i].unk);
}
END_TEST

/* A word of a megabyte takes moments, not minutes: merges are found through a heap. */
START_TEST(long_words) {
    enum { N = 1 << 20 };
    MxTokenizer *tokenizer =
        text_opened("huggingface", goldens_need(&arena, "hf/tokenizers/llama3"));
    char *text = mx_arena_alloc(&arena, N + 1);
    const char *const words[] = {"a", "ab", " ", "the", "\xe4\xbd\xa0"};
    for (int w = 0; w < MX_COUNT(words); w++) {
        size_t n = strlen(words[w]), all = N / n * n;
        for (size_t i = 0; i < all; i += n) memcpy(text + i, words[w], n);
        clock_t start = clock();
        MxTokens tokens = encoded(tokenizer, text, all, false);
        ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, 60); /* a quadratic way takes hours */
        size_t bytes;
        char *back = mx_tokenizer_decode(&arena, tokenizer, tokens.ids, tokens.n, false, &bytes);
        ck_assert_uint_eq(bytes, all);
        ck_assert_mem_eq(back, text, all);
    }
}
END_TEST

Suite *text_golden_suite(void) {
    Suite *suite = suite_create("text/golden");
    TCase *tests = tcase_create("golden");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, NULL, text_tear_down);
    tcase_add_loop_test(tests, golden, 0, MX_COUNT(cases));
    tcase_add_loop_test(tests, tokens_count_as_one, 0, MX_COUNT(canons));
    tcase_add_test(tests, rules);
    tcase_add_test(tests, special_tokens);
    tcase_add_loop_test(tests, tokens_that_stand_for_nothing, 0, MX_COUNT(lacking));
    tcase_add_test(tests, long_words);
    suite_add_tcase(suite, tests);
    return suite;
}
