/* ckpt.h — trees in files. In memory a train state is one tree with MaxText's NNX paths, layer by
 * layer
 * ("model/decoder/layers_3/mlp/wi_0/kernel", "optimizer/opt_state/0/mu/…"). Files hold it in one of
 * several forms: NNX or Linen paths, layers stacked or not. A table translates, in both directions.
 * docs/CHECKPOINT_FORMAT.md describes the files. */
#ifndef MX_CKPT_H
#define MX_CKPT_H

#include <mx/ckpt_logits.h>
#include <mx/config.h>
#include <mx/family_encoder.h>
#include <mx/store.h>
#include <mx/tree.h>

/* How a tree is written. */
typedef struct MxForm {
    bool is_linen;   /* params/params/…, opt_state/… instead of model/…, optimizer/… */
    bool is_scanned; /* layers stacked into one array */
    int scan_axis; /* dim of the layers in stacked arrays (param_scan_axis); past the end = last */
} MxForm;

/* Where one leaf is in a file. */
typedef struct MxPlace {
    const char *path; /* NULL = such files leave it out (Linen: the reference model) */
    MxDtype dtype;
    MxShape shape; /* of the whole array in the file */
    int scan_dim;  /* dim in which the leaf is one slice; -1 = the leaf is the array */
} MxPlace;

/* mx_ckpt_place — the place of a leaf in a form. */
MxPlace mx_ckpt_place(MxArena *arena, MxForm form, const MxLeaf *leaf);

/* mx_ckpt_read — fills the leaves' data from a group of an open file, of divided leaves this rank's
 * box; the form is found by looking.
 * Leaves outside `section` ("model/"; "" = all) are left alone, and so is whatever the file holds
 * outside it. A leaf without data may be in the file or not, and is not read. Dtypes are converted.
 *   scan_axis  the dim of the layers in stacked arrays, if several agree with the shapes; one
 *              decision serves the whole file
 * Errors: every missing, extra and mis-shaped array, one line each (exit 65); random-number and
 * dropout leaves that MaxText keeps beside its weights are not extra. */
bool mx_ckpt_read(MxH5 *file, const char *group, const char *section, int scan_axis, MxTree *tree,
                  MxError *err);

/* The tokenizer whose ids weights know. */
typedef struct MxCkptTokenizer {
    const char *type; /* as in the key tokenizer_type; NULL = not known */
    const char *path; /* its file, or the folder that it lies in; "" = none */
    const char *hash; /* of its file's content, as mx_tokenizer_identify has it, in hexadecimal
                         digits; NULL = not known */
} MxCkptTokenizer;

/* How a checkpoint is saved. */
typedef struct MxSaving {
    MxForm form;
    const char *config;      /* kept in the manifest as text */
    const double *eval_loss; /* of this very state, kept in the manifest; NULL = not known */
    const char *data;        /* what it was trained on, kept as JSON in it; NULL = not said */
    const char *made_by;     /* what its bits depend on, kept as JSON in it; NULL = not said */
    MxPace *pace;            /* a brake; NULL = none */
    MxCkptTokenizer tokenizer;
    const char *run; /* of several ranks: makes names of files unique, beside the step */
} MxSaving;

/* A checkpoint folder with state.h5 and a manifest, published as a whole (mx_store_publish_begin).
 * Equal states give equal bytes. It is made in steps, of which no rank needs the others at that
 * time, so a rank may write in a thread of its own: rank 0 begins, all begin in its folder and
 * write, rank 0 commits with what all have to tell of their files. Errors also: no room on the
 * disk, told with the bytes wanted and free, before anything is written where that can be seen. */
typedef struct MxCkptSave MxCkptSave;

/* mx_ckpt_save_begin — rank 0 (temp NULL) makes the temporary folder, which goes with the arena
 * unless committed; others are told its name. `how` and `state` are kept; the state's shapes count,
 * not yet its data. Errors: the final path exists; no room. */
bool mx_ckpt_save_begin(MxArena *arena, const char *dir, const char *temp, const MxSaving *how,
                        const MxTree *state, MxCkptSave **out, MxError *err);
