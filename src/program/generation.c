/* generation.c — processes sequences in pieces: parts of prompts, then one token at a time, of one
 * sequence or of all unfinished ones. There is an entry for each shape of pieces; all share the
 * caches of layers. A layer with a window keeps only the positions that a piece can read. The next
 * token is chosen elsewhere. On a mesh of several devices all ranks process the same pieces or, if
 * a policy generates its own responses, each group of ranks that together have all weights
 * processes its own.
 *
 * Shape letters: B rows, P tokens of a row of a piece, D model width, V vocab. */
#include <mx/program.h>

#include "internal.h"

#define ROW(name_, width_, all_rows_, all_logits_) &entry_##name_,
static const Entry *const entries[PIECE_COUNT] = {PIECES(ROW)};
#undef ROW

MxGeneration mx_generation(const MxTrainState *s) {
    return s->generation;
}

/* ---- shares */

/* Mesh axes that cut weights. What cannot be cut as the rules say is told when it is. */
static uint32_t axes_of_weights(MxTrainState *s) {
    const MxTree *params = mx_model_params(s->model);
    const MxMesh *mesh = &s->mesh.mesh;
    uint32_t axes = mx_mesh_stages(mesh);
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        MxVariable variable = {.names = mx_spec_names(s->arena, leaf->axes, leaf->shape.rank)};
        MxResolved how;
        MxError told_later = {0};
        if (mx_shard_resolve_variable(s->arena, &variable, &s->mesh.rules, mesh, &how,
                                      &told_later)) {
            MxSharding sharding = mx_sharding_of_spec(mesh, how.spec);
            for (int d = 0; d < MX_MAX_RANK; d++) axes |= sharding.dim[d];
        }
        mx_error_release(&told_later);
    }
    return axes;
}

static void find_share(MxTrainState *s) {
    const MxMesh *mesh = &s->mesh.mesh;
    MxGeneration *g = &s->generation;
    g->n_shares = 1;
    g->speaks = s->rank == 0;
    if (!mx_config_writes(s->config) || mesh->n_ranks == 1) return;
    uint32_t cut = axes_of_weights(s), together = 0;
    for (int a = 0; a < mesh->n; a++) {
        if (mesh->sizes[a] == 1) continue;
        if (cut >> a & 1) {
            together |= 1u << a;
            continue;
        }
        s->apart |= 1u << a;
        g->n_shares *= mesh->sizes[a];
        g->share = g->share * mesh->sizes[a] + mx_mesh_coord(mesh, s->rank, a);
    }
    MxGroup group = mx_lower_group(s->arena, mesh, s->rank, together);
    g->speaks = group.index == 0;
    if (s->comm && s->apart) s->sharers = mx_comm_exchange(s->comm, &group);
}

uint32_t program_apart(const MxTrainState *s, const Entry *entry) {
    bool generates = entry == &entry_see || entry == &entry_hear || entry == &entry_factors;
    for (int kind = 0; kind < PIECE_COUNT; kind++) generates |= entry == entries[kind];
    return generates ? s->apart : 0;
}

/* Sequences that are written together: those of some of a share's prompts, at most of a batch. */
static int64_t rows_to_write(const MxTrainState *s) {
    const MxConfig *c = s->config;
    int64_t all = c->global_batch_size_to_load, some = c->rollout_micro_batch_size;
    if (c->global_batch_size_to_load_eval > all && c->eval_interval > 0)
        all = c->global_batch_size_to_load_eval;
    int64_t n = s->generation.n_shares, rows = (all * c->rl_num_generations + n - 1) / n;
    return some > 0 && some * c->rl_num_generations < rows ? some * c->rl_num_generations : rows;
}

static MxGeneration generation_of(MxTrainState *s) {
    enum { CHUNK = 64 };
    const MxConfig *c = s->config;
    bool trains = s->purpose == PURPOSE_TRAINS, samples = trains && c->sample_prompts;
    bool asks = c->eval_tasks.n && (c->eval_interval > 0 || !trains);
    if (s->purpose == PURPOSE_GENERATES) return s->generation;
    if (!samples && !asks && !mx_config_writes(c)) return (MxGeneration){0};
    int64_t capacity = c->max_target_length < 2 ? 2 : c->max_target_length;
    int64_t chunk = capacity < CHUNK ? capacity : CHUNK;
    if (samples) capacity += c->sample_max_tokens;
    find_share(s);
    MxGeneration sizes = {.rows = mx_config_writes(c) ? rows_to_write(s) : 1,
                          .capacity = capacity,
                          .chunk = chunk,
                          .all_logits = asks,
                          .share = s->generation.share,
                          .n_shares = s->generation.n_shares,
                          .speaks = s->generation.speaks};
    if (mx_config_writes(c)) sizes.seen = program_seen_most(c);
    mx_generation_make_room(c, &sizes);
    return sizes;
}

