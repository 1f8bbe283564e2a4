/* data.h — corpora to batches. A batch is a pure function of (config, step): no state moves on, so
 * a run resumes by asking for its next step, whatever the number of ranks. docs/DATA.md
 * describes every kind of dataset, its fields and its masks. */
#ifndef MX_DATA_H
#define MX_DATA_H

#include <mx/base.h>
#include <mx/family_encoder.h>
#include <mx/chat.h>

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

/* What a rank wants of every batch: some rows, and some columns of those. */
typedef struct MxBatchPart {
    const int64_t *row;     /* [rows] which ones of the batch, increasing; NULL = the first ones */
    int64_t rows, of_rows;  /* how many, of how many */
    int64_t column, length; /* the first column and how many */
    int64_t pixels;         /* values of the images of a row; 0 = rows have none */
    int64_t grids;          /* views of a row that have grids of their own */
} MxBatchPart;

typedef struct MxBatch {
    MxBatchPart part;
    int64_t rows, length;            /* of the arrays: those of the part */
    int32_t *field[MX_BATCH_FIELDS]; /* [rows, length] each */
    /* With images: which token of all those of the row's images stands there, from 1 on, 0 = none
     * [rows, length], where each view counts as many as it has at most; and their pixels [rows,
     * part.pixels]. Else NULL. */
    int32_t *image;
    float *pixels;
    MxVisionGrid *grids; /* [rows, part.grids]; NULL = views have none of their own */
} MxBatch;

/* mx_batch_new — a whole batch; mx_batch_new_part — part of one, whose `row` is kept. */
MxBatch mx_batch_new(MxArena *arena, int64_t rows, int64_t length);
MxBatch mx_batch_new_part(MxArena *arena, const MxBatchPart *part);
/* mx_batch_row — where row `row` of the batch is among those of the part; it must be there. */
int64_t mx_batch_row(const MxBatchPart *part, int64_t row);

typedef enum MxDataStatus {
    MX_DATA_OK,
    MX_DATA_END,  /* the data is used up: mx_data_end_reason */
    MX_DATA_ERROR /* text in err */
} MxDataStatus;

/* Whether a dataset gives pairs of responses, and what of them counts (dpo.formula). */
typedef enum MxDataPairs {
    MX_DATA_NO_PAIRS,
    MX_DATA_PAIRS_STANDARD, /* each response its own completion, as published and as TRL */
    MX_DATA_PAIRS_MAXTEXT,  /* one mask for both: from their first difference on, as far as both go
                             */
    MX_DATA_PAIRS_SCORED,   /* the last token of each response, at its own place: where it is scored
                             */
} MxDataPairs;

/* The images of records: how the model sees them, and the columns that name their files where
 * messages do not. */
enum { MX_MOST_IMAGE_COLUMNS = 32 };
typedef struct MxDataImages {
    MxVision vision;
    const char *columns[MX_MOST_IMAGE_COLUMNS];
    int n_columns;
    bool only_data; /* they are data: URLs, no files */
} MxDataImages;

/* What to read, the same on every rank. Strings are borrowed for the dataset's life. */
/* Block diffusion: blocks of a row some of whose tokens are masked. */
typedef struct MxDataBlocks {
    int64_t size;     /* tokens; 0 = nothing is masked */
    int32_t mask;     /* the token that stands there instead */
    double min_noise; /* of a block a share is masked that is drawn between this and 1 */
    bool keeps_first; /* the first token of a block is never masked */
    bool shifts;      /* logits predict the next token, else that of their own place */
} MxDataBlocks;

