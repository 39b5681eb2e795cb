// The engines of one group for tests. Each rank creates its own engine over a common segment.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include <lockstep/comm/backends/shm/engine.h>

namespace lockstep::testing_support {

inline constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(30);
inline constexpr std::size_t kHeaderBytes = 32;  ///< header of a message in its ring

struct ShmGroup {
  explicit ShmGroup(int size, shm::EngineOptions options = {})
      : size(size),
        options(std::move(options)),
        control(shm::Segment::create(shm::Engine::control_bytes(size, this->options))) {
    // Tests have more threads than the machine has processors.
    this->options.patience = {std::chrono::microseconds(0), std::chrono::milliseconds(1)};
  }

  std::shared_ptr<shm::Engine> engine(int rank,
                                      std::shared_ptr<comm::Progress> progress = nullptr) const {
    shm::EngineOptions mine = options;
    mine.progress = progress;
    auto engine = std::make_shared<shm::Engine>(control, rank, size, mine);
    if (progress) progress->add(engine);
    return engine;
  }

  int size;
  shm::EngineOptions options;
  std::shared_ptr<shm::Segment> control;
};

}  // namespace lockstep::testing_support
