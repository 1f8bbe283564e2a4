/* mpi.c — ranks with MPI; the only file that uses it. MPI is initialised only in a process that a
 * launcher started, so a run with one rank neither pays for it nor depends on it. All calls are
 * made by one thread, in the order of the program, which is the same on every rank. Exchanges of
 * ops are started and finished separately; the library makes progress in any call, so while some
 * are in progress it is called between kernels. A rank that waits informs the watchdog. */
#include <mx/device.h>

#include "watchdog.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct MxExchange {
    MxComm *owner;
    MxGroup group; /* kept */
    int tag;
    bool sends; /* between peers: this rank does */
    const char *what;
    MPI_Request *requests; /* [n_requests] to and from each of the others */
    int n_requests;
    MxExchange *next;  /* under way */
    MxExchange *known; /* between peers: the one that was made before */
};

struct MxComm {
    MxArena *arena;
    int rank, size, most_tag;
    bool shares_cores; /* there are more ranks on this machine than cores */
    MxExchange *peers; /* all between two, the newest first */
    MxExchange *under_way;
    MxCommCount count;
    double wait_began_s;
    Watchdog watchdog;
    MPI_Win window; /* where the signs of this machine's ranks are */
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
    watchdog_stop(&comm->watchdog);
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized) return;
    if (watchdog_hide(&comm->watchdog)) MPI_Win_free(&comm->window);
    MPI_Finalize();
}

static int ranks_here(void) {
    MPI_Comm machine;
    int n;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &n);
    MPI_Comm_free(&machine);
    return n;
}

bool mx_comm_open(MxArena *arena, MxComm **out, MxError *err) {
    MxComm *comm = mx_new(arena, MxComm);
    *comm = (MxComm){.arena = arena, .size = 1};
    watchdog_init(&comm->watchdog, 0);
    *out = comm;
    if (!is_launched()) return true;
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "MPI could not be initialised");
    if (provided < MPI_THREAD_FUNNELED)
        return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "this MPI allows no threads beside it");
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->size);
    comm->shares_cores = ranks_here() > sysconf(_SC_NPROCESSORS_ONLN);
    int *most_tag, is_set;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most_tag, &is_set);
    comm->most_tag = is_set ? *most_tag : INT16_MAX;
    watchdog_init(&comm->watchdog, comm->rank);
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

static void begin_wait(MxComm *comm, const char *what, const char *axes) {
    comm->wait_began_s = mx_clock_s();
    watchdog_wait(&comm->watchdog, what, axes);
}

static void end_wait(MxComm *comm) {
    watchdog_go_on(&comm->watchdog);
    comm->count.waited_s += mx_clock_s() - comm->wait_began_s;
}

/* MPI itself would ask without end and keep the core from whoever the others wait for. Where ranks
 * share cores, a third of their processor time went into yielding them to each other: there a rank
 * sleeps between two questions. One with a core of its own asks on, since a nap may last longer
 * than the wait. */
static void await(const MxComm *comm, MPI_Request *requests, int n_requests) {
    enum { PATIENCE = 100 }; /* times, some microseconds */
    const struct timespec nap = {.tv_nsec = 20000};
    int is_done = 0;
    for (int n = 0; !is_done; n++) {
        if (n > PATIENCE && comm->shares_cores)
            nanosleep(&nap, NULL);
        else if (n > PATIENCE)
            sched_yield();
        MPI_Testall(n_requests, requests, &is_done, MPI_STATUSES_IGNORE);
    }
}

/* Moves the sign to where the ranks of this machine see it. Without such memory it stays. */
static void show_sign(MxComm *comm, MPI_Comm machine) {
    int n;
    WatchSign *own;
    MPI_Comm_size(machine, &n);
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    if (MPI_Win_allocate_shared(sizeof *own, 1, MPI_INFO_NULL, machine, &own, &comm->window))
        return;
    watchdog_sign(own);
    WatchSign **near = mx_new_n(comm->arena, WatchSign *, n);
    int *near_rank = mx_new_n(comm->arena, int, n);
    for (int i = 0; i < n; i++) {
        MPI_Aint bytes;
        int unit;
        MPI_Win_shared_query(comm->window, i, &bytes, &unit, &near[i]);
    }
    /* After this all have written their signs. */
    MPI_Allgather(&comm->rank, 1, MPI_INT, near_rank, 1, MPI_INT, machine);
    watchdog_show(&comm->watchdog, own, near, near_rank, n);
}

