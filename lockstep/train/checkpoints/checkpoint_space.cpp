#include <lockstep/train/checkpoints/checkpoint_space.h>

#include <cstdio>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// A tensor's share of the header, including its checksum but not its name, which occurs twice.
constexpr std::uint64_t kHeaderBytesOfTensor = 160;
constexpr std::uint64_t kMetadataBytes = 4096;

std::optional<std::uint64_t> free_bytes(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.capacity == 0) return std::nullopt;
  return space.available;
}

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

std::uint64_t checkpoint_bytes(const torch::nn::Module& module, const detail::UpdateRule& rule) {
  std::uint64_t bytes = kMetadataBytes;
  const auto add = [&](const std::string& name, std::uint64_t data) {
    bytes += data + kHeaderBytesOfTensor + 2 * name.size();
  };
  for (const auto& [name, tensor] : state_dict(module)) add(name, tensor.nbytes());
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    for (const std::string& state : rule.state_names()) add(state + name, parameter.nbytes());
    if (rule.counts_steps()) add("step" + name, sizeof(std::int64_t));
  }
  return bytes;
}

void require_checkpoint_space(const fs::path& directory, std::uint64_t bytes, std::int64_t count) {
  if (count < 1) return;
  const auto free = free_bytes(directory);
  // Divides, because the product may overflow.
  if (!free || bytes == 0 || *free / bytes >= static_cast<std::uint64_t>(count)) return;
  throw CheckpointError(
      lockstep::str("cannot keep checkpoints in ", directory.string(), ": it needs room for ",
                    count, " more of about ", megabytes(bytes), " each, but its file system has ",
                    megabytes(*free), " free; free some, keep fewer or choose another folder"));
}

}  // namespace lockstep::train
