#include <lockstep/report/loggers/run_folder.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <random>
#include <string_view>

#include <lockstep/core/error.h>

namespace lockstep::report {
namespace {

constexpr std::string_view kIdLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
constexpr int kIdLength = 8;

}  // namespace

RunName new_run_name() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
  RunName name{.date_time = text.data(), .id = {}};
  std::random_device random;
  std::uniform_int_distribution<std::size_t> letter(0, kIdLetters.size() - 1);
  for (int i = 0; i < kIdLength; ++i) name.id += kIdLetters[letter(random)];
  return name;
}

std::filesystem::path run_folder(const std::filesystem::path& directory, const std::string& prefix,
                                 const RunName& name) {
  return directory / str(prefix, '-', name.date_time, '-', name.id);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw DataError(str("cannot create the folder ", folder.string(), ": ", error.message()));
  }
}

}  // namespace lockstep::report
