/* store.h — files of arrays. HDF5 files opened safely (arrays by path, boxes, attributes), folders
 * that appear under their final name complete or not at all, and the lock on a folder of them. What
 * the arrays mean is not known here. */
#ifndef MX_STORE_H
#define MX_STORE_H

#include <mx/base.h>
#include <mx/base_confine.h>

#include <stdatomic.h>

/* ---- HDF5 files */

/* An open file. Made by mx_h5_open or mx_h5_create; closed by mx_h5_close or with its arena. For
 * one thread at a time, but for reads of boxes; threads take turns inside libhdf5. */
typedef struct MxH5 MxH5;

/* One dataset as it is stored. */
typedef struct MxH5Array {
    const char *path; /* relative to the group that was listed; "a/b/c" */
    MxDtype dtype;    /* uint16 with attribute dtype="bfloat16" is MX_BF16; bool is MX_I8; int16 is
                         MX_I32, uint64 is MX_I64; of a text MX_U8 */
    MxShape shape;
    bool is_text;        /* a string: mx_h5_read_text */
    int64_t chunk_bytes; /* that are unpacked to read one element; 0 = none are packed */
} MxH5Array;

/* mx_store_ref_parse — "FILE.h5[:group]" to its two halves. The group has no slash at either end
 * and is "" when none is named. The file ends at the first ".h5:" or ".hdf5:"; a reference that
 * ends in ".h5" or ".hdf5" has no group; any other is cut at its last colon. */
void mx_store_ref_parse(MxArena *arena, const char *ref, char **file, char **group);

/* mx_h5_open — an existing file, read-only. Whoever has a hash of the file checks it first:
 * libhdf5 may crash on damaged files. Errors: missing, unreadable, not HDF5, cut short. */
bool mx_h5_open(MxArena *arena, const char *path, MxH5 **out, MxError *err);
/* mx_h5_assume_bf16 — takes every uint16 of a file for bfloat16, as the attribute would say that it
 * lacks. Before anything is looked at. */
void mx_h5_assume_bf16(MxH5 *file);
/* mx_h5_create — a new file, replacing any of that name. Equal contents written in equal order give
 * equal bytes. */
bool mx_h5_create(MxArena *arena, const char *path, MxH5 **out, MxError *err);
/* mx_h5_close — closes the file. Of a created file: false when this or anything written before
 * failed, and when the file cannot be opened again (on a full disk libhdf5 closes without a word).
 * Not synced to disk: mx_store_publish_commit does that. */
bool mx_h5_close(MxH5 *file, MxError *err);
const char *mx_h5_path(const MxH5 *file);

/* Paths below are from the root, without a leading slash; "" is the root group. */

bool mx_h5_has_group(MxH5 *file, const char *path);
bool mx_h5_has_array(MxH5 *file, const char *path);

/* mx_h5_list — every dataset at any depth below a group, sorted bytewise by path.
 *   out, n  [n] in the arena; a file with two hard links to one dataset lists both
 * Errors: no such group; soft or external links; datasets with external storage, of rank above
 * MX_MAX_RANK or of types that MxDtype lacks; depth above 64; more than 400,000 links. */
bool mx_h5_list(MxArena *arena, MxH5 *file, const char *group, MxH5Array **out, int *n,
                MxError *err);
/* mx_h5_stat — one dataset; out->path is `path` itself (borrowed). Errors as of mx_h5_list. */
bool mx_h5_stat(MxH5 *file, const char *path, MxH5Array *out, MxError *err);

/* mx_h5_read — a whole dataset into `out`, row-major, converted from the stored type.
 *   want   any of MxDtype; MX_BF16 from floats rounds to nearest even
 *   shape  what the stored shape must be
 * Errors: no such dataset, another shape, a float where integers are wanted, integers that `want`
 * cannot hold, a file that is damaged. */
bool mx_h5_read(MxH5 *file, const char *path, MxDtype want, MxShape shape, void *out, MxError *err);
/* mx_h5_read_box — a part of a dataset into `out` [box.count], dense. Virtual datasets are read if
 * they show whole datasets of files beside their own. Errors also: the box leaves the array; such a
 * file is missing. */
bool mx_h5_read_box(MxH5 *file, const char *path, MxDtype want, MxBox box, void *out, MxError *err);

/* A part of a dataset to be read, and the memory it goes to. */
typedef struct MxH5Want {
    const char *path;
    MxDtype dtype;
    MxBox box;
    void *out;
} MxH5Want;

