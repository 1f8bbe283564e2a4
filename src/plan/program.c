/* program.c — the memory and exchanges of one rank's program: the program is traced, divided and
 * lowered as rank 0 of the mesh would run it, without allocating memory. A mesh that no run accepts
 * is planned as a similar one (mx_train_program), with the layers of a stage.
 *
 * Periods of layers are equal, so the needs of deep models are linear in their number: they are
 * extrapolated from two shallow programs (tests/plan compares with whole programs). */
#include "internal.h"

/* Layers that are lowered as they are, and those of the two programs that give the line: of one
 * rank, of several. */
static const struct { int64_t deepest, few, more; } depths[] = {{48, 16, 32}, {16, 6, 10}};

/* ---- activation constraints, as they are traced */

typedef struct Constraints {
    const MxTrainMesh *mesh;
    PlanWarnings *warnings;
    MxMap seen; /* tuples of axes */
    MxError *err;
    bool ok;
} Constraints;

static bool is_constrained(const MxValueInfo *info) {
    for (int d = 0; d < info->type.shape.rank; d++)
        if (info->axes[d]) return true;
    return false;
}

static bool warn_of(Constraints *c, const MxGraph *graph, const MxValueInfo *info) {
    MxArena *arena = c->warnings->arena;
    MxSpec names = mx_spec_names(arena, info->axes, info->type.shape.rank);
    const char *text = mx_spec_text(arena, names);
    if (mx_map_get(&c->seen, text, 0)) return true;
    mx_map_set(&c->seen, text, 1);
    const char *scope = mx_arena_strdup(arena, graph->nodes[info->node].scope);
    return plan_warn(c->warnings, c->mesh, scope, names, true, c->err) ||
           mx_context(c->err, "activation of %s", scope);
}

static void see(void *context, const MxGraph *graph, const char *pass) {
    Constraints *c = context;
    if (strcmp(pass, "trace") != 0) return;
    for (int v = 0; v < graph->n_values && c->ok; v++)
        if (is_constrained(&graph->values[v])) c->ok = warn_of(c, graph, &graph->values[v]);
}

/* ---- one program */

static bool lower_program(MxArena *arena, const PlanCase *of, const MxGraphWatch *watch,
                          PlanProgram *out, PlanSeconds *seconds, MxError *err) {
    const MxTrainMesh *mesh = of->mesh;
    MxArena scratch = {.name = "plan of a program"};
    MxTrainProgram program;
    bool ok = mx_train_program(&scratch, mesh, watch, &program, err);
    if (ok) {
        const MxTrainBytes *b = &program.bytes;
        *out = (PlanProgram){.device = mx_arena_strdup(arena, program.device),
                             .device_memory = program.device_memory,
                             .bytes = {[PLAN_WEIGHTS] = (int64_t)b->parameters,
                                       [PLAN_GRADIENTS] = (int64_t)b->gradients,
                                       [PLAN_OPTIMIZER] = (int64_t)b->moments,
                                       [PLAN_DISK] = (int64_t)b->disk,
                                       [PLAN_OUTER] = (int64_t)b->outer,
                                       [PLAN_REFERENCE] = (int64_t)b->reference,
                                       [PLAN_ACTIVATIONS] = (int64_t)b->activations,
                                       [PLAN_CASTS] = (int64_t)b->casts,
                                       [PLAN_BUFFERS] = (int64_t)b->buffers,
                                       [PLAN_MOMENTS] = (int64_t)program.moment_bytes}};
        if (program.refusal) out->refusal = mx_arena_strdup(arena, program.refusal);
        plan_traffic(arena, mesh, &program, false, &out->traffic);
        plan_traffic(arena, mesh, &program, true, &out->outer);
        if (of->device) plan_time(arena, of, &program, seconds, &out->timed);
    }
    mx_arena_release(&scratch);
    return ok;
}

/* Bytes of all values stay far inside an int64. */
static bool check_tokens(const MxTrainMesh *mesh, MxError *err) {
    const double most_bytes = 1e18, values_a_layer = 64; /* more than any family keeps */
    const MxConfig *c = mesh->config;
    double tokens = (double)c->micro_batch_size_to_train_on * (double)c->max_target_length;
    double layer = tokens * mx_model_width(c) * values_a_layer * sizeof(float);
    double ranks = (double)mesh->mesh.n_ranks;
    if (layer <= most_bytes && layer / ranks * (double)c->num_decoder_layers <= most_bytes)
        return true;
    return mx_config_fail(err, c, MX_KEY_per_device_batch_size,
                          "%.3g tokens on one rank are more than a plan takes", tokens / ranks);
}

/* Layers of a stage of a pipeline that no run takes, in whole periods. */
static int64_t layers_of_stage(const MxTrainMesh *mesh) {
    int64_t layers = mesh->config->num_decoder_layers,
            period = mx_model_layers(mesh->config).period;
    int64_t each = (layers / mesh->n_stages + period - 1) / period * period;
    return each < layers ? each : layers;
}

static bool runs_stages(const MxTrainMesh *mesh) {
    MxError why = {0};
    bool ok = mx_train_check_stages(mesh, &why);
    mx_error_release(&why);
    return ok;
}

