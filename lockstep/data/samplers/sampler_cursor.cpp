#include <lockstep/data/samplers/sampler_cursor.h>

#include <algorithm>
#include <charconv>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {
namespace {

constexpr const char* kSampler = "sampler";
constexpr const char* kEpoch = "sampler_epoch";
constexpr const char* kTaken = "sampler_taken";

const std::string& text_at(const std::map<std::string, std::string>& settings, const char* name) {
  const auto found = settings.find(name);
  if (found == settings.end()) throw CheckpointError(str("sampler position: no ", name));
  return found->second;
}

std::int64_t number_at(const std::map<std::string, std::string>& settings, const char* name) {
  const std::string& text = text_at(settings, name);
  const char* const end = text.data() + text.size();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  throw CheckpointError(str("sampler position: ", name, " is not a whole number: '", text, "'"));
}

// User-defined samplers may override Sampler::share(), so its result is validated.
EpochShare checked(EpochShare share) {
  LOCKSTEP_CHECK(share.occurrences.empty() || share.occurrences.size() == share.indices.size(),
                 "the sampler gave ", share.occurrences.size(), " occurrences of ",
                 share.indices.size(), " indices");
  return share;
}

}  // namespace

std::map<std::string, std::string> to_settings(const SamplerPosition& position) {
  return {{kSampler, position.sampler},
          {kEpoch, std::to_string(position.epoch)},
          {kTaken, std::to_string(position.taken)}};
}

SamplerPosition sampler_position(const std::map<std::string, std::string>& settings) {
  return {.sampler = text_at(settings, kSampler),
          .epoch = number_at(settings, kEpoch),
          .taken = number_at(settings, kTaken)};
}

// With padding, the last round of turns takes more indices than there are.
SamplerPosition position_of(const Sampler& sampler, std::int64_t epoch, std::int64_t next) {
  return {.sampler = sampler.describe(),
          .epoch = epoch,
          .taken = std::min(next * sampler.world_size(), sampler.shared_size())};
}

void check_position(const Sampler& sampler, const SamplerPosition& position) {
  const std::string own = sampler.describe();
  if (position.sampler != own) {
    throw CheckpointError(
        str("sampler position: it is of ", position.sampler, ", this sampler is ", own));
  }
  if (position.epoch < 0 || position.taken < 0 || position.taken > sampler.shared_size()) {
    throw CheckpointError(str("sampler position: epoch ", position.epoch, " index ", position.taken,
                              " is not a place in ", own));
  }
}

SamplerCursor::SamplerCursor(std::shared_ptr<const Sampler> sampler)
    : sampler_(std::move(sampler)) {
  if (!sampler_) throw ConfigError("SamplerCursor: got no sampler");
}

std::optional<std::int64_t> SamplerCursor::next() {
  if (remaining() == 0) return std::nullopt;
  const std::int64_t index = rest().front();
  ++next_;
  return index;
}

std::vector<std::int64_t> SamplerCursor::next(std::int64_t count) {
  const OptionCheck check("SamplerCursor::next");
  check.at_least("count", static_cast<double>(count), 1);
  const auto taken = rest().first(static_cast<std::size_t>(std::min(count, remaining())));
  next_ += static_cast<std::int64_t>(taken.size());
  return {taken.begin(), taken.end()};
}

void SamplerCursor::skip(std::int64_t count) {
  const OptionCheck check("SamplerCursor::skip");
  check.in_range("count", static_cast<double>(count), 0, static_cast<double>(remaining()));
  next_ += count;
}

std::span<const std::int64_t> SamplerCursor::rest() {
  load();
  return std::span(share_.indices).subspan(static_cast<std::size_t>(next_));
}

std::span<const std::uint32_t> SamplerCursor::occurrences() {
  load();
  if (share_.occurrences.empty()) return {};
  return std::span(share_.occurrences).subspan(static_cast<std::size_t>(next_));
}

void SamplerCursor::load() {
  if (loaded_) return;
  EpochShare share = checked(sampler_->share(epoch_, 0));
  LOCKSTEP_CHECK(static_cast<std::int64_t>(share.indices.size()) == sampler_->size(),
                 "the sampler gave ", share.indices.size(), " indices and says ", sampler_->size());
  share_ = std::move(share);
  loaded_ = true;
}

std::int64_t SamplerCursor::remaining() const {
  return (loaded_ ? static_cast<std::int64_t>(share_.indices.size()) : sampler_->size()) - next_;
}

void SamplerCursor::set_epoch(std::int64_t epoch) {
  const OptionCheck check("SamplerCursor::set_epoch");
  check.at_least("epoch", static_cast<double>(epoch), 0);
  loaded_ = loaded_ && epoch == epoch_ && taken_ == 0;
  taken_ = 0;
  epoch_ = epoch;
  next_ = 0;
}

SamplerPosition SamplerCursor::position() const {
  return {.sampler = sampler_->describe(),
          .epoch = epoch_,
          .taken = std::min(taken_ + next_ * sampler_->world_size(), sampler_->shared_size())};
}

void SamplerCursor::restore(const SamplerPosition& position) {
  check_position(*sampler_, position);
  share_ = checked(sampler_->share(position.epoch, position.taken));
  taken_ = position.taken;
  epoch_ = position.epoch;
  next_ = 0;
  loaded_ = true;
}

}  // namespace lockstep