/* mx_h5_read_boxes — mx_h5_read_box for many parts, by several threads and past the library where
 * the file has the bytes as memory wants them. Wants of one dataset and dtype that follow each
 * other are read together: layers out of their stack. Errors: all of them. */
bool mx_h5_read_boxes(MxH5 *file, const MxH5Want *wants, int n, MxError *err);

/* Bytes of a file that are a dataset's, in one piece. */
typedef struct MxH5Span {
    const char *path;
    int64_t offset, bytes;
} MxH5Span;

/* mx_h5_spans — of every dataset that has such bytes, by offset. */
bool mx_h5_spans(MxArena *arena, MxH5 *file, MxH5Span **out, int *n, MxError *err);
/* mx_h5_read_text — a scalar string dataset. */
bool mx_h5_read_text(MxArena *arena, MxH5 *file, const char *path, char **out, MxError *err);

/* mx_h5_make — a dataset in a created file, contiguous, elements not written read as 0; groups on
 * the way are made. Errors: the path is taken; the disk is full. */
bool mx_h5_make(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, MxError *err);
/* mx_h5_write — makes a dataset and writes it whole from `data`, row-major, of type `dtype`. */
bool mx_h5_write(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, const void *data,
                 MxError *err);
/* mx_h5_write_box — a part of a dataset made before, from `data` [box.count] of its own type. */
bool mx_h5_write_box(MxH5 *file, const char *path, MxBox box, const void *data, MxError *err);
/* Where a part of an array is: all of the dataset of the same path in a file beside. */
typedef struct MxH5Source {
    const char *file; /* name, without a folder */
    MxBox box;
} MxH5Source;

/* mx_h5_make_virtual — a dataset that shows those of other files as one; what none of them has
 * reads as bits that are all one, a NaN. Rank 1 or more. */
bool mx_h5_make_virtual(MxH5 *file, const char *path, MxDtype dtype, MxShape shape,
                        const MxH5Source *sources, int n, MxError *err);
/* mx_h5_write_text — makes a scalar dataset, a UTF-8 string of fixed length. For texts of any size.
 */
bool mx_h5_write_text(MxH5 *file, const char *path, const char *text, MxError *err);

/* mx_h5_attr — an attribute of a group or dataset as text: strings as they are, a number or bool in
 * C's spelling ("3", "0.5", "1"). *out is NULL when there is no such attribute. Errors: no such
 * object; an attribute that is neither a string nor a scalar number. */
bool mx_h5_attr(MxArena *arena, MxH5 *file, const char *path, const char *name, char **out,
                MxError *err);
/* mx_h5_set_attr — writes a string attribute, UTF-8 of fixed length, at most 60,000 bytes; the
 * group is made if need be. */
bool mx_h5_set_attr(MxH5 *file, const char *path, const char *name, const char *value,
                    MxError *err);

/* ---- a brake for work in the background */

/* What a thread may take from those that have more urgent work. It calls mx_pace between pieces of
 * its work; any thread may set is_hurried. */
typedef struct MxPace {
    double share; /* of one core, in (0, 1] */
    atomic_bool is_hurried;
    double used_s; /* CPU time of the thread after its last pause */
} MxPace;

/* mx_pace_start — from now on, for the calling thread. */
void mx_pace_start(MxPace *pace);
/* mx_pace — pauses until the work since the last pause is no more than the share of the time gone
 * by, or somebody is in a hurry. NULL = no brake. */
void mx_pace(MxPace *pace);

/* ---- the lock on a folder */

/* mx_store_lock — makes the folder if need be and takes its lock (flock on DIR/LOCK) until the
 * arena is released or the process ends, however it ends. Errors: another process has it (exit 75,
 * with its pid where the file tells); no permission. */
bool mx_store_lock(MxArena *arena, const char *dir, MxError *err);
/* mx_store_is_locked — whether a process has the lock of a folder now, and what the file says of it
 * ("process 12 on host"; "" = nothing). A folder that cannot be looked at has none. */
bool mx_store_is_locked(MxArena *arena, const char *dir, const char **holder);

/* ---- files that may be hostile */

/* mx_store_guarded — runs `work` in a child process and returns its exit code; the child's output
 * is this process's. A crash of the child, or a call of libhdf5 that does not end, is a failure
 * that names `what` (exit 65). Memory is limited to 3 GiB, and what the child may do to that for
 * which mx_confine leaves it rights. SIGINT and SIGTERM reach the child and end the wait (exit 130,
 * 143); afterwards they do what they did before. Not for processes with threads: the child has only
 * one. */
