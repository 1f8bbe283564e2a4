/* tools.h — the tools as black boxes: started as programs, looked at through their output and
 * files.
 */
#ifndef CKPT_TOOLS_H
#define CKPT_TOOLS_H

#include "ckpt_test.h"

#include <sys/types.h>

/* What the last tool printed, on stdout and stderr. */
extern const char *output;

/* tool_start — "<tool> <words>", split at blanks; {} in words is the test's folder. The tools lie
 * beside $MX_BIN. */
pid_t tool_start(const char *words);
/* tool_await — the exit code, or 128 + the signal that ended it. */
int tool_await(pid_t pid);
int tool(const char *fmt, ...) MX_PRINTF(1, 2);

/* The end of the output, as much as Check takes in a message. */
const char *tool_end(void);

#define ck_tool(want, ...)                                                                         \
    do {                                                                                           \
        int code_ = tool(__VA_ARGS__);                                                             \
        ck_assert_msg(code_ == (want), "exit %d, wanted %d: %s", code_, (want), tool_end());       \
    } while (0)

/* The output has these words. */
void ck_says(const char *words);

/* Files of the test's folder. */
MxBytes content(const char *name);
void put_content(const char *name, const void *data, size_t size);
void ck_same_bytes(const char *a, const char *b);

/* put_changed — a copy of a file, in which a word is another; word NULL = none is. */
void put_changed(const char *name, const char *from, const char *word, const char *instead);

/* One golden model; a folder of Hugging Face's. */
const char *model(const char *name);
const char *hf_model(const char *name);
/* put_hf_model — such a folder as "x"; in one of its files, config.json or model.safetensors, a
 * word is another. */
void put_hf_model(const char *name, const char *file, const char *word, const char *instead);

void put_floats(MxH5 *file, const char *path, const float *values, int n);
/* make_pair_file — a file with one parameter "decoder/x/scale" and, if `other` names one, one more
 * array, of zeros. */
void make_pair_file(const char *name, const float values[3], const char *other, MxShape shape,
                    MxDtype dtype);

#endif
