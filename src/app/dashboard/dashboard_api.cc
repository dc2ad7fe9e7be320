#include "app/dashboard/dashboard_api.h"

#include <algorithm>
#include <utility>

#include "codec/views/openapi.h"
#include "codec/web_query.h"

namespace carve::dashboard {
namespace {

using codec::ApiParameter;
using codec::ApiPath;
using codec::Board;
using codec::BoardCard;
using codec::BoardEvent;
using codec::BoardNode;
using codec::BoardSlice;
using codec::WaitingPod;

constexpr std::string_view kPages = "/dashboard";
constexpr std::string_view kApi = "/v1/";
constexpr std::size_t kPage = 500;
constexpr std::size_t kLargestPage = 10'000;
constexpr std::chrono::seconds kHeartbeat{5};

HttpResponse plain(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kUnimplemented:
      return 404;
    default:
      return 503;
  }
}

HttpResponse refusal(const Error& error) { return plain(status_of(error.code), error.what); }

HttpResponse json(Result<std::string> text) {
  if (!text) return refusal(text.error());
  HttpResponse reply{200, "application/json", std::move(*text)};
  reply.fields = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  return reply;
}

using Query = codec::WebQuery;
using codec::number_in;
using codec::text_in;

/// The parameters of a query; each must be one of `legal`.
Result<Query> query_of(std::string_view text, const std::vector<ApiParameter>& legal) {
  std::vector<std::string_view> names;
  for (const auto& one : legal) {
    if (!one.in_path) names.push_back(one.name);
  }
  return codec::parse_web_query(text, names);
}

bool matches(const Query& query, std::string_view name, std::string_view value) {
  const auto found = query.find(name);
  return found == query.end() || found->second.empty() || found->second == value;
}

bool keep(const Query& query, const BoardCard& card) {
  return matches(query, "node", card.node) && matches(query, "model", card.model) &&
         matches(query, "uuid", card.uuid) && matches(query, "healthy", card.healthy ? "true" : "false");
}
bool keep(const Query& query, const BoardSlice& slice) {
  return matches(query, "node", slice.node) && matches(query, "card", slice.card) &&
         matches(query, "namespace", slice.namespace_name) && matches(query, "pod", slice.pod);
}
bool keep(const Query& query, const BoardNode& node) { return matches(query, "name", node.name); }
bool keep(const Query& query, const WaitingPod& pod) { return matches(query, "namespace", pod.namespace_name); }
bool keep(const Query& query, const BoardEvent& event) {
  return matches(query, "node", event.node) && matches(query, "namespace", event.namespace_name) &&
         matches(query, "kind", event.kind);
}

/// One page of the items that the query selects.
template <class Item>
Result<std::string> page(const std::vector<Item>& all, const Query& query, std::uint64_t revision) {
  CARVE_TRY(const auto most, number_in(query, "limit", kPage, 1, kLargestPage));
  std::vector<const Item*> kept;
  for (const auto& item : all) {
    if (keep(query, item)) kept.push_back(&item);
  }
  return codec::page_json(kept, revision, {text_in(query, "continue"), most});
}

std::vector<ApiParameter> paged(std::vector<ApiParameter> own) {
  own.push_back({"limit", "the largest number of items in the answer: 1 to 10000, default 500"});
  own.push_back({"continue", "the `continue` of the previous page"});
  return own;
}

const ApiPath kWatch = {"/v1/watch",
                        "Server-sent events: each \"change\" contains what changed since the one before",
                        "text/event-stream",
                        {{"since", "a revision; only later changes are sent"},
                         {"detail", "cards (default), or nodes: no cards and slices, only the sums of the nodes"}}};

}  // namespace

/// A path of the read API: its description, and the answer for what the viewer may see. `rest` is the text after the
/// path.
struct DashboardApi::Resource {
  struct Call {
    const Viewer& viewer;
    const RevisedBoard& now;
    const Board& seen;
    const Query& query;
    const std::vector<std::string>& words;  // the variable parts of the path
    const Sources& sources;
    const std::string& token;
  };
  ApiPath api;
  std::vector<std::string> parts;  // of the path after "/v1/"; "{…}" is variable
  Result<std::string> (*answer)(const Call&);
};

namespace {

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const auto end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

/// Whether the text can be the name of a Kubernetes object: it becomes a part of a path of the API server.
bool is_object_name(const std::string& text) {
  constexpr std::string_view kLegal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  return !text.empty() && text.size() <= 253 && text.front() != '.' &&
         text.find_first_not_of(kLegal) == std::string::npos;
}

tl::unexpected<Error> not_here(const char* what) {
  return fail(Code::kUnimplemented, std::string("this program has no ") + what);
}

}  // namespace

