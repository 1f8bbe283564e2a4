/* job.h — the worker: its state, and what it does with one request (job.c). */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include "internal.h"

#include <pthread.h>

typedef struct List {
    Job *first, *last;
    int64_t n;
} List;

typedef struct Server {
    MxArena *arena;
    const MxServe *what;
    MxSource source;
    MxGenerate how;
    MxTrainState *state;
    MxSequences *sequences;
    MxWords words;
    Http *http;
    const char *name, *model, *models;
    Habits habits;  /* of the chat template */
    int32_t *shown; /* [n_shown] special tokens that reasoning and calls of tools have */
    int n_shown, n_reasoning_shown; /* the first ones are of reasoning */
    const MxVocabulary *vocabulary; /* NULL = no request has needed it so far */
    Guides guides;
    List waiting; /* with replies that have no row yet */
    List running;
    uint64_t n_jobs;
    uint64_t n_streams; /* of random numbers, for replies without a seed */
    /* Under the lock. */
    pthread_mutex_t lock;
    List inbox;
    int64_t n_held; /* jobs that wait */
    bool is_closed; /* there will be no more */
} Server;

/* job_read — what a request that has come asks for; false = nothing that can be answered: its
 * client has been told and it is gone. job_join — gives the next reply a row; false = none is free.
 * If it cannot be made, `refusal` says why. job_tell — of the replies that are over, tells what was
 * not told yet; true = that was all, and the job is gone. job_fail — ends it with an error, and it
 * is gone. */
bool job_read(Server *s, Job *job);
bool job_join(Server *s, Job *job);
bool job_tell(Server *s, Job *job);
void job_fail(Server *s, Job *job, const Trouble *trouble);

#endif
