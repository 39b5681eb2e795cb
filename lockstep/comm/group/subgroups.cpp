#include <lockstep/comm/group/process_group.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/group/choose_backend.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep {

bool ProcessGroup::Impl::splits(const std::optional<std::string>& wanted) const {
  const std::string& backend_wanted = wanted ? *wanted : membership.options.backend;
  return backend->traits().splits &&
         (backend_wanted == backend->name() || backend_wanted == "auto") &&
         !environment_flag("LOCKSTEP_NCCL_NO_SPLIT");
}

comm::Membership ProcessGroup::Impl::membership_of_child(const Child& child) {
  const std::vector<int>& members = child.members;
  const auto own = std::find(members.begin(), members.end(), membership.rank);
  const int rank = static_cast<int>(own - members.begin());
  const int size = static_cast<int>(members.size());
  const std::vector<int> world_ranks = membership.named(members);
  std::vector<comm::PeerInfo> peers;
  for (const int member : members) {
    peers.push_back(membership.peers[static_cast<std::size_t>(member)]);
  }
  ProcessGroupOptions options = membership.options;
  if (child.wanted) {
    options.backend = *child.wanted;
  } else if (options.backend == "hierarchical") {
    options.backend = "auto";  // its members may share a host, or each have its own
  }
  std::optional<comm::TextExchange> exchange;
  if (size > 1) {
    auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + child.name,
                                                        membership.exchange->store_pointer());
    exchange.emplace(std::move(store), rank, size, options.timeout, world_ranks);
  }
  const comm::LocalPlace local = comm::local_place(peers, rank);
  const bool from_parent = child.splits && comm::becomes_nccl(options.backend, peers);
  return {.name = membership.name + "/" + child.name,
          .rank = rank,
          .size = size,
          .local_rank = local.rank,
          .local_size = local.size,
          .world_ranks = world_ranks,
          .peers = std::move(peers),
          .exchange = std::move(exchange),
          .own_address = membership.own_address,
          .address_problem = membership.address_problem,
          .foreign_store = membership.foreign_store,
          .options = std::move(options),
          .progress = membership.progress,
          .recorder = membership.recorder,
          .parent = from_parent ? backend : nullptr,
          .color = child.color,
          .check = [parent = backend] { parent->throw_if_ended(); }};
}

void ProcessGroup::Impl::leave_split() {
  try {
    nccl::leave_split(
        backend, membership.world_rank(), membership.options.device, membership.options.timeout,
        {.progress = membership.progress, .check = [this] { backend->throw_if_ended(); }});
  } catch (const CommError& error) {
    backend->abort(error.what());  // the others wait for this rank
    throw;
  }
}

ProcessGroup ProcessGroup::Impl::make_child(const Child& child) {
  comm::Membership its_membership = membership_of_child(child);
  if (child.splits && !its_membership.parent) leave_split();
  return comm::connect(std::move(its_membership));
}

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                    const std::optional<std::string>& backend) {
  const int own = impl_->membership.world_rank();
  ProcessGroupOptions wanted = impl_->membership.options;
  if (backend) wanted.backend = *backend;
  comm::check_options(wanted, lockstep::str("rank ", own, ": new_group"));
  if (ranks.empty()) throw ConfigError(lockstep::str("rank ", own, ": new_group: ranks is empty"));
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size() || !seen.insert(rank).second) {
      throw ConfigError(lockstep::str("rank ", own,
                                      ": new_group: ranks must be different and from 0 to ",
                                      size() - 1, ", got ", join(ranks)));
    }
  }
  const auto told = impl_->tell("new_group", join(ranks) + (backend ? " over " + *backend : ""));
  for (std::size_t rank = 1; rank < told.size(); ++rank) {
    if (told[rank] == told[0]) continue;
    throw ConfigError(lockstep::str("new_group: rank ", world_ranks()[rank], " gave ranks ",
                                    told[rank], ", rank ", world_ranks()[0], " gave ", told[0],
                                    "; give all the same"));
  }
  const std::string name = lockstep::str(impl_->next_child());
  const bool splits = impl_->splits(backend);
  if (splits) barrier();  // none of this group's operations may be running then
  if (seen.contains(rank())) {
    return impl_->make_child({name, ranks, /*color=*/0, backend, splits});
  }
  if (splits) impl_->leave_split();
  return std::nullopt;
}

std::optional<ProcessGroup> ProcessGroup::split(int color, int key) {
  const auto told = impl_->tell("split", lockstep::str(color, ' ', key));
  std::vector<std::tuple<int, int>> places;  // (key, rank) of the ranks with this rank's color
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    int its_color = 0;
    int its_key = 0;
    std::istringstream(told[rank]) >> its_color >> its_key;
    if (its_color == color) places.emplace_back(its_key, static_cast<int>(rank));
  }
  std::sort(places.begin(), places.end());
  const std::string name = lockstep::str(impl_->next_child(), '.', color);
  const bool splits = impl_->splits(std::nullopt);
  if (splits) barrier();
  if (color < 0) {
    if (splits) impl_->leave_split();
    return std::nullopt;
  }
  std::vector<int> members;
  for (const auto& [its_key, rank] : places) members.push_back(rank);
  return impl_->make_child({name, std::move(members), color, /*wanted=*/std::nullopt, splits});
}

}  // namespace lockstep
