/* pieces.c — sentencepiece models: a protocol buffer message becomes a pipeline of one normalizer,
 * a model (BPE or unigram) and one decoder. Source: sentencepiece 0.2,
 * src/sentencepiece_model.proto, normalizer.cc, bpe_model.cc, unigram_model.cc. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

static TextSpan bytes_of(const MxProtoField *f) {
    return (TextSpan){(const char *)f->bytes.at, (size_t)f->value};
}

static double float_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

/* ---- the model's message */

typedef enum PieceType { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE } PieceType;

typedef struct Piece {
    TextSpan text;
    double score;
    uint64_t type;
} Piece;

typedef struct Proto {
    Piece *piece;
    int32_t n, unknown;
    uint64_t model_type;
    TextSpan unknown_surface, bos, eos, pad, charsmap, denormal;
    bool has_bytes, is_suffix, adds_dummy, removes_spaces, escapes_spaces;
} Proto;

static bool read_piece(TextSpan bytes, Piece *out, const char **why) {
    MxProto m = mx_proto_of(bytes.data, bytes.n);
    MxProtoField f;
    *out = (Piece){.text = TEXT_SPAN(""), .type = NORMAL};
    while (mx_proto_next(&m, &f)) {
        if (f.number == 1 && f.wire == MX_PROTO_BYTES) out->text = bytes_of(&f);
        if (f.number == 2 && f.wire == MX_PROTO_32) out->score = float_of(f.value);
        if (f.number == 3 && f.wire == MX_PROTO_VARINT) out->type = f.value;
    }
    *why = m.why;
    if (!*why && mx_utf8_valid_bytes(out->text.data, out->text.n) < out->text.n)
        *why = "its text is not UTF-8";
    if (!*why && !out->text.n) *why = "its text is empty";
    if (!*why && !isfinite(out->score)) *why = "its score is no number";
    if (!*why && (out->type < NORMAL || out->type > BYTE)) *why = "its type is not known";
    return !*why;
}

/* A member of a message by the number of its field. */
typedef struct Member {
    uint64_t number;
    TextSpan *bytes;
    bool *flag;
    uint64_t *value;
} Member;

static const char *read_members(TextSpan bytes, const Member *members, int n) {
    MxProto m = mx_proto_of(bytes.data, bytes.n);
    MxProtoField f;
    while (mx_proto_next(&m, &f))
        for (int i = 0; i < n; i++) {
            if (members[i].number != f.number) continue;
            if (members[i].bytes && f.wire == MX_PROTO_BYTES) *members[i].bytes = bytes_of(&f);
            if (members[i].flag && f.wire == MX_PROTO_VARINT) *members[i].flag = f.value;
            if (members[i].value && f.wire == MX_PROTO_VARINT) *members[i].value = f.value;
        }
    return m.why;
}

static const char *read_trainer(TextSpan bytes, Proto *p) {
    const Member members[] = {{3, .value = &p->model_type}, {24, .flag = &p->is_suffix},
                              {35, .flag = &p->has_bytes},  {44, .bytes = &p->unknown_surface},
                              {46, .bytes = &p->bos},       {47, .bytes = &p->eos},
                              {48, .bytes = &p->pad}};
    return read_members(bytes, members, MX_COUNT(members));
}

static const char *read_normalizer(TextSpan bytes, Proto *p) {
    const Member members[] = {{2, .bytes = &p->charsmap},
                              {3, .flag = &p->adds_dummy},
                              {4, .flag = &p->removes_spaces},
                              {5, .flag = &p->escapes_spaces}};
    return read_members(bytes, members, MX_COUNT(members));
}

static const char *read_denormalizer(TextSpan bytes, Proto *p) {
    const Member members[] = {{2, .bytes = &p->denormal}};
    return read_members(bytes, members, MX_COUNT(members));
}

