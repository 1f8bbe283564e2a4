/* exchanges.c — what ranks send in a step: accumulated gradients once, small ones together; and
 * that a run with exchanges under way makes the same bits again. */
#include "small.h"
#include "common/vars.h"

#include <plan/internal.h>
#include <program/internal.h>

/* ---- accumulated gradients are exchanged once */

/* Bytes that a step sends along mesh axes, as planned; ranks_train_as_one holds plans to runs. */
static int64_t planned_bytes(MxArena *arena, const MxConfig *config, const char *axes) {
    PlanTraffic traffic = small_plan(arena, config).traffic;
    int64_t bytes = 0;
    for (int i = 0; i < traffic.n; i++)
        if (!strcmp(traffic.rows[i].axes, axes)) bytes += traffic.rows[i].bytes;
    return bytes;
}

/* The mesh of this number, if "data" is the first axis that it has; else NULL. */
static const RankMesh *mesh_of_data(int i) {
    int n;
    const RankMesh *mesh = &rank_meshes(&n)[i];
    int first = 0;
    while (first < MX_MESH_DEFAULT_COUNT - 1 && mesh->size[first] == 1) first++;
    return mesh->size[first] > 1 && !strcmp(mx_mesh_default_axes[first], "data") ? mesh : NULL;
}

START_TEST(micro_batches_share_an_exchange) {
    enum { SCALARS = 64 }; /* bytes of weights and losses that a micro-batch sends */
    static const char *const over_data[] = {"shard_optimizer_over_data=false",
                                            "shard_optimizer_over_data=true"};
    const RankMesh *mesh = mesh_of_data(_i);
    int n_ranks = mx_comm_size(comm);
    if (mx_comm_rank(comm) || !mesh || small_rows(NULL) % (4 * n_ranks)) return;
    MxArena arena = {.name = "accumulation"};
    for (int z = 0; z < 2; z++) {
        Variant two = {.set = {over_data[z], "gradient_accumulation_steps=2", "steps=2"},
                       .parts = 2};
        Variant four = {.set = {over_data[z], "gradient_accumulation_steps=4", "steps=2"},
                        .parts = 4};
        int64_t few = planned_bytes(&arena, small_config(&arena, &two, mesh), "data");
        int64_t more = planned_bytes(&arena, small_config(&arena, &four, mesh), "data");
        ck_assert_msg(few > 10000 && more - few <= 2 * SCALARS * n_ranks,
                      "mesh %d, %s: %lld bytes with fewer micro-batches, %lld with more", _i,
                      over_data[z], (long long)few, (long long)more);
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- small exchanges are made together */

START_TEST(small_gradients_share_exchanges) {
    const int64_t few = 20; /* of some fifty adapters, each of which had one to itself */
    const RankMesh *mesh = mesh_of_data(_i);
    if (mx_comm_rank(comm) || mx_comm_size(comm) != 2 || !mesh) return;
    MxArena arena = {.name = "small"};
    Variant adapters = {.set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8",
                                "opt_type=sgd", "base_num_decoder_layers=4"}};
    PlanTraffic traffic = small_plan(&arena, small_config(&arena, &adapters, mesh)).traffic;
    int64_t calls = 0;
    for (int i = 0; i < traffic.n; i++) calls += traffic.rows[i].calls;
    ck_assert_msg(calls > 0 && calls < few, "%lld exchanges", (long long)calls);
    mx_arena_release(&arena);
}
END_TEST

/* ---- long rows: by heads, or by queries with halves swapped */

/* What a step sends by one op, as planned, of rows that all ranks share: there are no other rows to
 * cut. */
static MxCommCount sent_of_rows(MxArena *arena, const char *axis, const char *const set[3],
                                const char *op) {
    RankMesh mesh = {{0}};
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++)
        mesh.size[i] = strcmp(mx_mesh_default_axes[i], axis) ? 1 : mx_comm_size(comm);
    Variant v = {.set = {"gradient_accumulation_steps=16", set[0], set[1], set[2]},
                 .length = 512,
                 .parts = 16};
    PlanTraffic traffic = small_plan(arena, small_config(arena, &v, &mesh)).traffic;
    MxCommCount count = {0};
    for (int i = 0; i < traffic.n; i++) {
        if (strcmp(traffic.rows[i].op, op) != 0) continue;
        count.calls += (uint64_t)traffic.rows[i].calls;
        count.bytes += (uint64_t)traffic.rows[i].bytes;
    }
    return count;
}

/* Heads go around where all ranks get some of them; where keys have one head, ranks gather it and
 * share queries, of which the later ones see more. */
