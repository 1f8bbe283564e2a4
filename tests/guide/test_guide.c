/* test_guide.c — texts of JSON objects byte by byte, against RFC 8259 and the parser; what tokens
 * of real vocabularies may come next; grammars of other text. */
#include "guide_test.h"

#include "common/goldens.h"

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
    {"{\"a\":\"\\u0000", true},
    {"{\"a\":\"\\u0001\\u0100\\u000d\"}", false},
    {"{}}", true},
    {"{}{", true},
    {"{}x", true},
    {"{\"a\":1 2", true},
};

static const char any_object[] = "{\"type\": \"object\"}";

static MxGuide *guide_of(const char *schema, const MxVocabulary *vocabulary) {
    MxError err = {0};
    MxGrammar *grammar;
    const MxJson *json = mx_json_parse(&arena, schema, strlen(schema), "schema", &err);
    ck_assert_msg(json && mx_grammar_of_schema(&arena, json, "schema", &grammar, &err), "%s",
                  err.text.data);
    return mx_guide_new(&arena, grammar, vocabulary);
}

START_TEST(texts_go_on_as_the_grammar_says) {
    MxError err = {0};
    MxGuide *guide = guide_of(any_object, guide_test_bytes(&arena));
    const char *text = texts[_i].text;
    const size_t n = strlen(text), last = n - texts[_i].is_refused;
    MxGuided at_once, in_bytes;
    mx_guided_init(&at_once, &arena, guide);
    mx_guided_init(&in_bytes, &arena, guide);
    ck_assert_msg(mx_guided_add(&at_once, text, n) != texts[_i].is_refused, "%s", text);
    for (size_t i = 0; i < last; i++)
        ck_assert_msg(mx_guided_add(&in_bytes, text + i, 1), "%s: byte %zu", text, i);
    if (texts[_i].is_refused) {
        ck_assert_msg(!mx_guided_add(&in_bytes, text + last, 1), "%s", text);
        return;
    }
    ck_assert(at_once.node == in_bytes.node && guide_test_may_end(&at_once));
    ck_assert_ptr_nonnull(mx_json_parse(&arena, text, n, "text", &err));
}
END_TEST

/* Nested deeper than there is room for, an object can still be closed. */
START_TEST(depth_and_spaces_have_an_end) {
    enum { DEEPEST = 128, MOST_SPACES = 64 };
    MxGuided text;
    int depth = 0;
    mx_guided_init(&text, &arena, guide_of(any_object, guide_test_bytes(&arena)));
    ck_assert(mx_guided_add(&text, "{\"a\":", 5));
    while (mx_guided_add(&text, "[", 1)) depth++;
    ck_assert_int_ge(depth, DEEPEST - 2);
    ck_assert_int_le(depth, DEEPEST + 2);
    for (; depth; depth--) ck_assert(mx_guided_add(&text, "]", 1));
    ck_assert(!guide_test_may_end(&text) && mx_guided_add(&text, "}", 1));
    ck_assert(guide_test_may_end(&text));
    mx_guided_init(&text, &arena, text.guide);
    ck_assert(mx_guided_add(&text, "{ ", 2) && !mx_guided_add(&text, " ", 1));
    mx_guided_init(&text, &arena, text.guide);
    ck_assert(mx_guided_add(&text, "{\n", 2));
    for (int i = 0; i < MOST_SPACES; i++) ck_assert(mx_guided_add(&text, " ", 1));
    ck_assert(!mx_guided_add(&text, " ", 1) && mx_guided_add(&text, "\" ", 2));
    for (int i = 0; i < 2 * MOST_SPACES; i++) ck_assert(mx_guided_add(&text, " ", 1));
}
END_TEST

/* Where no object could be finished any more, because its member would be too deep, none begins. */
START_TEST(what_cannot_be_finished_is_not_begun) {
    static const char schema[] =
        "{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"anyOf\": [{\"const\": 0}, {\"type\": "
        "\"object\", "
        "\"properties\": {\"a\": {\"$ref\": \"#/$defs/a\"}}, \"required\": [\"a\"]}]}}}";
    MxGuided text;
    int depth = 0;
    mx_guided_init(&text, &arena, guide_of(schema, guide_test_bytes(&arena)));
    while (mx_guided_add(&text, "{\"a\":", 5)) depth++;
    ck_assert_int_gt(depth, 50);
    ck_assert(!mx_guided_add(&text, "{", 1) && mx_guided_add(&text, "0", 1));
    for (; depth; depth--) ck_assert(mx_guided_add(&text, "}", 1));
    ck_assert(guide_test_may_end(&text));
}
END_TEST

