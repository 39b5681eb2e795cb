// The far device's memory, which the host cannot access, and host memory that counts as pinned.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

namespace lockstep::testing_support::far_device {

/// Hands out addresses that fault on access. The byte of each is stored at a fixed distance behind
/// it. Thread-safe.
class FarMemory {
 public:
  FarMemory();
  void* take(std::size_t bytes);
  void give_back(void* data);
  /// Where the host can access what is stored at the address `far`.
  std::byte* near(const void* far) const;

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  static constexpr std::size_t kLeast = 256;
  std::byte* begin_ = nullptr;
  std::mutex mutex_;  // guards the members below
  std::size_t used_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::map<std::byte*, std::size_t> sizes_;
};

/// Lives forever, because tensors may outlive main().
FarMemory& far_memory();

/// Allocates far memory on the current device of the calling thread.
c10::Allocator& far_allocator();

/// Allocates host memory that LibTorch regards as pinned.
at::HostAllocator& pinned_allocator();

bool is_pinned(const void* data);

}  // namespace lockstep::testing_support::far_device
