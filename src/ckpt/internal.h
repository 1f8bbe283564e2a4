/* internal.h — the tables of names, and the contents of a file in their terms. Reading, converting
 * and comparing all start from a survey of the file; only mx_ckpt_place determines where something
 * goes. */
#ifndef CKPT_INTERNAL_H
#define CKPT_INTERNAL_H

#include <mx/ckpt.h>
#include <mx/family.h>

#define CKPT_STATE_FILE "state.h5"

enum { CKPT_MAX_ALSO = 8, CKPT_MAX_PERIOD = 64 };

/* ---- names of sections (layout.c) */

/* A section of the state under its names: paths that start with `nnx` in memory and in NNX files
 * start with `linen` in Linen files; `also` are names that are only read. */
typedef struct CkptRow {
    const char *nnx;
    const char *linen; /* NULL = Linen files leave it out */
    const char *also[CKPT_MAX_ALSO];
    bool is_tree;       /* paths below it are those of parameters */
    bool has_moments;   /* such paths lie further inside, below mu and nu */
    bool is_param;      /* the model's weights: what mx_ckpt_load_params reads */
    bool is_random;     /* state of random numbers: its stacks have the layers first */
    bool is_optional;   /* not missed and not extra */
    bool counts_signed; /* uint32 in NNX files, int32 in Linen files */
} CkptRow;

extern const CkptRow ckpt_rows[];
extern const int ckpt_n_rows;

/* ckpt_row_of — the row that a path of the state (NNX names) belongs to, or NULL. */
const CkptRow *ckpt_row_of(const char *path);
/* ckpt_model_prefix — under which name a file keeps the parameters. is_sure  whether it was
 * recognized by what lies below it. */
const char *ckpt_model_prefix(const MxH5Array *arrays, int n, bool *is_sure);
/* ckpt_other_prefix — another one below which there are parameters, or NULL. */
const char *ckpt_other_prefix(const MxH5Array *arrays, int n, const char *prefix);
/* ckpt_state_path — a file's path under the state's names, or NULL if it belongs to no section. A
 * trailing "/value" and the "params/" below moments are gone. */
const char *ckpt_state_path(MxArena *arena, const char *model_prefix, const char *path,
                            const CkptRow **row);
/* ckpt_tree_part — where, in a path of the state, the path of a parameter starts; NULL = there is
 * none in it. */
const char *ckpt_tree_part(const CkptRow *row, const char *path);

/* ---- layers (stack.c) */

typedef enum CkptWhere {
    CKPT_ALONE, /* no layer */
    CKPT_LAYER, /* "layers_3/…", also spelled "layers/3/…" */
    CKPT_FLAT,  /* "layers/…": all layers in one array */
    CKPT_BLOCK, /* "layers/layers_1/…": layers 1, 1 + cycle, 1 + 2 cycle … in one array */
    CKPT_REST,  /* "layers_remainder/layers_1/…": a layer after the last whole cycle, alone */
    CKPT_FIRST, /* "layers_0/…" beside "scanned_blocks/…": a layer before them, alone */
} CkptWhere;

/* Where a parameter's path is in the model's stacks. */
typedef struct CkptSpot {
    CkptWhere where;
    int head;          /* bytes before the segment that names the layers: "decoder/" */
    const char *name;  /* of one layer without its number: "layers", "moe_layers" */
    const char *outer; /* of a stack: "layers", "scanned_blocks" */
    const char *place; /* of a place in a block: "layers_", "layer_"; NULL = it is in a run */
    const struct MxRuns *runs; /* of the block, or NULL */
    int number; /* of the layer, the place in the block, or the place in the rest; of the first one
                   that is stacked here */
    int inner;  /* places of a run that are stacked here, in blocks along a dim of their own */
    const char *tail; /* "mlp/wi_0/kernel", inside the path */
} CkptSpot;

CkptSpot ckpt_spot(const char *param_path);

/* The layers of one kind: "decoder/layers", "decoder/moe_layers". */
typedef struct CkptGroup {
    const char *key, *name;
    bool is_scanned, is_unscanned, is_flat;
    MxStacking how; /* of a scanned file */
    int n_blocks;   /* length of the stacked dim; 0 = none seen */
    int n_rest;
    int n_layers;
    uint64_t places, rests; /* bits: places in the block, and in the rest, that were seen */
} CkptGroup;

