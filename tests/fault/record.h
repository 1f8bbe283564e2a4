/* record.h — how record.c writes down what power.c reads: heads, each with its names and data
 * behind it. */
#ifndef FAULT_RECORD_H
#define FAULT_RECORD_H

#include <stdint.h>

typedef enum RecordKind {
    RECORD_FILE,   /* a new file */
    RECORD_FOLDER, /* a new folder */
    RECORD_WRITE,  /* n bytes at an offset */
    RECORD_SIZE,   /* a file's size, in `at` */
    RECORD_SYNC,   /* of a file or a folder */
    RECORD_RENAME, /* a name, and what it becomes */
    RECORD_REMOVE, /* a file or a folder */
} RecordKind;

typedef struct RecordHead {
    uint32_t kind, name, to; /* lengths of the names */
    int64_t at;
    uint64_t n; /* bytes of data */
} RecordHead;

#endif
