// Parses the compressed notations of Slurm's environment variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// The first host of a node list: "gpu[003-007,9],login1" gives "gpu003". Throws ConfigError if the
/// text is not a node list; `variable` names the environment variable in the message.
std::string first_slurm_host(std::string_view node_list, std::string_view variable);

/// Tasks on each node, in node order: "2(x3),1" gives {2, 2, 2, 1}. Throws ConfigError as above.
std::vector<int> slurm_tasks_per_node(std::string_view text, std::string_view variable);

}  // namespace lockstep::comm
