/* table.h — private to the room: rows of tables (Parquet, Arrow) as JSON records. A value that JSON
 * cannot express becomes an object whose only member has an empty name and says what it is. */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "fields.h"

/* table_text — bytes as a text, if they are UTF-8. table_real — a number. table_other — a value
 * that is told in words, which need no escaping. */
void table_text(MxText *row, const void *bytes, size_t n);
void table_real(MxText *row, double x);
void table_other(MxText *row, const char *fmt, ...) MX_PRINTF(2, 3);
/* table_name — the name of a member, with a comma before it unless it is the first. */
void table_name(MxText *row, bool is_first, const char *name);

/* table_parse — such a record, as RecordFormat wants it. */
bool table_parse(MxArena *arena, const char *bytes, size_t n, MxWhere where, Fields *out,
                 bool *goes_on, MxError *err);

#endif
