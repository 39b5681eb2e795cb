#include <lockstep/core/error.h>

#include <cstring>
#include <system_error>

namespace lockstep {

int exit_code(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? 2 : 1;
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::string errno_text(int error_number) {
  return std::generic_category().message(error_number);
}

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& message) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(str("internal error at ", base ? base + 1 : file, ":", line, ": ", condition,
                          message.empty() ? "" : ": ", message));
}

}  // namespace lockstep
