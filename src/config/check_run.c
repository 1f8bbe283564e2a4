/* check_run.c — the name of a run, and the steps that are traced. */
#include "check.h"

/* Ours: a run stays inside its folder, and its folder can be named on a terminal. */
static void check_run_name(ConfigLoad *load, const MxConfig *c) {
    const char *name = c->run_name;
    if (!GOOD(load, MX_KEY_run_name, MX_KEY_model_name)) return;
    bool has_control = false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        has_control |= *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0);
    const char *why = strchr(name, '/')                           ? "has a slash"
                      : has_control                               ? "has a control character"
                      : !strcmp(name, ".") || !strcmp(name, "..") ? "is no name"
                                                                  : NULL;
    if (!why) return;
    config_fail(load, MX_KEY_run_name,
                "%s %s; wants the name of one folder below base_output_directory",
                has_control ? "the name" : mx_arena_printf(load->arena, "\"%s\"", name), why);
}

/* As MaxText has it: a profile that never begins is a mistake. */
static void check_profiler(ConfigLoad *load, const MxConfig *c) {
    const MxKey skip = MX_KEY_skip_first_n_steps_for_profiler,
                period = MX_KEY_profile_periodically_period;
    if (!*c->profiler || !GOOD(load, MX_KEY_profiler, skip, period, MX_KEY_profiler_steps)) return;
    if (GOOD(load, MX_KEY_steps) && c->steps > 0 && c->skip_first_n_steps_for_profiler >= c->steps)
        config_fail(load, skip, "%lld, but the run has %lld steps: none would be traced",
                    (long long)c->skip_first_n_steps_for_profiler, (long long)c->steps);
    if (c->profile_periodically_period > 0 && c->profile_periodically_period < c->profiler_steps)
        config_fail(load, period, "%lld; wants at least profiler_steps (%lld), or -1",
                    (long long)c->profile_periodically_period, (long long)c->profiler_steps);
}

void config_check_run(ConfigLoad *load, const MxConfig *c) {
    check_run_name(load, c);
    check_profiler(load, c);
}
