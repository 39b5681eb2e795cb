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

LoaderEngineKind parse_loader_engine(const std::string& name) {
  OptionCheck("Loader").one_of("engine", name, {"native", "cuda", "dali"});
  if (name == "cuda") return LoaderEngineKind::kCuda;
  return name == "dali" ? LoaderEngineKind::kDali : LoaderEngineKind::kNative;
}

}  // namespace lockstep