const char *mx_ckpt_save_temp(const MxCkptSave *save);
/* mx_ckpt_save_write — this rank's file, closed, hashed and on disk; on rank 0 also the one that
 * shows all.
 *   share  as of mx_ckpt_share: the data to write */
bool mx_ckpt_save_write(MxCkptSave *save, const MxTree *share, MxError *err);
/* mx_ckpt_save_report — what a rank has to tell of the files that it wrote; text. */
const char *mx_ckpt_save_report(const MxCkptSave *save);
/* mx_ckpt_save_commit — the manifest, and the folder under its name. reports  [n] of all ranks */
bool mx_ckpt_save_commit(MxCkptSave *save, const char *const *reports, int n, MxError *err);

/* mx_ckpt_share — the same leaves; those whose box another rank writes without data. Of an
 * undivided tree all keep theirs. mx_ckpt_share_bytes — of the rank that has most to write. */
MxTree *mx_ckpt_share(MxArena *arena, MxForm form, const MxTree *tree);
int64_t mx_ckpt_share_bytes(MxForm form, const MxTree *tree);

/* How thoroughly checkpoints are looked for. */
typedef struct MxCkptSearch {
    bool peeks;         /* nothing is verified but manifests, and nothing told of those skipped */
    const MxTeam *team; /* see mx_store_verify */
} MxCkptSearch;

/* mx_ckpt_newest — the newest checkpoint folder of a run that verifies; *dir is NULL if there is
 * none at all. Newer ones that are damaged are named in warnings. Errors: there are some, but none
 * verifies (exit 65); a newer one cannot be read now, and may be good (74, 77). */
bool mx_ckpt_newest(MxArena *arena, const char *checkpoint_dir, const MxCkptSearch *how,
                    const char **dir, int64_t *step, MxError *err);

/* mx_ckpt_load — reads the whole state from a checkpoint folder that verified. A reference model
 * stays as it is if the checkpoint is a Linen one, which never holds it. */
bool mx_ckpt_load(const char *dir, int scan_axis, MxTree *state, MxError *err);
/* mx_ckpt_has_reference — whether a checkpoint holds the reference model, if the state has one. */
bool mx_ckpt_has_reference(const char *dir, const MxTree *state, bool *out, MxError *err);

/* ---- parameters from elsewhere */

/* mx_ckpt_load_params — only the parameters ("model/…"), from whatever mx_ckpt_find finds. Adapters
 * stay as they are if the source has none at all. team  see mx_store_verify, here and below. */
bool mx_ckpt_load_params(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                         MxError *err);
/* mx_ckpt_load_adapters — only the adapters, all of them; from whatever mx_ckpt_find finds. */
bool mx_ckpt_load_adapters(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                           MxError *err);
/* mx_ckpt_load_full — the whole state from whatever mx_ckpt_find finds. A reference model and what
 * is the run's own ("mxtrain/…") stay as they are if the source has none.
 *   has_reference  whether the source has a reference model */
bool mx_ckpt_load_full(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                       bool *has_reference, MxError *err);

/* ---- any checkpoint, with or without a model */

/* What a reference names. */
typedef struct MxCkptRef {
    const char *ref;          /* as the user wrote it */
    const char *path, *group; /* the HDF5 file, and a group in it ("" = all) */
    const char *dir;          /* its folder, if that is a checkpoint that verified; else NULL */
    const MxJson *manifest;   /* of the folder, or NULL: nothing vouches for the file's bytes */
    bool is_hf;               /* a folder of Hugging Face's (peeking: or peft's): `path` */
    bool assumes_bf16;        /* its uint16 are bfloat16: to be set by who asks the user */
    bool sees, hears;         /* of a folder of Hugging Face's its encoders of images and, if it has
                                 one, of sounds too, … */
    bool unties; /* … and its output matrix as a parameter of its own if that is the embedding */
    /* How kernels of queries and keys are held in a file of ours, or are to be held here of a
     * folder of Hugging Face's; NULL = as in MaxText's trees. */
    const MxHeadForm *heads;
} MxCkptRef;

