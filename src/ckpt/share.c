/* share.c — decides which rank writes which part of a divided tree. Every box of every array is
 * written once, by the rank that has it and has the least to write so far. All ranks compute the
 * same result without communication. */
#include <mx/ckpt.h>

#include "internal.h"

/* Bytes of a rank's box of an array. */
static int64_t bytes_of(MxForm form, const MxLeaf *leaf, int rank) {
    int64_t layers = form.is_scanned && leaf->stack.count ? leaf->stack.count : 1;
    return mx_box_count(&leaf->division->box[rank]) * layers * (int64_t)mx_dtype_bytes(leaf->dtype);
}

static void assign(CkptShares *shares, MxForm form, const MxLeaf *leaf, int i, int *least) {
    const MxDivision *division = leaf->division;
    for (int r = 0; r < shares->n_ranks; r++) {
        int first = division->first[r];
        if (first == r || shares->bytes[r] < shares->bytes[least[first]]) least[first] = r;
    }
    for (int r = 0; r < shares->n_ranks; r++) {
        int64_t bytes = bytes_of(form, leaf, r);
        if (division->first[r] != r || !bytes) continue;
        shares->writes[(int64_t)i * shares->n_ranks + least[r]] = true;
        shares->bytes[least[r]] += bytes;
    }
}

static const char *const *file_names(MxArena *arena, int n_ranks, const char *unique) {
    const char **names = mx_new_n(arena, const char *, n_ranks);
    for (int r = 0; r < n_ranks; r++)
        names[r] = mx_arena_printf(arena, "state.%s.%d-of-%d.h5", unique, r, n_ranks);
    return names;
}

CkptShares ckpt_shares(MxArena *arena, MxForm form, const MxTree *tree, const char *unique) {
    int n_ranks = ckpt_division(tree)->n_ranks;
    CkptShares shares = {.n_ranks = n_ranks,
                         .n = tree->n,
                         .writes = mx_new_n(arena, bool, (int64_t)tree->n *n_ranks),
                         .bytes = mx_new_n(arena, int64_t, n_ranks),
                         .names = file_names(arena, n_ranks, unique)};
    int *least = mx_new_n(arena, int, n_ranks);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        MxPlace place = mx_ckpt_place(arena, form, leaf);
        if (!ckpt_is_first(form, leaf) || !place.path) continue;
        if (place.shape.rank)
            assign(&shares, form, leaf, i, least);
        else /* in the file that shows the others, which the first makes */
            shares.writes[(int64_t)i * n_ranks] = true;
    }
    return shares;
}

MxTree *mx_ckpt_share(MxArena *arena, MxForm form, const MxTree *tree) {
    MxArena scratch = {.name = "share"};
    MxTree *share = mx_new(arena, MxTree);
    const MxDivision *division = ckpt_division(tree);
    CkptShares shares = {0};
    if (division) shares = ckpt_shares(&scratch, form, tree, "");
    MxMap stacks; /* by path: the first leaf */
    mx_map_init(&stacks, &scratch);
    mx_tree_init(share, arena);
    for (int i = 0; i < tree->n; i++) {
        MxLeaf leaf = tree->leaves[i];
        int64_t first = i;
        bool is_stacked = form.is_scanned && leaf.stack.count;
        if (is_stacked && leaf.stack.index) first = mx_map_get(&stacks, leaf.stack.path, i);
        if (is_stacked && !leaf.stack.index) mx_map_set(&stacks, leaf.stack.path, i);
        if (division && !ckpt_writes(&shares, (int)first, division->rank))
            leaf = mx_leaf_abstract(leaf);
        mx_tree_add(share, leaf);
    }
    mx_arena_release(&scratch);
    return share;
}

int64_t mx_ckpt_share_bytes(MxForm form, const MxTree *tree) {
    MxArena scratch = {.name = "share"};
    int64_t most = 0;
    if (ckpt_division(tree)) {
        CkptShares shares = ckpt_shares(&scratch, form, tree, "");
        for (int r = 0; r < shares.n_ranks; r++)
            if (shares.bytes[r] > most) most = shares.bytes[r];
    }
    for (int i = 0; i < tree->n; i++)
        if (!tree->leaves[i].division || !tree->leaves[i].shape.rank)
            most += mx_shape_count(tree->leaves[i].shape) *
                    (int64_t)mx_dtype_bytes(tree->leaves[i].dtype);
    mx_arena_release(&scratch);
    return most;
}
