/* internal.h — shape rules and gradient helpers shared by several files of ops. */
#ifndef OPS_INTERNAL_H
#define OPS_INTERNAL_H

#include <mx/ops.h>

/* ops_infer_same — out 0 has the type of input 0, f32 or bf16. */
bool ops_infer_same(MxInfer *infer);
/* ops_same_type — checks that inputs a and b have one type. */
bool ops_same_type(MxInfer *infer, int a, int b);
/* ops_is_real — checks that input i is f32 or bf16. */
bool ops_is_real(MxInfer *infer, int i);
/* ops_is — checks an input's dtype and rank (rank < 0 = any). */
bool ops_is(MxInfer *infer, int i, MxDtype dtype, int rank);
/* ops_is_hyper — checks that input i holds the numbers of an update (MX_HYPER_*). */
bool ops_is_hyper(MxInfer *infer, int i);
/* ops_infer_dot, ops_cut_dot, ops_dot_flops, ops_print_dot — mx_dot's rules, for its first two
 * inputs; attributes start with an MxDotAttr. */
bool ops_infer_dot(MxInfer *infer);
void ops_cut_dot(MxFactors *f);
double ops_dot_flops(const MxType *in, const MxType *out, const void *attr);
void ops_print_dot(MxText *text, const void *attr);
/* ops_words_of — i32 words that hold a bit for each key or row. */
int64_t ops_words_of(int64_t keys);
/* ops_chunk_words — i32 words that hold a bit for each chunk of so many keys. */
int64_t ops_chunk_words(int64_t keys, int64_t chunk);
/* ops_is_chosen — whether input i is what was chosen of so many keys for queries [B, T, ..].
 * ops_are_chunks — the same of chunks of keys, for each head. */
bool ops_is_chosen(const MxInfer *infer, int i, int queries, int64_t keys);
bool ops_are_chunks(const MxInfer *infer, int i, int queries, int64_t keys, int64_t chunk);
/* ---- attention of queries [B, T, N, H], and its gradient: what kinds of it share. Inputs begin
 * with q, k, v and segments, outputs are o [B, T, N, W], log-sums and largest scores [B, N, T]; a
 * gradient has o, log-sums and do as its last inputs and makes those of q, k and v first. */

enum { OPS_Q, OPS_K, OPS_V, OPS_SEGMENTS, OPS_OF_GRADIENT = 3 };
/* Factors: sequences, queries, heads (of queries together with those of their keys). Keys are there
 * whole, or go around. */
enum { OPS_CUT_B, OPS_CUT_T, OPS_CUT_N };

/* ops_check_heads — that q, k and v have four dims and one dtype, and v's differ from k's at most
 * in width. ops_check_saved — the last inputs of a gradient. */
bool ops_check_heads(MxInfer *infer);
bool ops_check_saved(MxInfer *infer);
/* ops_infer_attention — the outputs. ops_attention_flops, ops_attention_grad_flops — for queries
 * that see so many keys on average. */
void ops_infer_attention(MxInfer *infer);
double ops_attention_flops(const MxType *in, double keys_seen);
double ops_attention_grad_flops(const MxType *in, double keys_seen);
/* ops_cut_attention — inputs q, k, v, segments, and the outputs; ops_cut_attention_grad — the same
 * inputs, the last ones, and the gradients of q, k and v. */
void ops_cut_attention(MxFactors *f);
void ops_cut_attention_grad(MxFactors *f);
/* ops_localize_attention — the queries of a share. */
void ops_localize_attention(const MxShare *share, void *attr);

/* ops_is_in_time — whether so many queries are among the tokens of as many keys. ops_keys_seen —
 * keys that an average query of so many tokens sees, segments aside. */
bool ops_is_in_time(const MxAttentionAttr *attr, int64_t queries, int64_t keys);
double ops_keys_seen(double length, const MxAttentionAttr *attr);
/* ops_ring_attention, ops_ring_attention_grad — MxOp.ring of attention and of its gradient. */
void ops_ring_attention(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in,
                        const void *attr, MxValue *out);
void ops_ring_attention_grad(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in,
                             const void *attr, MxValue *out);
/* ops_is_place — checks that inputs i and i + 1 are the positions of a piece [B, T] and its
 * sequences [B]. */
bool ops_is_place(MxInfer *infer, int i, int64_t B, int64_t T);
/* ops_print_attention — an MxAttentionAttr. ops_print_carries — an MxDeltaAttr. */
void ops_print_attention(MxText *text, const void *attr);
void ops_print_carries(MxText *text, const void *attr);

/* ops_check_logits — checks inputs of ops that make logits: h, w, targets (2) and `last`, integers
 * for every token; attributes start with an MxXentAttr. ops_logits_flops — what the logits cost;
 * ops_logits_grad_flops — with both gradients. ops_is_same_loss — whether two MxXentAttr, besides
 * their dtypes, ask for the same loss. */
bool ops_check_logits(MxInfer *infer, int last);
double ops_logits_flops(const MxType *in, const MxType *out, const void *attr);
double ops_logits_grad_flops(const MxType *in, const MxType *out, const void *attr);
bool ops_is_same_loss(const void *own, const void *other);
/* ops_distill_vjp — the rule of a student's loss, whose gradient has its inputs and the cotangent,
 * and gives dw and dh. ops_distill_infer — its outputs: the loss, and the sums. */
void ops_distill_vjp(const MxVjp *v, const MxOp *gradient);
void ops_distill_infer(MxInfer *infer);

/* ---- partition rules. All dims are MX_WHOLE when a rule is called. */

/* ops_new_factor — a factor that no dim belongs to yet. */
int ops_new_factor(MxFactors *f);
/* ops_cut_alike — a factor for each dim of output 0, to which the dims of every input and output of
 * its shape belong. */
void ops_cut_alike(MxFactors *f);
/* ops_cut_alike_linear — the same for ops that are linear in all their inputs together. */
void ops_cut_alike_linear(MxFactors *f);
/* ops_is_tail — whether a shape is the trailing dims of another. ops_cut_tail — the factors of
 * output 0 for input 1, which has its trailing dims. */
bool ops_is_tail(MxShape tail, MxShape of);
void ops_cut_tail(MxFactors *f);
/* ops_cut_lead — a factor for each of the first n dims of input 0, to which the leading dims of
 * every other input in the mask belong. */
void ops_cut_lead(MxFactors *f, int n, unsigned inputs);

#endif
