#include "port/testing/fake_kube_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace carve::testing {
namespace {

using nlohmann::json;

/// A path of the API, split into its parts.
struct Place {
  std::string prefix;      // /api/v1 or /apis/group/version
  std::string namespace_name;  // namespace; empty: none, or all
  std::string collection;  // pods
  std::string name;        // empty: the collection
  std::string sub;         // status, binding, eviction, …
  [[nodiscard]] std::string key() const {
    return prefix + (namespace_name.empty() ? "" : "/namespaces/" + namespace_name) + "/" + collection + "/" + name;
  }
};

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = text.find(at);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

Result<Place> parse_place(const std::string& path) {
  auto parts = split(path, '/');
  const std::size_t head = !parts.empty() && parts[0] == "api" ? 2 : 3;
  if (parts.size() <= head || (parts[0] != "api" && parts[0] != "apis"))
    return fail(Code::kNotFound, path + ": the server could not find the requested resource");
  Place place;
  for (std::size_t i = 0; i < head; ++i) place.prefix += "/" + parts[i];
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(head));
  if (parts.size() >= 3 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize") {
    place.namespace_name = parts[1];
    parts.erase(parts.begin(), parts.begin() + 2);
  }
  place.collection = parts[0];
  if (parts.size() > 1) place.name = parts[1];
  if (parts.size() > 2) place.sub = parts[2];
  return place;
}

std::string text_at(const json& object, const std::vector<std::string>& way) {
  const json* at = &object;
  for (const auto& step : way) {
    if (!at->is_object() || !at->contains(step)) return {};
    at = &(*at)[step];
  }
  return at->is_string() ? at->get<std::string>() : std::string();
}

bool chosen(const json& object, const KubeApi::Query& query) {
  for (const auto& [key, value] : query) {
    if (key != "fieldSelector" && key != "labelSelector") continue;
    for (const auto& term : split(value, ',')) {
      const auto equals = term.find('=');
      if (equals == std::string::npos) continue;
      const bool negated = equals > 0 && term[equals - 1] == '!';
      const auto name = term.substr(0, negated ? equals - 1 : equals);
      const auto wanted = term.substr(term.find_first_not_of('=', equals) == std::string::npos
                                          ? term.size()
                                          : term.find_first_not_of('=', equals));
      // The real server's name for the component that recorded an Event.
      const auto field = name == "source" ? std::string("source.component") : name;
      const auto have = key == "fieldSelector" ? text_at(object, split(field, '.'))
                                               : text_at(object, {"metadata", "labels", name});
      if ((have == wanted) == negated) return false;
    }
  }
  return true;
}

/// The objects in a collection of all namespaces, or of one.
bool inside(const Place& at, const Place& place) {
  return at.prefix == place.prefix && at.collection == place.collection &&
         (place.namespace_name.empty() || at.namespace_name == place.namespace_name);
}

}  // namespace

struct FakeKubeApi::State {
  struct Stored {
    Place place;
    json object;
    std::uint64_t version = 0;
    std::string text;  // the object: a test lists more often than it writes
  };
  std::map<std::string, Stored> objects;
  std::map<std::string, std::string> answers;  // by path: the answers for paths that are not objects
  struct Step {
    Place place;
    json object;
    bool gone = false;
  };
  std::vector<Step> steps;  // all changes, for watches; version n is steps[n - 1]
  std::vector<Fault> faults;
  std::vector<Write> writes;
  std::map<std::string, std::size_t> calls;
  std::vector<Viewer*> viewers;
  std::uint64_t expired = 0;  // watches that began their list before this generation list again
  std::uint64_t named = 0;    // counter for generateName and UIDs
  bool away = false;
  bool stalled = false;

