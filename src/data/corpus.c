/* corpus.c — text files as a stream of tokens, cut into rows. A file is a document: bos, its
 * tokens, eos. With packing the documents form one stream that is cut every `length` tokens;
 * without, each document is cut separately. A row uses one token more than its length, since
 * targets are inputs shifted by one, so neighbouring rows share a token. Documents are kept as
 * tokens in memory. */
#include "cache.h"
#include "formats.h"

#include <sys/stat.h>

static const FormatChoice choice = {.wants = "text in UTF-8", .takes_packed = true};
static const char *const suffixes[] = {"txt", NULL};

typedef struct Document {
    MxTokens tokens;
    int64_t start, end; /* in the stream, with bos and eos */
    int64_t first_row;  /* without packing */
} Document;

typedef struct Corpus {
    Document *documents; /* [n] none empty */
    int n;
    int32_t bos, eos; /* -1 = none */
} Corpus;

/* All of a file, unpacked. */
static bool read_text(MxArena *scratch, const char *path, DataStream *out, MxError *err) {
    const RecordFormat *none;
    return stream_open(scratch, path, out, err) && formats_choose(out, &choice, &none, err) &&
           stream_hold_all(out, err);
}

/* A file on its way to a document. */
typedef struct Job {
    MxArena arena; /* in which all of it lies */
    MxError err;
    const MxTokenizer *tokenizer;
    const char *path;
    DataStream stream; /* closed with the arena */
    MxDataFile file;
    uint64_t key; /* of what is kept of it */
    MxTokens tokens;
    bool ok, is_kept; /* kept: its tokens were made before */
} Job;

/* Files are made tokens of by several threads. */
static void read_document(void *jobs, int i) {
    Job *job = (Job *)jobs + i;
    size_t n;
    if (!job->ok || job->is_kept) return;
    job->ok = read_text(&job->arena, job->path, &job->stream, &job->err);
    if (!job->ok) return;
    const uint8_t *bytes = stream_held(&job->stream, &n);
    const char *text = (const char *)bytes;
    size_t valid = mx_utf8_valid_bytes(text, n);
    job->file = stream_file(&job->stream);
    job->ok =
        valid == n
            ? mx_tokenizer_encode(&job->arena, job->tokenizer,
                                  (MxEncoding){.text = text, .n = n, .where = {.file = job->path}},
                                  &job->tokens, &job->err)
            : mx_fail(&job->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = job->path},
                      "is not UTF-8: byte 0x%02x at offset %zu", bytes[valid], valid);
}

/* ---- documents that were read before */

static bool open_cache(MxDataset *dataset, MxError *err) {
    MxArena scratch = {.name = "settings"};
    const MxTokenizer *t = dataset->config.tokenizer;
    const char *settings = mx_arena_printf(&scratch, "text %s %016llx", mx_tokenizer_type(t),
                                           (unsigned long long)mx_tokenizer_hash(t));
    bool ok = cache_open(dataset, settings, err);
    mx_arena_release(&scratch);
    return ok;
}

static bool keep_document(MxDataset *dataset, uint64_t key, MxTokens tokens, MxError *err) {
    MxArena scratch = {.name = "what is kept"};
    MxText text;
    mx_text_init(&text, &scratch);
    cache_begin(&text);
    if (tokens.n)
        mx_text_addn(&text, (const char *)tokens.ids, (size_t)tokens.n * sizeof *tokens.ids);
    bool ok = cache_keep(dataset, key, &text, err);
    mx_arena_release(&scratch);
    return ok;
}

/* What was kept of a file's content, if anything was. */
static void find_document(MxArena *arena, MxDataset *dataset, Job *job) {
    MxBytes kept;
    job->ok = true;
    job->is_kept = cache_recall(dataset, job->path, dataset->cache.settings, &job->file, &kept);
    if (!job->is_kept && dataset->cache.dir) {
        job->ok = data_hash_whole(job->path, &job->file, &job->err);
        job->key = cache_key(dataset, &job->file, "");
        job->is_kept = job->ok && cache_find(arena, dataset, job->key, &kept);
    }
    if (job->is_kept)
        job->tokens =
            (MxTokens){(int32_t *)(void *)kept.data, (int64_t)(kept.size / sizeof(int32_t))};
}

