#include "adapter/arbiter/arbiter_client.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include "base/unix_address.h"

namespace carve::arbiter {
namespace {

constexpr timeval kPatience{2, 0};

abi::ShareClass page_share(ShareClass share) {
  switch (share) {
    case ShareClass::kFixed: return abi::ShareClass::kFixed;
    case ShareClass::kBurst: return abi::ShareClass::kBurst;
    case ShareClass::kBestEffort: return abi::ShareClass::kBestEffort;
    case ShareClass::kNode: return abi::ShareClass::kBurst;  // ShareDivision leaves none
  }
  return abi::ShareClass::kBestEffort;
}

abi::PriorityClass page_priority(PriorityClass priority) {
  switch (priority) {
    case PriorityClass::kOnline: return abi::PriorityClass::kOnline;
    case PriorityClass::kStandard: return abi::PriorityClass::kStandard;
    case PriorityClass::kOffline: return abi::PriorityClass::kOffline;
  }
  return abi::PriorityClass::kOffline;
}

abi::ControlRequest request_for(abi::ControlOp op, const std::string& id) {
  abi::ControlRequest request = {};
  request.magic = abi::kControlMagic;
  request.abi = abi::kControlAbi;
  request.op = op;
  std::memcpy(request.id, id.data(), std::min(id.size(), abi::kMaxSliceId));
  return request;
}

Result<abi::ControlRequest> request_for(const PageOrder& order) {
  if (order.slices.empty() || order.slices.size() > abi::kMaxCardsPerSlice ||
      order.context_bytes.size() != order.slices.size()) {
    return fail(Code::kInvalidArgument, fmt::format("slice {}: {} cards, legal are 1 to {}", order.id,
                                                    order.slices.size(), abi::kMaxCardsPerSlice));
  }
  if (!abi::valid_slice_id(order.id.c_str())) {
    return fail(Code::kInvalidArgument, fmt::format("slice id '{}': not 1 to 63 of [a-z0-9-]", order.id));
  }
  abi::ControlRequest request = request_for(abi::ControlOp::kPut, order.id);
  request.card_count = static_cast<std::uint16_t>(order.slices.size());
  request.in_private_folder = order.in_private_folder ? 1 : 0;
  for (std::size_t i = 0; i < order.slices.size(); ++i) {
    const Slice& slice = order.slices[i];
    abi::ControlCard& card = request.cards[i];
    const std::string& uuid = slice.card.str();
    if (uuid.size() >= sizeof card.uuid) {
      return fail(Code::kInvalidArgument, fmt::format("card uuid '{}': longer than 47 letters", uuid));
    }
    std::memcpy(card.uuid, uuid.data(), uuid.size());
    card.memory_limit = slice.memory.count();
    card.context_bytes = order.context_bytes[i].count();
    card.compute = slice.guarantee().hundredths();
    card.share = page_share(slice.share);
    card.priority = page_priority(slice.priority);
    card.ceiling = slice.ceiling.hundredths();
  }
  return request;
}

SliceCounters counters_of(const abi::ControlCounters& from) {
  static_assert(std::size(kLeaseWaitEnds) == std::size(abi::kWaitEndsNs));
  SliceCounters to;
  std::copy(std::begin(from.waits), std::end(from.waits), to.waits.begin());
  to.waited_ns = from.waited_ns;
  to.capped_ns = from.capped_ns;
  to.gated_launches = from.gated_launches;
  to.refused_requests = from.refused_requests;
  to.refused_bytes = from.refused_bytes;
  return to;
}

}  // namespace

Result<void> ArbiterClient::put(const PageOrder& order) {
  CARVE_TRY(const abi::ControlRequest request, request_for(order));
  const MutexLock lock(mutex_);
  std::vector<Fd> received;
  auto asked = ask_connected(request, &received);
  // An arbiter from before private folders reads `in_private_folder` as part of card_count.
  if (!asked && order.in_private_folder && asked.error().code == Code::kInvalidArgument) {
    return fail(Code::kFailedPrecondition,
                asked.error().what + "; an arbiter of an earlier release runs: end the slices, carve down, carve up");
  }
  if (!asked) return tl::unexpected(asked.error());
  if (received.size() != request.card_count + 1U) {
    return fail(Code::kDataLoss, fmt::format("slice {}: the arbiter gave {} descriptors, {} are needed", order.id,
                                             received.size(), request.card_count + 1U));
  }
  kept_[order.id] = {request, std::move(received)};
  return {};
}

Result<void> ArbiterClient::drop(const std::string& id) {
  const MutexLock lock(mutex_);
  // Erased first: an arbiter that restarts in between must not receive the slice that is to be dropped.
  kept_.erase(id);
  CARVE_TRY_VOID(ask_connected(request_for(abi::ControlOp::kDrop, id), nullptr));
  return {};
}

Result<std::vector<PageSlice>> ArbiterClient::list() {
  const MutexLock lock(mutex_);
  std::vector<PageSlice> slices;
  std::string after;
  for (;;) {
    abi::ControlRequest request = request_for(abi::ControlOp::kList, after);
    request.list_counters = 1;
    CARVE_TRY(auto answer, ask_connected(request, nullptr));
    abi::ControlReply& reply = answer.list.reply;
    reply.id[sizeof reply.id - 1] = 0;
    if (reply.card_count > abi::kMaxCardsPerSlice || reply.pid_count > abi::kAccountEntries) {
      return fail(Code::kDataLoss, "arbiter: a list that cannot be");
    }
    if (reply.card_count == 0) return slices;
    if (reply.id <= after) return fail(Code::kDataLoss, "arbiter: a list that does not go forward");
    PageSlice slice;
    slice.id = after = reply.id;
    slice.remains = reply.remains != 0;
    for (std::uint32_t i = 0; i < reply.card_count && !slice.remains; ++i) {
      abi::ControlCardState& card = reply.cards[i];
      card.uuid[sizeof card.uuid - 1] = 0;
      slice.cards.push_back(
          {CardId(card.uuid), Bytes(card.announced_bytes), card.busy_ns, card.charged_ns, card.contexts,
           card.rescues, reply.late[i].granted_ms == 0 ? std::nullopt : std::optional(reply.late[i].granted_ms),
           reply.late[i].drained_ms,
           answer.counted ? std::optional(counters_of(answer.list.counters[i])) : std::nullopt});
    }
    for (std::uint32_t i = 0; i < reply.pid_count; ++i) slice.processes.push_back({reply.pids[i]});
    slices.push_back(std::move(slice));
    if (reply.more == 0) return slices;
  }
}

Result<void> ArbiterClient::set_overhead(const std::string& id, std::uint32_t card_index, Bytes overhead) {
  const MutexLock lock(mutex_);
  abi::ControlRequest request = request_for(abi::ControlOp::kSetOverhead, id);
  request.card_index = card_index;
  request.overhead_bytes = overhead.count();
  CARVE_TRY_VOID(ask_connected(request, nullptr));
  return {};
}

Result<ArbiterClient::Answer> ArbiterClient::ask_connected(const abi::ControlRequest& request,
                                                           std::vector<Fd>* received) {
  // A restart of the arbiter breaks the connection: reconnect, hand over the kept slices, and retry once.
  for (int attempt = 0;; ++attempt) {
    CARVE_TRY_VOID(connect_if_needed());
    auto reply = ask(request, {}, received);
    if (reply || reply.error().code != Code::kUnavailable || attempt > 0) return reply;
  }
}

Result<void> ArbiterClient::connect_if_needed() {
  if (socket_) return {};
  CARVE_TRY(const auto address, unix_address(path_));
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail(Code::kUnavailable, fmt::format("arbiter: no process answers at {}: {}", path_, std::strerror(errno)));
  }
  socket_ = std::move(socket);
  return adopt_all();
}

