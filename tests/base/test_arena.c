/* test_arena.c — arenas: what they hand out is zeroed, aligned, apart from everything else and
 * stays where it is; hooks run last registered first; the counter of system allocations. */
#include "base_test.h"
#include "child.h"

enum { CHUNK_BYTES = 4096, LARGEST_CHUNK_BYTES = 1 << 20 };

/* Sizes around every border: of alignment, of the first chunk, of the largest. */
static const size_t sizes[] = {0,
                               1,
                               15,
                               16,
                               17,
                               100,
                               CHUNK_BYTES - 16,
                               CHUNK_BYTES - 15,
                               CHUNK_BYTES,
                               CHUNK_BYTES + 1,
                               100000,
                               LARGEST_CHUNK_BYTES,
                               LARGEST_CHUNK_BYTES + 1,
                               3 * LARGEST_CHUNK_BYTES};

START_TEST(hands_out_zeroed_aligned_memory) {
    size_t bytes = sizes[_i];
    for (int round = 0; round < 3; round++) { /* later rounds get memory that was dirtied */
        MxArena a = {.name = "sizes"};
        for (int k = 0; k < 5; k++) {
            unsigned char *p = mx_arena_alloc(&a, bytes);
            ck_assert_msg((uintptr_t)p % 16 == 0, "%zu bytes at %p", bytes, (void *)p);
            for (size_t i = 0; i < bytes; i++)
                if (p[i]) ck_abort_msg("%zu bytes: byte %zu is %d", bytes, i, p[i]);
            memset(p, 0xa5, bytes);
        }
        ck_assert_uint_eq(a.used_bytes, 5 * ((bytes + 15) / 16 * 16));
        mx_arena_release(&a);
    }
}
END_TEST

START_TEST(objects_stay_apart) {
    enum { N = 3000 };
    MxArena a = {.name = "apart"};
    unsigned char *p[N];
    size_t n_bytes[N];
    uint64_t state = 0;
    for (int i = 0; i < N; i++) {
        n_bytes[i] = draw(&state) % (i % 50 ? 200 : 20000);
        p[i] = mx_arena_alloc(&a, n_bytes[i]);
        memset(p[i], i & 0xff, n_bytes[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < n_bytes[i]; k++)
            if (p[i][k] != (i & 0xff)) ck_abort_msg("object %d was overwritten at %zu", i, k);
    mx_arena_release(&a);
}
END_TEST

START_TEST(grow_copies_and_leaves_the_old) {
    int old[] = {1, 2, 3};
    int *grown = mx_arena_grow(&arena, old, 3, 1000, sizeof *old);
    old[0] = 9;
    ck_assert_int_eq(grown[0], 1);
    ck_assert_int_eq(grown[2], 3);
    for (int i = 3; i < 1000; i++) ck_assert_int_eq(grown[i], 0);
    ck_assert_ptr_nonnull(mx_arena_grow(&arena, NULL, 0, 4, sizeof *old));
}
END_TEST

START_TEST(copies_strings) {
    char text[] = "abcdef";
    char *whole = mx_arena_strdup(&arena, text), *part = mx_arena_strndup(&arena, text, 3);
    text[0] = 'X';
    ck_assert_str_eq(whole, "abcdef");
    ck_assert_str_eq(part, "abc");
    ck_assert_str_eq(mx_arena_strdup(&arena, ""), "");
    ck_assert_str_eq(mx_arena_printf(&arena, "%s-%d", whole, 7), "abcdef-7");
    char *padded = mx_arena_printf(&arena, "%*d", 70000, 1);
    ck_assert_uint_eq(strlen(padded), 70000);
    ck_assert_int_eq(padded[69999], '1');
}
END_TEST

static char order[16];
static void note_hook(void *data) { /* its data is in the arena, which must still be there */
    strncat(order, data, 1);
}

START_TEST(hooks_run_last_first_and_once) {
    MxArena a = {.name = "hooks"};
    for (const char *c = "abc"; *c; c++)
        mx_arena_on_release(&a, note_hook, mx_arena_strndup(&a, c, 1));
    mx_arena_alloc(&a, 100000);
    ck_assert_str_eq(order, "");
    mx_arena_release(&a);
    ck_assert_str_eq(order, "cba");
    mx_arena_release(&a);
    ck_assert_str_eq(order, "cba");
}
END_TEST

START_TEST(a_released_arena_is_empty_and_usable) {
    MxArena a = {.name = "again"};
    mx_arena_alloc(&a, 5000);
    mx_arena_release(&a);
    ck_assert_str_eq(a.name, "again");
    ck_assert_uint_eq(a.used_bytes, 0);
    ck_assert_ptr_null(a.chunk);
    int *n = mx_new(&a, int);
    *n = 5;
    ck_assert_uint_eq(a.used_bytes, 16);
    mx_arena_release(&a);
}
END_TEST

START_TEST(counts_what_the_system_was_asked_for) {
    MxArena a = {.name = "count"};
    uint64_t before = mx_host_alloc_count();
    mx_arena_alloc(&a, 1);
    ck_assert_uint_eq(mx_host_alloc_count(), before + 1);
    mx_arena_alloc(&a, CHUNK_BYTES - 16);
    ck_assert_uint_eq(mx_host_alloc_count(), before + 1);
    mx_arena_alloc(&a, 1);
    ck_assert_uint_eq(mx_host_alloc_count(), before + 2);
    /* Chunks double: many small objects cost few calls. */
    for (int i = 0; i < 100000; i++) mx_arena_alloc(&a, 16);
    ck_assert_uint_le(mx_host_alloc_count(), before + 16);
    mx_arena_release(&a);
    ck_assert_uint_le(mx_host_alloc_count(), before + 16);
}
END_TEST

static void ask_for_too_much(const void *unused) {
    (void)unused;
    MxArena a = {.name = "greedy"};
    mx_arena_alloc(&a, SIZE_MAX / 8);
}
static void ask_for_a_negative_size(const void *unused) {
    (void)unused;
    MxArena a = {.name = "negative"};
    mx_arena_alloc(&a, (size_t)-64);
}

START_TEST(out_of_memory_names_size_and_arena) {
    Child child = run_child(&arena, ask_for_too_much, NULL);
    ck_assert_msg(WIFEXITED(child.status) && WEXITSTATUS(child.status) == MX_EXIT_NO_MEMORY,
                  "wait status %#x", (unsigned)child.status);
    const char *want =
        "test_base: error: out of memory: 2305843009213693952 bytes for arena \"greedy\"\n";
    ck_assert_msg(mx_text_has_suffix(child.err, want), "%s", child.err);
}
END_TEST

START_TEST(a_negative_size_is_a_bug) {
    ck_aborts(ask_for_a_negative_size, NULL, "src/base/arena.c:", "bytes < SIZE_MAX / 4");
}
END_TEST

Suite *arena_suite(void) {
    Suite *suite = suite_create("base/arena");
    TCase *tcase = add_case(suite, "arena");
    tcase_add_loop_test(tcase, hands_out_zeroed_aligned_memory, 0, MX_COUNT(sizes));
    tcase_add_test(tcase, objects_stay_apart);
    tcase_add_test(tcase, grow_copies_and_leaves_the_old);
    tcase_add_test(tcase, copies_strings);
    tcase_add_test(tcase, hooks_run_last_first_and_once);
    tcase_add_test(tcase, a_released_arena_is_empty_and_usable);
    tcase_add_test(tcase, counts_what_the_system_was_asked_for);
    tcase_add_test(tcase, out_of_memory_names_size_and_arena);
    tcase_add_test(tcase, a_negative_size_is_a_bug);
    return suite;
}
