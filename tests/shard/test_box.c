/* test_box.c — shards by hand: boxes, uneven dims, shapes and their errors,
 * the sufficiency check's message. Random ones are in property.c. */
#include "shard_test.h"

static MxMesh mesh;

static void ck_box(const char *spec, const char *shape, int64_t rank, const char *want) {
    MxBox box = mx_shard_box((MxLayout){&mesh, spec_of(spec)}, shape_of(shape), rank);
    MxText text;
    mx_text_init(&text, &arena);
    for (int d = 0; d < box.rank; d++)
        mx_text_add(&text, "%s%lld+%lld", d ? " " : "", (long long)box.start[d],
                    (long long)box.count[d]);
    ck_assert_str_eq(text.data, want);
}

START_TEST(boxes) {
    mesh = mesh_of("data=2,fsdp=2,tensor=2");
    ck_box("fsdp|tensor", "8x6", 3, "4+4 3+3"); /* data 0, fsdp 1, tensor 1 */
    ck_box("fsdp|tensor", "8x6", 6, "4+4 0+3"); /* data 1, fsdp 1, tensor 0 */
    ck_box("(fsdp,tensor)", "8x6", 2, "4+2 0+6");
    ck_box("(tensor,fsdp)", "8x6", 2, "2+2 0+6"); /* the first is the most significant */
    ck_box("<empty>", "8x6", 7, "0+8 0+6");
    ck_box("<empty>", "scalar", 7, "");
    /* uneven: sizes differ by at most one, larger first; no element is left over */
    ck_box("(data,fsdp)", "6", 0, "0+2");
    ck_box("(data,fsdp)", "6", 3, "2+2");
    ck_box("(data,fsdp)", "6", 5, "4+1");
    ck_box("(data,fsdp)", "6", 7, "5+1");
    ck_box("(data,fsdp)", "2", 5, "2+0");
}
END_TEST

START_TEST(indivisible) {
    mesh = mesh_of("fsdp=2,tensor=3");
    MxRules rules = rules_of("embed:fsdp mlp:(fsdp,tensor)");
    MxSpec raw;
    ck_assert(mx_shard_resolve(&arena, &rules, names_of("layers|mlp"), NULL, &raw, &err));
    MxShardArray a = {.path = "decoder/wi", .shape = MX_SHAPE(4, 4096), .spec = raw};
    MxShape shard;
    ck_failed(mx_shard_shape(&mesh, &a, &shard, &err),
              "r.yml:2: rule mlp -> (fsdp,tensor): mesh axis \"fsdp\" (size 2) x \"tensor\" (size "
              "3) does not divide dim 1 = 4096 of decoder/wi\n"
              "hint: use a size that divides 4096, or leave \"mlp\" unsharded: [mlp, []]");
    ck_assert_str_eq(text_of(mx_shard_adjust(&arena, &mesh, &a)), "None|fsdp");
    MxShardArray b = {.path = "w", .shape = MX_SHAPE(4), .spec = spec_of("None|fsdp")};
    ck_failed(mx_shard_shape(&mesh, &b, &shard, &err),
              "w: a spec of 2 entries does not fit an array of rank 1");
}
END_TEST

static MxShardArray param(const char *path, const char *shape, const char *spec) {
    return (MxShardArray){.path = path, .shape = shape_of(shape), .spec = spec_of(spec)};
}

/* MaxText's TestAssertParamsSufficientlySharded, and the message. */
START_TEST(sufficient) {
    mesh = mesh_of("data=2,fsdp=2,tensor=2");
    MxTolerance tolerance = {.fraction = 0.1, .where = {"c.yml", 3, 0}};
    MxShardReport report;
    MxShardArray good = param("a", "8x8", "fsdp|tensor");
    ck_assert(mx_shard_sufficient(&mesh, &good, 1, tolerance, &report, &err));
    MxShardArray none = param("a", "8x8", "<empty>");
    ck_failed(mx_shard_sufficient(&mesh, &none, 1, tolerance, &report, &err),
              "c.yml:3: Unsharded parameter percentage (100.00%)exceeds tolerance (10.00%).\n"
              "The following large tensors are replicated (unsharded) but could be sharded on at "
              "least one of the available axes:\n"
              " - Name: a(Size: 64, Shape: [8, 8], Spec: P())  is unsharded on axis: ['fsdp', "
              "'tensor'] could be sharded on: ['fsdp', 'tensor']");
    MxShardArray some[] = {good, good, param("half", "8", "fsdp"), param("data", "16", "data"),
                           good};
    ck_failed(mx_shard_sufficient(&mesh, some, 5, tolerance, &report, &err),
              "c.yml:3: Unsharded parameter percentage (11.11%)exceeds tolerance (10.00%).\n"
              "The following large tensors are replicated (unsharded) but could be sharded on at "
              "least one of the available axes:\n"
              " - Name: data(Size: 16, Shape: [16], Spec: P('data',))  is unsharded on axis: "
              "['fsdp', 'tensor'] could be sharded on: ['fsdp', 'tensor']\n"
              " - Name: half(Size: 8, Shape: [8], Spec: P('fsdp',))  is unsharded on axis: "
              "['tensor'] could be sharded on: ['fsdp', 'tensor']");
    ck_assert_int_eq(report.unsharded_elements, 24);
    ck_assert_int_eq(report.n_unsharded, 2);
    ck_failed(mx_shard_sufficient(&mesh, some, 0, tolerance, &report, &err),
              "c.yml:3: there are no parameters to shard");
    mesh = mesh_of("data=8,fsdp=1"); /* data does not count */
    ck_assert(mx_shard_sufficient(&mesh, &none, 1, tolerance, &report, &err));
}
END_TEST

Suite *box_suite(void) {
    Suite *s = suite_create("box");
    suite_add(s, "boxes", boxes, 4);
    suite_add(s, "indivisible", indivisible, 4);
    suite_add(s, "sufficient", sufficient, 4);
    return s;
}
