// Measurements of the processes of a way, in memory shared by the launcher and its ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::bench {

/// Times of one rank in one round, in milliseconds per step, and its memory in bytes. No
/// synchronization is needed: a rank writes its figures, and the launcher reads them after the rank
/// has ended.
struct RankFigures {
  std::int64_t steps = 0;   ///< timed; 0 until the rank has written
  double step_ms = 0;       ///< median of the steps
  double mean_step_ms = 0;  ///< mean of the steps, as are all times below
  double strategy_ms = 0;   ///< in Strategy::step()
  double processor_ms = 0;  ///< sum over the threads of the process
  double forward_ms = 0;    ///< PhaseSeconds, as the strategy reports them
  double backward_ms = 0;
  double communication_ms = 0;
  double optimizer_ms = 0;              ///< the optimizer's step and zeroing of gradients
  std::int64_t start_bytes = 0;         ///< resident set before the model existed
  std::int64_t peak_bytes = 0;          ///< largest resident set
  std::int64_t proportional_bytes = 0;  ///< after the steps, with shared pages divided
  std::int64_t device_bytes = 0;        ///< on the device that holds most; 0 if unknown
  std::uint32_t whole_backward = 0;     ///< bit s: the backward of stage s could not be split
  std::array<char, 16> backend{};       ///< the group's backend, null-terminated

  std::string backend_name() const { return backend.data(); }
  /// Keeps as many characters of `name` as fit.
  void set_backend(const std::string& name);
};

/// A text of at most 1023 bytes, such as where a model was cut.
struct SharedNote {
  std::array<char, 1024> bytes{};

  std::string text() const { return bytes.data(); }
  /// Throws InternalError if `text` is longer.
  void set(const std::string& text);
};

namespace detail {
/// Maps zeroed memory that all processes forked from this one share. Throws Error if the system has
/// none left.
void* map_shared(std::size_t bytes);
void unmap_shared(void* memory, std::size_t bytes);
}  // namespace detail

/// An array with one T per process, in memory that all of them share. The launcher creates it
/// before it forks. Rank r writes only its own element.
template <class T>
class SharedPlaces {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit SharedPlaces(int count)
      : count_(count), first_(static_cast<T*>(detail::map_shared(bytes()))) {
    std::uninitialized_value_construct_n(first_, count_);
  }
  ~SharedPlaces() { detail::unmap_shared(first_, bytes()); }
  SharedPlaces(const SharedPlaces&) = delete;
  SharedPlaces& operator=(const SharedPlaces&) = delete;

  T& at(int place) { return first_[place]; }
  /// The values of all processes, by rank.
  std::vector<T> all() const { return {first_, first_ + count_}; }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  int count_;
  T* first_;
};

using SharedFigures = SharedPlaces<RankFigures>;

}  // namespace lockstep::bench
