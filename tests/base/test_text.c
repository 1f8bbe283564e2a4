/* test_text.c — strings under construction, the nearest known word, and maps, the last two against
 * slow and plain versions of themselves. */
#include "base_test.h"

#include <stdio.h>
#include <stdlib.h>

START_TEST(text_grows) {
    MxText text;
    mx_text_init(&text, &arena);
    ck_assert_str_eq(text.data, "");
    char want[2000] = "";
    for (int i = 0; i < 300; i++) {
        mx_text_add(&text, "%d,", i);
        size_t end = strlen(want);
        snprintf(want + end, sizeof want - end, "%d,", i);
        ck_assert_uint_eq(text.len, strlen(want));
        ck_assert_str_eq(text.data, want);
        ck_assert_uint_lt(text.len, text.cap);
    }
    mx_text_clear(&text);
    ck_assert_str_eq(text.data, "");
    mx_text_add(&text, "x");
    ck_assert_str_eq(text.data, "x");
}
END_TEST

/* One piece of every length around the first capacity, after a prefix of every such length. */
START_TEST(text_takes_pieces_of_any_length) {
    enum { LONGEST = 140 };
    char piece[LONGEST + 1];
    memset(piece, 'p', LONGEST);
    for (int n = 0; n <= LONGEST; n++) {
        MxText text;
        mx_text_init(&text, &arena);
        mx_text_addn(&text, piece, (size_t)_i);
        mx_text_add(&text, "%.*s", n, piece);
        ck_assert_msg(strlen(text.data) == (size_t)(_i + n) && text.len == (size_t)(_i + n),
                      "%d + %d", _i, n);
    }
}
END_TEST

START_TEST(text_keeps_nul_bytes) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_addn(&text, "a\0b", 3);
    mx_text_addn(&text, "", 0);
    mx_text_add(&text, "c");
    ck_assert_uint_eq(text.len, 4);
    ck_assert_mem_eq(text.data, "a\0bc", 5);
}
END_TEST

static const struct {
    const char *s, *part;
    bool is_prefix, is_suffix;
} affixes[] = {
    {"abc", "ab", true, false},  {"abc", "bc", false, true}, {"abc", "abc", true, true},
    {"abc", "", true, true},     {"", "", true, true},       {"", "a", false, false},
    {"ab", "abc", false, false}, {"abab", "ab", true, true}, {"abc", "b", false, false},
};

START_TEST(prefixes_and_suffixes) {
    const char *s = affixes[_i].s, *part = affixes[_i].part;
    ck_assert_msg(mx_text_has_prefix(s, part) == affixes[_i].is_prefix, "\"%s\" \"%s\"", s, part);
    ck_assert_msg(mx_text_has_suffix(s, part) == affixes[_i].is_suffix, "\"%s\" \"%s\"", s, part);
}
END_TEST

/* ---- figures */

static const struct {
    double value;
    int decimals;
    const char *text;
} figures[] = {
    {8.030261248, 3, "8.030"},
    {0.1, 3, "0.100"},
    {0.0999, 3, "0.0999"},
    {0.000115264, 3, "0.000115"},
    {-0.000115264, 3, "-0.000115"},
    {92.6349, 2, "92.63"},
    {0.00071, 2, "0.000710"},
    {0, 3, "0.000"},
    {1024, 0, "1024"},
    {8, 0, "8"},
    {0.5, 0, "0.500"},
    {0.99999, 3, "1.000"},
    {9.9999999e-5, 3, "0.000100"},
    {9.99e-5, 3, "9.99e-05"},
    {5e-7, 3, "5.00e-07"},
    {1e-300, 3, "1.00e-300"},
    {123456789012.5, 1, "123456789012.5"},
    {999000000000000, 3, "999000000000000.000"},
    {-1e15, 3, "-1.00e+15"},
    {1e300, 3, "1.00e+300"},
    {NAN, 3, "nan"},
    {INFINITY, 3, "inf"},
};

START_TEST(figures_keep_three_digits) {
    char out[MX_FIGURE];
    ck_assert_str_eq(mx_figure(out, figures[_i].value, figures[_i].decimals), figures[_i].text);
}
END_TEST

/* ---- the nearest word */

#define LONG_WORD "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmn"

static const struct {
    const char *word, *candidates[3], *nearest;
} misspelt[] = {
    {"learning_rat", {"steps", "learning_rate", "base_learning"}, "learning_rate"},
    {"setps", {"steps", "sets"}, "steps"}, /* a swap costs one, not two */
    {"cat", {"bat", "hat", "rat"}, "bat"}, /* of equals the first */
    {"cat", {"dog", "cot", "cat"}, "cat"}, /* itself */
    {"ab", {"ay"}, "ay"},                  /* one slip is always near enough */
    {"ab", {"xy"}, NULL},                  /* two are not, for a short word */
    {"abcdef", {"abcdXY"}, NULL},          /* nor here */
    {"abcdefg", {"abcdeXY"}, "abcdeXY"},
    {"abcdefg", {"abcdXYZ"}, NULL},
    {"abcdefghijk", {"abcdefghXYZ"}, "abcdefghXYZ"},
    {"abcdefghijklmnopqrst", {"abcdefghijklmnopWXYZ"}, NULL}, /* never more than three */
    {"", {"a"}, "a"},
    {"", {"ab"}, NULL},
    {"abc", {NULL}, NULL},
    {LONG_WORD, {LONG_WORD}, NULL}, /* too long to be compared */
    {"abcdef", {LONG_WORD, "abcdeg"}, "abcdeg"},
};

