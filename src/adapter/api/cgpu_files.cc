#include "adapter/api/cgpu_files.h"

#include <fmt/format.h>

#include <map>

#include "port/slice_names.h"

namespace carve::api {
namespace {

using Files = std::map<std::string, std::string, std::less<>>;

/// cGPU's number of the policy, and the largest number of slices under it.
std::pair<std::uint32_t, std::uint32_t> policy_of(const AgentView& view, const CardId& card) {
  Slice slice;
  slice.card = card;
  slice.dialect = "cgpu";
  const auto policy = view.share_policies.of(slice);
  switch (policy.kind) {
    case SharePolicy::Kind::kEven:
      return {0, policy.parts};
    case SharePolicy::Kind::kEqual:
      return {1, kMaxSlicesPerCard};
    case SharePolicy::Kind::kFixed:
      return {3, kMaxSlicesPerCard};
    case SharePolicy::Kind::kBurst:
      break;
  }
  return {4, kMaxSlicesPerCard};
}

void add_containers(const AgentView& view, std::size_t index, Files* files) {
  std::uint32_t place = 0;
  for (const auto& slice : view.slices) {
    const auto names = names_of(slice);
    if (names.pod.empty()) continue;
    for (const auto& held : slice.cards) {
      if (held.card != view.cards[index].card.id.str()) continue;
      const auto folder = fmt::format("{}/{}_{}_{}/", index, names.namespace_name, names.pod, names.container);
      (*files)[folder + "id"] = fmt::to_string(place++);
      (*files)[folder + "memsize"] = fmt::to_string(held.limit.count());
      const auto used = if_reported(held.used).value_or(Bytes());
      (*files)[folder + "meminfo"] = fmt::format("Free: {}", used < held.limit ? (held.limit - used).count() : 0);
    }
  }
}

}  // namespace

std::optional<std::string> cgpu_file(const AgentView& view, std::string_view path) {
  Files files{{"version", view.version}};
  for (std::size_t index = 0; index < view.cards.size(); ++index) {
    const auto [policy, most] = policy_of(view, view.cards[index].card.id);
    files[fmt::format("{}/policy", index)] = fmt::to_string(policy);
    files[fmt::format("{}/max_inst", index)] = fmt::to_string(most);
    add_containers(view, index, &files);
  }
  if (path.empty()) {
    std::string list;
    for (const auto& [name, text] : files) list += name + "\n";
    return list;
  }
  const auto found = files.find(path);
  return found == files.end() ? std::nullopt : std::optional(found->second + "\n");
}

}  // namespace carve::api
