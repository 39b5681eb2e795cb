#include <lockstep/parallel/device_mesh.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

// "data 2 x pipeline 2"
std::string shape_text(const std::vector<MeshDimension>& dimensions) {
  std::vector<std::string> parts;
  for (const MeshDimension& dimension : dimensions) {
    parts.push_back(str(dimension.name, ' ', dimension.size));
  }
  return join(parts, " x ");
}

// Why a mesh of `ranks` ranks cannot have these dimensions; empty if it can.
std::string why_not_a_mesh(const std::vector<MeshDimension>& dimensions, int ranks) {
  if (dimensions.empty()) return "a mesh needs a dimension at least";
  std::set<std::string> names;
  std::int64_t product = 1;
  for (const MeshDimension& dimension : dimensions) {
    if (dimension.name.empty()) return "a dimension has no name";
    if (!names.insert(dimension.name).second) {
      return str("there are two dimensions '", dimension.name, "'");
    }
    if (dimension.size < 1) {
      return str("dimension '", dimension.name, "' must have a size of at least 1, got ",
                 dimension.size);
    }
    product *= dimension.size;
    if (product > ranks) break;  // before it overflows
  }
  if (product == ranks) return "";
  return str(shape_text(dimensions), " cannot be the shape of a group of ",
             amount_of(ranks, "rank"));
}

// ConfigError on all ranks if the dimensions of one of them are invalid or differ.
void require_agreement(const std::vector<MeshDimension>& dimensions, ProcessGroup& group) {
  const std::string problem = why_not_a_mesh(dimensions, group.size());
  const auto all =
      group.all_gather_object(problem.empty() ? "+" + shape_text(dimensions) : "!" + problem);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = all[static_cast<std::size_t>(rank)];
    if (text.front() == '!')
      throw ConfigError(str("DeviceMesh: rank ", rank, ": ", text.substr(1)));
    if (text == all.front()) continue;
    throw ConfigError(str("DeviceMesh: rank ", rank, " gave ", text.substr(1), ", rank 0 gave ",
                          all.front().substr(1), "; give all ranks the same dimensions"));
  }
}

std::vector<int> coordinate_of(int rank, const std::vector<MeshDimension>& dimensions) {
  std::vector<int> coordinate(dimensions.size());
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    coordinate[d] = rank % dimensions[d].size;
    rank /= dimensions[d].size;
  }
  return coordinate;
}

int rank_of(const std::vector<int>& coordinate, const std::vector<MeshDimension>& dimensions) {
  int rank = 0;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    rank = rank * dimensions[d].size + coordinate[d];
  }
  return rank;
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup group, std::vector<MeshDimension> dimensions)
    : all_(std::move(group)), dimensions_(std::move(dimensions)) {
  require_agreement(dimensions_, all_);
  coordinate_ = coordinate_of(all_.rank(), dimensions_);
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    // The first rank of the row gives the row its color.
    std::vector<int> first = coordinate_;
    first[d] = 0;
    auto row = all_.split(rank_of(first, dimensions_), coordinate_[d]);
    LOCKSTEP_CHECK(row && row->rank() == coordinate_[d] && row->size() == dimensions_[d].size,
                   "the group along ", dimensions_[d].name, " is not that of the mesh");
    groups_.push_back(*std::move(row));
  }
}

std::size_t DeviceMesh::place_of(const std::string& name) const {
  const auto found =
      std::find_if(dimensions_.begin(), dimensions_.end(),
                   [&](const MeshDimension& dimension) { return dimension.name == name; });
  if (found != dimensions_.end()) return static_cast<std::size_t>(found - dimensions_.begin());
  throw ConfigError(
      str("DeviceMesh: there is no dimension '", name, "' in ", shape_text(dimensions_)));
}

ProcessGroup& DeviceMesh::group(const std::string& name) { return groups_[place_of(name)]; }

int DeviceMesh::local_rank(const std::string& name) const { return coordinate_[place_of(name)]; }

int DeviceMesh::size(const std::string& name) const { return dimensions_[place_of(name)].size; }

}  // namespace lockstep
