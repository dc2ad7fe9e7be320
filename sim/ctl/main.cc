#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "sim/model/driver_version.h"
#include "sim/model/profiles.h"
#include "sim/protocol/client.h"

// carve-simctl prints the simulated driver's own account, the truth for tests and demonstrations, and injects faults.
namespace carve::sim {
namespace {

constexpr char kUsage[] =
    "usage: carve-simctl [--socket PATH] <command>\n"
    "  account              memory and GPU time of each process, per card (JSON), dead processes of the last 150 s "
    "included\n"
    "  groups               the same summed per cgroup, with the exact highest simultaneous sum "
    "(JSON)\n"
    "  cards                per card: held, delivered, lost to context switches (JSON)\n"
    "  windows --ms N [--since NS] [--last N]\n"
    "                       GPU time delivered per process and window of N ms (multiple of 10) "
    "(JSON);\n"
    "                       --since: CLOCK_MONOTONIC ns; --last: only the last N windows\n"
    "Faults (as root, on the host); <card> is the card's number on the machine:\n"
    "  xid <card> <code> [--pid N]\n"
    "                       the driver reports that XID; contexts die as on a real card: those of process\n"
    "                       N (default: the process that runs) or all, depending on the code\n"
    "  lose <card>          the card falls off the bus: XID 79, every call reports it, all contexts die\n"
    "  return <card>        the card is back; contexts that died stay dead\n"
    "  reset <card>         the same after an XID that requires a reset; refused while a process has a context\n"
    "  hang on|off          the management library's calls get no answer until hang off\n"
    "  driver gone|back     the driver cannot be opened; existing contexts continue\n"
    "  profiles             the machines that can be simulated\n"
    "  now                  CLOCK_MONOTONIC in ns, for --since\n";

int fail(const std::string& what) {
  std::fprintf(stderr, "carve-simctl: %s\n%s", what.c_str(), kUsage);
  return 2;
}

/// A JSON string. Names come from processes and may contain any byte.
std::string quoted(const char* text) {
  std::string out = "\"";
  for (const char* p = text; *p != '\0'; ++p) {
    const auto c = static_cast<unsigned char>(*p);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *p;
    } else if (c < 0x20 || c >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += *p;
    }
  }
  return out + "\"";
}

using Fields = std::vector<std::pair<const char*, std::string>>;
std::string num(std::uint64_t n) { return std::to_string(n); }

void print(const char* name, const std::vector<Fields>& rows) {
  std::printf("{\"%s\":[", name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::printf("%s\n {", i == 0 ? "" : ",");
    for (std::size_t j = 0; j < rows[i].size(); ++j)
      std::printf("%s\"%s\":%s", j == 0 ? "" : ",", rows[i][j].first, rows[i][j].second.c_str());
    std::printf("}");
  }
  std::printf("\n]}\n");
}

int account(Connection& connection) {
  std::vector<AccountRecord> records;
  if (connection.list(Op::kAccount, 0, 0, 0, &records) != Status::kOk) return 1;
  std::vector<Fields> rows;
  for (const AccountRecord& r : records)
    rows.push_back({{"pid", num(static_cast<std::uint64_t>(r.pid))},
                    {"card", num(r.card)},
                    {"name", quoted(r.name)},
                    {"cgroup", quoted(r.cgroup)},
                    {"alive", r.alive != 0 ? "true" : "false"},
                    {"contexts", num(r.contexts)},
                    {"explicit_bytes", num(r.explicit_bytes)},
                    {"explicit_high_bytes", num(r.explicit_high)},
                    {"granule_bytes", num(r.granule_bytes)},
                    {"context_bytes", num(r.context_bytes)},
                    {"module_bytes", num(r.module_bytes)},
                    {"gpu_ns", num(r.gpu_ns)},
                    {"copy_ns", num(r.copy_ns)},
                    {"launches", num(r.launches)},
                    {"allocations", num(r.allocations)},
                    {"refused", num(r.refused)},
                    {"started_ns", num(r.started_ns)},
                    {"ended_ns", num(r.ended_ns)}});
  print("processes", rows);
  return 0;
}

int groups(Connection& connection) {
  std::vector<GroupRecord> records;
  if (connection.list(Op::kGroups, 0, 0, 0, &records) != Status::kOk) return 1;
  std::vector<Fields> rows;
  for (const GroupRecord& r : records)
    rows.push_back({{"cgroup", quoted(r.cgroup)},
                    {"card", num(r.card)},
                    {"processes", num(r.processes)},
                    {"explicit_bytes", num(r.explicit_bytes)},
                    {"explicit_high_bytes", num(r.explicit_high)},
                    {"context_bytes", num(r.context_bytes)},
                    {"gpu_ns", num(r.gpu_ns)},
                    {"grants", num(r.grants)}});
  print("groups", rows);
  return 0;
}

/// The kernel's format: domain, bus, device, function.
std::string bus_id(const CardFacts& card) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", card.pci_domain, card.pci_bus, card.pci_device);
  return text;
}