typedef struct MxDataConfig {
    const char *kind;   /* "synthetic", "text", "hf", "grain", "tfds" or "hdf5" */
    const char *format; /* hf: "json" or "text"; grain: "arrayrecord" or "tfrecord"; NULL = as files
                           tell */
    const char *path; /* text, hf: file, folder (its *.txt or *.jsonl, sorted) or glob, as given, in
                         share/, or in the installed share folder; grain: the same, or a mixture
                         "PATH,WEIGHT;PATH,WEIGHT"; hdf5: FILE.h5[:group] */
    const char *set, *split;      /* tfds: "NAME[/CONFIG][:VERSION]" below the folder `path` */
    const char *mixture;          /* grain: a JSON file of parts and weights, instead of path */
    MxWhere where;                /* of the setting that named the path, for messages */
    const MxTokenizer *tokenizer; /* of kinds that read text */
    int64_t rows;                 /* of a batch; with pairs, of each of its halves */
    int64_t length;               /* of a row: max_target_length */
    int64_t vocab;                /* tokens are in [0, vocab) */
    uint64_t seed;                /* of the shuffle */
    bool omits_bos, omits_eos;    /* text, hf: documents without them */
    bool shuffle;                 /* a new order every epoch; else in order */
    bool packing; /* text: rows run across documents; hf: documents share rows, or pairs (not
                     MX_DATA_PAIRS_MAXTEXT); synthetic: with max_segments >= 2, not pairs */
    int64_t max_segments;       /* max_segments_per_seq; <= 0 = no limit */
    int64_t n_epochs;           /* <= 0 = without end */
    MxDataPairs pairs;          /* not of text */
    int64_t max_prompt_length;  /* hf with pairs or asks: in [1, length); prompts keep their last
                                   tokens, and responses the first length - max_prompt_length */
    const char *const *columns; /* [n_columns] hf: text; prompt, completion; chosen, rejected; or */
    int n_columns;              /* prompt, chosen, rejected; 0 = whichever the first record has */
    int64_t group;   /* > 0: records are rewarded responses, so many to each prompt one after the
                        other; a batch has them for `rows` prompts. With is_sft, not with packing */
    bool has_labels; /* with group: the reward is 1 or 0, as column "label" is true or false */
    bool asks; /* with group: records are prompts, to which the responses of a group are yet to be
                  written: all its rows hold the prompt alone, its last max_prompt_length tokens */
    const char *answer_column; /* with asks: a text that every record must have besides; NULL */
    bool reads_logprobs;       /* with group: the log-probabilities that they were written with */
    bool is_sft;               /* hf: the first record may have a prompt and a completion, or a
                                  conversation */
    bool completion_only;      /* hf: prompts do not count, and of conversations only what the
                                  assistant says does */
    const char *chat_template; /* of conversations: as mx_chat_open's `named` … */
    const char *tokenizer_dir; /* … and `dir`; NULL = none */
    const char *token_cache;   /* a folder where tokens are kept by the content of files; NULL =
                                  none */
    MxWhere chat_where;        /* of the setting that names the template */
    int64_t n_threads;   /* that make tokens, as mx_parallel takes them; they change nothing */
    MxDataImages images; /* of kinds that read text, without packing; no encoder = none */
    MxDataBlocks blocks; /* not with pairs, groups or packing */
} MxDataConfig;

/* mx_data_batch_rows — the rows of a whole batch's arrays: config->rows, twice as many with pairs,
 * or `group` times. */
int64_t mx_data_batch_rows(const MxDataConfig *config);

/* mx_data_reads_text — whether a kind wants a tokenizer; others hold tokens. */
bool mx_data_reads_text(const char *kind);

typedef struct MxDataset MxDataset;

/* mx_data_open — opens and checks a dataset; text is tokenised and kept (4 bytes a token; hf 2
 * where vocab allows it, and only what rows can hold). Errors: unrecognized kind; no files, no
 * tokens, text that is not UTF-8 (file and byte); lines that are not JSON or not of the form that
 * is wanted (file and line, several at once); datasets missing or of a wrong shape or type; fewer
 * rows than one batch; a tokenizer larger than vocab; pairs wanted of a kind that has none, or
 * pairs of which no token counts. */
bool mx_data_open(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err);

