/* search.c — searches meshes, micro-batches and rematerialisation for a config's batch on its
 * devices: formulas rank all candidates, the most promising ones are planned like any run
 * (mx_plan_new), and the best are printed. Candidates that no run accepts, or that do not fit, are
 * dropped. In small spaces all candidates are planned; in large ones the search ends when many in a
 * row were not among the best. */
#include "search.h"

#include <stdlib.h>

/* Candidates that are planned in any case; further ones while no more than so many in a row change
 * nothing; and in all. */
enum { PLANNED_ANYWAY = 64, PATIENCE = 32, MOST_PLANNED = 160, MOST_CANDIDATES = 200000 };

const char *const search_remats[SEARCH_REMATS] = {"none", "minimal", "full"};

/* Keys that make the mesh; what of the batch and the model a size must divide is in `divides`. */
#define AXIS(name) MX_KEY_ici_##name##_parallelism, offsetof(MxConfig, ici_##name##_parallelism)
static const struct {
    MxKey key;
    size_t field;
} axes[SEARCH_AXES] = {
    [DATA] = {AXIS(data)},       [FSDP] = {AXIS(fsdp)},     [TENSOR] = {AXIS(tensor)},
    [CONTEXT] = {AXIS(context)}, [EXPERT] = {AXIS(expert)}, [STAGE] = {AXIS(pipeline)},
};

/* Keys that the search chooses. */
static const MxKey chosen[] = {
    MX_KEY_gradient_accumulation_steps,
    MX_KEY_remat_policy,
    MX_KEY_num_pipeline_microbatches,
    MX_KEY_num_layers_per_pipeline_stage,
};

/* ---- candidates */

static bool divides(const MxConfig *c, SearchAxis axis, int64_t size) {
    bool has_experts = c->num_experts > 1;
    if (axis == TENSOR) return c->num_query_heads % size == 0 && c->num_kv_heads % size == 0;
    if (axis == CONTEXT) return c->max_target_length % size == 0;
    if (axis == EXPERT) return size == 1 || (has_experts && c->num_experts % size == 0);
    if (axis == STAGE) return c->num_decoder_layers % size == 0;
    return true;
}

/* With every rematerialisation. */
static void add(Search *s, Candidate x) {
    for (x.remat = 0; x.remat < SEARCH_REMATS && s->n < MOST_CANDIDATES; x.remat++) {
        if (s->n == s->cap) {
            int cap = s->cap ? 2 * s->cap : 256;
            s->items = mx_arena_grow(s->arena, s->items, (size_t)s->n, (size_t)cap, sizeof x);
            s->cap = cap;
        }
        x.guess_s = search_guess(s, &x);
        s->items[s->n++] = x;
    }
}

/* Rows of a micro-batch divide among the ranks that cut them. */
static bool rows_divide(const Search *s, const Candidate *x) {
    int64_t rows = s->base->config->global_batch_size_to_train_on;
    int64_t micros = x->accumulations * x->micros;
    return rows % micros == 0 &&
           rows / micros % (x->size[DATA] * x->size[FSDP] * x->size[EXPERT]) == 0;
}

/* Micro-batches: accumulation steps without stages; with them, one, two and four rounds of them, or
 * so many a step, and one, two or four virtual stages each. */
static void add_batches(Search *s, Candidate x) {
    int64_t rows = s->base->config->global_batch_size_to_train_on, stages = x.size[STAGE];
    int64_t layers = s->base->config->num_decoder_layers / stages;
    for (int64_t n = 1; n <= rows; n *= 2) {
        x.accumulations = stages == 1 ? n : 1;
        x.micros = stages == 1 ? 1 : n * stages;
        if (!rows_divide(s, &x)) continue;
        for (int64_t turns = 1; turns <= (stages == 1 ? 1 : 4); turns *= 2) {
            x.stage_layers = stages == 1 ? 0 : layers / turns;
            if (layers % turns == 0) add(s, x);
        }
    }
}

/* Hands out what is left of the devices to the axes from `axis` on; the last takes the rest. */
static void add_meshes(Search *s, Candidate x, SearchAxis axis, int64_t left) {
    const MxConfig *c = s->base->config;
    if (axis + 1 == SEARCH_AXES) {
        x.size[axis] = left;
        if (divides(c, axis, left)) add_batches(s, x);
        return;
    }
    for (int64_t size = 1; size <= left; size++) {
        x.size[axis] = size;
        if (left % size == 0 && divides(c, axis, size)) add_meshes(s, x, axis + 1, left / size);
    }
}