static bool read_proto(MxArena *arena, TextSpan bytes, Proto *p, const char **why) {
    MxProto m = mx_proto_of(bytes.data, bytes.n);
    MxProtoField f;
    int32_t cap = 0;
    *p = (Proto){.model_type = 1, /* unigram */
                 .unknown = -1,
                 .unknown_surface = TEXT_SPAN(" \xe2\x81\x87 "),
                 .bos = TEXT_SPAN("<s>"),
                 .eos = TEXT_SPAN("</s>"),
                 .pad = TEXT_SPAN("<pad>"),
                 .adds_dummy = true,
                 .removes_spaces = true,
                 .escapes_spaces = true};
    for (*why = NULL; !*why && mx_proto_next(&m, &f);) {
        if (f.wire != MX_PROTO_BYTES) continue;
        if (f.number == 1 && p->n == cap) {
            cap = cap ? 2 * cap : 1024;
            p->piece = mx_arena_grow(arena, p->piece, (size_t)p->n, (size_t)cap, sizeof *p->piece);
        }
        if (f.number == 1 && !read_piece(bytes_of(&f), &p->piece[p->n], why))
            *why = mx_arena_printf(arena, "piece %d: %s", p->n, *why);
        if (f.number == 1 && !*why && p->piece[p->n].type == UNKNOWN) p->unknown = p->n;
        p->n += f.number == 1;
        if (f.number == 2) *why = read_trainer(bytes_of(&f), p);
        if (f.number == 3) *why = read_normalizer(bytes_of(&f), p);
        if (f.number == 5) *why = read_denormalizer(bytes_of(&f), p);
    }
    if (!*why) *why = m.why;
    if (!*why && !p->n) *why = "it has no pieces";
    if (!*why && p->n > TEXT_MOST_ID) *why = "it has too many pieces";
    if (!*why && p->unknown < 0) *why = "it has no piece for what is unknown";
    if (!*why &&
        mx_utf8_valid_bytes(p->unknown_surface.data, p->unknown_surface.n) < p->unknown_surface.n)
        *why = "the text of what is unknown is not UTF-8";
    return !*why;
}

/* ---- the normalizer */

/* What the text at a place becomes, and how many bytes of it that takes. */
static TextSpan normal_prefix(const TextSpm *spm, TextSpan in, size_t at, size_t *bytes) {
    TextSpan rest = {in.data + at, in.n - at}, to;
    const TextAdded *own = text_added_at(spm->own, in, at);
    *bytes = own ? own->text.n : 0;
    if (own) return own->text;
    if (spm->has_map) *bytes = text_charsmap_find(&spm->map, rest, true, &to);
    if (*bytes) return to;
    *bytes = text_char_bytes((uint8_t)rest.data[0]);
    return (TextSpan){rest.data, *bytes};
}

static const TextSpan mark = TEXT_SPAN("\xe2\x96\x81");

static void add_text(const TextSpm *spm, TextSpan text, MxText *out) {
    for (size_t i = 0; i < text.n; i++)
        if (text.data[i] == ' ' && spm->escapes_spaces)
            mx_text_addn(out, mark.data, mark.n);
        else
            mx_text_addn(out, text.data + i, 1);
}

static bool pieces_normalize(TextWork *work, int step, TextSpan in, MxText *out) {
    const TextSpm *spm = work->tokenizer->normalizers.item[step].settings;
    size_t at = 0, bytes;
    while (spm->removes_spaces && at < in.n) {
        if (!text_same(normal_prefix(spm, in, at, &bytes), TEXT_SPAN(" "))) break;
        at += bytes;
    }
    if (at == in.n) return true;
    if (spm->adds_dummy) add_text(spm, TEXT_SPAN(" "), out);
    bool was_space = spm->removes_spaces;
    for (; at < in.n; at += bytes) {
        TextSpan to = normal_prefix(spm, in, at, &bytes);
        while (was_space && to.n && to.data[0] == ' ') to = (TextSpan){to.data + 1, to.n - 1};
        if (to.n) was_space = spm->removes_spaces && to.data[to.n - 1] == ' ';
        add_text(spm, to, out);
    }
    TextSpan space = spm->escapes_spaces ? mark : TEXT_SPAN(" ");
    while (spm->removes_spaces && out->len >= space.n &&
           !memcmp(out->data + out->len - space.n, space.data, space.n))
        out->len -= space.n;
    return true;
}

