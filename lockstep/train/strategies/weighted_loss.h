// The loss that backward() is called on.
#pragma once

#include <torch/types.h>

#include <lockstep/optim/grad_scaler.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Multiplies `loss` by the weight of its part of the batch and, if `scaler` is not null, by the
/// loss scale. Returns `loss` itself if the weight is 1 and there is no scaler.
inline torch::Tensor weighted_loss(const torch::Tensor& loss, const StepPart& part,
                                   const GradScaler* scaler) {
  const torch::Tensor weighted = part.weight == 1 ? loss : loss * part.weight;
  return scaler != nullptr ? scaler->scale(weighted) : weighted;
}

}  // namespace lockstep::train
