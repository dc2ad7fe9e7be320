#include "bench/share/world.h"

#include <algorithm>
#include <cmath>

namespace carve::share {
namespace {
constexpr std::uint64_t kFar = ~std::uint64_t{0};
}

struct World::Slice {
  Tenant tenant;
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
};

// One process.
struct World::Client {
  struct Operation {
    std::uint64_t left_ns;
    std::uint64_t began_ns = kFar;
    std::uint64_t ended_ns = kFar;
  };
  struct Closed {
    lease::Segment segment;
    std::uint64_t first;  // numbers of its first and last operation
    std::uint64_t last;
  };
  enum class State { kLaunching, kWaitingGrant, kWaitingCompletion, kWaitingSync, kQueueFull };

  Slice* slice = nullptr;
  std::size_t index = 0;         // index of the slice
  std::uint32_t process = 0;     // number of its account entry within the slice
  std::uint64_t delivered_ns = 0;
  bool started = false;
  std::uint32_t launched = 0;    // kernels of the current request
  std::uint64_t arrived_ns = 0;  // the current request, or the next one
  lease::Gate gate;
  lease::Lane lane;
  lease::Lane hung;              // the lane of the thread with the host function that does not return
  State state = State::kLaunching;
  std::uint64_t at_ns = 0;       // when the thread runs next
  std::uint64_t poll_at_ns = kFar;
  bool waits_counted = false;    // starts_waiting() without left_waiting() yet
  std::deque<Operation> queue;   // submitted to the card and unfinished
  std::vector<Operation> done;   // finished, by number from `done_base`
  std::uint64_t submitted = 0;   // number of the next operation
  std::uint64_t completed = 0;
  std::uint64_t segment_first = 0;
  std::deque<Closed> closed;

  [[nodiscard]] const Workload& work() const { return slice->tenant.work; }
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
    auto slice = std::make_unique<Slice>();
    slice->tenant = tenant;
    slice->grant->rate_ppm.raw = tenant.terms.compute * 10'000;
    slice->grant->high_entry.raw = tenant.work.shares_credit ? tenant.work.processes : 0;
    for (std::uint32_t process = 0; process < tenant.work.processes; ++process) {
      auto client = std::make_unique<Client>();
      client->slice = slice.get();
      client->index = slices_.size();
      client->process = process;
      client->at_ns = client->arrived_ns = tenant.work.start_ns;
      client->gate.attach(slice->grant.get(), slice->account.get(), &slice->account->entries[process]);
      clients_.push_back(std::move(client));
    }
    arbiter_.add(tenant.terms);
    slices_.push_back(std::move(slice));
  }
  delivered_.buckets.resize(tenants.size());
  latencies_.resize(tenants.size());
}

World::~World() = default;

std::vector<std::uint64_t> World::by_process(std::size_t tenant) const {
  std::vector<std::uint64_t> all;
  for (const auto& client : clients_) {
    if (client->index == tenant) all.push_back(client->delivered_ns);
  }
  return all;
}

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

// When the card's state changes next without input: an operation ends, a time slice ends, a switch ends.
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
    client.delivered_ns += part;
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
    const Workload& work = client.work();
    if (!synced || work.request_of == 0 || client.launched < work.request_of) continue;
    latencies_[client.index].push_back(at - client.arrived_ns);
    client.launched = 0;
    client.arrived_ns += work.period_ns;
    client.at_ns = std::max(client.at_ns, client.arrived_ns);
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

// A second thread of the process launches a host function that does not return: it is in flight and occupies no engine.
void World::start(Client& client) {
  client.started = true;
  if (!client.work().hangs || !controlled_) return;
  client.slice->grant->heartbeat_ns.raw = now_;
  const lease::Passage passage = client.gate.enter(client.hung, 43, 8, [this] { return now_; });
  lease::Segment segment;
  if (passage.verdict != lease::Verdict::kGo) {
    client.started = false;  // tried again with the next launch
  } else if (!client.gate.leave(client.hung, passage, &segment)) {
    for (int look = 0; look < 2; ++look) static_cast<void>(client.gate.close_stale(client.hung, now_, &segment));
  }
}

