/* data.h — private to the room: the data of a run, as named in the config and as recorded in its
 * checkpoints. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <mx/config.h>
#include <mx/data.h>
#include <mx/device.h>
#include <mx/generate.h>

/* The data of a run; NULL = not wanted. */
typedef struct TrainData {
    MxDataset *train, *eval;
} TrainData;

/* What of it is wanted. */
typedef enum TrainWants { TRAIN_WANTS_STEPS = 1, TRAIN_WANTS_EVAL = 2 } TrainWants;

/* train_wants — of a run that trains. */
TrainWants train_wants(const MxConfig *config);
/* train_data_config — the data of training or evaluation; evaluation is in order and one epoch. */
MxDataConfig train_data_config(const MxConfig *config, const MxTokenizer *tokenizer, bool is_eval);
/* train_try_tokenizer — opens it, and its chat template, in a child process (mx_store_guarded).
 * Errors: the child's end. */
bool train_try_tokenizer(const MxConfig *config, MxError *err);
/* train_open_tokenizer — the tokenizer of the run's text; NULL if its data is no text. path, which
 * may be NULL, receives where it lies. */
bool train_open_tokenizer(MxArena *arena, const MxConfig *config, MxTokenizer **out,
                          const char **path, MxError *err);
/* train_chat_from — the chat template of the run's text, unless the tokenizer's folder has it. */
MxChatFrom train_chat_from(const MxConfig *config);
/* train_open_words — both; the template NULL if there is none. Errors: damage. */
bool train_open_words(MxArena *arena, const MxConfig *config, MxWords *out, MxError *err);
/* train_reads — whether the data of training or evaluation is opened for that. */
bool train_reads(const MxConfig *config, TrainWants wants, bool is_eval);
/* train_open_data — opens what is wanted, tells what it is, and holds evaluation data out of
 * training data where it has none of its own. */
bool train_open_data(MxArena *arena, const MxConfig *config, TrainWants wants, TrainData *out,
                     MxError *err);
/* train_try_data — what is wanted and may crash the library that reads it is tried in a child
 * process of the first rank. All ranks call it. */
bool train_try_data(const MxConfig *config, MxComm *comm, TrainWants wants, MxError *err);
/* train_warn_steps — warns of data that ends before the steps do. */
void train_warn_steps(const MxConfig *config, const MxDataset *data);

/* train_data_files — the files of training data as checkpoints remember them: JSON. */
const char *train_data_files(MxArena *arena, const MxDataset *data);
/* train_are_same_files — whether two such texts tell of the same content in the same order. */
bool train_are_same_files(const char *a, const char *b);
/* train_same_data — that training data is what it was when a checkpoint of this run was made.
 * Errors: files that differ, are new or are gone, by name; with data_changed=accept that is a
 * warning. Another name in the config is no error, but told by mx_config_resume. */
bool train_same_data(const MxConfig *config, const char *checkpoint, const MxDataset *data,
                     MxError *err);

/* train_same_share — that the rows held out now are those that were held out when it was made.
 * Errors: another share, or none. */
bool train_same_share(const MxConfig *config, const char *checkpoint, MxError *err);

#endif
