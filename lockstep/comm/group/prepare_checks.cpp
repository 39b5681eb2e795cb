// Checks for errors in a call that one rank can detect alone.
#include <lockstep/comm/group/prepare.h>

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/group/prepare_fail.h>
#include <lockstep/comm/kernels/reduce.h>

namespace lockstep::comm {
namespace {

// "tensor", or "outputs[2]" for an element of a list.
std::string named(const char* name, int index) {
  return index < 0 ? name : lockstep::str(name, '[', index, ']');
}

// The memory from a tensor's first byte to its last. `place` is the tensor's index in a call.
struct Extent {
  torch::Device device;
  std::uintptr_t begin;
  std::uintptr_t end;
  const torch::Tensor* tensor;
  std::size_t place;
  bool written;
};

Extent extent_of(const torch::Tensor& tensor, std::size_t place, bool written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  const std::size_t bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  return {tensor.device(), begin, begin + bytes, &tensor, place, written};
}

// Marks the addresses of elements, in a part of memory in which they are multiples of a unit.
class MarkedMemory {
 public:
  explicit MarkedMemory(const std::vector<Extent>& extents) {
    begin_ = extents.front().begin;
    std::uintptr_t end = begin_;
    for (const Extent& extent : extents) {
      begin_ = std::min(begin_, extent.begin);
      end = std::max(end, extent.end);
    }
    for (const Extent& extent : extents) {
      unit_ = std::gcd(unit_, std::gcd(extent.tensor->element_size(), extent.begin - begin_));
    }
    marks_.resize((end - begin_) / unit_);
  }

  // Returns false at the first element that is marked already.
  bool mark(const torch::Tensor& tensor) {
    return all_units(tensor, [this](std::size_t unit) {
      if (marks_[unit]) return false;
      marks_[unit] = true;
      return true;
    });
  }
  bool has_no_mark_in(const torch::Tensor& tensor) const {
    return all_units(tensor, [this](std::size_t unit) { return !marks_[unit]; });
  }

 private:
  template <class Function>
  bool all_units(const torch::Tensor& tensor, const Function& function) const {
    const auto first = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) - begin_;
    return all_units(tensor, 0, first / unit_, tensor.element_size() / unit_, function);
  }
  template <class Function>
  static bool all_units(const torch::Tensor& tensor, std::int64_t dimension, std::size_t unit,
                        std::size_t units, const Function& function) {
    if (dimension == tensor.dim()) {
      for (std::size_t i = 0; i < units; ++i) {
        if (!function(unit + i)) return false;
      }
      return true;
    }
    const std::size_t step = static_cast<std::size_t>(tensor.stride(dimension)) * units;
    for (std::int64_t i = 0; i < tensor.size(dimension); ++i, unit += step) {
      if (!all_units(tensor, dimension + 1, unit, units, function)) return false;
    }
    return true;
  }

  std::uintptr_t begin_ = 0;
  std::size_t unit_ = 0;
  std::vector<bool> marks_;
};

// Whether two elements of a tensor have the same address.
bool overlaps_itself(const torch::Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride and size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return false;
    if (tensor.size(d) > 1) dimensions.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t length = 1;  // covered by the dimensions with smaller strides
  bool nested = true;
  for (const auto& [stride, size] : dimensions) {
    if (stride == 0) return true;
    nested = nested && stride >= length;
    length += stride * (size - 1);
  }
  return !nested && !MarkedMemory({extent_of(tensor, 0, true)}).mark(tensor);
}

bool overlap(const Extent& a, const Extent& b) {
  return a.device == b.device && a.begin < b.end && b.begin < a.end;
}

// Whether two views of equal strides, such as two column blocks of a matrix, are proven to have no
// element in common. The strides, from the largest to the smallest, are the units of a number
// system in which each element has one address as long as no digit exceeds its unit. The views are
// then boxes, which are apart if they are so in one dimension. `a` begins before `b`.
bool are_boxes_apart(const Extent& a, const Extent& b) {
  const torch::Tensor &x = *a.tensor, &y = *b.tensor;
  const auto unit = static_cast<std::int64_t>(x.element_size());
  if (x.dim() != y.dim() || static_cast<std::int64_t>(y.element_size()) != unit) return false;
  struct Dimension {
    std::int64_t stride, x_size, y_size;
  };
  std::vector<Dimension> dimensions;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) == 1 && y.size(d) == 1) continue;
    if (x.stride(d) != y.stride(d)) return false;
    dimensions.push_back({x.stride(d) * unit, x.size(d), y.size(d)});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& one, const Dimension& other) { return one.stride > other.stride; });
  auto rest = static_cast<std::int64_t>(b.begin - a.begin);
  std::int64_t larger = std::numeric_limits<std::int64_t>::max();
  bool apart = false;
  for (const Dimension& each : dimensions) {
    if (each.stride < unit) return false;
    const std::int64_t first = rest / each.stride;  // where y begins; x begins at 0
    rest %= each.stride;
    if (std::max(each.x_size, first + each.y_size) > larger / each.stride) return false;
    apart = apart || first >= each.x_size;
    larger = each.stride;
  }
  return apart && rest == 0;
}

