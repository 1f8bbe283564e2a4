/* generate.h — generating text and tokens with a model: its weights, the choice of the next token,
 * the end of a reply. program.h runs the model; the trainer's loop is not needed. */
#ifndef MX_GENERATE_H
#define MX_GENERATE_H

#include <mx/chat.h>
#include <mx/ckpt.h>
#include <mx/data_images.h>
#include <mx/guide.h>
#include <mx/program.h>
#include <mx/text.h>

/* ---- choice of the next token */

/* What is added to a token's logit. */
typedef struct MxBias {
    int32_t id;
    float value;
} MxBias;

/* How a token is chosen. Zeros with top_p = 1 and repetition_penalty = 1 choose the likeliest. */
typedef struct MxSampling {
    double temperature; /* logits are divided by it; 0 = the likeliest token */
    int64_t top_k;      /* sample from this many likeliest tokens; 0 = from all */
    double top_p;       /* sample from the fewest tokens whose probabilities add up to this */
    double min_p;       /* sample from tokens at least this likely, relative to the likeliest */
    double repetition_penalty; /* divides logits of earlier tokens, or multiplies those below 0 */
    /* Subtracted from logits of the reply's earlier tokens: once, and for each time it occurred. */
    double presence_penalty, frequency_penalty;
    const MxBias *biases; /* [n_biases] ids that the model has */
    int64_t n_biases;
    uint64_t seed;
    bool tempers_last; /* top_k, top_p and min_p cut before the temperature, not after it */
    bool tempers;      /* reported log-probabilities are those at the temperature */
} MxSampling;

/* mx_sampling_check — errors (exit 2): numbers out of range. */
bool mx_sampling_check(const MxSampling *how, MxError *err);

/* A chosen token. */
typedef struct MxChoice {
    int32_t id;
    double logprob; /* natural logarithm of its probability according to the model, before
                       MxSampling is applied, unless `tempers` is set */
} MxChoice;

/* mx_sample — the next token of a sequence. Biases come first, then the penalties of repetition,
 * frequency and presence, as in vLLM, then the temperature, top_k, top_p and min_p, as in
 * transformers, or the temperature last, as in MaxText's decode. Of equally
 * likely tokens the one with the lower id comes first. The choice depends only on the numbers, the
 * seed, the stream and the position.
 *   logits  [vocab]
 *   seen    the sequence so far, including its prompt of n_prompt tokens
 *   stream  number of the sequence, for random numbers; the position is the sequence's length
 * Source: transformers 5.23, generation/logits_process.py; MaxText src/maxtext/inference/
 * inference_utils.py @e591f30c; vLLM 0.11, v1/sample/sampler.py; OpenAI's formula of the penalties
 * of frequency and presence. Test: tests/generate/test_sample.c. */
MxChoice mx_sample(const MxSampling *how, const float *logits, int64_t vocab, const MxTokens *seen,
                   int64_t n_prompt, uint64_t stream);

/* mx_likeliest — the n likeliest tokens, the likeliest first, of equally likely ones that with the
 * lower id, with log-probabilities according to the model. n is at most vocab. */
void mx_likeliest(const float *logits, int64_t vocab, int64_t n, MxChoice *out);

/* ---- sequences */

/* A prompt. */
typedef struct MxPrompt {
    MxTokens tokens;
    /* With images: the image row that each token stands for (mx_seer_index) [tokens.n]; the
     * pictures; and, after mx_prompt_look has read them, their views. NULL = no images. */
    const int32_t *image;
    MxPictures *pictures;
    MxViews views;
    MxGuide *guide; /* of its reply, in mx_generate; NULL = that of MxGenerate */
} MxPrompt;

/* The reply to a prompt. */
typedef struct MxReply {
    MxTokens tokens;
    int64_t n_echoed;    /* so many of the first ones are the prompt's */
    float *logprobs;     /* [tokens.n] see MxChoice; NAN of a prompt's first token, which nothing
                            foretells */
    const MxChoice *top; /* [tokens.n, n_top] see mx_likeliest; not set where logprobs are NAN */
    int64_t n_top;
    const char *text;
    size_t text_bytes;
    bool is_cut; /* truncated at max_tokens */
} MxReply;

