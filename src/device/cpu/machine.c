/* machine.c — the description, for passes, of CPUs that exchange messages (comm/mpi.c): collectives
 * are one exchange, or two, each started in one phase and finished in the next. */
#include "cpu.h"

static MxCommCost collective_cost(MxCollective collective, MxType in, int ranks) {
    int64_t others = ranks - 1, n = mx_shape_count(in.shape), part = (n + ranks - 1) / ranks;
    int64_t each = (int64_t)mx_dtype_bytes(in.dtype);
    if (!others || !collective) return (MxCommCost){0};
    if (collective == MX_ALL_GATHER) return (MxCommCost){1, others * n * each};
    if (collective == MX_REDUCE_SCATTER || collective == MX_ALL_TO_ALL)
        return (MxCommCost){1, others * (n / ranks) * each};
    if (collective == MX_SWAP_HALVES) return (MxCommCost){1, n / 2 * each};
    if (collective == MX_RING_SHIFT) return (MxCommCost){1, n * each};
    if (n < CPU_SMALL_SUM) return (MxCommCost){1, others * n * each};
    return (MxCommCost){2, 2 * others * part * each};
}

static int phases(MxCollective collective, MxType in, int ranks) {
    return 1 + (int)collective_cost(collective, in, ranks).calls;
}

/* Computing is cheap beside what is exchanged between cores of a machine or over its network: an
 * exchange takes 10 us, a byte 1 ns. Small are arrays that take some latencies of 10 Gbit/s
 * Ethernet. */
const MxMachine cpu_machine = {
    .flops_a_byte = 50,
    .touched_a_byte = 8,
    .exchange_bytes = 10000,
    .has_rings = true,
    .collective_cost = collective_cost,
    .phases = phases,
    .small_bytes = 128 << 10,
    .bucket_bytes = 2 << 20,
    .chunk_tokens = 1024,
    .chunk_least = 256,
    .chunk_bytes = 64 << 20,
};
