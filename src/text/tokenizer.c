/* tokenizer.c — tokenizers by type, each read by a row of a table into the same pipeline; encoding
 * and decoding with it. */
#include "internal.h"

#include <pthread.h>
#include <stdio.h>

/* ---- works: what encoding needs, taken from those that rest */

struct TextPool {
    pthread_mutex_t lock;
    TextWork *all, *resting;
};

static void release_pool(void *data) {
    struct TextPool *pool = data;
    for (TextWork *work = pool->all, *next; work; work = next) {
        MxArena arena = work->arena; /* in which the work itself lies */
        next = work->next_of_all;
        mx_arena_release(&arena);
    }
    pthread_mutex_destroy(&pool->lock);
}

static struct TextPool *pool_new(MxArena *arena) {
    struct TextPool *pool = mx_new(arena, struct TextPool);
    pthread_mutex_init(&pool->lock, NULL);
    mx_arena_on_release(arena, release_pool, pool);
    return pool;
}

void text_work_init(TextWork *work, const MxTokenizer *tokenizer) {
    int n_normal = tokenizer->normalizers.n, n_split = tokenizer->splitters.n;
    work->tokenizer = tokenizer;
    work->normal = mx_new_n(&work->arena, MxText, n_normal + n_split);
    work->split = work->normal + n_normal;
    work->finder = mx_new_n(&work->arena, MxFinder *, n_normal + n_split);
    for (int i = 0; i < n_normal + n_split; i++) mx_text_init(&work->normal[i], &work->arena);
}

static TextWork *work_new(const MxTokenizer *tokenizer) {
    MxArena arena = {.name = "tokenizer's work"};
    TextWork *work = mx_new(&arena, TextWork);
    work->arena = arena;
    text_work_init(work, tokenizer);
    if (((const TextModel *)tokenizer->model.kind)->is_cached)
        work->cache = text_cache_new(&work->arena);
    return work;
}

static TextWork *take_work(const MxTokenizer *tokenizer) {
    struct TextPool *pool = tokenizer->pool;
    pthread_mutex_lock(&pool->lock);
    TextWork *work = pool->resting;
    if (work) pool->resting = work->next;
    pthread_mutex_unlock(&pool->lock);
    if (work) return work;
    work = work_new(tokenizer);
    pthread_mutex_lock(&pool->lock);
    work->next_of_all = pool->all;
    pool->all = work;
    pthread_mutex_unlock(&pool->lock);
    return work;
}

