/* diloco.h — private to the room: replicas that train independently. diloco.c has their variables,
 * leaves and metrics, outer.c the outer steps. */
#ifndef PROGRAM_DILOCO_H
#define PROGRAM_DILOCO_H

#include "parts.h"

/* What the part keeps in a state. */
typedef struct Diloco {
    int *outer, *momentum; /* [parameter] variables; MX_NONE = it is not trained */
    MxKeeper keeper;       /* the run, of leaves that have replicas before their dims */
    int n_told, metric;    /* replicas whose losses are told, the first one's metric */
} Diloco;

/* Of each fragment of the parameters: its outer step; replicas take over what it has become. */
extern const Entry diloco_entry_outer, diloco_entry_join;
/* diloco_stepped — runs them for the fragments whose turn it is. */
void diloco_stepped(MxTrainState *state);

#endif
