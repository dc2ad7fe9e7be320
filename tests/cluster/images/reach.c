/* Which resources of others a container can reach, as one JSON line: 0 for an attempt that succeeded, else its errno.
 * Written from the numbers of abi/hello.h and abi/page.h; shares no code with Carve.
 *
 * usage: ring-reach paths PATH...  opens each, and connects to it as to a socket of either kind
 *        ring-reach abstract       connects to every abstract socket in /proc/net/unix
 *        ring-reach pages ID...    searches the mappings and descriptors of every process in /proc for the pages of
 *                                  these slices, and tries to open what it finds
 *        ring-reach own            says hello on the container's own socket and tries to write the grant page it gets
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { kMemoryLimitAt = 128, kPage = 4096 };

static int result(long got) {
  return got < 0 ? errno : 0;
}

static int connected(const struct sockaddr_un* address, socklen_t length, int type) {
  const int fd = socket(AF_UNIX, type, 0);
  const int done = result(connect(fd, (const struct sockaddr*)address, length));
  close(fd);
  return done;
}

/* ENAMETOOLONG is a valid result, too: a path that is too long for connect() is only opened. */
static int connect_path(const char* path, int type) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  strcpy(address.sun_path, path);
  return connected(&address, sizeof address, type);
}

static int open_path(const char* path, int flags) {
  const int fd = open(path, flags | O_CLOEXEC);
  const int done = result(fd);
  if (fd >= 0) close(fd);
  return done;
}

static void paths(int count, char** list) {
  for (int i = 0; i < count; ++i) {
    printf("%s\"%s\": [%d, %d, %d]", i ? ", " : "", list[i], open_path(list[i], O_RDONLY | O_NONBLOCK),
           connect_path(list[i], SOCK_STREAM), connect_path(list[i], SOCK_SEQPACKET));
  }
}

static void abstract(void) {
  char line[512];
  int first = 1;
  FILE* all = fopen("/proc/net/unix", "r");
  while (all != NULL && fgets(line, sizeof line, all) != NULL) {
    char* name = strchr(line, '@');
    if (name == NULL) continue;
    name[strcspn(name, "\n")] = '\0';
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strnlen(name + 1, sizeof address.sun_path - 1);
    memcpy(address.sun_path + 1, name + 1, length);
    const socklen_t whole = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    printf("%s\"%s\": [%d, %d]", first ? "" : ", ", name, connected(&address, whole, SOCK_STREAM),
           connected(&address, whole, SOCK_SEQPACKET));
    first = 0;
  }
  if (all != NULL) fclose(all);
}

static int names_one(const char* text, int count, char** ids) {
  for (int i = 0; i < count; ++i) {
    char dashed[64];
    snprintf(dashed, sizeof dashed, "%s-", ids[i]);
    if (strstr(text, dashed) != NULL) return 1;
  }
  return 0;
}

static void found(int* first, const char* where, const char* path) {
  printf("%s[\"%s\", %d, %d]", *first ? "" : ", ", where, open_path(path, O_RDONLY), open_path(path, O_RDWR));
  *first = 0;
}

static void pages_of(const char* pid, int count, char** ids, int* first) {
  char path[300], line[4400], target[4200];
  snprintf(path, sizeof path, "/proc/%s/maps", pid);
  FILE* maps = fopen(path, "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    if (!names_one(line, count, ids)) continue;
    line[strcspn(line, " ")] = '\0';
    snprintf(target, sizeof target, "/proc/%s/map_files/%.40s", pid, line);
    found(first, "mapped", target);
  }
  if (maps != NULL) fclose(maps);
  snprintf(path, sizeof path, "/proc/%s/fd", pid);
  DIR* fds = opendir(path);
  for (struct dirent* entry; fds != NULL && (entry = readdir(fds)) != NULL;) {
    snprintf(target, sizeof target, "%s/%s", path, entry->d_name);
    const ssize_t length = readlink(target, line, sizeof line - 1);
    line[length < 0 ? 0 : length] = '\0';
    if (names_one(line, count, ids)) found(first, "descriptor", target);
  }
  if (fds != NULL) closedir(fds);
  for (int i = 0; i < count; ++i) {
    snprintf(target, sizeof target, "/proc/%s/root/run/carve/slices/%s/s", pid, ids[i]);
    if (connect_path(target, SOCK_SEQPACKET) == 0) found(first, "socket", target);
  }
}

static void pages(int count, char** ids) {
  int processes = 0, first = 1;
  printf("\"found\": [");
  DIR* all = opendir("/proc");
  for (struct dirent* entry; all != NULL && (entry = readdir(all)) != NULL;) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    ++processes;
    pages_of(entry->d_name, count, ids, &first);
  }
  if (all != NULL) closedir(all);
  printf("], \"processes\": %d", processes);
}

