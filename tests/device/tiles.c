/* tiles.c — with MX_TILES_IN_C the room's tests see a processor with AMX, whose tiles are plain C
 * (tiles_in_c.h): the linker sends every call of cpu_level_find here. The rest of that level is
 * real, so the machine must reach avx512_bf16. */
#include "device/cpu/cpu.h"

#include <stdlib.h>

#if defined(__x86_64__)
extern const CpuKernels cpu_kernels_tiles_in_c;
const CpuLevel *__real_cpu_level_find(MxError *err);
const CpuLevel *__wrap_cpu_level_find(MxError *err);

const CpuLevel *__wrap_cpu_level_find(MxError *err) {
    static CpuLevel level;
    const CpuLevel *found = __real_cpu_level_find(err);
    const char *wanted = getenv("MX_TILES_IN_C");
    if (!found || !wanted || !found->has_bf16) return found;
    level = *found;
    level.label = "tiles in C";
    level.kernels = &cpu_kernels_tiles_in_c;
    level.has_tiles = true;
    return &level;
}
#endif
