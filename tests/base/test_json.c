/* test_json.c — JSON made, printed and read back: order, exact numbers, what is refused and where.
 */
#include "base_test.h"

#include <math.h>

static MxJson *parse(const char *text) {
    MxJson *value = mx_json_parse(&arena, text, strlen(text), "a.json", &err);
    ck_assert_msg(value != NULL, "%s: %s", text, err.count ? err.text.data : "no message");
    return value;
}

START_TEST(keeps_the_order_of_members) {
    MxJson *root = mx_json_object(&arena);
    mx_json_set_int(root, "z", 1);
    mx_json_set_string(root, "a", "x\"\n\xc3\xa4");
    mx_json_set_bool(root, "m", true);
    MxJson *list = mx_json_put_array(root, "list");
    mx_json_push_string(list, "s");
    mx_json_set_int(mx_json_push_object(list), "k", -5);
    mx_json_set_number(mx_json_put_object(root, "o"), "half", 0.5);
    mx_json_set_int(root, "z", 2); /* replaced where it stands */
    const char *want = "{\"z\": 2, \"a\": \"x\\\"\\n\xc3\xa4\", \"m\": true, "
                       "\"list\": [\"s\", {\"k\": -5}], \"o\": {\"half\": 0.5}}";
    ck_assert_str_eq(mx_json_dump(&arena, root, false), want);
    ck_assert_str_eq(mx_json_dump(&arena, parse(want), false), want);
    const char *lines = "{\n \"z\": 2,\n";
    ck_assert(mx_text_has_prefix(mx_json_dump(&arena, root, true), lines));
    ck_assert_str_eq(mx_json_dump(&arena, parse(mx_json_dump(&arena, root, true)), false), want);
}
END_TEST

/* Lines of data: what mx_json_parse refuses is read as JSON's users mean it. */
START_TEST(lines_are_read_leniently) {
    const char *text = "{\"a\": 1, \"n\": 123456789012345678901234567890, \"a\": \"x\\u0000y\"}";
    MxWhere where = {.file = "a.jsonl", .line = 7};
    ck_assert_ptr_null(mx_json_parse(&arena, text, strlen(text), "a", &err));
    mx_error_release(&err);
    MxJson *line = mx_json_parse_line(&arena, text, strlen(text), where, &err);
    ck_assert_msg(line != NULL, "%s", err.count ? err.text.data : "");
    ck_assert_uint_eq(mx_json_length(line), 2);
    ck_assert_uint_eq(mx_json_string_bytes(mx_json_get(line, "a")), 3);
    ck_assert_mem_eq(mx_json_string(mx_json_get(line, "a")), "x\0y", 4);
    ck_assert_str_eq(mx_json_kind(line), "an object");
    ck_assert_str_eq(mx_json_kind(mx_json_get(line, "a")), "a text");
    ck_assert_str_eq(mx_json_kind(mx_json_get(line, "n")), "a number");
    ck_assert_uint_eq(mx_json_string_bytes(line), 0);
    ck_assert_ptr_null(mx_json_parse_line(&arena, "{\"a\":}", 6, where, &err));
    ck_assert_msg(mx_text_has_prefix(err.text.data, "a.jsonl:7:6: not valid JSON: "), "%s",
                  err.text.data);
}
END_TEST

START_TEST(numbers_that_are_not_finite_become_null) {
    MxJson *root = mx_json_object(&arena);
    mx_json_set_number(root, "nan", (double)NAN);
    mx_json_set_number(root, "inf", (double)INFINITY);
    mx_json_set_number(root, "minus", -(double)INFINITY);
    ck_assert_str_eq(mx_json_dump(&arena, root, false),
                     "{\"nan\": null, \"inf\": null, \"minus\": null}");
    double x = 7;
    ck_assert(!mx_json_number(mx_json_get(root, "nan"), &x));
    ck_assert(x == 7);
}
END_TEST

/* Random doubles and the ends of the range come back bit by bit. */
START_TEST(numbers_come_back_exactly) {
    static const double edges[] = {0,
                                   -0.0,
                                   0.1,
                                   1e-300,
                                   5e-324,
                                   0x1p-1022,
                                   1.7976931348623157e308,
                                   1e16,
                                   1.2345678901234568e17,
                                   3};
    uint64_t state = 0;
    for (int i = 0; i < 2000; i++) {
        double x, back;
        uint64_t bits = draw(&state);
        memcpy(&x, &bits, sizeof x);
        if (i < MX_COUNT(edges)) x = edges[i];
        if (!isfinite(x)) continue;
        MxArena scratch = {.name = "number"};
        MxJson *root = mx_json_object(&scratch);
        mx_json_set_number(root, "x", x);
        const char *text = mx_json_dump(&scratch, root, false);
        MxJson *read = mx_json_parse(&scratch, text, strlen(text), "n", &err);
        ck_assert_msg(read && mx_json_number(mx_json_get(read, "x"), &back), "%s", text);
        ck_assert_msg(!memcmp(&x, &back, sizeof x), "%.17g came back as %.17g", x, back);
        mx_arena_release(&scratch);
    }
}
END_TEST

