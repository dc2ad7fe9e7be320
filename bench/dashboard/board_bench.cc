// The read API and the page of a large cluster, whose nodes exist only in this process.
//
//   board_bench [--nodes N] [--cards C] [--pods P] [--serve ADDRESS:PORT] [--check]
//
// Prints the time from a request to its answer's text, without the network: the median and the 99th percentile of 200
// calls of each path, each after a change of the board, so nothing is reused from the call before; and the resident
// memory.
// --check: fails if a 99th percentile is above the budget (100 ms at 1,000 nodes, 1 s above).
// --serve: serves the page without authentication until SIGTERM; 50 slices change with each read of the board, up to
// four times a second. For tests/dashboard/scale.py.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "adapter/http/server.h"
#include "app/dashboard/boards.h"
#include "app/dashboard/dashboard_api.h"
#include "cmd/web_files.h"

namespace carve::bench {
namespace {

struct Options {
  std::uint64_t nodes = 1000;
  std::uint64_t cards = 8;
  std::uint64_t pods = 5000;
  std::string serve;
  bool check = false;
};

constexpr int kCalls = 200;

/// The cluster's view: pod number p holds 4 GiB and 25 hundredths of card p.
codec::ClusterView cluster_of(const Options& options) {
  codec::ClusterView view;
  for (std::uint64_t node = 0; node < options.nodes; ++node) {
    for (std::uint64_t card = 0; card < options.cards; ++card) {
      codec::GpuObject gpu;
      gpu.node = fmt::format("node-{:05}", node);
      gpu.index = static_cast<int>(card);
      gpu.card.id = CardId(fmt::format("GPU-{:08x}-0000-0000-0000-{:012x}", node, card));
      gpu.card.model = "NVIDIA H200 (SIMULATED)";
      gpu.card.memory = Bytes::gib(141);
      gpu.card.compute = CoreShare::whole();
      gpu.card.health.ok = (node * options.cards + card) % 997 != 0;
      view.cards.push_back(std::move(gpu));
    }
  }
  for (std::uint64_t pod = 0; pod < options.pods; ++pod) {
    auto& gpu = view.cards[pod * 7 % view.cards.size()];
    codec::GpuHolder holder;
    holder.slice.owner = {OwnerKind::kPod, fmt::format("uid-{}", pod)};
    holder.slice.part = "main";
    holder.slice.card = gpu.card.id;
    holder.slice.memory = Bytes::gib(4);
    holder.slice.compute = CoreShare(25);
    holder.namespace_name = fmt::format("team-{}", pod % 50);
    holder.name = fmt::format("job-{}", pod);
    gpu.holders.push_back(std::move(holder));
  }
  return view;
}

/// A board of which 50 slices and their cards change with each call.
class Cluster {
 public:
  explicit Cluster(const Options& options) : board_(dashboard::board_of_cluster(cluster_of(options), {})) {}
  codec::Board next() {
    ++round_;
    for (std::size_t at = 0; at < 50 && !board_.slices.empty(); ++at) {
      auto& slice = board_.slices[(round_ * 50 + at) % board_.slices.size()];
      slice.delivered_percent = static_cast<double>(round_ % 25);
      slice.used = Bytes::gib(1 + round_ % 3);
    }
    return board_;
  }

 private:
  codec::Board board_;
  std::uint64_t round_ = 0;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

std::uint64_t resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) / 1024;
  }
  return 0;
}

