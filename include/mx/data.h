/* data.h — corpora to batches. A batch is a pure function of (config, step): there is no other
 * state, so a run resumes by asking for its next step, for any number of ranks. docs/DATA.md
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

/* The part of every batch that a rank needs: some rows, and some columns of those. */
typedef struct MxBatchPart {
    const int64_t *row;     /* [rows] indices in the batch, increasing; NULL = the first ones */
    int64_t rows, of_rows;  /* number of rows, and of the batch's rows */
    int64_t column, length; /* the first column, and the number of columns */
    int64_t pixels;         /* values of the images of a row; 0 = rows have none */
    int64_t grids;          /* views of a row that have their own grids */
    int64_t frames, chunks; /* values of the sounds of a row, and chunks of these */
    bool has_mrope;         /* tokens have a time, a row and a column */
} MxBatchPart;

typedef struct MxBatch {
    MxBatchPart part;
    int64_t rows, length;            /* size of the arrays: that of the part */
    int32_t *field[MX_BATCH_FIELDS]; /* [rows, length] each */
    /* With images: which of the row's image tokens is at each position, from 1 on, 0 = none [rows,
     * length], where each view counts with its maximum number of tokens, and behind all of these
     * each chunk of a sound; and the pixels of images [rows, part.pixels]. Otherwise NULL. */
    int32_t *image;
    float *pixels;
    MxVisionGrid *grids; /* [rows, part.grids]; NULL = views have no grids */
    float *frames;       /* [rows, part.frames] of sounds, see mx_audio_fill; and … */
    int32_t *left;       /* … [rows, part.chunks]; NULL = rows have no room for sounds */
    int32_t *mrope[MX_MROPE_KINDS]; /* [rows, length] see mx_vision_mrope; NULL = not used */
    struct MxBatch *next;           /* more rows of the same step; NULL = these are all */
} MxBatch;

/* mx_batch_new — a whole batch; mx_batch_new_part — part of one, whose `row` is kept. */
MxBatch mx_batch_new(MxArena *arena, int64_t rows, int64_t length);
MxBatch mx_batch_new_part(MxArena *arena, const MxBatchPart *part);
/* mx_batch_row — the position of row `row` of the batch in the part, which must contain it. */
int64_t mx_batch_row(const MxBatchPart *part, int64_t row);

typedef enum MxDataStatus {
    MX_DATA_OK,
    MX_DATA_END,  /* no more data: mx_data_end_reason */
    MX_DATA_ERROR /* text in err */
} MxDataStatus;

/* Whether a dataset has pairs of responses, and which tokens of them count (dpo.formula). */
typedef enum MxDataPairs {
    MX_DATA_NO_PAIRS,
    MX_DATA_PAIRS_STANDARD, /* each response its own completion, as published and as TRL */
    MX_DATA_PAIRS_MAXTEXT,  /* one mask for both: from their first difference to the end of the
                               shorter one */
    MX_DATA_PAIRS_SCORED,   /* the last token of each response, at its own position, where it is
                               scored */
} MxDataPairs;

/* The images of records: the model's encoder, and the columns that name image files if messages do
 * not. */
enum { MX_MOST_IMAGE_COLUMNS = 32 };
typedef struct MxDataImages {
    MxVision vision;
    MxHearing hearing; /* of sounds that messages name */
    const char *columns[MX_MOST_IMAGE_COLUMNS];
    int n_columns;
    const char *placeholder; /* the place of an image in a prompt, besides the encoder's mark; NULL
                                = only that */
    bool only_data;          /* only data: URLs are allowed, no files */
} MxDataImages;

/* What to read, the same on every rank. Strings are borrowed for the dataset's life. */
/* Block diffusion: blocks of a row with masked tokens. */
typedef struct MxDataBlocks {
    int64_t size;     /* tokens per block; 0 = nothing is masked */
    int32_t mask;     /* the token that replaces masked tokens */
    double min_noise; /* the masked share of a block is drawn between this and 1 */
    bool keeps_first; /* the first token of a block is never masked */
    bool shifts;      /* logits predict the next token, otherwise the token at their own position */
} MxDataBlocks;

/* Tokens of files that were read, for datasets opened later. A file is not read again if its path,
 * size and time are unchanged and the later dataset's rows have room for all of its records. In the
 * arena. */
typedef struct MxDataMemory MxDataMemory;
MxDataMemory *mx_data_memory_new(MxArena *arena);

/* How a user's message is made of a question: by a JSON file. Its TEMPLATE has {question}, and
 * {system_prompt} for its SYSTEM_PROMPT, in which {names[i]} stands for values[i]. */
typedef struct MxDataForm {
    const char *path; /* NULL = none */
    MxWhere where;    /* line of the setting with the path */
    const char *names[4], *values[4];
} MxDataForm;

