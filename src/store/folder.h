/* folder.h — private to the room: names that publish.c and folder.c share. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include <stdbool.h>

#define STORE_TEMP_PREFIX ".tmp."

/* store_is_folder — a folder itself, not a link to one, so that removing it stays inside. */
bool store_is_folder(const char *path);

#endif
