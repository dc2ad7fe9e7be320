#include "adapter/files/journal_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>

#include "core/ledger/ledger.h"

namespace {

// The journal's system calls in order, each with the size of its file.
struct DiskCall {
  std::string call;
  ino_t file = 0;
  off_t size = 0;
};
std::vector<DiskCall>* disk_calls = nullptr;

void note(const char* call, int fd) {
  if (disk_calls == nullptr) return;
  struct stat now {};
  ::fstat(fd, &now);
  disk_calls->push_back({call, now.st_ino, now.st_size});
}

}  // namespace

// The linker prefers these functions to libc's. Only recorded calls show a missing sync: without a power failure the
// page cache hides it.
extern "C" int fdatasync(int fd) {
  note("fdatasync", fd);
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
extern "C" int fsync(int fd) {
  note("fsync", fd);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  note("renameat", to_folder);
  return static_cast<int>(::syscall(SYS_renameat, from_folder, from, to_folder, to));
}

namespace carve::files {
namespace {

using testing::HasSubstr;

class JournalFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "carve-journal-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void empty_folder() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry.path());
    }
  }
  std::string folder_;
};

TEST_F(JournalFileTest, TheLockShowsAnAgentThatDoesNotAnswer) {
  {
    const auto agent = JournalFile::open(folder_);
    ASSERT_TRUE(agent);
    const auto refused = lock_journal(folder_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().what, HasSubstr(std::to_string(::getpid())));
  }
  const auto held = lock_journal(folder_);
  ASSERT_TRUE(held) << held.error().what;
  EXPECT_EQ(JournalFile::open(folder_).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(lock_journal(folder_ + "/none").error().code, Code::kNotFound);
}

Record record(int n, std::uint64_t gib) {
  Record r;
  r.owner = Owner{OwnerKind::kLocal, "run-" + std::to_string(n)};
  RecordPart part;
  part.part = "main";
  part.cards = {RecordCard{CardId("GPU-" + std::to_string(n % 2)), Bytes::gib(gib), CoreShare(5)}};
  r.parts = {part};
  return r;
}

SliceNote note(const std::string& name) {
  SliceNote note;
  note.name = name;
  return note;
}

/// The history that the tests apply: step i is one transaction; some steps are followed by a compaction.
constexpr int kSteps = 12;
std::vector<JournalEvent> transaction(int i) {
  const auto n = static_cast<std::uint64_t>(i);
  if (i % 4 == 3) return {DropOwner{Owner{OwnerKind::kLocal, "run-" + std::to_string(i - 1)}}};
  return {PutRecord{record(i, 1 + n)}, SetCounter{"slice", n},
          PutNote{"run-" + std::to_string(i), note(std::to_string(i))}};
}
bool compacts_after(int i) { return i % 5 == 4; }

std::vector<JournalState> states() {
  std::vector<JournalState> out(1);
  for (int i = 0; i < kSteps; ++i) {
    JournalState next = out.back();
    EXPECT_TRUE(apply_all(next, transaction(i)));
    out.push_back(next);
  }
  return out;
}

Ledger ledger_of(const JournalState& state) {
  Ledger ledger;
  for (const char* id : {"GPU-0", "GPU-1"}) {
    Card card;
    card.id = CardId(id);
    card.memory = Bytes::gib(141);
    EXPECT_TRUE(ledger.put_card(card));
  }
  EXPECT_TRUE(ledger.add(slices_of(state), Ledger::Admission::kRestored));
  return ledger;
}

/// Applies the history. Counts the acknowledged transactions in memory that survives the process.
void play(const std::string& folder, IoHook hook, int from, volatile int* acknowledged) {
  auto journal = JournalFile::open(folder, std::move(hook));
  if (!journal) _exit(3);
  for (int i = from; i < kSteps; ++i) {
    if (!journal->append(transaction(i))) _exit(4);
    *acknowledged = i + 1;
    if (compacts_after(i) && !journal->compact()) _exit(5);
  }
}

/// Kills the process at its disk step number `at`. With `partly`, a write at that step is executed in part, and the
/// process is killed at the next step.
IoHook killer(int at, bool partly) {
  auto calls = std::make_shared<int>(0);
  return [=](IoStep step, std::size_t bytes) -> IoVerdict {
    const int call = ++*calls;
    if (call == at && partly && step == IoStep::kWrite) return {0, (bytes + 1) / 2};
    if (call == at || (partly && call == at + 1)) ::raise(SIGKILL);
    return {};
  };
}

/// Runs `body` in a child process and returns its wait status.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(JournalFileTest, AKillAtAnyStepLosesNoAcknowledgedTransaction) {
  const std::vector<JournalState> expected = states();
  auto* acknowledged = static_cast<int*>(
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(acknowledged, MAP_FAILED);
  int deaths = 0;
  int torn = 0;
  for (const bool partly : {false, true}) {
    for (int at = 1;; ++at) {
      empty_folder();
      *acknowledged = 0;
      const int status = in_child([&] { play(folder_, killer(at, partly), 0, acknowledged); });
      if (WIFEXITED(status)) {
        EXPECT_EQ(WEXITSTATUS(status), 0);
        break;
      }
      ++deaths;
      {
        auto journal = JournalFile::open(folder_);
        ASSERT_TRUE(journal) << at << ": " << journal.error().what;
        torn += journal->torn_bytes() > 0 ? 1 : 0;
        // The transaction in progress may be there or not; the acknowledged ones must be.
        int is = *acknowledged;
        if (is < kSteps && journal->state() == expected[static_cast<std::size_t>(is) + 1]) ++is;
        ASSERT_EQ(journal->state(), expected[static_cast<std::size_t>(is)]) << "killed at " << at;
        EXPECT_EQ(ledger_of(journal->state()), ledger_of(expected[static_cast<std::size_t>(is)]));
        for (int i = is; i < kSteps; ++i) ASSERT_TRUE(journal->append(transaction(i)));
      }
      const auto again = JournalFile::open(folder_);
      ASSERT_TRUE(again) << again.error().what;
      EXPECT_EQ(again->state(), expected.back());
    }
  }
  std::printf("crash points: %d, torn tails among them: %d\n", deaths, torn);
  EXPECT_GT(deaths, 2 * kSteps);
  EXPECT_GT(torn, 0);
  ::munmap(acknowledged, sizeof(int));
}

TEST_F(JournalFileTest, AnErrorAtAnyStepIsReturnedAndLosesNothing) {
  const std::vector<JournalState> expected = states();
  for (const int error : {ENOSPC, EROFS, EIO}) {
    for (int at = 1;; ++at) {
      empty_folder();
      int calls = 0;
      bool failed = false;
      const IoHook hook = [&](IoStep, std::size_t) -> IoVerdict {
        if (++calls != at) return {};
        failed = true;
        return {error, {}};
      };
      {
        auto journal = JournalFile::open(folder_, hook);
        if (!journal) {
          EXPECT_THAT(journal.error().what, HasSubstr(std::strerror(error)));
          journal = JournalFile::open(folder_, hook);
          ASSERT_TRUE(journal) << journal.error().what;
        }
        for (int i = 0; i < kSteps; ++i) {
          const JournalState before = journal->state();
          if (const auto done = journal->append(transaction(i)); !done) {
            EXPECT_THAT(done.error().what, HasSubstr(std::strerror(error)));
            EXPECT_EQ(journal->state(), before);
            ASSERT_TRUE(journal->append(transaction(i))) << "step " << at << ", transaction " << i;
          }
          if (compacts_after(i) && !journal->compact()) {
            ASSERT_TRUE(journal->compact());
          }
        }
      }
      const auto again = JournalFile::open(folder_);
      ASSERT_TRUE(again) << again.error().what;
      EXPECT_EQ(again->state(), expected.back());
      if (!failed) break;
    }
  }
}

TEST_F(JournalFileTest, ARefusedTransactionIsAbsentAfterARestart) {
  bool full = false;
  {
    auto journal = JournalFile::open(folder_, [&](IoStep step, std::size_t) -> IoVerdict {
      if (full && step == IoStep::kWrite) return {ENOSPC, {}};
      return {};
    });
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append(transaction(0)));
    full = true;
    EXPECT_EQ(journal->append(transaction(1)).error().code, Code::kResourceExhausted);
  }
  const auto again = JournalFile::open(folder_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->state(), states()[1]);
}