typedef struct MxDataConfig {
    const char *kind;   /* "synthetic", "text", "hf", "grain", "tfds", "c4_mlperf", "hdf5" or
                           "olmo_grain" */
    const char *format; /* hf: "json" or "text"; grain: "arrayrecord", "tfrecord" or "parquet"; NULL
                           = detected from files */
    const char *path; /* text, hf: file, folder (its *.txt or *.jsonl, sorted) or glob, as given, in
                         share/, or in the installed share folder; grain: the same, or a mixture
                         "PATH,WEIGHT;PATH,WEIGHT"; hdf5: FILE.h5[:group]; olmo_grain: an
                         index, in JSON */
    const char *moved_from, *moved_to; /* olmo_grain: how paths of the index begin, and what stands
                                          here instead; NULL = as they are */
    bool masks_repeats;                /* olmo_grain: rows with many repeats do not count */
    const char *set, *split; /* tfds: "NAME[/CONFIG][:VERSION]" below the folder `path`; c4_mlperf:
                                the same, and the split follows from the set */
    bool evaluates;          /* c4_mlperf: `set` is evaluated: a whole number of batches */
    const char *mixture;     /* grain: a JSON file of parts and weights, instead of path */
    MxWhere where;           /* line of the setting with the path, for messages */
    const MxTokenizer *tokenizer; /* for kinds that read text */
    int64_t rows;                 /* rows of a batch; with pairs, of each of its halves */
    int64_t length;               /* length of a row: max_target_length */
    int64_t vocab;                /* tokens are in [0, vocab) */
    uint64_t seed;                /* seed of the shuffle */
    bool omits_bos, omits_eos;    /* text, hf: documents without them */
    bool shuffle;                 /* a new order every epoch; otherwise in order */
    bool packing; /* text: rows run across documents; hf: documents share rows, or pairs (not
                     MX_DATA_PAIRS_MAXTEXT); synthetic: with max_segments >= 2, not pairs */
    int64_t max_segments; /* max_segments_per_seq; <= 0 = no limit */
    int64_t n_epochs;     /* <= 0 = unlimited */
    bool pads; /* all batches behind the last one are padding, without end; not with groups */
    MxDataPairs pairs;          /* not for text */
    int64_t max_prompt_length;  /* hf with pairs or asks: in [1, length); prompts keep their last
                                   tokens, and responses the first length - max_prompt_length */
    const char *const *columns; /* [n_columns] hf: text; prompt, completion; chosen, rejected; or */
    int n_columns;              /* prompt, chosen, rejected; 0 = those of the first record */
    const char *default_prompt; /* where records lack the first of two; NULL = that is an error */
    int64_t group; /* > 0: records are rewarded responses, this many consecutive ones per prompt; a
                      batch has those of `rows` prompts. With is_sft, not with packing */
    bool has_labels; /* with group: the reward is 1 if column "label" is true, else 0 */
    bool asks; /* with group: records are prompts whose responses are not generated yet: all rows of
                  the group have only the prompt, its last max_prompt_length tokens */
    const char *const *answers; /* with asks: columns of which every record has one, and NULL; NULL
                                   = that is not asked for */
    MxDataForm form;            /* with asks: of the text of a prompt */
    bool reads_logprobs;        /* with group: read the log-probabilities with which responses were
                                   generated */
    bool has_ids; /* hf, grain, tfds: columns hold lists of token ids, used as they stand */
    bool splits;  /* hf, grain, tfds: documents longer than a row become several, instead of losing
                     what is behind it; neither pairs, groups, is_sft nor images */
    bool is_sft;  /* hf: the first record may have a prompt and a completion, or a
                     conversation */
    bool completion_only; /* hf: prompts do not count, and of conversations only the assistant's
                             words do */
    MxChatFrom chat;      /* for conversations; without `dir`, which is … */
    const char *tokenizer_dir; /* its tokenizer's; NULL = none */
    bool chat_has_others;      /* what is not data uses the template, too */
    const char *token_cache;   /* folder for tokens, found by the content of files; NULL = none */
    MxDataMemory *memory;      /* what this process has read before; NULL = nothing */
    bool remembers;            /* add what is read to `memory` */
    int64_t n_threads;   /* that tokenize, see mx_parallel; the result does not depend on them */
    MxDataImages images; /* for kinds that read text, without packing; no encoder = none */
    MxDataBlocks blocks; /* not with pairs, groups or packing */
} MxDataConfig;

/* mx_data_batch_rows — number of rows of a whole batch: config->rows, times 2 with pairs, or times
 * `group`. */
int64_t mx_data_batch_rows(const MxDataConfig *config);

/* mx_data_reads_text — whether a kind needs a tokenizer; other kinds contain tokens. */
bool mx_data_reads_text(const char *kind);

