/* source.h — private to the room: the functions of a kind of dataset, and code shared by all kinds.
 */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <mx/data.h>

/* One row of a batch. */
typedef struct DataRow {
    int32_t *field[MX_BATCH_FIELDS]; /* [length] each */
} DataRow;

/* data_row — a row of a batch's arrays. */
DataRow data_row(const MxBatch *batch, int64_t row);
/* data_clear — makes a batch all padding. */
void data_clear(MxBatch *batch);
/* data_part_row — which row of the batch is number `at` of a part's. data_part_from — the first of
 * a part's rows that is `row` of the batch or a later one. */
int64_t data_part_row(const MxBatchPart *part, int64_t at);
int64_t data_part_from(const MxBatchPart *part, int64_t row);

/* Files that belong together, and how much of a mixture they are. */
typedef struct DataPart {
    const char *label; /* as it was named */
    double weight;     /* > 0; of documents */
    char **paths;      /* [n_paths], at least one */
    int n_paths;
    const char *told_by; /* a file that tells how many records they have; NULL = none does */
    int64_t n_told;
    bool is_ordered; /* its records have an order, in which they are read */
} DataPart;

typedef struct DataParts {
    DataPart *item; /* [n] */
    int n;
} DataParts;

typedef struct FormatChoice FormatChoice;
typedef struct Records Records;

/* What becomes of the images of a row: which token of them each of its tokens is (MxBatch.image),
 * their values, and the grids of views that have their own, NULL = none have. Zeros at first. */
typedef struct DataSeen {
    int32_t *index;
    float *pixels;
    MxVisionGrid *grids;
    float *frames; /* of sounds, see mx_audio_fill; NULL = there is no room for them */
    int32_t *left;
    float *samples; /* room for a sound */
} DataSeen;

/* sounds_most — samples of a sound at most. */
int64_t sounds_most(const MxHearing *hearing);

/* A kind of dataset: numbered rows, each a pure function of its number. */
typedef struct DataKind {
    const char *name;
    /* The files that the config names; NULL = there are none. */
    bool (*parts)(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err);
    /* What such a file must hold. */
    const FormatChoice *(*choice)(const MxDataConfig *config, const char *path);
    /* Opens dataset->source and sets n_rows and description, perhaps more of it. */
    bool (*open)(MxArena *arena, MxDataset *dataset, MxError *err);
    /* Fills a row. Allocates nothing. */
    bool (*row)(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err);
    /* With pairs instead: one response's row, chosen (0) or rejected (1), up to its targets, and in
     * MX_TARGETS_SEGMENTATION its segment for every token of a response but the first of a
     * document; see lacks_responses. NULL = the kind has no pairs. */
    bool (*side)(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);
    /* NULL = the kind has no records. */
    MxDataLongest (*longest)(const MxDataset *dataset);
    /* Rows of an epoch if they were laid out as another config says; NULL = the kind does not tell.
     */
    int64_t (*rows)(const MxDataset *dataset, const MxDataConfig *as);
    /* With groups: the reward of a row, whose number counts the responses of all groups, and the
     * recorded log-probabilities of its targets [length]. NULL = the kind has no rewards. */
    float (*score)(const MxDataset *dataset, int64_t row, float *logprobs);
    /* With groups: a row of one record's prompt and another's completion. NULL with `score`. */
    bool (*mixed)(MxDataset *dataset, int64_t prompt, int64_t answer, const DataRow *out,
                  MxError *err);
    /* With prompts that ask for responses: a record, an object of JSON as text. NULL = the kind has
     * none. */
    const char *(*record)(const MxDataset *dataset, int64_t row);
    /* With images: what a row has of them, of its tokens [length]. NULL = the kind has no images.
     */
    bool (*see)(MxDataset *dataset, int64_t row, const int32_t *tokens, const DataSeen *out,
                MxError *err);
    /* Makes the documents that rows are packed of out of the records that were read. NULL = they
     * are the same. */
    void (*join)(Records *records);
    bool is_stream;  /* documents stay in order, next to each other, and none is left out */
    bool reads_text; /* which a tokenizer makes tokens of */
    bool is_guarded; /* the library that reads it may crash on damaged files */
    bool is_endless; /* epochs and shuffling mean nothing */
    const char *doc;
} DataKind;

/* Room to make a row in, [length] each. */
typedef struct DataScratch {
    int64_t *wide;
    int32_t *tokens, *mask;
    float *reals;   /* mx_data_scores' alone: the loader's thread uses the others */
    uint8_t *rgb;   /* a picture; NULL without images */
    float *samples; /* a sound; NULL without */
    int32_t *mrope[MX_MROPE_KINDS];
} DataScratch;

/* What was found in the folder of kept tokens, and made (cache.h). */
typedef struct DataCache {
    const char *dir; /* NULL = nothing is kept */
    uint64_t settings;
    int n_found, n_made, n_damaged; /* files */
} DataCache;

