// DeviceMesh: the ranks of a group, arranged in a grid with named dimensions, and a group along
// each of them.
//
//   auto mesh = lockstep::DeviceMesh(group, {{"data", 2}, {"pipeline", 2}});
//   mesh.group("data").all_reduce(tensor);      // with the ranks of the same pipeline coordinate
//   const int stage = mesh.local_rank("pipeline");
//
// Like torch.distributed.device_mesh.init_device_mesh: rank r of the group has the coordinates of
// element r in row-major order, so ranks that are neighbours in the last dimension are consecutive.
// In the mesh above, ranks 0 and 1 form one pipeline, and ranks 2 and 3 form the other.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API MeshDimension {
  std::string name{};
  int size = 1;
};

/// A value type; copies share the groups. As thread-safe as ProcessGroup.
class LOCKSTEP_API DeviceMesh {
 public:
  /// Collective. Makes a group along each dimension (ProcessGroup::split()). Throws ConfigError, on
  /// every rank, if there is no dimension, if a name is empty or repeated, if a size is below 1, if
  /// the product of the sizes is not the size of the group, or if the ranks give different
  /// dimensions.
  DeviceMesh(ProcessGroup group, std::vector<MeshDimension> dimensions);

  /// The group of the ranks that share all of this rank's coordinates except possibly the one along
  /// `name`, ordered by that coordinate. This function, local_rank() and size() throw ConfigError
  /// for an unknown name.
  ProcessGroup& group(const std::string& name);
  /// This rank's coordinate, which is its rank in group(name). Called get_local_rank() in PyTorch.
  int local_rank(const std::string& name) const;
  int size(const std::string& name) const;

  /// The number of ranks.
  int size() const { return all_.size(); }
  /// All ranks of the mesh.
  ProcessGroup& all() { return all_; }
  /// This rank's coordinates, in the order of dimensions(). Called get_coordinate() in PyTorch.
  const std::vector<int>& coordinate() const { return coordinate_; }
  const std::vector<MeshDimension>& dimensions() const { return dimensions_; }

 private:
  std::size_t place_of(const std::string& name) const;

  ProcessGroup all_;
  std::vector<MeshDimension> dimensions_;
  std::vector<int> coordinate_;
  std::vector<ProcessGroup> groups_;  // one for each dimension
};

}  // namespace lockstep
