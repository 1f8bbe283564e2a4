/* fibers.cc — runs a kernel's threads as fibers. */
#define _Noreturn [[noreturn]]
extern "C" {
#include <mx/base.h>
}

#include "fibers.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

static constexpr unsigned WARP = 32, MOST_THREADS = 1024, MOST_SHARED = 228 << 10;
static constexpr size_t STACK_BYTES = 256 << 10;

typedef enum State { DONE, READY, AT_BLOCK, AT_WARP } State;

struct Fiber {
    FiberPlace place;
    State state;
    unsigned mask; /* of the lanes that it waits for */
    char *stack;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
};

const FiberPlace *fibers_now;

static Fiber fibers[MOST_THREADS];
static Fiber *current;
static uint64_t slots[MOST_THREADS];
alignas(128) static unsigned char dynamic[MOST_SHARED];
static const std::function<void()> *kernel;

/* ---- changing stacks */

#if defined(__x86_64__)
static void *scheduler;

/* Saves what a call preserves, leaves the stack's address in *from, and goes on on another one. */
extern "C" void fibers_switch(void **from, void *to);
asm(R"(
.text
.globl fibers_switch
.hidden fibers_switch
.type fibers_switch, @function
fibers_switch:
    endbr64
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rax
    jmp *%rax
.size fibers_switch, .-fibers_switch
)");

static void leave() {
    fibers_switch(&current->sp, scheduler);
}

static void enter(Fiber *fiber) {
    fibers_switch(&scheduler, fiber->sp);
}
#else
static ucontext_t scheduler;

static void leave() {
    swapcontext(&current->context, &scheduler);
}

static void enter(Fiber *fiber) {
    swapcontext(&scheduler, &fiber->context);
}
#endif

static void body() {
    (*kernel)();
    current->state = DONE;
    for (;;) leave();
}

static void start(Fiber *fiber) {
    if (!fiber->stack) {
        void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        MX_ASSERT(stack != MAP_FAILED);
        fiber->stack = (char *)stack;
    }
    fiber->state = READY;
#if defined(__x86_64__)
    constexpr size_t SAVED = 6, BELOW = 8; /* a function finds its stack 8 below a multiple of 16 */
    void **top = (void **)(fiber->stack + STACK_BYTES - BELOW);
    *--top = (void *)body;
    top -= SAVED;
    memset(top, 0, SAVED * sizeof *top);
    fiber->sp = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, body, 0);
#endif
}

/* ---- waiting */

static void wait_for(State state, unsigned mask) {
    current->state = state;
    current->mask = mask;
    leave();
}

void fibers_sync() {
    wait_for(AT_BLOCK, 0);
}

void fibers_sync_warp(unsigned mask) {
    wait_for(AT_WARP, mask);
}

static unsigned index_of(const Fiber *fiber) {
    return (unsigned)(fiber - fibers);
}

unsigned fibers_lane() {
    return index_of(current) % WARP;
}

uint64_t *fibers_slots() {
    return slots + index_of(current) / WARP * WARP;
}

void *fibers_dynamic() {
    return dynamic;
}

/* ---- a block */

[[noreturn]] static void stuck(const char *what, const Fiber *fiber) {
    fprintf(stderr, "fibers: thread %u of block (%u, %u, %u) %s\n", index_of(fiber),
            fiber->place.block.x, fiber->place.block.y, fiber->place.block.z, what);
    abort();
}

/* Lets lanes go on whose whole mask waits; whether there were any. */
static bool release_lanes(Fiber *warp, unsigned n) {
    bool any = false;
    for (unsigned i = 0; i < n; i++) {
        if (warp[i].state != AT_WARP) continue;
        unsigned mask = warp[i].mask, waiting = 0;
        if (n < WARP) mask &= (1u << n) - 1;
        if (!(mask >> i & 1)) stuck("waits for a mask without itself", &warp[i]);
        for (unsigned j = 0; j < n; j++) {
            if (!(mask >> j & 1)) continue;
            if (warp[j].state == DONE) stuck("waits for a lane that has ended", &warp[i]);
            waiting += warp[j].state == AT_WARP && warp[j].mask == warp[i].mask;
        }
        if (waiting < (unsigned)__builtin_popcount(mask)) continue;
        for (unsigned j = 0; j < n; j++)
            if (mask >> j & 1) warp[j].state = READY;
        any = true;
    }
    return any;
}

/* Runs the lanes of a warp until none of them can go on alone. */
static void run_warp(Fiber *warp, unsigned n, bool backwards) {
    do
        for (unsigned k = 0; k < n; k++) {
            Fiber *fiber = &warp[backwards ? n - 1 - k : k];
            if (fiber->state != READY) continue;
            current = fiber;
            fibers_now = &fiber->place;
            enter(fiber);
        }
    while (release_lanes(warp, n));
}

static void run_block(unsigned n, bool backwards) {
    for (unsigned i = 0; i < n; i++) start(&fibers[i]);
    unsigned n_warps = (n + WARP - 1) / WARP, waiting;
    do {
        for (unsigned k = 0; k < n_warps; k++) {
            unsigned first = (backwards ? n_warps - 1 - k : k) * WARP;
            run_warp(fibers + first, n - first < WARP ? n - first : WARP, backwards);
        }
        waiting = 0;
        for (unsigned i = 0; i < n; i++) {
            if (fibers[i].state == AT_WARP) stuck("waits for lanes at another barrier", &fibers[i]);
            if (fibers[i].state != AT_BLOCK) continue;
            fibers[i].state = READY;
            waiting++;
        }
    } while (waiting);
}

void fibers_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread) {
    unsigned n = block.x * block.y * block.z;
    MX_ASSERT(n > 0 && n <= MOST_THREADS && shared <= MOST_SHARED && grid.y < 1 << 16 &&
              grid.z < 1 << 16);
    kernel = &thread;
    unsigned number = 0;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                for (unsigned i = 0; i < n; i++)
                    fibers[i].place = {
                        dim3(i % block.x, i / block.x % block.y, i / block.x / block.y),
                        dim3(x, y, z), block, grid};
                memset(dynamic, 0xa5, shared);
                run_block(n, number++ & 1);
            }
}

/* ---- recorded spans */

struct FibersRecord {
    std::vector<std::function<void()>> works;
};

static FibersRecord *recording;

void fibers_submit(std::function<void()> work) {
    if (recording)
        recording->works.push_back(std::move(work));
    else
        work();
}

void fibers_record_begin() {
    MX_ASSERT(!recording);
    recording = new FibersRecord;
}

FibersRecord *fibers_record_end() {
    FibersRecord *record = recording;
    recording = nullptr;
    return record;
}

bool fibers_is_recording() {
    return recording;
}

void fibers_record_free(void *record) {
    delete (FibersRecord *)record;
}

void fibers_replay(const FibersRecord *record) {
    for (const auto &work : record->works) work();
}
