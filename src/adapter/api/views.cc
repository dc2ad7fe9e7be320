#include "adapter/api/views.h"

#include "adapter/api/fields.h"

namespace carve::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kMany = 65536;

json::value value_of(const ProcessView& p) {
  return json::object{{"pid", p.pid},
                      {"command", p.command},
                      {"card", p.card},
                      {"memory_bytes", p.memory.count()},
                      {"sm_percent", p.sm_percent},
                      {"registered", p.registered}};
}

json::array values_of(const std::vector<ProcessView>& processes) {
  json::array list;
  for (const auto& p : processes) list.push_back(value_of(p));
  return list;
}

json::value value_of(const SliceCounters& c) {
  return json::object{{"waits", json::array(c.waits.begin(), c.waits.end())},
                      {"waited_ns", c.waited_ns},
                      {"capped_ns", c.capped_ns},
                      {"gated_launches", c.gated_launches},
                      {"refused_requests", c.refused_requests},
                      {"refused_bytes", c.refused_bytes}};
}

json::value value_of(const SliceView& s) {
  json::array cards;
  for (const auto& c : s.cards) {
    json::object card{{"card", c.card},
                      {"limit_bytes", c.limit.count()},
                      {"used_bytes", c.used.count()},
                      {"announced_bytes", c.announced.count()},
                      {"compute", c.compute.hundredths()},
                      {"delivered_percent", c.delivered_percent},
                      {"busy_ns", c.busy_ns},
                      {"rescues", c.rescues}};
    if (c.counters) card["counters"] = value_of(*c.counters);
    cards.push_back(std::move(card));
  }
  json::object slice{{"id", s.id},
                     {"kind", s.kind},
                     {"name", s.name},
                     {"owner", s.owner},
                     {"state", s.state},
                     {"uid", s.uid},
                     {"whole", s.whole},
                     {"share", std::string(to_string(s.share))},
                     {"priority", std::string(to_string(s.priority))},
                     {"cards", std::move(cards)},
                     {"processes", values_of(s.processes)}};
  if (s.ceiling != CoreShare::whole()) slice["core_limit"] = s.ceiling.hundredths();
  return slice;
}

/// The parts of CardActivity by their names in the API.
constexpr std::pair<std::string_view, std::optional<double> CardActivity::*> kActivityNames[] = {
    {"graphics_active", &CardActivity::graphics},
    {"sm_active", &CardActivity::sm},
    {"tensor_active", &CardActivity::tensor},
    {"memory_active", &CardActivity::memory}};

json::value value_of(const CardView& c) {
  json::array xids;
  for (const auto& [xid, count] : c.xids) xids.push_back(json::object{{"code", xid}, {"count", count}});
  json::object card{{"uuid", c.card.id.str()},
                      {"vendor", c.card.vendor},
                      {"model", c.card.model},
                      {"memory_bytes", c.card.memory.count()},
                      {"healthy", c.card.health.ok},
                      {"health_reason", c.card.health.reason},
                      {"remark", c.remark},
                      {"xids", std::move(xids)},
                      {"last_xid", c.last_xid},
                      {"numa_node", c.card.numa_node},
                      {"minor", c.card.minor},
                      {"pci_bus_id", c.pci_bus_id},
                      {"set_aside_bytes", c.set_aside.count()},
                      {"guaranteed", c.guaranteed.hundredths()},
                      {"exclusive", c.exclusive},
                      {"used_bytes", c.used.count()},
                      {"utilization_percent", c.utilization_percent},
                      {"temperature_c", c.temperature_c},
                      {"power_mw", c.power_mw},
                      {"sm_clock_mhz", c.sm_clock_mhz},
                      {"memory_clock_mhz", c.memory_clock_mhz},
                      {"foreign", values_of(c.foreign)}};
  if (c.memory_busy_percent) card["memory_busy_percent"] = *c.memory_busy_percent;
  if (c.energy_mj) card["energy_mj"] = *c.energy_mj;
  for (const auto& [name, part] : kActivityNames) {
    if (const auto& value = c.activity.*part) card[name] = *value;
  }
  return card;
}

