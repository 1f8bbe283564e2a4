/* confine.c — what a process that reads files of others may still ask of the system: a filter of
 * seccomp. Two tables: calls that are made, perhaps on conditions, and calls that end the process,
 * since only code that came with a file would make them. All others fail as on a kernel that lacks
 * them, so that libraries that try a new call go on with the old one. */
#include <mx/base.h>
#include <mx/base_confine.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__ || defined __aarch64__
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#ifdef __x86_64__
static const uint32_t ARCH = AUDIT_ARCH_X86_64;
#else
static const uint32_t ARCH = AUDIT_ARCH_AARCH64;
#endif

/* On which condition a call is made: always, by an argument that is a value or has none or one of
 * its bits, or by a first argument that is this process. */
typedef enum Test { ALWAYS, EQUALS, LACKS, HAS, IS_OWN } Test;

typedef struct Row {
    int call;
    Test test;
    unsigned argument;
    uint32_t value;
} Row;

enum { CHANGES = O_ACCMODE | O_CREAT | O_TRUNC };

/* Computing, and reading of files. */
static const Row reads[] = {
    {SYS_read, ALWAYS, 0, 0},
    {SYS_pread64, ALWAYS, 0, 0},
    {SYS_write, ALWAYS, 0, 0},
    {SYS_futex, ALWAYS, 0, 0},
    {SYS_mmap, ALWAYS, 0, 0},
    {SYS_munmap, ALWAYS, 0, 0},
    {SYS_mprotect, ALWAYS, 0, 0},
    {SYS_mremap, ALWAYS, 0, 0},
    {SYS_madvise, ALWAYS, 0, 0},
    {SYS_brk, ALWAYS, 0, 0},
    {SYS_openat, LACKS, 2, CHANGES},
    {SYS_close, ALWAYS, 0, 0},
    {SYS_lseek, ALWAYS, 0, 0},
    {SYS_readv, ALWAYS, 0, 0},
    {SYS_writev, ALWAYS, 0, 0},
    {SYS_preadv, ALWAYS, 0, 0},
    {SYS_fstat, ALWAYS, 0, 0},
    {SYS_newfstatat, ALWAYS, 0, 0},
    {SYS_statx, ALWAYS, 0, 0},
    {SYS_statfs, ALWAYS, 0, 0},
    {SYS_fstatfs, ALWAYS, 0, 0},
    {SYS_faccessat, ALWAYS, 0, 0},
    {SYS_readlinkat, ALWAYS, 0, 0},
    {SYS_getdents64, ALWAYS, 0, 0},
    {SYS_getcwd, ALWAYS, 0, 0},
    {SYS_fcntl, EQUALS, 1, F_DUPFD}, /* not F_SETOWN: it names who gets signals */
    {SYS_fcntl, EQUALS, 1, F_DUPFD_CLOEXEC},
    {SYS_fcntl, EQUALS, 1, F_GETFD},
    {SYS_fcntl, EQUALS, 1, F_SETFD},
    {SYS_fcntl, EQUALS, 1, F_GETFL},
    {SYS_fcntl, EQUALS, 1, F_SETFL},
    {SYS_fcntl, EQUALS, 1, F_GETLK},
    {SYS_fcntl, EQUALS, 1, F_SETLK},
    {SYS_fcntl, EQUALS, 1, F_SETLKW},
    {SYS_flock, ALWAYS, 0, 0},
    {SYS_fadvise64, ALWAYS, 0, 0},
    {SYS_readahead, ALWAYS, 0, 0},
    {SYS_dup, ALWAYS, 0, 0},
    {SYS_dup3, ALWAYS, 0, 0},
    {SYS_pipe2, ALWAYS, 0, 0},
    {SYS_ioctl, EQUALS, 1, TCGETS},
    {SYS_ioctl, EQUALS, 1, TIOCGWINSZ},
    {SYS_ppoll, ALWAYS, 0, 0},
    /* threads of its own, signals to itself, time */
    {SYS_clone, HAS, 0, CLONE_THREAD},
    {SYS_set_robust_list, ALWAYS, 0, 0},
    {SYS_rseq, ALWAYS, 0, 0},
    {SYS_membarrier, ALWAYS, 0, 0},
    {SYS_sched_yield, ALWAYS, 0, 0},
    {SYS_sched_getaffinity, ALWAYS, 0, 0},
    {SYS_rt_sigaction, ALWAYS, 0, 0},
    {SYS_rt_sigprocmask, ALWAYS, 0, 0},
    {SYS_rt_sigreturn, ALWAYS, 0, 0},
    {SYS_restart_syscall, ALWAYS, 0, 0},
    {SYS_sigaltstack, ALWAYS, 0, 0},
    {SYS_kill, IS_OWN, 0, 0},
    {SYS_tgkill, IS_OWN, 0, 0},
    {SYS_clock_gettime, ALWAYS, 0, 0},
    {SYS_clock_getres, ALWAYS, 0, 0},
    {SYS_clock_nanosleep, ALWAYS, 0, 0},
    {SYS_nanosleep, ALWAYS, 0, 0},
    {SYS_gettimeofday, ALWAYS, 0, 0},
    {SYS_exit, ALWAYS, 0, 0},
    {SYS_exit_group, ALWAYS, 0, 0},
    /* what the process and the machine are */
    {SYS_getpid, ALWAYS, 0, 0},
    {SYS_gettid, ALWAYS, 0, 0},
    {SYS_getuid, ALWAYS, 0, 0},
    {SYS_geteuid, ALWAYS, 0, 0},
    {SYS_getgid, ALWAYS, 0, 0},
    {SYS_getegid, ALWAYS, 0, 0},
    {SYS_getrusage, ALWAYS, 0, 0},
    {SYS_prlimit64, EQUALS, 0, 0},
    {SYS_sysinfo, ALWAYS, 0, 0},
    {SYS_uname, ALWAYS, 0, 0},
    {SYS_getrandom, ALWAYS, 0, 0},
#ifdef SYS_open /* calls that newer processors do not have */
    {SYS_open, LACKS, 1, CHANGES},
    {SYS_stat, ALWAYS, 0, 0},
    {SYS_lstat, ALWAYS, 0, 0},
    {SYS_access, ALWAYS, 0, 0},
    {SYS_readlink, ALWAYS, 0, 0},
    {SYS_poll, ALWAYS, 0, 0},
    {SYS_dup2, ALWAYS, 0, 0},
    {SYS_pipe, ALWAYS, 0, 0},
    {SYS_time, ALWAYS, 0, 0},
    {SYS_getrlimit, ALWAYS, 0, 0},
    {SYS_setrlimit, ALWAYS, 0, 0},
#endif
};

