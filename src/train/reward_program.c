/* reward_program.c — a user's program that rewards completions: it reads a line of JSON for each
 * and writes one for each. It is started with sh -c and runs as long as the run does, in its own
 * process group, so that Ctrl-C reaches only the run. Its stderr goes to the log. */
#include "reward_program.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LONGEST_LINE = 1 << 20, MOST_COMPLAINTS = 20 };
/* Its stdin, stdout and stderr. */
enum { TO, FROM, SAID, PIPES };

struct RewardProgram {
    MxArena *arena;
    const char *command;
    double timeout_s;
    pid_t pid; /* 0 = it does not run */
    int fd[PIPES];
    MxText line[PIPES]; /* what has come of the next line of FROM and SAID */
    bool has_answered;
    int64_t n_complaints; /* since it was asked */
};

/* Lines that wait for answers. */
typedef struct Asking {
    MxArena *arena;
    const char *const *lines;
    int64_t n, sent, answered; /* sent: lines that are whole in the pipe */
    size_t part;               /* bytes of the next one that are, too */
    int64_t ended_at;          /* which line it was to answer when it last ended; -1 = never */
    RewardAnswer *out;
    double since; /* the last answer, or the start */
} Asking;

/* ---- its process */

static void close_pipe(RewardProgram *p, int i) {
    if (p->fd[i] >= 0) close(p->fd[i]);
    p->fd[i] = -1; /* poll passes over it */
}

static void close_pipes(RewardProgram *p) {
    for (int i = 0; i < PIPES; i++) close_pipe(p, i);
}

/* Gives a process that finds its input at an end a moment. */
static void wait_a_moment(const RewardProgram *p) {
    enum { TRIES = 100, WAIT_US = 10000 };
    siginfo_t gone = {0};
    for (int i = 0; i < TRIES && !gone.si_pid; i++) {
        if (waitid(P_PID, (id_t)p->pid, &gone, WEXITED | WNOHANG | WNOWAIT)) return;
        if (!gone.si_pid) usleep(WAIT_US);
    }
}

/* Ends the process, if it has not ended by itself, and what it has started; returns how it did. */
static const char *end(RewardProgram *p, MxArena *arena, bool waits) {
    int status = 0;
    close_pipes(p);
    if (waits) wait_a_moment(p);
    kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
    }
    p->pid = 0;
    if (WIFSIGNALED(status))
        return mx_arena_printf(arena, "signal %d (%s)", WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
    return mx_arena_printf(arena, "exit %d", WEXITSTATUS(status));
}

static void leave(void *data) {
    RewardProgram *p = data;
    MxArena arena = {.name = "end"};
    if (p->pid) end(p, &arena, true);
    mx_arena_release(&arena);
}

RewardProgram *reward_program_new(MxArena *arena, const MxConfig *config) {
    RewardProgram *p = mx_new(arena, RewardProgram);
    *p = (RewardProgram){.arena = arena,
                         .command = config->rl_reward_command,
                         .timeout_s = config->rl_reward_timeout,
                         .fd = {-1, -1, -1}};
    for (int i = 0; i < PIPES; i++) mx_text_init(&p->line[i], arena);
    mx_arena_on_release(arena, leave, p);
    return p;
}

static int spawn(RewardProgram *p, const int theirs[PIPES]) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t usual;
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)p->command, NULL};
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    for (int i = 0; i < PIPES; i++) posix_spawn_file_actions_adddup2(&files, theirs[i], i);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE); /* which runs ignore */
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawn(&p->pid, "/bin/sh", &files, &how, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return failed;
}

static bool start(RewardProgram *p, MxError *err) {
    int pipes[PIPES][2], theirs[PIPES], n = 0;
    while (n < PIPES && !pipe2(pipes[n], O_CLOEXEC)) n++;
    for (int i = 0; i < n; i++) {
        p->fd[i] = pipes[i][i == TO];
        theirs[i] = pipes[i][i != TO];
        fcntl(p->fd[i], F_SETFL, O_NONBLOCK);
        mx_text_clear(&p->line[i]);
    }
    errno = n < PIPES ? errno : spawn(p, theirs);
    int failed = errno;
    for (int i = 0; i < n; i++) close(theirs[i]);
    if (!failed) return true;
    p->pid = 0;
    close_pipes(p);
    errno = failed;
    return mx_fail_errno(err, "could not start \"%s\"", p->command);
}

