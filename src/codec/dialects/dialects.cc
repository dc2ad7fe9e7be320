#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "codec/dialects/dialect.h"
#include "codec/quantity.h"

namespace carve::codec {
namespace {

/// True for equal amounts with different spellings, such as 4096 and 4Ki; the API server keeps both.
bool same_amount(const std::string& a, const std::string& b) {
  if (a == b) return true;
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  const auto x = parse_amount("", a, 0, kMost, "");
  const auto y = parse_amount("", b, 0, kMost, "");
  return x && y && *x == *y;
}

/// The value of a resource name, which must be set as the API server requires it for extended resources: in limits, and
/// with an equal value in requests, if any. nullopt: not set.
std::optional<std::string> value_of(const ContainerAsk& container, std::string_view name,
                                    std::vector<Error>* errors) {
  const std::string key(name);
  const auto limit = container.limits.find(key);
  const auto request = container.requests.find(key);
  if (limit == container.limits.end()) {
    if (request == container.requests.end()) return std::nullopt;
    errors->push_back(
        {Code::kInvalidArgument,
         fmt::format(
             "{}: \"{}\" is set only in requests; set it in limits (requests may repeat it)",
             name, request->second.substr(0, 64))});
    return std::nullopt;
  }
  if (request != container.requests.end() && !same_amount(request->second, limit->second)) {
    errors->push_back(
        {Code::kInvalidArgument,
         fmt::format("{}: requests has \"{}\", limits has \"{}\"; they must be equal", name,
                     request->second.substr(0, 64), limit->second.substr(0, 64))});
    return std::nullopt;
  }
  return limit->second;
}

/// What a container says: the values of all resource names that it sets.
using Said = std::map<std::string_view, std::string>;

/// Every owned name by which pods request cards, and its dialect.
const std::map<std::string_view, const Dialect*>& owners() {
  static const auto* all = [] {
    auto* names = new std::map<std::string_view, const Dialect*>;
    for (const Dialect& dialect : dialects()) {
      for (const ResourceName& one : dialect.names) {
        if (one.asked && one.owned) names->emplace(one.name, &dialect);
      }
    }
    return names;
  }();
  return *all;
}

Said said_by(const ContainerAsk& container, const DialectSettings& settings, std::vector<Error>* errors) {
  Said said;
  for (const auto* amounts : {&container.limits, &container.requests}) {
    for (const auto& [name, amount] : *amounts) {
      if (amounts == &container.requests && container.limits.count(name) != 0) continue;  // read with the limits
      const auto owner = owners().find(name);
      if (owner == owners().end() || !is_served(*owner->second, settings)) continue;
      if (auto value = value_of(container, owner->first, errors)) said[owner->first] = std::move(*value);
    }
  }
  return said;
}

const ResourceName* name_of(const Dialect& dialect, std::string_view name) {
  const auto found = std::find_if(dialect.names.begin(), dialect.names.end(),
                                  [&](const ResourceName& one) { return one.name == name; });
  return found == dialect.names.end() ? nullptr : &*found;
}

bool has(const Dialect& dialect, std::string_view name) { return name_of(dialect, name) != nullptr; }

/// Zero for all names equals no request: charts set it as a default.
bool claims(const Dialect& dialect, const Said& said) {
  return std::any_of(dialect.names.begin(), dialect.names.end(), [&](const ResourceName& one) {
    const auto found = said.find(one.name);
    return one.asked && one.owned && found != said.end() && found->second != "0";
  });
}

/// True: everything that the container says in `other` it also says in `dialect`, which may say more.
bool covers(const Dialect& dialect, const Dialect& other, const Said& said) {
  return std::all_of(said.begin(), said.end(), [&](const auto& word) {
    return !has(other, word.first) || has(dialect, word.first);
  });
}

/// The dialect that a container uses; nullptr: none. If two claim it, it is the one that has every name of the other
/// that the container sets: nvidia.com/gpu beside a name that refines it belongs to the dialect with both.
const Dialect* dialect_used(const Said& said, std::vector<Error>* errors) {
  const Dialect* used = nullptr;
  for (const Dialect& dialect : dialects()) {
    if (!claims(dialect, said)) continue;
    if (used == nullptr || covers(dialect, *used, said)) {
      used = &dialect;
    } else if (!covers(*used, dialect, said)) {
      errors->push_back({Code::kInvalidArgument, fmt::format("{} together with {}: one container must use one dialect",
                                                             dialect.names.front().name, used->names.front().name)});
    }
  }
  return used;
}

/// Reads elasticgpu.io/core-limit. Requests of whole cards have no other limit; 100 is none.
void limit_cores(const PodAsk& pod, Request* request, std::vector<Error>* errors) {
  const auto written = pod.annotations.find(std::string(kCoreLimitAnnotation));
  if (written == pod.annotations.end()) return;
  const auto read = parse_core_limit(kCoreLimitAnnotation, written->second);
  if (!read) {
    errors->push_back(read.error());
  } else if (!request->whole) {
    request->ceiling = *read;
  }
}

/// Applies the tenant's preferences, which are the same for all containers.
void prefer(const PodAsk& pod, Request* request, std::vector<Error>* errors) {
  if (const auto share = pod.annotations.find(std::string(kShareAnnotation));
      share != pod.annotations.end()) {
    const auto read = share_class_from(share->second);
    if (!read) {
      errors->push_back({Code::kInvalidArgument,
                         fmt::format("{}: \"{}\" is not a class; legal: {}", kShareAnnotation,
                                     share->second.substr(0, 64), kShareClassWords)});
    } else if (!request->whole) {
      request->share = *read;
      // The class replaces what the dialect says about compute.
      if (!may_have_ceiling(*read)) request->ceiling = CoreShare::whole();
    }
  }
  limit_cores(pod, request, errors);
  if (const auto first = pod.annotations.find(std::string(kPriorityAnnotation));
      first != pod.annotations.end()) {
    const auto read = priority_class_from(first->second);
    if (read) {
      request->priority = *read;
    } else {
      errors->push_back({Code::kInvalidArgument,
                         fmt::format("{}: \"{}\" is not a class; legal: {}", kPriorityAnnotation,
                                     first->second.substr(0, 64), kPriorityClassWords)});
    }
  }
}

/// A container's request, and whether it must share its cards with the others.
struct ContainerRequest {
  Request request;
  std::string_view together;
};

/// Reads one container; nullopt: it requests nothing from Carve, or there are errors.
std::optional<ContainerRequest> read_container(const ContainerAsk& container, const PodAsk& pod,
                                               const DialectSettings& settings, std::vector<Error>* errors) {
  const Said said = said_by(container, settings, errors);
  const Dialect* dialect = dialect_used(said, errors);
  if (dialect == nullptr) return std::nullopt;
  Said words;
  std::copy_if(said.begin(), said.end(), std::inserter(words, words.end()), [&](const auto& word) {
    const ResourceName* name = name_of(*dialect, word.first);
    return name != nullptr && (name->zero || word.second != "0");
  });
  auto request = dialect->read(Words(std::move(words)), pod, settings);
  if (!request) {
    errors->push_back(request.error());
    return std::nullopt;
  }
  request->dialect = dialect->name;
  prefer(pod, &*request, errors);
  const std::vector<Error> illegal = validate(*request);
  errors->insert(errors->end(), illegal.begin(), illegal.end());
  return ContainerRequest{std::move(*request), dialect->together};
}

}  // namespace

bool carries_slots(const PodAsk& pod) {
  return std::any_of(pod.containers.begin(), pod.containers.end(), [](const ContainerAsk& container) {
    const auto found = container.limits.find(std::string(kSlots));
    return found != container.limits.end() && found->second != "0";
  });
}

const std::string* Words::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> Words::count(std::string_view name, std::uint64_t high, std::string_view unit,
                                          std::vector<Error>* errors, std::uint64_t low) const {
  const std::string* text = find(name);
  if (text == nullptr) return std::nullopt;
  const auto count = parse_amount(name, *text, low, high, unit);
  if (count) return *count;
  errors->push_back(count.error());
  return std::nullopt;
}

std::optional<std::uint64_t> Words::hundredths(std::string_view name, std::uint64_t step, bool cards,
                                               std::vector<Error>* errors) const {
  const std::string legal = fmt::format("hundredths of a card ({} to 100 in steps of {}{})", step, step,
                                        cards ? ", or k*100: k whole cards" : "");
  const auto value = count(name, cards ? 100ULL * kMaxCardsPerRequest : 100, legal, errors, step);
  if (!value) return std::nullopt;
  if (*value <= 100 ? *value % step == 0 : *value % 100 == 0) return value;
  errors->push_back({Code::kInvalidArgument, fmt::format("{}: {} is not legal; legal are {}", name, *value, legal)});
  return std::nullopt;
}

Result<std::vector<PartRequest>> requests_of(const PodAsk& pod, const DialectSettings& settings) {
  std::vector<PartRequest> parts;
  std::vector<Error> all;
  for (const ContainerAsk& container : pod.containers) {
    std::vector<Error> errors;
    auto read = read_container(container, pod, settings, &errors);
    for (Error& error : errors) error.what = "container " + container.name + ": " + error.what;
    all.insert(all.end(), errors.begin(), errors.end());
    if (!read || !errors.empty()) continue;
    const Phase phase = container.kind == ContainerKind::kInit ? Phase::kInit : Phase::kRun;
    parts.push_back({container.name, phase, std::move(read->request), std::string(read->together)});
  }
  CARVE_TRY_VOID(joined(all));
  return parts;
}

Result<std::vector<PartRequest>> requests_by_slots(const PodAsk& pod, const DialectSettings& settings) {
  if (!carries_slots(pod)) return std::vector<PartRequest>();
  return requests_of(pod, settings);
}

}  // namespace carve::codec
