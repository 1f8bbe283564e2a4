/* hf.h — Hugging Face models in our terms: the table of names and shapes, an open folder of
 * tensors, config.json. Names are in hf_names.c and hf_params.c, maps in hf_map.c, reading folders
 * in hf_read.c, making tensors in hf_make.h, writing folders in hf_write.c, config.json in
 * hf_members.h; adapters of the same models in peft.h. */
#ifndef CKPT_HF_H
#define CKPT_HF_H

#include "hf_members.h"

/* ---- names (hf_names.c, hf_params.c) */

/* How their classes end, of models with logits and of those with scores. */
#define HF_SPEAKS     "ForCausalLM"
#define HF_CLASSIFIES "ForSequenceClassification"

/* What their values are beside ours. */
typedef enum HfRole {
    HF_PLAIN,
    HF_KEY,   /* heads are rotated */
    HF_QUERY, /* heads are rotated and scaled */
    HF_SCALE, /* of a norm, from which theirs may differ by 1 */
    HF_TABLE, /* of embeddings, which may be scaled */
    HF_IDS,   /* whole numbers, theirs 64 bits */
} HfRole;

/* Which models have it. */
enum {
    HF_ALL = 0,
    HF_UNTIED = 1,
    HF_BIAS = 2,
    HF_OUT_BIAS = 4,
    HF_QK_NORM = 8,
    HF_QKV = 16, /* kept apart, or in one array */
    HF_ONE_QKV = 32,
    HF_MLP = 64,
    HF_ONE_MLP = 128,
    HF_APART = 256, /* norms of queries and keys are one a head, or one over all */
    HF_TOGETHER = 512,
    HF_GATED = 1024, /* a query has a gate beside it */
    HF_PLAIN_Q = 2048,
    HF_SINKS = 4096,
    HF_SCORE_BIAS = 8192,
    HF_NARROW_Q = 16384, /* queries are made of a narrow vector, or not */
    HF_WIDE_Q = 32768,
    HF_INDEXER = 65536,
    HF_DELTA_ONE = 1 << 17, /* products of a delta net are in two tensors, or in four */
    HF_DELTA_APART = 1 << 18,
    HF_INPUTS = 1 << 19, /* layers read something beside the stream */
};

/* Of the same, which only some layers of a model may have. */
enum {
    HF_KEYS = 1 << 20,       /* they have keys of their own, … */
    HF_VALUES = 1 << 21,     /* … and values that are not these */
    HF_OWN_ROUTER = 1 << 22, /* the router has a scale of its own and others behind it, or not */
    HF_PLAIN_ROUTER = 1 << 23,
    HF_SCALAR = 1 << 24,    /* the layer's result is multiplied with a number */
    HF_POOLS_ALL = 1 << 26, /* keys include rows of all windows, or of chosen ones */
    HF_POOLS_CHOSEN = 1 << 27,
    HF_HASHES = 1 << 28, /* a table chooses experts, or their scores do */
    HF_CHOOSES = 1 << 29,
    HF_OF_LAYERS = HF_KEYS | HF_VALUES | HF_OWN_ROUTER | HF_PLAIN_ROUTER | HF_SCALAR |
                   HF_POOLS_ALL | HF_POOLS_CHOSEN | HF_HASHES | HF_CHOOSES,
    HF_SCORE = 1 << 25,   /* a head of one number in place of logits */
    HF_STREAMS = 1 << 30, /* the stream has several rows a token */
};

/* Where a parameter is: outside of layers, in one of a layer's blocks, or a norm before or after
 * it. Our names of blocks and norms are the family's, and so are their names of norms. */
typedef enum HfHolder {
    HF_MODEL,
    HF_LAYER, /* in the layer itself */
    HF_NORM,
    HF_ATTENTION,
    HF_MLA,
    HF_COMPRESSED,
    HF_DELTA,
    HF_GLU,
    HF_MOE, /* in the block beside its experts */
    HF_ROUTED,
    HF_SHARED,      /* the unit for all tokens … */
    HF_SHARED_GATE, /* … and what it is multiplied with */
    HF_EYE,         /* of an encoder of images, … */
    HF_EYE_TOWER,   /* … below its tower's path, … */
    HF_EYE_EXIT,    /* … below its projector's, … */
    HF_EYE_LAYER,   /* … of its layers, … */
    HF_EYE_DEEP,    /* … and of what adds to the decoder's layers */
    HF_EAR_TOWER,   /* Of the encoder of sounds beside it, as these */
    HF_EAR_EXIT,
    HF_EAR_LAYER,
} HfHolder;

