/* mpi.c — ranks by MPI; the only file that knows it. MPI is initialised only in a process that a
 * launcher started, so a run of one rank never pays for it nor depends on it. All calls are made by
 * one thread, in the order of the program, which is the same on every rank. Exchanges of ops are
 * started and finished apart; the library works on them in any call, so while some are under way it
 * is called between kernels.
 *
 * A thread watches how long a rank has been waiting: a rank that died takes the job with it, one
 * that hangs would not. Ranks of one machine see each other's signs of life in shared memory, so
 * that one that waits can name the one that hangs; those of other machines it cannot see. A
 * launcher ends ranks when one has died, but asks them first, which those that wait for the dead
 * one do not hear; so they also end by themselves. */
#include <mx/device.h>

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct Group Group;
struct Group {
    MxComm *owner;
    uint64_t id;
    const char *axes;
    MPI_Comm mpi;
    int size;
    Group *next;
};

struct MxExchange {
    const Group *group;
    const char *what;
    MPI_Request *requests; /* [n_requests] to and from each of the others */
    int n_requests;
    MxExchange *next; /* under way */
};

/* A rank's signs of life; times as in mx_clock_s, which a machine's processes share. */
typedef struct Sign {
    _Atomic double alive; /* when its watchdog last looked */
    _Atomic double since; /* when it began or ended its last wait */
    _Atomic bool waits;
    _Atomic pid_t process;
} Sign;

struct MxComm {
    MxArena *arena;
    int rank, size;
    Group *groups;
    MxExchange *under_way;
    MxCommCount count;
    double watch_s;
    pthread_t watchdog;
    _Atomic bool is_watched;
    _Atomic(const char *) waits_for, waits_in;
    Sign alone;           /* its sign as long as nobody else can see it */
    _Atomic(Sign *) sign; /* its own */
    Sign **near;          /* [n_near] those of this machine's ranks, its own among them */
    int *near_rank;       /* [n_near] their ranks */
    _Atomic int n_near;   /* 0 = they cannot be seen */
    MPI_Win window;       /* where they are */
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
    if (atomic_exchange(&comm->n_near, 0)) MPI_Win_free(&comm->window);
    while (comm->groups) {
        MPI_Comm_free(&comm->groups->mpi);
        comm->groups = comm->groups->next;
    }
    MPI_Finalize();
}

bool mx_comm_open(MxArena *arena, MxComm **out, MxError *err) {
    MxComm *comm = mx_new(arena, MxComm);
    *comm = (MxComm){.arena = arena, .size = 1};
    atomic_store(&comm->sign, &comm->alone);
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

enum { STILL_S = 2 }; /* without a sign of life this long, a rank does not run */

/* What is known of the ranks that others wait for. */
static void name_missing(MxComm *comm, double now, MxText *out) {
    int n = atomic_load(&comm->n_near), n_named = 0;
    for (int i = 0; i < n; i++) {
        const Sign *sign = comm->near[i];
        double still = now - atomic_load(&sign->alive), since = now - atomic_load(&sign->since);
        bool is_still = still > STILL_S, is_busy = !atomic_load(&sign->waits);
        if (!is_still && !is_busy) continue;
        mx_text_add(out, "; rank %d hangs: it has %s for %.0f s", comm->near_rank[i],
                    is_still ? "not run" : "been at something else", is_still ? still : since);
        n_named++;
    }
    if (!n_named) mx_text_add(out, "; a rank that does not say so is the one that hangs");
}

/* How long a rank has been in one wait, by its watchdog's ticks: one that took far longer than
 * asked for is time in which this process was stopped, and perhaps all of them (a scheduler that
 * suspends a job, a machine that sleeps). It does not count. */
typedef struct Wait {
    double since; /* which wait */
    double last;  /* tick */
    double seconds;
} Wait;

static void count_wait(Wait *wait, const Sign *sign, double now) {
    const double longest_tick_s = 1;
    double since = atomic_load(&sign->since);
    if (wait->since != since) *wait = (Wait){.since = since, .last = since};
    wait->seconds += fmin(now - wait->last, longest_tick_s);
    wait->last = now;
}

static _Noreturn void give_up(MxComm *comm, double now, double waited_s) {
    MxArena arena = {.name = "watchdog"};
    MxText missing;
    mx_text_init(&missing, &arena);
    name_missing(comm, now, &missing);
    mx_complain("rank %d has waited %.0f s for the other ranks in %s over %s: ending the run%s",
                comm->rank, waited_s, atomic_load(&comm->waits_in), atomic_load(&comm->waits_for),
                missing.data);
    _exit(MX_EXIT_IO);
}

/* Whether a process has ended, though its launcher may not have taken notice (Linux's state Z). */
static bool has_ended(pid_t process) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    if (!file) return kill(process, 0) && errno == ESRCH;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && !strncmp(name_end, ") Z", 3);
}

