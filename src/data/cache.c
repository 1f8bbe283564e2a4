/* cache.c — a folder of files <key>.tokens: a header with version, key, size and a hash of the
 * contents. A file that is damaged, truncated or of another version is made again; files appear
 * completely or not at all, so several processes may share the folder. Files are never removed
 * here. */
#include "cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of what is kept and of how tokens are made: it changes when either does. */
enum { VERSION = 4 };

typedef struct Header {
    char magic[8];
    uint64_t version, key, n_bytes, hash;
    uint64_t none[3];
} Header;
_Static_assert(sizeof(Header) == CACHE_HEADER_BYTES, "what follows is aligned");

static const char magic[8] = "mxtokens";

bool cache_open(MxDataset *dataset, const char *settings, MxError *err) {
    const char *dir = dataset->config.token_cache;
    dataset->cache = (DataCache){.dir = dir, .settings = mx_hash64(settings, strlen(settings))};
    return !dir || mx_dir_make(dir, err);
}

uint64_t cache_key(const MxDataset *dataset, const MxDataFile *file, const char *more) {
    uint64_t parts[] = {VERSION, dataset->cache.settings, (uint64_t)file->bytes, file->hash,
                        mx_hash64(more, strlen(more))};
    return mx_hash64(parts, sizeof parts);
}

static const char *path_of(MxArena *arena, const MxDataset *dataset, uint64_t key) {
    return mx_path_join(arena, dataset->cache.dir,
                        mx_arena_printf(arena, "%016llx.tokens", (unsigned long long)key));
}

typedef struct Mapping {
    void *data;
    size_t n;
} Mapping;

static void unmap(void *mapping) {
    munmap(((Mapping *)mapping)->data, ((Mapping *)mapping)->n);
}

/* data NULL = it is not there, or cannot be mapped. */
static Mapping map_file(MxArena *arena, const char *path) {
    Mapping mapping = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return mapping;
    if (!fstat(fd, &st) && st.st_size > 0) {
        mapping.n = (size_t)st.st_size;
        mapping.data = mmap(NULL, mapping.n, PROT_READ, MAP_SHARED, fd, 0);
        if (mapping.data == MAP_FAILED) mapping.data = NULL;
    }
    close(fd);
    if (!mapping.data) return mapping;
    Mapping *kept = mx_new(arena, Mapping);
    *kept = mapping;
    mx_arena_on_release(arena, unmap, kept);
    return mapping;
}

static bool is_whole(Mapping mapping, uint64_t key) {
    const Header *header = mapping.data;
    return mapping.n >= sizeof *header && !memcmp(header->magic, magic, sizeof magic) &&
           header->version == VERSION && header->key == key &&
           header->n_bytes == mapping.n - sizeof *header &&
           header->hash == mx_hash64(header + 1, mapping.n - sizeof *header);
}

bool cache_find(MxArena *arena, MxDataset *dataset, uint64_t key, MxBytes *out) {
    MxArena scratch = {.name = "path"};
    const char *path = path_of(&scratch, dataset, key);
    bool is_there = mx_file_exists(path);
    Mapping mapping = is_there ? map_file(arena, path) : (Mapping){0};
    mx_arena_release(&scratch);
    if (!mapping.data || !is_whole(mapping, key)) {
        dataset->cache.n_damaged += is_there;
        return false;
    }
    dataset->cache.n_found++;
    *out = (MxBytes){(uint8_t *)mapping.data + sizeof(Header), mapping.n - sizeof(Header)};
    return true;
}

void cache_begin(MxText *out) {
    static const char empty[CACHE_HEADER_BYTES];
    mx_text_addn(out, empty, sizeof empty);
}

