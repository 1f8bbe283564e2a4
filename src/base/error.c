/* error.c — errors: what went wrong, and where the wrong value came from. */
#include <mx/base.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* For handlers of SIGABRT: a property of the process, which ends with it. */
static volatile sig_atomic_t bug_is_told;

bool mx_bug_is_told(void) {
    return bug_is_told;
}

void mx_assert_fail(const char *cond, const char *file, int line) {
    mx_progress_abandon();
    fprintf(stderr, "%s:%d: bug: \"%s\" does not hold\n", file, line, cond);
    bug_is_told = 1;
    abort();
}

static void start_line(MxError *err, MxExit exit) {
    if (!err->text.data) {
        err->arena.name = "error";
        mx_text_init(&err->text, &err->arena);
    }
    if (!err->count) err->exit = exit;
    if (err->text.len) mx_text_add(&err->text, "\n");
    size_t n = (size_t)err->count++;
    if (!(n & (n - 1))) /* a power of two, or none */
        err->starts = mx_arena_grow(&err->arena, err->starts, n, n ? 2 * n : 1, sizeof(size_t));
    err->starts[n] = err->text.len;
}

bool mx_fail(MxError *err, MxExit exit, MxWhere where, const char *fmt, ...) {
    start_line(err, exit);
    if (where.file) mx_text_add(&err->text, "%s:", where.file);
    if (where.file && where.line) mx_text_add(&err->text, "%d:", where.line);
    if (where.file && where.line && where.col) mx_text_add(&err->text, "%d:", where.col);
    if (where.file) mx_text_add(&err->text, " ");
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&err->text, fmt, ap);
    va_end(ap);
    return false;
}

static MxExit exit_of_errno(int code) {
    switch (code) {
    case EACCES:
    case EPERM:
    case EROFS:
        return MX_EXIT_PERMISSION;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return MX_EXIT_CANNOT_CREATE;
    default:
        return MX_EXIT_IO;
    }
}

bool mx_fail_errno(MxError *err, const char *fmt, ...) {
    int code = errno;
    start_line(err, exit_of_errno(code));
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&err->text, fmt, ap);
    va_end(ap);
    mx_text_add(&err->text, ": %s", strerror(code));
    return false;
}

void mx_note(MxError *err, const char *fmt, ...) {
    MX_ASSERT(err->count);
    mx_text_add(&err->text, "\n");
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&err->text, fmt, ap);
    va_end(ap);
}

bool mx_context(MxError *err, const char *fmt, ...) {
    MX_ASSERT(err->count);
    const char *old = err->text.data;
    mx_text_init(&err->text, &err->arena);
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&err->text, fmt, ap);
    va_end(ap);
    mx_text_add(&err->text, ": ");
    for (int i = 1; i < err->count; i++) err->starts[i] += err->text.len;
    mx_text_add(&err->text, "%s", old);
    return false;
}

void mx_error_tell(const MxError *err) {
    for (int i = 0; i < err->count; i++) {
        size_t start = err->starts[i];
        size_t end = i + 1 < err->count ? err->starts[i + 1] - 1 : err->text.len;
        mx_complain("%.*s", (int)(end - start), err->text.data + start);
    }
}

void mx_error_release(MxError *err) {
    mx_arena_release(&err->arena);
    *err = (MxError){0};
}