static void give_work_back(TextWork *work) {
    struct TextPool *pool = work->tokenizer->pool;
    pthread_mutex_lock(&pool->lock);
    work->next = pool->resting;
    pool->resting = work;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- encoding */

/* Text between added tokens that are looked for as the text is: normalized, searched again, cut. */
static bool encode_stretch(TextWork *work, TextSpan text, bool is_first) {
    const MxTokenizer *tokenizer = work->tokenizer;
    TextAddedScan scan = {.set = &tokenizer->normal};
    TextStretch stretch;
    if (!text_normalize(work, text, &scan.text)) return false;
    while (text_added_next(&scan, &stretch)) {
        TextPiece piece = {.text = {scan.text.data + stretch.start, stretch.end - stretch.start},
                           .is_first = is_first && !stretch.start && !work->lost_start};
        if (stretch.added)
            text_ids_add(work->out, stretch.added->id);
        else if (!text_split(work, 0, piece))
            return false;
    }
    return true;
}

static bool encode(TextWork *work, TextSpan text, const TextAddedSet *sought) {
    TextAddedScan scan = {.set = sought, .text = text};
    TextStretch stretch;
    while (text_added_next(&scan, &stretch)) {
        TextSpan part = {text.data + stretch.start, stretch.end - stretch.start};
        if (stretch.added)
            text_ids_add(work->out, stretch.added->id);
        else if (!encode_stretch(work, part, !stretch.start))
            return false;
    }
    return true;
}

static bool check_text(const MxTokenizer *tokenizer, MxEncoding what, MxError *err) {
    static const size_t most = INT32_MAX / 4; /* places in a word are 32-bit numbers */
    if (tokenizer->takes_any_bytes) return true;
    size_t valid = mx_utf8_valid_bytes(what.text, what.n);
    if (valid < what.n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, what.where,
                       "is not UTF-8: byte 0x%02x at offset %zu", (uint8_t)what.text[valid], valid);
    if (what.n > most)
        return mx_fail(err, MX_EXIT_BAD_INPUT, what.where,
                       "%zu bytes are too many for one text, wanted at most %zu", what.n, most);
    return true;
}

static void add_all(TextIds *ids, MxTokens tokens) {
    for (int64_t i = 0; i < tokens.n; i++) text_ids_add(ids, tokens.ids[i]);
}

bool mx_tokenizer_encode(MxArena *arena, const MxTokenizer *tokenizer, MxEncoding what,
                         MxTokens *out, MxError *err) {
    enum { LIKELY_BYTES = 3 }; /* of a token */
    if (!check_text(tokenizer, what, err)) return false;
    MxArena scratch = {.name = "token ids"};
    TextIds ids = {.arena = &scratch, .cap = (int64_t)what.n / LIKELY_BYTES + 16};
    TextWork *work = take_work(tokenizer);
    ids.ids = mx_new_n(&scratch, int32_t, ids.cap);
    work->out = &ids;
    work->where = what.where;
    work->err = err;
    if (what.special) add_all(&ids, tokenizer->around.before);
    bool seeks_all = what.is_rendered && tokenizer->unsought.n;
    bool ok = encode(work, (TextSpan){what.text, what.n},
                     seeks_all ? &tokenizer->unsought : &tokenizer->raw);
    if (what.special) add_all(&ids, tokenizer->around.behind);
    give_work_back(work);
    if (ok) {
        *out = (MxTokens){mx_new_n(arena, int32_t, ids.n), ids.n};
        if (ids.n) memcpy(out->ids, ids.ids, (size_t)ids.n * sizeof *ids.ids);
    }
    mx_arena_release(&scratch);
    return ok;
}

/* ---- decoding */

char *mx_tokenizer_decode(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids,
                          int64_t n, bool skip_special, size_t *n_bytes) {
    MxArena scratch = {.name = "decoding"};
    TextSpans spans = {.item = mx_new_n(&scratch, TextSpan, n + 1)};
    const TextSteps *steps = &tokenizer->decoders;
    MxText text;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= tokenizer->vocab || !tokenizer->text[id].data) continue;
        if (!skip_special || !tokenizer->is_special[id])
            spans.item[spans.n++] = tokenizer->text[id];
    }
    for (int i = 0; i < steps->n; i++)
        ((const TextDecoder *)steps->item[i].kind)->run(steps->item[i].settings, &scratch, &spans);
    mx_text_init(&text, arena);
    for (int64_t i = 0; i < spans.n; i++) {
        if (i && !steps->n) mx_text_addn(&text, tokenizer->joint, strlen(tokenizer->joint));
        mx_text_addn(&text, spans.item[i].data, spans.item[i].n);
    }
    mx_arena_release(&scratch);
    if (n_bytes) *n_bytes = text.len;
    return text.data;
}

/* ---- types */

void text_finish(MxArena *arena, MxTokenizer *tokenizer) {
    const TextVocab *model = text_model_vocab(&tokenizer->model);
    const TextAddedSet *sets[] = {&tokenizer->raw, &tokenizer->normal, &tokenizer->unsought};
    int32_t n = model->n;
    for (int s = 0; s < MX_COUNT(sets); s++)
        for (int i = 0; i < sets[s]->n; i++)
            if (sets[s]->item[i].id >= n) n = sets[s]->item[i].id + 1;
    TextSpan *text = mx_new_n(arena, TextSpan, n);
    bool *is_special = mx_new_n(arena, bool, n);
    for (int32_t id = 0; id < model->n; id++) text[id] = model->text[id];
    for (int s = 0; s < MX_COUNT(sets); s++)
        for (int i = 0; i < sets[s]->n; i++) {
            const TextAdded *added = &sets[s]->item[i];
            text[added->id] = added->text;
            is_special[added->id] = added->is_special;
        }
    tokenizer->vocab = n;
    tokenizer->text = text;
    tokenizer->is_special = is_special;
}

