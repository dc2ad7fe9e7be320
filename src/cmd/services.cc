#include "cmd/services.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "adapter/process/text_file.h"

namespace carve::cmd {
namespace {
constexpr std::chrono::milliseconds kFirstBackOff{100};
constexpr std::chrono::milliseconds kLongestBackOff{5000};
constexpr std::chrono::seconds kProvenAfter{10};  // a process that ran this long resets the back-off
constexpr off_t kLogLimit = 4 << 20;
}  // namespace

Service::Service(std::string name, std::string program, std::vector<std::string> args,
                 std::string runtime_dir)
    : name_(std::move(name)),
      program_(std::move(program)),
      args_(std::move(args)),
      runtime_dir_(std::move(runtime_dir)) {}

std::string Service::words() const {
  std::string words = program_;
  for (const auto& arg : args_) words += "\n" + arg;
  return words;
}

Result<bool> Service::adopt() {
  CARVE_TRY(auto holder, process::LockFile::holder(file(".lock")));
  if (!holder) return false;
  const auto started_with = process::read_text(file(".args"));
  if (started_with && *started_with != words()) {
    return fail(Code::kFailedPrecondition,
                name_ + " (process " + std::to_string(holder->pid) +
                    ") still runs with other options; run `carve down` first, or start with "
                    "the same options");
  }
  child_ = std::move(*holder);
  started_ = SystemClock().now();
  return true;
}

Result<void> Service::start() {
  CARVE_TRY_VOID(process::make_folders(runtime_dir_ + "/log", 0755));
  const std::string log = runtime_dir_ + "/log/" + name_ + ".log";
  struct stat info = {};
  if (::stat(log.c_str(), &info) == 0 && info.st_size > kLogLimit) {
    ::rename(log.c_str(), (log + ".old").c_str());
    info = {};
  }
  log_start_ = static_cast<std::size_t>(info.st_size);
  CARVE_TRY(auto lock, process::LockFile::take(file(".lock")));
  CARVE_TRY_VOID(process::replace_file(file(".args"), words(), 0600));
  CARVE_TRY(
      child_,
      process::spawn({.program = program_, .args = args_, .keep = {lock.fd()}, .log_file = log, .own_session = true}));
  started_ = SystemClock().now();
  return lock.write_pid(child_.pid);
}

bool Service::lives() const { return child_.pidfd && !process::is_gone(child_); }

bool Service::tend(Clock::Time now) {
  if (lives()) return false;
  if (child_.pidfd) {
    if (now - started_ > kProvenAfter) back_off_ = kFirstBackOff;
    next_start_ = now + back_off_;
    back_off_ = std::min(back_off_ * 2, kLongestBackOff);
    child_ = process::Child();
  }
  if (now < next_start_) return true;
  if (!start()) next_start_ = now + kLongestBackOff;
  return true;
}

void Service::stop(std::chrono::milliseconds grace) {
  if (child_.pidfd) process::stop_child(child_, grace);
}

std::string Service::last_words() const {
  const auto text = process::read_text(runtime_dir_ + "/log/" + name_ + ".log", 64U << 20U);
  if (!text) return {};
  // Only the log since the last start. Its beginning shows bad flags, its end later errors.
  std::string tail = text->size() > log_start_ ? text->substr(log_start_) : std::string();
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  if (tail.size() > 1000) tail = tail.substr(0, 400) + "\n…\n" + tail.substr(tail.size() - 500);
  return tail;
}

void Service::forget() {
  ::unlink(file(".lock").c_str());
  ::unlink(file(".args").c_str());
}

}  // namespace carve::cmd