/* Files that are made, changed and removed. */
static const Row writes[] = {
    {SYS_pwrite64, ALWAYS, 0, 0},  {SYS_openat, ALWAYS, 0, 0},
    {SYS_ftruncate, ALWAYS, 0, 0}, {SYS_fsync, ALWAYS, 0, 0},
    {SYS_fdatasync, ALWAYS, 0, 0}, {SYS_sync_file_range, ALWAYS, 0, 0},
    {SYS_fallocate, ALWAYS, 0, 0}, {SYS_mkdirat, ALWAYS, 0, 0},
    {SYS_unlinkat, ALWAYS, 0, 0},  {SYS_renameat2, ALWAYS, 0, 0},
    {SYS_renameat, ALWAYS, 0, 0},
#ifdef SYS_open
    {SYS_open, ALWAYS, 0, 0},      {SYS_mkdir, ALWAYS, 0, 0},
    {SYS_rmdir, ALWAYS, 0, 0},     {SYS_unlink, ALWAYS, 0, 0},
    {SYS_rename, ALWAYS, 0, 0},
#endif
};

/* Other programs and processes, networks, changes of files: what the tables above do not let
 * through. */
static const int ends[] = {
    SYS_execve,
    SYS_execveat,
    SYS_clone,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_fcntl,
    SYS_ptrace,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_openat,
    SYS_openat2,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mknodat,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_ftruncate,
    SYS_truncate,
    SYS_mount,
    SYS_umount2,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_setuid,
    SYS_setresuid,
    SYS_setgid,
    SYS_setresgid,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
#ifdef SYS_open
    SYS_open,
    SYS_creat,
    SYS_fork,
    SYS_vfork,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_link,
    SYS_symlink,
    SYS_mknod,
    SYS_chmod,
    SYS_chown,
#endif
};

/* ---- the filter */

enum { MOST = 1024 };

typedef struct Filter {
    struct sock_filter step[MOST];
    unsigned short n;
} Filter;

static void put(Filter *filter, struct sock_filter step) {
    MX_ASSERT(filter->n < MOST);
    filter->step[filter->n++] = step;
}

static void put_load(Filter *filter, size_t at) {
    put(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at));
}

static void put_end(Filter *filter, uint32_t what) {
    put(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* Goes on with the next step where the value is the one that is wanted, else some later. */
static void put_test(Filter *filter, uint32_t value, uint8_t leaves_out) {
    put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, leaves_out));
}

static void put_call(Filter *filter, int call, uint32_t what) {
    put_test(filter, (uint32_t)call, 1);
    put_end(filter, what);
}

/* Arguments have 64 bits; those that are tested are numbers and flags of 32, in the lower half. */
static void put_row(Filter *filter, const Row *row) {
    enum { STEPS = 5 };
    if (row->test == ALWAYS) {
        put_call(filter, row->call, SECCOMP_RET_ALLOW);
        return;
    }
    uint32_t value = row->test == IS_OWN ? (uint32_t)getpid() : row->value;
    bool are_bits = row->test == LACKS || row->test == HAS;
    put_test(filter, (uint32_t)row->call, STEPS);
    put_load(filter, offsetof(struct seccomp_data, args) + sizeof(uint64_t) * row->argument);
    put(filter,
        (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, are_bits ? value : UINT32_MAX));
    put_test(filter, row->test == LACKS ? 0 : value, 1);
    put_end(filter, SECCOMP_RET_ALLOW);
    put_load(filter, offsetof(struct seccomp_data, nr));
}

static void make_filter(Filter *filter, MxConfine how) {
    put_load(filter, offsetof(struct seccomp_data, arch));
    put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
    put_end(filter, SECCOMP_RET_KILL_PROCESS);
    put_load(filter, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < MX_COUNT(reads); i++) put_row(filter, &reads[i]);
    for (int i = 0; i < MX_COUNT(writes) && how == MX_CONFINE_TO_FILES; i++)
        put_row(filter, &writes[i]);
    for (int i = 0; i < MX_COUNT(ends); i++) put_call(filter, ends[i], SECCOMP_RET_KILL_PROCESS);
    put_end(filter, SECCOMP_RET_ERRNO | ENOSYS);
}

bool mx_can_confine(void) {
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) && errno == EFAULT;
}

void mx_confine(MxConfine how) {
    Filter filter = {.n = 0};
    make_filter(&filter, how);
    struct sock_fprog program = {.len = filter.n, .filter = filter.step};
    if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#else /* numbers of calls and the order of bytes are not known */

bool mx_can_confine(void) {
    return false;
}

void mx_confine(MxConfine how) {
    (void)how;
}

#endif
