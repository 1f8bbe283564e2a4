/* compressed.c — a block: compressed attention. All query heads share one key head, whose keys are
 * values too. A token sees the tokens of a sliding window and, besides, single rows that each stand
 * for a window of earlier tokens: a sum of what these give, weighted by a softmax of gates, normed
 * and rotated as the window's first token. An indexer may choose among them, by rows of its own
 * that are made in the same way. What attention gives is rotated back, and projected in two steps,
 * the first of which keeps groups of heads apart. Source: DeepSeek-V4 (2026) 2.3; MaxText
 * layers/attention_compressed.py @e591f30c.
 *
 * Letters besides those of internal.h: Q width of the narrow vectors of queries, W windows of a
 * row, E what a token gives to windows, G groups of heads, O what each is projected to, I heads of
 * the indexer and J their width. */
#include <mx/model.h>

#include "streams.h"

#include <math.h>

/* What makes rows of windows. */
typedef struct Pooler {
    int values, gates, bias;
    Norm norm;
} Pooler;

typedef struct Leaves {
    int wq_a, wq_b, wkv, sinks;
    Norm q_norm, kv_norm;
    Dense groups;
    int out;
    Pooler pooler, indexer; /* where the layer has them */
    int index_query, index_weights;
} Leaves;

static const double GATES_EACH = 2; /* products of a pooler with a token */
/* Behind the cache of keys: of each pooler what tokens give, their gates, and rows. */
enum { POOL_CACHES = 1, INDEX_CACHES = 4 };

int64_t model_window(const MxConfig *c, const MxLayerSpec *spec) {
    if (spec->windows == MX_WINDOWS_NONE) return 0;
    if (spec->windows == MX_WINDOWS_CHOSEN) return MX_WINDOWS_CHOSEN_RATIO;
    int64_t ratio = 0;
    for (int i = 0; i < c->num_decoder_layers && c->layer_ratios; i++)
        if (c->layer_ratios[i] > MX_WINDOWS_CHOSEN_RATIO) ratio = c->layer_ratios[i];
    return ratio;
}

static int64_t rope_width(const MxConfig *c, const MxLayerSpec *spec) {
    (void)spec;
    return c->qk_rope_head_dim;
}

static double scale(const MxConfig *c, const MxLayerSpec *spec) {
    (void)spec;
    return 1 / sqrt((double)c->head_dim);
}

/* ---- parameters */

/* Of rows `width` wide; a token gives more than that where windows overlap. */
static Pooler add_pooler(const Place *p, const MxConfig *c, int64_t width, int64_t ratio,
                         bool overlaps) {
    int64_t D = c->emb_dim, E = overlaps ? 2 * width : width;
    MxInit init = model_fan_in(MX_INIT_NORMAL, D);
    return (Pooler){
        .values = model_add(p, "kv_proj/kernel", MX_SHAPE(D, E), 1, AXES("embed", "kv"), init),
        .gates = model_add(p, "gate_proj/kernel", MX_SHAPE(D, E), 1, AXES("embed", "kv"), init),
        .bias =
            model_add_bare(p, "position_bias", MX_SHAPE(ratio, E), (MxInit){.kind = MX_INIT_ZEROS}),
        .norm = model_add_norm(p, "kv_norm", width)};
}

static void add_indexer(const Place *outer, const MxConfig *c, Leaves *l) {
    int64_t D = c->emb_dim, Q = c->q_lora_rank, I = c->indexer_n_heads, J = c->indexer_head_dim;
    Place p = model_inside(outer, "indexer");
    l->indexer = add_pooler(&p, c, J, MX_WINDOWS_CHOSEN_RATIO, true);
    l->index_query = model_add(&p, "q_proj/kernel", MX_SHAPE(Q, I * J), 1,
                               AXES("q_lora", "indexer_q"), model_fan_in(MX_INIT_NORMAL, Q));
    l->index_weights = model_add(&p, "weights_proj/kernel", MX_SHAPE(D, I), 1,
                                 AXES("embed", "indexer_weights"), model_fan_in(MX_INIT_NORMAL, D));
}

static void add_poolers(const Place *p, const MxConfig *c, const MxLayerSpec *row, Leaves *l) {
    bool chooses = row->windows == MX_WINDOWS_CHOSEN;
    if (row->windows == MX_WINDOWS_NONE) return;
    Place in = model_inside(p, chooses ? "csa_compressor" : "hca_compressor");
    l->pooler = add_pooler(&in, c, c->head_dim, model_window(c, row), chooses);
    if (chooses) add_indexer(&in, c, l);
}

