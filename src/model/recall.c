/* recall.c — n-gram memories: a layer looks up rows of tables that the n-grams which end at a token
 * name, weighs them by how well they match each row of the stream, smooths them over time, and adds
 * them to the stream. Source: Engram (2026); MaxText layers/engram.py @e591f30c.
 *
 * Letters besides those of internal.h: S rows of a token, N tokens of the longest n-gram, H heads
 * of each length, E width of a row of a table, M = (N - 1) H E, W taps of the convolution. */
#include <mx/model.h>

#include "streams.h"

#include <math.h>

struct Recall {
    int table, key, key_bias, value, value_bias, taps;
    Norm norm, key_norm, query_norm, taps_norm;
    MxNgrams *ngrams;
};

static int64_t width_of(const MxConfig *c) {
    return (c->engram_max_ngram_size - 1) * c->engram_num_heads * c->engram_head_dim;
}

/* ---- how many rows tables have */

static bool is_prime(int64_t x) {
    for (int64_t i = 2; i * i <= x; i++)
        if (x % i == 0) return false;
    return x > 1;
}

static bool is_among(const int32_t *all, int n, int64_t x) {
    for (int i = 0; i < n; i++)
        if (all[i] == x) return true;
    return false;
}

/* Primes for all tables of all layers, in the order of engram_layers, none twice. */
static int32_t *find_sizes(MxArena *arena, const MxConfig *c) {
    int n_heads = (int)c->engram_num_heads, lengths = (int)c->engram_max_ngram_size - 1, n = 0;
    int32_t *all = mx_new_n(arena, int32_t, (int64_t)c->n_recall * lengths * n_heads);
    int64_t *bases = mx_new_n(arena, int64_t, lengths);
    mx_config_numbers(c->engram_vocab_bases, lengths, bases);
    for (int layer = 0; layer < c->n_recall; layer++)
        for (int length = 0; length < lengths; length++) {
            int64_t next = bases[length];
            for (int h = 0; h < n_heads; h++) {
                while (!is_prime(next) || is_among(all, n, next)) next++;
                all[n++] = (int32_t)next++;
            }
        }
    return all;
}

static int64_t rows_of(const MxNgrams *g) {
    int64_t sum = 0;
    for (int i = 0; i < (g->longest - 1) * g->n_heads; i++) sum += g->sizes[i];
    return sum;
}

bool model_plan_recall(MxArena *arena, MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    if (!c->n_recall) return true;
    model->ngrams = mx_new_n(arena, MxNgrams, c->n_recall);
    int32_t *sizes = find_sizes(arena, c);
    for (int i = 0; i < c->n_recall; i++) {
        MxNgrams *g = &model->ngrams[i];
        *g = (MxNgrams){.longest = (int)c->engram_max_ngram_size,
                        .n_heads = (int)c->engram_num_heads};
        g->sizes = sizes + (ptrdiff_t)i * (g->longest - 1) * g->n_heads;
        if (rows_of(g) > INT32_MAX)
            return mx_config_fail(err, c, MX_KEY_engram_vocab_bases,
                                  "the tables of a layer have %lld rows; wants at most %d",
                                  (long long)rows_of(g), INT32_MAX);
    }
    return true;
}

/* ---- parameters */

/* Of each row of the stream. MaxText names the axis of the rows as if it were that of the width. */
static Norm add_norms(const Place *p, const char *name, int64_t S, int64_t D) {
    MxInit ones = {.kind = MX_INIT_ONES};
    return (Norm){.kind = MX_NORM_RMS,
                  .scale = model_add(p, mx_path_join(p->arena, name, "scale"), MX_SHAPE(S, D), 1,
                                     AXES(NULL, "norm"), ones),
                  .bias = -1};
}

const Recall *model_add_recall(const Place *outer, const MxModel *model, int which) {
    const MxConfig *c = model->config;
    int64_t S = model_n_streams(c), D = c->emb_dim, M = width_of(c), E = c->engram_head_dim;
    MxInit zeros = {.kind = MX_INIT_ZEROS}, of_memory = model_fan_in(MX_INIT_NORMAL, M);
    Place p = *outer;
    if (which < 0) return NULL;
    Recall *r = mx_new(p.arena, Recall);
    r->ngrams = &model->ngrams[which];
    r->norm = model_add_norm(&p, "engram_layer_norm", D);
    p.block = "engram";
    r->table =
        model_add(&p, "multi_head_embedding/embedding/embedding", MX_SHAPE(rows_of(r->ngrams), E),
                  0, AXES("vocab", "embed_vocab"), model_fan_in(MX_INIT_NORMAL, E));
    r->key = model_add(&p, "key_proj/kernel", MX_SHAPE(M, S, D), 1,
                       AXES("engram_dim", "mhc", "embed"), of_memory);
    r->key_bias = model_add(&p, "key_proj/bias", MX_SHAPE(S, D), 0, AXES("mhc", "embed"), zeros);
    r->key_norm = add_norms(&p, "k_norm", S, D);
    r->query_norm = add_norms(&p, "q_norm", S, D);
    r->value = model_add(&p, "value_proj/kernel", MX_SHAPE(M, D), 1, AXES("engram_dim", "embed"),
                         of_memory);
    r->value_bias = model_add(&p, "value_proj/bias", MX_SHAPE(D), 0, AXES("embed"), zeros);
    r->taps_norm = add_norms(&p, "short_conv/norm", S, D);
    r->taps = model_add_bare(&p, "short_conv/conv/kernel",
                             MX_SHAPE(c->engram_kernel_size, 1, S * D), zeros);
    return r;
}

