#include "app/keeper/keeper.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace carve::keeper {
namespace {

constexpr Clock::Duration kIdle = std::chrono::seconds(1);
constexpr int kFailed = 1;

/// The exit code that a shell reports, and therefore a container.
int exit_code(const ProcessEnd& end) { return end.signal != 0 ? 128 + end.signal : end.code; }

std::int64_t ms(Clock::Duration time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); }

}  // namespace

void Keeper::start(Clock::Time now) {
  heard_at_ = now;
  asked_alive_.reset();
  told_listening_.reset();
  unheard_ = false;
  if (const auto started = world_.agent.start(crashes_); !started) {
    world_.log.error("the agent cannot be started", {{"error", started.error().what}});
    return ended({kFailed, 0});
  }
  running_ = true;
}

void Keeper::stop() {
  stopping_ = true;
  running_ ? world_.agent.signal(SIGTERM) : finish(0);
}

void Keeper::serving() {
  serving_ = true;
  const auto now = world_.clock.now();
  restarts_.served(now);
  if (crashes_ > 0)
    world_.log.info("the agent serves again", {{"crashes", crashes_}, {"waiting", world_.plugin.waiting()}});
  world_.plugin.attach([this](const codec::KeeperWord& word) { return send(word); });
}

void Keeper::left() {
  stopping_ = true;
  serving_ = false;
  world_.plugin.close("the node's agent is stopping; the kubelet retries");
  world_.close();
  send(codec::TellClosed{});
}

void Keeper::hear(const std::string& packet) {
  const auto word = codec::decode_agent_word(packet);
  if (!word) return world_.log.error("a packet from the agent cannot be decoded", {{"error", word.error().what}});
  heard_at_ = world_.clock.now();
  asked_alive_.reset();
  std::visit(
      [this](const auto& said) {
        using Word = std::decay_t<decltype(said)>;
        if constexpr (std::is_same_v<Word, codec::SayServing>) {
          serving();
        } else if constexpr (std::is_same_v<Word, codec::SayLeft>) {
          left();
        } else if constexpr (!std::is_same_v<Word, codec::AnswerAlive>) {
          world_.plugin.heard(said);
        }
      },
      *word);
  if (open_ || !serving_ || !std::holds_alternative<codec::SayList>(*word)) return;
  open_ = true;
  if (const auto opened = world_.open(); !opened) {
    world_.log.error("the device plugin's socket cannot be opened", {{"error", opened.error().what}});
    failed_ = true;
    stop();
  }
}

void Keeper::ended(const ProcessEnd& end) {
  const auto now = world_.clock.now();
  running_ = serving_ = false;
  world_.plugin.detach();
  const bool changed = end.code == kSettingsChanged && end.signal == 0;
  if (stopping_) return finish(changed ? 0 : exit_code(end));
  if (changed) return settings_changed(now);
  const auto pause = restarts_.pause_after(end, now);
  if (!pause) {
    if (crashes_ > 0) world_.log.error("the agent crashes repeatedly: giving up", {{"crashes", crashes_ + 1}});
    return finish(exit_code(end));
  }
  ++crashes_;
  start_at_ = now + *pause;
  world_.log.warn("the agent crashed: starting another; the kubelet's calls for slots wait",
                  {{"signal", end.signal}, {"code", end.code}, {"crashes", crashes_}, {"pause_ms", ms(*pause)}});
}

/// No pause is necessary: an agent looks at its settings once a second, and ends only for settings that it can read.
void Keeper::settings_changed(Clock::Time now) {
  if (world_.stays && !world_.stays()) {
    world_.log.info("the settings changed, and this node no longer serves slots: the keeper ends");
    return finish(kSettingsChanged);
  }
  start_at_ = now;
  world_.log.info("the settings changed: starting another agent; the kubelet's calls for slots wait");
}

void Keeper::finish(int code) {
  world_.plugin.close("the node's agent has ended");
  world_.close();
  over_ = failed_ && code == 0 ? kFailed : code;
}

/// Checks whether the agent answers, and sends it what it does not know yet. Returns the time until the next check.
Clock::Duration Keeper::look_after(Clock::Time now) {
  if (!serving_) return kIdle;
  const bool listening = world_.listening();
  if (told_listening_ != listening && send(codec::TellListening{listening})) told_listening_ = listening;
  Clock::Duration wait = told_listening_ == true ? std::chrono::milliseconds(1000) : kLookAtPlugin;
  if (asked_alive_) {
    if (now - *asked_alive_ >= kDeaf && !unheard_) {
      unheard_ = true;
      world_.log.error("the agent does not answer its keeper: killing it", {{"silent_ms", ms(now - heard_at_)}});
      world_.agent.signal(SIGKILL);
    }
    if (!unheard_) wait = std::min(wait, *asked_alive_ + kDeaf - now);
  } else if (now - heard_at_ >= kAskAlive) {
    asked_alive_ = now;
    send(codec::AskAlive{crashes_});
  }
  return wait;
}

Clock::Duration Keeper::step() {
  if (over_) return kIdle;
  auto now = world_.clock.now();
  if (!running_ && !stopping_ && now >= start_at_) start(now);
  while (const auto packet = world_.agent.receive()) hear(*packet);
  if (running_) {
    if (const auto end = world_.agent.ended()) {
      while (const auto packet = world_.agent.receive()) hear(*packet);  // the packets that it sent before it died
      ended(*end);
    }
  }
  if (over_) return kIdle;
  now = world_.clock.now();
  Clock::Duration wait = std::min(look_after(now), world_.plugin.tick());
  if (!running_) wait = std::min(wait, std::max(start_at_ - now, Clock::Duration::zero()));
  return std::min(wait, kIdle);
}

}  // namespace carve::keeper