MxExit mx_store_guarded(const char *what, MxConfine how, MxExit (*work)(void *data), void *data,
                        MxError *err);
/* mx_store_try — whether files can be read at all: `work` reads them in such a child, with an arena
 * and an error of its own, and says nothing, as whoever reads them afterwards meets the same
 * errors. Errors: the child's end, with `what` in them. */
typedef void MxAttempt(MxArena *arena, const void *data, MxError *ignored);
bool mx_store_try(const char *what, MxAttempt *work, const void *data, MxError *err);
/* mx_store_guard_catch — from now on SIGINT and SIGTERM end mx_store_guarded, also if they come
 * before it, and nothing else. Call it before making what must not be left behind. */
void mx_store_guard_catch(void);
/* mx_store_guard_rearm — in such a child: grants processor time for the next call on the file. Does
 * nothing elsewhere. */
void mx_store_guard_rearm(const char *path);
/* ---- files of named dense arrays: safetensors (Hugging Face), and what torch.save writes of a
 * dictionary of tensors (.pth, .pt, .bin), of which nothing is run */

typedef struct MxTensors MxTensors;

/* One array of such a file. */
typedef struct MxTensor {
    const char *name;
    MxDtype dtype;
    MxShape shape;
    int64_t offset;     /* of its first byte in the file */
    const char *stored; /* what safetensors calls its dtype; dtype may be that of a plain number of
                           the same size. Of torch.save NULL */
} MxTensor;

int64_t mx_tensor_bytes(const MxTensor *tensor);

/* mx_tensors_open — reads the header; closed with the arena. Errors: missing, unreadable, no such
 * file, unknown dtypes, sizes that disagree, arrays outside the file; of safetensors holes, bytes
 * of two arrays; of torch.save whatever is no dictionary of tensors, arrays that are not dense. */
bool mx_tensors_open(MxArena *arena, const char *path, MxTensors **out, MxError *err);
int mx_tensors_count(const MxTensors *file);
const char *mx_tensors_path(const MxTensors *file);
const MxTensor *mx_tensors_at(const MxTensors *file, int i);              /* in the file's order */
const MxTensor *mx_tensors_find(const MxTensors *file, const char *name); /* NULL = none */
/* mx_tensors_read — a whole array of floats as f32, row-major. Errors: it holds integers; I/O. */
bool mx_tensors_read(const MxTensors *file, const MxTensor *tensor, float *out, MxError *err);
/* mx_tensors_read_raw — the same as the file has it, mx_tensor_bytes of it; mx_tensor_widen — n of
 * its elements as f32. */
bool mx_tensors_read_raw(const MxTensors *file, const MxTensor *tensor, void *out, MxError *err);
/* mx_tensors_check_floats — that it does not. mx_tensors_read_part — n elements from a first one
 * on, of any type, as the file has them. */
bool mx_tensors_check_floats(const MxTensors *file, const MxTensor *tensor, MxError *err);
bool mx_tensors_read_part(const MxTensors *file, const MxTensor *tensor, int64_t first, int64_t n,
                          void *out, MxError *err);
void mx_tensor_widen(const void *data, MxDtype dtype, int64_t first, int64_t n, float *out);

/* What is written under a name. */
typedef struct MxTensorData {
    const char *name;
    MxShape shape;
    const float *data;
} MxTensorData;

/* mx_tensors_write — replaces a file as a whole: float32 arrays in the order given. */
bool mx_tensors_write(const char *path, const MxTensorData *tensors, int n, MxError *err);

/* mx_tensors_create — a new file up to its header; the arrays' bytes follow in the order given, by
 * mx_tensors_append, in pieces of any size. Offsets count for nothing. The caller closes fd. Not
 * synced. */
bool mx_tensors_create(const char *path, const MxTensor *tensors, int n, int *fd, MxError *err);
bool mx_tensors_append(const char *path, int fd, const void *data, size_t bytes, MxError *err);

/* ---- folders that appear whole */

/* A folder in the making: ".tmp.<name>.<pid>" beside its final place. */
typedef struct MxPublish MxPublish;

/* mx_store_publish_begin — makes the temporary folder; an older one of the same name is removed,
 * and what a killed process left unfinished under the final name. Unless committed, it is removed
 * with the arena. Call it while nobody else publishes under that name. Errors: the final path
 * exists; no permission. */
bool mx_store_publish_begin(MxArena *arena, const char *final_path, MxPublish **out, MxError *err);
/* mx_store_publish_dir — the folder to fill, at any depth, with regular files. */
const char *mx_store_publish_dir(const MxPublish *publish);
/* mx_store_publish_is_in_place — whether that is the final place, since the storage does not rename
 * folders. */
