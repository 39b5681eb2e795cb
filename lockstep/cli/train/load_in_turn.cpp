#include <lockstep/cli/train/load_in_turn.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::cli {
namespace {

const std::string kLoading = "loading";
const std::string kLoaded = "loaded";

// The state of this rank's load: kLoading, kLoaded, or the reason of its failure.
class FirstLoad {
 public:
  explicit FirstLoad(const DataSupplier& supplier) {
    std::packaged_task<recipes::RecipeData(std::stop_token)> task(
        [&supplier](std::stop_token stop) { return supplier({.stop = std::move(stop)}); });
    future_ = task.get_future();
    thread_ = std::jthread(std::move(task));
  }

  std::string state(Milliseconds wait) {
    if (data_ || error_) return state_;
    if (future_.wait_for(wait) == std::future_status::timeout) return kLoading;
    try {
      data_ = future_.get();
      state_ = kLoaded;
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      state_ = first_line(error);
    }
    return state_;
  }

  recipes::RecipeData take() {
    if (error_) std::rethrow_exception(error_);
    return std::move(*data_);
  }

 private:
  std::future<recipes::RecipeData> future_;
  std::optional<recipes::RecipeData> data_;
  std::exception_ptr error_;
  std::string state_;
  std::jthread thread_;  // the last member: joined before the others are destroyed
};

// The ranks meet repeatedly until none is loading any more, so that no wait exceeds the group's
// timeout and a rank that dies is noticed.
std::vector<std::string> await_first_loads(std::optional<FirstLoad>& own, ProcessGroup& group) {
  for (;;) {
    const auto states = group.all_gather_object(own ? own->state(group.timeout() / 4) : kLoaded);
    if (std::find(states.begin(), states.end(), kLoading) == states.end()) return states;
  }
}

void require_same_data(const recipes::RecipeData& data, ProcessGroup& group) {
  std::string own = data.description + " with " +
                    amount_of(data.training_samples(), data.tensors ? "sample" : "image");
  if (!data.fingerprint.empty()) own += " (names and split: " + data.fingerprint + ")";
  const auto found = group.all_gather_object(own);
  for (std::size_t rank = 1; rank < found.size(); ++rank) {
    if (found[rank] != found[0]) {
      throw DataError(lockstep::str("the ranks found different data: rank 0 ", found[0], ", rank ",
                                    rank, " ", found[rank], "; give all the same --data"));
    }
  }
}

}  // namespace

recipes::RecipeData load_in_turn(const DataSupplier& supplier, ProcessGroup& group) {
  std::optional<FirstLoad> own;
  if (group.local_rank() == 0) own.emplace(supplier);
  const auto states = await_first_loads(own, group);
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (states[rank] == kLoaded) continue;
    if (own && static_cast<int>(rank) == group.rank()) own->take();  // throws
    throw DataError(lockstep::str("rank ", rank, " cannot load the data: ", states[rank]));
  }
  recipes::RecipeData data = own ? own->take() : supplier({.may_download = false, .stop = {}});
  require_same_data(data, group);
  return data;
}

}  // namespace lockstep::cli
