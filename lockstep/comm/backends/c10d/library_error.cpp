#include <lockstep/comm/backends/c10d/library_error.h>

#include <sstream>
#include <string_view>

#include <lockstep/core/strings.h>

namespace lockstep::c10d_adapter {
namespace {

constexpr std::string_view kNcclError = "NCCL error in: ";
constexpr std::string_view kLastError = "Last error:";
constexpr std::size_t kLongestCause = 400;

// "NCCL error in: /build/NCCLUtils.cpp:77, unhandled system error, ..." or "[/build/pair.cc:1] ..."
std::string without_path(const std::string& line) {
  if (line.rfind("[/", 0) == 0 && line.find("] ") != std::string::npos) {
    return line.substr(line.find("] ") + 2);
  }
  if (line.rfind(kNcclError, 0) == 0 && line.find(", ") != std::string::npos) {
    return "NCCL error: " + line.substr(line.find(", ") + 2);
  }
  return line;
}

std::string in_one_line(const std::string& text) {
  std::istringstream in(text);
  std::string all;
  for (std::string line; std::getline(in, line);) {
    const std::string_view words = trimmed(line);
    if (!words.empty()) all.append(all.empty() ? "" : " ").append(words);
  }
  return all.substr(0, kLongestCause);
}

// The cause of an error, which follows NCCL's first line: its "Last error", or if there is none,
// the meaning of the error's kind.
std::string nccl_cause(const std::string& text, std::size_t end_of_first_line) {
  if (end_of_first_line == std::string::npos) return "";
  const auto place = text.find(kLastError, end_of_first_line);
  if (place != std::string::npos) {
    const std::string cause = in_one_line(text.substr(place + kLastError.size()));
    if (!cause.empty() && cause != "Unknown NCCL Error") return "last error: " + cause;
  }
  return in_one_line(text.substr(end_of_first_line, place - end_of_first_line));
}

}  // namespace

std::string essence(const std::string& text) {
  const std::string words = text.substr(0, text.find("\nException raised from "));
  const std::size_t end = words.find('\n');
  const std::string first = without_path(words.substr(0, end));
  const std::string line = first.substr(0, first.find(". This is typically"));
  if (line.find("NCCL") == std::string::npos) return line;
  const std::string cause = nccl_cause(words, end);
  return cause.empty() ? line : str(line, "; ", cause);
}

std::string essence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return essence(std::string(caught.what()));
  } catch (...) {
    return "an error that says nothing";
  }
}

}  // namespace lockstep::c10d_adapter