/* Rows of a stretch of tokens: each takes length+1 of them and leaves the last to the next. */
static int64_t rows_of(int64_t n_tokens, int64_t length) {
    return n_tokens < 2 ? 0 : (n_tokens - 1 + length - 1) / length;
}

static void add_document(Corpus *corpus, MxTokens tokens, MxDataset *dataset) {
    Document *last = corpus->n ? &corpus->documents[corpus->n - 1] : NULL;
    Document *document = &corpus->documents[corpus->n++];
    int64_t start = last ? last->end : 0;
    int64_t n = tokens.n + (corpus->bos >= 0) + (corpus->eos >= 0);
    *document = (Document){.tokens = tokens, .start = start, .end = start + n};
    document->first_row = dataset->n_rows;
    if (dataset->config.packing)
        dataset->n_rows = rows_of(document->end, dataset->config.length);
    else
        dataset->n_rows += rows_of(n, dataset->config.length);
}

/* Takes a file's tokens over from its job. */
static bool finish_document(MxArena *arena, MxDataset *dataset, Corpus *corpus, Job *job,
                            MxError *err) {
    MxTokens tokens = job->tokens;
    if (!job->ok) return mx_fail(err, job->err.exit, MX_NOWHERE, "%s", job->err.text.data);
    if (dataset->cache.dir && !job->is_kept && !keep_document(dataset, job->key, tokens, err))
        return false;
    data_add_file(arena, dataset, job->file);
    cache_remember(dataset, job->file, dataset->cache.settings,
                   (MxBytes){(uint8_t *)(void *)tokens.ids, (size_t)tokens.n * sizeof *tokens.ids});
    if (!tokens.n) return true;
    if (!job->is_kept) {
        tokens.ids = mx_new_n(arena, int32_t, tokens.n);
        memcpy(tokens.ids, job->tokens.ids, (size_t)tokens.n * sizeof *tokens.ids);
    }
    add_document(corpus, tokens, dataset);
    return true;
}

/* Some files at a time, of not much more than so many bytes together. */
static bool read_documents(MxArena *arena, MxDataset *dataset, Corpus *corpus, const DataPart *part,
                           MxError *err) {
    enum { MOST_JOBS = 64, MOST_BYTES = 64 << 20 };
    const MxDataConfig *config = &dataset->config;
    bool ok = true;
    Job job[MOST_JOBS];
    for (int next = 0; ok && next < part->n_paths;) {
        int n = 0;
        for (int64_t bytes = 0; n < MOST_JOBS && next < part->n_paths && bytes < MOST_BYTES; n++) {
            struct stat st;
            job[n] = (Job){.arena = {.name = "text file"},
                           .tokenizer = config->tokenizer,
                           .path = part->paths[next++]};
            find_document(arena, dataset, &job[n]);
            if (!job[n].is_kept && !stat(job[n].path, &st)) bytes += st.st_size;
        }
        mx_parallel(config->n_threads, n, read_document, job);
        for (int i = 0; i < n; i++) {
            ok = ok && finish_document(arena, dataset, corpus, &job[i], err);
            mx_error_release(&job[i].err);
            mx_arena_release(&job[i].arena);
        }
    }
    return ok;
}

static bool check_config(const MxDataConfig *config, MxError *err) {
    if (!data_check_tokenizer(config, err)) return false;
    if (config->packing && config->max_segments > 0)
        return mx_fail(err, MX_EXIT_CONFIG, config->where,
                       "max_segments_per_seq=%lld is not available for text, which fills every row",
                       (long long)config->max_segments);
    return true;
}

static bool text_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    return data_find_parts(arena, config, suffixes, out, err);
}

