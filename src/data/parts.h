/* parts.h — private to the room: the files of a mixture or of a TensorFlow dataset. */
#ifndef DATA_PARTS_H
#define DATA_PARTS_H

#include "source.h"

/* parts_of_mixture — config->path as a path, or as "PATH,WEIGHT;PATH,WEIGHT"; or the JSON file
 * config->mixture: {"name": {"path": PATH, "weight": WEIGHT}, …}. Weights are above 0; their sum
 * may be any. Source: MaxText grain_data_processing.py, get_datasets @e591f30c. parts_of_set — of
 * the folder config->path the split config->split of the set config->set,
 * "NAME[/CONFIG][:VERSION]", of which without a version the highest. All shards must be there.
 * Source: TensorFlow Datasets, the layout of its data_dir. */
bool parts_of_mixture(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err);
bool parts_of_set(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err);

#endif
