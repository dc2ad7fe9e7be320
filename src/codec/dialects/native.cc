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
  Amounts amounts;
  const auto mib = words.count("elasticgpu.io/gpu-memory", kMostMib, "MiB", &errors);
  if (mib) amounts.memory = MemoryAsk::of(Bytes::mib(*mib));
  const auto cores = words.count("elasticgpu.io/gpu-core", 100ULL * kMaxCardsPerRequest,
                                 "hundredths of a card (k·100: k whole cards)", &errors);
  if (cores) {
    const auto share = cores_of("elasticgpu.io/gpu-core", *cores);
    if (share) amounts.cores = *share;
    if (!share) errors.push_back(share.error());
  }
  const auto cards = words.count("elasticgpu.io/gpu", kMaxCardsPerRequest, "cards", &errors);
  if (cards) amounts.cards = static_cast<std::uint32_t>(*cards);
  CARVE_TRY_VOID(joined(errors));
  auto request = request_from(amounts);
  if (!request) return fail_in("elasticgpu.io/gpu-memory, gpu-core, gpu", request.error());
  CARVE_TRY_VOID(joined(validate(*request)));
  return request;
}

}  // namespace carve::codec
