#include "cmd/config_watch.h"

#include <unistd.h>

#include <csignal>
#include <utility>

#include "adapter/process/text_file.h"

namespace carve::cmd {
namespace {

constexpr std::chrono::seconds kEvery{1};

}  // namespace

ConfigWatch::ConfigWatch(std::string path, Check check, Clock& clock, Log& log)
    : path_(std::move(path)), check_(std::move(check)), clock_(clock), log_(log) {
  if (path_.empty()) return;
  if (auto text = process::read_text(path_)) first_ = std::move(*text);
  last_ = first_;
}

ConfigWatch::ConfigWatch(std::string path, std::optional<std::string> first, Check check, Clock& clock, Log& log)
    : path_(std::move(path)), check_(std::move(check)), clock_(clock), log_(log), first_(std::move(first)),
      last_(first_) {}

bool ConfigWatch::ends_for(const std::optional<std::string>& text, const Tell& tell) {
  const auto good = text == first_ ? Result<void>() : check_(text);
  good_ = good.has_value();
  if (text == first_) {
    log_.info("the settings are again those with which this process started", {{"file", path_}});
    return false;
  }
  if (!good) {
    log_.error("the new settings are invalid; this process keeps the previous ones",
               {{"file", path_}, {"error", good.error().what}});
    if (tell) tell(good.error());
    return false;
  }
  log_.warn("the settings changed; this process starts again with them", {{"file", path_}});
  return true;
}

void ConfigWatch::run(const Tell& tell, const std::stop_token& stop) {
  while (!path_.empty() && clock_.sleep_for(kEvery, stop)) {
    auto read = process::read_text(path_);
    if (!read && read.error().code != Code::kNotFound) continue;  // a failed read is no change
    std::optional<std::string> text;
    if (read) text = std::move(*read);
    if (text == last_) continue;
    last_ = text;
    if (!ends_for(text, tell)) continue;
    changed_ = true;
    ::kill(::getpid(), SIGTERM);
    return;
  }
}

}  // namespace carve::cmd
