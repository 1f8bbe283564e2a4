/* hostile.c — YAML that no user writes: refused quickly, in little memory, with a message. */
#include "config_tests.h"

#include <sys/resource.h>
#include <time.h>

static const double most_s = 0.1;
static const long most_kib = 64 * 1024;

/* Processor time: other programs do not count. */
static double cpu_s(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void refused(const char *text, size_t size, const char *message) {
    MxArena arena = {.name = "test"};
    const char *file = temp_file(&arena, "hostile.yml", text, size);
    double start = cpu_s();
    Loaded l = load_files(&file, 1, NULL);
    double seconds = cpu_s() - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    ck_assert_msg(!l.ok, "loaded; wanted: %s", message);
    ck_assert_msg(strstr(l.err.text.data, message), "wanted: %s\nfound: %.2000s", message,
                  l.err.text.data);
    ck_assert_msg(seconds < most_s * slowness, "%s: %.3f s", message, seconds);
    if (slowness == 1)
        ck_assert_msg(usage.ru_maxrss < most_kib, "%s: %ld KiB", message, usage.ru_maxrss);
    unload(&l);
    mx_arena_release(&arena);
}

static void refused_text(const char *text, const char *message) {
    refused(text, strlen(text), message);
}

static MxText repeat(MxArena *arena, const char *start, const char *part, int n) {
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "%s", start);
    for (int i = 0; i < n; i++) mx_text_addn(&text, part, strlen(part));
    return text;
}