typedef struct MxGenerate {
    MxSampling sampling;
    int64_t max_tokens;           /* maximum number of tokens of a reply; 0 = only the prompt is
                                     processed */
    bool echoes;                  /* a reply's tokens begin with those of the prompt; the state has
                                     all_logits */
    int64_t n_top;                /* likeliest tokens reported for each one of a reply; 0 = none */
    const MxTokenizer *tokenizer; /* NULL = only ids, no text */
    const int32_t *ends;          /* [n_ends] a reply ends with one of these tokens */
    int n_ends;
    const int32_t *shown; /* [n_shown] special tokens whose text a reply has, too */
    int n_shown;
    const char *const *stops; /* [n_stops] texts before which a reply's text ends; its tokens
                                 include those of the stop */
    int n_stops;
    /* Called with the text of a reply as it is generated, in whole characters; text that may begin
     * a stop is held back. NULL = none. */
    void (*say)(void *context, const char *text, size_t n);
    void *context;
    MxGuide *guide;  /* a reply becomes a text of its grammar, or is cut; NULL = any text */
    uint64_t stream; /* number of the first prompt, for random numbers; the next ones follow … */
    const int64_t *numbers; /* [n] … or, of mx_generate, have these, added to it; NULL = 0, 1, … */
    int64_t longest; /* of mx_generate: a prompt and its reply have at most so many tokens together;
                        0 = as many as max_tokens allows */
} MxGenerate;

/* Sequences that are generated together, as many as a state has rows. They join and leave between
 * two steps. The result of a sequence does not depend on the others; see mx_generation_run. Those
 * that wait with the same MxPrompt when it has been processed for one of them continue from a
 * copy. */
typedef struct MxSequences MxSequences;
MxSequences *mx_sequences_new(MxArena *arena, MxTrainState *state);
/* mx_sequences_join — adds a sequence with a prompt that mx_prompt_check has accepted; returns its
 * number, or -1 if all rows are in use.
 *   arena, how, prompt  must live until it leaves; pixels must be there before the next step
 *   stream  its number for random numbers; that of `how` is ignored */
int mx_sequences_join(MxSequences *sequences, MxArena *arena, const MxGenerate *how,
                      const MxPrompt *prompt, uint64_t stream);
/* mx_sequences_step — processes the next piece of an unfinished prompt, and generates the next
 * token of every sequence whose prompt is finished. Returns whether any sequence continues. */
bool mx_sequences_step(MxSequences *sequences);
bool mx_sequences_is_over(const MxSequences *sequences, int i);
/* mx_sequences_reply — the reply of a sequence so far, in its arena. mx_sequences_leave — the same,
 * and frees its row. */
MxReply mx_sequences_reply(const MxSequences *sequences, int i);
MxReply mx_sequences_leave(MxSequences *sequences, int i);
/* mx_prompt_check — errors (exit 65): no tokens, ids that the model lacks, or longer than the
 * state's capacity with `more` tokens added. name: name of the prompt, for messages. */
bool mx_prompt_check(const MxTrainState *state, const char *name, const MxPrompt *prompt,
                     int64_t more, MxError *err);

/* mx_generate — a reply to each prompt, as many at a time as the state has rows. Equal prompts one
 * behind the other go through the model once, as many as there are among these.
 *   out  [n] replies, in the arena
 * Errors: as of mx_prompt_check. */
bool mx_generate(MxArena *arena, MxTrainState *state, const MxGenerate *how,
                 const MxPrompt *prompts, int64_t n, MxReply *out, MxError *err);

/* mx_generate_logits — f32 [tokens.n, vocab] after each token of a sequence. The state has
 * all_logits. Errors: as of mx_generate. */
bool mx_generate_logits(MxArena *arena, MxTrainState *state, const MxPrompt *prompt, float **out,
                        MxError *err);

/* ---- prompts */

/* How prompts become tokens. */
typedef struct MxWords {
    const MxTokenizer *tokenizer; /* NULL = only ids are possible */
    const MxChat *chat;           /* for conversations; NULL = these are errors */
    MxSeer *seer;                 /* for images; NULL = these are errors */
} MxWords;

