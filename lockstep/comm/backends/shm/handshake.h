// The proof that all ranks are on one host.
#pragma once

#include <memory>
#include <string>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep::shm {

/// Collective. Three rounds: rank 0 says where its memory is; every rank opens it and looks for a
/// secret in it; every rank watches all other processes. Null, on all ranks, where a step fails on
/// any; then `why_not` says which rank could not and why. The engine is a member of
/// options.progress from then on.
std::shared_ptr<Engine> shake_hands(TextExchange& exchange, EngineOptions options,
                                    std::string& why_not);

}  // namespace lockstep::shm
