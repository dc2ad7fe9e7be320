#include "adapter/nvml/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>

#include "adapter/nvml/library.h"
#include "adapter/nvml/wire.h"

namespace carve::nvml {
namespace {

using nvml::WireCard;
using nvml::WireHeader;
using nvml::WireMachine;
using nvml::WireProcess;
using nvml::WireRequest;
using nvml::WireUsage;

constexpr std::size_t kMaxAnswer = sizeof(WireHeader) + sizeof(WireMachine) +
                                   nvml::kMaxCards * sizeof(WireCard) +
                                   nvml::kMaxProcesses * sizeof(WireProcess);

template <std::size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, ::strnlen(text, N));
}

template <class T>
T record_at(const std::vector<char>& bytes, std::size_t at) {
  T record = {};
  std::memcpy(&record, bytes.data() + at, sizeof(T));
  return record;
}

LinkMatrix links_of(const std::vector<WireCard>& cards) {
  std::vector<CardId> ids;
  for (const auto& card : cards) ids.emplace_back(text_of(card.uuid));
  LinkMatrix links(ids);
  for (std::size_t a = 0; a < cards.size(); ++a) {
    for (std::size_t b = a + 1; b < cards.size(); ++b) {
      const auto level =
          std::min<std::uint8_t>(cards[a].link_level[b], static_cast<std::uint8_t>(LinkLevel::kNvLink));
      links.set(ids[a], ids[b], Link{static_cast<LinkLevel>(level), cards[a].link_lanes[b]});
    }
  }
  return links;
}

}  // namespace

Client::Client(WorkerOptions options, const Clock& clock, Log& log)
    : options_(std::move(options)), clock_(clock), log_(log), back_off_(options_.back_off) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;  // start() reports it
  events_ = Fd(ends[0]);
  workers_events_ = Fd(ends[1]);
}

Client::~Client() {
  if (worker_.pidfd) {
    process::send_signal(worker_, SIGKILL);
    static_cast<void>(process::wait_gone(worker_, std::chrono::seconds(1)));
  }
}

std::string Client::reason() const {
  const MutexLock lock(reason_mutex_);
  return reason_;
}

void Client::set_state(GpuState state, const std::string& why) {
  {
    const MutexLock lock(reason_mutex_);
    reason_ = why;
  }
  const GpuState before = state_.exchange(state);
  if (before == state) return;
  if (state == GpuState::kOk) {
    log_.info("the driver answers", {{"before", to_string(before)}});
  } else {
    log_.warn("the driver does not answer", {{"state", to_string(state)}, {"reason", why}});
  }
}

void Client::drop(GpuState state, const std::string& why) {
  if (worker_.pidfd) {
    process::send_signal(worker_, SIGKILL);
    // A worker that is stuck in the kernel cannot die now. The agent does not wait for it; nothing depends on it.
    static_cast<void>(process::wait_gone(worker_, std::chrono::milliseconds(100)));
  }
  worker_ = process::Child();
  worker_pid_ = 0;
  socket_.reset();
  cards_.clear();
  generation_ = 0;
  not_before_ = clock_.now() + back_off_;
  back_off_ = std::min<std::chrono::milliseconds>(back_off_ * 2, std::chrono::seconds(30));
  set_state(state, why);
}

std::vector<GpuEvent> Client::wait_events(std::chrono::milliseconds timeout) {
  std::vector<GpuEvent> events;
  pollfd item = {events_.get(), POLLIN, 0};
  ::poll(&item, 1, static_cast<int>(timeout.count()));
  nvml::WireEvent wire;
  for (;;) {
    const ssize_t n = ::recv(events_.get(), &wire, sizeof(wire), MSG_DONTWAIT);
    if (n != sizeof(wire) || wire.magic != nvml::kWireMagic) return events;
    events.push_back({CardId(text_of(wire.uuid)), wire.xid});
  }
}