static Dense add_groups(const Place *p, const MxConfig *c) {
    int64_t G = c->o_groups, in = c->num_query_heads * c->head_dim / G;
    Dense groups = {.bias = -1};
    groups.kernel =
        model_add(p, "o_a_proj/kernel", MX_SHAPE(G, in, c->o_lora_rank), 1,
                  AXES("o_groups", "q_heads", "o_lora_up_proj"), model_fan_in(MX_INIT_NORMAL, in));
    p->tree->leaves[groups.kernel].n_batch = 1;
    return groups;
}

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    int64_t D = c->emb_dim, N = c->num_query_heads, H = c->head_dim, Q = c->q_lora_rank;
    int64_t wide = c->o_groups * c->o_lora_rank;
    Leaves *l = mx_new(p->arena, Leaves);
    l->wq_a = model_add(p, "wq_a/kernel", MX_SHAPE(D, Q), 1, AXES("embed", "q_lora"),
                        model_fan_in(MX_INIT_NORMAL, D));
    l->q_norm = model_add_norm(p, "q_norm", Q);
    l->wq_b = model_add(p, "wq_b/kernel", MX_SHAPE(Q, N, H), 1, AXES("q_lora", "q_heads", "kv"),
                        model_fan_in(MX_INIT_NORMAL, Q));
    l->wkv = model_add(p, "wkv/kernel", MX_SHAPE(D, 1, H), 1,
                       AXES("embed", "kv_heads", "kv_head_dim"), model_fan_in(MX_INIT_NORMAL, D));
    l->kv_norm = model_add_norm(p, "kv_norm", H);
    add_poolers(p, c, spec->row, l);
    l->groups = add_groups(p, c);
    l->out = model_add(p, "o_b_proj/kernel", MX_SHAPE(wide, D), 1, AXES("o_lora_up_proj", "embed"),
                       model_fan_in(MX_INIT_NORMAL, wide));
    l->sinks = model_add(p, "sinks", MX_SHAPE(N), 0, AXES(NULL), (MxInit){.kind = MX_INIT_ZEROS});
    return l;
}

/* ---- forward pass */

/* Turns the last elements of heads [B, T, N, width]. */
static MxValue turn(const Pass *p, const Spec *spec, MxValue x, MxValue table, bool back) {
    MxShape shape = mx_trace_type(p->t, x).shape;
    MxRopeAttr attr = spec->rope_layout;
    attr.inverse = back;
    attr.first = shape.dim[3] - 2 * spec->rope.n;
    return mx_rope(p->t, x, table, attr);
}

/* [B, T, E] with a head in between. */
static MxValue as_head(MxTrace *t, MxValue x) {
    MxShape s = mx_trace_type(t, x).shape;
    return mx_reshape(t, x, MX_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2]));
}

static MxPoolAttr pool_attr(const MxConfig *c, const Spec *spec) {
    return (MxPoolAttr){.ratio = model_window(c, spec->row),
                        .overlaps = spec->row->windows == MX_WINDOWS_CHOSEN};
}

static void project(const Pass *p, const Pooler *l, MxValue x_BTD, MxValue made_BTE[2]) {
    const Dense dense[] = {{.kernel = l->values, .bias = -1}, {.kernel = l->gates, .bias = -1}};
    model_project_each(p, x_BTD, MX_COUNT(dense), dense, made_BTE);
}

/* Rows of windows [B, W, 1, width]. */
static MxValue pool(const Pass *p, const Spec *spec, const Pooler *l, MxValue x_BTD) {
    MxTrace *t = p->t;
    MxPoolAttr attr = pool_attr(p->model->config, spec);
    MxValue made_BTE[2];
    project(p, l, x_BTD, made_BTE);
    MxValue bias = mx_cast(t, model_param(p, l->bias), MX_F32);
    MxValue rows = mx_pool(t, made_BTE[0], made_BTE[1], bias, p->segments_BT, attr);
    rows = as_head(t, model_norm(p, rows, l->norm, spec->epsilon));
    MxValue first_BW = mx_every(t, p->positions_BT, attr.ratio);
    return turn(p, spec, rows, mx_rope_table(t, first_BW, spec->rope), false);
}

