/* dtype.c — element types by name and size, and shapes. */
#include <mx/base.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[MX_DTYPE_COUNT] = {
#define MX_DTYPE(symbol, name, bytes) [MX_##symbol] = {name, bytes},
    MX_DTYPES(MX_DTYPE)
#undef MX_DTYPE
};

const char *mx_dtype_name(MxDtype dtype) {
    return dtypes[dtype].name;
}

size_t mx_dtype_bytes(MxDtype dtype) {
    return dtypes[dtype].bytes;
}

bool mx_dtype_is_float(MxDtype dtype) {
    return dtype == MX_F32 || dtype == MX_F64 || dtype == MX_F16 || dtype == MX_BF16;
}

bool mx_dtype_parse(const char *name, MxDtype *out) {
    for (int i = 0; i < MX_DTYPE_COUNT; i++)
        if (!strcmp(dtypes[i].name, name)) {
            *out = (MxDtype)i;
            return true;
        }
    return false;
}

int64_t mx_shape_count(MxShape shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++) n *= shape.dim[i];
    return n;
}

bool mx_shape_equal(MxShape a, MxShape b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

const char *mx_shape_text(MxArena *arena, MxShape shape) {
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "[");
    for (int i = 0; i < shape.rank; i++)
        mx_text_add(&text, "%s%lld", i ? ", " : "", (long long)shape.dim[i]);
    mx_text_add(&text, "]");
    return text.data;
}
