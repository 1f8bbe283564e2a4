/* test_resolve.c — resolution by hand: the examples of flax and of MaxText's own tests
 * (tests/unit/sharding_nnx_test.py), merging, stacked parameters, error messages, long lists. */
#include "shard_test.h"

#include <time.h>

/* rules, names, spec; in the notation of rules_of and names_of */
static const struct {
    const char *rules, *names, *spec;
} examples[] = {
    /* flax's docstring */
    {"batch:X features:X heads:Y batch:Z", "batch|length|heads|features", "X|None|Y|None"},
    {"batch:X features:X heads:Y batch:Z", "features|batch", "None|X"},
    /* first match; one mesh axis goes to one dim; fallback */
    {"embed:fsdp embed:stage", "embed", "fsdp"},
    {"embed:fsdp mlp:fsdp", "embed|mlp", "fsdp|None"},
    {"embed:fsdp mlp:fsdp", "mlp|embed", "None|fsdp"},
    {"embed:fsdp mlp:fsdp mlp:stage", "embed|mlp", "fsdp|stage"},
    /* an empty value binds and ends the fallbacks */
    {"embed:() embed:fsdp", "embed", "None"},
    {"embed:None embed:fsdp mlp:fsdp", "embed|mlp", "None|fsdp"},
    /* part of a tuple taken is all of it refused; no second pass */
    {"a:(x,y) b:(y,z) b:z", "a|b", "(x,y)|z"},
    {"a:(x,y) b:(y,z)", "a|b", "(x,y)|None"},
    {"b:y a:x b:x a:y", "a|b", "x|y"},
    {"a:(x)", "a", "x"},
    /* unknown names, nulls, no rules */
    {"a:x", "b|None|a|None", "None|None|x|None"},
    {"", "a|b", "None|None"},
    {"a:x", "<empty>", "<empty>"},
    {"a:x", "<none>", "<none>"},
    /* '' binds as replicated but counts as taken */
    {"a:'' b:'' b:x", "a|b", "None|x"},
    /* what is no name passes and blocks */
    {"a:x a:y", "a|(x)", "y|x"},
    {"a:* b:* b:x", "a|b", "*|*"},
};

START_TEST(by_hand) {
    for (int i = 0; i < MX_COUNT(examples); i++) {
        MxRules rules = rules_of(examples[i].rules);
        MxSpec spec;
        ck_assert(mx_shard_resolve(&arena, &rules, names_of(examples[i].names), NULL, &spec, &err));
        ck_assert_msg(!strcmp(text_of(spec), examples[i].spec), "%s on %s: %s, wanted %s",
                      examples[i].rules, examples[i].names, text_of(spec), examples[i].spec);
    }
}
END_TEST

START_TEST(trail_tells_the_same) {
    MxRules rules = rules_of("embed:(fsdp,expert) mlp:tensor embed:fsdp exp:expert embed:x");
    MxTrail trail = {.arena = &arena};
    MxSpec spec;
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("exp|embed|(fsdp)"), &trail, &spec, &err));
    ck_assert_str_eq(text_of(spec), "expert|x|fsdp");
    ck_assert_int_eq(trail.n, 4);
    ck_assert_int_eq(trail.steps[0].verdict, MX_RULE_BLOCKED);
    ck_assert_str_eq(trail.steps[0].mesh_axis, "fsdp");
    ck_assert_int_eq(trail.steps[0].holder, 2);
    ck_assert_int_eq(trail.steps[1].rule, 2);
    ck_assert_int_eq(trail.steps[1].verdict, MX_RULE_BLOCKED);
    ck_assert_int_eq(trail.steps[2].verdict, MX_RULE_TAKEN);
    ck_assert_int_eq(trail.steps[3].dim, 1);
    ck_assert_int_eq(trail.steps[3].verdict, MX_RULE_TAKEN);
    ck_assert_ptr_eq(spec.dim[1].rule, &rules.rule[4]);
}
END_TEST

