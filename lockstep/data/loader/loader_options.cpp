#include <lockstep/data/loader/loader_options.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {
namespace {

struct NamedEngine {
  LoaderEngineKind kind;
  std::string name;
};

const std::vector<NamedEngine>& named_engines() {
  static const std::vector<NamedEngine> all = {{LoaderEngineKind::kNative, "native"},
                                               {LoaderEngineKind::kCuda, "cuda"},
                                               {LoaderEngineKind::kDali, "dali"}};
  return all;
}

}  // namespace

std::string to_string(LoaderEngineKind kind) {
  const auto& all = named_engines();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const NamedEngine& each) { return each.kind == kind; });
  LOCKSTEP_CHECK(found != all.end(), "Loader: an engine without a name");
  return found->name;
}

const std::vector<std::string>& loader_engine_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedEngine& each : named_engines()) all.push_back(each.name);
    return all;
  }();
  return names;
}

LoaderEngineKind parse_loader_engine(const std::string& name) {
  OptionCheck("Loader").one_of("engine", name, loader_engine_names());
  const auto& all = named_engines();
  return std::find_if(all.begin(), all.end(),
                      [&](const NamedEngine& each) { return each.name == name; })
      ->kind;
}

}  // namespace lockstep