Result<ProcessView> process_from(const json::value& value) {
  Fields f(value, "process");
  ProcessView p;
  p.pid = static_cast<std::int32_t>(f.integer("pid"));
  p.command = f.text("command");
  p.card = f.text("card");
  p.memory = f.bytes("memory_bytes");
  p.sm_percent = static_cast<std::uint32_t>(f.number("sm_percent", 0, 1000));
  p.registered = f.flag("registered");
  CARVE_TRY_VOID(f.finish(Fields::Unknown::kIgnored));
  return p;
}

Result<std::vector<ProcessView>> processes_from(const json::array& list) {
  std::vector<ProcessView> processes;
  for (const auto& value : list) {
    CARVE_TRY(auto process, process_from(value));
    processes.push_back(std::move(process));
  }
  return processes;
}

Result<SliceCounters> counters_from(const json::value& value) {
  Fields f(value, "counters");
  SliceCounters counters;
  const auto& waits = f.array("waits", counters.waits.size());
  for (std::size_t i = 0; i < waits.size(); ++i) {
    boost::system::error_code error;
    counters.waits[i] = waits[i].to_number<std::uint64_t>(error);
    if (error) f.wrong("waits", "not a non-negative integer");
  }
  counters.waited_ns = f.number("waited_ns");
  counters.capped_ns = f.number("capped_ns");
  counters.gated_launches = f.number("gated_launches");
  counters.refused_requests = f.number("refused_requests");
  counters.refused_bytes = f.number("refused_bytes");
  CARVE_TRY_VOID(f.finish(Fields::Unknown::kIgnored));
  return counters;
}

Result<SliceView> slice_from(const json::value& value) {
  Fields f(value, "slice");
  SliceView s;
  s.id = f.text("id");
  s.kind = f.text("kind");
  s.name = f.text("name");
  if (f.has("owner")) s.owner = f.text("owner");
  s.state = f.text("state");
  s.uid = static_cast<std::uint32_t>(f.number("uid", 0, UINT32_MAX));
  s.whole = f.flag("whole");
  s.share = share_class_from(f.text("share")).value_or(ShareClass::kBurst);
  s.priority = priority_class_from(f.text("priority")).value_or(PriorityClass::kStandard);
  if (f.has("core_limit")) s.ceiling = CoreShare(static_cast<std::uint32_t>(f.number("core_limit", 1, 100)));
  for (const auto& card : f.array("cards", kMany)) {
    Fields c(card, "slice card");
    SliceCardView view;
    view.card = c.text("card");
    view.limit = c.bytes("limit_bytes");
    view.used = c.bytes("used_bytes");
    view.announced = c.bytes("announced_bytes");
    view.compute = CoreShare(static_cast<std::uint32_t>(c.number("compute", 0, 100)));
    view.delivered_percent = c.real("delivered_percent");
    // An agent of an earlier version does not send them.
    if (c.has("busy_ns")) view.busy_ns = c.number("busy_ns", 0, UINT64_MAX);
    if (c.has("rescues")) view.rescues = static_cast<std::uint32_t>(c.number("rescues", 0, UINT32_MAX));
    if (c.has("counters")) {
      CARVE_TRY(view.counters, counters_from(c.object("counters")));
    }
    CARVE_TRY_VOID(c.finish(Fields::Unknown::kIgnored));
    s.cards.push_back(std::move(view));
  }
  CARVE_TRY(s.processes, processes_from(f.array("processes", kMany)));
  CARVE_TRY_VOID(f.finish(Fields::Unknown::kIgnored));
  return s;
}

