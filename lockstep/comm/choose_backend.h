// Which transport a group gets, and its connection.
#pragma once

#include <memory>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/membership.h>

namespace lockstep {

/// Collective over the members, of which there are at least two. See ProcessGroupOptions::backend
/// for the rule. CommError where the wanted backend cannot connect them.
std::shared_ptr<Backend> choose_backend(Membership& membership);

}  // namespace lockstep
