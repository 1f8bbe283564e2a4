/* base_confine.h — processes that may do no more than read files of others. */
#ifndef MX_BASE_CONFINE_H
#define MX_BASE_CONFINE_H

#include <stdbool.h>

/* What a process may still do that reads files of others. */
typedef enum MxConfine {
    MX_CONFINE_TO_READING, /* compute, open files for reading, write to what is open */
    MX_CONFINE_TO_FILES,   /* and make, change and remove files */
} MxConfine;
/* mx_confine — from now on the process, which has one thread, does no more than that, and threads
 * that it starts do not either: no other programs or processes, no networks. A call that only code
 * from such a file would make ends it with SIGSYS. Where the system has no means for that nothing
 * changes: mx_can_confine. */
void mx_confine(MxConfine how);
bool mx_can_confine(void);

#endif