typedef struct MxDataset MxDataset;

/* mx_data_open — opens and checks a dataset; text is tokenised and kept (4 bytes per token; hf 2 if
 * vocab allows it, truncated to the length of rows). Errors: unrecognized kind; no files, no
 * tokens, text that is not UTF-8 (file and byte); lines that are not JSON or have the wrong form
 * (file and line, several at once); datasets missing or of a wrong shape or type; fewer rows than
 * one batch; a tokenizer larger than vocab; pairs requested from a kind that has none, or pairs in
 * which no token counts. */
bool mx_data_open(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err);

/* mx_data_skip — leaves out the first n rows of the first epoch: batch 0 begins behind them.
 * Errors: no whole batch is left of an epoch. */
bool mx_data_skip(MxArena *arena, MxDataset *dataset, int64_t n, MxError *err);

/* mx_data_hold_out — removes a share of a dataset's rows, evenly spread and at least a batch of
 * `rows`, and makes a dataset of them, which gives such batches once and in order. Both read one
 * source, and may be used by two threads. With packing the rows are those of the whole dataset: no
 * document is in both, except text that continues from row to row. share: in (0, 1). Errors: too
 * few rows for a batch of each. */
bool mx_data_hold_out(MxArena *arena, MxDataset *dataset, double share, int64_t rows,
                      MxDataset **out, MxError *err);

/* A file of a dataset, and a fingerprint of its contents when it was read. */
typedef struct MxDataFile {
    const char *path;
    int64_t bytes;
    uint64_t hash; /* XXH3-64 of the file; for HDF5 above 1 GiB, of evenly spread parts */
} MxDataFile;

/* mx_data_files — the files in the order in which they were read; none for synthetic data. */
const MxDataFile *mx_data_files(const MxDataset *dataset, int *n);

/* mx_data_try — reads data that may crash a library in a child process (mx_store_guarded): opens
 * the dataset and makes some of its batches, evenly spread. Not for processes with threads. Errors:
 * it crashes or does not end; a signal. mx_data_open reports other errors. */
bool mx_data_try(const MxDataConfig *config, MxError *err);

/* mx_data_find — checks that the config's data exists and can be opened, without reading it.
 * Errors: as in mx_data_open for files that are missing, unreadable or of another format. */
bool mx_data_find(const MxDataConfig *config, MxError *err);

/* The kind of data, detected from the first file. */
typedef struct MxDataGuess {
    const char *kind, *format; /* as in MxDataConfig; format NULL = not needed */
    bool is_sft, is_pair;      /* the purpose of its records; neither = pre-training */
    bool has_label;            /* with is_sft: true or false in "label", whether it is desirable */
    const char *columns;       /* "prompt, completion"; "" = files without records */
} MxDataGuess;

/* mx_data_guess — detects how to read a file, folder or glob, which is looked for like `path`.
 *   asks  its records are prompts for the policy to answer, whatever else they have
 * Errors: nothing is there; an unsupported format, with a way to convert it; a first record without
 * known columns. Test: tests/cli/finetune.sh. */
bool mx_data_guess(MxArena *arena, const char *path, bool asks, MxWhere where, MxDataGuess *out,
                   MxError *err);

/* Tokens, before truncation: of the longest record (of a pair, with the longer response), of the
 * longest prompt and of the longest response. */
typedef struct MxDataLongest {
    int64_t whole, prompt, answer;
} MxDataLongest;

/* mx_data_longest — all 0 = the dataset has no records. */
MxDataLongest mx_data_longest(const MxDataset *dataset);
/* mx_data_rows — the number of rows in an epoch if the same records were laid out with another
 * config's length, rows and packing; they are not read again. 0 = unknown for this kind.
 * mx_data_held_rows — how many of n rows mx_data_hold_out removes. */
int64_t mx_data_rows(const MxDataset *dataset, const MxDataConfig *as);
int64_t mx_data_held_rows(int64_t n, double share, int64_t rows);

/* mx_data_texts — passes the texts of all files to `take`, in order and unchanged: whole text
 * files, the columns of records that training reads, the contents of conversations. Needs no
 * tokenizer. Errors: as in mx_data_open for files and records; those of `take`; a kind without text
 * (exit 2). */
typedef bool MxDataText(void *data, MxEncoding text, MxError *err);
bool mx_data_texts(const MxDataConfig *config, MxDataText *take, void *data, MxError *err);