/* ---- the numbers by which tokens are multiplied */

/* numpy's default_rng(seed): PCG64, of a SeedSequence. Source: numpy 2.3,
 * numpy/random/bit_generator.pyx and src/pcg64. */
typedef struct Pcg {
    unsigned __int128 state, step;
    uint32_t kept; /* half of the last number, if … */
    bool has_kept; /* … it is still to be used */
} Pcg;

enum { POOL = 4, SEED_WORDS = 8 };

static uint32_t hash_word(uint32_t *constant, uint32_t factor, uint32_t x) {
    x ^= *constant;
    *constant *= factor;
    x *= *constant;
    return x ^ x >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y) {
    uint32_t mixed = x * 0xca01f9ddu - y * 0x4973f715u;
    return mixed ^ mixed >> 16;
}

/* Eight words of a seed of at most two. */
static void spread_seed(uint64_t seed, uint32_t out[SEED_WORDS]) {
    const uint32_t factor_in = 0x931e8875u, factor_out = 0x58f38dedu;
    uint32_t constant = 0x43b0d7e5u, pool[POOL];
    const uint32_t words[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int i = 0; i < POOL; i++) pool[i] = hash_word(&constant, factor_in, words[i]);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to)
                pool[to] = mix_words(pool[to], hash_word(&constant, factor_in, pool[from]));
    constant = 0x8b51f9ddu;
    for (int i = 0; i < SEED_WORDS; i++) out[i] = hash_word(&constant, factor_out, pool[i % POOL]);
}

static void step_pcg(Pcg *pcg) {
    const unsigned __int128 factor =
        (unsigned __int128)2549297995355413924u << 64 | 4865540595714422341u;
    pcg->state = pcg->state * factor + pcg->step;
}

static Pcg pcg_of(uint64_t seed) {
    uint32_t w[SEED_WORDS];
    unsigned __int128 half[4];
    Pcg pcg = {0};
    spread_seed(seed, w);
    for (int i = 0; i < 4; i++) half[i] = (unsigned __int128)w[2 * i + 1] << 32 | w[2 * i];
    pcg.step = (half[2] << 64 | half[3]) << 1 | 1;
    step_pcg(&pcg);
    pcg.state += half[0] << 64 | half[1];
    step_pcg(&pcg);
    return pcg;
}

static uint32_t next_word(Pcg *pcg) {
    pcg->has_kept = !pcg->has_kept;
    if (!pcg->has_kept) return pcg->kept;
    step_pcg(pcg);
    uint64_t folded = (uint64_t)(pcg->state >> 64) ^ (uint64_t)pcg->state;
    unsigned turn = (unsigned)(pcg->state >> 122);
    folded = folded >> turn | folded << (-turn & 63);
    pcg->kept = (uint32_t)(folded >> 32);
    return (uint32_t)folded;
}

/* One of 0 to n - 1, each as likely (Lemire 2019). */
static uint32_t draw_below(Pcg *pcg, uint32_t n) {
    if (n == 1) return 0;
    uint64_t product = (uint64_t)next_word(pcg) * n;
    if ((uint32_t)product < n)
        for (uint32_t least = (UINT32_MAX - (n - 1)) % n; (uint32_t)product < least;)
            product = (uint64_t)next_word(pcg) * n;
    return (uint32_t)(product >> 32);
}

/* Odd ones, so small that no product with an id overflows. */
static int32_t *draw_factors(MxArena *arena, const MxConfig *c, int64_t layer, int32_t n_ids) {
    const int64_t of_layer = 10007;
    int32_t half = INT32_MAX / n_ids / 2;
    Pcg pcg = pcg_of((uint64_t)(c->engram_seed + of_layer * layer));
    int32_t *factors = mx_new_n(arena, int32_t, c->engram_max_ngram_size);
    for (int64_t i = 0; i < c->engram_max_ngram_size; i++)
        factors[i] = (int32_t)(2 * draw_below(&pcg, half > 1 ? (uint32_t)half : 1) + 1);
    return factors;
}

bool mx_model_wants_tokens(const MxModel *model) {
    return model->config->n_recall > 0;
}

