#include "cmd/live.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "app/cli/table.h"

namespace carve::cmd {
namespace {

constexpr std::string_view kOwnScreen = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kScreenBefore = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t own_screen = 0;
termios terminal_before = {};
bool keys_read = false;  // the terminal was changed so that keys arrive at once

void restore_terminal() {
  if (own_screen != 0) static_cast<void>(!::write(STDOUT_FILENO, kScreenBefore.data(), kScreenBefore.size()));
  if (keys_read) ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

/// Ends the process immediately, even while `picture` waits: it only reads, so nothing is left half done.
void end(int) {
  restore_terminal();
  ::_exit(kExitOk);
}

Result<void> show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return flush_output();
}

sigset_t endings() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

/// Keys arrive without Enter and are not echoed.
void read_keys() {
  if (::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &terminal_before) != 0) return;
  termios raw = terminal_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys_read = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

struct Screen {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

Screen screen() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 3 || size.ws_col < 20) return {};
  return {size.ws_row, size.ws_col};
}

/// What the keys that have arrived ask for.
struct Keys {
  bool quit = false;
  long rows = 0;  // to scroll down
  bool to_begin = false;
  bool any = false;
};

Keys take_keys(std::size_t page) {
  Keys keys;
  char bytes[64];
  const auto count = ::read(STDIN_FILENO, bytes, sizeof bytes);
  const std::string_view text(bytes, count > 0 ? static_cast<std::size_t>(count) : 0);
  keys.any = !text.empty();
  const long rows = static_cast<long>(page);
  const std::pair<std::string_view, long> moves[] = {{"\x1b[A", -1},     {"\x1b[B", 1},     {"k", -1},   {"j", 1},
                                                     {"\x1b[5~", -rows}, {"\x1b[6~", rows}, {" ", rows}, {"b", -rows}};
  for (std::size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at);
    std::size_t used = 1;
    if (rest.front() == 'q') keys.quit = true;
    if (rest.front() == 'g' || rest.starts_with("\x1b[H")) keys.to_begin = true;
    for (const auto& [key, move] : moves) {
      if (!rest.starts_with(key)) continue;
      keys.rows += move;
      used = std::max(used, key.size());
    }
    at += used;
  }
  return keys;
}

/// Shows pictures on a terminal until the user ends it.
class FullScreen {
 public:
  void put(std::string text) { text_ = std::move(text); }
  void draw() {
    const Screen size = screen();
    static_cast<void>(show("\x1b[H\x1b[2J" + cli::page_of(text_, size.rows, size.columns, &first_)));
  }
  /// Waits for the next picture and obeys keys meanwhile. False: the user wants to end.
  bool wait(std::chrono::milliseconds every) {
    const auto until = std::chrono::steady_clock::now() + every;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      if (left <= 0) return true;
      pollfd item = {keys_read ? STDIN_FILENO : -1, POLLIN, 0};
      if (::poll(&item, 1, static_cast<int>(left)) <= 0 || (item.revents & POLLIN) == 0) continue;
      const auto keys = take_keys(screen().rows - 1);
      if (keys.quit) return false;
      if (!keys.any) keys_read = false;  // the terminal is gone
      const long first = keys.to_begin ? 0 : static_cast<long>(first_) + keys.rows;
      first_ = static_cast<std::size_t>(std::max(0L, first));
      draw();
    }
  }

 private:
  std::string text_;
  std::size_t first_ = 0;
};

int show_on_terminal(std::chrono::milliseconds every, const std::function<Result<std::string>()>& picture) {
  own_screen = 1;
  read_keys();
  static_cast<void>(show(std::string(kOwnScreen)));
  FullScreen view;
  do {
    const auto text = picture();
    view.put(text ? *text : text.error().what + "\n");
    view.draw();
  } while (view.wait(every));
  restore_terminal();
  return kExitOk;
}

/// Whether the texts replace each other.
bool on_terminal(const ViewOptions& options) {
  const bool table = options.output == "text" || options.output == "wide";
  return !options.once && table && ::isatty(STDOUT_FILENO) != 0;
}

}  // namespace

int show_watched(bool watch, const std::string& output, const std::function<Result<std::string>()>& picture) {
  ViewOptions how;
  how.output = output;
  how.once = !watch;
  if (!watch || on_terminal(how)) return show_live(how, picture);
  std::string last;
  return show_live(how, [&]() -> Result<std::string> {
    CARVE_TRY(auto text, picture());
    if (text == last) return std::string();
    return last = std::move(text);
  });
}

int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture) {
  const auto every = parse_duration("--every", options.every);
  if (!every) return report(every.error());
  if (every->count() < 100) {
    return report({Code::kInvalidArgument, "--every: " + options.every + " is below 100ms"});
  }
  if (!options.once) {
    std::signal(SIGINT, end);
    std::signal(SIGTERM, end);
  }
  if (on_terminal(options)) return show_on_terminal(*every, picture);
  const sigset_t held = endings();
  for (;;) {
    const auto text = picture();
    if (!text) return report(text.error());
    ::sigprocmask(SIG_BLOCK, &held, nullptr);  // so that a reader gets whole JSON documents
    const auto shown = show(*text);
    ::sigprocmask(SIG_UNBLOCK, &held, nullptr);
    if (!shown) return report(shown.error());
    if (options.once) return kExitOk;
    const timespec pause = {every->count() / 1000, every->count() % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace carve::cmd
