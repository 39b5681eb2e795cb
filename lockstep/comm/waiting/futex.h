// Sleeping on a 32-bit word in shared memory until another process changes it.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <span>

namespace lockstep::shm {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

/// Sleeps while `word` is `expected`, at most `timeout`. May wake spuriously.
inline void futex_wait(Word& word, std::uint32_t expected, std::chrono::nanoseconds timeout) {
  const timespec relative{static_cast<time_t>(timeout.count() / 1'000'000'000),
                          static_cast<long>(timeout.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &relative,
          nullptr, 0);
}

struct ExpectedWord {
  Word* word;
  std::uint32_t expected;
};

/// Sleeps while each of `words` has its `expected` value, at most `timeout`. May wake spuriously.
/// Watches only the first 128 words. If it cannot watch all words (there are more, or the kernel is
/// older than 5.16 or forbids it), it sleeps only briefly.
inline void futex_wait_any(std::span<const ExpectedWord> words, std::chrono::nanoseconds timeout) {
  constexpr std::size_t kMost = 128;
  constexpr std::uint32_t kSize32 = 2;  // FUTEX2_SIZE_U32, shared between processes
  constexpr long kFutexWaitv = 449;     // SYS_futex_waitv, the same on all architectures
  struct Waiter {
    std::uint64_t value;
    std::uint64_t address;
    std::uint32_t flags;
    std::uint32_t reserved;
  };
  if (words.size() == 1) return futex_wait(*words[0].word, words[0].expected, timeout);
  std::array<Waiter, kMost> waiters{};
  const std::size_t count = std::min(words.size(), kMost);
  for (std::size_t i = 0; i < count; ++i) {
    waiters[i] = {words[i].expected, reinterpret_cast<std::uintptr_t>(words[i].word), kSize32, 0};
  }
  constexpr std::chrono::milliseconds kShortly{1};
  if (words.size() > kMost) timeout = std::min<std::chrono::nanoseconds>(timeout, kShortly);
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const auto nanoseconds = until.tv_nsec + timeout.count();
  until.tv_sec += static_cast<time_t>(nanoseconds / 1'000'000'000);
  until.tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000);
  if (syscall(kFutexWaitv, waiters.data(), count, 0, &until, CLOCK_MONOTONIC) >= 0) return;
  if (errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT) return;
  futex_wait(*words[0].word, words[0].expected,
             std::min<std::chrono::nanoseconds>(timeout, kShortly));
}

inline void futex_wake_all(Word& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

/// Tells the processor that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep::shm
