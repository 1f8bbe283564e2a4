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
void mx_gguf_add_ints(MxGguf *gguf, const char *key, const int32_t *values, int64_t n);
void mx_gguf_add_floats(MxGguf *gguf, const char *key, const float *values, int64_t n);
void mx_gguf_add_texts(MxGguf *gguf, const char *key, const MxBytes *values, int64_t n);

/* mx_gguf_create — a new file up to its arrays, which are MX_F32 or MX_BF16; their bytes follow in
 * the order given, by mx_tensors_append in pieces of any size, and mx_gguf_end behind each. The
 * caller closes fd. Not synced. mx_gguf_room — bytes from an array's first to the next one's. */
bool mx_gguf_create(const char *path, const MxGguf *gguf, const MxTensor *tensors, int n, int *fd,
                    MxError *err);
bool mx_gguf_end(const char *path, int fd, const MxTensor *tensor, MxError *err);
int64_t mx_gguf_room(const MxTensor *tensor);

#endif