/* One tensor of theirs and the parameter, or part of one, that it is, or one that it is a part of;
 * a layer's below "decoder/layers_<i>/" and "model.layers.<i>.", and the names of blocks. Shapes
 * are letters (size_of in hf_map.c), a word a dim, a dim of several letters being their product: "D
 * N H" is [D, N, H], "NH D" the matrix of the same elements the other way round. A 2 that only
 * their shape has is a dim of several parameters: "X D 2E" has gates before the others, "X D E2"
 * each beside its other. H, K, M and S are those of the layer. */
typedef struct HfRow {
    HfHolder holder;
    int norm;                  /* of HF_NORM: index into MxHfNames.norms */
    const char *ours, *theirs; /* theirs NULL = they have none, and ours are ones */
    const char *bare;          /* theirs, in models of MxHfNames.is_bare, whose modules have theirs
                                  only in memory; NULL = the same */
    const char *our_shape, *their_shape;
    const char *folds; /* ours, in the same layer, of a vector that they do not have: each row of
                          theirs is this one's times an element of it; NULL = none */
    HfRole role;
    int wants;           /* of the bits above */
    MxHfExperts experts; /* of these alone; MX_HF_EXPERTS_NONE = any */
    const char *encoder; /* of these encoders of images, a blank between them */
    const char *whole;   /* the shape of our array, of which our_shape is a part that is cut in one
                            dim; NULL = all of it */
    const char *first;   /* where the part starts in that dim: a sum of products, "N+K" or "%I"; % =
                            which it is of those that a layer has */
    const char *their_whole, *their_first; /* the same of their tensor, in its first dim */
    char each; /* the letter of how many a layer has: tensors with %d in their name, or
                  parts of one; 0 = one */
    int which; /* of their dim of several parameters */
} HfRow;

enum { HF_EMBEDDING = 0 }; /* the row of the table of tokens */
extern const HfRow hf_rows[];
extern const int hf_n_rows;

/* hf_family — the family of a config.json, or of its text_config, and its names; NULL = none that
 * is built. */
const MxFamily *hf_family(const MxJson *config, const MxHfNames **names);
/* hf_is_outer — whether it is the type of a model that has such a one as its text_config. */
bool hf_is_outer(const MxHfNames *names, const char *model_type);
/* hf_has_block — whether some layers of the family have such a block. */
bool hf_has_block(const MxHfNames *names, MxBlockKind kind);
/* hf_family_of — that of a model. */
const MxFamily *hf_family_of(const MxHfModel *model);
/* hf_names_of — of what a config of ours tells; NULL = Hugging Face has no such model. */
const MxHfNames *hf_names_of(const MxConfig *config);
/* hf_families — all model types, for messages. */
const char *hf_families(MxArena *arena);
/* hf_model_layers — the layers of a model. hf_layers — how many there are, as Hugging Face counts
 * them. */
MxLayers hf_model_layers(const MxHfModel *model);
int64_t hf_layers(const MxHfModel *model);
/* hf_count — how many places a model has for a parameter: one, some in each layer, or none.
 * hf_has — whether it has one at the i-th, which only layers of some kinds do. */
int64_t hf_count(const MxHfModel *model, const HfRow *row);
bool hf_has(const MxHfModel *model, const HfRow *row, int i);
/* hf_our_name, hf_their_name — of a row's i-th parameter. */
const char *hf_our_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i);
const char *hf_their_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i);
/* hf_is_eye — whether a row is of an encoder of images, or of the sounds beside it; hf_is_ear — of
 * these. */
