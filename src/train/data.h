/* data.h — private to the room: what the config says about data, as the data room wants it. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <mx/config.h>
#include <mx/data.h>

/* train_data_config — the data of training or evaluation; evaluation is in order and one epoch. */
MxDataConfig train_data_config(const MxConfig *config, const MxTokenizer *tokenizer, bool is_eval);

#endif
