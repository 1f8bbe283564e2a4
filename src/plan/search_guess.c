/* search_guess.c — closed formulas for the approximate time and memory of a step, to plan the most
 * promising candidates first. T tokens, D width, L layers, P parameters. */
#include "search.h"

static const double UNLIKELY = 1e6; /* times as long: plans that memory has hardly room for */

/* Of a gather or a sum of so many bytes a rank among n that stand `stride` apart. */
static double exchange_s(const MxPlanDevice *d, double bytes, int64_t n, int64_t stride) {
    bool is_near = !d->host_devices || n * stride <= d->host_devices;
    double rate = (is_near ? d->inside : d->between).bytes_per_s;
    return n > 1 ? bytes * (double)(n - 1) / (double)n / rate : 0;
}

static double bytes_of_value(const MxConfig *c) {
    return !strcmp(c->dtype, "bfloat16") ? 2 : 4;
}

/* Tokens of a micro-batch that one rank works on, and how many micro-batches there are. */
static double tokens(const MxConfig *c, const Candidate *x, double *n_micros) {
    *n_micros = (double)(x->accumulations * x->micros);
    return (double)c->tokens_per_step / *n_micros /
           (double)(x->size[DATA] * x->size[FSDP] * x->size[EXPERT] * x->size[CONTEXT]);
}

static double compute_s(const Search *s, const Candidate *x) {
    static const double passes[SEARCH_REMATS] = {3, 3.05, 4};
    const MxConfig *c = s->base->config;
    bool is_bf16 = bytes_of_value(c) < 4;
    double rate =
        (is_bf16 ? s->device->bf16_per_s : s->device->f32_per_s) * s->device->product_share;
    double flops = s->base->tflops.total * 1e12 * passes[x->remat] / 3;
    int64_t turns = x->stage_layers ? c->num_decoder_layers / x->size[STAGE] / x->stage_layers : 1;
    double bubble = (double)(x->size[STAGE] - 1) / (double)(turns * x->micros);
    return flops / rate * (1 + bubble);
}

static double exchanges_s(const Search *s, const Candidate *x) {
    const MxConfig *c = s->base->config;
    const MxPlanDevice *d = s->device;
    double n_micros, t = tokens(c, x, &n_micros), each = bytes_of_value(c);
    double layers = (double)(c->num_decoder_layers / x->size[STAGE]);
    double weights = (double)s->base->parameters.total / (double)(x->size[STAGE] * x->size[TENSOR]);
    double stream = t * (double)c->emb_dim * layers * n_micros * each;
    int64_t inner = x->size[TENSOR] * x->size[EXPERT], shards = x->size[FSDP];
    double gathers = weights * each * 2 * n_micros, sums = weights * sizeof(float) * n_micros;
    double hidden = 1 - 0.7 * d->hidden_share;
    return hidden *
               exchange_s(d, gathers + sums, shards * x->size[CONTEXT] * x->size[EXPERT], inner) +
           exchange_s(d, 2 * weights * sizeof(float), x->size[DATA], inner * shards) +
           exchange_s(d, 8 * stream, x->size[TENSOR], x->size[EXPERT]) +
           exchange_s(d,
                      3 * stream * (double)c->num_kv_heads / (double)c->num_query_heads *
                          (double)x->size[CONTEXT],
                      x->size[CONTEXT], inner) +
           exchange_s(d, 4 * stream, x->size[EXPERT], 1);
}

/* State, and values that layers keep of the micro-batches under way. */
static double memory(const Search *s, const Candidate *x) {
    static const double kept[SEARCH_REMATS] = {34, 20, 1}; /* D numbers a token and layer */
    enum { STATE = 4 };                                    /* weight, gradient, two moments */
    const MxConfig *c = s->base->config;
    double n_micros, t = tokens(c, x, &n_micros);
    double shards = (double)(x->size[FSDP] * x->size[CONTEXT] * x->size[EXPERT] * x->size[TENSOR]);
    double layers = (double)(c->num_decoder_layers / x->size[STAGE]);
    double under_way = x->micros < x->size[STAGE] ? (double)x->micros : (double)x->size[STAGE];
    double state =
        (double)s->base->parameters.total * STATE * sizeof(float) / (double)x->size[STAGE] / shards;
    double width = (double)c->emb_dim * bytes_of_value(c);
    double parts = (double)x->size[TENSOR];
    return state + t * width * (layers * under_way * kept[x->remat] / parts + 40 / parts);
}

double search_guess(const Search *s, const Candidate *x) {
    double seconds = compute_s(s, x) + exchanges_s(s, x), wanted = memory(s, x);
    double room = (double)s->device->memory_bytes;
    return wanted > room ? seconds + UNLIKELY * wanted / room : seconds;
}
