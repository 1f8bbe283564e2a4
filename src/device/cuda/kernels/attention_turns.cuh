/* attention_turns.cuh — the gradient of attention by one kernel, for what attention_turns_can says.
 */
#ifndef ATTENTION_TURNS_CUH
#define ATTENTION_TURNS_CUH

#include "attention.cuh"

bool attention_turns_can(const AttentionView *view, MxDtype dtype);
/* attention_turns_run — of a view whose row_sums are there. It carves attention_turns_bytes from
 * scratch. */
size_t attention_turns_bytes(const AttentionView *view);
void attention_turns_run(const MxDevice *device, const AttentionView *view, void **scratch);

#endif
