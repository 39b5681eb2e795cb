// LibTorch's ProcessGroupGloo.hpp includes Gloo headers that LibTorch does not ship. Debian's older
// headers have the declarations it needs. This file must not construct any Gloo class, because the
// Gloo inside LibTorch is newer than those headers.
#include <lockstep/comm/backends/gloo/gloo.h>

#ifndef USE_C10D_GLOO  // LibTorch's header declares nothing without this macro
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <lockstep/comm/backends/c10d/group_store.h>
#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <lockstep/comm/backends/gloo/prove_peers.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {
namespace {

using c10d_adapter::GroupStore;
using c10d_adapter::Meanwhile;

// LibTorch matches Gloo collectives by 32-bit tags, which it takes from a counter. tag_next() sets
// the next tag, which Lockstep derives from the call, so that only equal calls match.
class TaggedGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void tag_next(std::uint32_t tag) { collectiveCounter_ = tag; }
};

constexpr const char* kCountKey = "connected, then left";

// Called when a rank leaves the group. A peer that is still connecting needs this rank's address,
// so it is deleted only once all have connected. The count grows by one when a rank has connected
// and by one when it leaves, and no rank leaves before the end of the rendezvous, when all have
// connected. A count above `size` therefore means that all have connected, and the last rank to
// leave sees twice `size`.
void forget_addresses(GroupStore& addresses, c10d::Store& store, std::int64_t size) {
  const std::int64_t count = store.add(kCountKey, 1);
  if (count > size) addresses.forget();
  if (count == 2 * size) store.deleteKey(kCountKey);
}

// Called when a rank could not connect. No peer needs its address, and it counts as having left.
void give_up(GroupStore& addresses, c10d::Store& store, std::int64_t size) {
  try {
    addresses.forget();
    if (store.add(kCountKey, 2) == 2 * size) store.deleteKey(kCountKey);
  } catch (const std::exception&) {
    // The store no longer exists, so there are no keys to delete.
  }
}

}  // namespace

std::shared_ptr<comm::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                       const WorkerEnvironment& environment,
                                       const std::string& interface_address, torch::Device device,
                                       std::chrono::milliseconds timeout,
                                       const std::vector<int>& world_ranks, Meanwhile meanwhile,
                                       std::chrono::milliseconds host_timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const auto progress = meanwhile.progress;
  // Gloo may keep the store when it is connected or has failed, but the callbacks are then reset to
  // do nothing.
  const auto connecting = std::make_shared<Meanwhile>(std::move(meanwhile));
  auto addresses = c10::make_intrusive<GroupStore>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), [connecting] { connecting->look(); });
  addresses->setTimeout(timeout);
  std::shared_ptr<comm::Backend> backend;
  std::string key;
  const auto where = [&] {
    return str("rank ", c10d_adapter::world_rank(environment, world_ranks),
               ": cannot connect the ranks over Gloo on ", interface_address, ": ");
  };
  try {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(interface_address));
    options->threads = 2;
    auto group = c10::make_intrusive<TaggedGloo>(addresses, environment.rank,
                                                 environment.world_size, options);
    TaggedGloo* const tagged = group.get();  // the backend holds it
    key = shared_key(*addresses, environment.rank);
    *connecting = {};
    store->add(kCountKey, 1);
    backend = adapt(
        std::move(group), c10::make_intrusive<c10d::PrefixStore>("watchdog", store),
        {.timeout = timeout,
         .device = device,
         .world_ranks = world_ranks,
         .store_rank = c10d_adapter::store_rank(environment, world_ranks),
         .forget_keys =
             [addresses, store, size = environment.world_size] {
               forget_addresses(*addresses, *store, size);
             },
         .own_address = interface_address,
         .host_timeout = host_timeout},
        {.tag_next = [tagged](std::uint32_t tag) { tagged->tag_next(tag); }, .progress = progress});
  } catch (const TimeoutError& error) {
    *connecting = {};
    give_up(*addresses, *store, environment.world_size);
    throw TimeoutError(where() + error.what());
  } catch (const std::exception& error) {
    *connecting = {};
    give_up(*addresses, *store, environment.world_size);
    throw CommError(where() + first_line(error));
  }
  std::vector<int> names = world_ranks;
  for (int rank = static_cast<int>(names.size()); rank < environment.world_size; ++rank)
    names.push_back(rank);
  try {
    prove_peers(*backend, key, environment.rank, names, timeout);
  } catch (const TimeoutError& error) {
    throw TimeoutError(
        str(where(), "a rank did not prove that it is the one that connected: ", error.what()));
  } catch (const CommError& error) {
    throw CommError(where() + error.what());
  }
  return backend;
}

}  // namespace lockstep::gloo