/* mx_data_hold_out — takes a share of a dataset's rows out of it, evenly spread and at least a
 * batch of `rows`, and makes a dataset of them that gives such batches, once and in order. Both
 * read one source, and may be used by two threads. With packing the rows are those of the whole: no
 * document is in both but text that goes on from row to row. share  in (0, 1) Errors: too few rows
 * for a batch of each. */
bool mx_data_hold_out(MxArena *arena, MxDataset *dataset, double share, int64_t rows,
                      MxDataset **out, MxError *err);

/* A file that a dataset was read from, and what it held then. */
typedef struct MxDataFile {
    const char *path;
    int64_t bytes;
    uint64_t hash; /* XXH3-64 of all of it; above 1 GiB of HDF5, of evenly spread parts */
} MxDataFile;

/* mx_data_files — in the order in which they were read; none of synthetic data. */
const MxDataFile *mx_data_files(const MxDataset *dataset, int *n);

/* mx_data_try — reads in a child process (mx_store_guarded) what may crash the library that reads
 * it: opens the dataset and makes some of its batches, evenly spread. Not for processes with
 * threads. Errors: it crashes, or does not come to an end; a signal. What else is wrong,
 * mx_data_open tells.
 */
bool mx_data_try(const MxDataConfig *config, MxError *err);

/* mx_data_find — that what the config names is there and can be opened, without reading it. Errors
 * as mx_data_open's for files that are missing, unreadable or of another format. */
bool mx_data_find(const MxDataConfig *config, MxError *err);

/* What files hold, by the first of them. */
typedef struct MxDataGuess {
    const char *kind, *format; /* as in MxDataConfig; format NULL = there is none to name */
    bool is_sft, is_pair;      /* what its records are for; neither = pre-training */
    const char *columns;       /* "prompt, completion"; "" = files without records */
} MxDataGuess;

/* mx_data_guess — how to read a file, folder or glob that is looked for as `path` is. Errors:
 * nothing is there; a format that is not read, with what converts it; a first record that has no
 * known columns. Test: tests/cli/finetune.sh. */
bool mx_data_guess(MxArena *arena, const char *path, MxWhere where, MxDataGuess *out, MxError *err);

/* mx_data_longest — the tokens of the longest record before it was cut; 0 = the dataset has no
 * records. */
int64_t mx_data_longest(const MxDataset *dataset);
/* mx_data_rows — how many rows an epoch would have if records were laid out as another config says:
 * its length, rows and packing; of the same records, which are not read again. 0 = the kind does
 * not tell. mx_data_held_rows — how many of n rows mx_data_hold_out takes. */
int64_t mx_data_rows(const MxDataset *dataset, const MxDataConfig *as);
int64_t mx_data_held_rows(int64_t n, double share, int64_t rows);

/* mx_data_texts — hands over the texts of all files, in order, as they stand there: files of text
 * whole, of records the columns that training reads, of conversations what is said. Needs no
 * tokenizer. Errors: as mx_data_open's for files and records; those of `take`; a kind that holds no
 * text (exit 2). */
typedef bool MxDataText(void *data, MxEncoding text, MxError *err);
bool mx_data_texts(const MxDataConfig *config, MxDataText *take, void *data, MxError *err);

