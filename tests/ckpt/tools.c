/* tools.c — starting mxconvert, mxcompare and the trainer and looking at what they say and leave.
 */
#include "tools.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

const char *output;

/* Starts "<tool> <words>", split at blanks; {} in words is the test's folder. */
pid_t tool_start(const char *words) {
    enum { MAX_WORDS = 64 };
    char *argv[MAX_WORDS], *save = NULL, *line = mx_arena_strdup(&arena, words);
    int n = 0;
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(n, MAX_WORDS - 1);
        char *mark = strstr(w, "{}");
        argv[n++] =
            mark ? mx_arena_printf(&arena, "%.*s%s%s", (int)(mark - w), w, folder, mark + 2) : w;
    }
    argv[n] = NULL;
    const char *trainer = getenv("MX_BIN");
    const char *dir = mx_path_dir(&arena, trainer && *trainer ? trainer : "build/mxtrain");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, in_folder("log"), O_WRONLY | O_CREAT | O_TRUNC,
                                     0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid;
    char *path = mx_path_join(&arena, dir, argv[0]);
    ck_assert_msg(!posix_spawn(&pid, path, &actions, NULL, argv, environ), "cannot start %s", path);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* The exit code, or 128 + the signal that ended it. */
int tool_await(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, in_folder("log"), 1 << 24, &bytes, &err));
    output = (const char *)bytes.data;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int tool(const char *fmt, ...) {
    MxText line;
    va_list ap;
    mx_text_init(&line, &arena);
    va_start(ap, fmt);
    mx_text_vadd(&line, fmt, ap);
    va_end(ap);
    return tool_await(tool_start(line.data));
}

const char *tool_end(void) {
    size_t n = strlen(output);
    return output + (n > 3000 ? n - 3000 : 0);
}

void ck_says(const char *words) {
    ck_assert_msg(strstr(output, words) != NULL, "\"%s\" is not in: %s", words, output);
}

MxBytes content(const char *name) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, in_folder(name), (size_t)1 << 30, &bytes, &err));
    return bytes;
}

void put_content(const char *name, const void *data, size_t size) {
    ck_ok(mx_file_write(in_folder(name), data, size, &err));
}

void put_changed(const char *name, const char *from, const char *word, const char *instead) {
    MxBytes was;
    ck_ok(mx_file_read(&arena, from, 1 << 20, &was, &err));
    if (!word) {
        put_content(name, was.data, was.size);
        return;
    }
    const char *text = (const char *)was.data, *at = memmem(text, was.size, word, strlen(word));
    ck_assert_msg(at != NULL, "no %s in %s", word, from);
    size_t before = (size_t)(at - text), behind = was.size - before - strlen(word);
    char *is = mx_arena_alloc(&arena, was.size + strlen(instead));
    memcpy(is, text, before);
    memcpy(is + before, instead, strlen(instead));
    memcpy(is + before + strlen(instead), at + strlen(word), behind);
    put_content(name, is, before + strlen(instead) + behind);
}

void ck_same_bytes(const char *a, const char *b) {
    MxBytes x = content(a), y = content(b);
    ck_assert_msg(x.size == y.size && !memcmp(x.data, y.data, x.size), "%s and %s differ", a, b);
}

const char *model(const char *name) {
    return goldens_need(&arena, mx_arena_printf(&arena, "models/%s.h5", name));
}

const char *hf_model(const char *name) {
    return goldens_need(&arena, mx_path_join(&arena, "hf/models", name));
}

void put_hf_model(const char *name, const char *file, const char *word, const char *instead) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    ck_ok(mx_dir_make(in_folder("x"), &err));
    for (int i = 0; i < MX_COUNT(files); i++)
        put_changed(mx_path_join(&arena, "x", files[i]),
                    mx_path_join(&arena, hf_model(name), files[i]),
                    strcmp(files[i], file) ? NULL : word, instead);
}

void put_floats(MxH5 *file, const char *path, const float *values, int n) {
    ck_ok(mx_h5_write(file, path, MX_F32, MX_SHAPE(n), values, &err));
}

/* A file with one parameter "decoder/x/scale" and one more array. */
void make_pair_file(const char *name, const float values[3], const char *other, MxShape shape,
                    MxDtype dtype) {
    MxH5 *file;
    static const float zeros[8];
    ck_ok(mx_h5_create(&arena, in_folder(name), &file, &err));
    put_floats(file, "model/decoder/x/scale", values, 3);
    if (other) ck_ok(mx_h5_write(file, other, dtype, shape, zeros, &err));
    ck_ok(mx_h5_close(file, &err));
}
