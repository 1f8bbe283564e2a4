/* checkpoint.c — how fast a config's train state is saved and loaded: parameters and two moments,
 * float32, through the ckpt room as the trainer does it.
 *
 *   checkpoint CONFIG FOLDER ROUNDS [KEY=VALUE]...
 *
 * A save ends when all is on disk (hashed, synced, renamed); a load finds the newest checkpoint,
 * checks its hashes and fills memory that was never touched. Prints a line of CSV for each. */
#include "common.h"

#include <mx/ckpt.h>
#include <mx/device.h>
#include <mx/model.h>

#include <stdio.h>
#include <stdlib.h>

static void stop(MxError *err) {
    bench_fail("%s", err->text.data);
}

/* The state's arrays in memory as the trainer has it, which was never touched before; what they
 * hold does not matter. */
static MxTree new_state(MxArena *arena, const MxTree *params, bool fills, int64_t *bytes) {
    static const char *const sections[] = {"model", "optimizer/opt_state/0/mu",
                                           "optimizer/opt_state/0/nu"};
    MxTree state;
    mx_tree_init(&state, arena);
    for (int i = 0; i < MX_COUNT(sections); i++) mx_tree_add_under(&state, sections[i], params);
    *bytes = 0;
    for (int i = 0; i < state.n; i++)
        *bytes += mx_shape_count(state.leaves[i].shape) * (int64_t)sizeof(float);
    MxError err = {0};
    MxDevice *device;
    void *memory;
    if (!mx_device_open(arena, &(MxDeviceConfig){.backend = "cpu"}, &device, &err) ||
        !mx_device_alloc(device, (size_t)*bytes, &memory, &err))
        stop(&err);
    for (int i = 0; i < state.n; i++) {
        size_t n = (size_t)mx_shape_count(state.leaves[i].shape) * sizeof(float);
        state.leaves[i].kind = MX_KIND_PARAM;
        state.leaves[i].dtype = MX_F32;
        state.leaves[i].data = memory;
        if (fills) bench_fill(memory, n, (uint32_t)i);
        memory = (char *)memory + n;
    }
    return state;
}

static bool save(MxArena *arena, const char *dir, const MxSaving *how, const MxTree *state,
                 MxError *err) {
    MxCkptSave *saving;
    const char *report;
    return mx_ckpt_save_begin(arena, dir, NULL, how, state, &saving, err) &&
           mx_ckpt_save_write(saving, state, err) && (report = mx_ckpt_save_report(saving)) &&
           mx_ckpt_save_commit(saving, &report, 1, err);
}

static double time_save(const char *dir, const MxConfig *c, const MxTree *state) {
    MxError err = {0};
    MxSaving how = {.form = {.is_linen = !c->pure_nnx,
                             .is_scanned = c->scan_layers,
                             .scan_axis = (int)c->param_scan_axis},
                    .config = ""};
    if (mx_dir_exists(dir) && !mx_dir_remove(dir, &err)) stop(&err);
    double start = bench_clock_s();
    MxArena arena = {.name = "save"};
    if (!save(&arena, dir, &how, state, &err)) stop(&err);
    mx_arena_release(&arena);
    return bench_clock_s() - start;
}

static double time_load(const char *folder, const MxConfig *c, const MxTree *params) {
    MxArena arena = {.name = "load"};
    MxError err = {0};
    const char *dir;
    int64_t step, bytes;
    double start = bench_clock_s();
    MxTree state = new_state(&arena, params, false, &bytes);
    if (!mx_ckpt_newest(&arena, folder, NULL, &dir, &step, &err) ||
        !mx_ckpt_load(dir, (int)c->param_scan_axis, &state, &err))
        stop(&err);
    double seconds = bench_clock_s() - start;
    mx_arena_release(&arena);
    return seconds;
}

int main(int argc, char **argv) {
    if (argc < 4) bench_fail("usage: checkpoint CONFIG FOLDER ROUNDS [KEY=VALUE]...");
    MxArena arena = {.name = "checkpoint"};
    MxError err = {0};
    MxConfig *config;
    MxModel *model;
    const char *files[] = {argv[1], NULL}, *folder = argv[2];
    MxConfigRequest request = {.files = files,
                               .n_files = 1,
                               .overrides = (const char *const *)argv + 4,
                               .n_overrides = argc - 4};
    if (!mx_config_load(&arena, &request, &config, &err) ||
        !mx_model_new(&arena, config, &model, &err) || !mx_dir_make(folder, &err))
        stop(&err);
    int64_t bytes, rounds = bench_positive(argv[3], "ROUNDS");
    MxTree state = new_state(&arena, mx_model_params(model), true, &bytes);
    const char *dir = mx_path_join(&arena, folder, "1");
    printf("what,seconds,bytes\n");
    for (int64_t i = 0; i < rounds; i++) {
        printf("save,%.6f,%lld\n", time_save(dir, config, &state), (long long)bytes);
        printf("load,%.6f,%lld\n", time_load(folder, config, mx_model_params(model)),
               (long long)bytes);
        fflush(stdout);
    }
    if (!mx_dir_remove(dir, &err)) stop(&err);
    mx_arena_release(&arena);
    return 0;
}