/* Behind learned positions there are none. */
static void keep_to_positions(const MxConfig *c, MxGeneration *g) {
    int64_t most = c->trainable_position_size;
    if (most <= 0) return;
    if (g->capacity > most) g->capacity = most;
    if (g->chunk > most) g->chunk = most;
}

bool program_find_mesh(MxTrainState *s, MxError *err) {
    if (!s->mesh.config && !mx_train_mesh(s->arena, s->config, &s->mesh, err)) return false;
    if (s->purpose != PURPOSE_GENERATES) return true;
    int64_t *sizes = mx_new_n(s->arena, int64_t, s->mesh.mesh.n + 1);
    for (int a = 0; a < s->mesh.mesh.n; a++) sizes[a] = 1;
    s->mesh.mesh.sizes = sizes;
    s->mesh.mesh.n_ranks = 1;
    return true;
}

/* Shapes of pieces. A short piece of a prompt does not pay for a long one. */
static const struct {
    const char *name;
    int64_t width;   /* of a row; 0 = a chunk */
    bool all_rows;   /* a row for each sequence, not one of one sequence */
    bool all_logits; /* of every token */
} kinds[PIECE_COUNT] = {
#define ROW(name_, width_, all_rows_, all_logits_)                                                 \
    {.name = #name_, .width = width_, .all_rows = all_rows_, .all_logits = all_logits_},
    PIECES(ROW)
#undef ROW
};

/* Tokens of images come in prompts. */
static bool sees(const MxTrainState *s, int kind) {
    return s->generation.seen && kinds[kind].width != 1;
}

static bool has_piece(const MxTrainState *s, int kind) {
    const MxGeneration *g = &s->generation;
    bool is_one = kinds[kind].width == 1 || !kinds[kind].width;
    return g->rows > kinds[kind].all_rows && (g->all_logits || !kinds[kind].all_logits) &&
           (is_one || kinds[kind].width < g->chunk);
}

/* Rows and tokens of a row. */
static MxShape shape_of(const MxTrainState *s, int kind) {
    return MX_SHAPE(kinds[kind].all_rows ? s->generation.rows : 1,
                    kinds[kind].width ? kinds[kind].width : s->generation.chunk);
}

/* Slots of a cache: the first token of a piece sees its window after the last one was put there. */
static int64_t slots_of(const MxGeneration *g, const MxModelCache *cache) {
    int64_t seen = cache->window ? cache->window + g->chunk - 1 : g->capacity;
    if (cache->is_memory) return 1;
    if (cache->ratio) return (g->capacity + cache->ratio - 1) / cache->ratio;
    return seen < g->capacity ? seen : g->capacity;
}

static MxDtype dtype_of(const MxModelCache *cache, MxDtype of_activations) {
    return cache->is_memory   ? MX_F32
           : cache->are_ids   ? MX_I32
           : cache->are_codes ? MX_U8
                              : of_activations;
}

static bool declare_caches(MxTrainState *s, MxError *err) {
    const MxModelCache *cache;
    MxDtype dtype;
    int n;
    if (!mx_model_caches(s->arena, s->model, &cache, &n, err)) return false;
    bool known = mx_dtype_parse(s->config->dtype, &dtype);
    MX_ASSERT(known);
    s->caches = mx_new_n(s->arena, int, n + 1);
    s->n_caches = n;
    for (int i = 0; i < n; i++) {
        MxShape shape = {.rank = cache[i].row.rank + 2};
        shape.dim[0] = s->generation.rows;
        shape.dim[1] = slots_of(&s->generation, &cache[i]);
        memcpy(shape.dim + 2, cache[i].row.dim, sizeof shape.dim - 2 * sizeof *shape.dim);
        s->caches[i] =
            program_add_var(s, "cache", cache[i].name, (MxType){dtype_of(&cache[i], dtype), shape});
    }
    return true;
}

/* Tokens of images have a time, a row and a column; those of a text need their position alone. */
static bool has_mrope(const MxTrainState *s, int kind) {
    return sees(s, kind) && mx_model_vision(s->config).has_mrope;
}

static PieceVars declare_piece(MxTrainState *s, int kind) {
    const char *name = kinds[kind].name;
    const MxShape shape = shape_of(s, kind);
    const MxType ids = {MX_I32, shape}, rows = {MX_I32, MX_SHAPE(shape.dim[0])};
    const MxShape logits =
        MX_SHAPE(shape.dim[0], kinds[kind].all_logits ? shape.dim[1] : 1, s->config->vocab_size);
    PieceVars vars = {
        .image = sees(s, kind) ? program_add_var(s, name, "image", ids) : MX_NONE,
        .tokens = program_add_var(s, name, "tokens", ids),
        .positions = program_add_var(s, name, "positions", ids),
        .kept = program_add_var(s, name, "kept", ids),
        .counts = program_add_var(s, name, "counts", rows),
        .sequences = program_add_var(s, name, "sequences", rows),
        .last = program_add_var(s, name, "last", (MxType){MX_I32, MX_SHAPE(shape.dim[0], 1)}),
        .logits = program_add_var(s, name, "logits", (MxType){MX_F32, logits}),
    };
    for (int k = 0; has_mrope(s, kind) && k < MX_MROPE_KINDS; k++)
        vars.mrope[k] = program_add_var(s, name, mx_arena_printf(s->arena, "mrope_%d", k), ids);
    return vars;
}

static bool check_generation(const MxTrainState *s, MxError *err) {
    const MxConfig *c = s->config;
    if (c->score_head)
        return mx_config_fail(err, c, MX_KEY_score_head,
                              "the model has a head of one number and no logits to generate from");
    if (s->purpose == PURPOSE_GENERATES || s->mesh.n_stages == 1) return true;
    return mx_config_fail(err, c,
                          mx_config_writes(c)        ? MX_KEY_rl_reward
                          : s->generation.all_logits ? MX_KEY_eval_tasks
                                                     : MX_KEY_sample_prompts,
                          "not available yet in a pipeline (stage=%lld)",
                          (long long)s->mesh.n_stages);
}

bool program_declare_generation(MxTrainState *s, MxError *err) {
    s->generation = generation_of(s);
    keep_to_positions(s->config, &s->generation);
    if (!s->generation.rows) return true;
    if (!check_generation(s, err)) return false;
    if (!declare_caches(s, err)) return false;
    program_declare_see(s);
    program_declare_hear(s);
    program_declare_factors(s);
    for (int kind = 0; kind < PIECE_COUNT; kind++)
        if (has_piece(s, kind)) s->piece[kind] = declare_piece(s, kind);
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
    MxValue *params = program_read_held(s, t);
    const MxModel *model = program_with_factors(s, t, params);
    MxModelImages images = {.pixels = MX_NONE};
    MxValue mrope[MX_MROPE_KINDS];
    for (int k = 0; has_mrope(s, kind) && k < MX_MROPE_KINDS; k++)
        mrope[k] = mx_variable(t, v->mrope[k]);
    if (sees(s, kind)) {
        images.rows = mx_variable(t, s->see.rows);
        images.index = mx_variable(t, v->image);
    }
    MxModelInputs in = {.images = sees(s, kind) ? &images : NULL,
                        .mrope = has_mrope(s, kind) ? mrope : NULL,
                        .tokens = mx_variable(t, v->tokens),
                        .positions = mx_variable(t, v->positions),
                        .segments = MX_NONE,
                        .caches = s->caches,
                        .place = {.positions = mx_variable(t, v->kept),
                                  .counts = mx_variable(t, v->counts),
                                  .sequences = mx_variable(t, v->sequences)}};
    MxValue x = mx_model_stream(t, model, params, in);
    t->scope = "generation";
    if (!kinds[kind].all_logits) x = take_last(t, x, mx_variable(t, v->last));
    x = mx_model_last_norm(t, model, params, in, x);
    mx_trace_assign(t, mx_model_logits(t, model, params, x), v->logits, false);
}

#define ENTRY(name_, width_, all_rows_, all_logits_)                                               \
    static void trace_##name_(MxTrainState *s, MxTrace *t) {                                       \
        trace_piece(s, t, PIECE_##name_);                                                          \
    }                                                                                              \
    static bool wants_##name_(const MxTrainState *s) {                                             \
        return has_piece(s, PIECE_##name_);                                                        \
    }                                                                                              \
    const Entry entry_##name_ = {                                                                  \
        .name = #name_, .trace = trace_##name_, .is_wanted = wants_##name_};
PIECES(ENTRY)
#undef ENTRY

bool mx_train_state_open_generation(MxArena *arena, const MxConfig *config, MxGeneration what,
                                    MxQtype kept, MxTrainState **out, MxError *err) {
    MxTrainState *s = program_new(arena, config, NULL);
    s->kept = kept;
    s->purpose = PURPOSE_GENERATES;
    s->generation = what;
    return program_open(s, out, err);
}

/* ---- running */

/* What an entry reads of a piece, [rows, width] or [rows]. */
typedef struct Laid {
    int32_t *tokens, *positions, *kept, *last, *counts, *sequences, *image, *mrope[MX_MROPE_KINDS];
} Laid;

/* Rows that the piece has not are of sequences that it has not, and nothing but padding. */
static Laid lay_out(MxArena *arena, const MxPiece *piece, MxShape shape) {
    const int64_t B = shape.dim[0], P = shape.dim[1], n = B * P;
    Laid l = {mx_new_n(arena, int32_t, n), mx_new_n(arena, int32_t, n),
              mx_new_n(arena, int32_t, n), mx_new_n(arena, int32_t, B),
              mx_new_n(arena, int32_t, B), mx_new_n(arena, int32_t, B),
              mx_new_n(arena, int32_t, n), {0}};
    for (int k = 0; k < MX_MROPE_KINDS; k++) l.mrope[k] = mx_new_n(arena, int32_t, n);
    bool *is_taken = mx_new_n(arena, bool, B);
    int32_t free = 0;
    for (int64_t i = 0; i < n; i++) l.kept[i] = -1;
    for (int64_t b = 0; b < piece->n; b++) {
        l.sequences[b] = piece->sequences[b];
        l.last[b] = (int32_t)(b * P + piece->n_tokens - 1);
        l.counts[b] = (int32_t)(piece->before[b] + piece->n_tokens);
        if (B > 1) is_taken[piece->sequences[b]] = true;
        for (int64_t i = b * P; i <= l.last[b]; i++) {
            l.tokens[i] = piece->tokens[i];
            l.kept[i] = (int32_t)(piece->before[b] + i - b * P);
            l.positions[i] = l.kept[i] + (piece->shift ? piece->shift[b] : 0);
            for (int k = 0; k < MX_MROPE_KINDS; k++)
                l.mrope[k][i] = piece->mrope[k] ? piece->mrope[k][i] : l.positions[i];
        }
    }
    for (int64_t i = 0; piece->image && i < piece->n_tokens; i++) l.image[i] = piece->image[i];
    for (int64_t b = piece->n; b < B; b++) {
        while (is_taken[free]) free++;
        l.sequences[b] = free++;
        l.last[b] = (int32_t)(b * P);
    }
    return l;
}

/* The narrowest that has room for it. */
static int kind_of(const MxTrainState *s, const MxPiece *piece) {
    int best = -1;
    for (int kind = 0; kind < PIECE_COUNT; kind++) {
        MxShape shape = shape_of(s, kind);
        bool fits = has_piece(s, kind) && kinds[kind].all_logits == piece->all_logits &&
                    piece->n <= shape.dim[0] && piece->n_tokens <= shape.dim[1] &&
                    (!piece->image || sees(s, kind));
        if (fits && (best < 0 || mx_shape_count(shape) < mx_shape_count(shape_of(s, best))))
            best = kind;
    }
    MX_ASSERT(best >= 0);
    return best;
}

/* What the first rank has counts: others may have added up in another order, and all go on with the
 * same tokens. */
static void read_logits(const MxTrainState *s, int var, const MxPiece *piece, float *logits) {
    MxBox box = mx_run_box(s->run, var);
    box.count[0] = piece->n;
    if (piece->all_logits) box.count[1] = piece->n_tokens;
    mx_run_read(s->run, var, box, logits);
    size_t bytes = (size_t)mx_box_count(&box) * sizeof *logits;
    if (s->comm && !s->apart) mx_comm_broadcast(s->comm, logits, bytes);
    if (!s->sharers) return;
    mx_exchange_broadcast(s->sharers, "logits", logits, bytes);
    mx_exchange_finish(s->sharers);
}

void mx_generation_run(MxTrainState *s, const MxPiece *piece, float *logits) {
    MxArena arena = {.name = "piece"};
    const int kind = kind_of(s, piece);
    const PieceVars *v = &s->piece[kind];
    for (int64_t b = 0; b < piece->n; b++)
        MX_ASSERT(piece->before[b] + piece->n_tokens <= s->generation.capacity &&
                  piece->sequences[b] < s->generation.rows);
    Laid l = lay_out(&arena, piece, shape_of(s, kind));
    program_write_all(s, v->tokens, l.tokens);
    program_write_all(s, v->positions, l.positions);
    program_write_all(s, v->kept, l.kept);
    program_write_all(s, v->last, l.last);
    if (v->image != MX_NONE) program_write_all(s, v->image, l.image);
    for (int k = 0; has_mrope(s, kind) && k < MX_MROPE_KINDS; k++)
        program_write_all(s, v->mrope[k], l.mrope[k]);
    program_write_all(s, v->counts, l.counts);
    program_write_all(s, v->sequences, l.sequences);
    program_make_factors(s);
    program_run_entry(s, entries[kind]);
    read_logits(s, v->logits, piece, logits);
    mx_arena_release(&arena);
}
