// The loss that backward() is called on.
#pragma once

#include <torch/types.h>

#include <lockstep/optim/grad_scaler.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep {

/// `loss` times the part's weight and, if the run scales its losses, the scale. Returns `loss`
/// itself if there is nothing to multiply by.
inline torch::Tensor weighted_loss(const torch::Tensor& loss, const StepPart& part,
                                   const GradScaler* scaler) {
  const torch::Tensor weighted = part.weight == 1 ? loss : loss * part.weight;
  return scaler != nullptr ? scaler->scale(weighted) : weighted;
}

}  // namespace lockstep
