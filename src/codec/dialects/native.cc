#include <fmt/format.h>

#include <string>

#include "codec/dialects/projection.h"
#include "codec/dialects/run_request.h"

// elasticgpu.io/gpu-memory (MiB of each card), elasticgpu.io/gpu-core (hundredths of each card), elasticgpu.io/gpu
// (number of cards): the three quantities of `carve run --memory --cores --cards`, with the same meaning. Elastic GPU's
// code and its README have two of them below other domains. elasticgpu.io/gpu-tflops is compute for any model of card.
//   source  elastic-ai/elastic-gpu, elastic-gpu-scheduler (spec: systems.md R10)
namespace carve::codec {
namespace {

// 4 TiB: no card has that much. A user who writes bytes or a suffix by mistake gets an error instead of a pod that
// waits forever.
constexpr Bytes kMostOfNative = Bytes::gib(4096);

constexpr std::string_view kNativeTflops = "elasticgpu.io/gpu-tflops";

/// The resource names of one domain, and the unit of its memory.
struct Domain {
  std::string name;
  Bytes unit;
  std::string_view unit_name;
};

Result<Request> read_in(const Domain& domain, const Words& words) {
  std::vector<Error> errors;
  Amounts amounts;
  const std::string memory_name = domain.name + "/gpu-memory";
  const std::string core_name = domain.name + "/gpu-core";
  const auto memory = words.count(memory_name, kMostOfNative.count() / domain.unit.count(), domain.unit_name, &errors);
  if (memory) amounts.memory = MemoryAsk::of(domain.unit * *memory);
  const auto cores =
      words.count(core_name, 100ULL * kMaxCardsPerRequest, "hundredths of a card (k·100: k whole cards)", &errors);
  if (cores) {
    const auto share = cores_of(core_name, *cores);
    if (share) amounts.cores = *share;
    if (!share) errors.push_back(share.error());
  }
  const auto cards = words.count(domain.name + "/gpu", kMaxCardsPerRequest, "cards", &errors);
  if (cards) amounts.cards = static_cast<std::uint32_t>(*cards);
  CARVE_TRY_VOID(joined(errors));
  auto request = request_from(amounts);
  if (!request) return fail_in(domain.name + "/gpu-memory, gpu-core, gpu", request.error());
  CARVE_TRY_VOID(joined(validate(*request)));
  return request;
}

}  // namespace

std::vector<std::pair<std::string_view, std::uint64_t>> native_amounts(const Request& request) {
  std::vector<std::pair<std::string_view, std::uint64_t>> amounts;
  if (request.whole || request.count > 1) amounts.emplace_back("elasticgpu.io/gpu", request.count);
  if (request.whole) return amounts;
  amounts.emplace_back("elasticgpu.io/gpu-memory", request.memory.bytes().whole_mib());
  if (request.compute.is_tflops()) {
    amounts.emplace_back(kNativeTflops, request.compute.tflops());
  } else if (!request.compute.is_none()) {
    amounts.emplace_back("elasticgpu.io/gpu-core", request.compute.share().hundredths());
  }
  return amounts;
}

Result<Request> read_native(const Words& words, const PodAsk&, const DialectSettings&) {
  const Domain domain{"elasticgpu.io", Bytes::mib(1), "MiB"};
  std::vector<Error> errors;
  const auto tflops = words.count(kNativeTflops, kMostTflops, "TFLOPS", &errors);
  if (tflops && words.find("elasticgpu.io/gpu-core") != nullptr)
    add_invalid(errors,
                fmt::format("{} together with elasticgpu.io/gpu-core: both are compute; use one", kNativeTflops));
  if (tflops && words.find("elasticgpu.io/gpu-memory") == nullptr)
    add_invalid(errors, fmt::format("{} without elasticgpu.io/gpu-memory: how much memory is missing", kNativeTflops));
  CARVE_TRY_VOID(joined(errors));
  CARVE_TRY(Request request, read_in(domain, words));
  if (tflops) {
    request.compute = ComputeAsk::of_tflops(static_cast<std::uint32_t>(*tflops));
    request.share = ShareClass::kBurst;
  }
  return request;
}

Result<Request> read_elastic(const Words& words, const PodAsk&, const DialectSettings&) {
  constexpr std::string_view kProvisioner = "gpushare.provisioner.elasticgpu.io";
  constexpr std::string_view kCom = "elasticgpu.com";
  const auto in = [&](std::string_view domain) {
    const std::string name(domain);
    return words.find(name + "/gpu-memory") != nullptr || words.find(name + "/gpu-core") != nullptr;
  };
  if (!in(kProvisioner)) return read_in({std::string(kCom), Bytes::mib(1), "MiB"}, words);
  if (!in(kCom)) return read_in({std::string(kProvisioner), Bytes::gib(1), "GiB"}, words);
  return fail(
      Code::kInvalidArgument,
      fmt::format("{}/gpu-memory, gpu-core together with {}/gpu-memory, gpu-core: ambiguous; use one of the two",
                  kProvisioner, kCom));
}

/// As Elastic GPU's scheduler writes it: the cards by the container's name. A longer name does not fit into an
/// annotation's name, which has at most 63 characters.
Texts show_elastic(const Shown& shown) {
  constexpr std::size_t kLongestName = 63 - std::string_view("container-").size();
  Texts texts;
  for (const RecordPart& part : shown.record.parts) {
    if (part.dialect != "elastic" || part.part.size() > kLongestName) continue;
    if (auto indexes = indexes_of(shown, part); !indexes.empty()) {
      texts["elasticgpu.io/container-" + part.part] = std::move(indexes);
      texts["elasticgpu.io/assumed"] = "true";
    }
  }
  return texts;
}

}  // namespace carve::codec