  /// Returns the object's text.
  const std::string& store(const Place& place, json object) {
    auto& kept = objects[place.key()];
    auto& metadata = object["metadata"];
    if (!metadata.contains("uid") || !metadata["uid"].is_string() || metadata["uid"] == "")
      metadata["uid"] = kept.version > 0 ? kept.object["metadata"]["uid"]
                                         : json(fmt::format("00000000-0000-4000-8000-{:012x}", ++named));
    metadata["resourceVersion"] = std::to_string(steps.size() + 1);
    steps.push_back({place, object, false});
    kept.place = place;
    kept.version = steps.size();
    kept.object = std::move(object);
    kept.text = kept.object.dump();
    return kept.text;
  }
  void drop(const std::string& key) {
    const auto found = objects.find(key);
    if (found == objects.end()) return;
    auto object = found->second.object;
    object["metadata"]["resourceVersion"] = std::to_string(steps.size() + 1);
    steps.push_back({found->second.place, std::move(object), true});
    objects.erase(found);
  }
  [[nodiscard]] static bool stale(const Stored& kept, const json& body) {
    const auto version = text_at(body, {"metadata", "resourceVersion"});
    const auto uid = text_at(body, {"metadata", "uid"});
    return (!version.empty() && version != std::to_string(kept.version)) ||
           (!uid.empty() && uid != text_at(kept.object, {"metadata", "uid"}));
  }
  /// True when the watch has something to deliver.
  [[nodiscard]] bool pending(const Viewer& viewer) const;
  Result<std::string> create(Place place, json body);
  Result<std::string> change(const Place& place, const Write& call, const json& body);
  Result<std::string> remove(const Place& place, const json& body);
};

struct FakeKubeApi::Viewer {
  Place place;
  Query query;
  std::map<std::string, bool> known;
  std::size_t seen = 0;
  std::uint64_t generation = 0;
  bool listed = false;
  bool told = false;  // trouble was reported
  bool idle = false;
};

bool FakeKubeApi::State::pending(const Viewer& viewer) const {
  if (stalled) return false;
  if (away) return !viewer.told;
  return !viewer.listed || viewer.generation != expired || viewer.seen < steps.size();
}

Result<std::string> FakeKubeApi::State::create(Place place, json body) {
  auto& metadata = body["metadata"];
  if (place.sub == "binding" || place.sub == "eviction") {
    const auto found = objects.find(place.key());
    if (found == objects.end()) return fail(Code::kNotFound, place.key() + ": not found");
    auto object = found->second.object;
    const auto uid = text_at(body, place.sub == "eviction"
                                       ? std::vector<std::string>{"deleteOptions", "preconditions", "uid"}
                                       : std::vector<std::string>{"metadata", "uid"});
    if (!uid.empty() && uid != text_at(object, {"metadata", "uid"}))
      return fail(Code::kAlreadyExists, place.key() + ": the precondition on its UID does not hold");
    if (place.sub == "eviction") {
      if (body.contains("deleteOptions") && body["deleteOptions"].contains("dryRun")) return body.dump();
      drop(place.key());
      return body.dump();
    }
    if (!text_at(object, {"spec", "nodeName"}).empty())
      return fail(Code::kAlreadyExists, place.key() + ": is already assigned to a node");
    object["spec"]["nodeName"] = text_at(body, {"target", "name"});
    if (metadata.contains("annotations")) object["metadata"]["annotations"].update(metadata["annotations"]);
    store(place, std::move(object));
    return body.dump();
  }
  place.name = text_at(body, {"metadata", "name"});
  if (place.name.empty() && metadata.contains("generateName"))
    place.name = fmt::format("{}{:05x}", metadata["generateName"].get<std::string>(), ++named);
  if (place.name.empty()) return fail(Code::kInvalidArgument, "metadata.name: required value");
  if (objects.contains(place.key())) return fail(Code::kAlreadyExists, place.key() + ": already exists");
  metadata["name"] = place.name;
  if (!place.namespace_name.empty()) metadata["namespace"] = place.namespace_name;
  metadata.erase("uid");
  return store(place, std::move(body));
}

