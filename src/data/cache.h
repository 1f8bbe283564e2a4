/* cache.h — private to the room: results computed from files, stored in a folder under a key of the
 * files' contents, so that another run or rank need not compute them again, and in memory, so that
 * this process need not. */
#ifndef DATA_CACHE_H
#define DATA_CACHE_H

#include "source.h"

/* What comes before whatever is kept. */
enum { CACHE_HEADER_BYTES = 64 };

/* cache_open — uses the folder that the config names, if it names one, for what is made under
 * `settings`: a text that tells all that the result depends on but the file. Makes the folder. */
bool cache_open(MxDataset *dataset, const char *settings, MxError *err);
/* cache_key — of what is made of a file's content. more  what else it depends on. */
uint64_t cache_key(const MxDataset *dataset, const MxDataFile *file, const char *more);
/* cache_find — what is kept under a key, mapped while the arena lives; false = nothing, or nothing
 * whole. */
bool cache_find(MxArena *arena, MxDataset *dataset, uint64_t key, MxBytes *out);
/* cache_begin — room for the header; then the caller adds what is to be kept. cache_keep — writes
 * all of it. Errors: it cannot be written. */
void cache_begin(MxText *out);
bool cache_keep(MxDataset *dataset, uint64_t key, MxText *what, MxError *err);
/* cache_remember — keeps the same in the memory of the config, if that is to be: of a file, under a
 * text that tells all that it depends on. cache_recall — what is kept so of a file that is still
 * the same, and the file as it was read. */
void cache_remember(const MxDataset *dataset, MxDataFile file, uint64_t settings, MxBytes what);
bool cache_recall(const MxDataset *dataset, const char *path, uint64_t settings, MxDataFile *file,
                  MxBytes *out);
/* cache_tell — what was found and made, for the log; nothing if there is no cache. */
void cache_tell(const MxDataset *dataset, MxText *out);

#endif
