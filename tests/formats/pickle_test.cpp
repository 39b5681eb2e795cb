#include <lockstep/formats/torch_file/read_pickle.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/encoding/pickle_writer.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/torch_file.h>
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

std::vector<std::int64_t> numbers_of(const std::string& opcodes) {
  std::vector<std::int64_t> numbers;
  for (const PickleRef& item : value_of<PickleTuple>(opcodes).items) {
    numbers.push_back(std::get<std::int64_t>(item->content));
  }
  return numbers;
}

TEST(Pickle, ReadsTuplesOfEveryLengthInTheirOrder) {
  using ::testing::ElementsAre;
  EXPECT_THAT(numbers_of("K\1\x85."), ElementsAre(1));
  EXPECT_THAT(numbers_of("K\1K\2\x86."), ElementsAre(1, 2));
  EXPECT_THAT(numbers_of("K\1K\2K\3\x87."), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of("(K\1K\2K\3K\4t."), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(numbers_of("(t."), ElementsAre());
  EXPECT_THAT(numbers_of("(J\xff\xff\xff\x7fJ\0\0\0\x80M\0\x01t."s),
              ElementsAre(2147483647, -2147483648LL, 256));
}

// A pickle of more than 256 values has entries of its memo with numbers of four bytes.
TEST(Pickle, ReadsAMemoOfAnySize) {
  using ::testing::ElementsAre;
  EXPECT_THAT(numbers_of("(K\5q\1K\6r\1\1\0\0K\7r\1\0\1\0K\x08r\1\0\0\1"
                         "j\1\0\0\1j\1\0\1\0j\1\1\0\0j\1\0\0\0h\1t."s),
              ElementsAre(5, 6, 7, 8, 8, 7, 6, 5, 5));
  std::string opcodes = "(";
  for (int i = 0; i < 1000; ++i) {
    const char low = static_cast<char>(i & 255);
    const char high = static_cast<char>(i >> 8);
    opcodes += "M"s + low + high + (i < 256 ? "q"s + low : "r"s + low + high + "\0\0"s);
  }
  opcodes += "j\xe7\x03\0\0h\xffj\0\x01\0\0t."s;
  const std::vector<std::int64_t> numbers = numbers_of(opcodes);
  ASSERT_EQ(numbers.size(), 1003U);
  EXPECT_THAT(std::vector(numbers.begin() + 1000, numbers.end()), ElementsAre(999, 255, 256));
  EXPECT_THAT(message_of_pickle(protocol_2("K\1q\1j\1\1\0\0."s)),
              ::testing::HasSubstr("the memo has no entry 257"));
}

// pickletools.code2op names the opcodes, where a human reads of one.
TEST(Pickle, NamesEveryOpcodeThatItRefuses) {
  const std::map<unsigned char, std::string> names = {{'i', "INST"},
                                                      {'o', "OBJ"},
                                                      {'P', "PERSID"},
                                                      {'p', "PUT"},
                                                      {'g', "GET"},
                                                      {'0', "POP"},
                                                      {'1', "POP_MARK"},
                                                      {'2', "DUP"},
                                                      {'I', "INT"},
                                                      {'L', "LONG"},
                                                      {'F', "FLOAT"},
                                                      {'S', "STRING"},
                                                      {'V', "UNICODE"},
                                                      {'d', "DICT"},
                                                      {'l', "LIST"},
                                                      {0x81, "NEWOBJ"},
                                                      {0x82, "EXT1"},
                                                      {0x8b, "LONG4"},
                                                      {0x8c, "SHORT_BINUNICODE"},
                                                      {0x8f, "EMPTY_SET"},
                                                      {0x92, "NEWOBJ_EX"},
                                                      {0x93, "STACK_GLOBAL"},
                                                      {0x94, "MEMOIZE"},
                                                      {0x95, "FRAME"}};
  const std::string read = "N\x88\x89JKM\x8aGXU()\x85\x86\x87t]}aesuqrhjcRbQ.";
  std::size_t refused = 0;
  for (int code = 0; code < 256; ++code) {
    const auto opcode = static_cast<char>(code);
    const std::string message = message_of_pickle(protocol_2(std::string(1, opcode)));
    if (read.find(opcode) != std::string::npos) {
      EXPECT_EQ(message.find("the opcode 0x"), std::string::npos) << message;
      continue;
    }
    char hex[8];
    std::snprintf(hex, sizeof(hex), "0x%02x", static_cast<unsigned>(code));
    const auto name = names.find(static_cast<unsigned char>(code));
    EXPECT_EQ(message, str("x: byte 2: the opcode ", name == names.end() ? hex : name->second,
                           ", which is not among those of weights"));
    refused += name == names.end() ? 0 : 1;
  }
  EXPECT_EQ(refused, names.size());
}

// The types of torch.storage, and the dtypes of safetensors that hold the same numbers.
TEST(Pickle, TellsTheTypeOfATensorFromItsStorage) {
  const std::pair<const char*, const char*> cases[] = {
      {"FloatStorage", "F32"},     {"DoubleStorage", "F64"}, {"HalfStorage", "F16"},
      {"BFloat16Storage", "BF16"}, {"LongStorage", "I64"},   {"IntStorage", "I32"},
      {"ShortStorage", "I16"},     {"CharStorage", "I8"},    {"ByteStorage", "U8"},
      {"BoolStorage", "BOOL"}};
  const std::map<std::string, int> bytes = {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2},
                                            {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
                                            {"U8", 1},  {"BOOL", 1}};
  for (const auto& [storage, dtype] : cases) {
    std::string pickle = tensor_pickle("K\6", "K\1", "K\5\x85", "K\1\x85");
    pickle.replace(pickle.find("FloatStorage"), 12, storage);
    const std::string content = pattern(6 * static_cast<std::size_t>(bytes.at(dtype)));
    const std::string file = pack({.pickle = pickle, .storages = {{"0", content}}});
    const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
    ASSERT_EQ(parsed.tensors.size(), 1U) << storage;
    EXPECT_EQ(parsed.tensors[0].second.dtype, dtype) << storage;
    EXPECT_EQ(parsed.tensors[0].second.offset, 1) << storage;
  }
  const std::pair<const char*, const char*> untyped[] = {{"uint16", "U16"},
                                                         {"uint32", "U32"},
                                                         {"uint64", "U64"},
                                                         {"float8_e5m2", "F8_E5M2"},
                                                         {"float8_e4m3fn", "F8_E4M3"}};
  for (const auto& [type, dtype] : untyped) {
    std::string pickle = tensor_pickle("K\x18", "K\0"s, "K\3\x85", "K\1\x85");
    pickle.replace(pickle.find("torch\nFloatStorage"), 18, "torch.storage\nUntypedStorage");
    pickle.replace(pickle.find("_v2"), 3, "_v3");
    pickle.insert(pickle.size() - 3, "ctorch\n"s + type + "\n");
    const std::string file = pack({.pickle = pickle, .storages = {{"0", pattern(24)}}});
    const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
    ASSERT_EQ(parsed.tensors.size(), 1U) << type;
    EXPECT_EQ(parsed.tensors[0].second.dtype, dtype) << type;
  }
}

// Types that no tensor of ours can have are read too, so that a message can name them.
TEST(Pickle, KnowsTheNamesOfAllTypes) {
  for (const char* name : {"float32",
                           "float64",
                           "float16",
                           "bfloat16",
                           "float8_e4m3fn",
                           "float8_e5m2",
                           "float8_e4m3fnuz",
                           "float8_e5m2fnuz",
                           "int64",
                           "int32",
                           "int16",
                           "int8",
                           "uint64",
                           "uint32",
                           "uint16",
                           "uint8",
                           "bool",
                           "complex32",
                           "complex64",
                           "complex128",
                           "FloatStorage",
                           "DoubleStorage",
                           "HalfStorage",
                           "BFloat16Storage",
                           "LongStorage",
                           "IntStorage",
                           "ShortStorage",
                           "CharStorage",
                           "ByteStorage",
                           "BoolStorage",
                           "ComplexFloatStorage",
                           "ComplexDoubleStorage"}) {
    EXPECT_EQ(value_of<PickleName>("ctorch\n"s + name + "\n.").name, "torch."s + name);
    EXPECT_THAT(message_of_pickle(protocol_2("cnumpy\n"s + name + "\n.")),
                ::testing::HasSubstr("the file names numpy."s + name));
  }
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
  EXPECT_EQ(value_of<std::string>("ctorch\ndevice\n" + pickled_text("cpu") + "\x85R."), "cpu");
  EXPECT_EQ(value_of<std::string>("ctorch\ndevice\n" + pickled_text("cuda") + "K\0\x86R."s),
            "cuda:0");
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
  } cases[] = {
      {"ctorch._utils\n_rebuild_tensor\n(" + floats + "tR.", ""},
      {v2 + "tR.", ""},
      {v2 + "}tR.", ""},
      {v2 + "NtR.", ""},
      {v3 + "tR.", "uint16"},
      {v3 + "}tR.", "uint16"},
      {parameter, ""},
      {"ctorch._utils\n_rebuild_parameter_with_state\n(" + v2 + "tR" + hooks + "}tR.", ""}};
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
      {"c__main__\nNet\n)\x81}b.",
       "If this is a whole module, save net.state_dict() instead of net"},
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
      {"}}K\1s.", "gets a dictionary as a key"},
      {"}K\1K\2sK\1K\3s.", "repeats the key 1"},
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
  // A message gives the place of the opcode that is refused, and what it got.
  const std::string storage = "(" + pickled_text("storage") + "ctorch\nFloatStorage\n" +
                              pickled_text("0") + pickled_text("cpu") + "K\1tQ";
  const std::pair<std::string, const char*> kinds[] = {
      {"N", "None"},
      {"\x88", "a truth value"},
      {"K\1", "a whole number"},
      {"G\0\0\0\0\0\0\0\0"s, "a number"},
      {pickled_text("k"), "a text"},
      {"c__builtin__\nbytes\n)R", "bytes"},
      {")", "a tuple"},
      {"]", "a list"},
      {"}", "a dictionary"},
      {storage, "a storage"},
      {tensor_pickle("K\1", "K\0"s, "K\1\x85", "K\1\x85").substr(2), "a tensor"}};
  for (const auto& [value, kind] : kinds) {
    const std::string opcodes = value.ends_with('.') ? value.substr(0, value.size() - 1) : value;
    EXPECT_EQ(message_of_pickle(protocol_2(opcodes + ")R.")),
              str("x: byte ", 2 + opcodes.size() + 1, ": calls ", kind, ", expected a function"));
  }
  EXPECT_THAT(message_of_pickle(protocol_2("K\1K\2\x87.")),
              ::testing::EndsWith("byte 6: the opcode needs 3 values, there are 2"));
  EXPECT_THAT(message_of_pickle(protocol_2("K\1(K\2\x86.")),
              ::testing::EndsWith("byte 7: the opcode needs 2 values, there are 1"));
  const std::string longest(200, 'a');
  EXPECT_THAT(message_of_pickle(protocol_2("c" + longest + "\n" + longest + "\n.")),
              ::testing::HasSubstr("the file names " + longest + '.' + longest + ','));
  for (const std::string& names : {longest + "a\nb\n", "b\n" + longest + "a\n"}) {
    EXPECT_THAT(
        message_of_pickle(protocol_2("c" + names + ".")),
        ::testing::EndsWith("a name holds something else than at most 200 printable characters"));
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
