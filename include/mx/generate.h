/* generate.h — text and tokens out of a model: which weights, what comes next, when it ends. How
 * tokens go through the model is program.h's; the trainer's loop is not needed. */
#ifndef MX_GENERATE_H
#define MX_GENERATE_H

#include <mx/chat.h>
#include <mx/ckpt.h>
#include <mx/data_images.h>
#include <mx/program.h>
#include <mx/text.h>

/* ---- which token comes next */

/* How it is chosen. Zeros and top_p = 1, repetition_penalty = 1 choose the likeliest. */
typedef struct MxSampling {
    double temperature;        /* logits are divided by it; 0 = the likeliest token */
    int64_t top_k;             /* of so many likeliest tokens; 0 = of all */
    double top_p;              /* of the fewest whose probabilities add up to so much */
    double min_p;              /* of those at least so likely, as a part of the likeliest one */
    double repetition_penalty; /* logits of tokens seen before: divided by it, or, below 0, times it
                                */
    uint64_t seed;
    bool tempers; /* log-probabilities that are told are those at the temperature */
} MxSampling;

/* mx_sampling_check — Errors (exit 2): numbers out of their range. */
bool mx_sampling_check(const MxSampling *how, MxError *err);

/* A token that was chosen. */
typedef struct MxChoice {
    int32_t id;
    double logprob; /* natural logarithm of its probability as the model has it: before everything
                       of MxSampling, unless that tempers */
} MxChoice;

/* mx_sample — the next token of a sequence. The penalty comes first, then the temperature, top_k,
 * top_p and min_p, as in transformers. Of equally likely tokens the one with the lower id comes
 * first. The choice depends on the numbers, the seed, the stream and the place alone.
 *   logits  [vocab]
 *   seen    the sequence so far, its prompt included
 *   stream  which sequence it is, for random numbers; the place is the sequence's length
 * Source: transformers 5.23, generation/logits_process.py. Test: tests/generate/test_sample.c. */
MxChoice mx_sample(const MxSampling *how, const float *logits, int64_t vocab, const MxTokens *seen,
                   uint64_t stream);

/* ---- sequences */

/* What a reply follows. */
typedef struct MxPrompt {
    MxTokens tokens;
    /* With images: which row of all those that they become each token is (mx_seer_index)
     * [tokens.n]; which they are; and, once mx_prompt_look has read them, their views. NULL = it
     * has none. */
    const int32_t *image;
    MxPictures *pictures;
    MxViews views;
} MxPrompt;

/* What comes after a prompt. */
typedef struct MxReply {
    MxTokens tokens;
    float *logprobs; /* [tokens.n] see MxChoice */
    const char *text;
    size_t text_bytes;
    bool is_cut; /* it had max_tokens, and would have gone on */
} MxReply;

typedef struct MxGenerate {
    MxSampling sampling;
    int64_t max_tokens;           /* of a reply */
    const MxTokenizer *tokenizer; /* NULL = there are ids, no text */
    const int32_t *ends;          /* [n_ends] a reply ends with one of these tokens */
    int n_ends;
    const char *const *stops; /* [n_stops] texts before which a reply's text ends; its tokens end
                                 with those of the stop */
    int n_stops;
    /* Hears the text of a reply as it comes, whole characters; what may begin a stop waits. NULL =
     * nobody does. */
    void (*say)(void *context, const char *text, size_t n);
    void *context;
    uint64_t stream; /* of the first prompt, for random numbers; the next ones follow */
} MxGenerate;

/* Sequences that are generated together, as many as a state has rows. They join and leave between
 * two steps. What a sequence gets does not depend on the others; see mx_generation_run. */
typedef struct MxSequences MxSequences;
MxSequences *mx_sequences_new(MxArena *arena, MxTrainState *state);
/* mx_sequences_join — a sequence begins with a prompt that mx_prompt_check has let pass; its
 * number, or -1 if all rows are taken.
 *   arena, how, prompt  are there until it leaves; pixels before the next step
 *   stream  which it is, for random numbers; that of `how` is not looked at */
int mx_sequences_join(MxSequences *sequences, MxArena *arena, const MxGenerate *how,
                      const MxPrompt *prompt, uint64_t stream);
/* mx_sequences_step — the next piece of a prompt that has not gone through yet, and the next token
 * of every sequence whose prompt has. Returns whether any sequence goes on. */
