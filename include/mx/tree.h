/* tree.h — named trees of arrays. A tree is a flat list of leaves whose paths have slashes;
 * parameters, optimizer state and checkpoints are all trees. The values of a leaf are in this
 * process's memory, or a keeper holds them. A leaf without values is abstract: it describes the
 * array, not its contents.
 *
 * Inside the program every layer has its own leaves, with contiguous data. Stacked ("scanned")
 * layers exist only in checkpoints and shardings; a leaf records its position in its stack. */
#ifndef MX_TREE_H
#define MX_TREE_H

#include <mx/base.h>

/* The purpose of a leaf. It decides what is trained, saved and counted (MaxText's nnx variable
 * kinds). */
typedef enum MxKind {
    MX_KIND_PARAM,
    MX_KIND_LORA_PARAM, /* adapters, beside the parameter that they adapt */
    MX_KIND_REFERENCE,  /* the frozen copy that preference losses compare with */
    MX_KIND_OPTIMIZER,  /* moments: one leaf for each trained parameter */
    MX_KIND_COUNTER,    /* step and update counts */
    MX_KIND_FROZEN,     /* parameters that this run does not train: an image encoder */
    MX_KIND_ALIAS, /* a second path of another leaf's array. Files have it under both; of weights
                      that a run starts from, only the other one is read */
} MxKind;

/* How a parameter is initialised. Truncation is at two standard deviations, with the deviation
 * corrected so that `std` is that of the truncated distribution
 * (jax.nn.initializers.variance_scaling). */
typedef enum MxInitKind {
    MX_INIT_ZEROS,
    MX_INIT_ONES,
    MX_INIT_CONSTANT, /* `std` */
    MX_INIT_NORMAL,
    MX_INIT_TRUNCATED_NORMAL,
    MX_INIT_UNIFORM,     /* around 0, up to sqrt(3) deviations */
    MX_INIT_LOG_UNIFORM, /* the logarithm of a number between 0 and `std` */
    MX_INIT_CYCLE,       /* the element's index modulo `std` */
} MxInitKind;

typedef struct MxInit {
    MxInitKind kind;
    double std;
    int64_t n_first;  /* for an array that consists of several: this number of first elements of the
                         uncontracted dims … */
    double first_std; /* … have this deviation */
} MxInit;

/* The position of a leaf when its layers are stacked into one array. count 0 = it stays separate,
 * under `path` if there is one (layers after the last whole block). */
typedef struct MxStack {
    const char *path; /* path of the stacked array, "decoder/layers/mlp/wi_0/kernel" */
    const char *axis; /* logical name of the stacking dim, "layers" */
    int index, count;
    /* If layers are stacked inside stacks, there are two dims: count / inner, and inner, whose
     * logical name is inner_axis. 0 = one dim. */
    int inner;
    const char *inner_axis;
} MxStack;

/* How an array is divided among ranks. */
typedef struct MxDivision {
    int rank, n_ranks; /* this rank, and the number of ranks */
    const MxBox *box;  /* [n_ranks] the part of the array that each has; equal boxes are copies */
    const int *first;  /* [n_ranks] the first rank with the same box */
} MxDivision;

/* Holds arrays that are not, or not always, in this process's memory: for example, a run has its
 * variables on a device. Boxes are parts of the keeper's array; host memory is dense. */
typedef struct MxKeeper {
    void *data;
    void (*read)(void *data, int array, MxBox box, void *host);
    void (*write)(void *data, int array, MxBox box, const void *host);
    /* The array in place, row-major, if this process can access it; otherwise NULL. */
    void *(*map)(void *data, int array);
    /* Writes a whole array that is stored in few bits as the leaf's quant says; NULL = there are
     * none. */
    void (*write_codes)(void *data, int array, const uint8_t *codes, const float *scales);
} MxKeeper;

/* How MaxText's trees record the axes of a leaf. */
typedef enum MxBare {
    MX_AXES_OF_EACH,  /* for every dim, possibly as none */
    MX_AXES_OF_STACK, /* only that of its stack; Linen puts none before it, up to param_scan_axis */
    MX_AXES_NONE
} MxBare;

