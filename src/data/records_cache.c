/* records_cache.c — the records of a file in the cache's format: counts, lines of skipped records,
 * columns, then lengths, ids and turns, into which records point. */
#include "cache.h"
#include "formats.h"
#include "records.h"

/* A place in the file, whose name may be another one by now: the rest of it is a text. */
typedef struct KeptPlace {
    int64_t n;
    int32_t line, col;
} KeptPlace;

typedef struct KeptHead {
    int64_t n, n_ids, n_turns; /* records, ids and turns of all of them */
    int64_t n_cut_prompts, n_cut;
    MxDataLongest longest;
    KeptPlace empty, mute;
    int64_t text_bytes; /* texts, each with a 0: places, columns found, names of columns */
} KeptHead;

static const KeptHead *head_of(MxBytes what) {
    return (const KeptHead *)(const void *)what.data;
}

typedef struct KeptRecord {
    int32_t n[PIECES], n_counted, n_turns;
} KeptRecord;

/* ---- what the result depends on */

/* Of what a file was made into: all but what rows have room for. */
static void add_settings(const Records *records, MxText *out) {
    const MxChat *chat = records->chat;
    const MxDataConfig *c = &records->dataset->config;
    const MxTokenizer *t = c->tokenizer;
    mx_text_add(out, "%s %016llx %d %d %d %d %d %d %d %d %d %d %d %d %016llx", mx_tokenizer_type(t),
                (unsigned long long)mx_tokenizer_hash(t), mx_tokenizer_vocab(t),
                mx_tokenizer_bos(t), mx_tokenizer_eos(t), mx_tokenizer_pad(t), records->is_narrow,
                c->pairs, c->is_sft, c->completion_only, c->omits_bos, c->omits_eos, c->has_ids,
                c->splits, (unsigned long long)(chat ? mx_chat_hash(chat) : 0));
    if (records->dataset->kind->is_stream) mx_text_add(out, " stream");
    for (int i = 0; i < c->n_columns; i++) mx_text_add(out, " \"%s\"", c->columns[i]);
    if (c->default_prompt) mx_text_add(out, " prompt %s", c->default_prompt);
    if (records->question)
        mx_text_add(out, " question %016llx", (unsigned long long)question_hash(records->question));
}

/* Images, rewards and questions are more than tokens. */
static bool has_memory(const MxDataConfig *c) {
    return c->memory && !c->images.vision.images && !c->group && !c->asks;
}

bool records_cache_open(Records *records, MxError *err) {
    MxDataset *dataset = records->dataset;
    const MxDataConfig *c = &dataset->config;
    MxText text;
    MxError none = {0};
    mx_text_init(&text, records->arena);
    if (!c->token_cache && !has_memory(c)) return true;
    if (c->is_sft || c->pairs) /* whether there are conversations the first record will tell */
        talk_find(records, &none);
    mx_error_release(&none);
    bool has_clock = records->chat && mx_chat_has_clock(records->chat);
    add_settings(records, &text);
    if (has_memory(c) && !has_clock) records->settings = mx_hash64(text.data, text.len);
    if (!c->token_cache) return true;
    mx_text_add(&text, " %lld %lld", (long long)c->length, (long long)c->max_prompt_length);
    if (!has_clock) return cache_open(dataset, text.data, err);
    mx_warn("token_cache: nothing is kept, as the chat template may tell the date");
    return true;
}

/* Format and columns, by which a record is read. */
static const char *tell_format(MxArena *arena, const Records *records, const char *path) {
    const MxDataset *dataset = records->dataset;
    const FormatChoice *choice = dataset->kind->choice(&dataset->config, path);
    MxText more;
    mx_text_init(&more, arena);
    mx_text_add(&more, "%s%s", choice->wants, records->columns.talks ? " (talks)" : "");
    for (int i = 0; i < records->columns.n; i++)
        mx_text_add(&more, " \"%s\"", records->columns.name[i]);
    return more.data;
}

/* ---- out of the cache */

