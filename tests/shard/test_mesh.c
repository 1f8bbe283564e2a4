/* test_mesh.c — meshes from parallelism keys: what is filled in, what is refused and with which
 * words. */
#include "shard_test.h"

#include <stdlib.h>

enum { MOST_AXES = 4 };

static MxMesh mesh;

/* Sizes for the axes data, stage, fsdp, tensor; the keys stand in c.yml, ici in lines 1.. and dcn
 * in lines 11... */
static bool make(const int64_t *ici, const int64_t *dcn, int64_t n_devices, int64_t n_slices) {
    static const char *const axes[MOST_AXES] = {"data", "stage", "fsdp", "tensor"};
    static const char *const ici_keys[MOST_AXES] = {
        "ici_data_parallelism", "ici_pipeline_parallelism", "ici_fsdp_parallelism",
        "ici_tensor_parallelism"};
    static const char *const dcn_keys[MOST_AXES] = {
        "dcn_data_parallelism", "dcn_pipeline_parallelism", "dcn_fsdp_parallelism",
        "dcn_tensor_parallelism"};
    MxParallelism in[MOST_AXES], between[MOST_AXES];
    for (int i = 0; i < MOST_AXES; i++) {
        in[i] = (MxParallelism){ici[i], ici_keys[i], {.file = "c.yml", .line = 1 + i}};
        between[i] = (MxParallelism){dcn ? dcn[i] : 1, dcn_keys[i], {"c.yml", 11 + i, 0}};
    }
    MxMeshInput input = {.n = MOST_AXES,
                         .axes = axes,
                         .ici = in,
                         .dcn = dcn ? between : NULL,
                         .n_devices = n_devices,
                         .n_slices = n_slices,
                         .where = {"c.yml", 9, 0}};
    return mx_mesh_from_parallelism(&arena, &input, &mesh, &err);
}

#define SIZES(...) ((const int64_t[MOST_AXES]){__VA_ARGS__})

static void ck_mesh(bool ok, const char *text, int64_t n_ranks) {
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    ck_assert_str_eq(mx_mesh_text(&arena, &mesh), text);
    ck_assert_int_eq(mesh.n_ranks, n_ranks);
}

START_TEST(filled) {
    ck_mesh(make(SIZES(1, 1, -1, 1), NULL, 8, 0), "fsdp=8", 8);
    ck_mesh(make(SIZES(1, 1, -1, 2), NULL, 8, 0), "fsdp=4,tensor=2", 8);
    ck_mesh(make(SIZES(2, 1, 4, 1), NULL, 8, 0), "data=2,fsdp=4", 8);
    /* base.yml: dcn_data and ici_fsdp are both -1 */
    ck_mesh(make(SIZES(1, 1, -1, 1), SIZES(-1, 1, 1, 1), 8, 0), "fsdp=8", 8);
    ck_mesh(make(SIZES(1, 1, -1, 1), SIZES(-1, 1, 1, 1), 8, 2), "data=2,fsdp=4", 8);
    /* effective size = ici * dcn */
    ck_mesh(make(SIZES(2, 1, -1, 1), SIZES(2, 1, 1, 1), 16, 0), "data=4,fsdp=4", 16);
    ck_mesh(make(SIZES(1, 1, 4, 1), SIZES(-1, 1, 1, 1), 8, 0), "data=2,fsdp=4", 8);
    ck_mesh(make(SIZES(1, 1, 1, 1), NULL, 1, 0), "one device", 1);
}
END_TEST

START_TEST(planned) {
    ck_mesh(make(SIZES(1, 1, -1, 1), SIZES(-1, 1, 1, 1), 0, 0), "one device", 1);
    ck_mesh(make(SIZES(1, 2, 64, 8), SIZES(4, 1, 1, 1), 0, 0), "data=4,stage=2,fsdp=64,tensor=8",
            4096);
}
END_TEST

