#include "preload/testing/slice_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "lease/memory_account.h"

namespace carve::preload::testing {

namespace {

int must(int value, const char* what) {
  if (value < 0) {
    std::perror(what);
    std::abort();
  }
  return value;
}

void* map_shared(int fd, std::size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    std::perror("mmap");
    std::abort();
  }
  return at;
}

}  // namespace

SliceServer::SliceServer(const std::string& folder, const std::vector<CardSpec>& cards) {
  for (const CardSpec& card : cards) {
    Fd grant(must(memfd_create("grant", MFD_CLOEXEC), "memfd_create"));
    Fd account(must(memfd_create("account", MFD_CLOEXEC), "memfd_create"));
    must(ftruncate(grant.get(), abi::kGrantPageBytes), "ftruncate");
    must(ftruncate(account.get(), abi::kAccountPageBytes), "ftruncate");
    auto* page = static_cast<abi::GrantPage*>(map_shared(grant.get(), abi::kGrantPageBytes));
    auto* own = static_cast<abi::AccountPage*>(map_shared(account.get(), abi::kAccountPageBytes));
    page->abi = abi::kPageAbi;
    std::snprintf(page->card_uuid, sizeof page->card_uuid, "%s", card.uuid.c_str());
    page->share_class = card.share_class;
    page->context_bytes = card.context_bytes;
    page->clock = abi::PageClock::kMonotonic;
    page->memory_limit.store_relaxed(card.memory_limit);
    page->compute_limit.store_relaxed(card.compute_limit);
    page->lease.store_relaxed(static_cast<std::uint32_t>(abi::LeaseMode::kSolo) | 4U);
    page->credit_us.store_relaxed(50'000);
    page->rate_ppm.store_relaxed(1'000'000);
    page->heartbeat_ns.store_relaxed(~std::uint64_t{0} >> 1);  // a heartbeat that never becomes old
    page->magic = abi::kGrantMagic;
    own->abi = abi::kPageAbi;
    own->magic = abi::kAccountMagic;
    grants_.push_back(page);
    accounts_.push_back(own);
    descriptors_.push_back(std::move(grant));
    descriptors_.push_back(std::move(account));
  }
  mkdir(folder.c_str(), 0755);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder.c_str());
  unlink(address.sun_path);
  listener_ = Fd(must(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket"));
  must(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  chmod(address.sun_path, 0666);
  must(listen(listener_.get(), 512), "listen");
  std::promise<void> begun;  // waits for the start of the thread: a fork() during the start is not safe either
  thread_ = std::thread([this, &begun] {
    begun.set_value();
    serve();
  });
  begun.get_future().wait();
}

SliceServer::~SliceServer() {
  shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  for (std::size_t i = 0; i < grants_.size(); ++i) {
    munmap(grants_[i], abi::kGrantPageBytes);
    munmap(accounts_[i], abi::kAccountPageBytes);
  }
}

std::uint64_t SliceServer::used_bytes(std::size_t card) const {
  return lease::MemoryAccount::add_up_entries(*grants_[card], *accounts_[card], abi::kAccountEntries).in_use;
}

void SliceServer::provide_stock() {
  const std::lock_guard lock(at_work_);
  if (stock_first_ != abi::kAccountEntries) {
    return;
  }
  stock_first_ = connections_;
  for (abi::GrantPage* page : grants_) {
    page->high_entry.store_seq_cst(stock_first_ + abi::kStockEntries);
    page->stock_first.store_relaxed(stock_first_);
    page->stock_count.store_seq_cst(abi::kStockEntries);
  }
}

void SliceServer::serve() {
  for (;;) {
    const Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) {
      return;
    }
    const std::lock_guard lock(at_work_);
    welcome(connection.get());
  }
}

void SliceServer::welcome(int connection) {
  abi::Hello hello{};
  if (recv(connection, &hello, sizeof hello, 0) != sizeof hello) {
    return;
  }
  std::uint32_t entry = connections_ % static_cast<std::uint32_t>(abi::kAccountEntries - abi::kStockEntries);
  if (entry >= stock_first_) {
    entry += abi::kStockEntries;
  }
  ucred peer{};
  socklen_t length = sizeof peer;
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  for (abi::AccountPage* page : accounts_) {
    page->high_entry.store_seq_cst(entry + 1);
  }
  for (abi::GrantPage* page : grants_) {
    page->high_entry.store_seq_cst(entry + 1);
  }
  abi::Welcome reply{abi::kHelloMagic, abi::kPageAbi, static_cast<std::uint16_t>(grants_.size()),
                     abi::WelcomeStatus::kOk, peer.pid, entry, entry + 1, 0, 0};
  std::vector<int> fds;
  for (const Fd& fd : descriptors_) {
    fds.push_back(fd.get());
  }
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  iovec part{&reply, sizeof reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  sendmsg(connection, &message, MSG_NOSIGNAL);
  __atomic_fetch_add(&connections_, 1U, __ATOMIC_RELEASE);
}

}  // namespace carve::preload::testing
