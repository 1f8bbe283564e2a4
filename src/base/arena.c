/* arena.c — memory with one lifetime. An arena is a chain of chunks, each twice the size of the
 * previous one; an object larger than a chunk gets its own chunk. This is the only file that calls
 * the system's allocator. */
#include <mx/base.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_CHUNK_BYTES = 4096, LARGEST_CHUNK_BYTES = 1 << 20, ALIGN = 16 };

struct MxArenaChunk {
    MxArenaChunk *previous;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

struct MxArenaHook {
    MxArenaHook *previous;
    void (*fn)(void *);
    void *data;
};

static atomic_uint_fast64_t alloc_count;

uint64_t mx_host_alloc_count(void) {
    return atomic_load(&alloc_count);
}

static MxArenaChunk *new_chunk(MxArena *arena, size_t bytes) {
    MxArenaChunk *chunk = calloc(1, sizeof *chunk + bytes);
    if (!chunk) {
        mx_complain("out of memory: %zu bytes for arena \"%s\"", bytes,
                    arena->name ? arena->name : "");
        exit(MX_EXIT_NO_MEMORY);
    }
    atomic_fetch_add(&alloc_count, 1);
    chunk->size = bytes;
    chunk->previous = arena->chunk;
    arena->chunk = chunk;
    return chunk;
}

void *mx_arena_alloc(MxArena *arena, size_t bytes) {
    MX_ASSERT(bytes < SIZE_MAX / 4);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    MxArenaChunk *chunk = arena->chunk;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t size = chunk ? chunk->size * 2 : FIRST_CHUNK_BYTES;
        if (size > LARGEST_CHUNK_BYTES) size = LARGEST_CHUNK_BYTES;
        chunk = new_chunk(arena, bytes > size ? bytes : size);
    }
    void *p = chunk->bytes + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    return p;
}

void *mx_arena_grow(MxArena *arena, const void *items, size_t n, size_t cap, size_t item_bytes) {
    void *copy = mx_arena_alloc(arena, cap * item_bytes);
    if (n) memcpy(copy, items, n * item_bytes);
    return copy;
}

char *mx_arena_strndup(MxArena *arena, const char *s, size_t n) {
    char *copy = mx_arena_alloc(arena, n + 1);
    memcpy(copy, s, n);
    return copy;
}

char *mx_arena_strdup(MxArena *arena, const char *s) {
    return mx_arena_strndup(arena, s, strlen(s));
}

char *mx_arena_vprintf(MxArena *arena, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    MX_ASSERT(n >= 0);
    char *s = mx_arena_alloc(arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    return s;
}

char *mx_arena_printf(MxArena *arena, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *s = mx_arena_vprintf(arena, fmt, ap);
    va_end(ap);
    return s;
}

void mx_arena_on_release(MxArena *arena, void (*fn)(void *), void *data) {
    MxArenaHook *hook = mx_new(arena, MxArenaHook);
    *hook = (MxArenaHook){.previous = arena->hooks, .fn = fn, .data = data};
    arena->hooks = hook;
}

void mx_arena_release(MxArena *arena) {
    for (MxArenaHook *hook = arena->hooks; hook; hook = hook->previous) hook->fn(hook->data);
    for (MxArenaChunk *chunk = arena->chunk, *previous; chunk; chunk = previous) {
        previous = chunk->previous;
        free(chunk);
    }
    *arena = (MxArena){.name = arena->name};
}
