/* property.c — random rules, meshes and shapes against a resolver written a second time, from
 * flax's source and without an index: for each rule of the list, for each position of its name, are
 * all its mesh axes free? Then what must always hold of boxes and moves, element by element. */
#include "shard_test.h"

#include <stdio.h>

enum {
    CASES = 100000,
    MOST_RULES = 10,
    MOST_AXES = 4,  /* mesh axes of a mesh */
    MOST_NAMES = 6, /* different logical names */
    MOST_RANK = 4,
    LARGEST_DIM = 5,
    LARGEST_ARRAY = LARGEST_DIM * LARGEST_DIM * LARGEST_DIM * LARGEST_DIM,
    RELEASE_EVERY = 64,
};

static const char *const mesh_axes[] = {"x", "y", "z", "w", "unknown"};
static const char *const axis_names[MOST_NAMES] = {"a", "b", "c", "d", "e", "f"};

/* A passing ck_assert writes to libcheck's pipe; millions of them would be most of the time. */
#define require(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond)) ck_abort_msg(__VA_ARGS__);                                                    \
    } while (0)

#define must(cond) require(cond, "%s", #cond)

/* One case, drawn from (case number, counter) alone, so that a failure can be run again. */
typedef struct Draw {
    uint64_t number, counter;
} Draw;

static int below(Draw *draw, int n) {
    uint32_t words[4];
    mx_philox(20240607, draw->number, draw->counter++, words);
    return (int)(words[0] % (uint32_t)n);
}

static MxRule draw_rule(Draw *draw) {
    MxRule rule = {.axis = axis_names[below(draw, MOST_NAMES)], .n = below(draw, 4)};
    const char **axes = mx_new_n(&arena, const char *, 4);
    int first = below(draw, MX_COUNT(mesh_axes));
    for (int i = 0; i < rule.n; i++) /* different ones */
        axes[i] = mesh_axes[(first + i * (1 + (int)(draw->number % 2))) % MX_COUNT(mesh_axes)];
    rule.mesh_axes = axes;
    return rule;
}

static MxMesh draw_mesh(Draw *draw) {
    int64_t sizes[MOST_AXES];
    int n = below(draw, MOST_AXES + 1);
    for (int i = 0; i < n; i++) sizes[i] = 1 + below(draw, 3);
    MxMesh mesh;
    must(mx_mesh_new(&arena, mesh_axes, sizes, n, &mesh, &err));
    return mesh;
}

static MxSpec draw_names(Draw *draw) {
    const char **axes = mx_new_n(&arena, const char *, MOST_RANK);
    int rank = below(draw, MOST_RANK + 1), first = below(draw, MOST_NAMES);
    for (int d = 0; d < rank; d++)
        axes[d] = below(draw, 5) ? axis_names[(first + d) % MOST_NAMES] : NULL;
    return mx_spec_names(&arena, axes, rank);
}

/* ---- the second resolver: flax's loop as it stands, over plain strings */

typedef struct Plain {
    const char *axes[MOST_RANK][4];
    int n[MOST_RANK]; /* -1 = not assigned yet */
} Plain;

static bool is_free(const Plain *result, int rank, const char *mesh_axis) {
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < result->n[d]; i++)
            if (!strcmp(result->axes[d][i], mesh_axis)) return false;
    return true;
}

static Plain plain_resolve(const MxRule *list, int n, MxSpec names) {
    Plain result;
    for (int d = 0; d < names.rank; d++) result.n[d] = names.dim[d].is_name ? -1 : 0;
    for (int r = 0; r < n; r++)
        for (int d = 0; d < names.rank; d++) {
            if (result.n[d] >= 0 || strcmp(names.dim[d].axes[0], list[r].axis)) continue;
            bool all_free = true;
            for (int i = 0; i < list[r].n; i++)
                all_free = all_free && is_free(&result, names.rank, list[r].mesh_axes[i]);
            if (!all_free) continue;
            result.n[d] = list[r].n;
            for (int i = 0; i < list[r].n; i++) result.axes[d][i] = list[r].mesh_axes[i];
        }
    return result;
}

/* Without axes of size one or that the mesh lacks. */
static void plain_clean(Plain *result, int rank, const MxMesh *mesh) {
    for (int d = 0; d < rank; d++) {
        int kept = 0;
        for (int i = 0; i < result->n[d]; i++)
            for (int m = 0; m < mesh->n; m++)
                if (!strcmp(mesh->axes[m], result->axes[d][i]) && mesh->sizes[m] > 1)
                    result->axes[d][kept++] = result->axes[d][i];
        result->n[d] = kept;
    }
}

static void same(uint64_t number, const Plain *want, MxSpec got) {
    for (int d = 0; d < got.rank; d++) {
        int n = want->n[d] < 0 ? 0 : want->n[d];
        require(got.dim[d].n == n, "case %llu: %s", (unsigned long long)number, text_of(got));
        for (int i = 0; i < n; i++)
            require(!strcmp(want->axes[d][i], got.dim[d].axes[i]), "case %llu: %s",
                    (unsigned long long)number, text_of(got));
    }
}