Result<CardView> card_from(const json::value& value) {
  Fields f(value, "card");
  CardView c;
  c.card.id = CardId(f.text("uuid"));
  c.card.vendor = f.text("vendor");
  c.card.model = f.text("model");
  c.card.memory = f.bytes("memory_bytes");
  c.card.health.ok = f.flag("healthy");
  c.card.health.reason = f.text("health_reason");
  c.remark = f.text("remark");
  if (f.has("xids")) {  // an agent of an earlier version does not send them
    for (const auto& one : f.array("xids", kMany)) {
      Fields x(one, "xid");
      c.xids[static_cast<std::uint32_t>(x.number("code", 0, UINT32_MAX))] = x.number("count");
      CARVE_TRY_VOID(x.finish(Fields::Unknown::kIgnored));
    }
    c.last_xid = static_cast<std::uint32_t>(f.number("last_xid", 0, UINT32_MAX));
  }
  c.card.numa_node = static_cast<int>(f.integer("numa_node"));
  c.card.minor = static_cast<int>(f.integer("minor"));
  c.pci_bus_id = f.text("pci_bus_id");
  c.set_aside = f.bytes("set_aside_bytes");
  c.guaranteed = CoreShare(static_cast<std::uint32_t>(f.number("guaranteed", 0, UINT32_MAX)));
  c.exclusive = f.flag("exclusive");
  c.used = f.bytes("used_bytes");
  c.utilization_percent = static_cast<std::uint32_t>(f.number("utilization_percent", 0, UINT32_MAX));
  c.temperature_c = static_cast<std::uint32_t>(f.number("temperature_c", 0, UINT32_MAX));
  c.power_mw = static_cast<std::uint32_t>(f.number("power_mw", 0, UINT32_MAX));
  if (f.has("sm_clock_mhz")) {  // an agent of an earlier version does not send them
    c.sm_clock_mhz = static_cast<std::uint32_t>(f.number("sm_clock_mhz", 0, UINT32_MAX));
    c.memory_clock_mhz = static_cast<std::uint32_t>(f.number("memory_clock_mhz", 0, UINT32_MAX));
  }
  if (f.has("memory_busy_percent"))
    c.memory_busy_percent = static_cast<std::uint32_t>(f.number("memory_busy_percent", 0, 100));
  if (f.has("energy_mj")) c.energy_mj = f.number("energy_mj");
  for (const auto& [name, part] : kActivityNames) {
    if (f.has(name)) c.activity.*part = f.real(name);
  }
  CARVE_TRY(c.foreign, processes_from(f.array("foreign", kMany)));
  CARVE_TRY_VOID(f.finish(Fields::Unknown::kIgnored));
  return c;
}

}  // namespace

json::value value_of(const AgentView& v) {
  json::array cards;
  json::array slices;
  json::array events;
  for (const auto& card : v.cards) cards.push_back(value_of(card));
  for (const auto& slice : v.slices) slices.push_back(value_of(slice));
  for (const auto& e : v.events) {
    events.push_back(
        json::object{{"unix_ms", e.unix_ms}, {"kind", e.kind}, {"slice", e.slice}, {"text", e.text}});
  }
  return json::object{{"version", v.version},
                      {"page_abi", v.page_abi},
                      {"driver_version", v.driver_version},
                      {"cuda_version", v.cuda_version},
                      {"gpu_state", v.gpu_state},
                      {"gpu_reason", v.gpu_reason},
                      {"arbiter_state", v.arbiter_state},
                      {"arbiter_reason", v.arbiter_reason},
                      {"journal_error", v.journal_error},
                      {"library_folder", v.library_folder},
                      {"state_folder", v.state_folder},
                      {"device_folder", v.device_folder},
                      {"library_error", v.library_error},
                      {"cgroup_error", v.cgroup_error},
                      {"own_devices", v.own_devices},
                      {"device_mode", v.device_mode},
                      {"device_group", v.device_group},
                      {"device_error", v.device_error},
                      {"waiting", v.waiting},
                      {"cards", std::move(cards)},
                      {"slices", std::move(slices)},
                      {"events", std::move(events)}};
}

