#include <lockstep/core/module_file.h>

#include <filesystem>
#include <vector>

#include <lockstep/core/environment.h>

namespace lockstep {

namespace fs = std::filesystem;

std::string module_file(const std::string& name) {
  std::vector<fs::path> folders;
  if (const auto named = environment_string("LOCKSTEP_MODULE_DIR")) folders.emplace_back(*named);
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / name, ignored)) return folder / name;
  }
  return name;
}

}  // namespace lockstep
