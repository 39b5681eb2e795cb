// The handshake by which ranks prove that they are all on one host.
#pragma once

#include <memory>
#include <string>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep::shm {

/// Collective. Runs three rounds: rank 0 publishes the address of its segment; every rank opens it
/// and checks a secret in it; every rank starts to watch the other ranks' processes. If a step
/// fails on any rank, returns null on all ranks and sets `why_not` to the rank and the reason. The
/// returned engine has been added to options.progress.
std::shared_ptr<Engine> shake_hands(comm::TextExchange& exchange, EngineOptions options,
                                    std::string& why_not);

}  // namespace lockstep::shm
