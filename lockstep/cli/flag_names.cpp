#include <lockstep/cli/flag_names.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::cli {
namespace {

bool is_of_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

bool begins_name(std::string_view text, std::size_t at) {
  return at == 0 || (!is_of_name(text[at - 1]) && text[at - 1] != ':');
}

// Whether nothing in `rest`, which follows a name, belongs to it. A full stop or a colon ends a
// clause, but "x.y", "x::y" and the call "x(" are other names.
bool ends_name(std::string_view rest) {
  if (rest.empty()) return true;
  if (rest.starts_with("::") || rest[0] == '(' || is_of_name(rest[0])) return false;
  return rest[0] != '.' || rest.size() == 1 || !is_of_name(rest[1]);
}

const FlagName* option_at(std::string_view text, std::size_t at) {
  if (!begins_name(text, at)) return nullptr;
  const std::string_view rest = text.substr(at);
  const auto& all = flag_names();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FlagName& name) {
    return rest.starts_with(name.option) && ends_name(rest.substr(name.option.size()));
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<FlagName>& flag_names() {
  static const std::vector<FlagName> all = [] {
    std::vector<FlagName> names = {
        {"CheckpointOptions::background", "--background-checkpoints"},
        {"CheckpointOptions::directory", "--out"},
        {"CheckpointOptions::save_top_k", "--save-top-k"},
        {"DataRequest::directory", "--data"},
        {"DdpOptions::find_unused_parameters", "--find-unused-parameters"},
        {"DdpOptions::find_unused_parameters = true", "--find-unused-parameters"},
        {"ImageDecoderOptions::max_image_pixels", "--max-image-pixels"},
        {"ImageFolderOptions::keep_unreadable", "--on-corrupt-image skip"},
        {"LoaderOptions::batch_size", "--batch-size"},
        {"LoaderOptions::device", "--accelerator"},
        {"LoaderOptions::engine", "--loader"},
        {"LoaderOptions::on_corrupt_image", "--on-corrupt-image"},
        {"PackedImagesOptions::exif_transpose", "--exif-transpose"},
        {"PlateauOptions::monitor", "--plateau"},
        {"RunInfo::recipe_options[image_size]", "--image-size"},
        {"RunInfo::recipe_options[images]", "--data"},
        {"RunInfo::recipe_options[inputs]", "--inputs"},
        {"RunInfo::recipe_options[model]", "--model"},
        {"RunInfo::recipe_options[program]", "--program"},
        {"RunInfo::split", "--data, --seed and --val-fraction"},
        {"StrategyOptions::find_unused_parameters", "--find-unused-parameters"},
        {"TrainerOptions::cuda_graph", "--cuda-graph"},
        {"TrainerOptions::device", "--accelerator"},
        {"TrainerOptions::early_stopping", "--early-stopping"},
        {"TrainerOptions::limit_val_batches", "--limit-test-batches"},
        {"TrainerOptions::on_nan", "--on-nan"},
        {"TrainerOptions::optimizer", "--optimizer"},
        {"TrainerOptions::overwrite", "--overwrite"},
        {"TrainerOptions::resume", "--resume"},
    };
    std::sort(names.begin(), names.end(), [](const FlagName& a, const FlagName& b) {
      return a.option.size() > b.option.size();
    });
    return names;
  }();
  return all;
}

std::string with_flags(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (const FlagName* const name = option_at(text, at)) {
      result += name->flags;
      at += name->option.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

std::string error_line(const std::exception& error) { return with_flags(first_line(error)); }

void log_with_flags() {
  set_log_sink([](LogLevel, const std::string& line) {
    // One write per line, so that lines of several ranks do not mix.
    std::fputs((with_flags(line) + "\n").c_str(), stderr);
  });
}

}  // namespace lockstep::cli
