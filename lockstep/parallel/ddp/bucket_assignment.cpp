#include <lockstep/parallel/ddp/bucket_assignment.h>

#include <map>
#include <numeric>

namespace lockstep::detail {

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<torch::Tensor>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     const BucketCaps& caps,
                                                     const std::vector<bool>& alone) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<torch::ScalarType, Open> open;  // the bucket being filled, for each dtype
  for (const std::size_t index : order) {
    if (!alone.empty() && alone[index]) {
      buckets.push_back({index});
      continue;
    }
    const torch::ScalarType dtype = parameters[index].scalar_type();
    auto found = open.find(dtype);
    if (found == open.end()) {
      found = open.insert({dtype, {buckets.size(), 0}}).first;
      buckets.emplace_back();
    }
    Open& current = found->second;
    buckets[current.bucket].push_back(index);
    current.bytes += parameters[index].nbytes();
    if (current.bytes >= (current.bucket == 0 ? caps.first_bytes : caps.bytes)) open.erase(found);
  }
  return buckets;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

}  // namespace lockstep::detail
