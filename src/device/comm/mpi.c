/* mpi.c — ranks by MPI; the only file that knows it. MPI is initialised only in a process that a
 * launcher started, so a run of one rank never pays for it nor depends on it. All calls block and
 * are made by one thread, in the order of the program, which is the same on every rank.
 *
 * A thread watches how long a rank has been waiting: a rank that died takes the job with it (the
 * launcher sees to that), one that hangs would not. */
#include <mx/device.h>

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct MxCommGroup {
    MxComm *owner;
    uint64_t id;
    const char *axes;
    MPI_Comm mpi;
    int size;
    MxCommGroup *next;
};

struct MxComm {
    MxArena *arena;
    int rank, size;
    MxCommGroup *groups;
    MxCommCount count;
    double watch_s;
    pthread_t watchdog;
    _Atomic bool is_watched;
    _Atomic double waits_since; /* 0 = it does not */
    _Atomic(const char *) waits_for, waits_in;
};

/* ---- start and end */

/* Set by Open MPI's mpirun, by launchers that speak PMIx or PMI (srun), and by MPICH's. */
static bool is_launched(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                        "PMI_SIZE"};
    for (int i = 0; i < MX_COUNT(names); i++)
        if (getenv(names[i])) return true;
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return tasks && strcmp(tasks, "1") != 0;
}

static void close_comm(void *data) {
    MxComm *comm = data;
    if (atomic_exchange(&comm->is_watched, false)) pthread_join(comm->watchdog, NULL);
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized) return;
    while (comm->groups) {
        MPI_Comm_free(&comm->groups->mpi);
        comm->groups = comm->groups->next;
    }
    MPI_Finalize();
}

bool mx_comm_open(MxArena *arena, MxComm **out, MxError *err) {
    MxComm *comm = mx_new(arena, MxComm);
    *comm = (MxComm){.arena = arena, .size = 1};
    *out = comm;
    if (!is_launched()) return true;
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "MPI could not be initialised");
    if (provided < MPI_THREAD_FUNNELED)
        return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "this MPI allows no threads beside it");
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->size);
    mx_arena_on_release(arena, close_comm, comm);
    return true;
}

int mx_comm_rank(const MxComm *comm) {
    return comm->rank;
}

int mx_comm_size(const MxComm *comm) {
    return comm->size;
}

MxCommCount mx_comm_count(const MxComm *comm) {
    return comm->count;
}

void mx_comm_abort(MxComm *comm, MxExit exit) {
    fflush(NULL);
    if (comm->size > 1) MPI_Abort(MPI_COMM_WORLD, (int)exit);
    _exit((int)exit);
}

/* ---- waiting */

static void *watch(void *data) {
    MxComm *comm = data;
    const struct timespec often = {.tv_nsec = 100000000};
    while (atomic_load(&comm->is_watched)) {
        nanosleep(&often, NULL);
        double since = atomic_load(&comm->waits_since);
        if (since <= 0 || mx_clock_s() - since < comm->watch_s) continue;
        fprintf(stderr,
                "rank %d has waited %.0f s for the other ranks in %s over %s: ending the run; a "
                "rank that does not say so is the one that hangs\n",
                comm->rank, mx_clock_s() - since, atomic_load(&comm->waits_in),
                atomic_load(&comm->waits_for));
        _exit(MX_EXIT_IO);
    }
    return NULL;
}

void mx_comm_watch(MxComm *comm, double seconds) {
    MX_ASSERT(!atomic_load(&comm->is_watched));
    if (comm->size == 1 || seconds <= 0) return;
    comm->watch_s = seconds;
    atomic_store(&comm->is_watched, true);
    if (pthread_create(&comm->watchdog, NULL, watch, comm)) MX_BUG("no thread for the watchdog");
}

static void begin_wait(MxComm *comm, const char *what, const char *axes) {
    atomic_store(&comm->waits_in, what);
    atomic_store(&comm->waits_for, axes);
    atomic_store(&comm->waits_since, mx_clock_s());
}