/* The same over caches, of which `cache` and the next have what tokens give, and the third the
 * rows: all of them, to which those of windows that end with the piece are added. */
static MxValue pool_cached(const Pass *p, const Spec *spec, const Pooler *l, MxValue x_BTD,
                           int cache) {
    MxTrace *t = p->t;
    MxPoolAttr attr = pool_attr(p->model->config, spec);
    MxValue made_BTE[2];
    project(p, l, x_BTD, made_BTE);
    for (int i = 0; i < 2; i++) made_BTE[i] = model_keep(p, cache + i, made_BTE[i]);
    MxValue bias = mx_cast(t, model_param(p, l->bias), MX_F32);
    MxValue rows = mx_cache_pool(t, made_BTE, bias, p->place, attr);
    rows = as_head(t, model_norm(p, rows, l->norm, spec->epsilon));
    Pass of_windows = *p;
    of_windows.place.positions = mx_cache_windows(t, p->place, attr.ratio);
    MxValue table = mx_rope_table(t, of_windows.place.positions, spec->window_rope);
    return model_keep(&of_windows, cache + 2, turn(p, spec, rows, table, false));
}

/* Queries of the indexer, and how much its heads count. */
static void make_queries(const Pass *p, const Spec *spec, const Leaves *l, const MxValue x_low[2],
                         MxValue qw[2]) {
    MxTrace *t = p->t;
    int64_t I = p->model->config->indexer_n_heads, J = p->model->config->indexer_head_dim;
    MxShape shape = mx_trace_type(t, x_low[0]).shape;
    MxValue q_BTIJ = mx_reshape(t, model_project(p, x_low[1], l->index_query, -1),
                                MX_SHAPE(shape.dim[0], shape.dim[1], I, J));
    MxValue w_BTI = mx_cast(t, model_project(p, x_low[0], l->index_weights, -1), MX_F32);
    qw[0] = turn(p, spec, q_BTIJ, p->rope_table[spec - p->model->specs], false);
    qw[1] = mx_scale(t, w_BTI, 1 / sqrt((double)(I * J)));
}

/* Which rows of windows a token sees, a bit each: those that are over, or the best of them. Nothing
 * has a gradient here. */
static MxValue choose(const Pass *p, const Spec *spec, const Leaves *l, const MxValue x_low[2]) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxIndexAttr attr = {.n_best = c->indexer_topk, .ratio = model_window(c, spec->row)};
    MxShape shape = mx_trace_type(t, x_low[0]).shape;
    int64_t windows = shape.dim[1] / attr.ratio;
    if (spec->row->windows == MX_WINDOWS_ALL || windows <= attr.n_best)
        return mx_windows(t, p->segments_BT, attr.ratio);
    const MxValue apart[] = {mx_detach(t, x_low[0]), mx_detach(t, x_low[1])};
    MxValue qw[2];
    make_queries(p, spec, l, apart, qw);
    MxValue k_BW1J = pool(p, spec, &l->indexer, apart[0]);
    MxShape flat = MX_SHAPE(shape.dim[0], windows, c->indexer_head_dim);
    return mx_index(t, (MxValue[]){qw[0], mx_reshape(t, k_BW1J, flat), qw[1]}, p->segments_BT,
                    attr);
}

/* The same of `windows` rows in caches. */
static MxValue choose_cached(const Pass *p, const Spec *spec, const Leaves *l,
                             const MxValue x_low[2], int64_t windows) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxIndexAttr attr = {.n_best = c->indexer_topk};
    MxCachePlace place = p->place;
    MxValue qw[2];
    place.positions = mx_cache_last_window(t, p->place, model_window(c, spec->row));
    if (spec->row->windows == MX_WINDOWS_ALL || windows <= attr.n_best)
        return mx_first_bits(t, place.positions, windows);
    make_queries(p, spec, l, x_low, qw);
    MxValue rows = pool_cached(p, spec, &l->indexer, x_low[0], INDEX_CACHES);
    return mx_cache_index(t, (MxValue[]){qw[0], rows, qw[1]}, place, attr);
}

