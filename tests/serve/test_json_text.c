/* test_json_text.c — texts of JSON objects byte by byte, against RFC 8259 and the parser; and what
 * tokens of real vocabularies may come next. */
#include "serve_test.h"

#include "common/goldens.h"
#include "serve/vocabulary.h"

#include <math.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* An object, or the text up to a byte that cannot come; it cannot if `is_refused`. */
static const struct {
    const char *text;
    bool is_refused;
} texts[] = {
    {"{}", false},
    {"\n{ } ", false},
    {"{\"a\": 1, \"b\": [true, false, null, \"x\\n\\u00e9\\\"\", {}, [], -0.5e+10, 0, 12E3]}",
     false},
    {"{\"a\":{\"b\":{\"c\":[[[{}]]]}},\"\":\"\xc3\xa9\"}", false},
    {"{\"a\":0}", false},
    {"{\"\xe0\xa4\x85\xed\x9f\xbf\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xef\xbf\xbd\":0}", false},
    {"{\"\x80", true},
    {"{\"\xc3\"", true},
    {"{\"\xc1", true},
    {"{\"\xe0\x9f", true},
    {"{\"\xed\xa0", true},
    {"{\"\xf4\x90", true},
    {"{\"\xf5", true},
    {"{\xc3", true},
    {"{\"\\ud7ff\\uE000\\\\\": 1.25}", false},
    {"  ", true},
    {"[", true},
    {"5", true},
    {"\"", true},
    {"{a", true},
    {"{,", true},
    {"{\"a\" \"", true},
    {"{\"a\":,", true},
    {"{\"a\":1,}", true},
    {"{\"a\":1]", true},
    {"{\"a\":[1}", true},
    {"{\"a\":[1,]", true},
    {"{\"a\":01", true},
    {"{\"a\":-}", true},
    {"{\"a\":.", true},
    {"{\"a\":1.}", true},
    {"{\"a\":1e}", true},
    {"{\"a\":+", true},
    {"{\"a\":tru}", true},
    {"{\"a\":N", true},
    {"{\"a\":\"\n", true},
    {"{\"a\":\"\\x", true},
    {"{\"a\":\"\\u12g", true},
    {"{\"a\":\"\\ud8", true},
    {"{}}", true},
    {"{}{", true},
    {"{}x", true},
    {"{\"a\":1 2", true},
};

START_TEST(texts_go_on_as_the_grammar_says) {
    MxError err = {0};
    const JsonGrammar *g = json_grammar_new(&arena);
    const char *text = texts[_i].text;
    const size_t n = strlen(text), last = n - texts[_i].is_refused;
    JsonText at_once = {0}, in_bytes = {0};
    ck_assert_msg(json_text_add(g, &at_once, text, n) != texts[_i].is_refused, "%s", text);
    for (size_t i = 0; i < last; i++) {
        ck_assert_msg(json_text_may(g, &in_bytes, text[i]), "%s: byte %zu", text, i);
        ck_assert_msg(json_text_add(g, &in_bytes, text + i, 1), "%s: byte %zu", text, i);
    }
    if (texts[_i].is_refused) {
        ck_assert_msg(!json_text_add(g, &in_bytes, text + last, 1), "%s", text);
        return;
    }
    ck_assert(!memcmp(&at_once, &in_bytes, sizeof at_once) && json_text_is_complete(&in_bytes));
    ck_assert_ptr_nonnull(mx_json_parse(&arena, text, n, "text", &err));
}
END_TEST