/// A strategic merge treats status.conditions as a map by type.
void merge_conditions(const json& old, const json& body, json* next) {
  const auto path = json::json_pointer("/status/conditions");
  if (!body.contains(path)) return;
  json list = old.contains(path) ? old[path] : json::array();
  for (const auto& one : body[path]) {
    const auto same = [&](const json& other) { return other["type"] == one["type"]; };
    const auto found = std::find_if(list.begin(), list.end(), same);
    if (one.contains("$patch")) {
      if (found != list.end()) list.erase(found);
    } else if (found != list.end()) {
      found->update(one);
    } else {
      list.push_back(one);
    }
  }
  (*next)[path] = std::move(list);
}

Result<std::string> FakeKubeApi::State::change(const Place& place, const Write& call, const json& body) {
  const auto found = objects.find(place.key());
  const bool apply = call.verb == "patch" && call.kind == KubePatch::kApply;
  if (found == objects.end()) {
    if (!apply || !place.sub.empty()) return fail(Code::kNotFound, place.key() + ": not found");
    auto fresh = body;
    fresh["metadata"]["name"] = place.name;
    return create({place.prefix, place.namespace_name, place.collection, {}, {}}, std::move(fresh));
  }
  if (body.is_object() && stale(found->second, body))
    return fail(Code::kAborted, place.key() + ": the object has been modified");
  const auto& old = found->second.object;
  json next = body;
  if (call.verb == "patch") {
    next = old;
    if (call.kind == KubePatch::kJson) {
      next = old.patch(body);
    } else {
      next.merge_patch(body);
      if (call.kind == KubePatch::kStrategic) merge_conditions(old, body, &next);
    }
  }
  // The subresource writes only its own part; a write of the object never changes its status.
  if (place.sub == "status" || place.sub == "driver") {
    auto merged = old;
    if (next.contains("status")) merged["status"] = next["status"];
    next = std::move(merged);
  } else if (place.sub.empty() && old.contains("status")) {
    next["status"] = old["status"];
  }
  next["metadata"]["uid"] = old["metadata"]["uid"];
  next["metadata"]["name"] = place.name;
  if (!place.namespace_name.empty()) next["metadata"]["namespace"] = place.namespace_name;
  return store(place, std::move(next));
}

Result<std::string> FakeKubeApi::State::remove(const Place& place, const json& body) {
  const auto found = objects.find(place.key());
  if (found == objects.end()) return fail(Code::kNotFound, place.key() + ": not found");
  const auto uid = text_at(body, {"preconditions", "uid"});
  const auto version = text_at(body, {"preconditions", "resourceVersion"});
  if ((!uid.empty() && uid != text_at(found->second.object, {"metadata", "uid"})) ||
      (!version.empty() && version != std::to_string(found->second.version)))
    return fail(Code::kAborted, place.key() + ": the precondition does not hold");
  drop(place.key());
  return std::string("{}");
}

FakeKubeApi::FakeKubeApi() : state_(std::make_unique<State>()) {}
FakeKubeApi::~FakeKubeApi() = default;

/// Counts the call, waits while stalled, and consumes a fault. Called without the lock.
Result<std::optional<FakeKubeApi::Fault>> FakeKubeApi::enter(const std::string& verb, const std::string& path) {
  std::unique_lock lock(mutex_);
  ++state_->calls[verb];
  changed_.notify_all();
  changed_.wait(lock, [this] { return !state_->stalled; });
  if (state_->away) return fail(Code::kUnavailable, path + ": connection refused");
  for (auto& fault : state_->faults) {
    if (fault.times <= 0 || (!fault.verb.empty() && fault.verb != verb) ||
        path.find(fault.path) == std::string::npos)
      continue;
    --fault.times;
    if (!fault.done) return fail(fault.code, path + ": injected failure");
    return fault;
  }
  return std::optional<Fault>();
}

Result<std::string> FakeKubeApi::get(const std::string& path, const Query&) {
  CARVE_TRY(const auto fault, enter("get", path));
  if (fault) return fail(fault->code, path + ": injected failure");
  {
    const std::lock_guard lock(mutex_);
    if (const auto there = state_->answers.find(path); there != state_->answers.end()) return there->second;
  }
  CARVE_TRY(const auto place, parse_place(path));
  const std::lock_guard lock(mutex_);
  const auto found = state_->objects.find(place.key());
  if (found == state_->objects.end()) return fail(Code::kNotFound, path + ": not found");
  return found->second.text;
}

