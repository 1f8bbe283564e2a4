/* partition.h — what the files of the partition pass share: moves between shardings and their cost,
 * and the choice of how a node is divided. */
#ifndef LOWER_PARTITION_H
#define LOWER_PARTITION_H

#include <mx/lower.h>

/* ---- sharding.c */

int64_t lower_parts(const MxMesh *mesh, uint32_t axes);
/* lower_index — which of the parts along these mesh axes a rank has. */
int64_t lower_index(const MxMesh *mesh, int64_t rank, uint32_t axes);
bool lower_same_sharding(MxSharding a, MxSharding b, int rank);
/* lower_used — every mesh axis that cuts a dim. */
uint32_t lower_used(MxSharding s, int rank);

/* One step on the way from a sharding to another. */
typedef struct Move {
    const MxOp *op;
    int joined, cut; /* dims */
    uint32_t axes;
} Move;

enum { MOST_MOVES = 6 * MX_MAX_RANK + 1 };

/* How a value's terms are sent, and the variable that takes what that loses of this rank's. */
typedef struct Wired {
    MxTrace *t; /* of the rank's graph */
    const MxPartition *p;
    MxDtype wire;
    int lost;
} Wired;

/* lower_moves — the steps; to.partial must be among from.partial. Sums come first, scattered where
 * the result is cut anyway; parts are taken, and given for parts along another dim, before others
 * are gathered. Halves that were swapped go back before all that, and are swapped after it. */
int lower_moves(int rank, MxSharding from, MxSharding to, Move out[MOST_MOVES]);
/* lower_move — the steps taken with a value. */
MxValue lower_move(const Wired *w, MxValue value, int rank, MxSharding from, MxSharding to);
/* lower_cost — exchanges as bytes. */
double lower_cost(const MxMachine *machine, MxCommCost cost);
/* lower_move_cost — what they cost a rank, as bytes. */
double lower_move_cost(const MxMachine *machine, const MxMesh *mesh, MxType type, MxSharding from,
                       MxSharding to);

/* ---- slices.c */

/* lower_sum_groups — over which groups of ranks a sum is taken, one after the other: over all that
 * differ along these mesh axes, or over those in a slice and those between slices. Returns how
 * many. lower_all_reduce — the sum of a value. */
int lower_sum_groups(MxArena *arena, const MxPartition *p, uint32_t axes, MxGroup out[2]);
MxValue lower_all_reduce(MxTrace *t, const MxPartition *p, MxValue value, uint32_t axes);

/* ---- few.c */

/* lower_sum_few — sums over ranks, one after another, with terms in few bits. */
MxValue lower_sum_few(const Wired *w, MxValue value, const Move *moves, int n);

/* ---- choose.c */

/* One array of a node while it is being decided. */
typedef struct Candidate {
    MxType type;          /* global */
    bool is_set;          /* inputs: always. Outputs: somebody wants it in a certain sharding */
    const MxSharding *at; /* inputs: where it can be had, the first being its own */
    int n_at;
} Candidate;

typedef struct Choice {
    const MxMachine *machine;
    MxFactors factors;
    Candidate in[MX_MAX_CUT_IN], out[MX_MAX_OUT];
    uint32_t cut[MX_MAX_FACTORS]; /* the answer: mesh axes of each factor */
    bool is_swapped;              /* ranks swap halves along factors.swapped */
    bool is_ring;                 /* factors.ring_in go around */
    uint32_t partial;             /* kept from the inputs */
    bool balances, rings;         /* see MxPartition */
    double flops;                 /* of the whole node */
    uint32_t apart;               /* see MxPartition */
} Choice;

/* lower_choose — fills cut, is_swapped, is_ring and partial: what moves the fewest bytes and leaves
 * little to be computed twice, or waited for. Every rank answers alike. */
void lower_choose(const MxMesh *mesh, Choice *choice);
/* lower_in_sharding, lower_out_sharding — what the answer asks of an input and makes of an output.
 */
MxSharding lower_in_sharding(const Choice *choice, int i);
MxSharding lower_out_sharding(const Choice *choice, int i);
/* lower_localized — the attributes of a node for one rank's share. */
const void *lower_localized(MxArena *arena, const MxMesh *mesh, int64_t rank, const MxNode *node,
                            const Choice *choice);

#endif