/* mx_data_batch — the batch of a step (>= 0), or out's part of it, with the same values for any
 * parts. Row r is row step*rows + r of the unlimited or finite sequence of epochs; rows at the end
 * of the last epoch that do not fill a batch are dropped. Only rows of the part are made, each as a
 * whole. Allocates nothing. One thread at a time.
 *   text    row k holds tokens k*length .. k*length + length of the stream bos document eos bos …;
 *           inputs all but the last, targets all but the first. Positions and segments start anew
 *           with the row and with each document; where the next token is of another document the
 *           target is padding. Without packing a row never leaves its document.
 *   hf      a row is a document (bos prompt completion eos), or several with packing, put in the
 *           first of the batch's rows that has room, each with its own segment and positions. The
 *           first token of a document is no target, nor, with completion_only, is its prompt.
 *   hdf5    rows as stored: [N, S], or [steps, B, S] read as steps*B rows
 *   olmo_grain  row k of a file is its tokens k*length .. (k+1)*length - 1, one segment; the last
 *           one has no target, and the rest of a file that is no row is left out
 *   synthetic  the same random batch at every step, as MaxText
 * Padding is token 0, position 0, segment 0; a batch of padding is zeros. With groups row g*rows +
 * r is response g to prompt r. With pairs the first half of the rows are chosen responses, the
 * second half the rejected ones of the same pairs, each after its prompt: segment s of row r and of
 * row rows + r are a pair. Hf puts several into a row with packing, first fit for both sides; hdf5
 * has as many as are stored. Targets are the inputs shifted by one (the last is 0); a target counts
 * if its segmentation is not 0, which is then that of its response. If only one row of a pair is in
 * the part, only that row is made, unless the mask depends on both (MX_DATA_PAIRS_MAXTEXT, hdf5
 * without prompts). Errors: a value out of range, with dataset, row and column (hdf5). */
MxDataStatus mx_data_batch(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err);

/* mx_data_scores — with groups, the scores of the responses of a step's batch, which must exist:
 * rewards [part->of_rows] of all rows of the batch; logprobs [part->rows, part->length], NULL if
 * they are not read: the recorded one of each target, 0 if it does not count. */
void mx_data_scores(const MxDataset *dataset, int64_t step, const MxBatchPart *part, float *rewards,
                    float *logprobs);

/* mx_data_twin — the same dataset for another thread. */
MxDataset *mx_data_twin(MxArena *arena, const MxDataset *dataset);
/* mx_data_mismatched — a step's batch, or out's part of it, with groups of 1, in which the prompt
 * of each row is followed by the completion of the previous row, that of the first row by the last
 * one's. */
bool mx_data_mismatched(MxDataset *dataset, int64_t step, MxBatch *out, MxError *err);
/* mx_data_record — with asks, the record of row r of a step's batch, as JSON text. */
const char *mx_data_record(const MxDataset *dataset, int64_t step, int64_t r);

/* mx_data_rows_made — number of rows made since the dataset was opened: the cost of batches. */
int64_t mx_data_rows_made(const MxDataset *dataset);
/* mx_data_steps — number of batches; -1 = unlimited. mx_data_batches — of those that are not only
 * padding (`pads`). */
int64_t mx_data_steps(const MxDataset *dataset);
int64_t mx_data_batches(const MxDataset *dataset);
/* mx_data_epochs_for — number of epochs that give this many batches. */
int64_t mx_data_epochs_for(const MxDataset *dataset, int64_t steps);
/* mx_data_end_reason — why there are no more batches: "the data ends after …". */
const char *mx_data_end_reason(const MxDataset *dataset);
/* mx_data_describe — one line for the log: kind, files, tokens, rows. */
const char *mx_data_describe(const MxDataset *dataset);
/* mx_data_warning — a warning about data that was accepted, one line; NULL = none. */
const char *mx_data_warning(const MxDataset *dataset);

/* A thread that makes batches ahead of their use. */
typedef struct MxLoader MxLoader;

typedef struct MxLoaderConfig {
    MxDataset *dataset; /* used only by the thread while the loader is open */
    MxBatchPart part;   /* part of every batch; rows 0 = the whole batch */
    int64_t first_step;
    int depth;    /* maximum number of waiting batches, >= 1 */
    int64_t most; /* maximum number that is taken at once; 0 = 1 */
} MxLoaderConfig;

/* mx_loader_open — starts the thread. Closed by mx_loader_close or with the arena. Everything it
 * needs is allocated here. */
bool mx_loader_open(MxArena *arena, const MxLoaderConfig *config, MxLoader **out, MxError *err);
/* mx_loader_next — waits for the next n batches, of which *out is the first one; they stay valid
 * until the next call. If the data ends within them, they are not given. After MX_DATA_END or
 * MX_DATA_ERROR every call returns the same. */
MxDataStatus mx_loader_next(MxLoader *loader, int64_t n, MxBatch *out, MxError *err);
/* mx_loader_close — stops the thread at any time and waits for it; a second call has no effect. */
void mx_loader_close(MxLoader *loader);

#endif