/* ckpt_stacking — how the layers of a group are to be stacked when the source is not: by the
 * decoder block's row; or by what a conversion noted in the file; or by names that only one family
 * has; or all in one array. evidence  says which, for the user. */
MxStacking ckpt_stacking(const CkptGroup *group, const MxRestack *options, const char *note,
                         const MxH5Array *arrays, int n, const char **evidence);
/* ckpt_stack_note — how the groups are stacked, as text for ckpt_stacking to read; "" = not at all.
 */
const char *ckpt_stack_note(MxArena *arena, const CkptGroup *groups, int n);
/* ckpt_stacked_shape — the shape of the array that a leaf is a slice of, and in which dim. */
MxShape ckpt_stacked_shape(MxShape leaf, int count, int scan_axis, int *scan_dim);
/* ckpt_shape_of_stack — the same of a stack that may have layers inside of it. ckpt_box_in_stack —
 * a box of a leaf where one layer of the stack has it. ckpt_box_of_stack — of all layers. */
MxShape ckpt_shape_of_stack(MxShape leaf, const MxStack *stack, int scan_axis, int *scan_dim);
MxBox ckpt_box_in_stack(MxBox box, const MxStack *stack, int scan_dim, int index);
MxBox ckpt_box_of_stack(MxBox box, const MxStack *stack, int scan_dim);
/* ckpt_scan_dim — the dim of the layers in a stacked array. */
int ckpt_scan_dim(const CkptRow *row, MxShape stacked, int scan_axis);

/* ---- what a file holds (survey.c) */

typedef struct CkptEntry {
    const MxH5Array *array;
    const CkptRow *row; /* NULL = belongs to no section */
    const char *path;   /* under the state's names, stacks as they are in the file */
    const char *tree;   /* where the parameter's path starts in it, or NULL */
    CkptSpot spot;
    int group; /* -1 = no layer */
} CkptEntry;

typedef struct CkptSurvey {
    const char *name; /* of the file, for messages */
    const char *model_prefix;
    bool is_sure; /* the parameters were recognized */
    bool is_linen, has_values;
    bool is_scanned;
    bool is_divided; /* layers with n-gram memories stand alone whatever is stacked */
    int scan_axis;
    CkptEntry *entries; /* in the order of the arrays */
    int n;
    MxMap by_path; /* of entries */
    CkptGroup *groups;
    int n_groups;
} CkptSurvey;

/* ckpt_survey_names — entries under the state's names.
 * Errors: two arrays of one name. */
bool ckpt_survey_names(MxArena *arena, const char *name, const MxH5Array *arrays, int n,
                       CkptSurvey *out, MxError *err);
/* ckpt_survey — also the groups of layers and the scan axis, one decision for the whole file:
 * `scan_axis` if every stack agrees with it (-1 = no preference), else the first of 1, 0, 2 … that
 * does.
 * Errors: all of them: no axis fits; layers, or places in a block, are missing; both forms at once.
 */
bool ckpt_survey(MxArena *arena, const char *name, const MxH5Array *arrays, int n, int scan_axis,
                 CkptSurvey *out, MxError *err);

/* How an entry holds layers. ckpt_is_stack — along a dim, of whole blocks or all. ckpt_n_inside —
 * as many more inside of blocks, along the next dim; 0 = none. ckpt_is_run_in_rest — those behind
 * the last whole block, along a dim. ckpt_layers_dim — that dim with a scan axis; -1 = there is
 * none. ckpt_n_layers — its length; -1 = it cannot be one of layers. */
bool ckpt_is_stack(const CkptEntry *e);
int ckpt_n_inside(const CkptEntry *e);
bool ckpt_is_run_in_rest(const CkptEntry *e);
int ckpt_layers_dim(const CkptEntry *e, int axis);
int64_t ckpt_n_layers(const CkptEntry *e, int axis);

/* ---- as a tree (leaves.c) */

/* A leaf of the state and the part of an array of the file that it is. */
typedef struct CkptPiece {
    int entry;
    int scan_dim, index; /* scan_dim -1 = the whole array */
    int inner;           /* as of MxStack */
    MxQuant quant;       /* it is read as a run has it that keeps it in few bits */
} CkptPiece;