static inline bool hf_is_eye(const HfRow *row) {
    return row->holder >= HF_EYE;
}
static inline bool hf_is_ear(const HfRow *row) {
    return row->holder >= HF_EAR_TOWER;
}
/* hf_spec — the layer's that has it; NULL = no layer's. hf_each — how many a layer has of a row. */
const MxLayerSpec *hf_spec(const MxHfModel *model, const HfRow *row, int i);
int hf_each(const MxHfModel *model, const HfRow *row);
/* hf_size — what a letter stands for in a layer. */
int64_t hf_size(const MxHfModel *model, const MxLayerSpec *spec, char letter);
/* hf_most_names — no model has more tensors. */
int64_t hf_most_names(const MxHfModel *model);
/* hf_architecture — the name of their class. */
const char *hf_architecture(MxArena *arena, const MxHfModel *model);
/* hf_block_name — their name of what a row is in: "self_attn". */
const char *hf_block_name(MxArena *arena, const MxHfNames *names, const HfRow *row);
/* hf_place_in_head — where element i of a head whose pairs are neighbours is in one whose pairs are
 * halves: of pair k, (2k, 2k + 1) here and (k, k + width/2) there. */
static inline int64_t hf_place_in_head(int64_t width, int64_t i) {
    return i / 2 + i % 2 * (width / 2);
}
/* hf_place_spread — the inverse. */
static inline int64_t hf_place_spread(int64_t width, int64_t i) {
    return i % (width / 2) * 2 + i / (width / 2);
}
/* hf_factor — what their elements are multiplied by to be ours. */
static inline float hf_factor(const MxHeadForm *heads, HfRole role) {
    return role == HF_QUERY ? (float)heads->query_scale : 1;
}

/* Elements of a run lie at most so far apart in theirs. */
enum { HF_APART_MOST = 2 };

/* How elements of one of our arrays lie in theirs. */
typedef struct HfMap {
    MxShape ours, theirs;
    MxBox part;                  /* what of ours is there */
    int64_t stride[MX_MAX_RANK]; /* in theirs, of a step in each of our dims */
    int64_t offset;              /* in theirs, of the first element */
    int inner;                   /* the dim whose elements are next to each other there, or next but
                                    one; -1 = none */
    int rotated;                 /* the dim within a head whose pairs lie otherwise; -1 = none */
    bool spreads;       /* ours are halves and theirs neighbours, not the other way round */
    float factor, term; /* ours = theirs times the factor, plus the term */
} HfMap;

/* hf_in_ours, hf_in_theirs — a value on the other side. A sum with 0 would make -0 a 0. */
static inline float hf_in_ours(const HfMap *map, float theirs) {
    return map->term != 0 ? theirs * map->factor + map->term : theirs * map->factor;
}
static inline float hf_in_theirs(const HfMap *map, float ours) {
    return map->term != 0 ? (ours - map->term) / map->factor : ours / map->factor;
}

/* hf_map — of a row's i-th parameter. */
HfMap hf_map(const MxHfModel *model, const HfRow *row, int i);
/* hf_values — a map with nothing but what becomes of values. */
HfMap hf_values(const MxHfModel *model, HfRole role);

/* Elements of a box that are neighbours in theirs. */
typedef struct HfRun {
    const HfMap *map;
    MxBox dense;                /* what the elements are read into, or out of */
    MxBox box;                  /* what of it is in the map's part */
    int64_t index[MX_MAX_RANK]; /* of the run, within the box; 0 in the inner dim */
    int64_t n;                  /* elements in it */
    int64_t at, step;           /* of the first one in the dense box, and on to the next */
    int64_t theirs, apart;      /* the same in their array */
} HfRun;

/* hf_run_start — at the first run of a box within a dense one; false if it has nothing of the map's
 * part. hf_run_next — at the next one. */
bool hf_run_start(HfRun *run, const HfMap *map, const MxBox *dense, const MxBox *box);
bool hf_run_next(HfRun *run);

/* hf_span — between which elements of theirs those of a box in the map's part lie; to  behind the
 * last. hf_written_bytes — how much of a tensor is made at a time (hf_pieces.c). */
void hf_span(const HfMap *map, const MxBox *box, int64_t *from, int64_t *to);
int64_t hf_written_bytes(void);

