#include "adapter/kubelet/kept_slots.h"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <type_traits>
#include <utility>
#include <variant>

#include "adapter/process/packets.h"

namespace carve::kubelet {
namespace {

// For a keeper that does not read. A running keeper reads immediately.
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::chrono::seconds kClosedWithin{3};
// settled() has no event, so it is polled.
constexpr int kLookUnsettledMs = 50;
constexpr int kLookMs = 1000;

}  // namespace

Result<std::unique_ptr<KeptSlots>> KeptSlots::open(int line, World world) {
  if (::fcntl(line, F_SETFD, FD_CLOEXEC) != 0)
    return tl::unexpected(errno_error(errno, "the connection to the keeper"));
  Fd own(line);
  CARVE_TRY(auto wake, Bell::make());
  return std::unique_ptr<KeptSlots>(new KeptSlots(std::move(own), std::move(wake), std::move(world)));
}

KeptSlots::KeptSlots(Fd line, Bell wake, World world)
    : line_(std::move(line)), wake_(std::move(wake)), world_(std::move(world)) {}

KeptSlots::~KeptSlots() { local_.stop(); }

void KeptSlots::changed() { wake_.ring(); }

void KeptSlots::say(const codec::AgentWord& word) {
  if (muted_) return;
  const auto sent = process::send_packet(line_.get(), codec::encode(word), kPatience);
  if (!sent) world_.log.error("a packet could not be sent to the keeper", {{"error", sent.error().what}});
}

void KeptSlots::say_list() {
  codec::SayList now;
  now.settled =
      world_.settled();  // read before the list: a list that was read earlier may be from before the cards were queried
  for (const auto& slot : world_.calls.list()) now.slots.push_back({slot.id, slot.healthy});
  if (said_any_ && now == said_) return;
  said_any_ = true;
  said_ = std::move(now);
  say(said_);
}

void KeptSlots::hear(const std::string& packet) {
  const auto word = codec::decode_keeper_word(packet);
  if (!word) return world_.log.error("a packet from the keeper cannot be decoded", {{"error", word.error().what}});
  std::visit(
      [this](const auto& asked) {
        using Word = std::decay_t<decltype(asked)>;
        if constexpr (std::is_same_v<Word, codec::AskAllocate>) {
          local_.post([this, asked] {
            const auto device = world_.calls.allocate(asked.slots);
            device ? say(codec::AnswerAllocated{asked.number, *device})
                   : say(codec::AnswerRefused{asked.number, device.error().code, device.error().what});
          });
        } else if constexpr (std::is_same_v<Word, codec::AskStart>) {
          world_.calls.before_start(asked.slots, [this, number = asked.number](const Result<void>& answer) {
            answer ? say(codec::AnswerStart{number})
                   : say(codec::AnswerRefused{number, answer.error().code, answer.error().what});
          });
        } else if constexpr (std::is_same_v<Word, codec::AskAlive>) {
          static_cast<void>(world_.calls.list());  // the agent counts as alive only if it can still read its list
          say(codec::AnswerAlive{asked.number});
        } else if constexpr (std::is_same_v<Word, codec::TellListening>) {
          listening_ = asked.listening;
        } else {
          const MutexLock lock(mutex_);
          closed_ = true;
          closed_changed_.notify_all();
        }
      },
      *word);
}

void KeptSlots::run(const std::stop_token& stop) {
  const std::stop_callback wake_up(stop, [this] { wake_.ring(); });
  say(codec::SayServing{});
  while (!stop.stop_requested()) {
    say_list();
    std::array<pollfd, 2> items = {{{line_.get(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}}};
    ::poll(items.data(), items.size(), said_.settled ? kLookMs : kLookUnsettledMs);
    wake_.hush();
    std::string packet;
    auto got = process::Received::kPacket;
    while ((got = process::receive_packet(line_.get(), &packet)) == process::Received::kPacket) hear(packet);
    if (got != process::Received::kEnd) continue;
    world_.log.error("the keeper has ended");
    const MutexLock lock(mutex_);
    closed_ = true;
    closed_changed_.notify_all();
    return;
  }
}

void KeptSlots::leave() {
  say(codec::SayLeft{});
  const auto end = std::chrono::steady_clock::now() + kClosedWithin;
  MutexLock lock(mutex_);
  while (!closed_ && closed_changed_.wait_until(lock, end) == std::cv_status::no_timeout) {
  }
  if (!closed_) world_.log.warn("the keeper did not close the device plugin's socket in time");
}

}  // namespace carve::kubelet