/* As people write them: 1e-06 was 9.9999999999999995e-7. Texts that look alike stay as they are. */
START_TEST(reals_are_short) {
    MxJson *root = mx_json_object(&arena);
    const double values[] = {1e-6, 0.1, 0.3, 10000, -2.5, 1e22, 5e-324, 0.1 + 0.2};
    for (int i = 0; i < MX_COUNT(values); i++)
        mx_json_set_number(root, mx_arena_printf(&arena, "k%d", i), values[i]);
    mx_json_set_string(root, "text", "\"9.9999999999999995e-7\\");
    ck_assert_str_eq(mx_json_dump(&arena, root, false),
                     "{\"k0\": 1e-06, \"k1\": 0.1, \"k2\": 0.3, \"k3\": 10000.0, \"k4\": -2.5, "
                     "\"k5\": 1e+22, \"k6\": 4.94065645841247e-324, "
                     "\"k7\": 0.30000000000000004, "
                     "\"text\": \"\\\"9.9999999999999995e-7\\\\\"}");
}
END_TEST

START_TEST(integers_come_back_exactly) {
    static const int64_t edges[] = {0, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 53};
    MxJson *root = mx_json_object(&arena);
    mx_json_set_int(root, "n", edges[_i]);
    int64_t back;
    ck_assert(mx_json_int(mx_json_get(parse(mx_json_dump(&arena, root, false)), "n"), &back));
    ck_assert_int_eq(back, edges[_i]);
}
END_TEST

START_TEST(getters_know_their_types) {
    MxJson *root = parse("{\"i\": 3, \"r\": 2.5, \"s\": \"t\", \"b\": false, \"n\": null, "
                         "\"a\": [1, 2], \"o\": {\"x\": 1}}");
    double d = 0;
    int64_t i = 0;
    bool b = true;
    static const struct {
        const char *key;
        bool is_number, is_int, is_bool, is_string;
        size_t length;
    } want[] = {
        {"i", true, true, false, false, 0},   {"r", true, false, false, false, 0},
        {"s", false, false, false, true, 0},  {"b", false, false, true, false, 0},
        {"n", false, false, false, false, 0}, {"a", false, false, false, false, 2},
        {"o", false, false, false, false, 1}, {"missing", false, false, false, false, 0},
    };
    for (int k = 0; k < MX_COUNT(want); k++) {
        const MxJson *value = mx_json_get(root, want[k].key);
        ck_assert_msg(mx_json_number(value, &d) == want[k].is_number, "%s", want[k].key);
        ck_assert_msg(mx_json_int(value, &i) == want[k].is_int, "%s", want[k].key);
        ck_assert_msg(mx_json_bool(value, &b) == want[k].is_bool, "%s", want[k].key);
        ck_assert_msg((mx_json_string(value) != NULL) == want[k].is_string, "%s", want[k].key);
        ck_assert_msg(mx_json_length(value) == want[k].length, "%s", want[k].key);
    }
    ck_assert(d == 2.5 && i == 3 && !b);
}
END_TEST

START_TEST(walks_arrays_and_objects) {
    MxJson *root = parse("{\"b\": [\"x\", \"y\"], \"a\": 1}");
    const char *key = NULL;
    MxJson *value = NULL;
    ck_assert(mx_json_member(root, 0, &key, &value));
    ck_assert_str_eq(key, "b");
    ck_assert_str_eq(mx_json_string(mx_json_at(value, 0)), "x");
    ck_assert_str_eq(mx_json_string(mx_json_at(value, 1)), "y");
    ck_assert_ptr_null(mx_json_at(value, 2));
    ck_assert_ptr_null(mx_json_at(root, 0)); /* not an array */
    ck_assert(mx_json_member(root, 1, &key, &value));
    ck_assert_str_eq(key, "a");
    ck_assert(!mx_json_member(root, 2, &key, &value));
    ck_assert(!mx_json_member(NULL, 0, &key, &value));
}
END_TEST

