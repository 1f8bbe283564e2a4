/* generation.c — sequences that go through the model in pieces: parts of prompts, then a token at a
 * time. Two entries, prefill and decode, share the caches of layers; a layer with a window keeps
 * only what a piece can see. Which token comes next is not decided here.
 *
 * Shape letters: B rows, P tokens of a row of a piece, D model width, V vocab. */
#include <mx/program.h>

#include "internal.h"

MxGeneration mx_generation(const MxTrainState *s) {
    return s->generation;
}

MxGeneration program_samples(const MxConfig *c) {
    enum { CHUNK = 64 };
    if (!c->sample_prompts) return (MxGeneration){0};
    int64_t capacity = c->max_target_length < 2 ? 2 : c->max_target_length;
    return (MxGeneration){1, capacity, capacity < CHUNK ? capacity : CHUNK, false};
}

bool program_find_mesh(MxTrainState *s, MxError *err) {
    if (!mx_train_mesh(s->arena, s->config, &s->mesh, err)) return false;
    if (s->purpose != PURPOSE_GENERATES && s->generation.rows && s->mesh.mesh.n_ranks > 1)
        return mx_config_fail(err, s->config, MX_KEY_sample_prompts,
                              "not available yet on a mesh of several devices (%lld)",
                              (long long)s->mesh.mesh.n_ranks);
    if (s->purpose != PURPOSE_GENERATES) return true;
    int64_t *sizes = mx_new_n(s->arena, int64_t, s->mesh.mesh.n + 1);
    for (int a = 0; a < s->mesh.mesh.n; a++) sizes[a] = 1;
    s->mesh.mesh.sizes = sizes;
    s->mesh.mesh.n_ranks = 1;
    return true;
}

static int64_t width_of(const MxTrainState *s, int kind) {
    return kind == PIECE_TOKEN ? 1 : s->generation.chunk;
}

/* Slots of a cache: the first token of a piece sees its window after the last one was put there. */
static int64_t slots_of(const MxGeneration *g, const MxModelCache *cache) {
    int64_t seen = cache->window ? cache->window + g->chunk - 1 : g->capacity;
    return seen < g->capacity ? seen : g->capacity;
}

static bool declare_caches(MxTrainState *s, MxError *err) {
    const MxModelCache *cache;
    MxDtype dtype;
    int n;
    if (!mx_model_caches(s->arena, s->model, &cache, &n, err)) return false;
    bool known = mx_dtype_parse(s->config->dtype, &dtype);
    MX_ASSERT(known);
    s->caches = mx_new_n(s->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        MxShape shape = {.rank = cache[i].row.rank + 2};
        shape.dim[0] = s->generation.rows;
        shape.dim[1] = slots_of(&s->generation, &cache[i]);
        memcpy(shape.dim + 2, cache[i].row.dim, sizeof shape.dim - 2 * sizeof *shape.dim);
        s->caches[i] = program_add_var(s, "cache", cache[i].name, (MxType){dtype, shape});
    }
    return true;
}

bool program_declare_generation(MxTrainState *s, MxError *err) {
    static const char *const names[PIECE_COUNT] = {"prefill", "decode"};
    int64_t B = s->generation.rows, V = s->config->vocab_size;
    if (!declare_caches(s, err)) return false;
    s->counts = program_add_var(s, "generation", "counts", (MxType){MX_I32, MX_SHAPE(B)});
    for (int kind = 0; kind < PIECE_COUNT; kind++) {
        int64_t P = width_of(s, kind);
        bool is_all = kind == PIECE_CHUNK && s->generation.all_logits;
        const MxType ids = {MX_I32, MX_SHAPE(B, P)};
        s->piece[kind] = (PieceVars){
            .tokens = program_add_var(s, names[kind], "tokens", ids),
            .positions = program_add_var(s, names[kind], "positions", ids),
            .kept = program_add_var(s, names[kind], "kept", ids),
            .last = program_add_var(s, names[kind], "last", (MxType){MX_I32, MX_SHAPE(B, 1)}),
            .logits = program_add_var(s, names[kind], "logits",
                                      (MxType){MX_F32, MX_SHAPE(B, is_all ? P : 1, V)}),
        };
    }
    return true;
}