/* mx_data_batch — the batch of a step (>= 0), or what out's part wants of it: the same values,
 * whoever asks for which part. Row r is row step*rows + r of the endless or finite sequence of
 * epochs; what is left of the last epoch and does not fill a batch is dropped. Only rows of the
 * part are made, each as a whole. Allocates nothing. One thread at a time.
 *   text    row k holds tokens k*length .. k*length + length of the stream bos document eos bos …;
 *           inputs all but the last, targets all but the first. Positions and segments start anew
 *           with the row and with each document; where the next token is of another document the
 *           target is padding. Without packing a row never leaves its document.
 *   hf      a row is a document (bos prompt completion eos), or several with packing, put in the
 *           first of the batch's rows that has room, each with its own segment and positions. The
 *           first token of a document is no target, nor, with completion_only, is its prompt.
 *   hdf5    rows as stored: [N, S], or [steps, B, S] read as steps*B rows
 *   synthetic  the same random batch at every step, as MaxText
 * Padding is token 0, position 0, segment 0.
 * With groups row g*rows + r is response g to prompt r.
 * With pairs the first half of the rows are chosen responses, the second half the rejected ones of
 * the same pairs, each behind its prompt: segment s of row r and of row rows + r are a pair. Hf
 * puts several into a row with packing, first fit by both sides; hdf5 has as many as are stored.
 * Targets are the inputs moved by one (the last is 0); one counts where its segmentation is not 0,
 * which is then its response's. A row whose pair's other row is wanted elsewhere is made without
 * that, unless what counts depends on both (MX_DATA_PAIRS_MAXTEXT, hdf5 without prompts). Errors: a
 * value out of range, with dataset, row and column (hdf5). */
MxDataStatus mx_data_batch(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err);

/* mx_data_scores — with groups, what is known of the responses of a step's batch, which there must
 * be: rewards [part->of_rows] of all rows of the batch; logprobs [part->rows, part->length], NULL
 * if they are not read: recorded ones of each target, 0 where it does not count. */
void mx_data_scores(const MxDataset *dataset, int64_t step, const MxBatchPart *part, float *rewards,
                    float *logprobs);

/* mx_data_twin — the same dataset for another thread. */
MxDataset *mx_data_twin(MxArena *arena, const MxDataset *dataset);
/* mx_data_mismatched — a step's batch, or what out's part wants of it, with groups of 1: behind the
 * prompt of a row stands the completion of the row before it, behind the first row's that of the
 * last. */
bool mx_data_mismatched(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err);
/* mx_data_record — with asks, the record of row r of a step's batch: an object of JSON, as text. */
const char *mx_data_record(const MxDataset *dataset, int64_t step, int64_t r);

/* mx_data_rows_made — rows made since the dataset was opened: what batches have cost. */
int64_t mx_data_rows_made(const MxDataset *dataset);
/* mx_data_steps — how many batches there are; -1 = without end. */
int64_t mx_data_steps(const MxDataset *dataset);
/* mx_data_epochs_for — how many epochs give so many batches. */
int64_t mx_data_epochs_for(const MxDataset *dataset, int64_t steps);
/* mx_data_end_reason — why there are no more: "the data ends after …". */
const char *mx_data_end_reason(const MxDataset *dataset);
/* mx_data_describe — one line for the log: kind, files, tokens, rows. */
const char *mx_data_describe(const MxDataset *dataset);
/* mx_data_warning — what a user should know about data that was accepted, one line; NULL = none. */
const char *mx_data_warning(const MxDataset *dataset);

/* A thread that makes batches before they are used. */
typedef struct MxLoader MxLoader;

typedef struct MxLoaderConfig {
    MxDataset *dataset; /* the thread's while the loader is open */
    MxBatchPart part;   /* of every batch; rows 0 = all of it */
    int64_t first_step;
    int depth; /* batches that wait at most, >= 1 */
} MxLoaderConfig;

/* mx_loader_open — starts the thread. Closed by mx_loader_close or with the arena. Everything it
 * needs is allocated here. */
bool mx_loader_open(MxArena *arena, const MxLoaderConfig *config, MxLoader **out, MxError *err);
/* mx_loader_next — waits for the next batch; *out stays valid until the next call. After
 * MX_DATA_END or MX_DATA_ERROR every call returns the same. */
MxDataStatus mx_loader_next(MxLoader *loader, MxBatch *out, MxError *err);
/* mx_loader_close — stops the thread at any moment and waits for it; does nothing the second time.
 */
void mx_loader_close(MxLoader *loader);

#endif
