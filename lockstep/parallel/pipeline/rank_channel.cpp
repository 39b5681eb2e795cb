#include <lockstep/parallel/pipeline/rank_channel.h>

#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::pipeline {
namespace {

// A header is a tensor of this many numbers. The first number is the count of those that follow;
// numbers that do not fit are sent in a second tensor.
constexpr std::int64_t kHeaderNumbers = 64;

using Numbers = std::vector<std::int64_t>;

ProcessGroup message_group(ProcessGroup& group, const std::optional<std::string>& backend) {
  if (!backend) return group;
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  return *group.new_group(all, backend);
}

// For each tensor: whether it is defined, whether its gradient must be sent back, its type,
// dimensions, sizes and strides.
Numbers header_of(const StageMessage& message) {
  Numbers numbers{static_cast<std::int64_t>(message.tensors.size())};
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    const torch::Tensor& tensor = message.tensors[i];
    numbers.push_back(tensor.defined() ? 1 : 0);
    if (!tensor.defined()) continue;
    numbers.push_back(i < message.requires_grad.size() && message.requires_grad[i] ? 1 : 0);
    numbers.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    numbers.push_back(tensor.dim());
    for (const std::int64_t size : tensor.sizes()) numbers.push_back(size);
    for (const std::int64_t stride : tensor.strides()) numbers.push_back(stride);
  }
  return numbers;
}

class HeaderReader {
 public:
  explicit HeaderReader(Numbers numbers) : numbers_(std::move(numbers)) {}

  std::int64_t next() {
    LOCKSTEP_CHECK(place_ < numbers_.size(), "a message between stages has a short header");
    return numbers_[place_++];
  }
  Numbers next(std::int64_t count) {
    Numbers numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(next());
    return numbers;
  }

 private:
  Numbers numbers_;
  std::size_t place_ = 0;
};

// A flat view of a dense tensor's memory, in the order of its strides.
torch::Tensor memory_of(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

torch::Tensor tensor_of(const Numbers& numbers, std::size_t first, std::int64_t count) {
  torch::Tensor tensor = torch::zeros({count}, torch::kInt64);
  auto* values = tensor.data_ptr<std::int64_t>();
  const std::size_t left = numbers.size() - std::min(numbers.size(), first);
  std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(std::min(numbers.size(), first)),
              std::min(left, static_cast<std::size_t>(count)), values);
  return tensor;
}

}  // namespace

std::optional<std::string> message_backend(const BackendTraits& traits) {
  if (!traits.messages_overlap) return "gloo";
  return std::nullopt;
}

RankChannel::RankChannel(ProcessGroup group, torch::Device device)
    : RankChannel(group, device, message_backend(group.traits())) {}

RankChannel::RankChannel(ProcessGroup group, torch::Device device,
                         const std::optional<std::string>& backend)
    : group_(std::move(group)), messages_(message_group(group_, backend)), device_(device) {}

void RankChannel::send(int to, StageMessage message) {
  const torch::NoGradGuard no_grad;
  advance();
  for (torch::Tensor& tensor : message.tensors) {
    if (!tensor.defined()) continue;
    tensor = tensor.resolve_conj().resolve_neg();  // only the memory is sent, without such flags
    if (!tensor.is_non_overlapping_and_dense()) tensor = tensor.contiguous();
  }
  Numbers numbers = header_of(message);
  numbers.insert(numbers.begin(), static_cast<std::int64_t>(numbers.size()));
  send_tensor(to, tensor_of(numbers, 0, kHeaderNumbers));
  const auto length = static_cast<std::int64_t>(numbers.size());
  if (length > kHeaderNumbers) {
    send_tensor(to, tensor_of(numbers, kHeaderNumbers, length - kHeaderNumbers));
  }
  for (const torch::Tensor& tensor : message.tensors) {
    if (tensor.defined() && tensor.numel() > 0) send_tensor(to, memory_of(tensor));
  }
}

StageMessage RankChannel::receive(int peer) {
  const torch::NoGradGuard no_grad;
  advance();
  torch::Tensor header = torch::empty({kHeaderNumbers}, torch::kInt64);
  receive_into(peer, header);
  const std::int64_t length = header[0].item<std::int64_t>() + 1;
  if (length > kHeaderNumbers) {
    const torch::Tensor rest = torch::empty({length - kHeaderNumbers}, torch::kInt64);
    receive_into(peer, rest);
    header = torch::cat({header, rest});
  }
  const auto* values = header.data_ptr<std::int64_t>();
  HeaderReader reader(Numbers(values + 1, values + length));
  StageMessage message;
  const std::int64_t count = reader.next();
  for (std::int64_t i = 0; i < count; ++i) {
    torch::Tensor tensor;
    bool requires_grad = false;
    if (reader.next() != 0) {
      requires_grad = reader.next() != 0;
      const auto type = static_cast<torch::ScalarType>(reader.next());
      const std::int64_t dimensions = reader.next();
      const Numbers sizes = reader.next(dimensions);
      const Numbers strides = reader.next(dimensions);
      tensor = torch::empty_strided(sizes, strides, torch::dtype(type).device(device_));
    }
    message.tensors.push_back(std::move(tensor));
    message.requires_grad.push_back(requires_grad);
  }
  for (const torch::Tensor& tensor : message.tensors) {
    if (tensor.defined() && tensor.numel() > 0) receive_into(peer, memory_of(tensor));
  }
  return message;
}

void RankChannel::abort(const std::string& reason) {
  group_.abort(reason);
  messages_.abort(reason);
}

void RankChannel::finish() {
  std::deque<Pending> pending;
  {
    const std::scoped_lock lock(mutex_);
    pending = std::exchange(pending_, {});
    if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }
  for (const Pending& each : pending) each.work->wait();
}

void RankChannel::send_tensor(int to, torch::Tensor tensor) {
  WorkPtr work = messages_.isend(tensor, to);
  if (work->is_completed() && !work->error()) return;
  {
    const std::scoped_lock lock(mutex_);
    pending_.push_back({std::move(work), std::move(tensor)});
  }
  if (!messages_.traits().progresses_alone) start_writing();
}

void RankChannel::receive_into(int peer, const torch::Tensor& tensor) {
  messages_.irecv(tensor, peer)->wait();
}

void RankChannel::advance() {
  const std::scoped_lock lock(mutex_);
  move_on();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

// Polls every pending send, because polling makes it progress.
void RankChannel::move_on() {
  std::erase_if(pending_, [&](const Pending& each) {
    if (!each.work->is_completed()) return false;
    if (!error_) error_ = each.work->error();
    return true;
  });
}

// If no thread can be started, sends are slower but the step still completes.
void RankChannel::start_writing() {
  if (!writer_.joinable()) {
    try {
      writer_ = std::thread([this] { write_what_is_left(); });
    } catch (const std::system_error& error) {
      log_debug("long messages between stages wait for their sender: ", error.what());
      return;
    }
  }
  left_.notify_one();
}

void RankChannel::write_what_is_left() {
  constexpr std::chrono::microseconds kPause(100);
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (pending_.empty()) {
      left_.wait(lock, [&] { return stops_ || !pending_.empty(); });
    } else {
      move_on();
      left_.wait_for(lock, kPause, [&] { return stops_; });
    }
  }
}

RankChannel::~RankChannel() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  left_.notify_one();
  if (writer_.joinable()) writer_.join();
}

}  // namespace lockstep::pipeline