static const char *take_text(const char **at) {
    const char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

static void take_left_out(Records *records, LeftOut *out, const KeptPlace *kept, const char *path,
                          const char **texts) {
    const char *rest = take_text(texts);
    if (!out->n && kept->n)
        out->first =
            (MxWhere){mx_arena_printf(records->arena, "%s%s", path, rest), kept->line, kept->col};
    out->n += kept->n;
}

static void take_columns(Records *records, const char **texts) {
    Columns *columns = &records->columns;
    bool is_known = columns->n > 0;
    const char *found = take_text(texts), *flags = take_text(texts);
    Columns kept = {.joins = flags[0] == 'j', .talks = flags[1] == 't'};
    for (; kept.n < COLUMNS_MOST && **texts; kept.n++) kept.name[kept.n] = take_text(texts);
    kept.n_texts = kept.n - kept.joins;
    kept.has_ids = records->dataset->config.has_ids;
    if (is_known) return;
    *columns = kept;
    records->found = found;
}

/* The room of records for n more. */
static Record *more_records(Records *records, int64_t n) {
    if (records->n + n > records->cap) {
        records->cap = 2 * (records->n + n);
        records->item = mx_arena_grow(records->arena, records->item, (size_t)records->n,
                                      (size_t)records->cap, sizeof *records->item);
    }
    records->n += n;
    return records->item + records->n - n;
}

static void take_records(Records *records, const KeptHead *head, const uint8_t *at) {
    Record *item = more_records(records, head->n);
    const KeptRecord *kept = (const KeptRecord *)(const void *)at;
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    const uint8_t *ids = at + (size_t)head->n * sizeof *kept;
    const int32_t *turn = (const int32_t *)(const void *)(ids + (size_t)head->n_ids * id_bytes +
                                                          (size_t)head->n_ids % 2 * id_bytes % 4);
    for (int64_t i = 0; i < head->n; i++) {
        int64_t n = 0;
        item[i] = (Record){.ids = ids, .n_counted = kept[i].n_counted, .n_turns = kept[i].n_turns};
        for (int p = 0; p < PIECES; p++) n += item[i].n[p] = kept[i].n[p];
        if (kept[i].n_turns) item[i].turn = turn;
        ids += (size_t)n * id_bytes;
        turn += kept[i].n_turns;
        records->tally.n_tokens += n;
        records->tally.n_counted += kept[i].n_counted;
    }
}

static bool take(Records *records, MxBytes kept, const char *path, MxError *err) {
    const KeptHead *head = head_of(kept);
    const char *texts = (const char *)(kept.data + kept.size - head->text_bytes);
    Tally *tally = &records->tally;
    bool was_known = records->columns.n > 0;
    tally->n_cut_prompts += head->n_cut_prompts;
    tally->n_cut += head->n_cut;
    records_raise(tally, head->longest);
    take_left_out(records, &tally->empty, &head->empty, path, &texts);
    take_left_out(records, &tally->mute, &head->mute, path, &texts);
    take_columns(records, &texts);
    if (!was_known && records->columns.talks && !talk_open(records, err)) return false;
    take_records(records, head, kept.data + sizeof *head);
    return true;
}

/* ---- into the cache */

static void put_text(MxText *out, const char *text) {
    mx_text_addn(out, text, strlen(text) + 1);
}

static KeptPlace place_of(const LeftOut *left) {
    return (KeptPlace){left->n, left->first.line, left->first.col};
}

static void put_rest_of_place(MxText *out, const LeftOut *left, const char *path) {
    put_text(out, left->n ? left->first.file + strlen(path) : "");
}

/* The records from `first` on and what was counted of this file alone. */
static void put(MxText *out, const Records *records, int64_t first, const char *path) {
    const Tally *tally = &records->tally;
    const Columns *columns = &records->columns;
    size_t id_bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t), at = out->len;
    KeptHead head = {.n = records->n - first,
                     .n_cut_prompts = tally->n_cut_prompts,
                     .n_cut = tally->n_cut,
                     .longest = tally->longest,
                     .empty = place_of(&tally->empty),
                     .mute = place_of(&tally->mute)};
    mx_text_addn(out, (const char *)&head, sizeof head);
    for (int64_t i = first; i < records->n; i++) {
        const Record *r = &records->item[i];
        KeptRecord kept = {.n_counted = r->n_counted, .n_turns = r->n_turns};
        for (int p = 0; p < PIECES; p++) head.n_ids += kept.n[p] = r->n[p];
        head.n_turns += r->n_turns;
        mx_text_addn(out, (const char *)&kept, sizeof kept);
    }
    for (int64_t i = first; i < records->n; i++) {
        const Record *r = &records->item[i];
        size_t n = 0;
        for (int p = 0; p < PIECES; p++) n += (size_t)r->n[p];
        mx_text_addn(out, r->ids, n * id_bytes);
    }
    mx_text_addn(out, "\0\0", (size_t)head.n_ids % 2 * id_bytes % 4); /* turns are aligned */
    for (int64_t i = first; i < records->n; i++)
        if (records->item[i].n_turns)
            mx_text_addn(out, (const char *)records->item[i].turn,
                         (size_t)records->item[i].n_turns * sizeof(int32_t));
    size_t texts = out->len;
    put_rest_of_place(out, &tally->empty, path);
    put_rest_of_place(out, &tally->mute, path);
    put_text(out, records->found ? records->found : "");
    const char flags[] = {columns->joins ? 'j' : '-', columns->talks ? 't' : '-', '\0'};
    put_text(out, flags);
    for (int i = 0; i < columns->n; i++) put_text(out, columns->name[i]);
    put_text(out, "");
    head.text_bytes = (int64_t)(out->len - texts);
    memcpy(out->data + at, &head, sizeof head);
}

