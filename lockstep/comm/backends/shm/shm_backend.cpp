#include <lockstep/comm/backends/shm/shm_backend.h>

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

DataType data_type(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32: return DataType::kFloat32;
    case torch::kFloat64: return DataType::kFloat64;
    case torch::kFloat16: return DataType::kFloat16;
    case torch::kBFloat16: return DataType::kBFloat16;
    case torch::kInt32: return DataType::kInt32;
    case torch::kInt64: return DataType::kInt64;
    case torch::kUInt8: return DataType::kUInt8;
    default:
      throw ConfigError(lockstep::str("all_reduce: shared memory does not reduce ", tensor.scalar_type(),
                            " tensors; convert the tensor first"));
  }
}

class ShmWork final : public Work {
 public:
  // `dense` is what the engine works on; where the caller's tensor is not dense it is a copy, taken
  // back into `target` at the end.
  ShmWork(std::shared_ptr<Engine> engine, Engine::Ticket ticket, torch::Tensor dense,
          torch::Tensor target, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)),
        ticket_(ticket),
        dense_(std::move(dense)),
        target_(std::move(target)),
        timeout_(timeout) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    if (finished_) return;
    engine_->wait(ticket_, timeout.value_or(timeout_));
    finish();
  }

  bool is_completed() override {
    if (!finished_ && engine_->test(ticket_)) finish();
    return finished_;
  }

 private:
  void finish() {
    finished_ = true;
    if (target_.defined()) {
      const torch::NoGradGuard no_grad;
      target_.copy_(dense_);
    }
  }

  std::shared_ptr<Engine> engine_;
  Engine::Ticket ticket_;
  torch::Tensor dense_;
  torch::Tensor target_;
  std::chrono::milliseconds timeout_;
  bool finished_ = false;
};

class ShmBackend final : public Backend {
 public:
  ShmBackend(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)), timeout_(timeout) {}

  const std::string& name() const override {
    static const std::string name = "shm";
    return name;
  }

  std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) override {
    const DataType type = data_type(tensor);
    if (op == ReduceOp::kAverage && !is_floating_point(type)) {
      throw ConfigError(str("all_reduce: the average of ", data_type_name(type),
                            " is not defined; sum and divide yourself"));
    }
    const auto [dense, target] = dense_form(tensor, "all_reduce");
    const auto ticket = engine_->post_all_reduce(bytes_of(dense),
                                                 static_cast<std::size_t>(dense.numel()), type, op,
                                                 std::make_shared<torch::Tensor>(dense));
    return std::make_shared<ShmWork>(engine_, ticket, dense, target, timeout_);
  }

  std::shared_ptr<Work> broadcast(torch::Tensor tensor, int root) override {
    const auto [dense, target] = dense_form(tensor, "broadcast");
    const auto ticket = engine_->post_broadcast(bytes_of(dense), dense.nbytes(), root,
                                                std::make_shared<torch::Tensor>(dense));
    return std::make_shared<ShmWork>(engine_, ticket, dense, target, timeout_);
  }

  std::shared_ptr<Work> barrier() override {
    return std::make_shared<ShmWork>(engine_, engine_->post_barrier(), torch::Tensor(),
                                     torch::Tensor(), timeout_);
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    const std::size_t bytes =
        static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    auto memory = engine_->allocate(bytes, timeout_);
    std::byte* data = memory.get();
    return torch::from_blob(
        data, shape, [memory = std::move(memory)](void*) mutable { memory.reset(); },
        torch::TensorOptions().dtype(dtype));
  }

  void abort(const std::string& reason) override { engine_->abort(reason); }

 private:
  static std::byte* bytes_of(const torch::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  }

  // A tensor whose elements fill its memory without holes is used in place, whatever the order of
  // its dimensions: the ranks' tensors have the same strides.
  static std::pair<torch::Tensor, torch::Tensor> dense_form(const torch::Tensor& tensor,
                                                            const char* operation) {
    if (!tensor.is_cpu()) {
      throw ConfigError(lockstep::str(operation, ": the shared-memory backend needs CPU tensors, got one on ",
                            tensor.device()));
    }
    if (tensor.is_non_overlapping_and_dense()) return {tensor, torch::Tensor()};
    return {tensor.contiguous(), tensor};
  }

  std::shared_ptr<Engine> engine_;
  std::chrono::milliseconds timeout_;
};