void Client::renew() {
  const MutexLock lock(mutex_);
  if (!socket_) return;
  socket_.reset();  // the worker ends when its socket is closed
  if (!process::wait_gone(worker_, std::chrono::milliseconds(100))) process::send_signal(worker_, SIGKILL);
  static_cast<void>(process::wait_gone(worker_, std::chrono::milliseconds(100)));
  worker_ = process::Child();
  worker_pid_ = 0;
  cards_.clear();
  generation_ = 0;
}

Result<void> Client::start() {
  if (socket_) return {};
  if (!events_) {
    set_state(GpuState::kAbsent, "the socket pair for the NVML worker could not be created");
    return fail(Code::kResourceExhausted, reason());
  }
  if (clock_.now() < not_before_) {
    return fail(state_ == GpuState::kHanging ? Code::kDeadlineExceeded : Code::kUnavailable, reason());
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return tl::unexpected(errno_error(errno, "socketpair"));
  }
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  const int buffer = static_cast<int>(2 * kMaxAnswer);
  ::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
  auto child = process::spawn({.program = options_.program,
                      .args = options_.args,
                      .keep = {theirs.get(), workers_events_.get()},
                      .log_file = options_.log_file,
                      .own_session = true,
                      .die_with_parent = true});
  if (!child) {
    drop(GpuState::kAbsent, child.error().what);
    return tl::unexpected(child.error());
  }
  worker_ = std::move(*child);
  worker_pid_ = worker_.pid;
  socket_ = std::move(ours);
  return {};
}