START_TEST(long_rows_are_shared_evenly) {
    static const char *const axes[] = {"context", "context_usp_ulysses"};
    enum { LAYERS = 2, MICROS = 16, ROW_BYTES = 512 * 64 * 4 };
    enum { SWAPPED = 4 }; /* at least: queries, the result, and the gradients of both */
    enum {
        BY_HEADS = 9
    }; /* queries, keys, values, their gradients; the result there and back, and
          its gradient. The embedding moves a little too */
    const char *const one[] = {"base_num_kv_heads=1", NULL, NULL};
    const char *const unbalanced[] = {one[0], "context_parallel_load_balance=false", NULL};
    const char *const many[] = {"base_num_kv_heads=8", NULL, NULL};
    const uint64_t n = (uint64_t)mx_comm_size(comm);
    if (mx_comm_rank(comm) || n < 2 || small_rows(NULL) % MICROS) return;
    MxArena arena = {.name = "rows"};
    for (int i = 0; i < 2; i++) {
        MxCommCount by_heads = sent_of_rows(&arena, axes[i], many, "all_to_all");
        uint64_t each = LAYERS * MICROS * (n - 1) * (ROW_BYTES / n / n); /* of one moved array */
        ck_assert(sent_of_rows(&arena, axes[i], one, "swap_halves").calls >=
                  LAYERS * MICROS * SWAPPED);
        ck_assert(sent_of_rows(&arena, axes[i], unbalanced, "swap_halves").calls == 0);
        ck_assert(sent_of_rows(&arena, axes[i], many, "swap_halves").calls == 0);
        ck_assert(by_heads.bytes >= BY_HEADS * each && by_heads.bytes < (BY_HEADS + 1) * each);
    }
    mx_arena_release(&arena);
}
END_TEST

/* Around a ring the first rank sends its keys and values to all others, forward and backward, and
 * meets nobody else's; with short windows it sends them to the next rank alone, without being told
 * to form a ring. */
START_TEST(keys_go_where_they_are_seen) {
    enum { LAYERS = 2, MICROS = 16, ARRAYS = 4, ROW_BYTES = 512 * 8 * 4 };
    const char *const all[] = {"base_num_kv_heads=1", "context_parallel_load_balance=false",
                               "context_parallel_strategy=ring"};
    const char *const near[] = {"base_num_kv_heads=1", "attention_type=local_sliding",
                                "sliding_window_size=30"};
    const uint64_t n = (uint64_t)mx_comm_size(comm);
    if (mx_comm_rank(comm) || n < 2 || small_rows(NULL) % MICROS) return;
    MxArena arena = {.name = "rows"};
    const uint64_t calls = LAYERS * MICROS * ARRAYS, part = ROW_BYTES / n;
    MxCommCount far = sent_of_rows(&arena, "context", all, "ring_shift");
    ck_assert(far.calls == (n - 1) * calls && far.bytes == (n - 1) * calls * part);
    MxCommCount next = sent_of_rows(&arena, "context", near, "ring_shift");
    ck_assert(n == 2 || (next.calls == calls && next.bytes == calls * part));
    mx_arena_release(&arena);
}
END_TEST

/* ---- the same bits again */

START_TEST(runs_are_alike) {
    MxArena arena = {.name = "again"};
    MxError err = {0};
    MxTrainState *run[2];
    int n;
    Variant v = {.set = {"gradient_accumulation_steps=2", "dtype=bfloat16"}, .parts = 2};
    const MxConfig *config = small_config(&arena, &v, &rank_meshes(&n)[_i]);
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(mx_train_state_open_on(&arena, config, comm, &run[r], &err), "%s",
                      err.text.data);
        mx_train_state_init(run[r]);
        for (int step = 0; step < STEPS; step++) {
            MxBatch batch = small_batch(&arena, NULL, step);
            mx_train_loss_and_grad(run[r], &batch);
            mx_train_update(run[r]);
        }
    }
    for (int i = 0; i < run[0]->vars.n; i++) {
        MxType type = run[0]->local.item[i].type;
        size_t bytes = (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
        const void *a = var_values(&arena, run[0]->run, i);
        ck_assert_msg(!memcmp(a, var_values(&arena, run[1]->run, i), bytes), "%s on mesh %d",
                      run[0]->vars.item[i].name, _i);
    }
    mx_arena_release(&arena);
}
END_TEST

Suite *exchanges_suite(void) {
    int n;
    rank_meshes(&n);
    Suite *suite = suite_create("mpi/exchanges");
    TCase *tcase = tcase_create("exchanges");
    tcase_add_loop_test(tcase, micro_batches_share_an_exchange, 0, n);
    tcase_add_loop_test(tcase, small_gradients_share_exchanges, 0, n);
    tcase_add_test(tcase, long_rows_are_shared_evenly);
    tcase_add_test(tcase, keys_go_where_they_are_seen);
    tcase_add_loop_test(tcase, runs_are_alike, 0, n);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
