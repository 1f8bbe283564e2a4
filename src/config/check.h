/* check.h — shared by the checks of combinations of values (check.c, check_batch.c, check_model.c,
 * …). A check is skipped if one of its keys has already been reported. */
#ifndef CONFIG_CHECK_H
#define CONFIG_CHECK_H

#include "room.h"

enum { CONFIG_LARGEST_SIZE = 1 << 30 };

/* Whether none of these keys has been reported. */
#define GOOD(load, ...)                                                                            \
    config_are_good((load), (const MxKey[]){__VA_ARGS__}, MX_COUNT(((const MxKey[]){__VA_ARGS__})))
bool config_are_good(const ConfigLoad *load, const MxKey *keys, int n);
/* config_culprit — of two keys the one that the user set, and of two set ones the later: its line
 * is shown. */
MxKey config_culprit(const ConfigLoad *load, MxKey a, MxKey b);

/* config_check_regex — that a pattern of a key is one. */
void config_check_regex(ConfigLoad *load, MxKey key, const char *pattern);

/* What a list of whole numbers from 0 on is to hold. */
typedef struct ConfigNumbers {
    const char *what; /* "layers" */
    int64_t low, high;
    int least, most; /* how many; most 0 = any number of them */
} ConfigNumbers;

/* config_whole — a whole number from 0 on; -1 = it is none. config_check_numbers — that a key holds
 * such a list; false after an error. */
int64_t config_whole(const MxYaml *node);
bool config_check_numbers(ConfigLoad *load, MxKey key, const MxYaml *list, ConfigNumbers wanted);

/* config_check_run — its name, and what is traced; config_check_batch — batches; config_check_model
 * — sizes, heads, windows, experts, positions; config_check_compressed — compressed attention;
 * config_check_recall — n-gram memories; config_check_preference — losses of pairs and the
 * reference; config_check_rewards — prompts and batches of rewards; config_check_vision and
 * config_check_audio — encoders of images; config_check_data — files, columns, tokenizers, and what
 * the objectives need of them.
 */
void config_check_run(ConfigLoad *load, const MxConfig *config);
void config_check_batch(ConfigLoad *load, const MxConfig *config);
void config_check_model(ConfigLoad *load, const MxConfig *config);
void config_check_compressed(ConfigLoad *load, const MxConfig *config);
void config_check_recall(ConfigLoad *load, const MxConfig *config);
void config_check_preference(ConfigLoad *load, const MxConfig *config);
void config_check_rewards(ConfigLoad *load, const MxConfig *config);
void config_check_vision(ConfigLoad *load, const MxConfig *config);
void config_check_audio(ConfigLoad *load, const MxConfig *config);
void config_check_data(ConfigLoad *load, const MxConfig *config);

#endif
