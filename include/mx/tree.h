/* tree.h — named trees of arrays. A tree is a flat list of leaves whose paths have slashes;
 * parameters, optimizer state and checkpoints are all trees. The values of a leaf are in this
 * process's memory, or somebody keeps them; a leaf without values is abstract: it says what the
 * array is, not what it holds.
 *
 * Inside the program every layer has leaves of its own, with contiguous data. Stacked ("scanned")
 * layers exist only in checkpoints and shardings; a leaf remembers where it would sit in its stack.
 */
#ifndef MX_TREE_H
#define MX_TREE_H

#include <mx/base.h>

/* What a leaf is for; decides what is trained, saved and counted (MaxText's nnx variable kinds). */
typedef enum MxKind {
    MX_KIND_PARAM,
    MX_KIND_LORA_PARAM, /* adapters, beside the parameter that they adapt */
    MX_KIND_REFERENCE,  /* the frozen copy that preferences are measured against */
    MX_KIND_OPTIMIZER,  /* moments: one leaf for each trained parameter */
    MX_KIND_COUNTER,    /* step and update counts */
    MX_KIND_FROZEN,     /* parameters that this run does not train: an encoder of images */
} MxKind;

/* How a parameter starts. Truncation is at two standard deviations, with the deviation corrected so
 * that `std` is that of the truncated distribution (jax.nn.initializers.variance_scaling). */
typedef enum MxInitKind {
    MX_INIT_ZEROS,
    MX_INIT_ONES,
    MX_INIT_CONSTANT, /* `std` */
    MX_INIT_NORMAL,
    MX_INIT_TRUNCATED_NORMAL,
    MX_INIT_UNIFORM,     /* around 0, up to sqrt(3) deviations */
    MX_INIT_LOG_UNIFORM, /* the logarithm of a number between 0 and `std` */
} MxInitKind;

typedef struct MxInit {
    MxInitKind kind;
    double std;
    int64_t n_first;  /* of an array that is several in one: so many elements of the dims that are
                         not contracted, the first ones, … */
    double first_std; /* … have this deviation */
} MxInit;

/* Where a leaf sits when its layers are stacked into one array. count 0 = it stays alone, under
 * `path` if there is one (layers after the last whole block). */
typedef struct MxStack {
    const char *path; /* of the stacked array, "decoder/layers/mlp/wi_0/kernel" */
    const char *axis; /* logical name of the stacking dim, "layers" */
    int index, count;
    /* Where layers are stacked inside of stacks, the dim is two: count / inner, and inner, whose
     * logical name is inner_axis. 0 = it is one. */
    int inner;
    const char *inner_axis;
} MxStack;

/* How an array is divided among ranks. */
typedef struct MxDivision {
    int rank, n_ranks; /* this one, of so many */
    const MxBox *box;  /* [n_ranks] what of the array each has; equal boxes are copies */
    const int *first;  /* [n_ranks] the first rank with the same box */
} MxDivision;

/* Who keeps arrays that are not, or not always, in this process's memory: a run has its variables
 * on a device. Boxes are parts of what the keeper has; host memory is dense. */
typedef struct MxKeeper {
    void *data;
    void (*read)(void *data, int array, MxBox box, void *host);
    void (*write)(void *data, int array, MxBox box, const void *host);
    /* The array where it is, row-major, if this process may look there; else NULL. */
    void *(*map)(void *data, int array);
    /* All of an array that is kept in few bits, as the leaf's quant says; NULL = none is. */
    void (*write_codes)(void *data, int array, const uint8_t *codes, const float *scales);
} MxKeeper;

/* What MaxText's trees say of a leaf's axes besides. */
typedef enum MxBare {
    MX_AXES_OF_EACH,  /* of every dim, if only that there is none */
    MX_AXES_OF_STACK, /* nothing but that of its stack, before which Linen puts one that is none */
    MX_AXES_NONE
} MxBare;