bool cache_keep(MxDataset *dataset, uint64_t key, MxText *what, MxError *err) {
    size_t n = what->len - sizeof(Header);
    Header header = {.version = VERSION,
                     .key = key,
                     .n_bytes = n,
                     .hash = mx_hash64(what->data + sizeof(Header), n)};
    memcpy(header.magic, magic, sizeof magic);
    memcpy(what->data, &header, sizeof header);
    dataset->cache.n_made++;
    return mx_file_write(path_of(what->arena, dataset, key), what->data, what->len, err) ||
           mx_context(err, "token_cache");
}

void cache_tell(const MxDataset *dataset, MxText *out) {
    const DataCache *cache = &dataset->cache;
    if (!cache->dir) return;
    mx_text_add(out, "; tokens of %d file%s were kept in %s", cache->n_found,
                cache->n_found == 1 ? "" : "s", cache->dir);
    if (cache->n_made) mx_text_add(out, ", those of %d are now", cache->n_made);
    if (cache->n_damaged) mx_text_add(out, " (%d damaged)", cache->n_damaged);
}

/* ---- memory */

typedef struct Remembered {
    MxDataFile file;
    struct timespec changed;
    MxBytes what;
} Remembered;

struct MxDataMemory {
    MxArena *arena;
    Remembered *item; /* [n] */
    int n, cap;
    MxMap index; /* of key_of → item */
};

MxDataMemory *mx_data_memory_new(MxArena *arena) {
    MxDataMemory *memory = mx_new(arena, MxDataMemory);
    *memory = (MxDataMemory){.arena = arena};
    mx_map_init(&memory->index, arena);
    return memory;
}

static const char *key_of(MxArena *arena, const char *path, uint64_t settings) {
    return mx_arena_printf(arena, "%016llx %s", (unsigned long long)settings, path);
}

/* What is remembered of the file as it is now; NULL = nothing. */
static const Remembered *find_remembered(const MxDataMemory *memory, const char *key,
                                         const struct stat *st) {
    int64_t i = mx_map_get(&memory->index, key, -1);
    const Remembered *item = i < 0 ? NULL : &memory->item[i];
    bool is_same = item && item->file.bytes == st->st_size &&
                   item->changed.tv_sec == st->st_mtim.tv_sec &&
                   item->changed.tv_nsec == st->st_mtim.tv_nsec;
    return is_same ? item : NULL;
}

static Remembered *add_remembered(MxDataMemory *memory, const char *key) {
    if (memory->n == memory->cap) {
        memory->cap = memory->cap ? 2 * memory->cap : 16;
        memory->item = mx_arena_grow(memory->arena, memory->item, (size_t)memory->n,
                                     (size_t)memory->cap, sizeof *memory->item);
    }
    mx_map_set(&memory->index, mx_arena_strdup(memory->arena, key), memory->n);
    return &memory->item[memory->n++];
}

void cache_remember(const MxDataset *dataset, MxDataFile file, uint64_t settings, MxBytes what) {
    MxArena scratch = {.name = "key"};
    MxDataMemory *memory = dataset->config.memory;
    struct stat st;
    if (!memory || !dataset->config.remembers || stat(file.path, &st)) return;
    const char *key = key_of(&scratch, file.path, settings);
    if (!find_remembered(memory, key, &st)) {
        Remembered *item = add_remembered(memory, key);
        *item = (Remembered){.file = file, .changed = st.st_mtim};
        item->file.path = mx_arena_strdup(memory->arena, file.path);
        item->what = (MxBytes){mx_arena_alloc(memory->arena, what.size + 1), what.size};
        if (what.size) memcpy(item->what.data, what.data, what.size);
    }
    mx_arena_release(&scratch);
}

bool cache_recall(const MxDataset *dataset, const char *path, uint64_t settings, MxDataFile *file,
                  MxBytes *out) {
    MxArena scratch = {.name = "key"};
    const MxDataMemory *memory = dataset->config.memory;
    struct stat st;
    if (!memory || stat(path, &st)) return false;
    const Remembered *item = find_remembered(memory, key_of(&scratch, path, settings), &st);
    mx_arena_release(&scratch);
    if (!item) return false;
    *file = item->file;
    *out = item->what;
    return true;
}
