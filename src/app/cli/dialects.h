#pragma once

#include <string>
#include <string_view>

namespace carve::cli {

/// The dialects that Carve reads, from their rows in codec/dialects.
///   format  table: for a terminal. markdown: the table of docs/dialects.md. yaml: the names that webhooks, schedulers
///   and
///           policies must list (tools/dialect_manifests writes them into deploy/)
[[nodiscard]] std::string render_dialects(std::string_view format);

}  // namespace carve::cli