static int likeliest_first(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->guess_s != y->guess_s) return x->guess_s < y->guess_s ? -1 : 1;
    return memcmp(x->size, y->size, sizeof x->size);
}

/* ---- a candidate's plan */

static int64_t own_size(const MxConfig *c, SearchAxis axis) {
    return *(const int64_t *)((const char *)c + axes[axis].field);
}

/* What the command line has to say for it, as words. */
static const char **words_of(MxArena *arena, const Search *s, const Candidate *x, int *n) {
    enum { MOST = SEARCH_AXES + 5 };
    const char **word = mx_new_n(arena, const char *, MOST);
    const MxConfig *c = s->base->config;
    double rows = (double)c->global_batch_size_to_train_on;
    *n = 0;
    for (int a = 0; a < SEARCH_AXES; a++)
        if (x->size[a] != own_size(c, (SearchAxis)a))
            word[(*n)++] =
                mx_arena_printf(arena, "%s=%lld", mx_key_name(axes[a].key), (long long)x->size[a]);
    word[(*n)++] = mx_arena_printf(arena, "per_device_batch_size=%.15g",
                                   rows / (double)c->num_target_devices / (double)x->accumulations);
    if (x->accumulations != c->gradient_accumulation_steps)
        word[(*n)++] =
            mx_arena_printf(arena, "gradient_accumulation_steps=%lld", (long long)x->accumulations);
    word[(*n)++] = mx_arena_printf(arena, "remat_policy=%s", search_remats[x->remat]);
    if (x->size[STAGE] > 1) {
        word[(*n)++] =
            mx_arena_printf(arena, "num_pipeline_microbatches=%lld", (long long)x->micros);
        word[(*n)++] = mx_arena_printf(arena, "num_layers_per_pipeline_stage=%lld",
                                       (long long)x->stage_layers);
    }
    return word;
}

static MxConfigRequest request_of(MxArena *arena, const MxConfigRequest *base, const char **words,
                                  int n) {
    MxConfigRequest request = *base;
    const char **all = mx_new_n(arena, const char *, base->n_overrides + n);
    for (int i = 0; i < base->n_overrides; i++) all[i] = base->overrides[i];
    for (int i = 0; i < n; i++) all[base->n_overrides + i] = words[i];
    request.overrides = all;
    request.n_overrides += n;
    return request;
}

/* As mx_plan_new, without what people alone want to know; false if no run takes it. */
static bool plan_one(MxArena *arena, const Search *s, const MxConfigRequest *request, MxPlan *plan,
                     MxError *err) {
    MxConfig *config;
    PlanCase of = {.mesh = &plan->mesh, .device = s->device};
    if (!mx_config_load(arena, request, &config, err) || !plan_sharding(arena, config, plan, err))
        return false;
    plan->device = s->device;
    of.policy = config->remat;
    if (config->tokens_per_step != s->base->config->tokens_per_step ||
        !plan_program(arena, of, &plan->program, err) || plan->program.refusal)
        return false;
    plan_count_memory(arena, plan);
    return true;
}

static bool is_better(const MxPlanFound *a, const MxPlanFound *b) {
    return a->seconds != b->seconds ? a->seconds < b->seconds : a->bytes < b->bytes;
}

/* Puts it in its place among the best; false = it has none. */
static bool keep(MxPlanSearch *out, MxPlanFound found) {
    int at = out->n < MX_PLAN_BEST ? out->n++ : MX_PLAN_BEST - 1;
    if (at + 1 == MX_PLAN_BEST && out->found[at].words && !is_better(&found, &out->found[at]))
        return false;
    for (; at > 0 && is_better(&found, &out->found[at - 1]); at--)
        out->found[at] = out->found[at - 1];
    out->found[at] = found;
    return true;
}

static const char *joined(MxArena *arena, const char **words, int n) {
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < n; i++) mx_text_add(&text, "%s%s", i ? " " : "", words[i]);
    return text.data;
}