Result<AgentView> view_from(const json::value& value) {
  Fields f(value, "view");
  AgentView v;
  v.version = f.text("version");
  v.page_abi = static_cast<std::uint32_t>(f.number("page_abi", 0, UINT32_MAX));
  v.driver_version = f.text("driver_version");
  v.cuda_version = f.text("cuda_version");
  v.gpu_state = f.text("gpu_state");
  v.gpu_reason = f.text("gpu_reason");
  v.arbiter_state = f.text("arbiter_state");
  v.arbiter_reason = f.text("arbiter_reason");
  v.journal_error = f.text("journal_error");
  v.library_folder = f.text("library_folder");
  if (f.has("state_folder")) v.state_folder = f.text("state_folder");
  if (f.has("device_folder")) v.device_folder = f.text("device_folder");
  v.library_error = f.text("library_error");
  v.cgroup_error = f.text("cgroup_error");
  if (f.has("own_devices")) {  // an agent of an earlier version does not send it
    v.own_devices = f.flag("own_devices");
    v.device_mode = static_cast<std::uint32_t>(f.number("device_mode", 0, 07777));
    v.device_group = static_cast<std::uint32_t>(f.number("device_group", 0, UINT32_MAX));
    v.device_error = f.text("device_error", kMany);
  }
  v.waiting = static_cast<std::uint32_t>(f.number("waiting", 0, UINT32_MAX));
  for (const auto& card : f.array("cards", kMany)) {
    CARVE_TRY(auto view, card_from(card));
    v.cards.push_back(std::move(view));
  }
  for (const auto& slice : f.array("slices", kMany)) {
    CARVE_TRY(auto view, slice_from(slice));
    v.slices.push_back(std::move(view));
  }
  for (const auto& event : f.array("events", kMany)) {
    Fields e(event, "event");
    v.events.push_back({e.integer("unix_ms"), e.text("kind"), e.text("slice"), e.text("text", kMany)});
    CARVE_TRY_VOID(e.finish(Fields::Unknown::kIgnored));
  }
  CARVE_TRY_VOID(f.finish(Fields::Unknown::kIgnored));
  return v;
}

json::value value_of(const Grant& g) {
  json::array cards;
  for (const auto& c : g.cards) {
    cards.push_back(json::object{{"uuid", c.card.str()},
                                 {"model", c.model},
                                 {"minor", c.minor},
                                 {"memory_bytes", c.memory.count()},
                                 {"compute", c.compute.hundredths()}});
  }
  json::object grant{{"slice", g.slice},
                      {"whole", g.whole},
                      {"cards", std::move(cards)},
                      {"slice_folder", g.slice_folder},
                      {"library_folder", g.library_folder},
                      {"runtime_folder", g.runtime_folder},
                      {"driver_version", g.driver_version},
                      {"driver_cuda", g.driver.cuda},
                      {"driver_nvml", g.driver.nvml},
                      {"hidden_minors", json::array(g.hidden_minors.begin(), g.hidden_minors.end())},
                      {"masking_socket", g.masking_socket},
                      {"device", g.device}};
  if (!g.card_files.empty()) grant["card_files"] = g.card_files;  // a client of an earlier version refuses the field
  return grant;
}

Result<Grant> grant_from(const json::value& value) {
  Fields f(value, "grant");
  Grant g;
  g.slice = f.text("slice");
  g.whole = f.flag("whole");
  for (const auto& card : f.array("cards", kMaxCardsPerRequest)) {
    Fields c(card, "granted card");
    GrantedCard granted;
    granted.card = CardId(c.text("uuid"));
    granted.model = c.text("model");
    granted.minor = static_cast<int>(c.integer("minor"));
    granted.memory = c.bytes("memory_bytes");
    granted.compute = CoreShare(static_cast<std::uint32_t>(c.number("compute", 0, 100)));
    CARVE_TRY_VOID(c.finish());
    g.cards.push_back(std::move(granted));
  }
  g.slice_folder = f.text("slice_folder");
  g.library_folder = f.text("library_folder");
  g.runtime_folder = f.text("runtime_folder");
  g.driver_version = f.text("driver_version");
  g.driver.cuda = f.text("driver_cuda");
  g.driver.nvml = f.text("driver_nvml");
  for (const auto& minor : f.array("hidden_minors", kMany)) {
    if (!minor.is_int64()) {
      f.wrong("hidden_minors", "not integers");
      break;
    }
    g.hidden_minors.push_back(static_cast<int>(minor.get_int64()));
  }
  g.masking_socket = f.text("masking_socket");
  g.device = f.text("device");
  if (f.has("card_files")) g.card_files = f.text("card_files");
  CARVE_TRY_VOID(f.finish());
  return g;
}

}  // namespace carve::api
