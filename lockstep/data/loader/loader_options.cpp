#include <lockstep/data/loader/loader_options.h>

#include <lockstep/core/options.h>

namespace lockstep {
namespace {

const detail::NamedValues<LoaderEngineKind>& named_engines() {
  static const detail::NamedValues<LoaderEngineKind> all = {{"native", LoaderEngineKind::kNative},
                                                            {"cuda", LoaderEngineKind::kCuda},
                                                            {"dali", LoaderEngineKind::kDali}};
  return all;
}

}  // namespace

std::string to_string(LoaderEngineKind kind) { return named_engines().name_of(kind); }

const std::vector<std::string>& loader_engine_names() { return named_engines().names(); }

LoaderEngineKind parse_loader_engine(const std::string& name) {
  return named_engines().value_of("Loader", "engine", name);
}

}  // namespace lockstep
