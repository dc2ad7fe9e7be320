#include "bench/share/world.h"

#include <algorithm>
#include <cmath>

namespace carve::share {
namespace {
constexpr std::uint64_t kFar = ~std::uint64_t{0};
}

struct World::Client {
  struct Operation {
    std::uint64_t left_ns;
    std::uint64_t began_ns = kFar;
    std::uint64_t ended_ns = kFar;
  };
  struct Closed {
    lease::Segment segment;
    std::uint64_t first;  // number of its first and last operation
    std::uint64_t last;
  };
  enum class State { kLaunching, kWaitingGrant, kWaitingCompletion, kWaitingSync, kQueueFull };

  Tenant tenant;
  std::size_t index = 0;
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  lease::Gate gate;
  lease::Lane lane;
  State state = State::kLaunching;
  std::uint64_t at_ns = 0;       // when the thread runs next
  std::uint64_t poll_at_ns = kFar;
  bool waits_counted = false;    // starts_waiting() without left_waiting() yet
  std::deque<Operation> queue;   // on the card, unfinished first
  std::vector<Operation> done;   // finished, by number from `done_base`
  std::uint64_t submitted = 0;   // number of the next operation
  std::uint64_t completed = 0;
  std::uint64_t segment_first = 0;
  std::deque<Closed> closed;

  abi::AccountSlot& slot() { return account->slots[0]; }
  [[nodiscard]] const Operation& finished(std::uint64_t number) const { return done[number]; }
};

std::vector<double> Delivered::windows(std::size_t tenant, std::uint64_t window_ns, std::uint64_t from,
                                       std::uint64_t to) const {
  std::vector<double> result;
  const std::uint64_t per_window = window_ns / kBucketNs;
  for (std::uint64_t at = from / kBucketNs; at + per_window <= to / kBucketNs; at += per_window) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = at; i < at + per_window && i < buckets[tenant].size(); ++i) sum += buckets[tenant][i];
    result.push_back(100.0 * static_cast<double>(sum) / static_cast<double>(window_ns));
  }
  return result;
}

World::World(const std::vector<Tenant>& tenants, const Machine& machine, std::uint64_t seed, bool controlled)
    : machine_(machine), controlled_(controlled), random_(seed) {
  for (const Tenant& tenant : tenants) {
    auto client = std::make_unique<Client>();
    client->tenant = tenant;
    client->index = clients_.size();
    client->at_ns = tenant.work.start_ns;
    client->grant->rate_ppm.raw = tenant.terms.compute * 10'000;
    client->gate.attach(client->grant.get(), client->account.get(), &client->slot());
    arbiter_.add(tenant.terms);
    clients_.push_back(std::move(client));
  }
  delivered_.buckets.resize(tenants.size());
}

World::~World() = default;

void World::run(std::uint64_t end_ns) {
  while (now_ < end_ns) {
    std::uint64_t next = std::min(card_next(), controlled_ ? arbiter_at_ : kFar);
    for (const auto& client : clients_) next = std::min({next, client->at_ns, client->poll_at_ns});
    next = std::min(std::max(next, now_), end_ns);
    play_card(next);
    now_ = next;
    if (controlled_ && arbiter_at_ <= now_) step_arbiter();
    for (const auto& client : clients_) {
      if (client->poll_at_ns <= now_) poll(*client);
      if (client->at_ns <= now_) attempt(*client);
    }
  }
}

// When the card's state changes of itself: an operation ends, a slice ends, a switch ends.
std::uint64_t World::card_next() const {
  if (switch_left_ > 0) return now_ + switch_left_;
  if (running_ >= 0 && !clients_[static_cast<std::size_t>(running_)]->queue.empty()) {
    const std::uint64_t left = clients_[static_cast<std::size_t>(running_)]->queue.front().left_ns;
    return now_ + std::min(left, slice_left_);
  }
  for (const auto& client : clients_) {
    if (!client->queue.empty()) return now_;
  }
  return kFar;
}

void World::play_card(std::uint64_t until) {
  std::uint64_t at = now_;
  for (;;) {
    if (switch_left_ > 0) {
      const std::uint64_t part = std::min(switch_left_, until - at);
      switch_left_ -= part;
      at += part;
      if (switch_left_ > 0) return;
    }
    const std::size_t count = clients_.size();
    const bool has_work = running_ >= 0 && !clients_[static_cast<std::size_t>(running_)]->queue.empty();
    if (!has_work || slice_left_ == 0) {
      int next = -1;
      for (std::size_t i = 1; i <= count && next < 0; ++i) {
        const std::size_t candidate = (static_cast<std::size_t>(running_ < 0 ? 0 : running_) + i) % count;
        if (!clients_[candidate]->queue.empty()) next = static_cast<int>(candidate);
      }
      if (next < 0) return;
      slice_left_ = machine_.slice_ns;
      if (next != running_) {
        if (running_ >= 0) switch_left_ = machine_.switch_ns;
        running_ = next;
        continue;
      }
    }
    if (at >= until) return;
    Client& client = *clients_[static_cast<std::size_t>(running_)];
    Client::Operation& operation = client.queue.front();
    if (operation.began_ns == kFar) operation.began_ns = at;
    const std::uint64_t part = std::min({operation.left_ns, slice_left_, until - at});
    credit_delivery(client.index, at, at + part);
    operation.left_ns -= part;
    slice_left_ -= part;
    at += part;
    if (operation.left_ns > 0) continue;
    operation.ended_ns = at;
    client.done.push_back(operation);
    client.queue.pop_front();
    ++client.completed;
    const bool synced = client.state == Client::State::kWaitingSync && client.queue.empty();
    const bool room = client.state == Client::State::kQueueFull;
    if (synced || room) client.at_ns = at + (synced ? machine_.sync_gap_ns : 0);
  }
}

