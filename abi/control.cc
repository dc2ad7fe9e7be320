#include "abi/control.h"

namespace carve::abi {
namespace {

bool ends(const char* text, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (text[i] == 0) return true;
  }
  return false;
}

const char* malformed_card(const ControlCard& card) {
  if (!ends(card.uuid, sizeof card.uuid) || card.uuid[0] == 0) return "card: uuid not 1 to 47 characters";
  if (card.compute > 100) return "card: compute is above 100 (1/100 of a card)";
  if (card.ceiling > 100) return "card: ceiling is above 100 (1/100 of a card)";
  if (card.ceiling != 0 && card.ceiling < card.compute) return "card: ceiling is below compute";
  if (card.share > ShareClass::kBestEffort) return "card: no such share class";
  if (card.priority > PriorityClass::kOffline) return "card: no such priority class";
  return nullptr;
}

}  // namespace

bool valid_slice_id(const char* id) {
  std::size_t length = 0;
  for (; id[length] != 0; ++length) {
    const char c = id[length];
    const bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c == '-' && length > 0);
    if (!fine || length >= kMaxSliceId) return false;
  }
  return length > 0;
}

const char* malformed(const void* bytes, std::size_t length, ControlRequest* out) {
  if (length != sizeof *out) return "not a control request: wrong length";
  __builtin_memcpy(out, bytes, sizeof *out);
  if (out->magic != kControlMagic) return "not a control request: wrong magic";
  if (out->abi != kControlAbi) return "control abi: not 1";
  if (out->op < ControlOp::kPut || out->op > ControlOp::kAdopt) return "op: no such request";
  if (!ends(out->id, sizeof out->id)) return "id: does not end within its field";
  if (out->op == ControlOp::kList) return nullptr;
  if (!valid_slice_id(out->id)) return "id: not 1 to 63 of [a-z0-9-]";
  if (out->op == ControlOp::kSetOverhead && out->card_index >= kMaxCardsPerSlice) return "card_index: not below 16";
  if (out->op != ControlOp::kPut && out->op != ControlOp::kAdopt) return nullptr;
  if (out->card_count == 0 || out->card_count > kMaxCardsPerSlice) return "card_count: not 1 to 16";
  if (out->in_private_folder > 1) return "in_private_folder: not 0 or 1";
  for (std::uint32_t i = 0; i < out->card_count; ++i) {
    if (const char* why = malformed_card(out->cards[i])) return why;
  }
  return nullptr;
}

}  // namespace carve::abi
