/* store_gguf.h — GGUF files, which llama.cpp and programs around it read: facts under keys, and
 * named arrays. Source: ggml, docs/gguf.md, version 3. */
#ifndef MX_STORE_GGUF_H
#define MX_STORE_GGUF_H

#include <mx/store.h>

/* What stands before the arrays. */
typedef struct MxGguf {
    MxArena *arena;
    MxText facts;
    int64_t n;
} MxGguf;

void mx_gguf_init(MxGguf *gguf, MxArena *arena);
/* mx_gguf_add_… — one more fact; no key comes twice. Integers are of 32 bits. */
void mx_gguf_add_uint(MxGguf *gguf, const char *key, int64_t value);
void mx_gguf_add_float(MxGguf *gguf, const char *key, double value);
void mx_gguf_add_bool(MxGguf *gguf, const char *key, bool value);
void mx_gguf_add_text(MxGguf *gguf, const char *key, const char *value);
/* The same for lists; texts may hold any bytes. */
void mx_gguf_add_bools(MxGguf *gguf, const char *key, const bool *values, int64_t n);
void mx_gguf_add_ints(MxGguf *gguf, const char *key, const int32_t *values, int64_t n);
void mx_gguf_add_floats(MxGguf *gguf, const char *key, const float *values, int64_t n);
void mx_gguf_add_texts(MxGguf *gguf, const char *key, const MxBytes *values, int64_t n);

/* How numbers are written. */
typedef enum MxGgufKind {
    MX_GGUF_F32,
    MX_GGUF_BF16,
    MX_GGUF_F16,
    MX_GGUF_Q8_0,
    MX_GGUF_TYPES
} MxGgufKind;

typedef struct MxGgufType {
    const char *name;
    int number, file_type; /* theirs, of an array and of a file of which most arrays are such */
    MxDtype from;          /* what the numbers are before */
    int block;             /* so many of the innermost dim together, which it divides, … */
    int bytes;             /* … take so many bytes */
    /* n numbers, a multiple of a block; false = some have none there. NULL = they stay as they are.
     */
    bool (*encode)(const float *from, int64_t n, uint8_t *to);
} MxGgufType;

extern const MxGgufType mx_gguf_types[MX_GGUF_TYPES];

typedef struct MxGgufArray {
    const char *name;
    MxShape shape;
    MxGgufKind kind;
} MxGgufArray;

/* mx_gguf_bytes — of n numbers. mx_gguf_create — a new file up to its arrays; their bytes follow in
 * the order given, by mx_tensors_append in pieces of any size, and mx_gguf_end behind each. The
 * caller closes fd. Not synced. mx_gguf_room — bytes from an array's first to the next one's. */
int64_t mx_gguf_bytes(MxGgufKind kind, int64_t n);
bool mx_gguf_create(const char *path, const MxGguf *gguf, const MxGgufArray *arrays, int n, int *fd,
                    MxError *err);
bool mx_gguf_end(const char *path, int fd, const MxGgufArray *array, MxError *err);
int64_t mx_gguf_room(const MxGgufArray *array);

#endif
