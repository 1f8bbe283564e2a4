/* image_test.h — the parts of this room's test program. */
#ifndef TESTS_IMAGE_IMAGE_TEST_H
#define TESTS_IMAGE_IMAGE_TEST_H

#include <check.h>

TCase *sound_case(void);

#endif
