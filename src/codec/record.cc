#include "codec/record.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

namespace carve::codec {
namespace {

namespace json = boost::json;

// Names have only letters, digits and . _ : / - (checked by validate(Record)), so they need no escaping.
std::string encode_part(const RecordPart& part) {
  std::string out = fmt::format("{{\"part\":\"{}\"", part.part);
  if (part.phase == Phase::kInit) out += ",\"init\":true";
  if (part.exclusive) out += ",\"exclusive\":true";
  if (part.whole) out += ",\"whole\":true";
  if (part.ceiling != CoreShare::whole()) out += fmt::format(",\"ceiling\":{}", part.ceiling.hundredths());
  out += fmt::format(",\"share\":\"{}\",\"priority\":\"{}\",\"dialect\":\"{}\",\"cards\":[",
                     to_string(part.share), to_string(part.priority), part.dialect);
  bool first = true;
  for (const RecordCard& card : part.cards) {
    out += fmt::format("{}{{\"uuid\":\"{}\",\"bytes\":{},\"compute\":{}}}", first ? "" : ",",
                       card.card.str(), card.memory.count(), card.compute.hundredths());
    first = false;
  }
  return out + "]}";
}

tl::unexpected<Error> bad(std::string what) {
  return fail(Code::kInvalidArgument, "record: " + std::move(what));
}

/// Reads the members of one JSON object by name and keeps the first fault.
class Members {
 public:
  Members(const json::value& value, std::string where) : where_(std::move(where)) {
    object_ = value.if_object();
    if (object_ == nullptr) note("is not an object");
  }

  std::string text(std::string_view key) {
    const json::value* value = find(key, true);
    if (value == nullptr) return {};
    if (const json::string* text = value->if_string()) {
      return std::string(text->data(), text->size());
    }
    note(fmt::format("{} is not a string", key));
    return {};
  }

  std::uint64_t number(std::string_view key, std::uint64_t high) {
    const json::value* value = find(key, true);
    if (value == nullptr) return 0;
    std::optional<std::uint64_t> number;
    if (const std::int64_t* n = value->if_int64(); n != nullptr && *n >= 0) {
      number = static_cast<std::uint64_t>(*n);
    } else if (const std::uint64_t* u = value->if_uint64()) {
      number = *u;
    }
    if (!number || *number > high) {
      note(fmt::format("{} is not a whole number from 0 to {}", key, high));
      return 0;
    }
    return *number;
  }

  /// A flag is either true or absent.
  bool flag(std::string_view key) {
    const json::value* value = find(key, false);
    if (value == nullptr) return false;
    if (!value->is_bool() || !value->as_bool()) note(fmt::format("{} is not true", key));
    return true;
  }

  [[nodiscard]] bool has(std::string_view key) const {
    return object_ != nullptr && object_->contains(json::string_view(key.data(), key.size()));
  }

  const json::value* member(std::string_view key) { return find(key, true); }

  const json::array* list(std::string_view key) {
    const json::value* value = find(key, true);
    if (value == nullptr) return nullptr;
    const json::array* list = value->if_array();
    if (list == nullptr) note(fmt::format("{} is not a list", key));
    return list;
  }

  template <class E>
  E word(std::string_view key, std::optional<E> (*from)(std::string_view), std::string_view legal) {
    const std::string written = text(key);
    const std::optional<E> value = from(written);
    if (!value) note(fmt::format("{} is not {}", key, legal));
    return value.value_or(E{});
  }

  /// Must be called last: members that were not read are unknown.
  Result<void> done() {
    if (wrong_.empty() && object_ != nullptr && object_->size() != seen_) {
      note("has a member that this version does not know");
    }
    if (wrong_.empty()) return {};
    return bad(where_ + " " + wrong_);
  }

 private:
  const json::value* find(std::string_view key, bool required) {
    const json::value* value =
        object_ == nullptr ? nullptr
                           : object_->if_contains(json::string_view(key.data(), key.size()));
    if (value != nullptr) {
      ++seen_;
    } else if (required) {
      note(fmt::format("has no {}", key));
    }
    return value;
  }

