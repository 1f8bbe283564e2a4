/* train.h — the trainer: runs of a program from start to end, with data, checkpoints, metrics and
 * signals. */
#ifndef MX_TRAIN_H
#define MX_TRAIN_H

#include <mx/config.h>
#include <mx/device.h>

/* mx_train_run — trains as the config says, from the state in the run directory if there is one.
 * Prints the log, writes metrics and checkpoints. Returns the process's exit code; err holds text
 * for the user unless that is 0, 130 or 143. */
MxExit mx_train_run(const MxConfig *config, MxComm *comm, MxError *err);

/* mx_train_evaluate — evaluates once the weights from which the run would continue, its newest
 * checkpoint or the weights to load, and changes nothing. Further errors: there are no weights; no
 * data for evaluation is named, and none was held out. */
MxExit mx_train_evaluate(const MxConfig *config, MxComm *comm, MxError *err);

/* mx_train_checkpoint_test — without training, saves a state of the config's size where a run of
 * its steps would save one (checkpoint_period), with moments full of random numbers, restores each
 * save as a run does, and prints the time of both, in seconds and GB (1e9 bytes of whole arrays)
 * per second. All ranks call it. Further errors: restored values differ; the run has checkpoints.
 * Source: MaxText utils/standalone_checkpointer.py. Test: tests/mpi/run.sh. */
bool mx_train_checkpoint_test(const MxConfig *config, MxComm *comm, MxError *err);

/* mx_train_inputs — checks that everything a run of the config would read exists and is readable,
 * and that its outputs are writable: weights, data, metrics_file, the run's folder. Nothing is
 * read. Paths with a scheme ("gs://") are skipped. Errors: all of them in one pass. */
bool mx_train_inputs(const MxConfig *config, bool only_evaluates, MxError *err);

/* mx_train_origin — for plans and checks: whether a run could resume from its newest checkpoint, or
 * start from the given weights, by the same criteria as runs: keys that cannot change, the
 * tokenizer of the weights, sizes. Only the manifests of checkpoints are read. All ranks call it.
 * Test: tests/ckpt/test_origin.c. */
bool mx_train_origin(const MxConfig *config, MxComm *comm, MxError *err);

/* mx_train_check — opens the data and prints its first rows to stdout: text, ids, which tokens
 * count, segments; in colour if stdout has colours (mx_has_color).
 *   n_rows  for pairs, pairs of rows; 0 = two, with long pieces shortened
 * Errors as those of mx_train_origin and mx_data_open. */
bool mx_train_check(const MxConfig *config, MxComm *comm, int64_t n_rows, MxError *err);

/* Settings derived from a model and data, added as lines of YAML; `said` is what the user says
 * (mx_config_request_said).
 * mx_train_found_model — of a folder of Hugging Face's: family, sizes, with use_multimodal also
 * those of its encoder of images, tokenizer, a name for runs on `data`, which may be NULL.
 *   Errors: it is none, or has what is not built.
 * mx_train_found_data — of a file, folder or glob: what its records are for, where they tell that
 * (of those of use_grpo and use_kto they do not).
 *   overrides  receives "key=value" of the keys that name it; NULL = one is not needed
 *   Errors: as mx_data_guess.
 * mx_train_found_both — with the config that the two make: rows that hold the longest record (in
 *   pairs prompts and responses have their own parts of rows), a learning rate for weights that
 * were trained before. model_dir NULL = there are none. data  begins with a memory alone, receives
 * what was read of the data, for mx_train_found_rest; NULL = none is to be read. Errors: as
 * mx_data_open. mx_train_found_rest — with the config that all of these make: as many steps as the
 * data has batches, and the part of rows for prompts. Test: tests/cli/finetune.sh. */
enum { MX_FOUND_KEYS = 3 };
bool mx_train_found_model(MxText *out, const char *dir, const char *data, const MxConfig *said,
                          MxError *err);
bool mx_train_found_data(MxText *out, const char *path, const MxConfig *said,
                         const char *overrides[MX_FOUND_KEYS], MxError *err);
typedef struct MxFoundData {
    MxArena arena;               /* in which all of it lies; the caller releases it */
    struct MxDataset *data;      /* NULL = nothing was read */
    struct MxDataMemory *memory; /* the caller's: what was read, for MxConfig.data_memory */
} MxFoundData;
bool mx_train_found_both(MxText *out, const MxConfig *config, const MxConfig *said,
                         const char *model_dir, MxFoundData *data, MxError *err);
void mx_train_found_rest(MxText *out, const MxConfig *config, const MxConfig *said,
                         const MxFoundData *data);

/* mx_train_tokenizer — a byte-level BPE of at most vocab_size tokens, made of the texts of the
 * training data, as a folder that tokenizer_path may name, with ChatML for a chat template. The
 * config's own tokenizer plays no part. Errors: as mx_data_texts and mx_bpe_write; vocab_size
 * is too small (exit 2). */
bool mx_train_tokenizer(const MxConfig *config, const char *dir, MxError *err);

#endif
