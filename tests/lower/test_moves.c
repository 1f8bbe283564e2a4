/* test_moves.c — the ways from one sharding to another: what is exchanged, along which dims, and
 * that every way leads where it should. */
#include "lower_test.h"

#include <lower/partition.h>

enum { A = 1, B = 2, AB = 3, RANK = 3 };

static const MxMesh mesh = {
    .n = 2, .axes = (const char *const[]){"a", "b"}, .sizes = (int64_t[]){2, 3}, .n_ranks = 6};

static const struct {
    MxSharding from, to;
    const char *moves;
} ways[] = {
    {{.dim = {A}}, {.dim = {A}}, ""},
    {{.dim = {A}}, {.dim = {0}}, "all_gather 0 a;"},
    {{.dim = {0}}, {.dim = {0, A}}, "take_part 1 a;"},
    {{.dim = {A}}, {.dim = {0, A}}, "all_to_all 0 1 a;"},
    {{.dim = {AB}}, {.dim = {A, B}}, "all_to_all 0 1 b;"},
    {{.dim = {AB}}, {.dim = {0, 0, AB}}, "all_to_all 0 2 a,b;"},
    {{.dim = {A, B}}, {.dim = {AB}}, "all_to_all 1 0 b;"},
    /* What is joined or cut has to come last there. */
    {{.dim = {AB}}, {.dim = {B, A}}, "all_gather 0 a,b;take_part 0 b;take_part 1 a;"},
    {{.dim = {B, A}}, {.dim = {AB}}, "all_gather 0 b;all_gather 1 a;take_part 0 a,b;"},
    {{.dim = {A}, .partial = B}, {.dim = {0, A}, .partial = B}, "all_to_all 0 1 a;"},
    {{.dim = {A}, .partial = B}, {.dim = {0, AB}}, "all_reduce b;all_to_all 0 1 a;take_part 1 b;"},
    {{.dim = {A}, .partial = B}, {.dim = {B, A}}, "all_reduce b;all_to_all 0 1 a;take_part 0 b;"},
    /* Halves are swapped where nothing else is to be done. */
    {{.dim = {A}}, {.dim = {A}, .swapped = 1}, "swap_halves 0 a;"},
    {{.dim = {A}, .swapped = 1}, {.dim = {A}}, "swap_halves 0 a;"},
    {{.dim = {A}, .swapped = 1}, {.dim = {0, A}}, "swap_halves 0 a;all_to_all 0 1 a;"},
    {{.dim = {0}}, {.dim = {0, A}, .swapped = 2}, "take_part 1 a;swap_halves 1 a;"},
    {{.dim = {A}, .swapped = 1},
     {.dim = {AB}, .swapped = 1},
     "swap_halves 0 a;take_part 0 b;swap_halves 0 a,b;"},
    {{.dim = {A, B}, .swapped = 1}, {.dim = {A}, .swapped = 1}, "all_gather 1 b;"},
    {{.dim = {A}, .partial = B},
     {.dim = {A, B}, .swapped = 1},
     "reduce_scatter 1 b;swap_halves 0 a;"},
};

static const char *text_of(const Move *moves, int n) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < n; i++) {
        const Move *m = &moves[i];
        mx_text_add(&text, "%s", m->op->name);
        if (m->op == &op_all_gather || m->op == &op_all_to_all)
            mx_text_add(&text, " %d", m->joined);
        if (m->op != &op_all_gather && m->op != &op_all_reduce) mx_text_add(&text, " %d", m->cut);
        mx_text_add(&text, " %s;", mx_lower_group(&arena, &mesh, 0, m->axes).axes);
    }
    return text.data;
}

START_TEST(ways_are_short) {
    Move moves[MOST_MOVES];
    int n = lower_moves(RANK, ways[_i].from, ways[_i].to, moves);
    ck_assert_str_eq(text_of(moves, n), ways[_i].moves);
}
END_TEST

Suite *moves_suite(void) {
    Suite *suite = suite_create("moves");
    TCase *tcase = add_case(suite, "moves");
    tcase_add_loop_test(tcase, ways_are_short, 0, MX_COUNT(ways));
    return suite;
}