/* hf_put — element i of an array of MX_F32, MX_F64, MX_BF16 or MX_I64. */
static inline void hf_put(void *array, MxDtype dtype, int64_t i, float value) {
    if (dtype == MX_F32) ((float *)array)[i] = value;
    if (dtype == MX_F64) ((double *)array)[i] = (double)value;
    if (dtype == MX_BF16) ((MxBf16 *)array)[i] = mx_f32_to_bf16(value);
    if (dtype == MX_I64) ((int64_t *)array)[i] = (int64_t)value;
}

/* ---- folders (hf_read.c) */

#define HF_TENSORS "model.safetensors"
#define HF_INDEX   "model.safetensors.index.json"

/* A parameter, or part of one, and the tensor that it is. */
typedef struct HfLink HfLink;
/* What a tensor is put together of, along a dim (hf_meta.c). */
typedef struct HfParts {
    int cut, n;
    MxTensors *const *file;  /* [n] */
    const MxTensor **tensor; /* [n] */
} HfParts;
/* What codes stand for: floats of 8 and 4 bits, powers of two, whole numbers from 0 on, or from
 * -128 on. */
typedef enum HfNumber { HF_E4M3, HF_E2M1, HF_E8M0, HF_WHOLE, HF_SIGNED, HF_N_NUMBERS } HfNumber;
/* Numbers in a tensor of rows: of elements of matrices, of their blocks, or of groups of blocks. */
typedef struct HfPlane {
    const MxTensors *file;
    const MxTensor *tensor; /* NULL = there are none */
    const float *values;    /* what codes stand for, [256] or as many as there are; NULL = the
                               tensor has floats */
    int bits;               /* of a code, where an element has several; 0 = an element is one */
    bool is_turned;         /* a row of them is of a column of the matrix */
    bool packs_rows;        /* an element has codes of neighbouring rows, not of one row */
    const uint8_t *order;   /* in which place of it each one is; NULL = the lowest bits have the
                               first */
    int64_t rows, columns;  /* of elements of the tensor, of one matrix */
    int64_t each;           /* rows of a matrix, where there are several */
    int64_t count[2];       /* numbers of a matrix's rows and columns */
    int64_t block[2];       /* rows and columns of a matrix that share one */
} HfPlane;

/* A tensor in few bits (hf_scaled.c): (what a code stands for - zero) * scale. */
enum { HF_MOST_PARTS = 8 };
typedef struct HfScaled {
    MxTensor decoded; /* what it stands for; nowhere as such */
    MxShape read;     /* the matrices that planes are of: the same, or its elements in a row */
    HfPlane codes, scales, zeros;
    HfPlane nested;         /* of scales that are codes, … */
    float nested_term;      /* … to which this is added */
    float zero;             /* added to zeros */
    float factor, divisor;  /* of all scales */
    const MxTensor *groups; /* which scale each column has; NULL = neighbours share one */
    const MxTensors *group_file;
    const MxTensor *part[HF_MOST_PARTS];
    int n_parts;
    bool fits;         /* what is beside the codes is what they want, … */
    const char *fault; /* … or why not; NULL = this has been told */
} HfScaled;
struct HfLink {
    HfMap map;
    const MxTensors *file;
    const MxTensor *tensor; /* all of it; NULL = there is none, and values are ones */
    const HfParts *parts;   /* NULL = the file has it in one piece */
    const HfScaled *scaled; /* NULL = the tensor is in the file as it is */
    HfLink *next;           /* of another part; NULL = there is none */
};

/* An open folder. The last tensor is kept, or a window of it. */
typedef struct CkptHf {
    MxHfModel model;
    HfLink *links; /* [arrays] */
    MxArena kept;
    const MxTensor *tensor; /* in `data`, as the file has it, from one element to before another */
    int64_t from, to;
    void *data;
    int64_t room;        /* bytes of data */
    const float *beside; /* values of ours in the box that is read as MX_F32: where theirs are what
                            an export makes of them, they count, as a sum or product that was
                            rounded does not come back; NULL = none */
} CkptHf;

/* ckpt_hf_open — a folder's arrays under our names, as NNX files with layers one by one have them.
 *   ref  its heads: how ours are to hold heads; NULL = as MaxText's of this family
 * Errors: every tensor that is missing, extra or of another shape. */
bool ckpt_hf_open(MxArena *arena, const MxCkptRef *ref, CkptHf **out, MxH5Array **arrays, int *n,
                  MxError *err);
