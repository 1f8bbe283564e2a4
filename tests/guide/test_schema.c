/* test_schema.c — JSON schemas: what texts they allow, against the package jsonschema and by their
 * definition; what of them is refused, and how that is told. */
#include "guide_test.h"

#include "common/goldens.h"

#include <stdio.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

static MxGuide *guide_of(const MxJson *schema, MxError *err) {
    MxGrammar *grammar;
    if (!schema || !mx_grammar_of_schema(&arena, schema, "schema", &grammar, err)) return NULL;
    return mx_guide_new(&arena, grammar, guide_test_bytes(&arena));
}

static bool fits(MxGuide *guide, const char *text) {
    MxGuided made;
    mx_guided_init(&made, &arena, guide);
    return mx_guided_add(&made, text, strlen(text)) && guide_test_may_end(&made);
}

/* Texts as they are written fit; of others, none that jsonschema refuses. */
static int check_line(const char *line, size_t n) {
    MxError err = {0};
    const MxJson *row = mx_json_parse(&arena, line, n, "schemas.jsonl", &err);
    ck_assert_ptr_nonnull(row);
    const MxJson *written = mx_json_get(row, "fits"), *others = mx_json_get(row, "others");
    const char *shown = mx_json_dump(&arena, mx_json_get(row, "schema"), false);
    MxGuide *guide = guide_of(mx_json_get(row, "schema"), &err);
    ck_assert_msg(guide != NULL, "%s: %s", shown, err.text.data);
    for (size_t i = 0; i < mx_json_length(written); i++) {
        const char *text = mx_json_string(mx_json_at(written, i));
        ck_assert_msg(fits(guide, text), "%s: %s", shown, text);
    }
    for (size_t i = 0; i < mx_json_length(others); i++) {
        const char *text = mx_json_string(mx_json_at(mx_json_at(others, i), 0));
        bool is_valid;
        mx_json_bool(mx_json_at(mx_json_at(others, i), 1), &is_valid);
        ck_assert_msg(is_valid || !fits(guide, text), "%s: %s", shown, text);
    }
    return (int)(mx_json_length(written) + mx_json_length(others));
}

START_TEST(texts_fit_as_jsonschema_says) {
    MxError err = {0};
    MxBytes file;
    int n = 0;
    ck_assert(
        mx_file_read(&arena, goldens_need(&arena, "guide/schemas.jsonl"), 1 << 20, &file, &err));
    const char *at = (const char *)file.data;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1)
        n += check_line(at, (size_t)(end - at));
    ck_assert_int_gt(n, 200);
}
END_TEST

#define DEFS                                                                                       \
    "\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"array\",\"items\":{"  \
    "\"$ref\":\"#/$defs/t\"}}}}}"

