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

/* ---- of pieces of sequences, whose tokens' rows are in caches
 *
 * The positions of a piece follow one another. A window ends with a piece if its last token is one
 * of the piece's; of T tokens these are at most P = ceil(T / R) windows. */

/* mx_cache_pool — mx_pool of the windows that end with a piece, in their order: [B, P, H] of the
 * caches' dtype, zeros where there are fewer than P. xs are the caches of x and of the gates,
 * [S, C, E] of one dtype, in which the piece's rows are; bias f32 [R, E]. C >= R - 1 + T, with
 * attr.overlaps 2 R - 1 + T, or all positions. The window before is left out only if there is none:
 * a sequence is one segment. Has no gradient. */
MxValue mx_cache_pool(MxTrace *t, const MxValue xs[2], MxValue bias, MxCachePlace place,
                      MxPoolAttr attr);

/* mx_cache_windows — the numbers of these windows, i32 [B, P], -1 where there are fewer: the
 * positions of mx_cache_pool's rows in a cache of pooled rows (mx_cache_write). */
MxValue mx_cache_windows(MxTrace *t, MxCachePlace place, int64_t ratio);

/* mx_cache_last_window — the number of the last window that is over at each token, (position + 1) /
 * R - 1, i32 [B, T]; -1 if there is none, and for padding. As positions of mx_cache_index over a
 * cache of pooled rows they let a token choose among the windows that are over. */
MxValue mx_cache_last_window(MxTrace *t, MxCachePlace place, int64_t ratio);

#endif
