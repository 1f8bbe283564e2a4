/* replay.c — runs a fuzz target over the files and folders that are named, without a fuzzer: what
 * once broke it must not do so again. With --mutants N over N files that are made of these by
 * damage, the same ones every time; --from I begins with number I, which the last line of one that
 * crashes names. */
#include <mx/base.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST_INPUT = 1 << 22, MOST_FILES = 4096 };

/* The files that are named, and those of folders. */
typedef struct Inputs {
    MxArena arena;
    const char *path[MOST_FILES];
    MxBytes bytes[MOST_FILES];
    int n;
} Inputs;

static bool add_file(Inputs *inputs, const char *path, MxError *err) {
    MX_ASSERT(inputs->n < MOST_FILES);
    inputs->path[inputs->n] = path;
    return mx_file_read(&inputs->arena, path, LARGEST_INPUT, &inputs->bytes[inputs->n++], err);
}

static bool add(Inputs *inputs, const char *path, MxError *err) {
    char **names;
    int n;
    if (!mx_dir_exists(path)) return add_file(inputs, path, err);
    if (!mx_dir_list(&inputs->arena, path, &names, &n, err)) return false;
    for (int i = 0; i < n; i++)
        if (!add_file(inputs, mx_path_join(&inputs->arena, path, names[i]), err)) return false;
    return true;
}

/* ---- damage */

/* Numbers that are drawn for one file, in order. */
typedef struct Draws {
    uint64_t seed, n;
} Draws;

static size_t draw(Draws *draws, size_t below) {
    uint32_t w[4];
    mx_philox(draws->seed, 1, draws->n++, w);
    return below ? (w[0] | (uint64_t)w[1] << 32) % below : 0;
}

static void cut(MxBytes *to, Draws *draws) {
    to->size = draw(draws, to->size + 1);
}

/* Puts up to some bytes of another text in. */
static void insert(MxBytes *to, Draws *draws, MxBytes from) {
    enum { MOST = 64 };
    size_t at = draw(draws, from.size + 1), n = draw(draws, MOST);
    uint8_t piece[MOST];
    if (n > from.size - at) n = from.size - at;
    if (n > LARGEST_INPUT - to->size) n = LARGEST_INPUT - to->size;
    if (n) memcpy(piece, from.data + at, n); /* it may be the same text */
    at = draw(draws, to->size + 1);
    memmove(to->data + at + n, to->data + at, to->size - at);
    if (n) memcpy(to->data + at, piece, n);
    to->size += n;
}

static void insert_own(MxBytes *to, Draws *draws, const Inputs *inputs) {
    (void)inputs;
    insert(to, draws, *to);
}

static void insert_other(MxBytes *to, Draws *draws, const Inputs *inputs) {
    insert(to, draws, inputs->bytes[draw(draws, (size_t)inputs->n)]);
}

static void take_out(MxBytes *to, Draws *draws, const Inputs *inputs) {
    enum { MOST = 64 };
    size_t at = draw(draws, to->size + 1), n = draw(draws, MOST);
    (void)inputs;
    if (n > to->size - at) n = to->size - at;
    memmove(to->data + at, to->data + at + n, to->size - at - n);
    to->size -= n;
}

/* A byte, half of the time of the first eighth, where headers are: another bit, any value, one that
 * often means something, or the next one up or down. */
static void change(MxBytes *to, Draws *draws, const Inputs *inputs) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xfe, 0xff, '0', '9', '-', '"', '{', '\n'};
    size_t way = draw(draws, 5), value = draw(draws, 256);
    (void)inputs;
    if (!to->size) return;
    size_t range = draw(draws, 2) ? to->size : (to->size + 7) / 8;
    uint8_t *byte = &to->data[draw(draws, range)];
    const int values[] = {*byte ^ 1 << value % 8, (int)value, edges[value % MX_COUNT(edges)],
                          *byte + 1, *byte - 1};
    *byte = (uint8_t)values[way];
}

static void (*const damages[])(MxBytes *to, Draws *draws,
                               const Inputs *inputs) = {insert_own, insert_other, take_out, change};

/* One of the inputs with 1, 2, 4 … 64 changes, most of them of single bytes; some are cut. */
static void make_mutant(const Inputs *inputs, uint64_t number, MxBytes *to) {
    Draws draws = {.seed = number};
    const MxBytes *from = &inputs->bytes[number % (uint64_t)inputs->n];
    int n = 1 << draw(&draws, 7);
    to->size = from->size;
    if (from->size) memcpy(to->data, from->data, from->size);
    for (int i = 0; i < n; i++) {
        size_t which = draw(&draws, 16), last = MX_COUNT(damages) - 1;
        damages[which < last ? which : last](to, &draws, inputs);
    }
    if (!draw(&draws, 16)) cut(to, &draws);
}

/* ---- */

static char crash[4200]; /* what is said of one */

static void on_crash(int number) {
    if (write(STDERR_FILENO, crash, strlen(crash)) < 0) _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static void run_mutants(Inputs *inputs, uint64_t from, uint64_t n) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    MxBytes bytes = {.data = mx_arena_alloc(&inputs->arena, LARGEST_INPUT)};
    for (int i = 0; i < MX_COUNT(crashes); i++) signal(crashes[i], on_crash);
    for (uint64_t i = from; i < from + n; i++) {
        make_mutant(inputs, i, &bytes);
        snprintf(crash, sizeof crash, "crash: mutant %llu, of %s\n", (unsigned long long)i,
                 inputs->path[i % (uint64_t)inputs->n]);
        LLVMFuzzerTestOneInput(bytes.data, bytes.size);
    }
}

int main(int argc, char **argv) {
    static Inputs inputs = {.arena = {.name = "replay"}};
    MxError err = {0};
    uint64_t n_mutants = 0, from = 0;
    bool ok = true;
    for (int i = 1; ok && i < argc; i++)
        if (!strcmp(argv[i], "--mutants") && i + 1 < argc)
            n_mutants = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--from") && i + 1 < argc)
            from = strtoull(argv[++i], NULL, 10);
        else
            ok = add(&inputs, argv[i], &err);
    ok = ok && inputs.n;
    if (ok && n_mutants) run_mutants(&inputs, from, n_mutants);
    for (int i = 0; ok && !n_mutants && i < inputs.n; i++)
        LLVMFuzzerTestOneInput(inputs.bytes[i].data, inputs.bytes[i].size);
    if (ok)
        printf("%s: %llu inputs\n", argv[0],
               n_mutants ? (unsigned long long)n_mutants : (unsigned long long)inputs.n);
    else
        fprintf(stderr, "%s\n", err.count ? err.text.data : "no inputs");
    mx_error_release(&err);
    mx_arena_release(&inputs.arena);
    return !ok;
}
