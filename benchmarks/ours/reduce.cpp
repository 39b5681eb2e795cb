// Compares the arithmetic of reductions with memcpy, on several threads at once, as in ranks: each
// thread has its share of all buffers. GB/s count the bytes that all threads together read and
// write.
//
// Usage: reduce [threads, default 2]
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <lockstep/comm/kernels/copy.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/clock.h>

namespace {

using namespace lockstep;

constexpr int kRounds = 25;

// One pass of one thread over buffers that hold its share.
struct Work {
  const char* name;
  int reads;  // number of buffers read
  int writes;
  std::function<void(const std::vector<std::byte*>& buffers, std::size_t bytes)> run;
};

Work reduction(const char* name, int sources, std::vector<int> destinations,
               lockstep::detail::DataType type) {
  const int writes = static_cast<int>(destinations.size());
  return {name, sources, writes, [=](const std::vector<std::byte*>& buffers, std::size_t bytes) {
            const std::byte* from[8];
            std::byte* to[8];
            std::copy_n(buffers.begin(), sources, from);
            for (int d = 0; d < writes; ++d) to[d] = buffers[destinations[d]];
            comm::reduce({from, static_cast<std::size_t>(sources)},
                         {to, static_cast<std::size_t>(writes)},
                         bytes / lockstep::detail::element_size(type), type, ReduceOp::kSum);
          }};
}

std::vector<Work> all_work() {
  constexpr lockstep::detail::DataType kFloat = lockstep::detail::DataType::kFloat32;
  return {
      {"memcpy", 1, 1,
       [](const auto& buffers, std::size_t bytes) { std::memcpy(buffers[8], buffers[0], bytes); }},
      {"copy_streaming", 1, 1,
       [](const auto& buffers, std::size_t bytes) {
         comm::copy_streaming(buffers[8], buffers[0], bytes);
       }},
      reduction("float32, 2 in place", 2, {0, 1}, kFloat),
      reduction("float32, 2 into 1 new", 2, {8}, kFloat),
      reduction("float32, 2 into 1 of them and 1 new", 2, {0, 8}, kFloat),
      reduction("float32, 4 in place", 4, {0, 1, 2, 3}, kFloat),
      reduction("float32, 4 into 1 new", 4, {8}, kFloat),
      reduction("float32, 8 in place", 8, {0, 1, 2, 3, 4, 5, 6, 7}, kFloat),
      reduction("float32, 8 into 1 new", 8, {8}, kFloat),
      reduction("bfloat16, 2 in place", 2, {0, 1}, lockstep::detail::DataType::kBFloat16),
      reduction("float16, 2 in place", 2, {0, 1}, lockstep::detail::DataType::kFloat16),
      reduction("int64, 2 in place", 2, {0, 1}, lockstep::detail::DataType::kInt64),
      {"find_nan, float32", 1, 0,
       [](const auto& buffers, std::size_t bytes) {
         if (comm::find_nan(buffers[0], bytes / 4, kFloat) != bytes / 4) std::abort();
       }},
  };
}

// The seconds of one run of `work` on all threads, each on its `bytes` of every buffer. Returns the
// fastest round, because it shows the limit of the loops rather than the load of other programs.
double seconds_of(const Work& work, const std::vector<std::byte*>& buffers, std::size_t bytes,
                  int threads) {
  const auto repeats = std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);
  std::vector<double> seconds;
  std::barrier together(threads);
  const auto body = [&](int thread) {
    std::vector<std::byte*> share;
    for (std::byte* buffer : buffers)
      share.push_back(buffer + bytes * static_cast<std::size_t>(thread));
    for (int round = -1; round < kRounds; ++round) {
      together.arrive_and_wait();
      const auto start = Clock::now();
      for (std::size_t repeat = 0; repeat < repeats; ++repeat) work.run(share, bytes);
      together.arrive_and_wait();
      // The first round is a warm-up.
      if (thread == 0 && round >= 0)
        seconds.push_back(seconds_since(start) / static_cast<double>(repeats));
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& other : others) other.join();
  return *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  const std::vector<std::size_t> sizes = {4 << 10, 128 << 10, 12800 << 10};
  // Aligned like symmetric memory and LibTorch's tensors, because vectors that cross cache lines
  // take twice as long.
  constexpr std::size_t kPage = 4096;
  const std::size_t whole = sizes.back() * static_cast<std::size_t>(threads);
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory;
  std::vector<std::byte*> buffers;
  for (int i = 0; i < 9; ++i) {
    memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)), &std::free);
    buffers.push_back(memory.back().get());
    std::memset(buffers.back(), 0, whole);
  }
  std::printf("GB/s of %d threads, fastest of %d rounds; KiB of each buffer and thread:\n", threads,
              kRounds);
  std::printf("%-38s", "");
  for (const std::size_t bytes : sizes) std::printf("%10zu", bytes >> 10);
  std::printf("\n");
  for (const Work& work : all_work()) {
    std::printf("%-38s", work.name);
    for (const std::size_t bytes : sizes) {
      const double moved = static_cast<double>(bytes) * (work.reads + work.writes) * threads;
      std::printf("%10.1f", moved / seconds_of(work, buffers, bytes, threads) / 1e9);
    }
    std::printf("\n");
  }
}
