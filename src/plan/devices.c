/* devices.c — the kinds of devices for which times are planned, one row each, and options that
 * replace numbers of a row. The speed of the CPU that plans is measured (mx_run_rates). */
#include "internal.h"

#include <mx/run.h>

#include <stdlib.h>

static const double GIGA = 1e9, BITS = 8;

/* ---- the machine that plans */

static bool measure(MxPlanDevice *out, MxError *err) {
    MxArena arena = {.name = "this machine"};
    MxDevice *device;
    MxRunRates rates = {0};
    bool ok = mx_device_open(&arena, &(MxDeviceConfig){0}, &device, err) &&
              mx_run_rates(device, &rates, err);
    out->f32_per_s = rates.f32_per_s;
    out->bf16_per_s = rates.bf16_per_s;
    out->touched_per_s = rates.touched_per_s;
    mx_arena_release(&arena);
    return ok;
}

/* ---- links */

/* "GBIT[:MICROSECONDS]" from *text on, which moves behind it. */
static bool read_link(const char **text, MxLink *out) {
    char *end;
    double gbit = strtod(*text, &end), micros = out->latency_s * 1e6;
    if (end == *text || !(gbit > 0) || gbit > 1e9) return false;
    if (*end == ':') {
        const char *start = end + 1;
        micros = strtod(start, &end);
        if (end == start || !(micros >= 0) || micros > 1e9) return false;
    }
    *text = end;
    *out = (MxLink){gbit * GIGA / BITS, micros * 1e-6};
    return true;
}

static bool read_links(const char *text, MxPlanDevice *out, MxError *err) {
    const char *at = text;
    bool ok = read_link(&at, &out->inside);
    if (ok && *at == ',') {
        at++;
        ok = read_link(&at, &out->between);
    }
    if (ok && !*at) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "--links wants Gbit/s and microseconds inside hosts and between them, as in "
                   "\"40:5,10:200\", found \"%s\"",
                   text);
}

/* ---- rows */

// clang-format off
static const MxPlanDevice devices[] = {
    {
        .name = "cpu",
        .doc = "a rank on the CPU that plans, with the threads that it has: rates are measured; ranks of a host exchange "
               "through its memory, hosts over 10 Gbit/s Ethernet",
        .product_share = 0.95, .kernel_s = 2e-6, .is_measured = true,
        .inside = {2.5e9, 20e-6}, .between = {1.18e9, 100e-6},
    },
    {
        .name = "h100",
        .doc = "NVIDIA H100 SXM, 80 GB: 67 TFLOP/s in f32, 989 in bf16, memory 3.35 TB/s, NVLink 450 GB/s each way among 8, "
               "400 Gbit/s InfiniBand each (NVIDIA H100 and DGX H100 data sheets)",
        .f32_per_s = 67e12, .bf16_per_s = 989e12, .product_share = 0.6, .touched_per_s = 3.35e12 * 0.8, .kernel_s = 4e-6,
        .memory_bytes = 80000000000, .host_devices = 8,
        .inside = {450e9 * 0.8, 10e-6}, .between = {50e9 * 0.8, 20e-6}, .hidden_share = 0.9,
    },
    {
        .name = "h200",
        .doc = "NVIDIA H200 SXM, 141 GB: an h100 with memory of 4.8 TB/s (NVIDIA H200 data sheet)",
        .f32_per_s = 67e12, .bf16_per_s = 989e12, .product_share = 0.6, .touched_per_s = 4.8e12 * 0.8, .kernel_s = 4e-6,
        .memory_bytes = 141000000000, .host_devices = 8,
        .inside = {450e9 * 0.8, 10e-6}, .between = {50e9 * 0.8, 20e-6}, .hidden_share = 0.9,
    },
    {
        .name = "tpu-v5p",
        .doc = "Google TPU v5p, 95 GB: 459 TFLOP/s in bf16 (f32 as six products of bf16), memory 2765 GB/s, 4800 Gbit/s to all "
               "neighbours of a slice, 50 Gbit/s a chip between slices (Google Cloud, TPU v5p)",
        .f32_per_s = 459e12 / 6, .bf16_per_s = 459e12, .product_share = 0.6, .touched_per_s = 2.765e12 * 0.8, .kernel_s = 2e-6,
        .memory_bytes = 95000000000, .host_devices = 0,
        .inside = {300e9 * 0.8, 5e-6}, .between = {6.25e9 * 0.8, 50e-6}, .hidden_share = 0.9,
    },
};
// clang-format on

const char mx_plan_device_names[] = "cpu|h100|h200|tpu-v5p";

static const MxPlanDevice *find(const char *name, MxError *err) {
    const char *names[MX_COUNT(devices)];
    for (int i = 0; i < MX_COUNT(devices); i++) {
        names[i] = devices[i].name;
        if (!strcmp(name, names[i])) return &devices[i];
    }
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "unrecognized device \"%s\"; there are %s", name,
            mx_plan_device_names);
    const char *nearest = mx_nearest(name, names, MX_COUNT(devices));
    if (nearest) mx_note(err, "hint: did you mean \"%s\"?", nearest);
    return NULL;
}

bool mx_plan_device(MxArena *arena, const char *name, const char *links, double gib,
                    MxPlanDevice *out, MxError *err) {
    const MxPlanDevice *row = find(name, err);
    if (!row) return false;
    *out = *row;
    if (links && !read_links(links, out, err)) return false;
    if (gib > 0) out->memory_bytes = (int64_t)(gib * (double)(1 << 30));
    if (!out->memory_bytes) out->memory_bytes = mx_memory_limits(arena, "/").memory.bytes;
    return !row->is_measured || measure(out, err);
}
