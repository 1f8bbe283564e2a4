/* hf_make.h — tensors as Hugging Face's files have them, made in pieces of parameters in any form
 * of checkpoint (hf_make.c). */
#ifndef CKPT_HF_MAKE_H
#define CKPT_HF_MAKE_H

#include "hf.h"

/* A parameter, or part of one, in a tensor. */
typedef struct HfPart HfPart;
struct HfPart {
    const char *ours;
    HfMap map;
    CkptPiece piece;
    const CkptPiece *folds; /* of the vector that multiplies its rows; NULL = none */
    HfPart *next;           /* of the same tensor; NULL = there are no more */
};

typedef struct HfItem {
    HfPart *parts;
    MxTensor tensor; /* under their name */
} HfItem;

typedef struct HfMaker {
    MxArena arena;
    const MxHfExport *how; /* with experts in the form in which the model was published */
    CkptFile source;
    MxTree leaves;
    CkptPiece *pieces;
    HfItem *items;         /* [n] */
    MxMap by_name, wanted; /* items, by their names; what they are made of, by ours */
    int n, n_left;         /* left: arrays that are no parameters */
    void *piece;           /* of a tensor: its elements from one on to before another */
    int64_t from, to;
    float *tile;
    MxError *err;
} HfMaker;

/* hf_make_plan — the items of a checkpoint; release the arena in any case. Errors: every parameter
 * that is missing, of another shape, or without a name there. */
bool hf_make_plan(HfMaker *maker, const MxCkptRef *from, const MxHfExport *how, MxError *err);
/* hf_make_room — for pieces of every item; their bytes. */
size_t hf_make_room(HfMaker *maker);
/* hf_make_next — at the next piece of a tensor, of bytes; false behind the last. The first comes
 * after `to` = 0. hf_make_piece — the piece as it is to be, in memory. */
bool hf_make_next(HfMaker *maker, const MxTensor *tensor, size_t *bytes);
bool hf_make_piece(HfMaker *maker, const HfItem *item);

#endif