/* Whether a rank of this machine has died. While it gives signs of life nobody looks. */
static bool has_died(const Sign *sign) {
    const double quiet_s = 0.5;
    return mx_clock_s() - atomic_load(&sign->alive) > quiet_s &&
           has_ended(atomic_load(&sign->process));
}

/* Ends this rank if another has died. The launcher gets time to do so, and to say how it died. */
static void follow_dead(MxComm *comm) {
    const struct timespec time_for_the_launcher = {.tv_sec = 1};
    for (int i = 0; i < atomic_load(&comm->n_near); i++) {
        if (!has_died(comm->near[i])) continue;
        nanosleep(&time_for_the_launcher, NULL);
        if (!atomic_load(&comm->is_watched)) return;
        mx_complain("rank %d: rank %d has died: ending the run", comm->rank, comm->near_rank[i]);
        _exit(MX_EXIT_IO);
    }
}

static void *watch(void *data) {
    MxComm *comm = data;
    const struct timespec often = {.tv_nsec = 100000000};
    Wait wait = {0};
    while (atomic_load(&comm->is_watched)) {
        follow_dead(comm);
        Sign *sign = atomic_load(&comm->sign);
        double now = mx_clock_s();
        atomic_store(&sign->alive, now);
        count_wait(&wait, sign, now);
        if (atomic_load(&sign->waits) && wait.seconds >= comm->watch_s)
            give_up(comm, now, wait.seconds);
        nanosleep(&often, NULL);
    }
    return NULL;
}

static void set_sign(MxComm *comm, bool waits) {
    Sign *sign = atomic_load(&comm->sign);
    atomic_store(&sign->since, mx_clock_s());
    atomic_store(&sign->waits, waits);
}

static void begin_wait(MxComm *comm, const char *what, const char *axes) {
    atomic_store(&comm->waits_in, what);
    atomic_store(&comm->waits_for, axes);
    set_sign(comm, true);
}

static void end_wait(MxComm *comm) {
    set_sign(comm, false);
}

/* Moves the sign to where the ranks of this machine see it. Without such memory it stays. */
static void show_sign(MxComm *comm, MPI_Comm machine) {
    int n;
    Sign *own;
    MPI_Comm_size(machine, &n);
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    if (MPI_Win_allocate_shared(sizeof *own, 1, MPI_INFO_NULL, machine, &own, &comm->window))
        return;
    *own = (Sign){.alive = mx_clock_s(), .since = mx_clock_s(), .process = getpid()};
    comm->near = mx_new_n(comm->arena, Sign *, n);
    comm->near_rank = mx_new_n(comm->arena, int, n);
    for (int i = 0; i < n; i++) {
        MPI_Aint bytes;
        int unit;
        MPI_Win_shared_query(comm->window, i, &bytes, &unit, &comm->near[i]);
    }
    /* After this all have written their signs. */
    MPI_Allgather(&comm->rank, 1, MPI_INT, comm->near_rank, 1, MPI_INT, machine);
    atomic_store(&comm->sign, own);
    atomic_store(&comm->n_near, n);
}

