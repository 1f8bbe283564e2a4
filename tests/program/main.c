/* main.c — runs the suites of the room program. */
#include "program_test.h"
#include "common/suite.h"

#include <math.h>
#include <stdlib.h>

MxConfig *program_config(MxArena *arena, const char *words, const char *more) {
    enum { MOST = 64 };
    const char *files[] = {"configs/base.yml"}, *overrides[MOST];
    char *text = mx_arena_printf(arena, "override_model_config=true %s %s", words, more), *save;
    MxConfigRequest request = {.files = files, .n_files = 1, .overrides = overrides};
    MxError err = {0};
    MxConfig *config = NULL;
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(request.n_overrides, MOST);
        overrides[request.n_overrides++] = w;
    }
    ck_assert_msg(mx_config_load(arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

double program_error(const float *got, const float *want, int64_t n) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return difference > 0 ? sqrt(difference / norm) : difference;
}

int main(void) {
    return RUN_SUITES(state_suite(), figures_suite());
}