void mx_comm_watch(MxComm *comm, double seconds) {
    MPI_Comm machine;
    if (comm->size == 1 || seconds <= 0) return;
    watchdog_start(&comm->watchdog, seconds);
    begin_wait(comm, "a meeting", "all ranks");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    show_sign(comm, machine);
    MPI_Comm_free(&machine);
    end_wait(comm);
}

/* ---- exchanges of groups */

/* Messages of a group bear its mesh axes as a tag, those between peers one above all of these.
 * Ranks start the exchanges of one tag in one order, so nothing else has to tell them apart. */
enum { PEER_TAG = 1 << 16 };

static MxExchange *new_exchange(MxComm *comm, const MxGroup *group, int tag, int n_requests) {
    MX_ASSERT(comm && comm->size > 1 && tag > 0 && tag <= comm->most_tag);
    int *ranks = mx_new_n(comm->arena, int, group->size);
    memcpy(ranks, group->ranks, (size_t)group->size * sizeof *ranks);
    MxExchange *e = mx_new(comm->arena, MxExchange);
    *e = (MxExchange){.owner = comm, .group = *group, .tag = tag, .n_requests = n_requests};
    e->group.ranks = ranks;
    e->group.axes = mx_arena_strdup(comm->arena, group->axes);
    e->requests = mx_new_n(comm->arena, MPI_Request, n_requests);
    return e;
}

MxExchange *mx_comm_exchange(MxComm *comm, const MxGroup *group) {
    if (group->size == 1) return NULL;
    MX_ASSERT(group->bits < PEER_TAG);
    return new_exchange(comm, group, (int)group->bits, 2 * (group->size - 1));
}

MxExchange *mx_comm_peer(MxComm *comm, const MxGroup *group, int tag, bool sends) {
    for (MxExchange *e = comm->peers; e; e = e->known)
        if (e->tag == PEER_TAG + tag && e->sends == sends && e->group.ranks[1] == group->ranks[1])
            return e;
    MxExchange *e = new_exchange(comm, group, PEER_TAG + tag, 1);
    e->sends = sends;
    e->known = comm->peers;
    return comm->peers = e;
}

/* MPI counts in int: blocks are counted in units of 4 bytes where they can be. */
static int units(size_t bytes, MPI_Datatype *type) {
    *type = bytes % sizeof(float) ? MPI_BYTE : MPI_FLOAT;
    size_t n = bytes % sizeof(float) ? bytes : bytes / sizeof(float);
    MX_ASSERT(n <= INT32_MAX);
    return (int)n;
}

/* What was started is under way. */
static void go(MxExchange *e, const char *what) {
    e->what = what;
    e->next = e->owner->under_way;
    e->owner->under_way = e;
    mx_comm_progress(e->owner); /* what ranks that are ahead have sent, they need not wait for */
}

/* Sends a block to each of the others, `stride` bytes apart, and receives one from each. Plain
 * messages and not a collective of MPI: those would also copy this rank's own block, which the
 * kernels read where it is, and what the library gains by relaying blocks it gains for small ones
 * alone. Each rank begins with the one after it, so that not all send to the same one. */
static void start(MxExchange *e, const char *what, const char *send, char *recv, size_t bytes,
                  size_t stride) {
    int size = e->group.size, own = e->group.index, n_requests = 0;
    const int *ranks = e->group.ranks;
    MPI_Datatype type;
    int n = units(bytes, &type);
    for (int i = 1; i < size; i++) {
        int from = (own + size - i) % size;
        MPI_Irecv(recv + (size_t)from * bytes, n, type, ranks[from], e->tag, MPI_COMM_WORLD,
                  &e->requests[n_requests++]);
    }
    for (int i = 1; i < size; i++) {
        int to = (own + i) % size;
        MPI_Isend(send + (size_t)to * stride, n, type, ranks[to], e->tag, MPI_COMM_WORLD,
                  &e->requests[n_requests++]);
    }
    e->owner->count.calls++;
    e->owner->count.bytes += (uint64_t)(size - 1) * bytes;
    go(e, what);
}

