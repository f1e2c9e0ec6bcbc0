// What makes a program one that may change its user, as `viaduct doctor` sees it: it looks a name up and has setuid().
#include <pwd.h>
#include <unistd.h>

[[gnu::used]] int change_user(const char* name) {
  const passwd* const user = ::getpwnam(name);
  return user != nullptr ? ::setuid(user->pw_uid) : -1;
}
