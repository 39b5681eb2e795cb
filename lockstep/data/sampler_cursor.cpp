#include <lockstep/data/sampler_cursor.h>

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
  throw CheckpointError(str("sampler position: ", name, " is no whole number: '", text, "'"));
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

// With padding the last round of turns takes more than there is.
SamplerPosition position_of(const Sampler& sampler, std::int64_t epoch, std::int64_t next) {
  return {.sampler = sampler.describe(),
          .epoch = epoch,
          .taken = std::min(next * sampler.world_size(), sampler.shared_size())};
}

std::int64_t next_at(const Sampler& sampler, const SamplerPosition& position) {
  const std::string own = sampler.describe();
  if (position.sampler != own) {
    throw CheckpointError(
        str("sampler position: it is of ", position.sampler, ", this sampler is ", own));
  }
  const std::int64_t taken = position.taken;
  const int ranks = sampler.world_size();
  if (position.epoch < 0 || taken < 0 || taken > sampler.shared_size()) {
    throw CheckpointError(
        str("sampler position: epoch ", position.epoch, " index ", taken, " is no place in ", own));
  }
  if (taken == sampler.shared_size()) return sampler.size();
  if (taken % ranks != 0) {
    throw CheckpointError(str("sampler position: the ", taken, " indices taken do not divide by ",
                              ranks,
                              " ranks; go on with as many ranks as before, or from the "
                              "beginning of an epoch"));
  }
  // Shares may differ by one, and some ranks' end before the others'.
  return std::min(taken / ranks, sampler.size());
}

SamplerCursor::SamplerCursor(std::shared_ptr<const Sampler> sampler)
    : sampler_(std::move(sampler)) {
  if (!sampler_) throw ConfigError("SamplerCursor: got no sampler");
}

std::optional<std::int64_t> SamplerCursor::next() {
  if (remaining() == 0) return std::nullopt;
  load();
  return indices_[next_++];
}

std::vector<std::int64_t> SamplerCursor::next(std::int64_t count) {
  const OptionCheck check("SamplerCursor::next");
  check.at_least("count", static_cast<double>(count), 1);
  count = std::min(count, remaining());
  if (count == 0) return {};
  load();
  const auto begin = indices_.begin() + next_;
  next_ += count;
  return {begin, begin + count};
}

void SamplerCursor::load() {
  if (loaded_) return;
  indices_ = sampler_->indices(epoch_);
  LOCKSTEP_CHECK(static_cast<std::int64_t>(indices_.size()) == sampler_->size(),
                 "the sampler gave ", indices_.size(), " indices and says ", sampler_->size());
  loaded_ = true;
}

void SamplerCursor::set_epoch(std::int64_t epoch) {
  const OptionCheck check("SamplerCursor::set_epoch");
  check.at_least("epoch", static_cast<double>(epoch), 0);
  loaded_ = loaded_ && epoch == epoch_;
  epoch_ = epoch;
  next_ = 0;
}

void SamplerCursor::restore(const SamplerPosition& position) {
  const std::int64_t next = next_at(*sampler_, position);
  set_epoch(position.epoch);
  next_ = next;
}

}  // namespace lockstep
