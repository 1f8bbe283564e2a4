/* replay.c — runs a fuzz target over the files and folders that are named, without a fuzzer: what
 * once broke it must not do so again. */
#include <mx/base.h>

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay_file(const char *path, MxError *err) {
    enum { LARGEST_INPUT = 1 << 22 };
    MxArena arena = {.name = "replay"};
    MxBytes bytes;
    bool ok = mx_file_read(&arena, path, LARGEST_INPUT, &bytes, err);
    if (ok) LLVMFuzzerTestOneInput(bytes.data, bytes.size);
    mx_arena_release(&arena);
    return ok;
}

static bool replay(MxArena *arena, const char *path, int *n_done, MxError *err) {
    char **names;
    int n;
    if (!mx_dir_exists(path)) {
        *n_done += 1;
        return replay_file(path, err);
    }
    if (!mx_dir_list(arena, path, &names, &n, err)) return false;
    for (int i = 0; i < n; i++, *n_done += 1)
        if (!replay_file(mx_path_join(arena, path, names[i]), err)) return false;
    return true;
}

int main(int argc, char **argv) {
    MxArena arena = {.name = "replay"};
    MxError err = {0};
    int n = 0;
    bool ok = true;
    for (int i = 1; ok && i < argc; i++) ok = replay(&arena, argv[i], &n, &err);
    if (ok)
        printf("%s: %d inputs\n", argv[0], n);
    else
        fprintf(stderr, "%s\n", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return ok && n > 0 ? 0 : 1;
}