void mx_comm_watch(MxComm *comm, double seconds) {
    MPI_Comm machine;
    MX_ASSERT(!atomic_load(&comm->is_watched));
    if (comm->size == 1 || seconds <= 0) return;
    comm->watch_s = seconds;
    atomic_store(&comm->is_watched, true);
    if (mx_thread_start(&comm->watchdog, watch, comm)) MX_BUG("no thread for the watchdog");
    begin_wait(comm, "a meeting", "all ranks");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    show_sign(comm, machine);
    MPI_Comm_free(&machine);
    end_wait(comm);
}

/* ---- exchanges of groups */

static const Group *find_group(MxComm *comm, const MxGroup *group) {
    for (Group *g = comm->groups; g; g = g->next)
        if (g->id == group->id) return g;
    Group *g = mx_new(comm->arena, Group);
    *g = (Group){.owner = comm,
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

MxExchange *mx_comm_exchange(MxComm *comm, const MxGroup *group) {
    if (group->size == 1) return NULL;
    MX_ASSERT(comm && comm->size > 1);
    MxExchange *exchange = mx_new(comm->arena, MxExchange);
    *exchange = (MxExchange){.group = find_group(comm, group), .n_requests = 2 * (group->size - 1)};
    exchange->requests = mx_new_n(comm->arena, MPI_Request, exchange->n_requests);
    return exchange;
}

/* MPI counts in int: blocks are counted in units of 4 bytes where they can be. */
static int units(size_t bytes, MPI_Datatype *type) {
    *type = bytes % sizeof(float) ? MPI_BYTE : MPI_FLOAT;
    size_t n = bytes % sizeof(float) ? bytes : bytes / sizeof(float);
    MX_ASSERT(n <= INT32_MAX);
    return (int)n;
}

/* Sends a block to each of the others, `stride` bytes apart, and receives one from each. Plain
 * messages and not a collective of MPI: those would also copy this rank's own block, which the
 * kernels read where it is, and what the library gains by relaying blocks it gains for small ones
 * alone. Each rank begins with the one after it, so that not all send to the same one. */
static void start(MxExchange *e, const char *what, const char *send, char *recv, size_t bytes,
                  size_t stride) {
    MxComm *comm = e->group->owner;
    int size = e->group->size, own, n_requests = 0;
    MPI_Datatype type;
    int n = units(bytes, &type);
    MPI_Comm_rank(e->group->mpi, &own);
    for (int i = 1; i < size; i++) {
        int from = (own + size - i) % size;
        MPI_Irecv(recv + (size_t)from * bytes, n, type, from, 0, e->group->mpi,
                  &e->requests[n_requests++]);
    }
    for (int i = 1; i < size; i++) {
        int to = (own + i) % size;
        MPI_Isend(send + (size_t)to * stride, n, type, to, 0, e->group->mpi,
                  &e->requests[n_requests++]);
    }
    e->what = what;
    e->next = comm->under_way;
    comm->under_way = e;
    comm->count.calls++;
    comm->count.bytes += (uint64_t)(size - 1) * bytes;
    mx_comm_progress(comm); /* what ranks that are ahead have sent, they need not wait for */
}

void mx_exchange_all_gather(MxExchange *e, const char *what, const void *send, void *recv,
                            size_t bytes) {
    start(e, what, send, recv, bytes, 0);
}

void mx_exchange_all_to_all(MxExchange *e, const char *what, const void *send, void *recv,
                            size_t bytes) {
    start(e, what, send, recv, bytes, bytes);
}

/* MPI itself would ask without end and keep the core from whoever the others wait for. */
static void await(MxExchange *e) {
    enum { PATIENCE = 100 }; /* times, some microseconds */
    int is_done = 0;
    for (int n = 0; !is_done; n++) {
        if (n > PATIENCE) sched_yield();
        MPI_Testall(e->n_requests, e->requests, &is_done, MPI_STATUSES_IGNORE);
    }
}

void mx_exchange_finish(MxExchange *e) {
    MxComm *comm = e->group->owner;
    MxExchange **at = &comm->under_way;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    begin_wait(comm, e->what, e->group->axes);
    await(e);
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
