/* events.c — event files of TensorBoard: TFRecord records (a length, data, a masked CRC-32C of
 * each), whose data are protocol buffer messages (tf.Event), written field by field. Source:
 * TensorFlow core/lib/io/record_writer.cc and core/util/event.proto, core/framework summary.proto
 * and tensor.proto; names and texts as in MaxText metric_logger.py @e591f30c.
 *
 * A run that resumes adds a file. Its first records say that a session starts at that step: readers
 * drop that step and later ones of earlier files. */
#include "metrics_forms.h"

#include <mx/train.h>

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Messages in the making, inner ones first; kept, so that steps allocate nothing. */
typedef struct Events {
    MxText value, summary, event;
} Events;

/* ---- protocol buffers */

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

static void add_varint(MxText *out, uint64_t value) {
    for (; value > 0x7f; value >>= 7) mx_text_addn(out, &(char){(char)(value | 0x80)}, 1);
    mx_text_addn(out, &(char){(char)value}, 1);
}

static void add_fixed(MxText *out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) mx_text_addn(out, &(char){(char)(value >> 8 * i)}, 1);
}

static void add_key(MxText *out, int field, int type) {
    add_varint(out, (uint64_t)(field << 3 | type));
}

static void add_int(MxText *out, int field, int64_t value) {
    add_key(out, field, VARINT);
    add_varint(out, (uint64_t)value);
}

static void add_double(MxText *out, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(out, field, FIXED64);
    add_fixed(out, bits, sizeof bits);
}

static void add_float(MxText *out, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(out, field, FIXED32);
    add_fixed(out, bits, sizeof bits);
}

static void add_bytes(MxText *out, int field, const char *bytes, size_t n) {
    add_key(out, field, BYTES);
    add_varint(out, n);
    mx_text_addn(out, bytes, n);
}

static void add_string(MxText *out, int field, const char *s) {
    add_bytes(out, field, s, strlen(s));
}

static void add_message(MxText *out, int field, const MxText *message) {
    add_bytes(out, field, message->data, message->len);
}

/* ---- events, by the numbers of their fields */

enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_FILE_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE, VALUE_TENSOR = 8, VALUE_METADATA };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_STRING = 8, DT_STRING = 7 };
enum { SHAPE_DIM = 2, DIM_SIZE = 1 };

static void put_fixed(FILE *stream, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) putc((int)(value >> 8 * i & 0xff), stream);
}

static void put_record(FILE *stream, const MxText *data) {
    enum { LENGTH_BYTES = 8, SUM_BYTES = 4 };
    uint8_t length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)((uint64_t)data->len >> 8 * i);
    fwrite(length, 1, sizeof length, stream);
    put_fixed(stream, mx_crc32c_masked(length, sizeof length), SUM_BYTES);
    fwrite(data->data, 1, data->len, stream);
    put_fixed(stream, mx_crc32c_masked(data->data, data->len), SUM_BYTES);
}

