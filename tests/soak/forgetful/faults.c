/* Faults inside a process, by LD_PRELOAD: refused system calls, a moved clock; and which bytes of a log are on disk.

   FAULTS_CONTROL  file of a struct control: what this process, and those that it starts, suffer now
   FAULTS_DURABLE  file of structs durable: up to where each append-only file has been synced, by any process */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
  double clock_seconds; /* added to the wall clock */
  double until;         /* CLOCK_MONOTONIC; refusals end then */
  double chance;        /* share of the calls that are refused */
  int32_t code;         /* errno */
  int32_t calls;        /* 1: those that make descriptors, 2: those that write files, 4: those that sync */
};
struct durable { uint64_t id, size; };
enum { LOGS = 1024 }; /* as in shim.py */

static struct control *control;
static struct durable *durable;

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name); real; })

static void *map_file(const char *variable, size_t size) {
  const char *path = getenv(variable);
  int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  int file = path ? real_open(path, O_RDWR | O_CLOEXEC) : -1;
  void *found = file < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  return found == MAP_FAILED ? NULL : found;
}

__attribute__((constructor)) static void begin(void) {
  control = map_file("FAULTS_CONTROL", sizeof *control);
  durable = map_file("FAULTS_DURABLE", LOGS * sizeof *durable);
}

static int is_refused(int call) {
  static _Thread_local unsigned seed;
  if (!control || !(control->calls & call)) return 0;
  struct timespec now;
  REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
  if (now.tv_sec + now.tv_nsec / 1e9 > control->until) return 0;
  if (!seed) seed = (unsigned)now.tv_nsec ^ (unsigned)getpid();
  if (rand_r(&seed) >= control->chance * RAND_MAX) return 0;
  errno = control->code;
  return 1;
}

static int is_file(int file) {
  struct stat found;
  return file > 2 && fstat(file, &found) == 0 && S_ISREG(found.st_mode);
}

static int is_open_refused(int flags) { return is_refused(1) || ((flags & O_CREAT) && is_refused(2)); }

#define OPEN(name)                                                                   \
  int name(const char *path, int flags, ...) {                                       \
    va_list rest;                                                                    \
    va_start(rest, flags);                                                           \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;          \
    va_end(rest);                                                                    \
    return is_open_refused(flags) ? -1 : REAL(name)(path, flags, mode);              \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                 \
  int name(int at, const char *path, int flags, ...) {                               \
    va_list rest;                                                                    \
    va_start(rest, flags);                                                           \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;          \
    va_end(rest);                                                                    \
    return is_open_refused(flags) ? -1 : REAL(name)(at, path, flags, mode);          \
  }
OPENAT(openat)
OPENAT(openat64)

int socket(int domain, int type, int protocol) { return is_refused(1) ? -1 : REAL(socket)(domain, type, protocol); }
int accept4(int file, struct sockaddr *address, socklen_t *size, int flags) {
  return is_refused(1) ? -1 : REAL(accept4)(file, address, size, flags);
}
int accept(int file, struct sockaddr *address, socklen_t *size) {
  return is_refused(1) ? -1 : REAL(accept)(file, address, size);
}
int pipe2(int files[2], int flags) { return is_refused(1) ? -1 : REAL(pipe2)(files, flags); }

ssize_t write(int file, const void *content, size_t size) {
  return is_refused(2 * is_file(file)) ? -1 : REAL(write)(file, content, size);
}
ssize_t pwrite64(int file, const void *content, size_t size, off64_t offset) {
  return is_refused(2 * is_file(file)) ? -1 : REAL(pwrite64)(file, content, size, offset);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
  return is_refused(2 * is_file(file)) ? -1 : REAL(writev)(file, parts, count);
}

static void name_descriptor(char *into, int file) {
  char digits[16];
  int at = sizeof digits - 1;
  digits[at] = 0;
  do digits[--at] = '0' + file % 10; while (file /= 10);
  strcpy(into, "/proc/self/fd/");
  strcat(into, digits + at);
}

/* The name is part of the id: an inode is used again for a later log. */
static uint64_t identify(const char *path, uint64_t inode) {
  uint64_t id = inode;
  const char *name = strrchr(path, '/');
  for (name = name ? name + 1 : path; *name; name++) id = (id ^ (unsigned char)*name) * 1099511628211u;
  return id;
}

static void note_durable(const char *path, const struct stat *found) {
  uint64_t id = identify(path, found->st_ino);
  for (struct durable *one = durable; one < durable + LOGS; one++) {
    if (!one->id) __sync_bool_compare_and_swap(&one->id, 0, id);
    if (one->id != id) continue;
    if ((uint64_t)found->st_size > one->size) one->size = found->st_size;
    return;
  }
}

#define SYNC(name)                                                                              \
  int name(int file) {                                                                          \
    struct stat found;                                                                          \
    char link[64], path[512] = "";                                                              \
    if (is_refused(4 * is_file(file))) return -1;                                               \
    name_descriptor(link, file);                                                                  \
    int is_log = durable && readlink(link, path, sizeof path - 1) > 0 && strstr(path, "appendonly") \
                 && strstr(path, ".aof") && fstat(file, &found) == 0;                           \
    int answer = REAL(name)(file);                                                              \
    if (is_log && answer == 0 && !strstr(path, ".base.") && !strstr(path, "temp-"))             \
      note_durable(path, &found);                                                               \
    return answer;                                                                              \
  }

SYNC(fsync)
SYNC(fdatasync)

int clock_gettime(clockid_t clock, struct timespec *now) {
  int answer = REAL(clock_gettime)(clock, now);
  if (control && control->clock_seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += (time_t)control->clock_seconds;
  return answer;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int answer = REAL(gettimeofday)(now, zone);
  if (control) now->tv_sec += (time_t)control->clock_seconds;
  return answer;
}
time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