/* ckpt_hf_read — part of an array, by its number: MX_F32, MX_F64 or MX_BF16. */
bool ckpt_hf_read(CkptHf *hf, int array, const MxBox *box, MxDtype dtype, void *out, MxError *err);

/* What stands before the names of a text model in those of a model around it. */
extern const MxHfSpelling hf_withins[];
extern const int hf_n_withins;

/* ---- folders of Meta's (hf_meta.c) */

#define META_CONFIG "params.json"

/* hf_meta_file — the name of a file of weights; hf_meta_name — Meta's name of a tensor. */
const char *hf_meta_file(MxArena *arena, int shard);
const char *hf_meta_name(MxArena *arena, const char *theirs);
/* hf_meta_config — puts what config.json would say in the place of a params.json that was read.
 * Errors: members that are missing or not known. */
bool hf_meta_config(HfReader *r);
/* hf_meta_join — a link to a tensor of which each shard has a part; shards is kept. Errors, without
 * a word: shards differ. hf_meta_read — such a tensor, as its parts are. */
bool hf_meta_join(MxArena *arena, MxTensors *const *shards, int n, HfLink *link);
bool hf_meta_read(const HfParts *parts, void *out, MxError *err);

/* ---- tensors in few bits (hf_few_bits.c, hf_scaled.c, hf_codes.c) */

/* The files of a folder, and what was found of such in them. */
typedef struct HfShards {
    MxArena *arena;
    MxTensors **file;
    int n, n_scaled, cap;
    const HfScaled **scaled;
    MxMap by_name; /* of these */
    const float *values[HF_N_NUMBERS];
} HfShards;

/* hf_few_bits — takes over how a quantization_config says that weights are stored; false = in a way
 * that is not known. hf_few_bits_told — which one it is, and those that are known. */
bool hf_few_bits(const MxJson *how, MxHfModel *model);
const char *hf_few_bits_told(MxArena *arena, const MxJson *how);
/* hf_find — a tensor of any of them, and the file that has it; NULL = none has it. */
const MxTensor *hf_find(const HfShards *shards, const char *name, const MxTensors **file);
/* hf_scaled_find — what a wanted tensor is in few bits; NULL = there are no codes of it.
 * hf_scaled_read — n of its elements. hf_scaled_is_idle — whether a tensor beside such ones says
 * nothing of weights. */
const HfScaled *hf_scaled_find(HfShards *shards, const MxHfModel *model, const char *name,
                               MxError *err);
bool hf_scaled_read(const HfScaled *s, int64_t from, int64_t n, float *out, MxError *err);
bool hf_scaled_is_idle(const char *name);
/* hf_values_of — what each code of 8 bits stands for, [256]. hf_pack — codes of an element. */
const float *hf_values_of(HfShards *shards, HfNumber number);
static inline int hf_pack(const HfPlane *p) {
    return p->bits ? 8 * (int)mx_dtype_bytes(p->tensor->dtype) / p->bits : 1;
}

/* ---- weights that were a folder's (heads.c) */

/* Two models of one family, of which heads and what values depend on are known. */
typedef struct CkptForms {
    MxHfModel from, to;
} CkptForms;

/* ckpt_role — of an array, by its path; HF_PLAIN if its shape is none that the forms know. */
HfRole ckpt_role(const CkptForms *forms, const char *path, MxShape shape);
/* ckpt_change_form — n values, whole heads, from one form to the other. Where a value of the other
 * array (`beside`, in the new form) is what a conversion in either direction makes of it, it
 * becomes that: a product that was rounded does not come back. */
void ckpt_change_form(const CkptForms *forms, HfRole role, float *values, const float *beside,
                      int64_t n);

/* hf_check — that transformers has such a model. Errors: what it lacks. */
bool hf_check(const MxHfModel *model, MxWhere where, MxError *err);
/* hf_config_text — config.json of an export: the model's own, if it was read from one, else made.
 */
const char *hf_config_text(MxArena *arena, const MxHfExport *how);
/* hf_says_something — whether a member is there and is not null, false, 0 or empty. */
bool hf_says_something(const MxJson *value);

#endif
