/* slabs.c — products whose columns are computed a slab at a time. */
#include "slabs.h"

enum { COLUMNS_ALIKE = 64 };

Slabs slabs_of(CpuMatmulSpec spec, int64_t most, int64_t each, size_t bytes) {
    int64_t columns = most / cpu_max(1, each) / COLUMNS_ALIKE * COLUMNS_ALIKE;
    Slabs s = {.spec = spec, .columns = cpu_min(cpu_max(columns, COLUMNS_ALIKE), spec.n)};
    s.last = spec.n ? spec.n - (spec.n - 1) / s.columns * s.columns : 0;
    s.bytes = cpu_padded((size_t)(s.columns * each) * bytes);
    return s;
}

static CpuMatmulSpec slab_spec(const Slabs *s, int64_t columns) {
    CpuMatmulSpec spec = s->spec;
    spec.n = columns;
    return spec;
}

size_t slabs_scratch(const MxDevice *device, const Slabs *s) {
    size_t each = cpu_matmul_scratch(device, slab_spec(s, s->columns));
    size_t last = cpu_matmul_scratch(device, slab_spec(s, s->last));
    return s->bytes + (each > last ? each : last);
}

bool slabs_prepare(MxDevice *device, Slabs *s, MxError *err) {
    s->product = cpu_matmul_prepare(device, slab_spec(s, s->columns), err);
    s->last_product = s->product ? cpu_matmul_prepare(device, slab_spec(s, s->last), err) : NULL;
    return s->last_product != NULL;
}

const CpuMatmul *slabs_product(const Slabs *s, int64_t n) {
    return n == s->columns ? s->product : s->last_product;
}