/* A deep pipeline is planned from two shallow ones with as many stages: their virtual stages have
 * fewer layers or, where they have few anyway, a batch goes round fewer times. */
enum { FEW_OF_STAGE = 2 };

static bool is_wide(const MxTrainMesh *mesh) {
    return mesh->stage_layers > FEW_OF_STAGE + mx_model_layers(mesh->config).period;
}

static PlanLine line_of_stages(const MxTrainMesh *mesh) {
    int64_t period = mx_model_layers(mesh->config).period;
    int64_t n = is_wide(mesh) ? mesh->stage_layers : mesh->n_repeats;
    int64_t least = (FEW_OF_STAGE + period - 1) / period * period + n % period;
    int64_t times = mesh->n_stages * (is_wide(mesh) ? mesh->n_repeats : mesh->stage_layers);
    return (PlanLine){.layers = mesh->config->num_decoder_layers,
                      .period = times * period,
                      .few = times * least,
                      .more = times * (least + period)};
}

/* `shallow` and its config get so many of the mesh's layers. */
static void set_layers(const MxTrainMesh *mesh, int64_t layers, MxTrainMesh *shallow,
                       MxConfig *config) {
    config->num_decoder_layers = layers;
    if (is_wide(mesh))
        shallow->stage_layers = layers / (mesh->n_stages * mesh->n_repeats);
    else
        shallow->n_repeats = layers / (mesh->n_stages * mesh->stage_layers);
}

/* Two shallow programs to a deep one. */
static void extend(MxArena *arena, const PlanLine *line, PlanProgram *few, PlanProgram *more) {
    for (int i = 0; i < PLAN_BYTES; i++)
        more->bytes[i] = plan_on_line(line, few->bytes[i], more->bytes[i]);
    plan_extend_traffic(arena, line, &few->traffic, &more->traffic);
    plan_extend_traffic(arena, line, &few->outer, &more->outer);
    plan_extend_traffic(arena, line, &few->timed, &more->timed);
}

/* The program of one rank, from shallow ones if it is deep. */
static bool lower_rank(MxArena *arena, PlanCase of, bool is_piped, const MxGraphWatch *watch,
                       PlanProgram *out, PlanSeconds *seconds, MxError *err) {
    const MxTrainMesh *mesh = of.mesh;
    MxConfig config = *mesh->config;
    MxTrainMesh shallow = *mesh;
    PlanProgram few = {0};
    PlanSeconds few_s = {0};
    int several = mesh->mesh.n_ranks > 1;
    shallow.config = &config;
    of.mesh = &shallow;
    config.remat = of.policy;
    if (!is_piped) config.num_decoder_layers = layers_of_stage(mesh);
    PlanLine line = is_piped ? line_of_stages(mesh)
                             : plan_line(&config, depths[several].few, depths[several].more);
    bool is_deep = line.layers > depths[several].deepest && line.layers > line.more;
    set_layers(mesh, line.few, &shallow, &config);
    if (is_deep && !lower_program(arena, &of, NULL, &few, &few_s, err)) return false;
    set_layers(mesh, is_deep ? line.more : line.layers, &shallow, &config);
    if (!lower_program(arena, &of, watch, out, seconds, err)) return false;
    if (is_deep) extend(arena, &line, &few, out);
    if (is_deep) plan_extend_seconds(&line, &few_s, seconds);
    return true;
}

/* A rank of the last stage, which has the output matrix. */
static int64_t rank_of_last_stage(const MxMesh *mesh) {
    int64_t rank = mesh->n_ranks;
    for (int i = 0; i <= mx_mesh_find(mesh, "stage"); i++) rank /= mesh->sizes[i];
    return rank * (mx_mesh_size(mesh, "stage") - 1);
}

/* The first stage's seconds are there. */
static bool time_stages(MxArena *arena, PlanCase of, const PlanSeconds *first, PlanStep *out,
                        MxError *err) {
    MxTrainMesh mesh = *of.mesh;
    PlanProgram program;
    PlanSeconds last = {0};
    mesh.rank = rank_of_last_stage(&mesh.mesh);
    of.mesh = &mesh;
    of.warnings = NULL;
    if (!lower_rank(arena, of, true, NULL, &program, &last, err)) return false;
    *out = plan_step(&mesh, first, &last);
    return true;
}

bool plan_program(MxArena *arena, PlanCase of, PlanProgram *out, MxError *err) {
    Constraints c = {.mesh = of.mesh, .warnings = of.warnings, .err = err, .ok = true};
    MxGraphWatch watch = {.see = see, .context = &c};
    PlanSeconds seconds = {0};
    if (of.warnings) mx_map_init(&c.seen, of.warnings->arena);
    if (!check_tokens(of.mesh, err)) return false;
    bool is_piped = of.mesh->n_stages > 1 && runs_stages(of.mesh);
    if (!lower_rank(arena, of, is_piped, of.warnings ? &watch : NULL, out, &seconds, err) || !c.ok)
        return false;
    if (!of.device || out->refusal) return true;
    if (is_piped) return time_stages(arena, of, &seconds, &out->step, err);
    out->step = plan_step(of.mesh, &seconds, NULL);
    return true;
}