static const TextNormalizer pieces_normalizer = {.kind = {.name = "sentencepiece"},
                                                 .run = pieces_normalize};

/* ---- models */

static bool is_wanted(const Piece *piece) {
    return piece->type == NORMAL || piece->type == USER_DEFINED;
}

static bool read_vocab(MxArena *arena, const Proto *p, TextVocab *out, const char **why) {
    text_vocab_init(out, arena, (size_t)p->n);
    for (int32_t id = 0; id < p->n; id++) {
        if (text_vocab_add(out, p->piece[id].text, id)) continue;
        *why = mx_arena_printf(arena, "piece %d: its text is there already", id);
        return false;
    }
    return true;
}

typedef struct ByScore {
    double score;
    int32_t id;
} ByScore;

static int compare_scores(const void *a, const void *b) {
    double x = ((const ByScore *)a)->score, y = ((const ByScore *)b)->score;
    return (x < y) - (x > y);
}

/* Characters of pieces that are no pieces: symbols of words all the same, which may be merged. */
static void add_characters(const Proto *p, TextVocab *vocab) {
    for (int32_t id = 0; id < p->n; id++) {
        TextSpan text = p->piece[id].text;
        for (size_t at = 0, n; is_wanted(&p->piece[id]) && at < text.n; at += n) {
            n = text_char_bytes((uint8_t)text.data[at]);
            text_vocab_add(vocab, (TextSpan){text.data + at, n}, vocab->n);
        }
    }
}

static bool make_bpe(MxArena *arena, const Proto *p, const void **out, const char **why) {
    TextBpe *bpe = mx_new(arena, TextBpe);
    ByScore *order = mx_new_n(arena, ByScore, p->n);
    int32_t n = 0;
    *out = bpe;
    if (!read_vocab(arena, p, &bpe->vocab, why)) return false;
    add_characters(p, &bpe->vocab);
    uint32_t *ranks = mx_new_n(arena, uint32_t, bpe->vocab.n);
    memset(ranks, 0xff, sizeof *ranks * (size_t)bpe->vocab.n);
    for (int32_t id = 0; id < p->n; id++)
        if (is_wanted(&p->piece[id])) order[n++] = (ByScore){p->piece[id].score, id};
    qsort(order, (size_t)n, sizeof *order, compare_scores);
    for (int32_t i = 0; i < n; i++) /* equal scores are one rank */
        ranks[order[i].id] =
            !i ? 0 : ranks[order[i - 1].id] + (order[i].score < order[i - 1].score);
    text_bpe_derive(arena, bpe, ranks);
    bpe->n_real = p->n;
    bpe->unknown = p->unknown;
    bpe->fuses_unknown = true;
    if (p->has_bytes) bpe->bytes = text_byte_ids(arena, &bpe->vocab);
    bpe->seams = text_seams_new(arena, &bpe->vocab, bpe->n_real);
    return true;
}

static bool make_unigram(MxArena *arena, const Proto *p, const void **out, const char **why) {
    static const double unknown_penalty = 10;
    TextUnigram *unigram = mx_new(arena, TextUnigram);
    double *scores = mx_new_n(arena, double, p->n), least = INFINITY;
    bool *is_piece = mx_new_n(arena, bool, p->n);
    *out = unigram;
    if (!read_vocab(arena, p, &unigram->vocab, why)) return false;
    for (int32_t id = 0; id < p->n; id++) {
        is_piece[id] = is_wanted(&p->piece[id]);
        scores[id] = p->piece[id].score;
        if (p->piece[id].type == NORMAL) least = fmin(least, scores[id]);
        if (p->piece[id].type == USER_DEFINED) /* always chosen, the longest first */
            scores[id] = (double)(float)(0.1 * ((double)p->piece[id].text.n - 1));
    }
    unigram->scores = scores;
    unigram->unknown_score = (double)((float)least - (float)unknown_penalty);
    unigram->unknown = p->unknown;
    unigram->like_pieces = true;
    if (p->has_bytes) unigram->bytes = text_byte_ids(arena, &unigram->vocab);
    text_unigram_index(arena, unigram, is_piece);
    return true;
}

