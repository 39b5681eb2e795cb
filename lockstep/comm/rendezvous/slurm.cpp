#include <lockstep/comm/rendezvous/slurm.h>

#include <charconv>

#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// Limits the allocation for a malformed "1(x999999999)"; far above the size of any real cluster.
constexpr int kMaxNodes = 1 << 20;

// Removes a positive number from the front of `text` and returns it; 0 if there is none.
int take_number(std::string_view& text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || value < 1) return 0;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::string first_slurm_host(std::string_view node_list, std::string_view variable) {
  // Only the first host matters: take the first member of each bracket and stop at a comma outside
  // of brackets.
  std::string host;
  for (std::size_t i = 0; i < node_list.size() && node_list[i] != ',';) {
    if (node_list[i] != '[') {
      host += node_list[i++];
      continue;
    }
    const std::size_t close = node_list.find(']', i);
    const std::size_t end = node_list.find_first_of("-,]", i + 1);
    if (close == std::string_view::npos || end == i + 1) {
      host.clear();
      break;
    }
    host += node_list.substr(i + 1, end - i - 1);
    i = close + 1;
  }
  if (host.empty() || host.find(']') != std::string::npos) {
    throw ConfigError(str("environment variable ", variable,
                          " must be a Slurm node list such as node[003-007,9], got '", node_list,
                          "'"));
  }
  return host;
}

std::vector<int> slurm_tasks_per_node(std::string_view text, std::string_view variable) {
  std::vector<int> tasks;
  std::string_view rest = text;
  while (true) {
    const int count = take_number(rest);
    int nodes = 1;
    if (take(rest, "(x")) {
      nodes = take_number(rest);
      if (!take(rest, ")")) nodes = 0;
    }
    const bool valid =
        count > 0 && nodes > 0 && nodes <= kMaxNodes - static_cast<int>(tasks.size());
    if (valid) tasks.insert(tasks.end(), static_cast<std::size_t>(nodes), count);
    if (valid && rest.empty()) return tasks;
    if (!valid || !take(rest, ",")) {
      throw ConfigError(str("environment variable ", variable,
                            " must list tasks per node such as 2(x3),1, got '", text, "'"));
    }
  }
}

}  // namespace lockstep::comm
