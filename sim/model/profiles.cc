#include "sim/model/profiles.h"

#include <cstdio>
#include <cstring>

namespace carve::sim {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

// One row per model. A new model is one more row.
// clang-format off
constexpr Model kModels[] = {
    {.key = "t4", .name = "Tesla T4 (SIMULATED)", .architecture = "Turing",
     .memory_bytes = 15360 * kMiB, .reserved_bytes = 416 * kMiB, .context_bytes = 105 * kMiB,
     .sm_count = 40, .compute_major = 7, .compute_minor = 5, .cores_per_sm = 64,
     .sm_clock_mhz = 1590, .sm_clock_idle_mhz = 300, .memory_clock_mhz = 5001,
     .memory_bus_bits = 256, .l2_bytes = 4U << 20, .shared_per_sm = 64U << 10,
     .shared_per_block_max = 64U << 10, .threads_per_sm = 1024, .blocks_per_sm = 16,
     .power_limit_mw = 70000, .power_idle_mw = 9500, .pci_device_id = 0x1EB810DE,
     .pci_subsystem_id = 0x12A210DE, .pcie_generation = 3, .nvlink_links = 0, .nvlink_version = 0,
     .host_copy_gb_per_s = 12, .device_copy_gb_per_s = 120, .slice_us = 1024, .switch_us = 100},
    {.key = "l4", .name = "NVIDIA L4 (SIMULATED)", .architecture = "Ada",
     .memory_bytes = 23034 * kMiB, .reserved_bytes = 535 * kMiB, .context_bytes = 196 * kMiB,
     .sm_count = 58, .compute_major = 8, .compute_minor = 9, .cores_per_sm = 128,
     .sm_clock_mhz = 2040, .sm_clock_idle_mhz = 210, .memory_clock_mhz = 6251,
     .memory_bus_bits = 192, .l2_bytes = 48U << 20, .shared_per_sm = 100U << 10,
     .shared_per_block_max = 99U << 10, .threads_per_sm = 1536, .blocks_per_sm = 24,
     .power_limit_mw = 72000, .power_idle_mw = 16000, .pci_device_id = 0x27B810DE,
     .pci_subsystem_id = 0x16CA10DE, .pcie_generation = 4, .nvlink_links = 0, .nvlink_version = 0,
     .host_copy_gb_per_s = 24, .device_copy_gb_per_s = 120, .slice_us = 1024, .switch_us = 100},
    {.key = "a100", .name = "NVIDIA A100-SXM4-80GB (SIMULATED)", .architecture = "Ampere",
     .memory_bytes = 81920 * kMiB, .reserved_bytes = 669 * kMiB, .context_bytes = 412 * kMiB,
     .sm_count = 108, .compute_major = 8, .compute_minor = 0, .cores_per_sm = 64,
     .sm_clock_mhz = 1410, .sm_clock_idle_mhz = 210, .memory_clock_mhz = 1593,
     .memory_bus_bits = 5120, .l2_bytes = 40U << 20, .shared_per_sm = 164U << 10,
     .shared_per_block_max = 163U << 10, .threads_per_sm = 2048, .blocks_per_sm = 32,
     .power_limit_mw = 400000, .power_idle_mw = 56000, .pci_device_id = 0x20B210DE,
     .pci_subsystem_id = 0x147F10DE, .pcie_generation = 4, .nvlink_links = 12, .nvlink_version = 3,
     .host_copy_gb_per_s = 24, .device_copy_gb_per_s = 900, .slice_us = 1024, .switch_us = 100},
    {.key = "h100", .name = "NVIDIA H100 80GB HBM3 (SIMULATED)", .architecture = "Hopper",
     .memory_bytes = 81559 * kMiB, .reserved_bytes = 551 * kMiB, .context_bytes = 508 * kMiB,
     .sm_count = 132, .compute_major = 9, .compute_minor = 0, .cores_per_sm = 128,
     .sm_clock_mhz = 1980, .sm_clock_idle_mhz = 345, .memory_clock_mhz = 2619,
     .memory_bus_bits = 5120, .l2_bytes = 50U << 20, .shared_per_sm = 228U << 10,
     .shared_per_block_max = 227U << 10, .threads_per_sm = 2048, .blocks_per_sm = 32,
     .power_limit_mw = 700000, .power_idle_mw = 70000, .pci_device_id = 0x233010DE,
     .pci_subsystem_id = 0x16C110DE, .pcie_generation = 5, .nvlink_links = 18, .nvlink_version = 4,
     .host_copy_gb_per_s = 52, .device_copy_gb_per_s = 1400, .slice_us = 1024, .switch_us = 100},
    {.key = "h200", .name = "NVIDIA H200 (SIMULATED)", .architecture = "Hopper",
     .memory_bytes = 143771 * kMiB, .reserved_bytes = 615 * kMiB, .context_bytes = 528 * kMiB,
     .sm_count = 132, .compute_major = 9, .compute_minor = 0, .cores_per_sm = 128,
     .sm_clock_mhz = 1980, .sm_clock_idle_mhz = 345, .memory_clock_mhz = 3201,
     .memory_bus_bits = 6144, .l2_bytes = 50U << 20, .shared_per_sm = 228U << 10,
     .shared_per_block_max = 227U << 10, .threads_per_sm = 2048, .blocks_per_sm = 32,
     .power_limit_mw = 700000, .power_idle_mw = 75000, .pci_device_id = 0x233510DE,
     .pci_subsystem_id = 0x18BE10DE, .pcie_generation = 5, .nvlink_links = 18, .nvlink_version = 4,
     .host_copy_gb_per_s = 52, .device_copy_gb_per_s = 2000, .slice_us = 1024, .switch_us = 100},
};
// clang-format on

std::string legal_profiles() {
  std::string out = "legal are <model>x<cards> with a model of ";
  for (const Model& m : kModels) {
    if (&m != &kModels[0]) out += ", ";
    out += m.key;
  }
  return out + " and 1 to 16 cards, such as h200x2";
}

// FNV-1a and a finaliser. The purpose is not secrecy: every instance and card gets its own UUID and serial number.
std::uint64_t mix(std::uint64_t seed, std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL ^ seed;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

void fill_card(const Model& model, std::uint32_t index, std::uint32_t count,
               std::string_view instance, CardFacts* card) {
  card->index = index;
  const std::string text =
      std::string(instance) + "/" + std::string(model.key) + "/" + std::to_string(index);
  const std::uint64_t words[2] = {mix(1, text), mix(2, text)};
  std::memcpy(card->uuid_bytes, words, sizeof card->uuid_bytes);
  const std::uint8_t* b = card->uuid_bytes;
  std::snprintf(card->uuid, sizeof card->uuid,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
  std::snprintf(card->serial, sizeof card->serial, "1%012llu",
                static_cast<unsigned long long>(mix(3, text) % 1000000000000ULL));
  // Two sockets: the first half of the cards on node 0, four PCIe bus numbers apart.
  const std::uint32_t half = (count + 1) / 2;
  card->numa_node = index < half ? 0 : 1;
  card->pci_domain = 0;
  card->pci_bus = (card->numa_node == 0 ? 0x18U : 0x9aU) + 4 * (index % (half == 0 ? 1 : half));
  card->pci_device = 0;
}

bool parse_count(std::string_view text, std::uint32_t* count) {
  if (text.empty() || text.size() > 2 || text[0] == '0') return false;
  std::uint32_t n = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    n = n * 10 + static_cast<std::uint32_t>(c - '0');
  }
  *count = n;
  return n >= 1 && n <= kMaxCards;
}

}  // namespace

std::span<const Model> models() { return kModels; }

bool parse_machine(std::string_view profile, std::string_view instance, Machine* out,
                   std::string* error) {
  for (const Model& model : kModels) {
    if (!profile.starts_with(model.key)) continue;
    std::string_view rest = profile.substr(model.key.size());
    std::uint32_t count = 1;
    if (!rest.empty() && (rest[0] != 'x' || !parse_count(rest.substr(1), &count))) continue;
    *out = Machine{};
    out->model = &model;
    out->count = count;
    for (std::uint32_t i = 0; i < count; ++i) fill_card(model, i, count, instance, &out->cards[i]);
    return true;
  }
  *error = "profile \"" + std::string(profile) + "\": no such machine; " + legal_profiles();
  return false;
}

Link link_between(const Machine& machine, std::uint32_t a, std::uint32_t b) {
  if (machine.model->nvlink_links > 0) return Link::kNvlink;
  if (machine.cards[a].numa_node != machine.cards[b].numa_node) return Link::kOtherNode;
  return a / 2 == b / 2 ? Link::kSameSwitch : Link::kSameNode;
}

}  // namespace carve::sim