START_TEST(finds_the_nearest_word) {
    int n = 0;
    while (n < 3 && misspelt[_i].candidates[n]) n++;
    const char *found = mx_nearest(misspelt[_i].word, misspelt[_i].candidates, n);
    const char *want = misspelt[_i].nearest;
    ck_assert_msg(found == want || (found && want && !strcmp(found, want)),
                  "\"%s\": found %s, wanted %s", misspelt[_i].word, found ? found : "nothing",
                  want ? want : "nothing");
}
END_TEST

enum { LETTERS = 9 };

/* The distance by its definition, prefix by prefix. */
static int slow_distance(const char *a, const char *b) {
    int d[LETTERS + 1][LETTERS + 1], n = (int)strlen(a), m = (int)strlen(b);
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            int best = i && j ? d[i - 1][j - 1] + (a[i - 1] != b[j - 1]) : i + j;
            if (i && d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (j && d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swap && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

static char *random_word(uint64_t *state) {
    size_t n = draw(state) % (LETTERS + 1);
    char *word = mx_arena_alloc(&arena, LETTERS + 1);
    for (size_t i = 0; i < n; i++) word[i] = (char)('a' + draw(state) % 3);
    return word;
}

START_TEST(agrees_with_the_slow_distance) {
    uint64_t state = (uint64_t)_i << 32;
    for (int round = 0; round < 200; round++) {
        enum { N = 4 };
        const char *word = random_word(&state), *candidates[N], *want = NULL;
        int limit = ((int)strlen(word) + 1) / 4, best = limit > 1 ? limit + 1 : 2;
        for (int i = 0; i < N; i++) {
            candidates[i] = random_word(&state);
            int d = slow_distance(word, candidates[i]);
            if (d < best) want = candidates[i];
            if (d < best) best = d;
        }
        const char *found = mx_nearest(word, candidates, N);
        ck_assert_msg(found == want, "\"%s\" among \"%s\" \"%s\" \"%s\" \"%s\": \"%s\", not \"%s\"",
                      word, candidates[0], candidates[1], candidates[2], candidates[3],
                      found ? found : "", want ? want : "");
    }
}
END_TEST

/* ---- maps */

START_TEST(map_agrees_with_a_list) {
    enum { N = 10000 };
    MxMap map;
    mx_map_init(&map, &arena);
    static int64_t values[N];
    static char *keys[N];
    size_t count = 0;
    uint64_t state = 0;
    for (int i = 0; i < N; i++) {
        keys[i] = mx_arena_printf(&arena, "layers_%d/%d", i / 7, i);
        values[i] = -1;
    }
    for (int round = 0; round < 3 * N; round++) {
        size_t i = draw(&state) % N;
        count += values[i] < 0;
        values[i] = (int64_t)(draw(&state) >> 1);
        mx_map_set(&map, mx_arena_strdup(&arena, keys[i]), values[i]);
        ck_assert_uint_eq(map.count, count);
    }
    for (int i = 0; i < N; i++) ck_assert_int_eq(mx_map_get(&map, keys[i], -1), values[i]);
    ck_assert_uint_gt(N, count); /* some were never set, and were found missing */
    ck_assert_int_eq(mx_map_get(&map, "nowhere", -7), -7);
}
END_TEST

START_TEST(map_takes_any_string) {
    MxMap map = {0};
    ck_assert_int_eq(mx_map_get(&map, "a", 3), 3); /* a map never made has nothing */
    mx_map_init(&map, &arena);
    ck_assert_int_eq(mx_map_get(&map, "", 3), 3);
    mx_map_set(&map, "", 1);
    mx_map_set(&map, "a", 2);
    mx_map_set(&map, "a/", INT64_MIN);
    mx_map_set(&map, "a", INT64_MAX);
    ck_assert_int_eq(mx_map_get(&map, "", 0), 1);
    ck_assert_int_eq(mx_map_get(&map, "a", 0), INT64_MAX);
    ck_assert_int_eq(mx_map_get(&map, "a/", 0), INT64_MIN);
    ck_assert_uint_eq(map.count, 3);
}
END_TEST

Suite *text_suite(void) {
    Suite *suite = suite_create("base/text");
    TCase *tcase = add_case(suite, "text");
    tcase_add_test(tcase, text_grows);
    tcase_add_loop_test(tcase, text_takes_pieces_of_any_length, 55, 75);
    tcase_add_test(tcase, text_keeps_nul_bytes);
    tcase_add_loop_test(tcase, prefixes_and_suffixes, 0, MX_COUNT(affixes));
    tcase = add_case(suite, "figures");
    tcase_add_loop_test(tcase, figures_keep_three_digits, 0, MX_COUNT(figures));
    tcase = add_case(suite, "nearest");
    tcase_add_loop_test(tcase, finds_the_nearest_word, 0, MX_COUNT(misspelt));
    tcase_add_loop_test(tcase, agrees_with_the_slow_distance, 0, 20);
    tcase = add_case(suite, "map");
    tcase_add_test(tcase, map_agrees_with_a_list);
    tcase_add_test(tcase, map_takes_any_string);
    return suite;
}
