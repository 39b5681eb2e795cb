#include <tests/support/far_device/memory.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include <tests/support/far_device/streams.h>

namespace lockstep::testing_support::far_device {
namespace {

class FarAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device here(kType, static_cast<c10::DeviceIndex>(current_index));
    if (bytes == 0) return {nullptr, here};
    void* const data = far_memory().take(bytes);
    return {data, data, &release, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(far_memory().near(to), far_memory().near(from), bytes);
  }

 private:
  static void release(void* data) { far_memory().give_back(data); }
};

// Host memory that LibTorch regards as pinned.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = std::malloc(std::max<std::size_t>(bytes, 1));
    const std::scoped_lock lock(mutex());
    ends()[static_cast<std::byte*>(data)] = static_cast<std::byte*>(data) + bytes;
    return {data, data, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool owns(const void* data) {
    const auto* const address = static_cast<const std::byte*>(data);
    const std::scoped_lock lock(mutex());
    auto after = ends().upper_bound(const_cast<std::byte*>(address));
    return after != ends().begin() && address < std::prev(after)->second;
  }

 private:
  static void release(void* data) {
    {
      const std::scoped_lock lock(mutex());
      ends().erase(static_cast<std::byte*>(data));
    }
    std::free(data);
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<std::byte*, std::byte*>& ends() {
    static auto* const ends = new std::map<std::byte*, std::byte*>();
    return *ends;
  }
};

}  // namespace

FarMemory::FarMemory() {
  void* const begin =
      mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(begin);
  if (mprotect(begin_ + kBytes, kBytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

void* FarMemory::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, kLeast));
  const std::scoped_lock lock(mutex_);
  std::vector<std::byte*>& free = free_[size];
  if (free.empty()) {
    TORCH_CHECK(used_ + size <= kBytes, "the far device has no memory for ", bytes, " bytes");
    free.push_back(begin_ + used_);
    used_ += size;
  }
  std::byte* const taken = free.back();
  free.pop_back();
  sizes_[taken] = size;
  std::memset(near(taken), 0xff, size);  // NaN, to expose missing initialisation
  return taken;
}

void FarMemory::give_back(void* data) {
  const std::scoped_lock lock(mutex_);
  auto* const given = static_cast<std::byte*>(data);
  free_[sizes_.at(given)].push_back(given);
  sizes_.erase(given);
}

std::byte* FarMemory::near(const void* far) const {
  auto* const address = static_cast<std::byte*>(const_cast<void*>(far));
  TORCH_CHECK(address >= begin_ && address < begin_ + kBytes, "not an address of the far device");
  return address + kBytes;
}

FarMemory& far_memory() {
  static auto* const memory = new FarMemory();
  return *memory;
}

c10::Allocator& far_allocator() {
  static auto* const allocator = new FarAllocator();
  return *allocator;
}

at::HostAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator();
  return *allocator;
}

bool is_pinned(const void* data) { return PinnedAllocator::owns(data); }

}  // namespace lockstep::testing_support::far_device
