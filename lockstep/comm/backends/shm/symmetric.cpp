#include <lockstep/comm/backends/shm/symmetric.h>

#include <algorithm>

namespace lockstep::shm {

void SymmetricRegistry::add(std::shared_ptr<const SymmetricAllocation> allocation) {
  const std::scoped_lock lock(mutex_);
  allocations_.push_back(std::move(allocation));
}

void SymmetricRegistry::remove(const SymmetricAllocation* allocation) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(allocations_, [&](const auto& other) { return other.get() == allocation; });
}

std::optional<SymmetricPlace> SymmetricRegistry::find(const std::byte* data,
                                                      std::size_t bytes) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& allocation : allocations_) {
    const std::byte* begin = allocation->slice(allocation->rank);
    if (data >= begin && data + bytes <= begin + allocation->stride) {
      return SymmetricPlace{allocation, static_cast<std::size_t>(data - begin)};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::shm
