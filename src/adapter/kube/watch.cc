#include "adapter/kube/watch.h"

#include <algorithm>

#include "codec/kube/lines.h"
#include "codec/kube/messages.h"

namespace carve::kube {
namespace {

constexpr auto kPage = "250";
constexpr std::size_t kLongestLine =
    8U << 20U;  // etcd stores objects of at most 1.5 MiB; their JSON is somewhat longer
// The server ends each watch after a random time, so that clients do not reconnect simultaneously.
constexpr int kShortest = 240;  // s
constexpr int kLongest = 480;   // s
constexpr auto kGood = std::chrono::seconds(10);  // a watch that lasted this long was not a failure
constexpr int kForgets = 5;                       // after this number of failures in a row the version is dropped too

HttpRequest get(std::string target) {
  return {.method = "GET", .target = std::move(target), .content_type = {}, .body = {}, .token = {}};
}

}  // namespace

Result<Listed> list_all(Caller& caller, const std::string& path, const KubeApi::Query& query,
                        std::chrono::milliseconds limit, const std::stop_token& stop) {
  Listed all;
  std::string continues;
  bool paged = true;
  while (true) {
    auto asked = query;
    if (paged) asked.emplace_back("limit", kPage);
    if (!continues.empty()) asked.emplace_back("continue", continues);
    CARVE_TRY(auto target, codec::kube_target(path, asked));
    const auto text = caller.call(get(std::move(target)), limit, stop);
    if (!text && text.error().code == Code::kOutOfRange && !continues.empty()) {
      // The snapshot of the pages has expired: list again without pages.
      continues.clear();
      all.items.clear();
      paged = false;
      continue;
    }
    if (!text) return tl::unexpected(text.error());
    auto page = codec::parse_kube_page(*text);
    if (!page) return fail_in("GET " + path, page.error());
    std::move(page->items.begin(), page->items.end(), std::back_inserter(all.items));
    all.version = std::move(page->version);
    continues = std::move(page->continues);
    if (continues.empty()) return all;
  }
}

void Watch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto began = caller_.clock().now();
    const bool listing = version_.empty();
    const auto done = listing ? begin(stop) : follow(stop);
    if (stop.stop_requested()) return;
    if (done && listing) continue;
    if (caller_.clock().now() - began >= kGood) failures_ = 0;
    ++failures_;
    const bool away = !done && failed(done.error());
    // A watch may end once at any time; only a second end soon after it is a failure.
    if ((away || failures_ > 1) && !wait(stop)) return;
  }
}

Result<void> Watch::begin(const std::stop_token& stop) {
  CARVE_TRY(auto all, list_all(caller_, path_, query_, caller_.limits().page, stop));
  if (all.version.empty()) return fail(Code::kDataLoss, "GET " + path_ + ": the list has no resourceVersion");
  version_ = std::move(all.version);
  if (std::exchange(away_, false)) log_.info("watch works again", {{"path", path_}});
  if (sink_.replace) sink_.replace(all.items);
  return {};
}

Result<void> Watch::follow(const std::stop_token& stop) {
  auto query = query_;
  query.emplace_back("watch", "true");
  query.emplace_back("allowWatchBookmarks", "true");
  query.emplace_back("resourceVersion", version_);
  std::uniform_int_distribution<int> some(kShortest, kLongest);
  query.emplace_back("timeoutSeconds", std::to_string(some(random_)));
  CARVE_TRY(auto target, codec::kube_target(path_, query));
  CARVE_TRY(const auto channel, caller_.stream(get(std::move(target)), stop));
  if (std::exchange(away_, false)) log_.info("watch works again", {{"path", path_}});
  codec::Lines lines(kLongestLine);
  while (true) {
    const Patience patience{.deadline = std::chrono::steady_clock::now() + caller_.limits().silence, .stop = stop};
    auto piece = channel->read_some(patience);
    // Not even a bookmark arrived in this time: only a new connection shows whether the server is alive.
    if (!piece && piece.error().code == Code::kDeadlineExceeded) return {};
    if (!piece) return fail_in("watch " + path_, piece.error());
    if (piece->empty()) return {};
    CARVE_TRY_VOID(lines.add(*piece));
    while (const auto line = lines.next()) {
      CARVE_TRY_VOID(deliver(*line));
      if (stop.stop_requested()) return {};
    }
  }
}

Result<void> Watch::deliver(const std::string& line) {
  auto event = codec::parse_kube_event(line);
  if (!event) {
    version_.clear();
    return fail_in("watch " + path_, event.error());
  }
  if (event->kind == codec::KubeEvent::Kind::kError) {
    version_.clear();
    return fail(event->status == 410 ? Code::kOutOfRange : Code::kUnavailable,
                "watch " + path_ + ": " + event->message);
  }
  failures_ = 0;
  if (!event->version.empty()) version_ = std::move(event->version);
  if (event->kind == codec::KubeEvent::Kind::kBookmark || !sink_.change) return {};
  sink_.change({.kind = event->kind == codec::KubeEvent::Kind::kDeleted ? KubeChange::Kind::kDeleted
                                                                        : KubeChange::Kind::kPut,
                .object = std::move(event->object)});
  return {};
}

bool Watch::failed(const Error& error) {
  // 410 does not mean that the server is unavailable: a list follows and calls `replace`.
  if (error.code == Code::kOutOfRange) {
    version_.clear();
    return false;
  }
  if (failures_ >= kForgets) version_.clear();
  if (!std::exchange(away_, true)) {
    log_.warn("watch failed, retrying", {{"path", path_}, {"error", error.what}});
    if (sink_.trouble) sink_.trouble(error);
  }
  return true;
}

bool Watch::wait(const std::stop_token& stop) {
  const auto first = caller_.limits().first_back_off;
  const auto doubled = first * (1 << std::clamp(failures_ - 1, 0, 12));
  const auto most = std::min<std::chrono::milliseconds>(doubled, caller_.limits().most_back_off);
  std::uniform_int_distribution<std::int64_t> some(most.count() / 2, most.count());
  return caller_.clock().sleep_for(std::chrono::milliseconds(some(random_)), stop);
}

}  // namespace carve::kube