void mx_model_read_tokens(MxArena *arena, MxModel *model, MxModelTokens tokens) {
    const MxConfig *c = model->config;
    int32_t n_ids = 0;
    for (int32_t i = 0; i < tokens.n; i++)
        if (tokens.canon[i] >= n_ids) n_ids = tokens.canon[i] + 1;
    for (int i = 0; i < c->n_recall; i++) {
        MxNgrams *g = &model->ngrams[i];
        g->factors = draw_factors(arena, c, c->recall_layers[i], n_ids);
        g->canon = tokens.canon;
        g->n_canon = tokens.n;
        g->before = tokens.canon[tokens.padding];
    }
}

/* ---- forward pass */

/* In a layer's caches, behind those of its mixer. */
enum { CACHE_TOKENS, CACHE_TAPS, CACHES };

int model_recall_caches(const MxModel *model, const Recall *r, MxModelCache *out) {
    const MxConfig *c = model->config;
    if (!r) return 0;
    out[CACHE_TOKENS] =
        (MxModelCache){.name = "tokens", .window = c->engram_max_ngram_size, .are_ids = true};
    out[CACHE_TAPS] =
        (MxModelCache){.name = "recalled",
                       .row = MX_SHAPE(model_n_streams(c) * c->emb_dim),
                       .window = (c->engram_kernel_size - 1) * c->engram_max_ngram_size + 1};
    return CACHES;
}

/* Rows of all tables, side by side. */
static MxValue look_up(const Pass *p, const Recall *r, int first_cache) {
    MxTrace *t = p->t;
    const MxNgramAttr attr = {r->ngrams};
    MxValue ids = p->caches
                      ? mx_cache_ngrams(t, model_keep(p, first_cache + CACHE_TOKENS, p->tokens_BT),
                                        p->place, attr)
                      : mx_ngrams(t, p->tokens_BT, attr);
    MxShape shape = mx_trace_type(t, ids).shape, flat = MX_SHAPE(0, 0);
    flat.dim[0] = shape.dim[0];
    flat.dim[1] = shape.dim[1] * shape.dim[2];
    MxValue rows = mx_embed(t, model_param(p, r->table), mx_reshape(t, ids, flat), p->model->dtype);
    shape.dim[2] = width_of(p->model->config);
    return mx_reshape(t, rows, shape);
}

/* y + silu(conv(norm(y))) of every row. */
static MxValue smooth(const Pass *p, const Recall *r, MxValue y_BTSD, double epsilon,
                      int first_cache) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    const MxDeltaAttr attr = {.carries = true, .apart = c->engram_max_ngram_size};
    MxShape taps = MX_SHAPE(c->engram_kernel_size, model_n_streams(c) * c->emb_dim);
    MxValue w = mx_reshape(t, mx_cast(t, model_param(p, r->taps), MX_F32), taps);
    MxValue x = model_flatten_last(t, model_norm(p, y_BTSD, r->taps_norm, epsilon), 2);
    MxValue z = mx_activate(t, model_convolve(p, x, w, attr, first_cache + CACHE_TAPS), MX_SILU);
    return mx_add(t, y_BTSD, mx_reshape(t, z, mx_trace_type(t, y_BTSD).shape));
}

MxValue model_recall(const Pass *p, const Recall *r, MxValue x_BTSD, double epsilon,
                     int first_cache) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxShape shape = mx_trace_type(t, x_BTSD).shape;
    int64_t B = shape.dim[0], T = shape.dim[1], S = model_n_streams(c), D = c->emb_dim;
    const Dense dense[] = {{.kernel = r->key, .bias = r->key_bias},
                           {.kernel = r->value, .bias = r->value_bias}};
    MxValue made[2];
    model_project_each(p, look_up(p, r, first_cache), 2, dense, made);
    MxValue k_BTSD = model_norm(p, made[0], r->key_norm, epsilon);
    MxValue q_BTSD = model_norm(p, x_BTSD, r->norm, epsilon);
    q_BTSD = model_norm(p, q_BTSD, r->query_norm, epsilon);
    MxValue gate_BTS = mx_match(t, q_BTSD, k_BTSD, (MxMatchAttr){1 / sqrt((double)D)});
    MxValue y_BTSD = mx_combine(t, mx_reshape(t, made[1], MX_SHAPE(B, T, 1, D)),
                                mx_reshape(t, gate_BTS, MX_SHAPE(B, T, 1, S)));
    return mx_add(t, x_BTSD, smooth(p, r, y_BTSD, epsilon, first_cache));
}

/* ---- cost */

/* Of one layer. Source: MaxText utils/maxtext_utils.py, calculate_engram_tflops. */
BlockFlops model_recall_flops(const MxConfig *c, double tokens) {
    double S = (double)model_n_streams(c), D = (double)c->emb_dim, M = (double)width_of(c);
    double taps = (double)c->engram_kernel_size;
    return (BlockFlops){.weights = 2 * tokens * (M * S * D + M * D + taps * S * D),
                        .attention = 2 * tokens * S * D};
}

double model_recall_width(const MxConfig *c) {
    return c->n_recall ? (double)width_of(c) : 0;
}