void mx_exchange_shift(MxExchange *e, int places, const void *send, void *recv, size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type), size = e->group.size, own = e->group.index;
    const int *ranks = e->group.ranks;
    for (int i = 0; i < e->n_requests; i++) e->requests[i] = MPI_REQUEST_NULL;
    if (recv)
        MPI_Irecv(recv, n, type, ranks[(own - places + size) % size], e->tag, MPI_COMM_WORLD,
                  &e->requests[0]);
    if (send)
        MPI_Isend(send, n, type, ranks[(own + places + size) % size], e->tag, MPI_COMM_WORLD,
                  &e->requests[1]);
    e->owner->count.calls += send != NULL;
    e->owner->count.bytes += send ? bytes : 0;
    go(e, "ring_shift");
}

void mx_exchange_send(MxExchange *e, const void *send, size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type);
    MPI_Isend(send, n, type, e->group.ranks[1], e->tag, MPI_COMM_WORLD, e->requests);
    e->owner->count.calls++;
    e->owner->count.bytes += bytes;
    go(e, "send");
}

void mx_exchange_receive(MxExchange *e, void *recv, size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type);
    MPI_Irecv(recv, n, type, e->group.ranks[1], e->tag, MPI_COMM_WORLD, e->requests);
    go(e, "receive");
}

void mx_exchange_all_gather(MxExchange *e, const char *what, const void *send, void *recv,
                            size_t bytes) {
    start(e, what, send, recv, bytes, 0);
}

void mx_exchange_all_to_all(MxExchange *e, const char *what, const void *send, void *recv,
                            size_t bytes) {
    start(e, what, send, recv, bytes, bytes);
}

void mx_exchange_broadcast(MxExchange *e, const char *what, void *data, size_t bytes) {
    MPI_Datatype type;
    int n = units(bytes, &type), size = e->group.size;
    const int *ranks = e->group.ranks;
    for (int i = 0; i < e->n_requests; i++) e->requests[i] = MPI_REQUEST_NULL;
    for (int i = 1; i < size && !e->group.index; i++)
        MPI_Isend(data, n, type, ranks[i], e->tag, MPI_COMM_WORLD, &e->requests[i]);
    if (e->group.index) MPI_Irecv(data, n, type, ranks[0], e->tag, MPI_COMM_WORLD, e->requests);
    e->owner->count.calls++;
    e->owner->count.bytes += e->group.index ? 0 : (uint64_t)(size - 1) * bytes;
    go(e, what);
}

void mx_exchange_finish(MxExchange *e) {
    MxComm *comm = e->owner;
    MxExchange **at = &comm->under_way;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    begin_wait(comm, e->what, e->group.axes);
    await(comm, e->requests, e->n_requests);
    end_wait(comm);
}

void mx_comm_progress(MxComm *comm) {
    int is_done;
    for (MxExchange *e = comm->under_way; e; e = e->next)
        MPI_Testall(e->n_requests, e->requests, &is_done, MPI_STATUSES_IGNORE);
}

/* ---- exchanges of all ranks */

int64_t mx_comm_max(MxComm *comm, int64_t x) {
    int64_t most = x;
    MPI_Request request;
    if (comm->size == 1) return x;
    begin_wait(comm, "an agreement", "all ranks");
    MPI_Iallreduce(&x, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &request);
    await(comm, &request, 1);
    end_wait(comm);
    return most;
}

void mx_comm_share(MxComm *comm, const void *own, void *all, size_t bytes) {
    MX_ASSERT(bytes <= INT32_MAX);
    if (comm->size == 1) {
        memcpy(all, own, bytes);
        return;
    }
    MPI_Request request;
    begin_wait(comm, "an agreement", "all ranks");
    MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
    await(comm, &request, 1);
    end_wait(comm);
}

enum { CHUNK_BYTES = 1 << 30 }; /* of one message */

void mx_comm_broadcast(MxComm *comm, void *data, size_t bytes) {
    if (comm->size == 1) return;
    begin_wait(comm, "a broadcast", "all ranks");
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        MPI_Request request;
        MPI_Ibcast((char *)data + at, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        await(comm, &request, 1);
    }
    end_wait(comm);
}

static void move(MxComm *comm, char *data, int64_t bytes, int peer) {
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        MPI_Request request;
        if (comm->rank == 0)
            MPI_Irecv(data + at, (int)n, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
        else
            MPI_Isend(data + at, (int)n, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
        await(comm, &request, 1);
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
