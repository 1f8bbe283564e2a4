/* types.c — types written as text. */
#include "ops_test.h"

#include <stdlib.h>

static MxDtype dtype_of(char letter) {
    switch (letter) {
    case 'f':
        return MX_F32;
    case 'b':
        return MX_BF16;
    case 'i':
        return MX_I32;
    case 'd':
        return MX_F64;
    default:
        ck_abort_msg("no dtype '%c'", letter);
    }
}

int parse_types(const char *text, MxType types[MOST_TYPES]) {
    int n = 0;
    while (*text) {
        ck_assert_int_lt(n, MOST_TYPES);
        MxType type = {.dtype = dtype_of(*text++)};
        while (*text && *text != ' ') {
            char *end;
            type.shape.dim[type.shape.rank++] = strtoll(text, &end, 10);
            ck_assert_msg(end != text, "\"%s\" is no number", text);
            text = *end == ',' ? end + 1 : end;
        }
        while (*text == ' ') text++;
        types[n++] = type;
    }
    return n;
}