int cards(Connection& connection) {
  std::vector<CardTruthRecord> records;
  if (connection.list(Op::kCards, 0, 0, 0, &records) != Status::kOk) return 1;
  Machine machine;
  std::string error;
  parse_machine(connection.machine().profile, connection.machine().instance, &machine, &error);
  std::vector<Fields> rows;
  for (const CardTruthRecord& r : records)
    rows.push_back({{"card", num(r.card)},
                    {"uuid", quoted(r.uuid)},
                    {"model", quoted(std::string(machine.model->name).c_str())},
                    {"numa", num(machine.cards[r.card].numa_node)},
                    {"pci_bus_id", quoted(bus_id(machine.cards[r.card]).c_str())},
                    {"driver_version", quoted(kDriverVersionText)},
                    {"total_bytes", num(r.total_bytes)},
                    {"reserved_bytes", num(machine.model->reserved_bytes)},
                    {"used_bytes", num(r.used_bytes)},
                    {"explicit_bytes", num(r.explicit_bytes)},
                    {"context_bytes", num(r.context_bytes)},
                    {"contexts", num(r.contexts)},
                    {"gpu_ns", num(r.gpu_ns)},
                    {"switch_ns", num(r.switch_ns)},
                    {"switches", num(r.switches)},
                    {"xids", num(r.xids)},
                    {"lost", r.lost != 0 ? "true" : "false"},
                    {"recovery", num(r.recovery)}});
  print("cards", rows);
  return 0;
}

int windows(Connection& connection, std::uint64_t ms, std::uint64_t since, std::uint64_t last) {
  std::vector<WindowRecord> records;
  const Status status = connection.list(Op::kWindows, 0, ms, since, &records);
  if (status == Status::kBadRequest) return fail("windows --ms: 10 to 60000, a multiple of 10");
  if (status != Status::kOk) return 1;
  std::uint64_t newest = 0;
  for (const WindowRecord& r : records) newest = std::max(newest, r.start_ns);
  std::vector<Fields> rows;
  for (const WindowRecord& r : records) {
    if (last != 0 && r.start_ns + last * ms * 1'000'000 <= newest) continue;
    char share[32];
    std::snprintf(share, sizeof share, "%.3f",
                  static_cast<double>(r.gpu_ns) / static_cast<double>(ms) / 1e4);
    rows.push_back({{"pid", num(static_cast<std::uint64_t>(r.pid))},
                    {"card", num(r.card)},
                    {"start_ns", num(r.start_ns)},
                    {"gpu_ns", num(r.gpu_ns)},
                    {"percent", share}});
  }
  print("windows", rows);
  return 0;
}

int profiles() {
  for (const Model& m : models())
    std::printf("%-6s %-36s %6llu MiB  %3u SMs  compute %u.%u\n", std::string(m.key).c_str(),
                std::string(m.name).c_str(), static_cast<unsigned long long>(m.memory_bytes >> 20),
                m.sm_count, m.compute_major, m.compute_minor);
  return 0;
}

bool read_number(const char* text, std::uint64_t* out) {
  char* end = nullptr;
  *out = std::strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0';
}

struct Break {
  Injection what;
  std::uint32_t card = 0;
  std::uint64_t argument = 0;
};

