#include <lockstep/comm/backends/shm/symmetric.h>

#include <algorithm>

namespace lockstep::shm {

void SymmetricRegistry::add(std::shared_ptr<const SymmetricRange> range) {
  const std::scoped_lock lock(mutex_);
  ranges_.push_back(std::move(range));
}

void SymmetricRegistry::remove(const SymmetricRange* range) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(ranges_, [&](const auto& other) { return other.get() == range; });
}

std::optional<SymmetricPlace> SymmetricRegistry::find(const std::byte* data,
                                                      std::size_t bytes) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& range : ranges_) {
    const std::byte* begin = range->slice(range->rank);
    if (data >= begin && data + bytes <= begin + range->stride) {
      return SymmetricPlace{range, static_cast<std::size_t>(data - begin)};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::shm
