/* small.c — configs and batches of the small decoder. */
#include "small.h"

enum { MOST_OVERRIDES = 48, VOCAB = 288 };

static const char *const tiny[] = {
    "base_emb_dim=32",
    "base_mlp_dim=64",
    "base_num_query_heads=8",
    "base_num_kv_heads=8",
    "head_dim=8",
    "base_num_decoder_layers=2",
    "max_target_length=16",
    "vocab_size=288",
    "dataset_type=synthetic",
    "learning_rate=0.001",
    "warmup_steps_fraction=0",
    "eval_interval=-1",
    "dtype=float32",
    "steps=4",
    "ici_fsdp_parallelism=1",
};

static int length_of(const Variant *v) {
    return v && v->length ? v->length : LENGTH;
}

int small_rows(const Variant *v) {
    if (v && v->rows) return v->rows;
    return mx_comm_size(comm) % 3 ? 16 : 12;
}

/* Overrides of a config, the later ones in place of the earlier ones. */
typedef struct Overrides {
    const char *item[MOST_OVERRIDES];
    int n;
} Overrides;

static void override(Overrides *to, const char *text) {
    size_t key = strcspn(text, "=") + 1;
    for (int i = 0; i < to->n; i++)
        if (!strncmp(to->item[i], text, key)) {
            to->item[i] = text;
            return;
        }
    ck_assert_int_lt(to->n, MOST_OVERRIDES);
    to->item[to->n++] = text;
}

/* The model divides among three ranks too. */
static void override_for_threes(Overrides *to) {
    static const char *const sizes[] = {"base_emb_dim=48", "base_mlp_dim=96",
                                        "base_num_query_heads=6", "base_num_kv_heads=6",
                                        "head_dim=12"};
    for (int i = 0; i < MX_COUNT(sizes); i++) override(to, sizes[i]);
}

/* As the key of its size has it. */
static const char *axis_key(const char *axis) {
    return strcmp(axis, "stage") ? axis : "pipeline";
}

bool small_load(MxArena *arena, const Variant *v, const RankMesh *mesh, MxConfig **out,
                MxError *err) {
    const char *files[] = {"configs/base.yml"};
    char *environ[] = {NULL};
    int n_ranks = mesh ? mx_comm_size(comm) : 1;
    Overrides set = {0};
    for (int i = 0; i < MX_COUNT(tiny); i++) override(&set, tiny[i]);
    if (mx_comm_size(comm) % 3 == 0) override_for_threes(&set);
    for (int i = 0; i < MOST_SET && v->set[i]; i++) override(&set, v->set[i]);
    for (int i = 0; mesh && i < MX_MESH_DEFAULT_COUNT; i++)
        if (mesh->size[i] > 1)
            override(&set,
                     mx_arena_printf(arena, "ici_%s_parallelism=%lld",
                                     axis_key(mx_mesh_default_axes[i]), (long long)mesh->size[i]));
    override(&set, mx_arena_printf(arena, "max_target_length=%d", length_of(v)));
    override(&set, mx_arena_printf(arena, "per_device_batch_size=%.17g",
                                   (double)small_rows(v) / (v->parts ? v->parts : 1) / n_ranks));
    override(&set, "eval_per_device_batch_size=0");
    MxConfigRequest request = {.n_ranks = n_ranks,
                               .files = files,
                               .n_files = 1,
                               .overrides = set.item,
                               .n_overrides = set.n,
                               .environ = environ};
    return mx_config_load(arena, &request, out, err);
}

MxConfig *small_config(MxArena *arena, const Variant *v, const RankMesh *mesh) {
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(small_load(arena, v, mesh, &config, &err), "%s: %s", v->name, err.text.data);
    return config;
}

static uint32_t word(int step, int64_t i) {
    uint32_t w[4];
    mx_philox(23, (uint64_t)step, (uint64_t)i, w);
    return w[0];
}

MxBatch small_batch(MxArena *arena, const Variant *v, int step) {
    const int rows = small_rows(v), length = length_of(v);
    MxBatch batch = mx_batch_new(arena, rows, length);
    for (int row = 0; row < rows; row++) {
        int pair = row % (rows / 2);
        int first = 3 + (int)(word(step, -1 - pair) % 6), second = first + 4;
        for (int t = 0; t < length; t++) {
            int i = row * length + t, segment = t < first ? 1 : t < second ? 2 : 3;
            bool is_padding = pair % 3 == 1 && t >= length - 3;
            batch.field[MX_INPUTS][i] = (int32_t)(word(step, i) % VOCAB);
            batch.field[MX_TARGETS][i] = (int32_t)(word(step, i + 1) % VOCAB);
            batch.field[MX_INPUTS_POSITION][i] = batch.field[MX_TARGETS_POSITION][i] =
                t - (segment == 1   ? 0
                     : segment == 2 ? first
                                    : second);
            batch.field[MX_INPUTS_SEGMENTATION][i] = is_padding ? 0 : segment;
            batch.field[MX_TARGETS_SEGMENTATION][i] = is_padding || t == first - 1 ? 0 : segment;
        }
    }
    return batch;
}

PlanProgram small_plan(MxArena *arena, const MxConfig *config) {
    MxTrainMesh mesh;
    PlanProgram plan;
    MxError err = {0};
    ck_assert_msg(
        mx_train_mesh(arena, config, &mesh, &err) &&
            plan_program(arena, (PlanCase){.mesh = &mesh, .policy = config->remat}, &plan, &err),
        "%s", err.text.data);
    return plan;
}
