/* folder.h — private to the room: names, and what publish.c and verify.c share of the manifest. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include <mx/store.h>

#define STORE_TEMP_PREFIX ".tmp."
#define STORE_MANIFEST    "MANIFEST.json"

enum { STORE_FORMAT = 1 };

/* store_is_folder — a folder itself, not a link to one, so that removing it stays inside. */
bool store_is_folder(const char *path);

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