Result<void> ArbiterClient::adopt_all() {
  for (auto& [id, kept] : kept_) {
    abi::ControlRequest request = kept.order;
    request.op = abi::ControlOp::kAdopt;
    std::vector<Fd> received;
    auto reply = ask(request, kept.fds, &received);
    // If the arbiter refuses a slice, the next put() reports it; all slices are handed over before any other request.
    if (!reply && !socket_) return fail_in("hand over slice " + id, reply.error());
    if (reply && received.size() == kept.fds.size()) kept.fds = std::move(received);
  }
  return {};
}

Result<ArbiterClient::Answer> ArbiterClient::ask(const abi::ControlRequest& request, const std::vector<Fd>& fds,
                                                 std::vector<Fd>* received) {
  iovec data{const_cast<abi::ControlRequest*>(&request), sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE((abi::kMaxCardsPerSlice + 1) * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
    const int why = errno;
    socket_.reset();
    if (why == EAGAIN) return fail(Code::kDeadlineExceeded, "arbiter: it took nothing for 2 s, is it stopped?");
    return fail(Code::kUnavailable, fmt::format("arbiter: {}", std::strerror(why)));
  }
  return receive(received);
}

Result<ArbiterClient::Answer> ArbiterClient::receive(std::vector<Fd>* received) {
  Answer answer = {};
  abi::ControlReply& reply = answer.list.reply;
  iovec data{&answer.list, sizeof answer.list};
  alignas(cmsghdr) char control[CMSG_SPACE((abi::kMaxCardsPerSlice + 1) * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  const int why = errno;
  std::vector<Fd> fds;
  for (cmsghdr* c = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  answer.counted = got == sizeof answer.list;
  if ((got != sizeof reply && !answer.counted) || reply.magic != abi::kControlMagic) {
    socket_.reset();
    if (got < 0 && why == EAGAIN) {
      return fail(Code::kDeadlineExceeded, "arbiter: no answer within 2 s, is it stopped?");
    }
    if (got <= 0) return fail(Code::kUnavailable, "arbiter: it closed the connection");
    return fail(Code::kDataLoss, "arbiter: malformed reply");
  }
  if (reply.code != 0) {
    reply.text[sizeof reply.text - 1] = 0;
    return fail(static_cast<Code>(reply.code), std::string("arbiter: ") + reply.text);
  }
  if (received) *received = std::move(fds);
  return answer;
}

}  // namespace carve::arbiter
