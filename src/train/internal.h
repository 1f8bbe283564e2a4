/* internal.h — shared by the files of this room. */
#ifndef TRAIN_INTERNAL_H
#define TRAIN_INTERNAL_H

#include <mx/ckpt.h>
#include <mx/model.h>
#include <mx/program.h>
#include <mx/store.h>
#include <mx/train.h>

/* train_restore — gives every array of a state its value: from a checkpoint of this run (dir), or,
 * if that is NULL, as the config says for a new run. Errors: what is found does not fit. */
bool train_restore(MxTrainState *state, const char *dir, MxError *err);
/* train_inherit — a new student takes the weights that distill_weights_copy_map names from its
 * teacher. Errors: a pattern without a match; arrays that do not fit. */
bool train_inherit(MxTrainState *state, MxError *err);
/* train_try_files — what the config wants to be read, and nothing vouches for, is read in a child
 * process first. Before memory is taken; changes what SIGINT and SIGTERM do. Errors: libhdf5
 * crashes on it. */
bool train_try_files(const MxConfig *config, MxComm *comm, bool is_resumed, MxError *err);
/* train_same_config — that all ranks have the same effective config; train_same_files — the same
 * files of `what` (train_data_files), wherever they have them. All ranks call them. Errors: whoever
 * differs from rank 0, and how: of the config every key, with its place there. */
bool train_same_config(const MxConfig *config, MxComm *comm, MxError *err);
bool train_same_files(MxComm *comm, const char *what, const char *files, MxError *err);

/* train_check_origin — that the run fits the weights that it starts from: the tokenizer that they
 * were trained with, where that is recorded, and the sizes of a model of Hugging Face's. All ranks
 * call it, before anything is built and after train_try_files.
 *   own  the run's own checkpoint that it goes on from, or NULL
 *   out  what its checkpoints are to record; on rank 0 */
bool train_check_origin(MxArena *arena, const MxConfig *config, MxComm *comm, const char *own,
                        MxCkptTokenizer *out, MxError *err);
/* train_find_tokenizer — the tokenizer of a run that reads text, as checkpoints record it.
 * train_same_tokenizer — whether it is another recorded one. */
bool train_find_tokenizer(MxArena *arena, const MxConfig *config, MxCkptTokenizer *out,
                          MxError *err);
bool train_same_tokenizer(const MxCkptTokenizer *ours, const MxCkptTokenizer *theirs);
/* train_restore_full — the same from the whole state of another run: a checkpoint folder or
 * FILE.h5[:group]. What it lacks (a base under adapters, a reference model) is as in a new run. */
bool train_restore_full(MxTrainState *state, const char *ref, MxError *err);
/* train_gather_texts — what every rank says, on rank 0 [ranks]; NULL elsewhere. */
const char *const *train_gather_texts(MxArena *arena, MxComm *comm, const char *text);
/* train_share_bytes — n bytes of every rank, one rank's behind the other's, on all of them. */
const char *train_share_bytes(MxArena *arena, MxComm *comm, const char *own, int64_t n);
/* train_agree — whether all ranks are fine; all call it, each with its own answer. If some are not,
 * err tells on rank 0 what they said, and something on the others. */
bool train_agree(MxComm *comm, bool is_fine, MxError *err);
/* train_team — the ranks as the store room wants them; NULL = one rank. */
const MxTeam *train_team(MxArena *arena, MxComm *comm);
#endif
