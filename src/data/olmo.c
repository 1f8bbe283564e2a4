/* olmo.c — files of token ids and nothing else, of any size: rows are windows of them, read when
 * they are needed. An index, a JSON file, names the files in their order:
 *
 *     {"dtype": "uint32", "files": [{"path": "a.npy"}, {"path": "b.npy"}]}
 *
 * What else MaxText's tool writes into it (sequence_length, n_tokens) must agree. A file may have
 * NumPy's header. Source: MaxText input_pipeline/olmo_data.py and olmo_data_grain.py @e591f30c. */
#include "formats.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_INDEX = 64 << 20, LARGEST_HEADER = 4096 };

/* How a token is stored. */
typedef struct TokenType {
    const char *name, *code; /* NumPy's, and how its headers spell it */
    int bytes;
    bool is_signed;
} TokenType;

static const TokenType types[] = {
    {"uint8", "|u1", 1, false}, {"uint16", "<u2", 2, false}, {"uint32", "<u4", 4, false},
    {"int32", "<i4", 4, true},  {"int64", "<i8", 8, true},   {"uint64", "<u8", 8, false},
};

typedef struct TokenFile {
    const char *path;
    int64_t begin; /* byte of the first token */
    int64_t n;     /* tokens */
    int64_t row;   /* the first one */
} TokenFile;

typedef struct Olmo {
    TokenFile *files; /* [n] */
    int64_t n;
    const TokenType *type;
} Olmo;

static MxWhere in(const char *path) {
    return (MxWhere){.file = path};
}

static const char *kind_of(const MxJson *value) {
    return value ? mx_json_kind(value) : "nothing";
}

/* ---- files of tokens */

/* All of n bytes at a place of a file. */
static bool read_bytes(const char *path, int64_t at, size_t n, void *out, MxError *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    if (fd < 0) return mx_fail_errno(err, "cannot open \"%s\"", path);
    while (done < n) {
        ssize_t got = pread(fd, (char *)out + done, n - done, at + (int64_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) mx_fail_errno(err, "cannot read \"%s\"", path);
        if (!got)
            mx_fail(err, MX_EXIT_BAD_INPUT, in(path),
                    "ends at byte %lld, wanted tokens up to byte %lld",
                    (long long)at + (long long)done, (long long)at + (long long)n);
        if (got <= 0) break;
        done += (size_t)got;
    }
    close(fd);
    return done == n;
}

/* The text between two others in a header, NULL = there is none. */
static char *between(MxArena *arena, const char *text, const char *begin, const char *end) {
    const char *from = strstr(text, begin);
    const char *to = from ? strstr(from += strlen(begin), end) : NULL;
    return to ? mx_arena_strndup(arena, from, (size_t)(to - from)) : NULL;
}

/* A header of NumPy's, if a file has one: its tokens begin behind it, and their type is what it
 * says. Source: numpy.lib.format. */
static bool read_header(MxArena *arena, TokenFile *file, int64_t bytes, const TokenType *type,
                        MxError *err) {
    enum { FIXED = 12 };
    uint8_t head[FIXED];
    if (bytes < FIXED) return true;
    if (!read_bytes(file->path, 0, FIXED, head, err)) return false;
    if (memcmp(head, "\x93NUMPY", 6)) return true;
    int64_t fixed = head[6] == 1 ? 10 : FIXED, n = head[8] | head[9] << 8;
    if (fixed == FIXED) n |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    int64_t most = bytes - fixed < LARGEST_HEADER ? bytes - fixed : LARGEST_HEADER;
    if (n > most)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path),
                       "has a header of %lld bytes, wanted at most %lld", (long long)n,
                       (long long)most);
    char *text = mx_arena_alloc(arena, (size_t)n + 1);
    if (!read_bytes(file->path, fixed, (size_t)n, text, err)) return false;
    text[n] = 0;
    const char *code = between(arena, text, "'descr': '", "'");
    const char *shape = between(arena, text, "'shape': (", ")");
    if (!code || strcmp(code, type->code))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path), "holds %s, wanted %s (%s)",
                       code ? code : "records", type->code, type->name);
    char *rest = shape ? strchr(shape, ',') : NULL;
    if (!rest || rest[1])
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path), "has the shape (%s), wanted one dim",
                       shape ? shape : "?");
    file->begin = fixed + n;
    return true;
}