/* ---- entries */

/* [B, 1, D] of the last token of each row of x [B, P, D]. */
static MxValue take_last(MxTrace *t, MxValue x, MxValue last) {
    MxType type = mx_trace_type(t, x);
    MxShape shape = type.shape;
    if (x < 0 || shape.dim[1] == 1) return x;
    MxValue rows = mx_reshape(t, x, MX_SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]));
    return mx_embed(t, rows, last, type.dtype);
}

static void trace_piece(MxTrainState *s, MxTrace *t, int kind) {
    const PieceVars *v = &s->piece[kind];
    MxValue *params = program_read_vars(s, t, s->var.param);
    MxModelInputs in = {.tokens = mx_variable(t, v->tokens),
                        .positions = mx_variable(t, v->positions),
                        .segments = MX_NONE,
                        .caches = s->caches,
                        .kept = mx_variable(t, v->kept),
                        .counts = mx_variable(t, s->counts)};
    MxValue x = mx_model_stream(t, s->model, params, in);
    t->scope = "generation";
    if (kind == PIECE_TOKEN || !s->generation.all_logits)
        x = take_last(t, x, mx_variable(t, v->last));
    x = mx_model_last_norm(t, s->model, params, x);
    mx_trace_assign(t, mx_model_logits(t, s->model, params, x), v->logits, false);
}

static void trace_prefill(MxTrainState *s, MxTrace *t) {
    trace_piece(s, t, PIECE_CHUNK);
}

static void trace_decode(MxTrainState *s, MxTrace *t) {
    trace_piece(s, t, PIECE_TOKEN);
}

static bool generates(const MxTrainState *s) {
    return s->generation.rows > 0;
}

const Entry entry_prefill = {"prefill", trace_prefill, generates};
const Entry entry_decode = {"decode", trace_decode, generates};

bool mx_train_state_open_generation(MxArena *arena, const MxConfig *config, MxGeneration what,
                                    MxTrainState **out, MxError *err) {
    MxTrainState *s = program_new(arena, config, NULL);
    s->purpose = PURPOSE_GENERATES;
    s->generation = what;
    return program_open(s, out, err);
}

/* ---- running */

void mx_generation_run(MxTrainState *s, const MxPiece *piece, float *logits) {
    MxArena arena = {.name = "piece"};
    const int64_t B = s->generation.rows, P = piece->length;
    const int kind = P == 1 ? PIECE_TOKEN : PIECE_CHUNK;
    const PieceVars *v = &s->piece[kind];
    MX_ASSERT(P == width_of(s, kind));
    int32_t *positions = mx_new_n(&arena, int32_t, B * P), *kept = mx_new_n(&arena, int32_t, B * P);
    int32_t *last = mx_new_n(&arena, int32_t, B), *counts = mx_new_n(&arena, int32_t, B);
    for (int64_t b = 0; b < B; b++) {
        int64_t n = piece->n[b];
        MX_ASSERT(n >= 0 && n <= P && piece->before[b] + n <= s->generation.capacity);
        for (int64_t i = 0; i < P; i++) {
            positions[b * P + i] = i < n ? (int32_t)(piece->before[b] + i) : 0;
            kept[b * P + i] = i < n ? positions[b * P + i] : -1;
        }
        last[b] = (int32_t)(b * P + (n ? n - 1 : 0));
        counts[b] = (int32_t)(piece->before[b] + n);
    }
    program_write_all(s, v->tokens, piece->tokens);
    program_write_all(s, v->positions, positions);
    program_write_all(s, v->kept, kept);
    program_write_all(s, v->last, last);
    program_write_all(s, s->counts, counts);
    program_run_entry(s, kind == PIECE_TOKEN ? &entry_decode : &entry_prefill);
    program_read_all(s, v->logits, logits);
    mx_arena_release(&arena);
}