// Whether a written tensor shares an element with another one. Looks at single elements where
// nothing simpler proves the contrary.
bool elements_overlap(const std::vector<Extent>& extents) {
  bool proven = true;
  for (std::size_t i = 0; proven && i < extents.size(); ++i) {
    for (std::size_t j = i + 1; proven && j < extents.size(); ++j) {
      const bool is_first = extents[i].begin <= extents[j].begin;
      const Extent &a = extents[is_first ? i : j], &b = extents[is_first ? j : i];
      proven = (!a.written && !b.written) || !overlap(a, b) || are_boxes_apart(a, b);
    }
  }
  if (proven) return false;
  MarkedMemory memory(extents);
  for (const Extent& each : extents) {
    if (each.written && !memory.mark(*each.tensor)) return true;
  }
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& each) {
    return !each.written && !memory.has_no_mark_in(*each.tensor);
  });
}

// The places of a written tensor and of another that shares memory with it. The places of read
// tensors follow those of written ones. Undefined tensors count as empty.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(at::TensorList written,
                                                                at::TensorList read) {
  if (written.size() == 1 && read.size() == 1 && written[0].defined() && read[0].defined() &&
      !overlap(extent_of(written[0], 0, true), extent_of(read[0], 1, false))) [[likely]] {
    return std::nullopt;
  }
  std::vector<Extent> extents;
  extents.reserve(written.size() + read.size());
  const auto add = [&](at::TensorList tensors, bool are_written) {
    const std::size_t first = are_written ? 0 : written.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined() || tensors[i].numel() == 0) continue;
      extents.push_back(extent_of(tensors[i], first + i, are_written));
    }
  };
  add(written, true);
  add(read, false);
  const auto order = [](const Extent& extent) {
    return std::tuple(extent.device.type(), extent.device.index(), extent.begin);
  };
  std::sort(extents.begin(), extents.end(),
            [&](const Extent& a, const Extent& b) { return order(a) < order(b); });
  // In this order, tensors whose extents overlap are neighbours.
  for (auto first = extents.begin(); first != extents.end();) {
    auto last = first + 1;
    for (Extent all = *first; last != extents.end() && overlap(all, *last); ++last) {
      all.end = std::max(all.end, last->end);
    }
    const bool alone = last - first == 1;
    const std::vector<Extent> neighbours(alone ? last : first, last);
    first = last;
    if (alone || !elements_overlap(neighbours)) continue;
    for (const Extent& a : neighbours) {
      for (const Extent& b : neighbours) {
        if (!a.written || a.place >= b.place || !overlap(a, b)) continue;
        if (elements_overlap({a, b})) return std::pair(a.place, b.place);
      }
    }
  }
  return std::nullopt;
}

bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous()));
}

}  // namespace

void Prepare::check_tensor(const char* call, const char* name, const Tensor& tensor,
                           int index) const {
  if (!tensor.defined()) [[unlikely]] {
    fail(call, named(name, index), " is undefined; give a tensor");
  }
  if (tensor.layout() != torch::kStrided || tensor.is_quantized() || tensor.is_meta())
      [[unlikely]] {
    fail(call, named(name, index),
         " is sparse, quantized or without memory; expected a dense tensor");
  }
  if (tensor.is_conj() || tensor.is_neg()) [[unlikely]] {
    fail(call, named(name, index),
         " is a lazy conjugate or negative view; call resolve_conj() or resolve_neg()");
  }
  using Memory = PrepareOptions::Memory;
  if (options_.memory == Memory::kHost && !tensor.is_cpu() && !tensor.is_cuda() &&
      tensor.device().type() != options_.device.type()) [[unlikely]] {
    fail(call, named(name, index), " is on ", tensor.device(), ", expected cpu or cuda");
  }
  if (staged(tensor) && is_captured(tensor.device())) [[unlikely]] {
    fail(call, named(name, index), " on ", tensor.device(),
         " goes through the host, which a captured stream cannot wait for; use NCCL, with a GPU "
         "for each rank, or call it outside the capture");
  }
  if (options_.memory == Memory::kDevice && tensor.device() != options_.device) [[unlikely]] {
    fail(call, named(name, index), " is on ", tensor.device(), ", expected ", options_.device,
         ", the device of the group");
  }
}

