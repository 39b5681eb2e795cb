#include <lockstep/cli/run_executable.h>

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::cli {
namespace {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool is_executable(const std::string& path) {
  return is_file(path) && access(path.c_str(), X_OK) == 0;
}

const char* interpreter_of(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".py") return "python3";
  return extension == ".sh" ? "sh" : nullptr;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& owner) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(str(owner, ": the program ", path, " is a folder"));
  }
  if (error) {
    throw ConfigError(str(owner, ": there is no program ", path, ": ", error.message()));
  }
  const char* const interpreter = interpreter_of(path);
  throw ConfigError(str(owner, ": ", path, " cannot be executed: ",
                        interpreter != nullptr ? str("write ", interpreter, " ", path)
                                               : "it lacks execute permission (chmod +x)"));
}

std::string find_in_path(const std::string& program, const std::string& owner) {
  std::istringstream folders(environment_string("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (is_executable(path)) return path;
  }
  throw ConfigError(
      str(owner, ": there is no program '", program, "' in PATH",
          is_file(program) ? str("; write ./", program, " for that in this folder") : ""));
}

}  // namespace

std::string find_executable(const std::string& program, const std::string& owner) {
  if (program.empty()) throw ConfigError(str(owner, ": the name of the program is empty"));
  if (program.find('/') == std::string::npos) return find_in_path(program, owner);
  if (!is_executable(program)) refuse_file(program, owner);
  return program;
}

void execute(const std::string& executable, const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(executable.c_str(), words.data());
  const int error = errno;
  const char* hint = "";
  if (error == ENOEXEC) hint = "; a script begins with #! and its interpreter";
  if (error == ENOENT) hint = "; the interpreter or loader that it names is missing";
  throw ConfigError(str("cannot execute ", executable, ": ", errno_text(error), hint));
}

}  // namespace lockstep::cli
