#include "app/control/leader/leader.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace carve::control {
namespace {

using std::chrono::milliseconds;

constexpr auto kResyncPoll = milliseconds(50);
constexpr auto kRetry = milliseconds(500);  // after an error

std::string micro_time(Clock::WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(time))),
                     micros);
}

}  // namespace

Leader::Leader(World world, Names names, LeaderElection::Timing timing)
    : world_(std::move(world)), names_(std::move(names)), timing_(timing), leader_election_(names_.identity, timing) {}

std::string Leader::path() const {
  return fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases", names_.namespace_name);
}

Result<void> Leader::read_lease() {
  const auto text = world_.api.get(path() + "/" + names_.lease);
  codec::Lease lease;
  lease.namespace_name = names_.namespace_name;
  lease.name = names_.lease;
  if (text) {
    CARVE_TRY(lease, codec::parse_lease(*text));
  } else if (text.error().code != Code::kNotFound) {
    return tl::unexpected(text.error());
  }
  const MutexLock lock(mutex_);
  const auto before = leader_election_.epoch();
  leader_election_.seen(lease, world_.clock.now());
  if (before != 0 && leader_election_.epoch() == 0) {
    caught_up_ = false;
    world_.log.warn("leadership lost", {{"epoch", before}, {"holder", lease.holder}});
  }
  if (before == 0 && leader_election_.epoch() != 0) begin_term();  // the answer to our write was lost
  return {};
}

Result<void> Leader::write(LeaderElection::Move move) {
  const auto floor = move == LeaderElection::Move::kTake && world_.known_epoch ? world_.known_epoch() : 0;
  const auto sent = world_.clock.now();
  codec::Lease lease;
  {
    const MutexLock lock(mutex_);
    lease = leader_election_.lease_for(move, floor, micro_time(world_.clock.wall_now()));
    leader_election_.sending(lease, sent);
  }
  const auto body = codec::encode_lease(lease);
  const auto written =
      lease.version.empty() ? world_.api.create(path(), body) : world_.api.replace(path() + "/" + names_.lease, body);
  // A write with an unknown outcome counts as not written until a read shows it. Until then the old time counts.
  if (!written) return tl::unexpected(written.error());
  CARVE_TRY(const auto stored, codec::parse_lease(*written));
  const MutexLock lock(mutex_);
  leader_election_.wrote(stored, sent);
  if (move == LeaderElection::Move::kTake) begin_term();
  return {};
}

void Leader::begin_term() {
  caught_up_ = false;
  ++terms_;
  world_.log.info("Lease taken", {{"epoch", leader_election_.epoch()}, {"identity", names_.identity}});
}

void Leader::check_caught_up() {
  const auto caught_up = world_.caught_up ? world_.caught_up(terms_) : Result<bool>(true);
  if (!caught_up && std::exchange(resync_error_, caught_up.error().what) != caught_up.error().what)
    world_.log.warn("the previous leader's records cannot be read", {{"error", resync_error_}});
  if (!caught_up || !*caught_up) return;
  resync_error_.clear();
  {
    const MutexLock lock(mutex_);
    caught_up_ = true;
    world_.log.info("leading", {{"epoch", leader_election_.epoch()}});
  }
  changes_.all();
}

Clock::Duration Leader::step() {
  LeaderElection::Move move;
  bool has_lease = false;
  {
    const MutexLock lock(mutex_);
    move = leader_election_.move(world_.clock.now());
    has_lease = leader_election_.epoch() != 0;
  }
  Result<void> done;
  if (move == LeaderElection::Move::kWait) {
    if (!has_lease) done = read_lease();
  } else {
    // The last read may be old, but the write carries its resourceVersion. After a failed write the Lease is read
    // again.
    done = write(move);
    if (!done) {
      lease_error_ = done.error().what;
      done = read_lease();
    }
  }
  if (!done) {
    if (std::exchange(lease_error_, done.error().what) != done.error().what)
      world_.log.warn("the Lease cannot be read or written", {{"error", done.error().what}});
    return kRetry;
  }
  bool must_catch_up = false;
  {
    const MutexLock lock(mutex_);
    move = leader_election_.move(world_.clock.now());
    must_catch_up = leader_election_.epoch() != 0 && !caught_up_;
  }
  if (must_catch_up) {
    check_caught_up();
    return kResyncPoll;
  }
  if (move == LeaderElection::Move::kTake) return Clock::Duration(0);
  return std::min<Clock::Duration>(timing_.renew / 2, kRetry);
}

void Leader::give_back() {
  Clock::Time promised;
  codec::Lease lease;
  {
    const MutexLock lock(mutex_);
    if (leader_election_.epoch() == 0) return;
    lease = leader_election_.lease();
    leader_election_.lose();
    promised = promised_;
  }
  // A caller to which leads_until() returned true may still be writing.
  world_.clock.sleep_until(promised, {});
  lease.holder.clear();
  lease.seconds = 1;
  lease.renewed = micro_time(world_.clock.wall_now());
  if (const auto done = world_.api.replace(path() + "/" + names_.lease, codec::encode_lease(lease)); !done)
    world_.log.warn("the Lease could not be released", {{"error", done.error().what}});
}

void Leader::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto wait = step();
    if (!world_.clock.sleep_for(wait, stop)) break;
  }
  give_back();
}

bool Leader::leads_until(Clock::Time deadline) const {
  const auto now = world_.clock.now();
  const MutexLock lock(mutex_);
  if (!caught_up_ || !leader_election_.holds_until(deadline, now)) return false;
  promised_ = std::max(promised_, deadline);
  return true;
}

std::uint64_t Leader::epoch() const {
  const MutexLock lock(mutex_);
  return caught_up_ ? leader_election_.epoch() : 0;
}

std::string Leader::holder() const {
  const MutexLock lock(mutex_);
  return leader_election_.lease().holder;
}

}  // namespace carve::control