static const char *const tokenizers[] = {"llama3", "gemma", "llama2", "qwen", "t5", "gpt2"};

/* Whichever tokens come of those that may, as numbers of a generator say: the text becomes one of
 * the grammar. After some, what could close it is chosen. Each token that may come is one whose
 * bytes may, and the other way round. */
static void write_text(const MxTokenizer *tokenizer, MxGuide *guide, uint64_t seed, bool checks) {
    enum { FREE = 40, MOST = 400 };
    const int32_t vocab = mx_tokenizer_vocab(tokenizer), eos = mx_tokenizer_eos(tokenizer);
    float *logits = mx_new_n(&arena, float, vocab + 3);
    int32_t ids[MOST];
    MxGuided made;
    MxError err = {0};
    bool is_complete = false;
    int n = 0;
    mx_guided_init(&made, &arena, guide);
    for (; n < MOST && !is_complete; n++) {
        memset(logits, 0, (size_t)(vocab + 3) * sizeof *logits);
        ck_assert(mx_guided_limit(&made, logits, vocab + 3));
        for (int i = 0; i < 3; i++) ck_assert(isinf(logits[vocab + i]));
        int32_t best = -1;
        double most = -1;
        for (int32_t id = 0; id < vocab; id++) {
            uint32_t w[4];
            size_t bytes, own;
            MxGuided copy = made;
            const char *raw = mx_tokenizer_bytes(&arena, tokenizer, id, &own);
            if (checks && raw && id != eos)
                ck_assert_msg(!isinf(logits[id]) == mx_guided_add(&copy, raw, own), "%s + %s",
                              made.bytes.data, raw);
            if (isinf(logits[id]) || id == eos) continue;
            mx_philox(seed, (uint64_t)n, (uint64_t)id, w);
            const char *text = mx_tokenizer_decode(&arena, tokenizer, &id, 1, true, &bytes);
            bool closes = bytes && strchr("}]\"", text[bytes - 1]) && bytes < 3;
            double worth = (double)mx_uniform(w[0]) + (n > FREE && closes);
            if (worth > most) most = worth, best = id;
        }
        ids[n] = best;
        is_complete = mx_guided_accept(&made, best);
    }
    size_t n_bytes;
    const char *text = mx_tokenizer_decode(&arena, tokenizer, ids, n, true, &n_bytes);
    const MxWhere where = {.file = "text"};
    ck_assert_msg(is_complete, "%s", text);
    ck_assert_msg(mx_json_parse_line(&arena, text, n_bytes, where, &err), "%s: %s", text,
                  err.text.data);
}

static const char member[] =
    "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\", \"maximum\": 50}, "
    "\"t\": "
    "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 40}, \"p\": {\"pattern\": \"^[a-z "
    "]+$\"}, "
    "\"\u00e9\": {\"enum\": [\"\u00fc\", 1]}}, \"required\": [\"t\", \"\u00e9\"]}";

START_TEST(tokens_that_may_come_make_texts) {
    MxError err = {0};
    MxTokenizer *tokenizer;
    const char *name = mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json", tokenizers[_i]);
    const char *path = goldens_find(&arena, name);
    if (!path) return;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", path, &tokenizer, &err));
    int32_t eos = mx_tokenizer_eos(tokenizer);
    const MxVocabulary *v = mx_vocabulary_new(&arena, tokenizer, &eos, 1, NULL, 0);
    for (uint64_t seed = 0; seed < 5; seed++)
        write_text(tokenizer, guide_of(any_object, v), seed, seed == 0);
    bool has_bytes = strcmp(tokenizers[_i], "t5") != 0;
    for (uint64_t seed = 0; has_bytes && seed < 5; seed++)
        write_text(tokenizer, guide_of(member, v), seed, true);
}
END_TEST