/* mx_ckpt_find — FILE.h5[:group], a checkpoint folder, a run's folder (its newest checkpoint that
 * verifies), or a folder of Hugging Face's. Whatever has a manifest is verified here, before
 * libhdf5 sees it. team  see mx_store_verify. Errors: no such thing; damage (exit 65). */
bool mx_ckpt_find(MxArena *arena, const char *ref, const MxTeam *team, MxCkptRef *out,
                  MxError *err);

/* mx_ckpt_peek — the same without reading what is there: nothing is verified but manifests
 * themselves, and of a run the newest checkpoint whose manifest is good is taken. A folder of
 * peft's is found too. */
bool mx_ckpt_peek(MxArena *arena, const char *ref, MxCkptRef *out, MxError *err);

/* mx_ckpt_dim — the size of dim 0 of an array of a checkpoint, or of another file of a whole state,
 * by its path; 0 = it has none of that path. */
bool mx_ckpt_dim(const MxCkptRef *ref, const char *path, int64_t *out, MxError *err);

/* mx_ckpt_tokenizer — what is recorded of the tokenizer that the weights of a source were trained
 * with. Test: tests/ckpt/test_origin.c. */
bool mx_ckpt_tokenizer(MxArena *arena, const MxCkptRef *ref, MxCkptTokenizer *out, MxError *err);

/* mx_ckpt_vouch — for a folder in the format of others, Hugging Face's or peft's: that it is as
 * mxconvert left it, if mxconvert made it. What others add to it does not count.
 *   manifest  NULL = it has none, and nothing vouches for it
 * Errors: damage; a file that would be read and that the manifest does not list (exit 65). */
bool mx_ckpt_vouch(MxArena *arena, const char *dir, const MxTeam *team, const MxJson **manifest,
                   MxError *err);

/* mx_ckpt_try — reads in a child process (mx_store_guarded) what libhdf5 would read of a file that
 * nothing vouches for, so that one which makes the library crash or never end is an error, and no
 * more. Any other error is left to the one who reads it. For processes that have not taken much
 * memory yet. */
bool mx_ckpt_try(const char *ref, MxError *err);

/* How layers are to be stacked where the source does not show it. */
typedef struct MxRestack {
    const char *decoder_block; /* family of decoders, NULL = found by looking */
    int cycle;                 /* layers in a block, 0 = the family's */
} MxRestack;

/* What a conversion does with adapters. */
typedef enum MxAdapters {
    MX_ADAPTERS_STAY,   /* like all else */
    MX_ADAPTERS_MERGED, /* the result holds the parameters alone, W + A B alpha / rank */
    MX_ADAPTERS_ALONE,  /* the result holds nothing else */
} MxAdapters;

/* What is known of adapters beyond their file. */
typedef struct MxAdapterFacts {
    double alpha;          /* 0 = not known */
    const MxCkptRef *base; /* weights below them; NULL = not known, or those beside them */
    bool is_base_said;     /* by the user: there are to be none beside them */
    const char *base_hint; /* a line for when there is none; NULL = nothing to say */
    const MxTree *weights; /* the model's parameters in order; NULL = the fingerprint of the base
                              cannot be checked */
} MxAdapterFacts;

typedef struct MxConvert {
    const char *layout;  /* "linen", "nnx"; NULL = the source's */
    int scan;            /* layers stacked: 1, one by one: 0; -1 = as in the source */
    int scan_axis;       /* -1 = the source's, or 1 */
    bool params_only;    /* only the model */
    MxDtype param_dtype; /* of the model's and the reference model's floats */
    bool casts;          /* param_dtype counts */
    bool verifies;       /* read the result back and compare every bit */
    MxRestack restack;
    MxAdapters adapters;
    MxAdapterFacts facts; /* for merging */
    /* The model's parameters, whose `quant` says which are written as codes and scales; NULL = the
     * result keeps none so. */
    const MxTree *quantized;
} MxConvert;

/* mx_ckpt_convert_show — what a conversion would do, as text: one line an array of the result with
 * its sources, shapes and transform.
 * Errors: everything that stands in the way, one line each. */