START_TEST(deep) {
    MxArena arena = {.name = "test"};
    MxText flow = repeat(&arena, "mesh_axes: ", "[", 1000000);
    refused(flow.data, flow.len, "hostile.yml:1:74: nested deeper than 64 levels");
    MxText maps = repeat(&arena, "mesh_axes: ", "{a: ", 200000);
    refused(maps.data, maps.len, "nested deeper than 64 levels");
    MxText lists = repeat(&arena, "", "- ", 500000);
    refused(lists.data, lists.len, "nested deeper than 64 levels");
    /* depth through aliases, where nothing is written deep */
    MxText chain = repeat(&arena, "a0: &a0 [1]\n", "", 0);
    for (int i = 1; i < 100; i++) mx_text_add(&chain, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    refused(chain.data, chain.len, "nested deeper than 64 levels");
    mx_arena_release(&arena);
}
END_TEST

START_TEST(large) {
    MxArena arena = {.name = "test"};
    MxText big = repeat(&arena, "run_name: ", "x", 2 << 20);
    refused(big.data, big.len, "the limit is 1048576");
    MxText keys;
    mx_text_init(&keys, &arena);
    for (int i = 0; i < 100000; i++) mx_text_add(&keys, "k%05d: \n", i);
    refused(keys.data, keys.len, "holds more than 20000 values");
    MxText some;
    mx_text_init(&some, &arena);
    for (int i = 0; i < 15000; i++) mx_text_add(&some, "k%05d: 1\n", i);
    refused(some.data, some.len, "14960 more errors");
    mx_arena_release(&arena);
}
END_TEST

START_TEST(aliases) {
    MxArena arena = {.name = "test"};
    MxText bomb = repeat(&arena, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n", "", 0);
    for (int i = 1; i < 10; i++)
        mx_text_add(&bomb, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i,
                    i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    refused(bomb.data, bomb.len, "counting aliases in full");
    MxText chain = repeat(&arena, "a0: &a0 {k0: 1}\n", "", 0);
    for (int i = 1; i < 10000; i++)
        mx_text_add(&chain, "a%d: &a%d {<<: *a%d, k%d: 1}\n", i, i, i - 1, i);
    refused(chain.data, chain.len, "holds more than 20000 values");
    refused_text("mesh_axes: &a [*a]\n", "hostile.yml:1:16: alias \"*a\" stands inside its own");
    refused_text("mesh_axes: &a {b: {c: *a}}\n", "stands inside its own anchor");
    refused_text("mesh_axes: *b\n", "alias \"*b\" has no anchor before it");
    refused_text("<<: [1]\n", "<< wants a map");
    mx_arena_release(&arena);
}
END_TEST

/* A mark that some editors put before UTF-8 is no part of the first key. */
START_TEST(a_byte_order_mark_is_passed_over) {
    Loaded l = load_config("\xef\xbb\xbfsteps: 7\nrun_name: a\n", NULL, NULL);
    ck_assert_msg(l.ok, "%s", l.err.text.data);
    ck_assert_int_eq(l.config->steps, 7);
    unload(&l);
    l = load_config("\xef\xbb\xbfsteps: x\n", NULL, NULL);
    ck_assert(!l.ok);
    ck_assert_msg(strstr(l.err.text.data, ":1:8: steps: wants an integer"), "%s", l.err.text.data);
    unload(&l);
}
END_TEST

/* A name that no YAML can hold once trained and never resumed. */
START_TEST(the_environment_is_text) {
    static const char *const vars[] = {"M_RUN_NAME=c\x80", "M_METRICS_FILE=a\xff"};
    for (int i = 0; i < MX_COUNT(vars); i++) {
        Loaded l = load_config("", NULL, vars[i]);
        ck_assert(!l.ok);
        ck_assert_msg(strstr(l.err.text.data, "not UTF-8 text"), "%s", l.err.text.data);
        unload(&l);
    }
    Loaded l = load_config("", "run_name=\"c\\x80\"", NULL);
    ck_assert_msg(!l.ok && strstr(l.err.text.data, "the name has a control character"), "%s",
                  l.err.text.data);
    unload(&l);
}
END_TEST

START_TEST(not_text) {
    refused("steps: 1\0\n", 10, "NUL at byte 8");
    refused("\xff\xfes\0t\0", 6, "is UTF-16");
    refused("\xfe\xff\0s\0t", 6, "is UTF-16");
    refused_text("steps: 1\nrun_name: \xff\xfe\n", "hostile.yml:2:11: not UTF-8 text");
    refused_text("run_name: \xc0\x80\n", "not UTF-8 text");
    refused_text("run_name: a\x01z\n", "control characters are not allowed");
    refused_text("run_name: \"a\\0b\"\n", "a value holds a NUL character");
    refused("\x7f"
            "ELF\x02\x01\x01\0\0\0\0",
            11, "NUL at byte 7");
    refused_text("just words\n", "wants \"key: value\" lines");
    refused_text("- a\n- b\n", "wants \"key: value\" lines");
}
END_TEST

START_TEST(malformed) {
    refused_text("steps: 1\nsteps: 2\n", "hostile.yml:2:1: duplicate key \"steps\"");
    refused_text("lora: {a: 1, a: 2}\n", "hostile.yml:1:14: duplicate key \"a\"");
    refused_text("steps: 1\n---\nsteps: 2\n", "hostile.yml:2:1: a second document begins");
    refused_text("run_name: !!python/object/apply:os.system [ls]\n", "is not allowed");
    refused_text("run_name: !x 1\n", "tag \"!x\" is not allowed");
    refused_text("? [a, b]\n: 1\n", "a key must be a single word");
    refused_text("steps: [1\n", "hostile.yml:2:1: did not find expected");
    refused_text("a: b: c\n", "mapping values are not allowed in this context");
    refused_text("\tsteps: 1\n", "found character that cannot start any token");
    refused_text("run_name: \"abc\n", "found unexpected end of stream");
}
END_TEST

START_TEST(a_good_config_loads_fast) {
    double start = cpu_s();
    Loaded l = load_config(NULL, "model_name=llama2-7b", NULL);
    ck_assert(l.ok);
    ck_assert_double_lt(cpu_s() - start, 0.1 * slowness);
    unload(&l);
}
END_TEST

TCase *hostile_cases(void) {
    TCase *tc = tcase_create("hostile");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, deep);
    tcase_add_test(tc, large);
    tcase_add_test(tc, aliases);
    tcase_add_test(tc, not_text);
    tcase_add_test(tc, a_byte_order_mark_is_passed_over);
    tcase_add_test(tc, the_environment_is_text);
    tcase_add_test(tc, malformed);
    tcase_add_test(tc, a_good_config_loads_fast);
    return tc;
}
