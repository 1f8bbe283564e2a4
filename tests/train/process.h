/* process.h — the trainer as a black box: started as a program, looked at through its files. */
#ifndef TESTS_TRAIN_PROCESS_H
#define TESTS_TRAIN_PROCESS_H

#include <mx/base.h>

#include <sys/types.h>

/* process_binary — the trainer: $MX_BIN or build/mxtrain. */
const char *process_binary(void);
/* process_start — starts the trainer with words split at blanks (nothing
 * is quoted); its output goes to FILE "log" in dir. */
pid_t process_start(MxArena *arena, const char *dir, const char *words);
/* process_wait_for — waits until it has printed a text. */
void process_wait_for(MxArena *arena, const char *dir, const char *text);
/* process_wait — its exit code, or 128 + the signal that ended it. */
int process_wait(pid_t pid);
int process_run(MxArena *arena, const char *dir, const char *words);
/* process_run_ranks — the same with so many ranks of one thread. */
int process_run_ranks(MxArena *arena, const char *dir, int n_ranks, const char *words);

/* process_tiny — words for run "x" of a small model in dir, which writes metrics to dir/m.jsonl;
 * `more` overrides. */
const char *process_tiny(MxArena *arena, const char *dir, const char *more);

/* process_dir — a fresh folder below build/tests, removed with the arena: one of a failed test
 * stays. */
const char *process_dir(MxArena *arena, const char *name);
/* process_file — the content of dir/name. */
const char *process_file(MxArena *arena, const char *dir, const char *name, size_t *size);

/* One line of a metrics file. */
typedef struct MetricsLine {
    double step;
    const MxJson *json;
} MetricsLine;
/* process_metrics — the lines of dir/m.jsonl that have a member `with`. */
MetricsLine *process_metrics(MxArena *arena, const char *dir, const char *with, int *n);
/* process_number — a number of a line. Fails the test where there is none. */
double process_number(const MetricsLine *line, const char *name);

#endif
