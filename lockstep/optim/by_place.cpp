#include <lockstep/optim/by_place.h>

#include <algorithm>

namespace lockstep::optim {

std::vector<Tensors> by_place(const Tensors& tensors) {
  std::vector<Tensors> lists;
  for (const torch::Tensor& tensor : tensors) {
    const auto place = std::find_if(lists.begin(), lists.end(), [&](const Tensors& list) {
      return list[0].device() == tensor.device() && list[0].scalar_type() == tensor.scalar_type();
    });
    if (place == lists.end()) {
      lists.push_back({tensor});
    } else {
      place->push_back(tensor);
    }
  }
  return lists;
}

}  // namespace lockstep::optim
