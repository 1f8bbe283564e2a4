/* saver.h — work on a state that keeps changing: on a copy of it in a separate thread, or
 * immediately. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include <mx/store.h>
#include <mx/tree.h>

typedef struct Saver Saver;

/* What is done with a state. It may not print: the thread that started it does. */
typedef bool (*SaverWork)(void *data, const MxTree *state, MxPace *pace, MxError *err);

/* saver_open — for one tree, kept; abstract leaves stay so.
 *   in_background  memory for a copy is taken here, as much as the leaves have; each piece of work
 *                  then has a thread, which takes a small part of one core until it is waited for
 * Work in progress must have ended before the arena is released. */
Saver *saver_open(MxArena *arena, const MxTree *tree, bool in_background);

/* saver_start — takes the copy and begins; without a background does it all. Nothing may be in
 * progress. data is kept until saver_end. Errors: no thread. What the work said comes with
 * saver_end. */
bool saver_start(Saver *saver, SaverWork work, void *data, MxError *err);
/* saver_go_on — the same with the copy that was taken before. */
bool saver_go_on(Saver *saver, SaverWork work, void *data, MxError *err);
/* saver_is_idle — nothing was started that saver_end has not ended. */
bool saver_is_idle(const Saver *saver);
/* saver_is_done — the work has ended, saver_end will not wait. */
bool saver_is_done(const Saver *saver);
/* saver_end — waits for what was started, which now may take all it can; what the work returned. */
bool saver_end(Saver *saver, MxError *err);

#endif