std::span<const DashboardApi::Resource> DashboardApi::resources() {
  using Call = Resource::Call;
  static const std::vector<Resource> kResources = [] {
    std::vector<Resource> rows;
    const auto add = [&](ApiPath api, Result<std::string> (*answer)(const Call&)) {
      auto parts = parts_of(api.path.substr(kApi.size()));
      rows.push_back({std::move(api), std::move(parts), answer});
    };
    add({"/v1/summary", "Totals, free room by model, and use by namespace"},
        [](const Call& call) -> Result<std::string> { return codec::summary_json(call.seen, call.now.revision); });
    add({"/v1/cards", "The cards, sorted by node and index", "application/json",
         paged({{"node", "only the cards of this node"},
                {"model", "only the cards of this model"},
                {"uuid", "only this card"},
                {"healthy", "true or false"}})},
        [](const Call& call) { return page(call.seen.cards, call.query, call.now.revision); });
    add({"/v1/slices", "The slices: what each container, claim or command holds of a card", "application/json",
         paged({{"node", "only the slices on this node"},
                {"card", "only the slices on the card with this UUID"},
                {"namespace", "only the slices of this namespace"},
                {"pod", "only the slices of this pod"}})},
        [](const Call& call) { return page(call.seen.slices, call.query, call.now.revision); });
    add({"/v1/nodes", "The nodes with cards, and whether their agents answer", "application/json",
         paged({{"name", "only this node"}})},
        [](const Call& call) { return page(call.seen.nodes, call.query, call.now.revision); });
    add({"/v1/waiting", "The pods that request cards and have no node", "application/json",
         paged({{"namespace", "only the pods of this namespace"}})},
        [](const Call& call) { return page(call.seen.waiting, call.query, call.now.revision); });
    add({"/v1/events", "The agents' events, the newest last", "application/json",
         paged({{"node", "only the events of this node"},
                {"namespace", "only the events of this namespace"},
                {"kind", "only the events of this kind"}})},
        [](const Call& call) { return page(call.seen.events, call.query, call.now.revision); });
    add({"/v1/nodes/{node}",
         "All that the node's agent reports: cards, slices, processes",
         "application/json",
         {{"node", "the node's name", true}}},
        [](const Call& call) -> Result<std::string> {
          if (!call.sources.node) return not_here("agents");
          if (!call.viewer.everything)
            return fail(Code::kPermissionDenied,
                        "the agent's report requires the permission to list pods in all "
                        "namespaces and gpus.elasticgpu.io");
          const bool known = std::any_of(call.seen.nodes.begin(), call.seen.nodes.end(),
                                         [&](const BoardNode& node) { return node.name == call.words[0]; });
          if (!known) return fail(Code::kNotFound, "no card is known on a node of this name");
          return call.sources.node(call.words[0]);
        });
    add({"/v1/pods/{namespace}/{pod}",
         "What the pod requests and holds, and why it is where it is, or waits",
         "application/json",
         {{"namespace", "the pod's namespace", true}, {"pod", "the pod's name", true}}},
        [](const Call& call) -> Result<std::string> {
          if (!call.sources.explain) return not_here("pods");
          if (!call.viewer.sees(call.words[0]))
            return fail(Code::kPermissionDenied, "this requires the permission to list pods in that namespace");
          return call.sources.explain(call.words[0], call.words[1]);
        });
    add({"/v1/history",
         "Promised and delivered use of a card or a slice over time",
         "application/json",
         {{"node", "the node"},
          {"card", "the card's UUID"},
          {"slice", "the `agent_id` of a slice"},
          {"since", "how far back: such as 15m, 24h or 30d; default 1h"}}},
        [](const Call& call) -> Result<std::string> {
          if (!call.sources.history) return not_here("history");
          const HistoryRequest ask{text_in(call.query, "node"), text_in(call.query, "card"),
                                   text_in(call.query, "slice"), text_in(call.query, "since")};
          if (ask.node.empty()) return fail(Code::kInvalidArgument, "node: it is required");
          const bool own = !ask.slice.empty() &&
                           std::any_of(call.seen.slices.begin(), call.seen.slices.end(), [&](const BoardSlice& slice) {
                             return slice.agent_id == ask.slice && slice.node == ask.node;
                           });
          if (!call.viewer.everything && !own)
            return fail(Code::kPermissionDenied,
                        "this requires the permission to list pods in all namespaces and "
                        "gpus.elasticgpu.io, or the slice of a namespace that you may see");
          return call.sources.history(ask);
        });
    add({"/v1/usage",
         "What each namespace was promised and used over time, in card-hours and GiB-hours, and its quotas of cards",
         "application/json",
         {{"since", "how far back: such as 24h or 30d; default 24h"}}},
        [](const Call& call) -> Result<std::string> {
          if (!call.sources.usage) return not_here("usage");
          const auto since = text_in(call.query, "since");
          CARVE_TRY(const auto usage, call.sources.usage(since.empty() ? "24h" : since));
          // A namespace may have a past or a quota, and nothing on the board.
          CARVE_TRY(const auto viewer, call.sources.admit(call.token, namespaces_in(*usage)));
          return codec::usage_json(seen_by(viewer, *usage));
        });
    return rows;
  }();
  return kResources;
}

