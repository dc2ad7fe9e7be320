#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/kubeconfig/exec_credential.h"
#include "codec/kubeconfig/kubeconfig.h"

namespace {

using namespace carve::codec;

void check(const carve::Result<Kubeconfig>& config) {
  if (!config) return;
  if (!config->server.starts_with("https://")) std::abort();
  if (config->certificate.empty() != config->key.empty()) std::abort();
  if (!config->exec) return;
  if (config->exec->command.empty() || config->exec->api_version.empty()) std::abort();
  if (exec_info(*config->exec, {config->server, config->tls_server_name, ""}, false).empty()) std::abort();
}

}  // namespace

// Any bytes give a kubeconfig or an error; an accepted one has a server over TLS and complete credentials. The input is
// split into two files at a line "===".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(parse_kubeconfig(text));
  constexpr std::string_view kBetween = "\n===\n";
  if (const auto at = text.find(kBetween); at != std::string_view::npos) {
    const std::array<KubeconfigText, 2> files{
        {{std::string(text.substr(0, at)), "/a/x"}, {std::string(text.substr(at + kBetween.size())), "y"}}};
    check(merge_kubeconfigs(files));
  }
  return 0;
}
