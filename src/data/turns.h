/* turns.h — private to the room: a prompt and its completion as turns of the model's format. */
#ifndef DATA_TURNS_H
#define DATA_TURNS_H

#include "images.h"

enum { TURNS = 2 };

/* turns_mark — a text with the encoder's mark in the place of each image_placeholder.
 * turns_make — a user's turn of text[0], so marked, with a mark for each of n images, those first
 * that have none in either text; and the model's of text[1]. Source: MaxText
 * multimodal/processor_gemma3.py, reformat_prompt_gemma3, and its neighbours @e591f30c. */
Field turns_mark(MxArena *arena, const Seer *seer, const Field *text);
void turns_make(MxArena *arena, const Seer *seer, int n_images, const Field text[TURNS],
                Field out[TURNS]);

#endif
