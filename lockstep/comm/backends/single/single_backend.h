// The group of one: every collective is complete at once.
#pragma once

#include <memory>

#include <lockstep/comm/backend.h>

namespace lockstep::single {

std::shared_ptr<Backend> make();

}  // namespace lockstep::single
