/* records.c — fuzz target for files of records that are not lines: lists in JSON, TFRecord,
 * ArrayRecord, Parquet, Arrow. The first byte of the input
 * chooses what the rest is: a file of any kind, or only what lies inside frames and checksums,
 * which are then put around it: a record of TFRecord, or the data of a chunk of ArrayRecord; and
 * whether its columns hold texts or token ids. Bytes are a dataset whose rows can be made, or
 * errors. */
#include "data/highway.h"

#include <mx/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LENGTH = 24, VOCAB = 258, BLOCK = 1 << 16, BLOCK_HEAD = 24, LARGEST = 3 * BLOCK };

static void need(bool holds) {
    if (!holds) abort();
}

/* ---- frames */

typedef struct File {
    uint8_t bytes[LARGEST];
    size_t n;
} File;

static void add(File *file, const void *bytes, size_t n) {
    need(file->n + n <= sizeof file->bytes);
    if (n) memcpy(file->bytes + file->n, bytes, n);
    file->n += n;
}

static void add_raw(File *file, const uint8_t *data, size_t n) {
    add(file, data, n);
}

static void add_u64(File *file, uint64_t value, size_t n) {
    add(file, &value, n);
}

static void add_record(File *file, const uint8_t *data, size_t n) {
    uint64_t length = n;
    add(file, &length, sizeof length);
    add_u64(file, mx_crc32c_masked(&length, sizeof length), 4);
    add(file, data, n);
    add_u64(file, mx_crc32c_masked(data, n), 4);
}

static uint64_t hash(const void *bytes, size_t n) {
    static const uint64_t key[4] = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                                    0x0a7364726f636572};
    return highway_hash(key, bytes, n);
}

/* A chunk, all of it in one block. */
static void add_chunk(File *file, uint8_t type, uint64_t n_records, uint64_t decoded,
                      const uint8_t *data, size_t n) {
    uint64_t head[] = {0, n, hash(data, n), type | n_records << 8, decoded};
    head[0] = hash(head + 1, sizeof head - sizeof *head);
    add(file, head, sizeof head);
    add(file, data, n);
}

/* The first bytes are the chunk's number of records and bytes. */
static void add_array_record(File *file, const uint8_t *data, size_t n) {
    static const uint8_t first[] = {0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f, 0, 0, 0, 0,
                                    0,    0,    0,    0,    0x40, 0,    0,    0,    0, 0, 0, 0};
    static const uint8_t zeros[BLOCK];
    uint8_t last[64] = {0, 1, 14, 8}, footer[] = {0, 1, 4, 0x0a, 2, 0x18, 1};
    if (n < 4 || n > BLOCK / 2) return;
    uint64_t n_records = data[0], decoded = data[1] | (uint64_t)data[2] << 8;
    add(file, first, sizeof first);
    add_chunk(file, 's', 0, 0, data, 0);
    add_chunk(file, 'r', n_records, decoded, data + 3, n - 3);
    if (file->n < 64 + n_records) file->n = 64 + n_records;
    uint64_t records_end = file->n, magic = 0x71930e704fdae05e;
    footer[6] = data[0] & 0x7f;
    add_chunk(file, 'r', 1, 4, footer, sizeof footer);
    add_chunk(file, 'p', 0, 0, zeros, BLOCK - file->n - 40);
    size_t at = 4;
    for (uint64_t x = records_end; x || at == 4; x >>= 7)
        last[at++] = (uint8_t)(x > 0x7f ? 0x80 | (x & 0x7f) : x);
    last[at++] = 0x10;
    for (uint64_t x = magic; x; x >>= 7) last[at++] = (uint8_t)(x > 0x7f ? 0x80 | (x & 0x7f) : x);
    last[2] = (uint8_t)(at - 3);
    file->n = BLOCK + BLOCK_HEAD;
    add_chunk(file, 'r', 1, at - 3, last, at);
    add_chunk(file, 'p', 0, 0, zeros, 2 * BLOCK - file->n - 40);
}

/* ---- */

static void check_data(MxArena *arena, MxDataset *dataset) {
    MxError err = {0};
    MxBatch batch = mx_batch_new(arena, 1, LENGTH);
    int64_t steps = mx_data_steps(dataset);
    need(steps > 0 && mx_data_describe(dataset));
    for (int64_t step = 0; step < steps && step < 64; step++) {
        need(mx_data_batch(dataset, step, &batch, &err) == MX_DATA_OK);
        for (int t = 0; t < LENGTH; t++)
            need(batch.field[MX_INPUTS][t] >= 0 && batch.field[MX_INPUTS][t] < VOCAB);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        const char *kind, *format;
        void (*frame)(File *, const uint8_t *, size_t);
    } ways[] = {{"grain", "tfrecord", add_raw},    {"grain", "arrayrecord", add_raw},
                {"grain", "tfrecord", add_record}, {"grain", "arrayrecord", add_array_record},
                {"hf", "json", add_raw},           {"hf", "text", add_raw},
                {"text", NULL, add_raw},           {"hf", "parquet", add_raw},
                {"hf", "arrow", add_raw}};
    static File file;
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxDataset *dataset;
    if (!size || size > 2 * BLOCK + 1) return 0;
    int way = data[0] % MX_COUNT(ways);
    file = (File){0};
    ways[way].frame(&file, data + 1, size - 1);
    const char *path = mx_arena_printf(&arena, "/tmp/mx_fuzz_records_%d", (int)getpid());
    FILE *out = fopen(path, "wb");
    need(out && fwrite(file.bytes, 1, file.n, out) == file.n);
    need(!fclose(out));
    need(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    MxDataConfig config = {.kind = ways[way].kind,
                           .format = ways[way].format,
                           .path = path,
                           .tokenizer = tokenizer,
                           .rows = 1,
                           .length = LENGTH,
                           .vocab = VOCAB,
                           .n_epochs = 1,
                           .has_ids = data[0] / MX_COUNT(ways) & 1};
    if (mx_data_open(&arena, &config, &dataset, &err))
        check_data(&arena, dataset);
    else
        need(err.count > 0 && err.exit == MX_EXIT_BAD_INPUT);
    remove(path);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