/* ---- lines */

/* Takes the next whole line out of what has come; false = there is none. */
static bool take_line(MxText *from, MxText *line) {
    const char *stop = memchr(from->data, '\n', from->len);
    if (!stop) return false;
    size_t n = (size_t)(stop - from->data);
    mx_text_clear(line);
    mx_text_addn(line, from->data, n);
    from->len -= n + 1;
    memmove(from->data, stop + 1, from->len);
    from->data[from->len] = '\0';
    return true;
}

static void tell_complaints(RewardProgram *p, MxArena *arena) {
    MxText line, shown;
    mx_text_init(&line, arena);
    mx_text_init(&shown, arena);
    while (take_line(&p->line[SAID], &line)) {
        if (p->n_complaints++ >= MOST_COMPLAINTS) continue;
        mx_text_clear(&shown);
        mx_text_add_shown(&shown, line.data, line.len);
        mx_log("reward program: %s", shown.data);
    }
}

/* Adds what a pipe has; false = its other end is closed. */
static bool read_pipe(int fd, MxText *to) {
    char bytes[4096];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0) {
        mx_text_addn(to, bytes, (size_t)n);
        if (to->len > LONGEST_LINE) break;
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Writes as much as the pipe takes; false = nobody reads it any more. */
static bool write_lines(RewardProgram *p, Asking *a) {
    while (a->sent < a->n) {
        const char *line = a->lines[a->sent];
        size_t left = strlen(line) - a->part;
        ssize_t n = write(p->fd[TO], line + a->part, left);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        a->part += (size_t)n;
        if ((size_t)n < left) return true;
        a->part = 0;
        a->sent++;
    }
    return true;
}

static bool no_reward(const MxText *line, MxError *err) {
    MxArena scratch = {.name = "message"};
    enum { SHOWN = 80 };
    size_t n = line->len < SHOWN ? line->len : mx_char_start(line->data, SHOWN);
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
            "the program wrote %s, wanted a line with a number, {\"reward\": number}, "
            "{\"observation\": text or messages} or {\"error\": \"why there is none\"} for each "
            "that it reads",
            mx_json_quote(&scratch, line->data, n));
    mx_note(err, "hint: what else it has to say belongs on stderr");
    mx_arena_release(&scratch);
    return false;
}

/* An answer that is an object; false = it says neither. */
static bool read_answer(const MxJson *json, RewardAnswer *out) {
    const MxJson *reward = mx_json_get(json, "reward"), *told = mx_json_get(json, "observation");
    double number = NAN;
    const bool is_null = reward && !strcmp(mx_json_kind(reward), "null");
    const bool is_number = reward && mx_json_number(reward, &number);
    const bool is_told = told && (mx_json_string(told) || !strcmp(mx_json_kind(told), "a list"));
    *out = (RewardAnswer){.reward = NAN, .why = mx_json_string(mx_json_get(json, "error"))};
    if (out->why) return true;
    if ((told && !is_told) || (reward && !is_number && !is_null)) return false;
    out->reward = (float)number;
    out->observation = told;
    if (is_null && !told) out->why = "the program said null";
    return reward || told;
}

/* The next answer. */
static bool take_answer(RewardProgram *p, Asking *a, const MxText *line, MxError *err) {
    MxError not_json = {0};
    MxJson *json = mx_json_parse_value(a->arena, line->data, line->len, MX_NOWHERE, &not_json);
    mx_error_release(&not_json);
    if (json && strcmp(mx_json_kind(json), "an object")) {
        MxJson *object = mx_json_object(a->arena);
        mx_json_set(object, "reward", json);
        json = object;
    }
    if (!json || a->answered == a->sent || !read_answer(json, &a->out[a->answered]))
        return no_reward(line, err);
    a->answered++;
    p->has_answered = true;
    a->since = mx_clock_s();
    return true;
}