static const struct {
    uint64_t type;
    TextModelRow row;
    bool (*make)(MxArena *arena, const Proto *p, const void **out, const char **why);
} models[] = {
    {1, TEXT_UNIGRAM, make_unigram},
    {2, TEXT_BPE, make_bpe},
};

static bool make_model(MxArena *arena, const Proto *p, TextStep *out, const char **why) {
    for (int i = 0; i < MX_COUNT(models); i++) {
        if (models[i].type != p->model_type) continue;
        out->kind = &text_model_rows[models[i].row].kind;
        return models[i].make(arena, p, &out->settings, why);
    }
    *why = "not available yet: models of words or characters, wanted BPE or unigram";
    return false;
}

/* ---- */

static bool make_spm(MxArena *arena, const Proto *p, TextSpm **out, const char **why) {
    TextSpm *spm = *out = mx_new(arena, TextSpm);
    TextAddedSet *own = mx_new(arena, TextAddedSet);
    *spm = (TextSpm){.adds_dummy = p->adds_dummy,
                     .removes_spaces = p->removes_spaces,
                     .escapes_spaces = p->escapes_spaces,
                     .has_map = p->charsmap.n > 0,
                     .own = own};
    text_added_init(own, arena);
    for (int32_t id = 0; id < p->n; id++)
        if (p->piece[id].type == USER_DEFINED)
            text_added_put(own, (TextAdded){.text = p->piece[id].text, .id = id});
    if (p->is_suffix)
        *why = "not available yet: spaces that stand behind words (treat_whitespace_as_suffix)";
    else if (p->denormal.n)
        *why = "not available yet: a map that changes decoded text (denormalizer_spec)";
    else if (spm->has_map)
        *why = text_charsmap_open(p->charsmap, &spm->map);
    return !*why;
}

/* Control pieces show nothing, and what is unknown shows as such. */
static void make_texts(MxArena *arena, const Proto *p, MxTokenizer *out) {
    text_finish(arena, out);
    TextSpan *text = mx_new_n(arena, TextSpan, p->n);
    bool *is_special = mx_new_n(arena, bool, p->n);
    for (int32_t id = 0; id < p->n; id++) {
        is_special[id] = p->piece[id].type == CONTROL;
        text[id] = is_special[id]                 ? TEXT_SPAN("")
                   : p->piece[id].type == UNKNOWN ? p->unknown_surface
                                                  : p->piece[id].text;
        if (is_special[id] && text_same(p->piece[id].text, p->bos)) out->bos = id;
        if (is_special[id] && text_same(p->piece[id].text, p->eos)) out->eos = id;
        if (is_special[id] && text_same(p->piece[id].text, p->pad)) out->pad = id;
    }
    out->vocab = p->n;
    out->text = text;
    out->is_special = is_special;
}

bool text_open_pieces(MxArena *arena, const char *file, MxBytes bytes, MxTokenizer *out,
                      MxError *err) {
    Proto proto;
    TextSpm *spm;
    const char *why = NULL;
    if (!read_proto(arena, (TextSpan){(const char *)bytes.data, bytes.size}, &proto, &why) ||
        !make_spm(arena, &proto, &spm, &why) || !make_model(arena, &proto, &out->model, &why))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file},
                       "is no model of sentencepiece that can be read: %s", why);
    if (proto.model_type == models[1].type) out->normal = *spm->own; /* never merged */
    text_steps_add(arena, &out->normalizers, (TextStep){&pieces_normalizer.kind, spm});
    text_steps_add(arena, &out->decoders, (TextStep){&text_pieces_decoder.kind, spm});
    make_texts(arena, &proto, out);
    return true;
}