/* mx_prompts_read — prompts of a JSON Lines file: a line is a text, a list of ids, an object whose
 * "prompt" is one of these, or a conversation, an object with "messages", whose next message is the
 * reply. Objects may name images (mx_seer_find); items {"type": "image_url"} of messages, as in
 * OpenAI's interface, are treated as {"type": "image"}. Texts get the tokenizer's special tokens
 * (bos …), conversations those of the template. Errors: file and line, what was found, what was
 * wanted. Test: tests/cli/reply.sh. */
bool mx_prompts_read(MxArena *arena, const char *path, MxWords words, MxPrompt **out, int64_t *n,
                     MxError *err);

/* mx_prompt_read — one prompt, the value of a line. mx_prompt_look — reads the pixels of its
 * images, if it has any, into the arena. Errors: as of mx_seer_read. */
bool mx_prompt_read(MxArena *arena, MxWords words, const MxJson *json, MxWhere where, MxPrompt *out,
                    MxError *err);
bool mx_prompt_look(MxArena *arena, MxWords words, MxPrompt *prompt, MxError *err);

/* ---- models in folders */

/* The requested model and form of its weights. */
typedef struct MxWeights {
    const MxConfig *config; /* of mx_source_config, whose load_parameters_path, and with adapters
                               lora.lora_restore_path, have the weights; NULL = the folder's own */
    const char *dtype; /* of float weights and of activations; NULL = as in the folder or config */
    const char *kept;  /* kernels of layers: "nf4", "int8", "floats"; NULL = the same */
} MxWeights;

/* A model whose weights have not been read yet. */
typedef struct MxSource {
    MxCkptRef ref;
    const MxConfig *config;
    const char *base;     /* source of the weights; NULL = they are initialised from the seed */
    const char *adapters; /* source of the adapters; NULL = there are none, or the same */
    MxQtype kept;         /* see mx_model_keep; MX_NOT_QUANTIZED = as the config says */
    int32_t *ends;        /* [n_ends] tokens that end a text, from the folder */
    int n_ends;
} MxSource;

/* mx_source_config — loads a config for generation: data, batches and what else is only for
 * training are left out.
 *   request  its overrides are extended
 *   dtype    see MxWeights
 * Errors: as in mx_config_load.
 * mx_source_tokenizer — the tokenizer of a config: that of tokenizer_path, or the one that comes
 * with the weights; path: its file or folder, "" = bytes. mx_source_tokenizer_path — only the path.
 * Errors: there is none, damage. */
bool mx_source_config(MxArena *arena, const MxConfigRequest *request, const char *dtype,
                      MxConfig **out, MxError *err);
bool mx_source_tokenizer(MxArena *arena, const MxConfig *config, MxTokenizer **out,
                         const char **path, MxError *err);
bool mx_source_tokenizer_path(MxArena *arena, const MxConfig *config, const char **out,
                              MxError *err);

/* mx_source_load_adapters — adapters of a run, a checkpoint or a folder of peft's into a state.
 * team  see mx_store_verify. Errors: those of mx_ckpt_load_adapters and mx_peft_load; adapters with
 * another lora.lora_alpha than the config's, as far as a manifest tells theirs. */
bool mx_source_load_adapters(MxTrainState *state, const MxTeam *team, const char *path,
                             MxError *err);

/* mx_source_find — the source that mx_ckpt_find finds, with its config: a Hugging Face folder, or a
 * run or checkpoint of ours. With a config of its own, dir is NULL.
 *   sees  also use the encoders of images and sounds of a Hugging Face folder that are supported
 * Errors: no model, an unsupported model, no config (FILE.h5), damage; weights other than those
 * with which adapters were trained. */
bool mx_source_find(MxArena *arena, const char *dir, bool sees, MxWeights how, MxSource *out,
                    MxError *err);
/* mx_source_open — a state for generation, with the weights; adapters of a run are used with its
 * initial weights. If tokens of an image attend to each other, a chunk holds at least an image. */
bool mx_source_open(MxArena *arena, const MxSource *source, MxGeneration what, MxTrainState **out,
                    MxError *err);

/* ---- on stdout */

