#include <lockstep/launch/line_merger.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::launch {
namespace {

struct Write {
  std::size_t writer;
  const char* text;  // null: the writer has ended
};

std::string merge(LineMerger& merger, const std::vector<Write>& writes) {
  std::string merged;
  for (const Write& write : writes) {
    merged += write.text ? merger.add(write.writer, write.text) : merger.flush(write.writer);
  }
  return merged;
}

TEST(LineMerger, KeepsLinesWhole) {
  struct Case {
    const char* what;
    std::vector<Write> writes;
    const char* merged;
    const char* labelled;
  };
  const Case cases[] = {
      {"lines", {{0, "a\nb\n"}, {1, "c\n"}}, "a\nb\nc\n", "0:a\n0:b\n1:c\n"},
      {"halves", {{0, "a"}, {1, "c"}, {0, "b\n"}, {1, "d\n"}}, "ab\ncd\n", "0:ab\n1:cd\n"},
      {"a line and a half", {{0, "a\nb"}, {1, "c\n"}, {0, "\n"}}, "a\nc\nb\n", "0:a\n1:c\n0:b\n"},
      {"empty lines", {{0, "\n\n"}, {1, "\n"}}, "\n\n\n", "0:\n0:\n1:\n"},
      {"last words", {{0, "a\nlast"}, {0, nullptr}}, "a\nlast", "0:a\n0:last"},
      {"last words of two", {{0, "a"}, {1, "b"}, {0, nullptr}, {1, nullptr}}, "a\nb", "0:a\n1:b"},
      {"a line after last words", {{0, "a"}, {0, nullptr}, {1, "b\n"}}, "a\nb\n", "0:a\n1:b\n"},
      {"words after last words", {{0, "a"}, {0, nullptr}, {0, "b\n"}}, "ab\n", "0:ab\n"},
      {"a progress bar",
       {{0, "\r 10%"}, {1, "\r 20%"}, {0, "\r 30%"}, {1, "x\n"}, {0, nullptr}},
       "\r\r 10%\r 20%x\n 30%",
       "0:\r1:\r0: 10%\r1: 20%x\n0: 30%"},
      {"carriage return and newline",
       {{0, "a\r"}, {1, "b\n"}, {0, "\n"}},
       "b\na\r\n",
       "1:b\n0:a\r\n"},
      {"nothing", {{0, ""}, {0, nullptr}, {1, nullptr}}, "", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    LineMerger plain({"", ""});
    EXPECT_EQ(merge(plain, c.writes), c.merged);
    LineMerger labelled({"0:", "1:"});
    EXPECT_EQ(merge(labelled, c.writes), c.labelled);
  }
}

TEST(LineMerger, PassesOnWhatHasNoEnd) {
  LineMerger merger({"", ""});
  const std::string piece(LineMerger::kLongestLine, 'x');
  EXPECT_EQ(merger.add(0, piece), "");
  EXPECT_EQ(merger.add(0, "y"), piece + "y");
  EXPECT_EQ(merger.add(0, "z"), "");
  EXPECT_EQ(merger.flush(0), "z");
}

// A line that is passed on in pieces has one label, unless another writer's line comes between.
TEST(LineMerger, LabelsALongLineAgainAfterAnotherLine) {
  LineMerger merger({"0:", "1:"});
  const std::string piece(LineMerger::kLongestLine + 1, 'x');
  EXPECT_EQ(merger.add(0, piece), "0:" + piece);
  EXPECT_EQ(merger.add(0, piece), piece);
  EXPECT_EQ(merger.add(1, "b\n"), "\n1:b\n");
  EXPECT_EQ(merger.add(0, "c\nd\n"), "0:c\n0:d\n");
  EXPECT_EQ(merger.add(1, piece), "1:" + piece);
  EXPECT_EQ(merger.add(1, "e\n"), "e\n");
}

// The text may arrive in pieces of any size.
TEST(LineMerger, ChangesNoByteOfASingleWriter) {
  std::string text(100000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i * 31 / 7);
  for (const std::size_t size : {1UL, 7UL, 4096UL, 1000000UL}) {
    LineMerger merger({"", ""});
    std::string merged;
    for (std::size_t at = 0; at < text.size(); at += size)
      merged += merger.add(0, text.substr(at, size));
    merged += merger.flush(0);
    EXPECT_TRUE(merged == text) << "in pieces of " << size;
  }
}

}  // namespace
}  // namespace lockstep::launch