/* ckpt_leaves — the state as a tree, and where each leaf is. split  gives every layer leaves of its
 * own; otherwise stacks stay leaves. Arrays of no section are leaves under their own path.
 *   n_left  random-number arrays that stand for no layer and were left out */
bool ckpt_leaves(MxArena *arena, const CkptSurvey *survey, bool split, MxTree *tree,
                 CkptPiece **pieces, int *n_left, MxError *err);

/* ckpt_refuse_integers — says that an array holds no values of parameters, and the way out.
 * ckpt_check_floats — that parameters do, and moments, or codes of these. Errors: every one that
 * does not. */
void ckpt_refuse_integers(const char *file, const MxH5Array *array, MxError *err);
bool ckpt_check_floats(const CkptSurvey *survey, MxError *err);

/* ckpt_form_text — "nnx names, layers stacked at dim 1". */
const char *ckpt_form_text(MxArena *arena, const CkptSurvey *survey);

/* ---- an open checkpoint (open.c) */

typedef struct CkptFile {
    MxCkptRef ref;
    MxH5 *file;
    struct CkptHf *hf; /* instead of it: a folder of Hugging Face's */
    MxH5Array *arrays;
    const MxQuant *quants; /* [arrays] how the file keeps them; NULL = as they are */
    int n;
    CkptSurvey survey;
    const char *note; /* of block cycles, or NULL */
} CkptFile;

bool ckpt_open(MxArena *arena, const MxCkptRef *ref, CkptFile *out, MxError *err);
/* ckpt_read_tree — as mx_ckpt_read, of a source that was listed. */
bool ckpt_read_tree(const CkptFile *source, const char *section, int scan_axis, MxTree *tree,
                    MxError *err);
/* ckpt_set_note — keeps the text of ckpt_stack_note in a created file. */
bool ckpt_set_note(MxH5 *file, const char *note, MxError *err);
/* ckpt_source_text — what it is, for messages: its form, or "Hugging Face's llama". */
const char *ckpt_source_text(MxArena *arena, const CkptFile *file);
/* ckpt_tokenizer — as mx_ckpt_tokenizer, of an open source. ckpt_tell_tokenizer,
 * ckpt_note_tokenizer — records it in a manifest, or in a created file. */
bool ckpt_tokenizer(MxArena *arena, const CkptFile *file, MxCkptTokenizer *out, MxError *err);
void ckpt_tell_tokenizer(MxArena *arena, const MxCkptTokenizer *tokenizer, MxJson *manifest);
/* ckpt_tell_model — puts into a manifest which model of Hugging Face's the weights were: what the
 * source's says, or the one that is converted (heads.c). */
void ckpt_tell_model(MxArena *arena, const MxCkptOrigin *origin, MxJson *manifest);
bool ckpt_note_tokenizer(MxArena *arena, MxH5 *file, const MxCkptTokenizer *tokenizer,
                         MxError *err);
/* ckpt_list — the arrays of a source, its form not looked at. */
bool ckpt_list(MxArena *arena, const MxCkptRef *ref, CkptFile *out, MxError *err);
/* ckpt_config_said — as mx_config_said, of the config in a manifest; "" also without a manifest. */
const char *ckpt_config_said(MxArena *arena, const MxJson *manifest, MxKey key);
/* ckpt_read_piece — part of a leaf; box in the leaf's own dims. */
bool ckpt_read_piece(const CkptFile *file, const CkptPiece *piece, MxBox box, MxDtype dtype,
                     void *out, MxError *err);

/* ---- arrays that a file keeps in few bits (codes.c) */

/* ckpt_join_codes — of the arrays of a file that was listed those that are codes and scales become
 * one of floats. Errors: codes without scales, or of a kind that is not known. */
bool ckpt_join_codes(MxArena *arena, CkptFile *file, MxError *err);
static inline MxQuant ckpt_quant(const CkptFile *file, int entry) {
    return file->quants ? file->quants[entry] : (MxQuant){0};
}
/* ckpt_read_codes — of a box of whole blocks. ckpt_read_coded — a box of values. */
bool ckpt_read_codes(const CkptFile *file, int entry, MxBox box, uint8_t *codes, float *scales,
                     MxError *err);
bool ckpt_read_coded(const CkptFile *file, int entry, MxBox box, MxDtype dtype, void *out,
                     MxError *err);
