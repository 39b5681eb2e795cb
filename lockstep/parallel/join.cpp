#include <lockstep/parallel/join.h>

#include <algorithm>
#include <numeric>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/parallel/ddp/reducer.h>

namespace lockstep {

Join::Join(DdpCore& ddp, JoinMode mode)
    : ddp_(ddp),
      mode_(mode),
      batches_(static_cast<std::size_t>(ddp.group().size()), 0),
      has_more_(batches_.size(), false) {
  if (mode == JoinMode::kWeighted && ddp.options().sync_batch_norm) {
    throw ConfigError(
        "Join: with sync_batch_norm a rank without a batch can't take part in the others' "
        "forward; use JoinMode::kShortest");
  }
}

std::vector<std::int64_t> Join::exchange(std::int64_t samples) {
  if (ddp_.group().size() == 1) return {samples};
  const torch::NoGradGuard no_grad;
  ProcessGroup group = ddp_.group();
  const torch::TensorOptions options =
      torch::TensorOptions(torch::kInt64)
          .device(ddp_.reducer()->grad_buckets().front().parameters.front().device());
  const torch::Tensor all = torch::empty({group.size()}, options);
  group.all_gather_into_tensor(all, torch::full({1}, samples, options));
  const torch::Tensor numbers = all.cpu();
  return {numbers.data_ptr<std::int64_t>(), numbers.data_ptr<std::int64_t>() + numbers.numel()};
}

bool Join::next(std::int64_t samples) {
  if (samples < 0) throw ConfigError(str("Join: a batch has ", samples, " samples"));
  const auto counts = exchange(samples);
  has_more_.clear();
  for (const std::int64_t count : counts) has_more_.push_back(count > 0);
  const auto first = std::find(has_more_.begin(), has_more_.end(), true);
  const bool all = std::find(has_more_.begin(), has_more_.end(), false) == has_more_.end();
  if (first == has_more_.end() || (mode_ == JoinMode::kShortest && !all)) {
    end();
    return false;
  }
  samples_ = samples;
  if (mode_ == JoinMode::kWeighted) {
    const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    weight_ = static_cast<double>(samples) * static_cast<double>(counts.size()) /
              static_cast<double>(total);
    ddp_.set_buffer_source(static_cast<int>(first - has_more_.begin()));
  }
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    batches_[rank] += counts[rank] > 0 ? 1 : 0;
  return true;
}

void Join::end() {
  if (mode_ == JoinMode::kWeighted) {
    ddp_.broadcast_buffers();
    ddp_.set_buffer_source(0);
  }
  const std::string text = report();
  if (!text.empty() && ddp_.group().rank() == 0) log_warning("Join: ", text);
}

std::string Join::report() const {
  std::vector<std::int64_t> had = batches_;
  if (mode_ == JoinMode::kShortest) {  // ranks that could have continued had at least one more
    for (std::size_t rank = 0; rank < had.size(); ++rank) had[rank] += has_more_.at(rank) ? 1 : 0;
  }
  const std::int64_t most = *std::max_element(had.begin(), had.end());
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < had.size(); ++rank) {
    if (had[rank] < most) texts.push_back(str("rank ", rank, " had ", had[rank], " batches"));
  }
  if (texts.empty()) return "";
  return mode_ == JoinMode::kShortest
             ? str(join(texts), ", others had more; all ranks stopped after ",
                   *std::min_element(had.begin(), had.end()), " steps")
             : str(join(texts), ", others had up to ", most,
                   "; they took part in the rest with gradients of zero");
}

}  // namespace lockstep