Result<std::vector<std::string>> FakeKubeApi::list(const std::string& path, const Query& query) {
  CARVE_TRY(const auto fault, enter("list", path));
  if (fault) return fail(fault->code, path + ": injected failure");
  CARVE_TRY(const auto place, parse_place(path));
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [key, kept] : state_->objects) {
    if (inside(kept.place, place) && chosen(kept.object, query)) all.push_back(kept.text);
  }
  return all;
}

Result<std::string> FakeKubeApi::write(Write call) {
  const auto fault = enter(call.verb, call.path);
  const auto verb = call.verb;
  const auto path = call.path;
  const auto place = parse_place(path);
  const auto body = json::parse(call.body.empty() ? "{}" : call.body, nullptr, false);
  const std::lock_guard lock(mutex_);
  auto outcome = [&]() -> Result<std::string> {
    if (!fault) return tl::unexpected(fault.error());
    if (!place) return tl::unexpected(place.error());
    if (body.is_discarded()) return fail(Code::kInvalidArgument, path + ": the body is not JSON");
    try {  // a JSON patch that does not apply, or a body of another shape: the document library throws
      if (verb == "create") return state_->create(*place, body);
      if (verb == "remove") return state_->remove(*place, body);
      return state_->change(*place, call, body);
    } catch (const json::exception& error) {
      return fail(Code::kInvalidArgument, path + ": " + error.what());
    }
  }();
  call.done = outcome.has_value();
  state_->writes.push_back(std::move(call));
  changed_.notify_all();
  if (fault && *fault) return fail((*fault)->code, path + ": injected failure, after it was done");
  return outcome;
}

Result<std::string> FakeKubeApi::create(const std::string& path, const std::string& body) {
  return write({"create", path, body, KubePatch::kMerge, {}, false});
}

Result<std::string> FakeKubeApi::replace(const std::string& path, const std::string& body) {
  return write({"replace", path, body, KubePatch::kMerge, {}, false});
}

Result<std::string> FakeKubeApi::patch(const std::string& path, KubePatch kind, const std::string& body,
                                       const Query& query) {
  return write({"patch", path, body, kind, query, false});
}

Result<void> FakeKubeApi::remove(const std::string& path, const std::string& body) {
  CARVE_TRY(const auto done, write({"remove", path, body, KubePatch::kMerge, {}, false}));
  static_cast<void>(done);
  return {};
}

/// Delivers one item to the watch; false: nothing is left. The sink is called without the lock.
bool FakeKubeApi::deliver(Viewer& viewer, const KubeSink& sink, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  auto& state = *state_;
  if (stop.stop_requested() || state.stalled) return false;
  if (state.away) {
    viewer.listed = false;
    if (std::exchange(viewer.told, true)) return false;
    lock.unlock();
    if (sink.trouble) sink.trouble({Code::kUnavailable, "watch: connection refused"});
    return true;
  }
  viewer.told = false;
  if (!viewer.listed || viewer.generation != state.expired) {
    viewer.listed = true;
    viewer.generation = state.expired;
    viewer.seen = state.steps.size();
    viewer.known.clear();
    std::vector<std::string> all;
    for (const auto& [key, kept] : state.objects) {
      if (!inside(kept.place, viewer.place) || !chosen(kept.object, viewer.query)) continue;
      viewer.known[key] = true;
      all.push_back(kept.text);
    }
    lock.unlock();
    if (sink.replace) sink.replace(all);
    return true;
  }
  if (viewer.seen >= state.steps.size()) return false;
  const auto& step = state.steps[viewer.seen++];
  if (!inside(step.place, viewer.place)) return true;
  // An object that stops matching the selector is deleted for this watch, as with the real server.
  const bool fits = !step.gone && chosen(step.object, viewer.query);
  if (!fits && viewer.known.erase(step.place.key()) == 0) return true;
  if (fits) viewer.known[step.place.key()] = true;
  const KubeChange change{fits ? KubeChange::Kind::kPut : KubeChange::Kind::kDeleted, step.object.dump()};
  lock.unlock();
  if (sink.change) sink.change(change);
  return true;
}