/* Keys of tokens, and behind them the rows of windows, of one head. */
static MxValue join(MxTrace *t, MxValue tokens_BT1H, MxValue rows_BW1H) {
    MxShape a = mx_trace_type(t, tokens_BT1H).shape, b = mx_trace_type(t, rows_BW1H).shape;
    MxValue flat = mx_concat(t, mx_reshape(t, tokens_BT1H, MX_SHAPE(a.dim[0], a.dim[1] * a.dim[3])),
                             mx_reshape(t, rows_BW1H, MX_SHAPE(b.dim[0], b.dim[1] * b.dim[3])));
    return mx_reshape(t, flat, MX_SHAPE(a.dim[0], a.dim[1] + b.dim[1], 1, a.dim[3]));
}

static MxValue attend_cached(const Pass *p, const Spec *spec, const Leaves *l,
                             const MxValue x_low[2], MxValue q_BTNH, MxValue kv_BT1H) {
    MxTrace *t = p->t;
    MxValue sinks = mx_cast(t, model_param(p, l->sinks), MX_F32), keys = model_keep(p, 0, kv_BT1H);
    if (spec->row->windows == MX_WINDOWS_NONE)
        return mx_cache_attention(t, (MxValue[]){q_BTNH, keys, keys}, p->place, sinks,
                                  spec->attention);
    MxValue rows = pool_cached(p, spec, &l->pooler, x_low[0], POOL_CACHES);
    MxValue seen = choose_cached(p, spec, l, x_low, mx_trace_type(t, rows).shape.dim[1]);
    return mx_cache_pooled_attention(t, (MxValue[]){q_BTNH, keys, rows}, p->place, sinks, seen,
                                     spec->attention);
}

static MxValue attend(const Pass *p, const Spec *spec, const Leaves *l, const MxValue x_low[2],
                      MxValue q_BTNH, MxValue kv_BT1H) {
    MxTrace *t = p->t;
    int64_t ratio = model_window(p->model->config, spec->row);
    MxValue sinks = mx_cast(t, model_param(p, l->sinks), MX_F32);
    if (!ratio || mx_trace_type(t, q_BTNH).shape.dim[1] < ratio)
        return model_attend(p, spec, (MxValue[]){q_BTNH, kv_BT1H, kv_BT1H}, sinks);
    MxValue seen = choose(p, spec, l, x_low);
    MxValue all = join(t, kv_BT1H, pool(p, spec, &l->pooler, x_low[0]));
    return mx_pooled_attention(t, (MxValue[]){q_BTNH, all, all}, p->segments_BT, sinks, seen,
                               spec->attention);
}

/* Groups of heads apart, then all of them together. */
static MxValue project_out(const Pass *p, const Leaves *l, MxValue o_BTNH) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    int64_t G = c->o_groups;
    MxShape s = mx_trace_type(t, o_BTNH).shape, groups = MX_SHAPE(s.dim[0], s.dim[1], G);
    MxInitAttr numbers = {.type = {MX_I32, groups}, .fill = MX_FILL_CYCLE, .value = (double)G};
    MxShape apart = MX_SHAPE(s.dim[0], s.dim[1], G, s.dim[2] * s.dim[3] / G);
    MxValue y_BTGO =
        model_project_groups(p, mx_reshape(t, o_BTNH, apart), mx_init(t, numbers), l->groups);
    return model_project(p, model_flatten_last(t, y_BTGO, 2), l->out, -1);
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    MxValue table = p->rope_table[spec - p->model->specs];
    MxValue low_BTQ = model_norm(p, model_project(p, x_BTD, l->wq_a, -1), l->q_norm, spec->epsilon);
    MxValue q_BTNH = model_norm_bare(t, model_project(p, low_BTQ, l->wq_b, -1), 1, spec->epsilon);
    q_BTNH = mx_trace_constrain(t, turn(p, spec, q_BTNH, table, false), axes);
    MxValue kv_BT1H = model_norm(p, model_project(p, x_BTD, l->wkv, -1), l->kv_norm, spec->epsilon);
    kv_BT1H = mx_trace_constrain(t, turn(p, spec, kv_BT1H, table, false), axes);
    MxValue o_BTNH = (p->caches ? attend_cached : attend)(p, spec, l, (MxValue[]){x_BTD, low_BTQ},
                                                          q_BTNH, kv_BT1H);
    mx_trace_constrain(t, o_BTNH,
                       AXES("activation_batch_attn", "activation_length_attn", "activation_heads",
                            "activation_kv"));
    return project_out(p, l, turn(p, spec, o_BTNH, table, true));
}