START_TEST(refused) {
    ck_failed(make(SIZES(-1, 1, 1, -1), NULL, 8, 0),
              "c.yml:4: ici parallelism has more than one -1: ici_data_parallelism and "
              "ici_tensor_parallelism; at most one axis can take what is left");
    ck_failed(make(SIZES(1, 1, -1, 1), SIZES(-1, -1, 1, 1), 8, 0),
              "c.yml:12: dcn parallelism has more than one -1: dcn_data_parallelism and "
              "dcn_pipeline_parallelism; at most one axis can take what is left");
    ck_failed(make(SIZES(1, 0, -1, 1), NULL, 8, 0),
              "c.yml:2: ici_pipeline_parallelism is 0; wanted a size of at least 1, or -1 for all "
              "that is left");
    ck_failed(make(SIZES(1, 1, -2, 1), NULL, 0, 0),
              "c.yml:3: ici_fsdp_parallelism is -2; wanted a size of at least 1, or -1 for all "
              "that is left");
    ck_failed(make(SIZES(2, 1, 3, 1), NULL, 8, 0),
              "c.yml:3: ici parallelism makes 6 (ici_data_parallelism=2 x ici_fsdp_parallelism=3), "
              "but there are 8 devices per slice");
    ck_failed(make(SIZES(1, 1, 1, 1), NULL, 8, 0),
              "c.yml:9: ici parallelism makes 1 (all sizes 1), but there are 8 devices per slice");
    ck_failed(make(SIZES(1, 1, -1, 3), NULL, 8, 0),
              "c.yml:3: ici_fsdp_parallelism=-1 cannot be filled in: 8 devices per slice do not "
              "divide by 3 (ici_tensor_parallelism=3)");
    ck_failed(make(SIZES(1, 1, -1, 1), SIZES(3, 1, 1, 1), 8, 0),
              "c.yml:11: 8 devices do not divide into 3 slices (dcn_data_parallelism=3)");
    ck_failed(make(SIZES(1, 1, -1, 1), SIZES(4, 1, 1, 1), 8, 2),
              "c.yml:11: dcn parallelism makes 4 (dcn_data_parallelism=4), but there are 2 slices");
    ck_failed(make(SIZES(1, 1, 1, 1), NULL, -1, 0),
              "c.yml:9: num_devices is -1; wanted at least 1");
    ck_failed(make(SIZES(INT64_MAX, 1, 2, 1), NULL, 0, 0),
              "c.yml:9: mesh_axes: the mesh has more than 9223372036854775807 devices");
    ck_failed(make(SIZES(INT64_MAX, 1, 1, 1), SIZES(2, 1, 1, 1), 0, 0),
              "c.yml:9: mesh_axes: the mesh has more than 9223372036854775807 devices");
}
END_TEST

START_TEST(explicit_sizes) {
    static const char *const twice[] = {"x", "y", "x"};
    ck_failed(mx_mesh_new(&arena, twice, SIZES(1, 1, 1), 3, &mesh, &err),
              "mesh_axes: \"x\" occurs more than once");
    ck_failed(mx_mesh_new(&arena, twice, SIZES(0), 1, &mesh, &err),
              "mesh axis \"x\" has size 0; wanted at least 1");
    mesh = mesh_of("data=2,fsdp=3,tensor=4");
    ck_assert_int_eq(mx_mesh_find(&mesh, "tensor"), 2);
    ck_assert_int_eq(mx_mesh_find(&mesh, "stage"), -1);
    ck_assert_int_eq(mx_mesh_size(&mesh, "stage"), 1);
    /* rank 17 = (1 * 3 + 1) * 4 + 1 */
    ck_assert_int_eq(mx_mesh_coord(&mesh, 17, 0), 1);
    ck_assert_int_eq(mx_mesh_coord(&mesh, 17, 1), 1);
    ck_assert_int_eq(mx_mesh_coord(&mesh, 17, 2), 1);
    ck_assert_int_eq(mx_mesh_coord(&mesh, 23, 1), 2);
    ck_assert_str_eq(mx_mesh_default_axes[11], "autoregressive");
}
END_TEST

Suite *mesh_suite(void) {
    Suite *s = suite_create("mesh");
    suite_add(s, "filled", filled, 4);
    suite_add(s, "planned", planned, 4);
    suite_add(s, "refused", refused, 4);
    suite_add(s, "explicit_sizes", explicit_sizes, 4);
    return s;
}