static bool open_file(MxArena *arena, MxDataset *dataset, TokenFile *file, const TokenType *type,
                      MxError *err) {
    MxDataFile read;
    struct stat st;
    if (stat(file->path, &st)) {
        mx_fail_errno(err, "cannot open \"%s\"", file->path);
        mx_note(err, "hint: olmo_path_remap_from and olmo_path_remap_to replace how paths begin");
        return false;
    }
    int64_t bytes = st.st_size, told = file->n;
    if (!read_header(arena, file, bytes, type, err)) return false;
    bytes -= file->begin;
    if (bytes % type->bytes)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path),
                       "has %lld bytes of tokens, wanted a multiple of %d (%s)", (long long)bytes,
                       type->bytes, type->name);
    file->n = bytes / type->bytes;
    if (told >= 0 && told != file->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path),
                       "has %lld tokens, the index says %lld", (long long)file->n, (long long)told);
    if (!data_hash_file(file->path, &read, err)) return false;
    data_add_file(arena, dataset, read);
    return true;
}

/* ---- the index */

/* As it is named, or beside the index; the beginning of the name may be replaced first. */
static const char *find_path(MxArena *arena, const MxDataConfig *config, const char *path) {
    const char *from = config->moved_from, *to = config->moved_to;
    if (from && to && mx_text_has_prefix(path, from))
        path = mx_arena_printf(arena, "%s%s", to, path + strlen(from));
    const char *beside = mx_path_join(arena, mx_path_dir(arena, config->path), path);
    return !mx_file_exists(path) && mx_file_exists(beside) ? beside : path;
}

static const TokenType *find_type(const MxJson *index, const char *path, MxError *err) {
    const char *name = mx_json_string(mx_json_get(index, "dtype"));
    for (int i = 0; i < MX_COUNT(types) && name; i++)
        if (!strcmp(types[i].name, name)) return &types[i];
    mx_fail(err, MX_EXIT_BAD_INPUT, in(path),
            "dtype: found %s, wanted uint8, uint16, uint32, uint64, int32 or int64",
            name ? name : kind_of(mx_json_get(index, "dtype")));
    return NULL;
}

/* Rows are what the tool was told that they are; where nothing is told they are as long as ours. */
static bool check_length(const MxJson *index, const MxDataConfig *config, MxError *err) {
    const MxJson *value = mx_json_get(index, "sequence_length");
    int64_t found;
    if (!value) return true;
    if (!mx_json_int(value, &found))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                       "sequence_length: found %s, wanted a number", kind_of(value));
    return found == config->length || mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                                              "sequence_length is %lld, max_target_length is %lld",
                                              (long long)found, (long long)config->length);
}

static bool read_entry(MxArena *arena, MxDataset *dataset, const MxJson *entry, size_t number,
                       const TokenType *type, TokenFile *out, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    const char *path = mx_json_string(mx_json_get(entry, "path"));
    const MxJson *n = mx_json_get(entry, "n_tokens");
    *out = (TokenFile){.n = -1};
    if (!path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                       "files[%zu] has no \"path\", a text", number);
    if (n && (!mx_json_int(n, &out->n) || out->n < 0))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                       "files[%zu]: n_tokens is %s, wanted a number of tokens", number, kind_of(n));
    out->path = find_path(arena, config, path);
    return open_file(arena, dataset, out, type, err);
}

static const MxJson *read_index(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    MxBytes bytes;
    MxDataFile read;
    if (!mx_file_read(arena, config->path, LARGEST_INDEX, &bytes, err) ||
        !data_hash_file(config->path, &read, err))
        return NULL;
    const MxJson *index =
        mx_json_parse(arena, (const char *)bytes.data, bytes.size, config->path, err);
    if (!index) return NULL;
    const char *version = mx_json_string(mx_json_get(index, "format_version"));
    if (version && strcmp(version, "1")) {
        mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                "format_version: found \"%s\", wanted \"1\"", version);
        return NULL;
    }
    data_add_file(arena, dataset, read);
    return check_length(index, config, err) ? index : NULL;
}

