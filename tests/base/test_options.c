/* test_options.c — command lines: values, flags, lists, what is left, what is refused. */
#include "base_test.h"
#include "child.h"

/* What the options of these tests fill. */
static struct {
    const char *one, *many[8], *topic;
    int n_many;
    bool on, stays, asks;
} got;
static const char *rest[16];

static void complete(const char *begin, MxText *out) {
    mx_text_add(out, "%sx=\n", begin);
}

static const MxManual manual = {
    .program = "tool",
    .does = "test options",
    .synopsis = "[OPTION]... A",
    .intro = "One paragraph.\n\n.Another.",
    .arguments = (const MxManualRow[]){{"A", "a - file"}, {0}},
    .notes = (const MxManualRow[]){{"Exit codes", "0 or not"}, {0}},
    .complete = complete,
};

/* Reads the words of one line. */
static bool read_line(const char *line, bool passes_pairs) {
    char *argv[16] = {mx_arena_strdup(&arena, "tool")};
    int argc = 1;
    for (const char *at = line; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        argv[argc++] = mx_arena_strndup(&arena, at, n);
        at += n;
    }
    memset(&got, 0, sizeof got);
    got.stays = true;
    const MxOption options[] = {
        {.name = "--one", .value = &got.one, .takes = "FILE", .doc = "a first file"},
        {.name = "--many",
         .value = got.many,
         .count = &got.n_many,
         .takes = "red|green",
         .doc = "colours"},
        {.name = "--on", .flag = &got.on},
        {.name = "--no-stay", .flag = &got.stays, .clears = true, .doc = "goes"},
        {.name = "--ask", .flag = &got.asks, .value = &got.topic, .takes = "N", .doc = "asks"},
    };
    const MxOptions table = {
        .rows = options, .n = MX_COUNT(options), .passes_pairs = passes_pairs, .manual = &manual};
    return mx_options_read(table, argc, argv, rest, &err);
}

START_TEST(options_and_the_rest_in_any_order) {
    ck_ok(read_line("a --one=x --on b --one y --many p --no-stay --many=q -- --on", false));
    ck_assert_str_eq(got.one, "y");
    ck_assert(got.on && !got.stays && !got.asks);
    ck_assert_int_eq(got.n_many, 2);
    ck_assert_str_eq(got.many[0], "p");
    ck_assert_str_eq(got.many[1], "q");
    ck_assert_str_eq(rest[0], "a");
    ck_assert_str_eq(rest[1], "b");
    ck_assert_str_eq(rest[2], "--on");
    ck_assert_ptr_null(rest[3]);
}
END_TEST

START_TEST(a_flag_may_have_a_value) {
    ck_ok(read_line("--ask", false));
    ck_assert(got.asks);
    ck_assert_ptr_null(got.topic);
    ck_ok(read_line("--ask lora", false));
    ck_assert(got.asks);
    ck_assert_str_eq(got.topic, "lora");
    ck_ok(read_line("--ask --one x", false)); /* it took the option for its topic */
    ck_assert(got.asks);
    ck_assert_ptr_null(got.topic);
    ck_assert_str_eq(got.one, "x");
    ck_ok(read_line("--ask - --one -x", false));
    ck_assert_str_eq(got.topic, "-");
    ck_assert_str_eq(got.one, "-x");
}
END_TEST

START_TEST(pairs_may_pass) {
    ck_ok(read_line("--steps=3 --one=x", true));
    ck_assert_str_eq(got.one, "x");
    ck_assert_str_eq(rest[0], "--steps=3");
    ck_assert_ptr_null(rest[1]);
    ck_ok(read_line("--one ./steps=3", true));
    ck_assert_str_eq(got.one, "./steps=3");
}
END_TEST

START_TEST(wrong_lines_are_told) {
    ck_failed(read_line("--one", false), MX_EXIT_CONFIG, "--one wants a value: --one FILE");
    ck_failed(read_line("--one --on", false), MX_EXIT_CONFIG, "wants a value, found --on");
    ck_failed(read_line("--one steps=3", true), MX_EXIT_CONFIG, "wants a value, found steps=3");
    ck_failed(read_line("--on=1", false), MX_EXIT_CONFIG, "--on takes no value");
    ck_failed(read_line("--mny x", false), MX_EXIT_CONFIG, "unrecognized option \"--mny\"");
    ck_failed(read_line("--mny x", false), MX_EXIT_CONFIG, "did you mean \"--many\"?");
    ck_failed(read_line("--steps=3", false), MX_EXIT_CONFIG, "unrecognized option \"--steps=3\"");
    ck_failed(read_line("--steps", true), MX_EXIT_CONFIG, "unrecognized option \"--steps\"");
    ck_failed(read_line("--steps 2", true), MX_EXIT_CONFIG, "KEY=VALUE, without a space: steps=2");
    ck_failed(read_line("--steps --on", true), MX_EXIT_CONFIG, "hint: keys are set as KEY=VALUE");
}
END_TEST

static void ask(const void *line) {
    if (read_line(line, false) || err.count) _exit(1);
}

START_TEST(help_and_version_leave_nothing_to_do) {
    static const char help[] =
        "usage: tool [OPTION]... A\n\nOne paragraph.\n\n.Another.\n\n"
        "  A                         a - file\n"
        "  --one FILE                a first file\n"
        "  --many red|green          colours\n"
        "  --no-stay                 goes\n"
        "  --ask [N]                 asks\n"
        "  --quiet                   print no more than warnings, errors and what was asked for\n"
        "  --verbose                 with --version: the libraries, too\n"
        "  --color auto|always|never\n"
        "                            auto: on a terminal, unless NO_COLOR is set\n"
        "  --help                    a screen of the main options\n"
        "  --help-all                all of them\n"
        "  --version                 the version\n"
        "  --man                     this as a manual page\n"
        "  --completion bash|zsh|fish\n"
        "                            a script that completes command lines of this program\n"
        "\nExit codes: 0 or not\n";
    static const char *const asked[][2] = {{"a --help", help},
                                           {"-h --on", help},
                                           {"--version", "tool " MX_VERSION "\n"},
                                           {"--complete a --m", "--many\n--man\n"},
                                           {"--complete --one --m", ":files\n"},
                                           {"--complete --many r", "red\n"},
                                           {"--complete --on a", "ax=\n"}};
    for (int i = 0; i < MX_COUNT(asked); i++) {
        Child child = run_child(&arena, ask, asked[i][0]);
        ck_assert_int_eq(child.status, 0);
        ck_assert_str_eq(child.out, asked[i][1]);
    }
    ck_failed(read_line("--help --steps", false), MX_EXIT_CONFIG, "unrecognized option");
}
END_TEST

Suite *options_suite(void) {
    Suite *suite = suite_create("options");
    TCase *tcase = add_case(suite, "options");
    tcase_add_test(tcase, options_and_the_rest_in_any_order);
    tcase_add_test(tcase, a_flag_may_have_a_value);
    tcase_add_test(tcase, pairs_may_pass);
    tcase_add_test(tcase, wrong_lines_are_told);
    tcase_add_test(tcase, help_and_version_leave_nothing_to_do);
    return suite;
}
