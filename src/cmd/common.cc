#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "adapter/cgroup/cgroup2.h"
#include "adapter/process/text_file.h"
#include "cmd/options.h"
#include "codec/quantity.h"
#include "core/policy/policy.h"

namespace carve::cmd {

Result<std::string> cgroup_folder(const HostOptions& host) {
  if (!host.cgroup_root.empty()) return host.cgroup_root;
  CARVE_TRY(const auto mount, cgroup::Cgroup2::find_mount());
  return mount + "/carve";
}

Result<std::chrono::milliseconds> parse_duration(const std::string& field, const std::string& text) {
  struct Unit {
    const char* word;
    std::uint64_t ms;
  };
  constexpr std::array<Unit, 4> kUnits = {{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
  const auto digits = text.find_first_not_of("0123456789");
  const std::string number = text.substr(0, digits);
  const std::string unit = digits == std::string::npos ? std::string() : text.substr(digits);
  for (const auto& row : kUnits) {
    if (unit != row.word || number.empty() || number.size() > 9) continue;
    return std::chrono::milliseconds(std::stoull(number) * row.ms);
  }
  return fail(Code::kInvalidArgument,
              fmt::format("{}: \"{}\" is not a duration; legal are whole numbers with ms, s, m or "
                          "h, such as 60s",
                          field, text.substr(0, 64)));
}

Result<AllocateRequest> request_of(const AskOptions& ask) {
  AllocateRequest request;
  codec::RunWords words = ask.words;
  if (ask.whole) {
    if (words.memory || words.cores || words.core_limit || words.share) {
      return fail(
          Code::kInvalidArgument,
          "--whole: a whole card includes all its memory and compute; omit --memory, --cores, --core-limit and "
          "--share");
    }
    if (!words.cards) words.cards = "1";
  }
  CARVE_TRY(request.request, codec::request_from(words));
  CARVE_TRY(const auto* policy, policy_named(ask.policy));
  request.policy = policy->name;
  if (ask.wait) {
    request.wait = kLongestWait;
    if (!ask.wait->empty()) {
      CARVE_TRY(const auto wait, parse_duration("--wait", *ask.wait));
      request.wait = std::min(wait, kLongestWait);
    }
  }
  return request;
}

int report(const Error& error, int otherwise) {
  std::fprintf(stderr, "carve: %s\n", error.what.c_str());
  return error.code == Code::kInvalidArgument || error.code == Code::kOutOfRange ? kExitUsage : otherwise;
}

Result<void> flush_output() {
  const int error = std::fflush(stdout) == 0 ? 0 : errno;
  if (error == 0 && std::ferror(stdout) == 0) return {};
  if (error == 0) return fail(Code::kUnavailable, "standard output: the output was not written completely");
  return tl::unexpected(errno_error(error, "standard output"));
}

int after_output(int code) {
  const auto written = flush_output();
  if (written || code != kExitOk) return code;
  return report(written.error(), kExitFailed);
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string own_path() { return process::real_path("/proc/self/exe"); }

std::string own_folder() {
  const std::string path = own_path();
  return path.substr(0, path.rfind('/'));
}

}  // namespace carve::cmd
