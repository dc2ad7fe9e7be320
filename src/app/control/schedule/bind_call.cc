#include "app/control/schedule/bind_call.h"

#include "codec/extender/extender.h"
#include "codec/record.h"

namespace carve::control {

std::string with_chosen_cards(const Extender& extender, std::string_view call) {
  const auto unchanged = std::string(call);
  const auto args = codec::parse_binding_args(call);
  if (!args) return unchanged;
  const Owner owner{OwnerKind::kPod, args->uid};
  const auto slices = extender.sent_for(owner, args->node);
  if (slices.empty()) return unchanged;
  const auto record = record_of(1, slices);
  if (!record) return unchanged;
  const auto text = codec::encode_record(*record);
  return text ? codec::with_wish(call, *text, extender.why_sent(owner, args->node)) : unchanged;
}

}  // namespace carve::control
