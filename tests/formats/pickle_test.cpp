#include <lockstep/formats/torch_file/read_pickle.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/encoding/pickle_writer.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using namespace std::string_literals;

std::string protocol_2(const std::string& opcodes) { return "\x80\x02"s + opcodes; }

template <class Value>
Value value_of(const std::string& opcodes) {
  return std::get<Value>(
      torch_file::read_pickle(as_bytes(protocol_2(opcodes)), "x").value->content);
}

std::string message_of_pickle(const std::string& pickle) {
  try {
    torch_file::read_pickle(as_bytes(pickle), "x");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Pickle, ReadsPlainValues) {
  EXPECT_EQ(value_of<bool>("\x88."), true);
  EXPECT_EQ(value_of<bool>("\x89."), false);
  EXPECT_EQ(value_of<std::int64_t>("K\xff."), 255);
  EXPECT_EQ(value_of<std::int64_t>("M\xff\xff."), 65535);
  EXPECT_EQ(value_of<std::int64_t>("J\xff\xff\xff\xff."), -1);
  EXPECT_EQ(value_of<std::int64_t>("\x8a\0."s), 0);
  EXPECT_EQ(value_of<std::int64_t>("\x8a\x01\x80."), -128);
  EXPECT_EQ(value_of<std::int64_t>("\x8a\x05\0\0\0\0\x01."s), std::int64_t{1} << 32);
  EXPECT_EQ(value_of<std::int64_t>("\x8a\x08\0\0\0\0\0\0\0\x80."s),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(value_of<double>("G\xbf\xf8\0\0\0\0\0\0."s), -1.5);
  EXPECT_EQ(value_of<std::string>(pickled_text("\xc3\xa4") + "."), "\xc3\xa4");
  EXPECT_EQ(value_of<std::string>("U\x02hi."), "hi");
  EXPECT_EQ(value_of<PickleTuple>("K\1K\2\x86.").items.size(), 2U);
  EXPECT_EQ(value_of<PickleTuple>(").").items.size(), 0U);
  EXPECT_EQ(value_of<PickleList>("](K\1K\2eK\3a.").items.size(), 3U);
  EXPECT_EQ(value_of<PickleName>("ctorch\nfloat32\n.").name, "torch.float32");
  value_of<PickleNone>("N.");
}

TEST(Pickle, ReadsWhatPythonWritesForTypesOfItsOwn) {
  EXPECT_EQ(value_of<PickleTuple>("ctorch\nSize\nK\2K\3\x86\x85R.").items.size(), 2U);
  EXPECT_EQ(value_of<std::string>("ctorch\ndevice\n" + pickled_text("cuda") + "K\1\x86R."),
            "cuda:1");
  EXPECT_EQ(value_of<PickleList>("c__builtin__\nset\n](K\1K\2e\x85R.").items.size(), 2U);
  EXPECT_EQ(value_of<PickleBytes>("c_codecs\nencode\n" + pickled_text("a\xc3\xbf") +
                                  pickled_text("latin1") + "\x86R.")
                .bytes,
            "a\xff");
  EXPECT_EQ(value_of<PickleDict>("ccollections\nCounter\n}K\1K\2s\x85R.").items.size(), 1U);
}

// pickle.dumps(value, protocol=2) of Python 3.12 writes the first four of these, Python 3.7 the
// last.
TEST(Pickle, ReadsBytesHoweverPythonWritesThem) {
  const std::string some = "c_codecs\nencode\n" + pickled_text("\x7f\xc2\x80\xc3\xbf") +
                           pickled_text("latin1") + "\x86R";
  EXPECT_EQ(value_of<PickleBytes>(some + ".").bytes, "\x7f\x80\xff");
  EXPECT_EQ(value_of<PickleBytes>("c__builtin__\nbytes\n)R.").bytes, "");
  EXPECT_EQ(value_of<PickleBytes>("c__builtin__\nbytearray\n)R.").bytes, "");
  EXPECT_EQ(value_of<PickleBytes>("c__builtin__\nbytearray\n" + some + "\x85R.").bytes,
            "\x7f\x80\xff");
  EXPECT_EQ(value_of<PickleBytes>("c__builtin__\nbytearray\n" + pickled_text("a\xc3\xbf") +
                                  pickled_text("latin-1") + "\x86R.")
                .bytes,
            "a\xff");
}

TEST(Pickle, ReadsBackWhatThePickleWriterWrites) {
  PickleWriter writer;
  writer.begin_dict();
  writer.text("epoch"), writer.integer(3);
  writer.text("rates"), writer.begin_list(), writer.number(0.1), writer.none(), writer.end_list();
  writer.text("large"), writer.integer(std::int64_t{1} << 40), writer.text("on"),
      writer.boolean(true);
  writer.integer(7), writer.text("key"), writer.text("zero"), writer.pair();
  writer.end_dict();
  const std::string bytes = writer.finish();
  const torch_file::Pickle pickle = torch_file::read_pickle(as_bytes(bytes + "more"), "x");
  EXPECT_EQ(pickle.bytes, bytes.size());
  const auto& dict = std::get<PickleDict>(pickle.value->content);
  EXPECT_EQ(dict.items.size(), 5U);
  EXPECT_EQ(std::get<std::int64_t>(dict.find("epoch")->content), 3);
  EXPECT_EQ(std::get<double>(std::get<PickleList>(dict.find("rates")->content).items[0]->content),
            0.1);
  EXPECT_EQ(std::get<std::int64_t>(dict.find("large")->content), std::int64_t{1} << 40);
  EXPECT_EQ(dict.find("missing"), nullptr);
}

TEST(Pickle, ReadsTensorsAndSharesWhatThePickleShares) {
  const torch_file::Pickle pickle = torch_file::read_pickle(as_bytes(python_state_pickle()), "x");
  const auto& dict = std::get<PickleDict>(pickle.value->content);
  ASSERT_EQ(dict.items.size(), 2U);
  const auto& a = std::get<PickleTensor>(dict.find("a")->content);
  const auto& b = std::get<PickleTensor>(dict.find("b")->content);
  EXPECT_EQ(a.storage->type, "FloatStorage");
  EXPECT_EQ(a.storage->key, "0");
  EXPECT_EQ(a.storage->location, "cpu");
  EXPECT_EQ(a.storage->elements, 6);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(a.strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(b.strides, (std::vector<std::int64_t>{1, 3}));
  const auto list = value_of<PickleList>("](]q\0h\0e."s);
  EXPECT_EQ(list.items[0], list.items[1]);
}

// A storage of six elements, and what describes a tensor [2, 3] over it from its second element on.
std::string pickled_storage(const std::string& type) {
  return "(" + pickled_text("storage") + "c" + type + "\n" + pickled_text("0") +
         pickled_text("cpu") + "K\6tQ";
}
std::string described_tensor(const std::string& storage) {
  return storage + "K\1K\2K\3\x86K\3K\1\x86";
}
constexpr const char* kNoHooks = "ccollections\nOrderedDict\n)R";

TEST(Pickle, ReadsTheTensorsOfEveryVersionOfPyTorch) {
  const std::string floats = described_tensor(pickled_storage("torch\nFloatStorage"));
  const std::string untyped = described_tensor(pickled_storage("torch.storage\nUntypedStorage"));
  const std::string hooks = std::string("\x89") + kNoHooks;
  const std::string v2 = "ctorch._utils\n_rebuild_tensor_v2\n(" + floats + hooks;
  const std::string v3 =
      "ctorch._utils\n_rebuild_tensor_v3\n(" + untyped + hooks + "ctorch\nuint16\n";
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n(" + v2 + "tR" + hooks + "tR.";
  const struct {
    std::string opcodes;
    const char* dtype;
  } cases[] = {{"ctorch._utils\n_rebuild_tensor\n(" + floats + "tR.", ""},
               {v2 + "tR.", ""},
               {v2 + "}tR.", ""},
               {v2 + "NtR.", ""},
               {v3 + "tR.", "uint16"},
               {v3 + "}tR.", "uint16"},
               {parameter, ""}};
  for (const auto& c : cases) {
    const auto tensor = value_of<PickleTensor>(c.opcodes);
    EXPECT_EQ(tensor.dtype, c.dtype);
    EXPECT_EQ(tensor.storage->elements, 6);
    EXPECT_EQ(tensor.offset, 1);
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(tensor.strides, (std::vector<std::int64_t>{3, 1}));
  }
}

TEST(Pickle, RefusesCallsWithOtherArguments) {
  const std::string encode = "c_codecs\nencode\n";
  const std::string floats = described_tensor(pickled_storage("torch\nFloatStorage"));
  const std::string v3 = "ctorch._utils\n_rebuild_tensor_v3\n(" + floats + "\x89" + kNoHooks;
  const std::string v2 = "ctorch._utils\n_rebuild_tensor_v2\n(" + floats + "\x89";
  const std::string storage = "(" + pickled_text("storage") + "ctorch\nFloatStorage\n";
  const std::pair<std::string, const char*> cases[] = {
      {encode + pickled_text("a") + "\x85R.", "_codecs.encode gets 1 argument, expected 2"},
      {encode + "K\1" + pickled_text("latin1") + "\x86R.",
       "gets a whole number as argument 1, expected a text"},
      {encode + pickled_text("a") + "N\x86R.", "gets None as argument 2, expected an encoding"},
      {encode + pickled_text("a") + pickled_text("utf-8") + "\x86R.",
       "gets an encoding other than latin1"},
      {encode + pickled_text("\xc4\x80") + pickled_text("latin1") + "\x86R.",
       "gets a character that latin1 lacks"},
      {encode + pickled_text("\xe2\x82\xac") + pickled_text("latin1") + "\x86R.",
       "gets a character that latin1 lacks"},
      {"c__builtin__\nbytearray\n" + pickled_text("a") + "\x85R.",
       "builtins.bytearray gets a text as argument 1, expected bytes"},
      {"ctorch._utils\n_rebuild_tensor\n(" + floats + "\x89tR.", "gets 5 arguments, expected 4"},
      {"ctorch._utils\n_rebuild_tensor\n(NK\0K\1\x85K\1\x85tR."s,
       "gets None as argument 1, expected a storage"},
      {v2 + "tR.", "gets 5 arguments, expected 6 to 7"},
      {v2 + "}K\1K\2stR.", "gets hooks, which Lockstep does not read"},
      {v2 + "}}K\1K\2stR.", "gets metadata, which Lockstep does not read"},
      {v2 + "K\1tR.", "gets hooks, which Lockstep does not read"},
      {v3 + "NtR.", "gets None as argument 7, expected a type"},
      {v3 + "ctorch\nSize\ntR.", "gets torch.Size as argument 7, expected a type"},
      {v3 + "ccollections\nCounter\ntR.", "gets collections.Counter as argument 7"},
      {v3 + "ctorch\nfloat32\n}K\1K\2stR.", "gets metadata, which Lockstep does not read"},
      {"ctorch._utils\n_rebuild_parameter\n(N\x89" + std::string(kNoHooks) + "tR.",
       "gets None as argument 1, expected a tensor"},
      {"ctorch\nSize\n]\x85R.", "gets a list as argument 1, expected a tuple"},
      {"c__builtin__\nset\n)\x85R.", "gets a tuple as argument 1, expected a list"},
      {"ccollections\nCounter\n]\x85R.", "gets a list as argument 1, expected a dictionary"},
      {"ctorch\ndevice\nK\1\x85R.", "gets a whole number as argument 1, expected the type"},
      {"ctorch\ndevice\n" + pickled_text("cuda") + "J\xff\xff\xff\xff\x86R.",
       "gets -1 as argument 2, expected the index of a device"},
      {storage + "K\0"s + pickled_text("cpu") + "K\1tQ.",
       "a persistent id gets a whole number as argument 3, expected a key"},
      {storage + pickled_text("0") + pickled_text("cpu") + "K\1K\2tQ.",
       "gets a whole number as argument 6, expected None"},
  };
  for (const auto& [opcodes, message] : cases) {
    EXPECT_THAT(message_of_pickle(protocol_2(opcodes)), ::testing::HasSubstr(message));
  }
}

// Nine bytes per level, each of which doubles the number of values.
std::string memo_bomb(int levels) {
  std::string opcodes = "]q\0"s;
  for (int i = 1; i < levels; ++i) {
    const char before = static_cast<char>(i - 1);
    opcodes += "](h"s + before + "h" + before + "eq" + static_cast<char>(i);
  }
  return opcodes + "e.";
}

TEST(Pickle, RefusesWhatIsWrong) {
  const std::string too_deep = std::string(200, ']') + std::string(199, 'a') + ".";
  struct Case {
    std::string opcodes;
    const char* message;
  };
  const Case cases[] = {
      {"cposix\nsystem\n" + pickled_text("true") + "\x85R.",
       "x: byte 2: the file names posix.system"},
      {"cos\nsystem\n.", "names os.system, which is not among"},
      {"c__builtin__\neval\n.", "names builtins.eval"},
      {"cbuiltins\ngetattr\n.", "names builtins.getattr"},
      {"ctorch._utils\n_rebuild_sparse_tensor\n.", "names torch._utils._rebuild_sparse_tensor"},
      {"ccollections\nOrderedDict.update\n.", "names collections.OrderedDict.update"},
      {"ctorch\nload\n.", "names torch.load"},
      {"ctorch\n.", "(truncated)"},
      {"ctorch\n a\n.", "a name holds something else than"},
      {"c" + std::string(300, 'a') + "\nb\n.", "a name holds something else than"},
      {"ctorch\nfloat32\n)R.", "calls torch.float32, which is not a function"},
      {"K\1)R.", "calls a whole number, expected a function"},
      {"ctorch\nSize\nK\1R.", "torch.Size gets a whole number, expected a tuple of arguments"},
      {"ctorch\nSize\n)R.", "torch.Size gets 0 arguments, expected 1"},
      {"ccollections\nOrderedDict\n]\x85R.", "gets 1 argument, expected 0"},
      {"]}b.", "sets attributes of a list"},
      {"}}b.", "sets attributes of a dictionary"},
      {"ccollections\nOrderedDict\n)RK\1b.", "sets attributes of"},
      {"ctorch\nFloatStorage\n)\x81.", "the opcode NEWOBJ"},
      {"(ios\nsystem\n.", "the opcode INST"},
      {"\x93.", "the opcode STACK_GLOBAL"},
      {"\x94.", "the opcode MEMOIZE"},
      {"\xff.", "the opcode 0xff"},
      {"I1\n.", "the opcode INT"},
      {"P1\n.", "the opcode PERSID"},
      {memo_bomb(40), "parts are shared so often"},
      {too_deep, "nested more deeply than 100 times"},
      {"]q\0h\0a."s, "a value would contain itself"},
      {"]q\0](h\0e0."s, "the opcode POP"},
      {"]q\0](h\0eh\0K\1a."s, "a list changes when it is already a part of another value"},
      {"}q\0]h\0ah\0K\1K\2s."s, "a dictionary changes when it is already a part"},
      {"h\5.", "the memo has no entry 5"},
      {"a.", "needs 1 values, there are 0"},
      {"K\1(a.", "needs 1 values, there are 0"},
      {"e.", "needs a mark"},
      {"K\1.K\2", "nothing was thrown"},
      {"K\1K\2.", "values are left over"},
      {"(K\1.", "values are left over"},
      {".", "needs a value that is not there"},
      {"K\1K\2a.", "the opcode is for a list, got a whole number"},
      {"]K\1K\2s.", "the opcode is for a dictionary, got a list"},
      {"}(K\1u.", "a key without a value"},
      {"}" + pickled_text("k") + "K\1s" + pickled_text("k") + "K\2s.", "repeats the key 'k'"},
      {"}(K\1K\1K\1K\2u.", "repeats the key 1"},
      {"}]K\1s.", "gets a list as a key"},
      {"\x8a\x09"
       "123456789.",
       "an integer of 9 bytes"},
      {"X\xff\xff\xff\xff"
       "a.",
       "needs 4294967295 more bytes here, the file holds 2"},
      {"X\1\0\0\0\xff."s, "a text is not UTF-8"},
      {"K", "needs 1 more bytes here, the file holds 0 (truncated)"},
      {"K\1Q.", "a persistent id gets a whole number"},
      {"(" + pickled_text("module") + "NNNNtQ.", "refers to something else than a storage"},
      {"(" + pickled_text("storage") + "ctorch\nfloat32\n" + pickled_text("0") +
           pickled_text("cpu") + "K\1tQ.",
       "not a type of storage"},
      {"(" + pickled_text("storage") + "ctorch\nFloatStorage\n" + pickled_text("0") +
           pickled_text("cpu") + "J\xff\xff\xff\xfftQ.",
       "gets -1 as argument 5, expected a number of elements"},
  };
  for (const Case& c : cases) {
    const std::string message = message_of_pickle(protocol_2(c.opcodes));
    EXPECT_THAT(message, ::testing::HasSubstr(c.message));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(message_of_pickle("\x80\x04K\1."),
              ::testing::HasSubstr("pickle protocol 4, expected 2"));
  EXPECT_THAT(message_of_pickle("K\1."), ::testing::HasSubstr("not a pickle"));
  EXPECT_THAT(message_of_pickle(""), ::testing::HasSubstr("truncated"));
}

TEST(Pickle, RefusesTensorsThatAreNone) {
  const struct {
    std::string offset, shape, strides;
    const char* message;
  } cases[] = {
      {"J\xff\xff\xff\xff", "K\1\x85", "K\1\x85", "gets -1 as argument 2"},
      {"N", "K\1\x85", "K\1\x85", "gets None as argument 2"},
      {"K\1", "]", "K\1\x85", "gets a list as argument 3, expected a tuple of sizes"},
      {"K\1", "K\1\x85", "J\xff\xff\xff\xff\x85", "gets -1 in argument 4"},
      {"K\1", "K\1\x85", "N\x85", "gets None in argument 4"},
      {"K\1", "K\1K\1\x86", "K\1\x85", "gets 2 sizes and 1 strides"},
      {"K\1", "(" + std::string(130, 'K') + "t", "K\1\x85", "gets 65 numbers as argument 3"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(message_of_pickle(tensor_pickle("K\6", c.offset, c.shape, c.strides)),
                ::testing::HasSubstr(c.message));
  }
}

TEST(Pickle, BoundsTheNumberOfValues) {
  const std::string many = "](" + std::string(torch_file::kMaximumPickleValues, 'N') + "e.";
  EXPECT_THAT(message_of_pickle(protocol_2(many)),
              ::testing::HasSubstr("more than 2000000 values"));
}

TEST(Utf8, TellsTextFromOtherBytes) {
  for (const char* text :
       {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* bytes :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3("}) {
    EXPECT_FALSE(is_utf8(bytes));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
