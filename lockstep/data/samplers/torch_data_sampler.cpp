#include <lockstep/data/samplers/torch_data_sampler.h>

#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

struct TorchDataSampler::State {
  std::shared_ptr<const lockstep::Sampler> sampler;
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // start of the next pass
  std::vector<std::int64_t> indices;
  std::size_t place = 0;  // position in the current pass
  // Whether `place` is a position in `epoch`; else the next pass begins at `first`.
  bool walks = false;
};

TorchDataSampler::TorchDataSampler(std::shared_ptr<const lockstep::Sampler> sampler)
    : state_(std::make_shared<State>()) {
  if (!sampler) throw ConfigError("TorchDataSampler: got no sampler");
  state_->sampler = std::move(sampler);
}

void TorchDataSampler::set_epoch(std::int64_t epoch, std::int64_t first) {
  const OptionCheck check("TorchDataSampler::set_epoch");
  check.in_range("epoch", static_cast<double>(epoch), 0, std::numeric_limits<std::uint32_t>::max());
  check.in_range("first", static_cast<double>(first), 0,
                 static_cast<double>(state_->sampler->size()));
  state_->epoch = epoch;
  state_->first = first;
  state_->walks = false;
}

std::int64_t TorchDataSampler::epoch() const { return state_->epoch; }

void TorchDataSampler::reset(std::optional<std::size_t> new_size) {
  const auto size = static_cast<std::size_t>(state_->sampler->size());
  if (new_size && *new_size != size) {
    throw ConfigError(lockstep::str("TorchDataSampler: cannot be reset to ", *new_size,
                                    " indices, its sampler has ", size, "; make another"));
  }
  state_->indices = state_->sampler->indices(state_->epoch);
  state_->place = static_cast<std::size_t>(std::exchange(state_->first, 0));
  state_->walks = true;
}

std::optional<std::vector<std::size_t>> TorchDataSampler::next(std::size_t batch_size) {
  const std::size_t begin = state_->place;
  const std::size_t end = std::min(begin + batch_size, state_->indices.size());
  if (begin == end) return std::nullopt;
  state_->place = end;
  return std::vector<std::size_t>(state_->indices.begin() + static_cast<std::ptrdiff_t>(begin),
                                  state_->indices.begin() + static_cast<std::ptrdiff_t>(end));
}

void TorchDataSampler::save(torch::serialize::OutputArchive& archive) const {
  const auto place = state_->walks ? static_cast<std::int64_t>(state_->place) : state_->first;
  archive.write("epoch", torch::tensor(state_->epoch, torch::kInt64), /*is_buffer=*/true);
  archive.write("place", torch::tensor(place, torch::kInt64), /*is_buffer=*/true);
}

void TorchDataSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty({1}, torch::kInt64);
  torch::Tensor place = torch::empty({1}, torch::kInt64);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("place", place, /*is_buffer=*/true);
  set_epoch(epoch.item<std::int64_t>(), place.item<std::int64_t>());
}

}  // namespace lockstep