MxTokenizer *text_tokenizer_new(MxArena *arena) {
    MxTokenizer *out = mx_new(arena, MxTokenizer);
    *out = (MxTokenizer){
        .bos = -1, .eos = -1, .pad = -1, .unk = -1, .joint = "", .pool = pool_new(arena)};
    text_added_init(&out->raw, arena);
    text_added_init(&out->normal, arena);
    text_added_init(&out->unsought, arena);
    return out;
}

static bool open_bytes(MxArena *arena, const char *path, MxBytes none, MxTokenizer *out,
                       MxError *err) {
    enum { N_BYTES = 256, BOS = N_BYTES, EOS };
    (void)path, (void)none, (void)err;
    TextVocab *vocab = mx_new(arena, TextVocab);
    char *bytes = mx_arena_alloc(arena, N_BYTES);
    text_vocab_init(vocab, arena, N_BYTES);
    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        text_vocab_add(vocab, (TextSpan){bytes + i, 1}, i);
    }
    text_vocab_add(vocab, (TextSpan){"<bos>", 5}, BOS);
    text_vocab_add(vocab, (TextSpan){"<eos>", 5}, EOS);
    vocab->text[BOS].n = vocab->text[EOS].n = 0; /* they show nothing */
    out->model = (TextStep){&text_model_rows[TEXT_BYTES].kind, vocab};
    out->takes_any_bytes = true;
    out->bos = BOS;
    out->eos = EOS;
    text_finish(arena, out);
    return true;
}

static const struct {
    const char *type;
    TextOpen *open;
    const char *name, *suffix; /* of its file in a folder, and of a file; NULL = it has none */
    const char *begins;        /* how its files' names begin, of types that share a suffix */
    char first;                /* its first byte, of types that share a name; 0 = any */
} types[] = {
    {"byte", open_bytes, NULL, NULL, NULL, 0},
    {"huggingface", text_open_json, "tokenizer.json", ".json", NULL, 0},
    {"sentencepiece", text_open_pieces, "tokenizer.model", ".model", NULL, '\n'},
    {"tiktoken", text_open_ranks, "tokenizer.model", ".tiktoken", NULL, 0}, /* so named by Meta */
    {"tekken", text_open_tekken, "tekken.json", ".json", "tekken", 0},
};

/* Whether a folder has the file of a type. */
static bool is_in(MxArena *arena, const char *dir, int type) {
    const char *path = types[type].name ? mx_path_join(arena, dir, types[type].name) : NULL;
    FILE *file = path && mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return false;
    bool is = !types[type].first || fgetc(file) == types[type].first;
    fclose(file);
    return is;
}

/* Whether a file is called as those of a type are. */
static bool is_named(const char *path, int type) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *suffix = types[type].suffix, *begins = types[type].begins;
    return suffix && mx_text_has_suffix(path, suffix) &&
           (!begins || !strncmp(name, begins, strlen(begins)));
}

const char *mx_tokenizer_find(MxArena *arena, const char *path) {
    if (!path || !*path) return "";
    const char *shared = mx_path_join(arena, mx_share_dir(arena), path);
    bool is_here = *path == '/' || mx_file_exists(path) || mx_dir_exists(path);
    return !is_here && (mx_file_exists(shared) || mx_dir_exists(shared)) ? shared : path;
}

/* The row of the tokenizer in a file or folder; -1 = none. */
static int guess(const char *path) {
    MxArena arena = {.name = "path"};
    bool is_dir = mx_dir_exists(path), is_file = !is_dir && mx_file_exists(path);
    int found = -1;
    for (int i = 0; i < MX_COUNT(types); i++) {
        /* In a folder the first is taken, of files' names the one that says more. */
        if (is_dir ? found < 0 && is_in(&arena, path, i) : is_file && is_named(path, i)) found = i;
    }
    mx_arena_release(&arena);
    return found;
}

