#include "sim/daemon/kernel.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace carve::sim {
namespace {

constexpr std::uint64_t kKeepDeadNs = 150'000'000'000;
constexpr std::size_t kKeepDead = 4096;

}  // namespace

std::uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

Kernel::Kernel(const Machine& machine, std::uint64_t boot_ns) : machine_(machine), boot_ns_(boot_ns), time_(boot_ns) {}

Group* Kernel::group_of(const std::string& cgroup, std::uint32_t card) {
  auto& group = groups_[{cgroup, card}];
  if (group == nullptr) {
    group = std::make_unique<Group>();
    group->cgroup = cgroup;
    group->card = card;
  }
  return group.get();
}

Client* Kernel::add_client(std::unique_ptr<Client> client, std::uint64_t now) {
  client->id = next_client_++;
  for (std::uint32_t card = 0; card < machine_.count; ++card) {
    auto account = std::make_shared<Account>();
    account->pid = client->pid;
    account->card = card;
    account->name = client->name;
    account->started_ns = now;
    account->group = group_of(client->cgroup, card);
    client->accounts[card] = std::move(account);
  }
  Client* raw = client.get();
  clients_[raw->socket] = std::move(client);
  return raw;
}

void Kernel::charge(Account& account, const Allocation& allocation, std::int64_t sign) {
  const auto delta = static_cast<std::uint64_t>(sign);  // 1 or 2^64 − 1: intentionally modular
  Engine& engine = engines_[account.card];
  Group& group = *account.group;
  if (!account.used) {
    account.used = true;
    ++group.processes;
    accounts_.push_back(account.shared_from_this());
  }
  if (allocation.charge == Charge::kContext) {
    account.context_bytes += delta * allocation.bytes;
    account.contexts += static_cast<std::uint32_t>(delta);
    group.context_bytes += delta * allocation.bytes;
    engine.used_bytes += delta * allocation.bytes;
    return;
  }
  const std::uint64_t before = account.physical_bytes();
  if (allocation.charge == Charge::kModule) {
    account.module_bytes += delta * round_up(allocation.bytes, 512);
    engine.used_bytes += account.physical_bytes() - before;
    return;
  }
  if (allocation.bytes < kSmallLimit) {
    account.small_bytes += delta * round_up(allocation.bytes, 512);
  } else {
    account.granule_bytes += delta * round_up(allocation.bytes, kGranule);
  }
  engine.used_bytes += account.physical_bytes() - before;
  account.explicit_bytes += delta * allocation.bytes;
  group.explicit_bytes += delta * allocation.bytes;
  if (sign > 0) {
    ++account.allocations;
    ++group.grants;
    account.explicit_high = std::max(account.explicit_high, account.explicit_bytes);
    group.explicit_high = std::max(group.explicit_high, group.explicit_bytes);
  }
}

Status Kernel::allocate(Client& client, std::uint32_t card, std::uint64_t bytes, Charge charge,
                        std::uint64_t* handle) {
  if (card >= machine_.count) return Status::kNoSuchCard;
  const bool context = charge == Charge::kContext;
  if (engines_[card].lost || (context && engines_[card].down)) return Status::kCardLost;
  if (context) bytes = machine_.model->context_bytes;
  if (bytes == 0) return Status::kBadRequest;
  const std::uint64_t capacity = machine_.model->memory_bytes - machine_.model->reserved_bytes;
  Engine& engine = engines_[card];
  Account& account = *client.accounts[card];
  std::uint64_t need = bytes;
  if (bytes > capacity) {
    ++account.refused;
    return Status::kNoMemory;
  }
  if (charge == Charge::kModule) {
    need = round_up(account.module_bytes + round_up(bytes, 512), kGranule) -
           round_up(account.module_bytes, kGranule);
  } else if (charge == Charge::kExplicit) {
    need = bytes < kSmallLimit ? round_up(account.small_bytes + round_up(bytes, 512), kGranule) -
                                     round_up(account.small_bytes, kGranule)
                               : round_up(bytes, kGranule);
  }
  if (engine.used_bytes + need > capacity) {
    ++account.refused;
    return Status::kNoMemory;
  }
  const Allocation allocation{card, charge, bytes, nullptr};
  this->charge(account, allocation, 1);
  *handle = client.next_handle++;
  client.allocations[*handle] = allocation;
  return Status::kOk;
}

Status Kernel::release(Client& client, std::uint64_t handle, bool context) {
  const auto found = client.allocations.find(handle);
  if (found == client.allocations.end() || (found->second.charge == Charge::kContext) != context)
    return Status::kNoSuchHandle;
  let_go(client, handle, found->second);
  client.allocations.erase(found);
  return Status::kOk;
}

void Kernel::let_go(Client& client, std::uint64_t handle, const Allocation& allocation) {
  if (allocation.shared == nullptr) return charge(*client.accounts[allocation.card], allocation, -1);
  auto& holders = allocation.shared->holders;
  const std::pair<Client*, std::uint64_t> holder{&client, handle};
  const bool charged = holders.front() == holder;
  std::erase(holders, holder);
  if (!charged) return;
  charge(*client.accounts[allocation.card], allocation, -1);
  if (holders.empty()) {
    shared_.erase(allocation.shared->token);
  } else {
    charge(*holders.front().first->accounts[allocation.card], allocation, 1);
  }
}