static void once_each(uint64_t number, MxSpec spec) {
    for (int m = 0; m < MX_COUNT(mesh_axes); m++) {
        int uses = 0;
        for (int d = 0; d < spec.rank; d++)
            for (int i = 0; i < spec.dim[d].n; i++)
                uses += !strcmp(spec.dim[d].axes[i], mesh_axes[m]);
        require(uses <= 1, "case %llu: %s", (unsigned long long)number, text_of(spec));
    }
}

/* The trail says the same as the spec: a dim's taken rule is its rule, one at most. */
static void trail_agrees(uint64_t number, const MxRules *rules, const MxTrail *trail, MxSpec spec) {
    const MxRule *taken[MOST_RANK] = {0};
    for (int i = 0; i < trail->n; i++) {
        const MxTrailStep *step = &trail->steps[i];
        must(i == 0 || step->rule > trail->steps[i - 1].rule);
        if (step->verdict != MX_RULE_TAKEN) continue;
        require(!taken[step->dim], "two rules bind dim %d", step->dim);
        taken[step->dim] = &rules->rule[step->rule];
    }
    for (int d = 0; d < spec.rank; d++)
        require(spec.dim[d].rule == taken[d], "case %llu: dim %d", (unsigned long long)number, d);
}

/* ---- boxes and moves, element by element */

/* Adds one to `count` at every element of the box. */
static void mark(const MxBox *box, MxShape shape, int *count) {
    int64_t n = mx_box_count(box);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = shape.rank - 1; d >= 0; d--) {
            at += (box->start[d] + rest % box->count[d]) * stride;
            rest /= box->count[d];
            stride *= shape.dim[d];
        }
        count[at]++;
    }
}

static void all_are(uint64_t number, const int *count, int64_t n, int want, const char *what) {
    for (int64_t i = 0; i < n; i++)
        require(count[i] == want, "case %llu: %s: element %lld occurs %d times, wanted %d",
                (unsigned long long)number, what, (long long)i, count[i], want);
}

/* Every element is in as many boxes as there are replicas. */
static void boxes_tile(uint64_t number, MxLayout layout, MxShape shape) {
    int count[LARGEST_ARRAY] = {0};
    int64_t parts = 1;
    for (int64_t rank = 0; rank < layout.mesh->n_ranks; rank++) {
        MxBox box = mx_shard_box(layout, shape, rank);
        mark(&box, shape, count);
    }
    for (int d = 0; d < layout.spec.rank; d++)
        parts *= mx_shard_parts(layout.mesh, &layout.spec.dim[d]);
    all_are(number, count, mx_shape_count(shape), (int)(layout.mesh->n_ranks / parts), "boxes");
}

/* Resolves the names with random rules on a random mesh and compares all that can be compared. */
static MxLayout one_resolution(Draw *draw, MxSpec names) {
    int n = below(draw, MOST_RULES + 1);
    MxRule *list = mx_new_n(&arena, MxRule, n);
    for (int i = 0; i < n; i++) list[i] = draw_rule(draw);
    MxMesh *mesh = mx_new(&arena, MxMesh);
    *mesh = draw_mesh(draw);
    MxRules rules = mx_rules_new(&arena, list, n);
    MxTrail trail = {.arena = &arena};
    MxSpec raw, again;
    must(mx_shard_resolve(&arena, &rules, names, &trail, &raw, &err));
    must(mx_shard_resolve(&arena, &rules, names, NULL, &again, &err));
    must(!strcmp(mx_spec_text(&arena, raw), mx_spec_text(&arena, again)));
    Plain want = plain_resolve(list, n, names);
    same(draw->number, &want, raw);
    once_each(draw->number, raw);
    trail_agrees(draw->number, &rules, &trail, raw);
    MxSpec spec = mx_shard_clean(&arena, mesh, raw);
    plain_clean(&want, names.rank, mesh);
    same(draw->number, &want, spec);
    must(mx_shard_check(mesh, spec, NULL, &err));
    return (MxLayout){mesh, spec};
}

START_TEST(random_cases) {
    int64_t n_ranks = 0;
    for (uint64_t number = 0; number < CASES; number++) {
        Draw draw = {.number = number};
        MxSpec names = draw_names(&draw);
        MxShape shape = {.rank = names.rank};
        for (int d = 0; d < shape.rank; d++) shape.dim[d] = 1 + below(&draw, LARGEST_DIM);
        for (int i = 0; i < 2; i++) {
            MxLayout layout = one_resolution(&draw, names);
            boxes_tile(number, layout, shape);
            n_ranks += layout.mesh->n_ranks;
        }
        if (number % RELEASE_EVERY == 0) mx_arena_release(&arena);
    }
    printf("property: %d cases, %lld boxes\n", CASES, (long long)n_ranks);
}
END_TEST

Suite *property_suite(void) {
    Suite *s = suite_create("property");
    suite_add(s, "random_cases", random_cases, 120);
    return s;
}
