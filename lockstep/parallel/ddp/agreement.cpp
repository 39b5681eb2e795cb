#include <lockstep/parallel/ddp/agreement.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include <lockstep/core/error.h>

namespace lockstep::parallel {
namespace {

void append(std::ostringstream& out, const char* kind, const std::string& name,
            const torch::Tensor& tensor) {
  // Includes the strides: tensors are sent in memory order, whatever the order of their dimensions.
  out << kind << " '" << name << "' " << tensor.scalar_type() << ' ' << tensor.sizes();
  if (!tensor.is_contiguous()) out << " with strides " << tensor.strides();
  out << (tensor.requires_grad() || *kind == 'b' ? "" : " (frozen)") << '\n';
}

// One line per tensor, in the order in which the ranks will use them.
std::string signature(const torch::nn::Module& module, const std::string& options) {
  std::ostringstream out;
  out << options;
  for (const auto& item : module.named_parameters()) {
    append(out, "parameter", item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) append(out, "buffer", item.key(), item.value());
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string first_difference(const std::string& first, const std::string& second, int rank) {
  const auto a = lines_of(first);
  const auto b = lines_of(second);
  const std::size_t shared = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < shared && a[i] == b[i]) continue;
    const bool of_options = i < shared && a[i].starts_with("option ");
    return str("ranks have different ", of_options ? "options" : "models", ": rank 0 has ",
               i < a.size() ? a[i] : "no more tensors", ", rank ", rank, " has ",
               i < b.size() ? b[i] : "no more tensors");
  }
  return "";
}

}  // namespace

void verify_agreement(const torch::nn::Module& module, const std::string& options,
                      const std::string& problem, ProcessGroup& group) {
  const std::string mine = signature(module, options);
  // Exchanges hashes first: the full texts are sent only if there is a difference to explain.
  const auto said = group.all_gather_object(problem.empty() ? str(std::hash<std::string>{}(mine))
                                                            : "!" + problem);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = said[static_cast<std::size_t>(rank)];
    if (text.front() != '!') continue;
    throw ConfigError(group.size() == 1 ? problem : str("rank ", rank, ": ", text.substr(1)));
  }
  if (std::all_of(said.begin(), said.end(), [&](const auto& hash) { return hash == said[0]; }))
    return;
  const auto texts = group.all_gather_object(mine);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string difference = first_difference(texts[0], texts[rank], rank);
    if (!difference.empty()) throw ConfigError(difference);
  }
}

}  // namespace lockstep::parallel
