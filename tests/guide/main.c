/* main.c — runs the suites of the room guide. */
#include "guide_test.h"
#include "common/suite.h"

#include <math.h>

enum { EOS = 257, VOCAB };

const MxVocabulary *guide_test_bytes(MxArena *arena) {
    static const int32_t eos = EOS;
    MxError err = {0};
    MxTokenizer *tokenizer;
    ck_assert(mx_tokenizer_open(arena, "byte", NULL, &tokenizer, &err));
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), EOS);
    return mx_vocabulary_new(arena, tokenizer, &eos, 1, NULL, 0);
}

bool guide_test_may_end(MxGuided *text) {
    float logits[VOCAB] = {0};
    mx_guided_limit(text, logits, VOCAB);
    return !isinf(logits[EOS]);
}

int main(void) {
    return RUN_SUITES(guide_suite(), schema_suite(), walks_suite());
}