static bool olmo_open(MxArena *arena, MxDataset *dataset, MxError *err) {
    const MxDataConfig *config = &dataset->config;
    Olmo *olmo = mx_new(arena, Olmo);
    const MxJson *index = read_index(arena, dataset, err);
    olmo->type = index ? find_type(index, config->path, err) : NULL;
    if (!olmo->type) return false;
    const MxJson *files = mx_json_get(index, "files");
    int64_t tokens = 0;
    olmo->n = (int64_t)mx_json_length(files);
    if (!olmo->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(config->path),
                       "files: found %s, wanted a list of files", kind_of(files));
    olmo->files = mx_new_n(arena, TokenFile, olmo->n);
    for (int64_t i = 0; i < olmo->n; i++) {
        TokenFile *file = &olmo->files[i];
        if (!read_entry(arena, dataset, mx_json_at(files, (size_t)i), (size_t)i, olmo->type, file,
                        err))
            return false;
        file->row = dataset->n_rows;
        dataset->n_rows += file->n / config->length;
        tokens += file->n;
    }
    dataset->source = olmo;
    dataset->description =
        mx_arena_printf(arena, "olmo_grain: %s, %lld file%s, %lld tokens (%s), %lld rows",
                        config->path, (long long)olmo->n, olmo->n == 1 ? "" : "s",
                        (long long)tokens, olmo->type->name, (long long)dataset->n_rows);
    return true;
}

/* ---- rows */

static const TokenFile *file_of(const Olmo *olmo, int64_t row) {
    int64_t low = 0, high = olmo->n; /* the last one that begins at the row or before it */
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (olmo->files[mid].row <= row)
            low = mid;
        else
            high = mid;
    }
    return &olmo->files[low];
}

/* A token as it is stored; those of eight bytes that are too large are below 0. */
static int64_t read_token(const TokenType *type, const uint8_t *at) {
    uint64_t x = 0;
    for (int i = 0; i < type->bytes; i++) x |= (uint64_t)at[i] << 8 * i;
    return type->is_signed && type->bytes == 4 ? (int32_t)(uint32_t)x : (int64_t)x;
}

/* Every token has the next one as its target, but for the last one. */
static bool olmo_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err) {
    const Olmo *olmo = dataset->source;
    const MxDataConfig *config = &dataset->config;
    const TokenFile *file = file_of(olmo, row);
    const int64_t length = config->length, first = (row - file->row) * length;
    uint8_t *stored = (uint8_t *)dataset->scratch.wide;
    const int bytes = olmo->type->bytes;
    int32_t *tokens = out->field[MX_INPUTS];
    if (!read_bytes(file->path, file->begin + first * bytes, (size_t)(length * bytes), stored, err))
        return false;
    for (int32_t t = 0; t < length; t++) {
        int64_t token = read_token(olmo->type, stored + t * bytes);
        if (token < 0 || token >= config->vocab)
            return mx_fail(err, MX_EXIT_BAD_INPUT, in(file->path),
                           "token %lld is %lld, wanted 0 to %lld (vocab_size=%lld)",
                           (long long)(first + t), (long long)token, (long long)config->vocab - 1,
                           (long long)config->vocab);
        tokens[t] = (int32_t)token;
    }
    bool counts = !config->masks_repeats || !data_repeats(tokens, length);
    for (int32_t t = 0; t < length; t++) {
        bool is_last = t == length - 1;
        out->field[MX_TARGETS][t] = is_last ? 0 : tokens[t + 1];
        out->field[MX_INPUTS_POSITION][t] = out->field[MX_TARGETS_POSITION][t] = t;
        out->field[MX_INPUTS_SEGMENTATION][t] = 1;
        out->field[MX_TARGETS_SEGMENTATION][t] = counts && !is_last;
    }
    return true;
}

/* The index alone: the files that it names may begin with any bytes. */
static bool olmo_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    DataPart *part = mx_new(arena, DataPart);
    (void)err;
    *part = (DataPart){.label = config->path, .weight = 1, .n_paths = 1};
    part->paths = mx_new(arena, char *);
    *part->paths = mx_arena_strdup(arena, config->path);
    *out = (DataParts){part, 1};
    return true;
}

static const FormatChoice *olmo_choice(const MxDataConfig *config, const char *path) {
    static const FormatChoice choice = {.wants = "an index of files of tokens, in JSON"};
    (void)config, (void)path;
    return &choice;
}

const DataKind data_olmo = {
    .name = "olmo_grain",
    .parts = olmo_parts,
    .choice = olmo_choice,
    .open = olmo_open,
    .row = olmo_row,
    .doc = "windows of files of token ids, which an index names",
};