START_TEST(repeated_names) {
    MxRules rules = rules_of("e:x");
    MxSpec spec;
    ck_failed(mx_shard_resolve(&arena, &rules, names_of("e|f|e"), NULL, &spec, &err),
              "axis \"e\" occurs more than once in e|f|e");
    ck_failed(mx_shard_resolve(&arena, &rules, names_of("b|a|a|b|b"), NULL, &spec, &err),
              "axis \"b\", \"a\" occurs more than once in b|a|a|b|b");
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("None|None|*|*"), NULL, &spec, &err));
}
END_TEST

START_TEST(usable_on_a_mesh) {
    MxMesh mesh = mesh_of("fsdp=2,tensor=2");
    MxRules rules = rules_of("embed:fsdq mlp:(tensor,tensor)");
    MxSpec spec;
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("embed"), NULL, &spec, &err));
    ck_failed(mx_shard_check(&mesh, spec, "decoder/wi", &err),
              "r.yml:1: decoder/wi: dim 0: the mesh has no axis \"fsdq\"\n"
              "hint: did you mean \"fsdp\"?");
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("None|mlp"), NULL, &spec, &err));
    ck_failed(mx_shard_check(&mesh, spec, NULL, &err),
              "r.yml:2: mesh axis \"tensor\" is used more than once by dim 1");
    ck_failed(mx_shard_check(&mesh, spec_of("fsdp|(tensor,fsdp)"), NULL, &err),
              "mesh axis \"fsdp\" is used more than once: by dim 0 and dim 1");
    ck_failed(mx_shard_check(&mesh, spec_of("fsdq|(tensor,tensor)"), NULL, &err), /* jax's order */
              "mesh axis \"tensor\" is used more than once by dim 1");
    ck_assert(mx_shard_check(&mesh, spec_of("*|fsdp|None"), NULL, &err));
}
END_TEST

/* names, partition, scan axis, local rules, rules, mesh -> names with the scan axis, spec */
static const struct {
    const char *names, *partition;
    int at;
    const char *local, *rules, *mesh, *logical, *spec;
} variables[] = {
    {"None|fsdp", "layers", 1, NULL, "layers:stage fsdp:fsdp", "stage=2,fsdp=2", "None|layers|fsdp",
     "None|stage|fsdp"},
    {"layers|None|fsdp", "layers", 0, NULL, "layers:stage fsdp:fsdp", "stage=2,fsdp=2",
     "layers|None|fsdp", "stage|None|fsdp"},
    {"<empty>", "layers", 1, NULL, "layers:stage", "stage=2", "<empty>", "<empty>"},
    {"fsdp", "layers", 0, NULL, "layers:stage fsdp:fsdp", "stage=2,fsdp=2", "layers|fsdp",
     "stage|fsdp"},
    /* past the end appends; negative counts from the end */
    {"norm", "layers", 1, NULL, "layers:stage norm:tensor", "stage=2,tensor=2", "norm|layers",
     "tensor|stage"},
    {"norm", "layers", 7, NULL, "layers:stage", "stage=2", "norm|layers", "None|stage"},
    {"a|b", "layers", -1, NULL, "layers:stage", "stage=2", "a|layers|b", "None|stage|None"},
    {"a|b", "layers", -9, NULL, "layers:stage", "stage=2", "layers|a|b", "stage|None|None"},
    /* local rules come before the run's, and do without them */
    {"embed", NULL, 0, "embed:stage", "embed:fsdp", "stage=2,fsdp=2", "embed", "stage"},
    {"embed", NULL, 0, "embed:fsdp", "", "stage=2,fsdp=2", "embed", "fsdp"},
    /* size one goes, entries stay; without rules names are mesh axes */
    {"embed|mlp", NULL, 0, NULL, "embed:fsdp mlp:tensor", "fsdp=1,tensor=1", "embed|mlp",
     "None|None"},
    {"fsdp", NULL, 0, NULL, "", "fsdp=1,tensor=1", "fsdp", "None"},
    {"fsdp|tensor", NULL, 0, NULL, "", "fsdp=2,tensor=1", "fsdp|tensor", "fsdp|None"},
};

