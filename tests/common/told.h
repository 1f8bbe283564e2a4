/* told.h — metrics that parts of a program add to those of a step. */
#ifndef TESTS_COMMON_TOLD_H
#define TESTS_COMMON_TOLD_H

#include <mx/program.h>

#include <check.h>

/* The value of the last step; the metric must be there. */
static inline double told_value(const MxTrainState *state, const char *metric) {
    int n, i = 0;
    const MxTold *told = mx_train_told(state, &n);
    while (i < n && strcmp(told[i].metric, metric)) i++;
    ck_assert_msg(i < n, "no metric %s", metric);
    return told[i].value;
}

#endif