/* Hello and welcome of abi/hello.h: gets the descriptors of a slice's first card, grant page and account page. */
static int ask(int fds[2]) {
  const struct {
    uint32_t magic;
    uint16_t abi_min, abi_max;
    uint32_t kind, reserved;
  } hello = {0x48564143, 1, 1, 1, 0};
  char welcome[32], control[CMSG_SPACE(64 * sizeof(int))], path[300] = "";
  DIR* slices = opendir("/run/carve/slices");
  for (struct dirent* entry; slices != NULL && (entry = readdir(slices)) != NULL;) {
    if (entry->d_name[0] != '.') snprintf(path, sizeof path, "/run/carve/slices/%s/s", entry->d_name);
  }
  if (slices != NULL) closedir(slices);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) return errno;
  struct iovec part = {welcome, sizeof welcome};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (send(fd, &hello, sizeof hello, 0) < 0 || recvmsg(fd, &message, 0) < 0) return errno;
  const struct cmsghdr* first = CMSG_FIRSTHDR(&message);
  if (first == NULL || first->cmsg_len < CMSG_LEN(2 * sizeof(int))) return ENOMSG;
  memcpy(fds, CMSG_DATA(first), 2 * sizeof(int));
  return 0;
}

static int written_through(int fd, const char* folder) {
  char path[64];
  snprintf(path, sizeof path, "%s/%d", folder, fd);
  return open_path(path, O_RDWR);
}

static int truncated_through(int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open_path(path, O_RDONLY | O_TRUNC);
}

static int mem_written(void* at) {
  const int fd = open("/proc/self/mem", O_RDWR);
  if (fd < 0) return errno;
  const uint64_t unlimited = ~0ULL;
  const int done = result(pwrite(fd, &unlimited, sizeof unlimited, (off_t)(uintptr_t)at));
  close(fd);
  return done;
}

static int flags_then_write(int fd) {
  const uint64_t unlimited = ~0ULL;
  fcntl(fd, F_SETFL, O_RDWR);
  return result(pwrite(fd, &unlimited, sizeof unlimited, kMemoryLimitAt));
}

static int mapping_opened(void* at) {
  char path[96];
  snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)(intptr_t)at, (long)(intptr_t)at + kPage);
  return open_path(path, O_RDWR);
}

static int handle_opened(int fd) {
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
  int mount = 0;
  if (name_to_handle_at(fd, "", &handle.head, &mount, AT_EMPTY_PATH) != 0) return errno;
  const int opened = open_by_handle_at(fd, &handle.head, O_RDWR);
  const int done = result(opened);
  if (opened >= 0) close(opened);
  return done;
}

static void attempt(const char* name, int done) {
  printf(", \"%s\": %d", name, done);
}

static void own(void) {
  int fds[2] = {-1, -1};
  const int asked = ask(fds);
  printf("\"asked\": %d", asked);
  if (asked != 0) return;
  const int grant = fds[0];
  char* at = mmap(NULL, kPage, PROT_READ, MAP_SHARED, grant, 0);
  attempt("mapped", result(at == MAP_FAILED ? -1 : 0));
  attempt("reopened in /proc/self/fd", written_through(grant, "/proc/self/fd"));
  attempt("reopened in /proc/thread-self/fd", written_through(grant, "/proc/thread-self/fd"));
  attempt("reopened in /dev/fd", written_through(grant, "/dev/fd"));
  attempt("truncated by opening", truncated_through(grant));
  attempt("mapped writable", result(mmap(NULL, kPage, PROT_WRITE, MAP_SHARED, grant, 0) == MAP_FAILED ? -1 : 0));
  attempt("made writable", result(mprotect(at, kPage, PROT_READ | PROT_WRITE)));
  attempt("written by /proc/self/mem", mem_written(at + kMemoryLimitAt));
  attempt("its mapping opened", mapping_opened(at));
  attempt("written after F_SETFL", flags_then_write(grant));
  attempt("truncated", result(ftruncate(grant, 0)));
  attempt("punched", result(fallocate(grant, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage)));
  attempt("mode changed", result(fchmod(grant, 0666)));
  attempt("owner changed", result(fchown(grant, getuid(), getgid())));
  attempt("attribute set", result(fsetxattr(grant, "user.a", "b", 1, 0)));
  attempt("linked", result(linkat(grant, "", AT_FDCWD, "/tmp/grant", AT_EMPTY_PATH)));
  attempt("opened by its handle", handle_opened(grant));
  attempt("its mount cloned", result(syscall(428 /* open_tree */, grant, "", AT_EMPTY_PATH | 1 /* clone */)));
  attempt("the account page reopened", written_through(fds[1], "/proc/self/fd"));
  attempt("the account page made smaller", result(ftruncate(fds[1], kPage)));
  uint64_t limit = 0;
  memcpy(&limit, at + kMemoryLimitAt, sizeof limit);
  printf(", \"limit\": %llu", (unsigned long long)limit);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  printf("{");
  if (strcmp(what, "paths") == 0) paths(argc - 2, argv + 2);
  if (strcmp(what, "abstract") == 0) abstract();
  if (strcmp(what, "pages") == 0) pages(argc - 2, argv + 2);
  if (strcmp(what, "own") == 0) own();
  printf("}\n");
  return 0;
}
