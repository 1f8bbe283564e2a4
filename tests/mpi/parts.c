/* parts.c — ranks that read data: each makes only its part of a batch, from files, and the losses
 * and gradients' norms are those of one rank that makes all of it. */
#include "mpi_test.h"

#include <train/data.h>
#include <program/internal.h>

#include <math.h>

enum { STEPS = 2, MOST_WORDS = 40 };

static const char small[] =
    "configs/base.yml head_dim=8 base_num_decoder_layers=2 vocab_size=300 learning_rate=0.01 "
    "warmup_steps_fraction=0 opt_type=sgd eval_interval=-1 max_target_length=96";

/* Sizes that the numbers of ranks divide. */
static const struct {
    int rows;
    const char *model;
} twos = {16, "base_emb_dim=32 base_mlp_dim=64 base_num_query_heads=4 base_num_kv_heads=4"},
  threes = {24, "base_emb_dim=48 base_mlp_dim=96 base_num_query_heads=6 base_num_kv_heads=6"};

static const char *const sources[] = {
    "dataset_type=text text_train_files=corpus gradient_accumulation_steps=2",
    "dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl use_dpo=true "
    "dpo.max_prompt_length=32 packing=true gradient_accumulation_steps=2",
    "dataset_type=hf hf_path=json hf_train_files=posttrain/preference_train.jsonl use_dpo=true "
    "dpo.max_prompt_length=32 packing=false dpo.formula=maxtext",
};

/* Parallelism along two axes that each cut what a mesh has of ranks. */
static const char *const axes[][2] = {
    {"fsdp", "data"}, {"data", "context"}, {"fsdp", "tensor"}, {"context", "fsdp"}};

static MxConfig *config_of(MxArena *arena, int source, int mesh, int n_ranks) {
    const char *words[MOST_WORDS], *files[1];
    char *environ[] = {NULL}, *save = NULL;
    bool has_threes = mx_comm_size(comm) % 3 == 0;
    int n = 0, first = n_ranks % 2 || n_ranks == 2 ? n_ranks : n_ranks / 2;
    int rows = has_threes ? threes.rows : twos.rows;
    char *all = mx_arena_printf(arena, "%s %s %s", small, has_threes ? threes.model : twos.model,
                                sources[source]);
    if (strstr(all, "accumulation")) rows /= 2;
    for (char *w = strtok_r(all, " ", &save); w; w = strtok_r(NULL, " ", &save)) words[n++] = w;
    files[0] = words[0];
    words[n++] = mx_arena_printf(arena, "per_device_batch_size=%g", (double)rows / n_ranks);
    bool has_fsdp = false;
    for (int i = 0; i < 2 && n_ranks > 1; i++) {
        has_fsdp = has_fsdp || !strcmp(axes[mesh][i], "fsdp");
        words[n++] = mx_arena_printf(arena, "ici_%s_parallelism=%d", axes[mesh][i],
                                     i ? n_ranks / first : first);
    }
    if (!has_fsdp) words[n++] = "ici_fsdp_parallelism=1";
    MxConfigRequest request = {.n_ranks = n_ranks,
                               .files = files,
                               .n_files = 1,
                               .overrides = words + 1,
                               .n_overrides = n - 1,
                               .environ = environ};
    MxConfig *config;
    MxError err = {0};
    ck_assert_msg(mx_config_load(arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

typedef struct Side {
    MxTrainState *state;
    MxLoader *loader;
    MxDataset *data;
    MxBatchPart part;
} Side;

static void open_side(MxArena *arena, MxConfig *config, MxComm *of, Side *side) {
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxTrainMesh mesh;
    int64_t rank = of ? mx_comm_rank(of) : 0;
    bool ok = mx_train_mesh(arena, config, &mesh, &err) &&
              mx_train_batch_part(arena, &mesh, rank, false, &side->part, &err) &&
              mx_tokenizer_open(arena, config->tokenizer_type, NULL, &tokenizer, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    MxDataConfig data = train_data_config(config, tokenizer, false);
    ok = mx_data_open(arena, &data, &side->data, &err) &&
         mx_loader_open(arena,
                        &(MxLoaderConfig){.dataset = side->data, .part = side->part, .depth = 2},
                        &side->loader, &err) &&
         mx_train_state_open_on(arena, config, of, &side->state, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    mx_train_state_init(side->state);
    mx_train_state_begin(side->state);
}

static MxLoss next_loss(Side *side, MxUpdate *update) {
    MxBatch batch;
    MxError err = {0};
    ck_assert_int_eq(mx_loader_next(side->loader, 1, &batch, &err), MX_DATA_OK);
    MxLoss loss = mx_train_loss_and_grad(side->state, &batch);
    *update = mx_train_update(side->state);
    return loss;
}

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

START_TEST(parts_train_as_the_whole) {
    if (mx_comm_size(comm) == 1) return; /* its part is the whole */
    int source = _i % MX_COUNT(sources), mesh = _i / MX_COUNT(sources);
    int n = mx_comm_size(comm);
    MxArena arena = {.name = "parts"};
    Side mine = {0}, whole = {0};
    double loss_error = 0, norm_error = 0, weight_error = 0;
    open_side(&arena, config_of(&arena, source, mesh, n), comm, &mine);
    open_side(&arena, config_of(&arena, source, mesh, 1), NULL, &whole);
    for (int step = 0; step < STEPS; step++) {
        MxUpdate a, b;
        MxLoss x = next_loss(&mine, &a), y = next_loss(&whole, &b);
        loss_error = fmax(loss_error, relative(x.loss, y.loss));
        norm_error = fmax(norm_error, relative(a.raw_grad_norm, b.raw_grad_norm));
        weight_error = fmax(weight_error, fabs(x.total_weights - y.total_weights));
    }
    mx_loader_close(mine.loader);
    mx_loader_close(whole.loader);
    const char *at = mx_arena_printf(&arena, "%s, %s: ", sources[source], axes[mesh][0]);
    ck_assert_msg(mine.part.rows * mine.part.length < whole.part.rows * whole.part.length ||
                      !strcmp(axes[mesh][0], "tensor"),
                  "%s every rank has all", at);
    ck_assert_msg(weight_error == 0, "%s weights are off by %g", at, weight_error);
    ck_assert_msg(loss_error <= 1e-5, "%s losses are off by %g", at, loss_error);
    ck_assert_msg(norm_error <= 1e-5, "%s norms are off by %g", at, norm_error);
    mx_arena_release(&arena);
}
END_TEST

Suite *parts_suite(void) {
    Suite *suite = suite_create("mpi/parts");
    TCase *tcase = tcase_create("parts");
    tcase_add_loop_test(tcase, parts_train_as_the_whole, 0, MX_COUNT(sources) * MX_COUNT(axes));
    suite_add_tcase(suite, tcase);
    return suite;
}