static const FormatChoice *text_choice(const MxDataConfig *config, const char *path) {
    (void)config, (void)path;
    return &choice;
}

static bool text_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    DataParts parts;
    if (!check_config(config, err) || !open_cache(dataset, err) ||
        !text_parts(arena, config, &parts, err))
        return false;
    char **paths = parts.item->paths;
    int n_paths = parts.item->n_paths;
    Corpus *corpus = mx_new(arena, Corpus);
    *corpus = (Corpus){.documents = mx_new_n(arena, Document, n_paths),
                       .bos = config->omits_bos ? -1 : mx_tokenizer_bos(config->tokenizer),
                       .eos = config->omits_eos ? -1 : mx_tokenizer_eos(config->tokenizer)};
    if (!read_documents(arena, dataset, corpus, parts.item, err)) return false;
    if (!dataset->n_rows)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where, "no tokens in %s%s",
                       n_paths > 1 ? "any file of " : "", n_paths > 1 ? config->path : paths[0]);
    dataset->source = corpus;
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "text: %s%s, %lld tokens, %lld rows of %lld", paths[0],
                n_paths > 1 ? " …" : "", (long long)corpus->documents[corpus->n - 1].end,
                (long long)dataset->n_rows, (long long)config->length);
    cache_tell(dataset, &text);
    dataset->description = text.data;
    return true;
}

static int32_t token_at(const Corpus *corpus, const Document *document, int64_t at) {
    int64_t i = at - document->start - (corpus->bos >= 0);
    if (i < 0) return corpus->bos;
    return i < document->tokens.n ? document->tokens.ids[i] : corpus->eos;
}

/* The last document that starts at or before a place in the stream (packing) or a row. */
static const Document *document_of(const Corpus *corpus, int64_t place, bool is_row) {
    int low = 0, high = corpus->n;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        const Document *document = &corpus->documents[middle];
        if ((is_row ? document->first_row : document->start) <= place)
            low = middle;
        else
            high = middle;
    }
    return &corpus->documents[low];
}

static bool text_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    (void)err;
    int32_t *const *field = out->field;
    const Corpus *corpus = dataset->source;
    const MxDataConfig *config = &dataset->config;
    int64_t at = row * config->length, end = corpus->documents[corpus->n - 1].end;
    const Document *document = document_of(corpus, config->packing ? at : row, !config->packing);
    if (!config->packing) {
        at = document->start + (row - document->first_row) * config->length;
        end = document->end;
    }
    int32_t segment = 1, position = 0;
    for (int64_t t = 0; t < config->length; t++, at++, position++) {
        for (int i = 0; i < MX_BATCH_FIELDS; i++) field[i][t] = 0;
        if (at + 1 >= end) continue; /* padding behind the last target */
        if (at == document->end) {
            document++;
            segment++;
            position = 0;
        }
        field[MX_INPUTS][t] = token_at(corpus, document, at);
        field[MX_INPUTS_POSITION][t] = position;
        field[MX_INPUTS_SEGMENTATION][t] = segment;
        if (at + 1 == document->end) continue; /* the next token belongs to another document */
        field[MX_TARGETS][t] = token_at(corpus, document, at + 1);
        field[MX_TARGETS_POSITION][t] = position;
        field[MX_TARGETS_SEGMENTATION][t] = segment;
    }
    return true;
}

static int64_t text_rows(const MxDataset *dataset, const MxDataConfig *as) {
    const Corpus *corpus = dataset->source;
    int64_t n = 0;
    if (as->packing) return rows_of(corpus->documents[corpus->n - 1].end, as->length);
    for (int i = 0; i < corpus->n; i++)
        n += rows_of(corpus->documents[i].end - corpus->documents[i].start, as->length);
    return n;
}

const DataKind data_text = {
    .name = "text",
    .reads_text = true,
    .parts = text_parts,
    .choice = text_choice,
    .open = text_open,
    .row = text_row,
    .rows = text_rows,
    .doc = "UTF-8 text files, one document each",
};
