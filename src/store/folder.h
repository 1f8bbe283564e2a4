/* folder.h — private to the room: names, and what publish.c and verify.c share of the manifest. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include <mx/store.h>

#define STORE_TEMP_PREFIX ".tmp."
#define STORE_MANIFEST    "MANIFEST.json"
#define STORE_MARK        ".tmp.unfinished"

enum { STORE_FORMAT = 1 };

/* store_is_folder — a folder itself, not a link to one, so that removing it stays inside. */
bool store_is_folder(const char *path);

/* ---- folders that are filled under their final name (in_place.c) */

/* store_may_rename — whether folders in `parent` may be renamed in one step: whether nothing is
 * known against it. store_refuses_rename — whether this errno of a rename says that there are none.
 */
bool store_may_rename(const char *parent);
bool store_refuses_rename(int error);
/* store_mark — says in a folder that it is being filled; store_unmark — that it is complete. Both
 * are on disk afterwards. store_is_marked — whether the first was called and not the second. */
bool store_mark(const char *dir, MxError *err);
bool store_unmark(const char *dir, MxError *err);
bool store_is_marked(const char *dir);
/* store_sweep_marked — removes a folder that was never finished, and takes the mark from one that
 * was. Does nothing where there is no mark. */
bool store_sweep_marked(const char *dir, MxError *err);
/* store_remove_in_place — without a rename: after a crash in between it is there as it was, or
 * unfinished. */
bool store_remove_in_place(const char *dir, MxError *err);

/* store_seal_line — the last line of a manifest whose text before it has this hash. */
char *store_seal_line(MxArena *arena, uint64_t hash);

/* ---- hashes of files (seal.c) */

/* Bytes of a file. */
typedef struct StoreSpan {
    int64_t at, bytes;
} StoreSpan;

/* store_open — a regular file to be read. Errors: it is missing (exit 65), a link, no regular file.
 */
bool store_open(const char *path, int *fd, int64_t *bytes, MxError *err);
/* store_hash_spans — XXH3-64 of spans one after another. Returns 0, errno, or -1 where the file
 * ends. */
int store_hash_spans(int fd, const StoreSpan *spans, int n, MxPace *pace, uint64_t *hash);

typedef struct StoreHex {
    char text[17];
} StoreHex;
StoreHex store_hex(uint64_t hash);

#endif
