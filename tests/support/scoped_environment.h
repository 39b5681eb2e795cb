// Sets environment variables for a test and restores them at its end.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace lockstep::testing_support {

class ScopedEnvironment {
 public:
  ScopedEnvironment() = default;
  ~ScopedEnvironment() {
    for (const auto& [name, value] : before_) assign(name, value);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  /// Unsets the variable if `value` is empty.
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* old = std::getenv(name.c_str());
    before_.emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    assign(name, value);
  }

  /// Hides the user's own data, mirrors and proxies. Downloads go to `cache`.
  void hide_data(const std::string& cache) {
    set("XDG_CACHE_HOME", cache);
    for (const char* name : {"LOCKSTEP_DATA", "LOCKSTEP_MIRROR", "http_proxy", "https_proxy",
                             "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}) {
      set(name, std::nullopt);
    }
  }

 private:
  static void assign(const std::string& name, const std::optional<std::string>& value) {
    value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace lockstep::testing_support