Status Kernel::share(Client& client, std::uint64_t handle, std::uint64_t* token) {
  const auto found = client.allocations.find(handle);
  if (found == client.allocations.end() || found->second.charge != Charge::kExplicit) return Status::kNoSuchHandle;
  std::shared_ptr<Shared>& shared = found->second.shared;
  if (shared == nullptr) {
    shared = std::make_shared<Shared>();
    while (shared->token == 0 || shared_.contains(shared->token)) {
      if (getrandom(&shared->token, sizeof shared->token, 0) != sizeof shared->token) return Status::kTooMany;
    }
    shared->holders.emplace_back(&client, handle);
    shared_[shared->token] = shared;
  }
  *token = shared->token;
  return Status::kOk;
}

Status Kernel::open_shared(Client& client, std::uint64_t token, std::uint64_t* handle) {
  const auto found = shared_.find(token);
  if (found == shared_.end()) return Status::kNoSuchHandle;
  const auto& [first, its_handle] = found->second->holders.front();
  const Allocation allocation = first->allocations.at(its_handle);
  *handle = client.next_handle++;
  client.allocations[*handle] = allocation;
  found->second->holders.emplace_back(&client, *handle);
  return Status::kOk;
}

Status Kernel::open_stream(Client& client, std::uint32_t card, std::uint64_t* index) {
  if (card >= machine_.count) return Status::kNoSuchCard;
  if (client.channel == nullptr) return Status::kBadRequest;
  if (engines_[card].lost) return Status::kCardLost;
  std::uint32_t free = 0;
  while (free < kMaxStreams && client.streams.contains(free)) ++free;
  if (free == kMaxStreams) return Status::kTooMany;
  auto stream = std::make_unique<Stream>();
  stream->client = &client;
  stream->index = free;
  stream->card = card;
  stream->cell = &client.channel->streams[free];
  stream->ring = client.channel->rings[free];
  // Counters continue from the slot's previous stream, so that old events stay complete.
  stream->head = stream->tail = stream->cell->completed.load();
  stream->cell->submitted.store(stream->head);
  stream->cell->wait_for.store(kNoWaiter);
  engines_[card].streams.push_back(stream.get());
  client.streams[free] = std::move(stream);
  *index = free;
  return Status::kOk;
}

Status Kernel::close_stream(Client& client, std::uint64_t index) {
  const auto found = client.streams.find(static_cast<std::uint32_t>(index));
  if (index >= kMaxStreams || found == client.streams.end()) return Status::kNoSuchHandle;
  Stream* stream = found->second.get();
  if (stream->pending() || stream->cell->submitted.load() != stream->tail) {
    stream->closing = true;  // the timeline drops it when it has no more commands
  } else {
    drop_stream(stream);
  }
  return Status::kOk;
}

void Kernel::drop_stream(Stream* stream) {
  Engine& engine = engines_[stream->card];
  std::erase(engine.streams, stream);
  if (engine.running == stream) engine.running = nullptr;
  if (engine.copying == stream) engine.copying = nullptr;
  stream->client->streams.erase(stream->index);
}

void Kernel::remove_client(Client* client, std::uint64_t now) {
  while (!client->streams.empty()) drop_stream(client->streams.begin()->second.get());
  while (!client->allocations.empty()) {
    const auto held = client->allocations.begin();
    let_go(*client, held->first, held->second);
    client->allocations.erase(held);
  }
  for (std::uint32_t card = 0; card < machine_.count; ++card) {
    if (engines_[card].current == client) engines_[card].current = nullptr;
    Account& account = *client->accounts[card];
    account.ended_ns = now;
    account.history.close();
    if (account.used) --account.group->processes;
  }
  if (client->channel != nullptr) munmap(client->channel, sizeof(Channel));
  if (client->pidfd >= 0) ::close(client->pidfd);
  clients_.erase(client->socket);
  forget_dead(now);
}

void Kernel::forget_dead(std::uint64_t now) {
  if (accounts_.size() < forget_at_) return;
  std::erase_if(accounts_, [now](const auto& account) {
    return account->ended_ns != 0 && account->ended_ns + kKeepDeadNs < now;
  });
  // When many processes die at once, the oldest dead accounts are dropped first, regardless of their age.
  std::size_t extra = accounts_.size() > kKeepDead ? accounts_.size() - kKeepDead : 0;
  std::erase_if(accounts_, [&extra](const auto& account) {
    if (extra == 0 || account->ended_ns == 0) return false;
    --extra;
    return true;
  });
  forget_at_ = accounts_.size() + 256;
}

std::vector<int> Kernel::reap(std::uint64_t now) {
  std::vector<pollfd> polled;
  std::vector<Client*> owners;
  for (const auto& [socket, client] : clients_) {
    if (client->pidfd < 0 || client->kind != ClientKind::kCuda) continue;
    polled.push_back({client->pidfd, POLLIN, 0});
    owners.push_back(client.get());
  }
  std::vector<int> sockets;
  if (polled.empty() || poll(polled.data(), polled.size(), 0) <= 0) return sockets;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    // A child process may have its descriptors, and with them everything that it held.
    pollfd connection{owners[i]->socket, POLLRDHUP, 0};
    if (polled[i].revents == 0 || poll(&connection, 1, 0) <= 0) continue;
    sockets.push_back(owners[i]->socket);
    remove_client(owners[i], now);
  }
  return sockets;
}

}  // namespace carve::sim
