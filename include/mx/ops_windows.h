/* ops_windows.h — ops of windows: R consecutive tokens of a row (the ratio), window w being tokens
 * w R .. (w + 1) R - 1; a row of T tokens has W = T / R, tokens behind the last whole window are in
 * none. Their rows are pooled into single ones, which take the place of tokens as keys of
 * attention. Other letters in shapes are those of ops.h. */
#ifndef MX_OPS_WINDOWS_H
#define MX_OPS_WINDOWS_H

#include <mx/ops_layers.h>

typedef struct MxPoolAttr {
    int64_t ratio; /* tokens of a window, R, at least 1 */
    bool overlaps; /* a window's result is also of the tokens of the window before */
} MxPoolAttr;

/* mx_pool — a row for each window, the mean of its tokens' rows with weights of its own for each
 * column h: y[b, w, h] = sum over i < R of p_i x[b, w R + i, h], p the softmax over i of
 * gates[b, w R + i, h] + bias[i, h]. With attr.overlaps rows have two halves of H columns, and the
 * softmax and the sum have 2 R terms: those of the window before with the first half of columns
 * (x[b, (w - 1) R + i, h], gates likewise + bias[i, h]), and those of the window with the second
 * (column H + h, also of the bias). The window before is left out if there is none, or if its first
 * token and that of the window are of different segments. x, gates [B, T, E] of one dtype, T >= R;
 * bias f32 [R, E]; segments i32 [B, T]; y [B, W, H] of x's dtype, H = E, with attr.overlaps E / 2.
 * Source: DeepSeek-V4 (2026) 2.3; MaxText layers/attention_compressed.py (csa_overlap_pooling,
 * DeepseekV4HCACompressor) @e591f30c. */
MxValue mx_pool(MxTrace *t, MxValue x, MxValue gates, MxValue bias, MxValue segments,
                MxPoolAttr attr);

typedef struct MxWindowsAttr {
    int64_t ratio; /* R, at least 1 */
} MxWindowsAttr;

/* mx_windows — the windows that each token sees, i32 [B, T, ceil(W / 32)] in the form of
 * mx_attention_chosen: bit w % 32 of word w / 32 is 1 if window w is over, (w + 1) R <= t + 1, and
 * all its tokens are of t's segment, which is not 0 (padding). segments i32 [B, T], T >= R. Source:
 * DeepSeek-V4 (2026) 2.3; MaxText layers/attention_compressed.py (DeepseekV4Indexer) @e591f30c. */
MxValue mx_windows(MxTrace *t, MxValue segments, int64_t ratio);

#endif