START_TEST(stacked) {
    for (int i = 0; i < MX_COUNT(variables); i++) {
        MxRules rules = rules_of(variables[i].rules), local = {0};
        if (variables[i].local) local = rules_of(variables[i].local);
        MxMesh mesh = mesh_of(variables[i].mesh);
        MxVariable v = {.names = names_of(variables[i].names),
                        .partition = variables[i].partition,
                        .scan_axis = variables[i].at,
                        .local = variables[i].local ? &local : NULL};
        MxResolved r;
        ck_assert(mx_shard_resolve_variable(&arena, &v, &rules, &mesh, &r, &err));
        ck_assert_msg(!strcmp(text_of(r.names), variables[i].logical), "%d: %s", i,
                      text_of(r.names));
        ck_assert_msg(!strcmp(text_of(r.spec), variables[i].spec), "%d: %s", i, text_of(r.spec));
    }
}
END_TEST

START_TEST(printing) {
    ck_assert_str_eq(mx_spec_python(&arena, spec_of("(a,b)|None|*|c")),
                     "P(('a', 'b'), None, UNCONSTRAINED, 'c')");
    ck_assert_str_eq(mx_spec_python(&arena, spec_of("fsdp")), "P('fsdp',)");
    ck_assert_str_eq(mx_spec_python(&arena, spec_of("<empty>")), "P()");
    const char *const axes[] = {"embed", NULL, "mlp"};
    ck_assert_str_eq(text_of(mx_spec_names(&arena, axes, 3)), "embed|None|mlp");
}
END_TEST

/* 10^5 rules of many names, and 10^5 of one name of which only the last can be taken. */
/* Processor time: other programs do not count. */
static double cpu_s(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

START_TEST(long_lists) {
    enum { LONG = 100000, TIMES = 1000 };
    MxRule *list = mx_new_n(&arena, MxRule, LONG);
    for (int i = 0; i < LONG; i++)
        list[i] = rule_of(mx_arena_printf(&arena, "axis%d", i % 5000), i % 2 ? "(x,y)" : "z");
    double start = cpu_s();
    MxRules rules = mx_rules_new(&arena, list, LONG);
    MxSpec names = names_of("axis17|axis4999|axis2|other"), spec;
    for (int i = 0; i < TIMES; i++)
        ck_assert(mx_shard_resolve(&arena, &rules, names, NULL, &spec, &err));
    ck_assert_str_eq(text_of(spec), "(x,y)|None|z|None");
    double many_s = cpu_s() - start;
    for (int i = 0; i < LONG; i++) list[i] = rule_of("a", i < LONG - 1 ? "(x,y)" : "z");
    list[0].axis = "first";
    start = cpu_s();
    rules = mx_rules_new(&arena, list, LONG);
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("a|first"), NULL, &spec, &err));
    ck_assert_str_eq(text_of(spec), "z|(x,y)");
    double same_s = cpu_s() - start;
    ck_assert_msg(many_s < 1 && same_s < 1, "%.3f s and %.3f s", many_s, same_s);
}
END_TEST

Suite *resolve_suite(void) {
    Suite *s = suite_create("resolve");
    suite_add(s, "by_hand", by_hand, 4);
    suite_add(s, "trail", trail_tells_the_same, 4);
    suite_add(s, "repeated_names", repeated_names, 4);
    suite_add(s, "usable", usable_on_a_mesh, 4);
    suite_add(s, "stacked", stacked, 4);
    suite_add(s, "printing", printing, 4);
    suite_add(s, "long_lists", long_lists, 30);
    return s;
}