static int add_caches(const MxConfig *c, const Spec *spec, const char *const names[3],
                      int64_t width, MxModelCache out[3]) {
    const MxPoolAttr attr = pool_attr(c, spec);
    int64_t spans = attr.overlaps ? 2 : 1; /* of windows, and parts of what a token gives */
    for (int i = 0; i < 2; i++)
        out[i] = (MxModelCache){
            .name = names[i], .row = MX_SHAPE(spans * width), .window = spans * attr.ratio};
    out[2] = (MxModelCache){.name = names[2], .row = MX_SHAPE(1, width), .ratio = attr.ratio};
    return 3;
}

static int caches(const MxConfig *c, const Spec *spec, MxModelCache out[MODEL_MOST_CACHES]) {
    static const char *const of_pooler[] = {"pooled", "gates", "rows"};
    static const char *const of_indexer[] = {"index_pooled", "index_gates", "index_rows"};
    out[0] = (MxModelCache){
        .name = "key", .row = MX_SHAPE(1, c->head_dim), .window = spec->attention.window};
    if (spec->row->windows == MX_WINDOWS_NONE) return POOL_CACHES;
    add_caches(c, spec, of_pooler, c->head_dim, out + POOL_CACHES);
    if (spec->row->windows == MX_WINDOWS_ALL) return INDEX_CACHES;
    return INDEX_CACHES + add_caches(c, spec, of_indexer, c->indexer_head_dim, out + INDEX_CACHES);
}

/* ---- cost. Source: MaxText utils/maxtext_utils.py,
 * calculate_deepseek4_tflops_training_per_device. */

/* Of rows of all windows, and of those that an indexer chooses. */
static BlockFlops flops_of_all(const MxConfig *c, double tokens, double windows) {
    double D = (double)c->emb_dim, H = (double)c->head_dim, N = (double)c->num_query_heads;
    return (BlockFlops){.weights = 2 * GATES_EACH * tokens * D * H,
                        .attention = 2 * tokens * windows * N * H};
}

static BlockFlops flops_of_chosen(const MxConfig *c, double tokens, double windows) {
    double D = (double)c->emb_dim, H = (double)c->head_dim, N = (double)c->num_query_heads;
    double Q = (double)c->q_lora_rank, I = (double)c->indexer_n_heads;
    double J = (double)c->indexer_head_dim, best = (double)c->indexer_topk;
    double share = (best < windows ? best : windows) / windows;
    double indexer = 2 * tokens * (Q * I * J + D * I) + tokens * windows * I * (J + 1) +
                     2 * GATES_EACH * tokens * D * (2 * J);
    double seen = 4 * tokens * windows * N * H * (share - 0.5 * (share * share));
    return (BlockFlops){.weights = 2 * GATES_EACH * tokens * D * (2 * H),
                        .attention = indexer + seen};
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    (void)row;
    double D = (double)c->emb_dim, H = (double)c->head_dim, N = (double)c->num_query_heads;
    double Q = (double)c->q_lora_rank, wide = (double)(c->o_groups * c->o_lora_rank);
    double window = (double)c->sliding_window_size, tokens = rows * length;
    double ratio = (double)model_window(c, spec), windows = ratio > 0 ? length / ratio : 0;
    BlockFlops sum = {0};
    if (windows >= 1 && spec->windows == MX_WINDOWS_ALL) sum = flops_of_all(c, tokens, windows);
    if (windows >= 1 && spec->windows == MX_WINDOWS_CHOSEN)
        sum = flops_of_chosen(c, tokens, windows);
    sum.weights += 2 * tokens * (D * Q + Q * N * H) + 2 * tokens * D * H;
    sum.weights += 2 * tokens * (N * H * (double)c->o_lora_rank + wide * D);
    sum.weights += MX_LAYER_BLOCKS * model_hyper_flops(c, tokens);
    sum.attention += 4 * rows * (length * window - 0.5 * window * window) * N * H;
    return sum;
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)spec, (void)row;
    return (double)(c->num_query_heads * c->head_dim);
}

const Block block_compressed = {
    .params = add_params,
    .trace = trace,
    .caches = caches,
    .keeps_numbers = "what compressed attention makes rows of windows of",
    .flops = flops,
    .width = width,
    .rope_width = rope_width,
    .scale = scale,
};