/// Parses "xid 0 79", "hang on". False: it is not a fault, and `error` says what is expected.
bool read_break(const std::vector<std::string>& words, Break* out, std::string* error) {
  struct Form {
    const char* name;
    Injection what;
    const char* on;  // the word for 1; nullptr: the argument is a card
    const char* off;
    std::size_t words;
  };
  constexpr Form kForms[] = {{"xid", Injection::kXid, nullptr, nullptr, 3},
                             {"lose", Injection::kLose, nullptr, nullptr, 2},
                             {"return", Injection::kReturn, nullptr, nullptr, 2},
                             {"reset", Injection::kReset, nullptr, nullptr, 2},
                             {"hang", Injection::kHang, "on", "off", 2},
                             {"driver", Injection::kDriver, "back", "gone", 2}};
  for (const Form& form : kForms) {
    if (words.empty() || words[0] != form.name) continue;
    out->what = form.what;
    *error = words[0] + ": needs " + (form.on != nullptr ? std::string(form.on) + " or " + form.off
                                      : form.words == 3  ? "a card's number and an XID from 1 to 999"
                                                         : "a card's number");
    if (words.size() != form.words) return false;
    if (form.on != nullptr) {
      out->argument = words[1] == form.on ? 1 : 0;
      return words[1] == form.on || words[1] == form.off;
    }
    std::uint64_t card = 0;
    if (!read_number(words[1].c_str(), &card) || card >= kMaxCards) return false;
    out->card = static_cast<std::uint32_t>(card);
    return form.words == 2 || (read_number(words[2].c_str(), &out->argument) && out->argument >= 1 &&
                               out->argument <= 999);
  }
  *error = words.empty() ? "no command" : "\"" + words[0] + "\": unknown command";
  return false;
}

int do_break(Connection& connection, const Break& what, std::uint64_t pid) {
  switch (connection.inject(what.card, what.what, what.argument, pid)) {
    case Status::kOk: return 0;
    case Status::kNoSuchCard: return fail("no card " + num(what.card) + " on this machine");
    case Status::kNotPermitted:
      std::fprintf(stderr, "carve-simctl: not permitted: only root on the host may inject a fault\n");
      return 1;
    case Status::kBusy:
      std::fprintf(stderr, "carve-simctl: card %u is in use: end its processes first\n", what.card);
      return 1;
    default: std::fprintf(stderr, "carve-simctl: refused\n"); return 1;
  }
}

int run(int argc, char** argv) {
  std::string socket = kSocketPath;
  std::vector<std::string> words;
  std::uint64_t ms = 1000, since = 0, last = 0, pid = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") return std::fputs(kUsage, stdout) < 0 ? 1 : 0;
    if (word[0] != '-') {
      words.push_back(word);
      continue;
    }
    if (i + 1 == argc) return fail(word + ": unknown flag, or its value is missing");
    const char* value = argv[++i];
    if (word == "--socket") {
      socket = value;
    } else if (word == "-o" && std::strcmp(value, "json") == 0) {
      continue;  // JSON is the only format
    } else if (!(word == "--ms" && read_number(value, &ms)) &&
               !(word == "--since" && read_number(value, &since)) &&
               !(word == "--pid" && read_number(value, &pid)) &&
               !(word == "--last" && read_number(value, &last))) {
      return fail(word + " " + value + ": unknown flag, or not a number");
    }
  }
  const std::string command = words.empty() ? "" : words[0];
  if (command == "profiles") return profiles();
  if (command == "now") {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::printf("%lld\n", static_cast<long long>(now.tv_sec) * 1'000'000'000LL + now.tv_nsec);
    return 0;
  }
  const bool known =
      command == "account" || command == "groups" || command == "cards" || command == "windows";
  Break what;
  std::string error;
  if (known && words.size() > 1) return fail("\"" + words[1] + "\": only one command is allowed");
  if (!known && !read_break(words, &what, &error)) return fail(error);
  Connection connection;
  if (connection.open(ClientKind::kControl, socket.c_str()) != Status::kOk) {
    std::fprintf(stderr, "carve-simctl: no simulated driver at %s\n", socket.c_str());
    return 1;
  }
  if (!known) return do_break(connection, what, pid);
  if (command == "account") return account(connection);
  if (command == "groups") return groups(connection);
  if (command == "cards") return cards(connection);
  return windows(connection, ms, since, last);
}

}  // namespace
}  // namespace carve::sim

int main(int argc, char** argv) { return carve::sim::run(argc, argv); }
