#include <lockstep/core/error.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <typeinfo>

namespace lockstep {
namespace {

// The first line that is not blank, trimmed.
std::string_view first_text(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = trimmed(line);
    if (!line.empty()) return line;
  }
  return {};
}

// Removes LibTorch's and Gloo's source position of a failed check: "[enforce fail at loop.cc:48] ".
std::string_view without_place(std::string_view line) {
  const auto end = line.starts_with("[enforce fail at ") ? line.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? line : line.substr(end + 2);
}

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : typeid(error).name();
}

}  // namespace

int exit_code(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? 2 : 1;
}

std::string first_line(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  const std::string_view line = without_place(first_text(error.what()));
  // LibTorch's allocator throws a long text; only its number of bytes is useful.
  constexpr std::string_view kAsked = "can't allocate memory: you tried to allocate ";
  if (const auto at = line.find(kAsked); at != std::string_view::npos) {
    const std::string_view bytes = line.substr(at + kAsked.size());
    return str("out of memory: cannot allocate ", bytes.substr(0, bytes.find('.')));
  }
  if (line.empty()) return str("an error of type ", type_name(error), " that says nothing");
  return std::string(line);
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& message) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(str("internal error at ", base ? base + 1 : file, ":", line, ": ", condition,
                          message.empty() ? "" : ": ", message));
}

}  // namespace lockstep