static const struct {
    const char *text, *words;
} refused[] = {
    {"", "a.json:1: not valid JSON"},
    {"3", "a.json:1:"},
    {"\"x\"", "a.json:1:"},
    {"{\"a\": 1, \"a\": 2}", "a.json:1:"},
    {"{\n \"x\": {\n  \"a\": 1,\n  \"a\": 2\n }\n}", "a.json:4:"},
    {"{\n\n\"a\" 1}", "a.json:3:"},
    {"{\"a\": 1", "a.json:1:"},
    {"{\"a\": 1} x", "a.json:1:"},
    {"{\"a\": 1,}", "a.json:1:"},
    {"{'a': 1}", "a.json:1:"},
    {"{\"a\": 01}", "a.json:1:"},
    {"{\"a\": NaN}", "a.json:1:"},
    {"{\"a\": 1e999}", "a.json:1:"},
    {"{\"a\": \"\xff\"}", "a.json:1:"},
    {"{\"a\": \"\\u0000\"}", "a.json:1:"},
    {"{\"a\": \"\\ud800\"}", "a.json:1:"},
};

START_TEST(refuses_with_the_line) {
    const char *text = refused[_i].text;
    MxJson *value = mx_json_parse(&arena, text, strlen(text), "a.json", &err);
    ck_failed(value != NULL, MX_EXIT_BAD_INPUT, refused[_i].words);
}
END_TEST

/* Other programs write 1e30 with all its digits; what fits, and what only looks like it, stays. */
START_TEST(large_numbers_are_reals) {
    static const char text[] =
        "{\"max\": 1000000000000000019884624838656, \"least\": [-99999999999999999999,"
        "\n9223372036854775807], \"n\": 7, \"x\": 1.5e3, "
        "\"99999999999999999999\": \"\\\"99999999999999999999\"}";
    MxJson *value = mx_json_parse(&arena, text, sizeof text - 1, "a.json", &err);
    double number;
    int64_t whole;
    ck_assert_msg(value != NULL, "%s", err.text.data);
    ck_assert(mx_json_number(mx_json_get(value, "max"), &number) && number == 1e30);
    ck_assert(!mx_json_int(mx_json_get(value, "max"), &whole));
    ck_assert(mx_json_number(mx_json_at(mx_json_get(value, "least"), 0), &number) &&
              number == -1e20);
    ck_assert(mx_json_int(mx_json_get(value, "n"), &whole) && whole == 7);
    ck_assert(mx_json_number(mx_json_get(value, "x"), &number) && number == 1500);
    ck_assert_str_eq(mx_json_string(mx_json_get(value, "99999999999999999999")),
                     "\"99999999999999999999");
    ck_failed(mx_json_parse(&arena, "{\"a\": 99999999999999999999,}", 29, "a.json", &err) != NULL,
              MX_EXIT_BAD_INPUT, "a.json:1:");
}
END_TEST

START_TEST(names_the_fault) {
    ck_failed(mx_json_parse(&arena, "{\"k\": 1, \"k\": 2}", 16, "a.json", &err) != NULL,
              MX_EXIT_BAD_INPUT, "duplicate object key");
    ck_failed(mx_json_parse(&arena, "{}\0", 3, "a.json", &err) != NULL, MX_EXIT_BAD_INPUT,
              "end of file expected");
}
END_TEST

/* Nesting is limited by the parser, so that it cannot run out of stack. */
START_TEST(deep_nesting_is_an_error) {
    enum { DEPTH = 1000000 };
    char *text = mx_arena_alloc(&arena, DEPTH + 1);
    memset(text, '[', DEPTH);
    ck_failed(mx_json_parse(&arena, text, DEPTH, "a.json", &err) != NULL, MX_EXIT_BAD_INPUT,
              "depth");
}
END_TEST

Suite *json_suite(void) {
    Suite *suite = suite_create("base/json");
    TCase *tcase = add_case(suite, "json");
    tcase_add_test(tcase, keeps_the_order_of_members);
    tcase_add_test(tcase, lines_are_read_leniently);
    tcase_add_test(tcase, numbers_that_are_not_finite_become_null);
    tcase_add_test(tcase, numbers_come_back_exactly);
    tcase_add_test(tcase, reals_are_short);
    tcase_add_test(tcase, large_numbers_are_reals);
    tcase_add_loop_test(tcase, integers_come_back_exactly, 0, 5);
    tcase_add_test(tcase, getters_know_their_types);
    tcase_add_test(tcase, walks_arrays_and_objects);
    tcase_add_loop_test(tcase, refuses_with_the_line, 0, MX_COUNT(refused));
    tcase_add_test(tcase, names_the_fault);
    tcase_add_test(tcase, deep_nesting_is_an_error);
    return suite;
}
