// The options of `lockstep data preview`.
#pragma once

#include <string>

#include <lockstep/cli/data/preview.h>
#include <lockstep/cli/loader_data.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// The options as given by the user. Those that are words here are not yet in `choice` and
/// `options`.
struct PreviewArguments {
  LoaderDataChoice choice{.source_option = "SOURCE"};
  PreviewOptions options;
  std::string engine = "native";
  std::string mix = "none";
  std::string on_corrupt_image = "stop";
  std::string decoding = "exact";
  std::string out;
  std::string json;
};

/// Adds SOURCE and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_preview_options(CLI::App& command, PreviewArguments& to);

}  // namespace lockstep::cli