TEST_F(JournalFileTest, CutsOffATornLineOrWritesANewFile) {
  for (const bool can_cut : {true, false}) {
    empty_folder();
    int writes_left = -1;  // -1: all succeed
    const auto hook = [&](IoStep step, std::size_t) -> IoVerdict {
      if (step == IoStep::kTruncate && !can_cut) return {EIO, {}};
      if (step != IoStep::kWrite || writes_left < 0) return {};
      if (writes_left-- > 0) return {0, 5};
      return {ENOSPC, {}};
    };
    {
      auto journal = JournalFile::open(folder_, hook);
      ASSERT_TRUE(journal);
      ASSERT_TRUE(journal->append(transaction(0)));
      writes_left = 1;
      EXPECT_EQ(journal->append(transaction(1)).error().code, Code::kResourceExhausted);
      EXPECT_EQ(std::filesystem::file_size(path("journal")),
                journal->size_bytes() + (can_cut ? 0u : 5u));
      ASSERT_EQ(writes_left, -1);
      ASSERT_TRUE(journal->append(transaction(1)));
      ASSERT_TRUE(journal->append(transaction(2)));
    }
    const auto again = JournalFile::open(folder_);
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_EQ(again->torn_bytes(), 0u);
    EXPECT_EQ(again->state(), states()[3]);
  }
}

