/* generate.c — how fast a config's model takes a prompt in and gives tokens, beside its own forward
 * pass of evaluation and what memory gives.
 *
 *   generate CONFIG PROMPT CHUNK TOKENS floats|nf4|int8 [KEY=VALUE]...
 *
 * Prints a line for each: tokens a second (the fastest of some rounds, as others may use the
 * machine), the least processor time of a token, and for tokens one by one the bytes of weights
 * that each reads, a second, beside bench_reading and bench_bandwidth in the same run; with
 * hardware=gpu (mxtrain_cuda.so must be beside it) without these and without evaluation. Weights
 * are drawn; the dtype of weights is that of the config, kernels of layers are kept as the fifth
 * word says. per_device_batch_size sequences are generated together.
 */
#include "common.h"

#include <mx/program.h>

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 5, FIGURES = 3 };

static void stop(MxError *err) {
    bench_fail("%s", err->text.data);
}

/* Bytes of all weights that a token is multiplied with: all but the table that it is looked up in.
 */
static double weight_bytes(MxTrainState *state) {
    const MxTree *tree = mx_train_state_tree(state);
    double bytes = 0;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        int64_t n = mx_shape_count(leaf->shape);
        if (leaf->kind != MX_KIND_PARAM || strstr(leaf->path, "embedding")) continue;
        bytes += (double)(leaf->quant.type ? mx_quant_bytes(leaf->quant, n)
                                           : n * (int64_t)mx_dtype_bytes(leaf->dtype));
    }
    return bytes;
}

/* Of all threads. */
static double processor_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokens of all rows, each behind `before` others; a prompt is the same for all. */
static void run_piece(MxTrainState *state, const int32_t *tokens, int64_t width, int64_t before,
                      float *logits) {
    enum { MOST_ROWS = 64 };
    int64_t rows = mx_generation(state).rows, behind[MOST_ROWS];
    int32_t sequences[MOST_ROWS];
    if (rows > MOST_ROWS) bench_fail("at most %d sequences", MOST_ROWS);
    for (int r = 0; r < rows; r++) sequences[r] = r, behind[r] = before;
    mx_generation_run(state,
                      &(MxPiece){.n = rows,
                                 .sequences = sequences,
                                 .before = behind,
                                 .tokens = tokens,
                                 .n_tokens = width},
                      logits);
}

/* Prompts in pieces, a sequence after the other; then tokens one by one, of all sequences together.
 * Seconds of both, and of processors for the second. */
static void generate(MxTrainState *state, const int32_t *tokens, int64_t n, int64_t more,
                     float *logits, double seconds[FIGURES]) {
    MxGeneration shape = mx_generation(state);
    double start = bench_clock_s();
    for (int32_t sequence = 0; sequence < shape.rows; sequence++)
        for (int64_t at = 0; at < n; at += shape.chunk) {
            int64_t some = n - at < shape.chunk ? n - at : shape.chunk;
            mx_generation_run(state,
                              &(MxPiece){.n = 1,
                                         .sequences = &sequence,
                                         .before = &at,
                                         .tokens = tokens + at,
                                         .n_tokens = some},
                              logits);
        }
    seconds[0] = bench_clock_s() - start;
    start = bench_clock_s();
    double processor = processor_s();
    for (int64_t at = n; at < n + more; at++) run_piece(state, tokens, 1, at, logits);
    seconds[1] = bench_clock_s() - start;
    seconds[2] = processor_s() - processor;
}

/* Beside what memory gives to this machine's processors. */
static void print_reading(double rate) {
    double reading = bench_reading(), memory = bench_bandwidth();
    printf(": %.0f %% of reading alone (%.2f GB/s), %.0f %% of memory (%.2f GB/s)",
           100 * rate / reading, reading / 1e9, 100 * rate / memory, memory / 1e9);
}

static bool is_on_gpu(const MxConfig *c) {
    return !strncmp(c->hardware, "gpu", 3);
}

