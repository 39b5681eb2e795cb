#include <lockstep/comm/backends/c10d/c10d_backend.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/comm/backends/c10d/c10d_work.h>
#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/c10d/message_slot.h>
#include <lockstep/comm/backends/c10d/pairwise_work.h>
#include <lockstep/comm/backends/c10d/reduction.h>
#include <lockstep/comm/backends/c10d/stream_work.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::c10d_adapter {
namespace {

using Finish = std::function<void()>;

// Data that is only moved is sent as bytes, so it need not be of a type that the library supports.
at::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.detach().view(torch::kUInt8); }

MessageSlot slot_of(const torch::Tensor& tensor, const MessageTag& tag) {
  const auto bytes = static_cast<std::uint64_t>(tensor.nbytes());
  if (tag.collective) {
    return own_slot(OwnMessage::kSchedule, *tag.collective, tag.fingerprint, bytes);
  }
  if (tag.value >> kTagBits != 0) {
    throw ConfigError(lockstep::str("send, recv: tags of this backend must be below ",
                                    1 << kTagBits, ", got ", tag.value));
  }
  return message_slot(tag.value, bytes);
}

// A message in the form in which the library sends or receives it. An empty message is sent as one
// byte, because Gloo cannot receive an empty message from any source.
struct Parcel {
  MessageSlot slot;
  torch::Tensor tensor;  ///< the caller's
  torch::Tensor bytes;   ///< sent or received by the library

  Parcel(const torch::Tensor& given, MessageSlot slot_in) : slot(slot_in), tensor(given.detach()) {
    const bool travels_as_it_is = tensor.numel() > 0 && !slot.padded;
    const auto size = static_cast<std::int64_t>(std::max<std::uint64_t>(slot.bytes, 1));
    bytes = travels_as_it_is
                ? bytes_of(tensor)
                : torch::empty({size}, tensor.options().dtype(torch::kUInt8).requires_grad(false));
  }

  void seal() {
    if (!slot.padded) return;
    const std::uint64_t size = tensor.nbytes();
    std::memcpy(bytes.mutable_data_ptr(), tensor.const_data_ptr(), size);
    std::memcpy(end(), &size, sizeof(size));
  }
  void open() {
    if (!slot.padded) return;
    std::uint64_t size = 0;
    std::memcpy(&size, end(), sizeof(size));
    if (size != tensor.nbytes()) {
      throw CommError(lockstep::str("a message of ", size, " bytes came, got room for ",
                                    tensor.nbytes(), "; both sides must give the same size"));
    }
    std::memcpy(tensor.mutable_data_ptr(), bytes.const_data_ptr(), size);
  }

 private:
  std::byte* end() const {
    return static_cast<std::byte*>(bytes.mutable_data_ptr()) + slot.bytes - sizeof(std::uint64_t);
  }
};

// The handle of an operation that moves no data.
class NothingToDo final : public Work {
 public:
  void wait(std::optional<std::chrono::milliseconds>) override {}
  bool is_completed() override { return true; }
  std::exception_ptr error() const override { return nullptr; }
};

