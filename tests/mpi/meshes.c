/* meshes.c — every mesh of as many ranks as were started: all ways to write their number as a
 * product of sizes of the axes that divide arrays. Of those with many axes the short form of the
 * tests takes some; MX_LONG takes all. */
#include "mpi_test.h"

#include <stdlib.h>

enum { MOST_MESHES = 1024 };

/* Axes that mean more than dividing arrays. */
static const char *const left_out[] = {"diloco", "stage"};
static const char *const usual[] = {"data", "fsdp", "tensor", "context"};

static bool is_in(const char *axis, const char *const *axes, int n) {
    bool found = false;
    for (int i = 0; i < n; i++) found = found || !strcmp(axis, axes[i]);
    return found;
}

bool mesh_is_within(const RankMesh *mesh, const char *const *axes, int n) {
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++)
        if (mesh->size[i] > 1 && !is_in(mx_mesh_default_axes[i], axes, n)) return false;
    return true;
}

/* One axis, up to four ranks any of the usual ones, and some of the others: the more ranks, the
 * more there are. */
static bool is_chosen(const RankMesh *mesh, int number) {
    enum { FEW = 4 };
    int n_axes = 0, n_ranks = mx_comm_size(comm), some = 2 * n_ranks - 1;
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++) n_axes += mesh->size[i] > 1;
    return getenv("MX_LONG") || n_axes < 2 || number % some == 0 ||
           (n_ranks <= FEW && mesh_is_within(mesh, usual, MX_COUNT(usual)));
}

typedef struct Meshes {
    RankMesh item[MOST_MESHES];
    int n, n_all;
    bool have_stages;
} Meshes;

static bool has_stages(const RankMesh *mesh) {
    bool has = false;
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++)
        has = has || (mesh->size[i] > 1 && !strcmp(mx_mesh_default_axes[i], "stage"));
    return has;
}

/* Of meshes with stages those with the usual axes beside them. */
static bool is_chosen_of_stages(const RankMesh *mesh) {
    static const char *const beside[] = {"stage", "data", "fsdp", "tensor", "context"};
    return has_stages(mesh) &&
           (getenv("MX_LONG") || mesh_is_within(mesh, beside, MX_COUNT(beside)));
}

/* Gives the axes from `axis` on all sizes whose product is `left`. */
static void add_meshes(Meshes *to, RankMesh *mesh, int axis, int left) {
    if (axis == MX_MESH_DEFAULT_COUNT) {
        if (left > 1) return;
        if (to->have_stages ? !is_chosen_of_stages(mesh) : !is_chosen(mesh, to->n_all++)) return;
        MX_ASSERT(to->n < MOST_MESHES);
        to->item[to->n++] = *mesh;
        return;
    }
    bool can_cut = !is_in(mx_mesh_default_axes[axis], left_out, MX_COUNT(left_out)) ||
                   (to->have_stages && !strcmp(mx_mesh_default_axes[axis], "stage"));
    for (int size = 1; size <= (can_cut ? left : 1); size++) {
        if (left % size) continue;
        mesh->size[axis] = size;
        add_meshes(to, mesh, axis + 1, left / size);
    }
}

const RankMesh *rank_meshes(int *n) {
    static Meshes meshes;
    if (!meshes.n) add_meshes(&meshes, &(RankMesh){{0}}, 0, mx_comm_size(comm));
    *n = meshes.n;
    return meshes.item;
}

const RankMesh *stage_meshes(int *n) {
    static Meshes meshes = {.have_stages = true};
    if (!meshes.n) add_meshes(&meshes, &(RankMesh){{0}}, 0, mx_comm_size(comm));
    *n = meshes.n;
    return meshes.item;
}
