/* tree.c — named trees of arrays: a flat list of leaves with a map from path to index, and access
 * to the values of leaves. */
#include <mx/tree.h>

/* ---- values */

MxBox mx_leaf_part(const MxLeaf *leaf) {
    return leaf->division ? leaf->division->box[leaf->division->rank] : mx_box_of(leaf->shape);
}

size_t mx_leaf_bytes(const MxLeaf *leaf) {
    MxBox part = mx_leaf_part(leaf);
    return (size_t)mx_box_count(&part) * mx_dtype_bytes(leaf->dtype);
}

bool mx_leaf_has_values(const MxLeaf *leaf) {
    return leaf->data || leaf->keeper;
}

void *mx_leaf_map(const MxLeaf *leaf) {
    if (leaf->data || !leaf->keeper) return leaf->data;
    return leaf->keeper->map(leaf->keeper->data, leaf->array);
}

/* The part as its keeper counts it: from 0. */
static MxBox kept_box(const MxLeaf *leaf) {
    MxBox box = mx_leaf_part(leaf);
    memset(box.start, 0, sizeof box.start);
    return box;
}

const void *mx_leaf_rows(const MxLeaf *leaf, int64_t first, int64_t n, void *host) {
    MxBox box = kept_box(leaf);
    int64_t rows = box.rank ? box.count[0] : 1;
    MX_ASSERT(first >= 0 && n >= 0 && first + n <= rows);
    const char *there = mx_leaf_map(leaf);
    if (there) return there + (rows ? mx_leaf_bytes(leaf) / (size_t)rows * (size_t)first : 0);
    box.start[0] = first;
    box.count[0] = n;
    leaf->keeper->read(leaf->keeper->data, leaf->array, box, host);
    return host;
}

const void *mx_leaf_values(MxArena *arena, const MxLeaf *leaf) {
    const void *there = mx_leaf_map(leaf);
    if (there) return there;
    void *copy = mx_arena_alloc(arena, mx_leaf_bytes(leaf) + 1);
    mx_leaf_read(leaf, copy);
    return copy;
}

void mx_leaf_read(const MxLeaf *leaf, void *host) {
    if (leaf->data)
        memcpy(host, leaf->data, mx_leaf_bytes(leaf));
    else
        leaf->keeper->read(leaf->keeper->data, leaf->array, kept_box(leaf), host);
}

void mx_leaf_write(const MxLeaf *leaf, const void *host) {
    if (leaf->data)
        memcpy(leaf->data, host, mx_leaf_bytes(leaf));
    else
        leaf->keeper->write(leaf->keeper->data, leaf->array, kept_box(leaf), host);
}

MxLeaf mx_leaf_abstract(MxLeaf leaf) {
    leaf.data = NULL;
    leaf.keeper = NULL;
    return leaf;
}

MxLeaf mx_leaf_on_host(MxArena *arena, MxLeaf leaf) {
    if (!mx_leaf_has_values(&leaf)) return leaf;
    leaf.data = mx_arena_alloc(arena, mx_leaf_bytes(&leaf) + 1);
    leaf.keeper = NULL;
    return leaf;
}

/* ---- trees */

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

uint64_t mx_tree_fingerprint(uint64_t before, const char *path, uint64_t values) {
    uint64_t parts[] = {before, mx_hash64(path, strlen(path)), values};
    return mx_hash64(parts, sizeof parts);
}
