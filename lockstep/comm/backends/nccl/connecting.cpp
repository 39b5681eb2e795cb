#include <lockstep/comm/backends/nccl/connecting.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <lockstep/comm/backends/c10d/group_store.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

constexpr std::chrono::milliseconds kMeanwhilePause{5};
// The store's own limit for a wait, which ends earlier: when the rank gives up.
constexpr std::chrono::hours kNoStoreLimit{24 * 365};

}  // namespace

void await_library(std::function<void()> call, const c10d_adapter::Meanwhile& meanwhile,
                   std::chrono::milliseconds timeout) {
  std::packaged_task<void()> task(std::move(call));
  std::future<void> end = task.get_future();
  std::thread thread(std::move(task));
  const Deadline deadline(timeout);
  try {
    while (end.wait_for(kMeanwhilePause) != std::future_status::ready) {
      meanwhile.look();
      if (deadline.expired()) {
        throw TimeoutError(str("not all ranks connected within ",
                               static_cast<double>(timeout.count()) / 1e3, " s"));
      }
    }
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  end.get();
}

void connect_library(const c10::intrusive_ptr<c10d::Store>& store,
                     std::function<void(c10::intrusive_ptr<c10d::Store>)> call,
                     const c10d_adapter::Meanwhile& meanwhile, std::chrono::milliseconds timeout) {
  const auto has_given_up = std::make_shared<std::atomic<bool>>(false);
  auto view = c10::make_intrusive<c10d_adapter::GroupStore>(store, [has_given_up] {
    if (*has_given_up) throw CommError("this rank has given up connecting");
  });
  view->setTimeout(kNoStoreLimit);
  try {
    await_library([call = std::move(call), view] { call(view); }, meanwhile, timeout);
  } catch (...) {
    *has_given_up = true;
    throw;
  }
}

}  // namespace lockstep::nccl