bool mx_store_publish_is_in_place(const MxPublish *publish);
/* mx_store_publish_manifest — the JSON object to be written; the caller may add members of its own
 * (not "format", "files", "manifest_xxh3_64"). */
MxJson *mx_store_publish_manifest(MxPublish *publish);
/* mx_store_seal — for a file in such a folder that another process publishes: hashes what can be
 * read back, syncs it, and fills the file's entry for the manifest: its size, XXH3-64 of all of it
 * and, if it is HDF5, of each array that lies in one piece ("tensors") and of the rest. pace may be
 * NULL. */
bool mx_store_seal(const char *path, MxPace *pace, MxJson *entry, MxError *err);
/* mx_store_publish_sealed — entries, by name, of files that were sealed where they were written. */
void mx_store_publish_sealed(MxPublish *publish, const MxJson *entries);
/* mx_store_publish_commit — seals every file that is not sealed yet, writes MANIFEST.json, syncs
 * it, renames the folder to its final name, syncs the parent. After a failure the folder is removed
 * and nothing has changed, but for a failure of the last sync: then the folder is whole and in its
 * place, though perhaps not yet on disk. Errors: the final path exists by now; a sealed file is not
 * there; I/O. */
bool mx_store_publish_commit(MxPublish *publish, MxError *err);
/* mx_store_publish_abort — removes the folder; does nothing after a commit. */
void mx_store_publish_abort(MxPublish *publish);

/* Processes that do something together, each its share of it. */
typedef struct MxTeam {
    int rank, size;
    /* Whether all are fine; all call it together, each with its own answer. Where some are not, err
     * has what they said on rank 0, and some failure everywhere. */
    bool (*agree)(void *data, bool is_fine, MxError *err);
    void *data;
} MxTeam;

/* mx_store_verify — that a published folder is whole: the manifest is unchanged, every file it
 * names is there with the size and hashes it had. By several threads.
 *   team      processes that all call this and share the work; NULL = this one alone
 *   manifest  receives the manifest (in the arena), for the members added by the caller; may be
 * NULL Errors: every file or array of a file that fails, one line each: what is damaged or missing
 * (exit 65), what cannot be read now (74, 77). */
bool mx_store_verify(MxArena *arena, const char *dir, const MxTeam *team, MxJson **manifest,
                     MxError *err);

/* mx_store_manifest — the manifest of a published folder, its own hash checked, its files not.
 * Errors: it is missing or damaged, or lists no files and so vouches for nothing (exit 65); it
 * cannot be read now (74, 77). */
bool mx_store_manifest(MxArena *arena, const char *dir, MxJson **manifest, MxError *err);

/* mx_store_only_listed — that a folder was published and holds nothing but what its manifest lists,
 * so that removing it loses no file of others. Errors (exit 73): no such manifest; the first of the
 * files and folders besides, and how many there are. */
bool mx_store_only_listed(const char *dir, MxError *err);

/* mx_store_remove — a published folder and all below it; after a crash in between it is either
 * there as it was or left to mx_store_sweep. */
bool mx_store_remove(const char *dir, MxError *err);

/* mx_store_writeback — lets the system begin to write what a file has in memory; a later sync is
 * shorter for it. Says nothing about what is on disk. */
void mx_store_writeback(const char *path);

/* mx_store_free_bytes — room on the disk of a folder; -1 = not known. */
int64_t mx_store_free_bytes(const char *dir);

/* mx_store_mark — makes an empty folder with a name that no other has, for other processes to look
 * for; mx_store_sweep takes it if nobody has removed it. name: inside the parent, which is made. */
bool mx_store_mark(MxArena *arena, const char *parent, char **name, MxError *err);

/* mx_store_is_unfinished — whether a folder was filled in its final place by a process that was
 * killed before its manifest was whole: then it counts for nothing. Errors: the manifest cannot be
 * read now. */
bool mx_store_is_unfinished(const char *dir, bool *is_unfinished, MxError *err);

/* mx_store_sweep — removes what killed processes left in a folder: ".tmp.*". Call it while nobody
 * else publishes there. */
bool mx_store_sweep(const char *parent, MxError *err);

/* mx_store_steps — the folders of `parent` whose names are decimal numbers ("0", "150"; no leading
 * zeros), ascending. A missing parent has none. Errors: one that cannot be looked at. */
bool mx_store_steps(MxArena *arena, const char *parent, int64_t **steps, int *n, MxError *err);

#endif