/* ckpt_make_codes — an array in a created file. ckpt_write_codes — a box of whole blocks of it. */
bool ckpt_make_codes(MxH5 *file, const char *path, MxQuant quant, MxShape shape, MxError *err);
bool ckpt_write_codes(MxH5 *file, const char *path, MxQuant quant, MxBox box, const uint8_t *codes,
                      const float *scales, MxError *err);
/* ckpt_quant_in_stack — of an array whose layers lie along a dim (-1 = it is none), by that of one
 * layer. ckpt_quant_of_layer — the other way round. */
MxQuant ckpt_quant_in_stack(MxQuant layer, int scan_dim);
MxQuant ckpt_quant_of_layer(MxQuant stacked, int scan_dim);

/* ---- ranks (share.c) */

/* Who writes what: of ranks with the same box of an array, the one that has least to write. */
typedef struct CkptShares {
    int n_ranks, n;           /* ranks; leaves */
    bool *writes;             /* [leaf, rank], at the first leaf of an array */
    int64_t *bytes;           /* [rank] */
    const char *const *names; /* [rank] of its file */
} CkptShares;

/* ckpt_shares — the same on every rank. unique  a part of the files' names. */
CkptShares ckpt_shares(MxArena *arena, MxForm form, const MxTree *tree, const char *unique);
static inline bool ckpt_writes(const CkptShares *shares, int leaf, int rank) {
    return shares->writes[(int64_t)leaf * shares->n_ranks + rank];
}
/* ckpt_is_first — whether an array of a file begins with this leaf: its only one, or layer 0. */
static inline bool ckpt_is_first(MxForm form, const MxLeaf *leaf) {
    return !form.is_scanned || !leaf->stack.count || !leaf->stack.index;
}
/* ckpt_division — how a tree is divided; NULL = it is not. */
static inline const MxDivision *ckpt_division(const MxTree *tree) {
    return tree->n ? tree->leaves[0].division : NULL;
}

/* ---- boxes */

/* ckpt_write — every array of an undivided tree; of a divided one those that have dims and values:
 * this rank's box of each. pace  a brake, or NULL. */
bool ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxPace *pace, MxError *err);
/* ckpt_write_views — a divided tree's arrays whole, as they are in the files of all ranks beside
 * this one; those without dims as values. */
bool ckpt_write_views(MxH5 *file, MxForm form, const MxTree *tree, const CkptShares *shares,
                      MxError *err);

static inline MxShape ckpt_box_shape(const MxBox *box) {
    MxShape shape = {.rank = box->rank};
    memcpy(shape.dim, box->count, sizeof shape.dim);
    return shape;
}

/* ckpt_box — the part of an array that a leaf is. */
static inline MxBox ckpt_box(MxShape shape, int scan_dim, int index) {
    MxBox box = mx_box_of(shape);
    if (scan_dim >= 0) {
        box.start[scan_dim] = index;
        box.count[scan_dim] = 1;
    }
    return box;
}

/* An array in pieces that are contiguous in it, in order. */
typedef struct CkptTiles {
    MxShape shape;
    int outer;                 /* the dim of which pieces have one index each, in turn; -1 = none */
    int64_t size[MX_MAX_RANK]; /* of a piece that no end cuts */
    MxBox box;                 /* the piece at hand */
} CkptTiles;

enum { CKPT_TILE_ELEMENTS = 1 << 20 };

/* ckpt_tiles_start — at the first piece; false if there is none, the array being empty. */
bool ckpt_tiles_start(CkptTiles *tiles, MxShape shape, int64_t max_elements);
/* ckpt_tiles_start_by — the same, all pieces with one index of a dim (-1 = any) before the next
 * one's. They are not contiguous then. */
bool ckpt_tiles_start_by(CkptTiles *tiles, MxShape shape, int outer, int64_t max_elements);
/* ckpt_tiles_start_blocks — pieces of whole blocks of an array that is to be kept in few bits. */
bool ckpt_tiles_start_blocks(CkptTiles *tiles, MxShape shape, int outer, MxQuant quant,
                             int64_t max_elements);
/* ckpt_tiles_next — at the next one, if there is one. */
bool ckpt_tiles_next(CkptTiles *tiles);

#endif