static void begin_event(MxText *event, int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    mx_text_clear(event);
    add_double(event, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    if (step) add_int(event, EVENT_STEP, step);
}

static void write_version(FILE *stream, MxText *event) {
    begin_event(event, 0);
    add_string(event, EVENT_FILE_VERSION, "brain.Event:2");
    put_record(stream, event);
}

static void write_start(FILE *stream, Events *e, int64_t step) {
    begin_event(&e->event, step);
    mx_text_clear(&e->value);
    add_int(&e->value, SESSION_STATUS, SESSION_START);
    add_message(&e->event, EVENT_SESSION, &e->value);
    put_record(stream, &e->event);
}

/* A text: a tensor of one string, for TensorBoard's plugin of texts. */
static void write_text(MxArena *arena, FILE *stream, Events *e, int64_t step, const char *name,
                       const char *text) {
    MxText dim, shape, tensor, plugin, metadata,
        *all[] = {&dim, &shape, &tensor, &plugin, &metadata};
    for (int i = 0; i < MX_COUNT(all); i++) mx_text_init(all[i], arena);
    add_int(&dim, DIM_SIZE, 1);
    add_message(&shape, SHAPE_DIM, &dim);
    add_int(&tensor, TENSOR_DTYPE, DT_STRING);
    add_message(&tensor, TENSOR_SHAPE, &shape);
    add_string(&tensor, TENSOR_STRING, text);
    add_string(&plugin, PLUGIN_NAME, "text");
    add_message(&metadata, METADATA_PLUGIN, &plugin);
    mx_text_clear(&e->value);
    add_string(&e->value, VALUE_TAG, mx_arena_printf(arena, "%s/text_summary", name));
    add_message(&e->value, VALUE_TENSOR, &tensor);
    add_message(&e->value, VALUE_METADATA, &metadata);
    mx_text_clear(&e->summary);
    add_message(&e->summary, SUMMARY_VALUE, &e->value);
    begin_event(&e->event, step);
    add_message(&e->event, EVENT_SUMMARY, &e->summary);
    put_record(stream, &e->event);
}

/* All metrics of a step in one event. */
static void events_write(const MetricsOut *out, int64_t step, const Metrics *metrics) {
    Events *e = out->own;
    mx_text_clear(&e->summary);
    for (int i = 0; i < metrics->n; i++) {
        mx_text_clear(&e->value);
        add_string(&e->value, VALUE_TAG, metrics->name[i]);
        add_float(&e->value, VALUE_SIMPLE, (float)metrics->value[i]);
        add_message(&e->summary, SUMMARY_VALUE, &e->value);
    }
    begin_event(&e->event, step);
    add_message(&e->event, EVENT_SUMMARY, &e->summary);
    put_record(out->stream, &e->event);
}

/* ---- files */

static const char file_prefix[] = "events.out.tfevents.";

/* A new name in a folder, behind all that are there: readers take files by name, so the time in it
 * is later than theirs even if the clock says otherwise. */
static bool name_file(MxArena *arena, const char *dir, const char **path, MxError *err) {
    char **names, host[128] = "";
    int n;
    long long at = (long long)time(NULL);
    if (!mx_dir_make(dir, err) || !mx_dir_list(arena, dir, &names, &n, err)) return false;
    for (int i = 0; i < n; i++) {
        if (!mx_text_has_prefix(names[i], file_prefix)) continue;
        long long other = strtoll(names[i] + strlen(file_prefix), NULL, 10);
        if (other >= at && other < INT32_MAX) at = other + 1;
    }
    gethostname(host, sizeof host - 1);
    *path = mx_path_join(
        arena, dir,
        mx_arena_printf(arena, "%s%010lld.%s.%ld", file_prefix, at, host, (long)getpid()));
    return true;
}

/* What MaxText writes about a run: its size and every key of its config. */
static void write_texts(MxArena *arena, const MetricsSetup *setup, const MetricsOut *out) {
    const MxConfig *c = setup->config;
    int64_t step = setup->first_step;
    write_text(arena, out->stream, out->own, step, "num_model_parameters",
               mx_arena_printf(arena, "%lld", (long long)setup->n_parameters));
    for (int key = 0; key < MX_KEY_COUNT; key++)
        write_text(arena, out->stream, out->own, step, mx_key_name((MxKey)key),
                   mx_config_value(arena, c, (MxKey)key));
}

static bool events_open(MxArena *arena, const MetricsSetup *setup, MetricsOut *out, MxError *err) {
    MxArena scratch = {.name = "events"};
    Events *e = out->own = mx_new(arena, Events);
    const char *dir = out->path;
    if (!name_file(arena, dir, &out->path, err) || !metrics_stream_open(arena, out, true, err))
        return false;
    mx_text_init(&e->value, arena);
    mx_text_init(&e->summary, arena);
    mx_text_init(&e->event, arena);
    write_version(out->stream, &e->event);
    write_start(out->stream, e, setup->first_step);
    write_texts(&scratch, setup, out);
    mx_arena_release(&scratch);
    mx_log("To see full metrics 'tensorboard --logdir=%s'", dir);
    return !fflush(out->stream) || mx_fail_errno(err, "could not write \"%s\"", out->path);
}

static void events_write_text(const MetricsOut *out, int64_t step, const char *name,
                              const char *text) {
    MxArena scratch = {.name = "events"};
    write_text(&scratch, out->stream, out->own, step, name, text);
    mx_arena_release(&scratch);
}

const MetricsForm metrics_events = {
    .open = events_open,
    .write = events_write,
    .write_text = events_write_text,
};
