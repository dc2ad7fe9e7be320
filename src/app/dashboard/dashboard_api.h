#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "app/dashboard/board_feed.h"
#include "app/dashboard/usage_reader.h"
#include "app/dashboard/viewer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "port/http.h"

namespace carve::dashboard {

/// A file of the web page.
struct WebFile {
  std::string_view name;  // "index.html"
  std::string_view type;
  std::string_view bytes;
};

/// The files of the web page, built into the program. `policy_hash` is the hash of the page's only inline script, for
/// the content security policy.
struct WebFiles {
  std::span<const WebFile> files;
  std::string_view policy_hash;
};

/// A history, of one card or one slice of a node.
struct HistoryRequest {
  std::string node;
  std::string card;   // UUID; empty: of all cards
  std::string slice;  // the agent's name; empty: of the card
  std::string since;  // "1h", "30d"
};

/// Where the answers come from. Empty functions: this program has no such data.
struct Sources {
  BoardFeed::Read board;
  std::function<Result<std::string>(const std::string& node)> node;                                       // JSON
  std::function<Result<std::string>(const std::string& namespace_name, const std::string& pod)> explain;  // JSON
  std::function<Result<std::string>(const HistoryRequest&)> history;                                      // JSON
  /// What the namespaces used, of all of them.
  std::function<Result<UsageReader::Shared>(const std::string& since)> usage;
  Admit admit;
  /// The token that a one-time link is exchanged for. Empty function: there are no such links.
  std::function<Result<std::string>(const std::string& key)> session;
};

/// The dashboard: the web page below /dashboard/, and the read API below /v1/. It changes nothing. Safe from any
/// thread.
class DashboardApi {
 public:
  DashboardApi(Sources sources, WebFiles web, const Clock& clock);

  /// True: the path belongs to the dashboard.
  [[nodiscard]] static bool serves(std::string_view path);
  /// The answer may take long, or wait for another server.
  [[nodiscard]] static bool waits(const HttpRequest& ask);
  [[nodiscard]] HttpResponse answer(const HttpRequest& ask);

  /// Viewers that follow the board at the same time. More are refused with 503.
  static constexpr int kMostWatching = 100;
  /// The largest board that can be followed card by card: its first text is 2.5 MB for each viewer. Larger ones are
  /// followed by the sums of the nodes (`detail=nodes`).
  static constexpr std::size_t kMostCardsWatched = 5000;

 private:
  struct Resource;
  static std::span<const Resource> resources();
  [[nodiscard]] HttpResponse web_file(std::string_view path) const;
  [[nodiscard]] HttpResponse data(const HttpRequest& ask);
  [[nodiscard]] HttpResponse watch(const std::string& token, std::uint64_t since, Detail detail);
  /// The text of a change for a viewer who sees everything. Most viewers are at the same revision, so the last texts
  /// are kept: many viewers cost little more than one.
  [[nodiscard]] std::string change_text(const RevisedBoard& now, std::uint64_t since, Detail detail) EXCLUDES(mutex_);

  const Sources sources_;
  const WebFiles web_;
  const Clock& clock_;
  BoardFeed feed_;
  std::shared_ptr<std::atomic<int>> watching_ = std::make_shared<std::atomic<int>>(0);
  /// The text of the last change, by detail.
  struct Kept {
    std::uint64_t since = 0;
    std::uint64_t revision = 0;
    std::shared_ptr<const std::string> text;
  };
  Mutex mutex_;
  std::array<Kept, 2> kept_ GUARDED_BY(mutex_);
};

}  // namespace carve::dashboard
