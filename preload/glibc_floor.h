#pragma once

// This file is force-included into every file of the library. Newer C libraries moved some symbols or gave them new
// versions. The file binds these symbols to the version in glibc 2.17, so that an object built on a new system loads
// on an old one. Pin only names above the floor. Do not pin pthread_cond_*: the old versions have a different layout.
#if defined(__x86_64__)
#define CARVE_FLOOR "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define CARVE_FLOOR "GLIBC_2.17"
#else
#error "no glibc floor known for this machine"
#endif
#define CARVE_PIN(symbol) __asm__(".symver " #symbol "," #symbol "@" CARVE_FLOOR)

CARVE_PIN(dlclose);
CARVE_PIN(dlopen);
CARVE_PIN(dlsym);
CARVE_PIN(pthread_attr_setstacksize);
CARVE_PIN(pthread_create);
CARVE_PIN(pthread_sigmask);