void FakeKubeApi::watch(const std::string& path, const Query& query, const KubeSink& sink,
                        const std::stop_token& stop) {
  Viewer viewer;
  const auto place = parse_place(path);
  if (place) {
    viewer.place = *place;
  } else if (sink.trouble) {
    sink.trouble(place.error());
  }
  // metadata.name selects one object where the path names it, as with `?watch` on an object.
  viewer.query = query;
  if (!viewer.place.name.empty())
    viewer.query.emplace_back("fieldSelector", "metadata.name=" + viewer.place.name);
  {
    const std::lock_guard lock(mutex_);
    ++state_->calls["watch"];
    state_->viewers.push_back(&viewer);
  }
  while (!stop.stop_requested()) {
    if (place && deliver(viewer, sink, stop)) continue;
    std::unique_lock lock(mutex_);
    auto& state = *state_;
    viewer.idle = true;
    changed_.notify_all();
    changed_.wait(lock, stop, [&] { return place && state.pending(viewer); });
    viewer.idle = false;
  }
  const std::lock_guard lock(mutex_);
  std::erase(state_->viewers, &viewer);
  changed_.notify_all();
}

std::string FakeKubeApi::put(const std::string& path, const std::string& body) {
  const auto place = parse_place(path);
  auto object = json::parse(body, nullptr, false);
  if (!place || !object.is_object()) return {};
  const std::lock_guard lock(mutex_);
  object["metadata"]["name"] = place->name;
  if (!place->namespace_name.empty()) object["metadata"]["namespace"] = place->namespace_name;
  auto stored = state_->store(*place, std::move(object));
  changed_.notify_all();
  return stored;
}

void FakeKubeApi::answer(const std::string& path, std::string text) {
  const std::lock_guard lock(mutex_);
  state_->answers[path] = std::move(text);
}

void FakeKubeApi::erase(const std::string& path) {
  const auto place = parse_place(path);
  const std::lock_guard lock(mutex_);
  if (place) state_->drop(place->key());
  changed_.notify_all();
}

std::optional<std::string> FakeKubeApi::object(const std::string& path) const {
  const auto place = parse_place(path);
  const std::lock_guard lock(mutex_);
  const auto found = place ? state_->objects.find(place->key()) : state_->objects.end();
  if (found == state_->objects.end()) return std::nullopt;
  return found->second.text;
}

void FakeKubeApi::fail_next(Fault fault) {
  const std::lock_guard lock(mutex_);
  state_->faults.push_back(std::move(fault));
}

void FakeKubeApi::set_away(bool away) {
  const std::lock_guard lock(mutex_);
  state_->away = away;
  changed_.notify_all();
}

void FakeKubeApi::set_stalled(bool stalled) {
  const std::lock_guard lock(mutex_);
  state_->stalled = stalled;
  changed_.notify_all();
}

void FakeKubeApi::expire_watches() {
  const std::lock_guard lock(mutex_);
  ++state_->expired;
  changed_.notify_all();
}

std::vector<FakeKubeApi::Write> FakeKubeApi::writes() const {
  const std::lock_guard lock(mutex_);
  return state_->writes;
}

bool FakeKubeApi::wait_writes(std::size_t count, std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return state_->writes.size() >= count; });
}

bool FakeKubeApi::wait_watches(std::size_t count, std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  const auto settled = [&] {
    const auto& viewers = state_->viewers;
    return viewers.size() >= count && std::all_of(viewers.begin(), viewers.end(), [&](const Viewer* viewer) {
             return viewer->idle && !state_->pending(*viewer);
           });
  };
  return changed_.wait_for(lock, limit, settled);
}

std::size_t FakeKubeApi::calls(const std::string& verb) const {
  const std::lock_guard lock(mutex_);
  const auto found = state_->calls.find(verb);
  return found == state_->calls.end() ? 0 : found->second;
}

}  // namespace carve::testing
