#include <lockstep/comm/backends/gloo/gloo_backend.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/comm/backends/gloo/gloo_context.h>
#include <lockstep/comm/backends/gloo/gloo_work.h>
#include <lockstep/comm/backends/gloo/message_slot.h>
#include <lockstep/comm/backends/gloo/pairwise_work.h>
#include <lockstep/comm/call/message_tag.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {
namespace {

using c10d_adapter::bytes_of;
using c10d_adapter::message_call;

// Gloo's own reduce_scatter would send all data to all ranks.
constexpr c10d_adapter::LibraryReductions kReductions{
    .averages = false, .bitwise = true, .precise_halves = false, .scatters = false};

MessageSlot slot_of(const torch::Tensor& tensor, const comm::MessageTag& tag) {
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
      throw CommError(lockstep::str("a message of ", size, " bytes came, but there is room for ",
                                    tensor.nbytes(), "; both sides must give the same size"));
    }
    std::memcpy(tensor.mutable_data_ptr(), bytes.const_data_ptr(), size);
  }

 private:
  std::byte* end() const {
    return static_cast<std::byte*>(bytes.mutable_data_ptr()) + slot.bytes - sizeof(std::uint64_t);
  }
};

class GlooBackend final : public c10d_adapter::C10dBackend {
 public:
  GlooBackend(std::shared_ptr<GlooContext> context, std::function<void(std::uint32_t tag)> tag_next)
      : C10dBackend(*context, kReductions),
        context_(std::move(context)),
        tag_next_(std::move(tag_next)) {}

  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{
        .slow_messages = true, .widens_halves = true, .uses_own_memory = false};
    return kTraits;
  }

  bool gathers_to_reduce(detail::DataType type, ReduceOp op) const override {
    return !reduces(type, op);
  }

  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, comm::MessageTag tag) override {
    return send(Parcel(tensor, slot_of(tensor, tag)), destination,
                message_call(CallKind::kSend, tensor, destination, tag));
  }

  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             comm::MessageTag tag) override {
    return recv(Parcel(tensor, slot_of(tensor, tag)), source,
                message_call(CallKind::kRecv, tensor, source.value_or(-1), tag));
  }

 private:
  std::shared_ptr<Work> collective(const comm::Collective& call,
                                   const std::function<WorkHandle()>& function,
                                   Finish finish) override {
    const Call named{call.description, call.number};
    auto handle = context_->start(named, [&] {
      if (tag_next_) {
        tag_next_(collective_tag(call.number, comm::fingerprint(describe(call.description))));
      }
      return function();
    });
    return std::make_shared<CollectiveWork>(context_, std::move(handle), named, std::move(finish));
  }

  std::shared_ptr<Work> all_to_all(const comm::Collective& call, const torch::Tensor& output,
                                   Finish finish) override {
    if (call.uneven()) return uneven_all_to_all(call);
    return C10dBackend::all_to_all(call, output, std::move(finish));
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

  // Each rank sends two messages to each other rank: the size of its piece, and the piece. A wrong
  // size is thus detected before Gloo meets it. Errors name the collective, not the messages.
  std::shared_ptr<Work> uneven_all_to_all(const comm::Collective& call) {
    const torch::NoGradGuard no_grad;
    const Call named{call.description, call.number, /*part_of_schedule=*/true};
    const std::uint32_t print = comm::fingerprint(describe(call.description));
    const auto given = call.input.detach().split_with_sizes(call.input_splits);
    const auto taken = call.output.detach().split_with_sizes(call.output_splits);
    const auto slot = [&](OwnMessage kind, const torch::Tensor& tensor) {
      const std::uint64_t bytes = tensor.nbytes();
      const bool is_piece = kind == OwnMessage::kPiece;
      return own_slot(kind, call.number,
                      is_piece ? comm::fingerprint(str(print, ' ', bytes)) : print, bytes);
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

  const std::shared_ptr<GlooContext> context_;
  const std::function<void(std::uint32_t tag)> tag_next_;
};

}  // namespace

bool reduces(detail::DataType type, ReduceOp op) {
  return c10d_adapter::library_reduces(kReductions, type, op);
}

std::shared_ptr<comm::Backend> adapt(c10::intrusive_ptr<c10d::Backend> library,
                                     c10::intrusive_ptr<c10d::Store> store,
                                     c10d_adapter::AdapterOptions options, GlooHooks hooks) {
  return std::make_shared<GlooBackend>(
      std::make_shared<GlooContext>(std::move(library), std::move(store), std::move(options),
                                    std::move(hooks.progress)),
      std::move(hooks.tag_next));
}

}  // namespace lockstep::gloo
