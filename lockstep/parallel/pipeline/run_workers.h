// Runs one function on the threads of all workers of a pipeline.
#pragma once

#include <cstddef>

#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/pipeline/schedule/mailboxes.h>

namespace lockstep::pipeline {

/// Calls work(worker) on every thread of `team`, like ThreadTeam::run(). If a worker throws, its
/// remaining messages will never be sent, so `mailboxes` end the waits of the other workers.
template <class Value>
void run_workers(lockstep::detail::ThreadTeam& team, Mailboxes<Value>& mailboxes,
                 const lockstep::detail::ThreadTeam::Task& work) {
  team.run([&](std::size_t worker) {
    try {
      work(worker);
    } catch (...) {
      mailboxes.abort();
      throw;
    }
  });
}

}  // namespace lockstep::pipeline
