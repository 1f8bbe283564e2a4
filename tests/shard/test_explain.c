/* test_explain.c — what is told about a resolution: the whole text for one array, findings and how
 * strict they are, rules with doubtful mesh axes. */
#include "shard_test.h"

START_TEST(one_array) {
    MxRules rules = rules_of("mlp:(fsdp_transpose,tensor) embed:(fsdp,fsdp_transpose) embed:fsdp "
                             "embed:() layers:stage");
    MxMesh mesh = mesh_of("stage=1,fsdp=4,fsdp_transpose=2,tensor=1");
    MxShardArray array = {.path = "decoder/layers/mlp/wi_0/kernel",
                          .shape = MX_SHAPE(4096, 32, 11008),
                          .spec = names_of("embed|layers|mlp")};
    MxText text;
    mx_text_init(&text, &arena);
    ck_assert(mx_shard_explain(&arena, &rules, &mesh, &array, &text, &err));
    ck_assert_str_eq(
        text.data,
        "decoder/layers/mlp/wi_0/kernel\n"
        "  mesh      fsdp=4,fsdp_transpose=2\n"
        "  logical   embed|layers|mlp\n"
        "  dim 0  embed  size 4096\n"
        "    lost  r.yml:2: embed -> (fsdp,fsdp_transpose): mesh axis \"fsdp_transpose\" belongs "
        "to "
        "\"mlp\" (dim 2)\n"
        "    won   r.yml:3: embed -> fsdp\n"
        "    late  r.yml:4: embed -> None: this dim is bound already\n"
        "    => fsdp: 4 parts of 1024\n"
        "  dim 1  layers  size 32\n"
        "    won   r.yml:5: layers -> stage\n"
        "    => None: replicated, its mesh axes have size 1\n"
        "  dim 2  mlp  size 11008\n"
        "    won   r.yml:1: mlp -> (fsdp_transpose,tensor)\n"
        "    => fsdp_transpose: 2 parts of 5504\n"
        "  spec_raw  fsdp|stage|(fsdp_transpose,tensor)\n"
        "  spec      fsdp|None|fsdp_transpose\n"
        "  warning: r.yml:2: axis \"embed\" (dim 0): rule embed -> (fsdp,fsdp_transpose) is passed "
        "over because mesh axis \"fsdp_transpose\" belongs to \"mlp\" (dim 2); embed -> fsdp is "
        "used instead; not sharded over \"fsdp_transpose\"\n");
}
END_TEST

START_TEST(bare_names) {
    MxRules rules = rules_of("a:x");
    MxMesh mesh = mesh_of("x=2,y=3");
    MxText text;
    mx_text_init(&text, &arena);
    MxShardArray names = {.spec = names_of("a|b|None|(y)|*")};
    ck_assert(mx_shard_explain(&arena, &rules, &mesh, &names, &text, &err));
    ck_assert_str_eq(text.data, "  mesh      x=2,y=3\n"
                                "  logical   a|b|None|y|*\n"
                                "  dim 0  a\n"
                                "    won   r.yml:1: a -> x\n"
                                "    => x: 2 parts\n"
                                "  dim 1  b\n"
                                "    no rule names \"b\"\n"
                                "    => None: replicated\n"
                                "  dim 2  None\n"
                                "    not a logical name: passes unchanged\n"
                                "    => None: replicated\n"
                                "  dim 3  y\n"
                                "    not a logical name: passes unchanged\n"
                                "    => y: 3 parts\n"
                                "  dim 4  *\n"
                                "    not a logical name: passes unchanged\n"
                                "    => *: left to the compiler\n"
                                "  spec_raw  x|None|None|y|*\n"
                                "  spec      x|None|None|y|*\n"
                                "  warning: axis \"b\" (dim 1): no rule names it, so it is "
                                "replicated\n");
    names.spec = names_of("a|a");
    ck_failed(mx_shard_explain(&arena, &rules, &mesh, &names, &text, &err),
              "axis \"a\" occurs more than once in a|a");
    names = (MxShardArray){.spec = names_of("a"), .shape = MX_SHAPE(5)};
    mx_text_clear(&text);
    ck_assert(mx_shard_explain(&arena, &rules, &mesh, &names, &text, &err));
    ck_assert_ptr_nonnull(strstr(text.data, "    => x: 2 parts do not divide 5\n"));
}
END_TEST

