/* data.h — corpora to batches. A batch is a pure function of (config, step): no state moves on, so
 * a run resumes by asking for its next step, and the number of ranks plays no part. */
#ifndef MX_DATA_H
#define MX_DATA_H

#include <mx/base.h>
#include <mx/text.h>

/* The six arrays of a batch, int32 [rows, length] each, by MaxText's names ("inputs", …). */
typedef enum MxBatchField {
    MX_INPUTS,
    MX_TARGETS,
    MX_INPUTS_POSITION,
    MX_TARGETS_POSITION,
    MX_INPUTS_SEGMENTATION, /* 1, 2, … = documents packed in a row; 0 = padding */
    MX_TARGETS_SEGMENTATION,
    MX_BATCH_FIELDS
} MxBatchField;

const char *mx_batch_field_name(MxBatchField field);

typedef struct MxBatch {
    int64_t rows, length;
    int32_t *field[MX_BATCH_FIELDS];
} MxBatch;

MxBatch mx_batch_new(MxArena *arena, int64_t rows, int64_t length);

typedef enum MxDataStatus {
    MX_DATA_OK,
    MX_DATA_END,  /* the data is used up: mx_data_end_reason */
    MX_DATA_ERROR /* text in err */
} MxDataStatus;

/* What to read. Strings are borrowed for the dataset's life. */
typedef struct MxDataConfig {
    const char *kind; /* "synthetic", "text" or "hdf5" */
    const char *path; /* text: file, folder (its *.txt, sorted) or glob, as given, in share/, or in
                         the installed share folder; hdf5: FILE.h5[:group] */
    MxWhere where;    /* of the setting that named the path, for messages */
    const MxTokenizer *tokenizer; /* text */
    int64_t rows, length;         /* of a batch; length = max_target_length */
    int64_t vocab;                /* tokens are in [0, vocab) */
    uint64_t seed;                /* of the shuffle */
    bool omits_bos, omits_eos;    /* text: documents without them */
    bool shuffle;                 /* a new order every epoch; else in order */
    bool packing;         /* text: rows run across documents; synthetic: with max_segments >= 2 */
    int64_t max_segments; /* max_segments_per_seq; <= 0 = no limit */
    int64_t n_epochs;     /* <= 0 = without end */
} MxDataConfig;

typedef struct MxDataset MxDataset;

/* mx_data_open — opens and checks a dataset; text is tokenised and kept (4 bytes a token).
 * Errors: unrecognized kind; no files, no tokens, text that is not UTF-8 (file and byte); datasets
 * missing or of a wrong shape or type; fewer rows than one batch; a tokenizer larger than vocab. */
bool mx_data_open(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err);

/* mx_data_batch — the batch of a step (>= 0) into out's arrays, which must be [rows, length] of the
 * config. Row r is row step*rows + r of the endless or finite sequence of epochs; what is left of
 * the last epoch and does not fill a batch is dropped. Allocates nothing. One thread at a time.
 *   text    row k holds tokens k*length .. k*length + length of the stream bos document eos bos …;
 *           inputs all but the last, targets all but the first. Positions and segments start anew
 *           with the row and with each document; where the next token is of another document the
 *           target is padding. Without packing a row never leaves its document.
 *   hdf5    rows as stored: [N, S], or [steps, B, S] read as steps*B rows
 *   synthetic  the same random batch at every step, as MaxText
 * Padding is token 0, position 0, segment 0.
 * Errors: a value out of range, with dataset, row and column (hdf5). */
MxDataStatus mx_data_batch(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err);

/* mx_data_steps — how many batches there are; -1 = without end. */
int64_t mx_data_steps(const MxDataset *dataset);
/* mx_data_end_reason — why there are no more: "the data ends after …". */
const char *mx_data_end_reason(const MxDataset *dataset);
/* mx_data_describe — one line for the log: kind, files, tokens, rows. */
const char *mx_data_describe(const MxDataset *dataset);

/* A thread that makes batches ahead of their use. */
typedef struct MxLoader MxLoader;

/* mx_loader_open — starts at first_step, at most `depth` (>= 1) batches ahead. While it is open the
 * dataset is the thread's. Closed by mx_loader_close or with the arena. Everything it needs is
 * allocated here. */
bool mx_loader_open(MxArena *arena, MxDataset *dataset, int64_t first_step, int depth,
                    MxLoader **out, MxError *err);
/* mx_loader_next — waits for the next batch; *out stays valid until the next call. After
 * MX_DATA_END or MX_DATA_ERROR every call returns the same. */
MxDataStatus mx_loader_next(MxLoader *loader, MxBatch *out, MxError *err);
/* mx_loader_close — stops the thread at any moment and waits for it; does nothing the second time.
 */
void mx_loader_close(MxLoader *loader);

#endif
