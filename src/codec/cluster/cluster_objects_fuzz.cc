#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "codec/cluster/budget.h"
#include "codec/cluster/cluster_node.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/cluster/eviction.h"
#include "codec/cluster/installation.h"
#include "codec/cluster/lease.h"

// For any object: a value or an error, and bodies for a parsed object can be written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  using namespace carve::codec;
  static_cast<void>(parse_cluster_node(text));
  static_cast<void>(parse_workload(text));
  static_cast<void>(is_ready(text));
  static_cast<void>(allocatable_of(text, "nvidia.com/gpu"));
  static_cast<void>(has_authority(text));
  static_cast<void>(parse_server_version(text));
  static_cast<void>(parse_budget(text));
  if (const auto lease = parse_lease(text)) {
    const auto again = parse_lease(encode_lease(*lease));
    static_cast<void>(seconds_since_renewal(*lease, 0));
    if (!again || *again != *lease) __builtin_trap();
  }
  if (const auto pod = parse_cluster_pod(text)) {
    // Again in a text that is parsed completely, because of a non-ASCII name.
    const auto brace = text.find('{');
    const auto rest = text.substr(brace + 1);
    const auto whole = parse_cluster_pod("{\"\xc3\xa9\":0," + std::string(rest));
    if (!whole || binding_body(*whole, whole->node, whole->ask.annotations) !=
                      binding_body(*pod, pod->node, pod->ask.annotations) ||
        whole->record != pod->record || whole->ended != pod->ended || whole->started != pod->started ||
        whole->priority != pod->priority || whole->ask.containers.size() != pod->ask.containers.size())
      __builtin_trap();
    static_cast<void>(binding_body(*pod, "n", pod->ask.annotations));
    static_cast<void>(annotations_patch(*pod, pod->ask.annotations));
    static_cast<void>(eviction_body(*pod, true));
    static_cast<void>(nomination_patch(*pod, "n"));
    if (const auto budget = parse_budget(text)) static_cast<void>(covers(*budget, pod->ask));
  }
  return 0;
}