  void note(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  const json::object* object_ = nullptr;
  std::string where_;
  std::string wrong_;
  std::size_t seen_ = 0;
};

Result<RecordCard> decode_card(const json::value& value, const std::string& where) {
  Members members(value, where);
  RecordCard card;
  card.card = CardId(members.text("uuid"));
  card.memory = Bytes(members.number("bytes", std::numeric_limits<std::uint64_t>::max()));
  card.compute = CoreShare(static_cast<std::uint32_t>(members.number("compute", 100)));
  CARVE_TRY_VOID(members.done());
  return card;
}

Result<RecordPart> decode_part(const json::value& value, const std::string& where) {
  Members members(value, where);
  RecordPart part;
  part.part = members.text("part");
  part.phase = members.flag("init") ? Phase::kInit : Phase::kRun;
  part.exclusive = members.flag("exclusive");
  part.whole = members.flag("whole");
  if (members.has("ceiling")) part.ceiling = CoreShare(static_cast<std::uint32_t>(members.number("ceiling", 100)));
  part.share = members.word("share", share_class_from, kShareClassWords);
  part.priority = members.word("priority", priority_class_from, kPriorityClassWords);
  part.dialect = members.text("dialect");
  const json::array* cards = members.list("cards");
  CARVE_TRY_VOID(members.done());
  for (std::size_t i = 0; i < cards->size(); ++i) {
    CARVE_TRY(RecordCard card, decode_card((*cards)[i], fmt::format("{}.cards[{}]", where, i)));
    part.cards.push_back(std::move(card));
  }
  return part;
}

/// A record that version 1 can say is written in it, so that an earlier build reads it.
int version_of(const Record& record) {
  const bool capped = std::any_of(record.parts.begin(), record.parts.end(),
                                  [](const RecordPart& part) { return part.ceiling != CoreShare::whole(); });
  return capped ? kRecordVersion : 1;
}

Result<Record> decode_members(const json::value& value) {
  Members members(value, "the record");
  (void)members.number("v", kRecordVersion);
  Record record;
  record.epoch = members.number("epoch", std::numeric_limits<std::uint64_t>::max());
  const json::value* owner = members.member("owner");
  const json::array* parts = members.list("parts");
  CARVE_TRY_VOID(members.done());
  Members of_owner(*owner, "owner");
  record.owner.kind = of_owner.word("kind", owner_kind_from, "pod, claim or local");
  record.owner.uid = of_owner.text("uid");
  CARVE_TRY_VOID(of_owner.done());
  for (std::size_t i = 0; i < parts->size(); ++i) {
    CARVE_TRY(RecordPart part, decode_part((*parts)[i], fmt::format("parts[{}]", i)));
    record.parts.push_back(std::move(part));
  }
  return record;
}

Result<json::value> parse(std::string_view text) {
  if (text.size() > kMaxRecordText) {
    return bad(
        fmt::format("{} bytes is too long; at most {} are legal", text.size(), kMaxRecordText));
  }
  json::parse_options options;
  options.max_depth = 8;
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return bad("is not JSON: " + error.message());
  return value;
}

}  // namespace

Result<std::string> encode_record(const Record& record) {
  CARVE_TRY_VOID(joined(validate(record)));
  std::string out = fmt::format(
      "{{\"v\":{},\"epoch\":{},\"owner\":{{\"kind\":\"{}\",\"uid\":\"{}\"}},\"parts\":[",
      version_of(record), record.epoch, to_string(record.owner.kind), record.owner.uid);
  bool first = true;
  for (const RecordPart& part : record.parts) {
    if (!first) out += ',';
    out += encode_part(part);
    first = false;
  }
  out += "]}";
  if (out.size() > kMaxRecordText) {
    return bad(
        fmt::format("{} bytes is too long; at most {} are legal", out.size(), kMaxRecordText));
  }
  return out;
}

Result<Record> decode_record(std::string_view text) {
  CARVE_TRY(const json::value value, parse(text));
  const json::object* object = value.if_object();
  const json::value* version = object == nullptr ? nullptr : object->if_contains("v");
  if (version == nullptr) return bad("has no version v");
  if (!version->is_int64() || version->get_int64() < 1 || version->get_int64() > kRecordVersion) {
    return fail(Code::kUnimplemented,
                fmt::format("record: version {} is unknown; this build reads 1 to {}",
                            json::serialize(*version).substr(0, 32), kRecordVersion));
  }
  CARVE_TRY(Record record, decode_members(value));
  // The parser keeps the last of two members of one name. Encoding the record again detects this and any other
  // spelling, so that each record has exactly one text.
  CARVE_TRY(const std::string again, encode_record(record));
  if (again != text) {
    return bad(
        "is not in canonical form (a member twice, another order, spaces or other spellings)");
  }
  return record;
}

}  // namespace carve::codec
