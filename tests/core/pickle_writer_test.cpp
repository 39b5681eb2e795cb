#include <lockstep/core/encoding/pickle_writer.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace lockstep {
namespace {

using namespace std::string_literals;

// The expected bytes are those of Python's pickle.dumps(value, 2) without its memo entries for
// texts and containers. flight_recorder_test.py loads real pickles in Python.
TEST(PickleWriter, WritesIntegersInTheShortestOfItsTwoForms) {
  const struct {
    std::int64_t value;
    std::string bytes;
  } cases[] = {
      {0, "\x80\x02J\0\0\0\0."s},
      {-1, "\x80\x02J\xff\xff\xff\xff."s},
      {std::numeric_limits<std::int32_t>::max(), "\x80\x02J\xff\xff\xff\x7f."s},
      {std::numeric_limits<std::int32_t>::min(), "\x80\x02J\0\0\0\x80."s},
      {std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1,
       "\x80\x02\x8a\x08\xff\xff\xff\x7f\xff\xff\xff\xff."s},
      {std::int64_t{1} << 31, "\x80\x02\x8a\x08\0\0\0\x80\0\0\0\0."s},
      {std::numeric_limits<std::int64_t>::min(), "\x80\x02\x8a\x08\0\0\0\0\0\0\0\x80."s},
  };
  for (const auto& each : cases) {
    PickleWriter pickle;
    pickle.integer(each.value);
    EXPECT_EQ(pickle.finish(), each.bytes) << each.value;
  }
}

TEST(PickleWriter, WritesContainersAroundTheirValues) {
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("a"), pickle.begin_list(), pickle.none(), pickle.boolean(true), pickle.end_list();
  pickle.text(""), pickle.text("x"), pickle.boolean(false), pickle.pair();
  pickle.end_dict();
  EXPECT_EQ(pickle.finish(),
            "\x80\x02}(X\x01\0\0\0a](N\x88"s + "eX\0\0\0\0X\x01\0\0\0x\x89\x86u."s);
}

TEST(PickleWriter, WritesNumbersWithTheirHighestByteFirst) {
  PickleWriter pickle;
  pickle.number(-1.5);
  EXPECT_EQ(pickle.finish(), "\x80\x02G\xbf\xf8\0\0\0\0\0\0."s);
}

TEST(PickleWriter, WritesCallsAndReferences) {
  PickleWriter pickle;
  pickle.ordered_dict();
  pickle.begin_items();
  pickle.text("a"), pickle.global("torch", "Size"), pickle.begin_tuple(), pickle.begin_tuple();
  pickle.end_tuple(), pickle.end_tuple(), pickle.call();
  pickle.text("b"), pickle.begin_tuple(), pickle.none(), pickle.end_tuple(), pickle.persistent_id();
  pickle.end_items();
  EXPECT_EQ(pickle.finish(),
            "\x80\x02"
            "ccollections\nOrderedDict\n)R(X\x01\0\0\0actorch\nSize\n((ttR"
            "X\x01\0\0\0b(NtQu."s);
}

}  // namespace
}  // namespace lockstep
