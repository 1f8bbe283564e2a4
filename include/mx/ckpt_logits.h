/* ckpt_logits.h — logits of prompts in files, compared. Part of ckpt.h. */
#ifndef MX_CKPT_LOGITS_H
#define MX_CKPT_LOGITS_H

#include <mx/base.h>

typedef struct MxLogitsHow {
    int64_t top_k; /* likeliest tokens that are compared */
} MxLogitsHow;

/* Over all tokens of all prompts. */
typedef struct MxLogitsReport {
    int64_t n_prompts, n_tokens;
    double mean_kl, largest_kl;  /* of a token, KL(second || first), nats */
    double same_top, shared_top; /* parts of 1: of tokens with the same likeliest one; of the top_k
                                    of one that are among those of the other, the mean of tokens */
    double largest;              /* difference of two logits */
} MxLogitsReport;

/* mx_logits_compare — two files of logits of the same prompts: prompts/<i>/ids [T] and
 * prompts/<i>/logits [T, V], i of six digits from 0, or input_ids [B, T] and logits [B, T, V].
 * Errors: they hold none, other prompts, or a vocabulary of another size (exit 65). Test:
 * tests/ckpt/test_logits.c, tests/cli/reply.sh. */
bool mx_logits_compare(const char *a, const char *b, const MxLogitsHow *how, MxLogitsReport *out,
                       MxError *err);

#endif