static void end_wait(MxComm *comm) {
    atomic_store(&comm->waits_since, 0);
}

/* ---- exchanges of groups */

const MxCommGroup *mx_comm_group(MxComm *comm, const MxGroup *group) {
    if (group->size == 1) return NULL;
    MX_ASSERT(comm && comm->size > 1);
    for (MxCommGroup *g = comm->groups; g; g = g->next)
        if (g->id == group->id) return g;
    MxCommGroup *g = mx_new(comm->arena, MxCommGroup);
    *g = (MxCommGroup){.owner = comm,
                       .id = group->id,
                       .axes = mx_arena_strdup(comm->arena, group->axes),
                       .next = comm->groups};
    begin_wait(comm, "making a group", group->axes);
    MPI_Comm_split(MPI_COMM_WORLD, group->first, group->index, &g->mpi);
    end_wait(comm);
    MPI_Comm_size(g->mpi, &g->size);
    MX_ASSERT(g->size == group->size);
    return comm->groups = g;
}

/* MPI counts in int: blocks are counted in units of 4 bytes where they can be. */
static int units(size_t bytes, MPI_Datatype *type) {
    *type = bytes % sizeof(float) ? MPI_BYTE : MPI_FLOAT;
    size_t n = bytes % sizeof(float) ? bytes : bytes / sizeof(float);
    MX_ASSERT(n <= INT32_MAX);
    return (int)n;
}

static void count_sent(const MxCommGroup *group, size_t bytes) {
    group->owner->count.calls++;
    group->owner->count.bytes += (uint64_t)(group->size - 1) * bytes;
}

void mx_comm_all_gather(const MxCommGroup *group, const char *what, const void *send, void *recv,
                        size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type);
    begin_wait(group->owner, what, group->axes);
    MPI_Allgather(send, n, type, recv, n, type, group->mpi);
    end_wait(group->owner);
    count_sent(group, bytes);
}

void mx_comm_all_to_all(const MxCommGroup *group, const char *what, const void *send, void *recv,
                        size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type);
    begin_wait(group->owner, what, group->axes);
    MPI_Alltoall(send, n, type, recv, n, type, group->mpi);
    end_wait(group->owner);
    count_sent(group, bytes);
}

/* ---- exchanges of all ranks */

int64_t mx_comm_max(MxComm *comm, int64_t x) {
    int64_t most = x;
    if (comm->size == 1) return x;
    begin_wait(comm, "an agreement", "all ranks");
    MPI_Allreduce(&x, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    end_wait(comm);
    return most;
}

double mx_comm_sum(MxComm *comm, double x) {
    if (comm->size == 1) return x;
    MxArena arena = {.name = "sum"};
    double *all = mx_new_n(&arena, double, comm->size), sum = 0;
    begin_wait(comm, "a sum", "all ranks");
    MPI_Allgather(&x, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    end_wait(comm);
    for (int i = 0; i < comm->size; i++) sum += all[i];
    mx_arena_release(&arena);
    return sum;
}

enum { CHUNK_BYTES = 1 << 30 }; /* of one message */

void mx_comm_broadcast(MxComm *comm, void *data, size_t bytes) {
    if (comm->size == 1) return;
    begin_wait(comm, "a broadcast", "all ranks");
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        MPI_Bcast((char *)data + at, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
    }
    end_wait(comm);
}

static void move(MxComm *comm, char *data, int64_t bytes, int peer) {
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        if (comm->rank == 0)
            MPI_Recv(data + at, (int)n, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(data + at, (int)n, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    }
}

void mx_comm_gather(MxComm *comm, const void *send, void *recv, const int64_t *counts) {
    begin_wait(comm, "a gather", "all ranks");
    if (comm->rank) move(comm, (char *)send, counts[comm->rank], 0);
    char *to = recv;
    for (int peer = 0; comm->rank == 0 && peer < comm->size; to += counts[peer++])
        if (peer)
            move(comm, to, counts[peer], peer);
        else
            memcpy(to, send, (size_t)counts[0]);
    end_wait(comm);
}
