#include <algorithm>
#include <array>

#include "sim/daemon/kernel.h"

// Faults as a real driver shows them: an XID ends the contexts of one process, of the whole card, or none, and may
// leave a card that needs a reset. Source: NVIDIA's XID catalogue.
namespace carve::sim {
namespace {

enum class Scope { kNone, kOne, kAll };

struct XidEffect {
  std::uint32_t code;
  Scope scope;
  Fault fault;
  std::uint32_t recovery;  // NVML's recovery action: 0 none, 1 reset, 2 reboot
  bool lost = false;
};

constexpr std::uint32_t kReset = 1, kReboot = 2;
constexpr std::array kEffects = {
    XidEffect{13, Scope::kOne, Fault::kLaunchFailed, 0},
    XidEffect{31, Scope::kOne, Fault::kIllegalAddress, 0},
    XidEffect{43, Scope::kOne, Fault::kLaunchFailed, 0},
    XidEffect{45, Scope::kOne, Fault::kLaunchFailed, 0},
    XidEffect{94, Scope::kOne, Fault::kUncorrectableEcc, 0},  // contained: only the contexts of one process
    XidEffect{109, Scope::kOne, Fault::kLaunchFailed, kReset},
    XidEffect{64, Scope::kNone, Fault::kNone, kReset},  // a row could not be remapped: work continues
    XidEffect{46, Scope::kAll, Fault::kUnknown, kReset},
    XidEffect{48, Scope::kAll, Fault::kUncorrectableEcc, kReset},
    XidEffect{62, Scope::kAll, Fault::kUnknown, kReset},
    XidEffect{95, Scope::kAll, Fault::kUncorrectableEcc, kReset},
    XidEffect{110, Scope::kAll, Fault::kUnknown, kReset},
    XidEffect{119, Scope::kAll, Fault::kUnknown, kReset},
    XidEffect{120, Scope::kAll, Fault::kUnknown, kReset},
    XidEffect{140, Scope::kAll, Fault::kUncorrectableEcc, kReset},
    XidEffect{79, Scope::kAll, Fault::kUnknown, kReboot, true},
};

}  // namespace

void Kernel::kill_contexts(Client& client, std::uint32_t card, Fault fault) {
  if (client.channel == nullptr || client.accounts[card]->contexts == 0) return;
  client.channel->faults[card].store(static_cast<std::uint32_t>(fault));
  for (auto& [index, stream] : client.streams) stream->dead = stream->dead || stream->card == card;
}

void Kernel::xid(std::uint32_t card, std::uint32_t code, std::int32_t pid) {
  Engine& engine = engines_[card];
  ++engine.xids;
  const auto* found = std::find_if(kEffects.begin(), kEffects.end(),
                                   [code](const XidEffect& effect) { return effect.code == code; });
  if (found == kEffects.end()) return;
  engine.recovery = std::max(engine.recovery, found->recovery);
  engine.lost = engine.lost || found->lost;
  engine.down = engine.down || (found->scope == Scope::kAll && found->recovery != 0);
  for (auto& [socket, client] : clients_) {
    const bool at_fault = pid != 0 ? client->pid == pid : client.get() == engine.current;
    if (found->scope == Scope::kAll || (found->scope == Scope::kOne && at_fault))
      kill_contexts(*client, card, found->fault);
  }
}

void Kernel::restore(std::uint32_t card) {
  engines_[card].lost = engines_[card].down = false;
  engines_[card].recovery = 0;
}

Status Kernel::reset(std::uint32_t card) {
  for (const auto& [socket, client] : clients_) {
    if (client->accounts[card]->contexts > 0) return Status::kBusy;
  }
  restore(card);
  return Status::kOk;
}

}  // namespace carve::sim