int measure(const Options& options, dashboard::DashboardApi& page, ManualClock& clock) {
  const double budget = options.nodes <= 1000 ? 100 : 1000;
  std::printf("%llu nodes × %llu cards, %llu pods; %d calls each, after a change of 50 slices\n",
              static_cast<unsigned long long>(options.nodes), static_cast<unsigned long long>(options.cards),
              static_cast<unsigned long long>(options.pods), kCalls);
  bool good = true;
  const auto row = [&](const char* what, std::vector<double> times, std::size_t bytes) {
    std::sort(times.begin(), times.end());
    const double worst = times[times.size() * 99 / 100];
    good = good && worst <= budget;
    std::printf("  %-44s median %7.1f ms, p99 %7.1f ms, %9zu bytes\n", what, times[times.size() / 2], worst, bytes);
  };
  for (const char* path : {"/v1/summary", "/v1/cards?limit=500", "/v1/cards?node=node-00007",
                           "/v1/slices?namespace=team-7", "/v1/nodes?limit=500"}) {
    std::vector<double> times;
    std::size_t bytes = 0;
    for (int call = 0; call < kCalls; ++call) {
      clock.advance(std::chrono::hours(1));
      HttpRequest ask;
      const std::string_view text(path);
      ask.method = "GET";
      ask.path = text.substr(0, text.find('?'));
      if (text.find('?') != std::string_view::npos) ask.query = text.substr(text.find('?') + 1);
      const auto begin = std::chrono::steady_clock::now();
      const auto reply = page.answer(ask);
      times.push_back(milliseconds_since(begin));
      bytes = reply.body.size();
      if (reply.status != 200) std::abort();
    }
    row(path, times, bytes);
  }
  for (const char* detail : {"cards", "nodes"}) {
    if (options.nodes * options.cards > dashboard::DashboardApi::kMostCardsWatched && detail[0] == 'c') continue;
    HttpRequest ask;
    ask.method = "GET";
    ask.path = "/v1/watch";
    ask.query = std::string("detail=") + detail;
    clock.advance(std::chrono::hours(1));
    const auto begin = std::chrono::steady_clock::now();
    auto reply = page.answer(ask);
    std::printf("  %-44s        %7.1f ms, %28zu bytes\n",
                fmt::format("/v1/watch?detail={}, the first text", detail).c_str(), milliseconds_since(begin),
                reply.body.size());
    std::vector<double> times;
    std::size_t bytes = 0;
    for (int call = 0; call < kCalls; ++call) {
      clock.advance(std::chrono::hours(1));
      const auto again = std::chrono::steady_clock::now();
      const auto text = reply.more();
      times.push_back(milliseconds_since(again));
      bytes = text ? text->size() : 0;
    }
    row(fmt::format("/v1/watch?detail={}, a change", detail).c_str(), times, bytes);
  }
  std::printf("  resident: %llu MiB\n", static_cast<unsigned long long>(resident_mib()));
  if (!options.check || good) return 0;
  std::printf("above the budget of %.0f ms\n", budget);
  return 1;
}

int serve(const Options& options, dashboard::DashboardApi& page) {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTERM);
  ::sigaddset(&stop, SIGINT);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  Log log([](std::string_view) {});
  http::ServerOptions server;
  server.listen = options.serve;
  server.waits = [](const HttpRequest& ask) { return dashboard::DashboardApi::waits(ask); };
  const auto opened = http::Server::open(
      server, [&](const HttpRequest& ask) { return page.answer(ask); }, log);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().what.c_str());
    return 1;
  }
  std::printf("http://127.0.0.1:%u/dashboard/\n", (*opened)->port());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&stop, &signal);
  std::printf("resident: %llu MiB\n", static_cast<unsigned long long>(resident_mib()));
  return 0;
}

}  // namespace

int run(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    const auto number = [&] { return at + 1 < argc ? std::strtoull(argv[++at], nullptr, 10) : 0; };
    if (word == "--nodes")
      options.nodes = number();
    else if (word == "--cards")
      options.cards = number();
    else if (word == "--pods")
      options.pods = number();
    else if (word == "--serve" && at + 1 < argc)
      options.serve = argv[++at];
    else if (word == "--check")
      options.check = true;
    else
      return std::fprintf(stderr, "unknown: %s\n", word.c_str()), 2;
  }
  Cluster cluster(options);
  ManualClock manual;
  SystemClock system;
  dashboard::Sources sources;
  sources.board = [&]() -> Result<codec::Board> { return cluster.next(); };
  sources.admit = [](const std::string&, const std::set<std::string>&) -> Result<dashboard::Viewer> {
    dashboard::Viewer viewer;
    viewer.everything = viewer.cards = true;
    return viewer;
  };
  const Clock& clock = options.serve.empty() ? static_cast<const Clock&>(manual) : system;
  dashboard::DashboardApi page(std::move(sources), cmd::web_files(), clock);
  return options.serve.empty() ? measure(options, page, manual) : serve(options, page);
}

}  // namespace carve::bench

int main(int argc, char** argv) { return carve::bench::run(argc, argv); }
