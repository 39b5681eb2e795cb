#include <lockstep/parallel/pipeline/activation_memory.h>

#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace lockstep::pipeline {

// The blocks that belong to stages. Thread-safe.
class ActivationMemory::Blocks {
 public:
  explicit Blocks(std::vector<int> worker_of) : worker_of_(std::move(worker_of)) { clear(); }

  void clear() {
    const std::scoped_lock lock(mutex_);
    int workers = 0;
    for (const int worker : worker_of_) workers = std::max(workers, worker + 1);
    blocks_.clear();
    ended_.clear();
    held_.assign(worker_of_.size(), 0);
    peaks_.stages.assign(worker_of_.size(), 0);
    peaks_.workers.assign(static_cast<std::size_t>(workers), 0);
  }

  /// Replaces a block at the same address: it was freed on a thread that is not watched.
  void allocated(const void* address, std::int64_t bytes, Owner owner) {
    const std::scoped_lock lock(mutex_);
    remove(address);
    if (owner.stage >= 0) add(address, {owner, bytes});
  }
  void freed(const void* address) {
    const std::scoped_lock lock(mutex_);
    remove(address);
  }
  void adopt(const void* address, std::int64_t bytes, Owner owner) {
    const std::scoped_lock lock(mutex_);
    if (!blocks_.contains(address)) add(address, {owner, bytes});
  }
  void end(Owner owner) {
    const std::scoped_lock lock(mutex_);
    ended_.insert(owner);
    const Owner next{owner.stage + 1, owner.micro_batch};
    const bool has_next =
        static_cast<std::size_t>(next.stage) < held_.size() && !ended_.contains(next);
    std::vector<std::pair<const void*, Block>> left;
    for (const auto& each : blocks_) {
      if (each.second.owner == owner) left.push_back(each);
    }
    for (const auto& [address, block] : left) {
      remove(address);
      if (has_next) add(address, {next, block.bytes});
    }
  }

  void note(int stage) {
    const std::scoped_lock lock(mutex_);
    const int worker = worker_of_[static_cast<std::size_t>(stage)];
    std::int64_t of_worker = 0;
    for (std::size_t s = 0; s < worker_of_.size(); ++s) {
      if (worker_of_[s] == worker) of_worker += held_[s];
    }
    raise(peaks_.stages[static_cast<std::size_t>(stage)], held_[static_cast<std::size_t>(stage)]);
    raise(peaks_.workers[static_cast<std::size_t>(worker)], of_worker);
  }

  ActivationBytes peaks() const {
    const std::scoped_lock lock(mutex_);
    return peaks_;
  }

 private:
  struct Block {
    Owner owner{};
    std::int64_t bytes = 0;
  };

  static void raise(std::int64_t& peak, std::int64_t value) { peak = std::max(peak, value); }

  void add(const void* address, const Block& block) {
    blocks_[address] = block;
    held_[static_cast<std::size_t>(block.owner.stage)] += block.bytes;
  }
  void remove(const void* address) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return;
    held_[static_cast<std::size_t>(found->second.owner.stage)] -= found->second.bytes;
    blocks_.erase(found);
  }

  const std::vector<int> worker_of_;
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;  // by address
  std::set<Owner> ended_;                          // owners whose backwards have ended
  std::vector<std::int64_t> held_;                 // bytes, by stage
  ActivationBytes peaks_;
};

// Receives the allocators' reports on one worker's thread and on the threads on which LibTorch runs
// its backwards.
class ActivationMemory::Reporter final : public c10::MemoryReportingInfoBase {
 public:
  explicit Reporter(std::shared_ptr<Blocks> blocks) : blocks_(std::move(blocks)) {}

  void reportMemoryUsage(void* address, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    if (bytes > 0) {
      blocks_->allocated(address, bytes, claimed.load());
    } else {
      blocks_->freed(address);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::atomic<Owner> claimed = Owner();

 private:
  const std::shared_ptr<Blocks> blocks_;
};

ActivationMemory::ActivationMemory(std::vector<int> worker_of)
    : worker_of_(std::move(worker_of)), blocks_(std::make_shared<Blocks>(worker_of_)) {
  for (std::size_t worker = 0; worker < peaks().workers.size(); ++worker) {
    reporters_.push_back(std::make_shared<Reporter>(blocks_));
  }
}
ActivationMemory::~ActivationMemory() = default;

void ActivationMemory::begin() { blocks_->clear(); }

ActivationMemory::Watch::Watch(ActivationMemory* memory, int worker) {
  if (!memory || static_cast<std::size_t>(worker) >= memory->reporters_.size()) return;
  guard_.emplace(c10::DebugInfoKind::PROFILER_STATE,
                 memory->reporters_[static_cast<std::size_t>(worker)]);
}

ActivationMemory::Claim::Claim(ActivationMemory* memory, Owner owner)
    : memory_(memory),
      stage_(owner.stage),
      before_(memory ? memory->exchange_claim(owner.stage, owner) : Owner()) {}

ActivationMemory::Claim::~Claim() {
  if (memory_) memory_->exchange_claim(stage_, before_);
}

ActivationMemory::Owner ActivationMemory::exchange_claim(int stage, Owner claimed) {
  const int worker = worker_of_[static_cast<std::size_t>(stage)];
  return reporters_[static_cast<std::size_t>(worker)]->claimed.exchange(claimed);
}

void ActivationMemory::adopt(Owner owner, const Tensors& tensors) {
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const c10::Storage& storage = tensor.storage();
    if (storage.nbytes() == 0) continue;
    blocks_->adopt(storage.data(), static_cast<std::int64_t>(storage.nbytes()), owner);
  }
}

void ActivationMemory::give_away(const Tensors& tensors) {
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    if (tensor.use_count() > 1 || tensor.storage().use_count() > 1) continue;
    blocks_->freed(tensor.storage().data());
  }
}

void ActivationMemory::note(int stage) { blocks_->note(stage); }

void ActivationMemory::end(Owner owner) { blocks_->end(owner); }

ActivationBytes ActivationMemory::peaks() const { return blocks_->peaks(); }

}  // namespace lockstep::pipeline
