#include <lockstep/data/loader/loader_options.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

std::string to_string(LoaderEngineKind kind) {
  switch (kind) {
    case LoaderEngineKind::kCuda:
      return "cuda";
    case LoaderEngineKind::kDali:
      return "dali";
    case LoaderEngineKind::kNative:
      break;
  }
  return "native";
}

const std::vector<std::string>& loader_engine_names() {
  static const std::vector<std::string> names = {"native", "cuda", "dali"};
  return names;
}

LoaderEngineKind parse_loader_engine(const std::string& name) {
  OptionCheck("Loader").one_of("engine", name, loader_engine_names());
  if (name == "cuda") return LoaderEngineKind::kCuda;
  return name == "dali" ? LoaderEngineKind::kDali : LoaderEngineKind::kNative;
}

}  // namespace lockstep
