/* mpi_test.h — suites that run on several ranks at once. A test first does all that ranks do
 * together and compares afterwards, so that a failure on one rank leaves the others in step. */
#ifndef MPI_TEST_H
#define MPI_TEST_H

#include "common/suite.h"

#include <check.h>
#include <mx/run.h>
#include <mx/shard.h>
#include <mx/program.h>

Suite *exchanges_suite(void);
Suite *few_suite(void);
Suite *slices_suite(void);
Suite *ops_suite(void);
Suite *parts_suite(void);
Suite *train_suite(void);
Suite *checkpoints_suite(void);
Suite *diloco_suite(void);
Suite *trajectories_suite(void);

extern MxComm *comm;

/* Meshes of as many ranks as there are: sizes of the axes that are not one. */
typedef struct MeshCase {
    const char *axes[4];
    int64_t sizes[4];
    int n;
} MeshCase;

extern const MeshCase mesh_cases[];
extern const int n_mesh_cases;

/* mesh_of — the case's mesh; false if it has another number of ranks. */
bool mesh_of(MxArena *arena, const MeshCase *c, MxMesh *out);

/* A mesh of as many ranks as there are, by the sizes of mx_mesh_default_axes. */
typedef struct RankMesh {
    int64_t size[MX_MESH_DEFAULT_COUNT];
} RankMesh;

/* rank_meshes — all without stages, or what the short form takes; stage_meshes — those with stages,
 * or what it takes of them. mesh_is_within — whether it cuts along
 * none but these axes. */
const RankMesh *rank_meshes(int *n);
const RankMesh *stage_meshes(int *n);
bool mesh_is_within(const RankMesh *mesh, const char *const *axes, int n);

#endif
