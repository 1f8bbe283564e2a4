/* test_limits.c — bounds on memory, read from files as Linux shows them. */
#include "base_test.h"

#include <sys/resource.h>
#include <unistd.h>

static void put(const char *path, const char *text) {
    const char *at = in_folder(path);
    ck_ok(mx_dir_make(mx_path_dir(&arena, at), &err));
    ck_ok(mx_file_write(at, text, strlen(text), &err));
}

static const char v2_mounts[] =
    "22 1 0:20 / /proc rw shared:5 - proc proc rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char v1_mounts[] = "30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                                "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
static const char v1_container[] =
    "32 30 0:28 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

static const struct {
    const char *mounts, *groups;
    const char *file[3], *text[3]; /* with limits */
    const char *name;              /* "this machine" = no group's limit counts */
    int64_t bytes;
} cases[] = {
    {v2_mounts,
     "0::/job/step\n",
     {"job/step/memory.max"},
     {"734003200\n"},
     "the cgroup \"/job/step\"",
     734003200},
    {v2_mounts,
     "0::/job/step\n",
     {"job/step/memory.max", "job/memory.max"},
     {"max\n", "1048576\n"},
     "the cgroup \"/job\"",
     1048576},
    {v2_mounts,
     "0::/job/step\n",
     {"job/step/memory.max", "job/memory.max"},
     {"4096\n", "8192\n"},
     "the cgroup \"/job/step\"",
     4096},
    {v2_mounts, "0::/\n", {"memory.max"}, {"4096\n"}, "the cgroup \"/\"", 4096},
    {v2_mounts, "0::/job\n", {"job/memory.max"}, {"max\n"}, "this machine", 0},
    {v2_mounts, "0::/../other\n", {"elsewhere"}, {"1\n"}, "this machine", 0},
    {v1_mounts,
     "9:cpu,cpuacct:/c\n4:hugetlb,memory:/a/b\n0::/\n",
     {"memory/a/b/memory.limit_in_bytes"},
     {"734003200\n"},
     "the cgroup \"/a/b\"",
     734003200},
    {v1_mounts,
     "4:memory:/a\n0::/\n",
     {"memory/a/memory.limit_in_bytes"},
     {"9223372036854771712\n"},
     "this machine",
     0},
    {v1_container,
     "4:memory:/docker/12\n",
     {"memory/memory.limit_in_bytes"},
     {"4096\n"},
     "the cgroup \"/\"",
     4096},
    {v1_mounts,
     "4:memory:/gone/from/here\n",
     {"memory/memory.limit_in_bytes"},
     {"4096\n"},
     "the cgroup \"/\"",
     4096},
    {"", "", {0}, {0}, "this machine", 0},
};

START_TEST(the_smallest_group_counts) {
    put("proc/self/mountinfo", cases[_i].mounts);
    put("proc/self/cgroup", cases[_i].groups);
    for (int k = 0; k < 3 && cases[_i].file[k]; k++)
        put(mx_path_join(&arena, "sys/fs/cgroup", cases[_i].file[k]), cases[_i].text[k]);
    MxMemoryLimits limits = mx_memory_limits(&arena, folder);
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    ck_assert_str_eq(limits.memory.name, cases[_i].name);
    ck_assert_int_eq(limits.memory.bytes, cases[_i].bytes ? cases[_i].bytes : machine);
}
END_TEST

START_TEST(limits_of_the_shell) {
    struct rlimit addresses = {(rlim_t)1 << 46, (rlim_t)1 << 46}, data = {(rlim_t)1 << 45, 0};
    data.rlim_max = data.rlim_cur;
    ck_assert(!setrlimit(RLIMIT_AS, &addresses) && !setrlimit(RLIMIT_DATA, &data));
    MxMemoryLimits limits = mx_memory_limits(&arena, folder);
    ck_assert_int_eq(limits.addresses.bytes, INT64_C(1) << 46);
    ck_assert_int_eq(limits.data.bytes, INT64_C(1) << 45);
    ck_assert_str_eq(limits.addresses.name, "ulimit -v");
    ck_assert_str_eq(limits.data.name, "ulimit -d");
}
END_TEST

Suite *limits_suite(void) {
    Suite *suite = suite_create("limits");
    TCase *tcase = add_case(suite, "memory");
    tcase_add_loop_test(tcase, the_smallest_group_counts, 0, MX_COUNT(cases));
    tcase_add_test(tcase, limits_of_the_shell);
    return suite;
}