const char *mx_tokenizer_guess(const char *path) {
    int i = guess(path);
    return i < 0 ? NULL : types[i].type;
}

const char *mx_tokenizer_file(MxArena *arena, const char *path) {
    int i = guess(path);
    return i >= 0 && mx_dir_exists(path) ? mx_path_join(arena, path, types[i].name) : path;
}

static bool is_there(const char *path, MxError *err) {
    if (mx_file_exists(path) || mx_dir_exists(path)) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
            "\"%s\" is no file or folder here, and nothing is fetched from a hub", path);
    mx_note(err,
            "hint: bring its files (hf download %s --include 'tokenizer*' '*.json' "
            "--local-dir DIR) and name that folder",
            path);
    return false;
}

/* The file of a type that a path names, or that lies in the folder that it names. */
static bool find_file(MxArena *arena, int type, const char *path, const char **out, MxError *err) {
    *out = path;
    if (!path || !*path)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "the tokenizer \"%s\" is read from a file, but none is named",
                       types[type].type);
    if (!is_there(path, err)) return false;
    if (!mx_dir_exists(path)) return true;
    *out = mx_path_join(arena, path, types[type].name);
    if (mx_file_exists(*out)) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "there is no %s in \"%s\"", types[type].name, path);
    const char *other = mx_tokenizer_guess(path);
    if (other) mx_note(err, "hint: it holds a tokenizer of type \"%s\"", other);
    return false;
}

static const size_t MAX_BYTES = (size_t)1 << 30;

/* The row of a type; -1 after an error. */
static int find_type(const char *type, MxError *err) {
    const char *names[MX_COUNT(types)];
    for (int i = 0; i < MX_COUNT(types); i++) {
        names[i] = types[i].type;
        if (!strcmp(names[i], type)) return i;
    }
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "unrecognized tokenizer type \"%s\"", type);
    const char *nearest = mx_nearest(type, names, MX_COUNT(types));
    mx_note(err, "hint: %s \"%s\"", nearest ? "did you mean" : "there is",
            nearest ? nearest : names[0]);
    return -1;
}

bool mx_tokenizer_identify(const char *type, const char *path, uint64_t *out, MxError *err) {
    MxArena arena = {.name = "tokenizer"};
    MxBytes bytes;
    int i = find_type(type, err);
    *out = 0;
    bool ok = i >= 0 && (!types[i].suffix || (find_file(&arena, i, path, &path, err) &&
                                              mx_file_read(&arena, path, MAX_BYTES, &bytes, err)));
    if (ok && types[i].suffix) *out = mx_hash64(bytes.data, bytes.size);
    mx_arena_release(&arena);
    return ok;
}

bool mx_tokenizer_open(MxArena *arena, const char *type, const char *path, MxTokenizer **out,
                       MxError *err) {
    int i = find_type(type, err);
    MxBytes bytes = {0};
    if (i < 0) return false;
    if (types[i].suffix && (!find_file(arena, i, path, &path, err) ||
                            !mx_file_read(arena, path, MAX_BYTES, &bytes, err)))
        return false;
    *out = text_tokenizer_new(arena);
    (*out)->type = types[i].type;
    (*out)->hash = types[i].suffix ? mx_hash64(bytes.data, bytes.size) : 0;
    return types[i].open(arena, path, bytes, *out, err);
}

const char *mx_tokenizer_type(const MxTokenizer *tokenizer) {
    return tokenizer->type;
}
int32_t mx_tokenizer_vocab(const MxTokenizer *tokenizer) {
    return tokenizer->vocab;
}
int32_t mx_tokenizer_bos(const MxTokenizer *tokenizer) {
    return tokenizer->bos;
}
int32_t mx_tokenizer_eos(const MxTokenizer *tokenizer) {
    return tokenizer->eos;
}
int32_t mx_tokenizer_pad(const MxTokenizer *tokenizer) {
    return tokenizer->pad;
}
int32_t mx_tokenizer_unk(const MxTokenizer *tokenizer) {
    return tokenizer->unk;
}
uint64_t mx_tokenizer_hash(const MxTokenizer *tokenizer) {
    return tokenizer->hash;
}