/* A number may end before it must: then the tokens that end texts may come. */
START_TEST(texts_that_may_go_on_end_with_a_token) {
    enum { EOS = 257 };
    float logits[260];
    const MxVocabulary *v = guide_test_bytes(&arena);
    MxGuided text;
    mx_guided_init(&text, &arena, guide_of("{\"type\": \"integer\"}", v));
    for (int n = 0; n < 3; n++) {
        memset(logits, 0, sizeof logits);
        ck_assert(mx_guided_limit(&text, logits, MX_COUNT(logits)));
        ck_assert(!isinf(logits[EOS]) == (n > 0) && !isinf(logits['7']));
        ck_assert(!mx_guided_accept(&text, '7'));
    }
    ck_assert(!mx_guided_accept(&text, EOS) && mx_guided_accept(&text, ' '));
}
END_TEST

/* Text up to one of several marks, of which one may follow. */
START_TEST(other_text_has_none_of_some) {
    static const char *const marks[] = {"<<a", "<b>", "ab"};
    static const struct {
        const char *text;
        bool fits;
    } cases[] = {{"", true},     {"x < y", true}, {"<<", true},   {"<<b>", false},
                 {"a<<c", true}, {"cab", false},  {"aaa", true},  {"<<<a", false},
                 {"<<a!", true}, {"x<<a!", true}, {"<<a", false}, {"\xc3\xa9<", true},
                 {"<<<b", true}, {"<b<b<", true}};
    MxError err = {0};
    MxGrammar *g = mx_grammar_new(&arena);
    int32_t behind = mx_grammar_state(g);
    mx_grammar_other(g, MX_GRAMMAR_START, marks, MX_COUNT(marks), behind);
    mx_grammar_nothing(g, behind, MX_GRAMMAR_END);
    mx_grammar_text(g, behind, "<<a!", MX_GRAMMAR_END);
    ck_assert(mx_grammar_finish(g, "grammar", &err));
    for (int i = 0; i < MX_COUNT(cases); i++) {
        MxGuided text;
        mx_guided_init(&text, &arena, mx_guide_new(&arena, g, guide_test_bytes(&arena)));
        bool fits =
            mx_guided_add(&text, cases[i].text, strlen(cases[i].text)) && guide_test_may_end(&text);
        ck_assert_msg(fits == cases[i].fits, "%s", cases[i].text);
    }
}
END_TEST

/* A guide that has forgotten what it knew goes on as before: here one of many counts. */
START_TEST(what_is_forgotten_is_found_again) {
    enum { LENGTH = 60000 };
    float logits[260];
    const MxVocabulary *v = guide_test_bytes(&arena);
    MxGuided text, other;
    mx_guided_init(&text, &arena, guide_of("{\"type\": \"string\", \"maxLength\": 60000}", v));
    mx_guided_init(&other, &arena, text.guide);
    ck_assert(mx_guided_add(&text, "\"", 1) && mx_guided_add(&other, "\"abc", 4));
    for (int i = 0; i < LENGTH; i++) {
        if (i % 100 == 0) ck_assert(mx_guided_limit(&text, logits, MX_COUNT(logits)));
        ck_assert(mx_guided_add(&text, "x", 1));
    }
    ck_assert(!mx_guided_add(&text, "x", 1) && mx_guided_add(&text, "\"", 1));
    ck_assert_uint_gt(text.epoch, 0);
    ck_assert(mx_guided_add(&other, "\"", 1) && guide_test_may_end(&other));
}
END_TEST

Suite *guide_suite(void) {
    Suite *suite = suite_create("guide");
    TCase *tcase = tcase_create("guide");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, texts_go_on_as_the_grammar_says, 0, MX_COUNT(texts));
    tcase_add_test(tcase, depth_and_spaces_have_an_end);
    tcase_add_test(tcase, what_cannot_be_finished_is_not_begun);
    tcase_add_loop_test(tcase, tokens_that_may_come_make_texts, 0, MX_COUNT(tokenizers));
    tcase_add_test(tcase, texts_that_may_go_on_end_with_a_token);
    tcase_add_test(tcase, other_text_has_none_of_some);
    tcase_add_test(tcase, what_is_forgotten_is_found_again);
    suite_add_tcase(suite, tcase);
    return suite;
}
