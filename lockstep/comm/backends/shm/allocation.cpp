// How the engine allocates and finds symmetric memory.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>

namespace lockstep::shm {
namespace {

// Rank 0's broadcast about a new segment. The broadcast keeps it alive until it is complete.
struct Offer {
  SegmentAddress address;  ///< empty if the host does not have enough memory
  std::size_t asked = 0;
  std::uint64_t left = 0;  ///< free bytes, read by rank 0 so that all ranks make the same decision
};

// The kernel creates a segment of any size and allocates memory only when its pages are populated.
// If there is not enough memory then, it kills processes.
bool fits(std::size_t stride, int ranks, std::uint64_t left) {
  return stride <= left / static_cast<std::uint64_t>(ranks);
}

// Allocates the pages now. On first access, missing memory would cause a SIGBUS during a reduction.
void populate(std::byte* data, std::size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  const int error = errno;
  if (error == EINVAL) return;  // kernels before 5.14 allocate pages on first access
  throw CommError(str("allocate: no memory for ", bytes, " bytes: ", errno_text(error)));
}

}  // namespace

// The symmetric place of the ranks' inputs, if they are used without a copy.
std::optional<SymmetricPlace> Engine::place_to_use(const CollectiveRequest& request) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (request.piece_bytes < state_.options.in_place_bytes) return std::nullopt;
  switch (request.call.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return registry_.find(request.input, ranks * request.piece_bytes);
    case CallKind::kAllGather:
      if (request.input ==
          request.output + static_cast<std::size_t>(rank()) * request.piece_bytes) {
        return registry_.find(request.output, ranks * request.piece_bytes);
      }
      return registry_.find(request.input, request.piece_bytes);
    case CallKind::kBroadcast:
    case CallKind::kReduce:
    case CallKind::kAllReduce:
    case CallKind::kGather:
      return registry_.find(request.input, request.piece_bytes);
    default:
      return std::nullopt;  // only the root of a scatter knows the place of its input
  }
}

std::shared_ptr<SymmetricAllocation> Engine::share_allocation(std::size_t bytes,
                                                              std::chrono::milliseconds timeout) {
  auto allocation = std::make_shared<SymmetricAllocation>();
  allocation->stride = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  allocation->rank = rank();
  allocation->id = ++next_allocation_;
  const auto offer = std::make_shared<Offer>();
  if (rank() == 0) {
    *offer = {{}, bytes, static_cast<std::uint64_t>(host_memory().left())};
    if (fits(allocation->stride, size(), offer->left)) {
      allocation->segment = Segment::create(allocation->stride * static_cast<std::size_t>(size()));
      offer->address = allocation->segment->address();
    }
  }
  auto* const data = reinterpret_cast<std::byte*>(offer.get());
  wait(post({.kind = CallKind::kBroadcast, .root = 0, .count = sizeof(Offer)}, kInternalCall, data,
            data, offer),
       timeout);
  if (offer->asked != bytes) {
    throw CommError(str("allocate: ", state_.end.name(rank()), " asked for ", bytes, " bytes, ",
                        state_.end.name(0), " for ", offer->asked));
  }
  if (!fits(allocation->stride, size(), offer->left)) {
    throw ConfigError(str(state_.end.name(rank()), ": allocate: ", bytes, " bytes for each of the ",
                          size(), " ranks of this host, which has ", offer->left,
                          " bytes of memory left; give a smaller shape or start fewer ranks"));
  }
  if (rank() != 0) allocation->segment = Segment::open(offer->address);
  // The owner touches its slice first, which places it on the owner's NUMA node.
  populate(allocation->slice(rank()), allocation->stride);
  wait(post({.kind = CallKind::kBarrier}, kInternalCall, nullptr, nullptr), timeout);
  populate(allocation->segment->data(), allocation->segment->bytes());
  if (rank() == 0) allocation->segment->close_descriptor();
  return allocation;
}

std::shared_ptr<std::byte> Engine::allocate(std::size_t bytes, std::chrono::milliseconds timeout) {
  std::shared_ptr<SymmetricAllocation> allocation;
  try {
    allocation = share_allocation(bytes, timeout);
  } catch (const CommError& error) {
    abort(error.what());  // a no-op if a peer has already aborted
    throw;
  }
  registry_.add(allocation);
  std::byte* data = allocation->slice(rank());
  return {data, [allocation, engine = weak_from_this()](std::byte*) {
            if (const auto alive = engine.lock()) alive->registry_.remove(allocation.get());
          }};
}

}  // namespace lockstep::shm
