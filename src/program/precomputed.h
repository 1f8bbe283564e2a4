/* precomputed.h — private to the room: what a frozen model makes of every batch before the first
 * step, stored in a folder, so that training then needs no second model. The folder identifies the
 * model by a fingerprint, and every row of a batch by a hash, so stale data is refused. Any number
 * of runs with the same batches can use it, on any mesh: all ranks compute it, the first one writes
 * it. */
#ifndef PROGRAM_PRECOMPUTED_H
#define PROGRAM_PRECOMPUTED_H

#include "parts.h"

enum { PRECOMPUTED_MOST = 2 };

/* An input of every batch that is read from the folder; elements have 4 bytes. */
typedef struct PrecomputedArray {
    const char *name;
    MxDtype dtype;
    int input;
    MxShape row; /* what it has for a row of a batch */
} PrecomputedArray;

typedef struct PrecomputedSetup {
    const char *what, *noun; /* "the reference's log-probabilities", "log-probabilities" */
    const char *maker;       /* whose they are: "policy"; the fingerprint's name in the manifest */
    const char *file_name, *dir;
    MxKey key;            /* names the folder */
    int64_t *fingerprint; /* of the model; 0 = it becomes the folder's */
    int n_arrays;
    PrecomputedArray array[PRECOMPUTED_MOST];
    const Entry *entry[2]; /* make the inputs of a batch of training, of evaluation; NULL = this
                              program cannot */
    MxDataset *data[2];    /* NULL = they are not wanted of it */
} PrecomputedSetup;

typedef struct Precomputed Precomputed;

/* precomputed_is_there — whether the folder exists when the ranks look: one answer for all. What a
 * killed run left unfinished in its place is made anew. */
bool precomputed_is_there(const char *dir, MxComm *comm, bool *is_there, MxError *err);
/* precomputed_open — opens the folder, which is made first if it is missing. Errors: it is damaged,
 * of another model, too short, or missing where the program cannot make it (exit 65); I/O. */
bool precomputed_open(MxTrainState *state, const PrecomputedSetup *setup, Precomputed **out,
                      MxError *err);
/* precomputed_give — before batch i: its inputs. Errors: they were made of another batch. */
bool precomputed_give(MxTrainState *state, Precomputed *p, bool is_eval, int64_t i,
                      const MxBatch *batch, MxError *err);

#endif