void Prepare::check_written(const char* call, const char* name, const Tensor& tensor,
                            int index) const {
  check_tensor(call, name, tensor, index);
  if (tensor.is_contiguous()) [[likely]]
    return;
  if (overlaps_itself(tensor)) {
    fail(call, named(name, index), " has several elements at one address (shape ", tensor.sizes(),
         ", strides ", tensor.strides(), "); clone() it first");
  }
}

void Prepare::check_root(const char* call, int root) const {
  if (root < 0 || root >= options_.size) [[unlikely]] {
    fail(call, "root must be from 0 to ", options_.size - 1, ", got ", root);
  }
}

void Prepare::check_reducible(const char* call, torch::ScalarType type, ReduceOp op) const {
  const detail::DataType ours = data_type_of(type);
  if (ours == detail::DataType::kFloat32 && op.kind <= ReduceOp::Kind::kMax) [[likely]]
    return;
  if (ours == detail::DataType::kByte) {
    fail(call, "the ", reduce_op_name(op.kind), " of ", type_name(type), " is not defined");
  }
  const std::string why_not = why_not_reducible(ours, op);
  if (!why_not.empty()) fail(call, why_not);
}

void Prepare::check_tensor_list(const char* call, const char* name, const Tensors& list,
                                const Tensor& like, const char* like_name) const {
  if (static_cast<int>(list.size()) != options_.size) {
    fail(call, name, " has ", list.size(), " tensors, expected ", options_.size,
         ", one for each rank");
  }
  for (int i = 0; i < options_.size; ++i) {
    const Tensor& tensor = list[static_cast<std::size_t>(i)];
    check_tensor(call, name, tensor, i);
    if (tensor.sizes() != like.sizes()) {
      fail(call, name, '[', i, "] has shape ", tensor.sizes(), ", expected ", like.sizes(),
           " like the ", like_name);
    }
    if (tensor.scalar_type() != like.scalar_type() || tensor.device() != like.device()) {
      fail(call, name, '[', i, "] is ", type_name(tensor.scalar_type()), " on ", tensor.device(),
           ", expected ", type_name(like.scalar_type()), " on ", like.device(), " like the ",
           like_name);
    }
  }
}

void Prepare::check_types(const char* call, const Tensor& output, const Tensor& input) const {
  if (output.scalar_type() != input.scalar_type() || output.device() != input.device())
      [[unlikely]] {
    fail(call, "output is ", type_name(output.scalar_type()), " on ", output.device(),
         ", expected ", type_name(input.scalar_type()), " on ", input.device(), " like the input");
  }
}

// --- Overlapping tensors -------------------------------------------------------------------------

// Each backend reads and writes in an order of its own, so the results of a call whose tensors
// overlap would depend on the backend. LibTorch's operators refuse such tensors, too.
void Prepare::check_apart(const char* call, const Argument& written, const Argument& read) const {
  const auto overlap = find_overlap(written.tensors, read.tensors);
  if (!overlap) [[likely]]
    return;
  const auto name = [&](std::size_t place) {
    const bool is_written = place < written.tensors.size();
    const Argument& argument = is_written ? written : read;
    const std::size_t index = is_written ? place : place - written.tensors.size();
    return named(argument.name, argument.is_list ? static_cast<int>(index) : -1);
  };
  fail(call, name(overlap->second), " shares memory with ", name(overlap->first),
       ", which this call writes; pass a clone() of one of them");
}

