/* test_proto.c — messages of protocol buffers against the bytes that their documentation and
 * Google's encoder give, and bytes that are none. */
#include "base_test.h"

static MxProto message(const char *bytes, size_t n) {
    return mx_proto_of(bytes, n);
}

/* protobuf.dev, Encoding: 150 is 96 01; "testing" in field 2; a message of it in field 3. */
START_TEST(fields_are_the_documented_ones) {
    MxProto m = message("\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01", 17);
    MxProtoField f, inner;
    ck_assert(mx_proto_next(&m, &f));
    ck_assert(f.number == 1 && f.wire == MX_PROTO_VARINT && f.value == 150);
    ck_assert(mx_proto_next(&m, &f));
    ck_assert(f.number == 2 && f.wire == MX_PROTO_BYTES && f.value == 7);
    ck_assert_mem_eq(f.bytes.at, "testing", 7);
    ck_assert(mx_proto_next(&m, &f) && f.number == 3);
    ck_assert(mx_proto_next(&f.bytes, &inner) && inner.value == 150);
    ck_assert(!mx_proto_next(&f.bytes, &inner) && !f.bytes.why);
    ck_assert(!mx_proto_next(&m, &f) && !m.why);
}
END_TEST

/* google.protobuf 6: FloatValue and DoubleValue of -2.5, Int64Value of -1. */
START_TEST(numbers_of_every_width) {
    MxProto f32 = message("\x0d\x00\x00\x20\xc0", 5);
    MxProto f64 = message("\x09\x00\x00\x00\x00\x00\x00\x04\xc0", 9);
    MxProto i64 = message("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    MxProtoField f;
    ck_assert(mx_proto_next(&f32, &f) && f.wire == MX_PROTO_32 && f.value == 0xc0200000);
    ck_assert(mx_proto_next(&f64, &f) && f.wire == MX_PROTO_64 && f.value == 0xc004ull << 48);
    ck_assert(mx_proto_next(&i64, &f) && f.value == UINT64_MAX);
}
END_TEST

static const struct {
    const char *bytes;
    size_t n;
    const char *why;
} damaged[] = {
    {"\x08\x96", 2, "it ends in a number"},
    {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "longer than 64 bits"},
    {"\x0d\x00\x00\x20", 4, "it ends in a field"},
    {"\x09\x00\x00\x20", 4, "it ends in a field"},
    {"\x12\x08testing", 9, "longer than what is left"},
    {"\x00\x01", 2, "no number"},
    {"\x0b\x0c", 2, "a type that is not known"},
};

START_TEST(what_is_no_message_is_told) {
    MxProto m = message(damaged[_i].bytes, damaged[_i].n);
    MxProtoField f;
    ck_assert(!mx_proto_next(&m, &f));
    ck_assert_ptr_nonnull(m.why);
    ck_assert_ptr_nonnull(strstr(m.why, damaged[_i].why));
}
END_TEST

Suite *proto_suite(void) {
    Suite *suite = suite_create("proto");
    TCase *tcase = add_case(suite, "proto");
    tcase_add_test(tcase, fields_are_the_documented_ones);
    tcase_add_test(tcase, numbers_of_every_width);
    tcase_add_loop_test(tcase, what_is_no_message_is_told, 0, MX_COUNT(damaged));
    return suite;
}
