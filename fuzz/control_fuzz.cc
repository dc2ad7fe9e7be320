// Arbitrary bytes as a request on the arbiter's control socket: an accepted request needs no further check.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "abi/control.h"

namespace {

void check(bool fine) {
  if (!fine) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::abi;
  // Short inputs become the start of a request with a correct header; otherwise no input would get past the header.
  std::vector<std::uint8_t> bytes(data, data + size);
  if (size > 2 && data[0] % 4 != 0) {
    bytes.resize(sizeof(ControlRequest));
    ControlRequest head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    head.magic = kControlMagic;
    head.abi = kControlAbi;
    head.op = static_cast<ControlOp>(data[1] % 7);
    head.card_count = static_cast<std::uint16_t>(data[2] % 20);
    head.in_private_folder = static_cast<std::uint16_t>(data[2] % 3);
    std::memcpy(bytes.data(), &head, sizeof head);
  }
  ControlRequest request;
  const char* why = malformed(bytes.data(), bytes.size(), &request);
  if (why) {
    check(std::strlen(why) > 0 && std::strlen(why) < sizeof(ControlReply::text));
    return 0;
  }
  check(bytes.size() == sizeof request && request.magic == kControlMagic);
  check(std::memchr(request.id, 0, sizeof request.id) != nullptr);
  if (request.op == ControlOp::kList) return 0;
  check(valid_slice_id(request.id) && !std::strchr(request.id, '/') && !std::strchr(request.id, '.'));
  if (request.op == ControlOp::kSetOverhead) check(request.card_index < kMaxCardsPerSlice);
  if (request.op != ControlOp::kPut && request.op != ControlOp::kAdopt) return 0;
  check(request.card_count >= 1 && request.card_count <= kMaxCardsPerSlice);
  check(request.in_private_folder <= 1);
  for (std::uint32_t i = 0; i < request.card_count; ++i) {
    const ControlCard& card = request.cards[i];
    check(std::memchr(card.uuid, 0, sizeof card.uuid) != nullptr && card.uuid[0] != 0 && card.compute <= 100);
    check(card.share <= ShareClass::kBestEffort && card.priority <= PriorityClass::kOffline);
  }
  return 0;
}