bool mx_ckpt_convert_show(const MxCkptRef *from, const MxConvert *how, MxText *out, MxError *err);
/* mx_ckpt_convert — writes a new HDF5 file at `path`, array by array in pieces of some MiB; the
 * same source and options give the same bytes. The tokenizer of the weights is noted in it. Not
 * synced. form   receives how the file is written
 *   notes  receives what was found and what the result lacks, in lines
 * Errors: as of the plan; I/O; with `verifies` every array that reads back otherwise. */
bool mx_ckpt_convert(const MxCkptRef *from, const MxConvert *how, const char *path, MxForm *form,
                     MxText *notes, MxError *err);

/* A result in the making: a checkpoint folder, or one HDF5 file if the name ends in ".h5" or
 * ".hdf5". It appears under its name complete or not at all. */
typedef struct MxCkptOutput MxCkptOutput;

/* mx_ckpt_output_begin — where to write. Unless committed, what was written goes with the arena.
 *   replace  an existing file or checkpoint folder is replaced at the commit
 * Errors: the name is taken; no permission. */
bool mx_ckpt_output_begin(MxArena *arena, const char *path, bool replace, MxCkptOutput **out,
                          MxError *err);
/* mx_ckpt_output_file — the HDF5 file to make. */
const char *mx_ckpt_output_file(const MxCkptOutput *output);
/* mx_ckpt_output_dir — the folder to fill with files of another kind; NULL if it is one file. */
const char *mx_ckpt_output_dir(const MxCkptOutput *output);

/* The member of a manifest that names how kernels are kept: "nf4". */
#define MX_CKPT_KEPT "weights"

/* What the manifest of a folder tells. */
typedef struct MxCkptOrigin {
    const MxForm *form;   /* how the checkpoint is written; NULL = it is no checkpoint */
    const MxJson *source; /* the config of where it came from is kept, its layout keys changed to
                             the form's; NULL = nothing known */
    MxAdapters adapters;  /* merged: the config says that there are none */
    MxCkptTokenizer tokenizer;     /* of a folder in the format of others; files of ours note it */
    const struct MxHfModel *model; /* of Hugging Face's that it was; NULL = as the source says */
    const char *kept;              /* see MX_CKPT_KEPT; NULL = as floats */
} MxCkptOrigin;

/* mx_ckpt_output_commit — syncs and publishes it. */
bool mx_ckpt_output_commit(MxCkptOutput *output, const MxCkptOrigin *origin, MxError *err);

/* mx_ckpt_output_forget — asks the system to drop what it holds of a committed result in memory, so
 * that reading it is reading the disk. mx_ckpt_output_remove — removes a committed result. */
void mx_ckpt_output_forget(const MxCkptOutput *output);
bool mx_ckpt_output_remove(MxCkptOutput *output, MxError *err);
/* mx_ckpt_read_through — reads every array of a checkpoint and keeps none; how many bytes. */
bool mx_ckpt_read_through(const MxCkptRef *ref, int64_t *bytes, MxError *err);

typedef struct MxCompare {
    double rtol, atol;   /* equal if |a - b| <= atol + rtol |b| … */
    int64_t ulp;         /* … or if at most so many floats lie between them; all 0 = equal bits */
    bool structure_only; /* paths, shapes and dtypes */
    bool params_only;
    int top;               /* at most so many arrays with other values are shown; 0 = all */
    const char *json_path; /* the report as JSON, "-" = stdout instead of text; NULL = none */
    const char *html_path; /* the report as a page; NULL = none */
} MxCompare;

/* mx_ckpt_compare — compares two checkpoints of any layouts and scan forms and prints a report.
 * What is or was Hugging Face's is compared in the other's form of heads; a value is equal if a
 * conversion in either direction would make it of the other. NaNs are equal to NaNs, infinities to
 * themselves; without tolerances 0 and -0 differ. is_equal  receives the outcome Errors: one of
 * them cannot be read. */
bool mx_ckpt_compare(const MxCkptRef *a, const MxCkptRef *b, const MxCompare *how, bool *is_equal,
                     MxError *err);

#include <mx/ckpt_hf.h>
#include <mx/ckpt_peft.h>

#endif