// As check_apart(), but what this rank gives to itself may be in its place already.
void Prepare::check_apart_but_own(const char* call, const Argument& written,
                                  const Argument& read) const {
  const auto own = static_cast<std::size_t>(options_.rank);
  const auto own_of = [&](const Argument& argument) -> const Tensor& {
    return argument.tensors[argument.is_list ? own : 0];
  };
  const Tensor &to = own_of(written), &from = own_of(read);
  const bool in_place = written.is_list || read.is_list
                            ? is_same_memory(to, from)
                            : is_own_piece(to, from) || is_own_piece(from, to);
  if (!in_place) return check_apart(call, written, read);
  Tensors others;
  if (read.is_list) {
    others = read.tensors.vec();
    others[own] = Tensor();
  }
  check_apart(call, written, {read.name, others});
}

// Whether `piece` is what this rank gives to, or takes from, the tensor of all ranks' pieces.
bool Prepare::is_own_piece(const Tensor& whole, const Tensor& piece) const {
  return whole.is_contiguous() && piece.is_contiguous() &&
         whole.nbytes() == piece.nbytes() * static_cast<std::size_t>(options_.size) &&
         static_cast<const std::byte*>(piece.const_data_ptr()) ==
             static_cast<const std::byte*>(whole.const_data_ptr()) +
                 piece.nbytes() * static_cast<std::size_t>(options_.rank);
}

void Prepare::check_batch(const Tensors& received, const Tensors& sent) const {
  check_apart("batch_isend_irecv", {"operations", received}, {"operations", sent});
}

void Prepare::check_send(const Tensor& tensor, int destination, int tag) const {
  check_peer("send", destination, tag);
  check_tensor("send", "tensor", tensor);
}

void Prepare::check_recv(const Tensor& tensor, std::optional<int> source, int tag) const {
  if (source) {
    check_peer("recv", *source, tag);
  } else if (options_.size == 1) {
    fail("recv", "this rank is alone in its group: nobody can send");
  }
  if (tag < 0)
    fail("recv", "tag must be at least 0, got ", tag, "; negative ones are the library's own");
  check_written("recv", "tensor", tensor);
}

void Prepare::check_peer(const char* call, int peer, int tag) const {
  if (peer < 0 || peer >= options_.size) {
    fail(call, "peer must be from 0 to ", options_.size - 1, ", got ", peer);
  }
  if (peer == options_.rank) fail(call, "peer is rank ", peer, " of the group, this rank itself");
  if (tag < 0)
    fail(call, "tag must be at least 0, got ", tag, "; negative ones are the library's own");
}

// Only the two ranks of a pair know how much they exchange; all ranks see that there are splits.
void Prepare::describe_splits(const char* call, const Tensor& like, Collective& collective) const {
  const auto own = static_cast<std::size_t>(options_.rank);
  if (collective.input_splits[own] != collective.output_splits[own]) {
    const std::int64_t units = units_per_element(like.scalar_type());
    fail(call, "gives itself ", collective.input_splits[own] / units, " elements and expects ",
         collective.output_splits[own] / units);
  }
  collective.description.root = CallDescription::kWithSplits;
}

// Total number of elements of all pieces. Without splits all pieces have the same size.
std::int64_t Prepare::check_splits(const char* call, const char* name, const Tensor& tensor,
                                   const Splits& splits, Splits& elements) const {
  if (tensor.dim() == 0) fail(call, name, " has no dimension 0 to cut along");
  const std::int64_t rows = tensor.size(0);
  if (splits.empty() && rows % options_.size != 0) {
    fail(call, name, " has ", rows, " rows, expected a multiple of the ", options_.size,
         " ranks; or give splits");
  }
  if (!splits.empty() && static_cast<int>(splits.size()) != options_.size) {
    fail(call, name, "_splits has ", splits.size(), " numbers, expected ", options_.size,
         ", one for each rank");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) fail(call, name, "_splits has ", split, ", expected at least 0");
    sum += split;
  }
  if (!splits.empty() && sum != rows) {
    fail(call, name, "_splits sum to ", sum, ", expected ", rows, ", the rows of ", name);
  }
  const std::int64_t units = tensor.numel() * units_per_element(tensor.scalar_type());
  const std::int64_t units_per_row = rows == 0 ? 0 : units / rows;
  for (int r = 0; r < options_.size; ++r) {
    const std::int64_t own =
        splits.empty() ? rows / options_.size : splits[static_cast<std::size_t>(r)];
    elements.push_back(own * units_per_row);
  }
  return units;
}

}  // namespace lockstep::comm
