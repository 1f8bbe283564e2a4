/* tree.c — named trees of arrays: a flat list of leaves with a map from path to index. */
#include <mx/tree.h>

void mx_tree_init(MxTree *tree, MxArena *arena) {
    *tree = (MxTree){.arena = arena};
    mx_map_init(&tree->by_path, arena);
}

int mx_tree_add(MxTree *tree, MxLeaf leaf) {
    MX_ASSERT(mx_tree_find(tree, leaf.path) < 0);
    if (tree->n == tree->cap) {
        tree->cap = tree->cap ? 2 * tree->cap : 32;
        tree->leaves = mx_arena_grow(tree->arena, tree->leaves, (size_t)tree->n, (size_t)tree->cap,
                                     sizeof *tree->leaves);
    }
    mx_map_set(&tree->by_path, leaf.path, tree->n);
    tree->leaves[tree->n] = leaf;
    return tree->n++;
}

int mx_tree_find(const MxTree *tree, const char *path) {
    return (int)mx_map_get(&tree->by_path, path, -1);
}

MxLeaf *mx_tree_add_under(MxTree *tree, const char *prefix, const MxTree *from) {
    int first = tree->n;
    for (int i = 0; i < from->n; i++) {
        MxLeaf leaf = from->leaves[i];
        leaf.path = mx_path_join(tree->arena, prefix, leaf.path);
        if (leaf.stack.path) leaf.stack.path = mx_path_join(tree->arena, prefix, leaf.stack.path);
        mx_tree_add(tree, leaf);
    }
    return tree->leaves + first;
}

MxTree *mx_tree_select(MxArena *arena, const MxTree *from, MxKind kind) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < from->n; i++)
        if (from->leaves[i].kind == kind) mx_tree_add(tree, from->leaves[i]);
    return tree;
}

int64_t mx_tree_count(const MxTree *tree, MxKind kind) {
    int64_t n = 0;
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind == kind) n += mx_shape_count(tree->leaves[i].shape);
    return n;
}