/* Texts with a line each; of the second, none fits. */
static const struct {
    const char *schema, *allowed, *refused;
} cases[] = {
    {"{}", "{\"a\": [1, null]}\n-0.5e+10\n\"\\u00e9\\n\"\ntrue", "[1,]\n01\n\"\\ud800\"\n1e100"},
    {"{\"const\": {\"a\": [1, 2.5]}}", "{\"a\": [1, 2.5]}", "{\"a\": [1, 2]}"},
    {"{\"enum\": [\"a\", \"ab\", 1, 12, null]}", "\"a\"\n\"ab\"\n1\n12\nnull", "\"b\"\n2"},
    {"{\"type\": \"string\", \"enum\": [\"a\", 1]}", "\"a\"", "1"},
    {"{\"type\": [\"integer\", \"null\"]}", "5\n-0\nnull", "5.0\n\"5\"\n1234567890123456789"},
    {"{\"type\": \"integer\", \"minimum\": -12, \"exclusiveMaximum\": 131}",
     "-12\n-1\n0\n99\n105\n119\n130", "-13\n131\n200\n1000\n00"},
    {"{\"type\": \"integer\", \"minimum\": 2.5, \"maximum\": 3.5}", "3", "2\n4"},
    {"{\"type\": \"number\", \"minimum\": 0.25, \"exclusiveMaximum\": 2}", "0.25\n0.3\n1\n1.999999",
     "0.2\n0.249\n2\n2.0\n0\n-1"},
    {"{\"type\": \"number\", \"maximum\": -0.5}", "-0.5\n-0.50\n-12.25", "-0.4\n0\n1"},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     "\"ab\"\n\"\xc3\xa9\xf0\x9f\x98\x80z\"\n\"\\n\\u0041\"", "\"a\"\n\"abcd\""},
    {"{\"type\": \"string\", \"pattern\": \"^(?:[a-c]{2}|x)+\\\\.$\"}", "\"abx.\"\n\"x.\"",
     "\"a.\"\n\"x\""},
    {"{\"type\": \"string\", \"pattern\": \"a\\\"[^b]\"}", "\"_a\\\"c_\"\n\"a\\\"\\n\"",
     "\"a\\\"b\""},
    {"{\"type\": \"string\", \"pattern\": \"^.{2}$\", \"maxLength\": 1}", NULL, NULL},
    {"{\"type\": \"string\", \"pattern\": \"^a*$\", \"minLength\": 2, \"maxLength\": 3}",
     "\"aa\"\n\"aaa\"", "\"a\"\n\"aaaa\""},
    {"{\"type\": \"string\", \"format\": \"date\"}", "\"2024-12-31\"",
     "\"2024-13-01\"\n\"2024-04-31\""},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 2}",
     "[1]\n[ 1 , 2 ]", "[]\n[1,2,3]\n[1,]"},
    {"{\"type\": \"array\", \"items\": {\"type\": \"null\"}}", "[]\n[null]\n[null,null]",
     "[null,]"},
    {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"null\"}], "
     "\"items\": "
     "false}",
     "[]\n[1]\n[1,null]", "[null]\n[1,null,1]"},
    {"{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {}}, \"required\": [\"b\"]}",
     "{\"a\":1,\"b\":2}\n{\"b\":{}}", "{\"a\":1}\n{\"b\":1,\"c\":2}\n{\"b\":1,}\n{,\"b\":1}"},
    {"{\"properties\": {\"ab\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": "
     "\"null\"}}",
     "{}\n{\"ab\":1}\n{\"ab\":1,\"abc\":null,\"a\":null}\n{\"\xc3\xa9\":null}",
     "{\"ab\":null}\n{\"a\":1}"},
    {"{\"type\": \"object\", \"required\": [\"z\"], \"additionalProperties\": {\"type\": "
     "\"null\"}}",
     "{\"z\":null}\n{\"z\":null,\"y\":null}", "{}\n{\"y\":null}"},
    {"{\"type\": \"object\", \"patternProperties\": {\"^x\": {\"type\": \"null\"}}}",
     "{\"xa\":null}", "{\"a\":null}"},
    {"{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"a\", \"b\"]}}", "{\"a\":1,\"b\":2}",
     "{\"c\":1}"},
    {"{" DEFS ", \"$ref\": \"#/$defs/t\"}", "{\"k\":[{},{\"k\":[]}]}", "{\"k\":[[]]}"},
    {"{\"anyOf\": [{\"$ref\": \"#/definitions/a~1b\"}, {\"const\": 1}], \"definitions\": {\"a/b\": "
     "{\"const\": "
     "2}}}",
     "1\n2", "3"},
    {"{\"allOf\": [{\"minimum\": 3}, {\"minimum\": 1}, {\"type\": \"integer\", \"maximum\": 9}, "
     "{\"maximum\": 5}]}",
     "3\n5", "2\n6"},
    {"{\"allOf\": [{\"properties\": {\"a\": {\"minimum\": 1}}}, {\"properties\": {\"a\": "
     "{\"type\": \"integer\"}, "
     "\"b\": {\"const\": 0}}, \"required\": [\"a\"]}]}",
     "{\"a\":1}\n{\"a\":7,\"b\":0}", "{\"a\":0}\n{\"b\":0}"},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"null\"}}, \"anyOf\": "
     "[{\"required\": [\"a\"]}, "
     "{\"properties\": {\"b\": {\"const\": 1}}, \"required\": [\"b\"]}]}",
     "{\"a\":null}\n{\"a\":null,\"b\":1}\n{\"b\":1}", "{}"},
    /* what other words say of values that are named, and of what may not be */
    {"{\"enum\": [\"a\", \"abc\", 5, [1]], \"minLength\": 2, \"maxItems\": 0}", "\"abc\"\n5",
     "\"a\"\n[1]"},
    {"{\"const\": 5, \"enum\": [4, 5.0]}", "5", "4"},
    {"{\"type\": [\"string\", \"null\", \"boolean\"], \"not\": {\"enum\": [\"ab\", true]}}",
     "\"a\"\n\"abc\"\n\"\\n\"\nnull\nfalse", "\"ab\"\ntrue"},
    {"{\"type\": \"integer\", \"minimum\": 0, \"not\": {\"const\": 10}}", "0\n9\n11\n100",
     "10\n-1"},
    {"{\"type\": \"number\", \"not\": {\"enum\": [1.5, 2]}}", "1.49\n1\n2.000001\n-1.5",
     "1.5\n1.50\n2\n2.0"},
    {"{\"type\": \"string\", \"not\": {\"pattern\": \"^a\"}}", "\"ba\"\n\"\xc3\xa9\"\n\"\"",
     "\"a\"\n\"ab\""},
    {"{\"not\": {\"type\": [\"object\", \"array\", \"string\", \"number\"]}}", "null\ntrue",
     "1\n\"\"\n{}"},
    {"{\"type\": \"integer\", \"not\": {\"minimum\": 3}}", "2\n-5", "3\n4"},
    {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"not\": {\"required\": "
     "[\"a\", \"b\"]}}",
     "{}\n{\"a\":1}\n{\"b\":1}", "{\"a\":1,\"b\":1}"},
    {"{\"type\": \"object\", \"not\": {\"required\": [\"a\"]}}", "{}\n{\"b\":1}",
     "{\"a\":1}\n{\"b\":1,\"a\":2}"},
    {"{\"pattern\": \"^[a-z]+$\", \"format\": \"hostname\"}", "\"abc\"", "\"a-b\"\n\"a1\""},
    {"{\"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}, {\"maxLength\": 3}]}",
     "\"ab\"\n\"b_a\"", "\"a\"\n\"b\"\n\"ab__\""},
    /* exactly one */
    {"{\"oneOf\": [{\"type\": \"integer\", \"maximum\": 5}, {\"type\": \"integer\", \"minimum\": "
     "3}]}",
     "2\n6", "3\n4\n5"},
    {"{\"oneOf\": [{\"properties\": {\"k\": {\"const\": \"u\"}, \"a\": {\"pattern\": \"x\"}}, "
     "\"required\": [\"k\"]}, {\"properties\": {\"k\": {\"const\": \"v\"}}, \"required\": "
     "[\"k\"]}]}",
     "{\"k\":\"u\",\"a\":\"x\"}\n{\"k\":\"v\"}", "{\"k\":\"v\",\"a\":\"x\"}\n{\"k\":\"w\"}"},
    {"{\"oneOf\": [{\"properties\": {\"a\": {\"format\": \"date\"}}, \"required\": [\"a\"]}, "
     "{\"properties\": {\"b\": {\"format\": \"date\"}}, \"required\": [\"b\"]}]}",
     "{\"a\":\"2024-01-01\"}\n{\"b\":\"2024-01-01\"}",
     "{\"a\":\"2024-01-01\",\"b\":\"2024-01-01\"}"},
    {"{\"properties\": {\"k\": {\"enum\": [1, 2]}, \"n\": {\"type\": \"integer\"}}, \"required\": "
     "[\"k\", \"n\"], \"if\": {\"properties\": {\"k\": {\"const\": 1}}}, \"then\": "
     "{\"properties\": {\"n\": {\"minimum\": 5}}}, \"else\": {\"properties\": {\"n\": "
     "{\"maximum\": 4}}}}",
     "{\"k\":1,\"n\":5}\n{\"k\":2,\"n\":4}", "{\"k\":1,\"n\":4}\n{\"k\":2,\"n\":5}"},
    /* numbers and lists */
    {"{\"multipleOf\": 7, \"minimum\": -20, \"maximum\": 30}", "-14\n0\n7\n28",
     "-20\n-21\n1\n30\n35\n7.5"},
    {"{\"type\": \"number\", \"multipleOf\": 0.25}", "0.25\n1.5\n-3\n2.50", "0.2\n0.125\n1.51"},
    {"{\"type\": \"integer\", \"multipleOf\": 2.5}", "5\n-10", "2\n7"},
    {"{\"allOf\": [{\"multipleOf\": 4}, {\"multipleOf\": 6}]}", "12\n-24\n0", "4\n6\n18"},
    {"{\"uniqueItems\": true, \"items\": {\"enum\": [\"a\", 1, 1.0, null]}, \"minItems\": 2}",
     "[\"a\",1]\n[null, 1, \"a\"]", "[\"a\"]\n[1,1]\n[1,\"a\",1]"},
    {"{\"uniqueItems\": true, \"items\": {}, \"maxItems\": 1}", "[]\n[[1]]", "[1,2]"},
    {"{\"contains\": {\"const\": 1}, \"items\": {\"type\": \"integer\"}, \"maxItems\": 3}",
     "[1]\n[0,1]\n[1,1,0]", "[]\n[0]\n[0,0,1,1]"},
    {"{\"contains\": {\"const\": 1}, \"maxContains\": 1, \"minContains\": 0, \"items\": {\"type\": "
     "\"integer\"}}",
     "[]\n[0]\n[2,1,3]", "[1,1]\n[1,0,1]"},
    /* members */
    {"{\"type\": \"object\", \"minProperties\": 1}", "{\"a\":1}", "{}"},
    {"{\"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"minProperties\": 2, "
     "\"maxProperties\": 2}",
     "{\"a\":1,\"c\":1}", "{\"a\":1}\n{\"a\":1,\"b\":1,\"c\":1}"},
    {"{\"patternProperties\": {\"^x\": {\"type\": \"integer\"}, \"y$\": {\"minimum\": 3}}}",
     "{\"x\":1,\"ay\":5,\"xy\":3}", "{\"xy\":1}\n{\"xy\":3.5}\n{\"z\":1}"},
    {"{\"properties\": {\"x1\": {\"minimum\": 5}}, \"patternProperties\": {\"^x\": {\"type\": "
     "\"integer\"}}, \"additionalProperties\": {\"type\": \"null\"}}",
     "{\"x1\":5,\"x2\":1,\"z\":null}", "{\"x1\":5.5}\n{\"x1\":1}\n{\"z\":1}\n{\"x2\":null}"},
    {"{\"properties\": {\"a\": {}}, \"propertyNames\": {\"maxLength\": 2}, "
     "\"additionalProperties\": true}",
     "{\"a\":1,\"bc\":1}", "{\"abc\":1}"},
};

