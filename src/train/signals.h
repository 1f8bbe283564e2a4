/* signals.h — what signals request from a run: to save and end, or to save and continue. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

#include <mx/device.h>

/* What all ranks have agreed on. */
typedef struct Wish {
    int stop;   /* the signal that asks to leave, 0 = none */
    bool saves; /* asked to save */
} Wish;

/* signals_catch — from here on SIGINT, SIGTERM and SIGHUP (unless it was ignored, as under nohup)
 * ask to leave; the second one of a kind leaves at once, without a save, but SIGHUP: terminals,
 * shells and service managers send it more than once. SIGUSR1 asks to save. A reader of stdout that
 * is gone is no signal, a file over the limit neither: both are errors of a write. Until
 * signals_begin the process leaves at once, since there is nothing to save. */
void signals_catch(const MxComm *comm);
/* signals_begin — from here on there is. */
void signals_begin(void);

/* signals_wish — what this rank was asked for, as a number; the largest of all ranks' counts.
 * signals_hear — what that says. */
int64_t signals_wish(void);
Wish signals_hear(int64_t most);
/* signals_reason — "received SIGTERM". */
const char *signals_reason(int number);

#endif
