/* sounds.h — private to the room: the sounds of a batch's rows, as inputs beside those of images.
 */
#ifndef PROGRAM_SOUNDS_H
#define PROGRAM_SOUNDS_H

#include "internal.h"

typedef struct Sounds {
    MxHearing hearing; /* without an encoder nothing is declared */
    int patches, window, place, ended[MX_AUDIO_CONVS - 1]; /* inputs, and … */
    MxAudioFacts facts;                                    /* … what they are given */
    MxModelSounds read;                                    /* by the pass that is being traced */
} Sounds;

/* sounds_declare — the inputs. sounds_trace — their values in a pass over a batch, whose variables
 * these are; NULL = there are none. sounds_give — what a batch has of them. */
void sounds_declare(MxTrainState *s, Sounds *own);
const MxModelSounds *sounds_trace(MxTrace *t, const int *batch, Sounds *own);
void sounds_give(Sounds *own, const MxBatch *batch);

/* sounds_room — arrays for so many rows. sounds_row — of the r-th. */
MxAudioFacts sounds_room(MxArena *arena, const MxHearing *hearing, int64_t rows);
MxAudioFacts sounds_row(const MxHearing *hearing, MxAudioFacts all, int64_t r);

#endif