struct MxDataset {
    const DataKind *kind;
    MxDataConfig config;
    void *source;
    int64_t n_rows;        /* of an epoch; with pairs or groups, of each side */
    int64_t n_skipped;     /* rows before the first batch */
    int64_t n_held, n_all; /* rows of the source that are held out, of how many; 0 = none */
    bool is_held;          /* this dataset has those, else the others */
    MxDataFile *files;     /* [n_files] */
    int n_files;
    const char *unit;     /* what a row is called */
    bool lacks_responses; /* where responses begin is not known: sides leave out what counts */
    DataRow spare[2];     /* [length] rows of which not all is wanted */
    DataCache cache;
    DataScratch scratch; /* its own: datasets that share a source may be used by two threads */
    int64_t n_made;      /* rows so far */
    const char *description, *warning, *end_reason;
};

/* data_find_kind — a kind by name; NULL after an error. */
const DataKind *data_find_kind(const char *name, MxWhere where, MxError *err);
extern const DataKind data_synthetic, data_text, data_hf, data_grain, data_tfds, data_c4_mlperf,
    data_hdf5, data_olmo;

/* Philox streams of this room; the low 48 bits count epochs or rows. */
#define DATA_STREAM_SHUFFLE  (UINT64_C(0xda01) << 48)
#define DATA_STREAM_TOKENS   (UINT64_C(0xda02) << 48)
#define DATA_STREAM_SEGMENTS (UINT64_C(0xda03) << 48)

/* data_corrupt — masks tokens of a whole row as config.blocks says, and puts targets where they are
 * predicted. number  of the row among all that are made: what is drawn depends on it and the seed.
 */
void data_corrupt(const MxDataset *dataset, int64_t number, const DataRow *row);

/* data_repeats — whether n tokens have a span of a short sequence many times over. */
bool data_repeats(const int32_t *tokens, int64_t n);

/* data_shuffle — where row i of an epoch comes from: for fixed seed, epoch and n a permutation of
 * 0 … n-1. */
int64_t data_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* data_make_room — the rows and scratch that a dataset has to itself. data_say_end — makes its
 * end_reason. data_row_of_source — which row of the source is number i of a dataset. */
void data_make_room(MxArena *arena, MxDataset *dataset);
void data_say_end(MxArena *arena, MxDataset *dataset);
int64_t data_row_of_source(const MxDataset *dataset, int64_t i);

/* data_sides — rows of an example: 1, 2 with pairs, or those of a group. */
int64_t data_sides(const MxDataConfig *config);
/* data_has_groups — whether records of the data are responses, those of a group one after the
 * other. */
bool data_has_groups(const MxDataConfig *config);
/* data_pair_is_joint — whether what counts of one response depends on the other. data_pair — both
 * rows of a pair. data_pair_side — one of them, of a pair that is not joint. */
bool data_pair_is_joint(const MxDataset *dataset);
bool data_pair(MxDataset *dataset, int64_t row, const DataRow out[2], MxError *err);
bool data_pair_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);
/* data_pair_finish — what follows when both sides are filled: what counts, and targets. Where
 * responses' beginnings are not known they are where the two first differ. That gives the same DPO
 * loss and gradient: tokens of a common prefix have equal log-probs in both rows, so they cancel in
 * the difference. A document's first token never counts, having none before it. Segments are
 * numbered 1, 2, … in the order of the chosen row; gives how many were left out because only one
 * row has them. Source of MX_DATA_PAIRS_MAXTEXT: MaxText dpo_utils.py, dpo_loss_fn @4bcec6af. */
int64_t data_pair_finish(const MxDataset *dataset, const DataRow pair[2]);
/* data_pair_mute — of the pairs in finished rows, at least one, how many teach nothing: responses
 * are equal, or no token counts. */
int64_t data_pair_mute(int64_t length, const DataRow pair[2], int64_t *n_pairs);

/* data_add_file — notes that a file was read, in the arena. */
void data_add_file(MxArena *arena, MxDataset *dataset, MxDataFile file);
/* data_hash_file — a file as data_add_file wants it, of evenly spread parts if it is larger than
 * 1 GiB. */
bool data_hash_file(const char *path, MxDataFile *out, MxError *err);
/* data_hash_whole — of all of it, whatever its size. */
bool data_hash_whole(const char *path, MxDataFile *out, MxError *err);
/* data_find_part — the files that a path names, sorted bytewise by path; of a folder those of the
 * first of `suffixes` (NULL behind the last) that any file of it ends in, perhaps with ".gz",
 * ".zst" or ".lz4" behind; "" = all its files. data_find_parts — of config->path, as the only part.
 */
bool data_find_part(MxArena *arena, const MxDataConfig *config, const char *path,
                    const char *const *suffixes, DataPart *out, MxError *err);
bool data_find_parts(MxArena *arena, const MxDataConfig *config, const char *const *suffixes,
                     DataParts *out, MxError *err);

/* data_check_tokenizer — every token must be below vocab. */
bool data_check_tokenizer(const MxDataConfig *config, MxError *err);

#endif
