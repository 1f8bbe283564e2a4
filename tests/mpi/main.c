/* main.c — runs the suites on the ranks that a launcher started. */
#include "mpi_test.h"

#include <stdio.h>
#include <stdlib.h>

MxComm *comm;

/* Ops' cases have sizes of powers of two: of 3 and 6 ranks there is no mesh. */
// clang-format off
const MeshCase mesh_cases[] = {
    {{"data"}, {2}, 1},
    {{"fsdp"}, {2}, 1},
    {{"tensor"}, {2}, 1},
    {{"data", "fsdp"}, {2, 2}, 2},
    {{"fsdp", "tensor"}, {2, 2}, 2},
    {{"tensor"}, {4}, 1},
    {{"data", "fsdp", "tensor"}, {2, 2, 2}, 3},
    {{"fsdp", "tensor"}, {2, 4}, 2},
    {{"context"}, {8}, 1},
};
// clang-format on
const int n_mesh_cases = MX_COUNT(mesh_cases);

bool mesh_of(MxArena *arena, const MeshCase *c, MxMesh *out) {
    MxError err = {0};
    ck_assert(mx_mesh_new(arena, c->axes, c->sizes, c->n, out, &err));
    return out->n_ranks == mx_comm_size(comm);
}

int main(void) {
    MxArena arena = {.name = "ranks"};
    MxError err = {0};
    if (!mx_comm_open(&arena, &comm, &err)) {
        fprintf(stderr, "%s\n", err.text.data);
        return EXIT_FAILURE;
    }
    mx_comm_watch(comm, 600); /* a hang, and no busy machine */
    SRunner *runner = srunner_create(ops_suite());
    srunner_add_suite(runner, exchanges_suite());
    srunner_add_suite(runner, few_suite());
    srunner_add_suite(runner, slices_suite());
    srunner_add_suite(runner, train_suite());
    srunner_add_suite(runner, parts_suite());
    srunner_add_suite(runner, diloco_suite());
    srunner_add_suite(runner, trajectories_suite());
    /* One rank's checkpoints have tests of their own. */
    if (mx_comm_size(comm) > 1) srunner_add_suite(runner, checkpoints_suite());
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    if (failed || mx_comm_rank(comm) == 0) {
        printf("rank %d of %d\n", mx_comm_rank(comm), mx_comm_size(comm));
        srunner_print(runner, CK_NORMAL);
    }
    srunner_free(runner);
    mx_arena_release(&arena);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