static bool take_answers(RewardProgram *p, Asking *a, MxError *err) {
    MxText line;
    mx_text_init(&line, a->arena);
    while (take_line(&p->line[FROM], &line))
        if (!take_answer(p, a, &line, err)) return false;
    return p->line[FROM].len <= LONGEST_LINE || no_reward(&p->line[FROM], err);
}

/* ---- asking */

typedef enum Turn { TURN_GOES_ON, TURN_ENDED, TURN_LATE, TURN_FAILED } Turn;

/* Waits for the program once, and takes what it has to say. */
static Turn take_turn(RewardProgram *p, Asking *a, MxError *err) {
    const int ms = 1000;
    double left = a->since + p->timeout_s - mx_clock_s();
    struct pollfd polled[PIPES] = {{p->fd[TO], a->sent < a->n ? POLLOUT : 0, 0},
                                   {p->fd[FROM], POLLIN, 0},
                                   {p->fd[SAID], POLLIN, 0}};
    if (left <= 0) return TURN_LATE;
    if (poll(polled, PIPES, (int)fmin(left * ms + 1, INT32_MAX)) < 0) return TURN_GOES_ON;
    if (polled[SAID].revents && !read_pipe(p->fd[SAID], &p->line[SAID])) close_pipe(p, SAID);
    tell_complaints(p, a->arena);
    bool goes_on = !polled[FROM].revents || read_pipe(p->fd[FROM], &p->line[FROM]);
    if (!take_answers(p, a, err)) return TURN_FAILED;
    bool is_read = !(polled[TO].revents & POLLERR);
    if (polled[TO].revents && !(is_read && write_lines(p, a))) close_pipe(p, TO);
    return goes_on ? TURN_GOES_ON : TURN_ENDED;
}

/* The line that it was to answer gets no reward. */
static void give_up(Asking *a, const char *why) {
    a->out[a->answered++] = (RewardAnswer){.reward = NAN, .why = why};
}

static bool begin(RewardProgram *p, Asking *a, MxError *err) {
    a->sent = a->answered;
    a->part = 0;
    a->since = mx_clock_s();
    return start(p, err);
}

/* A program that ends is asked the same again once. */
static bool recover(RewardProgram *p, Asking *a, Turn turn, MxError *err) {
    if (p->fd[SAID] >= 0) read_pipe(p->fd[SAID], &p->line[SAID]);
    tell_complaints(p, a->arena);
    if (turn == TURN_LATE) {
        end(p, a->arena, false);
        give_up(a, mx_arena_printf(a->arena, "no answer in %g seconds", p->timeout_s));
        mx_warn("the reward program did not answer in %g seconds; it is started again",
                p->timeout_s);
        return true;
    }
    const char *how = end(p, a->arena, true);
    bool is_second = a->ended_at == a->answered;
    a->ended_at = a->answered;
    if (is_second && !p->has_answered)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s\" ended (%s) before it had answered anything", p->command, how);
    mx_warn("the reward program ended (%s); it is started again", how);
    if (is_second) give_up(a, mx_arena_printf(a->arena, "the program ends when asked (%s)", how));
    return true;
}

bool reward_program_ask(RewardProgram *p, MxArena *arena, const char *const *lines, int64_t n,
                        RewardAnswer *out, MxError *err) {
    Asking a = {
        .arena = arena, .lines = lines, .n = n, .ended_at = -1, .out = out, .since = mx_clock_s()};
    p->n_complaints = 0;
    while (a.answered < n) {
        if (!p->pid && !begin(p, &a, err)) return false;
        Turn turn = take_turn(p, &a, err);
        if (turn == TURN_FAILED) return false;
        if (turn != TURN_GOES_ON && a.answered < n && !recover(p, &a, turn, err)) return false;
    }
    if (p->n_complaints > MOST_COMPLAINTS)
        mx_log("reward program: … and %lld more lines",
               (long long)(p->n_complaints - MOST_COMPLAINTS));
    return true;
}