typedef struct MxLeaf {
    const char *path; /* "decoder/layers_3/mlp/wi_0/kernel" */
    MxKind kind;
    MxDtype dtype;
    MxShape shape;
    const char *axes[MX_MAX_RANK]; /* logical axis of each dim; NULL = never sharded */
    MxBare bare;
    int n_batch;    /* leading dims that enumerate matrices: those of experts */
    int n_contract; /* number of following dims that match the input's: contracted by a product, or
                       multiplied by a norm's scale; 0 = none (embeddings, biases) */
    MxInit init;
    const char *instead_of; /* path of a head of another kind. Initial weights may contain that one,
                               which is then ignored, or neither: this leaf then keeps its initial
                               values. NULL = none */
    const char *stands_for; /* path of the frozen parameter of which this one is a copy at first,
                               and in the place of which it is trained and read; NULL = none */
    double rate;            /* it learns at so many times the learning rate; 0 = at that itself */
    bool is_unoptimized;    /* no parameter: it has no gradient, and optimizers leave it alone */
    bool is_of_experts;     /* has a part for each expert */
    bool may_start_anew;    /* files may lack it or have it in another shape: it keeps its values */
    MxQuant quant;          /* how a program stores it */
    MxStack stack;
    void *data;             /* values in this process's memory, row-major, or NULL … */
    const MxKeeper *keeper; /* … and the keeper of the values, or NULL: the leaf is abstract */
    int array;              /* index of the keeper's array */
    const MxDivision *division; /* values are this rank's box; NULL = the whole array */
} MxLeaf;

/* The form of query and key kernels relative to Hugging Face's, whose scores are q·k / sqrt(H) of
 * heads with rotated pairs in their two halves. */
typedef struct MxHeadForm {
    int64_t width;      /* H */
    double query_scale; /* factor of query kernels: 1/sqrt(H) if queries are not scaled later */
    bool interleaves;   /* rotated pairs are neighbours */
    bool fuses_qkv, fuses_mlp; /* several of their arrays are one array of ours */
} MxHeadForm;

typedef struct MxTree {
    MxArena *arena;
    MxLeaf *leaves;
    int n, cap;
    MxMap by_path;
} MxTree;

/* mx_leaf_part — the part of the array that this rank has. mx_leaf_bytes — its size. */
MxBox mx_leaf_part(const MxLeaf *leaf);
size_t mx_leaf_bytes(const MxLeaf *leaf);

/* Values of a leaf's part. mx_leaf_has_values — whether the leaf is not abstract. mx_leaf_map — the
 * values in place, if they are in this process's memory, otherwise NULL. mx_leaf_rows — n rows of
 * the part's dim 0 (all values if it has no dims): in place, or read into `host`. mx_leaf_values —
 * all values: in place, or a copy in the arena. Mapped values are valid until the keeper changes
 * them. mx_leaf_read, mx_leaf_write — copy all values to and from the host. */
bool mx_leaf_has_values(const MxLeaf *leaf);
void *mx_leaf_map(const MxLeaf *leaf);
const void *mx_leaf_rows(const MxLeaf *leaf, int64_t first, int64_t n, void *host);
const void *mx_leaf_values(MxArena *arena, const MxLeaf *leaf);
void mx_leaf_read(const MxLeaf *leaf, void *host);
void mx_leaf_write(const MxLeaf *leaf, const void *host);
/* mx_leaf_abstract — the leaf without its values. mx_leaf_on_host — the leaf with uninitialised
 * memory for its values in the arena; abstract leaves stay abstract. */
MxLeaf mx_leaf_abstract(MxLeaf leaf);
MxLeaf mx_leaf_on_host(MxArena *arena, MxLeaf leaf);

void mx_tree_init(MxTree *tree, MxArena *arena);
/* mx_tree_add — appends a copy of the leaf and returns its index; a path may occur only once.
 * Strings are borrowed. */
int mx_tree_add(MxTree *tree, MxLeaf leaf);
/* mx_tree_find — the leaf's index or -1. */
int mx_tree_find(const MxTree *tree, const char *path);
/* mx_tree_add_under — adds every leaf of `from` below `prefix` (paths of stacks too); returns the
 * first, so that the caller can change their kind. */
MxLeaf *mx_tree_add_under(MxTree *tree, const char *prefix, const MxTree *from);
/* mx_tree_select — the leaves of a kind, as a separate tree in the arena. */
MxTree *mx_tree_select(MxArena *arena, const MxTree *from, MxKind kind);
/* mx_tree_count — number of elements in all leaves of a kind. */
int64_t mx_tree_count(const MxTree *tree, MxKind kind);

/* mx_tree_fingerprint — the fingerprint of the arrays so far (`before`, 0 at first) and one more.
 *   values  mx_hash64 of its elements */
uint64_t mx_tree_fingerprint(uint64_t before, const char *path, uint64_t values);

#endif
