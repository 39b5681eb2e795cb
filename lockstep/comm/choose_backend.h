// Which transport a group gets, and its connection.
#pragma once

#include <memory>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/membership.h>

namespace lockstep {

/// Collective over the members, of which there are at least two. See ProcessGroupOptions::backend
/// and ::leaders for the rules. CommError where the wanted backend cannot connect them, ConfigError
/// where it cannot be: on all ranks.
std::shared_ptr<Backend> choose_backend(Membership& membership);

}  // namespace lockstep