static void add_left_out(LeftOut *to, const LeftOut *more) {
    if (!to->n) to->first = more->first;
    to->n += more->n;
}

static void add_tally(Tally *to, const Tally *more) {
    to->n_tokens += more->n_tokens;
    to->n_counted += more->n_counted;
    to->n_cut_prompts += more->n_cut_prompts;
    to->n_cut += more->n_cut;
    records_raise(to, more->longest);
    add_left_out(&to->empty, &more->empty);
    add_left_out(&to->mute, &more->mute);
}

/* What is kept of a file, or where it is to be kept. */
typedef struct Kept {
    bool is_there, to_cache, to_memory;
    uint64_t key, settings; /* in the cache, in memory */
    MxDataFile file;
    MxBytes bytes;
} Kept;

/* Adds the last file that was read to the memory, which has no use for records that were cut. */
static void remember(const Records *records, const Kept *kept, MxBytes what) {
    const MxDataset *dataset = records->dataset;
    if (kept->to_memory && !head_of(what)->n_cut && !head_of(what)->n_cut_prompts)
        cache_remember(dataset, dataset->files[dataset->n_files - 1], kept->settings, what);
}

static bool keep(const Records *records, const Kept *kept, MxText *text, MxError *err) {
    MxBytes what = {(uint8_t *)text->data + CACHE_HEADER_BYTES, text->len - CACHE_HEADER_BYTES};
    remember(records, kept, what);
    return !kept->to_cache || cache_keep(records->dataset, kept->key, text, err);
}

static bool make(Records *records, const char *path, const Kept *kept, MxError *err) {
    MxArena scratch = {.name = "what is kept"};
    MxText text;
    Tally before = records->tally;
    int64_t first = records->n;
    records->tally = (Tally){0};
    bool ok = records_read(records, path, err);
    if (ok && !records->n_bad) {
        mx_text_init(&text, &scratch);
        cache_begin(&text);
        put(&text, records, first, path);
        ok = keep(records, kept, &text, err);
    }
    add_tally(&before, &records->tally);
    records->tally = before;
    mx_arena_release(&scratch);
    return ok;
}

/* Whether none of a file's records, which were not cut, would be cut now. */
static bool fits(const MxDataConfig *c, const KeptHead *head) {
    int64_t prompt = c->max_prompt_length, answer = c->length - prompt;
    if (c->splits) return true;
    return c->pairs ? head->longest.prompt <= prompt && head->longest.answer <= answer
                    : head->longest.whole <= c->length;
}

/* In memory, else in the cache. */
static bool find(Records *records, const char *path, Kept *out, MxError *err) {
    MxArena scratch = {.name = "key"};
    MxDataset *dataset = records->dataset;
    const MxDataConfig *c = &dataset->config;
    const char *format = tell_format(&scratch, records, path);
    bool has_memory = records->settings, ok = true;
    *out = (Kept){.to_cache = dataset->cache.dir, .to_memory = has_memory && c->remembers};
    out->settings = records->settings ^ mx_hash64(format, strlen(format));
    out->is_there = has_memory &&
                    cache_recall(dataset, path, out->settings, &out->file, &out->bytes) &&
                    fits(c, head_of(out->bytes));
    if (!out->is_there && out->to_cache) {
        ok = data_hash_whole(path, &out->file, err);
        out->key = ok ? cache_key(dataset, &out->file, format) : 0;
        out->is_there = ok && cache_find(records->arena, dataset, out->key, &out->bytes);
    }
    mx_arena_release(&scratch);
    return ok;
}

bool records_read_kept(Records *records, const char *path, MxError *err) {
    Kept kept;
    if (!find(records, path, &kept, err)) return false;
    if (!kept.is_there && !kept.to_cache && !kept.to_memory)
        return records_read(records, path, err);
    if (!kept.is_there) return make(records, path, &kept, err);
    if (!take(records, kept.bytes, path, err)) return false;
    data_add_file(records->arena, records->dataset, kept.file);
    remember(records, &kept, kept.bytes);
    return true;
}
