/* generate_test.h — the suites of this room's tests. */
#ifndef TESTS_GENERATE_TEST_H
#define TESTS_GENERATE_TEST_H

#include <mx/generate.h>

#include <check.h>

Suite *generate_suite(void);
Suite *sample_suite(void);
Suite *sees_suite(void);
Suite *held_suite(void);
Suite *kept_suite(void);
Suite *replies_suite(void);

/* A run or a folder of Hugging Face's that generates. */
MxTrainState *open_source(MxArena *in, const char *dir, MxGeneration what);
extern const MxSampling greedy;

#endif