// What rank 0 announces: where its control segment is, and what must be found in it.
struct Announcement {
  SegmentAddress address;
  std::uint64_t nonce[2] = {0, 0};
};

template <class Value>
std::vector<std::uint8_t> to_bytes(const Value& value) {
  std::vector<std::uint8_t> bytes(sizeof(Value));
  std::memcpy(bytes.data(), &value, sizeof(Value));
  return bytes;
}

std::string vote_key(int rank) { return str("shm/vote/", rank); }

std::shared_ptr<Segment> announce(c10d::Store& store, int size, const EngineOptions& options) {
  auto segment = Segment::create(Engine::control_bytes(size, options));
  Announcement announcement;
  announcement.address = segment->address();
  if (getrandom(announcement.nonce, sizeof(announcement.nonce), 0) !=
      static_cast<ssize_t>(sizeof(announcement.nonce))) {
    throw CommError(str("no random numbers for the handshake: ", errno_text(errno)));
  }
  auto* header = reinterpret_cast<ControlHeader*>(segment->data());
  std::memcpy(header->nonce, announcement.nonce, sizeof(header->nonce));
  store.set("shm/control", to_bytes(announcement));
  return segment;
}

std::shared_ptr<Segment> find_announced(c10d::Store& store) {
  const auto bytes = store.get("shm/control");
  Announcement announcement;
  if (bytes.size() != sizeof(announcement)) throw CommError("rank 0 could not create shared memory");
  std::memcpy(&announcement, bytes.data(), bytes.size());
  auto segment = Segment::open(announcement.address);
  const auto* header = reinterpret_cast<const ControlHeader*>(segment->data());
  if (std::memcmp(header->nonce, announcement.nonce, sizeof(announcement.nonce)) != 0) {
    throw CommError("the segment found is not the one of rank 0: another host");
  }
  return segment;
}

// What a rank that can take part says of itself.
struct Vote {
  pid_t pid = 0;
  cpu_set_t cpus{};
};

// All ranks' votes, the same on all ranks, so that all decide alike. Nothing when a rank cannot take
// part, and then `why_not` says which and why.
std::vector<Vote> count_votes(c10d::Store& store, int size, std::string& why_not) {
  std::vector<Vote> votes(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    const auto bytes = store.get(vote_key(rank));
    if (bytes.size() == sizeof(Vote)) {
      std::memcpy(&votes[rank], bytes.data(), sizeof(Vote));
    } else if (why_not.empty()) {
      why_not = str("rank ", rank, ": ", std::string(bytes.begin(), bytes.end()));
    }
  }
  return votes;
}

// A rank that spins while a peer has no processor to run on delays what it waits for.
bool share_processors(const std::vector<Vote>& votes) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const Vote& vote : votes) CPU_OR(&all, &all, &vote.cpus);
  return CPU_COUNT(&all) < static_cast<int>(votes.size());
}

}  // namespace

std::shared_ptr<Backend> try_connect(c10d::Store& store, const WorkerEnvironment& environment,
                                     std::chrono::milliseconds timeout, std::string& why_not) {
  EngineOptions options;
  std::shared_ptr<Segment> control;
  std::vector<std::uint8_t> vote;
  try {
    control = environment.rank == 0 ? announce(store, environment.world_size, options)
                                    : find_announced(store);
    Vote mine{.pid = getpid()};
    if (sched_getaffinity(0, sizeof(mine.cpus), &mine.cpus) != 0) CPU_ZERO(&mine.cpus);
    vote = to_bytes(mine);
  } catch (const CommError& error) {
    const std::string reason = error.what();
    vote.assign(reason.begin(), reason.end());
    if (environment.rank == 0) store.set("shm/control", std::vector<std::uint8_t>());
  }
  store.set(vote_key(environment.rank), vote);
  const std::vector<Vote> votes = count_votes(store, environment.world_size, why_not);
  if (!why_not.empty()) return nullptr;
  if (environment.rank == 0) control->close_descriptor();

  if (share_processors(votes)) options.spin = std::chrono::microseconds(0);
  auto engine = std::make_shared<Engine>(std::move(control), environment.rank,
                                         environment.world_size, options);
  std::vector<pid_t> pids;
  for (const Vote& each : votes) pids.push_back(each.pid);
  engine->watch(pids);
  return std::make_shared<ShmBackend>(std::move(engine), timeout);
}

}  // namespace lockstep::shm