DashboardApi::DashboardApi(Sources sources, WebFiles web, const Clock& clock)
    : sources_(std::move(sources)), web_(web), clock_(clock), feed_(sources_.board, clock) {}

bool DashboardApi::serves(std::string_view path) {
  return path == "/" || path == kPages || path.starts_with("/dashboard/") || path.starts_with(kApi);
}

bool DashboardApi::waits(const HttpRequest& ask) { return ask.path.starts_with(kApi); }

HttpResponse DashboardApi::web_file(std::string_view path) const {
  if (path == "/" || path == kPages) {
    HttpResponse reply = plain(302, "the dashboard is at dashboard/");
    reply.fields = {{"Location", "dashboard/"}};
    return reply;
  }
  std::string_view name = path.substr(kPages.size() + 1);
  if (name.empty()) name = "index.html";
  for (const auto& file : web_.files) {
    if (file.name != name) continue;
    HttpResponse reply{200, std::string(file.type), std::string(file.bytes)};
    // Nothing but the page's own files; the one inline script is the import map.
    reply.fields = {{"Content-Security-Policy",
                     "default-src 'none'; script-src 'self' '" + std::string(web_.policy_hash) +
                         "'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action "
                         "'none'; frame-ancestors 'none'"},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cache-Control", "no-cache"}};
    return reply;
  }
  return plain(404, web_.files.empty()
                        ? "this program was built without the web page; scripts/web fetches what it needs"
                        : "the page has no such file");
}

HttpResponse DashboardApi::data(const HttpRequest& ask) {
  const std::string_view rest = std::string_view(ask.path).substr(kApi.size());
  if (rest == "openapi.json") {
    std::vector<ApiPath> paths;
    for (const auto& one : resources()) paths.push_back(one.api);
    paths.push_back(kWatch);
    return json(codec::openapi_json(paths));
  }
  if (rest == "session") {
    if (!sources_.session) return plain(404, "there are no one-time links here; send a bearer token");
    const auto query = query_of(ask.query, {{"key", ""}});
    if (!query) return refusal(query.error());
    auto token = sources_.session(text_in(*query, "key"));
    if (!token) return refusal(token.error());
    return json("{\"token\":\"" + *token + "\"}");
  }
  const auto now = feed_.now();
  // Without a valid token, an error of the board says nothing either.
  const auto viewer = sources_.admit(ask.token, now ? (*now)->namespaces : std::set<std::string>());
  if (!viewer) return refusal(viewer.error());
  if (!now) return refusal(now.error());
  if (rest == "watch") {
    const auto query = query_of(ask.query, kWatch.parameters);
    if (!query) return refusal(query.error());
    const auto since = number_in(*query, "since", 0, 0, UINT64_MAX);
    if (!since) return refusal(since.error());
    const auto detail = text_in(*query, "detail");
    if (!detail.empty() && detail != "cards" && detail != "nodes")
      return plain(400, "detail: \"" + detail.substr(0, 32) + "\" is not a detail; legal are cards and nodes");
    if (detail != "nodes" && (*now)->board.cards.size() > kMostCardsWatched) {
      return plain(400,
                   "detail: the board has more than " + std::to_string(kMostCardsWatched) + " cards; legal is nodes");
    }
    return watch(ask.token, *since, detail == "nodes" ? Detail::kNodes : Detail::kCards);
  }
  const auto parts = parts_of(rest);
  for (const auto& one : resources()) {
    if (one.parts.size() != parts.size()) continue;
    std::vector<std::string> words;
    bool same = true;
    for (std::size_t at = 0; at < parts.size() && same; ++at) {
      const bool variable = one.parts[at].front() == '{';
      same = variable || one.parts[at] == parts[at];
      words.resize(words.size() + (variable ? 1 : 0));
      if (variable) same = codec::url_decoded(parts[at], &words.back()) && is_object_name(words.back());
    }
    if (!same) continue;
    const auto query = query_of(ask.query, one.api.parameters);
    if (!query) return refusal(query.error());
    const auto answer = [&](const Board& seen) {
      return json(one.answer({*viewer, **now, seen, *query, words, sources_, ask.token}));
    };
    return viewer->everything ? answer((*now)->board) : answer(seen_by(*viewer, (*now)->board));
  }
  return plain(404, "the read API has no such path; /v1/openapi.json lists them");
}

std::string DashboardApi::change_text(const RevisedBoard& now, std::uint64_t since, Detail detail) {
  const auto at = static_cast<std::size_t>(detail == Detail::kNodes);
  {
    const MutexLock lock(mutex_);
    const Kept& kept = kept_[at];
    if (kept.text != nullptr && kept.since == since && kept.revision == now.revision) return *kept.text;
  }
  auto text = std::make_shared<const std::string>(codec::change_json(now.board, change_since(now, since, detail)));
  const MutexLock lock(mutex_);
  kept_[at] = {since, now.revision, text};
  return *text;
}

HttpResponse DashboardApi::watch(const std::string& token, std::uint64_t since, Detail detail) {
  if (watching_->fetch_add(1) >= kMostWatching) {
    watching_->fetch_sub(1);
    return plain(503, "too many viewers follow the board");
  }
  /// What this viewer has been sent.
  struct Following {
    explicit Following(std::shared_ptr<std::atomic<int>> all) : watching(std::move(all)) {}
    ~Following() { watching->fetch_sub(1); }
    Following(const Following&) = delete;
    Following& operator=(const Following&) = delete;
    std::shared_ptr<std::atomic<int>> watching;
    std::uint64_t revision = 0;
    Viewer viewer;         // of the last text, for a viewer who does not see everything
    std::size_t hash = 0;  // of the last text, for a viewer who does not see everything
    bool failed = false;
    Clock::Time sent{};
  };
  auto following = std::make_shared<Following>(watching_);
  following->revision = since;
  const auto step = [this, following, token, detail]() -> std::optional<std::string> {
    const auto event = [&](std::string_view kind, std::string_view text) {
      following->sent = clock_.now();
      return "event: " + std::string(kind) + "\ndata: " + std::string(text) + "\n\n";
    };
    const auto now = feed_.now();
    if (!now) {
      if (!std::exchange(following->failed, true)) return event("trouble", now.error().what);
    } else {
      following->failed = false;
      const auto viewer = sources_.admit(token, (*now)->namespaces);
      if (!viewer) return std::nullopt;
      if (viewer->everything && (*now)->revision != following->revision) {
        const auto text = change_text(**now, following->revision, detail);
        following->revision = (*now)->revision;
        return event("change", text);
      }
      // The same board, seen with the same rights, gives the same text.
      const bool again =
          following->hash != 0 && (*now)->revision == following->revision && *viewer == following->viewer;
      if (!viewer->everything && !again) {
        following->revision = (*now)->revision;
        following->viewer = *viewer;
        const RevisedBoard seen = revised(nullptr, seen_by(*viewer, (*now)->board), 1);
        const auto text = codec::change_json(seen.board, change_since(seen, 0, detail));
        const auto hash = std::hash<std::string>()(text);
        if (hash != std::exchange(following->hash, hash)) return event("change", text);
      }
    }
    if (clock_.now() - following->sent < kHeartbeat) return "";
    return event("alive", "{}");
  };
  HttpResponse reply{200, "text/event-stream", step().value_or("")};
  reply.fields = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}, {"X-Content-Type-Options", "nosniff"}};
  reply.more = step;
  return reply;
}

HttpResponse DashboardApi::answer(const HttpRequest& ask) {
  if (!serves(ask.path)) return plain(404, "there is nothing at this path; the dashboard is at /dashboard/");
  if (ask.method != "GET" && ask.method != "HEAD") {
    HttpResponse reply = plain(405, "this path supports GET only: the dashboard changes nothing");
    reply.fields = {{"Allow", "GET, HEAD"}};
    return reply;
  }
  return ask.path.starts_with(kApi) ? data(ask) : web_file(ask.path);
}

}  // namespace carve::dashboard
