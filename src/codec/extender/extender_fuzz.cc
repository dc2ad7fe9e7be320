#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/dialects/dialect.h"
#include "codec/extender/extender.h"

// For any input: a call or an error, and the answer to a parsed call can be written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  using namespace carve::codec;
  if (const auto args = parse_extender_args(text)) {
    static_cast<void>(requests_of(args->pod, {}));
    FilterAnswer answer;
    answer.names.assign(args->names.begin(), args->names.end());
    for (const auto& name : args->names) answer.failed.emplace_back(name, name);
    const auto said = to_json(answer, *args);
    boost::json::error_code error;
    static_cast<void>(boost::json::parse(said, error));
    if (error) __builtin_trap();
  }
  static_cast<void>(parse_binding_args(text));
  if (const auto args = parse_preemption_args(text)) static_cast<void>(preemption_result(args->nodes));
  if (const auto note = parse_turned_away(text)) {
    const auto again = parse_turned_away(encode_turned_away(*note));
    if (!again || again->uid != note->uid || again->nodes != note->nodes) __builtin_trap();
  }
  static_cast<void>(parse_pod_ask(text));
  return 0;
}
