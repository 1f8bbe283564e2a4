/* test_hostile.c — the tools with files that nobody vouches for, with files larger than their
 * memory, and stopped half-way. MX_MUTANTS is half the number of damaged files, if they
 * are to be more than some dozens. */
#include "tools.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- files that nobody vouches for */

/* Bits and bytes changed, mostly in the headers; some files cut short. */
static void mutate(MxBytes *bytes, uint64_t seed) {
    uint32_t w[4];
    mx_philox(seed, 1, 0, w);
    int n = 1 << (w[0] % 7);
    if (w[1] % 16 == 0) bytes->size = w[2] % bytes->size;
    for (int i = 0; i < n && bytes->size; i++) {
        mx_philox(seed, 2, (uint64_t)i, w);
        size_t range = w[0] % 2 && bytes->size > 6000 ? 6000 : bytes->size;
        uint8_t *byte = &bytes->data[w[1] % range];
        *byte = (uint8_t)(w[2] % 2 ? w[3] : *byte ^ 1u << w[3] % 8);
    }
}

/* Processor time: how busy the machine is says nothing about a loop. */
static double children_s(void) {
    struct rusage use;
    ck_assert(!getrusage(RUSAGE_CHILDREN, &use));
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

START_TEST(damaged_files_never_kill_the_tools) {
    enum { MAX_S = 10 };
    const char *many = getenv("MX_MUTANTS");
    int n = many ? (int)strtol(many, NULL, 10) : 12;
    make_pair_file("tiny.h5", (const float[]){1, 2, 3}, "model/decoder/layers/y/kernel",
                   MX_SHAPE(2, 2, 2), MX_F32);
    ck_tool(0, "mxconvert %s:%s {}/seed.h5 --params-only", model("llama2"),
            _i ? "nnx_unscanned" : "linen");
    for (int i = 0; i < n; i++) {
        MxBytes bytes = content(i % 4 ? "seed.h5" : "tiny.h5");
        mutate(&bytes, (uint64_t)(i + 100000 * _i));
        put_content("m.h5", bytes.data, bytes.size);
        double start_s = children_s();
        int code = tool("mxconvert {}/m.h5 {}/o.h5 --force --layout linen --scan-layers %s",
                        i % 2 ? "true" : "false");
        ck_assert_msg(code == 0 || code == 65, "mutant %d: exit %d: %s", i, code, output);
        ck_assert_msg(code == 0 || *output, "mutant %d: no message", i);
        double convert_s = children_s() - start_s;
        code = tool("mxcompare {}/seed.h5 {}/m.h5");
        ck_assert_msg(code == 0 || code == 1 || code == 65, "mutant %d: exit %d: %s", i, code,
                      output);
        double compare_s = children_s() - start_s - convert_s;
        ck_assert_msg(convert_s < MAX_S && compare_s < MAX_S, "mutant %d: %.1f s, %.1f s", i,
                      convert_s, compare_s);
    }
}
END_TEST

/* ---- size */

/* One tensor of 96 MiB, written by pieces: what this process holds would count as its children's.
 */
static void make_big_file(void) {
    enum { L = 4, D = 1024, M = 6144, ROWS = 64 };
    static const char path[] = "model/decoder/layers/mlp/wi_0/kernel";
    MxH5 *file;
    float *values = mx_new_n(&arena, float, ROWS *L *M);
    ck_ok(mx_h5_create(&arena, in_folder("big.h5"), &file, &err));
    ck_ok(mx_h5_make(file, path, MX_F32, MX_SHAPE(D, L, M), &err));
    for (int row = 0; row < D; row += ROWS) {
        for (int i = 0; i < ROWS * L * M; i++) values[i] = (float)(row * L * M + i) / 7;
        MxBox box = {.rank = 3, .start = {row}, .count = {ROWS, L, M}};
        ck_ok(mx_h5_write_box(file, path, box, values, &err));
    }
    ck_ok(mx_h5_close(file, &err));
}

START_TEST(big_tensors_pass_through_little_memory) {
    enum { MAX_MIB = 64 };
    make_big_file();
    ck_tool(0, "mxconvert {}/big.h5 {}/u.h5 --scan-layers false");
    ck_tool(0, "mxconvert {}/u.h5 {}/s.h5 --scan-layers true");
    ck_tool(0, "mxcompare {}/big.h5 {}/s.h5");
    ck_tool(0, "mxcompare {}/big.h5 {}/u.h5");
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    ck_assert_msg(usage.ru_maxrss < MAX_MIB * 1024, "peak %ld KiB", usage.ru_maxrss);
}
END_TEST

static const struct {
    const char *target;
    int signal, code;
} stops[] = {
    {"out.h5", SIGTERM, 143},
    {"out", SIGTERM, 143},
    {"out", SIGINT, 130},
};

/* A signal to the tool alone reaches its child too, and nothing is left behind. On a busy machine
 * the tool may be done before the signal comes; then it is tried again. */
START_TEST(a_signal_ends_a_conversion_cleanly) {
    enum { PAUSE_US = 500, LOOKS = 20000, TRIES = 20 };
    make_big_file();
    int code = 0, n = 0;
    char **names;
    for (int t = 0; t < TRIES && code == 0; t++) {
        pid_t pid = tool_start(
            mx_arena_printf(&arena, "mxconvert {}/big.h5 {}/%s --force", stops[_i].target));
        for (int i = 0; i < LOOKS && n < 3; i++) { /* big.h5, the log, and something temporary */
            usleep(PAUSE_US);
            ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
        }
        ck_assert(!kill(pid, stops[_i].signal));
        code = tool_await(pid);
    }
    ck_assert_msg(code == stops[_i].code, "exit %d: %s", code, output);
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    for (int i = 0; i < n; i++) ck_assert_msg(!strstr(names[i], "tmp"), "%s is left", names[i]);
}
END_TEST

Suite *hostile_suite(void) {
    Suite *suite = suite_create("ckpt/hostile");
    TCase *tcase = add_case(suite, "files of others");
    tcase_set_timeout(tcase, getenv("MX_MUTANTS") ? 7200 : 120);
    tcase_add_loop_test(tcase, damaged_files_never_kill_the_tools, 0, 2);
    tcase_add_loop_test(tcase, a_signal_ends_a_conversion_cleanly, 0, MX_COUNT(stops));
    tcase_add_test(tcase, big_tensors_pass_through_little_memory);
    return suite;
}