static MxJson *parse(const char *schema) {
    MxError err = {0};
    MxJson *json = mx_json_parse(&arena, schema, strlen(schema), "schema", &err);
    ck_assert_msg(json != NULL, "%s", err.text.data);
    return json;
}

static void check_texts(MxGuide *guide, const char *schema, const char *texts, bool fit) {
    for (; texts && *texts; texts += strcspn(texts, "\n"), texts += *texts == '\n') {
        const char *text = mx_arena_strndup(&arena, texts, strcspn(texts, "\n"));
        ck_assert_msg(fits(guide, text) == fit, "%s: %s", schema, text);
    }
}

START_TEST(schemas_allow_what_they_say) {
    MxError err = {0};
    MxGuide *guide = guide_of(parse(cases[_i].schema), &err);
    if (!cases[_i].allowed) {
        ck_assert_str_eq(err.text.data, "schema: no value fits it");
        mx_error_release(&err);
        return;
    }
    ck_assert_msg(guide != NULL, "%s: %s", cases[_i].schema, err.text.data);
    check_texts(guide, cases[_i].schema, cases[_i].allowed, true);
    check_texts(guide, cases[_i].schema, cases[_i].refused, false);
}
END_TEST

static const struct {
    const char *schema, *message;
} wrong[] = {
    {"{\"not\": {}}", "no value fits it"},
    {"{\"dependentRequired\": {}}", "at #: \"dependentRequired\" is not available"},
    {"{\"properties\": {\"a\": {\"if\": {\"format\": \"date\"}, \"else\": true}}}",
     "the opposite of \"format\" is not available"},
    {"{\"not\": {\"const\": [1]}, \"type\": \"array\"}",
     "at #/not: objects and lists that are named are not available"},
    {"{\"oneOf\": [{\"type\": \"integer\", \"multipleOf\": 2}, {\"type\": \"integer\", "
     "\"minimum\": 5}]}",
     "at #/oneOf: alternatives 1 and 0 are not told apart by a type, a constant or a member, and "
     "the opposite of \"multipleOf\" is not available"},
    {"{\"enum\": [\"a\"], \"format\": \"date\"}",
     "at #/enum: whether \"a\" fits what stands beside it is not available"},
    {"{\"type\": \"text\"}", "at #/type: found \"text\", wanted \"object\", \"array\""},
    {"{\"items\": 5}", "at #/items: found 5, wanted a schema: an object, true or false"},
    {"{\"minLength\": -1}", "at #/minLength: found -1, wanted an integer, 0 or more"},
    {"{\"uniqueItems\": true, \"type\": \"array\"}",
     "at #/uniqueItems: wanted items of at most 10 values that are named"},
    {"{\"format\": \"iri\"}", "at #/format: found \"iri\", wanted one of date, time"},
    {"{\"multipleOf\": 0}", "at #/multipleOf: found 0, wanted a number above 0"},
    {"{\"multipleOf\": 12345}", "at #/multipleOf: wanted at most 4096 in the last digit's place"},
    {"{\"type\": \"number\", \"minimum\": 0.0000001}",
     "at #/minimum: wanted a bound of at most 15 digits"},
    {"{\"pattern\": \"(?=a)b\"}", "the pattern has a group that looks ahead or back"},
    {"{\"pattern\": \"(a\"}", "the pattern has a bracket without its end"},
    {"{\"pattern\": \"a)\"}", "the pattern has a bracket without its start"},
    {"{\"pattern\": \"x{2,1}\"}", "the pattern has a repetition that is not {n}, {n,} or {n,m}"},
    {"{\"pattern\": \"a(b^)\"}", "the pattern has ^ or $ elsewhere than at its ends"},
    {"{\"pattern\": \"\\\\bx\"}", "the pattern has an escape that is not available"},
    {"{\"pattern\": \"[b-a]\"}", "the pattern has a range whose end is before its start"},
    {"{\"pattern\": \"((a{50}){50}){50}\"}", "the pattern is too large"},
    {"{\"$ref\": \"other.json\"}",
     "at #/$ref: found \"other.json\", wanted a place in the schema itself"},
    {"{\"$ref\": \"#/$defs/a\"}", "at #/$ref: the schema has no such place"},
    {"{\"$ref\": \"#\"}", "no value fits it"},
    {"{\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
     "a\"},\"minItems\":1}},\"$ref\":\"#/$defs/a\"}",
     "no value fits it"},
    {"{\"properties\": {\"a\": {}}, \"required\": [\"b\"], \"additionalProperties\": false}",
     "no value fits it"},
    {"{\"type\": \"array\", \"items\": {}, \"maxItems\": 1000000}",
     "too large: wanted a grammar of at most"},
    {"{\"anyOf\": []}", "at #/anyOf: found [], wanted a list of schemas"},
    {"{\"allOf\": [{\"contains\": {}}, {\"contains\": {\"const\": 1}}]}",
     "at #/contains: two of them in one value"},
    {"{\"allOf\": [{\"prefixItems\": [{\"minimum\": 3}]}, {\"items\": {\"minimum\": 5}}]}",
     "at #/items: \"prefixItems\" of another one is not"},
    {"{\"minProperties\": 2}",
     "at #/minProperties: more than the members with names and one other"},
};

