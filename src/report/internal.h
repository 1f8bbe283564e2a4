/* internal.h — what the files of this room share. */
#ifndef REPORT_INTERNAL_H
#define REPORT_INTERNAL_H

#include <mx/report.h>

/* report_config_text — a run's config.yml; NULL = it cannot be read, or is no text. */
const char *report_config_text(MxArena *arena, const char *folder);

/* report_bytes — "9.24 MiB"; report_time — "2026-11-23 02:38:12", UTC. */
const char *report_bytes(MxArena *arena, int64_t bytes);
const char *report_time(MxArena *arena, int64_t seconds);

#endif