/* rules, names, mesh -> the one finding */
static const struct {
    const char *rules, *names, *mesh;
    MxFindingKind kind;
    bool is_strict, costs;
    int dim;
} single[] = {
    /* both want fsdp */
    {"embed:fsdp mlp:fsdp", "embed|mlp", "fsdp=2", MX_FIND_CONFLICT, true, true, 1},
    /* the same where fsdp has one device: nothing is lost */
    {"embed:fsdp mlp:fsdp", "embed|mlp", "fsdp=1", MX_FIND_CONFLICT, false, false, 1},
    /* a fallback takes over, what is lost serves the other dim */
    {"mlp:tensor embed:(fsdp,tensor) embed:fsdp", "embed|mlp", "fsdp=2,tensor=2", MX_FIND_FALLBACK,
     false, true, 0},
    /* a fallback takes over, but nobody uses expert now */
    {"mlp:tensor embed:(fsdp,tensor,expert) embed:fsdp", "embed|mlp", "fsdp=2,tensor=2,expert=2",
     MX_FIND_CONFLICT, true, true, 0},
    /* one taken axis of size one costs fsdp */
    {"mlp:tensor embed:(fsdp,tensor)", "embed|mlp", "fsdp=2,tensor=1", MX_FIND_CONFLICT, true, true,
     0},
    /* no rule: of account where a mesh axis is left over, other than for replicas */
    {"embed:fsdp", "embed|mlp", "data=2,fsdp=2", MX_FIND_NO_RULE, false, false, 1},
    {"embed:fsdp", "embed|mlp", "fsdp=2,tensor=2", MX_FIND_NO_RULE, true, true, 1},
};

START_TEST(findings) {
    for (int i = 0; i < MX_COUNT(single); i++) {
        MxRules rules = rules_of(single[i].rules);
        MxMesh mesh = mesh_of(single[i].mesh);
        MxSpec names = names_of(single[i].names), spec;
        MxTrail trail = {.arena = &arena};
        ck_assert(mx_shard_resolve(&arena, &rules, names, &trail, &spec, &err));
        MxFindings found = {0};
        mx_shard_findings(&arena, &rules, names, &trail, &mesh, &found);
        ck_assert_int_eq(found.n, 1);
        const MxFinding *f = &found.items[0];
        ck_assert_msg(f->kind == single[i].kind && f->is_strict == single[i].is_strict &&
                          f->costs == single[i].costs && f->dim == single[i].dim,
                      "%d: %d %d %d %d: %s", i, f->kind, f->is_strict, f->costs, f->dim, f->text);
        bool ok = mx_findings_fail(&found, "w", &err);
        ck_assert(ok == !f->is_strict);
        mx_error_release(&err);
    }
}
END_TEST

START_TEST(strict_message) {
    MxRules rules = rules_of("embed:fsdp mlp:fsdp");
    MxMesh mesh = mesh_of("fsdp=2,tensor=2");
    MxSpec names = names_of("embed|mlp|x"), spec;
    MxTrail trail = {.arena = &arena};
    ck_assert(mx_shard_resolve(&arena, &rules, names, &trail, &spec, &err));
    MxFindings found = {0};
    mx_shard_findings(&arena, &rules, names, &trail, &mesh, &found);
    ck_failed(mx_findings_fail(&found, "decoder/wi", &err),
              "r.yml:2: decoder/wi: axis \"mlp\" (dim 1): rule mlp -> fsdp is passed over because "
              "mesh axis \"fsdp\" belongs to \"embed\" (dim 0); not sharded over \"fsdp\"\n"
              "decoder/wi: axis \"x\" (dim 2): no rule names it, so it is replicated\n"
              "hint: write [name, []] to leave an axis unsharded on purpose");
}
END_TEST

START_TEST(doubtful_rules) {
    MxRules rules = rules_of("a:fsdq b:(fsdp,tensor_transpose) c:'' d:(fsdp,fsdp) e:fsdp f:*");
    MxMesh mesh = mesh_of("fsdp=2,tensor=2");
    MxFindings found = {0};
    mx_rules_findings(&arena, &rules, &mesh, &found);
    ck_assert_int_eq(found.n, 4);
    ck_assert_int_eq(found.items[0].kind, MX_FIND_UNKNOWN_AXIS);
    ck_assert_int_eq(found.items[1].kind, MX_FIND_ABSENT_AXIS);
    ck_assert_int_eq(found.items[2].kind, MX_FIND_EMPTY_AXIS);
    ck_assert_int_eq(found.items[3].kind, MX_FIND_TWICE);
    ck_failed(mx_findings_fail(&found, NULL, &err),
              "r.yml:1: rule a -> fsdq: unrecognized mesh axis \"fsdq\"\n"
              "hint: did you mean \"fsdp\"?\n"
              "r.yml:2: rule b -> (fsdp,tensor_transpose): the mesh has no axis "
              "\"tensor_transpose\"\n"
              "r.yml:3: rule c -> '' has an empty mesh axis: replicated\n"
              "hint: write [] to leave an axis unsharded\n"
              "r.yml:4: rule d -> (fsdp,fsdp) names mesh axis \"fsdp\" more than once");
    ck_assert_int_eq(err.count, 0);
}
END_TEST

Suite *explain_suite(void) {
    Suite *s = suite_create("explain");
    suite_add(s, "one_array", one_array, 4);
    suite_add(s, "bare_names", bare_names, 4);
    suite_add(s, "findings", findings, 4);
    suite_add(s, "strict_message", strict_message, 4);
    suite_add(s, "doubtful_rules", doubtful_rules, 4);
    return s;
}