bool mx_sequences_step(MxSequences *sequences);
bool mx_sequences_is_over(const MxSequences *sequences, int i);
/* mx_sequences_leave — what a sequence has so far, in its arena; its row is free. */
MxReply mx_sequences_leave(MxSequences *sequences, int i);
/* mx_prompt_check — Errors (exit 65): no tokens, ids that the model lacks, or, with `more` tokens,
 * longer than the state's capacity. name: of the prompt, for messages. */
bool mx_prompt_check(const MxTrainState *state, const char *name, const MxPrompt *prompt,
                     int64_t more, MxError *err);

/* mx_generate — a reply to each prompt, as many at a time as the state has rows.
 *   out  [n] replies, in the arena
 * Errors: as of mx_prompt_check. */
bool mx_generate(MxArena *arena, MxTrainState *state, const MxGenerate *how,
                 const MxPrompt *prompts, int64_t n, MxReply *out, MxError *err);

/* mx_generate_logits — f32 [tokens.n, vocab] after each token of a sequence. The state has
 * all_logits. Errors: as of mx_generate. */
bool mx_generate_logits(MxArena *arena, MxTrainState *state, const MxPrompt *prompt, float **out,
                        MxError *err);

/* ---- prompts */

/* What texts become tokens with. */
typedef struct MxWords {
    const MxTokenizer *tokenizer; /* NULL = there are only ids */
    const MxChat *chat;           /* of conversations; NULL = there are none */
    MxSeer *seer;                 /* of images; NULL = they are errors */
} MxWords;

/* mx_prompts_read — prompts of a JSON Lines file: a line is a text, a list of ids, an object whose
 * "prompt" is one of these, or a conversation, an object with "messages", whose next message is the
 * reply. Objects may name images (mx_seer_find); items {"type": "image_url"} of messages, as OpenAI
 * has them, count as {"type": "image"}. Texts get what the tokenizer puts around them (bos …),
 * conversations what the template does. Errors: file and line, what was found, what was wanted.
 * Test: tests/cli/reply.sh. */
bool mx_prompts_read(MxArena *arena, const char *path, MxWords words, MxPrompt **out, int64_t *n,
                     MxError *err);

/* mx_prompt_read — one of them, the value of a line. mx_prompt_look — reads the pixels of its
 * images, if it has any, into the arena. Errors: as of mx_seer_read. */
bool mx_prompt_read(MxArena *arena, MxWords words, const MxJson *json, MxWhere where, MxPrompt *out,
                    MxError *err);
bool mx_prompt_look(MxArena *arena, MxWords words, MxPrompt *prompt, MxError *err);

/* ---- models in folders */

/* How weights are to be here. */
typedef struct MxWeights {
    const char *dtype; /* of those that are floats, and of activations; NULL = as the folder says */
    const char *kept;  /* kernels of layers: in "nf4" or "int8", or "floats"; NULL = as the folder
                          has them */
} MxWeights;

/* A model that was found, its weights not yet read. */
typedef struct MxSource {
    MxCkptRef ref;
    const MxConfig *config;
    MxQtype kept;  /* see mx_model_keep; MX_NOT_QUANTIZED = as the config says */
    int32_t *ends; /* [n_ends] tokens that end a text, as the folder says */
    int n_ends;
} MxSource;

/* mx_source_find — what mx_ckpt_find finds, with its config: a folder of Hugging Face's, a run or a
 * checkpoint of ours.
 *   sees  of a folder of Hugging Face's its encoder of images too, if it has one that is built
 * Errors: no model, none that mxtrain does, no config (FILE.h5), damage; weights below adapters
 * that were trained over others. */
bool mx_source_find(MxArena *arena, const char *dir, bool sees, MxWeights how, MxSource *out,
                    MxError *err);
/* mx_source_open — a state that generates, with the weights; adapters that a run trained lie over
 * the weights that it began with. Where tokens of an image see each other a chunk holds an image at
 * least. */
bool mx_source_open(MxArena *arena, const MxSource *source, MxGeneration what, MxTrainState **out,
                    MxError *err);

/* ---- on stdout */

