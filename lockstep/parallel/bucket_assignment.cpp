#include <lockstep/parallel/bucket_assignment.h>

#include <map>

namespace lockstep {

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<torch::Tensor>& parameters,
                                                     const BucketCaps& caps) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<torch::ScalarType, Open> open;  // the bucket that is being filled, for each dtype
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const torch::ScalarType dtype = parameters[i].scalar_type();
    auto found = open.find(dtype);
    if (found == open.end()) {
      found = open.insert({dtype, {buckets.size(), 0}}).first;
      buckets.emplace_back();
    }
    Open& current = found->second;
    buckets[current.bucket].push_back(i);
    current.bytes += parameters[i].nbytes();
    if (current.bytes >= (current.bucket == 0 ? caps.first_bytes : caps.bytes)) open.erase(found);
  }
  return buckets;
}

}  // namespace lockstep