class C10dBackend final : public Backend {
 public:
  explicit C10dBackend(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  const std::string& name() const override { return context_->name(); }
  Watchdog* watchdog() override { return &context_->watchdog(); }
  bool runs_on_stream() const override { return !context_->is_gloo(); }

  std::shared_ptr<Work> start(const Collective& call) override {
    const CallKind kind = call.description.kind;
    if (kind != CallKind::kBarrier && call.description.count == 0 && !call.uneven()) {
      check();
      context_->watchdog().note(call.description, call.number);
      return std::make_shared<NothingToDo>();
    }
    switch (kind) {
      case CallKind::kBarrier:
        return barrier(call);
      case CallKind::kBroadcast:
        return broadcast(call);
      case CallKind::kReduce:
        return reduce(call);
      case CallKind::kAllReduce:
        return all_reduce(call);
      case CallKind::kGather:
        return gather(call, call.output, {});
      case CallKind::kAllGather:
        return all_gather(call, call.input, call.output, {});
      case CallKind::kScatter:
        return scatter(call);
      case CallKind::kReduceScatter:
        return reduce_scatter(call);
      case CallKind::kAllToAll:
        return all_to_all(call, call.output, {});
      case CallKind::kSend:
      case CallKind::kRecv:
        break;
    }
    throw InternalError(lockstep::str(call_name(kind), " is no collective"));
  }

  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, MessageTag tag) override {
    if (!context_->is_gloo()) {
      std::vector<at::Tensor> message{nccl_bytes(tensor)};
      return nccl_message(CallKind::kSend, tensor, destination,
                          [&] { return context_->library().send(message, destination, 0); });
    }
    return send(Parcel(tensor, slot_of(tensor, tag)), destination,
                message_call(CallKind::kSend, tensor, destination, tag));
  }

  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             MessageTag tag) override {
    if (!source && !context_->is_gloo()) throw any_source_error();
    if (!context_->is_gloo()) {
      std::vector<at::Tensor> message{nccl_bytes(tensor)};
      return nccl_message(CallKind::kRecv, tensor, *source,
                          [&] { return context_->library().recv(message, *source, 0); });
    }
    return recv(Parcel(tensor, slot_of(tensor, tag)), source,
                message_call(CallKind::kRecv, tensor, source.value_or(-1), tag));
  }

  // NCCL runs the whole batch as one operation. All messages end together, and ranks cannot
  // deadlock, whatever the order of their messages.
  std::vector<std::shared_ptr<Work>> batch(std::vector<Message> messages) override {
    if (context_->is_gloo() || messages.size() < 2) return Backend::batch(std::move(messages));
    std::vector<Call> calls;
    for (const Message& each : messages) {
      if (!each.peer) throw any_source_error();
      calls.push_back(message_call(each.kind, each.tensor, *each.peer, 0));
    }
    const auto handle = context_->start(calls[0], [&] {
      context_->library().startCoalescing();
      try {
        for (const Message& each : messages) {
          std::vector<at::Tensor> bytes{nccl_bytes(each.tensor)};
          if (each.kind == CallKind::kSend) {
            context_->library().send(bytes, *each.peer, 0);
          } else {
            context_->library().recv(bytes, *each.peer, 0);
          }
        }
      } catch (...) {
        context_->library()
            .endCoalescing();  // otherwise this thread's later calls would join the batch
        throw;
      }
      return context_->library().endCoalescing();
    });
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      works.push_back(std::make_shared<StreamWork>(
          context_, handle, std::move(calls[i]), [tensor = messages[i].tensor] { (void)tensor; }));
    }
    return works;
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    const torch::Device device = context_->options().device;
    const auto options = torch::TensorOptions().dtype(dtype).device(device);
    return zeroed_memory(shape, options, [&] {
      // NCCL registers memory that it has allocated, and reads it without a copy.
      if (!context_->is_gloo() && context_->library().supportsTensorAlloc(device.index())) {
        if (auto memory = library_memory(shape, options); memory.defined()) return memory;
      }
      return torch::zeros(shape, options);
    });
  }

  c10d::Backend* library() override { return &context_->library(); }

  void check() override { context_->watchdog().throw_if_ended(); }
  void abort(const std::string& reason) override { context_->abort(reason); }

 private:
  // Undefined if the library claims to support allocation but fails, as with old drivers.
  torch::Tensor library_memory(at::IntArrayRef shape, const torch::TensorOptions& options) {
    try {
      const auto count = c10::multiply_integers(shape);
      return context_->library().allocateTensor(count, options).zero_().view(shape);
    } catch (const std::exception& error) {
      log_info("allocate: ", name(), " gives no memory of its own (", first_line(error),
               "); using plain memory, which it copies");
      return {};
    }
  }

  std::chrono::milliseconds timeout() const { return context_->options().timeout; }

  std::shared_ptr<Work> collective(const Collective& call,
                                   const std::function<WorkHandle()>& function,
                                   Finish finish = {}) {
    const Call named{call.description, call.number};
    auto handle = context_->start(named, [&] {
      const auto& tag_next = context_->options().tag_next;
      if (tag_next) {
        tag_next(collective_tag(call.number, fingerprint(describe(call.description))));
      }
      return function();
    });
    if (!context_->is_gloo()) {
      return std::make_shared<StreamWork>(context_, std::move(handle), named, std::move(finish));
    }
    return std::make_shared<CollectiveWork>(context_, std::move(handle), named, std::move(finish));
  }

  static ConfigError any_source_error() {
    return ConfigError("recv: NCCL cannot receive from any rank; name the source");
  }

  static Call message_call(CallKind kind, const torch::Tensor& tensor, int peer,
                           const MessageTag& tag) {
    Call call;
    call.description.kind = kind;
    call.description.type = data_type_of(tensor.scalar_type());
    call.description.root = peer;
    call.description.count =
        static_cast<std::uint64_t>(tensor.numel() * units_per_element(tensor.scalar_type()));
    // A message with a collective's tag is part of that collective.
    call.part_of_schedule = tag.collective.has_value();
    call.number = tag.collective;
    return call;
  }

  std::shared_ptr<Work> send(Parcel parcel, int destination, Call call) {
    parcel.seal();
    std::vector<at::Tensor> message{parcel.bytes};
    auto handle = context_->start(
        call, [&] { return context_->library().send(message, destination, parcel.slot.tag); });
    return std::make_shared<PointToPointWork>(context_, std::move(handle), std::move(call),
                                              Finish());
  }

  std::shared_ptr<Work> recv(Parcel parcel, std::optional<int> source, Call call) {
    std::vector<at::Tensor> message{parcel.bytes};
    auto handle = context_->start(call, [&] {
      return source ? context_->library().recv(message, *source, parcel.slot.tag)
                    : context_->library().recvAnysource(message, parcel.slot.tag);
    });
    Finish deliver;
    if (parcel.slot.padded) deliver = [parcel]() mutable { parcel.open(); };
    return std::make_shared<PointToPointWork>(context_, std::move(handle), std::move(call),
                                              std::move(deliver));
  }

  // An empty message is sent as one byte.
  static torch::Tensor nccl_bytes(const torch::Tensor& tensor) {
    if (tensor.numel() > 0) return bytes_of(tensor);
    return torch::zeros({1}, tensor.options().dtype(torch::kUInt8).requires_grad(false));
  }

  std::shared_ptr<Work> nccl_message(CallKind kind, const torch::Tensor& tensor, int peer,
                                     const std::function<WorkHandle()>& function) {
    auto call = message_call(kind, tensor, peer, 0);
    auto handle = context_->start(call, function);
    return std::make_shared<StreamWork>(context_, std::move(handle), std::move(call), Finish());
  }

  std::vector<at::Tensor> pieces_of(const torch::Tensor& tensor) {
    return bytes_of(tensor).chunk(context_->size());
  }

  torch::Tensor scratch(const torch::Tensor& like, std::int64_t pieces) {
    return torch::empty({like.numel() * pieces}, like.options().requires_grad(false));
  }

  std::shared_ptr<Work> barrier(const Collective& call) {
    c10d::BarrierOptions options;
    options.timeout = timeout();
    if (!context_->is_gloo()) options.device_ids = {context_->options().device.index()};
    return collective(call, [&] { return context_->library().barrier(options); });
  }

  std::shared_ptr<Work> broadcast(const Collective& call) {
    c10d::BroadcastOptions options;
    options.rootRank = call.description.root;
    options.timeout = timeout();
    std::vector<at::Tensor> tensors{bytes_of(call.output)};
    return collective(call, [&] { return context_->library().broadcast(tensors, options); });
  }

  bool library_does(const Collective& call) const {
    return library_reduces(context_->options().library, call.description.type, call.description.op);
  }

  LibraryReduction prepared(const Collective& call, const torch::Tensor& tensor, bool in_place) {
    return prepare(context_->options().library, call.description, tensor, in_place,
                   context_->size());
  }

  // If the library lacks the reduction, each rank gathers all values and combines them, in an order
  // that all ranks share.
  std::shared_ptr<Work> all_reduce(const Collective& call) {
    const torch::Tensor output = call.output.detach();
    if (!library_does(call)) {
      const auto pieces = scratch(output, context_->size());
      return all_gather(call, output, pieces, combining(call, output, pieces));
    }
    const auto reduction = prepared(call, output, /*in_place=*/true);
    c10d::AllreduceOptions options;
    options.reduceOp = reduction.op;
    options.timeout = timeout();
    std::vector<at::Tensor> tensors{reduction.tensor};
    return collective(
        call, [&] { return context_->library().allreduce(tensors, options); },
        [reduction, output] { reduction.finish(output); });
  }

  // The library overwrites the tensors of all ranks, but only the root's output may change.
  std::shared_ptr<Work> reduce(const Collective& call) {
    const bool is_root = context_->rank() == call.description.root;
    if (!library_does(call)) {
      const auto pieces = is_root ? scratch(call.input, context_->size()) : torch::Tensor();
      return gather(call, pieces, is_root ? combining(call, call.output, pieces) : Finish());
    }
    const bool in_place = is_root && call.input.data_ptr() == call.output.data_ptr();
    const auto reduction = prepared(call, call.input, in_place);
    c10d::ReduceOptions options;
    options.reduceOp = reduction.op;
    options.rootRank = call.description.root;
    options.timeout = timeout();
    std::vector<at::Tensor> tensors{reduction.tensor};
    return collective(
        call, [&] { return context_->library().reduce(tensors, options); },
        [reduction, output = call.output] {
          if (output.defined()) reduction.finish(output);
        });
  }

  // Gloo's own reduce_scatter would send all data to all ranks. NCCL's lacks the reductions for
  // which library_reduces() is false.
  std::shared_ptr<Work> reduce_scatter(const Collective& call) {
    if (context_->is_gloo() || !library_does(call)) {
      const auto pieces = scratch(call.input, 1);
      return all_to_all(call, pieces, combining(call, call.output, pieces));
    }
    // The library does not overwrite its input, so no copy is needed unless the values must first
    // be multiplied. The output may be this rank's piece of the input.
    const bool as_it_lies = call.description.op.kind != ReduceOp::Kind::kPreMultipliedSum;
    const auto reduction = prepared(call, call.input, as_it_lies);
    auto input = reduction.tensor;
    auto output = call.output.detach();
    if (output.scalar_type() == torch::kBool) output = output.view(torch::kUInt8);
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduction.op;
    options.timeout = timeout();
    return collective(
        call, [&] { return context_->library()._reduce_scatter_base(output, input, options); });
  }

  Finish combining(const Collective& call, torch::Tensor destination, torch::Tensor pieces) {
    return [destination = destination.detach(), pieces = std::move(pieces), size = context_->size(),
            description = call.description] { combine(destination, pieces, size, description); };
  }

  std::shared_ptr<Work> gather(const Collective& call, const torch::Tensor& output, Finish finish) {
    c10d::GatherOptions options;
    options.rootRank = call.description.root;
    options.timeout = timeout();
    std::vector<at::Tensor> inputs{bytes_of(call.input)};
    std::vector<std::vector<at::Tensor>> outputs;
    if (context_->rank() == call.description.root) outputs = {pieces_of(output)};
    return collective(
        call, [&] { return context_->library().gather(outputs, inputs, options); },
        std::move(finish));
  }

  std::shared_ptr<Work> scatter(const Collective& call) {
    c10d::ScatterOptions options;
    options.rootRank = call.description.root;
    options.timeout = timeout();
    std::vector<at::Tensor> outputs{bytes_of(call.output)};
    std::vector<std::vector<at::Tensor>> inputs;
    if (context_->rank() == call.description.root) inputs = {pieces_of(call.input)};
    return collective(call, [&] { return context_->library().scatter(outputs, inputs, options); });
  }

  std::shared_ptr<Work> all_gather(const Collective& call, const torch::Tensor& input,
                                   const torch::Tensor& output, Finish finish) {
    c10d::AllgatherOptions options;
    options.timeout = timeout();
    auto from = bytes_of(input);
    auto to = bytes_of(output);
    return collective(
        call, [&] { return context_->library()._allgather_base(to, from, options); },
        std::move(finish));
  }

  std::shared_ptr<Work> all_to_all(const Collective& call, const torch::Tensor& output,
                                   Finish finish) {
    if (call.uneven() && context_->is_gloo()) return uneven_all_to_all(call);
    c10d::AllToAllOptions options;
    options.timeout = timeout();
    auto from = bytes_of(call.input);
    auto to = bytes_of(output);
    const auto in_bytes = [&](std::vector<std::int64_t> splits) {
      for (auto& split : splits) split *= static_cast<std::int64_t>(call.input.element_size());
      return splits;
    };
    auto from_splits = in_bytes(call.input_splits);
    auto to_splits = in_bytes(call.output_splits);
    return collective(
        call,
        [&] {
          return context_->library().alltoall_base(to, from, to_splits, from_splits, options);
        },
        std::move(finish));
  }

  // Each rank sends two messages to each other rank: the size of its piece, and the piece. A wrong
  // size is thus detected before Gloo meets it. Errors name the collective, not the messages.
  std::shared_ptr<Work> uneven_all_to_all(const Collective& call) {
    const torch::NoGradGuard no_grad;
    const Call named{call.description, call.number, /*part_of_schedule=*/true};
    const std::uint32_t print = fingerprint(describe(call.description));
    const auto given = call.input.detach().split_with_sizes(call.input_splits);
    const auto taken = call.output.detach().split_with_sizes(call.output_splits);
    const auto slot = [&](OwnMessage kind, const torch::Tensor& tensor) {
      const std::uint64_t bytes = tensor.nbytes();
      const bool is_piece = kind == OwnMessage::kPiece;
      return own_slot(kind, call.number, is_piece ? fingerprint(str(print, ' ', bytes)) : print,
                      bytes);
    };
    const auto sending = [&](OwnMessage kind, const torch::Tensor& tensor, int peer) {
      return send(Parcel(tensor, slot(kind, tensor)), peer, named);
    };
    const auto receiving = [&](OwnMessage kind, const torch::Tensor& tensor, int peer) {
      return recv(Parcel(tensor, slot(kind, tensor)), peer, named);
    };
    const int rank = context_->rank();
    const int size = context_->size();
    taken[static_cast<std::size_t>(rank)].copy_(given[static_cast<std::size_t>(rank)]);
    std::vector<PairwiseWork::Exchange> exchanges;
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      const int from = (rank - step + size) % size;
      const torch::Tensor& piece = given[static_cast<std::size_t>(to)];
      const torch::Tensor& place = taken[static_cast<std::size_t>(from)];
      PairwiseWork::Exchange each;
      each.source = from;
      each.expected = place.numel();
      each.announced = torch::empty({1}, torch::kInt64);
      each.sizes = {receiving(OwnMessage::kSize, each.announced, from),
                    sending(OwnMessage::kSize, torch::full({1}, piece.numel(), torch::kInt64), to)};
      if (place.numel() > 0) each.pieces.push_back(receiving(OwnMessage::kPiece, place, from));
      if (piece.numel() > 0) each.pieces.push_back(sending(OwnMessage::kPiece, piece, to));
      exchanges.push_back(std::move(each));
    }
    return std::make_shared<PairwiseWork>(context_, named, std::move(exchanges));
  }

  const std::shared_ptr<Context> context_;
};

}  // namespace

int store_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks) {
  if (environment.agent_store) return -1;  // the launcher serves it
  if (world_ranks.empty()) return 0;
  const auto first = std::find(world_ranks.begin(), world_ranks.end(), 0);
  return first == world_ranks.end() ? -1 : static_cast<int>(first - world_ranks.begin());
}

int world_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks) {
  return world_ranks.empty() ? environment.rank
                             : world_ranks[static_cast<std::size_t>(environment.rank)];
}

std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options) {
  return std::make_shared<C10dBackend>(
      std::make_shared<Context>(std::move(backend), std::move(store), std::move(options)));
}

}  // namespace lockstep::c10d_adapter