typedef struct MxSpeak {
    const char *prompts; /* a file, see mx_prompts_read; NULL = lines of stdin, texts as they are */
    bool talks;          /* those lines are a user's messages in one conversation */
    const char **images; /* [n_images] files of the first of these messages, or of every line */
    int n_images;
    const char *tokenizer_dir; /* the tokenizer's folder; NULL = there is none */
    const MxChat *chat;        /* of conversations; NULL = there is no template */
    const char *logits;        /* instead of replies: an HDF5 file that receives, of prompt i,
                                  prompts/<i>/ids and prompts/<i>/logits f32 [ids, vocab];
                                  NULL = none */
    MxWeights weights;
    const char **stops; /* [n_stops] see MxGenerate */
    int n_stops;
    bool json; /* a line {"ids", "text", "logprobs"} for each prompt, "text" null without a
                  tokenizer; else text alone, as it comes */
    int64_t max_tokens;
    int64_t rows; /* prompts at a time, with json */
    MxSampling sampling;
} MxSpeak;

/* mx_speak_find — the model in a folder, and how it replies, in silence; sees: as of
 * mx_source_find. mx_speak_words — what its prompts become tokens with; only_data: as MxSeerHow's.
 */
bool mx_speak_find(MxArena *arena, const char *dir, bool sees, const MxTokenizer *tokenizer,
                   const MxSpeak *what, MxSource *source, MxGenerate *how, MxError *err);
MxWords mx_speak_words(MxArena *arena, const MxSource *source, const MxTokenizer *tokenizer,
                       const MxSpeak *what, bool only_data);
/* mx_speak — replies of the model in a folder, on stdout.
 *   tokenizer  NULL = there is none */
bool mx_speak(MxArena *arena, const char *dir, const MxTokenizer *tokenizer, const MxSpeak *what,
              MxError *err);

/* ---- tasks */

typedef struct MxTasks {
    const char *path; /* JSON Lines: questions with choices or with answers, or texts */
    /* Columns, or templates of texts, as tasks of lm-evaluation-harness name them; doc_to_choice
     * may be a JSON list. NULL = the columns that the first record has. */
    const char *doc_to_text, *doc_to_choice, *doc_to_target;
    bool special; /* texts with what the tokenizer puts around them */
    MxWeights weights;
    const char **stops; /* [n_stops] that end an answer; none = a blank line */
    int n_stops;
    int64_t max_tokens; /* of an answer */
    bool json;          /* a line for each question, and one with the figures */
} MxTasks;

/* The questions of such a file, asked one by one. */
typedef struct MxExam MxExam;
enum { MX_EXAM_FIGURES = 4 };
/* mx_exam_read — reads the file, and makes tokens of it. tokenizer, what  are there as long as it
 * is. Errors: records that are none; no token to begin with. */
bool mx_exam_read(MxArena *arena, const MxTokenizer *tokenizer, const MxTasks *what, MxExam **out,
                  MxError *err);
/* mx_exam_longest — tokens of the longest question with its answer, 0 = texts are cut to rows of
 * the state's capacity; where  receives its line, unless NULL. mx_exam_wants_logits — of a state
 * that is asked. mx_exam_count, mx_exam_unit — how many there are of what: "questions", "texts". */
int64_t mx_exam_longest(const MxExam *exam, MxWhere *where);
bool mx_exam_wants_logits(const MxExam *exam);
int64_t mx_exam_count(const MxExam *exam);
const char *mx_exam_unit(const MxExam *exam);
/* mx_exam_begin — nothing has been asked yet. ends  [n_ends] tokens that end an answer, kept; none
 * = the tokenizer's eos. mx_exam_ask — question i; line  receives what it gave, in the arena, NULL
 * of texts. All ranks ask. mx_exam_figures — of what was asked; how many there are. */
void mx_exam_begin(MxExam *exam, MxTrainState *state, const int32_t *ends, int n_ends);
bool mx_exam_ask(MxArena *arena, MxExam *exam, int64_t i, MxJson **line, MxError *err);
int mx_exam_figures(const MxExam *exam, const char *name[MX_EXAM_FIGURES],
                    double value[MX_EXAM_FIGURES]);

/* mx_evaluate_tasks — figures of the model in a folder, on stdout: acc and acc_norm of choices, by
 * their log-likelihood; exact_match of answers, greedy, without spaces around; perplexity of texts.
 * Errors: as of mx_speak; records that are none. Test: tests/cli/tasks.sh. */
bool mx_evaluate_tasks(MxArena *arena, const char *dir, const MxTokenizer *tokenizer,
                       const MxTasks *what, MxError *err);

#endif