typedef struct MxSpeak {
    const char *prompts; /* a file, see mx_prompts_read; NULL = lines of stdin, as plain texts … */
    bool asks;           /* … or the prompt of the config (weights.config): its keys prompt,
                            add_bos, max_prefill_predict_length, autoregressive_decode_assert */
    bool talks;          /* these lines, or the prompt, are a user's messages in one conversation */
    const char *system;  /* the message before them; NULL = none */
    const char **images; /* [n_images] image files for the first message, or for every line */
    int n_images;
    const char **sounds; /* [n_sounds] the same of sound files */
    int n_sounds;
    const char *tokenizer_dir; /* the tokenizer's folder; NULL = there is none */
    const MxChat *chat;        /* for conversations; NULL = no template */
    const char *logits;        /* instead of replies: an HDF5 file that receives, for prompt i,
                                  prompts/<i>/ids, prompts/<i>/logits f32 [ids, vocab]; or NULL */
    MxWeights weights;
    const char **stops; /* [n_stops] see MxGenerate */
    int n_stops;
    const char *json_schema; /* a file: replies are JSON that this schema allows; NULL = any text */
    bool json; /* a line {"ids", "text", "logprobs"} for each prompt, "text" null without a
                  tokenizer, and "reasoning" before replies of json_schema; otherwise only text, as
                  it is generated */
    int64_t max_tokens;
    int64_t rows; /* prompts at a time, with json */
    MxSampling sampling;
} MxSpeak;

/* mx_speak_find — the model in a folder and the settings of its replies, without output; sees: as
 * in mx_source_find. mx_speak_words — how its prompts become tokens; only_data: as in MxSeerHow. */
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
    /* Columns, or text templates, with the names in lm-evaluation-harness; doc_to_choice may be a
     * JSON list. NULL = the columns of the first record. */
    const char *doc_to_text, *doc_to_choice, *doc_to_target;
    bool special; /* texts get the tokenizer's special tokens */
    MxWeights weights;
    const char **stops; /* [n_stops] that end an answer; none = a blank line */
    int n_stops;
    int64_t max_tokens; /* maximum number of tokens of an answer */
    int64_t length;     /* tokens of a row of texts, 0 = the state's capacity */
    bool json;          /* a line for each question, and one with the figures */
} MxTasks;

/* The questions of a task file, asked one by one. */
typedef struct MxExam MxExam;
enum { MX_EXAM_FIGURES = 4 };
/* mx_exam_read — reads and tokenizes the file. tokenizer and what must live as long as the exam.
 * Errors: malformed records; no token to begin with. */
bool mx_exam_read(MxArena *arena, const MxTokenizer *tokenizer, const MxTasks *what, MxExam **out,
                  MxError *err);
/* mx_exam_longest — tokens of the longest question with its answer, 0 = texts are cut into
 * rows; where receives its line, unless NULL. mx_exam_wants_logits — whether the
 * state must give all logits. mx_exam_count, mx_exam_unit — the number of questions, and their
 * unit: "questions", "texts". */
int64_t mx_exam_longest(const MxExam *exam, MxWhere *where);
bool mx_exam_wants_logits(const MxExam *exam);
int64_t mx_exam_count(const MxExam *exam);
const char *mx_exam_unit(const MxExam *exam);
/* mx_exam_begin — starts a new exam. ends: [n_ends] tokens that end an answer, kept; none = the
 * tokenizer's eos. mx_exam_ask — asks question i; line receives the result, in the arena, NULL for
 * texts. All ranks call it. mx_exam_figures — the figures of the questions asked so far; returns
 * their number. */
void mx_exam_begin(MxExam *exam, MxTrainState *state, const int32_t *ends, int n_ends);
bool mx_exam_ask(MxArena *arena, MxExam *exam, int64_t i, MxJson **line, MxError *err);
int mx_exam_figures(const MxExam *exam, const char *name[MX_EXAM_FIGURES],
                    double value[MX_EXAM_FIGURES]);

/* mx_evaluate_tasks — prints the figures of the model in a folder to stdout: acc and acc_norm of
 * choices, by their log-likelihood; exact_match of answers, greedy, ignoring spaces around them;
 * perplexity of texts. Errors: as in mx_speak; malformed records. Test: tests/cli/tasks.sh. */
bool mx_evaluate_tasks(MxArena *arena, const char *dir, const MxTokenizer *tokenizer,
                       const MxTasks *what, MxError *err);

#endif
