#include <fmt/format.h>

#include "codec/dialects/dialect.h"
#include "codec/dialects/run_request.h"

// elasticgpu.io/gpu-memory (MiB of each card), elasticgpu.io/gpu-core (hundredths of each card),
// elasticgpu.io/gpu (number of cards): the three quantities of `carve run --memory --cores --cards`, with the same
// meaning.
namespace carve::codec {
namespace {

// 4 TiB: no card has that much. A user who writes bytes or a suffix by mistake gets an error instead of a pod that
// waits forever.
constexpr std::uint64_t kMostMib = 1ULL << 22;

}  // namespace

Result<Request> read_native(const Words& words, const PodAsk&, const DialectSettings&) {
  std::vector<Error> errors;
  RunWords run;
  const auto mib = words.count("elasticgpu.io/gpu-memory", kMostMib, "MiB", &errors);
  if (mib) run.memory = fmt::format("{}Mi", *mib);
  const auto cores = words.count("elasticgpu.io/gpu-core", 100ULL * kMaxCardsPerRequest,
                                 "hundredths of a card (k·100: k whole cards)", &errors);
  if (cores) run.cores = std::to_string(*cores);
  const auto cards = words.count("elasticgpu.io/gpu", kMaxCardsPerRequest, "cards", &errors);
  if (cards) run.cards = std::to_string(*cards);
  CARVE_TRY_VOID(joined(errors));
  auto request = request_from(run);
  if (!request) return fail_in("elasticgpu.io/gpu-memory, gpu-core, gpu", request.error());
  return request;
}

}  // namespace carve::codec