START_TEST(depth_and_spaces_have_an_end) {
    const JsonGrammar *g = json_grammar_new(&arena);
    JsonText text = {0};
    ck_assert(json_text_add(g, &text, "{\"a\":", 5));
    for (int i = 1; i < JSON_TEXT_DEEPEST; i++) ck_assert(json_text_add(g, &text, "[", 1));
    ck_assert(!json_text_add(g, &text, "[", 1) && !json_text_add(g, &text, "{", 1));
    for (int i = 1; i < JSON_TEXT_DEEPEST; i++) ck_assert(json_text_add(g, &text, "]", 1));
    ck_assert(!json_text_is_complete(&text) && json_text_add(g, &text, "}", 1));
    ck_assert(json_text_is_complete(&text));
    text = (JsonText){0};
    ck_assert(json_text_add(g, &text, "{", 1));
    for (int i = 0; i < JSON_TEXT_MOST_SPACES; i++) ck_assert(json_text_add(g, &text, " ", 1));
    ck_assert(!json_text_add(g, &text, " ", 1) && json_text_add(g, &text, "\" ", 2));
    for (int i = 0; i < 2 * JSON_TEXT_MOST_SPACES; i++) ck_assert(json_text_add(g, &text, " ", 1));
}
END_TEST

static const char *const tokenizers[] = {"llama3", "gemma", "llama2", "qwen", "t5", "gpt2"};

/* Whichever tokens come of those that may, as numbers of a generator say: the text becomes an
 * object that parses. After some, what could close it is chosen. */
static void write_object(const MxTokenizer *tokenizer, const Vocabulary *v, uint64_t seed) {
    enum { FREE = 40, MOST = 400 };
    const int32_t vocab = mx_tokenizer_vocab(tokenizer);
    float *logits = mx_new_n(&arena, float, vocab + 3);
    int32_t ids[MOST];
    JsonText json = {0};
    MxError err = {0};
    bool is_complete = false;
    int n = 0;
    for (; n < MOST && !is_complete; n++) {
        memset(logits, 0, (size_t)(vocab + 3) * sizeof *logits);
        ck_assert(vocabulary_limit(v, &json, logits, vocab + 3));
        for (int i = 0; i < 3; i++) ck_assert(isinf(logits[vocab + i]));
        int32_t best = -1;
        double most = -1;
        for (int32_t id = 0; id < vocab; id++) {
            uint32_t w[4];
            size_t bytes;
            if (isinf(logits[id])) continue;
            mx_philox(seed, (uint64_t)n, (uint64_t)id, w);
            const char *text = mx_tokenizer_decode(&arena, tokenizer, &id, 1, true, &bytes);
            bool closes = bytes && strchr("}]\"", text[bytes - 1]) && bytes < 3;
            double worth = (double)mx_uniform(w[0]) + (n > FREE && closes);
            if (worth > most) most = worth, best = id;
        }
        ids[n] = best;
        is_complete = vocabulary_add(v, &json, best);
    }
    size_t n_bytes;
    const char *text = mx_tokenizer_decode(&arena, tokenizer, ids, n, true, &n_bytes);
    const MxWhere where = {.file = "text"};
    ck_assert_msg(is_complete, "%s", text);
    ck_assert_msg(mx_json_parse_line(&arena, text, n_bytes, where, &err), "%s: %s", text,
                  err.text.data);
}

START_TEST(tokens_that_may_come_make_objects) {
    MxError err = {0};
    MxTokenizer *tokenizer;
    const char *name = mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json", tokenizers[_i]);
    const char *path = goldens_find(&arena, name);
    if (!path) return;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", path, &tokenizer, &err));
    int32_t eos = mx_tokenizer_eos(tokenizer);
    const Vocabulary *v = vocabulary_new(&arena, tokenizer, &eos, 1);
    for (uint64_t seed = 0; seed < 5; seed++) write_object(tokenizer, v, seed);
}
END_TEST

Suite *json_text_suite(void) {
    Suite *suite = suite_create("json_text");
    TCase *tcase = tcase_create("json_text");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, texts_go_on_as_the_grammar_says, 0, MX_COUNT(texts));
    tcase_add_test(tcase, depth_and_spaces_have_an_end);
    tcase_add_loop_test(tcase, tokens_that_may_come_make_objects, 0, MX_COUNT(tokenizers));
    suite_add_tcase(suite, tcase);
    return suite;
}