typedef struct MxLeaf {
    const char *path; /* "decoder/layers_3/mlp/wi_0/kernel" */
    MxKind kind;
    MxDtype dtype;
    MxShape shape;
    const char *axes[MX_MAX_RANK]; /* logical axis of each dim; NULL = never sharded */
    MxBare bare;
    int n_batch;    /* leading dims that count matrices: those of experts, each a product's alone */
    int n_contract; /* dims after them that meet the input's: contracted by a product, multiplied by
                       a norm's scale; 0 = none (embeddings, biases) */
    MxInit init;
    const char
        *instead_of; /* a head of another kind; weights to start from may have that one, which
                        is then left out, or neither: it keeps its first values. NULL = none */
    MxQuant quant;   /* how a program keeps it */
    MxStack stack;
    void *data;                 /* values in this process's memory, row-major; or NULL, and … */
    const MxKeeper *keeper;     /* … somebody has them, or NULL: the leaf is abstract */
    int array;                  /* which of the keeper's it is */
    const MxDivision *division; /* values are this rank's box of the array; NULL = all of it */
} MxLeaf;

/* How query and key kernels are held, beside Hugging Face's, whose scores are q·k / sqrt(H) of
 * heads with rotated pairs in their two halves. */
typedef struct MxHeadForm {
    int64_t width;      /* H */
    double query_scale; /* query kernels are so much smaller: 1/sqrt(H) if nothing scales later */
    bool interleaves;   /* rotated pairs are neighbours */
    bool fuses_qkv, fuses_mlp; /* fused_qkv, fused_mlp: several of their arrays are one of ours */
} MxHeadForm;

typedef struct MxTree {
    MxArena *arena;
    MxLeaf *leaves;
    int n, cap;
    MxMap by_path;
} MxTree;

/* mx_leaf_part — what of the array this rank has. mx_leaf_bytes — how much that is. */
MxBox mx_leaf_part(const MxLeaf *leaf);
size_t mx_leaf_bytes(const MxLeaf *leaf);

/* Values of a leaf that is not abstract are those of its part. mx_leaf_has_values — it is not.
 * mx_leaf_map — where they are, if that is in this process's memory, else NULL. mx_leaf_rows — n
 * rows of the part's dim 0 (all of it if it has none): where they are, or read into `host`.
 * mx_leaf_values — all of them: where they are, or a copy in the arena. What keepers map is good
 * until they change it. mx_leaf_read, mx_leaf_write — all of them to and from the host. */
bool mx_leaf_has_values(const MxLeaf *leaf);
void *mx_leaf_map(const MxLeaf *leaf);
const void *mx_leaf_rows(const MxLeaf *leaf, int64_t first, int64_t n, void *host);
const void *mx_leaf_values(MxArena *arena, const MxLeaf *leaf);
void mx_leaf_read(const MxLeaf *leaf, void *host);
void mx_leaf_write(const MxLeaf *leaf, const void *host);
/* mx_leaf_abstract — the leaf without its values. mx_leaf_on_host — the leaf with memory for them
 * in the arena, which holds nothing yet; abstract ones stay so. */
MxLeaf mx_leaf_abstract(MxLeaf leaf);
MxLeaf mx_leaf_on_host(MxArena *arena, MxLeaf leaf);

void mx_tree_init(MxTree *tree, MxArena *arena);
/* mx_tree_add — a copy of the leaf at the end; a path occurs once. Strings are borrowed. Returns
 * its index. */
int mx_tree_add(MxTree *tree, MxLeaf leaf);
/* mx_tree_find — the leaf's index or -1. */
int mx_tree_find(const MxTree *tree, const char *path);
/* mx_tree_add_under — adds every leaf of `from` below `prefix` (paths of stacks too); returns the
 * first, so that the caller can say what they are there. */
MxLeaf *mx_tree_add_under(MxTree *tree, const char *prefix, const MxTree *from);
/* mx_tree_select — the leaves of a kind, as a tree of its own in the arena. */
MxTree *mx_tree_select(MxArena *arena, const MxTree *from, MxKind kind);
/* mx_tree_count — elements of all leaves of a kind. */
int64_t mx_tree_count(const MxTree *tree, MxKind kind);

/* mx_tree_fingerprint — of arrays: of those before (0 at first) and one more.
 *   values  mx_hash64 of its elements */
uint64_t mx_tree_fingerprint(uint64_t before, const char *path, uint64_t values);

#endif
