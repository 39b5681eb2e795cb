#include <lockstep/launch/process_tree.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace lockstep::launch {
namespace {

struct Process {
  char state = 'Z';
  pid_t parent = 0;
};

Process read_process(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  std::getline(file, text, '\0');  // reading fails if the process is just ending
  // "PID (NAME) STATE PARENT ...", where the name may itself contain blanks and parentheses.
  const auto name_end = text.rfind(')');
  Process process;
  if (name_end == std::string::npos) return process;  // it has just ended
  std::istringstream(text.substr(name_end + 1)) >> process.state >> process.parent;
  return process;
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Process process = read_process(entry->path());
    if (process.state != 'Z') children.emplace(process.parent, std::stoi(name));
  }
  return children;
}

}  // namespace

std::vector<pid_t> running_descendants() {
  const auto children = children_by_parent();
  std::vector<pid_t> found{getpid()};
  for (std::size_t next = 0; next < found.size(); ++next) {
    const auto [begin, end] = children.equal_range(found[next]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool is_stopped(pid_t process) {
  return read_process(std::filesystem::path("/proc") / std::to_string(process)).state == 'T';
}

OrphanKeeper::OrphanKeeper(bool keep) {
  int already = 0;
  if (!keep || prctl(PR_GET_CHILD_SUBREAPER, &already) != 0 || already != 0) return;
  changed_ = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

OrphanKeeper::~OrphanKeeper() {
  if (changed_) prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace lockstep::launch