Result<std::vector<char>> Client::ask(std::uint32_t op, std::uint32_t card,
                                          std::chrono::milliseconds deadline) {
  CARVE_TRY_VOID(start());
  WireRequest request;
  request.op = static_cast<nvml::Op>(op);
  request.sequence = ++sequence_;
  request.card = card;
  request.generation = generation_;
  std::vector<char> answer(kMaxAnswer);
  if (::send(socket_.get(), &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    drop(GpuState::kAbsent, "the NVML worker died");
    return fail(Code::kUnavailable, reason());
  }
  pollfd item = {socket_.get(), POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&item, 1, static_cast<int>(deadline.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    drop(GpuState::kHanging, "NVML did not answer within " + std::to_string(deadline.count()) + " ms");
    return fail(Code::kDeadlineExceeded, reason());
  }
  const ssize_t n = ::recv(socket_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  if (n < static_cast<ssize_t>(sizeof(WireHeader))) {
    drop(GpuState::kAbsent, "the NVML worker died");
    return fail(Code::kUnavailable, reason());
  }
  answer.resize(static_cast<std::size_t>(n));
  const auto header = record_at<WireHeader>(answer, 0);
  if (header.magic != nvml::kWireMagic || header.sequence != sequence_) {
    drop(GpuState::kAbsent, "the NVML worker sent an invalid answer");
    return fail(Code::kInternal, reason());
  }
  if (header.status != nvml::kSuccess) {
    drop(GpuState::kAbsent, text_of(header.text));
    return fail(Code::kUnavailable, reason());
  }
  return answer;
}

Result<GpuInventory> Client::inventory() {
  const MutexLock lock(mutex_);
  return inventory_locked();
}

Result<GpuInventory> Client::inventory_locked() {
  CARVE_TRY(const auto bytes,
            ask(static_cast<std::uint32_t>(nvml::Op::kInventory), 0, options_.inventory_deadline));
  const auto header = record_at<WireHeader>(bytes, 0);
  const std::size_t first = sizeof(WireHeader) + sizeof(WireMachine);
  if (bytes.size() < first || header.count > nvml::kMaxCards ||
      bytes.size() != first + header.count * sizeof(WireCard)) {
    drop(GpuState::kAbsent, "the NVML worker sent an invalid answer");
    return fail(Code::kInternal, reason());
  }
  const auto machine = record_at<WireMachine>(bytes, sizeof(WireHeader));
  GpuInventory result;
  result.driver_version = text_of(machine.driver_version);
  result.cuda_version = text_of(machine.cuda_version);
  result.files = {text_of(machine.cuda_file), text_of(machine.nvml_file)};
  std::vector<WireCard> cards;
  cards_.clear();
  for (std::size_t i = 0; i < header.count; ++i) {
    cards.push_back(record_at<WireCard>(bytes, first + i * sizeof(WireCard)));
    Card card;
    card.id = CardId(text_of(cards.back().uuid));
    card.vendor = nvml::kProviders[0].vendor;
    card.model = text_of(cards.back().name);
    card.memory = Bytes(cards.back().memory_bytes);
    card.numa_node = cards.back().numa_node;
    card.minor = cards.back().minor;
    card.pcie_root = text_of(cards.back().pcie_root);
    card.architecture = text_of(cards.back().architecture);
    card.compute_capability = text_of(cards.back().compute_capability);
    cards_.push_back(card.id);
    result.cards.push_back(card);
    result.pci_bus_ids.push_back(text_of(cards.back().bus_id));
    if (cards.back().watched == 0) result.unwatched.push_back(card.id);
  }
  result.links = links_of(cards);
  generation_ = header.generation;
  back_off_ = options_.back_off;
  if (result.cards.empty()) {
    set_state(GpuState::kAbsent, "the driver lists no cards");
  } else {
    set_state(GpuState::kOk, "");
  }
  return result;
}

Result<GpuUsage> Client::usage_of(std::size_t card) {
  CARVE_TRY(const auto bytes, ask(static_cast<std::uint32_t>(nvml::Op::kUsage),
                                  static_cast<std::uint32_t>(card), options_.usage_deadline));
  const auto header = record_at<WireHeader>(bytes, 0);
  const std::size_t first = sizeof(WireHeader) + sizeof(WireUsage);
  if (bytes.size() != first + header.count * sizeof(WireProcess)) {
    drop(GpuState::kAbsent, "the NVML worker sent an invalid answer");
    return fail(Code::kInternal, reason());
  }
  const auto wire = record_at<WireUsage>(bytes, sizeof(WireHeader));
  GpuUsage usage;
  usage.card = cards_[card];
  usage.lost = wire.lost != 0;
  if (wire.recovery != nvml::kNoRecovery) usage.recovery = wire.recovery;
  usage.used = Bytes(wire.used_bytes);
  usage.utilization_percent = wire.utilization_percent;
  usage.temperature_c = wire.temperature_c;
  usage.power_mw = wire.power_mw;
  usage.sm_clock_mhz = wire.sm_clock_mhz;
  usage.memory_clock_mhz = wire.memory_clock_mhz;
  if (wire.memory_busy_percent != nvml::kNoPercent) usage.memory_busy_percent = wire.memory_busy_percent;
  if (wire.energy_mj != nvml::kNoEnergy) usage.energy_mj = wire.energy_mj;
  for (std::size_t at = 0; at < std::size(nvml::kActivityParts); ++at) {
    if (!std::isnan(wire.activity[at])) usage.activity.*nvml::kActivityParts[at] = wire.activity[at];
  }
  for (std::size_t i = 0; i < header.count; ++i) {
    const auto process = record_at<WireProcess>(bytes, first + i * sizeof(WireProcess));
    usage.processes.push_back({process.pid, Bytes(process.used_bytes), process.sm_percent});
  }
  return usage;
}

Result<std::vector<GpuUsage>> Client::usage() {
  const MutexLock lock(mutex_);
  if (!socket_ || generation_ == 0) {
    CARVE_TRY(const auto fresh, inventory_locked());
    static_cast<void>(fresh);
  }
  std::vector<GpuUsage> all;
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    CARVE_TRY(auto usage, usage_of(card));
    all.push_back(std::move(usage));
  }
  return all;
}

}  // namespace carve::nvml