START_TEST(what_is_not_available_is_told) {
    MxError err = {0};
    ck_assert_msg(!guide_of(parse(wrong[_i].schema), &err), "%s", wrong[_i].schema);
    ck_assert_msg(strstr(err.text.data, wrong[_i].message) != NULL, "%s", err.text.data);
    ck_assert_int_eq(err.count, 1);
    mx_error_release(&err);
}
END_TEST

/* Schemas that would take too much are refused soon: many values, deep ones, and those that become
 * many when they are merged. */
START_TEST(hostile_schemas_are_refused) {
    MxError err = {0};
    MxText text;
    mx_text_init(&text, &arena);
    double start = mx_clock_s();
    mx_text_add(&text, "{\"enum\": [0");
    for (int i = 1; i < 100000; i++) mx_text_add(&text, ",\"value %d\"", i * 7919);
    mx_text_add(&text, "]}");
    ck_assert(!guide_of(parse(text.data), &err) && strstr(err.text.data, "too large"));
    mx_error_release(&err);
    mx_text_clear(&text);
    for (int i = 0; i < 500; i++) mx_text_add(&text, "{\"items\": ");
    mx_text_add(&text, "true");
    for (int i = 0; i < 500; i++) mx_text_add(&text, "}");
    ck_assert(!guide_of(parse(text.data), &err) && strstr(err.text.data, "levels deep"));
    mx_error_release(&err);
    mx_text_clear(&text);
    mx_text_add(&text, "{\"$ref\": \"#/$defs/0\", \"$defs\": {");
    for (int i = 0; i < 30; i++)
        mx_text_add(
            &text, "\"%d\": {\"allOf\": [{\"$ref\": \"#/$defs/%d\"}, {\"$ref\": \"#/$defs/%d\"}]},",
            i, i + 1, i + 1);
    mx_text_add(&text, "\"30\": {\"type\": \"null\"}}}");
    ck_assert(!guide_of(parse(text.data), &err) && strstr(err.text.data, "too many schemas"));
    mx_error_release(&err);
    mx_text_clear(&text);
    for (int n = 300; n <= 6000; n += 5700) {
        mx_text_clear(&text);
        mx_text_add(&text, "{\"oneOf\": [{\"const\": -1}");
        for (int i = 0; i < n; i++) mx_text_add(&text, ", {\"const\": %d, \"title\": \"t\"}", i);
        mx_text_add(&text, "]}");
        ck_assert((guide_of(parse(text.data), &err) != NULL) == (n == 300));
        mx_error_release(&err);
    }
    ck_assert_double_lt(mx_clock_s() - start, 20); /* under sanitizers, too */
}
END_TEST

Suite *schema_suite(void) {
    Suite *suite = suite_create("schema");
    TCase *tcase = tcase_create("schema");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, texts_fit_as_jsonschema_says);
    tcase_add_loop_test(tcase, schemas_allow_what_they_say, 0, MX_COUNT(cases));
    tcase_add_loop_test(tcase, what_is_not_available_is_told, 0, MX_COUNT(wrong));
    tcase_add_test(tcase, hostile_schemas_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
