/* cache.h — private to the room: results computed from files, stored in a folder under a key of the
 * files' contents, so that another run or rank need not compute them again. */
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
/* cache_tell — what was found and made, for the log; nothing if there is no cache. */
void cache_tell(const MxDataset *dataset, MxText *out);

#endif