TEST_F(JournalFileTest, AfterAFailedSyncTheNextAppendWritesANewFile) {
  bool fail_sync = false;
  std::vector<IoStep> steps;
  auto journal = JournalFile::open(folder_, [&](IoStep step, std::size_t) -> IoVerdict {
    steps.push_back(step);
    return {fail_sync && step == IoStep::kSync ? EIO : 0, {}};
  });
  ASSERT_TRUE(journal);
  fail_sync = true;
  EXPECT_FALSE(journal->append(transaction(0)));
  fail_sync = false;
  steps.clear();
  ASSERT_TRUE(journal->append(transaction(0)));
  using enum IoStep;
  EXPECT_THAT(steps,
              testing::ElementsAre(kCreate, kWrite, kSync, kRename, kSyncFolder, kWrite, kSync));
}

TEST_F(JournalFileTest, RefusesASecondAgentWithThePidOfTheFirst) {
  auto first = JournalFile::open(folder_);
  ASSERT_TRUE(first);
  const auto second = JournalFile::open(folder_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(second.error().what, HasSubstr("process " + std::to_string(::getpid())));
}

TEST_F(JournalFileTest, RefusesADamagedForeignOrNewerFileAndDoesNotChangeIt) {
  for (const std::string text :
       {"carve-journal 9 1 00000000\n", "hello\n", "", "carve-journal 1 1 00000000\n"}) {
    { std::ofstream(path("journal"), std::ios::trunc) << text; }
    const auto journal = JournalFile::open(folder_);
    ASSERT_FALSE(journal);
    EXPECT_THAT(journal.error().what, HasSubstr(path("journal")));
    std::ifstream in(path("journal"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
}

TEST_F(JournalFileTest, SyncsBeforeItAcknowledges) {
  const auto inode = [&](const std::string& name) {
    struct stat now {};
    EXPECT_EQ(::stat(path(name).c_str(), &now), 0) << name;
    return std::pair(now.st_ino, now.st_size);
  };
  std::vector<DiskCall> calls;
  const auto call = [&](std::size_t at) { return at < calls.size() ? calls[at].call : "nothing"; };
  auto journal = JournalFile::open(folder_);
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->append(transaction(0)));
  disk_calls = &calls;
  for (int i = 1; i < 4; ++i) {
    calls.clear();
    ASSERT_TRUE(journal->append(transaction(i)));
    ASSERT_EQ(call(0), "fdatasync") << "transaction " << i;
    EXPECT_EQ(std::pair(calls[0].file, calls[0].size), inode("journal")) << "the sync came before the write";
  }

  calls.clear();
  ASSERT_TRUE(journal->compact());
  ASSERT_EQ(call(0), "fsync");
  EXPECT_EQ(std::pair(calls[0].file, calls[0].size), inode("journal")) << "the complete new file, before the rename";
  EXPECT_EQ(call(1), "renameat");
  ASSERT_EQ(call(2), "fsync");
  EXPECT_EQ(calls[2].file, inode(".").first) << "the folder with the new name";

  // Data that a killed agent left only in the page cache is synced first.
  journal = tl::unexpected<Error>(Error{});
  calls.clear();
  journal = JournalFile::open(folder_);
  disk_calls = nullptr;
  ASSERT_TRUE(journal);
  ASSERT_EQ(call(0), "fdatasync");
  EXPECT_EQ(std::pair(calls[0].file, calls[0].size), inode("journal"));
}

TEST_F(JournalFileTest, AMissingFolderIsAnError) {
  const auto journal = JournalFile::open(path("none"));
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, Code::kNotFound);
}

TEST_F(JournalFileTest, CompactsWhenTheFileHasGrown) {
  auto journal = JournalFile::open(folder_);
  ASSERT_TRUE(journal);
  std::uint64_t largest = 0;
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(journal->append({PutNote{"k", note(std::string(kMaxNoteBytes, i % 2 == 0 ? 'a' : 'b'))},
                                 SetCounter{"n", static_cast<std::uint64_t>(i)}}));
    largest = std::max(largest, journal->size_bytes());
  }
  EXPECT_LT(largest, 1200u * 1024);
  EXPECT_LT(journal->size_bytes(), largest);
  EXPECT_EQ(journal->state().counters.at("n"), 399u);
}

// A full and a read-only disk, with the kernel's own errors, in a private mount namespace.
TEST_F(JournalFileTest, AFullOrReadOnlyDiskIsAnErrorAndLosesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for a private tmpfs";
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(77);
    }
    int written = 0;
    {
      auto journal = JournalFile::open(folder_);
      if (!journal) _exit(1);
      Result<void> done;
      for (; written < 1000; ++written) {
        done = journal->append({PutNote{"n" + std::to_string(written), note(std::string(1000, 'x'))}});
        if (!done) break;
      }
      if (done || done.error().code != Code::kResourceExhausted) _exit(2);
      if (journal->state().notes.size() != static_cast<std::size_t>(written)) _exit(3);
    }
    if (::mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) _exit(77);
    const auto read_only = JournalFile::open(folder_);
    if (read_only || read_only.error().code != Code::kPermissionDenied) _exit(4);
    if (::mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT, "size=1m") != 0) _exit(77);
    auto journal = JournalFile::open(folder_);
    if (!journal || journal->state().notes.size() != static_cast<std::size_t>(written)) _exit(5);
    if (!journal->append({SetCounter{"n", 1}})) _exit(6);
  });
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mount namespaces are not available here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace carve::files