void World::credit_delivery(std::size_t tenant, std::uint64_t from, std::uint64_t to) {
  auto& buckets = delivered_.buckets[tenant];
  while (from < to) {
    const std::uint64_t bucket = from / Delivered::kBucketNs;
    if (buckets.size() <= bucket) buckets.resize(bucket + 1);
    const std::uint64_t end = std::min(to, (bucket + 1) * Delivered::kBucketNs);
    buckets[bucket] += end - from;
    from = end;
  }
}

void World::attempt(Client& client) {
  client.at_ns = kFar;
  if (client.queue.size() >= machine_.queue_depth) {
    client.state = Client::State::kQueueFull;
    return;
  }
  lease::Passage passage;
  if (controlled_) {
    client.grant->heartbeat_ns.raw = now_;
    passage = client.gate.enter(client.lane, 42, 7, [this] { return now_; });
    if (passage.verdict == lease::Verdict::kWaitGrant) {
      if (!client.waits_counted && client.gate.starts_waiting()) ring();
      client.waits_counted = true;
      client.state = Client::State::kWaitingGrant;
      client.at_ns = now_ + passage.wait_ns;
      return;
    }
    if (client.waits_counted) client.gate.left_waiting();
    client.waits_counted = false;
    if (passage.verdict == lease::Verdict::kWaitCompletion) {
      client.state = Client::State::kWaitingCompletion;
      client.at_ns = now_ + passage.wait_ns;
      return;
    }
  }
  launch(client, passage);
}

void World::launch(Client& client, const lease::Passage& passage) {
  std::lognormal_distribution<double> shape(0, client.tenant.work.spread);
  const double mean = std::exp(client.tenant.work.spread * client.tenant.work.spread / 2);
  double total = 0;
  for (std::uint32_t i = 0; i < client.tenant.work.graph_of; ++i) {
    total += static_cast<double>(client.tenant.work.kernel_ns) * shape(random_) / mean;
  }
  if (controlled_ && passage.begin_marker) client.segment_first = client.submitted;
  client.queue.push_back({std::max<std::uint64_t>(1, static_cast<std::uint64_t>(total))});
  ++client.submitted;
  if (controlled_) {
    lease::Segment segment;
    if (client.gate.leave(client.lane, passage, &segment)) {
      client.closed.push_back({segment, client.segment_first, client.submitted - 1});
    }
    if (client.poll_at_ns == kFar) client.poll_at_ns = now_ + machine_.poll_ns;
  }
  client.state = client.tenant.work.sync ? Client::State::kWaitingSync : Client::State::kLaunching;
  if (!client.tenant.work.sync) client.at_ns = now_ + machine_.launch_cpu_ns;
}

// The library's helper thread: takes in what has passed, closes what was left open.
void World::poll(Client& client) {
  bool tell = false;
  bool progressed = false;
  while (!client.closed.empty() && client.closed.front().last < client.completed) {
    const Client::Closed& front = client.closed.front();
    tell |= client.gate.completed(front.segment, client.finished(front.first).began_ns,
                                  client.finished(front.last).ended_ns, now_);
    client.closed.pop_front();
    progressed = true;
  }
  lease::Segment segment;
  if (client.gate.close_stale(client.lane, now_, &segment)) {
    client.closed.push_back({segment, client.segment_first, client.submitted - 1});
  }
  if (tell) ring();
  if (progressed && client.state == Client::State::kWaitingCompletion) client.at_ns = now_;
  const bool idle = client.closed.empty() && !client.lane.segment.open;
  client.poll_at_ns = idle ? kFar : now_ + machine_.poll_ns;
}

void World::ring() { arbiter_at_ = std::min(arbiter_at_, now_ + machine_.wake_ns); }

void World::step_arbiter() {
  std::vector<lease::Observation> seen(clients_.size());
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    seen[i] = lease::observe(*clients_[i]->account, 1, last_step_, now_);
  }
  arbiter_.step(now_, seen.data());
  last_step_ = now_;
  for (const auto& client : clients_) {
    const lease::Grant& grant = arbiter_.grant(static_cast<int>(client->index));
    const std::uint32_t word = static_cast<std::uint32_t>(grant.mode) | grant.epoch << 2;
    client->grant->heartbeat_ns.raw = now_;
    if (client->grant->lease.raw == word) continue;
    client->grant->end_ns.raw = grant.end_ns;
    client->grant->credit_us.raw = grant.credit_us;
    client->grant->rate_ppm.raw = grant.rate_ppm;
    client->grant->lease.raw = word;
    if (client->state == Client::State::kWaitingGrant) {
      client->at_ns = std::min(client->at_ns, now_ + machine_.wake_ns);
    }
  }
  arbiter_at_ = arbiter_.next_step_ns();
}

}  // namespace carve::share