void World::attempt(Client& client) {
  client.at_ns = kFar;
  if (!client.started) start(client);
  if (client.queue.size() >= machine_.queue_depth) {
    client.state = Client::State::kQueueFull;
    return;
  }
  lease::Passage passage;
  if (controlled_) {
    client.slice->grant->heartbeat_ns.raw = now_;
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

std::uint64_t World::duration(const Workload& work) {
  const bool later = work.change_every_ns != 0 && now_ / work.change_every_ns % 2 == 1;
  const auto kernel = static_cast<double>(later ? work.later_kernel_ns : work.kernel_ns);
  std::lognormal_distribution<double> shape(0, work.spread);
  const double mean = std::exp(work.spread * work.spread / 2);
  double total = 0;
  for (std::uint32_t i = 0; i < work.graph_of; ++i) total += kernel * shape(random_) / mean;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(total));
}

void World::launch(Client& client, const lease::Passage& passage) {
  const Workload& work = client.work();
  if (controlled_ && passage.begin_marker) client.segment_first = client.submitted;
  client.queue.push_back({duration(work)});
  ++client.submitted;
  ++client.launched;
  const bool waits = work.sync || (work.request_of != 0 && client.launched >= work.request_of);
  if (controlled_) {
    lease::Segment segment;
    bool closed = client.gate.leave(client.lane, passage, &segment);
    const bool alone = (client.slice->grant->lease.raw & 3U) == static_cast<std::uint32_t>(abi::LeaseMode::kSolo);
    if (!closed && waits && !alone) {  // like the library before it waits
      client.lane.seen_operations = client.lane.segment.operations;
      closed = client.gate.close_stale(client.lane, now_, &segment);
    }
    if (closed) close(client, segment);
    if (client.poll_at_ns == kFar) client.poll_at_ns = now_ + machine_.poll_ns;
  }
  client.state = waits ? Client::State::kWaitingSync : Client::State::kLaunching;
  if (!waits) client.at_ns = now_ + machine_.launch_cpu_ns;
}

// Records the end marker of a segment. Where none can be recorded, the work counts as in flight until it ends.
void World::close(Client& client, const lease::Segment& segment) {
  if (!client.work().measured) return;
  client.closed.push_back({segment, client.segment_first, client.submitted - 1});
}

// The library's helper thread: processes markers that have passed, and closes segments that were left open.
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
  if (client.gate.close_stale(client.lane, now_, &segment)) close(client, segment);
  if (tell) ring();
  if (progressed && client.state == Client::State::kWaitingCompletion) client.at_ns = now_;
  const bool idle = client.closed.empty() && !client.lane.segment.open;
  client.poll_at_ns = idle ? kFar : now_ + machine_.poll_ns;
}

void World::ring() { arbiter_at_ = std::min(arbiter_at_, now_ + machine_.wake_ns); }

void World::step_arbiter() {
  std::vector<lease::Observation> seen(slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    seen[i] = lease::observe(*slices_[i]->account, slices_[i]->tenant.work.processes, last_step_, now_);
  }
  arbiter_.step(now_, seen.data());
  last_step_ = now_;
  std::vector<bool> changed(slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const lease::Grant& grant = arbiter_.grant(static_cast<int>(i));
    const std::uint32_t word = static_cast<std::uint32_t>(grant.mode) | grant.epoch << 2;
    abi::GrantPage& page = *slices_[i]->grant;
    page.heartbeat_ns.raw = now_;
    if (page.lease.raw == word) continue;
    page.end_ns.raw = grant.end_ns;
    page.credit_us.raw = grant.credit_us;
    page.rate_ppm.raw = grant.rate_ppm;
    page.lease.raw = word;
    changed[i] = true;
  }
  for (const auto& client : clients_) {
    if (!changed[client->index] || client->state != Client::State::kWaitingGrant) continue;
    // Processes wake up one after the other, in an unspecified order.
    const std::uint64_t turn = client->slice->tenant.work.processes > 1 ? random_() % machine_.wake_ns : 0;
    client->at_ns = std::min(client->at_ns, now_ + machine_.wake_ns + turn);
  }
  arbiter_at_ = std::min(arbiter_.next_step_ns(), now_ + abi::kHeartbeatPeriodNs);
}

}  // namespace carve::share
