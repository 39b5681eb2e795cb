// `lockstep program` with files that PyTorch does not write by itself.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/forked_program.h>
#include <tests/program/pt2_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kModel = "net/models/model.json";
constexpr const char* kWeights = "net/data/weights/model_weights_config.json";

class ProgramCommand : public ::testing::Test {
 protected:
  ProgramResult program(const std::string& command, const ArchiveEntries& entries,
                        const std::vector<std::string>& more = {}) const {
    scratch.write("net.pt2", zip_of(entries));
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "program", command,
                                      (scratch / "net.pt2").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_forked(words);
  }

  TemporaryDirectory scratch;
};

// The net of pt2_entries(), which writes a result to its argument x at the end.
ArchiveEntries net_that_changes_its_argument() {
  ArchiveEntries entries = pt2_entries();
  json model = small_model();
  json& module = model["graph_module"];
  module["graph"]["outputs"].insert(module["graph"]["outputs"].begin(), tensor_argument("mul"));
  json& specs = module["signature"]["output_specs"];
  const json change = {
      {"user_input_mutation", {{"arg", {{"name", "mul"}}}, {"user_input_name", "x"}}}};
  specs.insert(specs.begin(), change);
  entry(entries, kModel) = model.dump();
  return entries;
}

// The net of pt2_entries() whose parameter has one stored element, seen in all of `size`.
ArchiveEntries net_with_expanded_parameter(std::int64_t size) {
  ArchiveEntries entries = pt2_entries();
  json config = json::parse(entry(entries, kWeights));
  json& meta = config["config"]["scale"]["tensor_meta"];
  meta["sizes"][0] = {{"as_int", size}};
  meta["strides"][0] = {{"as_int", 0}};
  entry(entries, kWeights) = config.dump();
  return entries;
}

TEST_F(ProgramCommand, DrawsNoStagesOfAProgramThatChangesItsArgument) {
  const ArchiveEntries net = net_that_changes_its_argument();
  EXPECT_EQ(program("draw", net, {"--format", "text"}).exit_code, 0);
  const ProgramResult refused = program("draw", net, {"--stages", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.error_lines(), 1) << refused.err;
  EXPECT_THAT(refused.err,
              HasSubstr("net.pt2 changes its argument 'x' in place, so that it cannot be cut; "
                        "remove --stages"));
  EXPECT_EQ(refused.out, "");
}

TEST_F(ProgramCommand, SaysWhyAProgramCannotBeCut) {
  const ProgramResult info = program("info", net_that_changes_its_argument());
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_THAT(info.out,
              HasSubstr("stages      the graph cannot be cut, because it changes its argument 'x' "
                        "in place\n"));
  EXPECT_THAT(program("info", pt2_entries()).out, HasSubstr("stages      2 places for a cut"));
}

// An expanded tensor takes no memory, whatever its sizes.
TEST_F(ProgramCommand, CountsTheBytesThatTheFileHolds) {
  for (const std::int64_t size : {std::int64_t{5}, std::numeric_limits<std::int64_t>::max()}) {
    const std::string file = (scratch / "info.json").string();
    const ProgramResult info = program("info", net_with_expanded_parameter(size), {"--json", file});
    ASSERT_EQ(info.exit_code, 0) << info.err;
    const json parameters = json::parse(read_text(file)).at("parameters");
    EXPECT_EQ(parameters.at("elements"), size);
    EXPECT_EQ(parameters.at("bytes"), scale_bytes().size());
  }
}

}  // namespace
}  // namespace lockstep::testing_support