static void time_generation(const MxConfig *c, MxQtype kept, int64_t n, int64_t chunk,
                            int64_t more) {
    MxArena arena = {.name = "generation"};
    MxError err = {0};
    MxTrainState *state;
    int64_t rows = c->global_batch_size_to_load_eval;
    const MxGeneration what = {.rows = rows, .capacity = n + more, .chunk = chunk};
    if (!mx_train_state_open_generation(&arena, c, what, kept, &state, &err)) stop(&err);
    mx_train_state_init(state);
    int32_t *tokens = mx_new_n(&arena, int32_t, n);
    float *logits = mx_new_n(&arena, float, rows * c->vocab_size);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)(i * 7919 % c->vocab_size);
    double best[FIGURES] = {1e30, 1e30, 1e30}, seconds[FIGURES];
    for (int round = 0; round < ROUNDS; round++) {
        generate(state, tokens, n, more, logits, seconds);
        for (int i = 0; i < FIGURES; i++) best[i] = seconds[i] < best[i] ? seconds[i] : best[i];
    }
    double bytes = weight_bytes(state), rate = bytes * (double)more / best[1];
    printf("prompt of %lld in pieces of %lld: %.0f tokens/s\n", (long long)n, (long long)chunk,
           (double)(rows * n) / best[0]);
    printf("one by one: %.2f tokens/s, %.2f GB/s of weights (%.0f MB a token)",
           (double)(rows * more) / best[1], rate / 1e9, bytes / 1e6);
    if (!is_on_gpu(c)) print_reading(rate);
    printf("\nprocessor time of a token, all threads: %.2f ms\n", 1e3 * best[2] / (double)more);
    mx_arena_release(&arena);
}

static void time_evaluation(const MxConfig *c) {
    MxArena arena = {.name = "evaluation"};
    MxError err = {0};
    MxTrainState *state;
    MxDataset *data;
    int64_t rows = c->global_batch_size_to_load_eval;
    const MxDataConfig config = {
        .kind = "synthetic", .rows = rows, .length = c->max_target_length, .vocab = c->vocab_size};
    MxBatch batch = mx_batch_new(&arena, rows, c->max_target_length);
    if (!mx_train_state_open_eval(&arena, c, NULL, &state, &err) ||
        !mx_data_open(&arena, &config, &data, &err) ||
        mx_data_batch(data, 0, &batch, &err) != MX_DATA_OK)
        stop(&err);
    mx_train_state_init(state);
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_clock_s();
        mx_train_eval(state, &batch);
        double seconds = bench_clock_s() - start;
        best = seconds < best ? seconds : best;
    }
    printf("evaluation of %lld x %lld: %.0f tokens/s\n", (long long)rows,
           (long long)c->max_target_length, (double)(rows * c->max_target_length) / best);
    mx_arena_release(&arena);
}

int main(int argc, char **argv) {
    MxQtype kept = MX_NOT_QUANTIZED;
    if (argc < 6 || (strcmp(argv[5], "floats") && !mx_qtype_parse(argv[5], &kept)))
        bench_fail("usage: generate CONFIG PROMPT CHUNK TOKENS floats|nf4|int8 [KEY=VALUE]...");
    MxArena arena = {.name = "generate"};
    MxError err = {0};
    MxConfig *config;
    const MxConfigRequest request = {.files = (const char *const *)argv + 1,
                                     .n_files = 1,
                                     .overrides = (const char *const *)argv + 6,
                                     .n_overrides = argc - 6};
    if (!mx_config_load(&arena, &request, &config, &err)) stop(&err);
    time_generation(config, kept, bench_positive(argv[2], "PROMPT"),
                    bench_positive(argv[3], "CHUNK"), bench_positive(argv[4], "TOKENS"));
    if (!is_on_gpu(config)) time_evaluation(config);
    mx_arena_release(&arena);
    return 0;
}