/* Plans a candidate; true if it is among the best now. */
static bool try_candidate(Search *s, const Candidate *x, MxPlanSearch *out) {
    MxArena arena = {.name = "candidate"};
    MxError err = {0};
    MxPlan plan;
    int n;
    const char **words = words_of(&arena, s, x, &n);
    MxConfigRequest request = request_of(&arena, s->request, words, n);
    bool is_kept = false, runs = plan_one(&arena, s, &request, &plan, &err);
    out->n_planned++;
    out->n_refused += !runs;
    if (runs) {
        const PlanStep *step = &plan.program.step;
        MxPlanFound found = {.seconds = step->seconds,
                             .bubble = step->bubble / step->seconds,
                             .tokens_per_s = (double)plan.config->tokens_per_step / step->seconds,
                             .bytes = plan.memory.total,
                             .words = joined(s->arena, words, n)};
        bool fits = found.bytes <= s->device->memory_bytes;
        out->n_too_large += !fits;
        if (fits) is_kept = keep(out, found);
        if (!fits && (!out->nearest.words || found.bytes < out->nearest.bytes))
            out->nearest = found;
    }
    mx_error_release(&err);
    mx_arena_release(&arena);
    return is_kept;
}

/* ---- the search */

/* A key that is set and chosen at once would be lost in silence. */
static bool check_chosen(const MxConfigRequest *request, const MxConfig *c, MxError *err) {
    enum { N = SEARCH_AXES + MX_COUNT(chosen) };
    for (int k = 0; k < N; k++) {
        MxKey key = k < SEARCH_AXES ? axes[k].key : chosen[k - SEARCH_AXES];
        const char *name = mx_key_name(key);
        size_t length = strlen(name);
        for (int i = 0; i < request->n_overrides; i++)
            if (mx_text_has_prefix(request->overrides[i], name) &&
                request->overrides[i][length] == '=')
                return mx_config_fail(err, c, key, "--search chooses it; leave it out");
    }
    return true;
}

static bool nothing_fits(const Search *s, const MxPlanSearch *out, MxError *err) {
    const double gib = 1 << 30;
    const MxPlanDevice *d = s->device;
    const long long devices = (long long)s->base->config->num_target_devices;
    if (!out->nearest.words)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "no plan for %lld devices: of %d candidates a run would refuse all %d that "
                       "were planned",
                       devices, out->n_candidates, out->n_planned);
    return mx_fail(
        err, MX_EXIT_NO_MEMORY, MX_NOWHERE,
        "no plan fits %lld devices \"%s\" of %.3f GiB: the smallest of %d wants %.3f GiB "
        "more: %s",
        devices, d->name, (double)d->memory_bytes / gib, out->n_planned,
        (double)(out->nearest.bytes - d->memory_bytes) / gib, out->nearest.words);
}

static bool plan_base(MxArena *arena, const MxConfigRequest *request, MxPlan *base, MxError *err) {
    MxConfig *config;
    if (!mx_config_load(arena, request, &config, err) || !check_chosen(request, config, err) ||
        !plan_sharding(arena, config, base, err))
        return false;
    if (base->mesh.mesh.slices || config->enable_diloco)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--search plans one slice: no dcn_* sizes, no enable_diloco");
    base->tflops = mx_model_tflops(base->model);
    return true;
}

bool mx_plan_search(MxArena *arena, const MxConfigRequest *request, const MxPlanDevice *device,
                    MxPlanSearch *out, MxError *err) {
    MxPlan base;
    Search s = {.request = request, .device = device, .base = &base, .arena = arena};
    *out = (MxPlanSearch){.device = device};
    if (!plan_base(arena, request, &base, err)) return false;
    out->n_devices = base.config->num_target_devices;
    out->tokens = base.config->tokens_per_step;
    out->rows = base.config->global_batch_size_to_train_on;
    add_meshes(&s, (Candidate){0}, DATA, out->n_devices);
    qsort(s.items, (size_t)s.n, sizeof *s.items, likeliest_first);
    out->n_candidates = s.n;
    for (int i = 0, idle = 0; i < s.n && i < MOST_PLANNED; i++) {
        idle = try_candidate(&s, &s.items[i], out) ? 0 : idle + 1;
        if (i >= PLANNED_ANYWAY && idle >= PATIENCE && out->n) break;
    }
    return out->n || nothing_fits(&s, out, err);
}
