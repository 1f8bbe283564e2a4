/* level.c — processor levels: one table that says which kernels run, and what the libraries are
 * told, so that a whole run can be limited to a lower level than the machine's (MX_CPU), to see how
 * other processors behave. */
#include "cpu.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool has_avx512_vnni(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512_bf16(void) {
    return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16");
}

/* Matrix tiles of bf16: CPUID leaf 7, EDX bit 22; Linux gives a process their registers when it
 * asks. */
static bool has_amx(void) {
    enum { LEAF = 7, AMX_BF16 = 1 << 22, ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return has_avx512_bf16() && __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && d & AMX_BF16 &&
           syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

extern const CpuKernels cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_avx512_bf16;
#endif

extern const CpuKernels cpu_kernels_baseline;

static bool always(void) {
    return true;
}

static const CpuLevel levels[] = {
    {
        .name = "baseline",
        .label = "baseline vectors",
        .kernels = &cpu_kernels_baseline,
        .openblas_core = "Prescott",
        .onednn_isa = "SSE41",
        .is_here = always,
    },
#if defined(__x86_64__)
    {
        .name = "avx2",
        .label = "AVX2",
        .kernels = &cpu_kernels_avx2,
        .openblas_core = "Haswell",
        .onednn_isa = "AVX2",
        .is_here = has_avx2,
    },
    {
        .name = "avx512",
        .label = "AVX-512",
        .kernels = &cpu_kernels_avx512,
        .openblas_core = "SkylakeX",
        .onednn_isa = "AVX512_CORE",
        .is_here = has_avx512,
    },
    {
        .name = "avx512_vnni",
        .label = "AVX-512 with VNNI",
        .kernels = &cpu_kernels_avx512,
        .openblas_core = "SkylakeX",
        .onednn_isa = "AVX512_CORE_VNNI",
        .has_int8 = true,
        .is_here = has_avx512_vnni,
    },
    {
        .name = "avx512_bf16",
        .label = "AVX-512 with bf16",
        .kernels = &cpu_kernels_avx512_bf16,
        .openblas_core = "Cooperlake",
        .onednn_isa = "AVX512_CORE_BF16",
        .has_bf16 = true,
        .has_int8 = true,
        .is_here = has_avx512_bf16,
    },
    {
        .name = "amx",
        .label = "AVX-512 with bf16, AMX",
        .kernels = &cpu_kernels_avx512_bf16,
        .openblas_core = "Cooperlake",
        .onednn_isa = "AVX512_CORE_AMX",
        .has_bf16 = true,
        .has_int8 = true,
        .has_tiles = true,
        .is_here = has_amx,
    },
#endif
};

static const CpuLevel *highest(void) {
    const CpuLevel *level = &levels[0];
    for (int i = 1; i < MX_COUNT(levels) && levels[i].is_here(); i++) level = &levels[i];
    return level;
}

static void list_up_to(const CpuLevel *last, MxText *text) {
    for (const CpuLevel *level = levels; level <= last; level++)
        mx_text_add(text, "%s\"%s\"", level == levels ? "" : ", ", level->name);
}

/* The level that MX_CPU asks for. */
static const CpuLevel *named(const char *name, const CpuLevel *machine, MxError *err) {
    for (const CpuLevel *level = levels; level <= machine; level++)
        if (!strcmp(level->name, name)) return level;
    bool is_above = false;
    for (int i = 0; i < MX_COUNT(levels); i++) is_above |= !strcmp(levels[i].name, name);
    MxArena arena = {.name = "levels"};
    MxText text;
    mx_text_init(&text, &arena);
    list_up_to(machine, &text);
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
            is_above ? "MX_CPU: this processor has no \"%s\"; it has %s"
                     : "MX_CPU: unrecognized level \"%s\"; this processor has %s",
            name, text.data);
    mx_arena_release(&arena);
    return NULL;
}

/* Both libraries read their variable before they do anything. OpenBLAS is told in any case: the
 * versions that distributions carry take processors that are newer than they are for ancient ones.
 * What a user says holds, unless it goes beyond MX_CPU. */
static void cap_libraries(const CpuLevel *level, bool is_capped) {
    setenv("OPENBLAS_CORETYPE", level->openblas_core, is_capped);
    if (is_capped) setenv("ONEDNN_MAX_CPU_ISA", level->onednn_isa, 1);
}

const CpuLevel *cpu_level_find(MxError *err) {
    const char *name = getenv("MX_CPU");
    const CpuLevel *machine = highest(), *level = machine;
    if (name && *name) level = named(name, machine, err);
    if (level) cap_libraries(level, level != machine);
    return level;
}
