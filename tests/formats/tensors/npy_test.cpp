#include <lockstep/formats/npy.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Npy, ReadsAnArray) {
  const std::string file = npy_array("<i8", "(2, 3)", pattern(48));
  EXPECT_EQ(file.find('\n') % 64, 63U) << "as numpy.save pads the header";
  const TensorView view = formats::parse_npy(as_bytes(file), "x");
  EXPECT_EQ(view.dtype, "I64");
  EXPECT_THAT(view.shape, ElementsAre(2, 3));
  ASSERT_EQ(view.bytes.size(), 48U);
  EXPECT_EQ(reinterpret_cast<const char*>(view.bytes.data()), file.data() + file.size() - 48);
}

TEST(Npy, ReadsAllTypesOfNumbers) {
  const std::pair<const char*, const char*> types[] = {
      {"|b1", "BOOL"}, {"|u1", "U8"},  {"|i1", "I8"},  {"<u2", "U16"}, {"<i2", "I16"},
      {"<f2", "F16"},  {"<u4", "U32"}, {"<i4", "I32"}, {"<f4", "F32"}, {"<u8", "U64"},
      {"<i8", "I64"},  {"<f8", "F64"}, {"<c8", "C64"}};
  for (const auto& [type, dtype] : types) {
    const std::string file = npy_array(type, "(3,)", pattern(3 * safetensors_element_bytes(dtype)));
    const TensorView view = formats::parse_npy(as_bytes(file), "x");
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_THAT(view.shape, ElementsAre(3));
  }
}

TEST(Npy, ReadsOtherVersionsAndEmptyArrays) {
  const std::string dict = "{'shape': (), \"fortran_order\": True, 'descr': '<f4'}\n";
  const std::string number = npy_file(dict, pattern(4));
  EXPECT_THAT(formats::parse_npy(as_bytes(number), "x").shape, IsEmpty());
  std::string second = number;
  second[6] = 2;
  second.insert(10, 2, '\0');
  EXPECT_EQ(formats::parse_npy(as_bytes(second), "x").bytes.size(), 4U);
  const std::string none = npy_array("<f4", "(0, 5)", "");
  EXPECT_THAT(formats::parse_npy(as_bytes(none), "x").shape, ElementsAre(0, 5));
}

TEST(Npy, SaysWhatItCannotRead) {
  const auto dict = [](const std::string& type, const std::string& order,
                       const std::string& shape) {
    return "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  const std::string usual = dict("'<f4'", "False", "(2, 2)");
  const std::pair<std::string, const char*> cases[] = {
      {"PK\3\4 an archive of numpy.savez", "is not a file of numpy.save (.npy)"},
      {std::string("\x93NUMPY\4\0\1\0", 10), "has version 4 of the format, expected 1 to 3"},
      {std::string("\x93NUMPY\1\0\5", 9), "truncated"},
      {npy_file(usual, "").substr(0, 20), "the header claims"},
      {npy_file(usual, pattern(15)), "truncated, got 15 bytes after the header, expected 16"},
      {npy_file(usual, pattern(17)), "oversized, got 17 bytes after the header, expected 16"},
      {npy_file(dict("'>f4'", "False", "(1,)"), pattern(4)), "holds big-endian numbers"},
      {npy_file(dict("'|O'", "False", "(1,)"), pattern(8)), "holds elements of type '|O'"},
      {npy_file(dict("'<U3'", "False", "(1,)"), pattern(12)), "holds elements of type '<U3'"},
      {npy_file(dict("''", "False", "(1,)"), pattern(12)), "holds elements of type ''"},
      {npy_file(dict("[('a', '<f4')]", "False", "(1,)"), pattern(4)), "holds records"},
      {npy_file(dict("'<f4'", "True", "(2, 2)"), pattern(16)), "numpy.ascontiguousarray(array)"},
      {npy_file(dict("'<f4'", "0", "(2, 2)"), pattern(16)), "expected a dict such as"},
      {npy_file(dict("'<f4'", "False", "(-2, 2)"), pattern(16)), "expected a dict such as"},
      {npy_file(dict("'<f4'", "False", "[2, 2]"), pattern(16)), "expected a dict such as"},
      {npy_file("{'descr': '<f4', 'descr': '<f4'}", ""), "expected a dict such as"},
      {npy_file("{'descr': '<f4'} x", ""), "expected a dict such as"},
      {npy_file("{'descr': '<f4', 'shape': (2,)}", pattern(8)), "lacks descr, fortran_order or"},
      {npy_file(dict("'<f4'", "False", "(4611686018427387904, 4)"), pattern(4)),
       "the shape asks for more than memory can hold"}};
  for (const auto& [file, expected] : cases) {
    const std::string message =
        message_of<DataError>([&file = file] { formats::parse_npy(as_bytes(file), "a.npy"); });
    EXPECT_THAT(message, StartsWith("a.npy: "));
    EXPECT_THAT(message, HasSubstr(expected));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
